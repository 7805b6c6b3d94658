//! The blocks of a store's chunk files: which are near, which are on their way, and how they come.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::super::store::{Block, BlockId, Far, Map, Near, RemoteStats};
use super::bucket::{Bucket, Version};
use super::cache::{Cache, Claim, Writer};
use super::options::RemoteOptions;
use super::runtime::begin;
use crate::error::{Error, Result};

/// The most bytes of one request, unless a block has more.
const REQUEST_BYTES: u64 = 8 << 20;
/// The most blocks that are mapped at a time: a process may have some 65,000 maps.
const MAPPED: usize = 1 << 15;
/// The most bytes that one gather holds at a time, and that are fetched ahead.
const AT_ONCE: u64 = 256 << 20;
/// How often a block is fetched anew.
const RENEWALS: u8 = 2;
/// How exactly it is known when a block was used last.
const TOUCH: Duration = Duration::from_secs(1);
/// How often it is looked whether another process is done with a block.
const POLL: Duration = Duration::from_millis(10);

/// A version of an object.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) name: String,
    pub(super) version: Version,
    /// What its pieces are kept under.
    pub(super) key: u128,
}

/// The blocks of the chunk files of one open store.
#[derive(Clone)]
pub(super) struct Blocks(Arc<Inner>);

struct Inner {
    bucket: Arc<Bucket>,
    cache: Arc<Cache>,
    /// What errors call the folder.
    folder: PathBuf,
    block_bytes: u64,
    timeout: Duration,
    /// The chunk files, by number.
    chunks: Vec<Option<Object>>,
    slots: Semaphore,
    state: Mutex<State>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

struct State {
    near: Arc<Near>,
    /// When each block that is near was used last, in steps of a clock of its own.
    used: HashMap<BlockId, Used>,
    order: BTreeMap<u64, BlockId>,
    clock: u64,
    pending: HashMap<BlockId, Arc<Pending>>,
    /// Those that were fetched ahead, and were not needed yet.
    ahead: HashSet<BlockId>,
    renewals: HashMap<BlockId, u8>,
    /// When it was last looked which files other processes have removed.
    looked: Instant,
    stats: RemoteStats,
}

struct Used {
    at: u64,
    touched: Instant,
}

/// A block that is on its way.
#[derive(Default)]
struct Pending {
    done: Mutex<Option<Result<Came>>>,
    ready: Condvar,
}

/// A block that has to be waited for, and whether it was begun by who waits.
type Wait = (BlockId, Arc<Pending>, bool);

/// A block that has come.
#[derive(Clone)]
struct Came {
    block: Arc<Block>,
    /// Not from the cache.
    fetched: bool,
}

impl Pending {
    fn wait(&self) -> Result<Came> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*done {
                Some(result) => return result.clone(),
                None => done = self.ready.wait(done).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn complete(&self, result: Result<Came>) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.ready.notify_all();
    }
}

impl Blocks {
    pub(super) fn new(
        bucket: Arc<Bucket>,
        cache: Arc<Cache>,
        folder: &Path,
        chunks: Vec<Option<Object>>,
        options: &RemoteOptions,
    ) -> Blocks {
        let state = State {
            near: Arc::new(Near::new(options.block_bytes.trailing_zeros())),
            used: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            pending: HashMap::new(),
            ahead: HashSet::new(),
            renewals: HashMap::new(),
            looked: Instant::now(),
            stats: RemoteStats::default(),
        };
        Blocks(Arc::new(Inner {
            bucket,
            cache,
            folder: folder.to_path_buf(),
            block_bytes: options.block_bytes,
            timeout: options.timeout,
            chunks,
            slots: Semaphore::new(options.requests),
            state: Mutex::new(state),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }))
    }

    /// The chunk file of that number.
    pub(super) fn chunk(&self, chunk: u16) -> Option<&Object> {
        self.0.chunks.get(usize::from(chunk))?.as_ref()
    }

