//! The only file of this room that changes the file system: what is built beside its destination and put there whole.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The file whose lock says that an import is alive, and whose presence says that the directory is an import's.
const LOCK: &str = "import.lock";

/// What becomes the destination.
const DATA: &str = "data";

/// `DST.partial`, a directory in which the destination is built. It is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Partial {
    destination: PathBuf,
    path: PathBuf,
    /// Held locked until the end.
    _lock: File,
    /// Directories made below `DST.partial/data`, in the order of making.
    made: Vec<PathBuf>,
    replaced: bool,
}

impl Partial {
    /// Begins, in place of what an import left that was killed. An error where the destination exists, where another
    /// import is at work, and where `DST.partial` holds anything that is not an import's.
    pub(super) fn begin(destination: &Path) -> Result<Partial> {
        let Some(name) = destination.file_name() else {
            return Err(Error::invalid("destination", format!("{} names no new directory", destination.display())));
        };
        let mut name = name.to_owned();
        name.push(".partial");
        let path = destination.with_file_name(name);
        refuse_existing(destination)?;
        fs::create_dir_all(parent(destination)).map_err(Error::io("create", parent(destination)))?;
        let existed = match fs::create_dir(&path) {
            Ok(()) => false,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => true,
            Err(e) => return Err(Error::io("create", &path)(e)),
        };
        if existed && !is_an_imports(&path)? {
            return Err(Error::Exists { path });
        }
        let lock = lock(&path)?;
        let partial =
            Partial { destination: destination.to_path_buf(), path, _lock: lock, made: Vec::new(), replaced: existed };
        // The import that held the lock until now may have put the destination there.
        refuse_existing(destination)?;
        remove_dir_all(&partial.data())?;
        Ok(partial)
    }

    /// Whether an earlier import had been killed here.
    pub(super) fn replaced(&self) -> bool {
        self.replaced
    }

    /// Where temporary files go.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What becomes the destination.
    fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    /// A path below what becomes the destination, or that itself where there are no `names`. The directories above it
    /// were made.
    pub(super) fn below(&mut self, names: &[impl AsRef<Path>]) -> Result<PathBuf> {
        let mut path = self.data();
        for name in names {
            match fs::create_dir(&path) {
                Ok(()) => self.made.push(path.clone()),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("create", &path)(e)),
            }
            path.push(name);
        }
        Ok(path)
    }

    /// Puts the destination in its place. Everything in it is durable before, and its name is afterwards.
    pub(super) fn finish(self) -> Result<()> {
        self.made.iter().rev().try_for_each(|directory| sync_directory(directory))?;
        sync_directory(&self.data())?;
        sync_directory(&self.path)?;
        refuse_existing(&self.destination)?;
        fs::rename(self.data(), &self.destination).map_err(Error::io("rename to", &self.destination))?;
        sync_directory(parent(&self.destination))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Nobody can be told of a failure here; what is left is replaced by the next import.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Takes the lock of a `DST.partial`.
fn lock(partial: &Path) -> Result<File> {
    let path = partial.join(LOCK);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(Error::io("open", &path))?;
    match file.try_lock() {
        // Whoever held the lock before may have removed the file before giving it back.
        Ok(()) if path.exists() => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            let reason = "another import builds the same destination: wait for it, or choose another destination";
            Err(Error::Locked { path, reason: reason.into() })
        }
        Err(TryLockError::Error(e)) => Err(Error::io("lock", &path)(e)),
    }
}

/// Whether a directory holds nothing but what an import puts there.
fn is_an_imports(path: &Path) -> Result<bool> {
    let metadata = fs::symlink_metadata(path).map_err(Error::io("read", path))?;
    if !metadata.is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(path).map_err(Error::io("read", path))? {
        let name = entry.map_err(Error::io("read", path))?.file_name();
        if name != LOCK && name != DATA {
            return Ok(false);
        }
    }
    Ok(true)
}

fn refuse_existing(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(Error::Exists { path: path.to_path_buf() }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

fn remove_dir_all(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(e)),
        _ => Ok(()),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a directory durable. Windows has no such call, and needs none.
fn sync_directory(path: &Path) -> Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::io("sync", path))
}

