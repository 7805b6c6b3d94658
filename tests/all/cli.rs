//! The command line, run as a program: what it writes where, and its exit status.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{shared, unpack};

/// A directory to run the program in.
struct Case(tempfile::TempDir);

impl Case {
    fn new() -> Case {
        Case(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loaderx"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output of a command that does what it should, and says nothing else.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
        text(&output.stdout).to_owned()
    }

    /// The one line of a command that fails.
    fn failed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let line = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{arguments:?}: {line}");
        assert!(line.starts_with("loaderx: ") && line.ends_with('\n') && line.lines().count() == 1, "{line}");
        line.to_owned()
    }

    fn info(&self, store: &str) -> Value {
        serde_json::from_str(&self.done(&["info", store, "--json"])).unwrap()
    }

    /// All names in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// The header and the data of a .npy file of version 1.
fn parts(path: &Path) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (text(&bytes[10..end]).to_owned(), bytes[end..].to_vec())
}

#[test]
fn an_array_is_imported_shown_and_exported() {
    let case = Case::new();
    let data: Vec<u8> = (0..120).collect();
    case.write("a.npy", &npy("<i2", "(10, 2, 3)", &data));
    assert_eq!(case.done(&["import", "a.npy", "store", "--codec", "raw"]), "store\t10\t120\n");
    let expected = json!({
        "kind": "dense", "dtype": "<i2", "item_shape": [2, 3], "codec": "raw", "records": 10, "live_bytes": 120,
        "chunk_bytes": 120, "reclaimable": 0
    });
    assert_eq!(case.info("store"), expected);
    let lines = "kind        dense\ndtype       <i2 (i16)\nitem_shape  [2, 3]\ncodec       raw\nrecords     10\n\
                 live_bytes  120\nchunk_bytes 120\nreclaimable 0\n";
    assert_eq!(case.done(&["info", "store"]), lines);
    assert_eq!(case.done(&["export", "store", "b.npy"]), "b.npy\t[10, 2, 3]\n");
    let (header, exported) = parts(&case.path("b.npy"));
    assert!(header.contains("'<i2'") && header.contains("(10, 2, 3)"), "{header}");
    assert_eq!(exported, data);
    assert_eq!(case.names(), ["a.npy", "b.npy", "store"]);
}

#[test]
fn an_archive_gives_a_store_an_array_and_some_can_be_chosen() {
    let case = Case::new();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in [("x", npy("|u1", "(2,)", &[1, 2])), ("in/y", npy("|u1", "(3,)", &[3, 4, 5]))] {
        zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    case.write("a.npz", &zip.finish().unwrap().into_inner());
    assert_eq!(case.done(&["import", "a.npz", "all"]), "all/x\t2\t2\nall/in/y\t3\t3\n");
    assert_eq!(case.done(&["import", "a.npz", "one", "--tensor", "in/y"]), "one/in/y\t3\t3\n");
    assert!(!case.path("one/x").exists());

    let view = |data| safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![2], data).unwrap();
    let tensors = [("p", view(&[1, 2])), ("q", view(&[3, 4])), ("r", view(&[5, 6]))];
    case.write("a.safetensors", &safetensors::serialize(tensors, None).unwrap());
    let some = ["import", "a.safetensors", "some", "--tensor", "p", "--tensor", "r"];
    assert_eq!(case.done(&some), "some/p\t2\t2\nsome/r\t2\t2\n");
    assert!(case.failed(&["import", "a.safetensors", "x", "--tensor", "s"]).contains("no \"s\"; it has [\"p\""));
    assert!(!case.path("x").exists() && !case.path("x.partial").exists());
}

