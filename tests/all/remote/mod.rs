//! Stores read over HTTP, from a server on loopback that misbehaves where it is told to.

mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loaderx::{
    Codec, DataLoader, DenseDataset, DictSize, Error, Mode, RaggedDataset, RemoteOptions, Store, StoreOptions,
};
use server::{Answer, Server, Tags};
use tempfile::TempDir;

const BLOCK: u64 = 64 << 10;

/// A folder with a store in it, a server of the folder, and a cache.
struct Place {
    folder: TempDir,
    cache: TempDir,
    server: Server,
}

impl Place {
    fn new() -> Place {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server = Server::new(folder.path());
        Place { folder, cache, server }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn options(&self) -> RemoteOptions {
        RemoteOptions::new().cache(self.cache.path()).block_bytes(BLOCK).timeout(Duration::from_secs(4))
    }

    fn open_with(&self, options: RemoteOptions) -> loaderx::Result<Store> {
        StoreOptions::new().remote(options).open(self.server.url("store"))
    }

    fn open(&self) -> loaderx::Result<Store> {
        self.open_with(self.options())
    }

    fn forget(&self) {
        for entry in fs::read_dir(self.cache.path()).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    }

    /// The files of blocks in the cache.
    fn kept(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.cache.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.retain(|path| path.file_name().unwrap() != "total");
        files
    }
}

/// Bytes that do not repeat, and of which some shrink.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let plain = next() % 2 == 0;
    (0..len).map(|_| if plain { next() as u8 } else { next() as u8 % 4 }).collect()
}

/// A store of records of many lengths: about 1.5 MB.
fn make(path: &Path, codec: Codec, records: u64) -> Vec<Vec<u8>> {
    let lengths = [0, 1, 7, 40, 64, 300, 2000, 9000, 3, 70_000];
    let records: Vec<Vec<u8>> = (0..records).map(|i| noise(i, lengths[i as usize % 10])).collect();
    let packed = |records: &[Vec<u8>]| {
        let ends = records.iter().scan(0, |end, record| {
            *end += record.len() as u64;
            Some(*end)
        });
        (records.concat(), [0].into_iter().chain(ends).collect::<Vec<u64>>())
    };
    let store = StoreOptions::new().codec(codec).create(path).unwrap();
    if codec == Codec::ZstdDict {
        let (bytes, offsets) = packed(&records);
        store.train_dict(&bytes, &offsets, DictSize::Bytes(4096)).unwrap();
    }
    for records in records.chunks(77) {
        let (bytes, offsets) = packed(records);
        store.append(&bytes, &offsets).unwrap();
    }
    store.close().unwrap();
    records
}

fn gathered(store: &Store, indices: &[u64]) -> loaderx::Result<Vec<Vec<u8>>> {
    let records = store.gather(indices)?;
    Ok((0..indices.len()).map(|i| records.get(i).unwrap().to_vec()).collect())
}

fn shuffled(len: u64, seed: u64) -> Vec<u64> {
    loaderx::Sampler::new(Mode::Cyclic, len, len, seed).unwrap().batch(0)
}

#[test]
fn records_are_those_of_the_local_store_from_the_server_and_from_the_cache() {
    for codec in [Codec::Raw, Codec::Zstd, Codec::ZstdDict] {
        for tags in [Tags::Strong, Tags::Weak, Tags::Missing] {
            let place = Place::new();
            let records = make(&place.path(), codec, 200);
            place.server.tags(tags);
            for run in 0..2 {
                let store = place.open().unwrap();
                assert_eq!(store.len(), 200);
                for seed in 0..3 {
                    let indices = shuffled(200, seed);
                    let wanted: Vec<_> = indices.iter().map(|&i| records[i as usize].clone()).collect();
                    assert_eq!(gathered(&store, &indices).unwrap(), wanted, "{codec:?} {tags:?}");
                }
                assert!(store.verify(|_| ()).unwrap().bad.is_empty());
                let stats = store.remote_stats().unwrap();
                let seen = place.server.seen();
                let whole_table = seen.iter().all(|(_, bytes)| *bytes < 8 << 20);
                assert!(whole_table, "the table's file is 256 MiB, of which a little is asked for");
                if run == 1 && tags != Tags::Missing {
                    assert_eq!(stats.requests, 0, "{codec:?} {tags:?}");
                    assert!(seen.iter().all(|(request, _)| request.method == "HEAD" || request.name.contains("meta")));
                }
                assert_eq!(stats.renewed, 0);
            }
        }
    }
}

