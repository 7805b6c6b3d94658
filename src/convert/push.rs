//! Publishing a store in object storage.
//!
//! `publishing.json` is there while somebody publishes, put where none was: so there is one at a time, and the others are told.
//! It keeps what was sent already. The table of the store that is there is removed before anything of it is replaced, and the
//! new one is put last, where none is. So a reader finds the old store, none, or the new one; a table that another publisher put
//! late names another `published.json` than the one that is there, and is refused by readers.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::Progress;
use crate::engine::remote::{
    Bucket, Held, PUBLISHED, PUBLISHING, Published, PublishedObject, Put, RemoteOptions, SEAL, Version, seal, wait,
    wait_with,
};
use crate::engine::store::outline::{SINGLE, TABLE, TABLE_HEADER, chunk_ends, chunk_files, table_len};
use crate::error::{Error, Result};
use crate::{Store, StoreOptions};

/// Publishes a store of this disk in object storage: readers open the URL as they open a path.
///
/// Chunk files go first and the record table last. Until it is there, readers find the store that was there before, or none: never
/// a mixture, whenever a push is cut off, and never that of two pushes. A store that has grown sends what has grown.
///
/// ```
/// # fn push() -> loaderx::Result<()> {
/// use loaderx::Push;
///
/// let pushed = Push::new().store("images", "s3://bucket/images")?;
/// println!("{} objects, {} bytes", pushed.sent, pushed.bytes);
/// # Ok(())
/// # }
/// ```
pub struct Push<'a> {
    remote: RemoteOptions,
    resume: bool,
    stop: Option<&'a AtomicBool>,
    progress: Box<dyn FnMut(Progress) + 'a>,
}

/// What a [`Push`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// How many records the store has.
    pub records: u64,
    /// How many objects were sent.
    pub sent: u64,
    /// How many were there already, as they are now.
    pub kept: u64,
    /// Bytes that were sent.
    pub bytes: u64,
}

impl fmt::Debug for Push<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("remote", &self.remote).field("resume", &self.resume).finish_non_exhaustive()
    }
}

impl Default for Push<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Push<'a> {
    /// The defaults: no progress, and a push that another one began is left to it.
    pub fn new() -> Self {
        Push { remote: RemoteOptions::default(), resume: false, stop: None, progress: Box::new(|_| {}) }
    }

    /// How object storage is reached: the time that a request may take.
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Takes over from a push that was cut off, and does not send again what it sent and is still the same. One that
    /// is still at work notices it, and ends with an error.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Stops with [`Error::Interrupted`] soon after `stop` becomes true. What was sent is kept for one that resumes.
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Is told how many bytes of the store's files are done, in `source_bytes`, some times a second.
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Publishes the store at `path`, which nobody writes to meanwhile, at `url`.
    ///
    /// # Errors
    /// [`Error::Locked`] where another handle writes to the store, or another push is at work or was cut off, and this one is
    /// not to resume; [`Error::Invalid`] for the URL; [`Error::Interrupted`]; [`Error::Unsupported`] for a server that knows no conditional
    /// puts; [`Error::Io`], also where a file changes meanwhile; what opening the store says. After an error `url` has the store that
    /// was there, or none.
    pub fn store(self, path: impl AsRef<Path>, url: &str) -> Result<Pushed> {
        let bucket = Bucket::new(url, &self.remote.clone().sending())?;
        self.store_in(path.as_ref(), Arc::new(bucket))
    }

    pub(super) fn store_in(mut self, path: &Path, bucket: Arc<Bucket>) -> Result<Pushed> {
        // What was cut off is finished, all is synced, and no other handle writes.
        let store = StoreOptions::new().open_writable(path)?;
        let table = read_table(path)?;
        let files = files(path, &table)?;
        let mut send = Sending::begin(bucket, self.resume)?;
        let pushed = self.send(&mut send, &store, &table, &files)?;
        send.finish(&files)?;
        Ok(pushed)
    }

    fn send(&mut self, send: &mut Sending, store: &Store, table: &[u8], files: &[LocalFile]) -> Result<Pushed> {
        let total: u64 = files.iter().map(|file| file.size).sum();
        let (mut done, stop) = (0, self.stop);
        let (mut objects, mut changed) = (Vec::new(), Vec::new());
        for file in files {
            match send.unchanged(file, || stop.is_some_and(|stop| stop.load(Ordering::Relaxed)))? {
                Some(object) => {
                    objects.push(object);
                    done += file.size;
                }
                None => changed.push(file),
            }
        }
        let mut pushed = Pushed { records: store.len(), sent: 0, kept: objects.len() as u64, bytes: 0 };
        if changed.is_empty() && send.is_published(table, &objects)? {
            return Ok(pushed);
        }
        // From here on readers find no store.
        send.delete(TABLE)?;
        for file in changed {
            let report = |sent| {
                let (rows, bytes) = (store.len(), done + sent);
                (self.progress)(Progress {
                    rows,
                    rows_total: None,
                    bytes,
                    source_bytes: bytes,
                    source_bytes_total: Some(total),
                });
            };
            objects.push(send.file(file, stop, report)?);
            pushed.sent += 1;
            pushed.bytes += file.size;
            done += file.size;
        }
        if read_table(store.path())? != table {
            let reason = "another program has changed the store meanwhile: push it again, with resume (--resume)";
            return Err(Error::io("publish", store.path())(io::Error::other(reason)));
        }
        send.publish(table, objects)?;
        pushed.bytes += table.len() as u64;
        pushed.sent += 1;
        Ok(pushed)
    }
}

