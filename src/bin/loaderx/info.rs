//! `loaderx info`.

use std::path::PathBuf;

use loaderx::{AnyDataset, Stats};
use serde::Serialize;

use crate::output::{self, Result};

/// Show what a store holds.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// One JSON object, whose kind, dtype, item_shape and codec are null for raw records, which have no schema
    #[arg(long)]
    json: bool,
}

/// What is shown, under the names of the JSON object.
#[derive(Serialize)]
struct Info<'a> {
    kind: Option<&'static str>,
    /// As NumPy spells it.
    dtype: Option<&'a str>,
    item_shape: Option<&'a [usize]>,
    codec: Option<&'static str>,
    records: u64,
    live_bytes: u64,
    chunk_bytes: u64,
    reclaimable: u64,
}

impl<'a> Info<'a> {
    fn new(store: &'a AnyDataset) -> Result<Info<'a>> {
        let Stats { records, live_bytes, chunk_bytes, reclaimable, .. } = store.stats()?;
        Ok(Info {
            kind: store.kind().map(|kind| kind.name()),
            dtype: store.dtype(),
            item_shape: store.item_shape(),
            codec: store.codec().map(|codec| codec.name()),
            records,
            live_bytes,
            chunk_bytes,
            reclaimable,
        })
    }

    /// A line for each name.
    fn lines(&self, store: &AnyDataset) -> String {
        let named = |dtype: &str| match store.element() {
            Some(element) => format!("{dtype} ({element})"),
            None => dtype.to_owned(),
        };
        let mut lines = vec![("kind", self.kind.unwrap_or("raw records").to_owned())];
        lines.extend(self.dtype.map(|dtype| ("dtype", named(dtype))));
        lines.extend(self.item_shape.map(|item_shape| ("item_shape", format!("{item_shape:?}"))));
        lines.extend(self.codec.map(|codec| ("codec", codec.to_owned())));
        lines.extend([
            ("records", self.records.to_string()),
            ("live_bytes", self.live_bytes.to_string()),
            ("chunk_bytes", self.chunk_bytes.to_string()),
            ("reclaimable", self.reclaimable.to_string()),
        ]);
        let keys: Vec<&str> = store.metadata_keys().collect();
        if !keys.is_empty() {
            lines.push(("metadata", keys.join(", ")));
        }
        lines.iter().map(|(name, value)| format!("{name:<12}{}\n", output::one_line(value))).collect()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let info = Info::new(&store)?;
    output::result(&if arguments.json { serde_json::to_string(&info)? + "\n" } else { info.lines(&store) })
}
