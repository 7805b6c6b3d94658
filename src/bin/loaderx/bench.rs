//! `loaderx bench`.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use loaderx::{AnyDataset, DataLoader, Records, Stream};
use serde::Serialize;

use crate::output::{self, Bar, Result};
use crate::trial::{Order, rate};

/// How long each rate is measured, after a tenth of that to warm up.
const TIME: Duration = Duration::from_millis(800);

/// Measure how fast records of a store come on this machine, beside a plain copy.
///
/// They are gathered at random by one thread that asks for a batch at a time, and come shuffled through a loader; a copy of
/// as many bytes is the limit. It takes a few seconds.
///
/// What is measured first reads from the disk, and what comes after from memory, where the store fits: run it twice to
/// see the latter alone.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Records a batch
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
    /// Threads of the loader [default: the loader's own choice]
    #[arg(long, value_name = "N")]
    workers: Option<u16>,
    /// One JSON object: records, batch, and of copy, gather and loader records_per_second and bytes_per_second
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Measured {
    records: u64,
    batch: u64,
    copy: Rate,
    gather: Rate,
    loader: Rate,
}

#[derive(Serialize, Clone, Copy)]
struct Rate {
    records_per_second: f64,
    bytes_per_second: f64,
}

impl Rate {
    /// Calls `batch`, which gives records and bytes, for a while.
    fn of(mut batch: impl FnMut() -> Result<(u64, u64)>) -> Result<Rate> {
        let warm = Instant::now();
        while warm.elapsed() < TIME / 10 {
            batch()?;
        }
        let (mut records, mut bytes) = (0, 0);
        let begin = Instant::now();
        while begin.elapsed() < TIME {
            let done = batch()?;
            (records, bytes) = (records + done.0, bytes + done.1);
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Rate { records_per_second: records as f64 / seconds, bytes_per_second: bytes as f64 / seconds })
    }
}

/// The records of any store, as bytes.
struct Bytes(AnyDataset);

impl Stream for Bytes {
    type Batch = Records;

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn gather(&self, indices: &[u64]) -> loaderx::Result<Records> {
        self.0.gather(indices)
    }

    fn fingerprint(&self, _len: u64) -> loaderx::Result<Vec<u64>> {
        // No state is saved.
        Ok(vec![0])
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let (len, batch) = (store.len(), arguments.batch);
    if len == 0 {
        return Err(format!("{}: it holds no records to measure", store.path().display()).into());
    }
    let bar = Bar::new("rates");
    let measured = bar.working(|| measure(arguments, store, len, batch))?;
    drop(bar);
    output::result(&if arguments.json { serde_json::to_string(&measured)? + "\n" } else { lines(&measured) })
}

fn measure(arguments: &Arguments, store: AnyDataset, len: u64, batch: u64) -> Result<Measured> {
    let (mut order, mut records) = (Order(1), Records::default());
    let gather = Rate::of(|| {
        store.gather_into(&order.batch(batch as usize, len), &mut records)?;
        Ok((batch, black_box(&records).bytes.len() as u64))
    })?;
    let mut copied = Vec::with_capacity(records.bytes.len());
    let copy = Rate::of(|| {
        copied.clear();
        copied.extend_from_slice(black_box(&records.bytes));
        Ok((batch, black_box(&copied).len() as u64))
    })?;
    // A loader's batch is no larger than its data.
    let mut builder = DataLoader::builder(Bytes(store)).batch_size(batch.min(len)).seed(1);
    if let Some(workers) = arguments.workers {
        builder = builder.workers(workers.into());
    }
    let mut batches = builder.build()?;
    let loader = Rate::of(|| {
        let records: Records = batches.next().ok_or("the loader has ended")??;
        Ok((records.offsets.len() as u64 - 1, black_box(records).bytes.len() as u64))
    })?;
    Ok(Measured { records: len, batch, copy, gather, loader })
}

fn lines(measured: &Measured) -> String {
    let limit = measured.copy.bytes_per_second.max(1.0);
    let line = |name: &str, of: Rate, what: &str| {
        format!(
            "{name:<8}{:>14.0} records/s{:>14}{:>6.0} %  {what}\n",
            of.records_per_second,
            rate(of.bytes_per_second),
            of.bytes_per_second / limit * 100.0
        )
    };
    format!("{} records, batches of {}\n", measured.records, measured.batch)
        + &line("copy", measured.copy, "as many bytes, copied: the limit")
        + &line("gather", measured.gather, "random batches, one after the other")
        + &line("loader", measured.loader, "shuffled batches, by its workers")
}