/// A file that is written under a temporary name and appears whole. Dropped without `finish`, it disappears.
#[derive(Debug)]
pub(super) struct NewFile {
    destination: PathBuf,
    file: tempfile::NamedTempFile,
}

impl NewFile {
    /// Begins; an error where the destination exists.
    pub(super) fn create(destination: &Path) -> Result<NewFile> {
        refuse_existing(destination)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".loaderx-export-");
        // Like any new file, not private as temporary files are.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(parent(destination)).map_err(Error::io("create", destination))?;
        Ok(NewFile { destination: destination.to_path_buf(), file })
    }

    /// Appends bytes.
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        io::Write::write_all(&mut self.file, bytes).map_err(Error::io("write", &self.destination))
    }

    /// Puts the file in its place, durably.
    pub(super) fn finish(self) -> Result<()> {
        let path = &self.destination;
        self.file.as_file().sync_all().map_err(Error::io("sync", path))?;
        self.file.persist_noclobber(path).map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists { path: path.clone() },
            _ => Error::io("rename to", path)(e.error),
        })?;
        sync_directory(parent(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_appears_whole_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let destination = directory.path().join("store");
        let mut partial = Partial::begin(&destination).unwrap();
        assert!(!partial.replaced());
        let path = partial.below(&["a", "b"]).unwrap();
        fs::write(path, "x").unwrap();
        assert!(!destination.exists());
        partial.finish().unwrap();
        assert_eq!(fs::read(destination.join("a/b")).unwrap(), b"x");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(matches!(Partial::begin(&destination), Err(Error::Exists { path }) if path == destination));
    }

    #[test]
    fn a_failed_import_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let partial = Partial::begin(&directory.path().join("store")).unwrap();
        fs::create_dir(partial.data()).unwrap();
        drop(partial);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_import_left_is_replaced_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join("store.partial");
        fs::create_dir_all(left.join("data/old")).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let mut partial = Partial::begin(&directory.path().join("store")).unwrap();
        assert!(partial.replaced() && !partial.data().exists());
        fs::write(partial.below(&["new"]).unwrap(), "").unwrap();
        partial.finish().unwrap();
        assert!(!directory.path().join("store/old").exists() && directory.path().join("store/new").exists());
    }

    #[test]
    fn what_is_not_an_imports_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (destination, partial) = (directory.path().join("store"), directory.path().join("store.partial"));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("thesis.tex"), "x").unwrap();
        assert!(matches!(Partial::begin(&destination), Err(Error::Exists { path }) if path == partial));
        assert!(partial.join("thesis.tex").exists());
        fs::remove_dir_all(&partial).unwrap();
        fs::write(&partial, "a file").unwrap();
        assert!(matches!(Partial::begin(&destination), Err(Error::Exists { .. })));
        assert!(partial.exists());
    }

    #[test]
    fn an_import_that_is_alive_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let destination = directory.path().join("store");
        let first = Partial::begin(&destination).unwrap();
        assert!(matches!(Partial::begin(&destination), Err(Error::Locked { .. })));
        assert!(first.path().exists());
    }

    #[test]
    fn a_destination_without_a_name_or_below_a_file_is_refused() {
        assert!(matches!(Partial::begin(Path::new("/")), Err(Error::Invalid { .. })));
        assert!(matches!(Partial::begin(Path::new("a/..")), Err(Error::Invalid { .. })));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), b"").unwrap();
        assert!(matches!(Partial::begin(&directory.path().join("file/store")), Err(Error::Io { .. })));
        Partial::begin(&directory.path().join("new/folders/store")).unwrap().finish().unwrap_err();
        assert!(directory.path().join("new/folders").is_dir());
    }

    #[test]
    fn a_new_file_appears_whole_and_never_over_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.npy");
        let (mut one, mut other) = (NewFile::create(&path).unwrap(), NewFile::create(&path).unwrap());
        one.write_all(b"one").unwrap();
        other.write_all(b"other").unwrap();
        assert!(!path.exists());
        one.finish().unwrap();
        assert!(matches!(other.finish(), Err(Error::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert!(matches!(NewFile::create(&path), Err(Error::Exists { .. })));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
