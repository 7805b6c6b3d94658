//! The disk, as the store sees it. Every change to a file goes through this trait, so that tests can run the store on
//! a simulated disk that crashes, tears, reorders and fails.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::far::Far;
use super::map::Map;
use crate::error::{Error, Result};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// To read; it must exist.
    Read,
    /// To read and write; made where it does not exist.
    Write,
}

/// How a lock file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

/// A lock that is held until it is dropped.
pub(crate) type LockGuard = Box<dyn Any + Send + Sync>;

/// A file system.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Makes a directory; its parent exists. No error where the directory exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    /// Moves a file or directory over what is at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Whether a file or directory is there.
    fn exists(&self, path: &Path) -> bool;
    /// The names in a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Where the chunk files are, if not on this disk.
    fn far(&self) -> Option<Arc<dyn Far>> {
        None
    }
    /// Locks a file, which is made where it does not exist; `None` where another handle excludes this one.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<LockGuard>>;
}

/// An open file.
pub(crate) trait DiskFile: fmt::Debug + Send + Sync {
    fn len(&self) -> io::Result<u64>;
    /// Fills `bytes` from `offset`; an error where the file ends before.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Asks the system to bring what was written there to the disk soon, so that there is less to wait for when it is
    /// made durable. Nothing depends on it.
    fn expect_sync(&self, _offset: u64, _len: u64) {}
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the content and the length durable.
    fn sync(&self) -> io::Result<()>;
    /// The file as it is now, mapped; `None` where this disk maps nothing.
    fn map(&self) -> io::Result<Option<Map>>;
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            done => done,
        }
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        // Opening a pipe would wait for whoever is at its other end.
        if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a directory"));
        }
        let mut options = fs::OpenOptions::new();
        options.read(true);
        if access == Access::Write {
            options.write(true).create(true).truncate(false);
        }
        let file = options.open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    /// A directory cannot be synced here; the file system's journal keeps its names.
    #[cfg(not(unix))]
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<LockGuard>> {
        let mut options = fs::OpenOptions::new();
        let file = match options.read(true).write(true).create(true).truncate(false).open(path) {
            // A lock can be taken on a file that may only be read.
            Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
                fs::File::open(path)?
            }
            opened => opened?,
        };
        let locked = match kind {
            LockKind::Shared => file.try_lock_shared(),
            LockKind::Exclusive => file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(Some(Box::new(Lock(file)))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }
}

/// A locked file. It is unlocked, not just closed: a process that another thread starts holds a copy of every open
/// file until it runs its program, and the lock with it.
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Where this fails, closing the file gives the lock back.
        let _ = self.0.unlock();
    }
}

impl DiskFile for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, bytes, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(self, bytes, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    bytes = &mut bytes[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }

    #[cfg(windows)]
    fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match std::os::windows::fs::FileExt::seek_write(self, bytes, offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => {
                    bytes = &bytes[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn expect_sync(&self, offset: u64, len: u64) {
        use std::os::fd::AsRawFd;
        let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else { return };
        // SAFETY: the descriptor is open as long as `self` is, and no memory is passed. Whether it succeeds does not
        // matter: what fails to be written is told by the sync.
        unsafe { libc::sync_file_range(self.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        fs::File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn map(&self) -> io::Result<Option<Map>> {
        Map::of(self).map(Some)
    }
}

/// Reads a whole file, which may be `limit` bytes at most.
pub(crate) fn read_small(disk: &dyn Disk, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = disk.open(path, Access::Read).map_err(Error::io("open", path))?;
    let len = file.len().map_err(Error::io("read", path))?;
    if len > limit {
        return Err(Error::corrupt(path, format!("at most {limit} bytes"), format!("{len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// What a file is called while it is written, before it is renamed into place.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// Writes a small file so that it is either as before or wholly as given, whatever happens meanwhile, and durable when
/// this returns.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = unfinished(path);
    let write = || {
        let file = disk.open(&unfinished, Access::Write)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        disk.rename(&unfinished, path)
    };
    write().map_err(Error::io("write", path))?;
    sync_parent(disk, path)
}

/// Makes the name of a file or directory durable.
pub(super) fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_dir(parent).map_err(Error::io("sync", parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_back_though_a_process_being_started_holds_a_copy_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let guard = OsDisk.lock(&path, LockKind::Exclusive).unwrap().unwrap();
        let _copy = guard.downcast_ref::<Lock>().unwrap().0.try_clone().unwrap();
        assert!(OsDisk.lock(&path, LockKind::Shared).unwrap().is_none());
        drop(guard);
        assert!(OsDisk.lock(&path, LockKind::Exclusive).unwrap().is_some());
    }
}
