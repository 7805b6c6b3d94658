//! A store in object storage, brought to this disk.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::Progress;
use super::place::Partial;
use crate::data::{Disk, OsDisk};
use crate::engine::remote::{RemoteDisk, RemoteOptions, open, wait};
use crate::engine::store::outline::{TABLE, TABLE_FILE};
use crate::error::{Error, Result};
use crate::{Corruption, Store};

/// Bytes of a request.
const PIECE: u64 = 8 << 20;

/// Brings a store in object storage to this disk, as it is when the pull begins, and verifies each record of it.
///
/// ```
/// # fn pull() -> loaderx::Result<()> {
/// loaderx::Pull::new().store("s3://bucket/images", "images")?;
/// # Ok(())
/// # }
/// ```
pub struct Pull<'a> {
    remote: RemoteOptions,
    requests: usize,
    stop: Option<&'a AtomicBool>,
    progress: Box<dyn FnMut(Progress) + 'a>,
}

impl fmt::Debug for Pull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pull").field("remote", &self.remote).finish_non_exhaustive()
    }
}

impl Default for Pull<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Pull<'a> {
    /// The defaults: 8 requests at a time, no progress.
    pub fn new() -> Self {
        Pull { remote: RemoteOptions::default(), requests: 8, stop: None, progress: Box::new(|_| {}) }
    }

    /// How object storage is reached. Of the cache only the table is in use.
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Stops with [`Error::Interrupted`] soon after `stop` becomes true. Nothing is left.
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Is told how many bytes have come, in `source_bytes`, after each few MiB.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Brings the store at `url` to `destination`, where nothing may be. Gives the number of its records.
    ///
    /// # Errors
    /// [`Error::NotAStore`]; [`Error::Exists`]; [`Error::Corrupt`] for the first record that is not what its checksum says;
    /// [`Error::Interrupted`]; [`Error::Io`], also where the store is replaced meanwhile. After an error there is no
    /// `destination`.
    pub fn store(self, url: &str, destination: impl AsRef<Path>) -> Result<u64> {
        let disk = open(url, &self.remote)?;
        self.store_from(&disk, Path::new(url), destination.as_ref())
    }

    pub(super) fn store_from(mut self, disk: &RemoteDisk, url: &Path, destination: &Path) -> Result<u64> {
        let os: Arc<dyn Disk> = Arc::new(OsDisk);
        let mut partial = Partial::begin(&os, destination)?;
        let files = disk.files();
        let total: u64 = files.iter().map(|(_, size)| size).sum();
        let mut done = 0;
        for (name, size) in &files {
            let path = partial.below(&[name])?;
            let file = File::create_new(&path).map_err(Error::io("create", &path))?;
            file.set_len(if name == TABLE { TABLE_FILE } else { *size }).map_err(Error::io("write", &path))?;
            // As many pieces at a time as there are requests: what is held is bounded.
            for begin in (0..*size).step_by(PIECE as usize * self.requests) {
                if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return Err(Error::Interrupted { records: 0, left: "nothing is left".into() });
                }
                let end = (*size).min(begin + PIECE * self.requests as u64);
                let ranges = (begin..end).step_by(PIECE as usize).map(|from| from..end.min(from + PIECE));
                let fetches: Vec<_> = ranges.map(|range| disk.fetch(name, range)).collect();
                let requests = self.requests;
                let got = wait(async move { stream::iter(fetches).buffered(requests).try_collect::<Vec<_>>().await });
                let mut at = begin;
                for piece in got.flatten().map_err(Error::io("read", &url.join(name)))? {
                    write_at(&file, &piece, at).map_err(Error::io("write", &path))?;
                    at += piece.len() as u64;
                }
                done += end - begin;
                (self.progress)(Progress {
                    rows: 0,
                    rows_total: None,
                    bytes: done,
                    source_bytes: done,
                    source_bytes_total: Some(total),
                });
            }
            file.sync_all().map_err(Error::io("sync", &path))?;
        }
        let records = verified(&partial.below(&[] as &[&str])?, destination)?;
        partial.finish()?;
        Ok(records)
    }
}

fn write_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = file;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// How many records a store has, each of which is whole.
fn verified(path: &Path, destination: &Path) -> Result<u64> {
    let store = Store::open(path)?;
    match store.verify(|_| ())?.bad.into_iter().next() {
        Some(bad) => Err(Error::Corrupt(Box::new(Corruption { path: destination.to_path_buf(), ..bad }))),
        None => Ok(store.len()),
    }
}
