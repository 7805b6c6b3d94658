//! A store's folder in object storage, as the store sees a disk: small files whole, chunk files in blocks. It is read only,
//! and what is read is what was there when it was opened, or an error.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use xxhash_rust::xxh3::Xxh3;

use super::super::store::outline::{DELETION, SINGLE, TABLE, TABLE_HEADER, chunk_ends, chunk_files, table_len};
use super::super::store::{Access, Disk, DiskFile, Far, LockGuard, LockKind, Map};
use super::blocks::{Blocks, Object};
use super::bucket::{Bucket, Version};
use super::cache::Cache;
use super::manifest::{MAX_PUBLISHED, PUBLISHED, PUBLISHING, Published, SEAL, hash, is_seal, seal};
use super::options::RemoteOptions;
use super::runtime::wait;
use crate::error::{Error, Result};

/// A file that is fetched whole comes in pieces of so many bytes.
const PIECE: u64 = 8 << 20;
/// How often a store is looked at again that is replaced meanwhile.
const LOOKS: usize = 3;

/// A store's folder in object storage.
#[derive(Debug)]
pub(crate) struct RemoteDisk {
    /// As errors show it.
    folder: PathBuf,
    bucket: Arc<Bucket>,
    cache: Arc<Cache>,
    requests: usize,
    /// The small files that are there, and their versions.
    small: BTreeMap<String, Object>,
    /// The chunk files, by name.
    chunks: HashMap<String, u16>,
    blocks: Arc<Blocks>,
    /// The bytes of the table that mean something.
    table_len: u64,
    /// Small files that were fetched.
    fetched: Mutex<HashMap<String, Arc<SmallFile>>>,
}

/// A file of a store's folder in object storage.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    pub(crate) name: String,
    /// The bytes that mean something.
    pub(crate) len: u64,
    /// Their XXH3-128 as the publisher noted it, if one did.
    pub(crate) hash: Option<String>,
    /// Another one for each version of it.
    pub(crate) key: u128,
}

/// The disk of the store at a URL. The versions of all its objects are noted: they are what is read, or nothing is.
pub(crate) fn open(url: &str, options: &RemoteOptions) -> Result<Arc<RemoteDisk>> {
    open_in(Arc::new(Bucket::new(url, options)?), options)
}

/// The same in a folder that was found already.
pub(crate) fn open_in(bucket: Arc<Bucket>, options: &RemoteOptions) -> Result<Arc<RemoteDisk>> {
    let folder = PathBuf::from(bucket.url());
    let cache = Arc::new(Cache::new(&options.folder(), options.capacity)?);
    let look = Look { bucket: Arc::clone(&bucket), cache, folder: folder.clone(), options: options.clone() };
    let ask = Error::io("ask for", &folder);
    wait(async move {
        for _ in 1..LOOKS {
            match look.look().await {
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::StaleNetworkFileHandle => {}
                looked => return looked,
            }
        }
        look.look().await
    })
    .map_err(ask)?
}

/// What it takes to see what is there.
struct Look {
    bucket: Arc<Bucket>,
    cache: Arc<Cache>,
    folder: PathBuf,
    options: RemoteOptions,
}

impl Look {
    async fn look(&self) -> Result<Arc<RemoteDisk>> {
        let meta = self.folder.join(TABLE);
        let Some(version) = self.head(TABLE).await? else {
            let reason = if self.head(PUBLISHING).await?.is_some() {
                "it is being published, or publishing it was cut off: try again later"
            } else {
                "there is no meta.zr (push puts a store there)"
            };
            return Err(Error::NotAStore { path: self.folder.clone(), reason: reason.into() });
        };
        if version.size < TABLE_HEADER {
            let reason = format!("its meta.zr has {} bytes, fewer than its header", version.size);
            return Err(Error::NotAStore { path: self.folder.clone(), reason });
        }
        let header = self.get(TABLE, 0..TABLE_HEADER, &version).await?;
        let len = table_len(&header.try_into().unwrap_or_default(), &meta)?;
        if version.size < len {
            return Err(Error::corrupt(&meta, format!("{len} bytes"), format!("{} bytes", version.size)));
        }
        let table = self.object(TABLE, version.clone());
        let small = self.whole(&table, len).await?;
        let bytes = |bytes: &[u8]| bytes.to_vec();
        let entries = small.map.with_frame(0, len as usize, bytes).unwrap_or_default();
        let objects = match self.published(&version, &entries).await? {
            Some(objects) => objects,
            None => self.unpublished(&entries).await?,
        };
        // What was replaced before it was looked at was replaced after the table.
        if self.head(TABLE).await?.as_ref() != Some(&version) {
            let replaced =
                io::Error::new(ErrorKind::StaleNetworkFileHandle, "the store is being replaced: open it again");
            return Err(Error::io("read", &meta)(replaced));
        }
        Ok(Arc::new(self.disk(table, len, small, objects)))
    }

