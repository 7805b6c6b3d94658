//! A store into a new one, compressed otherwise, or without what is damaged.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::blocks::each_block;
use super::import::{Imported, Progress};
use super::place::Partial;
use super::write::{Done, SAMPLE_BYTES, Settings, push, shared_setters};
use crate::data::{AnyDataset, MAX_SAMPLES};
use crate::error::{Corruption, Error, Result};
use crate::{Codec, DictSize, Records, StoreOptions, Verify};

/// Copies a store into a new one with another codec, level or dictionary. The indices, the schema and its metadata stay as
/// they are, and a saved loader state goes on with either.
///
/// The new store is built in `DST.partial` and appears whole, and every record is read back and compared before that. What
/// holds for an [`Import`](crate::Import) holds for it.
///
/// ```
/// use loaderx::{Codec, DenseDataset, Recode};
///
/// # let directory = tempfile::tempdir()?;
/// # let (plain, small) = (directory.path().join("plain"), directory.path().join("small"));
/// let plain_data = DenseDataset::<i64, ()>::options().codec(Codec::Raw).create(&plain, ())?;
/// plain_data.append(&[7; 1000])?;
/// plain_data.close()?;
/// Recode::new().codec(Codec::Zstd).level(19).store(&plain, &small)?;
/// assert_eq!(DenseDataset::<i64, ()>::open(&small)?.read(..3)?.values(), [7, 7, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recode<'a> {
    pub(super) settings: Settings,
    stop: Option<&'a AtomicBool>,
    progress: Box<dyn FnMut(Progress) + 'a>,
}

