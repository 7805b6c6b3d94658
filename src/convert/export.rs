//! Stores out into .npy, .npz and .safetensors files.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::blocks::{LENGTHS, each_block};
use super::import::Progress;
use super::npy::header_bytes;
use super::place::NewFile;
use super::plan::SAFETENSORS;
use super::write::Done;
use crate::data::{AnyDataset, DType, Kind, swap_bytes};
use crate::error::{Corruption, Error, Result};

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Records of the store.
    pub records: u64,
    /// The shape of the array in the .npy file.
    pub shape: Vec<u64>,
    /// The file of row counts, written for a ragged store.
    pub row_counts: Option<PathBuf>,
}

/// An array that an export put into an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedArray {
    /// Its name in the archive: that of the store's directory, with `.rows` behind it where it holds row counts.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
}

/// Writes the records of `store` to the .npy file `out`, in C order, with the dtype of the store: [`Export::npy`] without
/// progress.
///
/// # Errors
/// As there.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (store, out) = (dir.path().join("words"), dir.path().join("words.npy"));
/// use loaderx::{Import, export_npy};
///
/// Import::new().records(["one", "", "three"], &store)?;
/// let exported = export_npy(&store, &out)?;
/// assert_eq!((exported.records, exported.shape), (3, vec![8]));
/// assert!(dir.path().join("words.rows.npy").exists());
/// # Ok(())
/// # }
/// ```
pub fn export_npy(store: impl AsRef<Path>, out: impl AsRef<Path>) -> Result<Exported> {
    Export::new().npy(store, out)
}

/// Writes stores into files that NumPy and others read, in C order, with the dtypes of the stores. Memory stays bounded.
///
/// A dense store of `n` records gives an array of shape `(n, …)`. A ragged store gives all rows, end to end, and a second
/// array with the number of rows of each record as `i64`; a store of raw records counts as one of rows of `u8`.
///
/// # Errors
///
/// An existing `out` is an error, as are pickled objects, and records whose length does not fit the schema. A failure
/// leaves no file.
///
/// ```
/// use loaderx::{Export, Import};
///
/// # let dir = tempfile::tempdir()?;
/// # let (words, out) = (dir.path().join("words"), dir.path().join("all.npz"));
/// Import::new().records(["one", "", "three"], &words)?;
/// let arrays = Export::new().npz([&words], &out)?;
/// let names: Vec<&str> = arrays.iter().map(|array| &array.name[..]).collect();
/// assert_eq!(names, ["words", "words.rows"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Export<'a> {
    stop: Option<&'a AtomicBool>,
    progress: Box<dyn FnMut(Progress) + 'a>,
}

impl fmt::Debug for Export<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").finish_non_exhaustive()
    }
}

