//! Pushes that are cut off at every point, and two at a time: readers never see a mixture.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::path::Path as At;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as Answer,
};
use tempfile::TempDir;

use crate::convert::{Progress, Pull, Push};
use crate::engine::remote::{Bucket, Fault, InMemory, Put, RemoteOptions, open_in, wait};
use crate::error::{Error, Result};
use crate::{Codec, DictSize, Store, StoreOptions};

/// Some stores on disk, and a folder in object storage.
struct Place {
    folder: TempDir,
    memory: Arc<InMemory>,
}

type Records = Vec<Vec<u8>>;

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap(), memory: Arc::new(InMemory::new()) }
    }

    fn bucket(&self, fault: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Bucket> {
        Arc::new(Bucket::of(self.memory.clone(), "memory", Fault(Arc::new(fault))))
    }

    fn options(&self) -> RemoteOptions {
        RemoteOptions::new().cache(self.folder.path().join("cache")).block_bytes(64 << 10)
    }

    /// A store of records that `salt` makes.
    fn make(&self, name: &str, codec: Codec, salt: u8, count: usize) -> (PathBuf, Records) {
        let path = self.folder.path().join(name);
        let store = StoreOptions::new().codec(codec).create(&path).unwrap();
        let records: Records = (0..count).map(|i| vec![salt ^ i as u8; i * 37 % 900]).collect();
        if codec == Codec::ZstdDict {
            let (bytes, offsets) = packed(&records);
            store.train_dict(&bytes, &offsets, DictSize::Bytes(1024)).unwrap();
        }
        append(&store, &records[..count / 2]);
        store.close().unwrap();
        // As another program would, to have several chunk files.
        let (meta, mut header) = (path.join("meta.zr"), [0; 16]);
        let mut file = File::options().read(true).write(true).open(meta).unwrap();
        file.read_exact(&mut header).unwrap();
        header[6..12].copy_from_slice(&[1, 0, 0, 0, 0, 0]);
        file.rewind().unwrap();
        file.write_all(&header).unwrap();
        let store = StoreOptions::new().codec(codec).open_writable(&path).unwrap();
        append(&store, &records[count / 2..]);
        store.close().unwrap();
        (path, records)
    }

    fn push(&self, path: &Path, resume: bool) -> Result<crate::Pushed> {
        Push::new().resume(resume).store_in(path, self.bucket(|| false))
    }

    /// The names of all objects.
    fn names(&self) -> Vec<String> {
        let listed = self.memory.list(None).map(|object| object.unwrap().location.filename().unwrap().to_owned());
        let mut names: Vec<String> = wait(listed.collect()).unwrap();
        names.sort();
        names
    }

    fn put(&self, files: &[(String, Vec<u8>)]) {
        for (name, bytes) in files.iter().cloned() {
            let bucket = self.bucket(|| false);
            wait(async move { bucket.put(&name, bytes, Put::Over).await }).unwrap().unwrap();
        }
    }

    fn forget(&self) {
        for name in self.names() {
            let bucket = self.bucket(|| false);
            wait(async move { bucket.delete(&name).await }).unwrap().unwrap();
        }
    }

    /// What a reader finds: the records, or that there is no store.
    fn read(&self) -> Option<Records> {
        let disk = match open_in(self.bucket(|| false), &self.options()) {
            Ok(disk) => disk,
            Err(Error::NotAStore { .. }) => return None,
            Err(error) => panic!("{error}"),
        };
        let store = StoreOptions::new().disk(disk).open("memory").unwrap();
        let all: Vec<u64> = (0..store.len()).collect();
        let found = store.gather(&all).unwrap();
        assert!(store.verify(|_| ()).unwrap().bad.is_empty());
        Some((0..all.len()).map(|i| found.get(i).unwrap().to_vec()).collect())
    }
}

fn packed(records: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
    let mut offsets = vec![0];
    records.iter().for_each(|record| offsets.push(offsets[offsets.len() - 1] + record.len() as u64));
    (records.concat(), offsets)
}

fn append(store: &Store, records: &[Vec<u8>]) {
    let (bytes, offsets) = packed(records);
    store.append(&bytes, &offsets).unwrap();
}

