//! `Import`: what is imported, and how.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::choose::{Choice, Chosen};
use super::npy::NpyFile;
use super::npz::NpzFile;
use super::place::Partial;
use super::safetensors::SafetensorsFile;
use super::table::Source;
use super::write::{Done, Settings};
use crate::data::DType;
use crate::error::{Error, Result};
use crate::{Codec, DictSize, Records};

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Rows that were appended; records, where records are imported.
    pub rows: u64,
    /// Rows in all, over all tables of the file. `None` where an iterator does not say.
    pub rows_total: Option<u64>,
    /// Bytes of those rows, before compression.
    pub bytes: u64,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// The stores that were made: the destination itself, or one a member or tensor in it.
    pub stores: Vec<PathBuf>,
    /// Records in all stores.
    pub rows: u64,
    /// Their bytes, before compression.
    pub bytes: u64,
    /// Whether a `DST.partial` that an earlier import left when it was killed was replaced.
    pub replaced_partial: bool,
}

/// Imports a file, or an iterator of records, into a store.
///
/// Each row along the first axis of an array becomes a record. The store is built in `DST.partial`, a directory beside
/// the destination `DST`, and moved to `DST` when it is complete and durable: `DST` never appears half-made. An error
/// removes `DST.partial`; what a killed import left is replaced by the next one. An existing `DST` is an error.
///
/// Arrays are stored in C order and little-endian, whatever the file has. Memory stays bounded by some blocks of 8 MiB
/// (32 MiB for Fortran order), or by a row where a row is larger, and by 64 MiB of samples where a dictionary is trained.
///
/// # Errors
///
/// Arrays that no dataset can hold (complex numbers, dates, strings, structures, pickled objects, no dimensions), bools
/// other than 0 and 1, data that is cut short or followed by more, more than 2^24 rows, and rows over the record limit
/// are refused with the file's name and the reason.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (src, dst) = (dir.path().join("images.npy"), dir.path().join("images"));
/// # let mut npy = b"\x93NUMPY\x01\x00\x38\x00{'descr': '|u1', 'fortran_order': False, 'shape': (2,3)}".to_vec();
/// # npy.resize(10 + 0x38, b' ');
/// # std::fs::write(&src, [&npy[..], &[1, 2, 3, 4, 5, 6]].concat())?;
/// use loaderx::{Codec, Import};
///
/// // A .npy file of shape (2, 3) becomes two records of three elements.
/// let imported = Import::new().codec(Codec::Raw).npy(&src, &dst)?;
/// assert_eq!((imported.rows, imported.bytes), (2, 6));
/// # Ok(())
/// # }
/// ```
pub struct Import<'a> {
    pub(super) settings: Settings,
    choice: Choice,
    pub(super) samples: Option<Records>,
    pub(super) progress: Box<dyn FnMut(Progress) + 'a>,
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import").field("settings", &self.settings).field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl Default for Import<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Import<'a> {
    /// The defaults: codec zstd at its default level, all tables of the file, records to 1 MiB, no progress.
    pub fn new() -> Self {
        Import { settings: Settings::default(), choice: Choice::default(), samples: None, progress: Box::new(|_| {}) }
    }

    /// How records are compressed. The dictionary codec trains on at most 8192 rows spread evenly over each table, and
    /// at most 64 MiB of them.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.settings.codec = codec;
        self
    }

    /// The compression level; the codec's default unless set.
    pub fn level(mut self, level: i32) -> Self {
        self.settings.level = Some(level);
        self
    }

    /// How large the dictionary may become.
    pub fn dict_size(mut self, size: DictSize) -> Self {
        self.settings.dict_size = size;
        self
    }

    /// What elements are that NumPy saved as `<V2`: [`DType::BF16`] is the only answer. Other arrays of the file keep
    /// the type that they have; an error where no array needs the word.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.choice.dtype = Some(dtype);
        self
    }

    /// The largest record in bytes, up to 4 GiB - 1; 1 MiB unless set.
    pub fn record_limit(mut self, bytes: u32) -> Self {
        self.settings.record_limit = bytes;
        self
    }

    /// Takes only these members of a .npz (named without .npy) or tensors of a .safetensors.
    pub fn tensors(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.choice.tensors.extend(names.into_iter().map(Into::into));
        self
    }

    /// An entry for the schema of every store that is made: a key of your own, and anything that serde can write. A
    /// struct becomes a map.
    ///
    /// A key that is taken or that cannot be written is an error when the import begins.
    pub fn metadata(mut self, key: &str, value: &impl Serialize) -> Self {
        self.settings.metadata = self.settings.metadata.and_then(|mut metadata| {
            metadata.insert(key, value)?;
            Ok(metadata)
        });
        self
    }

    /// Calls `progress` after every block of rows.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Imports a file, whose extension says what it is: .npy, .npz or .safetensors.
    pub fn path(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        let source = source.as_ref();
        let extension = source.extension().and_then(|extension| extension.to_str()).unwrap_or("").to_ascii_lowercase();
        match extension.as_str() {
            "npy" => self.npy(source, destination),
            "npz" => self.npz(source, destination),
            "safetensors" => self.safetensors(source, destination),
            _ => Err(Error::unsupported(
                source,
                format!("the extension {extension:?}"),
                "files named .npy, .npz and .safetensors are imported",
            )),
        }
    }

    /// Imports a .npy file of shape `(n, …)` into the dense store `destination` of `n` records.
    pub fn npy(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.file(&mut NpyFile::open(source.as_ref())?, destination.as_ref())
    }

    /// Imports the members of a .npz archive, each into a dense store `destination/<name>`.
    ///
    /// A member that is not an array, or has no element type of a dataset, is an error: choose the others with
    /// [`tensors`](Import::tensors). Names may have folders, but lead nowhere outside of `destination`.
    pub fn npz(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.file(&mut NpzFile::open(source.as_ref())?, destination.as_ref())
    }

    /// Imports the tensors of a .safetensors file along their first axis, each into a dense store
    /// `destination/<name>`. What holds for the members of an archive holds for them.
    pub fn safetensors(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.file(&mut SafetensorsFile::open(source.as_ref())?, destination.as_ref())
    }

    /// Imports the chosen tables of a file.
    fn file(mut self, source: &mut dyn Source, destination: &Path) -> Result<Imported> {
        let tables = self.choice.tables(source)?;
        let schemas = tables.iter().map(|chosen| self.settings.table_schema(&chosen.table));
        let schemas: Vec<Vec<u8>> = schemas.collect::<Result<_>>()?;
        let mut partial = Partial::begin(&self.settings.disk, destination)?;
        let total = tables.iter().map(|chosen| chosen.table.rows).sum();
        let mut done = Done::new(&mut self.progress, Some(total));
        for (Chosen { index, table, parts }, schema) in tables.iter().zip(&schemas) {
            let store = self.settings.create(&partial.below(parts)?, schema)?;
            let in_order = table.is_c_order() && self.settings.codec != Codec::ZstdDict;
            let input = source.input(*index, table, in_order)?;
            self.settings.import_table(table, input, store, partial.path(), &mut done)?;
        }
        let below = |parts: &Vec<String>| parts.iter().fold(destination.to_path_buf(), |path, part| path.join(part));
        done.finish(partial, tables.iter().map(|chosen| below(&chosen.parts)).collect())
    }
}
