//! Deleting records: the last ones are moved into the holes, so that the index space stays dense.
//!
//! Entries are overwritten in place, so what is to become of them is written to a file first, delete.zr:
//!
//! ```text
//! 0   magic "ZRDELETE"
//! 8   header before · header after
//! 40  generation u64, that of the store without the records
//! 48  count u64
//! 56  count times: index u32 · entry
//! end XXH3-64 of all before
//! ```
//!
//! From the moment that file has its name the records are deleted: whoever opens the store next finishes the work, as
//! often as it takes.

use std::collections::HashMap;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::commit::{self, CommitLog};
use super::format::{DELETE, ENTRY_SIZE, Entry, HEADER_SIZE, Header, MAX_RECORDS, META, entry_offset};
use super::io::{Access, Disk, DiskFile, read_small, replace, sync_parent};
use crate::error::{Error, Result};
use crate::events::event;

const MAGIC: [u8; 8] = *b"ZRDELETE";
const HEAD: usize = 56;
const MOVE_SIZE: usize = 4 + ENTRY_SIZE as usize;
const MAX_SIZE: u64 = HEAD as u64 + MAX_RECORDS * MOVE_SIZE as u64 + 8;

/// What a deletion does to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deletion {
    before: Header,
    pub(super) after: Header,
    generation: u64,
    /// The entries that change, by ascending index.
    moves: Vec<(u32, Entry)>,
}

impl Deletion {
    /// Plans to delete the records at `indices`, which are in range; an index may repeat. Each hole, the last first, takes
    /// the record that is the last at that moment.
    pub(super) fn plan(
        before: Header,
        generation: u64,
        indices: &[u64],
        entry: impl Fn(u64) -> Result<Entry>,
    ) -> Result<Deletion> {
        let mut holes = indices.to_vec();
        holes.sort_unstable_by(|a, b| b.cmp(a));
        holes.dedup();
        let mut moved: HashMap<u64, Entry> = HashMap::new();
        let mut length = u64::from(before.length);
        for hole in holes {
            length -= 1;
            let last = match moved.remove(&length) {
                Some(entry) => entry,
                None => entry(length)?,
            };
            if hole != length {
                moved.insert(hole, last);
            }
        }
        let mut moves: Vec<(u32, Entry)> = moved.into_iter().map(|(index, entry)| (index as u32, entry)).collect();
        moves.sort_unstable_by_key(|(index, _)| *index);
        Ok(Deletion { before, after: Header { length: length as u32, ..before }, generation, moves })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.moves.len() * MOVE_SIZE + 8);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.before.encode());
        bytes.extend_from_slice(&self.after.encode());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&(self.moves.len() as u64).to_le_bytes());
        for (index, entry) in &self.moves {
            bytes.extend_from_slice(&index.to_le_bytes());
            bytes.extend_from_slice(&entry.encode());
        }
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Deletion> {
        let parse = || {
            let (content, hash) = bytes.split_last_chunk()?;
            let (head, moves) = content.split_at_checked(HEAD)?;
            let header = |at: usize| Header::decode(head[at..at + HEADER_SIZE as usize].try_into().ok()?, path).ok();
            let (moves, rest) = moves.as_chunks::<MOVE_SIZE>();
            let count = u64::from_le_bytes(*head.last_chunk()?);
            let generation = u64::from_le_bytes(head[40..48].try_into().ok()?);
            if u64::from_le_bytes(*hash) != xxh3_64(content)
                || head[..8] != MAGIC
                || !rest.is_empty()
                || count != moves.len() as u64
            {
                return None;
            }
            let moves = moves
                .iter()
                .map(|bytes| Some((u32::from_le_bytes(*bytes.first_chunk()?), Entry::decode(bytes.last_chunk()?))));
            let (before, after) = (header(8)?, header(24)?);
            let moves: Vec<(u32, Entry)> = moves.collect::<Option<_>>()?;
            let fits = after.length <= before.length && moves.iter().all(|(index, _)| *index < after.length);
            fits.then_some(Deletion { before, after, generation, moves })
        };
        parse().ok_or_else(|| {
            Error::corrupt(path, "a deletion that was begun, with its checksum", format!("{} other bytes", bytes.len()))
        })
    }

    /// Writes delete.zr: from its end on, the records are deleted.
    pub(super) fn begin(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        replace(disk, &dir.join(DELETE), &self.encode())
    }

    /// Changes the table, durably, tells commit.zr, and removes delete.zr.
    pub(super) fn finish(&self, disk: &dyn Disk, dir: &Path, meta: &dyn DiskFile, log: &mut CommitLog) -> Result<()> {
        let meta_path = dir.join(META);
        let write = |bytes: &[u8], at| meta.write_at(bytes, at).map_err(Error::io("write", &meta_path));
        let sync = || meta.sync().map_err(Error::io("sync", &meta_path));
        for (index, entry) in &self.moves {
            write(&entry.encode(), entry_offset(u64::from(*index)))?;
        }
        sync()?;
        write(&self.after.encode(), 0)?;
        sync()?;
        log.moved(self.after, self.generation)?;
        log.sync()?;
        remove(disk, &dir.join(DELETE))
    }
}