#[test]
fn a_push_that_is_cut_off_at_any_point_leaves_the_old_store_or_none_and_one_that_resumes_ends_it() {
    for (before, codecs) in [
        (false, [Codec::Raw, Codec::Zstd]),
        (true, [Codec::Raw, Codec::ZstdDict]),
        (true, [Codec::ZstdDict, Codec::Raw]),
    ] {
        for cut in 0.. {
            let place = Place::new();
            let (old, old_records) = place.make("old", codecs[0], 3, 90);
            let (new, new_records) = place.make("new", codecs[1], 99, 120);
            if before {
                place.push(&old, false).unwrap();
                assert_eq!(place.read(), Some(old_records.clone()));
            }
            let done = Arc::new(AtomicUsize::new(0));
            // Whoever is killed does nothing any more.
            let counted = done.clone();
            let bucket = place.bucket(move || counted.fetch_add(1, Ordering::SeqCst) >= cut);
            let pushed = Push::new().store_in(&new, bucket);
            let found = place.read();
            let old = before.then_some(old_records);
            assert!(found.is_none() || found == old || found.as_ref() == Some(&new_records), "cut at {cut}");
            assert!(pushed.is_err() || found.as_ref() == Some(&new_records));
            if pushed.is_err() {
                if let Err(error) = place.push(&new, false) {
                    assert!(matches!(error, Error::Locked { .. }), "{error}");
                    let resumed = place.push(&new, true).unwrap();
                    assert!(resumed.sent + resumed.kept > 0);
                }
                assert_eq!(place.read(), Some(new_records), "cut at {cut}");
                let mut names: Vec<String> = bytes_of(&new).into_iter().map(|(name, _)| name).collect();
                names.push("published.json".into());
                names.sort_unstable();
                // What the old store had beside that is gone.
                assert_eq!(place.names(), names, "cut at {cut}");
            } else {
                assert!(cut > 15);
                break;
            }
        }
    }
}

#[test]
fn a_push_that_is_taken_over_at_any_point_does_not_mix_with_the_other_one() {
    for at in 0.. {
        let place = Arc::new(Place::new());
        let (old, old_records) = place.make("old", Codec::Raw, 3, 50);
        let (first, first_records) = place.make("first", Codec::Zstd, 99, 60);
        let (second, second_records) = place.make("second", Codec::Raw, 7, 70);
        place.push(&old, false).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let (counted, other) = (done.clone(), place.clone());
        let bucket = place.bucket(move || {
            if counted.fetch_add(1, Ordering::SeqCst) == at {
                // This is a thread of the requests', which must not wait for others.
                let push = || {
                    other.push(&second, true).unwrap();
                    assert_eq!(other.read().as_ref().map(Vec::len), Some(70));
                };
                std::thread::scope(|scope| scope.spawn(push).join()).unwrap();
            }
            false
        });
        let pushed = Push::new().store_in(&first, bucket);
        let found = place.read();
        let whole = [Some(old_records), Some(first_records.clone()), Some(second_records), None];
        assert!(whole.contains(&found), "taken over at {at}");
        if done.load(Ordering::SeqCst) <= at {
            pushed.unwrap();
            assert!(at > 15);
            break;
        }
        if pushed.is_ok() && found.is_none() {
            panic!("taken over at {at}: the first says that it is published, and there is none");
        }
    }
}

#[test]
fn what_is_there_already_is_not_sent_again() {
    let place = Place::new();
    let (path, records) = place.make("store", Codec::ZstdDict, 5, 100);
    let first = place.push(&path, false).unwrap();
    assert_eq!((first.records, first.kept), (100, 0));
    let again = place.push(&path, false).unwrap();
    assert_eq!((again.sent, again.kept, again.bytes), (0, first.sent - 1, 0));
    let store = StoreOptions::new().codec(Codec::ZstdDict).open_writable(&path).unwrap();
    append(&store, &records[..7]);
    store.close().unwrap();
    let grown = place.push(&path, false).unwrap();
    assert!(grown.kept > 0 && grown.sent > 0 && grown.records == 107, "{grown:?}");
    assert_eq!(place.read(), Some([&records[..], &records[..7]].concat()));
}

