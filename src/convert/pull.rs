//! A store in object storage, brought to this disk.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::Progress;
use super::journal::Journal;
use super::place::{Incoming, Left, Partial};
use crate::Store;
use crate::data::{Disk, OsDisk};
use crate::engine::remote::{RemoteDisk, RemoteFile, RemoteOptions, open, wait};
use crate::engine::store::outline::{TABLE, TABLE_FILE};
use crate::error::{Error, Result};

/// Bytes of a request.
const PIECE: u64 = 8 << 20;
/// How often it is asked whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// Brings a store in object storage to this disk, as it is when the pull begins.
///
/// Each file of it is compared with the hash that [`Push`](crate::Push) has noted; where none was noted, each record with its
/// checksum. The store is built in `DST.partial` and appears whole. After an error, files that are whole stay there for one that
/// [resumes](Pull::resume).
///
/// ```
/// # fn pull() -> loaderx::Result<()> {
/// loaderx::Pull::new().store("s3://bucket/images", "images")?;
/// # Ok(())
/// # }
/// ```
pub struct Pull<'a> {
    remote: RemoteOptions,
    resume: bool,
    stop: Option<&'a AtomicBool>,
    progress: Box<dyn FnMut(Progress) + 'a>,
}

/// What a [`Pull`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulled {
    /// How many records the store has.
    pub records: u64,
    /// How many objects came.
    pub fetched: u64,
    /// How many were there already, from a pull that was cut off.
    pub kept: u64,
    /// Bytes that came.
    pub bytes: u64,
}

impl fmt::Debug for Pull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pull").field("remote", &self.remote).field("resume", &self.resume).finish_non_exhaustive()
    }
}

impl Default for Pull<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Pull<'a> {
    /// The defaults: no progress, and what an earlier pull has left is replaced.
    pub fn new() -> Self {
        Pull { remote: RemoteOptions::default(), resume: false, stop: None, progress: Box::new(|_| {}) }
    }

    /// How object storage is reached. Each request under way takes 8 MiB of memory. Of the cache only the table is in use.
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Goes on with what a pull of the same store left in `DST.partial`: files that are whole do not come again. A store that
    /// was replaced meanwhile is an error.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Stops with [`Error::Interrupted`] soon after `stop` becomes true. Files that are whole are kept for one that resumes.
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Is told how many bytes have come, in `source_bytes`, after each few MiB.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Brings the store at `url` to `destination`, where nothing may be.
    ///
    /// # Errors
    /// [`Error::NotAStore`]; [`Error::Exists`]; [`Error::Locked`] while another pull makes the same destination;
    /// [`Error::Corrupt`] for a file that is not what was pushed, or where no hash was noted, for the first record that is not
    /// what its checksum says; [`Error::Interrupted`]; [`Error::Io`], also where the store is replaced meanwhile. After an
    /// error there is no `destination`.
    pub fn store(self, url: &str, destination: impl AsRef<Path>) -> Result<Pulled> {
        let disk = open(url, &self.remote)?;
        self.store_from(&disk, Path::new(url.trim_end_matches('/')), destination.as_ref())
    }

    pub(super) fn store_from(mut self, disk: &RemoteDisk, url: &Path, destination: &Path) -> Result<Pulled> {
        let os: Arc<dyn Disk> = Arc::new(OsDisk);
        let files = disk.files()?;
        let mut version = Xxh3::new();
        files.iter().for_each(|file| version.update(&file.key.to_le_bytes()));
        let version = format!("{:032x}", version.digest128());
        let said = [("the store", url.display().to_string()), ("its version", version)];
        let said = said.map(|(what, value)| (what.to_owned(), value));
        let journal = Journal::new(said.to_vec(), Vec::new());
        let mut partial = Partial::begin_with(&os, destination, &journal, self.resume)?;
        let resumed = partial.left() == Left::Resumed;
        // The folder is made for what is below it.
        partial.below(&[TABLE])?;
        let folder = partial.below(&[""; 0])?;
        let all = All { from: disk, url, files, disk: os, folder, resumed };
        let mut pulled = match self.fill(&all) {
            Ok(pulled) => pulled,
            Err(error) => {
                // Files that have their names are whole.
                partial.keep();
                return Err(error);
            }
        };
        pulled.records = all.verified()?;
        partial.finish()?;
        Ok(pulled)
    }

    fn fill(&mut self, all: &All<'_>) -> Result<Pulled> {
        let mut pulled = Pulled { records: 0, fetched: 0, kept: 0, bytes: 0 };
        let stop = self.stop;
        let missing = all.missing(|| stop.is_some_and(|stop| stop.load(Ordering::Relaxed)))?;
        pulled.fetched = missing.len() as u64;
        pulled.kept = all.files.len() as u64 - pulled.fetched;
        pulled.bytes = self.receive(all, &missing)?;
        Ok(pulled)
    }

    /// Brings files, some pieces at a time, and gives how many bytes came.
    fn receive(&mut self, all: &All<'_>, missing: &[Receiving<'_>]) -> Result<u64> {
        let pieces = missing.iter().flat_map(|file| file.pieces().map(move |range| (file, range)));
        let pieces = Mutex::new(pieces);
        let ends = AtomicBool::new(false);
        let work = |tell: &Sender<Result<u64>>| {
            let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((file, range)) = next().filter(|_| !ends.load(Ordering::Relaxed)) {
                // Whoever listens does so to the end.
                let _ = tell.send(file.receive(all, range, || ends.load(Ordering::Relaxed)));
            }
        };
        let total = missing.iter().map(|file| file.file.len).sum();
        let (mut bytes, mut ended) = (0, Ok(()));
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for _ in 0..self.remote.at_once() {
                let (tell, work) = (tell.clone(), &work);
                scope.spawn(move || work(&tell));
            }
            drop(tell);
            loop {
                match told.recv_timeout(TICK) {
                    Ok(Ok(came)) => bytes += came,
                    Ok(Err(error)) if ended.is_ok() => ended = Err(error),
                    Ok(Err(_)) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if ended.is_ok() && self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    ended = Err(interrupted());
                }
                ends.fetch_or(ended.is_err(), Ordering::Relaxed);
                let (rows, rows_total, source_bytes_total) = (0, None, Some(total));
                (self.progress)(Progress { rows, rows_total, bytes, source_bytes: bytes, source_bytes_total });
            }
        });
        ended.map(|()| bytes)
    }
}

