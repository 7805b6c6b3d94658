//! Every operation, crashed at every point, then opened again and compared with the model.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::super::format::META;
use super::super::io::{Access, Disk};
use super::super::sim::{Fault, SimDisk};
use super::super::{Codec, DictSize, ReadMode, Store, StoreOptions};
use crate::error::{Error, Result};

const STORE: &str = "/data/store";

type Records = Vec<Vec<u8>>;

#[derive(Debug, Clone)]
enum Op {
    Append(Records),
    Sync,
    TrainDict,
    Delete(Vec<u64>),
    Compact,
    /// Close and open again.
    Reopen,
    /// Moves the header's tail to just below 4 GiB, as a large store's would be.
    NearChunkEnd,
}

/// What must be there: records whose append returned, how many of them were synced, and the batch that was under way.
#[derive(Debug, Default, Clone)]
struct Model {
    created: bool,
    records: Records,
    synced: usize,
    under_way: Records,
    /// The records before and after a deletion that is under way.
    deleting: Option<(Records, Records)>,
}

fn options(disk: &SimDisk, codec: Codec) -> StoreOptions {
    StoreOptions::new().codec(codec).disk(Arc::new(disk.clone()))
}

fn pack(records: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
    let mut offsets = vec![0];
    records.iter().for_each(|record| offsets.push(offsets.last().unwrap() + record.len() as u64));
    (records.concat(), offsets)
}

fn samples() -> (Vec<u8>, Vec<u64>) {
    let records: Vec<Vec<u8>> =
        (0..200u32).map(|i| format!("sample {} of a series, number {i}: {}", i % 7, i * i).into_bytes()).collect();
    pack(&records)
}

fn run(disk: &SimDisk, codec: Codec, ops: &[Op], model: &mut Model) -> Result<()> {
    let mut store = options(disk, codec).create(STORE)?;
    model.created = true;
    for op in ops {
        match op {
            Op::Append(records) => {
                model.under_way.clone_from(records);
                let (bytes, offsets) = pack(records);
                let first = store.append(&bytes, &offsets)?;
                assert_eq!(first, model.records.len() as u64);
                model.records.append(&mut model.under_way);
            }
            Op::Sync => {
                store.sync()?;
                model.synced = model.records.len();
            }
            Op::TrainDict => {
                let (bytes, offsets) = samples();
                store.train_dict(&bytes, &offsets, DictSize::Bytes(1024))?;
                model.synced = model.records.len();
            }
            Op::Delete(indices) => {
                let mut left = model.records.clone();
                let mut holes = indices.clone();
                holes.sort_unstable();
                holes.dedup();
                holes.iter().rev().for_each(|&hole| drop(left.swap_remove(hole as usize)));
                model.deleting = Some((model.records.clone(), left.clone()));
                store.delete(indices)?;
                model.records = left;
                model.synced = model.records.len();
                model.deleting = None;
            }
            Op::Compact => {
                store.compact()?;
                model.synced = model.records.len();
                let stats = store.stats()?;
                assert_eq!(stats.live_bytes, stats.chunk_bytes);
            }
            Op::Reopen => {
                store.close()?;
                model.synced = model.records.len();
                store = options(disk, codec).open_writable(STORE)?;
            }
            Op::NearChunkEnd => {
                assert!(model.records.is_empty());
                store.close()?;
                disk.overwrite(&Path::new(STORE).join(META), 8, &(u32::MAX - 2000).to_le_bytes());
                store = options(disk, codec).open_writable(STORE)?;
            }
        }
    }
    store.close()?;
    model.synced = model.records.len();
    Ok(())
}

