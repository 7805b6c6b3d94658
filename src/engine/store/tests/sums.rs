//! Checksums: what is found, what is not, and that they follow the records.

use std::fs;
use std::path::Path;

use super::super::{Codec, ReadMode, Store, StoreOptions, Verification, Verify};
use super::model::pack;
use crate::error::Error;

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn records() -> Vec<Vec<u8>> {
    // Scalars, records under and over 512 bytes, and empty ones.
    (0..60u32)
        .map(|i| {
            i.wrapping_mul(0x9e37_79b9).to_le_bytes().repeat((i % 5 * (i % 4) * 40) as usize + (i % 3 % 2) as usize)
        })
        .collect()
}

fn fill(path: &Path, codec: Codec) -> Store {
    let store = Store::create(path, codec).unwrap();
    for some in records().chunks(17) {
        let packed = pack(some);
        store.append(&packed.bytes, &packed.offsets).unwrap();
    }
    store
}

fn verify(path: &Path) -> Verification {
    Store::open(path).unwrap().verify(|_| {}).unwrap()
}

#[test]
fn a_flipped_byte_of_a_raw_record_is_found_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    fill(&path, Codec::Raw).close().unwrap();
    let whole = verify(&path);
    assert_eq!((whole.records, whole.verified, whole.unverified, whole.bad.len()), (60, 60, 0, 0));
    let chunk = path.join("0.zr");
    let size = fs::metadata(&chunk).unwrap().len() as usize;
    for at in (0..size).step_by(37) {
        flip(&chunk, at);
        let found = verify(&path);
        assert!(!found.bad.is_empty(), "byte {at}");
        // A sum may cover the neighbours too; the records that do not share one with the byte are whole.
        assert!(found.bad.len() < 12 && found.verified + found.bad.len() as u64 == 60, "byte {at}: {found:?}");
        for mode in [ReadMode::Mapped, ReadMode::Positional] {
            let store = StoreOptions::new().verify(Verify::Always).read_mode(mode).open(&path).unwrap();
            for index in 0..60 {
                let bad = found.bad.iter().any(|bad| bad.record == Some(index));
                match store.get(index) {
                    Ok(record) => assert!(!bad && record == records()[index as usize], "byte {at}, record {index}"),
                    Err(Error::Corrupt(error)) => assert!(bad && error.record == Some(index), "{error}"),
                    Err(other) => panic!("{other}"),
                }
            }
        }
        flip(&chunk, at);
    }
}

#[test]
fn sums_follow_the_records_through_deletion_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = dir.path().join(codec.name());
        let mut store = fill(&path, codec);
        store.delete(&(0..60).step_by(3).collect::<Vec<_>>()).unwrap();
        assert_eq!(store.verify(|_| {}).unwrap().verified, 40);
        store.compact().unwrap();
        assert_eq!(store.verify(|_| {}).unwrap().verified, 40);
        let packed = pack(&records());
        store.append(&packed.bytes, &packed.offsets).unwrap();
        assert_eq!(store.verify(|_| {}).unwrap().verified, 100);
        store.close().unwrap();
        assert_eq!(verify(&path).verified, 100);
    }
}

#[test]
fn compaction_does_not_launder_a_damaged_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    fill(&path, Codec::Raw).close().unwrap();
    flip(&path.join("0.zr"), 1000);
    let mut store = StoreOptions::new().codec(Codec::Raw).open_writable(&path).unwrap();
    let error = store.compact().unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert_eq!(store.len(), 60);
    drop(store);
    assert!(!path.join("compact.zr").exists() && !path.join("1.zr").exists());
    assert!(!verify(&path).bad.is_empty());
}

#[test]
fn records_of_a_foreign_writer_are_unverified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    fill(&path, Codec::Raw).close().unwrap();
    // Another program deletes the last record, and so moves the header.
    let meta = path.join("meta.zr");
    let file = fs::OpenOptions::new().write(true).open(&meta).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &59u32.to_le_bytes(), 12).unwrap();
    let found = verify(&path);
    let empty = records()[..59].iter().filter(|record| record.is_empty()).count() as u64;
    assert_eq!((found.verified, found.unverified, found.bad.len()), (empty, 59 - empty, 0));
    // The next writer's own records are verified again.
    let store = StoreOptions::new().codec(Codec::Raw).open_writable(&path).unwrap();
    store.append(b"abc", &[0, 3]).unwrap();
    assert_eq!(store.verify(|_| {}).unwrap().verified, empty + 1);
    store.close().unwrap();
    assert_eq!(verify(&path).verified, empty + 1);
}

#[test]
fn records_that_share_bytes_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    fill(&path, Codec::Zstd).close().unwrap();
    // Entry 10 becomes a copy of entry 7.
    let meta = path.join("meta.zr");
    let file = fs::OpenOptions::new().read(true).write(true).open(&meta).unwrap();
    let mut entry = [0; 16];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut entry, 16 + 7 * 16).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &entry, 16 + 10 * 16).unwrap();
    let found = verify(&path);
    assert_eq!((found.bad.len() as u64, found.verified + found.unverified), (1, found.records - 1));
    assert_eq!(found.bad[0].record, Some(10));
    assert!(found.bad[0].to_string().contains("bytes of record 7, too"), "{}", found.bad[0]);
}

#[test]
fn a_sum_file_that_a_reader_may_have_mapped_is_never_shortened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    fill(&path, Codec::Raw).close().unwrap();
    // What a writer leaves that was killed: sums of records behind the tail.
    let (sums, tail) = (path.join("0.sum"), fs::metadata(path.join("0.zr")).unwrap().len() as u32);
    let mut bytes = fs::read(&sums).unwrap();
    for i in 0..600u32 {
        bytes.extend_from_slice(&(tail + i * 600).to_le_bytes());
        bytes.extend_from_slice(&600u32.to_le_bytes());
        bytes.extend_from_slice(&[7; 8]);
    }
    fs::write(&sums, &bytes).unwrap();
    let reader = StoreOptions::new().verify(Verify::Always).open(&path).unwrap();
    assert_eq!(reader.get(59).unwrap(), records()[59]);
    let store = StoreOptions::new().codec(Codec::Raw).open_writable(&path).unwrap();
    store.append(&[3; 4000], &[0, 1000, 4000]).unwrap();
    assert!(fs::metadata(&sums).unwrap().len() >= bytes.len() as u64);
    for index in 0..60 {
        assert_eq!(reader.get(index).unwrap(), records()[index as usize]);
    }
    let found = store.verify(|_| {}).unwrap();
    assert_eq!((found.verified, found.bad), (62, vec![]));
}
