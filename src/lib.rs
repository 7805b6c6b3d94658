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
//! ```standalone_crate
//! use loaderx::{DataLoader, DenseDataset, Import};
//!
//! # let dir = tempfile::tempdir()?;
//! # std::env::set_current_dir(&dir)?;
//! # for (name, shape) in [("images", "(600, 28, 28)"), ("labels", "(600,)")] {
//! #     let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}");
//! #     let mut npy = [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes()].concat();
//! #     npy.resize(128, b' ');
//! #     npy.resize(128 + if name == "images" { 600 * 28 * 28 } else { 600 }, 7);
//! #     std::fs::write(format!("{name}.npy"), npy)?;
//! # }
//! // Once: np.save("images.npy", …) of shape (n, 28, 28) and np.save("labels.npy", …) of shape (n,), both uint8.
//! Import::new().npy("images.npy", "images")?;
//! Import::new().npy("labels.npy", "labels")?;
//!
//! // Then, in every run:
//! let images = DenseDataset::<u8, [usize; 2]>::open("images")?;
//! let labels = DenseDataset::<u8, ()>::open("labels")?;
//! let loader = DataLoader::builder((images, labels)).batch_size(256).seed(42).build()?;
//! for batch in loader.take(100) {
//!     let (images, labels) = batch?;
//! #   #[cfg(feature = "ndarray")] {
//!     let (images, labels) = (images.into_ndarray(), labels.into_ndarray());
//!     assert_eq!((images.dim(), labels.dim()), ((256, 28, 28), 256));
//! #   }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `ndarray` | yes | batches as `ndarray` arrays, without a copy |
//! | `burn` | no | Burn: batches as data and tensors, datasets as its `Dataset`, the loader as its `DataLoader` |
//! | `burn-flex` | no | Burn's CPU backend, for the mnist example |
//! | `candle` | no | batches as Candle tensors, without a copy on the CPU; ragged ones padded or packed |
//! | `cli` | no | the command line `loaderx` |

#![deny(missing_docs)]

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("loaderx maps its files as they are: it needs a 64-bit little-endian target");

mod adapters;
mod convert;
mod data;
mod engine;
mod error;
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
pub use data::{
    AnyDataset, DType, DatasetOptions, DenseBatch, DenseDataset, Element, Kind, RaggedBatch, RaggedDataset, Selection,
    Shape,
};
pub use engine::sampler::{Mode, Sampler, Shard};
pub use engine::store::{Codec, DictSize, ReadMode, Records, Stats, Store, StoreOptions, Verification, Verify};
pub use error::{Corruption, Error, Result};
pub use loader::{
    Adapter, DataLoader, DataLoaderBuilder, Drawn, Explanation, Format, LoaderState, Metrics, NamedBatch, NamedStreams,
    Native, OnCorrupt, Pass, StepContext, Stream, StreamPart,
};

/// The README's code, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