/// The store's records are the model's, less a suffix of what was not promised.
fn check(store: &Store, model: &Model, promised: usize, what: &str) -> usize {
    let len = store.len() as usize;
    if let Some((before, after)) = &model.deleting {
        // A deletion begins with a sync; until that has moved the header, a suffix may be lost.
        let found: Vec<Vec<u8>> =
            (0..len as u64).map(|i| store.get(i).unwrap_or_else(|e| panic!("{what}: {e}"))).collect();
        let cut = len >= promised && before.starts_with(&found);
        assert!(cut || found == *after, "{what}: {len} records are neither those before the deletion nor those after");
        return len;
    }
    let possible = model.records.len() + model.under_way.len();
    assert!(len >= promised, "{what}: {len} records, {promised} were promised");
    assert!(len <= possible, "{what}: {len} records, {possible} were appended");
    assert!(
        len <= model.records.len() || len == possible,
        "{what}: {len} records hold a part of a batch that was under way"
    );
    for (i, wanted) in model.records.iter().chain(&model.under_way).take(len).enumerate() {
        let found = store.get(i as u64).unwrap_or_else(|e| panic!("{what}: record {i}: {e}"));
        assert_eq!(found, *wanted, "{what}: record {i}");
    }
    len
}

/// Opens what a crash left, to read and to write, and goes on with it.
fn survive(disk: &SimDisk, codec: Codec, model: &Model, promised: usize, what: &str) {
    let reader = match options(disk, codec).open(STORE) {
        Err(Error::NotAStore { .. }) if !model.created => {
            // What an interrupted creation left is no obstacle to another one.
            let store = options(disk, codec).create(STORE).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(store.len(), 0, "{what}");
            return;
        }
        opened => opened.unwrap_or_else(|e| panic!("{what}: {e}")),
    };
    let seen = check(&reader, model, promised, what);
    drop(reader);
    let store = options(disk, codec).open_writable(STORE).unwrap_or_else(|e| panic!("{what}: {e}"));
    let len = check(&store, model, promised, what);
    assert_eq!(seen, len, "{what}: a reader and a writer see different stores");
    if codec == Codec::ZstdDict && !store.has_dict() {
        assert_eq!(len, 0, "{what}: records without their dictionary");
        let (bytes, offsets) = samples();
        store.train_dict(&bytes, &offsets, DictSize::Bytes(1024)).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let more = b"after the crash".to_vec();
    store.append(&more, &[0, more.len() as u64]).unwrap_or_else(|e| panic!("{what}: {e}"));
    store.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    let store = options(disk, codec).open(STORE).unwrap();
    assert_eq!(store.len() as usize, len + 1, "{what}");
    assert_eq!(store.get(len as u64).unwrap(), more, "{what}");
    if len > 0 && model.deleting.is_none() {
        let wanted = model.records.iter().chain(&model.under_way).nth(len - 1).unwrap();
        assert_eq!(store.get(len as u64 - 1).unwrap(), *wanted, "{what}");
    }
}

fn crash_everywhere(codec: Codec, ops: &[Op]) {
    let disk = SimDisk::new();
    run(&disk, codec, ops, &mut Model::default()).unwrap();
    let changes = disk.changes();
    assert!(changes > 20, "the operations change the disk only {changes} times");
    for at in 0..changes {
        for seed in 0..3 {
            let disk = SimDisk::new();
            disk.set_fault(Some(Fault::Crash { at, seed }));
            let mut model = Model::default();
            run(&disk, codec, ops, &mut model).expect_err("the crash was not noticed");
            assert!(disk.crashed());
            survive(&disk.after_kill(), codec, &model, model.records.len(), &format!("killed at {at}, seed {seed}"));
            for power in 0..4 {
                let what = format!("power failed at {at}, seeds {seed} and {power}");
                survive(&disk.after_power_failure(power), codec, &model, model.synced, &what);
            }
        }
    }
}

fn records(of: std::ops::Range<u32>, scale: usize) -> Vec<Vec<u8>> {
    of.map(|i| format!("record {i} ").into_bytes().repeat(i as usize % 5 * scale)).collect()
}

#[test]
fn create_append_and_sync_crashed_everywhere() {
    let ops = [
        Op::Append(records(0..9, 3)),
        Op::Append(records(9..10, 90)),
        Op::Sync,
        Op::Append(records(10..40, 2)),
        Op::Append(records(40..43, 200)),
        Op::Reopen,
        Op::Append(records(43..45, 1)),
        Op::Sync,
        Op::Sync,
    ];
    crash_everywhere(Codec::Raw, &ops);
    crash_everywhere(Codec::Zstd, &ops);
}

#[test]
fn training_a_dictionary_crashed_everywhere() {
    let ops = [Op::TrainDict, Op::Append(records(0..20, 5)), Op::Sync, Op::Append(records(20..24, 9))];
    crash_everywhere(Codec::ZstdDict, &ops);
}

#[test]
fn appending_over_a_chunk_edge_crashed_everywhere() {
    let ops = [Op::NearChunkEnd, Op::Append(records(0..30, 20)), Op::Append(records(30..40, 9)), Op::Sync];
    crash_everywhere(Codec::Raw, &ops);
}

#[test]
fn deleting_and_compacting_crashed_everywhere() {
    let ops = [
        Op::Append(records(0..20, 9)),
        Op::Delete(vec![3, 19, 3, 0, 18]),
        Op::Append(records(20..24, 3)),
        Op::Compact,
        Op::Append(records(24..30, 5)),
        Op::Delete(vec![1]),
        Op::Compact,
        Op::Delete((0..20).collect()),
        Op::Append(records(30..33, 5)),
    ];
    crash_everywhere(Codec::Zstd, &ops);
}

#[test]
fn a_failed_change_leaves_the_records_and_the_next_append_works() {
    let ops = [
        Op::Append(records(0..9, 9)),
        Op::Append(records(9..30, 9)),
        Op::Sync,
        Op::Delete(vec![2, 7]),
        Op::Compact,
        Op::Append(records(30..31, 2)),
    ];
    let disk = SimDisk::new();
    run(&disk, Codec::Zstd, &ops, &mut Model::default()).unwrap();
    for at in 0..disk.changes() {
        let disk = SimDisk::new();
        disk.set_fault(Some(Fault::Fail { at, kind: ErrorKind::StorageFull }));
        let mut model = Model::default();
        if let Err(error) = run(&disk, Codec::Zstd, &ops, &mut model) {
            assert!(matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull), "{error}");
        }
        survive(&disk.after_kill(), Codec::Zstd, &model, model.records.len(), &format!("failed at {at}"));
        for power in 0..4 {
            let what = format!("failed at {at}, power failed, seed {power}");
            survive(&disk.after_power_failure(power), Codec::Zstd, &model, model.synced, &what);
        }
    }
}

