//! Batches as other crates' arrays: one file and one feature each. Imports `data`, `loader` and `error` alone.

#[cfg(feature = "ndarray")]
pub(crate) mod ndarray;