/// All files of a store, where they are and where they come to.
struct All<'a> {
    from: &'a RemoteDisk,
    /// As errors call it.
    url: &'a Path,
    files: Vec<RemoteFile>,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    resumed: bool,
}

impl All<'_> {
    /// How many records the store has, each of which is looked at where nobody has noted what its file was.
    fn verified(&self) -> Result<u64> {
        let store = Store::open(&self.folder)?;
        let noted = self.files.iter().all(|file| file.hash.is_some());
        match if noted { None } else { store.verify(|_| ())?.bad.into_iter().next() } {
            Some(bad) => Err(Error::Corrupt(Box::new(bad))),
            None => Ok(store.len()),
        }
    }

    /// The files that are not there whole.
    fn missing(&self, stop: impl Fn() -> bool) -> Result<Vec<Receiving<'_>>> {
        let mut missing = Vec::new();
        for file in &self.files {
            // A table is as long as all tables, of which the first bytes were hashed.
            let len = if file.name == TABLE { TABLE_FILE } else { file.len };
            let incoming = Incoming::new(&self.disk, &self.folder.join(&file.name), len);
            let is_whole = match &file.hash {
                _ if !self.resumed || !incoming.is_there() => false,
                None => true,
                Some(noted) => hash(&incoming, file.len, &stop)? == *noted,
            };
            if !is_whole {
                let left = AtomicU64::new(file.len.div_ceil(PIECE).max(1));
                missing.push(Receiving { file, incoming, left });
            }
        }
        Ok(missing)
    }
}

/// A file that comes in pieces.
struct Receiving<'a> {
    file: &'a RemoteFile,
    incoming: Incoming,
    /// How many pieces did not come yet.
    left: AtomicU64,
}

impl Receiving<'_> {
    fn pieces(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let len = self.file.len;
        (0..len.max(1)).step_by(PIECE as usize).map(move |begin| begin..len.min(begin + PIECE))
    }

    /// Brings a piece, and gives how many bytes it has. With the last one, the file gets its name.
    fn receive(&self, all: &All<'_>, range: Range<u64>, stop: impl Fn() -> bool) -> Result<u64> {
        let (name, begin, len) = (&self.file.name, range.start, range.end - range.start);
        if len > 0 {
            let path = all.url.join(name);
            let bytes = wait(all.from.fetch(name, range)).flatten().map_err(Error::io("read", &path))?;
            self.incoming.write_at(&bytes, begin)?;
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(noted) = &self.file.hash {
                let found = hash(&self.incoming, self.file.len, &stop)?;
                if found != *noted {
                    return Err(Error::corrupt(
                        &all.url.join(name),
                        format!("the hash {noted} of what was pushed"),
                        found,
                    ));
                }
            }
            self.incoming.finish()?;
        }
        Ok(len)
    }
}

/// The XXH3-128 of a file's first bytes.
fn hash(file: &Incoming, len: u64, stop: &impl Fn() -> bool) -> Result<String> {
    let mut hash = Xxh3::new();
    file.read(len, |bytes| {
        hash.update(bytes);
        if stop() { Err(interrupted()) } else { Ok(()) }
    })?;
    Ok(format!("{:032x}", hash.digest128()))
}

fn interrupted() -> Error {
    Error::Interrupted { records: 0, left: "files that are whole are kept: go on with resume (--resume)".into() }
}
