//! `Store`: one open store.

use std::fmt;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::append::{self, Writer};
use super::codec::{self, Codec, DictSize, Dictionary};
use super::commit;
#[cfg(feature = "remote")]
use super::far::RemoteStats;
use super::format::{DICT, Header, MAX_SCHEMA, META, SCHEMA, chunk_name, tag};
use super::gather::{Layout, gather_fixed};
use super::io::{Access, Disk, LockGuard, OsDisk, read_small, replace};
use super::lock::{self, Locks};
use super::options::{ReadMode, StoreOptions, Verify};
use super::packed::Packed;
use super::reader::{Chunks, Located, Reader, Table};
use super::runs::Runs;
use super::slot;
use super::sums::Sums;
use super::url;
use crate::error::{Error, Result};
use crate::events::event;

/// What a store holds: see [`Store::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How many records.
    pub records: u64,
    /// Stored bytes of all records.
    pub live_bytes: u64,
    /// Bytes of the chunk files, up to where the next record goes.
    pub chunk_bytes: u64,
    /// What compacting could free at most: bytes of chunk files that no record uses.
    pub reclaimable: u64,
}

/// Where a record lies: see [`Store::places`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The number of the chunk file.
    pub chunk: u32,
    /// The byte in it at which the record begins.
    pub offset: u64,
    /// How many bytes it takes there: of one that shrank, its compressed length.
    pub stored: u64,
}

/// Packed records: record `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// The bytes of all records, end to end.
    pub bytes: Vec<u8>,
    /// Where each record begins, and at last where the last one ends: one more than there are records.
    pub offsets: Vec<u64>,
}

impl Records {
    /// Record `i`, `None` past the last.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let (begin, end) = (*self.offsets.get(i)?, *self.offsets.get(i + 1)?);
        self.bytes.get(begin as usize..end as usize)
    }
}

/// How many records, and how many bytes: not the bytes themselves.
impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.offsets.len().saturating_sub(1);
        f.debug_struct("Records").field("records", &records).field("bytes", &self.bytes.len()).finish()
    }
}

/// A persistent store of byte records: encoded images, audio, or anything else without a dtype. Datasets are typed
/// views over one.
///
/// Records are appended in batches and read by index, in any order, from any number of threads at a time. What
/// `append` returned is there after the process is killed; after [`sync`](Store::sync) it survives a power failure.
/// Dropping a handle syncs too, but cannot say what went wrong; [`close`](Store::close) does.
///
/// ```
/// # fn main() -> loaderx::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("store");
/// use loaderx::{Codec, Store};
///
/// let store = Store::create(&path, Codec::Zstd)?;
/// let first = store.append(b"onethree", &[0, 3, 8])?;
/// assert_eq!(first, 0);
/// store.close()?;
///
/// let store = Store::open(&path)?;
/// let records = store.gather(&[1, 0, 1])?;
/// assert_eq!(records.get(0), Some(&b"three"[..]));
/// assert_eq!(records.offsets, [0, 5, 8, 13]);
/// # Ok(())
/// # }
/// ```
pub struct Store {
    dir: PathBuf,
    options: StoreOptions,
    table: Table,
    /// `None` for a handle that writes, and so changes the table itself.
    runs: Option<Runs>,
    chunks: Chunks,
    sums: Sums,
    dictionary: RwLock<Option<Arc<Dictionary>>>,
    /// How many records can be read.
    len: AtomicU64,
    /// The state when the store was opened.
    opened: Header,
    generation: u64,
    /// `None` for a handle that reads.
    writer: Option<Mutex<Writer>>,
    // Last, so that the locks are given back when all else is closed.
    locks: Locks,
}

impl Store {
    /// Creates an empty store: [`StoreOptions::create`] with that codec.
    ///
    /// # Errors
    /// As there.
    pub fn create(path: impl AsRef<Path>, codec: Codec) -> Result<Store> {
        StoreOptions::new().codec(codec).create(path)
    }

