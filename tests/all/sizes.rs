//! Large records, large gathers, and the ends of the format.

use std::path::Path;

use loaderx::{Codec, Error, ReadMode, Store, StoreOptions};

use crate::support::{Rng, append, header, scratch, set_header, thorough};

const MODES: [ReadMode; 2] = [ReadMode::Mapped, ReadMode::Positional];
const MIB: usize = 1 << 20;

/// The memory that is free, in GiB; 0 where the system does not say.
fn free_gib() -> u64 {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 20
}

fn large_records(mib: usize) {
    let dir = scratch();
    let mut rng = Rng::new(mib as u64);
    let mut noise = rng.bytes(MIB + 1);
    noise = noise.iter().cycle().take(mib * MIB).copied().collect();
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = dir.path().join(format!("{codec:?}"));
        let small = StoreOptions::new().codec(codec).create(&path).unwrap();
        let refused = append(&small, &[&noise]);
        assert!(
            matches!(&refused, Err(Error::Invalid { reason, .. }) if reason.contains("record_limit")),
            "{refused:?}"
        );
        append(&small, &[b"small"]).unwrap();
        small.close().unwrap();
        let options = StoreOptions::new().codec(codec).record_limit(u32::MAX);
        let store = options.open_writable(&path).unwrap();
        append(&store, &[&noise, &b"between"[..], &noise[1..]]).unwrap();
        store.close().unwrap();
        for mode in MODES {
            let mut store = StoreOptions::new().read_mode(mode).codec(codec).open_writable(&path).unwrap();
            assert!(store.get(1).unwrap() == noise && store.get(3).unwrap() == noise[1..], "{codec:?} {mode:?}");
            let all = store.gather(&[3, 0, 2]).unwrap();
            assert!(
                all.get(0).unwrap() == &noise[1..] && all.get(1) == Some(b"small") && all.get(2) == Some(b"between")
            );
            drop(all);
            store.compact().unwrap();
            assert!(store.get(1).unwrap() == noise, "{codec:?} {mode:?} after compact");
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn records_over_the_limit_of_1_mib_are_refused_or_whole() {
    large_records(5);
}

#[test]
fn records_of_300_mib_are_whole() {
    if !thorough() || free_gib() < 4 {
        println!("skipped: the long form, with 4 GiB of memory free");
        return;
    }
    large_records(300);
}

#[test]
fn a_gather_of_more_than_4_gib_is_not_cut() {
    if !thorough() || free_gib() < 8 {
        println!("skipped: the long form, with 8 GiB of memory free");
        return;
    }
    let dir = scratch();
    let path = dir.path().join("store");
    let store = Store::create(&path, Codec::Zstd).unwrap();
    let records: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; MIB - usize::from(i)]).collect();
    append(&store, &records).unwrap();
    let indices: Vec<u64> = (0..4200).map(|i| i % 5).collect();
    let gathered = store.gather(&indices).unwrap();
    assert!(gathered.bytes.len() as u64 > (1 << 32) + (50 << 20), "{}", gathered.bytes.len());
    for (i, &index) in indices.iter().enumerate() {
        assert!(gathered.get(i) == Some(&records[index as usize]), "record {i}");
    }
}

fn assert_unsupported<T: std::fmt::Debug>(done: loaderx::Result<T>, says: &str) {
    match done {
        Err(Error::Unsupported { what, reason, .. }) => {
            assert!(what.contains(says) && reason.contains("use several stores"), "{what}: {reason}");
        }
        other => panic!("{other:?}"),
    }
}

fn open(path: &Path, mode: ReadMode) -> Store {
    StoreOptions::new().codec(Codec::Raw).read_mode(mode).open_writable(path).unwrap()
}

