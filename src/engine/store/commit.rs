//! commit.zr: what certifies the records that were appended since the header last moved.
//!
//! The header on disk moves only when everything before it is durable. A killed process still loses nothing that
//! `append` returned, since each append writes one of two slots, in turn:
//!
//! ```text
//! 0   magic "ZRCOMMIT"
//! 8   sequence u64               the slot with the higher one is the later one
//! 16  header before              as it stands in meta.zr
//! 32  header after               what the header becomes with the records between
//! 48  generation u64             how many deletions the store has seen
//! 56  XXH3-128 of the entries between, then of their stored bytes
//! 88  XXH3-64 of bytes 0 to 88
//! ```
//!
//! Slot 1 lies 4096 bytes behind slot 0, so that no torn write reaches both. Opening takes the latest slot whose
//! `before` is the header on disk and whose hashes agree with what is on disk, and the header alone where there is
//! none: after a power failure the records that had not reached the disk are cut off as a suffix, and a header that
//! another program moved voids the slots.

use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::format::{CHUNK_SIZE, ENTRY_SIZE, Entry, HEADER_SIZE, Header, MAX_CHUNKS, chunk_name, entry_offset};
use super::io::{Access, Disk, DiskFile};
use crate::error::{Corruption, Error, Result};

const MAGIC: [u8; 8] = *b"ZRCOMMIT";
const SLOT_SIZE: usize = 96;
const SLOT_DISTANCE: u64 = 4096;
/// How much is read at a time when a suffix is verified.
const BLOCK: usize = 1 << 20;

/// The hashes over what lies between two headers.
#[derive(Clone, Default)]
pub(super) struct Digest {
    entries: Xxh3Default,
    stored: Xxh3Default,
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest")
    }
}

impl Digest {
    pub(super) fn entries(&mut self, bytes: &[u8]) {
        self.entries.update(bytes);
    }

    /// Takes stored bytes, in the order of their records.
    pub(super) fn stored(&mut self, bytes: &[u8]) {
        self.stored.update(bytes);
    }

    fn finish(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.entries.digest128().to_le_bytes());
        bytes[16..].copy_from_slice(&self.stored.digest128().to_le_bytes());
        bytes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    sequence: u64,
    before: Header,
    after: Header,
    generation: u64,
    digest: [u8; 32],
}

impl Slot {
    fn encode(&self) -> [u8; SLOT_SIZE] {
        let mut bytes = [0; SLOT_SIZE];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.before.encode());
        bytes[32..48].copy_from_slice(&self.after.encode());
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        bytes[56..88].copy_from_slice(&self.digest);
        let hash = xxh3_64(&bytes[..88]);
        bytes[88..96].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// `None` where the bytes are no slot: torn, never written, or of another format.
    fn decode(bytes: &[u8; SLOT_SIZE]) -> Option<Slot> {
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let header = |at: usize| Header::decode(bytes[at..at + 16].try_into().ok()?, Path::new("")).ok();
        if bytes[0..8] != MAGIC || word(88)? != xxh3_64(&bytes[..88]) {
            return None;
        }
        Some(Slot {
            sequence: word(8)?,
            before: header(16)?,
            after: header(32)?,
            generation: word(48)?,
            digest: bytes[56..88].try_into().ok()?,
        })
    }
}

/// What opening found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recovered {
    /// The header on disk.
    pub(super) on_disk: Header,
    /// The store's state: the header, and what a slot certifies beyond it.
    pub(super) live: Header,
    pub(super) generation: u64,
    /// Whether the sums of raw records hold: this crate made the header. Where another program did, it may have moved
    /// records.
    pub(super) sums_hold: bool,
    sequence: u64,
    /// The slot that may be overwritten next.
    next: usize,
}

/// Reads the store's state, without changing anything. Another process may be writing meanwhile: the header is read
/// until it stands still, and a slot that is being replaced is one that does not verify.
pub(super) fn recover(disk: &dyn Disk, dir: &Path, meta: &dyn DiskFile, meta_path: &Path) -> Result<Recovered> {
    let mut header = read_header(meta, meta_path)?;
    loop {
        let slots = read_slots(disk, &dir.join(super::format::COMMIT))?;
        let again = read_header(meta, meta_path)?;
        if again == header {
            return settle(disk, dir, meta, header, slots);
        }
        header = again;
    }
}

