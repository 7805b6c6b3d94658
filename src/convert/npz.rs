//! A .npz archive as a source of tables, one a member.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::npy::{self, Header};
use super::open_source;
use super::table::{Input, Source, Table, read_error};
use crate::data::DType;
use crate::error::{Error, Result};

/// Deflate turns no byte into more than this many.
const DEFLATE_RATIO: u64 = 1032;

/// An archive whose directory was read.
#[derive(Debug)]
pub(super) struct NpzFile {
    path: PathBuf,
    file: File,
    archive: ZipArchive<File>,
    /// The name of each member that is not a directory, without .npy, and its place in the archive.
    names: Vec<String>,
    members: Vec<usize>,
}

impl NpzFile {
    pub(super) fn open(path: &Path) -> Result<NpzFile> {
        let file = open_source(path)?;
        let clone = file.try_clone().map_err(Error::io("open", path))?;
        let archive = ZipArchive::new(clone).map_err(|e| zip_error(path, e))?;
        if archive.has_duplicate_names() {
            return Err(Error::format(path, "two members of the archive have the same name"));
        }
        let (mut names, mut members) = (Vec::new(), Vec::new());
        for member in 0..archive.len() {
            let entry = archive.by_index_data(member).map_err(|e| zip_error(path, e))?;
            let name = entry.name().map_err(|e| zip_error(path, e))?;
            if !entry.is_dir() {
                names.push(name.strip_suffix(".npy").unwrap_or(&name).to_owned());
                members.push(member);
            }
        }
        Ok(NpzFile { path: path.to_path_buf(), file, archive, names, members })
    }

    /// The path for errors.
    fn member_path(&self, index: usize) -> PathBuf {
        super::member_path(&self.path, &self.names[index])
    }

    /// A member's content from its first byte on; its checksum is verified where it ends.
    fn stream(&mut self, index: usize) -> Result<impl Read + '_> {
        let path = self.member_path(index);
        self.archive.by_index(self.members[index]).map_err(|e| zip_error(&path, e))
    }

    /// Reads a member to its end, so that its checksum is verified, and says where its content lies in the archive.
    fn verified_start(&mut self, index: usize) -> Result<u64> {
        let path = self.member_path(index);
        let mut member = self.archive.by_index(self.members[index]).map_err(|e| zip_error(&path, e))?;
        io::copy(&mut member, &mut io::sink()).map_err(|e| read_error(&path, "the data", e))?;
        member.data_start().ok_or_else(|| Error::format(&path, "its place in the archive is unknown"))
    }

    /// The size that the directory claims, held to what the compressed bytes can give.
    fn checked_size(&self, index: usize) -> Result<u64> {
        let path = self.member_path(index);
        let entry = self.archive.by_index_data(self.members[index]).map_err(|e| zip_error(&path, e))?;
        let possible = match entry.compression() {
            CompressionMethod::Stored => entry.compressed_size(),
            CompressionMethod::Deflated => entry.compressed_size().saturating_mul(DEFLATE_RATIO),
            other => {
                let reason = "members are stored or deflated: save it with numpy.savez or savez_compressed";
                return Err(Error::unsupported(&path, format!("compression {other}"), reason));
            }
        };
        if entry.encrypted() {
            return Err(Error::unsupported(&path, "encryption", "decrypt the archive first"));
        }
        if entry.size() > possible {
            let reason = format!("it claims {} bytes, which its compressed bytes cannot hold", entry.size());
            return Err(Error::format(&path, reason));
        }
        Ok(entry.size())
    }

    fn is_npy(&self, index: usize) -> Result<bool> {
        let entry = self.archive.by_index_data(self.members[index]).map_err(|e| zip_error(&self.path, e))?;
        Ok(entry.name_raw().ends_with(b".npy"))
    }

    fn header(&mut self, index: usize) -> Result<Header> {
        let path = self.member_path(index);
        npy::read_header(&path, &mut self.stream(index)?)
    }
}

impl Source for NpzFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn is_archive(&self) -> bool {
        true
    }

    fn table(&mut self, index: usize, void: Option<DType>) -> Result<Table> {
        let path = self.member_path(index);
        if !self.is_npy(index)? {
            let reason = "its name does not end in .npy: choose the arrays by name";
            return Err(Error::unsupported(&path, "a member that is not an array", reason));
        }
        let size = self.checked_size(index)?;
        Table::from_npy(&path, self.header(index)?, void, size)
    }

    fn input(&mut self, index: usize, table: &Table, in_order: bool) -> Result<Input<'_>> {
        let entry = self.archive.by_index_data(self.members[index]).map_err(|e| zip_error(&table.path, e))?;
        if !in_order && entry.compression() == CompressionMethod::Stored {
            let start = self.verified_start(index)? + table.data_start;
            return Input::file(&self.path, &self.file, start);
        }
        let mut stream = self.stream(index)?;
        io::copy(&mut (&mut stream).take(table.data_start), &mut io::sink())
            .map_err(|e| read_error(&table.path, "the header", e))?;
        Ok(Input::Stream(Box::new(stream)))
    }
}

fn zip_error(path: &Path, error: ZipError) -> Error {
    match error {
        ZipError::Io(error) => read_error(path, "the archive", error),
        error => Error::format(path, format!("the archive: {error}: is it a .npz? A .npy is imported as one")),
    }
}
