//! Pieces of objects in files on the local disk, for all processes of a host, and for the next run.
//!
//! A file holds the piece, and behind it what it is and the checksum of both:
//!
//! ```text
//! 0    the bytes
//! n    length u64 · XXH3-128 of the bytes · magic "LXBLOCK1"
//! ```
//!
//! It is written under another name, that of one process at a time, and renamed. So what is found is whole, unless the
//! machine stopped: then its checksum differs, and it is fetched again. A file is never changed, only removed: who has mapped
//! it goes on reading what it was. Nothing is synced, since nothing is lost.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::super::store::Map;
use crate::error::{Error, Result};

const MAGIC: [u8; 8] = *b"LXBLOCK1";
const TRAILER: u64 = 32;
/// Locked by who adds to the cache, and holds how many bytes it has.
const TOTAL: &str = "total";
/// The folder of files of this version, beside which those of others may be.
const VERSION: &str = "v1";

#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    capacity: u64,
    /// Files to remove, those that were used last first.
    oldest: Mutex<Vec<(SystemTime, PathBuf, u64)>>,
}

/// The right to write one file, which no other process has meanwhile.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl Cache {
    pub(super) fn new(folder: &Path, capacity: u64) -> Result<Cache> {
        let folder = folder.join(VERSION);
        fs::create_dir_all(&folder).map_err(Error::io("create the cache's folder", &folder))?;
        Ok(Cache { folder, capacity, oldest: Mutex::default() })
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The file of a piece: of which version of which object, and which piece.
    pub(super) fn path(&self, object: u128, piece: &str) -> PathBuf {
        let object = format!("{object:032x}");
        self.folder.join(&object[..2]).join(&object[2..]).join(piece)
    }

    /// The piece, of `len` bytes, if it is there and whole.
    pub(super) fn load(&self, path: &Path, len: u64) -> Option<Map> {
        let mut file = File::open(path).ok()?;
        let whole = || {
            let map = Map::of_block(&file, len)?;
            let mut trailer = [0; TRAILER as usize];
            (&file).seek(SeekFrom::Start(len))?;
            (&file).read_exact(&mut trailer)?;
            let found = file.metadata()?.len() == len + TRAILER;
            let matches = map.with_frame(0, len as usize, |bytes| self::trailer(len, xxh3_128(bytes)) == trailer);
            io::Result::Ok((found && (matches == Some(true) || len == 0)).then_some(map))
        };
        match whole() {
            Ok(Some(map)) => {
                let _ = file.set_modified(SystemTime::now());
                Some(map)
            }
            _ => {
                // Damaged. Another process may have replaced it by a whole one meanwhile, which is then fetched again.
                let _ = file.rewind();
                self.remove(path);
                None
            }
        }
    }

    /// Says that a piece was used just now.
    pub(super) fn touch(&self, path: &Path) {
        if let Ok(file) = File::open(path) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes a piece.
    pub(super) fn remove(&self, path: &Path) {
        let size = fs::metadata(path).map_or(0, |found| found.len());
        if fs::remove_file(path).is_ok() {
            let _ = self.change_total(|total| total.saturating_sub(size));
        }
    }

    /// Claims a piece that is to be written; `None` where another process writes it just now, or has written it.
    pub(super) fn claim(&self, path: &Path) -> io::Result<Option<Claim>> {
        let part = path.with_extension("part");
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part)?;
        match file.try_lock() {
            Ok(()) if path.exists() => {
                let _ = fs::remove_file(&part);
                Ok(None)
            }
            // Whoever had it before has given it up.
            Ok(()) if !part.exists() => Ok(None),
            Ok(()) => Ok(Some(Claim { path: path.to_path_buf(), part, file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Writes a piece of `len` bytes that was claimed, and makes room for it. Gives the pieces that were removed for that.
    pub(super) fn write(&self, claim: Claim, len: u64) -> io::Result<(Writer<'_>, HashSet<PathBuf>)> {
        let size = len + TRAILER;
        // Its room is taken before it is, so that others see it.
        claim.file.set_len(size)?;
        let removed = self.make_room(size)?;
        (&claim.file).rewind()?;
        Ok((Writer { cache: self, claim: Some(claim), len, hash: Xxh3::new() }, removed))
    }

    /// Gives a claim up.
    pub(super) fn give_up(&self, claim: Claim) {
        let _ = fs::remove_file(&claim.part);
    }

    /// Takes room for `size` bytes, and gives the pieces that were removed for them.
    fn make_room(&self, size: u64) -> io::Result<HashSet<PathBuf>> {
        let mut removed = HashSet::new();
        if size > self.capacity {
            return Err(io::Error::new(
                ErrorKind::StorageFull,
                format!("{size} bytes are more than the cache may hold, {}: set a larger capacity", self.capacity),
            ));
        }
        let mut oldest = self.oldest();
        self.change_total(|total| {
            let mut total = total.saturating_add(size);
            let mut scanned = false;
            while total > self.capacity {
                let Some((used, path, size)) = oldest.pop() else {
                    if scanned {
                        break;
                    }
                    scanned = true;
                    (*oldest, total) = self.scan();
                    continue;
                };
                let unused_since =
                    fs::metadata(&path).and_then(|found| found.modified()).is_ok_and(|found| found <= used);
                if unused_since && fs::remove_file(&path).is_ok() {
                    total = total.saturating_sub(size);
                    removed.insert(path);
                }
            }
            total
        })?;
        Ok(removed)
    }

    fn oldest(&self) -> MutexGuard<'_, Vec<(SystemTime, PathBuf, u64)>> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pieces, those that were used last first, and the bytes of all files.
    fn scan(&self) -> (Vec<(SystemTime, PathBuf, u64)>, u64) {
        let (mut pieces, mut total) = (Vec::new(), 0);
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let (Ok(found), path) = (entry.metadata(), entry.path()) else { continue };
                if found.is_dir() {
                    folders.push(path);
                    continue;
                }
                total += found.len();
                // What another process writes just now is left to it; what one that was killed has left is not.
                let is_part = path.extension().is_some_and(|extension| extension == "part");
                let left = is_part && File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
                if left && fs::remove_file(&path).is_ok() {
                    total -= found.len();
                } else if !is_part && path.file_name().is_some_and(|name| name != TOTAL) {
                    pieces.push((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), path, found.len()));
                }
            }
        }
        pieces.sort_by(|a, b| b.cmp(a));
        (pieces, total)
    }

    /// Changes how many bytes the cache has, while no other process does.
    fn change_total(&self, change: impl FnOnce(u64) -> u64) -> io::Result<()> {
        let path = self.folder.join(TOTAL);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        let mut bytes = [0; 8];
        let known = file.read_exact(&mut bytes).is_ok();
        let total = if known { u64::from_le_bytes(bytes) } else { self.scan().1 };
        file.rewind()?;
        file.write_all(&change(total).to_le_bytes())
    }
}

/// A piece that is being written. Where it is dropped before it is whole, nothing is left of it.
pub(super) struct Writer<'a> {
    cache: &'a Cache,
    claim: Option<Claim>,
    len: u64,
    hash: Xxh3,
}

impl Writer<'_> {
    /// The next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.claim.as_ref().map_or(Ok(()), |claim| (&claim.file).write_all(bytes))
    }

    /// The piece, which is whole.
    pub(super) fn finish(mut self) -> io::Result<Map> {
        let Some(claim) = &self.claim else { return Err(ErrorKind::NotFound.into()) };
        (&claim.file).write_all(&trailer(self.len, self.hash.digest128()))?;
        let map = Map::of_block(&claim.file, self.len)?;
        fs::rename(&claim.part, &claim.path)?;
        self.claim = None;
        Ok(map)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.cache.give_up(claim);
            let _ = self.cache.change_total(|total| total.saturating_sub(self.len + TRAILER));
        }
    }
}

/// What stands behind the bytes of a piece.
fn trailer(len: u64, hash: u128) -> [u8; TRAILER as usize] {
    let mut trailer = [0; TRAILER as usize];
    trailer[..8].copy_from_slice(&len.to_le_bytes());
    trailer[8..24].copy_from_slice(&hash.to_le_bytes());
    trailer[24..].copy_from_slice(&MAGIC);
    trailer
}
