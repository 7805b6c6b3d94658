//! Batches as other crates' arrays: one file and one feature each. Imports `data`, `loader` and `error` alone.

#[cfg(feature = "burn")]
pub(crate) mod burn;
#[cfg(feature = "candle")]
pub(crate) mod candle;
#[cfg(all(test, any(feature = "burn-flex", feature = "candle", feature = "ndarray")))]
mod conformance;
#[cfg(feature = "ndarray")]
pub(crate) mod ndarray;
