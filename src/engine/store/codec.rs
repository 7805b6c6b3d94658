//! How records are compressed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::OnceLock;

use zstd::zstd_safe::{self, CCtx, CDict, CParameter, DCtx, DDict};

use super::io::{self, Disk};
use super::packed::Packed;
use super::slot::Slot;
use crate::error::{Error, Result};

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

impl DictSize {
    fn bytes(self) -> Result<usize> {
        let bytes = match self {
            DictSize::Small => 32 << 10,
            DictSize::Balanced => 128 << 10,
            DictSize::Max => MAX_DICT,
            DictSize::Bytes(bytes) => bytes as usize,
        };
        if (1..=MAX_DICT).contains(&bytes) {
            Ok(bytes)
        } else {
            Err(Error::invalid("dictionary size", format!("{bytes} bytes: a dictionary has 1 to {MAX_DICT}")))
        }
    }
}

const MAX_DICT: usize = 1 << 20;
/// zstd trains nothing smaller; below it the dictionary is a piece of the samples themselves.
const MIN_TRAINED_DICT: usize = 256;
/// What a dictionary is trained on at most: records, and bytes.
pub(crate) const MAX_SAMPLES: usize = 8192;
pub(crate) const MAX_SAMPLE_BYTES: usize = 128 << 20;

/// The compression level of a codec unless another is set.
pub(super) fn default_level(codec: Codec) -> i32 {
    if codec == Codec::ZstdDict { 19 } else { 3 }
}

/// Levels that zstd knows.
pub(super) fn check_level(level: i32) -> Result<()> {
    let (min, max) = (zstd_safe::min_c_level(), zstd_safe::max_c_level());
    if (min..=max).contains(&level) {
        Ok(())
    } else {
        Err(Error::invalid("level", format!("{level}: zstd's levels are {min} to {max}")))
    }
}

/// Trains a dictionary of at most `size` on at most 8192 of the samples and at most 128 MiB, spread evenly over them.
pub(super) fn train(store: &Path, samples: &Packed<'_>, size: DictSize) -> Result<Vec<u8>> {
    let size = size.bytes()?;
    let (bytes, lengths) = pick(samples);
    if bytes.is_empty() {
        return Err(Error::dictionary(store, "no dictionary can be trained: the samples hold no bytes"));
    }
    if size < MIN_TRAINED_DICT {
        // zstd takes any bytes as a dictionary of raw content; the end of the samples serves as well as another part.
        return Ok(bytes[bytes.len().saturating_sub(size)..].to_vec());
    }
    let mut dict = Vec::with_capacity(size);
    match zstd_safe::train_from_buffer(&mut dict, &bytes, &lengths) {
        Ok(_) => Ok(dict),
        Err(code) => Err(Error::dictionary(
            store,
            format!(
                "no dictionary of {size} bytes can be trained on {} samples of {} bytes ({}): give more samples, or \
                 choose the codec zstd",
                lengths.len(),
                bytes.len(),
                zstd_safe::get_error_name(code)
            ),
        )),
    }
}

/// The records to train on, packed, with their lengths; copied only where some are left out.
fn pick<'a>(samples: &Packed<'a>) -> (Cow<'a, [u8]>, Vec<usize>) {
    if samples.len() <= MAX_SAMPLES && samples.bytes.len() <= MAX_SAMPLE_BYTES {
        let lengths = (0..samples.len()).map(|i| samples.range(i).len()).filter(|&length| length > 0).collect();
        return (samples.bytes.into(), lengths);
    }
    let mean = (samples.bytes.len() / samples.len().max(1)).max(1);
    let count = samples.len().min(MAX_SAMPLES).min(MAX_SAMPLE_BYTES / mean + 1);
    let (mut bytes, mut lengths) = (Vec::new(), Vec::with_capacity(count));
    for i in 0..count {
        let record = samples.record(i * samples.len() / count);
        if bytes.len() + record.len() <= MAX_SAMPLE_BYTES && !record.is_empty() {
            bytes.extend_from_slice(record);
            lengths.push(record.len());
        }
    }
    (bytes.into(), lengths)
}

/// A store's dictionary, prepared for reading, and for writing when the first record is written.
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    decompress: DDict<'static>,
    compress: OnceLock<Option<CDict<'static>>>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes)", self.bytes.len())
    }
}

