//! The record store: bytes in, bytes out. docs/format.md describes what lies on disk.

mod append;
mod codec;
mod commit;
mod compact;
mod delete;
mod format;
mod gather;
mod handle;
mod io;
mod lock;
mod map;
mod options;
mod packed;
mod reader;
#[cfg(test)]
mod sim;
mod slot;
#[cfg(test)]
mod tests;

pub use codec::{Codec, DictSize};
pub(crate) use gather::{Layout, unsplit};
pub use handle::{Records, Stats, Store};
pub use options::{ReadMode, StoreOptions};
