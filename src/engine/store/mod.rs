//! The record store: bytes in, bytes out. docs/format.md describes what lies on disk.

mod append;
mod codec;
mod cold;
mod commit;
mod compact;
mod delete;
mod far;
mod format;
mod gather;
mod handle;
mod io;
mod lock;
mod map;
mod options;
#[cfg(feature = "remote")]
pub(crate) mod outline;
mod packed;
mod reader;
mod runs;
#[cfg(test)]
mod sim;
mod slot;
mod sums;
#[cfg(test)]
mod tests;
mod url;
mod verify;

pub use codec::{Codec, DictSize};
pub(crate) use codec::{MAX_SAMPLE_BYTES, MAX_SAMPLES};
#[cfg(feature = "remote")]
pub use far::RemoteStats;
#[cfg(feature = "remote")]
pub(crate) use far::{Block, BlockId, Far, Near};
pub(crate) use format::{MAX_RECORDS, MAX_SCHEMA, RECORD_LIMIT, SCHEMA};
pub(crate) use gather::{Layout, unsplit};
pub use handle::{Place, Records, Stats, Store};
#[cfg(feature = "remote")]
pub(crate) use io::{Access, DiskFile};
pub(crate) use io::{Disk, LockGuard, LockKind, OsDisk, read_small, replace, unfinished};
#[cfg(feature = "remote")]
pub(crate) use map::Map;
pub(crate) use options::create_dirs;
pub use options::{ReadMode, StoreOptions, Verify};
#[cfg(test)]
pub(crate) use sim::{Fault, SimDisk};
pub(crate) use url::refuse_url;
pub use verify::Verification;
