//! `loaderx export`.

use std::path::PathBuf;

use loaderx::export_npy;

use crate::output::{self, Result};

/// Export a store to a .npy file.
///
/// A dense store gives one array of all records. A ragged store gives all rows, end to end, and beside OUT.npy a file
/// OUT.rows.npy with the number of rows of each record; raw records count as rows of u8. What is printed: the files that
/// were written, each on a line with its shape, separated by a tab.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The file to write. Nothing may be there.
    #[arg(value_name = "OUT.npy")]
    out: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let exported = export_npy(&arguments.store, &arguments.out)?;
    let line =
        |path: &PathBuf, shape: &[u64]| format!("{}\t{shape:?}\n", output::one_line(&path.display().to_string()));
    let mut text = line(&arguments.out, &exported.shape);
    if let Some(counts) = &exported.row_counts {
        text += &line(counts, &[exported.records]);
    }
    output::result(&text)
}
