//! The bytes of meta.zr: where they lie, what they mean, what is accepted.
//!
//! ```text
//! 0   magic "ZREC" · version u16 = 3 · tail_chunk u16 · tail_offset u32 · length u32
//! 16  entry 0: offset u32 · stored length u32 · length u32 · chunk u16 · codec u8 · reserved u8
//! 32  entry 1
//! ```

use std::path::Path;

use crate::error::{Error, Result};

pub(super) const META: &str = "meta.zr";
pub(super) const DICT: &str = "dict.zr";
pub(crate) const SCHEMA: &str = "schema.msgpack";
pub(super) const COMMIT: &str = "commit.zr";
/// Stand while records are deleted, and while a store is compacted.
pub(super) const DELETE: &str = "delete.zr";
pub(super) const COMPACT: &str = "compact.zr";
pub(super) const WRITE_LOCK: &str = "write.lock";
pub(super) const READ_LOCK: &str = "read.lock";

pub(super) const HEADER_SIZE: u64 = 16;
pub(super) const ENTRY_SIZE: u64 = 16;
/// The most records of version 3.
pub(crate) const MAX_RECORDS: u64 = 1 << 24;
/// The most chunk files of version 3.
pub(super) const MAX_CHUNKS: u16 = 1 << 12;
/// A record ends below this offset of its chunk.
pub(super) const CHUNK_SIZE: u64 = 1 << 32;
/// The size of meta.zr, sparse.
pub(super) const META_SIZE: u64 = HEADER_SIZE + MAX_RECORDS * ENTRY_SIZE;
/// The largest record unless another limit is set, and the largest that the Python loaderx writes.
pub(crate) const RECORD_LIMIT: u32 = 1 << 20;
/// A larger schema.msgpack is refused.
pub(crate) const MAX_SCHEMA: u64 = 1 << 20;

const MAGIC: [u8; 4] = *b"ZREC";
const VERSION: u16 = 3;

pub(super) fn chunk_name(chunk: u16) -> String {
    format!("{chunk}.zr")
}

/// Where the entry of a record lies in meta.zr.
pub(super) fn entry_offset(index: u64) -> u64 {
    HEADER_SIZE + index * ENTRY_SIZE
}

/// The state of a store: how many records, and where the next one goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Header {
    pub(super) tail_chunk: u16,
    pub(super) tail_offset: u32,
    pub(super) length: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_SIZE as usize] {
        let mut bytes = [0; HEADER_SIZE as usize];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.tail_chunk.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.tail_offset.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_SIZE as usize], meta: &Path) -> Result<Header> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[0..4] != MAGIC {
            return Err(not_a_store(meta, format!("its meta.zr begins with {:02x?}, not with \"ZREC\"", &bytes[0..4])));
        }
        if u16_at(4) != VERSION {
            return Err(Error::unsupported(
                meta,
                format!("version {}", u16_at(4)),
                format!("this crate reads and writes version {VERSION} of the format"),
            ));
        }
        let header = Header { tail_chunk: u16_at(6), tail_offset: u32_at(8), length: u32_at(12) };
        if u64::from(header.length) > MAX_RECORDS {
            return Err(Error::corrupt(
                meta,
                format!("at most {MAX_RECORDS} records"),
                format!("a header that says {}", header.length),
            ));
        }
        if header.tail_chunk >= MAX_CHUNKS {
            return Err(Error::corrupt(
                meta,
                format!("a tail chunk below {MAX_CHUNKS}"),
                format!("a header that says {}", header.tail_chunk),
            ));
        }
        Ok(header)
    }
}

/// The error for a directory that is not a store, named by its meta.zr.
pub(super) fn not_a_store(meta: &Path, reason: impl Into<String>) -> Error {
    Error::NotAStore { path: meta.parent().unwrap_or(meta).to_path_buf(), reason: reason.into() }
}

/// The codec tag of an entry.
pub(super) mod tag {
    pub(in super::super) const RAW: u8 = 0;
    pub(in super::super) const ZSTD: u8 = 1;
    pub(in super::super) const ZSTD_DICT: u8 = 2;
}

/// Where one record lies, as the table says: not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    pub(super) offset: u32,
    /// Bytes on disk.
    pub(super) stored: u32,
    /// Bytes of the record.
    pub(super) length: u32,
    pub(super) chunk: u16,
    pub(super) tag: u8,
}

impl Entry {
    /// The entry's two little-endian words, as the map holds them. The reserved byte is written 0 and not looked at.
    #[inline]
    pub(super) fn from_words([low, high]: [u64; 2]) -> Entry {
        Entry {
            offset: low as u32,
            stored: (low >> 32) as u32,
            length: high as u32,
            chunk: (high >> 32) as u16,
            tag: (high >> 48) as u8,
        }
    }

    /// The words that [`from_words`](Self::from_words) takes.
    #[inline]
    pub(super) fn words(&self) -> [u64; 2] {
        let low = u64::from(self.offset) | u64::from(self.stored) << 32;
        let high = u64::from(self.length) | u64::from(self.chunk) << 32 | u64::from(self.tag) << 48;
        [low, high]
    }

    pub(super) fn encode(&self) -> [u8; ENTRY_SIZE as usize] {
        let [low, high] = self.words();
        let mut bytes = [0; ENTRY_SIZE as usize];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_SIZE as usize]) -> Entry {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Entry::from_words([word(0), word(8)])
    }

    /// Where the record ends in its chunk.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.stored)
    }

    /// Whether the entry can be true by itself: a known codec, a chunk and an end within the format, a raw record as
    /// long as it is stored, and a frame that can hold it.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.chunk < MAX_CHUNKS
            && self.end() <= CHUNK_SIZE
            && self.tag <= tag::ZSTD_DICT
            && if self.tag == tag::RAW { self.stored == self.length } else { u64::from(self.length) <= self.most() }
    }

    /// The most that a frame can hold: a block of 128 KiB in every four bytes.
    fn most(&self) -> u64 {
        u64::from(self.stored) / 4 * (128 << 10)
    }

    /// What is wrong with an entry that is not sound, as (expected, found).
    #[cold]
    pub(super) fn fault(&self) -> (String, String) {
        if self.chunk >= MAX_CHUNKS {
            (format!("a chunk below {MAX_CHUNKS}"), format!("chunk {}", self.chunk))
        } else if self.end() > CHUNK_SIZE {
            ("an end within 4 GiB".into(), format!("offset {} and {} bytes", self.offset, self.stored))
        } else if self.tag > tag::ZSTD_DICT {
            ("codec 0, 1 or 2".into(), format!("codec {}", self.tag))
        } else if self.tag != tag::RAW {
            (format!("at most {} bytes in a frame of {}", self.most(), self.stored), format!("{} bytes", self.length))
        } else {
            ("a raw record to be stored as it is".into(), format!("{} bytes stored of {}", self.stored, self.length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_and_an_entry_come_back_as_they_were() {
        let header = Header { tail_chunk: 0x0102, tail_offset: 0xdead_beef, length: 0x00ab_cdef };
        assert_eq!(Header::decode(&header.encode(), Path::new("meta.zr")).unwrap(), header);
        let entry = Entry { offset: 0x0403_0201, stored: 0x0807_0605, length: 0x0c0b_0a09, chunk: 0x0e0d, tag: 2 };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 2, 0];
        assert_eq!(entry.encode(), bytes);
        assert_eq!(Entry::decode(&bytes), entry);
    }
}
