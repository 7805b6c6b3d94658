//! How a store is opened or created.

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "remote")]
use super::super::remote::RemoteOptions;
use super::Store;
use super::codec::{self, Codec};
use super::format::{
    COMMIT, Header, META, META_SIZE, READ_LOCK, RECORD_LIMIT, SCHEMA, WRITE_LOCK, chunk_name, not_a_store,
};
use super::io::{Access, Disk, OsDisk, replace, sync_parent, unfinished};
use super::lock;
use super::url;
use super::{compact, delete};
use crate::error::{Error, Result};

/// How records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReadMode {
    /// Through memory maps: the fastest, for local disks. While a handle is open, no other program may truncate the
    /// store's files (the system would end this process with a bus error) or rewrite records in place; this crate and
    /// the Python loaderx's `append` do neither, Python's `compact` does both.
    #[default]
    Mapped,
    /// One positional read a record, for network file systems and files that others may change: whatever happens to
    /// them, a read gives the bytes or an error.
    Positional,
}

/// Which records are verified when they are read, beyond what is always checked: entries, lengths, and the checksums
/// that zstd frames carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Verify {
    /// Raw records are copied as they are.
    #[default]
    Off,
    /// Raw records are hashed and compared with their checksums. Those that another program wrote have none, and are
    /// taken as they are.
    Always,
}

/// How a store is opened or created: begin with [`StoreOptions::new`], end with `create`, `open`, `open_writable` or
/// `open_or_create`.
///
/// ```
/// # fn main() -> loaderx::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("store");
/// use loaderx::{Codec, StoreOptions};
///
/// let store = StoreOptions::new().codec(Codec::Zstd).level(9).create(&path)?;
/// store.append(b"a recordanother", &[0, 8, 15])?;
/// store.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub(super) codec: Codec,
    pub(super) level: Option<i32>,
    pub(super) record_limit: u32,
    pub(super) read_mode: ReadMode,
    pub(super) verify: Verify,
    pub(super) generation: u64,
    pub(super) disk: Arc<dyn Disk>,
    #[cfg(feature = "remote")]
    remote: RemoteOptions,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreOptions {
    /// The defaults: codec zstd at its default level, records to 1 MiB, mapped reading.
    pub fn new() -> Self {
        StoreOptions {
            codec: Codec::default(),
            level: None,
            record_limit: RECORD_LIMIT,
            read_mode: ReadMode::default(),
            verify: Verify::default(),
            generation: 0,
            disk: Arc::new(OsDisk),
            #[cfg(feature = "remote")]
            remote: RemoteOptions::default(),
        }
    }

    /// How new records are compressed. Old records are read whatever they were compressed with.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// The compression level of new records: 3 for zstd and 19 with a dictionary unless set.
    pub fn level(mut self, level: i32) -> Self {
        self.level = Some(level);
        self
    }

    /// The largest record that `append` takes, in bytes: 1 MiB unless set, and `u32::MAX` at most. The Python loaderx
    /// reads larger records, but writes none.
    pub fn record_limit(mut self, bytes: u32) -> Self {
        self.record_limit = bytes;
        self
    }

    /// How records are read: through maps unless set.
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = mode;
        self
    }

    /// Whether raw records are verified when they are read: not unless set.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// How a store in object storage is read, which a path like `s3://bucket/store` names.
    #[cfg(feature = "remote")]
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// The generation of a store that is created: that of the one whose records it will hold.
    pub(crate) fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// On another disk than the system's.
    pub(crate) fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Creates an empty store, with the directories above it, and opens it for writing.
    ///
    /// # Errors
    /// [`Error::Exists`] where something is at `path`, other than an empty directory or what an interrupted creation
    /// left; [`Error::Locked`] where another handle creates it; [`Error::Io`].
    pub fn create(self, path: impl AsRef<Path>) -> Result<Store> {
        self.create_with(path.as_ref(), None)
    }

    /// The same, with the content of schema.msgpack.
    pub(crate) fn create_with_schema(self, path: &Path, schema: &[u8]) -> Result<Store> {
        self.create_with(path, Some(schema))
    }

    fn create_with(self, path: &Path, schema: Option<&[u8]>) -> Result<Store> {
        self.check()?;
        let path = &url::local(path)?;
        let disk = &*self.disk;
        create_dirs(disk, path)?;
        // Once before the lock file is made, so that nothing is left in a foreign directory, and once under the lock.
        refuse_foreign(disk, path)?;
        let write = lock::writer(disk, path)?;
        refuse_foreign(disk, path)?;
        let (meta, schema_path, chunk) = (path.join(META), path.join(SCHEMA), path.join(chunk_name(0)));
        let new_meta = unfinished(&meta);
        for path in [&path.join(COMMIT), &schema_path] {
            if disk.exists(path) {
                disk.remove_file(path).map_err(Error::io("remove", path))?;
            }
        }
        if let Some(schema) = schema {
            replace(disk, &schema_path, schema)?;
        }
        let make_chunk = || disk.open(&chunk, Access::Write)?.set_len(0);
        make_chunk().map_err(Error::io("create", &chunk))?;
        // Until meta.zr has its name there is no store; from then on there is a whole one.
        let make_meta = || {
            let file = disk.open(&new_meta, Access::Write)?;
            file.set_len(META_SIZE)?;
            file.write_at(&Header::default().encode(), 0)?;
            file.sync()
        };
        make_meta().map_err(Error::io("create", &new_meta))?;
        disk.sync_dir(path).map_err(Error::io("sync", path))?;
        disk.rename(&new_meta, &meta).map_err(Error::io("create", &meta))?;
        disk.sync_dir(path).map_err(Error::io("sync", path))?;
        let generation = self.generation;
        let mut store = Store::open_with(self, path, Some(write))?;
        store.set_generation(generation)?;
        Ok(store)
    }

    /// Opens a store for reading.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::Unsupported`] for another version of the format, [`Error::Corrupt`],
    /// [`Error::Locked`] while its records are being moved, [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store> {
        self.check()?;
        let (options, path) = self.located(path.as_ref())?;
        check_store(&*options.disk, &path)?;
        Store::open_with(options, &path, None)
    }

    /// Opens a store for reading and appending. What an interrupted writer had appended is taken over and synced.
    ///
    /// # Errors
    /// As [`open`](StoreOptions::open), and [`Error::Locked`] while another handle writes to it.
    pub fn open_writable(self, path: impl AsRef<Path>) -> Result<Store> {
        self.check()?;
        let path = &url::local(path.as_ref())?;
        check_store(&*self.disk, path)?;
        let write = lock::writer(&*self.disk, path)?;
        delete::recover(&*self.disk, path)?;
        compact::recover(&*self.disk, path)?;
        Store::open_with(self, path, Some(write))
    }

    /// Opens the store for reading and appending, or creates it where nothing is.
    ///
    /// # Errors
    /// As [`open_writable`](StoreOptions::open_writable) and [`create`](StoreOptions::create).
    pub fn open_or_create(self, path: impl AsRef<Path>) -> Result<Store> {
        let path = &url::local(path.as_ref())?;
        let is_there = || self.disk.exists(&path.join(META));
        if !is_there() {
            match self.clone().create(path) {
                // Another handle has created it meanwhile.
                Err(Error::Exists { .. }) if is_there() => {}
                created => return created,
            }
        }
        self.open_writable(path)
    }

    /// With the disk of the store at `path`, which may be a URL, and as errors call it.
    #[cfg(feature = "remote")]
    fn located(mut self, path: &Path) -> Result<(StoreOptions, PathBuf)> {
        match url::of(path) {
            Some(url) if !url::is_file(url) => {
                self.disk = super::super::remote::open(url, &self.remote)?;
                Ok((self, PathBuf::from(url.trim_end_matches('/'))))
            }
            _ => Ok((self, url::local(path)?)),
        }
    }

    #[cfg(not(feature = "remote"))]
    fn located(self, path: &Path) -> Result<(StoreOptions, PathBuf)> {
        Ok((self, url::local(path)?))
    }

    fn check(&self) -> Result<()> {
        self.level.map_or(Ok(()), codec::check_level)
    }
}

