//! Files and iterators of records into stores.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::npy::NpyFile;
use super::npz::NpzFile;
use super::place::Partial;
use super::safetensors::SafetensorsFile;
use super::schema::schema_bytes;
use super::table::{BLOCK, Input, Source, Table, TableReader};
use crate::data::DType;
use crate::error::{Error, Result};
use crate::{Codec, DictSize, Records, Store, StoreOptions};

/// The most records that a store holds.
const MAX_RECORDS: u64 = 1 << 24;

/// The largest record that a store takes unless a larger limit is set.
const RECORD_LIMIT: u32 = 1 << 20;

/// A dictionary is trained on at most this many records, and this many bytes of them.
const MAX_SAMPLES: u64 = 8192;
const MAX_SAMPLE_BYTES: u64 = 128 << 20;

/// Records of an iterator that are appended at once, unless they reach a block's bytes before.
const RECORDS_AT_ONCE: usize = 64 << 10;

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
/// (32 MiB for Fortran order), or by a row where a row is larger.
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
/// # let mut npy = b"\x93NUMPY\x01\x00\x36\x00{'descr': '|u1', 'fortran_order': False, 'shape': (2,3)}".to_vec();
/// # npy.resize(10 + 0x36, b' ');
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
    settings: Settings,
    tensors: Vec<String>,
    samples: Option<Records>,
    progress: Box<dyn FnMut(Progress) + 'a>,
}

