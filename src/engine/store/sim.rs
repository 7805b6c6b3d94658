//! A simulated disk for tests: it crashes at the n-th change, tears the write it crashes in, forgets or reorders what
//! was not synced, fails, and is full.
//!
//! What it assumes of a real one: what one write puts into a sector of 512 bytes gets there whole or not at all, for a
//! kill as for a power failure, and never goes back behind a sync; names change in the order in which they were
//! changed, and up to a synced directory for certain.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::io::{Access, Disk, DiskFile, LockGuard, LockKind};
use super::map::Map;

const SECTOR: u64 = 512;
type Sector = [u8; SECTOR as usize];

/// The content of a file, sparse.
#[derive(Debug, Clone, Default)]
struct Content {
    sectors: HashMap<u64, Sector>,
    len: u64,
}

impl Content {
    fn read(&self, bytes: &mut [u8], offset: u64) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            let at = offset + i as u64;
            *byte = self.sectors.get(&(at / SECTOR)).map_or(0, |sector| sector[(at % SECTOR) as usize]);
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(offset, bytes) => {
                for (sector, from, part) in by_sector(*offset, bytes) {
                    let content = self.sectors.entry(sector).or_insert([0; SECTOR as usize]);
                    content[from..from + part.len()].copy_from_slice(part);
                }
                self.len = self.len.max(offset + bytes.len() as u64);
            }
            Change::SetLen(len) => self.set_len(*len),
        }
    }

    fn set_len(&mut self, len: u64) {
        self.len = len;
        self.sectors.retain(|&sector, content| {
            let keep = len.saturating_sub(sector * SECTOR).min(SECTOR) as usize;
            content[keep..].fill(0);
            keep > 0
        });
    }
}

fn by_sector(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == bytes.len() {
            return None;
        }
        let (sector, from) = ((offset + at as u64) / SECTOR, ((offset + at as u64) % SECTOR) as usize);
        let part = &bytes[at..(at + SECTOR as usize - from).min(bytes.len())];
        at += part.len();
        Some((sector, from, part))
    })
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What every process sees.
    now: Content,
    /// What is on the medium for certain.
    durable: Content,
    /// What was done since.
    pending: Vec<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

type Names = BTreeMap<PathBuf, Node>;

#[derive(Debug, Clone)]
enum NameChange {
    Make(PathBuf, Node),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

fn apply_name(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Make(path, node) => {
            names.insert(path.clone(), *node);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            let moved: Vec<PathBuf> = names.keys().filter(|path| path.starts_with(from)).cloned().collect();
            for path in moved {
                let Some(node) = names.remove(&path) else { continue };
                let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
                names.insert(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) }, node);
            }
        }
    }
}

/// What goes wrong at a change, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process stops there: a write may be torn, and nothing works after it.
    Crash { at: u64, seed: u64 },
    /// The change fails with that error, once.
    Fail { at: u64, kind: io::ErrorKind },
    /// Files hold that many bytes in all, not counting holes.
    Full { bytes: u64 },
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: Names,
    durable_names: Names,
    pending_names: Vec<NameChange>,
    locks: HashMap<PathBuf, (usize, bool)>,
    changes: u64,
    fault: Option<Fault>,
    crashed: bool,
}

/// The simulated disk; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