#[test]
fn typed_datasets_and_the_loader_give_the_batches_of_the_local_ones() {
    let place = Place::new();
    let (dense, ragged) = (place.folder.path().join("dense"), place.folder.path().join("ragged"));
    let values: Vec<u16> = (0..3000 * 50).map(|i| (i * 31 % 65_521) as u16).collect();
    DenseDataset::<u16, [usize; 1]>::create(&dense, [50]).unwrap().append(&values).unwrap();
    RaggedDataset::<u32>::create(&ragged, ()).unwrap().append((0..3000).map(|i| vec![i; i as usize % 90])).unwrap();
    let loader = |dense: &str, ragged: &str, workers| {
        let dense = DenseDataset::<u16, [usize; 1]>::options().remote(place.options()).open(dense).unwrap();
        let ragged = RaggedDataset::<u32>::options().remote(place.options()).open(ragged).unwrap();
        DataLoader::builder((dense, ragged)).batch_size(64).seed(3).workers(workers).build().unwrap()
    };
    let mut local = loader(dense.to_str().unwrap(), ragged.to_str().unwrap(), 0);
    let file = format!("file://{}", dense.display());
    let mut remote = [
        loader(&place.server.url("dense"), &place.server.url("ragged"), 0),
        loader(&place.server.url("dense"), &place.server.url("ragged/"), 3),
        loader(&file, &place.server.url("ragged"), 1),
    ];
    for _ in 0..100 {
        let (dense, ragged) = local.next().unwrap().unwrap();
        for remote in &mut remote {
            let (dense_too, ragged_too) = remote.next().unwrap().unwrap();
            assert_eq!((dense.values(), ragged.values()), (dense_too.values(), ragged_too.values()));
        }
    }
    // A state goes from one to the other.
    let state = local.state();
    assert!(remote.iter().all(|remote| remote.state() == state));
}

#[test]
fn what_a_server_does_wrong_for_a_while_is_asked_for_again() {
    let place = Place::new();
    for codec in [Codec::Raw, Codec::Zstd] {
        let records = make(&place.path(), codec, 60);
        // Not all: a request for a whole object names no range.
        let indices: Vec<u64> = (0..40).collect();
        for answer in [
            Answer::Status(500),
            Answer::Status(503),
            Answer::Status(429),
            Answer::Closed,
            Answer::Cut,
            Answer::Silent,
            Answer::Stuck,
            Answer::Flipped,
            Answer::Short,
            Answer::Elsewhere,
            Answer::Lying,
            Answer::Late(Duration::from_millis(300)),
        ] {
            place.forget();
            place.server.answers(move |request| {
                let bad = request.method == "GET" && request.name.ends_with("/0.zr") && request.before < 2;
                if bad { answer } else { Answer::Right }
            });
            let store = place.open().unwrap();
            let begin = Instant::now();
            assert_eq!(gathered(&store, &indices).unwrap(), records[..40], "{answer:?}");
            assert!(begin.elapsed() < Duration::from_secs(30), "{answer:?}");
            let renewed = store.remote_stats().unwrap().renewed;
            assert_eq!(renewed > 0, matches!(answer, Answer::Flipped | Answer::Lying), "{answer:?} {renewed}");
            // What was wrong was not kept.
            drop(store);
            assert_eq!(gathered(&place.open().unwrap(), &indices).unwrap(), records[..40], "{answer:?}");
        }
        fs::remove_dir_all(place.path()).unwrap();
    }
}

