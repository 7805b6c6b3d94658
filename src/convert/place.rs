//! The only file of this room that changes the file system: what is built beside its destination and put there whole.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "remote")]
use std::sync::{Mutex, PoisonError};

use super::journal::{self, Journal, MAX_JOURNAL};
#[cfg(feature = "remote")]
use crate::data::{Access, DiskFile};
use crate::data::{Disk, LockGuard, LockKind, OsDisk, create_dirs, read_small, refuse_url, replace, unfinished};
use crate::error::{Error, Result};
use crate::events::event;

/// The file whose lock says that an import is alive, and whose presence says that the directory is an import's.
const LOCK: &str = "import.lock";

/// What becomes the destination.
const DATA: &str = "data";

/// The lock of a `DST.partial`.
struct Lock(#[expect(dead_code, reason = "held, never looked at")] LockGuard);

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

/// `DST.partial`, a directory in which the destination is built. It is removed when it is dropped, unless it is kept.
#[derive(Debug)]
pub(super) struct Partial {
    disk: Arc<dyn Disk>,
    destination: PathBuf,
    path: PathBuf,
    /// Held until the end.
    _lock: Lock,
    /// Directories made below `DST.partial/data`, in the order of making.
    made: Vec<PathBuf>,
    left: Left,
    /// Whether a journal says what the import was begun with.
    journal: bool,
    keep: bool,
}

/// What an earlier import had left in `DST.partial`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// Something that was removed.
    Replaced,
    /// What this import goes on with.
    Resumed,
}

impl Partial {
    /// Begins, in place of what an import left that was killed. An error where the destination exists, where another
    /// import is at work, and where `DST.partial` holds anything that is not an import's.
    pub(super) fn begin(disk: &Arc<dyn Disk>, destination: &Path) -> Result<Partial> {
        let partial = Partial::take(disk, destination)?;
        partial.clear()?;
        Ok(partial)
    }

    /// The same, with a journal of what the import is begun with. To resume is to go on with what an import with the
    /// same journal left; where none was left, nothing is different. An error, which leaves all as it is, where what was
    /// left was begun otherwise.
    pub(super) fn begin_with(
        disk: &Arc<dyn Disk>,
        destination: &Path,
        journal: &Journal,
        resume: bool,
    ) -> Result<Partial> {
        let mut partial = Partial::take(disk, destination)?;
        let path = journal::path(&partial.path);
        if resume && disk.exists(&path) {
            // Nothing was changed here yet.
            partial.keep = true;
            journal.check(&path, &read_small(&**disk, &path, MAX_JOURNAL)?)?;
            partial.keep = false;
            partial.left = Left::Resumed;
        } else {
            partial.clear()?;
            replace(&**disk, &path, &journal.to_bytes())?;
        }
        partial.journal = true;
        Ok(partial)
    }

    /// Takes the lock of `DST.partial`, which is made where it is not.
    fn take(disk: &Arc<dyn Disk>, destination: &Path) -> Result<Partial> {
        let Some(name) = destination.file_name() else {
            return Err(Error::invalid("destination", format!("{} names no new directory", destination.display())));
        };
        let mut name = name.to_owned();
        name.push(".partial");
        let path = destination.with_file_name(name);
        refuse_existing(&**disk, destination)?;
        create_dirs(&**disk, parent(destination))?;
        let existed = disk.exists(&path);
        if existed && !is_an_imports(&**disk, &path)? {
            return Err(Error::Exists { path });
        }
        disk.create_dir(&path).map_err(Error::io("create", &path))?;
        let lock = lock(&**disk, &path)?;
        let partial = Partial {
            disk: Arc::clone(disk),
            destination: destination.to_path_buf(),
            path,
            _lock: lock,
            made: Vec::new(),
            left: if existed { Left::Replaced } else { Left::Nothing },
            journal: false,
            keep: false,
        };
        // The import that held the lock until now may have put the destination there.
        refuse_existing(&**disk, destination)?;
        event!(INFO, path = %destination.display(), in_place_of_a_killed_one = existed, "an import begins");
        Ok(partial)
    }