/// A small generator: which sectors survive, and where a write is torn.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SimDisk {
    pub(crate) fn new() -> SimDisk {
        let mut state = State::default();
        state.names.insert(PathBuf::from("/"), Node::Dir);
        state.durable_names.clone_from(&state.names);
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// How many changes were made since the disk was made or restarted.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Whether the crash that was set has come.
    pub(crate) fn crashed(&self) -> bool {
        self.state().crashed
    }

    /// The disk as the next process finds it after this one was killed.
    pub(crate) fn after_kill(&self) -> SimDisk {
        let state = self.state();
        SimDisk {
            state: Arc::new(Mutex::new(State {
                inodes: state.inodes.clone(),
                names: state.names.clone(),
                durable_names: state.durable_names.clone(),
                pending_names: state.pending_names.clone(),
                ..State::default()
            })),
        }
    }

    /// The disk after a power failure: of what was not synced, each sector is as it was at some moment, each file as
    /// long as it was at some moment, and the latest names may be missing.
    pub(crate) fn after_power_failure(&self, seed: u64) -> SimDisk {
        let state = self.state();
        let mut draw = seed;
        let mut choose = |n: usize| {
            draw = mix(draw);
            (draw % n as u64) as usize
        };
        let mut names = state.durable_names.clone();
        let kept = choose(state.pending_names.len() + 1);
        state.pending_names[..kept].iter().for_each(|change| apply_name(&mut names, change));
        let inodes = state.inodes.iter().map(|inode| {
            let mut versions: BTreeMap<u64, Vec<Sector>> = BTreeMap::new();
            let mut lengths = vec![inode.durable.len];
            let mut now = inode.durable.clone();
            for change in &inode.pending {
                now.apply(change);
                lengths.push(now.len);
                if let Change::Write(offset, bytes) = change {
                    for (sector, ..) in by_sector(*offset, bytes) {
                        let before = inode.durable.sectors.get(&sector).copied().unwrap_or([0; SECTOR as usize]);
                        versions.entry(sector).or_insert_with(|| vec![before]).push(now.sectors[&sector]);
                    }
                }
            }
            let mut left = inode.durable.clone();
            for (sector, versions) in versions {
                left.sectors.insert(sector, versions[choose(versions.len())]);
            }
            left.set_len(lengths[choose(lengths.len())]);
            Inode { now: left.clone(), durable: left, pending: Vec::new() }
        });
        let inodes = inodes.collect();
        SimDisk {
            state: Arc::new(Mutex::new(State {
                inodes,
                names: names.clone(),
                durable_names: names,
                ..State::default()
            })),
        }
    }

    /// Overwrites bytes of a file behind the store's back, as another program would.
    pub(crate) fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        let Some(Node::File(inode)) = state.names.get(path).copied() else { panic!("{} is no file", path.display()) };
        let change = Change::Write(offset, bytes.to_vec());
        state.inodes[inode].now.apply(&change);
        state.inodes[inode].pending.push(change);
    }
}