#[test]
fn options_reach_the_store() {
    let case = Case::new();
    let lines: Vec<u8> = (0..4000u32).flat_map(|i| format!("line {i:08} of some lines\n").into_bytes()).collect();
    case.write("a.npy", &npy("|u1", "(4000, 28)", &lines));
    case.done(&["import", "a.npy", "small", "--codec", "zstd_dict", "--dict-size", "4096", "--level", "-5"]);
    assert!((1..=4096).contains(&fs::metadata(case.path("small/dict.zr")).unwrap().len()));
    assert_eq!(case.info("small")["codec"], "zstd_dict");
    case.done(&["import", "a.npy", "default", "--level=9"]);
    assert_eq!(case.info("default")["codec"], "zstd");
    assert!(case.failed(&["import", "a.npy", "x", "--level", "99"]).contains("levels are"));

    case.write("b.npy", &npy("<V2", "(2,)", &[1, 2, 3, 4]));
    assert!(case.failed(&["import", "b.npy", "x"]).contains("bf16"));
    case.done(&["import", "b.npy", "bf16", "--dtype", "bf16"]);
    assert!(case.done(&["info", "bf16"]).contains("<V2 (bf16)"));

    case.write("c.npy", &npy("|u1", "(1, 1048577)", &vec![7; 1_048_577]));
    assert!(case.failed(&["import", "c.npy", "x"]).contains("raise it to 1048577"));
    assert_eq!(
        case.done(&["import", "c.npy", "large", "--codec=raw", "--record-limit", "1048577"]),
        "large\t1\t1048577\n"
    );
}

#[test]
fn what_fails_says_so_in_one_line() {
    let case = Case::new();
    case.write("a.npy", &npy("|u1", "(2,)", &[1, 2]));
    case.write("a.csv", b"1,2");
    assert!(case.failed(&["import", "none.npy", "x"]).contains("none.npy"));
    assert!(case.failed(&["import", "a.csv", "x"]).contains(".npy, .npz and .safetensors"));
    assert!(case.failed(&["import", "a.npy", "a.csv"]).contains("a.csv already exists: remove it"));
    assert!(case.failed(&["info", "none"]).contains("none is not a record store"));
    assert!(case.failed(&["info", "a.csv"]).contains("a.csv is not a record store"));
    assert!(case.failed(&["export", "none", "x.npy"]).contains("none is not a record store"));
    assert!(case.failed(&["info", "two\nlines"]).contains("two\\nlines"));
    case.done(&["import", "a.npy", "store"]);
    assert!(case.failed(&["export", "store", "a.npy"]).contains("a.npy already exists"));
    assert_eq!(case.names(), ["a.csv", "a.npy", "store"]);
}

