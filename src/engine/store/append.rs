//! The writing side of a store: compress, place, write, certify, publish.

use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::codec::{Codec, Compressor, Dictionary};
use super::commit::{self, CommitLog, Recovered};
use super::compact::Compaction;
use super::delete::{self, Deletion};
use super::format::{
    CHUNK_SIZE, Entry, Header, MAX_CHUNKS, MAX_RECORDS, META, META_SIZE, chunk_name, entry_offset, tag,
};
use super::io::{Access, Disk, DiskFile, sync_parent};
use super::packed::Packed;
use super::sums::{self, SumBuilder, SumWriter, sum_name};
use crate::error::{Error, Result};
use crate::events::event;

/// The header moves by itself when this much was appended since it last did, so that opening after a kill never has
/// more than this to verify.
const SYNC_AFTER: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// The disk is told early of appends of this many bytes: a load of data is written while the next is made.
const EXPECT_FROM: usize = 1 << 20;
/// About how many bytes of records one compression job takes.
const JOB_BYTES: usize = 256 << 10;

/// Records in the form in which they are stored.
pub(super) struct Encoded<'a> {
    pieces: Vec<Piece<'a>>,
}

/// Stored records, end to end.
struct Piece<'a> {
    bytes: std::borrow::Cow<'a, [u8]>,
    /// Stored length, length, codec tag of each record.
    records: Vec<(u32, u32, u8)>,
}

/// Compresses records, on all cores where there is enough to do.
pub(super) fn encode<'a>(
    packed: &Packed<'a>,
    codec: Codec,
    level: i32,
    dictionary: Option<&Dictionary>,
) -> Result<Encoded<'a>> {
    // The caller has checked each record against a limit that fits u32.
    let lengths = |i: usize| packed.range(i).len() as u32;
    let own_tag = match codec {
        Codec::Raw => {
            let records = (0..packed.len()).map(|i| (lengths(i), lengths(i), tag::RAW)).collect();
            return Ok(Encoded { pieces: vec![Piece { bytes: packed.bytes.into(), records }] });
        }
        Codec::Zstd => tag::ZSTD,
        Codec::ZstdDict => tag::ZSTD_DICT,
    };
    let compress = |compressor: &mut Compressor<'_>, range: std::ops::Range<usize>| -> Result<Piece<'a>> {
        let (mut bytes, mut records) = (Vec::new(), Vec::with_capacity(range.len()));
        for i in range {
            let begin = bytes.len();
            let shrunk = compressor.append(packed.record(i), &mut bytes)?;
            records.push(((bytes.len() - begin) as u32, lengths(i), if shrunk { own_tag } else { tag::RAW }));
        }
        Ok(Piece { bytes: bytes.into(), records })
    };
    let mean = (packed.bytes.len() / packed.len().max(1)).max(1);
    let job = (JOB_BYTES / mean).max(1);
    let pieces: Vec<Result<Piece<'a>>> = (0..packed.len().div_ceil(job))
        .into_par_iter()
        .map_init(
            || Compressor::new(level, dictionary),
            |compressor, i| match compressor {
                Ok(compressor) => compress(compressor, i * job..((i + 1) * job).min(packed.len())),
                Err(e) => Err(e.clone()),
            },
        )
        .collect();
    Ok(Encoded { pieces: pieces.into_iter().collect::<Result<_>>()? })
}

/// What one handle that was opened for writing holds; one at a time a store.
#[derive(Debug)]
pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    meta: Arc<dyn DiskFile>,
    meta_path: PathBuf,
    log: CommitLog,
    /// The chunk files written since the last sync.
    dirty: BTreeMap<u16, OpenChunk>,
    /// Whether files were made whose names are not durable yet.
    new_names: bool,
    /// Stored bytes since the header moved.
    unsynced: u64,
    /// The failure after which nothing more is written.
    poison: Option<Error>,
}

/// A chunk file that is appended to, and its sums, where it has any.
#[derive(Debug)]
struct OpenChunk {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    sums: Option<SumWriter>,
}