    /// Fills `bytes` from `offset` of a chunk, which reaches that far.
    pub(super) fn read_at(&self, chunk: u16, bytes: &mut [u8], offset: u64) -> Result<()> {
        let block_bytes = self.0.block_bytes;
        let (first, end) = (offset / block_bytes, (offset + bytes.len() as u64).div_ceil(block_bytes));
        let ids: Vec<BlockId> = (first..end).map(|number| BlockId { chunk, number: number as u32 }).collect();
        for ids in ids.chunks(self.at_once()) {
            let (near, _) = self.brought(ids)?;
            for &id in ids {
                let begin = u64::from(id.number) * block_bytes;
                let copy = |block: &[u8]| {
                    // The part of the block that was asked for.
                    let from = offset.max(begin);
                    let to = (offset + bytes.len() as u64).min(begin + block.len() as u64);
                    let part = &block[(from - begin) as usize..(to - begin) as usize];
                    bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
                };
                near.get(id).and_then(|block| block.map.with_frame(0, block.map.len() as usize, copy));
            }
        }
        Ok(())
    }

    /// Waits until these blocks are near. Gives a view that has them, and how many of them were fetched for that.
    fn brought(&self, blocks: &[BlockId]) -> Result<(Arc<Near>, u64)> {
        let (waits, near) = self.begin(blocks)?;
        {
            let mut state = self.0.state();
            blocks.iter().for_each(|id| _ = state.ahead.remove(id));
        }
        let mut misses = 0;
        let near = if waits.is_empty() {
            near
        } else {
            let mut near = Near::clone(&near);
            for (id, pending, mine) in waits {
                let came = match pending.wait() {
                    // It was asked for together with others, of which another one may have failed.
                    Err(_) if !mine => self.again(id)?,
                    came => came?,
                };
                misses += u64::from(mine && came.fetched);
                near.set(id, Some(came.block));
            }
            Arc::new(near)
        };
        Ok((near, misses))
    }

    /// Brings one block by itself.
    fn again(&self, id: BlockId) -> Result<Came> {
        let (waits, near) = self.begin(&[id])?;
        let near = || near.get(id).map(|block| Came { block: Arc::clone(block), fetched: false });
        let gone = || Error::io("read", &self.0.folder)(io::ErrorKind::NotFound.into());
        waits.into_iter().next().map_or_else(|| near().ok_or_else(gone), |(_, pending, _)| pending.wait())
    }

    /// Begins what is not near and not on its way. Gives what has to be waited for, whether it was begun here, and what is
    /// near meanwhile.
    fn begin(&self, blocks: &[BlockId]) -> Result<(Vec<Wait>, Arc<Near>)> {
        let (mut waits, mut mine, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        let near = {
            let mut state = self.0.state();
            let near = Arc::clone(&state.near);
            for &id in blocks.iter().filter(|&&id| self.0.range(id).is_some()) {
                if near.get(id).is_some() {
                    if state.touch(id) {
                        touched.push(id);
                    }
                } else if let Some(pending) = state.pending.get(&id) {
                    waits.push((id, Arc::clone(pending), false));
                } else {
                    let pending = Arc::new(Pending::default());
                    state.pending.insert(id, Arc::clone(&pending));
                    waits.push((id, Arc::clone(&pending), true));
                    mine.push(id);
                }
            }
            near
        };
        touched.iter().for_each(|&id| self.0.cache.touch(&self.0.path(id)));
        for run in runs(&mine, self.0.block_bytes) {
            let fetch = Fetch { inner: Arc::clone(&self.0), left: run.to_vec(), unkept: HashSet::new() };
            begin(fetch.run()).map_err(Error::io("start a request to", &self.0.folder))?;
        }
        Ok((waits, near))
    }
}

impl Far for Blocks {
    fn near(&self) -> Arc<Near> {
        Arc::clone(&self.0.state().near)
    }

    fn at_once(&self) -> usize {
        ((self.0.cache.capacity() / 4).min(AT_ONCE) / self.0.block_bytes).max(1) as usize
    }

    fn bring(&self, blocks: &[BlockId]) -> Result<Arc<Near>> {
        let (near, misses) = self.brought(blocks)?;
        let stats = &mut self.0.state().stats;
        stats.needed += blocks.len() as u64;
        stats.hits += blocks.len() as u64 - misses;
        Ok(near)
    }

