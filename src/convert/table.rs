//! Tables of rows: what a source file says of an array, and its bytes as rows in C order, little-endian.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{fortran, npy};
use crate::data::{ByteOrder, DType, swap_bytes};
use crate::error::{Error, Result};

/// Bytes that are read, converted and appended at once; a block holds at least one row.
pub(super) const BLOCK: u64 = 8 << 20;

/// Bytes that are spilled at once.
const SPILL: u64 = 1 << 20;

/// A file that holds tables.
pub(super) trait Source {
    /// The file.
    fn path(&self) -> &Path;
    /// What it holds, in the order of the file; the table of a .npy file has the empty name.
    fn names(&self) -> &[String];
    /// Whether it holds any number of tables, each with a name.
    fn is_archive(&self) -> bool;
    /// What the file says of itself, beside the tables.
    fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
    /// Looks at one, and refuses it if it is no table, or not whole. `void` is what `<V2` means.
    fn table(&mut self, index: usize, void: Option<DType>) -> Result<Table>;
    /// Its data. `in_order` promises that it is read once, from the first byte to the last.
    fn input(&mut self, index: usize, table: &Table, in_order: bool) -> Result<Input<'_>>;
}

/// An array, seen as rows along its first axis. All sizes are checked: `rows * row_bytes` fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// For errors: the file, and the member after it.
    pub(super) path: PathBuf,
    pub(super) dtype: DType,
    pub(super) rows: u64,
    /// The shape of a row.
    pub(super) item_shape: Vec<u64>,
    /// Bytes a row.
    pub(super) row_bytes: u64,
    /// Where the data begins in the file, or in the member.
    pub(super) data_start: u64,
    order: ByteOrder,
    fortran: bool,
}

impl Table {
    /// A table in C order, little-endian.
    pub(super) fn new(path: &Path, dtype: DType, shape: &[u64], data_start: u64) -> Result<Table> {
        let Some((&rows, item_shape)) = shape.split_first() else {
            return Err(Error::unsupported(
                path,
                "an array of no dimensions",
                "it has no axis 0 to take records along: save it with .reshape(1)",
            ));
        };
        let product = if item_shape.contains(&0) {
            Some(0)
        } else {
            item_shape.iter().try_fold(dtype.size() as u64, |product, dimension| product.checked_mul(*dimension))
        };
        let row_bytes = product.filter(|row_bytes| rows.checked_mul(*row_bytes).is_some());
        let row_bytes = row_bytes.ok_or_else(|| Error::format(path, format!("the shape {shape:?} overflows")))?;
        Ok(Table {
            path: path.to_path_buf(),
            dtype,
            rows,
            item_shape: item_shape.to_vec(),
            row_bytes,
            data_start,
            order: ByteOrder::Little,
            fortran: false,
        })
    }

    /// What the header of a .npy says, which must account for every one of `len` bytes.
    ///
    /// NumPy reads an array and leaves what follows it, so that several may be saved into one file. Taking the first and
    /// dropping the rest in silence would lose data: it is refused.
    pub(super) fn from_npy(path: &Path, header: npy::Header, void: Option<DType>, len: u64) -> Result<Table> {
        let (dtype, order) = npy::element(path, &header.descr, void)?;
        let mut table = Table::new(path, dtype, &header.shape, header.data_start)?;
        table.order = order;
        // With one element a row, both orders are the same.
        table.fortran = header.fortran && table.row_bytes > dtype.size() as u64;
        let (found, expected) = (len.saturating_sub(header.data_start), table.data_bytes());
        if found < expected {
            let reason = format!("the data is cut short: {expected} bytes are expected, {found} are there");
            return Err(Error::format(path, reason));
        }
        if found > expected {
            let reason = format!(
                "{} bytes follow the array (several arrays saved into one file?): save each array to its own file",
                found - expected
            );
            return Err(Error::format(path, reason));
        }
        Ok(table)
    }

    /// Bytes of the data.
    pub(super) fn data_bytes(&self) -> u64 {
        self.rows * self.row_bytes
    }

    /// Whether the rows can be had by reading the data once, from the first byte to the last.
    pub(super) fn is_c_order(&self) -> bool {
        !self.fortran
    }
}

/// Where the bytes of a table come from.
pub(super) enum Input<'a> {
    /// A file, which holds them from `start` on.
    File { file: File, start: u64 },
    /// A stream that gives them once.
    Stream(Box<dyn Read + 'a>),
}

impl Input<'_> {
    /// The part of `file` that begins at `start`.
    pub(super) fn file<'a>(path: &Path, file: &File, start: u64) -> Result<Input<'a>> {
        Ok(Input::File { file: file.try_clone().map_err(Error::io("open", path))?, start })
    }
}

/// Reads a table by rows.
pub(super) struct TableReader<'a> {
    table: Table,
    input: Input<'a>,
    /// Where Fortran order is turned into C order.
    columns: Vec<u8>,
}