#[test]
fn a_full_disk_refuses_an_append_and_takes_it_when_there_is_room() {
    let disk = SimDisk::new();
    let store = options(&disk, Codec::Raw).create(STORE).unwrap();
    let record = vec![7; 4000];
    let (mut appended, full) = (0, 40_000);
    disk.set_fault(Some(Fault::Full { bytes: full }));
    let error = loop {
        match store.append(&record, &[0, 4000]) {
            Ok(index) => assert_eq!(index, appended),
            Err(error) => break error,
        }
        appended += 1;
    };
    assert!(matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::StorageFull), "{error}");
    assert!(appended > 3);
    assert_eq!(store.len(), appended);
    disk.set_fault(None);
    assert_eq!(store.append(&record, &[0, 4000]).unwrap(), appended);
    store.close().unwrap();
    let store = options(&disk, Codec::Raw).open(STORE).unwrap();
    assert_eq!(store.len(), appended + 1);
    (0..=appended).for_each(|i| assert_eq!(store.get(i).unwrap(), record));
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let disk = SimDisk::new();
    let store = options(&disk, Codec::Raw).create(STORE).unwrap();
    store.append(b"abc", &[0, 3]).unwrap();
    disk.set_fault(Some(Fault::Fail { at: disk.changes(), kind: ErrorKind::Other }));
    assert!(matches!(store.sync(), Err(Error::Io { action: "sync", .. })));
    assert!(matches!(store.sync(), Err(Error::Poisoned { .. })));
    assert!(matches!(store.append(b"abc", &[0, 3]), Err(Error::Poisoned { .. })));
    assert_eq!(store.get(0).unwrap(), b"abc");
}

