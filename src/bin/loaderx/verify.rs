//! `loaderx verify`.

use std::path::PathBuf;

use loaderx::{AnyDataset, Corruption};
use serde::Serialize;

use crate::output::{self, Bar, Result};

/// Read every record of a store and check its place, its length and its checksum. Exit status 1 if any is bad.
///
/// A line for each bad record is printed, with its index, chunk and offset, what was expected and what was found; then
/// one line with the counts.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    records: u64,
    /// Whole, with a checksum that says so.
    verified: u64,
    /// Readable, without a checksum.
    unverified: u64,
    bad: Vec<Bad>,
}

/// A record that is not whole.
#[derive(Serialize)]
pub(crate) struct Bad {
    record: Option<u64>,
    chunk: Option<u32>,
    offset: Option<u64>,
    expected: String,
    found: String,
}

impl Bad {
    pub(crate) fn new(bad: Corruption) -> Bad {
        Bad { record: bad.record, chunk: bad.chunk, offset: bad.offset, expected: bad.expected, found: bad.found }
    }

    pub(crate) fn line(&self) -> String {
        let number = |number: Option<u64>| number.map_or("?".into(), |number| number.to_string());
        let (record, chunk, offset) = (number(self.record), number(self.chunk.map(u64::from)), number(self.offset));
        let line = format!(
            "record {record}, chunk {chunk}, offset {offset}: expected {}, found {}",
            self.expected, self.found
        );
        output::one_line(&line) + "\n"
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let bar = Bar::new("records");
    let found = store.verify(|records| bar.count(records, store.len()))?;
    drop(bar);
    let report = Report {
        records: found.records,
        verified: found.verified,
        unverified: found.unverified,
        bad: found.bad.into_iter().map(Bad::new).collect(),
    };
    output::result(&if arguments.json { serde_json::to_string(&report)? + "\n" } else { lines(&report) })?;
    match report.bad.len() {
        0 => Ok(()),
        bad => Err(format!(
            "{}: {bad} of {} records are bad: `loaderx repair` copies the others into a new store",
            arguments.store.display(),
            report.records
        )
        .into()),
    }
}

fn lines(report: &Report) -> String {
    let mut lines: String = report.bad.iter().map(Bad::line).collect();
    let Report { records, verified, unverified, bad } = report;
    lines += &format!("{records} records: {verified} verified, {unverified} without a checksum, {} bad\n", bad.len());
    lines
}
