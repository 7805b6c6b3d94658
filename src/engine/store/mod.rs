//! The record store: bytes in, bytes out.

mod codec;

pub use codec::{Codec, DictSize};

use std::mem::MaybeUninit;
use std::path::Path;

use crate::error::Result;

/// How records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReadMode {
    /// Through memory maps.
    #[default]
    Mapped,
    /// One positional read a record.
    Positional,
}

/// How a store is opened or created.
#[derive(Debug, Clone)]
pub struct StoreOptions {}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// The defaults: codec zstd, its default level, records to 1 MiB, mapped reading.
    pub fn new() -> Self {
        todo!()
    }
    /// How new records are compressed.
    pub fn codec(self, _codec: Codec) -> Self {
        todo!()
    }
    /// The compression level of new records, 1 to 22 (and zstd's negative ones).
    pub fn level(self, _level: i32) -> Self {
        todo!()
    }
    /// The largest record that `append` takes, in bytes; 1 MiB unless set.
    pub fn record_limit(self, _bytes: u32) -> Self {
        todo!()
    }
    /// How records are read.
    pub fn read_mode(self, _mode: ReadMode) -> Self {
        todo!()
    }
    /// Creates a store; an error where something is.
    pub fn create(self, _path: impl AsRef<Path>) -> Result<Store> {
        todo!()
    }
    /// The same, with the content of schema.msgpack, written at once.
    pub(crate) fn create_with_schema(self, _path: &Path, _schema: &[u8]) -> Result<Store> {
        todo!()
    }
    /// Opens for reading.
    pub fn open(self, _path: impl AsRef<Path>) -> Result<Store> {
        todo!()
    }
    /// Opens for reading and appending.
    pub fn open_writable(self, _path: impl AsRef<Path>) -> Result<Store> {
        todo!()
    }
    /// Opens for reading and appending what is there, or creates it.
    pub fn open_or_create(self, _path: impl AsRef<Path>) -> Result<Store> {
        todo!()
    }
}

/// What a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How many records.
    pub records: u64,
    /// Stored bytes of all records.
    pub live_bytes: u64,
    /// Bytes of the chunk files up to where the next record goes.
    pub chunk_bytes: u64,
    /// What `compact` could free at most.
    pub reclaimable: u64,
}

/// Packed records: record `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// The bytes of all records, end to end.
    pub bytes: Vec<u8>,
    /// Where each record begins, and at last where the last one ends: one more than there are records.
    pub offsets: Vec<u64>,
}

/// Records that were looked up and checked, and where each goes in a packed buffer.
#[derive(Debug)]
pub(crate) struct Located {
    /// In bytes, one more than there are records.
    pub(crate) offsets: Vec<u64>,
}

/// A persistent store of byte records.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// How many records.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// The directory.
    pub fn path(&self) -> &Path {
        todo!()
    }
    /// Appends records: record `i` is `bytes[offsets[i]..offsets[i + 1]]`, offsets[0] is 0, and the last offset is
    /// `bytes.len()`. Gives the index of the first.
    pub fn append(&self, _bytes: &[u8], _offsets: &[u64]) -> Result<u64> {
        todo!()
    }
    /// Appends `count` records of `record_len` bytes each.
    pub(crate) fn append_fixed(&self, _bytes: &[u8], _record_len: usize, _count: usize) -> Result<u64> {
        todo!()
    }
    /// The length of each record in bytes.
    pub fn lengths(&self, _indices: &[u64]) -> Result<Vec<u64>> {
        todo!()
    }
    /// One record.
    pub fn get(&self, _index: u64) -> Result<Vec<u8>> {
        todo!()
    }
    /// Records in the order of `indices`, which may repeat.
    pub fn gather(&self, _indices: &[u64]) -> Result<Records> {
        todo!()
    }
    /// The same into `records`, whose memory is used again.
    pub fn gather_into(&self, _indices: &[u64], _records: &mut Records) -> Result<()> {
        todo!()
    }
    /// Looks records up and checks their entries.
    pub(crate) fn locate(&self, _indices: &[u64]) -> Result<Located> {
        todo!()
    }
    /// Fills `out`, which is as long as the last offset of `located`, wholly.
    pub(crate) fn gather_located(&self, _located: &Located, _out: &mut [MaybeUninit<u8>]) -> Result<()> {
        todo!()
    }
    /// Fills `out`, of `indices.len() * record_len` bytes, wholly; a record of another length is an error.
    pub(crate) fn gather_fixed(
        &self,
        _indices: &[u64],
        _record_len: usize,
        _out: &mut [MaybeUninit<u8>],
    ) -> Result<()> {
        todo!()
    }
    /// Counts records and bytes: a scan of the whole table.
    pub fn stats(&self) -> Result<Stats> {
        todo!()
    }
    /// Trains the dictionary on sample records, packed as in `append`.
    pub fn train_dict(&self, _bytes: &[u8], _offsets: &[u64], _size: DictSize) -> Result<()> {
        todo!()
    }
    /// Whether there is a dictionary.
    pub fn has_dict(&self) -> bool {
        todo!()
    }
    /// Makes all that was appended durable.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// Syncs and gives the locks back, and says what went wrong with that.
    pub fn close(self) -> Result<()> {
        todo!()
    }
    /// How many deletes and rewrites this crate has done to the store: part of its identity.
    pub(crate) fn generation(&self) -> u64 {
        todo!()
    }
    /// The content of schema.msgpack, `None` where there is none.
    pub(crate) fn schema_bytes(&self) -> Result<Option<Vec<u8>>> {
        todo!()
    }
    /// Replaces schema.msgpack, in one step that is durable.
    pub(crate) fn replace_schema(&self, _schema: &[u8]) -> Result<()> {
        todo!()
    }
}

/// Runs `f` with every gather on this thread done in one piece, not split over cores: a loader's workers are parallel
/// already.
pub(crate) fn unsplit<R>(_f: impl FnOnce() -> R) -> R {
    todo!()
}
