//! Typed datasets over the store. Imports `engine::store` and `error` alone.

mod any;
mod batch;
mod buffer;
mod dense;
mod dtype;
mod element;
mod fingerprint;
mod options;
mod ragged;
mod schema;
mod selection;
mod shape;
#[cfg(test)]
mod tests;
mod typed;

pub use any::AnyDataset;
pub use batch::{DenseBatch, RaggedBatch};
pub(crate) use buffer::{swap_bytes, to_stored};
pub use dense::DenseDataset;
pub(crate) use dtype::ByteOrder;
pub use dtype::DType;
pub use element::Element;
pub use options::DatasetOptions;
pub use ragged::RaggedDataset;
pub use schema::Kind;
pub(crate) use schema::{Metadata, NewSchema};
pub use selection::Selection;
pub use shape::Shape;

#[cfg(feature = "remote")]
pub(crate) use crate::engine::store::{Access, DiskFile};
// The store's limits, its places and the disk, for the rooms that import this one and not the engine.
pub(crate) use crate::engine::store::{
    Disk, LockGuard, LockKind, MAX_RECORDS, MAX_SAMPLE_BYTES, MAX_SAMPLES, OsDisk, Place, RECORD_LIMIT, create_dirs,
    read_small, refuse_url, replace, unfinished,
};
#[cfg(test)]
pub(crate) use crate::engine::store::{Fault, SimDisk};
