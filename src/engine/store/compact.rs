//! Giving back the bytes that no record uses: the live records are copied into chunks with other numbers, in index
//! order, and a new table takes the place of the old one in one step.
//!
//! The file compact.zr stands while that is under way, so that what an interruption leaves is cleared away by the next
//! writer: the new chunks where the table is still the old one, the old chunks where it is the new one.
//!
//! ```text
//! 0   magic "ZRCOMPCT"
//! 8   header before · header after
//! 40  first of the new chunks u64
//! 48  XXH3-64 of all before
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::format::{
    CHUNK_SIZE, COMPACT, Entry, HEADER_SIZE, Header, MAX_CHUNKS, META, META_SIZE, chunk_name, entry_offset, tag,
};
use super::io::{Access, Disk, DiskFile, read_small, replace, sync_parent, unfinished};
use super::sums::{self, Sum};
use crate::error::{Error, Result};
use crate::events::event;

const MAGIC: [u8; 8] = *b"ZRCOMPCT";
const SIZE: usize = 56;
/// How many bytes of records, and of entries, are in memory at once.
const BLOCK: usize = 8 << 20;

/// A compaction: where every live record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compaction {
    before: Header,
    after: Header,
    first: u16,
}

/// Places records one behind the other from a chunk's begin on.
struct Packing {
    /// Not bounded by the format: what a damaged table claims may need any number.
    chunk: u32,
    offset: u64,
}

impl Packing {
    fn place(&mut self, stored: u32) -> (u32, u32) {
        if self.offset + u64::from(stored) >= CHUNK_SIZE {
            self.chunk += 1;
            self.offset = 0;
        }
        let place = (self.chunk, self.offset as u32);
        self.offset += u64::from(stored);
        place
    }
}

impl Compaction {
    /// Plans to copy the records behind `before`: into the lowest chunks, where all of them are free, else behind the
    /// last one.
    pub(super) fn plan(path: &Path, before: Header, entry: impl Fn(u64) -> Result<Entry>) -> Result<Compaction> {
        let mut packing = Packing { chunk: 0, offset: 0 };
        let mut lowest = before.tail_chunk;
        for index in 0..u64::from(before.length) {
            let entry = entry(index)?;
            lowest = lowest.min(entry.chunk);
            packing.place(entry.stored);
        }
        let first = if packing.chunk < u32::from(lowest) { 0 } else { before.tail_chunk + 1 };
        let last = u32::from(first) + packing.chunk;
        if last >= u32::from(MAX_CHUNKS) {
            return Err(Error::unsupported(
                path,
                format!("compacting into chunk {last}"),
                format!("version 3 of the format ends at chunk {}: recode the store into a new one", MAX_CHUNKS - 1),
            ));
        }
        let after = Header { tail_chunk: last as u16, tail_offset: packing.offset as u32, length: before.length };
        Ok(Compaction { before, after, first })
    }

    fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.before.encode());
        bytes[24..40].copy_from_slice(&self.after.encode());
        bytes[40..48].copy_from_slice(&u64::from(self.first).to_le_bytes());
        let hash = xxh3_64(&bytes[..48]);
        bytes[48..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Compaction> {
        let parse = || {
            let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
            let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
            let header = |at: usize| Header::decode(bytes[at..at + HEADER_SIZE as usize].try_into().ok()?, path).ok();
            if bytes[..8] != MAGIC || word(48)? != xxh3_64(&bytes[..48]) {
                return None;
            }
            let compaction =
                Compaction { before: header(8)?, after: header(24)?, first: u16::try_from(word(40)?).ok()? };
            (compaction.first <= compaction.after.tail_chunk).then_some(compaction)
        };
        parse().ok_or_else(|| {
            Error::corrupt(
                path,
                "a compaction that was begun, with its checksum",
                format!("{} other bytes", bytes.len()),
            )
        })
    }

    /// Copies the records, puts the new table in place, and removes the old chunks. `read` appends the stored bytes of
    /// an entry, and says whether a sum has shown them to be right.
    pub(super) fn run(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        entry: impl Fn(u64) -> Result<Entry>,
        read: impl Fn(u64, &Entry, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        replace(disk, &dir.join(COMPACT), &self.encode())?;
        let meta = dir.join(META);
        let new_meta = unfinished(&meta);
        let copied = self.copy(disk, dir, &new_meta, entry, read);
        let done = copied.and_then(|()| disk.rename(&new_meta, &meta).map_err(Error::io("replace", &meta)));
        if done.is_err() {
            // What was copied is of no use; where even this fails, the next writer clears it away.
            let _ = self.clear(disk, dir, self.before);
            return done;
        }
        // From here on either table may be the one that a power failure leaves, until this succeeds.
        sync_parent(disk, &meta)?;
        self.clear(disk, dir, self.after)
    }

    fn copy(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        new_meta: &Path,
        entry: impl Fn(u64) -> Result<Entry>,
        read: impl Fn(u64, &Entry, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let meta = disk.open(new_meta, Access::Write).map_err(Error::io("create", new_meta))?;
        meta.set_len(0).and_then(|()| meta.set_len(META_SIZE)).map_err(Error::io("extend", new_meta))?;
        let mut packing = Packing { chunk: 0, offset: 0 };
        let mut chunk = NewChunk::create(disk, dir, self.first)?;
        let (mut entries, mut first) = (Vec::new(), 0);
        for index in 0..u64::from(self.before.length) {
            let old = entry(index)?;
            let (number, offset) = packing.place(old.stored);
            // The plan has held the last one to the format, unless another program changes the table meanwhile.
            let number = u16::try_from(number).ok().and_then(|number| self.first.checked_add(number));
            let Some(number) = number.filter(|&number| number <= self.after.tail_chunk) else {
                let expected = format!("chunks up to {}, as planned", self.after.tail_chunk);
                return Err(Error::corrupt(new_meta, expected, "records for more: the table was changed meanwhile"));
            };
            if number != chunk.number {
                chunk.finish()?;
                chunk = NewChunk::create(disk, dir, number)?;
            }
            let verified = read(index, &old, &mut chunk.bytes)?;
            let new = Entry { chunk: number, offset, ..old };
            chunk.take(&new, verified)?;
            entries.extend_from_slice(&new.encode());
            if entries.len() >= BLOCK {
                meta.write_at(&entries, entry_offset(first)).map_err(Error::io("write", new_meta))?;
                entries.clear();
                first = index + 1;
            }
        }
        chunk.finish()?;
        meta.write_at(&entries, entry_offset(first)).map_err(Error::io("write", new_meta))?;
        meta.write_at(&self.after.encode(), 0).map_err(Error::io("write", new_meta))?;
        meta.sync().map_err(Error::io("sync", new_meta))?;
        // The new chunks have their names before the table that needs them has its own.
        sync_parent(disk, new_meta)
    }

    /// Removes the chunks that the table of that state does not use, and compact.zr.
    fn clear(&self, disk: &dyn Disk, dir: &Path, state: Header) -> Result<()> {
        let new = self.first..=self.after.tail_chunk;
        let keeps = |chunk: u16| if state == self.after { new.contains(&chunk) } else { !new.contains(&chunk) };
        for name in disk.list(dir).map_err(Error::io("list", dir))? {
            let path = dir.join(name);
            if chunk_of(&path).or(sums::chunk_of(&path)).is_some_and(|chunk| !keeps(chunk)) {
                disk.remove_file(&path).map_err(Error::io("remove", &path))?;
            }
        }
        remove_if_there(disk, &unfinished(&dir.join(META)))?;
        // The names are gone for certain before the file that says so is.
        disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
        remove_if_there(disk, &dir.join(COMPACT))?;
        disk.sync_dir(dir).map_err(Error::io("sync", dir))
    }
}

/// Clears away what an interrupted compaction left; the write lock is held. Where another program has moved the header
/// since, no chunk is touched.
pub(super) fn recover(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join(COMPACT);
    if !disk.exists(&path) {
        return Ok(());
    }
    let compaction = Compaction::decode(&read_small(disk, &path, SIZE as u64)?, &path)?;
    let meta_path = dir.join(META);
    let meta = disk.open(&meta_path, Access::Read).map_err(Error::io("open", &meta_path))?;
    let header = super::commit::read_header(&*meta, &meta_path)?;
    if header == compaction.before || header == compaction.after {
        // The table that is seen is the one that stays.
        disk.sync_dir(dir).map_err(Error::io("sync", dir))?;
        compaction.clear(disk, dir, header)?;
        event!(INFO, path = %dir.display(), done = header == compaction.after, "a compaction that was cut off was cleared up");
        Ok(())
    } else {
        remove_if_there(disk, &path)
    }
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    if disk.exists(path) { disk.remove_file(path).map_err(Error::io("remove", path)) } else { Ok(()) }
}

/// The number of a chunk file, by its name.
fn chunk_of(path: &Path) -> Option<u16> {
    let name = path.file_name()?.to_str()?;
    // "+7.zr" and "007.zr" are somebody else's.
    name.strip_suffix(".zr")?.parse().ok().filter(|&chunk| chunk_name(chunk) == name)
}

/// A chunk file that is written from its begin to its end, and its sums.
struct NewChunk {
    number: u16,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// What is not written yet, and how much is.
    bytes: Vec<u8>,
    written: u64,
    sum_file: Arc<dyn DiskFile>,
    sum_path: PathBuf,
    sums: Vec<u8>,
    /// Where in `bytes` the records begin that the next sum will cover.
    covered_from: Option<usize>,
}

impl NewChunk {
    fn create(disk: &dyn Disk, dir: &Path, number: u16) -> Result<NewChunk> {
        let (path, sum_path) = (dir.join(chunk_name(number)), dir.join(sums::sum_name(number)));
        let create = |path: &Path| {
            let create = || disk.open(path, Access::Write).and_then(|file| file.set_len(0).map(|()| file));
            create().map_err(Error::io("create", path))
        };
        let (file, sum_file) = (create(&path)?, create(&sum_path)?);
        let (bytes, sums) = (Vec::new(), Vec::new());
        Ok(NewChunk { number, file, path, bytes, written: 0, sum_file, sum_path, sums, covered_from: None })
    }

    /// Takes a record whose bytes are the last ones.
    fn take(&mut self, entry: &Entry, verified: bool) -> Result<()> {
        let begin = self.bytes.len() - entry.stored as usize;
        let summed = verified && entry.tag == tag::RAW && entry.stored > 0;
        if !summed {
            self.close_sum(begin);
        } else {
            let from = *self.covered_from.get_or_insert(begin);
            if (self.bytes.len() - from) as u64 >= sums::COVERED {
                self.close_sum(self.bytes.len());
            }
        }
        if self.bytes.len() >= BLOCK { self.flush() } else { Ok(()) }
    }

    /// Sums up the records that wait for it, which end at `end`.
    fn close_sum(&mut self, end: usize) {
        if let Some(from) = self.covered_from.take() {
            let offset = (self.written + from as u64) as u32;
            let sum = Sum { offset, length: (end - from) as u32, hash: xxh3_64(&self.bytes[from..end]) };
            self.sums.extend_from_slice(&sum.encode());
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.close_sum(self.bytes.len());
        self.file.write_at(&self.bytes, self.written).map_err(Error::io("write", &self.path))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(Error::io("sync", &self.path))?;
        self.sum_file.write_at(&self.sums, 0).map_err(Error::io("write", &self.sum_path))?;
        self.sum_file.sync().map_err(Error::io("sync", &self.sum_path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_claims_more_chunks_than_numbers_is_refused() {
        let before = Header { tail_chunk: 3, tail_offset: 9, length: 70_000 };
        let full = Entry { offset: 0, stored: u32::MAX, length: u32::MAX, chunk: 3, tag: 0 };
        let error = Compaction::plan(Path::new("store"), before, |_| Ok(full)).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }

    #[test]
    fn a_compaction_without_new_chunks_is_refused_and_removes_nothing() {
        let header = Header { tail_chunk: 0, tail_offset: 9, length: 2 };
        let compaction = Compaction { before: header, after: header, first: 1 };
        assert!(Compaction::decode(&compaction.encode(), Path::new("x")).is_err());
    }

    #[test]
    fn a_file_that_is_named_almost_like_a_chunk_is_no_chunk() {
        assert_eq!((chunk_of(Path::new("s/7.zr")), sums::chunk_of(Path::new("s/7.sum"))), (Some(7), Some(7)));
        for name in ["+7.zr", "007.zr", "70000.zr", "meta.zr", "7.zr.zr", "+7.sum", "7.zr.unfinished"] {
            let path = Path::new("s").join(name);
            assert_eq!(chunk_of(&path).or(sums::chunk_of(&path)), None, "{name}");
        }
    }
}
