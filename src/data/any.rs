//! Whatever is there, as bytes: for tools.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::DType;
use super::schema::{Kind, Schema};
use crate::engine::store::{Codec, Place, Records, Stats, Store, StoreOptions, Verification};
use crate::error::Result;

/// A store of any content, opened for reading: dense, ragged or raw records, of any dtype. Records come as the bytes
/// that are stored, in the dtype's byte order.
///
/// ```
/// use loaderx::{AnyDataset, DenseDataset, Kind};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("points");
/// let points = DenseDataset::<f32, [usize; 1]>::create(&path, [2])?;
/// points.append(&[0.0, 1.0, 2.0, 3.0])?;
/// points.close()?;
///
/// let found = AnyDataset::open(&path)?;
/// assert_eq!(found.kind(), Some(Kind::Dense));
/// assert_eq!(found.dtype(), Some("<f4"));
/// assert_eq!(found.item_shape(), Some(&[2][..]));
/// assert_eq!(found.gather(&[1])?.bytes.len(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AnyDataset {
    store: Store,
    schema: Option<Schema>,
}

impl fmt::Debug for AnyDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AnyDataset");
        shown.field("path", &self.path()).field("records", &self.len());
        if let Some(schema) = &self.schema {
            shown
                .field("kind", &format_args!("{}", schema.kind().name()))
                .field("dtype", &format_args!("{}", schema.dtype()))
                .field("item_shape", &schema.item_shape())
                .field("codec", &format_args!("{}", schema.codec().name()));
        }
        shown.finish()
    }
}

impl AnyDataset {
    /// Opens what is there for reading.
    ///
    /// # Errors
    /// [`Error::NotAStore`](crate::Error::NotAStore), [`Error::Corrupt`](crate::Error::Corrupt), also of a damaged schema,
    /// [`Error::Unsupported`](crate::Error::Unsupported) for another version of the format,
    /// [`Error::Locked`](crate::Error::Locked) while records are being moved, [`Error::Io`](crate::Error::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(StoreOptions::new(), path.as_ref())
    }

    /// The same with options for the store.
    pub(crate) fn open_with(options: StoreOptions, path: &Path) -> Result<Self> {
        let store = options.open(path)?;
        let schema = store.schema_bytes()?.map(|bytes| Schema::parse(store.path(), &bytes)).transpose()?;
        Ok(AnyDataset { store, schema })
    }

    /// Dense or ragged; `None` for raw records, without a schema.
    pub fn kind(&self) -> Option<Kind> {
        self.schema.as_ref().map(Schema::kind)
    }

    /// The dtype as NumPy spells it and the schema has it; `None` for raw records.
    pub fn dtype(&self) -> Option<&str> {
        self.schema.as_ref().map(Schema::dtype)
    }

    /// The element type, of either byte order; `None` for raw records and for dtypes that this crate has no type for.
    pub fn element(&self) -> Option<DType> {
        self.schema.as_ref()?.element().map(|(dtype, _)| dtype)
    }

    /// The shape of one row; `None` for raw records.
    pub fn item_shape(&self) -> Option<&[usize]> {
        self.schema.as_ref().map(Schema::item_shape)
    }

    /// Bytes a row; `None` for raw records and where the dtype does not tell.
    pub fn row_bytes(&self) -> Option<usize> {
        self.schema.as_ref()?.row_bytes()
    }

    /// How new records are compressed; `None` for raw records, of which the store does not say it.
    pub fn codec(&self) -> Option<Codec> {
        self.schema.as_ref().map(Schema::codec)
    }

    /// The largest record that is appended, in bytes; `None` for raw records.
    pub(crate) fn record_limit(&self) -> Option<u32> {
        self.schema.as_ref().map(Schema::record_limit)
    }

    /// The keys of the metadata, in the order in which they were given.
    pub fn metadata_keys(&self) -> impl Iterator<Item = &str> {
        self.schema.iter().flat_map(Schema::metadata_keys)
    }

    /// The metadata under `key`, `None` where there is none.
    ///
    /// # Errors
    /// Where what is there is no `M`.
    pub fn metadata<M: DeserializeOwned>(&self, key: &str) -> Result<Option<M>> {
        self.schema.as_ref().map_or(Ok(None), |schema| schema.metadata(self.path(), key))
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// How many records.
    pub fn len(&self) -> u64 {
        self.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Counts records and stored bytes: a scan of the whole table, 16 bytes a record.
    ///
    /// # Errors
    /// As [`Store::stats`].
    pub fn stats(&self) -> Result<Stats> {
        self.store.stats()
    }

    /// Reads every record and says which are not whole: [`Store::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&self, progress: impl Fn(u64) + Sync) -> Result<Verification> {
        self.store.verify(progress)
    }

    /// How many deletions the store has seen.
    pub(crate) fn generation(&self) -> u64 {
        self.store.generation()
    }

    /// The schema of the same records in that codec, all else kept; `None` for raw records.
    pub(crate) fn schema_with_codec(&self, codec: Codec) -> Result<Option<Vec<u8>>> {
        self.schema.as_ref().map(|schema| schema.with_codec(codec)).transpose()
    }

    /// Whether a dictionary has been trained.
    pub fn has_dict(&self) -> bool {
        self.store.has_dict()
    }

    /// The length of each record in bytes, before compression.
    ///
    /// # Errors
    /// As [`Store::lengths`].
    pub fn lengths(&self, indices: &[u64]) -> Result<Vec<u64>> {
        self.store.lengths(indices)
    }

    /// How many bytes each record takes in the chunk files.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::Corrupt`](crate::Error::Corrupt).
    pub fn stored_lengths(&self, indices: &[u64]) -> Result<Vec<u64>> {
        self.store.stored_lengths(indices)
    }

    /// Where each record lies in the chunk files.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::Corrupt`](crate::Error::Corrupt).
    pub fn places(&self, indices: &[u64]) -> Result<Vec<Place>> {
        self.store.places(indices)
    }

    /// The bytes of one record.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn get(&self, index: u64) -> Result<Vec<u8>> {
        self.store.get(index)
    }

    /// The bytes of records, in the order of `indices`, which may repeat.
    ///
    /// # Errors
    /// As [`Store::gather`].
    pub fn gather(&self, indices: &[u64]) -> Result<Records> {
        self.store.gather(indices)
    }

    /// The same into `records`, whose memory is used again.
    ///
    /// # Errors
    /// As [`Store::gather`]. `records` is empty then.
    pub fn gather_into(&self, indices: &[u64], records: &mut Records) -> Result<()> {
        self.store.gather_into(indices, records)
    }
}
