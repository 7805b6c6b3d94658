//! What dense and ragged datasets share: a store whose schema has been checked against the types.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use super::dtype::ByteOrder;
use super::schema::{Kind, Schema};
use super::{DType, Element, Shape};
use crate::engine::store::Store;
use crate::error::{Corruption, Error, Result};

/// A store of records of rows of `item_shape`, of elements `T`.
pub struct Typed<T, S> {
    pub(super) store: Store,
    pub(super) schema: Schema,
    pub(super) item_shape: S,
    /// Elements a row. With the size of an element it fits 32 bits.
    pub(super) item_len: usize,
    pub(super) order: ByteOrder,
    element: PhantomData<T>,
}

/// What a dataset shows of itself: what it holds and where, not how it is open.
impl<T, S: fmt::Debug> fmt::Debug for Typed<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = &self.schema;
        let mut shown = f.debug_struct(match schema.kind() {
            Kind::Dense => "DenseDataset",
            Kind::Ragged => "RaggedDataset",
        });
        shown.field("path", &self.store.path()).field("records", &self.store.len());
        match schema.element() {
            Some((element, _)) => shown.field("dtype", &format_args!("{element}")),
            None => shown.field("dtype", &format_args!("{}", schema.dtype())),
        };
        shown.field("item_shape", &self.item_shape).field("codec", &format_args!("{}", schema.codec().name())).finish()
    }
}

impl<T: Element, S: Shape> Typed<T, S> {
    /// Checks that the store holds what the types say.
    pub(super) fn new(store: Store, kind: Kind) -> Result<Self> {
        let schema = schema_of(&store, kind.name())?;
        let path = store.path();
        if schema.kind() != kind {
            let found = match schema.kind() {
                Kind::Dense => "dense (a DenseDataset)",
                Kind::Ragged => "ragged (a RaggedDataset)",
            };
            return Err(Error::mismatch(path, "the kind", kind.name(), found));
        }
        let order = byte_order::<T>(path, &schema)?;
        let Some(item_shape) = S::from_dims(schema.item_shape()) else {
            let expected = S::RANK.map_or("any rank".into(), |rank| format!("one of rank {rank}"));
            return Err(Error::mismatch(path, "the item shape", expected, format!("{:?}", schema.item_shape())));
        };
        // The schema's own check bounds it.
        let item_len = schema.item_shape().iter().product();
        if kind == Kind::Ragged && item_len == 0 {
            let reason = "rows of no bytes leave no trace of how many a record has";
            return Err(Error::unsupported(path, format!("the ragged item shape {:?}", schema.item_shape()), reason));
        }
        Ok(Typed { item_shape, item_len, order, store, schema, element: PhantomData })
    }

    /// Bytes a row.
    pub(super) fn row_bytes(&self) -> usize {
        self.item_len * size_of::<T>()
    }

    /// A record whose length does not fit the schema.
    pub(super) fn torn(&self, record: u64, bytes: u64) -> Error {
        Error::Corrupt(Box::new(Corruption {
            path: self.store.path().to_path_buf(),
            record: Some(record),
            expected: format!("whole rows of {} bytes", self.row_bytes()),
            found: format!("{bytes} bytes"),
            ..Corruption::default()
        }))
    }
}

/// The schema of a store that is to be of that kind.
fn schema_of(store: &Store, kind: &str) -> Result<Schema> {
    let Some(bytes) = store.schema_bytes()? else {
        let found = "raw records without schema.msgpack, which `Store` and `AnyDataset` open";
        return Err(Error::mismatch(store.path(), "the content", format!("a {kind} dataset"), found));
    };
    Schema::parse(store.path(), &bytes)
}

/// The byte order of the store, whose elements must be `T`.
fn byte_order<T: Element>(path: &Path, schema: &Schema) -> Result<ByteOrder> {
    let dtype = schema.dtype();
    match schema.element() {
        Some((element, order)) if element == T::DTYPE => Ok(order),
        Some((element, _)) => {
            let found = format!("{element} ({dtype}), to be opened as {element}");
            Err(Error::mismatch(path, "the dtype", T::DTYPE.name(), found))
        }
        None if schema.may_be_bf16() && T::DTYPE == DType::BF16 => Ok(ByteOrder::Little),
        None if schema.may_be_bf16() => {
            let reason = "where it is bfloat16, open it as bf16; AnyDataset gives its records as bytes";
            Err(Error::unsupported(path, format!("dtype {dtype}"), reason))
        }
        None => {
            let reason = "it is none of the element types; AnyDataset gives its records as bytes";
            Err(Error::unsupported(path, format!("dtype {dtype}"), reason))
        }
    }
}

