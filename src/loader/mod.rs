//! The endless, step-based loader. Imports `data`, `engine::sampler` and `error` alone.

mod stream;

pub use stream::Stream;
