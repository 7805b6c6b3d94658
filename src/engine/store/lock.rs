//! Who may do what at the same time. Two permanent files are locked: `write.lock` by the one writer, `read.lock` by
//! every handle, together, and by whoever moves records, alone. Python's loaderx takes no locks.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::delete;
use super::format::{READ_LOCK, WRITE_LOCK};
use super::io::{Disk, LockGuard, LockKind};
use crate::error::{Error, Result};

/// How long a handle waits for a deletion in another handle to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a handle holds for as long as it lives.
pub(super) struct Locks {
    /// Held to keep others from writing; `None` for a handle that reads.
    _write: Option<LockGuard>,
    /// `None` where the directory takes no lock file.
    read: Option<LockGuard>,
}

impl Locks {
    /// Runs `f` with no other handle open. Only the writer can ask for that, and its write lock keeps every other one
    /// from asking meanwhile.
    pub(super) fn alone<R>(&mut self, disk: &dyn Disk, dir: &Path, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let path = dir.join(READ_LOCK);
        self.read = None;
        let lock = |kind| disk.lock(&path, kind).map_err(Error::io("lock", &path));
        let alone = lock(LockKind::Exclusive);
        let done = match &alone {
            Ok(Some(_)) => f(),
            Ok(None) => Err(Error::Locked {
                path: path.clone(),
                reason: "other handles have this store open, and records are not moved below them: close them first"
                    .into(),
            }),
            Err(e) => Err(e.clone()),
        };
        drop(alone);
        self.read = lock(LockKind::Shared)?;
        done
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Locks")
    }
}

/// The lock of a handle that writes, taken before anything is looked at.
pub(super) fn writer(disk: &dyn Disk, dir: &Path) -> Result<LockGuard> {
    let path = dir.join(WRITE_LOCK);
    disk.lock(&path, LockKind::Exclusive).map_err(Error::io("lock", &path))?.ok_or_else(|| Error::Locked {
        path,
        reason: "another handle writes to this store: close it first, or open for reading".into(),
    })
}

/// The locks of a handle; `write` is what [`writer`] gave, or `None` to read.
pub(super) fn handle(disk: &dyn Disk, dir: &Path, write: Option<LockGuard>) -> Result<Locks> {
    let path = dir.join(READ_LOCK);
    let begin = Instant::now();
    loop {
        match disk.lock(&path, LockKind::Shared) {
            Ok(Some(read)) => return Ok(Locks { _write: write, read: Some(read) }),
            // A store on a read-only medium, without a lock file: nobody can move its records either.
            Err(e)
                if write.is_none()
                    && matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                    ) =>
            {
                return Ok(Locks { _write: None, read: None });
            }
            Err(e) => return Err(Error::io("lock", &path)(e)),
            Ok(None) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                return Err(Error::Locked {
                    path,
                    reason: "another handle deletes from this store or compacts it: try again when it is done".into(),
                });
            }
        }
    }
}

/// Waits until no deletion is cut off in the middle: finishes it, where no writer is there that does. The handle holds
/// its read lock, so none is begun meanwhile.
pub(super) fn finish_deletion(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let begin = Instant::now();
    while delete::is_begun(disk, dir) {
        match writer(disk, dir) {
            Ok(_write) => return delete::recover(disk, dir),
            Err(Error::Locked { .. }) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