    /// The objects of a store that was published whole; `None` where the table says nothing of that.
    async fn published(&self, version: &Version, table: &[u8]) -> Result<Option<Vec<Object>>> {
        let len = table.len() as u64;
        if version.size < len + SEAL as u64 {
            return Ok(None);
        }
        let found = self.get(TABLE, len..len + SEAL as u64, version).await?;
        if !is_seal(&found) {
            return Ok(None);
        }
        let path = self.folder.join(PUBLISHED);
        let under_way = |reason: &str| {
            let reason = format!("{reason}: it is being published, or publishing it was cut off");
            Error::NotAStore { path: self.folder.clone(), reason }
        };
        let Some(manifest) = self.head(PUBLISHED).await? else {
            return Err(under_way("published.json is not there"));
        };
        if manifest.size > MAX_PUBLISHED {
            return Err(Error::corrupt(
                &path,
                format!("at most {MAX_PUBLISHED} bytes"),
                format!("{} bytes", manifest.size),
            ));
        }
        let bytes = self.get(PUBLISHED, 0..manifest.size, &manifest).await?;
        if seal(&bytes)[..] != found[..] {
            return Err(under_way("published.json is not the one that its table goes with"));
        }
        let parsed: Published = serde_json::from_slice(&bytes)
            .map_err(|e| Error::corrupt(&path, "what push has written", format!("something else ({e})")))?;
        let names: Vec<&str> = parsed.objects.iter().map(|object| object.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| name.contains('/') || name.starts_with('.')) {
            return Err(Error::corrupt(&path, "names of files", format!("{name:?}")));
        }
        let versions = self.heads(&names).await?;
        if let Some(fault) = parsed.fault(&self.bucket.place(), table, &versions) {
            return Err(under_way(&fault));
        }
        let objects = names.into_iter().zip(versions).filter_map(|(name, version)| Some(self.object(name, version?)));
        Ok(Some(objects.collect()))
    }

    /// The objects of a store that was copied there by other means: those that the table tells of.
    async fn unpublished(&self, table: &[u8]) -> Result<Vec<Object>> {
        let chunks: Vec<(String, String)> = chunk_ends(table).keys().map(|&chunk| chunk_files(chunk)).collect();
        let names: Vec<&str> =
            chunks.iter().flat_map(|(chunk, sum)| [chunk.as_str(), sum.as_str()]).chain(SINGLE).collect();
        if self.head(DELETION).await?.is_some() {
            let reason = "a deletion was cut off there: open the store on its own disk once, and publish it again";
            return Err(Error::unsupported(&self.folder, DELETION, reason));
        }
        let versions = self.heads(&names).await?;
        Ok(names.into_iter().zip(versions).filter_map(|(name, version)| Some(self.object(name, version?))).collect())
    }

    fn disk(&self, table: Object, len: u64, small: SmallFile, objects: Vec<Object>) -> RemoteDisk {
        let mut chunks = HashMap::new();
        let mut by_number: Vec<Option<Object>> = Vec::new();
        let mut others = BTreeMap::new();
        for object in objects {
            match chunk_number(&object.name) {
                Some(number) => {
                    let at = usize::from(number);
                    by_number.resize(by_number.len().max(at + 1), None);
                    chunks.insert(object.name.clone(), number);
                    by_number[at] = Some(object);
                }
                None => _ = others.insert(object.name.clone(), object),
            }
        }
        let fetched = HashMap::from([(TABLE.to_owned(), Arc::new(small))]);
        others.insert(TABLE.to_owned(), table);
        let (bucket, cache) = (Arc::clone(&self.bucket), Arc::clone(&self.cache));
        let blocks = Blocks::new(Arc::clone(&bucket), Arc::clone(&cache), &self.folder, by_number, &self.options);
        RemoteDisk {
            folder: self.folder.clone(),
            bucket,
            cache,
            requests: self.options.requests,
            small: others,
            chunks,
            blocks: Arc::new(blocks),
            table_len: len,
            fetched: Mutex::new(fetched),
        }
    }

