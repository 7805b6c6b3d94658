//! `loaderx show`.

use std::path::PathBuf;

use loaderx::{AnyDataset, DType, Kind};
use serde_json::{Value, json};

use crate::output::{self, Result};
use crate::range::Records;
use crate::sheet;
use crate::values::{Elements, Summary};

/// Characters of a text that are shown.
const TEXT: usize = 300;

/// Show records: values, shape and a summary, or a contact sheet of images.
///
/// Values are shortened as NumPy prints arrays; the summary is the smallest and the largest value and the mean. Records of
/// bytes are shown as text where they are UTF-8.
///
/// With --png a contact sheet of image-like records is written, row by row: u8, bool, or floats from 0 to 1, of shape
/// (H, W), (H, W, C) or (C, H, W) with C of 1, 3 or 4.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  loaderx show images              the first records
  loaderx show images 5            one
  loaderx show images -3..         the last three
  loaderx show images 0..64 --png digits.png")]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Records: 5, 5..10, -3.. (from the end), as NumPy counts
    #[arg(value_name = "RANGE", default_value = "..", allow_hyphen_values = true)]
    range: Records,
    /// Show at most so many records of the range [default: 5; with --png 64, and 256 at most]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Write a contact sheet to this file. Nothing may be there
    #[arg(long, value_name = "OUT")]
    png: Option<PathBuf>,
    /// One JSON object a record: record, bytes, shape, min, max, mean, nan, text (what a record does not have is null)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let range = arguments.range.of(store.len()).map_err(|e| format!("{}: {e}", arguments.store.display()))?;
    if let Some(out) = &arguments.png {
        let limit = arguments.limit.unwrap_or(64).min(sheet::MOST);
        let shown = sheet::write(&store, range.start..range.end.min(range.start.saturating_add(limit)), out)?;
        let out = output::one_line(&out.display().to_string());
        return output::result(&match arguments.json {
            true => json!({"png": out, "records": shown}).to_string() + "\n",
            false => format!("{out}\t{shown} of {} records\n", range.end - range.start),
        });
    }
    let limit = arguments.limit.unwrap_or(5);
    let end = range.end.min(range.start.saturating_add(limit));
    let mut text = String::new();
    for index in range.start..end {
        let record = Record::new(&store, index)?;
        text += &if arguments.json { record.json().to_string() + "\n" } else { record.lines() };
    }
    if end < range.end && !arguments.json {
        text += &format!("and {} more records: --limit shows more\n", range.end - end);
    }
    output::result(&text)
}

/// A record that is shown.
struct Record {
    index: u64,
    bytes: Vec<u8>,
    /// `None` where the store does not tell.
    elements: Option<Elements>,
    shape: Vec<usize>,
    is_text: bool,
}

impl Record {
    fn new(store: &AnyDataset, index: u64) -> Result<Record> {
        let bytes = store.get(index)?;
        let item_shape = store.item_shape().unwrap_or(&[]);
        let dense = store.kind() == Some(Kind::Dense);
        // Of a dtype that has no element type, the bytes are shown.
        let elements = Elements::of(store);
        let row_bytes = if store.kind().is_none() { Some(1) } else { store.row_bytes() };
        let shape = match (elements, row_bytes) {
            (Some(_), Some(row)) if dense && row == bytes.len() => item_shape.to_vec(),
            (Some(_), Some(row)) if !dense && row > 0 && bytes.len().is_multiple_of(row) => {
                [&[bytes.len() / row], item_shape].concat()
            }
            (Some(_), _) => {
                let reason = "its bytes are no whole rows: `loaderx verify` says more";
                return Err(
                    format!("{}: record {index} has {} bytes: {reason}", store.path().display(), bytes.len()).into()
                );
            }
            (None, _) => vec![bytes.len()],
        };
        let is_text = !dense && elements.is_some_and(|elements| elements.dtype == DType::U8) && shape.len() == 1;
        Ok(Record { index, bytes, elements, shape, is_text })
    }

    /// What it says, where it is text.
    fn text(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes).ok().filter(|_| self.is_text)?;
        (!text.chars().any(|c| c.is_control() && !c.is_whitespace())).then_some(text)
    }

    fn summary(&self) -> Option<Summary> {
        Summary::of(self.elements?.numbers(&self.bytes))
    }

    fn lines(&self) -> String {
        if let Some(text) = self.text() {
            let (count, mut shown) = (text.chars().count(), String::new());
            shown.extend(text.chars().take(TEXT).flat_map(char::escape_debug));
            let more = if count > TEXT { format!(" and {} characters more", count - TEXT) } else { String::new() };
            return format!("record {}, {} bytes of text\n\"{shown}\"{more}\n", self.index, self.bytes.len());
        }
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let mut line = format!("record {}, shape [{}]", self.index, shape.join(", "));
        let Some(elements) = self.elements else {
            return format!("{line}, whose dtype has no values here: bytes\n{}\n", hex(&self.bytes));
        };
        if let Some(Summary { min, max, mean, nan }) = self.summary() {
            let (min, max) = (plain(min.json()), plain(max.json()));
            line += &format!(", min {min}, max {max}, mean {mean:.6}");
            if nan > 0 {
                line += &format!(", {nan} NaN");
            }
        }
        format!("{line}\n{}\n", elements.array(&self.bytes, &self.shape))
    }

    fn json(&self) -> Value {
        let summary = self.summary();
        json!({
            "record": self.index,
            "bytes": self.bytes.len(),
            "shape": self.shape,
            "min": summary.map(|summary| summary.min.json()),
            "max": summary.map(|summary| summary.max.json()),
            "mean": summary.map(|summary| summary.mean),
            "nan": summary.map(|summary| summary.nan),
            "text": self.text(),
        })
    }
}

/// A number as JSON writes it; infinities by their names.
fn plain(number: Value) -> String {
    if number.is_null() { "inf".into() } else { number.to_string() }
}

fn hex(bytes: &[u8]) -> String {
    let mut text: Vec<String> = bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    text.extend((bytes.len() > 32).then(|| "...".to_owned()));
    text.join(" ")
}
