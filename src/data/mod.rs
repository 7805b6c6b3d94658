//! Typed datasets over the store. Imports `engine::store` and `error` alone.

mod dtype;

pub(crate) use dtype::ByteOrder;
pub use dtype::DType;
