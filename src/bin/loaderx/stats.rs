//! `loaderx stats`.

use std::fmt::Write;
use std::path::PathBuf;

use loaderx::AnyDataset;
use serde::Serialize;

use crate::output::{self, Bar, Result};

/// Records that are looked at together.
const AT_ONCE: usize = 64 << 10;

/// Characters of the longest bar.
const WIDTH: u64 = 40;

/// How many times smaller a record became: the least of each class.
const RATIOS: [f64; 9] = [1.0, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0];

/// Show histograms of the records' lengths and compression, and the bytes that are reclaimable.
///
/// Every record's entry is read once, no record is. Lengths are those before compression, in classes that double; a ratio
/// of 5 to 10 is that of records that take a fifth to a tenth of their length.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// One JSON object: records, bytes, live_bytes, chunk_bytes, reclaimable, ratio, lengths, ratios
    #[arg(long)]
    json: bool,
}

/// What is shown, under the names of the JSON object.
#[derive(Serialize)]
struct Shown {
    records: u64,
    /// Of all records, before compression.
    bytes: u64,
    live_bytes: u64,
    chunk_bytes: u64,
    reclaimable: u64,
    /// Of all records together; null where they have no bytes.
    ratio: Option<f64>,
    shortest: Option<u64>,
    longest: Option<u64>,
    lengths: Vec<Class<u64>>,
    ratios: Vec<Class<f64>>,
}

/// The records from one bound on to the next, which is not in the class; the last has none.
#[derive(Serialize)]
struct Class<T> {
    from: T,
    to: Option<T>,
    records: u64,
}

impl Shown {
    fn new(store: &AnyDataset) -> Result<Shown> {
        // The class of a length is the number of its binary digits.
        let (mut lengths, mut ratios) = ([0u64; 65], [0u64; RATIOS.len()]);
        let (mut bytes, mut ends) = (0u64, None);
        let bar = Bar::new("records");
        for first in (0..store.len()).step_by(AT_ONCE) {
            let indices: Vec<u64> = (first..store.len().min(first + AT_ONCE as u64)).collect();
            for (length, stored) in store.lengths(&indices)?.into_iter().zip(store.stored_lengths(&indices)?) {
                lengths[(64 - length.leading_zeros()) as usize] += 1;
                let ratio = length as f64 / stored.max(1) as f64;
                ratios[RATIOS.iter().rposition(|from| *from <= ratio).unwrap_or(0)] += 1;
                bytes += length;
                let (least, most) = ends.unwrap_or((length, length));
                ends = Some((length.min(least), length.max(most)));
            }
            bar.count(first + indices.len() as u64, store.len());
        }
        let stats = store.stats()?;
        let begin = |digits: usize| if digits == 0 { 0 } else { 1u64 << (digits - 1) };
        let lengths = lengths.into_iter().enumerate().map(|(digits, records)| {
            let to = if digits == 0 { Some(1) } else { 1u64.checked_shl(digits as u32) };
            Class { from: begin(digits), to, records }
        });
        let ratios = ratios.into_iter().enumerate();
        Ok(Shown {
            records: stats.records,
            bytes,
            live_bytes: stats.live_bytes,
            chunk_bytes: stats.chunk_bytes,
            reclaimable: stats.reclaimable,
            ratio: (stats.live_bytes > 0).then(|| bytes as f64 / stats.live_bytes as f64),
            shortest: ends.map(|(least, _)| least),
            longest: ends.map(|(_, most)| most),
            lengths: filled(lengths.collect()),
            ratios: filled(
                ratios.map(|(i, records)| Class { from: RATIOS[i], to: RATIOS.get(i + 1).copied(), records }).collect(),
            ),
        })
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<12}{value}");
        };
        line("records", self.records.to_string());
        line("bytes", self.bytes.to_string());
        line("live_bytes", self.live_bytes.to_string());
        line("chunk_bytes", self.chunk_bytes.to_string());
        line("reclaimable", self.reclaimable.to_string());
        if let Some(ratio) = self.ratio {
            line("ratio", format!("{ratio:.2}"));
        }
        if let (Some(shortest), Some(longest)) = (self.shortest, self.longest) {
            let mean = self.bytes as f64 / self.records.max(1) as f64;
            let _ = writeln!(text, "\nlength in bytes: {shortest} to {longest}, mean {mean:.1}");
            histogram(&self.lengths, |length| length.to_string(), &mut text);
            let _ = writeln!(text, "\ncompression ratio (1: as they are)");
            histogram(&self.ratios, |ratio| format!("{ratio:.1}"), &mut text);
        }
        text
    }
}

/// The classes from the first to the last with a record.
fn filled<T>(mut classes: Vec<Class<T>>) -> Vec<Class<T>> {
    let first = classes.iter().position(|class| class.records > 0).unwrap_or(classes.len());
    let end = classes.iter().rposition(|class| class.records > 0).map_or(first, |last| last + 1);
    classes.truncate(end);
    classes.drain(..first);
    classes
}

/// A line a class: its bounds, a bar, and its number of records.
fn histogram<T: Copy>(classes: &[Class<T>], bound: impl Fn(T) -> String, text: &mut String) {
    let most = classes.iter().map(|class| class.records).max().unwrap_or(0).max(1);
    for class in classes {
        let (from, to) = (bound(class.from), class.to.map_or(String::new(), &bound));
        // What holds a record has a mark.
        let bar = (class.records * WIDTH).div_ceil(most) as usize;
        let _ = writeln!(
            text,
            "{from:>10} - {to:<10} {:<width$} {}",
            "#".repeat(bar),
            class.records,
            width = WIDTH as usize
        );
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let shown = Shown::new(&store)?;
    output::result(&if arguments.json { serde_json::to_string(&shown)? + "\n" } else { shown.lines() })
}
