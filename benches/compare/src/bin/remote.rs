//! Measures a store of dense u8 records behind a URL beside the same store on the local disk, and beside plain ranged requests
//! for the same bytes, and prints one JSON object a line.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml --features remote --bin remote -- \
//!     --local DIR/store --url http://127.0.0.1:8080/store --cache DIR/cache
//! ```
//!
//! `limit`: the chunk files in ranges of 8 MiB, 16 at a time, thrown away. `cold`: a loader's cycle in a block shuffle, from an empty
//! cache. `warm`: the same cycle again, in a new handle, and once more in that one. `local`: the same cycle over the local store. MB/s of records'
//! bytes. `open`: milliseconds to open the store.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use futures_util::StreamExt;
use loaderx::{DataLoader, DenseDataset, RemoteOptions};
use object_store::aws::AmazonS3Builder;
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Images = DenseDataset<u8, Vec<usize>>;

const RANGE: u64 = 8 << 20;

#[derive(Parser)]
struct Options {
    /// The store on the local disk.
    #[arg(long)]
    local: PathBuf,
    /// The same store behind a URL: http:// or s3:// with the environment of S3.
    #[arg(long)]
    url: String,
    /// A folder for the cache, which is emptied.
    #[arg(long)]
    cache: PathBuf,
    #[arg(long, default_value_t = 256)]
    batch: u64,
    /// Records a block of the shuffle.
    #[arg(long, default_value_t = 512)]
    block: u64,
    /// Blocks a window of the shuffle.
    #[arg(long, default_value_t = 16)]
    window: u64,
    #[arg(long, default_value_t = 2)]
    workers: usize,
    #[arg(long, default_value_t = 16)]
    requests: usize,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

fn main() -> Result<()> {
    let options = Options::parse();
    // loaderx chooses who does the cryptography, for the plain requests too.
    drop(Images::options().remote(RemoteOptions::new().cache(&options.cache)).open(&options.url)?);
    for _ in 0..options.rounds {
        limit(&options)?;
        let _ = std::fs::remove_dir_all(&options.cache);
        cycle(&options, "cold", &options.url)?;
        cycle(&options, "warm", &options.url)?;
        cycle(&options, "local", options.local.to_str().ok_or("a path that is no text")?)?;
    }
    Ok(())
}

fn say(task: &str, value: f64, unit: &str) {
    println!("{}", json!({"task": task, "value": (value * 10.0).round() / 10.0, "unit": unit}));
}

/// A cycle of a loader over what is there.
fn cycle(options: &Options, task: &str, place: &str) -> Result<()> {
    let remote = RemoteOptions::new().cache(&options.cache).requests(options.requests);
    let begin = Instant::now();
    let images = std::sync::Arc::new(Images::options().remote(remote).open(place)?);
    say(&format!("open {task}"), begin.elapsed().as_secs_f64() * 1e3, "ms");
    epoch(options, task, &images)?;
    if task == "warm" {
        epoch(options, "warm again", &images)?;
    }
    if let Some(stats) = images.remote_stats() {
        eprintln!("{task}: {stats:?}");
    }
    Ok(())
}

fn epoch(options: &Options, task: &str, images: &std::sync::Arc<Images>) -> Result<()> {
    let steps = images.len() / options.batch;
    let begin = Instant::now();
    let builder = DataLoader::builder(images.clone()).batch_size(options.batch).workers(options.workers);
    let loader = builder.block_shuffle(options.block, options.window).build()?;
    let mut bytes = 0;
    for batch in loader.take(steps as usize) {
        let batch = batch?;
        bytes += batch.values().len();
        black_box(batch.values()[0]);
    }
    say(task, bytes as f64 / 1e6 / begin.elapsed().as_secs_f64(), "MB/s");
    Ok(())
}

/// The chunk files' bytes by plain requests.
fn limit(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (root, folder) = options.url.split_once("://").ok_or("no URL")?.1.split_once('/').ok_or("no folder")?;
    let client = ClientOptions::new().with_allow_http(true);
    let store: Box<dyn ObjectStore> = if options.url.starts_with("s3://") {
        Box::new(AmazonS3Builder::from_env().with_url(format!("s3://{root}")).with_client_options(client).build()?)
    } else {
        let root = &options.url[..options.url.len() - folder.len() - 1];
        Box::new(HttpBuilder::new().with_url(root).with_client_options(client).build()?)
    };
    let mut ranges = Vec::new();
    for chunk in 0.. {
        let Ok(found) = std::fs::metadata(Path::new(&options.local).join(format!("{chunk}.zr"))) else { break };
        let name = object_store::path::Path::from(format!("{folder}/{chunk}.zr"));
        ranges
            .extend((0..found.len()).step_by(RANGE as usize).map(|at| (name.clone(), at..found.len().min(at + RANGE))));
    }
    let begin = Instant::now();
    let bytes = runtime.block_on(async {
        let get = |(name, range): (object_store::path::Path, std::ops::Range<u64>)| {
            let store = &store;
            async move { Ok::<_, object_store::Error>(store.get_range(&name, range).await?.len()) }
        };
        let got: Vec<_> =
            futures_util::stream::iter(ranges).map(get).buffer_unordered(options.requests).collect().await;
        got.into_iter().sum::<std::result::Result<usize, _>>()
    })?;
    say("limit", bytes as f64 / 1e6 / begin.elapsed().as_secs_f64(), "MB/s");
    Ok(())
}