    /// Removes what an earlier import left: first the journal, so that it never speaks of what another import wrote.
    fn clear(&self) -> Result<()> {
        let journal = journal::path(&self.path);
        for path in [&journal, &unfinished(&journal)] {
            if self.disk.exists(path) {
                self.disk.remove_file(path).map_err(Error::io("remove", path))?;
                self.disk.sync_dir(&self.path).map_err(Error::io("sync", &self.path))?;
            }
        }
        if self.disk.exists(&self.data()) {
            self.disk.remove_dir_all(&self.data()).map_err(Error::io("remove", &self.data()))?;
        }
        Ok(())
    }

    /// What an earlier import had left here.
    pub(super) fn left(&self) -> Left {
        self.left
    }

    /// Whether another import could go on with what this one leaves.
    pub(super) fn is_resumable(&self) -> bool {
        self.journal
    }

    /// Leaves everything where it is, for an import that resumes.
    pub(super) fn keep(mut self) -> PathBuf {
        self.keep = true;
        self.path.clone()
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
            if !self.made.contains(&path) {
                // An import that was killed may have made it, and not synced it.
                self.disk.create_dir(&path).map_err(Error::io("create", &path))?;
                self.made.push(path.clone());
            }
            path.push(name);
        }
        Ok(path)
    }

    /// Puts the destination in its place. Everything in it is durable before, and its name is afterwards.
    pub(super) fn finish(self) -> Result<()> {
        let sync = |directory: &Path| self.disk.sync_dir(directory).map_err(Error::io("sync", directory));
        self.made.iter().rev().try_for_each(|directory| sync(directory))?;
        sync(&self.data())?;
        sync(&self.path)?;
        refuse_existing(&*self.disk, &self.destination)?;
        self.disk.rename(&self.data(), &self.destination).map_err(Error::io("rename to", &self.destination))?;
        sync(parent(&self.destination))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.keep {
            // Nobody can be told of a failure here; what is left is replaced by the next import.
            let _ = self.disk.remove_dir_all(&self.path);
        }
    }
}

/// Takes the lock of a `DST.partial`.
fn lock(disk: &dyn Disk, partial: &Path) -> Result<Lock> {
    let path = partial.join(LOCK);
    match disk.lock(&path, LockKind::Exclusive).map_err(Error::io("lock", &path))? {
        // Whoever held the lock before may have removed the file before giving it back.
        Some(lock) if disk.exists(&path) => Ok(Lock(lock)),
        _ => {
            let reason = "another import builds the same destination: wait for it, or choose another destination";
            Err(Error::Locked { path, reason: reason.into() })
        }
    }
}

/// Whether a directory holds nothing but what an import puts there.
fn is_an_imports(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match disk.list(path) {
        Ok(names) => {
            let journal = unfinished(Path::new(journal::NAME));
            let ours = [LOCK.as_ref(), DATA.as_ref(), journal::NAME.as_ref(), journal.as_os_str()];
            Ok(names.iter().all(|name| ours.contains(&name.as_os_str())))
        }
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(e) => Err(Error::io("read", path)(e)),
    }
}

pub(super) fn refuse_existing(disk: &dyn Disk, path: &Path) -> Result<()> {
    refuse_url(path)?;
    if disk.exists(path) { Err(Error::Exists { path: path.to_path_buf() }) } else { Ok(()) }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in a `DST.partial` that is written at any place, and has its name when it is whole.
#[cfg(feature = "remote")]
#[derive(Debug)]
pub(super) struct Incoming {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    len: u64,
    /// While it is written.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
}

#[cfg(feature = "remote")]
impl Incoming {
    /// A file of `len` bytes; nothing is done yet.
    pub(super) fn new(disk: &Arc<dyn Disk>, path: &Path, len: u64) -> Incoming {
        Incoming { disk: Arc::clone(disk), path: path.to_path_buf(), len, file: Mutex::default() }
    }

    /// Whether it has its name.
    pub(super) fn is_there(&self) -> bool {
        self.disk.exists(&self.path)
    }

    fn file(&self) -> Result<Arc<dyn DiskFile>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let path = unfinished(&self.path);
        let opened = self.disk.open(&path, Access::Write).map_err(Error::io("create", &path))?;
        opened.set_len(0).and_then(|()| opened.set_len(self.len)).map_err(Error::io("write", &path))?;
        Ok(Arc::clone(file.insert(opened)))
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file()?.write_at(bytes, offset).map_err(Error::io("write", &self.path))
    }

    /// Reads the first `len` bytes, while it is written or when it is whole, and tells `take` of them.
    pub(super) fn read(&self, len: u64, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let open = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let file = open.map_or_else(|| self.disk.open(&self.path, Access::Read), Ok);
        let file = file.map_err(Error::io("open", &self.path))?;
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        for begin in (0..len).step_by(1 << 20) {
            let bytes = &mut bytes[..(len - begin).min(1 << 20) as usize];
            file.read_at(bytes, begin).map_err(Error::io("read", &self.path))?;
            take(bytes)?;
        }
        Ok(())
    }

    /// Gives it its name, durably but for the name.
    pub(super) fn finish(&self) -> Result<()> {
        let file = self.file()?;
        file.sync().map_err(Error::io("sync", &self.path))?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.disk.rename(&unfinished(&self.path), &self.path).map_err(Error::io("rename to", &self.path))
    }
}