/// An error that says what is at `path`, if it is no store.
fn check_store(disk: &dyn Disk, path: &Path) -> Result<()> {
    let meta = path.join(META);
    if disk.exists(&meta) {
        Ok(())
    } else if !disk.exists(path) {
        Err(not_a_store(&meta, "nothing is there"))
    } else {
        Err(not_a_store(&meta, "it has no meta.zr (an import makes a store of a file)"))
    }
}

/// An error where the directory holds anything but what an interrupted creation may have left.
fn refuse_foreign(disk: &dyn Disk, path: &Path) -> Result<()> {
    let (schema, chunk) = (path.join(SCHEMA), path.join(chunk_name(0)));
    let ours = [WRITE_LOCK, READ_LOCK, COMMIT, SCHEMA].map(|name| path.join(name));
    let ours = [&ours[..], &[unfinished(&schema), unfinished(&path.join(META)), chunk.clone()]].concat();
    let names = disk.list(path).map_err(Error::io("list", path))?;
    let mut foreign = !names.iter().all(|name| ours.contains(&path.join(name)));
    if !foreign && disk.exists(&chunk) {
        // Records without their table: the store has lost its meta.zr.
        let len = disk.open(&chunk, Access::Read).and_then(|file| file.len()).map_err(Error::io("open", &chunk))?;
        foreign = len > 0;
    }
    if foreign { Err(Error::Exists { path: path.to_path_buf() }) } else { Ok(()) }
}

/// Makes a directory and those above it, durably.
pub(crate) fn create_dirs(disk: &dyn Disk, path: &Path) -> Result<()> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for dir in path.ancestors() {
        if dir.as_os_str().is_empty() || disk.exists(dir) {
            break;
        }
        missing.push(dir.to_path_buf());
    }
    for dir in missing.iter().rev() {
        disk.create_dir(dir).map_err(Error::io("create", dir))?;
        sync_parent(disk, dir)?;
    }
    // A file in the way is named here, not by what fails inside of it later.
    disk.list(path).map(drop).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotADirectory => Error::Exists { path: path.to_path_buf() },
        _ => Error::io("list", path)(e),
    })
}
