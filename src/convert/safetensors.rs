//! A .safetensors file as a source of tables, one a tensor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::open_source;
use super::table::{Input, Source, Table, read_error};
use crate::data::DType;
use crate::error::{Error, Result};

/// What the format allows.
const HEADER_LIMIT: u64 = 100_000_000;

/// The file, its tensors checked: they cover the data wholly, without overlaps.
#[derive(Debug)]
pub(super) struct SafetensorsFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    /// The entry `__metadata__`.
    said: Option<BTreeMap<String, String>>,
    names: Vec<String>,
    data_start: u64,
}

impl SafetensorsFile {
    pub(super) fn open(path: &Path) -> Result<SafetensorsFile> {
        let mut file = open_source(path)?;
        let len = file.metadata().map_err(Error::io("read", path))?.len();
        let mut header_len = [0; 8];
        file.read_exact(&mut header_len).map_err(|e| read_error(path, "the header's length", e))?;
        let header_len = u64::from_le_bytes(header_len);
        if header_len > HEADER_LIMIT || header_len > len.saturating_sub(8) {
            let reason = format!("the header claims {header_len} bytes, the file has {len}, and the limit is 100 MB");
            return Err(Error::format(path, reason));
        }
        let mut header = vec![0; header_len as usize];
        file.read_exact(&mut header).map_err(|e| read_error(path, "the header", e))?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|e| Error::format(path, format!("the header: {e}")))?;
        let (expected, found) = (metadata.data_len() as u64, len - 8 - header_len);
        if expected != found {
            let reason = format!("the tensors take {expected} bytes, {found} are there");
            return Err(Error::format(path, reason));
        }
        let names = metadata.offset_keys();
        let said = metadata.metadata().clone().map(BTreeMap::from_iter);
        Ok(SafetensorsFile { path: path.to_path_buf(), file, metadata, said, names, data_start: 8 + header_len })
    }
}

impl Source for SafetensorsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn is_archive(&self) -> bool {
        true
    }

    fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.said.as_ref()
    }

    fn table(&mut self, index: usize, _void: Option<DType>) -> Result<Table> {
        let name = &self.names[index];
        let path = super::member_path(&self.path, name);
        let info = self.metadata.info(name).ok_or_else(|| Error::format(&path, "it is not in the header"))?;
        let dtype = match info.dtype {
            Dtype::BOOL => DType::Bool,
            Dtype::I8 => DType::I8,
            Dtype::I16 => DType::I16,
            Dtype::I32 => DType::I32,
            Dtype::I64 => DType::I64,
            Dtype::U8 => DType::U8,
            Dtype::U16 => DType::U16,
            Dtype::U32 => DType::U32,
            Dtype::U64 => DType::U64,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            other => {
                let reason = "no dataset has this element type: choose the other tensors by name";
                return Err(Error::unsupported(&path, format!("dtype {other}"), reason));
            }
        };
        let shape: Vec<u64> = info.shape.iter().map(|dimension| *dimension as u64).collect();
        let table = Table::new(&path, dtype, &shape, self.data_start + info.data_offsets.0 as u64)?;
        // The crate has held the offsets to the shape.
        debug_assert_eq!(table.data_bytes(), (info.data_offsets.1 - info.data_offsets.0) as u64);
        Ok(table)
    }

    fn input(&mut self, _index: usize, table: &Table, _in_order: bool) -> Result<Input<'_>> {
        Input::file(&self.path, &self.file, table.data_start)
    }
}
