//! Files and iterators into stores, and stores into files. Imports `data`, `error`, the public
//! store, and the format crates.
//!
//! `import` is the builder that a user sees. `npy`, `npz` and `safetensors` say which tables a file holds, `choose` takes some
//! of them, `table` and `fortran` give their rows; `lines` and `files` give records of bytes; `plan` says which of all these go
//! into which stores. `write` puts them there, as `records` does with those of iterators, `export` takes them out, `recode`
//! puts them into another store. `push` publishes one in object storage, and `pull` brings one from there. `journal` keeps what
//! an import was begun with, and `place` is where the file system is changed.

mod blocks;
mod choose;
mod export;
mod files;
mod fortran;
mod import;
mod journal;
mod lines;
mod npy;
mod npz;
mod place;
mod plan;
#[cfg(feature = "remote")]
mod pull;
#[cfg(feature = "remote")]
mod push;
mod recode;
mod records;
mod safetensors;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub use export::{Export, Exported, ExportedArray, export_npy};
pub use import::{Import, Imported, Progress, SourceFormat};
#[cfg(feature = "remote")]
pub use pull::{Pull, Pulled};
#[cfg(feature = "remote")]
pub use push::{Push, Pushed};
pub use recode::{Recode, Repaired, repair};

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Opens a file that is to be imported. It is read more than once, and at any place.
fn open_source(path: &Path) -> Result<File> {
    // Opening a pipe would wait for whoever is at its other end.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Error::unsupported(path, "what is no regular file", "save the data to a file first"));
    }
    File::open(path).map_err(Error::io("open", path))
}

/// A member of a file, as errors name it.
fn member_path(path: &Path, name: &str) -> PathBuf {
    PathBuf::from(format!("{}/{}", path.display(), name.escape_debug()))
}