fn settle(
    disk: &dyn Disk,
    dir: &Path,
    meta: &dyn DiskFile,
    header: Header,
    slots: [Option<Slot>; 2],
) -> Result<Recovered> {
    let mut by_age: Vec<(usize, Slot)> =
        slots.into_iter().enumerate().filter_map(|(i, slot)| Some((i, slot?))).collect();
    by_age.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.sequence));
    let latest = by_age.first();
    let mut recovered = Recovered {
        on_disk: header,
        live: header,
        generation: latest.map_or(0, |(_, slot)| slot.generation),
        sums_hold: by_age.iter().any(|(_, slot)| slot.before == header || slot.after == header),
        sequence: latest.map_or(0, |(_, slot)| slot.sequence),
        next: latest.map_or(0, |(i, _)| 1 - i),
    };
    for (i, slot) in by_age {
        if slot.before == header && slot.after != header && verify(disk, dir, meta, &slot) {
            recovered.live = slot.after;
            recovered.next = 1 - i;
            break;
        }
    }
    Ok(recovered)
}

pub(super) fn read_header(meta: &dyn DiskFile, path: &Path) -> Result<Header> {
    let mut bytes = [0; HEADER_SIZE as usize];
    meta.read_at(&mut bytes, 0).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            super::format::not_a_store(path, "its meta.zr is shorter than a header of 16 bytes")
        }
        _ => Error::io("read", path)(e),
    })?;
    Header::decode(&bytes, path)
}

fn read_slots(disk: &dyn Disk, path: &Path) -> Result<[Option<Slot>; 2]> {
    if !disk.exists(path) {
        return Ok([None; 2]);
    }
    let file = disk.open(path, Access::Read).map_err(Error::io("open", path))?;
    let len = file.len().map_err(Error::io("read", path))?;
    let mut slots = [None; 2];
    for (i, slot) in slots.iter_mut().enumerate() {
        let at = i as u64 * SLOT_DISTANCE;
        let mut bytes = [0; SLOT_SIZE];
        if at + SLOT_SIZE as u64 <= len {
            file.read_at(&mut bytes, at).map_err(Error::io("read", path))?;
            *slot = Slot::decode(&bytes);
        }
    }
    Ok(slots)
}

/// Refuses a table with a record behind the tail: the next append would overwrite it. Our own headers are certified;
/// one that another program moved, or a disk, may say anything.
pub(super) fn check_tail(meta: &dyn DiskFile, path: &Path, header: Header) -> Result<()> {
    let tail = (header.tail_chunk, u64::from(header.tail_offset));
    let (mut at, end) = (0, u64::from(header.length));
    let mut entries = Vec::new();
    while at < end {
        let count = (end - at).min(BLOCK as u64 / ENTRY_SIZE);
        entries.resize((count * ENTRY_SIZE) as usize, 0);
        meta.read_at(&mut entries, entry_offset(at)).map_err(Error::io("read", path))?;
        let behind = |entry: &Entry| entry.is_sound() && entry.stored > 0 && (entry.chunk, entry.end()) > tail;
        let mut found = entries.as_chunks().0.iter().map(Entry::decode).zip(at..);
        if let Some((entry, record)) = found.find(|(entry, _)| behind(entry)) {
            return Err(Error::Corrupt(Box::new(Corruption {
                path: path.to_path_buf(),
                record: Some(record),
                chunk: Some(u32::from(entry.chunk)),
                offset: Some(u64::from(entry.offset)),
                expected: format!("an end below the header's tail, {} of chunk {}", tail.1, tail.0),
                found: format!("{}, which an append would overwrite", entry.end()),
            })));
        }
        at += count;
    }
    Ok(())
}

