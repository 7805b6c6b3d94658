//! `loaderx append`.

use std::path::PathBuf;

use loaderx::Import;

use crate::interrupt;
use crate::output::{self, Result};
use crate::sources::{Goal, Sources};

/// Append files to a store: the sources of import, behind the records that are there.
///
/// They must hold what the store holds: the same dtype and shape. The codec is the store's own, and its metadata stays as
/// it is: names of files are not added to it. All sources are looked at before anything is appended; what fails later,
/// such as a line that is no JSON, leaves the records before it in the store, as Ctrl-C does.
///
/// A line for the store is printed, as by import.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory, or for .npz and .safetensors the directory of stores
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Files, folders, patterns, or - for standard input
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    sources: Vec<PathBuf>,
    #[command(flatten)]
    from: Sources,
    /// Compression level of the new records: 1 to 22, or one of zstd's negative levels [default: the codec's]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    level: Option<i32>,
    /// One JSON object a store: path, records, live_bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut import = Import::new();
    if let Some(level) = arguments.level {
        import = import.level(level);
    }
    let stop = interrupt::flag()?;
    let appended = arguments.from.import(import, &arguments.sources, &arguments.store, Goal::Store, stop)?;
    output::stores(&appended.stores, arguments.json)
}
