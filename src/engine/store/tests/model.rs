//! Random operations on real files, mapped and positional, against a `Vec` of records.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Codec, DictSize, ReadMode, Records, Store, StoreOptions, unsplit};
use crate::error::Error;

#[derive(Debug, Clone)]
enum Op {
    Append(Vec<Vec<u8>>),
    Gather(Vec<prop::sample::Index>),
    Delete(Vec<prop::sample::Index>),
    Compact,
    Sync,
    Reopen,
}

fn record() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        (any::<u8>(), 0..20_000usize).prop_map(|(byte, len)| vec![byte; len]),
        vec(0..4u8, 0..3000),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => vec(record(), 0..12).prop_map(Op::Append),
        3 => vec(any::<prop::sample::Index>(), 0..40).prop_map(Op::Gather),
        1 => vec(any::<prop::sample::Index>(), 0..6).prop_map(Op::Delete),
        1 => Just(Op::Compact),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

pub(super) fn pack(records: &[Vec<u8>]) -> Records {
    let mut packed = Records { bytes: Vec::new(), offsets: vec![0] };
    for record in records {
        packed.bytes.extend_from_slice(record);
        packed.offsets.push(packed.bytes.len() as u64);
    }
    packed
}

fn check(store: &Store, model: &[Vec<u8>], indices: &[u64], reused: &mut Records) {
    let wanted: Vec<Vec<u8>> = indices.iter().map(|&i| model[i as usize].clone()).collect();
    let wanted = pack(&wanted);
    assert_eq!(store.gather(indices).unwrap(), wanted);
    store.gather_into(indices, reused).unwrap();
    assert_eq!(*reused, wanted);
    assert_eq!(unsplit(|| store.gather(indices)).unwrap(), wanted);
    let lengths: Vec<u64> = indices.iter().map(|&i| model[i as usize].len() as u64).collect();
    assert_eq!(store.lengths(indices).unwrap(), lengths);
}

fn against_model(options: StoreOptions, ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/store");
    let mut store = options.clone().create(&path).unwrap();
    if store.codec() == Codec::ZstdDict {
        assert!(matches!(store.append(b"abc", &[0, 3]), Err(Error::Dictionary { .. })));
        let samples: Vec<Vec<u8>> = (0..300u32).map(|i| format!("{i} sheep, {} wolves", i % 9).into_bytes()).collect();
        let samples = pack(&samples);
        store.train_dict(&samples.bytes, &samples.offsets, DictSize::Bytes(500)).unwrap();
    }
    let (mut model, mut reused): (Vec<Vec<u8>>, _) = (Vec::new(), Records::default());
    for op in ops {
        match op {
            Op::Append(records) => {
                let packed = pack(records);
                assert_eq!(store.append(&packed.bytes, &packed.offsets).unwrap(), model.len() as u64);
                model.extend_from_slice(records);
            }
            Op::Gather(indices) if !model.is_empty() => {
                let indices: Vec<u64> = indices.iter().map(|index| index.index(model.len()) as u64).collect();
                check(&store, &model, &indices, &mut reused);
            }
            Op::Gather(_) => check(&store, &model, &[], &mut reused),
            Op::Delete(indices) if !model.is_empty() => {
                let indices: Vec<u64> = indices.iter().map(|index| index.index(model.len()) as u64).collect();
                store.delete(&indices).unwrap();
                let holes: std::collections::BTreeSet<u64> = indices.into_iter().collect();
                holes.into_iter().rev().for_each(|hole| drop(model.swap_remove(hole as usize)));
            }
            Op::Delete(_) => store.delete(&[]).unwrap(),
            Op::Compact => {
                store.compact().unwrap();
                let stats = store.stats().unwrap();
                assert_eq!((stats.reclaimable, stats.live_bytes), (0, stats.chunk_bytes));
            }
            Op::Sync => store.sync().unwrap(),
            Op::Reopen => {
                // A reader that opens while the writer is open sees what was appended.
                let reader = options.clone().open(&path).unwrap();
                let all: Vec<u64> = (0..model.len() as u64).collect();
                check(&reader, &model, &all, &mut reused);
                store.close().unwrap();
                store = options.clone().open_writable(&path).unwrap();
            }
        }
        assert_eq!(store.len(), model.len() as u64);
        let error = store.get(store.len()).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { index, len } if index == len), "{error}");
    }
    let stats = store.stats().unwrap();
    assert_eq!((stats.records, stats.reclaimable), (model.len() as u64, stats.chunk_bytes - stats.live_bytes));
    let all: Vec<u64> = (0..model.len() as u64).collect();
    check(&store, &model, &all, &mut reused);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_holds_what_a_vec_holds(
        ops in vec(op(), 1..25),
        codec in prop_oneof![Just(Codec::Raw), Just(Codec::Zstd), Just(Codec::ZstdDict)],
        mode in prop_oneof![Just(ReadMode::Mapped), Just(ReadMode::Positional)],
    ) {
        against_model(StoreOptions::new().codec(codec).read_mode(mode), &ops);
    }
}