/// Whether a deletion is under way or was cut off.
pub(super) fn is_begun(disk: &dyn Disk, dir: &Path) -> bool {
    disk.exists(&dir.join(DELETE))
}

/// Finishes a deletion that was cut off; the write lock is held. Nothing is done where another program has moved the
/// header since.
pub(super) fn recover(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join(DELETE);
    if !disk.exists(&path) {
        return Ok(());
    }
    let deletion = Deletion::decode(&read_small(disk, &path, MAX_SIZE)?, &path)?;
    let meta_path = dir.join(META);
    let meta = disk.open(&meta_path, Access::Write).map_err(Error::io("open", &meta_path))?;
    let header = commit::read_header(&*meta, &meta_path)?;
    if header == deletion.before || header == deletion.after {
        let mut log = CommitLog::open(disk, dir, commit::recover(disk, dir, &*meta, &meta_path)?)?;
        deletion.finish(disk, dir, &*meta, &mut log)?;
        event!(INFO, path = %dir.display(), records = deletion.after.length, "a deletion that was cut off was finished");
        Ok(())
    } else {
        remove(disk, &path)
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.remove_file(path).map_err(Error::io("remove", path))?;
    sync_parent(disk, path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(index: u64) -> Entry {
        Entry { offset: index as u32, stored: 7, length: 7, chunk: 3, tag: 0 }
    }

    #[test]
    fn a_deletion_that_would_write_outside_of_its_table_is_refused() {
        let (before, after) = (Header { length: 5, ..Header::default() }, Header { length: 3, ..Header::default() });
        for (before, after, index, fits) in
            [(before, after, 2, true), (before, after, 3, false), (after, before, 0, false)]
        {
            let deletion = Deletion { before, after, generation: 1, moves: vec![(index, entry(0))] };
            assert_eq!(Deletion::decode(&deletion.encode(), Path::new("x")).is_ok(), fits);
        }
    }

    proptest! {
        #[test]
        fn a_deletion_leaves_what_swap_remove_leaves(length in 1u32..60, indices in proptest::collection::vec(0u64..60, 0..80)) {
            let indices: Vec<u64> = indices.into_iter().map(|i| i % u64::from(length)).collect();
            let before = Header { tail_chunk: 3, tail_offset: 9000, length };
            let deletion = Deletion::plan(before, 8, &indices, |i| Ok(entry(i))).unwrap();
            let mut wanted: Vec<u64> = (0..u64::from(length)).collect();
            let mut holes = indices.clone();
            holes.sort_unstable();
            holes.dedup();
            holes.iter().rev().for_each(|&hole| { wanted.swap_remove(hole as usize); });
            let mut found: Vec<u64> = (0..u64::from(deletion.after.length)).collect();
            deletion.moves.iter().for_each(|(i, entry)| found[*i as usize] = u64::from(entry.offset));
            prop_assert_eq!(found, wanted);
            let bytes = deletion.encode();
            prop_assert_eq!(&Deletion::decode(&bytes, Path::new("x")).unwrap(), &deletion);
            for cut in 0..bytes.len() {
                prop_assert!(Deletion::decode(&bytes[..cut], Path::new("x")).is_err());
            }
        }
    }
}