/// How a store is written.
#[derive(Debug, Clone)]
struct Settings {
    codec: Codec,
    level: Option<i32>,
    dict_size: DictSize,
    dtype: Option<DType>,
    record_limit: u32,
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("settings", &self.settings)
            .field("tensors", &self.tensors)
            .finish_non_exhaustive()
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
        let settings = Settings {
            codec: Codec::default(),
            level: None,
            dict_size: DictSize::default(),
            dtype: None,
            record_limit: RECORD_LIMIT,
        };
        Import { settings, tensors: Vec::new(), samples: None, progress: Box::new(|_| {}) }
    }

    /// How records are compressed. The dictionary codec trains on at most 8192 rows spread evenly over each table, and
    /// at most 128 MiB of them.
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
        self.settings.dtype = Some(dtype);
        self
    }

    /// The largest record in bytes, up to 4 GiB - 1; 1 MiB unless set.
    pub fn record_limit(mut self, bytes: u32) -> Self {
        self.settings.record_limit = bytes;
        self
    }

    /// Takes only these members of a .npz (named without .npy) or tensors of a .safetensors.
    pub fn tensors(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tensors.extend(names.into_iter().map(Into::into));
        self
    }

    /// Records to train the dictionary on, where an iterator is imported with the dictionary codec. They should be like
    /// all that will come, and are not stored; those after the first 8192, or after 128 MiB, are not looked at.
    pub fn samples(mut self, records: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut samples = Records { bytes: Vec::new(), offsets: vec![0] };
        for record in records.into_iter().take(MAX_SAMPLES as usize) {
            let record = record.as_ref();
            if (samples.bytes.len() + record.len()) as u64 > MAX_SAMPLE_BYTES {
                break;
            }
            push(&mut samples, record);
        }
        self.samples = Some(samples);
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

    /// Imports records of bytes into the ragged store `destination`: a record is a number of rows of one u8 each.
    ///
    /// The dictionary codec is refused unless [`samples`](Import::samples) are given: a dictionary is trained before the
    /// first record is stored, and an iterator cannot be looked at twice.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dst = dir.path().join("words");
    /// use loaderx::Import;
    ///
    /// let imported = Import::new().records(["one", "", "three"], &dst)?;
    /// assert_eq!((imported.rows, imported.bytes), (3, 8));
    /// # Ok(())
    /// # }
    /// ```
    pub fn records<I>(self, records: I, destination: impl AsRef<Path>) -> Result<Imported>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.ragged(DType::U8, &[], records, destination.as_ref())
    }

    /// Imports records of rows of `item_shape`, as their little-endian bytes, into a ragged store.
    pub(crate) fn ragged<I>(
        mut self,
        dtype: DType,
        item_shape: &[u64],
        records: I,
        destination: &Path,
    ) -> Result<Imported>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        if self.settings.codec == Codec::ZstdDict && self.samples.is_none() {
            let reason = "a dictionary is trained before records are stored, and an iterator cannot be looked at twice: \
                          give samples, or choose another codec";
            return Err(Error::dictionary(destination, reason));
        }
        let records = records.into_iter();
        let total = Some(records.size_hint()).and_then(|(low, high)| high.filter(|high| *high == low));
        let row_bytes = Table::new(destination, dtype, &[&[1], item_shape].concat(), 0)?.row_bytes.max(1);
        let mut partial = Partial::begin(destination)?;
        let path = partial.below(&[""; 0])?;
        let schema = schema_bytes("ragged", dtype, item_shape, self.settings.codec);
        let store = self.settings.options().create_with_schema(&path, &schema)?;
        if let (Codec::ZstdDict, Some(samples)) = (self.settings.codec, &self.samples) {
            store.train_dict(&samples.bytes, &samples.offsets, self.settings.dict_size)?;
        }
        let mut done = Done::new(&mut self.progress, total.map(|total| total as u64));
        let mut block = Records { bytes: Vec::new(), offsets: vec![0] };
        for (record, index) in records.zip(0u64..) {
            let record = record.as_ref();
            if !(record.len() as u64).is_multiple_of(row_bytes) {
                let reason = format!("record {index} has {} bytes, a row has {row_bytes}", record.len());
                return Err(Error::invalid("records", reason));
            }
            push(&mut block, record);
            if block.bytes.len() as u64 >= BLOCK || block.offsets.len() > RECORDS_AT_ONCE {
                done.append(&store, &mut block)?;
            }
        }
        done.append(&store, &mut block)?;
        store.sync()?;
        store.close()?;
        done.finish(partial, vec![destination.to_path_buf()])
    }

    /// Imports the chosen tables of a file.
    fn file(mut self, source: &mut dyn Source, destination: &Path) -> Result<Imported> {
        let tables = self.tables(source)?;
        refuse_overlaps(&tables)?;
        let mut partial = Partial::begin(destination)?;
        let total = tables.iter().map(|chosen| chosen.table.rows).sum();
        let mut done = Done::new(&mut self.progress, Some(total));
        for Chosen { index, table, parts } in &tables {
            let path = partial.below(parts)?;
            let in_order = table.is_c_order() && self.settings.codec != Codec::ZstdDict;
            let input = source.input(*index, table, in_order)?;
            self.settings.import_table(table, input, &path, partial.path(), &mut done)?;
        }
        let below = |parts: &Vec<String>| parts.iter().fold(destination.to_path_buf(), |path, part| path.join(part));
        done.finish(partial, tables.iter().map(|chosen| below(&chosen.parts)).collect())
    }

    /// The chosen tables of a file, each checked.
    fn tables(&self, source: &mut dyn Source) -> Result<Vec<Chosen>> {
        if let Some(dtype) = self.settings.dtype
            && dtype != DType::BF16
        {
            let reason = format!("{dtype} was given: only bf16 has no name in NumPy and needs to be said");
            return Err(Error::invalid("dtype", reason));
        }
        let mut tables = Vec::new();
        for index in self.chosen(source)? {
            let table = source.table(index, self.settings.dtype)?;
            self.settings.check(&table)?;
            let parts = if source.is_archive() { name_parts(&table.path, &source.names()[index])? } else { Vec::new() };
            tables.push(Chosen { index, table, parts });
        }
        match tables.first() {
            Some(first)
                if self.settings.dtype.is_some() && !tables.iter().any(|chosen| chosen.table.dtype == DType::BF16) =>
            {
                Err(Error::mismatch(&first.table.path, "dtype", "bf16", first.table.dtype.name()))
            }
            Some(_) => Ok(tables),
            None => Err(Error::unsupported(source.path(), "a file without arrays", "there is nothing to import")),
        }
    }

    /// The indices of the tables that were asked for: all, unless some are named.
    fn chosen(&self, source: &dyn Source) -> Result<BTreeSet<usize>> {
        let names = source.names();
        if self.tensors.is_empty() {
            return Ok((0..names.len()).collect());
        }
        self.tensors
            .iter()
            .map(|wanted| {
                let wanted = wanted.strip_suffix(".npy").unwrap_or(wanted);
                names.iter().position(|name| name == wanted).ok_or_else(|| {
                    let some: Vec<&str> = names.iter().take(10).map(String::as_str).collect();
                    let reason = format!("{} has no {wanted:?}; it has {some:?}", source.path().display());
                    Error::invalid("tensors", reason)
                })
            })
            .collect()
    }
}

