//! The command line, run as a program: what it writes where, and its exit status.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use loaderx::AnyDataset;
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

    /// The same with something to read on standard input.
    fn fed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that refuses its input leaves it unread.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// All records of a store.
    fn records(&self, store: &str) -> Vec<Vec<u8>> {
        let store = AnyDataset::open(self.path(store)).unwrap();
        (0..store.len()).map(|i| store.get(i).unwrap()).collect()
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
fn several_sources_are_appended_in_order() {
    let case = Case::new();
    for (name, data) in [("p-1.npy", &[1, 2, 3, 4][..]), ("p-2.npy", &[5, 6]), ("q[1].npy", &[7, 8])] {
        case.write(name, &npy("|u1", &format!("({}, 2)", data.len() / 2), data));
    }
    let wanted: Vec<Vec<u8>> = vec![vec![1, 2], vec![3, 4], vec![5, 6], vec![7, 8]];
    assert_eq!(case.done(&["import", "p-1.npy", "p-2.npy", "q[1].npy", "a", "--codec=raw"]), "a\t4\t8\n");
    assert_eq!(case.records("a"), wanted);
    // No shell has expanded this one; what exists is no pattern.
    case.done(&["import", "p-?.npy", "q[1].npy", "b"]);
    assert_eq!(case.records("b"), wanted);
    let made: Value = serde_json::from_str(&case.done(&["import", "p-*.npy", "c", "--codec=raw", "--json"])).unwrap();
    assert_eq!(made, json!({"path": "c", "records": 3, "live_bytes": 6}));
    assert!(case.failed(&["import", "r-*.npy", "x"]).contains("r-*.npy: no file has a name like this"));

    case.write("other.npy", &npy("<i2", "(1, 2)", &[1, 2, 3, 4]));
    let error = case.failed(&["import", "p-1.npy", "other.npy", "x"]);
    assert!(error.contains("other.npy: the dtype is i16, and of p-1.npy u8"), "{error}");
    case.write("wide.npy", &npy("|u1", "(1, 3)", &[1, 2, 3]));
    let error = case.failed(&["import", "p-1.npy", "wide.npy", "x"]);
    assert!(error.contains("wide.npy: the shape of a row is [3], and of p-1.npy [2]"), "{error}");
    case.write("a.txt", b"line");
    let error = case.failed(&["import", "p-1.npy", "a.txt", "x"]);
    assert!(error.contains("a.txt: the content is records of any length, and of p-1.npy an array"), "{error}");
    assert!(!case.path("x").exists() && !case.path("x.partial").exists());
}

#[test]
fn lines_become_records() {
    let case = Case::new();
    case.write("a.txt", b"one\r\n\ntwo\rthree\nlast");
    case.write("b.log", b"four\n");
    let lines = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    case.done(&["import", "a.txt", "a"]);
    assert_eq!(case.records("a"), lines(&["one", "", "two\rthree", "last"]));
    assert_eq!(case.info("a")["dtype"], "|u1");
    assert!(case.failed(&["import", "b.log", "b"]).contains("say the format"));
    case.done(&["import", "b.log", "a.txt", "b", "--format", "text"]);
    assert_eq!(case.records("b"), lines(&["four", "one", "", "two\rthree", "last"]));

    case.write("c.jsonl", b"{\"a\": 1}\n[2]\n");
    case.done(&["import", "c.jsonl", "c"]);
    assert_eq!(case.records("c"), lines(&["{\"a\": 1}", "[2]"]));
    case.write("d.ndjson", b"1\n{\"a\": }\n");
    let error = case.failed(&["import", "c.jsonl", "d.ndjson", "d"]);
    assert!(error.contains("d.ndjson: line 2 is no JSON: expected value at column 7"), "{error}");
    case.write("e.txt", &[b'x'; 2000]);
    let error = case.failed(&["import", "e.txt", "e", "--record-limit", "1999"]);
    assert!(error.contains("e.txt: line 1, of over 1999 bytes, is not supported"), "{error}");
    assert!(!case.path("d").exists() && !case.path("e").exists());
}

#[test]
fn standard_input_is_a_source() {
    let case = Case::new();
    let output = case.fed(&["import", "-", "lines", "--format", "text"], b"one\ntwo");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("lines\t2\t6\n", ""));
    assert_eq!(case.records("lines"), [b"one", b"two"]);
    let output = case.fed(&["append", "lines", "-", "--format", "jsonl"], b"3\n4\n{\n");
    assert!(text(&output.stderr).contains("standard input: line 3 is no JSON"), "{}", text(&output.stderr));
    // What came before stays.
    let output = case.fed(&["append", "lines", "-", "--format", "jsonl"], b"[5]");
    assert_eq!(text(&output.stdout), "lines\t3\t9\n");
    for codec in ["raw", "zstd_dict"] {
        let data: Vec<u8> = (0..6000u32).flat_map(|i| [(i / 16) as u8, (i % 7) as u8]).collect();
        let output =
            case.fed(&["import", "-", codec, "--format", "npy", "--codec", codec], &npy("|u1", "(1000, 12)", &data));
        assert_eq!(text(&output.stderr), "");
        assert_eq!(case.records(codec).concat(), data);
    }
    for (arguments, reason) in [
        (&["import", "-", "x"][..], "format: it must be said for standard input: text, jsonl or npy"),
        (&["import", "-", "x", "--format", "npz"], "save it to a file first"),
        (&["import", "-", "x", "--format", "text", "--codec", "zstd_dict"], "save it to a file first"),
        (&["import", "-", "x", "--format", "text", "--resume"], "save it to a file first"),
        (&["import", "-", "a.txt", "x", "--format", "text"], "standard input is imported by itself"),
        (&["import", "-", "raw", "--format", "npy"], "raw already exists"),
    ] {
        let output = case.fed(arguments, b"one\n");
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(case.names(), ["lines", "raw", "zstd_dict"]);
}

#[test]
fn a_folder_becomes_a_store_with_names() {
    let case = Case::new();
    fs::create_dir_all(case.path("in/b")).unwrap();
    for name in ["in/c.jpg", "in/b/1.jpg", "in/a", "in/.hidden"] {
        case.write(name, name.as_bytes());
    }
    case.done(&["import", "in", "store"]);
    assert_eq!(case.records("store"), [&b"in/a"[..], b"in/b/1.jpg", b"in/c.jpg"]);
    let names = |store: &str| AnyDataset::open(case.path(store)).unwrap().metadata::<Vec<String>>("names").unwrap();
    assert_eq!(names("store").unwrap(), ["a", "b/1.jpg", "c.jpg"]);
    assert!(case.done(&["info", "store"]).contains("metadata    names\n"));
    case.done(&["import", "in/c.jpg", "in/a", "some", "--format", "bytes"]);
    assert_eq!(names("some").unwrap(), ["c.jpg", "a"]);
    case.done(&["import", "in", "bare", "--no-metadata"]);
    assert_eq!(names("bare"), None);
    case.done(&["append", "bare", "in"]);
    assert_eq!(case.records("bare").len(), 6);
    assert!(case.failed(&["import", "in", "x", "--format", "npy"]).contains("in: it is a folder"));
    assert!(case.failed(&["import", "in", "x", "--tensor", "a"]).contains("in holds no arrays"));
    fs::create_dir(case.path("empty")).unwrap();
    case.write("empty/file", b"");
    let error = case.failed(&["import", "empty", "x", "--codec", "zstd_dict"]);
    assert!(error.contains("empty/file: no dictionary can be trained: the samples hold no bytes"), "{error}");
    let long = "n".repeat(200);
    fs::create_dir(case.path("many")).unwrap();
    for i in 0..5300 {
        case.write(&format!("many/{i}{long}"), b"");
    }
    let error = case.failed(&["import", "many", "x"]);
    assert!(error.contains("the names of 5300 files: leave the source's metadata out"), "{error}");
}

#[test]
fn a_dictionary_is_trained_on_lines_and_files() {
    let case = Case::new();
    let lines: Vec<String> = (0..3000).map(|i| format!("line {i:08} of some lines that are alike")).collect();
    fs::create_dir(case.path("in")).unwrap();
    for (i, some) in lines.chunks(3).enumerate() {
        case.write(&format!("in/{i:05}"), some.concat().as_bytes());
    }
    case.write("a.txt", lines[..2000].join("\n").as_bytes());
    case.write("b.txt", lines[2000..].join("\n").as_bytes());
    case.done(&["import", "a.txt", "b.txt", "lines", "--codec", "zstd_dict", "--dict-size", "4096"]);
    assert!(case.records("lines").iter().eq(lines.iter().map(|line| line.as_bytes())));
    case.done(&["import", "in", "files", "--codec", "zstd_dict", "--dict-size", "4096"]);
    assert_eq!(case.records("files").concat(), lines.concat().into_bytes());
    for store in ["lines", "files"] {
        let live = case.info(store)["live_bytes"].as_u64().unwrap();
        assert!(live < lines.concat().len() as u64 * 3 / 4, "{store}: {live}");
    }
}

#[test]
fn records_are_appended_to_a_store_of_their_kind() {
    let case = Case::new();
    let array = npy("<i2", "(2, 2)", &[1, 0, 2, 0, 3, 0, 4, 0]);
    case.write("a.npy", &array);
    case.done(&["import", "a.npy", "store", "--codec", "raw"]);
    assert_eq!(case.done(&["append", "store", "a.npy", "a.npy"]), "store\t6\t24\n");
    assert_eq!(case.records("store").concat(), [1, 0, 2, 0, 3, 0, 4, 0].repeat(3));
    assert_eq!(case.info("store")["codec"], "raw");
    case.write("b.npy", &npy("<i2", "(1, 3)", &[0; 6]));
    case.write("c.txt", b"line");
    let error = case.failed(&["append", "store", "b.npy"]);
    assert!(error.contains("b.npy") && error.contains("item shape [3], and store holds dense"), "{error}");
    assert!(case.failed(&["append", "store", "c.txt"]).contains("records that are ragged, of dtype |u1"));
    assert!(case.failed(&["append", "none", "a.npy"]).contains("none is not a record store"));
    assert_eq!(case.records("store").len(), 6);
}

#[test]
fn what_a_safetensors_says_of_itself_is_carried() {
    let case = Case::new();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![2], &[1, 2]).unwrap();
    let said = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    case.write("a.safetensors", &safetensors::serialize([("p", view)], Some(said)).unwrap());
    case.done(&["import", "a.safetensors", "all"]);
    case.done(&["recode", "all/p", "small", "--codec", "raw"]);
    for store in ["all/p", "small"] {
        let store = AnyDataset::open(case.path(store)).unwrap();
        assert_eq!(store.metadata::<Value>("__metadata__").unwrap().unwrap(), json!({"format": "pt"}));
    }
}