impl Writer {
    /// Takes over a store whose write lock is held. What an earlier writer had appended and not synced is synced.
    pub(super) fn open(disk: Arc<dyn Disk>, dir: &Path, meta: Arc<dyn DiskFile>, state: Recovered) -> Result<Writer> {
        let meta_path = dir.join(META);
        let len = meta.len().map_err(Error::io("read", &meta_path))?;
        let needed = entry_offset(u64::from(state.live.length));
        if len < needed {
            // Filled up with zeros, it would say that the missing records are empty ones.
            let expected = format!("{needed} bytes, for {} records", state.live.length);
            return Err(Error::corrupt(&meta_path, expected, format!("{len} bytes")));
        }
        // Python's loaderx maps the whole table, and writes through the map.
        if len < META_SIZE {
            meta.set_len(META_SIZE).map_err(Error::io("extend", &meta_path))?;
        }
        if !state.sums_hold {
            commit::check_tail(&*meta, &meta_path, state.live)?;
            sums::remove_all(&*disk, dir)?;
        }
        let log = CommitLog::open(&*disk, dir, state)?;
        let mut writer = Writer {
            disk,
            dir: dir.to_path_buf(),
            meta,
            meta_path,
            log,
            dirty: BTreeMap::new(),
            new_names: true,
            unsynced: 0,
            poison: None,
        };
        if !writer.log.is_synced() {
            for chunk in state.on_disk.tail_chunk..=state.live.tail_chunk {
                let sums = writer.disk.exists(&dir.join(sum_name(chunk)));
                writer.chunk(chunk, sums)?;
            }
            writer.sync()?;
            event!(INFO, path = %dir.display(), synced = state.on_disk.length, records = state.live.length,
                "what a killed writer had appended was taken over");
        }
        Ok(writer)
    }

    pub(super) fn generation(&self) -> u64 {
        self.log.generation()
    }

    pub(super) fn set_generation(&mut self, generation: u64) -> Result<()> {
        let live = self.log.live();
        self.log.moved(live, generation)
    }

    /// The store's state, with all that was appended.
    pub(super) fn live(&self) -> Header {
        self.log.live()
    }

    /// Deletes the records at `indices`, which are in range, while no other handle is open; gives the state without
    /// them. `entry` reads the table. Where it fails after the deletion was begun, the writer is poisoned, and the table
    /// may be neither as before nor as after until the store is opened again.
    pub(super) fn delete(&mut self, indices: &[u64], entry: impl Fn(u64) -> Result<Entry>) -> Result<Header> {
        self.sync()?;
        self.check_alone()?;
        let deletion = Deletion::plan(self.log.live(), self.log.generation() + 1, indices, entry)?;
        if let Err(error) = deletion.begin(&*self.disk, &self.dir) {
            if delete::is_begun(&*self.disk, &self.dir) {
                self.poison = Some(error.clone());
            }
            return Err(error);
        }
        // From here on it cannot be taken back, even where all that fails is to make the end durable.
        let done = deletion.finish(&*self.disk, &self.dir, &*self.meta, &mut self.log);
        self.poison = done.as_ref().err().cloned();
        done.map(|()| deletion.after)
    }

