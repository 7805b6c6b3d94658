//! loaderx
#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("loaderx maps its files as they are: it needs a 64-bit little-endian target");

mod engine;
mod error;

pub use error::{Corruption, Error, Result};
