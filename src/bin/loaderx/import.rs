//! `loaderx import`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use loaderx::{AnyDataset, Codec, DType, DictSize, Import, Progress};

use crate::output::{self, Result};

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
    /// How records are compressed.
    #[arg(long, value_enum, default_value_t)]
    codec: CodecName,
    /// Compression level: 1 to 22, or one of zstd's negative levels [default: 3; 19 for zstd_dict]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    level: Option<i32>,
    /// Size of the dictionary: small (32 KiB), balanced (128 KiB), max (1 MiB), or bytes [default: balanced]
    #[arg(long, value_name = "SIZE", value_parser = dict_size)]
    dict_size: Option<DictSize>,
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum CodecName {
    /// As they are.
    Raw,
    /// Each record by itself.
    #[default]
    Zstd,
    /// With a dictionary that is trained on rows spread over the array.
    ZstdDict,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DTypeName {
    /// bfloat16.
    Bf16,
}

impl Arguments {
    /// Refuses options that would change nothing.
    fn check(&self) {
        let conflict = match self.codec {
            CodecName::Raw if self.level.is_some() => "--level has no meaning with --codec raw",
            CodecName::Raw | CodecName::Zstd if self.dict_size.is_some() => "--dict-size needs --codec zstd_dict",
            _ => return,
        };
        crate::Arguments::command().error(ErrorKind::ArgumentConflict, conflict).exit()
    }

    fn import(&self) -> Import<'_> {
        let mut import = Import::new().tensors(&self.tensors).codec(match self.codec {
            CodecName::Raw => Codec::Raw,
            CodecName::Zstd => Codec::Zstd,
            CodecName::ZstdDict => Codec::ZstdDict,
        });
        if let Some(level) = self.level {
            import = import.level(level);
        }
        if let Some(size) = self.dict_size {
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
    arguments.check();
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
    let mut text = String::new();
    for path in &imported.stores {
        let stats = AnyDataset::open(path)?.stats()?;
        text +=
            &format!("{}\t{}\t{}\n", output::one_line(&path.display().to_string()), stats.records, stats.live_bytes);
    }
    output::result(&text)
}

/// A progress bar on standard error, which is hidden unless that is a terminal. It disappears when it is dropped.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        // A template that is not understood gives the default bar.
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} rows, {msg}, {eta} left");
        Bar(ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    fn show(&self, progress: Progress) {
        if let Some(total) = progress.rows_total {
            self.0.set_length(total);
        }
        self.0.set_message(indicatif::BinaryBytes(progress.bytes).to_string());
        self.0.set_position(progress.rows);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A dictionary's size, by name or in bytes.
fn dict_size(text: &str) -> std::result::Result<DictSize, String> {
    match text {
        "small" => Ok(DictSize::Small),
        "balanced" => Ok(DictSize::Balanced),
        "max" => Ok(DictSize::Max),
        bytes => match bytes.parse() {
            Ok(bytes @ 1..=1_048_576) => Ok(DictSize::Bytes(bytes)),
            _ => Err("small, balanced, max, or a number of bytes from 1 to 1048576".into()),
        },
    }
}