/// A file of the store, up to where it means something.
#[derive(Debug)]
struct LocalFile {
    name: String,
    path: PathBuf,
    size: u64,
}

/// The header and the entries of a store's table.
fn read_table(path: &Path) -> Result<Vec<u8>> {
    let path = path.join(TABLE);
    let read = || {
        let mut file = File::open(&path)?;
        let mut header = [0; TABLE_HEADER as usize];
        file.read_exact(&mut header)?;
        Ok((file, header))
    };
    let (file, header) = read().map_err(Error::io("read", &path))?;
    let mut table = header.to_vec();
    let len = table_len(&header, &path)?;
    file.take(len - TABLE_HEADER).read_to_end(&mut table).map_err(Error::io("read", &path))?;
    if (table.len() as u64) < len {
        return Err(Error::corrupt(&path, format!("{len} bytes"), format!("{}", table.len())));
    }
    Ok(table)
}

/// The files of a store beside its table: those that are large last.
fn files(path: &Path, table: &[u8]) -> Result<Vec<LocalFile>> {
    let mut files = Vec::new();
    let mut add = |name: &str, size: Option<u64>| {
        let path = path.join(name);
        let found = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(e) if e.kind() == ErrorKind::NotFound && size.is_none() => return Ok(()),
            Err(e) => return Err(Error::io("read", &path)(e)),
        };
        let size = size.unwrap_or(found);
        if found < size {
            return Err(Error::corrupt(&path, format!("at least {size} bytes"), format!("{found}")));
        }
        files.push(LocalFile { name: name.to_owned(), path, size });
        Ok(())
    };
    SINGLE.iter().try_for_each(|name| add(name, None))?;
    for (chunk, end) in chunk_ends(table) {
        let (chunk, sums) = chunk_files(chunk);
        add(&sums, None)?;
        add(&chunk, Some(end))?;
    }
    Ok(files)
}

/// What `publishing.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Publishing {
    format: String,
    version: u32,
    /// Which publisher: no two are alike.
    id: String,
    /// Where it runs.
    by: String,
    /// Since when, in seconds since 1970.
    since: u64,
    /// The objects that earlier pushes and this one have sent, with the tags they then had.
    sent: Vec<PublishedObject>,
}

