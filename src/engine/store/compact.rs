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

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::format::{
    CHUNK_SIZE, COMPACT, Entry, HEADER_SIZE, Header, MAX_CHUNKS, META, META_SIZE, chunk_name, entry_offset,
};
use super::io::{Access, Disk, DiskFile, read_small, replace, sync_parent, unfinished};
use crate::error::{Error, Result};

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
    chunk: u16,
    offset: u64,
}

impl Packing {
    fn place(&mut self, stored: u32) -> (u16, u32) {
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
        let first = if packing.chunk < lowest { 0 } else { before.tail_chunk + 1 };
        let last = u32::from(first) + u32::from(packing.chunk);
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
            Some(Compaction { before: header(8)?, after: header(24)?, first: u16::try_from(word(40)?).ok()? })
        };
        parse().ok_or_else(|| {
            Error::corrupt(
                path,
                "a compaction that was begun, with its checksum",
                format!("{} other bytes", bytes.len()),
            )
        })
    }

    /// Copies the records, puts the new table in place, and removes the old chunks. `read` gives the stored bytes of
    /// an entry.
    pub(super) fn run(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        entry: impl Fn(u64) -> Result<Entry>,
        read: impl Fn(u64, &Entry, &mut Vec<u8>) -> Result<()>,
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
        read: impl Fn(u64, &Entry, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let meta = disk.open(new_meta, Access::Write).map_err(Error::io("create", new_meta))?;
        meta.set_len(0).and_then(|()| meta.set_len(META_SIZE)).map_err(Error::io("extend", new_meta))?;
        let mut packing = Packing { chunk: self.first, offset: 0 };
        let mut chunk = NewChunk::create(disk, dir, self.first)?;
        let (mut entries, mut first) = (Vec::new(), 0);
        for index in 0..u64::from(self.before.length) {
            let old = entry(index)?;
            let (number, offset) = packing.place(old.stored);
            if number != chunk.number {
                chunk.finish()?;
                chunk = NewChunk::create(disk, dir, number)?;
            }
            read(index, &old, &mut chunk.bytes)?;
            if chunk.bytes.len() >= BLOCK {
                chunk.flush()?;
            }
            entries.extend_from_slice(&Entry { chunk: number, offset, ..old }.encode());
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
        for chunk in chunks(disk, dir)?.into_iter().filter(|&chunk| !keeps(chunk)) {
            let path = dir.join(chunk_name(chunk));
            disk.remove_file(&path).map_err(Error::io("remove", &path))?;
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
        compaction.clear(disk, dir, header)
    } else {
        remove_if_there(disk, &path)
    }
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    if disk.exists(path) { disk.remove_file(path).map_err(Error::io("remove", path)) } else { Ok(()) }
}

/// The numbers of the chunk files that are there.
fn chunks(disk: &dyn Disk, dir: &Path) -> Result<BTreeSet<u16>> {
    let names = disk.list(dir).map_err(Error::io("list", dir))?;
    let number = |name: &std::ffi::OsString| {
        let number: u16 = name.to_str()?.strip_suffix(".zr")?.parse().ok()?;
        (chunk_name(number).as_str() == name).then_some(number)
    };
    Ok(names.iter().filter_map(number).collect())
}

/// A chunk file that is written from its begin to its end.
struct NewChunk {
    number: u16,
    file: Arc<dyn DiskFile>,
    path: std::path::PathBuf,
    bytes: Vec<u8>,
    written: u64,
}

impl NewChunk {
    fn create(disk: &dyn Disk, dir: &Path, number: u16) -> Result<NewChunk> {
        let path = dir.join(chunk_name(number));
        let file = disk.open(&path, Access::Write).map_err(Error::io("create", &path))?;
        file.set_len(0).map_err(Error::io("create", &path))?;
        Ok(NewChunk { number, file, path, bytes: Vec::new(), written: 0 })
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_at(&self.bytes, self.written).map_err(Error::io("write", &self.path))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.file.sync().map_err(Error::io("sync", &self.path))
    }
}