    /// Opens a store for reading: [`StoreOptions::open`] with the defaults.
    ///
    /// # Errors
    /// As there.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        StoreOptions::new().open(path)
    }

    /// Opens a store that was checked to be one; `write` is its write lock, where it is to be written to.
    pub(super) fn open_with(options: StoreOptions, dir: &Path, write: Option<LockGuard>) -> Result<Store> {
        let disk = &options.disk;
        let writable = write.is_some();
        let locks = lock::handle(&**disk, dir, write)?;
        if !writable {
            lock::finish_deletion(&**disk, dir)?;
        }
        let meta_path = dir.join(META);
        let access = if writable { Access::Write } else { Access::Read };
        let meta = disk.open(&meta_path, access).map_err(Error::io("open", &meta_path))?;
        let state = commit::recover(&**disk, dir, &*meta, &meta_path)?;
        let dictionary = Dictionary::open(&**disk, &dir.join(DICT))?.map(Arc::new);
        let writer = if writable { Some(Writer::open(Arc::clone(disk), dir, Arc::clone(&meta), state)?) } else { None };
        // What comes from elsewhere is kept in files of this crate's own.
        let mapped = options.read_mode == ReadMode::Mapped || disk.far().is_some();
        let table = Table::new(meta, mapped, &meta_path)?;
        event!(DEBUG, path = %dir.display(), records = state.live.length, writable, "a store is open");
        Ok(Store {
            runs: if writable { None } else { table.runs(u64::from(state.live.length)) },
            table,
            chunks: Chunks::new(Arc::clone(disk), dir.to_path_buf(), mapped),
            // A writer has removed sums that do not hold.
            sums: Sums::new(Arc::clone(disk), dir.to_path_buf(), mapped, state.sums_hold || writable),
            dictionary: RwLock::new(dictionary),
            len: AtomicU64::new(u64::from(state.live.length)),
            opened: state.live,
            generation: state.generation,
            writer: writer.map(Mutex::new),
            dir: dir.to_path_buf(),
            options,
            locks,
        })
    }

    /// How many records there are. Records that another handle appends are not among them.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// How new records are compressed.
    pub fn codec(&self) -> Codec {
        self.options.codec
    }

    fn check_writable(&self, action: &'static str) -> Result<&Mutex<Writer>> {
        self.writer.as_ref().ok_or_else(|| Error::ReadOnly { path: self.dir.clone(), action })
    }

    fn writer(&self, action: &'static str) -> Result<MutexGuard<'_, Writer>> {
        // A panic while the lock was held leaves the writer as it was before its last step.
        Ok(self.check_writable(action)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn dictionary(&self) -> Option<Arc<Dictionary>> {
        self.dictionary.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reader(&self) -> Reader<'_> {
        let reader = Reader::new(&self.table, &self.chunks, self.dictionary(), self.len());
        let reader = reader.knowing(self.runs.as_ref()).receiving(&self.sums);
        match self.options.verify {
            Verify::Off => reader,
            Verify::Always => reader.verifying(&self.sums),
        }
    }

    /// A reader that verifies raw records, whatever the options are.
    pub(super) fn verifying_reader(&self) -> Reader<'_> {
        let len = self.len();
        Reader::new(&self.table, &self.chunks, self.dictionary(), len).receiving(&self.sums).verifying(&self.sums)
    }

    /// Appends records and gives the index of the first: record `i` is `bytes[offsets[i]..offsets[i + 1]]`, so there is
    /// one offset more than records, the first is 0 and the last is `bytes.len()`. A record may be empty.
    ///
    /// May be called from any number of threads; the records of one call stay together.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Invalid`] for offsets that are not as described and for a record over the limit;
    /// [`Error::Dictionary`] before one is trained; [`Error::Unsupported`] where the format is full; [`Error::Io`].
    /// After an error none of the records is in the store.
    pub fn append(&self, bytes: &[u8], offsets: &[u64]) -> Result<u64> {
        self.append_packed(&Packed::with_offsets(bytes, offsets)?)
    }

    /// Appends `count` records of `length` bytes each.
    pub(crate) fn append_fixed(&self, bytes: &[u8], length: usize, count: usize) -> Result<u64> {
        self.append_packed(&Packed::fixed(bytes, length, count)?)
    }

    fn append_packed(&self, packed: &Packed<'_>) -> Result<u64> {
        self.check_writable("append")?;
        let limit = self.options.record_limit;
        if let Some(i) = (0..packed.len()).find(|&i| packed.range(i).len() as u64 > u64::from(limit)) {
            return Err(Error::invalid(
                "record",
                format!(
                    "record {i} of the batch has {} bytes, over the limit of {limit}: open the store with a larger \
                     record_limit",
                    packed.range(i).len()
                ),
            ));
        }
        let codec = self.options.codec;
        let level = self.options.level.unwrap_or(codec::default_level(codec));
        loop {
            let dictionary = if codec == Codec::ZstdDict { Some(self.trained()?) } else { None };
            let encoded = append::encode(packed, codec, level, dictionary.as_deref())?;
            let mut writer = self.writer("append")?;
            if let Some(dictionary) = &dictionary
                && !Arc::ptr_eq(dictionary, &self.trained()?)
            {
                // Another thread trained a dictionary meanwhile: these frames need the old one.
                continue;
            }
            let after = writer.append(&encoded)?;
            self.len.store(u64::from(after.length), Ordering::Release);
            if writer.wants_sync() {
                // The records are in the store, and an error would say that they are not: a failure poisons the
                // writer, and every later call gives it.
                let _ = writer.sync();
            }
            return Ok(u64::from(after.length) - packed.len() as u64);
        }
    }

    fn trained(&self) -> Result<Arc<Dictionary>> {
        self.dictionary().ok_or_else(|| {
            Error::dictionary(&self.dir, "the codec is zstd_dict, and no dictionary was trained: call train_dict first")
        })
    }

    /// The length of each record in bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Corrupt`].
    pub fn lengths(&self, indices: &[u64]) -> Result<Vec<u64>> {
        let reader = self.reader();
        indices.iter().map(|&index| Ok(u64::from(reader.locate(index)?.entry.length))).collect()
    }

    /// How many bytes each record takes in the chunk files: of one that shrank, its compressed length.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Corrupt`].
    pub fn stored_lengths(&self, indices: &[u64]) -> Result<Vec<u64>> {
        let reader = self.reader();
        indices.iter().map(|&index| Ok(u64::from(reader.locate(index)?.entry.stored))).collect()
    }

    /// Where each record lies in the chunk files.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Corrupt`].
    pub fn places(&self, indices: &[u64]) -> Result<Vec<Place>> {
        let reader = self.reader();
        let place = |&index| {
            let entry = reader.locate(index)?.entry;
            Ok(Place { chunk: entry.chunk.into(), offset: entry.offset.into(), stored: entry.stored.into() })
        };
        indices.iter().map(place).collect()
    }

    /// One record.
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn get(&self, index: u64) -> Result<Vec<u8>> {
        Ok(self.gather(&[index])?.bytes)
    }

    /// The records at `indices`, in that order; an index may repeat.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Corrupt`], which names the record and its place; [`Error::Dictionary`];
    /// [`Error::Io`].
    pub fn gather(&self, indices: &[u64]) -> Result<Records> {
        let mut records = Records::default();
        self.gather_into(indices, &mut records)?;
        Ok(records)
    }

    /// The same into `records`, whose memory is used again. After an error `records` is empty.
    ///
    /// # Errors
    /// As [`gather`](Store::gather).
    pub fn gather_into(&self, indices: &[u64], records: &mut Records) -> Result<()> {
        records.bytes.clear();
        records.offsets.clear();
        let reader = self.reader();
        let layout = Layout::new(&reader, indices)?;
        slot::extend(&mut records.bytes, layout.len(), |out| layout.gather(&reader, out))?;
        records.offsets = layout.offsets;
        Ok(())
    }

    /// Looks records up and checks their entries.
    pub(crate) fn locate(&self, indices: &[u64]) -> Result<Layout> {
        Layout::new(&self.reader(), indices)
    }

    /// Fills `out`, which is `layout.len()` bytes long, wholly.
    pub(crate) fn gather_located(&self, layout: &Layout, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        layout.gather(&self.reader(), out)
    }

    /// Fills `out`, of `indices.len() * length` bytes, wholly; a record of another length is an error.
    pub(crate) fn gather_fixed(&self, indices: &[u64], length: usize, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        gather_fixed(&self.reader(), indices, length, out)
    }

    /// Says that the records at `indices` will be gathered soon: where they have to come from object storage, they are
    /// fetched meanwhile. It does not wait, and does nothing for a store on this disk. `false` where as much is on its way
    /// already as there is room for: then it is to be said again later.
    pub fn prefetch(&self, indices: &[u64]) -> bool {
        let reader = self.reader();
        reader.expect(indices.iter().map(|&index| reader.peek(index)))
    }

    /// What this handle has fetched so far from object storage; `None` for a store on this disk.
    #[cfg(feature = "remote")]
    pub fn remote_stats(&self) -> Option<RemoteStats> {
        self.chunks.far().map(|far| far.stats())
    }

    /// Whether the records have to come from object storage.
    pub(crate) fn is_far(&self) -> bool {
        self.chunks.far().is_some()
    }

    /// Deletes the records at `indices`, in any order; one that repeats is deleted once. The last records take the
    /// places of the deleted ones, so that the indices are again all below [`len`](Store::len); the bytes stay in the
    /// chunk files until [`compact`](Store::compact). Durable when this returns.
    ///
    /// # Errors
    /// [`Error::Locked`] while another handle has the store open; [`Error::OutOfRange`]; [`Error::ReadOnly`];
    /// [`Error::Corrupt`]; [`Error::Io`]. After an error nothing is deleted, unless it struck when the deletion was
    /// already written down: then this handle holds no records any more, and opening the store again finishes it.
    pub fn delete(&mut self, indices: &[u64]) -> Result<()> {
        self.check_writable("delete")?;
        let len = self.len();
        if let Some(&index) = indices.iter().find(|&&index| index >= len) {
            return Err(Error::OutOfRange { index, len });
        }
        if indices.is_empty() {
            return Ok(());
        }
        let Store { locks, writer: Some(writer), table, chunks, options, dir, .. } = self else { return Ok(()) };
        let writer = writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let reader = Reader::new(table, chunks, None, len);
        let done = locks.alone(&*options.disk, dir, || writer.delete(indices, |index| Ok(reader.locate(index)?.entry)));
        let left = match &done {
            Ok(after) => u64::from(after.length),
            Err(_) if writer.is_poisoned() => 0,
            Err(_) => len,
        };
        self.generation = writer.generation();
        self.len.store(left, Ordering::Release);
        done?;
        event!(DEBUG, path = %dir.display(), records = left, "records were deleted");
        Ok(())
    }

    /// Gives back the bytes of deleted records: the records are copied, in index order, into fresh chunk files, and the
    /// old ones are removed. It needs room for all records meanwhile. Interrupted at any moment, the store is as before
    /// or as after.
    ///
    /// # Errors
    /// [`Error::Locked`] while another handle has the store open; [`Error::ReadOnly`]; [`Error::Corrupt`];
    /// [`Error::Unsupported`] where the format has no chunk numbers left; [`Error::Io`].
    pub fn compact(&mut self) -> Result<()> {
        self.check_writable("compact")?;
        let Store { locks, writer: Some(writer), table, chunks, sums, options, dir, len, .. } = self else {
            return Ok(());
        };
        let writer = writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let disk = Arc::clone(&options.disk);
        let mapped = options.read_mode == ReadMode::Mapped;
        locks.alone(&*disk, dir, || {
            let reader = Reader::new(table, chunks, None, *len.get_mut()).verifying(sums);
            let entry = |index| Ok(reader.locate(index)?.entry);
            let copied =
                writer.compact(entry, |index, entry, out| reader.stored(&Located { index, entry: *entry }, out));
            // Whatever happened, what is on disk now is one whole table.
            let meta = writer.reopen()?;
            *table = Table::new(meta, mapped, &dir.join(META))?;
            *chunks = Chunks::new(Arc::clone(&disk), dir.clone(), mapped);
            *sums = Sums::new(Arc::clone(&disk), dir.clone(), mapped, true);
            copied?;
            event!(DEBUG, path = %dir.display(), "a store was compacted");
            Ok(())
        })
    }

    /// Counts records and bytes. Every entry of the table is read.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn stats(&self) -> Result<Stats> {
        let tail = match &self.writer {
            Some(_) => self.writer("stats")?.live(),
            None => self.opened,
        };
        let reader = self.reader();
        let mut live_bytes = 0;
        for index in 0..u64::from(tail.length) {
            live_bytes += u64::from(reader.locate(index)?.entry.stored);
        }
        let mut chunk_bytes = u64::from(tail.tail_offset);
        for chunk in 0..tail.tail_chunk {
            let path = self.dir.join(chunk_name(chunk));
            if self.options.disk.exists(&path) {
                let file = self.options.disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
                chunk_bytes += file.len().map_err(Error::io("read", &path))?;
            }
        }
        let reclaimable = chunk_bytes.saturating_sub(live_bytes);
        Ok(Stats { records: u64::from(tail.length), live_bytes, chunk_bytes, reclaimable })
    }

    /// Trains the dictionary of the codec zstd_dict on sample records, packed as in [`append`](Store::append): on at
    /// most 8192 of them and at most 128 MiB, spread evenly. It is durable when this returns, and every later
    /// `append` uses it.
    ///
    /// # Errors
    /// [`Error::Dictionary`] where the samples are too few or too small, and while a record needs the dictionary that
    /// is there; [`Error::ReadOnly`], [`Error::Invalid`], [`Error::Io`]. After an error all is as before.
    pub fn train_dict(&self, bytes: &[u8], offsets: &[u64], size: DictSize) -> Result<()> {
        self.train(&Packed::with_offsets(bytes, offsets)?, size)
    }

    /// The same with `count` samples of `length` bytes each.
    pub(crate) fn train_dict_fixed(&self, bytes: &[u8], length: usize, count: usize, size: DictSize) -> Result<()> {
        self.train(&Packed::fixed(bytes, length, count)?, size)
    }

    fn train(&self, samples: &Packed<'_>, size: DictSize) -> Result<()> {
        self.check_writable("train_dict")?;
        self.set_dict(&codec::train(&self.dir, samples, size)?)
    }

    /// Makes `bytes`, which were trained elsewhere, the dictionary of the codec zstd_dict: what [`dict`](Store::dict) of
    /// another store gives, or `zstd --train`. It is durable when this returns, and every later `append` uses it.
    ///
    /// # Errors
    /// As [`train_dict`](Store::train_dict); [`Error::Corrupt`] where zstd refuses the bytes, or where there are none or
    /// over 1 MiB of them.
    pub fn set_dict(&self, bytes: &[u8]) -> Result<()> {
        self.check_writable("set_dict")?;
        let path = self.dir.join(DICT);
        let bytes = bytes.to_vec();
        let dictionary = Dictionary::new(bytes.clone(), &path)?;
        let mut writer = self.writer("set_dict")?;
        // What was deleted or replaced must not come back with a power failure and need the old dictionary.
        writer.sync()?;
        let reader = self.reader();
        for index in 0..reader.len() {
            if reader.locate(index)?.entry.tag == tag::ZSTD_DICT {
                return Err(Error::dictionary(
                    &self.dir,
                    format!("record {index} needs the dictionary that is there: recode the store to get another"),
                ));
            }
        }
        replace(&*self.options.disk, &path, &bytes)?;
        *self.dictionary.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(dictionary));
        Ok(())
    }

    /// The dictionary, `None` where none was trained.
    pub fn dict(&self) -> Option<Vec<u8>> {
        self.dictionary().map(|dictionary| dictionary.bytes().to_vec())
    }

    /// Whether a dictionary was trained.
    pub fn has_dict(&self) -> bool {
        self.dictionary().is_some()
    }

    /// Makes all that was appended durable, and visible to the Python loaderx. Nothing to do for a handle that reads.
    ///
    /// # Errors
    /// [`Error::Io`], after which this handle takes no more writes ([`Error::Poisoned`]).
    pub fn sync(&self) -> Result<()> {
        if self.writer.is_some() { self.writer("sync")?.sync() } else { Ok(()) }
    }

    /// Syncs, and gives the locks back.
    ///
    /// # Errors
    /// As [`sync`](Store::sync).
    pub fn close(self) -> Result<()> {
        self.sync()
    }

    /// How many deletions this crate has done to the store: part of its identity.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes that the generation of a store that was just created.
    pub(super) fn set_generation(&mut self, generation: u64) -> Result<()> {
        if generation != self.generation {
            self.writer("create")?.set_generation(generation)?;
            self.generation = generation;
        }
        Ok(())
    }

    /// The content of schema.msgpack, `None` where there is none.
    pub(crate) fn schema_bytes(&self) -> Result<Option<Vec<u8>>> {
        schema_bytes(&*self.options.disk, &self.dir)
    }

    /// The same of a store that is not opened.
    pub(crate) fn peek_schema(path: &Path) -> Result<Option<Vec<u8>>> {
        schema_bytes(&OsDisk, &url::local(path)?)
    }
}