const FORMAT: &str = "loaderx-publishing";
/// A larger `publishing.json` or `published.json` is refused.
const MAX_JSON: u64 = 16 << 20;

/// A publisher at work.
struct Sending {
    bucket: Arc<Bucket>,
    publishing: Publishing,
    /// That of our `publishing.json`.
    lease: Held,
    /// Objects that are there, by what earlier publishers said.
    known: BTreeMap<String, PublishedObject>,
}

impl Sending {
    /// Puts `publishing.json`, or takes over that of another one.
    fn begin(bucket: Arc<Bucket>, resume: bool) -> Result<Sending> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "this host".into());
        let by = format!("process {} on {}", std::process::id(), host.trim());
        let mut hash = Xxh3::new();
        hash.update(format!("{by} {now:?} {:p}", &hash).as_bytes());
        let id = format!("{:032x}", hash.digest128());
        let mut publishing =
            Publishing { format: FORMAT.into(), version: 1, id, by, since: now.as_secs(), sent: Vec::new() };
        let published: Option<(Published, Held)> = read_json(&bucket, PUBLISHED)?;
        let mut known: BTreeMap<String, PublishedObject> = BTreeMap::new();
        for object in published.into_iter().flat_map(|(published, _)| published.objects) {
            known.insert(object.name.clone(), object);
        }
        let other: Option<(Publishing, Held)> = read_json(&bucket, PUBLISHING)?;
        let how = match other {
            None => Put::New,
            Some((other, held)) if resume => {
                known.extend(other.sent.into_iter().map(|object| (object.name.clone(), object)));
                Put::Instead(held)
            }
            Some((other, _)) => return Err(at_work(&bucket, Some(&other))),
        };
        // With those that the new store will not have, so that whoever resumes removes them.
        publishing.sent = known.values().cloned().collect();
        let lease = put_lease(&bucket, &publishing, how)?;
        let sending = Sending { bucket, publishing, lease, known };
        sending.prove_conditions()?;
        Ok(sending)
    }

    /// Some servers take conditional puts for plain ones: there, nobody could be told that another one is at work.
    fn prove_conditions(&self) -> Result<()> {
        for how in [Put::New, Put::Instead(Held::nothing())] {
            if put_json(&self.bucket, PUBLISHING, &self.publishing, how).is_ok() {
                let (bucket, path) = (Arc::clone(&self.bucket), Path::new(self.bucket.url()).to_path_buf());
                run(&self.bucket, PUBLISHING, "remove", async move { bucket.delete(PUBLISHING).await })?;
                return Err(no_conditions(&path));
            }
        }
        Ok(())
    }

    /// The object that a file was sent as, if both are still the same.
    fn unchanged(&self, file: &LocalFile, stop: impl Fn() -> bool) -> Result<Option<PublishedObject>> {
        let Some(object) = self.known.get(&file.name).filter(|object| object.size == file.size) else {
            return Ok(None);
        };
        let same = |version: &Version| version.size == object.size && object.tag.is_some() && version.tag == object.tag;
        if !head(&self.bucket, &file.name)?.as_ref().is_some_and(same) {
            return Ok(None);
        }
        let hash = match hash_of(file, stop) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Err(interrupted()),
            hash => hash.map_err(Error::io("read", &file.path))?,
        };
        Ok((format!("{hash:032x}") == object.hash).then(|| object.clone()))
    }

    /// Whether exactly that is what is published.
    fn is_published(&self, table: &[u8], objects: &[PublishedObject]) -> Result<bool> {
        let manifest = Published::new(&self.bucket, table, objects.to_vec()).to_bytes();
        let found = read(&self.bucket, PUBLISHED)?;
        Ok(found.is_some_and(|(found, _)| found == manifest) && self.seal(table)? == Some(seal(&manifest)))
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        self.renew()?;
        let (bucket, object) = (Arc::clone(&self.bucket), name.to_owned());
        run(&self.bucket, name, "remove", async move { bucket.delete(&object).await })
    }

    /// Sends a file, and notes that it is there.
    fn file(
        &mut self,
        file: &LocalFile,
        stop: Option<&AtomicBool>,
        mut report: impl FnMut(u64),
    ) -> Result<PublishedObject> {
        let open = File::open(&file.path).map_err(Error::io("read", &file.path))?;
        let (sent, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (bucket, name, size) = (Arc::clone(&self.bucket), file.name.clone(), file.size);
        let counters = (Arc::clone(&sent), Arc::clone(&stopped));
        let work = async move { bucket.put_file(&name, open, size, (&counters.0, &counters.1)).await };
        let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        stopped.store(is_stopped(), Ordering::Relaxed);
        if is_stopped() {
            return Err(interrupted());
        }
        let tick = || {
            stopped.store(is_stopped(), Ordering::Relaxed);
            report(sent.load(Ordering::Relaxed));
        };
        let path = Path::new(self.bucket.url()).join(&file.name);
        let hash = match wait_with(work, tick).map_err(Error::io("send", &path))? {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Err(interrupted()),
            hash => hash.map_err(Error::io("send", &path))?,
        };
        let found = head(&self.bucket, &file.name)?.filter(|found| found.size == file.size);
        let found =
            found.ok_or_else(|| Error::io("send", &path)(io::Error::other("what came there is something else")))?;
        let (name, hash) = (file.name.clone(), format!("{hash:032x}"));
        let object = PublishedObject { name, size: file.size, hash, tag: found.tag };
        self.publishing.sent.retain(|other| other.name != object.name);
        self.publishing.sent.push(object.clone());
        self.renew()?;
        Ok(object)
    }

    /// Writes down what was sent, if nobody has taken over meanwhile.
    fn renew(&mut self) -> Result<()> {
        self.lease = put_lease(&self.bucket, &self.publishing, Put::Instead(self.lease.clone()))?;
        Ok(())
    }

    /// Puts the manifest, and the table that names it.
    fn publish(&mut self, table: &[u8], objects: Vec<PublishedObject>) -> Result<()> {
        self.renew()?;
        let manifest = Published::new(&self.bucket, table, objects).to_bytes();
        let seal = seal(&manifest);
        put(&self.bucket, PUBLISHED, manifest, Put::Over)?;
        self.renew()?;
        match put(&self.bucket, TABLE, [table, &seal].concat(), Put::New) {
            Err(Error::Io { source, .. }) if displaced(&source) => {
                // Or it was put, the answer was lost, and it was put again.
                if self.seal(table)? == Some(seal) { Ok(()) } else { Err(at_work(&self.bucket, None)) }
            }
            put => put.map(drop),
        }
    }

    /// What stands behind the table that is there, if it is as long as this one.
    fn seal(&self, table: &[u8]) -> Result<Option<[u8; SEAL]>> {
        let (len, end) = (table.len() as u64, (table.len() + SEAL) as u64);
        let Some(version) = head(&self.bucket, TABLE)?.filter(|version| version.size == end) else { return Ok(None) };
        Ok(get(&self.bucket, TABLE, len..end, &version)?.try_into().ok())
    }

    /// Removes what the store does not have any more, and `publishing.json`.
    fn finish(mut self, files: &[LocalFile]) -> Result<()> {
        let old: Vec<String> =
            self.known.keys().filter(|name| files.iter().all(|file| file.name != **name)).cloned().collect();
        for name in old {
            self.delete(&name)?;
        }
        self.delete(PUBLISHING)
    }
}

