//! `loaderx compact`.

use std::path::PathBuf;

use loaderx::StoreOptions;
use serde::Serialize;

use crate::output::{self, Bar, Result};

/// Give back the bytes of deleted records.
///
/// The others are copied into fresh files, in their order, and the old files are removed. It needs room for all records meanwhile. Stopped at any moment, the store is as before or as after. No other program may
/// have the store open. What is printed: how many bytes were given back, and how many are left.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// One JSON object: freed_bytes, chunk_bytes
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Compacted {
    freed_bytes: u64,
    chunk_bytes: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut store = StoreOptions::new().open_writable(&arguments.store)?;
    let before = store.stats()?.chunk_bytes;
    let bar = Bar::new("bytes");
    bar.working(|| store.compact())?;
    drop(bar);
    let after = store.stats()?.chunk_bytes;
    store.close()?;
    let done = Compacted { freed_bytes: before.saturating_sub(after), chunk_bytes: after };
    output::result(&match arguments.json {
        true => serde_json::to_string(&done)? + "\n",
        false => format!("{} bytes given back, {} left\n", done.freed_bytes, done.chunk_bytes),
    })
}
