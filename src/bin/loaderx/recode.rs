//! `loaderx recode`.

use std::path::PathBuf;

use loaderx::Recode;

use crate::compression::Compression;
use crate::output::{self, Bar, Result};

/// Copy a store into a new one with another codec, level or dictionary. Indices and metadata stay.
///
/// A line for the new store is printed, as by import.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory. It is not changed
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The store to make. Nothing may be there
    #[arg(value_name = "DST")]
    destination: PathBuf,
    #[command(flatten)]
    compression: Compression,
    /// One JSON object: path, records, live_bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let compression = &arguments.compression;
    compression.check();
    let bar = Bar::new("records");
    let recode =
        compressed!(Recode::new(), compression).stop(crate::interrupt::flag()?).progress(|progress| bar.show(progress));
    let recoded = recode.store(&arguments.store, &arguments.destination)?;
    drop(bar);
    output::stores(&recoded.stores, arguments.json)
}