impl Settings {
    fn options(&self) -> StoreOptions {
        let options = StoreOptions::new().codec(self.codec).record_limit(self.record_limit);
        match self.level {
            Some(level) => options.level(level),
            None => options,
        }
    }

    /// Refuses a table that no store of these settings holds.
    fn check(&self, table: &Table) -> Result<()> {
        if table.rows > MAX_RECORDS {
            let what = format!("an array of {} rows", table.rows);
            let reason = format!("a store holds at most {MAX_RECORDS} records: save it in parts");
            return Err(Error::unsupported(&table.path, what, reason));
        }
        if table.row_bytes > u64::from(self.record_limit) {
            let reason = match u32::try_from(table.row_bytes) {
                Ok(bytes) => format!("the record limit is {}: raise it with record_limit({bytes})", self.record_limit),
                Err(_) => format!("no store takes records over {} bytes", u32::MAX),
            };
            return Err(Error::unsupported(&table.path, format!("a row of {} bytes", table.row_bytes), reason));
        }
        Ok(())
    }

    /// Puts one table into a new store.
    fn import_table(
        &self,
        table: &Table,
        input: Input<'_>,
        path: &Path,
        spill: &Path,
        done: &mut Done<'_>,
    ) -> Result<()> {
        let with_dict = self.codec == Codec::ZstdDict && table.rows > 0;
        let mut reader = TableReader::new(table, input, spill, with_dict)?;
        let schema = schema_bytes("dense", table.dtype, &table.item_shape, self.codec);
        let store = self.options().create_with_schema(path, &schema)?;
        if with_dict {
            let samples = samples(table, &mut reader)?;
            store.train_dict(&samples.bytes, &samples.offsets, self.dict_size)?;
        }
        let row_bytes = table.row_bytes as usize;
        let rows_at_once = BLOCK.checked_div(table.row_bytes).unwrap_or(table.rows).max(1) as usize;
        let mut block = Vec::new();
        for rows in reader.blocks() {
            let count = (rows.end - rows.start) as usize;
            block.resize(count * row_bytes, 0);
            reader.read(rows, &mut block)?;
            for first in (0..count).step_by(rows_at_once) {
                let some = rows_at_once.min(count - first);
                store.append_fixed(&block[first * row_bytes..(first + some) * row_bytes], row_bytes, some)?;
                done.add(some as u64, (some * row_bytes) as u64);
            }
        }
        reader.finish()?;
        store.sync()?;
        store.close()
    }
}

/// Rows spread evenly over a table.
fn samples(table: &Table, reader: &mut TableReader<'_>) -> Result<Records> {
    let affordable = MAX_SAMPLE_BYTES.checked_div(table.row_bytes).unwrap_or(u64::MAX);
    let count = table.rows.min(MAX_SAMPLES).min(affordable);
    let row_bytes = table.row_bytes as usize;
    let mut samples = Records { bytes: vec![0; count as usize * row_bytes], offsets: Vec::new() };
    samples.offsets.extend((0..=count).map(|sample| sample * table.row_bytes));
    for sample in 0..count as usize {
        let row = sample as u64 * table.rows / count;
        reader.read(row..row + 1, &mut samples.bytes[sample * row_bytes..(sample + 1) * row_bytes])?;
    }
    Ok(samples)
}

/// A table that is imported.
struct Chosen {
    index: usize,
    table: Table,
    /// Where its store lies below the destination; empty where the destination is the store.
    parts: Vec<String>,
}

/// What was imported so far, and who is told.
struct Done<'a> {
    progress: &'a mut dyn FnMut(Progress),
    total: Option<u64>,
    rows: u64,
    bytes: u64,
}

