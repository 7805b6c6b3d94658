//! N.sum, beside N.zr: checksums of raw records, which carry none of their own as zstd frames do.
//!
//! An entry has 16 bytes: offset u32 · length u32 · XXH3-64 of the chunk's bytes there. Entries ascend by offset and do
//! not overlap; those with the offset 2^32 - 1 and the length 0 stand for nothing. One covers a record of 64 bytes or
//! more, or several that follow one another and were appended together, so that sums are few beside scalars and an
//! error condemns few of them. A record that no entry covers is unverified: a foreign program wrote it. Deleting
//! touches no sum.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use xxhash_rust::xxh3::xxh3_64;

use super::format::{Entry, tag};
use super::io::{Access, Disk, DiskFile};
use super::map::Map;
use crate::error::{Error, Result};

const SUM_SIZE: u64 = 16;
/// An entry covers no further record when it covers this many bytes.
pub(super) const COVERED: u64 = 64;

pub(super) fn sum_name(chunk: u16) -> String {
    format!("{chunk}.sum")
}

/// Removes all sum files, which say nothing true any more; durably.
pub(super) fn remove_all(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let names = disk.list(dir).map_err(Error::io("list", dir))?;
    let sums: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).filter(|path| chunk_of(path).is_some()).collect();
    for path in &sums {
        disk.remove_file(path).map_err(Error::io("remove", path))?;
    }
    if sums.is_empty() { Ok(()) } else { disk.sync_dir(dir).map_err(Error::io("sync", dir)) }
}

/// The chunk whose sums a file holds, by its name.
pub(super) fn chunk_of(path: &Path) -> Option<u16> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".sum")?.parse().ok().filter(|&chunk| sum_name(chunk) == name)
}

/// Bytes of a chunk and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) hash: u64,
}

impl Sum {
    pub(super) fn encode(&self) -> [u8; SUM_SIZE as usize] {
        let mut bytes = [0; SUM_SIZE as usize];
        bytes[..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    fn from_words([low, hash]: [u64; 2]) -> Sum {
        Sum { offset: low as u32, length: (low >> 32) as u32, hash }
    }

    pub(super) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.length)
    }

    pub(super) fn covers(&self, entry: &Entry) -> bool {
        self.offset <= entry.offset && entry.end() <= self.end()
    }

    /// What differs, as (expected, found).
    pub(super) fn check(&self, bytes: &[u8]) -> std::result::Result<(), (String, String)> {
        match xxh3_64(bytes) {
            hash if hash == self.hash => Ok(()),
            hash => Err((format!("bytes of the checksum {:016x}", self.hash), format!("{hash:016x}"))),
        }
    }
}

/// Collects the sums of raw records that are written one behind the other.
#[derive(Default)]
pub(super) struct SumBuilder<'a> {
    sums: BTreeMap<u16, Vec<u8>>,
    /// The records that the next entry will cover: their place, and their bytes, which lie together.
    open: Option<(u16, u32, &'a [u8], std::ops::Range<usize>)>,
}

impl<'a> SumBuilder<'a> {
    /// Takes the next record of `piece`, if it is raw: its bytes are `piece[range]`.
    pub(super) fn record(&mut self, entry: &Entry, piece: &'a [u8], range: std::ops::Range<usize>) {
        if entry.tag != tag::RAW || entry.stored == 0 {
            return;
        }
        if let Some((chunk, offset, bytes, covered)) = &mut self.open
            && *chunk == entry.chunk
            && u64::from(*offset) + covered.len() as u64 == u64::from(entry.offset)
            && (covered.len() as u64) < COVERED
            && std::ptr::eq(*bytes, piece)
            && covered.end == range.start
        {
            covered.end = range.end;
        } else {
            self.close();
            self.open = Some((entry.chunk, entry.offset, piece, range));
        }
    }

    fn close(&mut self) {
        if let Some((chunk, offset, bytes, covered)) = self.open.take() {
            let sum = Sum { offset, length: covered.len() as u32, hash: xxh3_64(&bytes[covered]) };
            self.sums.entry(chunk).or_default().extend_from_slice(&sum.encode());
        }
    }

    /// The entries of each chunk.
    pub(super) fn finish(mut self) -> BTreeMap<u16, Vec<u8>> {
        self.close();
        self.sums
    }
}

/// Covers nothing. It takes the place of sums that do not hold: a file that a reader has mapped is never shortened.
const NONE: Sum = Sum { offset: u32::MAX, length: 0, hash: 0 };

/// A sum file that is appended to.
#[derive(Debug)]
pub(super) struct SumWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// The bytes whose sums hold.
    len: u64,
    /// The bytes that may be in the file.
    held: u64,
}

impl SumWriter {
    /// Opens or makes the file, and voids the sums of what lies at or behind `tail`: of records that were not kept.
    pub(super) fn open(disk: &dyn Disk, path: PathBuf, tail: u64) -> Result<SumWriter> {
        let file = disk.open(&path, Access::Write).map_err(Error::io("open", &path))?;
        let table = SumTable::Positional(Arc::clone(&file));
        let held = file.len().map_err(Error::io("read", &path))?;
        let count = table.partition_point(held / SUM_SIZE, |sum| sum.end() <= tail);
        let mut writer = SumWriter { file, path, len: count * SUM_SIZE, held };
        writer.write(&[])?;
        Ok(writer)
    }