#[test]
fn what_another_program_wrote_voids_the_slots() {
    let disk = SimDisk::new();
    let store = options(&disk, Codec::Raw).create(STORE).unwrap();
    store.append(b"abcd", &[0, 4]).unwrap();
    store.sync().unwrap();
    store.append(b"efgh", &[0, 4]).unwrap();
    // Killed before a sync; then Python, which sees one record, deletes it.
    let disk = disk.after_kill();
    let meta = Path::new(STORE).join(META);
    disk.overwrite(&meta, 12, &0u32.to_le_bytes());
    assert_eq!(options(&disk, Codec::Raw).open(STORE).unwrap().len(), 0);
    // Even where it brings the header back to what it was before the first append.
    disk.overwrite(&meta, 8, &0u32.to_le_bytes());
    assert_eq!(options(&disk, Codec::Raw).open(STORE).unwrap().len(), 0);
}

#[test]
fn what_another_program_appended_meanwhile_is_not_overwritten() {
    let disk = SimDisk::new();
    let mut store = options(&disk, Codec::Raw).create(STORE).unwrap();
    store.append(b"abcd", &[0, 4]).unwrap();
    let meta = Path::new(STORE).join(META);
    disk.overwrite(&meta, 8, &[9, 0, 0, 0, 1, 0, 0, 0]);
    assert!(matches!(store.sync(), Err(Error::Locked { .. })));
    assert!(matches!(store.append(b"efgh", &[0, 4]), Err(Error::Poisoned { .. })));
    assert!(matches!(store.delete(&[0]), Err(Error::Poisoned { .. })));
    drop(store);
    let mut header = [0; 16];
    let file = Disk::open(&disk, &meta, Access::Read).unwrap();
    file.read_at(&mut header, 0).unwrap();
    assert_eq!(header[8..], [9, 0, 0, 0, 1, 0, 0, 0]);
    let store = options(&disk, Codec::Raw).open_writable(STORE).unwrap();
    disk.overwrite(&meta, 12, &[0]);
    assert!(matches!(store.append(b"efgh", &[0, 4]), Err(Error::Locked { .. })));
}

#[test]
fn a_deletion_that_fails_near_its_end_is_not_taken_for_undone() {
    let fill = |disk: &SimDisk| {
        let store = options(disk, Codec::Raw).create(STORE).unwrap();
        let (bytes, offsets) = pack(&records(0..9, 9));
        store.append(&bytes, &offsets).unwrap();
        store
    };
    let disk = SimDisk::new();
    let mut store = fill(&disk);
    let first = disk.changes();
    store.delete(&[2, 7]).unwrap();
    for at in first..disk.changes() {
        let disk = SimDisk::new();
        let mut store = fill(&disk);
        disk.set_fault(Some(Fault::Fail { at, kind: ErrorKind::Other }));
        store.delete(&[2, 7]).unwrap_err();
        // Nothing is deleted, or nothing can be read.
        assert!(store.len() == 9 || store.is_empty(), "failed at {at}: {} records", store.len());
        for (index, record) in (0..store.len()).zip(records(0..9, 9)) {
            assert_eq!(store.get(index).unwrap(), record, "failed at {at}");
        }
    }
}

