//! How records are compressed: the options that several commands share.

use clap::error::ErrorKind;
use clap::{CommandFactory, ValueEnum};
use loaderx::{Codec, DictSize};

#[derive(Debug, clap::Args)]
pub(crate) struct Compression {
    /// How records are compressed.
    #[arg(long, value_enum, default_value_t)]
    codec: CodecName,
    /// Compression level: 1 to 22, or one of zstd's negative levels [default: 3; 19 for zstd_dict]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) level: Option<i32>,
    /// Size of the dictionary: small (32 KiB), balanced (128 KiB), max (1 MiB), or bytes [default: balanced]
    #[arg(long, value_name = "SIZE", value_parser = dict_size)]
    pub(crate) dict_size: Option<DictSize>,
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

impl Compression {
    pub(crate) fn codec(&self) -> Codec {
        match self.codec {
            CodecName::Raw => Codec::Raw,
            CodecName::Zstd => Codec::Zstd,
            CodecName::ZstdDict => Codec::ZstdDict,
        }
    }

    /// Refuses options that would change nothing.
    pub(crate) fn check(&self) {
        let conflict = match self.codec {
            CodecName::Raw if self.level.is_some() => "--level has no meaning with --codec raw",
            CodecName::Raw | CodecName::Zstd if self.dict_size.is_some() => "--dict-size needs --codec zstd_dict",
            _ => return,
        };
        crate::Arguments::command().error(ErrorKind::ArgumentConflict, conflict).exit()
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
