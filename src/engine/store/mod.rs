//! The record store: bytes in, bytes out. docs/format.md describes what lies on disk.

mod append;
mod codec;
mod cold;
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
mod runs;
#[cfg(test)]
mod sim;
mod slot;
mod sums;
#[cfg(test)]
mod tests;
mod verify;

pub use codec::{Codec, DictSize};
pub(crate) use codec::{MAX_SAMPLE_BYTES, MAX_SAMPLES};
pub(crate) use format::{MAX_RECORDS, MAX_SCHEMA, RECORD_LIMIT, SCHEMA};
pub(crate) use gather::{Layout, unsplit};
pub use handle::{Records, Stats, Store};
pub(crate) use io::{Disk, LockGuard, LockKind, OsDisk, read_small, replace, unfinished};
pub(crate) use options::create_dirs;
pub use options::{ReadMode, StoreOptions, Verify};
#[cfg(test)]
pub(crate) use sim::{Fault, SimDisk};
pub use verify::Verification;
