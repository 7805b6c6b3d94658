//! The data layer for training and serving in Rust: a persistent store of records, typed datasets over it, and an
//! endless loader of shuffled batches.
//!
//! - [`Import`] turns .npy, .npz and .safetensors files, lines of text, folders, and iterators of records, into stores;
//!   [`Export`] writes them out again.
//! - [`DenseDataset`] and [`RaggedDataset`] are typed views over a [`Store`]: append, read by index, range, list or mask.
//!   Records are compressed one by one, so that any one is read at once.
//! - [`DataLoader`] draws batches, for ever: the bytes of step k depend on the data, the mode, batch size and seed, k, the
//!   rank and the world alone, whatever the workers and the restarts. It resumes from a [`LoaderState`] at any step.
//!
//! The files are those of the Python package loaderx 0.9, which reads and appends to what this crate writes, and the
//! other way round.
//!
//! # A first loop
//!
//! Two arrays that NumPy has saved, `images.npy` of shape (n, 28, 28) and `labels.npy` of shape (n,), both uint8:
//!
//! ```
//! use loaderx::{DataLoader, DenseDataset, Import};
//!
//! # let dir = tempfile::tempdir()?;
//! # std::env::set_current_dir(&dir)?;
//! # DenseDataset::<u8, [usize; 2]>::create("i", [28, 28])?.append(&vec![7; 600 * 28 * 28])?;
//! # DenseDataset::<u8, ()>::create("l", ())?.append(&vec![7; 600])?;
//! # loaderx::export_npy("i", "images.npy")?;
//! # loaderx::export_npy("l", "labels.npy")?;
//! // Once: each row along the first axis becomes a record of a store, a directory that stays.
//! Import::new().npy("images.npy", "images")?;
//! Import::new().npy("labels.npy", "labels")?;
//!
//! // Then, in every run. The types are checked against what the stores hold.
//! let images = DenseDataset::<u8, [usize; 2]>::open("images")?;
//! let labels = DenseDataset::<u8, ()>::open("labels")?;
//! let loader = DataLoader::builder((images, labels)).batch_size(256).seed(42).build()?;
//! for batch in loader.take(100) {
//!     let (images, labels) = batch?; // (256, 28, 28) and (256): the same records in both
//! #   #[cfg(feature = "ndarray")] {
//!     let (images, labels) = (images.into_ndarray(), labels.into_ndarray());
//!     assert_eq!((images.dim(), labels.dim()), ((256, 28, 28), 256));
//! #   }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The loader never ends: `take(n)`, or stop when the model is good. [`epoch`](DataLoader::epoch) gives one cycle of it,
//! and [`pass`](DataLoader::pass) every record once.
//!
//! A loader takes any [`Stream`]: a dataset, a tuple of datasets, [`NamedStreams`], a [`Subset`] of one (by index, by label,
//! or a split by seed), or a [`Mixture`] of several with weights. Records come once a cycle, in random order, unless a
//! [`Mode`] says otherwise, or [`weights`](DataLoaderBuilder::weights), or
//! [`similar_lengths`](DataLoaderBuilder::similar_lengths), or [`block_shuffle`](DataLoaderBuilder::block_shuffle).
//!
//! # Where to go on
//!
//! - [`guide`]: dense or ragged, choosing a codec, several streams, some of the records, weights, mixtures, epochs,
//!   resuming, several ranks, Burn, Candle, serving, analytics, what errors mean, and which side waits; each with a whole
//!   program.
//! - [`migration`]: what the calls of Python's loaderx, torch's `DataLoader`, Burn's and candle-datasets become.
//! - In the package: `examples/`, and in `docs/` the design, the format on disk, what is promised and which test shows
//!   it, and benchmarks.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `ndarray` | yes | `Ndarray`, `DenseBatch::into_ndarray`, `DenseDataset::append_array`: `ndarray` arrays, without a copy |
//! | `candle` | no | `Candle`, `DenseBatch::into_candle`: Candle tensors, without a copy on the CPU; ragged ones padded or packed |
//! | `burn` | no | `Burn`, `BurnData`, `DataLoader::into_burn`: Burn's data and tensors, its `Dataset` and its `DataLoader`. It has no backend: your own `burn` brings one |
//! | `burn-flex` | no | `burn` with its CPU backend and autodiff, for the mnist example |
//! | `remote` | no | stores in object storage: `s3://`, `gs://`, `az://`, `https://` paths where a path opens a store, `RemoteOptions` |
//! | `tracing` | no | events of [`tracing`](https://docs.rs/tracing), of the target `loaderx`: what is opened, recovered, replaced or fails |
//! | `cli` | no | the command line `loaderx` |
//!
//! Without any of them, batches are plain vectors with a shape: [`DenseBatch`] and [`RaggedBatch`].

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("loaderx maps its files as they are: it needs a 64-bit little-endian target");

mod adapters;
mod convert;
mod data;
mod engine;
mod error;
mod events;
mod loader;

#[cfg(feature = "burn")]
pub use adapters::burn::{Burn, BurnBatcher, BurnData, BurnElement, BurnItem, BurnLoader, BurnPass, BurnShape};
#[cfg(feature = "candle")]
pub use adapters::candle::{Candle, CandleElement, CandleHost, CandlePacked, CandlePadded, PackedTensor, PaddedTensor};
#[cfg(feature = "ndarray")]
pub use adapters::ndarray::{ArrayShape, Ndarray};
pub use convert::{
    Export, Exported, ExportedArray, Import, Imported, Progress, Recode, Repaired, SourceFormat, export_npy, repair,
};
#[cfg(feature = "remote")]
pub use convert::{Pull, Pulled, Push, Pushed};
pub use data::{
    AnyDataset, DType, DatasetOptions, DenseBatch, DenseDataset, Element, Kind, RaggedBatch, RaggedDataset, Selection,
    Shape,
};
#[cfg(feature = "remote")]
pub use engine::remote::RemoteOptions;
pub use engine::sampler::{Mode, Sampler, Shard};
#[cfg(feature = "remote")]
pub use engine::store::RemoteStats;
pub use engine::store::{Codec, DictSize, Place, ReadMode, Records, Stats, Store, StoreOptions, Verification, Verify};
pub use error::{Corruption, Error, Result};
pub use loader::{
    Access, AccessPlan, Adapter, DataLoader, DataLoaderBuilder, Drawn, Epoch, Explanation, Fetched, Format, Interleave,
    LoaderState, Metrics, Mixture, NamedBatch, NamedStreams, Native, OnCorrupt, Pass, StepContext, Stream, StreamPart,
    Subset,
};

/// The README's code, with the default features.
#[cfg(all(doctest, feature = "ndarray"))]
#[doc = include_str!("../README.md")]
struct Readme;

// The first definition of a link holds: here the module, in the files the file.
#[cfg(any(doc, doctest))]
#[doc = "[migration]: crate::migration"]
#[doc = ""]
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

#[cfg(any(doc, doctest))]
#[doc = "[guide]: crate::guide"]
#[doc = ""]
#[doc = include_str!("../docs/migration.md")]
pub mod migration {}
