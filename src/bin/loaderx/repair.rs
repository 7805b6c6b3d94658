//! `loaderx repair`.

use std::path::PathBuf;

use crate::output::{self, Result};
use crate::verify::Bad;

/// Copy the records of a store that are whole into a new store, and say which are left out.
///
/// A line for each record that is left out is printed, with its index in STORE; then one line with the counts.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The damaged store's directory. It is not changed.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The store to make. Nothing may be there.
    #[arg(value_name = "DST")]
    destination: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let repaired = loaderx::repair(&arguments.store, &arguments.destination)?;
    let left_out = repaired.left_out.len();
    let mut lines: String = repaired.left_out.into_iter().map(|bad| Bad::new(bad).line()).collect();
    lines += &format!("{} records kept, {left_out} left out\n", repaired.kept);
    output::result(&lines)
}