fn schema_bytes(disk: &dyn Disk, dir: &Path) -> Result<Option<Vec<u8>>> {
    let path = dir.join(SCHEMA);
    if disk.exists(&path) { read_small(disk, &path, MAX_SCHEMA).map(Some) } else { Ok(None) }
}

/// Where it is, what it holds, and for what it is open. The codec is that of new records, so only a writer has one.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Store");
        shown.field("path", &self.path()).field("records", &self.len());
        match self.writer {
            Some(_) => shown.field("open_for", &format_args!("writing")).field("codec", &self.codec()).finish(),
            None => shown.field("open_for", &format_args!("reading")).finish(),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Errors are told by `close`, which has synced already when it comes here.
        let _ = self.sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_says_what_a_store_is_and_leaves_out_how_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::create(&path, Codec::Raw).unwrap();
        store.append(b"onethree", &[0, 3, 8]).unwrap();
        let shown = format!("{store:?}");
        assert_eq!(shown, format!("Store {{ path: {path:?}, records: 2, open_for: writing, codec: Raw }}"));
        store.close().unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(format!("{store:?}"), format!("Store {{ path: {path:?}, records: 2, open_for: reading }}"));
        assert_eq!(format!("{:?}", store.gather(&[1, 0, 1]).unwrap()), "Records { records: 3, bytes: 13 }");
        assert_eq!(format!("{:?}", Records::default()), "Records { records: 0, bytes: 0 }");
    }
}
