//! How a dataset is created or opened.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::Serialize;

use super::schema::{Kind, Metadata, NewSchema, Schema};
use super::typed::Typed;
use super::{Element, Shape};
#[cfg(feature = "remote")]
use crate::engine::remote::RemoteOptions;
use crate::engine::store::{Codec, RECORD_LIMIT, ReadMode, StoreOptions, Verify};
use crate::error::{Error, Result};

/// A kind of dataset with its types. Sealed: `DenseDataset` and `RaggedDataset`.
pub trait Dataset: Sized {
    type Element: Element;
    type Shape: Shape;
    const KIND: Kind;

    fn from_typed(typed: Typed<Self::Element, Self::Shape>) -> Self;
}

/// How a [`DenseDataset`](crate::DenseDataset) or a [`RaggedDataset`](crate::RaggedDataset) is created or opened.
///
/// ```
/// use loaderx::{Codec, DenseDataset};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("images");
/// let images = DenseDataset::<u8, [usize; 2]>::options()
///     .codec(Codec::Raw)
///     .metadata("classes", &["cat", "dog"])
///     .create(&path, [28, 28])?;
/// let classes: Option<Vec<String>> = images.metadata("classes")?;
/// assert_eq!(classes.unwrap(), ["cat", "dog"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DatasetOptions<D: Dataset> {
    codec: Option<Codec>,
    level: Option<i32>,
    record_limit: Option<u32>,
    read_mode: ReadMode,
    verify: Verify,
    #[cfg(feature = "remote")]
    remote: RemoteOptions,
    item_shape: Option<D::Shape>,
    metadata: Result<Metadata>,
    dataset: PhantomData<fn() -> D>,
}

impl<D: Dataset> DatasetOptions<D> {
    /// The defaults: codec zstd at its own level, records to 1 MiB, mapped reading, no metadata.
    pub(super) fn new() -> Self {
        DatasetOptions {
            codec: None,
            level: None,
            record_limit: None,
            read_mode: ReadMode::default(),
            verify: Verify::default(),
            #[cfg(feature = "remote")]
            remote: RemoteOptions::default(),
            item_shape: None,
            metadata: Ok(Metadata::default()),
            dataset: PhantomData,
        }
    }