impl<'a> TableReader<'a> {
    /// A reader of blocks in order, and with `any_row` of any row at any time. What cannot be read so where it lies is
    /// spilled to a nameless file in the directory `spill`.
    pub(super) fn new(table: &Table, input: Input<'a>, spill: &Path, any_row: bool) -> Result<TableReader<'a>> {
        let mut reader = TableReader { table: table.clone(), input, columns: Vec::new() };
        if let Input::Stream(stream) = &mut reader.input
            && (any_row || table.fortran)
        {
            let mut file = spill_file(spill)?;
            let mut buffer = vec![0; SPILL.min(table.data_bytes()) as usize];
            let mut left = table.data_bytes();
            while left > 0 {
                let some = &mut buffer[..SPILL.min(left) as usize];
                stream.read_exact(some).map_err(|e| read_error(&table.path, "the data", e))?;
                file.write_all(some).map_err(Error::io("write a temporary file in", spill))?;
                left -= some.len() as u64;
            }
            reader.finish()?;
            reader.input = Input::File { file, start: 0 };
        }
        if any_row && table.fortran {
            reader.transpose(spill)?;
        }
        Ok(reader)
    }

    /// Writes the rows out in C order, and reads from there.
    fn transpose(&mut self, spill: &Path) -> Result<()> {
        let mut file = spill_file(spill)?;
        let mut block = Vec::new();
        for rows in self.blocks() {
            block.resize(self.bytes(&rows), 0);
            self.read(rows, &mut block)?;
            file.write_all(&block).map_err(Error::io("write a temporary file in", spill))?;
        }
        self.input = Input::File { file, start: 0 };
        self.table.fortran = false;
        self.table.order = ByteOrder::Little;
        self.columns = Vec::new();
        Ok(())
    }

    /// The rows in blocks of a size that suits the order in which they lie.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        self.blocks_from(0)
    }

    fn blocks_from(&self, first: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let Table { rows, row_bytes, fortran, .. } = self.table;
        let block = if fortran { fortran::BLOCK } else { BLOCK };
        let step = block.checked_div(row_bytes).unwrap_or(rows).max(1);
        (first..rows).step_by(step as usize).map(move |first| first..rows.min(first.saturating_add(step)))
    }

    /// The same without the first rows, which a stream is moved past.
    pub(super) fn skip(&mut self, rows: u64) -> Result<impl Iterator<Item = Range<u64>> + use<'a>> {
        if let Input::Stream(stream) = &mut self.input {
            let bytes = rows * self.table.row_bytes;
            let skipped = io::copy(&mut stream.take(bytes), &mut io::sink());
            if skipped.map_err(|e| read_error(&self.table.path, "the data", e))? < bytes {
                return Err(read_error(&self.table.path, "the data", io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(self.blocks_from(rows))
    }

    /// How many bytes rows have.
    pub(super) fn bytes(&self, rows: &Range<u64>) -> usize {
        ((rows.end - rows.start) * self.table.row_bytes) as usize
    }

    /// Fills `out` with rows in C order, little-endian. Without `any_row`, blocks come in order and each once.
    pub(super) fn read(&mut self, rows: Range<u64>, out: &mut [u8]) -> Result<()> {
        debug_assert_eq!(out.len(), self.bytes(&rows));
        if self.table.fortran {
            let Self { table, input, columns } = self;
            fortran::read_rows(table, &rows, columns, out, |offset, out| read_at(&table.path, input, offset, out))?;
        } else {
            read_at(&self.table.path, &mut self.input, rows.start * self.table.row_bytes, out)?;
        }
        if self.table.order == ByteOrder::Big {
            swap_bytes(out, self.table.dtype.size());
        }
        if self.table.dtype == DType::Bool
            && let Some(at) = out.iter().position(|byte| *byte > 1)
        {
            let row = rows.start + at as u64 / self.table.row_bytes;
            let reason = format!("row {row} holds a bool of {}: 0 and 1 are expected", out[at]);
            return Err(Error::format(&self.table.path, reason));
        }
        Ok(())
    }

    /// Says whether a stream ended where its table does, and whether its checksum was right.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Input::Stream(stream) = &mut self.input else { return Ok(()) };
        match stream.read(&mut [0]).map_err(|e| read_error(&self.table.path, "the data", e))? {
            0 => Ok(()),
            _ => Err(Error::format(&self.table.path, "it is longer than the archive's directory says")),
        }
    }
}

fn spill_file(directory: &Path) -> Result<File> {
    tempfile::tempfile_in(directory).map_err(Error::io("create a temporary file in", directory))
}

/// Reads bytes that begin `offset` bytes after the start of the data; a stream just goes on.
fn read_at(path: &Path, input: &mut Input<'_>, offset: u64, out: &mut [u8]) -> Result<()> {
    match input {
        Input::File { file, start } => file.seek(SeekFrom::Start(*start + offset)).and_then(|_| file.read_exact(out)),
        Input::Stream(stream) => stream.read_exact(out),
    }
    .map_err(|e| read_error(path, "the data", e))
}

/// A failure to read: a file that ends too early, or that a decoder refused, is malformed; anything else is the system's.
pub(super) fn read_error(path: &Path, what: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::format(path, format!("it ends in the middle of {what}")),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Error::format(path, format!("{what} is damaged: {error}"))
        }
        _ => Error::io("read", path)(error),
    }
}
