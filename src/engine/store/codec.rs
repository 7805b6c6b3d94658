//! How records are compressed.

/// How new records are stored. Whatever is chosen, a record that does not shrink is stored raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Codec {
    /// As they are.
    Raw,
    /// Each record its own zstd frame. Level 3 unless another is chosen.
    #[default]
    Zstd,
    /// zstd with a dictionary that is trained once on the data. Level 19 unless another is chosen.
    ZstdDict,
}

impl Codec {
    /// The name in the schema: "raw", "zstd", "zstd_dict".
    pub fn name(self) -> &'static str {
        match self {
            Codec::Raw => "raw",
            Codec::Zstd => "zstd",
            Codec::ZstdDict => "zstd_dict",
        }
    }

    /// The codec of that name.
    pub(crate) fn from_name(name: &str) -> Option<Codec> {
        [Codec::Raw, Codec::Zstd, Codec::ZstdDict].into_iter().find(|codec| codec.name() == name)
    }
}

/// How large a trained dictionary may become. A larger one compresses better and is slower to gather with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DictSize {
    /// 32 KiB.
    Small,
    /// 128 KiB.
    #[default]
    Balanced,
    /// 1 MiB.
    Max,
    /// That many bytes, from 1 to 1 MiB.
    Bytes(u32),
}