#[test]
fn an_append_whose_own_sync_fails_has_appended() {
    let record = vec![7; 1 << 20];
    let disk = SimDisk::new();
    let store = options(&disk, Codec::Raw).create(STORE).unwrap();
    let first = disk.changes();
    store.append(&record, &[0, 1 << 20]).unwrap();
    let mut poisoned = 0;
    for at in first..disk.changes() {
        let disk = SimDisk::new();
        let store = options(&disk, Codec::Raw).create(STORE).unwrap();
        disk.set_fault(Some(Fault::Fail { at, kind: ErrorKind::Other }));
        let done = store.append(&record, &[0, 1 << 20]);
        assert_eq!(store.len(), u64::from(done.is_ok()), "failed at {at}");
        let again = store.append(&record, &[0, 1 << 20]);
        assert_eq!(again.is_ok(), done.is_err(), "failed at {at}");
        if let Err(error) = again {
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            poisoned += 1;
        }
    }
    assert!(poisoned > 3);
}

#[test]
fn a_header_whose_tail_lies_below_a_record_is_not_appended_to() {
    let disk = SimDisk::new();
    let store = options(&disk, Codec::Raw).create(STORE).unwrap();
    store.append(b"abcdefgh", &[0, 4, 8]).unwrap();
    store.close().unwrap();
    disk.overwrite(&Path::new(STORE).join(META), 8, &7u32.to_le_bytes());
    let error = options(&disk, Codec::Raw).open_writable(STORE).unwrap_err();
    assert!(error.to_string().contains("record 1, chunk 0, offset 4"), "{error}");
    assert_eq!(options(&disk, Codec::Raw).open(STORE).unwrap().get(1).unwrap(), b"efgh");
}

#[test]
fn sums_of_an_append_that_failed_do_not_accuse_the_next_one() {
    let disk = SimDisk::new();
    let store = options(&disk, Codec::Raw).create(STORE).unwrap();
    let first = disk.changes();
    let (many, one) = (vec![1; 600 * 10], vec![2; 600 * 10]);
    let append = |store: &Store| store.append(&many, &(0..=10).map(|i| i * 600).collect::<Vec<_>>());
    append(&store).unwrap();
    for at in first..disk.changes() {
        let disk = SimDisk::new();
        let store = options(&disk, Codec::Raw).create(STORE).unwrap();
        disk.set_fault(Some(Fault::Fail { at, kind: ErrorKind::StorageFull }));
        append(&store).unwrap_err();
        store.append(&one, &[0, 6000]).unwrap();
        store.append(&one, &[0, 6000]).unwrap();
        let found = store.verify(|_| {}).unwrap();
        assert_eq!((found.verified, found.bad), (2, vec![]), "failed at {at}");
    }
}

#[test]
fn creating_touches_nothing_foreign_and_no_store_that_lost_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("photos");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("a.jpg"), "mine").unwrap();
    assert!(matches!(Store::create(&path, Codec::Raw), Err(Error::Exists { .. })));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    let path = dir.path().join("store");
    let store = Store::create(&path, Codec::Raw).unwrap();
    store.append(b"abc", &[0, 3]).unwrap();
    store.close().unwrap();
    std::fs::remove_file(path.join(META)).unwrap();
    assert!(matches!(Store::create(&path, Codec::Raw), Err(Error::Exists { .. })));
    assert_eq!(std::fs::read(path.join("0.zr")).unwrap(), b"abc");
}

#[test]
fn an_empty_record_is_read_wherever_it_lies_and_whatever_was_read_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("store"), Codec::Raw).unwrap();
    store.append(b"abc", &[0, 0, 3]).unwrap();
    store.close().unwrap();
    let meta = std::fs::OpenOptions::new().write(true).open(dir.path().join("store").join(META)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&meta, &9000u32.to_le_bytes(), 16).unwrap();
    for mode in [ReadMode::Mapped, ReadMode::Positional] {
        let store = StoreOptions::new().read_mode(mode).open(dir.path().join("store")).unwrap();
        for index in [0, 1, 0] {
            assert_eq!(store.get(index).unwrap(), [&b""[..], b"abc"][index as usize]);
        }
    }
}