#[test]
fn a_command_line_that_is_not_understood_is_told_apart() {
    let case = Case::new();
    case.write("a.npy", &npy("|u1", "(2,)", &[1, 2]));
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["import", "a.npy"],
        &["import", "a.npy", "x", "--codec", "lz4"],
        &["import", "a.npy", "x", "--codec", "zstd_dict", "--dict-size", "0"],
        &["import", "a.npy", "x", "--codec", "zstd_dict", "--dict-size", "large"],
        &["import", "a.npy", "x", "--dict-size", "small"],
        &["import", "a.npy", "x", "--codec", "raw", "--level", "3"],
        &["import", "a.npy", "x", "--dtype", "f32"],
        &["info", "x", "--yaml"],
    ] {
        let output = case.run(arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(case.names(), ["a.npy"]);
    for help in [&["--help"][..], &["import", "--help"], &["--version"]] {
        assert!(case.done(help).contains("loaderx"));
    }
}

#[test]
fn what_a_killed_import_left_is_replaced_and_said() {
    let case = Case::new();
    case.write("a.npy", &npy("|u1", "(2,)", &[1, 2]));
    fs::create_dir_all(case.path("store.partial/data")).unwrap();
    case.write("store.partial/import.lock", b"");
    let output = case.run(&["import", "a.npy", "store/"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "store/\t2\t2\n"));
    let expected = "loaderx: store.partial, which an earlier import left when it was killed, was replaced\n";
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(case.names(), ["a.npy", "store"]);
}

#[test]
fn a_reader_that_is_gone_is_no_failure() {
    let case = Case::new();
    case.write("a.npy", &npy("|u1", "(2,)", &[1, 2]));
    for arguments in [&["import", "a.npy", "store"][..], &["info", "store"], &["export", "store", "b.npy"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = case.command(arguments).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let case = Case::new();
    case.write("a.npy", &npy("|u1", "(2,)", &[1, 2]));
    case.done(&["import", "a.npy", "store"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = case.command(["info", "store"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("loaderx: cannot write to standard output: "));
}

/// Every store that loaderx 0.9.17 wrote: what is shown, and each exported record.
#[test]
fn stores_of_the_python_loaderx_are_shown_and_exported() {
    let Some(folder) = shared().map(|shared| shared.join("fixtures/stores")) else { return };
    let mut stores = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension() != Some("json".as_ref()) {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let case = Case::new();
        unpack(&folder, name, case.0.path());
        let expected: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();

        let info = case.info(name);
        let keys = ["kind", "dtype", "item_shape", "codec", "records", "live_bytes", "chunk_bytes", "reclaimable"];
        let found: Vec<&str> = info.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(found.len() == keys.len() && keys.iter().all(|key| found.contains(key)), "{name}: {found:?}");
        for key in ["kind", "dtype", "item_shape", "codec", "records"] {
            assert_eq!(info[key], expected[key], "{name}: {key}");
        }
        let number = |key: &str| info[key].as_u64().unwrap();
        assert_eq!(number("live_bytes") + number("reclaimable"), number("chunk_bytes"), "{name}");
        assert!(case.done(&["info", name]).contains(&format!("records     {}\n", info["records"])));

        case.done(&["export", name, "out.npy"]);
        let (header, data) = parts(&case.path("out.npy"));
        assert!(header.contains(&format!("'{}'", expected["dtype"].as_str().unwrap_or("|u1"))), "{name}: {header}");
        let lengths: Vec<usize> = serde_json::from_value(expected["bytes"].clone()).unwrap();
        let (mut rest, mut row_bytes) = (&data[..], None);
        for (record, len) in lengths.iter().enumerate() {
            let (bytes, after) = rest.split_at(*len);
            let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(expected["sha256"][record], hash, "{name}: record {record}");
            rest = after;
        }
        assert!(rest.is_empty(), "{name}");
        if info["kind"] != "dense" {
            let (_, counts) = parts(&case.path("out.rows.npy"));
            let counts = counts.as_chunks().0.iter().map(|count| u64::from_le_bytes(*count));
            for (count, len) in counts.zip(&lengths).filter(|(count, _)| *count > 0) {
                assert_eq!(*row_bytes.get_or_insert(*len as u64 / count) * count, *len as u64, "{name}");
            }
        }
        stores += 1;
    }
    assert!(stores >= 20, "{stores} stores");
}

#[test]
fn a_damaged_store_is_verified_repaired_and_recoded() {
    let case = Case::new();
    let data: Vec<u8> = (0..200u32).flat_map(|i| [i as u8, (i / 7) as u8, 3].repeat(200)).collect();
    case.write("a.npy", &npy("|u1", "(200, 600)", &data));
    case.done(&["import", "a.npy", "store", "--codec", "raw"]);
    assert_eq!(case.done(&["verify", "store"]), "200 records: 200 verified, 0 without a checksum, 0 bad\n");
    let recoded = case.done(&["recode", "store", "dict", "--codec", "zstd_dict", "--dict-size", "2000"]);
    assert!(recoded.starts_with("dict\t200\t"), "{recoded}");
    assert_eq!(case.info("dict")["codec"], "zstd_dict");
    case.done(&["export", "dict", "b.npy"]);
    assert_eq!(fs::read(case.path("b.npy")).unwrap(), fs::read(case.path("a.npy")).unwrap());

    let chunk = case.path("store/0.zr");
    let mut bytes = fs::read(&chunk).unwrap();
    bytes[600 * 17 + 5] ^= 1;
    fs::write(&chunk, bytes).unwrap();
    let output = case.run(&["verify", "store"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    assert!(out.starts_with("record 17, chunk 0, offset 10200: expected bytes of the checksum "), "{out}");
    assert!(out.ends_with("200 records: 199 verified, 0 without a checksum, 1 bad\n"), "{out}");
    assert!(err.starts_with("loaderx: store: 1 of 200 records are bad") && err.lines().count() == 1, "{err}");
    let output = case.run(&["verify", "store", "--json"]);
    let report: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!((&report["verified"], &report["bad"][0]["record"]), (&json!(199), &json!(17)));
    assert!(case.failed(&["recode", "store", "other"]).contains("record 17"));
    let repaired = case.done(&["repair", "store", "whole"]);
    assert!(repaired.starts_with("record 17, ") && repaired.ends_with("199 records kept, 1 left out\n"), "{repaired}");
    assert_eq!(case.done(&["verify", "whole"]), "199 records: 199 verified, 0 without a checksum, 0 bad\n");
}
