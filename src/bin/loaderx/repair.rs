//! `loaderx repair`.

use std::path::PathBuf;

use serde::Serialize;

use crate::output::{self, Bar, Result};
use crate::verify::Bad;

/// Copy the records of a store that are whole into a new store, and say which are left out.
///
/// A line for each record that is left out is printed, with its index in STORE; then one line with the counts. Exit status 0
/// where the new store was made, whatever was left out.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The damaged store's directory. It is not changed
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The store to make. Nothing may be there
    #[arg(value_name = "DST")]
    destination: PathBuf,
    /// One JSON object: kept, left_out (as `bad` of verify)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    kept: u64,
    left_out: Vec<Bad>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let repaired = Bar::new("records").working(|| loaderx::repair(&arguments.store, &arguments.destination))?;
    let report = Report { kept: repaired.kept, left_out: repaired.left_out.into_iter().map(Bad::new).collect() };
    output::result(&if arguments.json { serde_json::to_string(&report)? + "\n" } else { lines(&report) })
}

fn lines(report: &Report) -> String {
    let mut lines: String = report.left_out.iter().map(Bad::line).collect();
    lines += &format!("{} records kept, {} left out\n", report.kept, report.left_out.len());
    lines
}