/// A file without a name beside the destination, which is gone when it is closed.
pub(super) fn nameless_file(destination: &Path) -> Result<File> {
    let folder = parent(destination);
    create_dirs(&OsDisk, folder)?;
    tempfile::tempfile_in(folder).map_err(Error::io("create a temporary file in", folder))
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
        refuse_existing(&OsDisk, destination)?;
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

    /// The file itself, for who writes at any place in it.
    pub(super) fn as_file(&mut self) -> &File {
        self.file.as_file()
    }

    /// Puts the file in its place, durably.
    pub(super) fn finish(self) -> Result<()> {
        let path = &self.destination;
        self.file.as_file().sync_all().map_err(Error::io("sync", path))?;
        self.file.persist_noclobber(path).map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists { path: path.clone() },
            _ => Error::io("rename to", path)(e.error),
        })?;
        OsDisk.sync_dir(parent(path)).map_err(Error::io("sync", parent(path)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn os() -> Arc<dyn Disk> {
        Arc::new(OsDisk)
    }

    #[test]
    fn the_destination_appears_whole_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let destination = directory.path().join("store");
        let mut partial = Partial::begin(&os(), &destination).unwrap();
        assert_eq!(partial.left(), Left::Nothing);
        let path = partial.below(&["a", "b"]).unwrap();
        fs::write(path, "x").unwrap();
        assert!(!destination.exists());
        partial.finish().unwrap();
        assert_eq!(fs::read(destination.join("a/b")).unwrap(), b"x");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(matches!(Partial::begin(&os(), &destination), Err(Error::Exists { path }) if path == destination));
    }

    #[test]
    fn a_failed_import_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let partial = Partial::begin(&os(), &directory.path().join("store")).unwrap();
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
        let mut partial = Partial::begin(&os(), &directory.path().join("store")).unwrap();
        assert!(partial.left() == Left::Replaced && !partial.data().exists());
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
        assert!(matches!(Partial::begin(&os(), &destination), Err(Error::Exists { path }) if path == partial));
        assert!(partial.join("thesis.tex").exists());
        fs::remove_dir_all(&partial).unwrap();
        fs::write(&partial, "a file").unwrap();
        assert!(matches!(Partial::begin(&os(), &destination), Err(Error::Exists { .. })));
        assert!(partial.exists());
    }

    #[test]
    fn an_import_that_is_alive_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let destination = directory.path().join("store");
        let first = Partial::begin(&os(), &destination).unwrap();
        assert!(matches!(Partial::begin(&os(), &destination), Err(Error::Locked { .. })));
        assert!(first.path().exists());
    }

    #[test]
    fn a_destination_without_a_name_or_below_a_file_is_refused() {
        assert!(matches!(Partial::begin(&os(), Path::new("/")), Err(Error::Invalid { .. })));
        assert!(matches!(Partial::begin(&os(), Path::new("a/..")), Err(Error::Invalid { .. })));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), b"").unwrap();
        let below_a_file = Partial::begin(&os(), &directory.path().join("file/store"));
        assert!(matches!(below_a_file, Err(Error::Exists { path }) if path.ends_with("file")));
        Partial::begin(&os(), &directory.path().join("new/folders/store")).unwrap().finish().unwrap_err();
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