#[test]
fn what_a_server_does_wrong_for_ever_is_an_error_that_says_which_bytes_of_which_object() {
    let place = Place::new();
    let records = make(&place.path(), Codec::Raw, 60);
    let indices: Vec<u64> = (0..40).collect();
    for (answer, says) in [
        (Answer::Status(500), "(500 Odd)"),
        (Answer::Status(503), "(503 Odd)"),
        (Answer::Status(403), "(403 Odd)"),
        (Answer::Status(404), "no such object"),
        (Answer::Status(416), "(416 Odd)"),
        (Answer::Closed, ""),
        (Answer::Cut, ""),
        (Answer::Silent, ""),
        (Answer::Stuck, ""),
        (Answer::Short, ""),
        (Answer::Elsewhere, ""),
        (Answer::Whole, "range"),
        (Answer::Retagged, "replaced"),
    ] {
        place.forget();
        place.server.answers(move |request| {
            if request.method == "GET" && request.name.ends_with("/0.zr") { answer } else { Answer::Right }
        });
        let store = place.open_with(place.options().timeout(Duration::from_secs(1))).unwrap();
        place.server.seen();
        let begin = Instant::now();
        let error = gathered(&store, &indices).unwrap_err();
        let text = error.to_string();
        assert!(begin.elapsed() < Duration::from_secs(15), "{answer:?} took {:?}", begin.elapsed());
        assert!(text.contains("/store/0.zr: bytes 0..") && text.contains(says), "{answer:?}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(matches!(error, Error::Io { .. }), "{text}");
        let asked = place.server.seen_chunks().len();
        if matches!(answer, Answer::Status(403 | 404 | 416) | Answer::Retagged) {
            assert!(asked <= 1, "{answer:?} was asked for {asked} times");
        }
        // The next gather asks anew.
        place.server.answers(|_| Answer::Right);
        assert_eq!(gathered(&store, &indices).unwrap(), records[..40], "{answer:?}");
    }
}

#[test]
fn bytes_that_are_always_wrong_are_named_record_by_record_and_the_others_are_right() {
    for codec in [Codec::Raw, Codec::Zstd] {
        let place = Place::new();
        let records = make(&place.path(), codec, 60);
        place.server.answers(|request| {
            let bad = request.method == "GET" && request.name.ends_with("/0.zr");
            if bad { Answer::Flipped } else { Answer::Right }
        });
        let store = place.open().unwrap();
        let mut bad = 0;
        for (i, record) in records.iter().enumerate() {
            match store.get(i as u64) {
                Ok(found) => assert_eq!(found, *record),
                Err(Error::Corrupt(corruption)) => {
                    assert_eq!(corruption.record, Some(i as u64));
                    bad += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!((1..30).contains(&bad), "{bad}");
    }
}

#[test]
fn a_store_that_is_replaced_meanwhile_is_an_error_and_never_a_mixture() {
    let place = Place::new();
    let records = make(&place.path(), Codec::Raw, 200);
    let store = place.open_with(place.options().capacity(4 * BLOCK)).unwrap();
    assert_eq!(store.get(3).unwrap(), records[3]);
    fs::remove_dir_all(place.path()).unwrap();
    make(&place.path(), Codec::Zstd, 300);
    let mut refused = 0;
    for (i, record) in records.iter().enumerate() {
        match store.get(i as u64) {
            Ok(found) => assert_eq!(found, *record),
            Err(error) => {
                assert!(error.to_string().contains("replaced"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
    assert_eq!(place.open().unwrap().len(), 300);
}

#[test]
fn a_store_that_is_replaced_while_it_is_opened_is_seen_whole() {
    let place = Place::new();
    make(&place.path(), Codec::Raw, 200);
    let path = place.path();
    let replaced = std::sync::Once::new();
    // When the chunk is asked for, the table was read already.
    place.server.answers(move |request| {
        if request.name.ends_with("/0.zr") {
            replaced.call_once(|| {
                fs::remove_dir_all(&path).unwrap();
                make(&path, Codec::Raw, 90);
            });
        }
        Answer::Right
    });
    let store = place.open().unwrap();
    assert_eq!(store.len(), 90);
    assert!(store.verify(|_| ()).unwrap().bad.is_empty());
}

#[test]
fn damaged_and_half_written_files_of_the_cache_are_fetched_again() {
    let place = Place::new();
    let records = make(&place.path(), Codec::Raw, 200);
    let indices: Vec<u64> = (0..200).collect();
    let read = || assert_eq!(gathered(&place.open().unwrap(), &indices).unwrap(), records);
    read();
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("a bit", |path| {
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle] ^= 4;
            fs::write(path, bytes).unwrap();
        }),
        ("cut off", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("longer", |path| fs::write(path, [fs::read(path).unwrap(), vec![0; 9]].concat()).unwrap()),
        ("empty", |path| fs::write(path, []).unwrap()),
        ("zeros", |path| {
            let len = fs::metadata(path).unwrap().len();
            fs::write(path, vec![0; len as usize]).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let kept = place.kept();
        assert!(kept.len() > 10, "{what}");
        // What a killed process has left.
        fs::write(kept[0].with_extension("part"), b"half").unwrap();
        kept.iter().for_each(|path| damage(path));
        place.server.seen();
        read();
        assert!(!place.server.seen_chunks().is_empty(), "{what}");
        read();
        assert_eq!(place.server.seen_chunks(), [], "{what}");
    }
}

#[test]
fn the_cache_stays_within_its_capacity_and_gathers_larger_than_it_are_right() {
    let place = Place::new();
    let records = make(&place.path(), Codec::Raw, 600);
    let capacity = 8 * BLOCK;
    let store = place.open_with(place.options().capacity(capacity)).unwrap();
    for seed in 0..6 {
        let indices = shuffled(600, seed);
        for indices in indices.chunks(150) {
            let wanted: Vec<_> = indices.iter().map(|&i| records[i as usize].clone()).collect();
            assert_eq!(gathered(&store, indices).unwrap(), wanted);
            let held: u64 = place.kept().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
            assert!(held <= capacity, "{held}");
        }
    }
    let stats = store.remote_stats().unwrap();
    assert!(stats.hits < stats.needed && stats.bytes > 3 * capacity, "{stats:?}");
}

#[test]
fn two_handles_share_a_cache_and_fetch_each_block_once() {
    let place = Place::new();
    let records = make(&place.path(), Codec::Zstd, 300);
    let wanted = |indices: &[u64]| indices.iter().map(|&i| records[i as usize].clone()).collect::<Vec<_>>();
    let stores: Vec<Store> = (0..3).map(|_| place.open().unwrap()).collect();
    std::thread::scope(|scope| {
        for (seed, store) in stores.iter().enumerate() {
            let wanted = &wanted;
            scope.spawn(move || {
                for indices in shuffled(300, seed as u64).chunks(30) {
                    assert_eq!(gathered(store, indices).unwrap(), wanted(indices));
                }
            });
        }
    });
    let bytes: u64 = stores.iter().map(|store| store.remote_stats().unwrap().bytes).sum();
    let size = fs::metadata(place.path().join("0.zr")).unwrap().len();
    assert!(bytes <= size, "{bytes} bytes were fetched of {size}");
}

#[test]
fn the_loader_fetches_ahead_and_an_error_comes_at_its_step() {
    let place = Place::new();
    let path = place.folder.path().join("dense");
    let values: Vec<u32> = (0..20_000 * 64).collect();
    let dense = DenseDataset::<u32, [usize; 1]>::options().codec(Codec::Raw).create(&path, [64]).unwrap();
    dense.append(&values).unwrap();
    dense.close().unwrap();
    let open = || DenseDataset::<u32, [usize; 1]>::options().remote(place.options()).open(place.server.url("dense"));
    let dense = Arc::new(open().unwrap());
    // Block 11 is not to be had. It is none of those that the fingerprint reads. A batch of 64 records is a quarter of one.
    place.server.answers(|request| {
        let bad = request.range.as_ref().is_some_and(|range| range.start <= 11 * BLOCK && range.end > 11 * BLOCK);
        if bad && request.name.ends_with("/0.zr") { Answer::Status(403) } else { Answer::Right }
    });
    let build = || DataLoader::builder(dense.clone()).mode(Mode::Sequential).batch_size(64).workers(2);
    let mut loader = build().build().unwrap();
    for step in 0..44 {
        assert_eq!(loader.next().unwrap().unwrap().values()[0], step * 64 * 64, "{step}");
    }
    for _ in 0..2 {
        let error = loader.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Step { step: 44, .. }), "{error}");
        assert!(error.to_string().contains("(403 Odd)"), "{error}");
    }
    loader.seek(48);
    assert_eq!(loader.next().unwrap().unwrap().values()[0], 48 * 64 * 64);
    drop(loader);

    place.forget();
    place.server.answers(|_| Answer::Right);
    let dense = Arc::new(open().unwrap());
    let mut loader =
        DataLoader::builder(dense.clone()).mode(Mode::Sequential).batch_size(64).workers(2).build().unwrap();
    loader.next().unwrap().unwrap();
    // One batch needs one block, and the others are fetched by themselves.
    let begin = Instant::now();
    while dense.remote_stats().unwrap().bytes < 60 * BLOCK {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", dense.remote_stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = dense.remote_stats().unwrap();
    (0..200).for_each(|_| _ = loader.next().unwrap().unwrap());
    let after = dense.remote_stats().unwrap();
    assert_eq!(after.needed - before.needed, after.hits - before.hits, "{before:?} {after:?}");
}

#[test]
fn what_is_no_store_or_no_url_is_refused_with_a_reason_and_without_secrets() {
    let place = Place::new();
    make(&place.path(), Codec::Raw, 5);
    let open = |url: &str| StoreOptions::new().remote(place.options()).open(url).unwrap_err();
    for (url, says) in [
        (place.server.url("nothing"), "is not a record store"),
        (place.server.url("store") + "?sig=hunter2", "credentials come from the environment"),
        (place.server.url("store").replace("http://", "http://me:hunter2@"), "credentials come from the environment"),
        ("ftp://host/store".into(), "ftp:// is not known"),
        ("s3://".into(), ""),
        ("http://".into(), ""),
    ] {
        let error = open(&url).to_string();
        assert!(error.contains(says) && !error.contains("hunter2"), "{url}: {error}");
    }
    fs::write(place.folder.path().join("store/meta.zr"), b"ZREC").unwrap();
    assert!(matches!(open(&place.server.url("store")), Error::NotAStore { .. }));
    fs::write(place.folder.path().join("store/meta.zr"), b"not a store at all").unwrap();
    assert!(matches!(open(&place.server.url("store")), Error::NotAStore { .. }));
    let write = |url: &str| StoreOptions::new().open_writable(url).unwrap_err();
    assert!(matches!(write(&place.server.url("store")), Error::Unsupported { .. }));
    assert!(matches!(Store::create("s3://bucket/new", Codec::Raw).unwrap_err(), Error::Unsupported { .. }));
    let options = place.options().block_bytes(1000);
    assert!(matches!(place.open_with(options).unwrap_err(), Error::Invalid { .. }));
    // Nobody listens there.
    let begin = Instant::now();
    let options = place.options().timeout(Duration::from_secs(2));
    let error = StoreOptions::new().remote(options).open("http://127.0.0.1:9/store").unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && begin.elapsed() < Duration::from_secs(15), "{error}");
}

#[test]
fn a_plan_says_what_is_then_asked_for() {
    let place = Place::new();
    make(&place.path(), Codec::Raw, 2000);
    let table = loaderx::AnyDataset::open(place.path()).unwrap();
    let whole = table.stats().unwrap().live_bytes;
    for (order, sampler) in [
        ("cyclic", loaderx::Sampler::new(Mode::Cyclic, 2000, 20, 5).unwrap()),
        ("blocks", loaderx::Sampler::block_shuffle(2000, 50, 4, 20, 5).unwrap()),
    ] {
        for (share, exact) in [(2 * whole, true), (whole / 4, false)] {
            place.forget();
            // What the cache holds beside blocks: the table and the sums.
            let beside = 2000 * 32 + 200_000;
            let store = place.open_with(place.options().capacity(share + beside)).unwrap();
            for step in 0..100 {
                store.gather(&sampler.batch(step)).unwrap();
            }
            let found = store.remote_stats().unwrap();
            let plan = loaderx::AccessPlan::new(sampler.clone()).block_bytes(BLOCK).cache_bytes(share).steps(100);
            let planned = plan.count(&table).unwrap().total();
            // A checksum that reaches over the edge of a block brings the neighbour early.
            let within = if exact { 0.97..1.03 } else { 0.8..1.25 };
            let pairs = [(found.hits, planned.found), (found.requests, planned.requests), (found.bytes, planned.bytes)];
            for (found, planned) in pairs {
                let ratio = found as f64 / planned as f64;
                assert!(within.contains(&ratio), "{order}: {found} of {planned}");
            }
        }
    }
}