/// Whether another publisher was faster.
fn displaced(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::StaleNetworkFileHandle | ErrorKind::NotFound)
}

fn at_work(bucket: &Bucket, other: Option<&Publishing>) -> Error {
    let who = other.map_or("another push".into(), |other| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        format!("a push of {}, begun {} s ago,", other.by, now.saturating_sub(other.since))
    });
    let reason = format!("{who} is at work there or was cut off: wait for it, or take over with resume (--resume)");
    Error::Locked { path: Path::new(bucket.url()).join(PUBLISHING), reason }
}

fn interrupted() -> Error {
    Error::Interrupted { records: 0, left: "what was sent is kept: go on with resume (--resume)".into() }
}

fn hash_of(file: &LocalFile, stop: impl Fn() -> bool) -> io::Result<u128> {
    let mut hash = Xxh3::new();
    let mut bytes = vec![0; 1 << 20];
    let mut open = File::open(&file.path)?.take(file.size);
    loop {
        match open.read(&mut bytes)? {
            _ if stop() => return Err(ErrorKind::Interrupted.into()),
            0 => return Ok(hash.digest128()),
            count => hash.update(&bytes[..count]),
        }
    }
}

/// Waits for something that is done to an object.
fn run<T: Send + 'static>(
    bucket: &Bucket,
    name: &str,
    action: &'static str,
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> Result<T> {
    let path = Path::new(bucket.url()).join(name);
    wait(work).flatten().map_err(|e| match e.kind() {
        ErrorKind::Unsupported => no_conditions(&path),
        _ => Error::io(action, &path)(e),
    })
}

