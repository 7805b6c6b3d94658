//! What only the public interface shows: stores of the Python loaderx, interoperability with it, the source's rooms, and
//! the promises of docs/guarantees.md, each tried by what breaks it.
//!
//! LOADERX_THOROUGH=1 runs the long forms. What a machine does not allow (mounting a small disk, running Python) is
//! skipped with a printed line.

#[cfg(feature = "cli")]
mod cli;
mod damage;
mod docs;
#[cfg(feature = "tracing")]
mod events;
mod fuzz;
mod golden;
mod identity;
mod interop;
mod processes;
#[cfg(feature = "remote")]
mod remote;
mod rooms;
mod sizes;
mod stress;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder that the environment variable LOADERX_SHARED names. Tests that need it pass without it, and say so.
fn shared() -> Option<PathBuf> {
    let shared = std::env::var_os("LOADERX_SHARED").map(PathBuf::from);
    if shared.is_none() {
        println!("skipped: LOADERX_SHARED is not set");
    }
    shared
}

/// Unpacks `folder/name.tar.gz`, holes kept, and gives the store in it.
fn unpack(folder: &Path, name: &str, into: &Path) -> PathBuf {
    let archive = folder.join(format!("{name}.tar.gz"));
    let status = Command::new("tar").arg("-xSzf").arg(&archive).arg("-C").arg(into).status().expect("tar runs");
    assert!(status.success(), "tar cannot unpack {}", archive.display());
    into.join(name)
}
