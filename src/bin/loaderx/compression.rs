//! How records are compressed: the options that several commands share.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, ValueEnum};
use loaderx::{Codec, DictSize};

use crate::output::Result;

/// Bytes of a dictionary, at most.
const MAX_DICT: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Compression {
    /// How records are compressed
    #[arg(long, value_enum, default_value_t)]
    codec: CodecName,
    /// Compression level: 1 to 22, or one of zstd's negative levels [default: 3; 19 for zstd_dict]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) level: Option<i32>,
    /// Size of the dictionary: small (32 KiB), balanced (128 KiB), max (1 MiB), or bytes [default: balanced]
    #[arg(long, value_name = "SIZE", value_parser = dict_size)]
    pub(crate) dict_size: Option<DictSize>,
    /// The dictionary, as `loaderx train-dict` writes one, instead of training it on the data
    #[arg(long, value_name = "FILE", conflicts_with = "dict_size")]
    dict: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum CodecName {
    /// As they are
    Raw,
    /// Each record by itself
    #[default]
    Zstd,
    /// With a dictionary that is trained on records spread over the data
    ZstdDict,
}

impl Compression {
    pub(crate) fn codec(&self) -> Codec {
        match self.codec {
            CodecName::Raw => Codec::Raw,
            CodecName::Zstd => Codec::Zstd,
            CodecName::ZstdDict => Codec::ZstdDict,
        }
    }

    /// The content of the file that --dict names.
    pub(crate) fn dictionary(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = &self.dict else { return Ok(None) };
        // Half a dictionary would be none, and a longer one is refused by the store: one byte more tells.
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_DICT + 1).read_to_end(&mut bytes));
        read.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if bytes.is_empty() || bytes.len() as u64 > MAX_DICT {
            return Err(
                format!("{}: a dictionary has 1 to {MAX_DICT} bytes: is it another file?", path.display()).into()
            );
        }
        Ok(Some(bytes))
    }

    /// Refuses options that would change nothing.
    pub(crate) fn check(&self) {
        let conflict = match self.codec {
            CodecName::Raw if self.level.is_some() => "--level has no meaning with --codec raw",
            CodecName::Raw | CodecName::Zstd if self.dict.is_some() => "--dict needs --codec zstd_dict",
            CodecName::Raw | CodecName::Zstd if self.dict_size.is_some() => "--dict-size needs --codec zstd_dict",
            _ => return,
        };
        crate::Arguments::command().error(ErrorKind::ArgumentConflict, conflict).exit()
    }
}

/// A dictionary's size, by name or in bytes.
pub(crate) fn dict_size(text: &str) -> std::result::Result<DictSize, String> {
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

/// An import or a recoding with these options.
macro_rules! compressed {
    ($job:expr, $compression:expr) => {{
        let mut job = $job.codec($compression.codec());
        if let Some(level) = $compression.level {
            job = job.level(level);
        }
        if let Some(size) = $compression.dict_size {
            job = job.dict_size(size);
        }
        if let Some(bytes) = $compression.dictionary()? {
            job = job.dictionary(bytes);
        }
        job
    }};
}