impl State {
    fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(io::Error::other("the simulated process is dead")) } else { Ok(()) }
    }

    /// Counts a change, and gives the fault that strikes it.
    fn change(&mut self) -> io::Result<Option<u64>> {
        self.alive()?;
        let number = self.changes;
        self.changes += 1;
        match self.fault {
            Some(Fault::Crash { at, seed }) if at == number => {
                self.crashed = true;
                Ok(Some(seed))
            }
            Some(Fault::Fail { at, kind }) if at == number => Err(kind.into()),
            _ => Ok(None),
        }
    }

    /// A change that is done or not done when the crash comes.
    fn whole_change(&mut self, f: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        match self.change()? {
            Some(seed) => {
                if seed.is_multiple_of(2) {
                    f(self)?;
                }
                self.alive()
            }
            None => f(self),
        }
    }

    fn name(&mut self, change: NameChange) {
        apply_name(&mut self.names, &change);
        self.pending_names.push(change);
    }

    fn used(&self) -> u64 {
        self.inodes.iter().map(|inode| inode.now.sectors.len() as u64 * SECTOR).sum()
    }

    fn apply(&mut self, inode: usize, change: Change) -> io::Result<()> {
        let before = self.inodes[inode].now.clone();
        self.inodes[inode].now.apply(&change);
        if matches!(self.fault, Some(Fault::Full { bytes }) if self.used() > bytes) {
            self.inodes[inode].now = before;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inodes[inode].pending.push(change);
        Ok(())
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        match (state.names.get(path), path.parent().and_then(|parent| state.names.get(parent))) {
            (Some(Node::Dir), _) => Ok(()),
            (Some(Node::File(_)), _) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, Some(Node::Dir)) => state.whole_change(|state| {
                state.name(NameChange::Make(path.to_path_buf(), Node::Dir));
                Ok(())
            }),
            (None, _) => Err(not_found()),
        }
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.alive()?;
        let file = |inode| -> Arc<dyn DiskFile> { Arc::new(SimFile { disk: self.clone(), inode }) };
        match (state.names.get(path), access) {
            (Some(Node::File(inode)), _) => Ok(file(*inode)),
            (Some(Node::Dir), _) => Err(io::ErrorKind::IsADirectory.into()),
            (None, Access::Read) => Err(not_found()),
            (None, Access::Write) => {
                if path.parent().and_then(|parent| state.names.get(parent)) != Some(&Node::Dir) {
                    return Err(not_found());
                }
                let inode = state.inodes.len();
                state.inodes.push(Inode::default());
                state.whole_change(|state| {
                    state.name(NameChange::Make(path.to_path_buf(), Node::File(inode)));
                    Ok(())
                })?;
                Ok(file(inode))
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(from) {
            return Err(not_found());
        }
        state.whole_change(|state| {
            state.name(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(path) {
            return Err(not_found());
        }
        state.whole_change(|state| {
            state.name(NameChange::Remove(path.to_path_buf()));
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        // One name after the other, the last ones first, so that a crash leaves some.
        let names: Vec<PathBuf> =
            self.state().names.keys().rev().filter(|name| name.starts_with(path)).cloned().collect();
        if names.is_empty() { Err(not_found()) } else { names.iter().try_for_each(|name| self.remove_file(name)) }
    }

    fn exists(&self, path: &Path) -> bool {
        self.state().names.contains_key(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        match state.names.get(path) {
            Some(Node::Dir) => Ok(state
                .names
                .keys()
                .filter(|name| name.parent() == Some(path))
                .filter_map(|name| name.file_name().map(OsString::from))
                .collect()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(not_found()),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.whole_change(|state| {
            let inside = |name: &Path| name.parent() == Some(path);
            let last = state.pending_names.iter().rposition(|change| match change {
                NameChange::Make(name, _) | NameChange::Remove(name) => inside(name),
                NameChange::Rename(from, to) => inside(from) || inside(to),
            });
            let done: Vec<NameChange> = state.pending_names.drain(..last.map_or(0, |last| last + 1)).collect();
            done.iter().for_each(|change| apply_name(&mut state.durable_names, change));
            Ok(())
        })
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Option<LockGuard>> {
        self.open(path, Access::Write)?;
        let mut state = self.state();
        let (shared, exclusive) = state.locks.entry(path.to_path_buf()).or_default();
        if *exclusive || (kind == LockKind::Exclusive && *shared > 0) {
            return Ok(None);
        }
        match kind {
            LockKind::Shared => *shared += 1,
            LockKind::Exclusive => *exclusive = true,
        }
        Ok(Some(Box::new(SimLock { disk: self.clone(), path: path.to_path_buf(), kind })))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    kind: LockKind,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        let (shared, exclusive) = state.locks.entry(self.path.clone()).or_default();
        match self.kind {
            LockKind::Shared => *shared -= 1,
            LockKind::Exclusive => *exclusive = false,
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.alive()?;
        Ok(state.inodes[self.inode].now.len)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.disk.state();
        state.alive()?;
        let content = &state.inodes[self.inode].now;
        if offset + bytes.len() as u64 > content.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        content.read(bytes, offset);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let torn = state.change()?;
        let kept = torn.map_or(bytes.len(), |seed| {
            let end = offset + mix(seed) % (bytes.len() as u64 + 1);
            let sector = if seed.is_multiple_of(3) { end.next_multiple_of(SECTOR) } else { end - end % SECTOR };
            (sector.saturating_sub(offset) as usize).min(bytes.len())
        });
        state.apply(self.inode, Change::Write(offset, bytes[..kept].to_vec()))?;
        state.alive()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let inode = self.inode;
        self.disk.state().whole_change(|state| state.apply(inode, Change::SetLen(len)))
    }

    fn sync(&self) -> io::Result<()> {
        let inode = self.inode;
        self.disk.state().whole_change(|state| {
            let inode = &mut state.inodes[inode];
            inode.durable = inode.now.clone();
            inode.pending.clear();
            Ok(())
        })
    }

    fn map(&self) -> io::Result<Option<Map>> {
        Ok(None)
    }
}
