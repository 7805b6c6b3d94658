//! What a mean hides: slow batches, single records, page faults, cold pages, and what grows with a store or a step.

use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use loaderx::{Codec, DataLoader, DenseDataset, Import, ReadMode};
use memmap2::Mmap;
use rustix::fs::{Advice, fadvise};

use crate::{Data, Options, Result, Turn, print};

const PEER: &str = "loaderx-rs";

type Rows = DenseDataset<u8, [usize; 1]>;

/// The rows as bytes, in a store.
fn import(data: &Data, codec: Codec, store: &Path) -> Result<()> {
    let bytes = fs::read(&data.path)?;
    let rows = bytes[data.begin..].chunks_exact(data.row);
    Import::new().codec(codec).dense_records::<u8>([data.row], rows, store)?;
    Ok(())
}

/// Batches and records one by one, and the faults of a batch.
pub fn latency(data: &Data, options: &Options) -> Result<()> {
    for codec in [Codec::Raw, Codec::Zstd] {
        let folder = tempfile::tempdir_in(&options.data)?;
        let store = folder.path().join("store");
        import(data, codec, &store)?;
        let rows = Rows::open(&store)?;
        let report = |task: &str, value, unit| print(PEER, task, &data.name, codec.name(), value, unit);

        let mut turn = Turn::new(data.rows, options.batch);
        let mut times = Vec::new();
        for _ in 0..5000 {
            let begin = Instant::now();
            black_box(rows.gather(turn.next())?);
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        // The first thousand warm up.
        times.drain(..1000);
        times.sort_by(f64::total_cmp);
        report("gather-p50", times[times.len() / 2], "us/batch");
        report("gather-p99", times[times.len() * 99 / 100], "us/batch");

        let before = minor_faults()?;
        for _ in 0..1000 {
            black_box(rows.gather(turn.next())?);
        }
        report("faults", (minor_faults()? - before) / 1000.0, "minor/batch");

        let indices = turn.next().to_vec();
        let value = crate::best(|| {
            for &index in &indices {
                black_box(rows.gather(&[index])?);
            }
            Ok(())
        })?;
        report("record", value / indices.len() as f64, "us/record");
    }
    Ok(())
}

/// The minor faults of this process so far.
fn minor_faults() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold anything; the eighth field behind it is the count.
    let field = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(7)).ok_or("no such field")?;
    Ok(field.parse()?)
}

/// Bytes of a record, and of all of them, where they come from the disk.
const COLD_ROW: usize = 12 << 10;
const COLD: u64 = 2 << 30;

/// Random batches from a store that is much larger than what they read, with no page in memory at the start.
pub fn cold(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(&options.data)?;
    let store = folder.path().join("store");
    let records = COLD / COLD_ROW as u64;
    drop(fill(&store, records, COLD_ROW)?);
    // Raw records lie end to end in the first chunk.
    let chunk = store.join("0.zr");
    let mut turn = Turn::new(records, options.batch);
    let batches: Vec<Vec<u64>> = (0..40).map(|_| turn.next().to_vec()).collect();
    let report = |peer: &str, begin: Instant| {
        let value = begin.elapsed().as_secs_f64() * 1e6 / batches.len() as f64;
        print(peer, "gather-cold", "12 KiB of 2 GiB", "raw", value, "us/batch");
    };

    drop_pages(&store)?;
    let file = File::open(&chunk)?;
    // SAFETY: nothing changes the file while it is measured.
    let map = unsafe { Mmap::map(&file)? };
    let begin = Instant::now();
    for batch in &batches {
        let mut out = Vec::with_capacity(options.batch * COLD_ROW);
        batch.iter().for_each(|&index| out.extend_from_slice(&map[index as usize * COLD_ROW..][..COLD_ROW]));
        black_box(out);
    }
    report("limit-fault", begin);
    drop(map);

    drop_pages(&store)?;
    let begin = Instant::now();
    for batch in &batches {
        let mut out = vec![0; options.batch * COLD_ROW];
        for (&index, out) in batch.iter().zip(out.chunks_exact_mut(COLD_ROW)) {
            std::os::unix::fs::FileExt::read_exact_at(&file, out, index * COLD_ROW as u64)?;
        }
        black_box(out);
    }
    report("limit-pread", begin);

    for (name, mode) in [("loaderx-rs", ReadMode::Mapped), ("loaderx-rs-positional", ReadMode::Positional)] {
        drop_pages(&store)?;
        let rows = Rows::options().read_mode(mode).open(&store)?;
        let begin = Instant::now();
        for batch in &batches {
            black_box(rows.gather(batch)?);
        }
        report(name, begin);
    }
    // What building reads, to know the records again, counts too.
    drop_pages(&store)?;
    let begin = Instant::now();
    let loader = DataLoader::builder(Rows::open(&store)?).batch_size(options.batch as u64).build()?;
    for batch in loader.take(batches.len()) {
        black_box(batch?);
    }
    report("loaderx-rs-loader", begin);
    Ok(())
}