    fn expect(&self, blocks: &[BlockId]) -> bool {
        {
            let mut state = self.0.state();
            let more: Vec<BlockId> = blocks.iter().copied().filter(|&id| state.near.get(id).is_none()).collect();
            if !state.ahead.is_empty() && state.ahead.len() + more.len() > self.at_once() {
                return false;
            }
            state.ahead.extend(more);
        }
        // What cannot be begun is told when it is needed.
        self.begin(blocks).is_ok()
    }

    fn renew(&self, id: BlockId) -> Result<Option<Arc<Block>>> {
        {
            let mut state = self.0.state();
            let renewals = state.renewals.entry(id).or_default();
            if *renewals == RENEWALS {
                return Ok(None);
            }
            *renewals += 1;
            state.stats.renewed += 1;
            state.forget(id);
        }
        self.0.cache.remove(&self.0.path(id));
        let (near, _) = self.brought(&[id])?;
        Ok(near.get(id).cloned())
    }

    fn stats(&self) -> RemoteStats {
        let (requests, bytes) = (self.0.requests.load(Ordering::Relaxed), self.0.bytes.load(Ordering::Relaxed));
        RemoteStats { requests, bytes, ..self.0.state().stats }
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("folder", &self.0.folder).finish_non_exhaustive()
    }
}

impl State {
    /// Notes that a block is used. Says whether its file is to know.
    fn touch(&mut self, id: BlockId) -> bool {
        self.clock += 1;
        let Some(used) = self.used.get_mut(&id) else { return false };
        self.order.remove(&used.at);
        used.at = self.clock;
        self.order.insert(used.at, id);
        let stale = used.touched.elapsed() > TOUCH;
        if stale {
            used.touched = Instant::now();
        }
        stale
    }

    fn insert(&mut self, id: BlockId, block: Arc<Block>) {
        Arc::make_mut(&mut self.near).set(id, Some(block));
        self.clock += 1;
        if let Some(before) = self.used.insert(id, Used { at: self.clock, touched: Instant::now() }) {
            self.order.remove(&before.at);
        }
        self.order.insert(self.clock, id);
    }

    fn forget(&mut self, id: BlockId) {
        self.ahead.remove(&id);
        if let Some(used) = self.used.remove(&id) {
            self.order.remove(&used.at);
            Arc::make_mut(&mut self.near).set(id, None);
        }
    }

