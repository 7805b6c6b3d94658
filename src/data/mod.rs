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
pub use dense::DenseDataset;
pub(crate) use dtype::ByteOrder;
pub use dtype::DType;
pub use element::Element;
pub use options::DatasetOptions;
pub use ragged::RaggedDataset;
pub use schema::Kind;
pub use selection::Selection;
pub use shape::Shape;