    fn object(&self, name: &str, version: Version) -> Object {
        let mut hash = Xxh3::new();
        let Version { size, tag, modified } = &version;
        // The address, and not the name alone: one cache serves many stores.
        hash.update(format!("{}\0{name}\0{size}\0{tag:?}\0{modified}", self.bucket.address()).as_bytes());
        if !version.is_certain() {
            // Nobody could tell whether it is still the same: it is kept for this handle alone.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            hash.update(format!("\0{}\0{:?}", std::process::id(), now).as_bytes());
        }
        Object { name: name.to_owned(), key: hash.digest128(), version }
    }

    async fn head(&self, name: &str) -> Result<Option<Version>> {
        self.bucket.head(name).await.map_err(Error::io("ask for", &self.folder.join(name)))
    }

    /// The versions of many objects, in that order.
    async fn heads(&self, names: &[&str]) -> Result<Vec<Option<Version>>> {
        let asked: Vec<_> = names.iter().map(|name| self.head(name)).collect();
        stream::iter(asked).buffered(self.options.requests).try_collect().await
    }

    async fn get(&self, name: &str, range: std::ops::Range<u64>, version: &Version) -> Result<Vec<u8>> {
        self.bucket.get(name, range, version).await.map_err(Error::io("read", &self.folder.join(name)))
    }

    async fn whole(&self, object: &Object, len: u64) -> Result<SmallFile> {
        let path = self.folder.join(&object.name);
        whole(&self.bucket, &self.cache, object, len, self.options.requests).await.map_err(Error::io("read", &path))
    }
}

/// The first `len` bytes of an object, from the cache or through it.
async fn whole(bucket: &Bucket, cache: &Cache, object: &Object, len: u64, requests: usize) -> io::Result<SmallFile> {
    let path = cache.path(object.key, &format!("whole-{len}"));
    if let Some(map) = cache.load(&path, len) {
        return Ok(SmallFile { path, map });
    }
    let stored = |bytes: &[u8]| match cache.claim(&path)? {
        Some(claim) => {
            let (mut writer, _) = cache.write(claim, len)?;
            writer.push(bytes)?;
            writer.finish().map(Some)
        }
        // Another process has written it, or does just now.
        None => Ok(cache.load(&path, len)),
    };
    let pieces = (0..len).step_by(PIECE as usize).map(|begin| begin..len.min(begin + PIECE));
    let asked: Vec<_> = pieces.map(|range| bucket.get(&object.name, range, &object.version)).collect();
    let mut bytes = Vec::new();
    let mut got = stream::iter(asked).buffered(requests);
    while let Some(piece) = got.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    let map = stored(&bytes)?.map_or_else(|| Map::of_bytes(&bytes), Ok)?;
    Ok(SmallFile { path, map })
}

/// The number of a chunk file, by its name.
fn chunk_number(name: &str) -> Option<u16> {
    let number = name.strip_suffix(".zr")?.parse().ok()?;
    (chunk_files(number).0 == name).then_some(number)
}

