//! Datasets against plain vectors.

use std::error::Error as StdError;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::engine::store::{Codec, DictSize, StoreOptions};
use crate::error::{Error, Result};

type TestResult = Result<(), Box<dyn StdError>>;

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    (directory, path)
}

/// A store whose schema names another dtype or element than this crate writes.
fn store_of(path: &Path, dtype: &str, item_shape: &[u8], records: &[&[u8]]) {
    let mut schema = b"\x85\xa6format\xafloaderx-zrecord\xa7version\x01\xa4kind\xa5dense\xa5dtype".to_vec();
    schema.push(0xa0 | dtype.len() as u8);
    schema.extend(dtype.as_bytes());
    schema.extend(b"\xaaitem_shape");
    schema.push(0x90 | item_shape.len() as u8);
    schema.extend(item_shape);
    let store = StoreOptions::new().create_with_schema(path, &schema).unwrap();
    records.iter().for_each(|record| {
        store.append(record, &[0, record.len() as u64]).unwrap();
    });
    store.close().unwrap();
}

fn expect_dense<T: Element>(values: &[T], indices: &[u64]) {
    let (_directory, path) = place();
    let rows: Vec<&[T]> = values.chunks_exact(2).collect();
    let dataset = DenseDataset::<T, [usize; 1]>::create(&path, [2]).unwrap();
    let (first, second) = rows.split_at(rows.len() / 2);
    assert_eq!(dataset.append(&first.concat()).unwrap(), 0);
    assert_eq!(dataset.append(&second.concat()).unwrap(), first.len() as u64);
    assert_eq!(dataset.len(), rows.len() as u64);
    dataset.close().unwrap();

    let dataset = DenseDataset::<T, [usize; 1]>::open(&path).unwrap();
    let batch = dataset.gather(indices).unwrap();
    let wanted: Vec<&[T]> = indices.iter().map(|&i| rows[i as usize]).collect();
    assert_eq!(batch.rows().collect::<Vec<_>>(), wanted);
    let mut again = dataset.read(..).unwrap();
    assert_eq!(again.values(), rows.concat());
    dataset.gather_into(indices, &mut again).unwrap();
    assert_eq!(again, batch);
    assert_eq!(dataset.lengths(indices).unwrap(), vec![2 * size_of::<T>() as u64; indices.len()]);
    assert_eq!(DenseDataset::<T>::open(&path).unwrap().item_shape(), &[2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn dense_records_of_every_type_return(
        words in proptest::collection::vec(any::<u64>(), 2..60),
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let words = &words[..words.len() / 2 * 2];
        let indices: Vec<u64> = picks.iter().map(|pick| pick.index(words.len() / 2) as u64).collect();
        fn each<T>(words: &[u64], make: impl Fn(u64) -> T) -> Vec<T> {
            words.iter().map(|&word| make(word)).collect()
        }
        expect_dense(&each(words, |w| w % 2 == 1), &indices);
        expect_dense(&each(words, |w| w as i8), &indices);
        expect_dense(&each(words, |w| w as i16), &indices);
        expect_dense(&each(words, |w| w as i32), &indices);
        expect_dense(&each(words, |w| w as i64), &indices);
        expect_dense(&each(words, |w| w as u8), &indices);
        expect_dense(&each(words, |w| w as u16), &indices);
        expect_dense(&each(words, |w| w as u32), &indices);
        expect_dense(words, &indices);
        expect_dense(&each(words, |w| f16::from_f64(w as f64 / 1e19)), &indices);
        expect_dense(&each(words, |w| bf16::from_f64(w as f64)), &indices);
        expect_dense(&each(words, |w| w as f32), &indices);
        expect_dense(&each(words, |w| w as f64), &indices);
    }

    #[test]
    fn ragged_records_return(
        records in proptest::collection::vec(proptest::collection::vec(any::<[i32; 3]>(), 0..9), 1..30),
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let (_directory, path) = place();
        let records: Vec<Vec<i32>> = records.iter().map(|rows| rows.concat()).collect();
        let dataset = RaggedDataset::<i32, [usize; 1]>::create(&path, [3]).unwrap();
        let (first, second) = records.split_at(records.len() / 2);
        prop_assert_eq!(dataset.append(first).unwrap(), 0);
        let offsets: Vec<u64> = (0..=second.len()).map(|i| (second[..i].concat().len() / 3) as u64).collect();
        prop_assert_eq!(dataset.append_packed(&second.concat(), &offsets).unwrap(), first.len() as u64);
        dataset.close().unwrap();

        let dataset = RaggedDataset::<i32, [usize; 1]>::open(&path).unwrap();
        let indices: Vec<u64> = picks.iter().map(|pick| pick.index(records.len()) as u64).collect();
        let batch = dataset.gather(&indices).unwrap();
        let wanted: Vec<&[i32]> = indices.iter().map(|&i| records[i as usize].as_slice()).collect();
        prop_assert_eq!(batch.iter().collect::<Vec<_>>(), wanted);
        prop_assert_eq!(batch.lengths(), dataset.lengths(&indices).unwrap());
        let mut again = dataset.read(..).unwrap();
        prop_assert_eq!(again.values(), records.concat());
        dataset.gather_into(&indices, &mut again).unwrap();
        prop_assert_eq!(again, batch);
    }
}

#[test]
fn what_a_store_holds_and_what_was_asked_for_are_both_named() -> TestResult {
    let (_directory, path) = place();
    DenseDataset::<f32, [usize; 2]>::create(&path, [4, 5])?.close()?;
    let texts = |result: Result<()>| result.unwrap_err().to_string();
    let dense = DenseDataset::<f32, [usize; 2]>::options;
    for (error, found, asked) in [
        (texts(RaggedDataset::<f32, [usize; 2]>::open(&path).map(drop)), "dense", "ragged"),
        (texts(DenseDataset::<i64, [usize; 2]>::open(&path).map(drop)), "f32 (<f4)", "i64"),
        (texts(DenseDataset::<f32, [usize; 3]>::open(&path).map(drop)), "[4, 5]", "rank 3"),
        (texts(dense().item_shape([5, 4]).open(&path).map(drop)), "[4, 5]", "[5, 4]"),
        (texts(dense().codec(Codec::Raw).open(&path).map(drop)), "zstd", "raw"),
        (texts(dense().record_limit(2 << 20).open_writable(&path).map(drop)), "1048576", "2097152"),
        (texts(dense().open_or_create(&path, [5, 4]).map(drop)), "[4, 5]", "[5, 4]"),
    ] {
        assert!(error.contains(found) && error.contains(asked), "{error}");
    }
    assert!(matches!(dense().create(&path, [4, 5]), Err(Error::Exists { .. })));
    assert_eq!(dense().codec(Codec::Zstd).open_or_create(&path, [4, 5])?.item_shape(), &[4, 5]);
    Ok(())
}

#[test]
fn a_store_of_raw_records_is_no_typed_dataset() -> TestResult {
    let (_directory, path) = place();
    let store = StoreOptions::new().create(&path)?;
    store.append(b"abc", &[0, 3])?;
    store.close()?;
    for error in [
        DenseDataset::<u8>::open(&path).unwrap_err(),
        DenseDataset::<u8>::open_writable(&path).unwrap_err(),
        RaggedDataset::<u8>::open(&path).unwrap_err(),
    ] {
        assert!(error.to_string().contains("`Store`"), "{error}");
    }
    let any = AnyDataset::open(&path)?;
    assert_eq!((any.kind(), any.dtype(), any.item_shape(), any.row_bytes()), (None, None, None, None));
    assert_eq!(any.get(0)?, b"abc");
    Ok(())
}

#[test]
fn other_dtypes_are_refused_by_name_and_open_as_bytes() -> TestResult {
    for dtype in ["<M8[s]", "|V12", "<c8", "<U3", "|S12", "<V2"] {
        let (_directory, path) = place();
        store_of(&path, dtype, &[], &[&[7; 12]]);
        let error = DenseDataset::<f64>::open(&path).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        let text = error.to_string();
        assert!(text.contains(dtype) && text.contains("AnyDataset"), "{text}");
        let any = AnyDataset::open(&path)?;
        assert_eq!((any.dtype(), any.element()), (Some(dtype), None));
        assert_eq!(any.gather(&[0])?.bytes, [7; 12]);
    }
    Ok(())
}

#[test]
fn numpys_bfloat16_opens_by_the_callers_word() -> TestResult {
    let (_directory, path) = place();
    store_of(&path, "<V2", &[2], &[&[0x80, 0x3f, 0x00, 0xc0]]);
    let dataset = DenseDataset::<bf16, [usize; 1]>::open(&path)?;
    assert_eq!(dataset.read(0)?.values(), [bf16::ONE, bf16::from_f32(-2.0)]);
    Ok(())
}

#[test]
fn a_big_endian_store_is_read_and_appended_to_in_its_order() -> TestResult {
    let (_directory, path) = place();
    store_of(&path, ">f4", &[1], &[&1.5f32.to_be_bytes()]);
    let dataset = DenseDataset::<f32, [usize; 1]>::open_writable(&path)?;
    dataset.append(&[-2.25])?;
    assert_eq!(dataset.read(..)?.values(), [1.5, -2.25]);
    dataset.close()?;
    assert_eq!(AnyDataset::open(&path)?.get(1)?, (-2.25f32).to_be_bytes());
    Ok(())
}

#[test]
fn a_bool_of_two_names_its_record() -> TestResult {
    let (_directory, path) = place();
    store_of(&path, "|b1", &[2], &[&[0, 1], &[1, 2]]);
    let dataset = DenseDataset::<bool, [usize; 1]>::open(&path)?;
    let mut batch = dataset.read(0)?;
    assert_eq!(batch.values(), [false, true]);
    let Err(Error::Corrupt(corruption)) = dataset.gather_into(&[0, 0, 1], &mut batch) else { panic!("no error") };
    assert_eq!((corruption.record, corruption.found.as_str()), (Some(1), "2"));
    assert!(batch.is_empty() && batch.values().is_empty());
    Ok(())
}

#[test]
fn a_record_that_is_no_whole_rows_names_itself() -> TestResult {
    let (_directory, path) = place();
    RaggedDataset::<u32>::create(&path, ())?.close()?;
    let store = StoreOptions::new().open_writable(&path)?;
    store.append(&[0; 15], &[0, 8, 15])?;
    store.close()?;
    let dataset = RaggedDataset::<u32>::open(&path)?;
    assert_eq!(dataset.lengths(0)?, [2]);
    for error in [dataset.lengths(..).unwrap_err(), dataset.gather(&[1, 0]).unwrap_err()] {
        assert!(matches!(&error, Error::Corrupt(corruption) if corruption.record == Some(1)), "{error}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_appended_is_refused() -> TestResult {
    let (_directory, path) = place();
    let dense = DenseDataset::<u8, [usize; 1]>::create(&path, [3])?;
    for error in [dense.append(&[1; 4]).unwrap_err(), dense.append_rows(2, &[1; 3]).unwrap_err()] {
        assert!(matches!(error, Error::Invalid { what: "values", .. }), "{error}");
    }
    assert_eq!((dense.append(&[])?, dense.len()), (0, 0));
    for index in [0, u64::MAX] {
        assert!(matches!(dense.gather(&[index]), Err(Error::OutOfRange { len: 0, .. })));
    }
    assert!(matches!(dense.read(vec![true]), Err(Error::Invalid { what: "mask", .. })));

    let (_directory, path) = place();
    let ragged = RaggedDataset::<u8, [usize; 1]>::create(&path, [3])?;
    assert!(ragged.append([&[1; 3][..], &[1; 4]]).is_err());
    assert!(ragged.append_packed(&[1; 6], &[0, 1]).is_err());
    assert!(ragged.append_packed(&[1; 6], &[1, 2]).is_err());
    assert_eq!(ragged.len(), 0);

    let (_directory, path) = place();
    assert!(DenseDataset::<f64, [usize; 1]>::create(&path, [1 << 18]).is_err(), "over the limit of a record");
    assert!(RaggedDataset::<f64, [usize; 1]>::create(&path, [0]).is_err(), "rows of no bytes");
    assert!(DenseDataset::<f64, [usize; 1]>::options().metadata("dtype", &1).create(&path, [1]).is_err());
    assert!(!path.exists(), "what is refused leaves nothing");
    Ok(())
}

#[test]
fn records_of_no_elements_are_counted() -> TestResult {
    let (_directory, path) = place();
    let dataset = DenseDataset::<f32, [usize; 2]>::create(&path, [2, 0])?;
    assert!(dataset.append(&[]).unwrap_err().to_string().contains("append_rows"));
    dataset.append_rows(3, &[])?;
    assert_eq!(dataset.read(..)?.shape(), [3, 2, 0]);
    Ok(())
}

#[test]
fn a_larger_record_limit_is_kept_in_the_schema() -> TestResult {
    let (_directory, path) = place();
    let record = vec![3u8; 2 << 20];
    let options = DenseDataset::<u8, [usize; 1]>::options().record_limit(2 << 20);
    options.create(&path, [record.len()])?.close()?;
    let dataset = DenseDataset::<u8, [usize; 1]>::open_writable(&path)?;
    dataset.append(&record)?;
    assert_eq!(dataset.read(0)?.into_values(), record);
    Ok(())
}

#[test]
fn a_dictionary_is_trained_on_samples_in_the_form_of_append() -> TestResult {
    let words: Vec<u32> = (0..40_000u32).map(|i| i / 40 % 97 * 1_000_003).collect();
    let (_directory, path) = place();
    let dense = DenseDataset::<u32, [usize; 1]>::options().codec(Codec::ZstdDict).create(&path, [50])?;
    assert!(dense.append(&words).is_err(), "there is no dictionary yet");
    dense.train_dict(&words, DictSize::Small)?;
    dense.append(&words)?;
    assert!(dense.has_dict());
    assert_eq!(dense.read(..)?.values(), words);

    let (_directory, path) = place();
    let ragged = RaggedDataset::<u32>::options().codec(Codec::ZstdDict).create(&path, ())?;
    ragged.train_dict(words.chunks(70), DictSize::Small)?;
    ragged.append(words.chunks(70))?;
    assert_eq!(ragged.read(..)?.values(), words);
    Ok(())
}

#[test]
fn a_fingerprint_survives_appending_and_copying_but_no_swap() -> TestResult {
    let (directory, path) = place();
    let dataset = RaggedDataset::<u32>::create(&path, ())?;
    let records: Vec<Vec<u32>> = (0..200).map(|i| vec![i; i as usize % 5]).collect();
    dataset.append(&records)?;
    let before = dataset.fingerprint(200)?;
    dataset.append([[1, 2, 3]])?;
    dataset.sync()?;
    assert_eq!(dataset.fingerprint(200)?, before);
    assert_ne!(dataset.fingerprint(201)?, before);
    assert!(matches!(dataset.fingerprint(202), Err(Error::State { .. })));
    dataset.close()?;

    let copy = directory.path().join("copy");
    fs::create_dir(&copy)?;
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        fs::copy(entry.path(), copy.join(entry.file_name()))?;
    }
    assert_eq!(RaggedDataset::<u32>::open(&copy)?.fingerprint(200)?, before);

    for (change, codec, same) in
        [(None, Codec::Raw, true), (Some(150), Codec::Zstd, false), (Some(3), Codec::Zstd, false)]
    {
        let (_directory, path) = place();
        let other = RaggedDataset::<u32>::options().codec(codec).create(&path, ())?;
        let mut records = records.clone();
        // What Python's delete and a later append make of it.
        if let Some(hole) = change {
            records[hole] = records[199].clone();
            records[199] = vec![9; 4];
        }
        other.append(&records)?;
        assert_eq!(other.fingerprint(200)? == before, same);
    }
    Ok(())
}

#[test]
fn a_damaged_record_does_not_keep_a_dataset_from_being_identified() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let data = DenseDataset::<u8, [usize; 1]>::create(&path, [400]).unwrap();
    data.append(&(0..100).flat_map(|i| [i; 400]).collect::<Vec<_>>()).unwrap();
    let whole = data.fingerprint(90).unwrap();
    data.close().unwrap();
    let chunk = path.join("0.zr");
    let mut bytes = std::fs::read(&chunk).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&chunk, bytes).unwrap();
    let data = DenseDataset::<u8, [usize; 1]>::open(&path).unwrap();
    assert!(data.read(..).is_err());
    let damaged = data.fingerprint(90).unwrap();
    assert_eq!(damaged, data.fingerprint(90).unwrap());
    assert_ne!(damaged, whole);
}

#[test]
fn a_flipped_byte_of_a_scalar_is_found_by_a_loader_that_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("labels");
    let labels = DenseDataset::<u8, ()>::create(&path, ()).unwrap();
    labels.append(&(0..200).collect::<Vec<u8>>()).unwrap();
    labels.close().unwrap();
    let chunk = path.join("0.zr");
    let mut bytes = fs::read(&chunk).unwrap();
    bytes[3] = 99;
    fs::write(&chunk, bytes).unwrap();
    // A scalar does not shrink, so it is raw, and carries no checksum of its own.
    let plain = DenseDataset::<u8, ()>::open(&path).unwrap();
    assert_eq!(plain.read(0..5).unwrap().values(), [0, 1, 2, 99, 4]);
    let verified = DenseDataset::<u8, ()>::options().verify(crate::Verify::Always).open(&path).unwrap();
    assert!(matches!(verified.read(3), Err(Error::Corrupt(bad)) if bad.record == Some(3)));
    assert_eq!(verified.read(150..152).unwrap().values(), [150, 151]);
    let bad = AnyDataset::open(&path).unwrap().verify(|_| {}).unwrap().bad;
    assert!(bad.len() <= 64, "{} records share the checksum", bad.len());
}

