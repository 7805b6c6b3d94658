//! Typed datasets over the store. Imports `engine::store` and `error` alone.

mod dtype;

pub use dtype::DType;