/// Whether what the slot certifies is on disk. Anything that cannot be read is not.
fn verify(disk: &dyn Disk, dir: &Path, meta: &dyn DiskFile, slot: &Slot) -> bool {
    let (begin, end) = (u64::from(slot.before.length), u64::from(slot.after.length));
    let mut digest = Digest::default();
    let mut chunk: Option<(u16, Arc<dyn DiskFile>)> = None;
    // A run of records that follow one another in a chunk is read in one piece.
    let mut run: Option<(u16, u64, u64)> = None;
    let mut block = Vec::new();
    let mut hash_run = |run: &Option<(u16, u64, u64)>, digest: &mut Digest| -> Option<()> {
        let &Some((number, mut at, end)) = run else { return Some(()) };
        if chunk.as_ref().is_none_or(|(open, _)| *open != number) {
            chunk = Some((number, disk.open(&dir.join(chunk_name(number)), Access::Read).ok()?));
        }
        let file = &chunk.as_ref()?.1;
        while at < end {
            block.resize((end - at).min(BLOCK as u64) as usize, 0);
            file.read_at(&mut block, at).ok()?;
            digest.stored(&block);
            at += block.len() as u64;
        }
        Some(())
    };
    let place = |header: &Header| (header.tail_chunk, u64::from(header.tail_offset));
    let mut tail = place(&slot.before);
    let mut check = || -> Option<[u8; 32]> {
        let mut entries = Vec::new();
        let mut at = begin;
        while at < end {
            let count = (end - at).min(BLOCK as u64 / ENTRY_SIZE);
            entries.resize((count * ENTRY_SIZE) as usize, 0);
            meta.read_at(&mut entries, entry_offset(at)).ok()?;
            digest.entries(&entries);
            for entry in entries.as_chunks().0 {
                let entry = Entry::decode(entry);
                // Appended records lie one behind the other, from one tail to the other.
                let place = (entry.chunk, u64::from(entry.offset));
                if entry.chunk >= MAX_CHUNKS || entry.end() > CHUNK_SIZE || place < tail {
                    return None;
                }
                tail = (entry.chunk, entry.end());
                match &mut run {
                    Some((chunk, _, end)) if *chunk == entry.chunk && *end == u64::from(entry.offset) => {
                        *end = entry.end();
                    }
                    _ => {
                        hash_run(&run, &mut digest)?;
                        run = Some((entry.chunk, u64::from(entry.offset), entry.end()));
                    }
                }
            }
            at += count;
        }
        hash_run(&run, &mut digest)?;
        (tail <= place(&slot.after)).then(|| digest.finish())
    };
    begin <= end && check() == Some(slot.digest)
}

/// The writer's side of commit.zr.
#[derive(Debug)]
pub(super) struct CommitLog {
    file: Arc<dyn DiskFile>,
    path: std::path::PathBuf,
    state: Recovered,
    digest: Digest,
}

impl CommitLog {
    /// Opens commit.zr, or makes it. Nothing is certified beyond the header yet.
    pub(super) fn open(disk: &dyn Disk, dir: &Path, state: Recovered) -> Result<CommitLog> {
        let path = dir.join(super::format::COMMIT);
        let file = disk.open(&path, Access::Write).map_err(Error::io("open", &path))?;
        Ok(CommitLog { file, path, state, digest: Digest::default() })
    }

    pub(super) fn generation(&self) -> u64 {
        self.state.generation
    }

    pub(super) fn live(&self) -> Header {
        self.state.live
    }

    /// The header as it stands on disk.
    pub(super) fn on_disk(&self) -> Header {
        self.state.on_disk
    }

    /// Whether the header on disk says all there is.
    pub(super) fn is_synced(&self) -> bool {
        self.state.on_disk == self.state.live
    }

    /// The hashes so far, to go on from.
    pub(super) fn digest(&self) -> Digest {
        self.digest.clone()
    }

    /// Certifies the records up to `after`, whose hashes since the header on disk are in `digest`. Where this fails,
    /// the last state stays certified by the other slot.
    pub(super) fn certify(&mut self, after: Header, digest: Digest) -> Result<()> {
        self.write(self.state.next, after, &digest)?;
        self.state.next = 1 - self.state.next;
        self.state.live = after;
        self.digest = digest;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.path))
    }

    /// The header on disk is now `live`, durably: both slots are made void, so that they certify nothing if another
    /// program moves the header back to where it was.
    pub(super) fn settled(&mut self) -> Result<()> {
        self.state.on_disk = self.state.live;
        self.digest = Digest::default();
        self.write(self.state.next, self.state.live, &Digest::default())?;
        self.write(1 - self.state.next, self.state.live, &Digest::default())
    }

    /// The header on disk was moved to `header`, durably, by a deletion, which is a new generation, or a compaction,
    /// which is not.
    pub(super) fn moved(&mut self, header: Header, generation: u64) -> Result<()> {
        self.state.live = header;
        self.state.generation = generation;
        self.settled()
    }

    fn write(&mut self, slot: usize, after: Header, digest: &Digest) -> Result<()> {
        self.state.sequence += 1;
        let bytes = Slot {
            sequence: self.state.sequence,
            before: self.state.on_disk,
            after,
            generation: self.state.generation,
            digest: digest.finish(),
        }
        .encode();
        self.file.write_at(&bytes, slot as u64 * SLOT_DISTANCE).map_err(Error::io("write", &self.path))
    }
}
