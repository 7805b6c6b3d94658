//! What only the public interface shows: stores of the Python loaderx, interoperability with it, and the source's rooms.

#[cfg(feature = "cli")]
mod cli;
mod fuzz;
mod golden;
mod interop;
mod rooms;

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
