//! `loaderx export`.

use std::path::{Path, PathBuf};

use loaderx::{Export, Exported, ExportedArray};
use serde_json::json;

use crate::output::{self, Bar, Result};

/// Export stores to a .npy, .npz or .safetensors file, as the end of its name says.
///
/// A dense store gives one array of all records. A ragged store gives all rows, end to end, and a second array with the
/// number of rows of each record: beside OUT.npy the file OUT.rows.npy, in an archive NAME.rows; raw records count as rows
/// of u8.
///
/// A .npy holds one store. In a .npz (uncompressed) and a .safetensors each store is an array by the name of its directory;
/// the metadata goes into the .safetensors: its own __metadata__ as it was imported, other entries as NAME.KEY in JSON.
///
/// What is printed: the files or arrays that were written, each on a line with its shape, separated by a tab.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The stores' directories
    #[arg(value_name = "STORE", required = true, num_args = 1..)]
    stores: Vec<PathBuf>,
    /// The file to write: .npy, .npz or .safetensors. Nothing may be there
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// One JSON array of objects: name, shape
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let out = &arguments.out;
    let bar = Bar::new("records");
    let export = Export::new().stop(crate::interrupt::flag()?).progress(|progress| bar.show(progress));
    let extension = out.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    let arrays = match (&extension[..], &arguments.stores[..]) {
        ("npz", stores) => within(out, export.npz(stores, out)?),
        ("safetensors", stores) => within(out, export.safetensors(stores, out)?),
        // Any other name is a .npy's, as it always was.
        (_, [store]) => files(out, export.npy(store, out)?),
        (_, stores) => {
            let reason = "a .npy holds one array: name a .npz or a .safetensors";
            return Err(format!("{}: {} stores were given, and {reason}", out.display(), stores.len()).into());
        }
    };
    drop(bar);
    output::result(&match arguments.json {
        true => {
            let arrays = arrays.iter().map(|(name, shape)| json!({"name": name, "shape": shape}));
            serde_json::Value::from_iter(arrays).to_string() + "\n"
        }
        false => arrays.iter().map(|(name, shape)| format!("{}\t{shape:?}\n", output::one_line(name))).collect(),
    })
}

/// The arrays of an archive.
fn within(out: &Path, arrays: Vec<ExportedArray>) -> Vec<(String, Vec<u64>)> {
    arrays.into_iter().map(|array| (format!("{}/{}", out.display(), array.name), array.shape)).collect()
}

/// The files of a store.
fn files(out: &Path, exported: Exported) -> Vec<(String, Vec<u64>)> {
    let mut files = vec![(out.display().to_string(), exported.shape)];
    files.extend(exported.row_counts.map(|counts| (counts.display().to_string(), vec![exported.records])));
    files
}