#[test]
fn what_is_pulled_is_what_was_pushed_and_python_can_open_it() {
    for codec in [Codec::Raw, Codec::Zstd, Codec::ZstdDict] {
        let place = Place::new();
        let (path, records) = place.make("store", codec, 5, 100);
        place.push(&path, false).unwrap();
        let destination = place.folder.path().join("pulled");
        let disk = open_in(place.bucket(|| false), &place.options()).unwrap();
        assert_eq!(Pull::new().store_from(&disk, Path::new("memory"), &destination).unwrap().records, 100);
        let store = Store::open(&destination).unwrap();
        let found = store.gather(&(0..100).collect::<Vec<_>>()).unwrap();
        assert_eq!((found.bytes, found.offsets), packed(&records));
        let len = |path: &Path| std::fs::metadata(path.join("meta.zr")).unwrap().len();
        assert_eq!(len(&destination), len(&path));
        assert!(matches!(Pull::new().store_from(&disk, Path::new("memory"), &destination), Err(Error::Exists { .. })));
    }
}

#[test]
fn a_store_that_another_program_changes_meanwhile_is_not_published() {
    let place = Place::new();
    let (path, _) = place.make("store", Codec::Zstd, 5, 100);
    let (done, meta) = (AtomicUsize::new(0), path.join("meta.zr"));
    let bucket = place.bucket(move || {
        if done.fetch_add(1, Ordering::SeqCst) == 8 {
            let mut file = File::options().write(true).open(&meta).unwrap();
            file.seek(std::io::SeekFrom::Start(12)).unwrap();
            file.write_all(&99u32.to_le_bytes()).unwrap();
        }
        false
    });
    let error = Push::new().store_in(&path, bucket).unwrap_err().to_string();
    assert!(error.contains("another program has changed the store"), "{error}");
    assert_eq!(place.read(), None);
}

/// What a server does with a conditional put.
#[derive(Debug, Clone, Copy)]
enum Conditions {
    /// It does it twice: the first answer was lost.
    Twice,
    /// It does not look at the condition.
    Ignored,
}

#[derive(Debug)]
struct Odd(Arc<InMemory>, Conditions);

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("odd")
    }
}

#[async_trait]
impl ObjectStore for Odd {
    async fn put_opts(&self, path: &At, bytes: PutPayload, mut options: PutOptions) -> Answer<PutResult> {
        match (&options.mode, self.1) {
            (PutMode::Overwrite, _) => {}
            (_, Conditions::Twice) => _ = self.0.put_opts(path, bytes.clone(), options.clone()).await?,
            (_, Conditions::Ignored) => options.mode = PutMode::Overwrite,
        }
        self.0.put_opts(path, bytes, options).await
    }

    async fn put_multipart_opts(&self, path: &At, options: PutMultipartOptions) -> Answer<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &At, options: GetOptions) -> Answer<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Answer<At>>) -> BoxStream<'static, Answer<At>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&At>) -> BoxStream<'static, Answer<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&At>) -> Answer<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &At, to: &At, options: CopyOptions) -> Answer<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[test]
fn a_put_whose_answer_was_lost_is_not_taken_for_that_of_another_push() {
    let place = Place::new();
    let (path, records) = place.make("store", Codec::Zstd, 5, 100);
    let odd = Odd(place.memory.clone(), Conditions::Twice);
    let bucket = Bucket::of(Arc::new(odd), "memory", Fault(Arc::new(|| false)));
    Push::new().store_in(&path, Arc::new(bucket)).unwrap();
    assert_eq!(place.read(), Some(records));
    assert!(!place.names().contains(&"publishing.json".into()));
}

#[test]
fn a_server_that_ignores_conditions_is_refused_and_keeps_its_store() {
    let place = Place::new();
    let (old, old_records) = place.make("old", Codec::Zstd, 3, 90);
    let (new, _) = place.make("new", Codec::Zstd, 5, 100);
    place.push(&old, false).unwrap();
    let names = place.names();
    let odd = Odd(place.memory.clone(), Conditions::Ignored);
    let bucket = Bucket::of(Arc::new(odd), "memory", Fault(Arc::new(|| false)));
    let refused = Push::new().store_in(&new, Arc::new(bucket));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert_eq!((place.read(), place.names()), (Some(old_records), names));
}