/// Starts an import that takes long, and waits until it has appended something.
#[cfg(unix)]
fn slow_import(case: &Case) -> std::process::Child {
    let line = |i: u64| format!("{i} {:x} {:x}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i.pow(3));
    case.write("a.txt", (0..600_000).map(line).collect::<String>().as_bytes());
    let import = ["import", "a.txt", "store", "--level", "15"];
    let mut child = case.command(import).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !AnyDataset::open(case.path("store.partial/data")).is_ok_and(|store| !store.is_empty()) {
        assert_eq!(child.try_wait().unwrap(), None, "the import has ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child
}

#[cfg(unix)]
#[test]
fn an_import_that_is_interrupted_or_killed_is_resumed() {
    let case = Case::new();
    for signal in ["-INT", "-KILL"] {
        let child = slow_import(&case);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert!(!case.path("store").exists());
        if signal == "-INT" {
            assert_eq!((output.status.code(), error.lines().count()), (Some(130), 1), "{error}");
            assert!(
                error.contains("store.partial holds them: the same import with resume (--resume) goes on there"),
                "{error}"
            );
        }
        let other = case.failed(&["import", "a.txt", "store", "--level", "3", "--resume"]);
        assert!(other.contains("begun with the level 15, and is to be resumed with 3"), "{other}");
        let there = AnyDataset::open(case.path("store.partial/data")).unwrap().len();
        assert!((1..600_000).contains(&there), "{there}");
        let output = case.run(&["import", "a.txt", "store", "--level", "15", "--resume"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        let wanted = fs::read(case.path("a.txt")).unwrap();
        let store = AnyDataset::open(case.path("store")).unwrap();
        let records = store.gather(&(0..store.len()).collect::<Vec<u64>>()).unwrap();
        assert_eq!(store.len(), 600_000);
        let lines = wanted.split(|byte| *byte == b'\n');
        assert!(lines.take(600_000).enumerate().all(|(i, line)| records.get(i) == Some(line)));
        assert_eq!(case.names(), ["a.txt", "store"]);
        fs::remove_dir_all(case.path("store")).unwrap();
    }
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
    assert!(case.failed(&["import", "none.npy", "x"]).contains("cannot open none.npy: No such file"));
    assert!(case.failed(&["import", "none", "x"]).contains("cannot open none: No such file"));
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
fn records_are_shown_as_numpy_prints_them() {
    let case = Case::new();
    let halves: Vec<u8> = (0..6u16).flat_map(|i| (f32::from(i) / 2.0).to_le_bytes()).collect();
    case.write("a.npy", &npy("<f4", "(3, 2)", &halves));
    case.done(&["import", "a.npy", "floats"]);
    let lines = "record 1, shape [2], min 1.0, max 1.5, mean 1.250000\n[1.0 1.5]\n";
    assert_eq!(case.done(&["show", "floats", "1"]), lines);
    assert_eq!(case.done(&["show", "floats", "-2..2"]), lines);
    assert!(case.done(&["show", "floats", "--limit", "1"]).ends_with("and 2 more records: --limit shows more\n"));
    let json: Value = serde_json::from_str(&case.done(&["show", "floats", "-1", "--json"])).unwrap();
    let wanted =
        json!({"record": 2, "bytes": 8, "shape": [2], "min": 2.0, "max": 2.5, "mean": 2.25, "nan": 0, "text": null});
    assert_eq!(json, wanted);
    assert!(case.failed(&["show", "floats", "3"]).contains("floats: there is no record 3: there are 3"));

    case.write("a.txt", "caf\u{e9}\tau lait\n\u{1}\n".as_bytes());
    case.done(&["import", "a.txt", "text"]);
    let shown = case.done(&["show", "text"]);
    assert!(
        shown.starts_with("record 0, 13 bytes of text\n\"caf\u{e9}\\tau lait\"\nrecord 1, shape [1], min 1"),
        "{shown}"
    );
}

#[test]
fn images_are_shown_on_a_sheet() {
    let case = Case::new();
    let read = |name: &str| {
        let file = std::io::BufReader::new(fs::File::open(case.path(name)).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        ((info.width, info.height, info.color_type), pixels)
    };
    // Five of 2 x 3 pixels: three beside each other, with a gap of two.
    case.write("a.npy", &npy("|u1", "(5, 2, 3)", &(0..30).collect::<Vec<u8>>()));
    case.done(&["import", "a.npy", "grey"]);
    assert_eq!(case.done(&["show", "grey", "--png", "grey.png"]), "grey.png\t5 of 5 records\n");
    let (info, pixels) = read("grey.png");
    assert_eq!(info, (13, 6, png::ColorType::Grayscale));
    assert_eq!(pixels[..13], [0, 1, 2, 128, 128, 6, 7, 8, 128, 128, 12, 13, 14]);
    assert_eq!(pixels[5 * 13..5 * 13 + 8], [21, 22, 23, 128, 128, 27, 28, 29]);
    assert!(case.failed(&["show", "grey", "--png", "grey.png"]).contains("grey.png already exists"));

    // Red, green and blue planes give the pixels of interleaved ones.
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    case.write("planar.npy", &npy("<f4", "(1, 3, 1, 2)", &floats(&[0.0, 1.0, 0.2, 0.4, 0.6, 0.8])));
    case.write("packed.npy", &npy("<f4", "(1, 1, 2, 3)", &floats(&[0.0, 0.2, 0.6, 1.0, 0.4, 0.8])));
    for name in ["planar", "packed"] {
        case.done(&["import", &format!("{name}.npy"), name]);
        case.done(&["show", name, "0", "--png", &format!("{name}.png")]);
        assert_eq!(read(&format!("{name}.png")), ((2, 1, png::ColorType::Rgb), vec![0, 51, 153, 255, 102, 204]));
    }
    case.write("loud.npy", &npy("<f4", "(1, 1, 1)", &floats(&[1.5])));
    case.done(&["import", "loud.npy", "loud"]);
    assert!(
        case.failed(&["show", "loud", "--png", "x.png"])
            .contains("record 0 holds 1.5: a sheet takes floats from 0 to 1")
    );
    case.write("b.npy", &npy("|u1", "(4,)", &[1, 2, 3, 4]));
    case.done(&["import", "b.npy", "flat"]);
    assert!(case.failed(&["show", "flat", "--png", "x.png"]).contains("item shape [] are no images"));
    assert!(!case.path("x.png").exists());
}

#[test]
fn lengths_and_compression_are_counted() {
    let case = Case::new();
    let lines: Vec<String> = [0usize, 1, 5, 5, 6, 300].iter().map(|&len| "a".repeat(len)).collect();
    case.write("a.txt", (lines.join("\n") + "\n").as_bytes());
    case.done(&["import", "a.txt", "store"]);
    let shown: Value = serde_json::from_str(&case.done(&["stats", "store", "--json"])).unwrap();
    assert_eq!((&shown["records"], &shown["bytes"], &shown["longest"]), (&json!(6), &json!(317), &json!(300)));
    let class = |from, to, records| json!({"from": from, "to": to, "records": records});
    let lengths = shown["lengths"].as_array().unwrap();
    let some: Vec<&Value> = lengths.iter().filter(|class| class["records"] != 0).collect();
    assert_eq!(some, [&class(0, 1, 1), &class(1, 2, 1), &class(4, 8, 3), &class(256, 512, 1)]);
    let ratios: u64 = shown["ratios"].as_array().unwrap().iter().map(|class| class["records"].as_u64().unwrap()).sum();
    assert_eq!(ratios, 6);
    let lines = case.done(&["stats", "store"]);
    assert!(lines.contains("length in bytes: 0 to 300, mean 52.8") && lines.contains("256 - 512        #"), "{lines}");
}

#[test]
fn records_are_deleted_and_their_bytes_given_back() {
    let case = Case::new();
    case.write("a.npy", &npy("|u1", "(10, 2)", &(0..20).collect::<Vec<u8>>()));
    case.done(&["import", "a.npy", "store", "--codec", "raw"]);
    assert_eq!(case.done(&["delete", "store", "1", "-2..", "1..3"]), "4 records deleted, 6 left\n");
    // The last of those that were left have taken the places of 1 and 2.
    let firsts: Vec<u8> = case.records("store").iter().map(|record| record[0] / 2).collect();
    let mut model: Vec<u8> = (0..10).collect();
    for hole in [9, 8, 2, 1] {
        model.swap_remove(hole);
    }
    assert_eq!(firsts, model);
    assert!(case.failed(&["delete", "store", "6"]).contains("there is no record 6: there are 6"));
    let json: Value = serde_json::from_str(&case.done(&["delete", "--json", "store", "-1"])).unwrap();
    assert_eq!(json, json!({"deleted": 1, "records": 5}));
    assert_eq!(case.done(&["compact", "store"]), "10 bytes given back, 10 left\n");
    assert_eq!(case.info("store")["reclaimable"], 0);
    assert_eq!(case.records("store").len(), 5);
    fs::create_dir(case.path("in")).unwrap();
    case.write("in/a", b"a");
    case.done(&["import", "in", "named"]);
    let output = case.run(&["delete", "named", "0"]);
    assert_eq!(text(&output.stdout), "1 records deleted, 0 left\n");
    assert!(text(&output.stderr).contains("no longer says which record has which name"));
}

#[test]
fn a_dictionary_is_trained_written_and_used() {
    let case = Case::new();
    let lines: String = (0..3000).map(|i| format!("{i} is line {:08} of some lines that are alike\n", i * i)).collect();
    case.write("a.txt", lines.as_bytes());
    case.done(&["import", "a.txt", "store"]);
    let trained = case.done(&["train-dict", "store", "--out", "a.dict", "--dict-size", "4096", "--level", "3"]);
    assert!(trained.starts_with("a.dict\t4096 bytes\n1500 other records of "), "{trained}");
    assert!(case.failed(&["train-dict", "store", "--out", "a.dict"]).contains("a.dict already exists"));
    let json = case.done(&["train-dict", "store", "--out", "b.dict", "--dict-size", "4096", "--level", "3", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let ratio = |which: &str| json[which]["ratio"].as_f64().unwrap();
    assert!(json["with"]["dictionary"] == 4096 && ratio("with") > ratio("without"), "{json}");
    case.done(&["recode", "store", "recoded", "--codec", "zstd_dict", "--dict", "a.dict"]);
    case.done(&["import", "a.txt", "imported", "--codec", "zstd_dict", "--dict", "a.dict"]);
    let output = case
        .fed(&["import", "-", "fed", "--format", "text", "--codec", "zstd_dict", "--dict", "a.dict"], lines.as_bytes());
    assert_eq!(text(&output.stderr), "");
    for store in ["recoded", "imported", "fed"] {
        assert_eq!(fs::read(case.path(store).join("dict.zr")).unwrap(), fs::read(case.path("a.dict")).unwrap());
        assert_eq!(case.records(store), case.records("store"));
    }
    case.write("empty", b"");
    assert!(
        case.failed(&["recode", "store", "x", "--codec=zstd_dict", "--dict", "empty"]).contains("1 to 1048576 bytes")
    );
    assert_eq!(case.run(&["recode", "store", "x", "--dict", "a.dict"]).status.code(), Some(2));
    case.write("b.txt", b"one\n");
    case.done(&["import", "b.txt", "one"]);
    assert!(case.failed(&["train-dict", "one", "--try"]).contains("too few records"));
    assert!(!case.names().iter().any(|name| name.starts_with(".loaderx")), "{:?}", case.names());
}

#[test]
fn codecs_are_tried_and_rates_are_measured() {
    let case = Case::new();
    let lines: String = (0..600).map(|i| format!("{i} is a line that is like any other of these lines\n")).collect();
    case.write("a.txt", lines.as_bytes());
    case.done(&["import", "a.txt", "store"]);
    let trials: Value = serde_json::from_str(&case.done(&["train-dict", "store", "--try", "--json"])).unwrap();
    let trials = trials.as_array().unwrap();
    assert!(trials.len() >= 5 && trials[0]["codec"] == "raw" && trials[0]["ratio"] == 1.0, "{trials:?}");
    assert!(trials.iter().all(|trial| trial["gather_records_per_second"].as_f64().unwrap() > 0.0), "{trials:?}");
    let rates: Value =
        serde_json::from_str(&case.done(&["bench", "store", "--batch", "32", "--workers", "1", "--json"])).unwrap();
    for rate in ["copy", "gather", "loader"] {
        assert!(rates[rate]["bytes_per_second"].as_f64().unwrap() > 0.0, "{rates}");
    }
    assert!(case.done(&["bench", "store"]).starts_with("600 records, batches of 256\ncopy "));
    case.write("empty.txt", b"");
    case.done(&["import", "empty.txt", "empty"]);
    assert!(case.failed(&["bench", "empty"]).contains("no records to measure"));
    assert_eq!(case.names(), ["a.txt", "empty", "empty.txt", "store"]);
}

#[test]
fn stores_are_exported_into_archives() {
    let case = Case::new();
    let halves: Vec<u8> = (0..6u16).flat_map(|i| (f32::from(i) / 2.0).to_le_bytes()).collect();
    case.write("a.npy", &npy("<f4", "(3, 2)", &halves));
    case.write("b.txt", b"one\n\nthree\n");
    case.done(&["import", "a.npy", "in/halves"]);
    case.done(&["import", "b.txt", "in/words"]);
    let lines = "a.npz/halves\t[3, 2]\na.npz/words\t[8]\na.npz/words.rows\t[3]\n";
    assert_eq!(case.done(&["export", "in/halves", "in/words", "a.npz"]), lines);
    case.done(&["import", "a.npz", "back"]);
    assert_eq!(case.records("back/halves"), case.records("in/halves"));
    assert_eq!(case.records("back/words").concat(), b"onethree");
    let counts: Vec<u64> =
        case.records("back/words.rows").iter().map(|count| u64::from_le_bytes(count[..].try_into().unwrap())).collect();
    assert_eq!(counts, [3, 0, 5]);
    let lines = "a.safetensors/halves\t[3, 2]\na.safetensors/words\t[8]\na.safetensors/words.rows\t[3]\n";
    assert_eq!(case.done(&["export", "in/halves", "in/words", "a.safetensors"]), lines);
    case.done(&["import", "a.safetensors", "again"]);
    for name in ["halves", "words", "words.rows"] {
        assert_eq!(case.records(&format!("again/{name}")), case.records(&format!("back/{name}")), "{name}");
    }
    let made: Value = serde_json::from_str(&case.done(&["export", "in/words", "w.npy", "--json"])).unwrap();
    assert_eq!(made, json!([{"name": "w.npy", "shape": [8]}, {"name": "w.rows.npy", "shape": [3]}]));
    assert!(case.failed(&["export", "in/halves", "in/words", "x.npy"]).contains("a .npy holds one array"));
    assert!(case.failed(&["export", "in/halves", "back/halves", "x.npz"]).contains("two stores are named \"halves\""));
    assert!(case.failed(&["export", "in/halves", "a.npz"]).contains("a.npz already exists"));
    assert!(!case.path("x.npz").exists() && !case.path("x.npy").exists());
}

#[test]
fn metadata_goes_out_and_comes_back() {
    let case = Case::new();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0, 0, 0, 0]).unwrap();
    let said = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    case.write("a.safetensors", &safetensors::serialize([("p", view)], Some(said)).unwrap());
    case.done(&["import", "a.safetensors", "all"]);
    fs::create_dir(case.path("in")).unwrap();
    case.write("in/x", b"x");
    case.done(&["import", "in", "files"]);
    case.done(&["export", "all/p", "files", "b.safetensors"]);
    let bytes = fs::read(case.path("b.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let said = header.metadata().clone().unwrap();
    assert_eq!((&said["format"][..], &said["files.names"][..], said.len()), ("pt", "[\"x\"]", 2));
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), 3);
}

#[test]
fn every_shell_is_told_of_every_command() {
    let case = Case::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = case.done(&["completions", shell]);
        for command in ["import", "append", "show", "stats", "delete", "compact", "train-dict", "bench"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
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
    let expected = "loaderx: store.partial, which an earlier import left when it was stopped, was replaced: \
                    --resume would have gone on there\n";
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
    let output = case.done(&["repair", "store", "again", "--json"]);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&report["kept"], &report["left_out"][0]["record"]), (&json!(199), &json!(17)));
    assert!(repaired.starts_with("record 17, ") && repaired.ends_with("199 records kept, 1 left out\n"), "{repaired}");
    assert_eq!(case.done(&["verify", "whole"]), "199 records: 199 verified, 0 without a checksum, 0 bad\n");
}