#[test]
fn the_last_record_of_the_format_is_taken_and_the_next_one_refused() {
    let last = (1u64 << 24) - 1;
    for mode in MODES {
        let dir = scratch();
        let path = dir.path().join("store");
        Store::create(&path, Codec::Raw).unwrap().close().unwrap();
        // Two records short of the end, all of them empty, the table a hole.
        set_header(&path, 0, 0, last as u32 - 1);
        let mut store = open(&path, mode);
        assert_unsupported(append(&store, &[b"one", b"two", b"too"]), "a store of 16777217 records");
        assert_eq!(append(&store, &[b"last but one", b"the last one"]).unwrap(), last - 1);
        assert_unsupported(append(&store, &[b"one too many"]), "a store of 16777217 records");
        assert_unsupported(append(&store, &[b""]), "a store of 16777217 records");
        assert_eq!(append(&store, &[] as &[&[u8]]).unwrap(), last + 1, "nothing fits everywhere");
        assert_eq!(store.get(last).unwrap(), b"the last one");
        assert!(matches!(store.get(last + 1), Err(Error::OutOfRange { .. })));
        store.sync().unwrap();
        // Room again.
        store.delete(&[5]).unwrap();
        assert_eq!(store.get(5).unwrap(), b"the last one");
        assert_eq!(append(&store, &[b"again"]).unwrap(), last);
        store.close().unwrap();
        let store = StoreOptions::new().read_mode(mode).open(&path).unwrap();
        assert_eq!((store.len(), store.get(last).unwrap()), (last + 1, b"again".to_vec()));
        assert_eq!(store.gather(&[last - 1, 5, 6]).unwrap().bytes, b"last but onethe last one");
    }
}

#[test]
fn offsets_near_2_to_the_31_and_32_and_the_last_chunk_do_not_wrap() {
    let dir = scratch();
    for mode in MODES {
        let path = dir.path().join(format!("{mode:?}"));
        Store::create(&path, Codec::Raw).unwrap().close().unwrap();
        let mut wanted: Vec<Vec<u8>> = Vec::new();
        let mut rng = Rng::new(8);
        let mut add = |store: &Store, len: usize| {
            let record = rng.bytes(len);
            append(store, &[&record]).map(|_| wanted.push(record))
        };
        // Over 2^31 in the first chunk; over the edge of the second; into the last one, and to its end.
        for (chunk, offset, ends) in [(0, (1 << 31) - 50, (0, (1u64 << 31) + 50)), (1, u32::MAX - 50, (2, 100))] {
            set_header(&path, chunk, offset, header(&path).2);
            let store = open(&path, mode);
            add(&store, 100).unwrap();
            store.close().unwrap();
            assert_eq!((header(&path).0, u64::from(header(&path).1)), ends);
        }
        set_header(&path, 4094, u32::MAX - 50, header(&path).2);
        let store = open(&path, mode);
        add(&store, 100).unwrap();
        store.close().unwrap();
        assert_eq!((header(&path).0, header(&path).1), (4095, 100));
        set_header(&path, 4095, u32::MAX - 99, header(&path).2);
        let store = open(&path, mode);
        // A record ends below 2^32, so 100 bytes are one too many.
        assert_unsupported(add(&store, 100), "more than 4096 chunks");
        add(&store, 99).unwrap();
        assert_unsupported(add(&store, 1), "more than 4096 chunks");
        add(&store, 0).unwrap();
        assert_eq!(crate::support::contents(&store).unwrap(), wanted);
        store.close().unwrap();
        assert_eq!(header(&path), (4095, u32::MAX, wanted.len() as u32));
        let mut store = open(&path, mode);
        assert_eq!(crate::support::contents(&store).unwrap(), wanted);
        assert_eq!(store.stats().unwrap().records, wanted.len() as u64);
        // Chunk 0 is in use and no number is left behind the last one.
        let refused = store.compact();
        assert!(matches!(&refused, Err(Error::Unsupported { .. })), "{refused:?}");
        assert_eq!(crate::support::contents(&store).unwrap(), wanted);
    }
}
