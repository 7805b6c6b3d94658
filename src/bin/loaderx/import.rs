//! `loaderx import`.

use std::path::PathBuf;

use clap::ValueEnum;
use loaderx::{DType, Import};

use crate::compression::Compression;
use crate::output::{self, Bar, Result};

/// Import a .npy, .npz or .safetensors file into a store: each row along the first axis becomes a record.
///
/// A .npz or .safetensors file gives a store DST/<name> for each of its arrays. What is printed: a line for each store
/// that was made, with its path, its number of records and the bytes that they take, separated by tabs.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The file.
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The store to make, or the directory of stores. Nothing may be there.
    #[arg(value_name = "DST")]
    destination: PathBuf,
    #[command(flatten)]
    compression: Compression,
    /// What arrays hold that NumPy saved as raw bytes (<V2).
    #[arg(long, value_enum)]
    dtype: Option<DTypeName>,
    /// Take this array of the file only; may be given several times.
    #[arg(long = "tensor", value_name = "NAME")]
    tensors: Vec<String>,
    /// The largest record [default: 1048576]. The Python loaderx appends no records over 1 MiB, but reads them.
    #[arg(long, value_name = "BYTES")]
    record_limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DTypeName {
    /// bfloat16.
    Bf16,
}

impl Arguments {
    fn import(&self) -> Import<'_> {
        let mut import = Import::new().tensors(&self.tensors).codec(self.compression.codec());
        if let Some(level) = self.compression.level {
            import = import.level(level);
        }
        if let Some(size) = self.compression.dict_size {
            import = import.dict_size(size);
        }
        if let Some(DTypeName::Bf16) = self.dtype {
            import = import.dtype(DType::BF16);
        }
        if let Some(bytes) = self.record_limit {
            import = import.record_limit(bytes);
        }
        import
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    arguments.compression.check();
    let bar = Bar::new();
    let import = arguments.import().progress(|progress| bar.show(progress));
    let imported = import.path(&arguments.source, &arguments.destination)?;
    drop(bar);
    if imported.replaced_partial {
        // Without the slash that may stand at the end.
        let destination: PathBuf = arguments.destination.components().collect();
        let left = "which an earlier import left when it was killed, was replaced";
        output::note(&format!("{}.partial, {left}", destination.display()));
    }
    output::result(&output::stores(&imported.stores)?)
}