/// The first bytes of the files of a store, by their names, but for those of locks: all of them, but for the table's hole.
fn bytes_of(path: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let read = |entry: std::fs::DirEntry| {
        let mut bytes = Vec::new();
        let len = if entry.file_name() == "meta.zr" { 16 + 16 * 100 } else { u64::MAX };
        File::open(entry.path()).unwrap().take(len).read_to_end(&mut bytes).unwrap();
        (entry.file_name().into_string().unwrap(), bytes)
    };
    let mut files: Vec<_> = entries.map(read).filter(|(name, _)| !name.ends_with(".lock")).collect();
    files.sort();
    files
}

#[test]
fn a_pull_that_was_stopped_goes_on_with_the_files_that_are_whole_and_never_with_those_of_another_store() {
    let place = Place::new();
    let (path, _) = place.make("store", Codec::ZstdDict, 5, 100);
    let (other, _) = place.make("other", Codec::Raw, 7, 100);
    place.push(&path, false).unwrap();
    let destination = place.folder.path().join("pulled");
    let open = || open_in(place.bucket(|| false), &place.options().requests(1)).unwrap();
    let pull = |resume| Pull::new().remote(place.options().requests(1)).resume(resume);
    let stopped = || {
        let stop = AtomicBool::new(false);
        let after_some = |done: Progress| stop.store(done.bytes > 0, Ordering::SeqCst);
        let stopped =
            pull(true).stop(&stop).progress(after_some).store_from(&open(), Path::new("memory"), &destination);
        assert!(matches!(stopped, Err(Error::Interrupted { .. })), "{stopped:?}");
        assert!(!destination.exists());
    };
    stopped();
    let partial = place.folder.path().join("pulled.partial/data");
    // One that was damaged meanwhile comes again.
    let whole = bytes_of(&partial).into_iter().find(|(name, _)| name == "0.zr");
    if let Some((name, mut bytes)) = whole {
        bytes[7] ^= 1;
        std::fs::write(partial.join(name), bytes).unwrap();
    }
    let resumed = pull(true).store_from(&open(), Path::new("memory"), &destination).unwrap();
    assert_eq!((resumed.records, resumed.kept + resumed.fetched), (100, bytes_of(&path).len() as u64));
    assert!(bytes_of(&destination) == bytes_of(&path));

    std::fs::remove_dir_all(&destination).unwrap();
    stopped();
    stopped();
    place.push(&other, false).unwrap();
    let error = pull(true).store_from(&open(), Path::new("memory"), &destination).unwrap_err().to_string();
    assert!(error.contains("begun with its version"), "{error}");
    let anew = pull(false).store_from(&open(), Path::new("memory"), &destination).unwrap();
    assert_eq!((anew.records, anew.kept), (100, 0));
    assert!(bytes_of(&destination) == bytes_of(&other));
}

#[test]
fn what_is_pulled_is_compared_with_what_was_pushed_or_else_with_its_checksums() {
    let place = Place::new();
    let (path, _) = place.make("store", Codec::Zstd, 5, 100);
    place.push(&path, false).unwrap();
    let destination = place.folder.path().join("pulled");
    let pull = |disk| Pull::new().store_from(disk, Path::new("memory"), &destination);
    let disk = open_in(place.bucket(|| false), &place.options()).unwrap();
    let bucket = place.bucket(|| false);
    let published = wait(async move {
        let (bytes, _) = bucket.read("published.json", 1 << 20).await?.unwrap();
        let mut published: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        published["objects"][0]["hash"] = "0".repeat(32).into();
        bucket.put("published.json", published.to_string().into_bytes(), Put::Over).await
    });
    published.unwrap().unwrap();
    let error = pull(&disk).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(found) if found.path == Path::new("memory/0.zr")), "{error}");
    assert!(!destination.exists());

    // Without what a push notes.
    place.forget();
    let files = bytes_of(&path);
    place.put(&files);
    let disk = open_in(place.bucket(|| false), &place.options()).unwrap();
    assert_eq!(pull(&disk).unwrap().records, 100);
    assert!(bytes_of(&destination) == files);
    std::fs::remove_dir_all(&destination).unwrap();
    let mut damaged = files;
    let chunk = damaged.iter_mut().find(|(name, _)| name == "1.zr").unwrap();
    chunk.1[30] ^= 1;
    place.put(&damaged);
    let disk = open_in(place.bucket(|| false), &place.options()).unwrap();
    assert!(matches!(pull(&disk), Err(Error::Corrupt(found)) if found.record.is_some()));
}
