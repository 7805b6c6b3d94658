//! loaderx
#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("loaderx maps its files as they are: it needs a 64-bit little-endian target");

mod adapters;
mod convert;
mod data;
mod engine;
mod error;
mod loader;

#[cfg(feature = "ndarray")]
pub use adapters::ndarray::ArrayShape;
pub use convert::{Exported, Import, Imported, Progress, export_npy};
pub use data::{
    AnyDataset, DType, DatasetOptions, DenseBatch, DenseDataset, Element, Kind, RaggedBatch, RaggedDataset, Selection,
    Shape,
};
pub use engine::sampler::{Mode, Sampler, Shard};
pub use engine::store::{Codec, DictSize, ReadMode, Records, Stats, Store, StoreOptions};
pub use error::{Corruption, Error, Result};
pub use loader::{
    Adapter, DataLoader, DataLoaderBuilder, Drawn, Explanation, Format, LoaderState, Metrics, NamedBatch, NamedStreams,
    Native, Pass, StepContext, Stream, StreamPart,
};
