//! Stores that loaderx 0.9.17 wrote hold what it said, read in both modes, as bytes and typed, or are refused by name.
//!
//! Some of them lie beside this file; all of them, and the script that wrote them, in the shared folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use half::{bf16, f16};
use loaderx::{
    AnyDataset, Codec, DenseDataset, Element, Error, RaggedDataset, ReadMode, Records, Result, Shape, Store,
    StoreOptions,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{shared, unpack};

/// What the reference implementation read from a store that it wrote.
#[derive(Deserialize)]
struct Held {
    kind: Option<String>,
    dtype: Option<String>,
    item_shape: Option<Vec<usize>>,
    codec: Option<String>,
    records: u64,
    bytes: Vec<u64>,
    #[serde(default)]
    sha256: Vec<String>,
    /// Of all records end to end.
    sha256_of_all: Option<String>,
}

/// A store's records as typed values, all of them, as the bytes that are stored.
type Typed = fn(&Path, ReadMode) -> Result<Vec<u8>>;

/// Each store, and how it is read as typed data; `None` where no type fits.
const STORES: [(&str, Option<Typed>); 21] = [
    ("bytes_only", None),
    ("dense_after_compact", Some(dense::<i32, [usize; 1]>)),
    ("dense_after_delete", Some(dense::<i32, [usize; 1]>)),
    ("dense_bfloat16_as_void", Some(dense::<bf16, [usize; 1]>)),
    ("dense_big_endian_f4", Some(big_endian)),
    ("dense_bool", Some(dense::<bool, [usize; 1]>)),
    ("dense_chunk_edge", Some(dense::<i32, [usize; 1]>)),
    ("dense_datetime", None),
    ("dense_dict", Some(dense::<u8, [usize; 2]>)),
    ("dense_empty", Some(dense::<f32, [usize; 1]>)),
    ("dense_f16", Some(dense::<f16, [usize; 1]>)),
    ("dense_f32_zstd", Some(dense::<f32, [usize; 2]>)),
    ("dense_one_mib_record", Some(dense::<u8, [usize; 1]>)),
    ("dense_scalar_i64", Some(dense::<i64, ()>)),
    ("dense_struct", None),
    ("dense_u8_compressible", Some(dense::<u8, Vec<usize>>)),
    ("dense_u8_raw", Some(dense::<u8, [usize; 3]>)),
    ("ragged_bytes", Some(ragged::<u8, ()>)),
    ("ragged_dict", Some(ragged::<i32, ()>)),
    ("ragged_f64_rows", Some(ragged::<f64, [usize; 1]>)),
    ("ragged_i32", Some(ragged::<i32, ()>)),
];

fn dense<T: Element, S: Shape>(path: &Path, mode: ReadMode) -> Result<Vec<u8>> {
    let batch = DenseDataset::<T, S>::options().read_mode(mode).open(path)?.read(..)?;
    Ok(bytemuck::cast_slice(batch.values()).to_vec())
}

fn ragged<T: Element, S: Shape>(path: &Path, mode: ReadMode) -> Result<Vec<u8>> {
    let batch = RaggedDataset::<T, S>::options().read_mode(mode).open(path)?.read(..)?;
    Ok(bytemuck::cast_slice(batch.values()).to_vec())
}

/// The values are swapped on the way in, so they are swapped back here.
fn big_endian(path: &Path, mode: ReadMode) -> Result<Vec<u8>> {
    let batch = DenseDataset::<f32, [usize; 1]>::options().read_mode(mode).open(path)?.read(..)?;
    assert_eq!(batch.values(), (0..60).map(|value| value as f32).collect::<Vec<_>>());
    Ok(batch.values().iter().flat_map(|value| value.to_be_bytes()).collect())
}

#[test]
fn stores_of_this_repository_hold_what_the_reference_wrote() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden");
    let held: BTreeMap<String, Held> = serde_json::from_slice(&fs::read(folder.join("held.json")).unwrap()).unwrap();
    assert_eq!(held.len(), 6);
    for (name, held) in held {
        check(&folder, &name, &held);
    }
}

#[test]
fn all_stores_hold_what_the_reference_wrote() {
    let Some(folder) = shared().map(|shared| shared.join("fixtures/stores")) else { return };
    let names: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".tar.gz").map(str::to_owned))
        .collect();
    assert!(names.iter().map(String::as_str).eq(STORES.iter().map(|(name, _)| *name)), "{names:?}");
    for name in names {
        let held = fs::read(folder.join(format!("{name}.json"))).unwrap();
        check(&folder, &name, &serde_json::from_slice(&held).unwrap());
    }
}