    /// Copies the records into fresh chunks, while no other handle is open. Whether it succeeds or not,
    /// [`reopen`](Writer::reopen) is due after it.
    pub(super) fn compact(
        &mut self,
        entry: impl Fn(u64) -> Result<Entry>,
        read: impl Fn(u64, &Entry, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.sync()?;
        self.check_alone()?;
        Compaction::plan(&self.dir, self.log.live(), &entry)?.run(&*self.disk, &self.dir, entry, read)
    }

    /// Takes over what is on disk after the table was replaced, or was not, and gives the table's file.
    pub(super) fn reopen(&mut self) -> Result<Arc<dyn DiskFile>> {
        let reopened = || {
            let meta = self.disk.open(&self.meta_path, Access::Write).map_err(Error::io("open", &self.meta_path))?;
            let header = commit::read_header(&*meta, &self.meta_path)?;
            Ok((meta, header))
        };
        let done: Result<Arc<dyn DiskFile>> = reopened().and_then(|(meta, header)| {
            self.meta = Arc::clone(&meta);
            self.dirty.clear();
            let generation = self.log.generation();
            if header != self.log.live() {
                self.log.moved(header, generation)?;
            }
            Ok(meta)
        });
        if let Err(error) = &done {
            self.poison = Some(error.clone());
        }
        done
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// A chunk file to append to, with its sums where they are asked for.
    fn chunk(&mut self, chunk: u16, sums: bool) -> Result<&mut OpenChunk> {
        let open = match self.dirty.entry(chunk) {
            btree_map::Entry::Occupied(open) => open.into_mut(),
            btree_map::Entry::Vacant(vacant) => {
                let path = self.dir.join(chunk_name(chunk));
                self.new_names |= !self.disk.exists(&path);
                let file = self.disk.open(&path, Access::Write).map_err(Error::io("open", &path))?;
                vacant.insert(OpenChunk { file, path, sums: None })
            }
        };
        if sums && open.sums.is_none() {
            let live = self.log.live();
            let tail = match chunk.cmp(&live.tail_chunk) {
                Ordering::Less => CHUNK_SIZE,
                Ordering::Equal => u64::from(live.tail_offset),
                Ordering::Greater => 0,
            };
            let path = self.dir.join(sum_name(chunk));
            self.new_names |= !self.disk.exists(&path);
            open.sums = Some(SumWriter::open(&*self.disk, path, tail)?);
        }
        Ok(open)
    }

    fn check_poison(&self) -> Result<()> {
        match &self.poison {
            Some(source) => Err(Error::Poisoned { path: self.dir.clone(), source: Box::new(source.clone()) }),
            None => Ok(()),
        }
    }

    /// Holds the header on disk to what this writer put there. Another program, which takes no lock, may have appended
    /// where this writer is about to: nothing of it is overwritten.
    fn check_alone(&mut self) -> Result<()> {
        self.check_poison()?;
        if commit::read_header(&*self.meta, &self.meta_path)? == self.log.on_disk() {
            return Ok(());
        }
        let error = Error::Locked {
            path: self.meta_path.clone(),
            reason: "another program changed the store while this handle had it open for writing: open it again, and \
                     append again what was not synced"
                .into(),
        };
        self.poison = Some(error.clone());
        Err(error)
    }

    /// Appends records and gives the store's state with them. Nothing of them can be read before that state is
    /// published, and where this fails, nothing of them is there.
    pub(super) fn append(&mut self, encoded: &Encoded<'_>) -> Result<Header> {
        self.check_alone()?;
        let before = self.log.live();
        let placed = place(encoded, before, &self.meta_path)?;
        let mut digest = self.log.digest();
        for run in &placed.runs {
            let chunk = self.chunk(run.chunk, false)?;
            chunk.file.write_at(run.bytes, run.offset).map_err(Error::io("write", &chunk.path))?;
            if run.bytes.len() >= EXPECT_FROM {
                chunk.file.expect_sync(run.offset, run.bytes.len() as u64);
            }
            digest.stored(run.bytes);
            self.unsynced += run.bytes.len() as u64;
        }
        for (&chunk, sums) in &placed.sums {
            if let Some(writer) = &mut self.chunk(chunk, true)?.sums {
                writer.write(sums)?;
            }
        }
        let at = entry_offset(u64::from(before.length));
        self.meta.write_at(&placed.entries, at).map_err(Error::io("write", &self.meta_path))?;
        digest.entries(&placed.entries);
        self.log.certify(placed.after, digest)?;
        for (chunk, sums) in &placed.sums {
            if let Some(writer) = self.dirty.get_mut(chunk).and_then(|open| open.sums.as_mut()) {
                writer.keep(sums);
            }
        }
        Ok(placed.after)
    }

    /// Whether enough was appended for the header to move.
    pub(super) fn wants_sync(&self) -> bool {
        self.unsynced >= SYNC_AFTER
    }

    /// Makes all that was appended durable, then moves the header. A failure poisons the writer: what the system
    /// dropped after a failed sync cannot be told, so it is never tried again.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check_poison()?;
        if self.log.is_synced() {
            return Ok(());
        }
        self.check_alone()?;
        let done = self.sync_in_order();
        self.poison = done.as_ref().err().cloned();
        done?;
        event!(DEBUG, path = %self.dir.display(), records = self.log.live().length, "a store was synced");
        Ok(())
    }

    fn sync_in_order(&mut self) -> Result<()> {
        for chunk in self.dirty.values() {
            chunk.file.sync().map_err(Error::io("sync", &chunk.path))?;
            if let Some(sums) = &chunk.sums {
                sums.sync()?;
            }
        }
        if self.new_names {
            sync_parent(&*self.disk, &self.meta_path)?;
        }
        let sync_meta = || self.meta.sync().map_err(Error::io("sync", &self.meta_path));
        sync_meta()?;
        self.log.sync()?;
        let header = self.log.live().encode();
        self.meta.write_at(&header, 0).map_err(Error::io("write", &self.meta_path))?;
        sync_meta()?;
        self.dirty.clear();
        self.new_names = false;
        self.unsynced = 0;
        self.log.settled()
    }
}

/// Bytes that go to one place of one chunk.
struct Run<'a> {
    chunk: u16,
    offset: u64,
    bytes: &'a [u8],
}

