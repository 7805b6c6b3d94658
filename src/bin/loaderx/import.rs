//! `loaderx import`.

use std::path::PathBuf;

use loaderx::Import;

use crate::compression::Compression;
use crate::output::{self, Result};
use crate::sources::{Goal, Sources};

/// Import files into a store: rows of arrays, lines of text, or whole files become records.
///
/// The end of its name says what a file is: of a .npy, .npz or .safetensors each row along the first axis is a record, of
/// a .txt, .jsonl or .ndjson each line. Of a folder each file is a record of its bytes, in the order of their names (the
/// paths below the folder, as bytes); files in folders below it are taken, too, hidden ones are not, links to files are
/// followed, links to folders are an error. The names are kept as the store's metadata `names`.
///
/// Several sources are appended in order into one store; they must have the same dtype and shape. Patterns such as
/// 'part-*.npy' are expanded in alphabetical order. - is standard input, with --format text, jsonl or npy.
///
/// A .npz or .safetensors file gives a store DST/<name> for each of its arrays. The store is built in DST.partial: DST
/// appears when it is whole. Ctrl-C leaves DST.partial, from where --resume goes on.
///
/// What is printed: a line for each store that was made, with its path, its number of records and the bytes that they
/// take, separated by tabs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  loaderx import images.npy images
  loaderx import 'part-*.npy' whole --codec zstd_dict
  loaderx import photos/ photos                  each file a record, names kept
  zcat log.jsonl.gz | loaderx import - log --format jsonl")]
pub(crate) struct Arguments {
    /// Files, folders, patterns, or - for standard input
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    sources: Vec<PathBuf>,
    /// The store to make, or the directory of stores. Nothing may be there
    #[arg(value_name = "DST")]
    destination: PathBuf,
    #[command(flatten)]
    compression: Compression,
    #[command(flatten)]
    from: Sources,
    /// The largest record [default: 1048576]. The Python loaderx appends no records over 1 MiB, but reads them
    #[arg(long, value_name = "BYTES")]
    record_limit: Option<u32>,
    /// Keep neither the names of files nor what a .safetensors says of itself (__metadata__) in the store's metadata, which
    /// holds 1 MiB
    #[arg(long)]
    no_metadata: bool,
    /// Go on with what the same import left in DST.partial when it was stopped or killed; without this it begins anew
    #[arg(long)]
    resume: bool,
    /// One JSON object a store: path, records, live_bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    arguments.compression.check();
    let mut import = Import::new().source_metadata(!arguments.no_metadata).resume(arguments.resume);
    import = compressed!(import, arguments.compression);
    if let Some(bytes) = arguments.record_limit {
        import = import.record_limit(bytes);
    }
    let destination = &arguments.destination;
    let imported =
        arguments.from.import(import, &arguments.sources, destination, Goal::New, crate::interrupt::flag()?)?;
    if imported.replaced_partial {
        // Without the slash that may stand at the end.
        let destination: PathBuf = destination.components().collect();
        let left = "which an earlier import left when it was stopped, was replaced: --resume would have gone on there";
        output::note(&format!("{}.partial, {left}", destination.display()));
    }
    output::stores(&imported.stores, arguments.json)
}
