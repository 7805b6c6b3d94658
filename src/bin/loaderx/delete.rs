//! `loaderx delete`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use loaderx::{AnyDataset, StoreOptions};
use serde::Serialize;

use crate::output::{self, Result};
use crate::range::Records;

/// Delete records of a store. Nothing is asked.
///
/// The last records take the places of the deleted ones, so that the indices are again all below the new number of
/// records: the order changes, and a saved state of a loader no longer fits. All ranges mean the indices before the
/// deletion. The bytes stay on disk until `loaderx compact`. No other program may have the store open.
///
/// What is printed: how many records were deleted, and how many are left.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  loaderx delete store 5           one record
  loaderx delete store 10..20 -1   ten records and the last one
  loaderx delete store -3..        the last three")]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Records: 5, 5..10, -3.. (from the end), as NumPy counts. Options come before them
    #[arg(value_name = "RANGE", required = true, num_args = 1.., allow_hyphen_values = true)]
    ranges: Vec<Records>,
    /// One JSON object: deleted, records
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Deleted {
    deleted: u64,
    records: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let named = AnyDataset::open(&arguments.store)?.metadata_keys().any(|key| key == "names");
    let mut store = StoreOptions::new().open_writable(&arguments.store)?;
    let mut indices = BTreeSet::new();
    for range in &arguments.ranges {
        let range = range.of(store.len()).map_err(|e| format!("{}: {e}", arguments.store.display()))?;
        indices.extend(range);
    }
    let indices: Vec<u64> = indices.into_iter().collect();
    store.delete(&indices)?;
    let done = Deleted { deleted: indices.len() as u64, records: store.len() };
    store.close()?;
    if named && done.deleted > 0 {
        let what = "the metadata `names` stays as it was, and no longer says which record has which name";
        output::note(&format!("{}: {what}", arguments.store.display()));
    }
    output::result(&match arguments.json {
        true => serde_json::to_string(&done)? + "\n",
        false => format!("{} records deleted, {} left\n", done.deleted, done.records),
    })
}