    /// How records are compressed. A dataset that is opened keeps the codec it was created with, and is refused where
    /// that is another one.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = Some(codec);
        self
    }

    /// The compression level of the records that this handle appends: 1 to 22, and zstd's negative ones.
    pub fn level(mut self, level: i32) -> Self {
        self.level = Some(level);
        self
    }

    /// The largest record that `append` takes, in bytes; 1 MiB unless set. A limit over 1 MiB is kept in the schema,
    /// and a dataset that is opened is refused where its own limit is less.
    pub fn record_limit(mut self, bytes: u32) -> Self {
        self.record_limit = Some(bytes);
        self
    }

    /// How records are read.
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = mode;
        self
    }

    /// Whether records without a checksum of their own are verified when they are read: not unless set. Those are raw
    /// ones, and in a compressed dataset those that did not shrink, such as scalars.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// How a dataset in object storage is read, which a path like `s3://bucket/images` names.
    #[cfg(feature = "remote")]
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// The item shape that a dataset must have when it is opened.
    pub fn item_shape(mut self, item_shape: D::Shape) -> Self {
        self.item_shape = Some(item_shape);
        self
    }

    /// An entry for the schema of a dataset that is created: a key of your own, and anything that serde can write. A
    /// struct becomes a map. What opens a dataset leaves the entries it has.
    ///
    /// A key that is taken or that cannot be written is an error when the dataset is created.
    pub fn metadata(mut self, key: &str, value: &impl Serialize) -> Self {
        self.metadata = self.metadata.and_then(|mut metadata| {
            metadata.insert(key, value)?;
            Ok(metadata)
        });
        self
    }

    /// Creates a dataset, its schema included, and opens it for writing; `item_shape` is the shape of one row.
    ///
    /// # Errors
    /// [`Error::Exists`] where something is at `path`; [`Error::Invalid`] for an item shape that no record can have, a
    /// level that zstd does not have, and metadata that cannot be written; [`Error::Io`].
    pub fn create(self, path: impl AsRef<Path>, item_shape: D::Shape) -> Result<D> {
        self.create_at(path.as_ref(), &item_shape)
    }

    /// Opens a dataset of that item shape for reading and appending, and creates it where nothing is.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`open_writable`](Self::open_writable).
    pub fn open_or_create(self, path: impl AsRef<Path>, item_shape: D::Shape) -> Result<D> {
        match self.create_at(path.as_ref(), &item_shape) {
            Err(Error::Exists { .. }) => self.item_shape(item_shape).open_writable(path),
            created => created,
        }
    }

    /// Opens a dataset for reading.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where it is not what the types and these options ask for; [`Error::NotAStore`];
    /// [`Error::Unsupported`]; [`Error::Corrupt`]; [`Error::Locked`] while records are being moved; [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<D> {
        let options = StoreOptions::new().read_mode(self.read_mode).verify(self.verify);
        #[cfg(feature = "remote")]
        let options = options.remote(self.remote.clone());
        let store = options.open(path)?;
        self.checked(Typed::new(store, D::KIND)?)
    }

    /// Opens a dataset for reading and appending.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Locked`] while another handle writes.
    pub fn open_writable(self, path: impl AsRef<Path>) -> Result<D> {
        let path = path.as_ref();
        let schema = Schema::peek(path)?;
        let (codec, limit) =
            schema.as_ref().map_or((Codec::default(), RECORD_LIMIT), |schema| (schema.codec(), schema.record_limit()));
        let limit = self.record_limit.map_or(limit, |asked| asked.min(limit));
        let typed = Typed::new(self.store_options(codec, limit).open_writable(path)?, D::KIND)?;
        if schema.is_some_and(|schema| schema != typed.schema) {
            let reason = "its schema was replaced while it was opened: open it again".into();
            return Err(Error::Locked { path: path.to_path_buf(), reason });
        }
        self.checked(typed)
    }

    fn create_at(&self, path: &Path, item_shape: &D::Shape) -> Result<D> {
        let schema = NewSchema {
            kind: D::KIND,
            dtype: D::Element::DTYPE,
            item_shape: item_shape.dims(),
            codec: self.codec.unwrap_or_default(),
            record_limit: self.record_limit.unwrap_or(RECORD_LIMIT),
            metadata: self.metadata.as_ref().map_err(Error::clone)?,
        };
        let bytes = schema.to_bytes()?;
        let store = self.store_options(schema.codec, schema.record_limit).create_with_schema(path, &bytes)?;
        Ok(D::from_typed(Typed::new(store, D::KIND)?))
    }

    fn store_options(&self, codec: Codec, record_limit: u32) -> StoreOptions {
        let options =
            StoreOptions::new().codec(codec).record_limit(record_limit).read_mode(self.read_mode).verify(self.verify);
        match self.level {
            Some(level) => options.level(level),
            None => options,
        }
    }

    /// The dataset, where it is what these options ask for.
    fn checked(self, typed: Typed<D::Element, D::Shape>) -> Result<D> {
        let path = typed.store.path();
        if let Some(asked) = self.item_shape.filter(|asked| *asked != typed.item_shape) {
            let found = format!("{:?}", typed.schema.item_shape());
            return Err(Error::mismatch(path, "the item shape", format!("{:?}", asked.dims()), found));
        }
        if let Some(asked) = self.codec.filter(|asked| *asked != typed.schema.codec()) {
            return Err(Error::mismatch(path, "the codec", asked.name(), typed.schema.codec().name()));
        }
        if let Some(asked) = self.record_limit.filter(|asked| *asked > typed.schema.record_limit()) {
            let found = format!("{} bytes", typed.schema.record_limit());
            return Err(Error::mismatch(path, "the record limit", format!("{asked} bytes"), found));
        }
        Ok(D::from_typed(typed))
    }
}

impl<D: Dataset> fmt::Debug for DatasetOptions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetOptions")
            .field("codec", &self.codec)
            .field("level", &self.level)
            .field("record_limit", &self.record_limit)
            .field("read_mode", &self.read_mode)
            .field("verify", &self.verify)
            .field("item_shape", &self.item_shape)
            .field("metadata", &self.metadata)
            .finish()
    }
}
