//! Codecs tried on a sample of a store's records: half of it for training, the other half for measuring.

use std::path::Path;
use std::time::{Duration, Instant};

use loaderx::{AnyDataset, Codec, DictSize, Records, StoreOptions};
use serde::Serialize;

use crate::output::Result;

/// What a sample holds at most, of records and of bytes.
const RECORDS: u64 = 16 << 10;
const BYTES: u64 = 32 << 20;

/// How long gathers are measured, and how many records each has.
const GATHERING: Duration = Duration::from_millis(150);
const BATCH: usize = 256;

/// Records spread evenly over a store.
pub(crate) struct Sample {
    train: Records,
    measure: Records,
}

impl Sample {
    /// Takes every so many-th record, in turn for training and for measuring.
    pub(crate) fn of(store: &AnyDataset) -> Result<Sample> {
        let count = store.len().min(RECORDS);
        let indices: Vec<u64> = (0..count).map(|i| i * store.len() / count).collect();
        let lengths = store.lengths(&indices)?;
        let total: u64 = lengths.iter().sum();
        // Where all of them are too much, every so many-th is taken.
        let step = total.div_ceil(BYTES).max(1) as usize;
        let taken: Vec<u64> = indices.into_iter().step_by(step).collect();
        let of = |first: usize| taken.iter().copied().skip(first).step_by(2).collect::<Vec<u64>>();
        let (train, measure) = (store.gather(&of(0))?, store.gather(&of(1))?);
        if measure.bytes.is_empty() || train.bytes.is_empty() {
            return Err(format!(
                "{}: it has too few records to train on some and measure others",
                store.path().display()
            )
            .into());
        }
        Ok(Sample { train, measure })
    }

    /// How many records are measured, and their bytes.
    pub(crate) fn measured(&self) -> (usize, usize) {
        (self.measure.offsets.len() - 1, self.measure.bytes.len())
    }
}

/// How records are compressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) codec: Codec,
    /// The codec's default where there is none.
    pub(crate) level: Option<i32>,
    pub(crate) dict_size: DictSize,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trial {
    pub(crate) codec: &'static str,
    pub(crate) level: Option<i32>,
    /// Bytes of the dictionary, which are no part of the ratio.
    pub(crate) dictionary: Option<usize>,
    /// How many times smaller the records became.
    pub(crate) ratio: f64,
    pub(crate) write_bytes_per_second: f64,
    pub(crate) gather_records_per_second: f64,
    pub(crate) gather_bytes_per_second: f64,
    #[serde(skip)]
    pub(crate) dict: Option<Vec<u8>>,
}

impl Trial {
    /// Writes and reads the sample in a store of its own in `directory`, which is removed.
    pub(crate) fn run(directory: &Path, sample: &Sample, choice: Choice) -> Result<Trial> {
        let path = directory.join("trial");
        let options = StoreOptions::new().codec(choice.codec).record_limit(u32::MAX);
        let options = choice.level.map_or(options.clone(), |level| options.level(level));
        let store = options.create(&path)?;
        if choice.codec == Codec::ZstdDict {
            store.train_dict(&sample.train.bytes, &sample.train.offsets, choice.dict_size)?;
        }
        let begin = Instant::now();
        store.append(&sample.measure.bytes, &sample.measure.offsets)?;
        let writing = begin.elapsed();
        let (dict, live) = (store.dict(), store.stats()?.live_bytes);
        let mut order = Order(1);
        let (mut records, mut bytes, mut batch) = (0, 0, Records::default());
        let begin = Instant::now();
        while begin.elapsed() < GATHERING {
            store.gather_into(&order.batch(BATCH, store.len()), &mut batch)?;
            (records, bytes) = (records + BATCH, bytes + batch.bytes.len());
        }
        let gathering = begin.elapsed().as_secs_f64();
        drop(store);
        std::fs::remove_dir_all(&path).map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
        let total = sample.measure.bytes.len() as f64;
        Ok(Trial {
            codec: choice.codec.name(),
            level: choice.level,
            dictionary: dict.as_ref().map(Vec::len),
            ratio: total / live.max(1) as f64,
            write_bytes_per_second: total / writing.as_secs_f64().max(1e-9),
            gather_records_per_second: records as f64 / gathering,
            gather_bytes_per_second: bytes as f64 / gathering,
            dict,
        })
    }
}

/// A directory for trials: beside the store, on whose disk it is measured, or where temporary files go.
pub(crate) fn directory(store: &Path) -> Result<tempfile::TempDir> {
    let store = std::path::absolute(store)?;
    let beside =
        store.parent().and_then(|parent| tempfile::Builder::new().prefix(".loaderx-trial-").tempdir_in(parent).ok());
    match beside {
        Some(directory) => Ok(directory),
        None => tempfile::tempdir().map_err(|e| format!("cannot make a temporary directory: {e}").into()),
    }
}

/// Indices in an order that depends on a seed alone.
pub(crate) struct Order(pub(crate) u64);

impl Order {
    /// So many indices below `len`, which is not 0.
    pub(crate) fn batch(&mut self, count: usize, len: u64) -> Vec<u64> {
        let mut next = || {
            // Xorshift: the order need not be good, only scattered.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        };
        (0..count).map(|_| next() % len).collect()
    }
}

/// Bytes a second, in a unit that suits it.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        rate if rate >= 1e9 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.1} MB/s", rate / 1e6),
        rate => format!("{:.1} kB/s", rate / 1e3),
    }
}
