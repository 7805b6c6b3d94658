//! Pushes that are cut off at every point, and two at a time: readers never see a mixture.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::convert::{Pull, Push};
use crate::engine::remote::{Bucket, Fault, InMemory, RemoteOptions, open_in};
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
        append(&store, &records);
        store.close().unwrap();
        (path, records)
    }

    fn push(&self, path: &Path, resume: bool) -> Result<crate::Pushed> {
        Push::new().resume(resume).store_in(path, self.bucket(|| false))
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
    for (before, codecs) in [(false, [Codec::Raw, Codec::Zstd]), (true, [Codec::Raw, Codec::ZstdDict])] {
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
        assert_eq!(Pull::new().store_from(&disk, Path::new("memory"), &destination).unwrap(), 100);
        let store = Store::open(&destination).unwrap();
        let found = store.gather(&(0..100).collect::<Vec<_>>()).unwrap();
        assert_eq!((found.bytes, found.offsets), packed(&records));
        let len = |path: &Path| std::fs::metadata(path.join("meta.zr")).unwrap().len();
        assert_eq!(len(&destination), len(&path));
        assert!(matches!(Pull::new().store_from(&disk, Path::new("memory"), &destination), Err(Error::Exists { .. })));
    }
}