impl RemoteDisk {
    /// All files.
    pub(crate) fn files(&self) -> Result<Vec<RemoteFile>> {
        let path = self.folder.join(TABLE);
        let table = self.small(TABLE).map_err(Error::io("read", &path))?;
        let table = table.map.with_frame(0, self.table_len as usize, hash).unwrap_or_default();
        let bucket = Arc::clone(&self.bucket);
        let published = wait(async move { bucket.read(PUBLISHED, MAX_PUBLISHED).await }).flatten();
        let published = published.map_err(Error::io("read", &self.folder.join(PUBLISHED)))?;
        // What is there now may go with another table.
        let published = published.and_then(|(bytes, _)| serde_json::from_slice::<Published>(&bytes).ok());
        let published = published.filter(|published| published.table == table).map(|published| published.objects);
        let mut hashes: HashMap<String, String> =
            published.into_iter().flatten().map(|object| (object.name, object.hash)).collect();
        hashes.insert(TABLE.to_owned(), table);
        let chunks = self.chunks.values().filter_map(|&chunk| self.blocks.chunk(chunk));
        let file = |object: &Object| RemoteFile {
            name: object.name.clone(),
            len: if object.name == TABLE { self.table_len } else { object.version.size },
            hash: hashes.get(&object.name).cloned(),
            key: object.key,
        };
        let mut files: Vec<RemoteFile> = self.small.values().chain(chunks).map(file).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// The bytes of a range of a file, straight from the server.
    pub(crate) fn fetch(
        &self,
        name: &str,
        range: std::ops::Range<u64>,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + use<> {
        let chunk = self.chunks.get(name).and_then(|&chunk| self.blocks.chunk(chunk));
        let object = chunk.or_else(|| self.small.get(name)).cloned();
        let bucket = Arc::clone(&self.bucket);
        async move {
            let object = object.ok_or(ErrorKind::NotFound)?;
            bucket.get(&object.name, range, &object.version).await
        }
    }

    /// The name of a file in the folder, if there is such a one.
    fn name<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let name = path.strip_prefix(&self.folder).ok()?.to_str()?;
        (self.small.contains_key(name) || self.chunks.contains_key(name)).then_some(name)
    }

    fn small(&self, name: &str) -> io::Result<Arc<SmallFile>> {
        let fetched = || self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = fetched().get(name) {
            return Ok(Arc::clone(file));
        }
        let object = self.small.get(name).cloned().ok_or(ErrorKind::NotFound)?;
        let (bucket, cache, requests) = (Arc::clone(&self.bucket), Arc::clone(&self.cache), self.requests);
        let file = wait(async move {
            let len = object.version.size;
            whole(&bucket, &cache, &object, len, requests).await
        })??;
        Ok(Arc::clone(fetched().entry(name.to_owned()).or_insert(Arc::new(file))))
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::Error::new(ErrorKind::Unsupported, "stores in object storage are read: push publishes a local one"))
}

impl Disk for RemoteDisk {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Write {
            return read_only();
        }
        let name = self.name(path).ok_or(ErrorKind::NotFound)?;
        match self.chunks.get(name) {
            Some(&chunk) => Ok(Arc::new(ChunkFile { blocks: Arc::clone(&self.blocks), chunk })),
            None => self.small(name).map(|file| file as _),
        }
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn exists(&self, path: &Path) -> bool {
        path == self.folder || self.name(path).is_some()
    }

    fn list(&self, _path: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.small.keys().chain(self.chunks.keys()).map(OsString::from).collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn far(&self) -> Option<Arc<dyn Far>> {
        Some(Arc::clone(&self.blocks) as _)
    }

    /// There is nothing to lock: what is read does not change.
    fn lock(&self, _path: &Path, _kind: LockKind) -> io::Result<Option<LockGuard>> {
        Err(ErrorKind::NotFound.into())
    }
}

/// A file that was fetched whole.
#[derive(Debug)]
struct SmallFile {
    /// In the cache, unless that had no room.
    path: PathBuf,
    map: Map,
}

impl DiskFile for SmallFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.map.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let copied = self.map.with_frame(offset, bytes.len(), |found| bytes.copy_from_slice(found));
        if copied.is_some() || bytes.is_empty() { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        read_only()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn map(&self) -> io::Result<Option<Map>> {
        let len = self.map.len();
        match File::open(&self.path).and_then(|file| Map::of_first(&file, len)) {
            Ok(map) => Ok(Some(map)),
            Err(_) => self.map.with_frame(0, len as usize, Map::of_bytes).transpose(),
        }
    }
}

/// A chunk file, which comes in blocks.
#[derive(Debug)]
struct ChunkFile {
    blocks: Arc<Blocks>,
    chunk: u16,
}

impl DiskFile for ChunkFile {
    fn len(&self) -> io::Result<u64> {
        self.blocks.chunk(self.chunk).map(|object| object.version.size).ok_or(ErrorKind::NotFound.into())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.len()? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.blocks.read_at(self.chunk, bytes, offset).map_err(|error| match error {
            // The store says which file it is.
            Error::Io { source, .. } => io::Error::new(source.kind(), source.to_string()),
            other => io::Error::other(other.to_string()),
        })
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        read_only()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn map(&self) -> io::Result<Option<Map>> {
        Ok(None)
    }
}