    /// Writes entries behind those that are there; they count from [`keep`](SumWriter::keep) on. What an append that
    /// failed has left behind them is voided.
    pub(super) fn write(&mut self, sums: &[u8]) -> Result<()> {
        let end = self.len + sums.len() as u64;
        let void = self.held.saturating_sub(end).div_ceil(SUM_SIZE) as usize;
        let bytes = [sums, &NONE.encode().repeat(void)].concat();
        if bytes.is_empty() {
            return Ok(());
        }
        self.held = self.held.max(end);
        self.file.write_at(&bytes, self.len).map_err(Error::io("write", &self.path))
    }

    pub(super) fn keep(&mut self, sums: &[u8]) {
        self.len += sums.len() as u64;
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.path))
    }
}

/// A sum file that is read.
#[derive(Debug)]
enum SumTable {
    Mapped(Map),
    Positional(Arc<dyn DiskFile>),
}

impl SumTable {
    fn len(&self) -> u64 {
        match self {
            SumTable::Mapped(map) => map.len() / SUM_SIZE,
            SumTable::Positional(file) => file.len().map_or(0, |len| len / SUM_SIZE),
        }
    }

    fn get(&self, i: u64) -> Option<Sum> {
        match self {
            SumTable::Mapped(map) => map.words(i * SUM_SIZE).map(Sum::from_words),
            SumTable::Positional(file) => {
                let mut bytes = [0; SUM_SIZE as usize];
                file.read_at(&mut bytes, i * SUM_SIZE).ok()?;
                let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
                Some(Sum::from_words([word(0)?, word(8)?]))
            }
        }
    }

    /// How many of the first `len` entries, which are those at the begin, the predicate holds for.
    fn partition_point(&self, len: u64, holds: impl Fn(&Sum) -> bool) -> u64 {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(|sum| holds(&sum)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn find(&self, entry: &Entry) -> Option<Sum> {
        let after = self.partition_point(self.len(), |sum| sum.offset <= entry.offset);
        self.get(after.checked_sub(1)?).filter(|sum| sum.covers(entry))
    }
}

/// The sum files of a store, opened when they are first asked.
#[derive(Debug)]
pub(super) struct Sums {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    mapped: bool,
    /// Whether the files speak of what lies in the chunks: not where a foreign program has written since.
    trusted: bool,
    tables: RwLock<BTreeMap<u16, Arc<SumTable>>>,
}

impl Sums {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, mapped: bool, trusted: bool) -> Sums {
        Sums { disk, dir, mapped, trusted, tables: RwLock::default() }
    }

    /// The sum that covers a raw record; `None` for one that is unverified.
    pub(super) fn find(&self, entry: &Entry) -> Result<Option<Sum>> {
        if !self.trusted || entry.stored == 0 {
            return Ok(None);
        }
        let table = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(&entry.chunk).cloned();
        if let Some(sum) = table.as_ref().and_then(|table| table.find(entry)) {
            return Ok(Some(sum));
        }
        // The file may have grown since it was mapped.
        let held = table.map_or(0, |table| table.len());
        Ok(self.table(entry.chunk, held)?.and_then(|table| table.find(entry)))
    }

    /// The sums of a chunk anew, where there are other than `held` of them.
    fn table(&self, chunk: u16, held: u64) -> Result<Option<Arc<SumTable>>> {
        let path = self.dir.join(sum_name(chunk));
        if !self.disk.exists(&path) {
            return Ok(None);
        }
        let file = self.disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
        if file.len().map_err(Error::io("read", &path))? / SUM_SIZE == held {
            return Ok(None);
        }
        let table = Arc::new(match if self.mapped { file.map().map_err(Error::io("map", &path))? } else { None } {
            Some(map) => SumTable::Mapped(map),
            None => SumTable::Positional(file),
        });
        self.tables.write().unwrap_or_else(PoisonError::into_inner).insert(chunk, Arc::clone(&table));
        Ok(Some(table))
    }

    /// Compares bytes of a chunk, from `begin` on, with all sums that lie wholly there, and gives the part of them that
    /// no other sum reaches into; `None` where a sum differs.
    pub(super) fn check_block(&self, chunk: u16, begin: u64, bytes: &[u8]) -> Result<Option<Range<u64>>> {
        let mut checked = begin..begin + bytes.len() as u64;
        if !self.trusted {
            return Ok(Some(checked));
        }
        let held = self.tables.read().unwrap_or_else(PoisonError::into_inner).get(&chunk).cloned();
        let Some(table) = (if held.is_some() { held } else { self.table(chunk, 0)? }) else { return Ok(Some(checked)) };
        let len = table.len();
        for i in table.partition_point(len, |sum| sum.end() <= begin)..len {
            let Some(sum) = table.get(i).filter(|sum| u64::from(sum.offset) < checked.end) else { break };
            if u64::from(sum.offset) < begin {
                checked.start = sum.end().min(checked.end);
            } else if sum.end() > begin + bytes.len() as u64 {
                checked.end = u64::from(sum.offset);
            } else {
                let at = (u64::from(sum.offset) - begin) as usize;
                if sum.check(&bytes[at..at + sum.length as usize]).is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(checked))
    }
}