/// The methods that both kinds of dataset have, each over its field `typed`.
macro_rules! shared_methods {
    () => {
        /// Options for creating or opening a dataset otherwise than by default.
        pub fn options() -> DatasetOptions<Self> {
            DatasetOptions::new()
        }

        /// Creates a dataset, compressed with zstd, and opens it for writing; `item_shape` is the shape of one row.
        ///
        /// # Errors
        /// [`Error::Exists`](crate::Error::Exists) where something is at `path`; [`Error::Invalid`](crate::Error::Invalid)
        /// for an item shape that no record can have; [`Error::Io`](crate::Error::Io).
        pub fn create(path: impl AsRef<Path>, item_shape: S) -> Result<Self> {
            Self::options().create(path, item_shape)
        }

        /// Opens a dataset for reading and appending, and creates it where nothing is.
        ///
        /// # Errors
        /// As [`create`](Self::create) and [`open_writable`](Self::open_writable), and
        /// [`Error::Mismatch`](crate::Error::Mismatch) where it has another item shape.
        pub fn open_or_create(path: impl AsRef<Path>, item_shape: S) -> Result<Self> {
            Self::options().open_or_create(path, item_shape)
        }

        /// Opens a dataset for reading.
        ///
        /// # Errors
        /// [`Error::NotAStore`](crate::Error::NotAStore); [`Error::Mismatch`](crate::Error::Mismatch), which says what it
        /// holds, where that is not what the types ask for; [`Error::Unsupported`](crate::Error::Unsupported) for dtypes
        /// that are none of the element types; [`Error::Corrupt`](crate::Error::Corrupt);
        /// [`Error::Locked`](crate::Error::Locked) while records are being moved; [`Error::Io`](crate::Error::Io).
        pub fn open(path: impl AsRef<Path>) -> Result<Self> {
            Self::options().open(path)
        }

        /// Opens a dataset for reading and appending.
        ///
        /// # Errors
        /// As [`open`](Self::open), and [`Error::Locked`](crate::Error::Locked) while another handle writes: one at a time
        /// does.
        pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
            Self::options().open_writable(path)
        }

        /// How many records.
        pub fn len(&self) -> u64 {
            self.typed.store.len()
        }

        /// Whether there are none.
        pub fn is_empty(&self) -> bool {
            self.typed.store.is_empty()
        }

        /// The store's directory.
        pub fn path(&self) -> &Path {
            self.typed.store.path()
        }

        /// The shape of one row.
        pub fn item_shape(&self) -> &S {
            &self.typed.item_shape
        }

        /// How many elements a row has.
        pub fn item_len(&self) -> usize {
            self.typed.item_len
        }

        /// How new records are compressed.
        pub fn codec(&self) -> Codec {
            self.typed.schema.codec()
        }

        /// The keys of the metadata, in the order in which they were given.
        pub fn metadata_keys(&self) -> impl Iterator<Item = &str> {
            self.typed.schema.metadata_keys()
        }

        /// The metadata under `key`, `None` where there is none.
        ///
        /// # Errors
        /// Where what is there is no `M`.
        pub fn metadata<M: DeserializeOwned>(&self, key: &str) -> Result<Option<M>> {
            self.typed.schema.metadata(self.path(), key)
        }

        /// Counts records and stored bytes: a scan of the whole table, 16 bytes a record.
        ///
        /// # Errors
        /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Io`](crate::Error::Io).
        pub fn stats(&self) -> Result<Stats> {
            self.typed.store.stats()
        }

        /// Deletes the records that `selection` means. The last records take their places, so indices change: only the
        /// records are then again exactly those below [`len`](Self::len). Durable when this returns. No other handle may
        /// have the dataset open.
        ///
        /// # Errors
        /// As [`Store::delete`](crate::Store::delete).
        pub fn delete(&mut self, selection: impl Selection) -> Result<()> {
            self.typed.store.delete(&selection.indices(self.len())?)
        }

        /// Gives the bytes of deleted records back to the disk. No other handle may have the dataset open.
        ///
        /// # Errors
        /// As [`Store::compact`](crate::Store::compact).
        pub fn compact(&mut self) -> Result<()> {
            self.typed.store.compact()
        }

        /// Whether a dictionary has been trained.
        pub fn has_dict(&self) -> bool {
            self.typed.store.has_dict()
        }

        /// Makes all that was appended durable, and visible to Python's loaderx. Nothing to do for a handle that reads.
        ///
        /// # Errors
        /// [`Error::Io`](crate::Error::Io), after which this handle takes no more writes
        /// ([`Error::Poisoned`](crate::Error::Poisoned)).
        pub fn sync(&self) -> Result<()> {
            self.typed.store.sync()
        }

        /// Syncs, and gives the locks back. Dropping does the same, but cannot say what went wrong.
        ///
        /// # Errors
        /// As [`sync`](Self::sync).
        pub fn close(self) -> Result<()> {
            self.typed.store.close()
        }

        /// Says that the records at `indices` will be gathered soon: see [`Store::prefetch`](crate::Store::prefetch).
        pub fn prefetch(&self, indices: &[u64]) -> bool {
            self.typed.store.prefetch(indices)
        }

        /// What was fetched so far from object storage: see [`Store::remote_stats`](crate::Store::remote_stats).
        #[cfg(feature = "remote")]
        pub fn remote_stats(&self) -> Option<RemoteStats> {
            self.typed.store.remote_stats()
        }

        /// Whether the records come from object storage.
        pub(crate) fn is_far(&self) -> bool {
            self.typed.store.is_far()
        }

        /// What identifies the first `len` records: see `fingerprint.rs`.
        pub(crate) fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
            fingerprint(&self.typed.store, &self.typed.schema, len)
        }
    };
}

pub(super) use shared_methods;
