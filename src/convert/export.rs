//! Stores out into .npy files.

use std::path::{Path, PathBuf};

use super::blocks::{LENGTHS, each_block};
use super::npy::header_bytes;
use super::place::NewFile;
use crate::data::{AnyDataset, Kind};
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

/// Writes the records of `store` to the .npy file `out`, in C order, with the dtype of the store.
///
/// A dense store of `n` records gives an array of shape `(n, …)`. A ragged store gives all rows, end to end, and a
/// second file, `OUT.rows.npy` beside `OUT.npy`, with the number of rows of each record as `i64`; a store of raw records
/// counts as one of rows of `u8`. bfloat16 is written as `<V2`, which NumPy reads as two raw bytes. Dates, complex
/// numbers and strings, which this crate only carries, are written as they are; structures become raw bytes (`|V12`).
///
/// # Errors
///
/// An existing `out` is an error, as are pickled objects, and records whose length does not fit the schema. A failure
/// leaves no file.
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
    let (path, out) = (store.as_ref(), out.as_ref());
    let export = Export::open(path)?;
    if export.store.kind() == Some(Kind::Dense) { export.dense(out) } else { export.ragged(out) }
}

/// A store that is written out, as it was when it was opened.
struct Export {
    store: AnyDataset,
    records: u64,
    /// The dtype, as a .npy file has it.
    descr: String,
    item_shape: Vec<u64>,
    /// Bytes of a row; of a record, in a dense store.
    row_bytes: u64,
}

impl Export {
    /// Raw records count as rows of bytes.
    fn open(path: &Path) -> Result<Export> {
        let store = AnyDataset::open(path)?;
        let descr = store.dtype().unwrap_or("|u1").to_owned();
        let row_bytes = if store.kind().is_none() { Some(1) } else { store.row_bytes() };
        let unsupported = |reason| Error::unsupported(path, format!("dtype {descr:?}"), reason);
        if descr.get(1..2) == Some("O") {
            return Err(unsupported("pickled objects are neither loaded nor written"));
        }
        let row_bytes = row_bytes.ok_or_else(|| unsupported("a .npy file cannot carry it as it is"))? as u64;
        let item_shape = store.item_shape().unwrap_or(&[]).iter().map(|&dimension| dimension as u64).collect();
        Ok(Export { records: store.len(), descr, item_shape, row_bytes, store })
    }

    fn dense(self, out: &Path) -> Result<Exported> {
        let mut file = NewFile::create(out)?;
        let shape = [&[self.records], &self.item_shape[..]].concat();
        file.write_all(&header_bytes(self.store.path(), &self.descr, &shape)?)?;
        self.each_lengths(|first, lengths| {
            self.check(first, lengths, "the length of an item", |len| len == self.row_bytes)
        })?;
        self.write_records(&mut file)?;
        file.finish()?;
        Ok(Exported { records: self.records, shape, row_counts: None })
    }

    fn ragged(self, out: &Path) -> Result<Exported> {
        if self.row_bytes == 0 {
            let reason = "its records have no number of rows";
            return Err(Error::unsupported(self.store.path(), "a ragged store whose rows have no bytes", reason));
        }
        let counts_path = counts_path(out);
        let (mut file, mut counts) = (NewFile::create(out)?, NewFile::create(&counts_path)?);
        counts.write_all(&header_bytes(&counts_path, "<i8", &[self.records])?)?;
        let mut rows = 0;
        self.each_lengths(|first, lengths| {
            self.check(first, lengths, "a multiple of a row's length", |len| len.is_multiple_of(self.row_bytes))?;
            let lengths = lengths.iter().map(|len| len / self.row_bytes);
            rows += lengths.clone().sum::<u64>();
            counts.write_all(&lengths.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
        })?;
        let shape = [&[rows], &self.item_shape[..]].concat();
        file.write_all(&header_bytes(self.store.path(), &self.descr, &shape)?)?;
        self.write_records(&mut file)?;
        counts.finish()?;
        file.finish()?;
        Ok(Exported { records: self.records, shape, row_counts: Some(counts_path) })
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

    /// Writes all records, one behind the other.
    fn write_records(&self, file: &mut NewFile) -> Result<()> {
        each_block(&self.store, 0..self.records, |_, records| file.write_all(&records.bytes))
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
