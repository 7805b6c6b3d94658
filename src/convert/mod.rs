//! Files and iterators into stores, and stores into files. Imports `data` and `error`, and the format crates.
//!
//! `npy`, `npz` and `safetensors` say which tables a file holds, `table` and `fortran` give their rows, `import` puts rows and
//! records into stores, `export` takes them out, and `place` is where the file system is changed.

mod export;
mod fortran;
mod import;
mod npy;
mod npz;
mod place;
mod safetensors;
mod schema;
mod table;
#[cfg(test)]
mod tests;

pub use export::{Exported, export_npy};
pub use import::{Import, Imported, Progress};

use std::path::{Path, PathBuf};

/// A member of a file, as errors name it.
fn member_path(path: &Path, name: &str) -> PathBuf {
    PathBuf::from(format!("{}/{}", path.display(), name.escape_debug()))
}