proptest! {
    #[test]
    fn records_are_chosen_by_their_values(labels in proptest::collection::vec((0..9u16, any::<u16>()), 0..200), wanted in 0..9u16) {
        let directory = tempfile::tempdir().unwrap();
        let dataset = DenseDataset::<u16, [usize; 1]>::create(directory.path().join("labels"), [2]).unwrap();
        dataset.append(&labels.iter().flat_map(|&(label, other)| [label, other]).collect::<Vec<_>>()).unwrap();
        let expected: Vec<u64> = (0..).zip(&labels).filter(|(_, label)| label.0 == wanted).map(|(index, _)| index).collect();
        prop_assert_eq!(dataset.indices_where(|row| row[0] == wanted).unwrap(), expected);
    }
}

#[test]
fn debug_of_a_dataset_says_what_it_holds_and_where() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("points");
    let points = DenseDataset::<f32, [usize; 1]>::create(&path, [2]).unwrap();
    points.append(&[0.0; 6]).unwrap();
    let holds = "item_shape: [2], codec: zstd }";
    assert_eq!(format!("{points:?}"), format!("DenseDataset {{ path: {path:?}, records: 3, dtype: f32, {holds}"));
    points.close().unwrap();
    let any = AnyDataset::open(&path).unwrap();
    assert_eq!(
        format!("{any:?}"),
        format!("AnyDataset {{ path: {path:?}, records: 3, kind: dense, dtype: <f4, {holds}")
    );
    let path = directory.path().join("tokens");
    let tokens = RaggedDataset::<u16>::create(&path, ()).unwrap();
    assert_eq!(
        format!("{tokens:?}"),
        format!("RaggedDataset {{ path: {path:?}, records: 0, dtype: u16, item_shape: (), codec: zstd }}")
    );
    let path = directory.path().join("raw");
    crate::Store::create(&path, Codec::Raw).unwrap();
    assert_eq!(
        format!("{:?}", AnyDataset::open(&path).unwrap()),
        format!("AnyDataset {{ path: {path:?}, records: 0 }}")
    );
}