fn no_conditions(path: &Path) -> Error {
    let reason = "the server must know conditional puts, so that two pushes cannot mix: S3, GCS and Azure do";
    Error::unsupported(path, "publishing there", reason)
}

fn head(bucket: &Arc<Bucket>, name: &str) -> Result<Option<Version>> {
    let (inner, object) = (Arc::clone(bucket), name.to_owned());
    run(bucket, name, "ask for", async move { inner.head(&object).await })
}

fn get(bucket: &Arc<Bucket>, name: &str, range: std::ops::Range<u64>, version: &Version) -> Result<Vec<u8>> {
    let (inner, object, version) = (Arc::clone(bucket), name.to_owned(), version.clone());
    run(bucket, name, "read", async move { inner.get(&object, range, &version).await })
}

fn put(bucket: &Arc<Bucket>, name: &str, bytes: Vec<u8>, how: Put) -> Result<Held> {
    let (inner, object) = (Arc::clone(bucket), name.to_owned());
    run(bucket, name, "write", async move { inner.put(&object, bytes, how).await })
}

/// A small object, where there is one.
fn read(bucket: &Arc<Bucket>, name: &str) -> Result<Option<(Vec<u8>, Held)>> {
    let (inner, object) = (Arc::clone(bucket), name.to_owned());
    run(bucket, name, "read", async move { inner.read(&object, MAX_JSON).await })
}

fn read_json<T: for<'a> Deserialize<'a>>(bucket: &Arc<Bucket>, name: &str) -> Result<Option<(T, Held)>> {
    let Some((bytes, version)) = read(bucket, name)? else { return Ok(None) };
    let parsed = serde_json::from_slice(&bytes).map_err(|e| {
        let path = Path::new(bucket.url()).join(name);
        Error::corrupt(&path, "what push has written: remove it, if it is not", format!("something else ({e})"))
    });
    Ok(Some((parsed?, version)))
}

fn put_json(bucket: &Arc<Bucket>, name: &str, value: &impl Serialize, how: Put) -> Result<Held> {
    let bytes = serde_json::to_vec_pretty(value).map_err(|e| Error::invalid("publishing", e.to_string()))?;
    put(bucket, name, bytes, how)
}

/// Puts `publishing.json`, where nobody else has put one meanwhile.
fn put_lease(bucket: &Arc<Bucket>, publishing: &Publishing, how: Put) -> Result<Held> {
    match put_json(bucket, PUBLISHING, publishing, how) {
        Err(Error::Io { source, .. }) if displaced(&source) => match read_json::<Publishing>(bucket, PUBLISHING)? {
            // It was put, the answer was lost, and it was put again.
            Some((found, held)) if found == *publishing => Ok(held),
            found => Err(at_work(bucket, found.map(|(other, _)| other).as_ref())),
        },
        put => put,
    }
}
