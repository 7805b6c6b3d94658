//! Sources, held to the files that NumPy and safetensors wrote, to a plain model, and to damaged files.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::npy::{NpyFile, header_bytes};
use super::super::npz::NpzFile;
use super::super::safetensors::SafetensorsFile;
use super::super::table::{Source, Table, TableReader};
use super::{METHODS, counted, npy, npz};
use crate::data::{ByteOrder, DType};
use crate::error::Result;

/// The folder of shared fixtures; without it, the tests that read them say so and pass.
fn shared(folder: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("LOADERX_SHARED") else {
        println!("skipped: LOADERX_SHARED names no folder with fixtures");
        return None;
    };
    Some(PathBuf::from(root).join(folder))
}

fn manifest(folder: &Path) -> serde_json::Map<String, Value> {
    let text = fs::read_to_string(folder.join("manifest.json")).unwrap();
    let Value::Object(map) = serde_json::from_str(&text).unwrap() else { panic!("the manifest is no object") };
    map
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A source, chosen by extension.
fn open(path: &Path) -> Result<Box<dyn Source>> {
    Ok(match path.extension().and_then(|e| e.to_str()) {
        Some("npz") => Box::new(NpzFile::open(path)?),
        Some("safetensors") => Box::new(SafetensorsFile::open(path)?),
        _ => Box::new(NpyFile::open(path)?),
    })
}

/// All rows of a table: in order, and once more from behind, which must give the same.
fn rows(source: &mut dyn Source, index: usize, void: Option<DType>) -> Result<(Table, Vec<u8>)> {
    let spill = std::env::temp_dir();
    let table = source.table(index, void)?;
    assert!(table.data_bytes() <= 2 << 20, "{}: claims more than the test files hold", table.path.display());
    let mut in_order = vec![0; table.data_bytes() as usize];
    let mut reader = TableReader::new(&table, source.input(index, &table, table.is_c_order())?, &spill, false)?;
    for rows in reader.blocks() {
        let bytes = reader.bytes(&(0..rows.start))..reader.bytes(&(0..rows.end));
        reader.read(rows, &mut in_order[bytes])?;
    }
    reader.finish()?;
    drop(reader);

    let mut backwards = vec![0; in_order.len()];
    let mut reader = TableReader::new(&table, source.input(index, &table, false)?, &spill, true)?;
    for row in (0..table.rows.min(1 << 16)).rev() {
        let bytes = reader.bytes(&(0..row))..reader.bytes(&(0..row + 1));
        reader.read(row..row + 1, &mut backwards[bytes])?;
    }
    reader.finish()?;
    assert_eq!(in_order, backwards, "{}", table.path.display());
    Ok((table, in_order))
}

fn only(path: &Path, void: Option<DType>) -> Result<(Table, Vec<u8>)> {
    rows(&mut *open(path)?, 0, void)
}

fn error(path: &Path) -> String {
    only(path, None).unwrap_err().to_string()
}

/// Writes `bytes` to a file of that name in a fresh directory.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn npy_fixtures_are_right_or_refused_by_name() {
    let Some(folder) = shared("fixtures/npy") else { return };
    let (mut right, mut refused) = (0, 0);
    for (name, entry) in manifest(&folder).iter().filter(|(name, _)| name.ends_with(".npy")) {
        let path = folder.join(name);
        let element = entry["dtype"].as_str().and_then(DType::from_numpy);
        let shape: Vec<u64> = serde_json::from_value(entry["shape"].clone()).unwrap_or_default();
        let Some((dtype, order)) = element.filter(|_| !shape.is_empty()) else {
            let error = error(&path);
            assert!(error.contains(name.as_str()) && error.len() > path.as_os_str().len() + 20, "{error}");
            refused += 1;
            continue;
        };
        let (table, mut bytes) = only(&path, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((table.dtype, table.rows, &table.item_shape[..]), (dtype, shape[0], &shape[1..]), "{name}");
        if entry["version"] == "1.0" && name != "fortran_2d_u1.npy" && name != "fortran_f8.npy" {
            let header = header_bytes(&path, entry["dtype"].as_str().unwrap(), &shape).unwrap();
            assert!(fs::read(&path).unwrap().starts_with(&header), "{name}: NumPy writes another header");
        }
        if order == ByteOrder::Big {
            // The manifest's hash is over the bytes as they lie.
            bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
        }
        assert_eq!(sha256(&bytes), entry["c_order_data_sha256"].as_str().unwrap(), "{name}");
        right += 1;
    }
    assert_eq!((right, refused), (34, 36));
}

#[test]
fn npz_fixtures_are_right_or_refused_by_name() {
    let Some(folder) = shared("fixtures/npy") else { return };
    for (name, members) in [
        ("savez_compressed.npz", &[("img", Some(50 * 28 * 28)), ("lab", Some(50))][..]),
        ("savez_mixed.npz", &[("a", Some(96)), ("b", Some(192)), ("z", None), ("e", Some(0))]),
        ("savez_positional.npz", &[("arr_0", Some(24)), ("arr_1", None)]),
        ("savez_object_pickle.npz", &[("ok", Some(24)), ("bad", None)]),
    ] {
        let mut source = open(&folder.join(name)).unwrap();
        let names: Vec<&str> = source.names().iter().map(String::as_str).collect();
        assert_eq!(names, members.iter().map(|member| member.0).collect::<Vec<_>>());
        for (index, (member, bytes)) in members.iter().enumerate() {
            let found = rows(&mut *source, index, None).map(|(_, bytes)| bytes.len()).map_err(|e| e.to_string());
            match (bytes, found) {
                (Some(expected), found) => assert_eq!(found, Ok(*expected), "{name}/{member}"),
                (None, Err(error)) => assert!(error.contains(&format!("{name}/{member}: ")), "{error}"),
                (None, Ok(_)) => panic!("{name}/{member} was taken"),
            }
        }
    }
}

#[test]
fn safetensors_fixtures_are_right_or_refused_by_name() {
    let Some(folder) = shared("fixtures/safetensors") else { return };
    for (name, tensors) in manifest(&folder) {
        let mut source = open(&folder.join(&name)).unwrap();
        for index in 0..source.names().len() {
            let tensor = source.names()[index].clone();
            let (dtype, shape) = (&tensors[&tensor]["dtype"], &tensors[&tensor]["shape"]);
            match rows(&mut *source, index, None) {
                Ok((table, bytes)) => {
                    assert_eq!(*dtype, table.dtype.name().to_uppercase());
                    let found: Vec<u64> = [&[table.rows], &table.item_shape[..]].concat();
                    assert_eq!(*shape, serde_json::json!(found));
                    assert_eq!(tensors[&tensor]["sha256"], sha256(&bytes), "{tensor}");
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(["C64", "F8_E4M3", "F8_E5M2"].contains(&dtype.as_str().unwrap()) || tensor == "zero_d");
                    assert!(error.contains(&format!("{name}/{tensor}: ")), "{error}");
                }
            }
        }
        assert_eq!(source.names().len(), tensors.as_object().unwrap().len());
    }
}

#[test]
fn what_npyz_writes_is_read() {
    use npyz::WriterBuilder;
    for order in [npyz::Order::C, npyz::Order::Fortran] {
        let mut bytes = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().shape(&[2, 3]).order(order);
        let mut writer = options.writer(&mut bytes).begin_nd().unwrap();
        writer.extend([0u16, 1, 2, 3, 4, 5]).unwrap();
        writer.finish().unwrap();
        let expected: [u16; 6] = if order == npyz::Order::C { [0, 1, 2, 3, 4, 5] } else { [0, 2, 4, 1, 3, 5] };
        let (_directory, path) = file("a.npy", &bytes);
        assert_eq!(only(&path, None).unwrap().1, expected.map(u16::to_le_bytes).concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn every_shape_order_and_endianness_gives_the_rows_of_the_model(
        descr in prop::sample::select(vec!["|u1", "|i1", "<i2", ">u2", "<f4", ">f4", "<f8", ">i8"]),
        fortran: bool,
        rows in prop_oneof![0u64..6, 500u64..5000],
        item in prop::collection::vec(0u64..4, 0..4),
        packed in 0usize..3,
    ) {
        let shape = [&[rows], &item[..]].concat();
        let (bytes, expected) = counted(descr, fortran, &shape);
        let (_directory, path) = match packed {
            0 => file("a.npy", &bytes),
            packed => file("a.npz", &npz(&[("folder/ä.npy", &bytes)], METHODS[packed - 1])),
        };
        let (table, found) = only(&path, None).unwrap();
        prop_assert_eq!((table.rows, &table.item_shape), (rows, &item));
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn many_columns_are_put_into_rows_tile_by_tile() {
    for shape in [[3, 300_000], [5000, 300]] {
        let (bytes, expected) = counted("|u1", true, &shape);
        let (_directory, path) = file("a.npy", &bytes);
        let mut source = open(&path).unwrap();
        let table = source.table(0, None).unwrap();
        let input = source.input(0, &table, false).unwrap();
        let mut reader = TableReader::new(&table, input, Path::new("."), false).unwrap();
        let mut found = vec![0; expected.len()];
        reader.read(0..shape[0], &mut found).unwrap();
        assert!(found == expected, "{shape:?}");
        reader.read(1..3, &mut found[..2 * shape[1] as usize]).unwrap();
        assert!(found[..2 * shape[1] as usize] == expected[shape[1] as usize..][..2 * shape[1] as usize], "{shape:?}");
    }
}

#[test]
fn several_blocks_give_the_same_as_one() {
    for fortran in [false, true] {
        // 40 MiB: five blocks in C order, two in Fortran order.
        let shape = [5 << 20, 2];
        let data: Vec<u8> = (0..shape[0] * shape[1] * 4).map(|i| (i % 251) as u8).collect();
        let (_directory, path) = file("a.npy", &npy("<f4", fortran, &shape, &data));
        let mut source = open(&path).unwrap();
        let table = source.table(0, None).unwrap();
        let input = source.input(0, &table, table.is_c_order()).unwrap();
        let mut reader = TableReader::new(&table, input, Path::new("."), false).unwrap();
        let mut found = vec![0; data.len()];
        let blocks: Vec<_> = reader.blocks().collect();
        assert_eq!(blocks.len(), if fortran { 2 } else { 5 });
        for rows in blocks {
            reader.read(rows.clone(), &mut found[rows.start as usize * 8..rows.end as usize * 8]).unwrap();
        }
        let expected = if fortran {
            let (left, right) = data.split_at(data.len() / 2);
            left.chunks(4).zip(right.chunks(4)).flat_map(|(left, right)| [left, right].concat()).collect()
        } else {
            data
        };
        assert!(found == expected, "fortran {fortran}");
    }
}

#[test]
fn a_bool_that_is_neither_0_nor_1_is_refused_with_its_row() {
    let (_directory, path) = file("a.npy", &npy("|b1", false, &[3, 2], &[0, 1, 1, 0, 1, 2]));
    assert!(error(&path).contains("row 2 holds a bool of 2"), "{}", error(&path));
}

#[test]
fn bfloat16_needs_the_callers_word() {
    for descr in ["<V2", "|V2"] {
        let (_directory, path) = file("a.npy", &npy(descr, false, &[2], &[1, 2, 3, 4]));
        assert!(error(&path).contains("dtype bf16"), "{}", error(&path));
        let (table, bytes) = only(&path, Some(DType::BF16)).unwrap();
        assert_eq!((table.dtype, &bytes[..]), (DType::BF16, &[1, 2, 3, 4][..]));
    }
}

#[test]
fn data_that_is_cut_short_or_followed_by_more_is_refused_at_once() {
    for (data, reason) in [(&[1, 2, 3][..], "cut short"), (&[1, 2, 3, 4, 5], "1 bytes follow the array")] {
        let bytes = npy("<i2", false, &[2], data);
        for (name, bytes) in [("a.npy", bytes.clone()), ("a.npz", npz(&[("a.npy", &bytes)], METHODS[1]))] {
            let (_directory, path) = file(name, &bytes);
            let error = open(&path).unwrap().table(0, None).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

#[test]
fn shapes_whose_product_overflows_are_refused() {
    for shape in [&[1 << 63, 4][..], &[4, 1 << 63], &[1 << 32, 1 << 32, 1 << 32], &[0, 1 << 63, 4]] {
        let (_directory, path) = file("a.npy", &npy("|u1", false, shape, &[]));
        assert!(error(&path).contains("overflows"), "{}", error(&path));
    }
    let (_directory, path) = file("a.npy", &npy("|u1", true, &[3, 1 << 63, 1 << 63, 0], &[]));
    assert!(only(&path, None).unwrap().1.is_empty());
}

#[test]
fn a_member_that_is_not_an_array_is_refused_by_name() {
    let array = npy("|u1", false, &[1], &[7]);
    let (_directory, path) = file("a.npz", &npz(&[("notes.txt", b"hello"), ("x.npy", &array)], METHODS[0]));
    let mut source = open(&path).unwrap();
    let error = source.table(0, None).unwrap_err().to_string();
    assert!(error.contains("a.npz/notes.txt: a member that is not an array"), "{error}");
    assert_eq!(rows(&mut *source, 1, None).unwrap().1, [7]);
}

#[test]
fn a_deflated_member_that_claims_too_much_is_refused_before_it_is_allocated() {
    let array = npy("|u1", false, &[1], &[7]);
    let mut bytes = npz(&[("x.npy", &array)], METHODS[1]);
    let directory = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    bytes[directory + 24..directory + 28].copy_from_slice(&0xF000_0000u32.to_le_bytes());
    let (_directory, path) = file("a.npz", &bytes);
    assert!(error(&path).contains("cannot hold"), "{}", error(&path));
}

#[test]
fn malformed_safetensors_are_refused_with_a_reason() {
    let with_header =
        |header: &str, data: &[u8]| [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let (a, b) = (tensor("U8", "[4]", "[0,4]"), tensor("U8", "[4]", "[2,6]"));
    for (bytes, reason) in [
        (vec![1, 2, 3], "it ends in the middle of the header's length"),
        (u64::MAX.to_le_bytes().to_vec(), "claims 18446744073709551615 bytes"),
        (9u64.to_le_bytes().iter().chain(b"{}").copied().collect(), "claims 9 bytes"),
        (with_header("[]", &[]), "the header: "),
        (with_header(&format!(r#"{{"a":{a},"b":{b}}}"#), &[0; 6]), "invalid offset for tensor `b`"),
        (with_header(&format!(r#"{{"a":{}}}"#, tensor("F7", "[4]", "[0,4]")), &[0; 4]), "unknown variant `F7`"),
        (with_header(&format!(r#"{{"a":{}}}"#, tensor("U8", "[5]", "[0,4]")), &[0; 4]), "invalid shape"),
        (with_header(&format!(r#"{{"a":{}}}"#, tensor("U8", "[4294967296,4294967296]", "[0,4]")), &[0; 4]), "overflow"),
        (with_header(&format!(r#"{{"a":{a}}}"#), &[0; 3]), "the tensors take 4 bytes, 3 are there"),
        (with_header(&format!(r#"{{"a":{a}}}"#), &[0; 5]), "the tensors take 4 bytes, 5 are there"),
        (with_header(&"[".repeat(100_000), &[]), "the header: "),
        (with_header(&format!(r#"{{"a":{}"#, "[".repeat(100_000)), &[]), "recursion limit"),
    ] {
        let (_directory, path) = file("a.safetensors", &bytes);
        let error = open(&path).err().unwrap().to_string();
        assert!(error.contains(reason) && error.contains("a.safetensors: "), "{reason}: {error}");
    }
}

#[test]
fn a_misaligned_tensor_is_read_all_the_same() {
    let header =
        r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I16","shape":[1],"data_offsets":[1,3]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[7, 1, 2]].concat();
    let (_directory, path) = file("a.safetensors", &bytes);
    assert_eq!(rows(&mut *open(&path).unwrap(), 1, None).unwrap().1, [1, 2]);
}

/// All tables of a file; the first error otherwise.
fn everything(path: &Path) -> Result<Vec<(String, Table, Vec<u8>)>> {
    let mut source = open(path)?;
    let names = source.names().to_vec();
    let tables = names.into_iter().enumerate();
    tables.map(|(index, name)| rows(&mut *source, index, None).map(|(table, bytes)| (name, table, bytes))).collect()
}

#[test]
fn damaged_files_give_an_error_or_their_rows_and_never_panic() {
    let (c, _) = counted("<i2", false, &[3, 2]);
    let (fortran, _) = counted(">f4", true, &[3, 2, 2]);
    let members: [(&str, &[u8]); 2] = [("c.npy", &c), ("f.npy", &fortran)];
    let view = |data| safetensors::tensor::TensorView::new(safetensors::Dtype::I16, vec![2, 2], data).unwrap();
    let tensors = [("a", view(&[1, 2, 3, 4, 5, 6, 7, 8])), ("b", view(&[8, 7, 6, 5, 4, 3, 2, 1]))];
    let tensors = safetensors::serialize(tensors, None).unwrap();
    for (name, bytes) in [
        ("c.npy", c.clone()),
        ("f.npy", fortran.clone()),
        ("a.npz", npz(&members, METHODS[0])),
        ("b.npz", npz(&members, METHODS[1])),
        ("a.safetensors", tensors),
    ] {
        let (_directory, path) = file(name, &bytes);
        let whole = everything(&path).unwrap();
        // The file is changed in place: writing it anew each time takes minutes on some file systems.
        let mut damaged = fs::File::options().write(true).open(&path).unwrap();
        for len in (0..bytes.len()).rev() {
            damaged.set_len(len as u64).unwrap();
            assert!(everything(&path).is_err(), "{name} cut to {len} bytes was taken");
        }
        damaged.write_all(&bytes).unwrap();
        let mut put = |at: usize, byte: u8| {
            damaged.seek(SeekFrom::Start(at as u64)).unwrap();
            damaged.write_all(&[byte]).unwrap();
        };
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xFF] {
                put(at, bytes[at] ^ flip);
                if let Ok(tables) = everything(&path)
                    && name.ends_with(".npz")
                {
                    // Members have a checksum: what can change unseen is a member's name, or that it exists.
                    for (_, table, rows) in tables {
                        let same = |(_, before, bytes): &(String, Table, Vec<u8>)| {
                            table.item_shape == before.item_shape && rows == *bytes
                        };
                        assert!(whole.iter().any(same), "{name}: byte {at} ^ {flip:#x}");
                    }
                }
            }
            put(at, bytes[at]);
        }
    }
}