    /// Forgets those that were not used for longest, until no more than `most` are near.
    fn keep(&mut self, most: usize) {
        while self.used.len() > most {
            let Some((_, &id)) = self.order.first_key_value() else { return };
            self.forget(id);
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a block lies in its chunk; `None` where there is none.
    fn range(&self, id: BlockId) -> Option<std::ops::Range<u64>> {
        let size = self.chunks.get(usize::from(id.chunk))?.as_ref()?.version.size;
        let begin = u64::from(id.number) * self.block_bytes;
        (begin < size).then(|| begin..size.min(begin + self.block_bytes))
    }

    fn len(&self, id: BlockId) -> u64 {
        self.range(id).map_or(0, |range| range.end - range.start)
    }

    /// The file of a block.
    fn path(&self, id: BlockId) -> PathBuf {
        let key = self.chunks.get(usize::from(id.chunk)).and_then(Option::as_ref).map_or(0, |object| object.key);
        self.cache.path(key, &format!("{:x}-{}", self.block_bytes, id.number))
    }

    /// How many blocks may be mapped.
    fn mapped(&self) -> usize {
        ((self.cache.capacity() / self.block_bytes) as usize).clamp(1, MAPPED)
    }

    /// Hands a block out. `kept` says whether its file stays.
    fn came(&self, id: BlockId, map: Map, fetched: bool, kept: bool) {
        let block = Arc::new(Block::new(map));
        let pending = {
            let mut state = self.state();
            if kept {
                state.insert(id, Arc::clone(&block));
                state.keep(self.mapped());
            }
            state.pending.remove(&id)
        };
        if let Some(pending) = pending {
            pending.complete(Ok(Came { block, fetched }));
        }
    }

    fn failed(&self, id: BlockId, error: Error) {
        let pending = {
            let mut state = self.state();
            state.ahead.remove(&id);
            state.pending.remove(&id)
        };
        if let Some(pending) = pending {
            pending.complete(Err(error));
        }
    }

    /// Forgets blocks whose files were removed, so that the disk gets their bytes back: `removed` here, and now and then
    /// those that other processes removed.
    fn forget(&self, removed: &HashSet<PathBuf>) {
        let mut state = self.state();
        let look = state.looked.elapsed() > TOUCH;
        if !look && removed.is_empty() {
            return;
        }
        let ids: Vec<BlockId> = state.used.keys().copied().collect();
        for id in ids {
            let path = self.path(id);
            if removed.contains(&path) || (look && !path.exists()) {
                state.forget(id);
            }
        }
        if look {
            state.looked = Instant::now();
        }
    }
}

/// Neighbouring blocks of one chunk, each run no larger than a request.
fn runs(ids: &[BlockId], block_bytes: u64) -> impl Iterator<Item = &[BlockId]> {
    let most = (REQUEST_BYTES / block_bytes).max(1);
    let mut rest = ids;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let follows = |(i, id): (usize, &BlockId)| {
            (i as u64) < most && id.chunk == first.chunk && u64::from(id.number) == u64::from(first.number) + i as u64
        };
        let len = rest.iter().enumerate().take_while(|&(i, id)| follows((i, id))).count();
        let (run, after) = rest.split_at(len);
        rest = after;
        Some(run)
    })
}

/// Blocks that are being fetched. Whatever happens to it, each is handed out, or an error in its place.
struct Fetch {
    inner: Arc<Inner>,
    left: Vec<BlockId>,
    /// Those that the cache could not be written for.
    unkept: HashSet<BlockId>,
}

impl Drop for Fetch {
    fn drop(&mut self) {
        for id in self.left.drain(..) {
            let error = Error::io("read", &self.inner.folder)(io::Error::other("the request has panicked"));
            self.inner.failed(id, error);
        }
    }
}

impl Fetch {
    async fn run(mut self) {
        let deadline = Instant::now() + self.inner.timeout;
        while !self.left.is_empty() {
            self.load().await;
            let (ids, mut claims, others) = self.claim(Instant::now() > deadline).await;
            if ids.is_empty() && !others && !self.left.is_empty() {
                // What has failed is told as the rest is dropped.
                return;
            }
            for run in runs(&ids, self.inner.block_bytes) {
                self.get(run, &mut claims).await;
            }
            claims.into_values().for_each(|claim| self.inner.cache.give_up(claim));
            if others {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Hands out what is in the cache.
    async fn load(&mut self) {
        let (inner, left) = (Arc::clone(&self.inner), self.left.clone());
        let load = move || {
            let load = |id| (id, inner.cache.load(&inner.path(id), inner.len(id)));
            left.into_iter().map(load).collect::<Vec<_>>()
        };
        for (id, map) in spawn_blocking(load).await.unwrap_or_default() {
            if let Some(map) = map {
                self.inner.came(id, map, false, true);
                self.left.retain(|&left| left != id);
            }
        }
    }

    /// What is to be fetched of what is left, the claims to write it, and whether other processes are at work on some of it.
    /// What has no place in the cache is fetched without a claim, and so is what others take too long for.
    async fn claim(&self, late: bool) -> (Vec<BlockId>, HashMap<BlockId, Claim>, bool) {
        let (inner, left, unkept) = (Arc::clone(&self.inner), self.left.clone(), self.unkept.clone());
        let claim = move || {
            let (mut ids, mut claims, mut others) = (Vec::new(), HashMap::new(), false);
            for id in left {
                let claimed = if unkept.contains(&id) { Ok(None) } else { inner.cache.claim(&inner.path(id)) };
                match claimed {
                    Ok(None) if !late && !unkept.contains(&id) => {
                        others = true;
                        continue;
                    }
                    Ok(Some(claim)) => _ = claims.insert(id, claim),
                    _ => {}
                }
                ids.push(id);
            }
            (ids, claims, others)
        };
        spawn_blocking(claim).await.unwrap_or_default()
    }

    /// Fetches neighbouring blocks with one request, and hands each out when it is whole.
    async fn get(&mut self, run: &[BlockId], claims: &mut HashMap<BlockId, Claim>) {
        let inner = Arc::clone(&self.inner);
        let object = inner.chunks.get(usize::from(run[0].chunk)).and_then(Option::as_ref);
        let (Some(object), Some(first), Some(last)) = (object, inner.range(run[0]), inner.range(run[run.len() - 1]))
        else {
            return;
        };
        let mut coming = Coming { inner: &inner, fetch: self, claims, blocks: run.iter(), block: None };
        let got = {
            let _slot = inner.slots.acquire().await;
            let take = |bytes: &[u8]| coming.take(bytes);
            inner.bucket.get_into(&object.name, first.start..last.end, &object.version, take).await
        };
        drop(coming);
        match got {
            Ok(()) => {
                inner.requests.fetch_add(1, Ordering::Relaxed);
                inner.bytes.fetch_add(last.end - first.start, Ordering::Relaxed);
            }
            Err(e) => {
                let error = Error::io("read", &inner.folder.join(&object.name))(e);
                for &id in run.iter().filter(|id| self.left.contains(id)) {
                    inner.failed(id, error.clone());
                }
                self.left.retain(|left| !run.contains(left));
            }
        }
    }
}

/// The blocks of an answer that is coming.
struct Coming<'a> {
    inner: &'a Inner,
    fetch: &'a mut Fetch,
    claims: &'a mut HashMap<BlockId, Claim>,
    blocks: std::slice::Iter<'a, BlockId>,
    block: Option<Partial<'a>>,
}

/// A block of which not all has come.
struct Partial<'a> {
    id: BlockId,
    left: u64,
    place: Place<'a>,
}

enum Place<'a> {
    Cache(Box<Writer<'a>>),
    /// For those who wait for it, and no longer: the cache has no room.
    Memory(Vec<u8>),
    /// Writing it failed: it has to be fetched again.
    Nowhere,
}

impl<'a> Coming<'a> {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(mut block) = self.block.take().or_else(|| self.next()) else { return };
            let (here, rest) = bytes.split_at((block.left.min(bytes.len() as u64)) as usize);
            let held = match &mut block.place {
                Place::Cache(writer) => writer.push(here).is_ok(),
                Place::Memory(bytes) => {
                    bytes.extend_from_slice(here);
                    true
                }
                Place::Nowhere => true,
            };
            if !held {
                block.place = Place::Nowhere;
            }
            block.left -= here.len() as u64;
            if block.left == 0 {
                self.finish(block)
            } else {
                self.block = Some(block)
            }
            bytes = rest;
        }
    }