/// What is to be written where, and the state that it makes.
struct Placed<'a> {
    after: Header,
    /// The new entries of the table.
    entries: Vec<u8>,
    runs: Vec<Run<'a>>,
    /// The new sums of each chunk.
    sums: BTreeMap<u16, Vec<u8>>,
}

/// Gives each record its place after the tail: one behind the other, and a fresh chunk where one would not end below
/// 4 GiB.
fn place<'a>(encoded: &'a Encoded<'_>, before: Header, meta: &Path) -> Result<Placed<'a>> {
    let count: usize = encoded.pieces.iter().map(|piece| piece.records.len()).sum();
    let length = u64::from(before.length) + count as u64;
    if length > MAX_RECORDS {
        return Err(Error::unsupported(
            meta,
            format!("a store of {length} records"),
            format!("version 3 of the format holds at most {MAX_RECORDS}: use several stores"),
        ));
    }
    let (mut chunk, mut offset) = (before.tail_chunk, u64::from(before.tail_offset));
    let mut entries = Vec::with_capacity(count * 16);
    let (mut runs, mut sums) = (Vec::new(), SumBuilder::default());
    for piece in &encoded.pieces {
        let (mut begin, mut end, mut begin_offset) = (0, 0, offset);
        for &(stored, length, tag) in &piece.records {
            if offset + u64::from(stored) >= CHUNK_SIZE {
                runs.push(Run { chunk, offset: begin_offset, bytes: &piece.bytes[begin..end] });
                chunk += 1;
                (begin, offset, begin_offset) = (end, 0, 0);
                if chunk >= MAX_CHUNKS {
                    return Err(Error::unsupported(
                        meta,
                        format!("a store of more than {MAX_CHUNKS} chunks"),
                        "version 3 of the format holds no more: use several stores",
                    ));
                }
            }
            let entry = Entry { offset: offset as u32, stored, length, chunk, tag };
            entries.extend_from_slice(&entry.encode());
            sums.record(&entry, &piece.bytes, end..end + stored as usize);
            offset += u64::from(stored);
            end += stored as usize;
        }
        runs.push(Run { chunk, offset: begin_offset, bytes: &piece.bytes[begin..end] });
    }
    runs.retain(|run| !run.bytes.is_empty());
    let after = Header { tail_chunk: chunk, tail_offset: offset as u32, length: length as u32 };
    Ok(Placed { after, entries, runs, sums: sums.finish() })
}
