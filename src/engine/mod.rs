//! The store and the samplers: bytes and indices, no types. Imports nothing of the crate but `error`.

pub(crate) mod sampler;
pub(crate) mod store;
