//! Records that are found without reading the table, and when it is read after all.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::format::{ENTRY_SIZE, HEADER_SIZE, META, entry_offset};
use super::super::{Codec, ReadMode, Store, StoreOptions, Verify};
use super::model::pack;
use crate::error::Error;

/// What a table may be made of: equal records, some of another length, some compressed, some deleted.
#[derive(Debug, Clone)]
enum Part {
    Equal { length: usize, count: usize },
    Lengths(Vec<usize>),
    Packed { count: usize },
    Deleted(Vec<prop::sample::Index>),
}

fn part() -> impl Strategy<Value = Part> {
    let index = any::<prop::sample::Index>();
    prop_oneof![
        4 => (0..40usize, 1..900usize).prop_map(|(length, count)| Part::Equal { length, count }),
        1 => vec(0..60usize, 1..20).prop_map(Part::Lengths),
        1 => (1..300usize).prop_map(|count| Part::Packed { count }),
        1 => vec(index, 1..4).prop_map(Part::Deleted),
    ]
}

/// A store of these parts, closed, and its records.
fn build(path: &Path, parts: &[Part]) -> Vec<Vec<u8>> {
    let mut records: Vec<Vec<u8>> = Vec::new();
    Store::create(path, Codec::Raw).unwrap().close().unwrap();
    for (k, part) in parts.iter().enumerate() {
        // No two records are alike.
        let fill = |i: usize, length: usize| {
            (0..length).map(|at| ((k * 1000 + i) * 31 + at) as u64).map(|x| (x * x % 251) as u8).collect::<Vec<_>>()
        };
        let (codec, new) = match part {
            Part::Equal { length, count } => (Codec::Raw, (0..*count).map(|i| fill(i, *length)).collect()),
            Part::Lengths(lengths) => (Codec::Raw, lengths.iter().enumerate().map(|(i, &len)| fill(i, len)).collect()),
            Part::Packed { count } => (Codec::Zstd, (0..*count).map(|i| vec![i as u8; 500]).collect()),
            Part::Deleted(_) => (Codec::Raw, Vec::new()),
        };
        let mut store = StoreOptions::new().codec(codec).open_writable(path).unwrap();
        if let Part::Deleted(indices) = part
            && !records.is_empty()
        {
            let mut indices: Vec<u64> = indices.iter().map(|index| index.index(records.len()) as u64).collect();
            indices.sort_unstable();
            indices.dedup();
            store.delete(&indices).unwrap();
            records = store.gather(&(0..store.len()).collect::<Vec<_>>()).map(|all| unpack(&all)).unwrap();
        }
        let packed = pack(&new);
        store.append(&packed.bytes, &packed.offsets).unwrap();
        records.extend(new);
        store.close().unwrap();
    }
    records
}

fn unpack(records: &super::super::Records) -> Vec<Vec<u8>> {
    (0..records.offsets.len() - 1).map(|i| records.get(i).unwrap().to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_known_of_the_table_changes_no_record(
        parts in vec(part(), 1..8),
        indices in vec(any::<prop::sample::Index>(), 1..2000),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let records = build(&path, &parts);
        prop_assume!(!records.is_empty());
        let indices: Vec<u64> = indices.iter().map(|index| index.index(records.len()) as u64).collect();
        let wanted = pack(&indices.iter().map(|&i| records[i as usize].clone()).collect::<Vec<_>>());
        for verify in [Verify::Off, Verify::Always] {
            let store = StoreOptions::new().verify(verify).open(&path).unwrap();
            // Twice: what is learnt the first time is used the second.
            for _ in 0..2 {
                prop_assert_eq!(&store.gather(&indices).unwrap(), &wanted);
            }
            let past = store.gather(&[records.len() as u64]);
            prop_assert!(matches!(past, Err(Error::OutOfRange { .. })), "{:?}", past);
        }
    }
}

fn labels(path: &Path) -> Store {
    let store = Store::create(path, Codec::Raw).unwrap();
    store.append_fixed(&(0..1000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(), 4, 1000).unwrap();
    store.close().unwrap();
    Store::open(path).unwrap()
}

fn read(store: &Store, indices: &[u64]) -> Vec<u32> {
    let bytes = store.gather(indices).unwrap().bytes;
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_table_that_another_program_changes_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = labels(&path);
    assert_eq!(read(&store, &[5, 700, 5]), [5, 700, 5]);
    // A program that takes no locks deletes record 5: the last entry takes its place, and the header is one shorter.
    let meta = OpenOptions::new().read(true).write(true).open(path.join(META)).unwrap();
    let mut entry = [0; ENTRY_SIZE as usize];
    meta.read_exact_at(&mut entry, entry_offset(999)).unwrap();
    meta.write_all_at(&entry, entry_offset(5)).unwrap();
    let mut header = [0; HEADER_SIZE as usize];
    meta.read_exact_at(&mut header, 0).unwrap();
    let whole = header;
    header[12..16].copy_from_slice(&999u32.to_le_bytes());
    meta.write_all_at(&header, 0).unwrap();
    assert_eq!(read(&store, &[5, 700, 5]), [999, 700, 999]);
    // And nothing is believed again because the header looks as it did.
    meta.write_all_at(&whole, 0).unwrap();
    assert_eq!(read(&store, &[5, 700, 5]), [999, 700, 999]);
}

#[test]
fn a_damaged_entry_among_equal_ones_is_found_at_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    drop(labels(&path));
    let meta = OpenOptions::new().write(true).open(path.join(META)).unwrap();
    meta.write_all_at(&[0xff; 4], entry_offset(300) + 4).unwrap();
    for mode in [ReadMode::Mapped, ReadMode::Positional] {
        let store = StoreOptions::new().read_mode(mode).open(&path).unwrap();
        for index in (0..1000).filter(|&index| index != 300) {
            assert_eq!(read(&store, &[index]), [index as u32]);
        }
        assert!(matches!(store.gather(&[299, 300]), Err(Error::Corrupt(error)) if error.record == Some(300)));
    }
}