/// Asks the system to forget the pages of a file, or of the files of a folder.
fn drop_pages(path: &Path) -> Result<()> {
    if path.is_dir() {
        return fs::read_dir(path)?.try_for_each(|entry| drop_pages(&entry?.path()));
    }
    let file = File::open(path)?;
    if file.metadata()?.len() > 0 {
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// A transform that computes, with one worker and with two.
pub fn scaling(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(&options.data)?;
    let store = folder.path().join("store");
    Import::new().codec(Codec::Raw).dense_records::<u8>([784], (0..6000u32).map(|i| [i as u8; 784]), &store)?;
    for workers in [1, 2] {
        let mut loader = DataLoader::builder(Rows::open(&store)?)
            .batch_size(options.batch as u64)
            .workers(workers)
            .map(|_, batch| {
                let sum = batch.values().iter().fold(1u64, |sum, &value| {
                    (0..8).fold(sum, |sum, _| (sum ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                });
                Ok(sum)
            })
            .build()?;
        let value = crate::best(|| Ok(loader.next().ok_or("the loader ended")??))?;
        print(&format!("{PEER}-{workers}"), "transform", "small", "raw", 1e6 / value, "batches/s");
    }
    Ok(())
}

/// What a record costs, against the number of records, their size, the batch and the workers, one at a time.
pub fn scale(options: &Options) -> Result<()> {
    let report =
        |what: &str, size: u64, value: f64| print(PEER, "scale", &format!("{what}/{size}"), "raw", value, "ns/record");
    let gather = |records: u64, size: usize, batch: usize| -> Result<f64> {
        let folder = tempfile::tempdir_in(&options.data)?;
        let rows = fill(&folder.path().join("store"), records, size)?;
        let mut turn = Turn::new(records, batch);
        Ok(crate::best(|| Ok(rows.gather(turn.next())?))? * 1e3 / batch as f64)
    };
    for records in [1000, 10_000, 100_000, 1_000_000, 1 << 24] {
        report("records", records, gather(records, 16, 256)?);
    }
    for batch in [1, 16, 256, 1024, 8192] {
        report("batch", batch, gather(60_000, 784, batch as usize)?);
    }
    for size in [1, 64, 1 << 10, 16 << 10, 256 << 10, 1 << 20] {
        report("size", size, gather(((128 << 20) / size).min(1_000_000), size as usize, 32)?);
    }
    let folder = tempfile::tempdir_in(&options.data)?;
    drop(fill(&folder.path().join("store"), 60_000, 784)?);
    for workers in [0, 1, 2, 4, 8] {
        let rows = Rows::open(folder.path().join("store"))?;
        let mut loader = DataLoader::builder(rows).batch_size(256).workers(workers).build()?;
        let value = crate::best(|| Ok(loader.next().ok_or("the loader ended")??))?;
        report("workers", workers as u64, value * 1e3 / 256.0);
    }
    Ok(())
}

/// A store of that many records of `size` bytes.
fn fill(store: &Path, records: u64, size: usize) -> Result<Rows> {
    let rows = Rows::options().codec(Codec::Raw).create(store, [size])?;
    let at_once = ((8 << 20) / size as u64).max(1);
    let mut left = records;
    while left > 0 {
        let some = left.min(at_once);
        rows.append(&vec![7; some as usize * size])?;
        left -= some;
    }
    rows.close()?;
    Ok(Rows::open(store)?)
}

/// Opening, seeking and going on: none of them grows with the store or the step.
pub fn growth(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(&options.data)?;
    for records in [10u64, 1 << 24] {
        let store = folder.path().join(records.to_string());
        drop(fill(&store, records, 1)?);
        let value = crate::best(|| Ok(Rows::open(&store)?.len()))?;
        print(PEER, "open", &records.to_string(), "raw", value, "us");
    }
    let store = folder.path().join((1u64 << 24).to_string());
    let mut loader = DataLoader::builder(Rows::open(&store)?).batch_size(256).workers(0).build()?;
    for step in [10, 1_000_000_000_000] {
        let value = crate::best(|| {
            loader.seek(step);
            Ok(loader.next().ok_or("the loader ended")??)
        })?;
        print(PEER, "seek", &step.to_string(), "raw", value, "us");
    }
    let mut loader = DataLoader::builder(Rows::open(&store)?).batch_size(256).build()?;
    let mut after_thousand = 0.0;
    for step in 1..=100_000 {
        black_box(loader.next().ok_or("the loader ended")??);
        if step == 1000 {
            after_thousand = anonymous()?;
        }
    }
    print(PEER, "memory", "100000 steps after 1000", "raw", anonymous()? - after_thousand, "KiB");
    Ok(())
}

/// KiB of memory that no file stands for.
fn anonymous() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
