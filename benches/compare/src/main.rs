//! Measures loaderx beside the limits of the machine and other Rust crates, and prints one JSON object a line, with the
//! fields of the script that measures the Python peers: peer, task, data, codec, value, unit.
//!
//! `gather`, `limit` and `sampler`: microseconds a batch, the least of five rounds, batches in turn, warm cache, into
//! fresh memory. `write`: MiB/s of the array, to the end of a sync. `disk`: allocated bytes. `loader`: batches/s.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- --data DIR
//!   … --only loaderx-rs,limit --tasks gather --datasets tiles,small
//! ```
//!
//! DIR holds tiles.npy (10,000 × 3 × 64 × 64 u8), small.npy (60,000 × 28 × 28 u8), labels.npy (1,000,000 u8) and
//! vectors.npy (50,000 × 384 f32).

mod details;
mod limits;
mod loaders;
mod ours;
mod peers;

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PEERS: [&str; 7] = ["loaderx-rs", "limit", "ndarray-npy", "heed", "burn", "candle-datasets", "dataloader-rs"];

/// How many batches take turns: enough to touch nearly every record before one repeats.
const BATCHES: u64 = 1000;

#[derive(Parser)]
#[command(about = "loaderx beside the limits of the machine and other Rust crates, as JSON lines")]
struct Options {
    /// The folder of the .npy files.
    #[arg(long)]
    data: PathBuf,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_values = PEERS)]
    only: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "sampler,write,gather,loader,latency,cold,growth,scale")]
    tasks: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "tiles,small,labels,vectors")]
    datasets: Vec<String>,
    /// Of the loader; by default it chooses.
    #[arg(long)]
    workers: Option<usize>,
    /// Records a batch.
    #[arg(long, default_value_t = 256)]
    batch: usize,
}

impl Options {
    fn wants(&self, task: &str) -> bool {
        self.tasks.iter().any(|wanted| wanted == task)
    }
}

/// An array in a file: rows of equal length.
struct Data {
    name: String,
    path: PathBuf,
    rows: u64,
    /// Bytes of a row.
    row: usize,
    /// Where the first row begins in the file.
    begin: usize,
}

impl Data {
    fn open(name: &str, folder: &Path) -> Result<Data> {
        let path = folder.join(name).with_extension("npy");
        let len = std::fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        let (rows, row) = match name {
            "tiles" => (10_000, 3 * 64 * 64),
            "small" => (60_000, 28 * 28),
            "labels" => (1_000_000, 1),
            "vectors" => (50_000, 384 * 4),
            _ => return Err(format!("{name}: tiles, small, labels and vectors are known").into()),
        };
        let begin = len.checked_sub(rows * row as u64).filter(|header| *header < 1 << 16);
        let begin = begin.ok_or_else(|| format!("{}: not {rows} rows of {row} bytes", path.display()))? as usize;
        Ok(Data { name: name.to_owned(), path, rows, row, begin })
    }

    fn bytes(&self) -> f64 {
        (self.rows * self.row as u64) as f64
    }
}

/// Random batches of indices, handed out in turn.
struct Turn {
    batches: Vec<Vec<u64>>,
    at: usize,
}

impl Turn {
    fn new(rows: u64, batch: usize) -> Turn {
        let index = |at: u64| xxh3_64_with_seed(&at.to_le_bytes(), 7) % rows;
        let batches = (0..BATCHES).map(|k| (0..batch as u64).map(|i| index(k * batch as u64 + i)).collect()).collect();
        Turn { batches, at: 0 }
    }

    fn next(&mut self) -> &[u64] {
        self.at = (self.at + 1) % self.batches.len();
        &self.batches[self.at]
    }
}

/// Microseconds a call: the least of five rounds of a quarter of a second, after all batches were had once.
fn best<T>(mut call: impl FnMut() -> Result<T>) -> Result<f64> {
    for _ in 0..BATCHES {
        black_box(call()?);
    }
    let mut least = f64::MAX;
    for _ in 0..5 {
        let (mut calls, begin) = (0, Instant::now());
        while calls < 30 || begin.elapsed() < Duration::from_millis(250) {
            for _ in 0..10 {
                black_box(call()?);
            }
            calls += 10;
        }
        least = least.min(begin.elapsed().as_secs_f64() * 1e6 / f64::from(calls));
    }
    Ok(least)
}

fn print(peer: &str, task: &str, data: &str, codec: &str, value: f64, unit: &str) {
    let value = (value * 1000.0).round() / 1000.0;
    println!("{}", json!({"peer": peer, "task": task, "data": data, "codec": codec, "value": value, "unit": unit}));
}

fn main() -> Result<()> {
    let options = Options::parse();
    for peer in &options.only {
        match peer.as_str() {
            "loaderx-rs" if options.wants("sampler") => ours::sampler()?,
            "burn" if cfg!(not(feature = "burn")) => eprintln!("burn is skipped: build with --features burn"),
            "candle-datasets" if cfg!(not(feature = "candle")) => {
                eprintln!("candle-datasets is skipped: build with --features candle");
            }
            peer if PEERS.contains(&peer) => {}
            _ => return Err(format!("{peer}: known are {}", PEERS.join(", ")).into()),
        }
    }
    if options.wants("growth") {
        details::scaling(&options)?;
        details::growth(&options)?;
    }
    if options.wants("cold") {
        details::cold(&options)?;
    }
    if options.wants("scale") {
        details::scale(&options)?;
    }
    for name in &options.datasets {
        let data = Data::open(name, &options.data)?;
        let wants = |peer: &str| options.only.iter().any(|wanted| wanted == peer);
        if wants("limit") && options.wants("write") {
            limits::write(&data, &options)?;
        }
        if wants("limit") && options.wants("gather") {
            limits::memcpy(&data, &options)?;
        }
        for codec in ["raw", "zstd", "zstd_dict"] {
            if codec == "zstd_dict" && matches!(name.as_str(), "labels" | "vectors") {
                continue;
            }
            if wants("loaderx-rs") || (wants("limit") && codec != "raw") {
                let folder = tempfile::tempdir_in(&options.data)?;
                let store = folder.path().join("store");
                ours::write(&data, codec, &store, wants("loaderx-rs") && options.wants("write"))?;
                if wants("limit") && codec != "raw" && name != "labels" && options.wants("gather") {
                    limits::zstd(&data, codec, &store, &options)?;
                }
                if wants("loaderx-rs") {
                    ours::read(&data, codec, &store, &options)?;
                }
            }
        }
        if wants("loaderx-rs") && options.wants("latency") {
            details::latency(&data, &options)?;
        }
        if wants("ndarray-npy") && options.wants("gather") {
            peers::ndarray_npy(&data, &options)?;
        }
        if wants("heed") && name != "labels" {
            peers::heed(&data, &options)?;
        }
        if options.wants("loader") {
            #[cfg(feature = "burn")]
            if wants("burn") {
                loaders::burn::measure(&data, &options)?;
            }
            #[cfg(feature = "candle")]
            if wants("candle-datasets") {
                loaders::candle::measure(&data, &options)?;
            }
            if wants("dataloader-rs") {
                loaders::dataloader_rs(&data, &options)?;
            }
        }
    }
    Ok(())
}