impl Default for Export<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Export<'a> {
    /// The defaults: no progress.
    pub fn new() -> Self {
        Export { stop: None, progress: Box::new(|_| {}) }
    }

    /// Calls `progress` after every block of records that was written.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Stops with [`Error::Interrupted`] soon after `stop` becomes true, at the end of a block of records. Nothing is left.
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Writes one store to the .npy file `out`; the row counts of a ragged one lie in `OUT.rows.npy` beside `OUT.npy`.
    ///
    /// bfloat16 is written as `<V2`, which NumPy reads as two raw bytes. Dates, complex numbers and strings, which this
    /// crate only carries, are written as they are; structures become raw bytes (`|V12`).
    ///
    /// # Errors
    /// [`Error::Exists`] where something is at `out`; [`Error::Corrupt`] and what else makes a store unreadable;
    /// [`Error::Interrupted`] after [`stop`](Export::stop); [`Error::Io`]. After an error nothing is at `out`.
    pub fn npy(mut self, store: impl AsRef<Path>, out: impl AsRef<Path>) -> Result<Exported> {
        let out = out.as_ref();
        let store = Source::open(store.as_ref())?;
        let mut file = NewFile::create(out)?;
        let mut counts = match store.is_ragged() {
            true => Some((counts_path(out), NewFile::create(&counts_path(out))?)),
            false => None,
        };
        let rows = store.rows()?;
        let shape = store.shape(rows);
        file.write_all(&header_bytes(store.path(), &store.descr, &shape)?)?;
        let mut done = Done::new(&mut self.progress, self.stop, Some(store.records), None);
        store.each_block(&mut done, |bytes| file.write_all(bytes))?;
        if let Some((path, counts)) = &mut counts {
            counts.write_all(&header_bytes(path, "<i8", &[store.records])?)?;
            store.each_counts(|bytes| counts.write_all(bytes))?;
        }
        let row_counts = match counts {
            Some((path, counts)) => {
                counts.finish()?;
                Some(path)
            }
            None => None,
        };
        file.finish()?;
        Ok(Exported { records: store.records, shape, row_counts })
    }

    /// Writes stores into the .npz archive `out`, uncompressed as `numpy.savez` does: each an array by the name of its
    /// directory, NAME, the row counts of a ragged one as `NAME.rows`. Elements are written as by [`npy`](Export::npy).
    ///
    /// # Errors
    /// As [`npy`](Export::npy), and [`Error::Invalid`] for two stores of one name.
    pub fn npz(
        mut self,
        stores: impl IntoIterator<Item = impl AsRef<Path>>,
        out: impl AsRef<Path>,
    ) -> Result<Vec<ExportedArray>> {
        let out = out.as_ref();
        let stores = named(stores)?;
        let mut file = NewFile::create(out)?;
        let mut done = Done::new(&mut self.progress, self.stop, Some(total(&stores)), None);
        let mut arrays = Vec::new();
        let mut archive = ZipWriter::new(file.as_file());
        let error = |e: zip::result::ZipError| Error::io("write", out)(e.into());
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
        let write = |archive: &mut ZipWriter<&std::fs::File>, bytes: &[u8]| {
            std::io::Write::write_all(archive, bytes).map_err(Error::io("write", out))
        };
        for (name, store) in &stores {
            let shape = store.shape(store.rows()?);
            archive.start_file(format!("{name}.npy"), options).map_err(error)?;
            write(&mut archive, &header_bytes(store.path(), &store.descr, &shape)?)?;
            store.each_block(&mut done, |bytes| write(&mut archive, bytes))?;
            arrays.push(ExportedArray { name: name.clone(), shape });
            if store.is_ragged() {
                let (name, shape) = (counts_name(name), vec![store.records]);
                archive.start_file(format!("{name}.npy"), options).map_err(error)?;
                write(&mut archive, &header_bytes(store.path(), "<i8", &shape)?)?;
                store.each_counts(|bytes| write(&mut archive, bytes))?;
                arrays.push(ExportedArray { name, shape });
            }
        }
        archive.finish().map_err(error)?;
        file.finish()?;
        Ok(arrays)
    }

    /// Writes stores into the .safetensors file `out`, little-endian: each a tensor by the name of its directory, NAME,
    /// the row counts of a ragged one as `NAME.rows`.
    ///
    /// The file's `__metadata__` has what the stores' metadata holds under that key, where they agree, and every other
    /// entry as `NAME.KEY`, in JSON.
    ///
    /// # Errors
    /// As [`npz`](Export::npz); also dtypes that this crate has no element type for, and two stores that say different
    /// things in `__metadata__`.
    pub fn safetensors(
        mut self,
        stores: impl IntoIterator<Item = impl AsRef<Path>>,
        out: impl AsRef<Path>,
    ) -> Result<Vec<ExportedArray>> {
        let out = out.as_ref();
        let stores = named(stores)?;
        let mut file = NewFile::create(out)?;
        let (mut tensors, mut arrays) = (Vec::new(), Vec::new());
        for (name, store) in &stores {
            let (dtype, rows) = (store.safetensors_dtype()?, store.rows()?);
            tensors.push((dtype, name.clone(), store.shape(rows), store, false));
            arrays.push(ExportedArray { name: name.clone(), shape: store.shape(rows) });
            if store.is_ragged() {
                let (name, shape) = (counts_name(name), vec![store.records]);
                tensors.push((Dtype::I64, name.clone(), shape.clone(), store, true));
                arrays.push(ExportedArray { name, shape });
            }
        }
        // Large elements first, so that each tensor is aligned, as others write it.
        tensors.sort_by(|a, b| (b.0.bitsize(), &a.1).cmp(&(a.0.bitsize(), &b.1)));
        file.write_all(&safetensors_header(out, &stores, &tensors)?)?;
        let mut done = Done::new(&mut self.progress, self.stop, Some(total(&stores)), None);
        for (.., store, counts) in &tensors {
            if *counts {
                store.each_counts(|bytes| file.write_all(bytes))?;
            } else {
                store.each_block_little(&mut done, |bytes| file.write_all(bytes))?;
            }
        }
        file.finish()?;
        Ok(arrays)
    }
}