impl<'a> Done<'a> {
    fn new(progress: &'a mut dyn FnMut(Progress), total: Option<u64>) -> Done<'a> {
        Done { progress, total, rows: 0, bytes: 0 }
    }

    fn add(&mut self, rows: u64, bytes: u64) {
        self.rows += rows;
        self.bytes += bytes;
        (self.progress)(Progress { rows: self.rows, rows_total: self.total, bytes: self.bytes });
    }

    /// Appends a block of records, and empties it.
    fn append(&mut self, store: &Store, block: &mut Records) -> Result<()> {
        let count = block.offsets.len() as u64 - 1;
        if count > 0 {
            store.append(&block.bytes, &block.offsets)?;
            self.add(count, block.bytes.len() as u64);
            block.bytes.clear();
            block.offsets.truncate(1);
        }
        Ok(())
    }

    fn finish(self, partial: Partial, stores: Vec<PathBuf>) -> Result<Imported> {
        let replaced_partial = partial.replaced();
        partial.finish()?;
        Ok(Imported { stores, rows: self.rows, bytes: self.bytes, replaced_partial })
    }
}

/// Adds a record to packed ones.
fn push(records: &mut Records, record: &[u8]) {
    records.bytes.extend_from_slice(record);
    records.offsets.push(records.bytes.len() as u64);
}

/// The directories and the store that a table's name stands for, below the destination.
///
/// Names come from files that anybody may have made. Only what is a plain relative path on every system is taken.
fn name_parts(path: &Path, name: &str) -> Result<Vec<String>> {
    let plain = |part: &str| {
        let mut components = Path::new(part).components();
        let alone = matches!(components.next(), Some(Component::Normal(normal)) if normal == part);
        alone && components.next().is_none() && !part.contains(['\\', '\0'])
    };
    if !name.split('/').all(plain) {
        let reason = "it must be a relative path without '.', '..', empty parts, backslashes and NUL, \
                      since the store gets this name below the destination: choose the other arrays by name";
        return Err(Error::unsupported(path, format!("the name {name:?}"), reason));
    }
    Ok(name.split('/').map(str::to_owned).collect())
}

/// Refuses two tables of one name, and a table whose store would lie inside of another's.
fn refuse_overlaps(tables: &[Chosen]) -> Result<()> {
    let mut parts: Vec<&[String]> = tables.iter().map(|chosen| &chosen.parts[..]).collect();
    parts.sort();
    // In this order, what lies below a name follows it.
    match parts.windows(2).find(|pair| pair[1].starts_with(pair[0])) {
        Some(pair) if tables.len() > 1 => {
            let reason = format!("{:?} would lie inside of it: import them one by one", pair[1].join("/"));
            let inner = tables.iter().find(|chosen| chosen.parts == pair[0]).unwrap_or(&tables[0]);
            Err(Error::unsupported(&inner.table.path, format!("the name {:?}", pair[0].join("/")), reason))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::schema::{Schema, read_schema};
    use super::super::tests::{METHODS, counted, npy, npz};
    use super::*;

    /// A directory with one source file in it.
    struct Case {
        directory: tempfile::TempDir,
        source: PathBuf,
        destination: PathBuf,
    }

    impl Case {
        fn new(name: &str, bytes: &[u8]) -> Case {
            let directory = tempfile::tempdir().unwrap();
            let (source, destination) = (directory.path().join(name), directory.path().join("store"));
            fs::write(&source, bytes).unwrap();
            Case { directory, source, destination }
        }

        fn import(&self, import: Import<'_>) -> Result<Imported> {
            import.path(&self.source, &self.destination)
        }

        /// The import's error, after which nothing but the source may be there.
        fn refused(&self, import: Import<'_>) -> String {
            let error = self.import(import).unwrap_err().to_string();
            let left: Vec<_> =
                fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(left, std::slice::from_ref(&self.source), "{error}");
            error
        }
    }

    /// What a store holds.
    fn stored(path: &Path) -> (Schema, Records) {
        let store = StoreOptions::new().open(path).unwrap();
        let schema = read_schema(path, &store.schema_bytes().unwrap().unwrap()).unwrap();
        let records = store.gather(&(0..store.len()).collect::<Vec<u64>>()).unwrap();
        (schema, records)
    }

    fn schema(kind: &str, dtype: &str, item_shape: &[u64]) -> Schema {
        Schema { kind: kind.into(), dtype: dtype.into(), item_shape: item_shape.to_vec() }
    }

    fn safetensors(tensors: &[(&str, &[usize], &[u8])]) -> Vec<u8> {
        let view = |shape: &[usize], data| {
            safetensors::tensor::TensorView::new(safetensors::Dtype::U8, shape.to_vec(), data).unwrap()
        };
        safetensors::serialize(tensors.iter().map(|(name, shape, data)| (*name, view(shape, data))), None).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_file_and_codec_gives_the_records_of_the_model(
            descr in prop::sample::select(vec!["|u1", "<i2", ">f4", "<f8"]),
            fortran: bool,
            codec in prop::sample::select(vec![Codec::Raw, Codec::Zstd, Codec::ZstdDict]),
            rows in 1000u64..3000,
            item in prop::collection::vec(1u64..5, 1..3),
            packed in 0usize..3,
        ) {
            let (bytes, expected) = counted(descr, fortran, &[&[rows], &item[..]].concat());
            let (case, path) = match packed {
                0 => (Case::new("a.npy", &bytes), ""),
                packed => (Case::new("a.npz", &npz(&[("in/a.npy", &bytes)], METHODS[packed - 1])), "in/a"),
            };
            let mut last = None;
            let import = Import::new().codec(codec).dict_size(DictSize::Bytes(4096)).progress(|progress| last = Some(progress));
            let imported = case.import(import).unwrap();
            let path = if path.is_empty() { case.destination.clone() } else { case.destination.join(path) };
            let (found, records) = stored(&path);
            let len = expected.len() as u64;
            prop_assert_eq!((imported.rows, imported.bytes, imported.replaced_partial), (rows, len, false));
            prop_assert_eq!(last, Some(Progress { rows, rows_total: Some(rows), bytes: len }));
            prop_assert_eq!(&imported.stores, &[path]);
            prop_assert_eq!(found, schema("dense", &descr.replace('>', "<"), &item));
            prop_assert_eq!(records.offsets, (0..=rows).map(|row| row * len / rows).collect::<Vec<u64>>());
            prop_assert_eq!(records.bytes, expected);
            prop_assert_eq!(fs::read_dir(case.directory.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn an_existing_destination_is_an_error_and_stays() {
        let case = Case::new("a.npy", &npy("|u1", false, &[2], &[1, 2]));
        fs::write(&case.destination, "mine").unwrap();
        assert!(matches!(case.import(Import::new()), Err(Error::Exists { path }) if path == case.destination));
        assert_eq!(fs::read(&case.destination).unwrap(), b"mine");
    }

    #[test]
    fn what_a_killed_import_left_is_replaced_and_reported() {
        let case = Case::new("a.npy", &npy("|u1", false, &[2], &[1, 2]));
        let partial = case.directory.path().join("store.partial");
        fs::create_dir_all(partial.join("data/old")).unwrap();
        fs::write(partial.join("import.lock"), "").unwrap();
        assert!(case.import(Import::new()).unwrap().replaced_partial);
        assert_eq!(stored(&case.destination).1.bytes, [1, 2]);
        assert!(!case.destination.join("old").exists());
    }

    #[test]
    fn an_import_that_fails_half_way_leaves_nothing() {
        let mut data = vec![1; 20 << 20];
        data[19 << 20] = 2;
        let case = Case::new("a.npy", &npy("|b1", false, &[20 << 10, 1 << 10], &data));
        let mut rows = 0;
        let error = case.refused(Import::new().progress(|progress| rows = progress.rows));
        assert!(error.contains("row 19456 holds a bool of 2"), "{error}");
        assert_eq!(rows, 16 << 10);
    }

    #[test]
    fn names_that_lead_out_of_the_destination_are_refused() {
        let array = npy("|u1", false, &[1], &[7]);
        for name in ["../x", "/x", "a/../../x", "./x", "a//x", "", "a/", "..", "a\\..\\x", "a\0x"] {
            let archives = METHODS.map(|method| Case::new("a.npz", &npz(&[(&format!("{name}.npy"), &array)], method)));
            let tensors = Case::new("a.safetensors", &safetensors(&[(name, &[1], &[7])]));
            for case in archives.iter().chain([&tensors]) {
                let error = case.refused(Import::new());
                assert!(error.contains("the name"), "{name:?}: {error}");
            }
        }
    }

    #[test]
    fn a_store_is_never_put_inside_of_another() {
        let case =
            Case::new("a.safetensors", &safetensors(&[("b", &[1], &[1]), ("b/c", &[1], &[2]), ("b-", &[1], &[3])]));
        assert!(case.refused(Import::new()).contains("inside of it"));
        case.import(Import::new().tensors(["b/c", "b-"])).unwrap();
        assert_eq!(stored(&case.destination.join("b/c")).1.bytes, [2]);
        assert_eq!(stored(&case.destination.join("b-")).1.bytes, [3]);
    }

    #[test]
    fn only_the_named_tables_are_looked_at() {
        let (good, bad) = (npy("|u1", false, &[2], &[1, 2]), npy("<c8", false, &[0], &[]));
        let bytes = npz(&[("bad.npy", &bad), ("good.npy", &good), ("notes.txt", b"")], METHODS[0]);
        let case = Case::new("a.npz", &bytes);
        assert!(case.refused(Import::new()).contains("a.npz/bad: dtype \"<c8\""));
        assert!(
            case.refused(Import::new().tensors(["good", "gone"])).contains("no \"gone\"; it has [\"bad\", \"good\"")
        );
        assert_eq!(case.import(Import::new().tensors(["good.npy"])).unwrap().rows, 2);
        assert_eq!(stored(&case.destination.join("good")).1.bytes, [1, 2]);
    }

    #[test]
    fn a_file_without_arrays_is_refused() {
        for case in [Case::new("a.npz", &npz(&[], METHODS[0])), Case::new("a.safetensors", &safetensors(&[]))] {
            assert!(case.refused(Import::new()).contains("nothing to import"));
        }
        assert!(Case::new("a.csv", b"1,2").refused(Import::new()).contains(".npy, .npz and .safetensors"));
    }

    #[test]
    fn bfloat16_is_taken_at_the_callers_word_alone() {
        let case = Case::new("a.npy", &npy("<V2", false, &[2], &[1, 2, 3, 4]));
        assert!(case.refused(Import::new()).contains("dtype bf16"));
        assert!(case.refused(Import::new().dtype(DType::F16)).contains("only bf16"));
        case.import(Import::new().dtype(DType::BF16)).unwrap();
        assert_eq!(stored(&case.destination).0, schema("dense", "<V2", &[]));
        let case = Case::new("a.npy", &npy("<f2", false, &[2], &[1, 2, 3, 4]));
        assert!(case.refused(Import::new().dtype(DType::BF16)).contains("dtype is f16, but bf16"));
    }

    #[test]
    fn what_is_over_a_limit_is_refused_before_anything_is_made() {
        let case = Case::new("a.npy", &npy("|u1", false, &[(1 << 24) + 1, 0], &[]));
        assert!(case.refused(Import::new()).contains("at most 16777216 records"));
        let case = Case::new("a.npy", &npy("|u1", false, &[1, (1 << 20) + 1], &vec![7; (1 << 20) + 1]));
        assert!(case.refused(Import::new()).contains("record_limit(1048577)"));
        case.import(Import::new().record_limit((1 << 20) + 1)).unwrap();
        assert_eq!(stored(&case.destination).1.bytes.len(), (1 << 20) + 1);
        let case = Case::new("a.npy", &npy("|u1", false, &[0, 1 << 32], &[]));
        assert!(case.refused(Import::new()).contains("no store takes"));
    }

    #[test]
    fn rows_of_no_bytes_are_records() {
        let case = Case::new("a.npy", &npy("<f4", false, &[3, 0], &[]));
        assert_eq!(case.import(Import::new()).unwrap().rows, 3);
        assert_eq!(stored(&case.destination).1.offsets, [0; 4]);
        let case = Case::new("a.npy", &npy("<f4", true, &[0, 3], &[]));
        assert_eq!(case.import(Import::new().codec(Codec::ZstdDict)).unwrap().rows, 0);
        assert_eq!(
            stored(&case.destination),
            (schema("dense", "<f4", &[3]), Records { bytes: vec![], offsets: vec![0] })
        );
    }

    #[test]
    fn an_iterator_gives_a_ragged_store() {
        let case = Case::new("none", b"");
        let records = ["one", "", "three"];
        let mut total = None;
        let import = Import::new().progress(|progress| total = progress.rows_total);
        assert_eq!(import.records(records, &case.destination).unwrap().bytes, 8);
        let expected = Records { bytes: b"onethree".to_vec(), offsets: vec![0, 3, 3, 8] };
        assert_eq!(stored(&case.destination), (schema("ragged", "|u1", &[]), expected));
        assert_eq!(total, Some(3));
    }

    #[test]
    fn an_iterator_needs_samples_for_a_dictionary() {
        let case = Case::new("none", b"");
        let records: Vec<String> = (0..2000).map(|i| format!("a line like any other, number {i} of 2000")).collect();
        let import = || Import::new().codec(Codec::ZstdDict).dict_size(DictSize::Bytes(2048));
        let error = import().records(&records, &case.destination).unwrap_err().to_string();
        assert!(error.contains("give samples"), "{error}");
        import().samples(&records).records(&records, &case.destination).unwrap();
        assert_eq!(stored(&case.destination).1.bytes, records.concat().into_bytes());
    }

    #[test]
    fn a_record_that_is_not_a_number_of_rows_is_refused() {
        let case = Case::new("none", b"");
        let ragged = |records: [&[u8]; 2]| Import::new().ragged(DType::I16, &[2], records, &case.destination);
        let error = ragged([&[1, 2, 3, 4], &[1, 2]]).unwrap_err().to_string();
        assert!(error.contains("record 1 has 2 bytes, a row has 4"), "{error}");
        assert!(!case.destination.exists());
        ragged([&[1, 2, 3, 4], &[]]).unwrap();
        assert_eq!(stored(&case.destination).0, schema("ragged", "<i2", &[2]));
    }

    /// Anonymous memory of this process in KiB.
    #[cfg(target_os = "linux")]
    fn anonymous_memory() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Names the directory for a test that runs in a process of its own.
    const CHILD: &str = "LOADERX_TEST_DIRECTORY";

    /// Runs one test in a process of its own.
    fn run_alone(name: &str, directory: &Path) -> std::process::ExitStatus {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args([&format!("convert::import::tests::{name}"), "--exact", "--nocapture"]).env(CHILD, directory);
        let output = test.output().unwrap();
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        output.status
    }

    #[cfg(unix)]
    #[test]
    fn an_import_that_was_killed_can_be_run_again() {
        if let Some(directory) = std::env::var_os(CHILD) {
            let path = |name: &str| Path::new(&directory).join(name);
            let _ = Import::new().progress(|_| std::process::abort()).npy(path("a.npy"), path("store"));
            return;
        }
        let case = Case::new("a.npy", &npy("|u1", false, &[20 << 10, 1 << 10], &vec![7; 20 << 20]));
        let partial = case.directory.path().join("store.partial");
        let status = run_alone("an_import_that_was_killed_can_be_run_again", case.directory.path());
        assert!(status.code().is_none(), "the process was not killed: {status}");
        assert!(partial.exists() && !case.destination.exists());
        let imported = case.import(Import::new()).unwrap();
        assert_eq!((imported.rows, imported.replaced_partial), (20 << 10, true));
        assert!(stored(&case.destination).1.bytes == vec![7; 20 << 20]);
        assert!(!partial.exists());
    }

    /// In a process of its own, where no other test takes memory.
    #[cfg(target_os = "linux")]
    #[test]
    fn memory_stays_bounded_while_two_gigabytes_are_imported() {
        if std::env::var_os(CHILD).is_none() {
            let status = run_alone("memory_stays_bounded_while_two_gigabytes_are_imported", Path::new("."));
            assert!(status.success(), "{status}");
            return;
        }
        for (fortran, shape) in [(false, [2048, 1 << 20]), (true, [1 << 16, 1 << 12])] {
            let case = Case::new("a.npy", &npy("|u1", fortran, &shape, &[]));
            let file = fs::File::options().write(true).open(&case.source).unwrap();
            file.set_len(file.metadata().unwrap().len() + shape[0] * shape[1]).unwrap();
            let (start, mut peak) = (anonymous_memory(), 0);
            case.import(Import::new().progress(|_| peak = peak.max(anonymous_memory()))).unwrap();
            let grown = peak.saturating_sub(start) >> 10;
            println!("{shape:?}, fortran {fortran}: {grown} MiB");
            assert!(grown <= 128, "{grown} MiB");
        }
    }
}
