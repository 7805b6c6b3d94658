//! What records come from: the arguments that import and append share.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use loaderx::{DType, Import, Imported, Progress, SourceFormat};

use crate::output::{Bar, Result};

/// What errors call it.
const STDIN: &str = "standard input";

#[derive(Debug, clap::Args)]
pub(crate) struct Sources {
    /// What the sources are, whatever their names end with
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// What arrays hold that NumPy saved as raw bytes (<V2)
    #[arg(long, value_enum)]
    dtype: Option<DTypeName>,
    /// Take this array of the files only; may be given several times
    #[arg(long = "tensor", value_name = "NAME")]
    tensors: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DTypeName {
    /// bfloat16
    Bf16,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    /// NumPy's array: each row along the first axis is a record (.npy)
    Npy,
    /// NumPy's archive: a store for each array (.npz)
    Npz,
    /// A store for each tensor (.safetensors)
    Safetensors,
    /// Each line is a record of its bytes, without what ends it (.txt)
    Text,
    /// The same, and each line must be JSON (.jsonl, .ndjson)
    Jsonl,
    /// Each file is a record of its bytes (files of a folder)
    Bytes,
}

impl From<FormatName> for SourceFormat {
    fn from(name: FormatName) -> SourceFormat {
        match name {
            FormatName::Npy => SourceFormat::Npy,
            FormatName::Npz => SourceFormat::Npz,
            FormatName::Safetensors => SourceFormat::Safetensors,
            FormatName::Text => SourceFormat::Text,
            FormatName::Jsonl => SourceFormat::JsonLines,
            FormatName::Bytes => SourceFormat::Bytes,
        }
    }
}

/// Where the records go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// Into a new store.
    New,
    /// Behind those of a store.
    Store,
}

impl Sources {
    /// Imports `sources` with these options, and with a bar where that takes long.
    pub(crate) fn import(
        &self,
        mut import: Import<'_>,
        sources: &[PathBuf],
        destination: &Path,
        goal: Goal,
        stop: &AtomicBool,
    ) -> Result<Imported> {
        let bar = Bar::new("rows");
        import = import.tensors(&self.tensors);
        if let Some(format) = self.format {
            import = import.format(format.into());
        }
        if let Some(DTypeName::Bf16) = self.dtype {
            import = import.dtype(DType::BF16);
        }
        let import = import.stop(stop).progress(|progress: Progress| bar.show(progress));
        if sources.iter().any(|source| source.as_os_str() == "-") {
            if sources.len() > 1 {
                return Err(
                    "-: standard input is imported by itself: give the other sources to `loaderx append`".into()
                );
            }
            let stdin = std::io::stdin().lock();
            return Ok(match goal {
                Goal::New => import.reader(STDIN, stdin, destination)?,
                Goal::Store => import.append_reader(STDIN, stdin, destination)?,
            });
        }
        let sources = expand(sources)?;
        Ok(match goal {
            Goal::New => import.paths(sources, destination)?,
            Goal::Store => import.append(sources, destination)?,
        })
    }
}

/// The paths that patterns stand for, of which the shell expanded none, in alphabetical order. What exists is no pattern.
fn expand(sources: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for source in sources {
        let pattern = source.to_str().filter(|text| text.contains(['*', '?', '[']) && !source.exists());
        let Some(pattern) = pattern else {
            paths.push(source.clone());
            continue;
        };
        let before = paths.len();
        for found in glob::glob(pattern).map_err(|e| format!("{pattern}: it is no pattern: {e}"))? {
            paths.push(found.map_err(|e| format!("cannot read {}: {}", e.path().display(), e.error()))?);
        }
        if paths.len() == before {
            return Err(format!("{pattern}: no file has a name like this").into());
        }
    }
    Ok(paths)
}