    /// The next block, of which nothing has come.
    fn next(&mut self) -> Option<Partial<'a>> {
        let &id = self.blocks.next()?;
        let left = self.inner.len(id);
        let place = match self.claims.remove(&id).map(|claim| self.inner.cache.write(claim, left)) {
            Some(Ok((writer, removed))) => {
                self.inner.forget(&removed);
                Place::Cache(Box::new(writer))
            }
            _ => Place::Memory(Vec::with_capacity(left as usize)),
        };
        Some(Partial { id, left, place })
    }

    /// Hands out a block that is whole.
    fn finish(&mut self, block: Partial<'a>) {
        let id = block.id;
        let (map, kept) = match block.place {
            Place::Cache(writer) => (writer.finish(), true),
            Place::Memory(bytes) => (Map::of_bytes(&bytes), false),
            Place::Nowhere => (Err(io::ErrorKind::StorageFull.into()), true),
        };
        match map {
            Ok(map) => self.inner.came(id, map, true, kept),
            // In memory there may be room.
            Err(_) if kept => {
                self.fetch.unkept.insert(id);
                return;
            }
            Err(e) => self.inner.failed(id, Error::io("hold a block of", &self.inner.folder)(e)),
        }
        self.fetch.left.retain(|&left| left != id);
    }
}