/// A tensor of a .safetensors file: its type, name and shape, its store, and whether it is that one's row counts.
type Tensor<'s> = (Dtype, String, Vec<u64>, &'s Source, bool);

/// The length of the header, and the header, padded to 8 bytes.
fn safetensors_header(out: &Path, stores: &BTreeMap<String, Source>, tensors: &[Tensor<'_>]) -> Result<Vec<u8>> {
    let invalid = |e: &dyn fmt::Display| Error::invalid("tensors", format!("{}: {e}", out.display()));
    let (mut at, mut infos) = (0, Vec::new());
    for (dtype, name, shape, ..) in tensors {
        let shape: Vec<usize> = shape.iter().map(|&dimension| dimension as usize).collect();
        let end = at + shape.iter().product::<usize>() * dtype.bitsize() / 8;
        infos.push((name.clone(), TensorInfo { dtype: *dtype, shape, data_offsets: (at, end) }));
        at = end;
    }
    let mut said = HashMap::new();
    for (name, store) in stores {
        store.say(name, &mut said)?;
    }
    let header = Metadata::new((!said.is_empty()).then_some(said), infos).map_err(|e| invalid(&e))?;
    let mut header = serde_json::to_vec(&header).map_err(|e| invalid(&e))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok([&(header.len() as u64).to_le_bytes()[..], &header].concat())
}

/// Stores by the names of their directories, each of which there may be once.
fn named(stores: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<BTreeMap<String, Source>> {
    let mut named = BTreeMap::new();
    for store in stores {
        let path = store.as_ref();
        let absolute = std::path::absolute(path).map_err(Error::io("find", path))?;
        let name = absolute.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name =
            name.ok_or_else(|| Error::invalid("stores", format!("{} has no name that is text", path.display())))?;
        if named.insert(name.clone(), Source::open(path)?).is_some() {
            let reason = format!("two stores are named {name:?}, which would be one array: export them one by one");
            return Err(Error::invalid("stores", reason));
        }
    }
    for name in named.keys() {
        if named.contains_key(&counts_name(name)) && named[name].is_ragged() {
            let reason = format!("{:?} is what the row counts of {name:?} are called", counts_name(name));
            return Err(Error::invalid("stores", reason));
        }
    }
    match named.is_empty() {
        true => Err(Error::invalid("stores", "there are none: name a store")),
        false => Ok(named),
    }
}

/// How many records stores have together.
fn total(stores: &BTreeMap<String, Source>) -> u64 {
    stores.values().map(|store| store.records).sum()
}

/// What the row counts of a ragged store are called.
fn counts_name(name: &str) -> String {
    format!("{name}.rows")
}

/// A store that is written out, as it was when it was opened.
struct Source {
    store: AnyDataset,
    records: u64,
    /// The dtype, as a .npy file has it.
    descr: String,
    item_shape: Vec<u64>,
    /// Bytes of a row; of a record, in a dense store.
    row_bytes: u64,
}

impl Source {
    /// Raw records count as rows of bytes.
    fn open(path: &Path) -> Result<Source> {
        let store = AnyDataset::open(path)?;
        let descr = store.dtype().unwrap_or("|u1").to_owned();
        let row_bytes = if store.kind().is_none() { Some(1) } else { store.row_bytes() };
        let unsupported = |reason| Error::unsupported(path, format!("dtype {descr:?}"), reason);
        if descr.get(1..2) == Some("O") {
            return Err(unsupported("pickled objects are neither loaded nor written"));
        }
        let row_bytes = row_bytes.ok_or_else(|| unsupported("a .npy file cannot carry it as it is"))? as u64;
        let item_shape = store.item_shape().unwrap_or(&[]).iter().map(|&dimension| dimension as u64).collect();
        let source = Source { records: store.len(), descr, item_shape, row_bytes, store };
        if source.is_ragged() && row_bytes == 0 {
            let reason = "its records have no number of rows";
            return Err(Error::unsupported(path, "a ragged store whose rows have no bytes", reason));
        }
        Ok(source)
    }

    fn path(&self) -> &Path {
        self.store.path()
    }

    /// Whether rows are counted.
    fn is_ragged(&self) -> bool {
        self.store.kind() != Some(Kind::Dense)
    }

    /// The shape of the array of so many rows.
    fn shape(&self, rows: u64) -> Vec<u64> {
        [&[rows], &self.item_shape[..]].concat()
    }

    /// How many rows there are. Refuses a record that is no row, or no number of them.
    fn rows(&self) -> Result<u64> {
        let mut rows = 0;
        self.each_lengths(|first, lengths| {
            if self.is_ragged() {
                self.check(first, lengths, "a multiple of a row's length", |len| len.is_multiple_of(self.row_bytes))?;
                rows += lengths.iter().map(|len| len / self.row_bytes).sum::<u64>();
            } else {
                self.check(first, lengths, "the length of an item", |len| len == self.row_bytes)?;
                rows += lengths.len() as u64;
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// The type of a tensor's elements.
    fn safetensors_dtype(&self) -> Result<Dtype> {
        let dtype = if self.store.kind().is_none() { Some(DType::U8) } else { self.store.element() };
        Ok(match dtype {
            Some(DType::Bool) => Dtype::BOOL,
            Some(DType::I8) => Dtype::I8,
            Some(DType::I16) => Dtype::I16,
            Some(DType::I32) => Dtype::I32,
            Some(DType::I64) => Dtype::I64,
            Some(DType::U8) => Dtype::U8,
            Some(DType::U16) => Dtype::U16,
            Some(DType::U32) => Dtype::U32,
            Some(DType::U64) => Dtype::U64,
            Some(DType::F16) => Dtype::F16,
            Some(DType::BF16) => Dtype::BF16,
            Some(DType::F32) => Dtype::F32,
            Some(DType::F64) => Dtype::F64,
            None => {
                let reason = "a tensor has no such elements: export it to .npy or .npz";
                return Err(Error::unsupported(self.path(), format!("dtype {:?}", self.descr), reason));
            }
        })
    }

    /// Adds what the metadata says to that of a .safetensors file.
    fn say(&self, name: &str, said: &mut HashMap<String, String>) -> Result<()> {
        let mut add = |key: String, value: String| match said.insert(key.clone(), value.clone()) {
            Some(other) if other != value => {
                let reason =
                    format!("the metadata {key:?} is {value:?} here and {other:?} before: export it by itself");
                Err(Error::format(self.path(), reason))
            }
            _ => Ok(()),
        };
        for key in self.store.metadata_keys() {
            if key == SAFETENSORS
                && let Ok(Some(map)) = self.store.metadata::<BTreeMap<String, String>>(key)
            {
                map.into_iter().try_for_each(|(key, value)| add(key, value))?;
            } else if let Some(value) = self.store.metadata::<serde_json::Value>(key)? {
                add(format!("{name}.{key}"), value.to_string())?;
            }
        }
        Ok(())
    }

    /// Calls `each` with the lengths of all records, some at a time, and the index of the first.
    fn each_lengths(&self, mut each: impl FnMut(u64, &[u64]) -> Result<()>) -> Result<()> {
        for first in (0..self.records).step_by(LENGTHS) {
            let indices: Vec<u64> = (first..self.records.min(first + LENGTHS as u64)).collect();
            each(first, &self.store.lengths(&indices)?)?;
        }
        Ok(())
    }

    /// Refuses a record whose length is not what the schema says.
    fn check(&self, first: u64, lengths: &[u64], expected: &str, fits: impl Fn(u64) -> bool) -> Result<()> {
        match lengths.iter().position(|len| !fits(*len)) {
            None => Ok(()),
            Some(at) => Err(Error::Corrupt(Box::new(Corruption {
                path: self.store.path().to_path_buf(),
                record: Some(first + at as u64),
                expected: format!("{expected}, {} bytes", self.row_bytes),
                found: format!("{} bytes", lengths[at]),
                ..Corruption::default()
            }))),
        }
    }

    /// Calls `each` with the bytes of all records, a block after the other.
    fn each_block(&self, done: &mut Done<'_>, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        each_block(&self.store, 0..self.records, |indices, records| {
            each(&records.bytes)?;
            let bytes = records.bytes.len() as u64;
            done.add(indices.len() as u64, bytes, bytes)
        })
    }

    /// The same with elements in little-endian order.
    fn each_block_little(&self, done: &mut Done<'_>, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let size = self.store.element().filter(|_| self.descr.starts_with('>')).map(DType::size);
        self.each_block(done, |bytes| match size {
            None => each(bytes),
            Some(size) => {
                let mut bytes = bytes.to_vec();
                swap_bytes(&mut bytes, size);
                each(&bytes)
            }
        })
    }

    /// Calls `each` with the number of rows of all records, as little-endian `i64`, some at a time.
    fn each_counts(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.each_lengths(|_, lengths| {
            let counts = lengths.iter().flat_map(|len| (len / self.row_bytes).to_le_bytes());
            each(&counts.collect::<Vec<u8>>())
        })
    }
}

/// `OUT.rows.npy` beside `OUT.npy`.
fn counts_path(out: &Path) -> PathBuf {
    let mut name = out
        .file_stem()
        .filter(|_| out.extension() == Some("npy".as_ref()))
        .or(out.file_name())
        .unwrap_or_default()
        .to_owned();
    name.push(".rows.npy");
    out.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::tests::npy;
    use super::*;
    use crate::{Codec, Import, StoreOptions};

    /// The schema of a dense store.
    fn schema(dtype: crate::DType, item_shape: &[usize]) -> Vec<u8> {
        super::super::write::Settings::default().schema(Kind::Dense, dtype, item_shape).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_dense_store_gives_the_file_that_it_came_from(
            descr in prop::sample::select(vec!["|b1", "<i2", "<f4", "<V2"]),
            rows in 0u64..200,
            item in prop::collection::vec(0u64..5, 0..3),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let shape = [&[rows], &item[..]].concat();
            let len = shape.iter().product::<u64>() * descr[2..].parse::<u64>().unwrap();
            let bytes = npy(descr, false, &shape, &(0..len).map(|i| (i % 2) as u8).collect::<Vec<u8>>());
            fs::write(path("a.npy"), &bytes).unwrap();
            let import = Import::new();
            let import = if descr == "<V2" { import.dtype(crate::DType::BF16) } else { import };
            import.npy(path("a.npy"), path("store")).unwrap();
            let exported = export_npy(path("store"), path("b.npy")).unwrap();
            prop_assert_eq!(exported, Exported { records: rows, shape, row_counts: None });
            prop_assert_eq!(fs::read(path("b.npy")).unwrap(), bytes);
            let again = export_npy(path("store"), path("b.npy"));
            prop_assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        }

        #[test]
        fn a_ragged_store_gives_its_rows_and_their_counts(
            records in prop::collection::vec(prop::collection::vec(any::<[i16; 3]>(), 0..5), 0..100),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let packed = records.iter().map(|record| record.concat());
            Import::new().ragged_records::<i16>([3], packed, path("store")).unwrap();
            let exported = export_npy(path("store"), path("a.npy")).unwrap();
            let (count, rows) = (records.len() as u64, records.concat().len() as u64);
            let row_counts = Some(path("a.rows.npy"));
            prop_assert_eq!(exported, Exported { records: count, shape: vec![rows, 3], row_counts });
            let rows = npy("<i2", false, &[rows, 3], bytemuck::cast_slice(&records.concat()));
            prop_assert_eq!(fs::read(path("a.npy")).unwrap(), rows);
            let counts: Vec<u8> = records.iter().flat_map(|record| (record.len() as i64).to_le_bytes()).collect();
            prop_assert_eq!(fs::read(path("a.rows.npy")).unwrap(), npy("<i8", false, &[count], &counts));
        }
    }

    #[test]
    fn raw_records_count_as_rows_of_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let store = StoreOptions::new().codec(Codec::Raw).create(path("store")).unwrap();
        store.append(b"onethree", &[0, 3, 3, 8]).unwrap();
        store.close().unwrap();
        assert_eq!(export_npy(path("store"), path("a.npy")).unwrap().shape, [8]);
        assert_eq!(fs::read(path("a.npy")).unwrap(), npy("|u1", false, &[8], b"onethree"));
    }

    #[test]
    fn a_dtype_that_is_only_carried_is_written_as_it_is() {
        for (descr, bytes) in [(">i4", 4), ("|V4", 4), ("<c8", 8)] {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let schema = schema(crate::DType::I32, &[]);
            let at = schema.windows(3).position(|window| window == b"<i4").unwrap();
            let schema = [&schema[..at], descr.as_bytes(), &schema[at + 3..]].concat();
            let store = StoreOptions::new().codec(Codec::Raw).create_with_schema(&path("store"), &schema).unwrap();
            let data: Vec<u8> = (0..2 * bytes).collect();
            store.append(&data, &[0, bytes.into(), (2 * bytes).into()]).unwrap();
            store.close().unwrap();
            export_npy(path("store"), path("a.npy")).unwrap();
            assert_eq!(fs::read(path("a.npy")).unwrap(), npy(descr, false, &[2], &data));
        }
    }

    #[test]
    fn objects_and_what_numpy_does_not_spell_are_refused_by_name() {
        for descr in ["|O8", "<q4", "<M'"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("store");
            let schema = schema(crate::DType::I32, &[]);
            let at = schema.windows(3).position(|window| window == b"<i4").unwrap();
            let schema = [&schema[..at], descr.as_bytes(), &schema[at + 3..]].concat();
            StoreOptions::new().create_with_schema(&path, &schema).unwrap().close().unwrap();
            let error = export_npy(&path, directory.path().join("a.npy")).unwrap_err().to_string();
            assert!(error.contains(descr), "{error}");
        }
    }

    #[test]
    fn a_failed_export_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let schema = schema(crate::DType::I16, &[2]);
        let store = StoreOptions::new().create_with_schema(&path("store"), &schema).unwrap();
        store.append(b"fourtwo", &[0, 4, 7]).unwrap();
        store.close().unwrap();
        let error = export_npy(path("store"), path("a.npy")).unwrap_err().to_string();
        assert!(error.contains("record 1: expected the length of an item, 4 bytes, found 3 bytes"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn row_counts_lie_beside_the_rows() {
        for (out, counts) in [("a/b.npy", "a/b.rows.npy"), ("b", "b.rows.npy"), ("b.x", "b.x.rows.npy")] {
            assert_eq!(counts_path(Path::new(out)), Path::new(counts));
        }
    }
}