impl fmt::Debug for Recode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Default for Recode<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Recode<'a> {
    /// The defaults: codec zstd at its default level, no progress.
    pub fn new() -> Self {
        Recode { settings: Settings::default(), stop: None, progress: Box::new(|_| {}) }
    }

    shared_setters!();

    /// Stops with [`Error::Interrupted`] soon after `stop` becomes true, at the end of a block of records. Nothing is left.
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Copies the store `source` into the new one `destination`.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Corrupt`] at the first damaged record ([`repair`] leaves such out);
    /// [`Error::Dictionary`]; [`Error::Io`]. After an error there is no `destination`.
    pub fn store(mut self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        let source = open(&self.settings, source.as_ref())?;
        let done = Done::new(&mut self.progress, self.stop, Some(source.len()), None);
        copy(&source, &BTreeSet::new(), &self.settings, done, destination.as_ref())
    }
}

/// What [`repair`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// How many records the new store has.
    pub kept: u64,
    /// The records that are not in it, by their index in the old store, with their place and what is wrong.
    pub left_out: Vec<Corruption>,
}

/// Copies the records of `source` that are whole into the new store `destination`, and says which are not. They keep their
/// order; indices close up. The codec stays, but for a dictionary that cannot be trained again: then it is zstd.
///
/// # Errors
/// What makes the whole store unreadable: no header, a damaged schema, another version; [`Error::Exists`], [`Error::Io`].
pub fn repair(source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Repaired> {
    let mut settings = Settings::default();
    let source = open(&settings, source.as_ref())?;
    let left_out = source.verify(|_| {})?.bad;
    let bad: BTreeSet<u64> = left_out.iter().filter_map(|bad| bad.record).collect();
    settings.codec = source.codec().unwrap_or_default();
    let destination = destination.as_ref();
    let copied = match copy(&source, &bad, &settings, Done::new(&mut |_| {}, None, None, None), destination) {
        Err(Error::Dictionary { .. }) if settings.codec == Codec::ZstdDict => {
            settings.codec = Codec::Zstd;
            copy(&source, &bad, &settings, Done::new(&mut |_| {}, None, None, None), destination)
        }
        copied => copied,
    }?;
    Ok(Repaired { kept: copied.rows, left_out })
}

/// Opens a store to be copied: a damaged record is never taken for a whole one.
fn open(settings: &Settings, path: &Path) -> Result<AnyDataset> {
    let options = StoreOptions::new().disk(Arc::clone(&settings.disk));
    AnyDataset::open_with(options.verify(Verify::Always), path)
}

/// Copies all records but the bad ones.
fn copy(
    source: &AnyDataset,
    bad: &BTreeSet<u64>,
    settings: &Settings,
    mut done: Done<'_>,
    destination: &Path,
) -> Result<Imported> {
    let indices = || (0..source.len()).filter(|index| !bad.contains(index));
    let mut partial = Partial::begin(&settings.disk, destination)?;
    let path = partial.below(&[""; 0])?;
    // Whatever the source holds may be copied; the schema keeps the limit for what is appended later.
    let options = settings.options().record_limit(u32::MAX).generation(source.generation());
    let store = match source.schema_with_codec(settings.codec)? {
        Some(schema) => options.create_with_schema(&path, &schema)?,
        None => options.create(&path)?,
    };
    let kept = source.len() - bad.len() as u64;
    if settings.codec == Codec::ZstdDict && kept > 0 {
        settings.train(&store, source.path(), || samples(source, bad))?;
    }
    each_block(source, indices(), |_, records| done.append(&store, records))?;
    store.close()?;
    compare(source, indices(), &open(settings, &path)?)?;
    done.finish(partial, vec![destination.to_path_buf()])
}

/// Whole records spread evenly over a store.
fn samples(source: &AnyDataset, bad: &BTreeSet<u64>) -> Result<Records> {
    let count = source.len().min(MAX_SAMPLES as u64);
    let chosen = (0..count).map(|i| i * source.len() / count).filter(|index| !bad.contains(index));
    let mut samples = Records { bytes: Vec::new(), offsets: vec![0] };
    each_block(source, chosen, |_, records| {
        for i in 0..records.offsets.len() - 1 {
            let record = records.get(i).unwrap_or_default();
            if (samples.bytes.len() + record.len()) as u64 <= SAMPLE_BYTES {
                push(&mut samples, record);
            }
        }
        Ok(())
    })?;
    Ok(samples)
}

/// Holds the new store to the old one.
fn compare(source: &AnyDataset, indices: impl Iterator<Item = u64>, copied: &AnyDataset) -> Result<()> {
    let (mut first, mut found) = (0, Records::default());
    each_block(source, indices, |indices, records| {
        let here: Vec<u64> = (first..first + indices.len() as u64).collect();
        copied.gather_into(&here, &mut found)?;
        first += indices.len() as u64;
        if found == *records {
            Ok(())
        } else {
            let (begin, end) = (indices[0], indices[indices.len() - 1]);
            Err(Error::corrupt(copied.path(), format!("copies of the records {begin} to {end}"), "other bytes"))
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DenseDataset, RaggedDataset, Store};

    const CODECS: [Codec; 3] = [Codec::Raw, Codec::Zstd, Codec::ZstdDict];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_recoded_store_holds_the_same(
            records in prop::collection::vec(prop::collection::vec(0i32..50, 0..400), 40..120),
            from in 0usize..2,
            to in 0usize..3,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
            let options = RaggedDataset::<i32>::options().codec(CODECS[from]).metadata("names", &["a", "b"]);
            let data = options.create(&src, ()).unwrap();
            data.append(&records).unwrap();
            data.close().unwrap();
            let fingerprint = RaggedDataset::<i32>::open(&src).unwrap().fingerprint(30).unwrap();
            let done = Recode::new().codec(CODECS[to]).dict_size(DictSize::Bytes(2000)).store(&src, &dst).unwrap();
            prop_assert_eq!(done.rows, records.len() as u64);
            let data = RaggedDataset::<i32>::open(&dst).unwrap();
            prop_assert_eq!(data.codec(), CODECS[to]);
            prop_assert_eq!(data.has_dict(), to == 2);
            prop_assert_eq!(data.metadata::<Vec<String>>("names").unwrap().unwrap(), ["a", "b"]);
            let batch = data.read(..).unwrap();
            for (i, record) in records.iter().enumerate() {
                prop_assert_eq!(batch.record(i).unwrap(), &record[..]);
            }
            prop_assert_eq!(data.fingerprint(30).unwrap(), fingerprint);
            let again = Recode::new().store(&src, &dst);
            assert!(matches!(again, Err(Error::Exists { .. })));
        }
    }

    #[test]
    fn what_a_deletion_made_of_a_store_is_recoded_with_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
        let mut data = DenseDataset::<u16, ()>::create(&src, ()).unwrap();
        data.append(&(0..500).collect::<Vec<_>>()).unwrap();
        data.delete(3..9).unwrap();
        let fingerprint = data.fingerprint(400).unwrap();
        data.close().unwrap();
        Recode::new().codec(Codec::Raw).store(&src, &dst).unwrap();
        assert_eq!(DenseDataset::<u16, ()>::open(&dst).unwrap().fingerprint(400).unwrap(), fingerprint);
    }

    #[test]
    fn raw_records_and_empty_stores_are_recoded() {
        let dir = tempfile::tempdir().unwrap();
        for (name, offsets) in [("some", &[0, 3, 3, 8][..]), ("none", &[0])] {
            let (src, dst) = (dir.path().join(name), dir.path().join(format!("{name}.dst")));
            let store = Store::create(&src, Codec::Zstd).unwrap();
            store.append(&b"onethree"[..offsets[offsets.len() - 1] as usize], offsets).unwrap();
            store.close().unwrap();
            Recode::new().codec(Codec::Raw).store(&src, &dst).unwrap();
            let all: Vec<u64> = (0..offsets.len() as u64 - 1).collect();
            assert_eq!(
                Store::open(&dst).unwrap().gather(&all).unwrap(),
                Store::open(&src).unwrap().gather(&all).unwrap()
            );
        }
    }

    #[test]
    fn a_repaired_store_holds_what_is_whole_and_says_what_is_not() {
        let dir = tempfile::tempdir().unwrap();
        for codec in CODECS {
            let (src, dst) = (dir.path().join(codec.name()), dir.path().join(format!("{}.dst", codec.name())));
            let records: Vec<Vec<u8>> =
                (0..300u32).map(|i| format!("record {i}, {} of a kind; ", i % 7).into_bytes().repeat(30)).collect();
            let data = RaggedDataset::<u8>::options().codec(codec).create(&src, ()).unwrap();
            if codec == Codec::ZstdDict {
                data.train_dict(&records, DictSize::Bytes(1000)).unwrap();
            }
            data.append(&records).unwrap();
            data.close().unwrap();
            assert!(matches!(repair(&src, &dst), Ok(Repaired { kept: 300, left_out }) if left_out.is_empty()));
            std::fs::remove_dir_all(&dst).unwrap();
            let chunk = src.join("0.zr");
            let mut bytes = std::fs::read(&chunk).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&chunk, bytes).unwrap();
            let recoded = Recode::new().store(&src, &dst).unwrap_err();
            let repaired = repair(&src, &dst).unwrap();
            let out: Vec<u64> = repaired.left_out.iter().filter_map(|bad| bad.record).collect();
            assert!(matches!(&recoded, Error::Corrupt(bad) if bad.record == Some(out[0])), "{recoded}");
            assert_eq!((repaired.kept, out.len()), (299, 1), "{codec:?}");
            let wanted: Vec<&[u8]> = (0..300).filter(|i| !out.contains(i)).map(|i| &records[i as usize][..]).collect();
            let batch = RaggedDataset::<u8>::open(&dst).unwrap().read(..).unwrap();
            assert!(batch.iter().eq(wanted));
        }
    }
}
