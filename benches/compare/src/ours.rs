//! loaderx itself.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;
use std::{fs, io};

use loaderx::{Codec, DataLoader, DenseDataset, Element, Import, Mode, Sampler};

use crate::{Data, Options, Result, Turn, best, print};

const PEER: &str = "loaderx-rs";

pub fn sampler() -> Result<()> {
    for (name, mode) in [("sequential", Mode::Sequential), ("iid", Mode::Iid), ("cyclic", Mode::Cyclic)] {
        for size in [256, 1024, 8192] {
            let (sampler, mut step, mut batch) = (Sampler::new(mode, 1_000_000, size, 42)?, 0, Vec::new());
            let value = best(|| {
                sampler.batch_into(step, 0..size, &mut batch);
                step += 1;
                Ok(batch[0])
            })?;
            print(PEER, "sampler", &format!("{name}/{size}"), "", value, "us/batch");
        }
    }
    Ok(())
}

fn codec(name: &str) -> Codec {
    match name {
        "raw" => Codec::Raw,
        "zstd" => Codec::Zstd,
        _ => Codec::ZstdDict,
    }
}

/// Imports the array; the import ends with a sync.
pub fn write(data: &Data, name: &str, store: &Path, report: bool) -> Result<()> {
    let begin = Instant::now();
    Import::new().codec(codec(name)).npy(&data.path, store)?;
    let took = begin.elapsed().as_secs_f64();
    if report {
        print(PEER, "write", &data.name, name, data.bytes() / took / f64::from(1 << 20), "MiB/s");
        print(PEER, "disk", &data.name, name, allocated(store)? as f64, "bytes");
    }
    Ok(())
}

fn allocated(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.blocks() * 512)).sum()
}

pub fn read(data: &Data, codec: &str, store: &Path, options: &Options) -> Result<()> {
    if data.name == "vectors" {
        read_as::<f32>(data, codec, store, options)
    } else {
        read_as::<u8>(data, codec, store, options)
    }
}

fn read_as<T: Element>(data: &Data, codec: &str, store: &Path, options: &Options) -> Result<()> {
    let dataset = DenseDataset::<T, Vec<usize>>::open(store)?;
    if options.wants("gather") {
        let mut turn = Turn::new(data.rows, options.batch);
        let value = best(|| Ok(dataset.gather(turn.next())?))?;
        print(PEER, "gather", &data.name, codec, value, "us/batch");
    }
    if options.wants("loader") {
        let mut builder = DataLoader::builder(dataset).batch_size(options.batch as u64);
        if let Some(workers) = options.workers {
            builder = builder.workers(workers);
        }
        let mut loader = builder.build()?;
        let value = best(|| Ok(loader.next().ok_or("the loader ended")??))?;
        print(PEER, "loader", &data.name, codec, 1e6 / value, "batches/s");
    }
    Ok(())
}