impl Dictionary {
    /// Prepares the content of dict.zr.
    pub(super) fn new(bytes: Vec<u8>, path: &Path) -> Result<Dictionary> {
        let unfit = || Error::corrupt(path, "a zstd dictionary", format!("{} bytes that zstd refuses", bytes.len()));
        if bytes.is_empty() || bytes.len() > MAX_DICT {
            return Err(Error::corrupt(path, format!("1 to {MAX_DICT} bytes"), format!("{} bytes", bytes.len())));
        }
        let decompress = DDict::try_create(&bytes).ok_or_else(unfit)?;
        Ok(Dictionary { bytes, decompress, compress: OnceLock::new() })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Opens dict.zr, where there is one.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Option<Dictionary>> {
        if !disk.exists(path) {
            return Ok(None);
        }
        let bytes = io::read_small(disk, path, MAX_DICT as u64)?;
        Dictionary::new(bytes, path).map(Some)
    }
}

/// Compresses records, each into a frame of its own that carries its length and a checksum of its content.
pub(super) struct Compressor<'a> {
    context: CCtx<'a>,
}

impl<'a> Compressor<'a> {
    pub(super) fn new(level: i32, dictionary: Option<&'a Dictionary>) -> Result<Compressor<'a>> {
        let mut context = CCtx::create();
        let set = |done: zstd_safe::SafeResult| {
            done.map_err(|code| Error::invalid("level", zstd_safe::get_error_name(code).to_owned())).map(drop)
        };
        set(context.set_parameter(CParameter::CompressionLevel(level)))?;
        set(context.set_parameter(CParameter::ChecksumFlag(true)))?;
        if let Some(dictionary) = dictionary {
            let prepared = dictionary.compress.get_or_init(|| CDict::try_create(&dictionary.bytes, level));
            // zstd may refuse to write with a dictionary that it reads with.
            let refused = || Error::invalid("dictionary", "dict.zr is one that zstd does not compress with");
            set(context.ref_cdict(prepared.as_ref().ok_or_else(refused)?))?;
        }
        Ok(Compressor { context })
    }

    /// Appends the stored form of `record` to `out`: a frame, or the record itself where a frame is no smaller.
    /// Gives whether it is a frame.
    pub(super) fn append(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let begin = out.len();
        out.resize(begin + zstd_safe::compress_bound(record.len()), 0);
        let written = self
            .context
            .compress2(&mut out[begin..], record)
            .map_err(|code| Error::invalid("record", format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        let shrunk = written < record.len();
        out.truncate(begin + if shrunk { written } else { 0 });
        if !shrunk {
            out.extend_from_slice(record);
        }
        Ok(shrunk)
    }
}

thread_local! {
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Decompresses a frame over all of `out`. The error is the reason, as (expected, found).
pub(super) fn decompress(
    frame: &[u8],
    dictionary: Option<&Dictionary>,
    out: &mut [MaybeUninit<u8>],
) -> std::result::Result<(), (String, String)> {
    let wanted = out.len();
    let mut slot = Slot::new(out);
    let done = DECOMPRESSOR.with_borrow_mut(|context| match dictionary {
        Some(dictionary) => context.decompress_using_ddict(&mut slot, frame, &dictionary.decompress),
        None => context.decompress(&mut slot, frame),
    });
    match done {
        Ok(_) if slot.filled() == wanted => Ok(()),
        Ok(_) => Err((format!("a frame of {wanted} bytes"), format!("one of {}", slot.filled()))),
        Err(code) => {
            Err((format!("a zstd frame of {wanted} bytes"), format!("{} (zstd)", zstd_safe::get_error_name(code))))
        }
    }
}

/// Whether a frame carries a checksum of its content, as its descriptor says.
pub(super) fn has_checksum(frame: &[u8]) -> bool {
    frame.get(4).is_some_and(|descriptor| descriptor & 4 != 0)
}

/// The most bytes that a frame's header has.
pub(super) const FRAME_HEADER: usize = 18;

/// How long the content of a frame is, as its header says, of which `head` is the begin; `None` where it does not say or
/// is none.
pub(super) fn content_size(head: &[u8]) -> Option<u64> {
    zstd_safe::get_frame_content_size(head).ok().flatten()
}