fn check(folder: &Path, name: &str, held: &Held) {
    let scratch = tempfile::tempdir().unwrap();
    let path = unpack(folder, name, scratch.path());
    let any = AnyDataset::open(&path).unwrap();
    assert_eq!(any.kind().map(|kind| kind.name()), held.kind.as_deref(), "{name}");
    assert_eq!((any.dtype(), any.codec().map(Codec::name)), (held.dtype.as_deref(), held.codec.as_deref()), "{name}");
    assert_eq!(any.item_shape(), held.item_shape.as_deref(), "{name}");
    assert_eq!(any.len(), held.records, "{name}");
    let all: Vec<u64> = (0..held.records).collect();
    assert_eq!(any.lengths(&all).unwrap(), held.bytes, "{name}");
    let bytes = agrees(name, any.gather(&all).unwrap(), held);

    for mode in [ReadMode::Mapped, ReadMode::Positional] {
        let store = StoreOptions::new().read_mode(mode).open(&path).unwrap();
        assert_eq!(agrees(name, store.gather(&all).unwrap(), held), bytes, "{name}, {mode:?}");
        // One at a time, from behind: what a gather of all has mapped or opened already is not there.
        let store = StoreOptions::new().read_mode(mode).open(&path).unwrap();
        let one_by_one: Vec<Vec<u8>> = all.iter().rev().map(|&index| store.get(index).unwrap()).collect();
        assert_eq!(one_by_one.into_iter().rev().flatten().collect::<Vec<_>>(), bytes, "{name}, {mode:?}");
    }
    typed(name, &path, held, &bytes);
}

/// The records' bytes end to end, which are held to the hashes.
fn agrees(name: &str, records: Records, held: &Held) -> Vec<u8> {
    let sha256 = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(records.offsets.len() as u64, held.records + 1, "{name}");
    for (i, expected) in held.sha256.iter().enumerate() {
        let record = records.get(i).unwrap();
        assert_eq!((record.len() as u64, sha256(record)), (held.bytes[i], expected.clone()), "{name}: record {i}");
    }
    match &held.sha256_of_all {
        Some(expected) => assert_eq!(&sha256(&records.bytes), expected, "{name}"),
        None => assert_eq!(held.sha256.len() as u64, held.records, "{name}"),
    }
    records.bytes
}

fn typed(name: &str, path: &Path, held: &Held, bytes: &[u8]) {
    let (_, open) = STORES[STORES.binary_search_by_key(&name, |(name, _)| name).unwrap()];
    for mode in [ReadMode::Mapped, ReadMode::Positional] {
        // No store holds u32; the error says what the store does hold.
        let refusals = [dense::<u32, Vec<usize>>(path, mode), ragged::<u32, Vec<usize>>(path, mode)];
        for error in refusals.map(Result::unwrap_err) {
            assert!(matches!(error, Error::Mismatch { .. } | Error::Unsupported { .. }), "{name}: {error}");
            let message = error.to_string();
            let said = [&held.dtype, &held.kind].map(|what| what.as_ref().is_some_and(|what| message.contains(what)));
            assert!(message.contains(name) && (held.kind.is_none() || said.contains(&true)), "{message}");
        }
        match open {
            Some(open) => assert_eq!(open(path, mode).unwrap(), bytes, "{name}, {mode:?}"),
            // As bytes they opened; whatever the type, they are refused.
            None => assert!(dense::<i64, Vec<usize>>(path, mode).is_err(), "{name}"),
        }
    }
}

#[test]
fn what_has_no_element_type_is_refused_by_name() {
    let Some(folder) = shared().map(|shared| shared.join("fixtures/stores")) else { return };
    let scratch = tempfile::tempdir().unwrap();
    for (name, dtype) in [("dense_datetime", "<M8[s]"), ("dense_struct", "|V12"), ("dense_bfloat16_as_void", "<V2")] {
        let path = unpack(&folder, name, scratch.path());
        for refused in [dense::<i64, Vec<usize>>, dense::<u8, Vec<usize>>, dense::<f16, Vec<usize>>] {
            let error = refused(&path, ReadMode::Mapped).unwrap_err();
            assert!(matches!(&error, Error::Unsupported { what, .. } if what.contains(dtype)), "{name}: {error}");
        }
        assert_eq!(dense::<bf16, [usize; 1]>(&path, ReadMode::Mapped).is_ok(), dtype == "<V2", "{name}");
    }
}

#[test]
fn records_of_a_store_lie_in_two_chunks() {
    let Some(folder) = shared().map(|shared| shared.join("fixtures/stores")) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let path = unpack(&folder, "dense_chunk_edge", scratch.path());
    assert!(fs::metadata(path.join("1.zr")).unwrap().len() > 0);
    // Without the second chunk, the records of the first are still there.
    let (first, second) = (Store::open(&path).unwrap(), path.join("1.zr"));
    assert_eq!(first.get(0).unwrap()[..8], [0, 0, 0, 0, 1, 0, 0, 0]);
    fs::remove_file(second).unwrap();
    let cut = StoreOptions::new().read_mode(ReadMode::Positional).open(&path);
    assert!(cut.is_err() || cut.is_ok_and(|cut| cut.get(0).is_ok() && cut.get(7).is_err()));
}
