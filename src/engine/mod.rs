//! The store and the samplers: bytes and indices, no types. Imports nothing of the crate but `error`.

#[cfg(feature = "remote")]
pub(crate) mod remote;
pub(crate) mod sampler;
pub(crate) mod store;