#[test]
fn a_gather_that_is_split_over_cores_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for codec in [Codec::Raw, Codec::Zstd] {
        let store = Store::create(dir.path().join(codec.name()), codec).unwrap();
        let records: Vec<Vec<u8>> = (0..64u32).map(|i| i.to_le_bytes().repeat(i as usize * i as usize * 20)).collect();
        let packed = pack(&records);
        store.append(&packed.bytes, &packed.offsets).unwrap();
        let indices: Vec<u64> = (0..500).map(|i| i * 7 % 64).collect();
        let whole = unsplit(|| store.gather(&indices)).unwrap();
        assert!(whole.bytes.len() > 8 << 20);
        assert!(store.gather(&indices).unwrap() == whole);
    }
}

#[test]
fn many_threads_append_and_gather_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::create(dir.path().join("store"), Codec::Zstd).unwrap());
    let record = |thread: u64, i: u64| format!("{thread}/{i} ").into_bytes().repeat(1 + (i as usize * 7) % 40);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                for i in 0..60 {
                    let batch = pack(&[record(thread, i), Vec::new(), record(thread, i)]);
                    let first = store.append(&batch.bytes, &batch.offsets).unwrap();
                    // The records of one call stay together, whatever others append meanwhile.
                    assert_eq!(store.gather(&[first, first + 1, first + 2]).unwrap(), batch);
                }
            });
        }
    });
    assert_eq!(store.len(), 4 * 60 * 3);
    let all = store.gather(&(0..store.len()).collect::<Vec<_>>()).unwrap();
    let mut found: Vec<&[u8]> = (0..store.len() as usize).filter_map(|i| all.get(i)).collect();
    let mut wanted: Vec<Vec<u8>> =
        (0..4).flat_map(|t| (0..60).flat_map(move |i| [record(t, i), Vec::new(), record(t, i)])).collect();
    found.sort();
    wanted.sort();
    assert!(found == wanted);
}

#[test]
fn a_second_writer_is_refused_by_the_name_of_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::create(&path, Codec::Raw).unwrap();
    let error = StoreOptions::new().open_writable(&path).unwrap_err();
    assert!(matches!(&error, Error::Locked { path, .. } if path.ends_with("write.lock")), "{error}");
    assert!(matches!(Store::open(&path).unwrap().append(b"", &[0]), Err(Error::ReadOnly { .. })));
    drop(store);
    StoreOptions::new().open_writable(&path).unwrap();
}

#[test]
fn what_is_no_store_is_not_opened_and_what_is_there_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    assert!(matches!(Store::open(&path), Err(Error::NotAStore { .. })));
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(Store::open(&path), Err(Error::NotAStore { .. })));
    std::fs::write(path.join("holiday.jpg"), b"keep me").unwrap();
    assert!(matches!(Store::create(&path, Codec::Raw), Err(Error::Exists { .. })));
    assert_eq!(std::fs::read(path.join("holiday.jpg")).unwrap(), b"keep me");
    std::fs::remove_file(path.join("holiday.jpg")).unwrap();
    Store::create(&path, Codec::Raw).unwrap().close().unwrap();
    assert!(matches!(Store::create(&path, Codec::Raw), Err(Error::Exists { .. })));
    StoreOptions::new().open_or_create(&path).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"abc").unwrap();
    assert!(matches!(Store::create(&file, Codec::Raw), Err(Error::Exists { .. })));
    assert!(matches!(Store::open(&file), Err(Error::NotAStore { .. })));
    std::fs::write(path.join("meta.zr"), b"ZREC").unwrap();
    assert!(matches!(Store::open(&path), Err(Error::NotAStore { .. })));
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreOptions::new().record_limit(10).create(dir.path().join("store")).unwrap();
    for offsets in [&[][..], &[0], &[0, 2], &[1, 3], &[0, 4, 2, 3], &[0, u64::MAX]] {
        assert!(matches!(store.append(b"abc", offsets), Err(Error::Invalid { .. })), "{offsets:?}");
    }
    assert!(matches!(store.append(&[0; 11], &[0, 11]), Err(Error::Invalid { what: "record", .. })));
    assert!(matches!(StoreOptions::new().level(23).open(store.path()), Err(Error::Invalid { what: "level", .. })));
    assert_eq!(store.len(), 0);
    assert_eq!(store.append(b"", &[0]).unwrap(), 0);
    assert_eq!(store.append(b"", &[0, 0, 0]).unwrap(), 0);
    assert_eq!(store.gather(&[1, 0]).unwrap(), Records { bytes: vec![], offsets: vec![0, 0, 0] });
}

#[test]
fn a_dictionary_is_trained_or_refused_clearly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::create(&path, Codec::ZstdDict).unwrap();
    let unfit: [Vec<Vec<u8>>; 4] = [vec![], vec![vec![]; 100], vec![b"alone".to_vec()], vec![b"same".to_vec(); 6]];
    for samples in &unfit {
        let packed = pack(samples);
        let error = store.train_dict(&packed.bytes, &packed.offsets, DictSize::default()).unwrap_err();
        assert!(matches!(error, Error::Dictionary { .. }), "{error}");
        assert!(!store.has_dict() && !path.join("dict.zr").exists());
    }
    for size in [0, (1 << 20) + 1] {
        let done = store.train_dict(b"abc", &[0, 3], DictSize::Bytes(size));
        assert!(matches!(done, Err(Error::Invalid { .. })), "{size}");
    }
    let samples: Vec<Vec<u8>> =
        (0..2000u32).map(|i| format!("key{}: value{} of a long common text", i % 97, i * i).into_bytes()).collect();
    let packed = pack(&samples);
    for size in [1, 7, 8, 255, 256, 1000] {
        store.train_dict(&packed.bytes, &packed.offsets, DictSize::Bytes(size)).unwrap();
        assert!(std::fs::metadata(path.join("dict.zr")).unwrap().len() <= u64::from(size));
    }
    store.append(&packed.bytes, &packed.offsets).unwrap();
    assert_eq!(store.gather(&(0..2000).collect::<Vec<_>>()).unwrap(), packed);
    let again = store.train_dict(&packed.bytes, &packed.offsets, DictSize::default());
    assert!(matches!(again, Err(Error::Dictionary { .. })));
    store.close().unwrap();
    assert_eq!(Store::open(&path).unwrap().gather(&[5]).unwrap().bytes, samples[5]);
    std::fs::remove_file(path.join("dict.zr")).unwrap();
    let error = Store::open(&path).unwrap().gather(&[5]).unwrap_err();
    assert!(error.to_string().contains("record 5"), "{error}");
}

#[test]
fn records_are_not_moved_below_another_handle() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path().join("store"), Codec::Raw).unwrap();
    store.append(b"abcdef", &[0, 2, 4, 6]).unwrap();
    let reader = Store::open(store.path()).unwrap();
    for refused in [store.delete(&[0]), store.compact()] {
        assert!(matches!(&refused, Err(Error::Locked { path, .. }) if path.ends_with("read.lock")), "{refused:?}");
    }
    assert_eq!(reader.gather(&[0, 1, 2]).unwrap().bytes, b"abcdef");
    drop(reader);
    store.delete(&[0]).unwrap();
    assert_eq!(store.gather(&[0, 1]).unwrap().bytes, b"efcd");
    assert!(matches!(store.delete(&[2]), Err(Error::OutOfRange { index: 2, len: 2 })));
    store.compact().unwrap();
    let mut reader = Store::open(store.path()).unwrap();
    assert_eq!(reader.gather(&[0, 1]).unwrap().bytes, b"efcd");
    assert!(matches!(reader.delete(&[0]), Err(Error::ReadOnly { .. })));
}

#[test]
fn deleting_and_appending_again_never_touches_the_bytes_of_a_live_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path().join("store"), Codec::Raw).unwrap();
    for round in 0..40u8 {
        let records: Vec<Vec<u8>> = (0..10).map(|i| vec![round * 6 + i; 300]).collect();
        let packed = pack(&records);
        store.append(&packed.bytes, &packed.offsets).unwrap();
        store.delete(&[store.len() - 1, store.len() / 2, 0]).unwrap();
        for i in 0..store.len() {
            let record = store.get(i).unwrap();
            assert!(record.len() == 300 && record.iter().all(|&byte| byte == record[0]), "round {round}, record {i}");
        }
    }
}

#[cfg(unix)]
#[test]
fn compacting_gives_the_blocks_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(dir.path().join("store"), Codec::Raw).unwrap();
    let record = vec![1; 1 << 20];
    for i in 0..16 {
        assert_eq!(store.append(&record, &[0, 1 << 20]).unwrap(), i);
    }
    let blocks = || -> u64 {
        std::fs::read_dir(dir.path().join("store"))
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().blocks())
            .sum()
    };
    store.delete(&(0..12).collect::<Vec<_>>()).unwrap();
    let before = blocks();
    store.compact().unwrap();
    assert!(blocks() * 3 < before, "{} blocks, {before} before", blocks());
    (0..4).for_each(|i| assert_eq!(store.get(i).unwrap(), record));
}
