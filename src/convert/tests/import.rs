//! Imports, held to what the stores then hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::{METHODS, counted, npy, npz};
use crate::data::{AnyDataset, DType};
use crate::error::{Error, Result};
use crate::{Codec, DictSize, Import, Imported, Kind, Progress, Records};

/// A directory with one source file in it.
struct Case {
    directory: tempfile::TempDir,
    source: PathBuf,
    destination: PathBuf,
}

impl Case {
    fn new(name: &str, bytes: &[u8]) -> Case {
        let directory = tempfile::tempdir().unwrap();
        let (source, destination) = (directory.path().join(name), directory.path().join("store"));
        fs::write(&source, bytes).unwrap();
        Case { directory, source, destination }
    }

    fn import(&self, import: Import<'_>) -> Result<Imported> {
        import.path(&self.source, &self.destination)
    }

    /// The import's error, after which nothing but the source may be there.
    fn refused(&self, import: Import<'_>) -> String {
        let error = self.import(import).unwrap_err().to_string();
        let left: Vec<_> = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&self.source), "{error}");
        error
    }
}

/// Kind, dtype and item shape of a store.
type Schema = (Kind, String, Vec<usize>);

/// What a store holds.
fn stored(path: &Path) -> (Schema, Records) {
    let store = AnyDataset::open(path).unwrap();
    let records = store.gather(&(0..store.len()).collect::<Vec<u64>>()).unwrap();
    (schema(store.kind().unwrap(), store.dtype().unwrap(), store.item_shape().unwrap()), records)
}

fn schema(kind: Kind, dtype: &str, item_shape: &[usize]) -> Schema {
    (kind, dtype.into(), item_shape.to_vec())
}

fn safetensors(tensors: &[(&str, &[usize], &[u8])]) -> Vec<u8> {
    let view = |shape: &[usize], data| {
        safetensors::tensor::TensorView::new(safetensors::Dtype::U8, shape.to_vec(), data).unwrap()
    };
    safetensors::serialize(tensors.iter().map(|(name, shape, data)| (*name, view(shape, data))), None).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_file_and_codec_gives_the_records_of_the_model(
        descr in prop::sample::select(vec!["|u1", "<i2", ">f4", "<f8"]),
        fortran: bool,
        codec in prop::sample::select(vec![Codec::Raw, Codec::Zstd, Codec::ZstdDict]),
        rows in 1000u64..3000,
        item in prop::collection::vec(1u64..5, 1..3),
        packed in 0usize..3,
    ) {
        let (bytes, expected) = counted(descr, fortran, &[&[rows], &item[..]].concat());
        let (case, path) = match packed {
            0 => (Case::new("a.npy", &bytes), ""),
            packed => (Case::new("a.npz", &npz(&[("in/a.npy", &bytes)], METHODS[packed - 1])), "in/a"),
        };
        let mut last = None;
        let import = Import::new().codec(codec).dict_size(DictSize::Bytes(4096)).progress(|progress| last = Some(progress));
        let imported = case.import(import).unwrap();
        let path = if path.is_empty() { case.destination.clone() } else { case.destination.join(path) };
        let (found, records) = stored(&path);
        let len = expected.len() as u64;
        prop_assert_eq!((imported.rows, imported.bytes, imported.replaced_partial), (rows, len, false));
        let bytes = (len, Some(len));
        prop_assert_eq!(last, Some(Progress { rows, rows_total: Some(rows), bytes: len, source_bytes: bytes.0, source_bytes_total: bytes.1 }));
        prop_assert_eq!(&imported.stores, &[path]);
        prop_assert_eq!(found, schema(Kind::Dense, &descr.replace('>', "<"), &item.iter().map(|&dim| dim as usize).collect::<Vec<_>>()));
        prop_assert_eq!(records.offsets, (0..=rows).map(|row| row * len / rows).collect::<Vec<u64>>());
        prop_assert_eq!(records.bytes, expected);
        prop_assert_eq!(fs::read_dir(case.directory.path()).unwrap().count(), 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn several_files_stopped_anywhere_and_resumed_give_the_records_of_all_of_them(
        parts in prop::collection::vec((400u64..900, any::<bool>()), 1..5),
        codec in prop::sample::select(vec![Codec::Raw, Codec::Zstd, Codec::ZstdDict]),
        stop_after in 0usize..6,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let destination = directory.path().join("store");
        let (mut paths, mut expected) = (Vec::new(), Vec::new());
        for (i, (rows, fortran)) in parts.into_iter().enumerate() {
            let (bytes, part) = counted(">i2", fortran, &[rows, 3, 2]);
            expected.extend(part);
            paths.push(directory.path().join(format!("{i}.npy")));
            fs::write(&paths[i], bytes).unwrap();
        }
        let (stop, mut blocks) = (AtomicBool::new(false), 0);
        let import = || Import::new().codec(codec).dict_size(DictSize::Bytes(1024)).level(1);
        let first = import().stop(&stop).progress(|_| {
            stop.store(blocks >= stop_after, Ordering::Relaxed);
            blocks += 1;
        });
        let done = match first.paths(&paths, &destination) {
            Err(Error::Interrupted { records, .. }) => {
                prop_assert!(!destination.exists() && records > 0);
                import().resume(true).paths(&paths, &destination).unwrap()
            }
            done => done.unwrap(),
        };
        prop_assert_eq!(done.rows, expected.len() as u64 / 12);
        prop_assert_eq!(done.bytes, expected.len() as u64);
        prop_assert_eq!(stored(&destination).1.bytes, expected);
        prop_assert_eq!(fs::read_dir(directory.path()).unwrap().count(), paths.len() + 1);
    }

    #[test]
    fn archives_are_appended_by_the_names_of_their_arrays(
        parts in prop::collection::vec((1u64..300, any::<bool>(), 0usize..2), 1..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let destination = directory.path().join("store");
        let (mut paths, mut wanted) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (i, (rows, fortran, method)) in parts.into_iter().enumerate() {
            let ((a, a_rows), (b, b_rows)) = (counted("<i2", fortran, &[rows, 3]), counted("<f8", fortran, &[rows + 1]));
            wanted[0].extend(a_rows);
            wanted[1].extend(b_rows);
            let members = [("a.npy", &a[..]), ("in/b.npy", &b)];
            // Their order in an archive does not matter.
            let members = if fortran { [members[1], members[0]] } else { members };
            paths.push(directory.path().join(format!("{i}.npz")));
            fs::write(&paths[i], npz(&members, METHODS[method])).unwrap();
        }
        Import::new().paths(&paths, &destination).unwrap();
        prop_assert_eq!(stored(&destination.join("a")).1.bytes, &wanted[0][..]);
        prop_assert_eq!(stored(&destination.join("in/b")).1.bytes, &wanted[1][..]);
    }
}

#[test]
fn an_existing_destination_is_an_error_and_stays() {
    let case = Case::new("a.npy", &npy("|u1", false, &[2], &[1, 2]));
    fs::write(&case.destination, "mine").unwrap();
    assert!(matches!(case.import(Import::new()), Err(Error::Exists { path }) if path == case.destination));
    assert_eq!(fs::read(&case.destination).unwrap(), b"mine");
}

#[test]
fn what_a_killed_import_left_is_replaced_and_reported() {
    let case = Case::new("a.npy", &npy("|u1", false, &[2], &[1, 2]));
    let partial = case.directory.path().join("store.partial");
    fs::create_dir_all(partial.join("data/old")).unwrap();
    fs::write(partial.join("import.lock"), "").unwrap();
    assert!(case.import(Import::new()).unwrap().replaced_partial);
    assert_eq!(stored(&case.destination).1.bytes, [1, 2]);
    assert!(!case.destination.join("old").exists());
}

#[test]
fn an_import_that_fails_half_way_leaves_nothing() {
    let mut data = vec![1; 20 << 20];
    data[19 << 20] = 2;
    let case = Case::new("a.npy", &npy("|b1", false, &[20 << 10, 1 << 10], &data));
    let mut rows = 0;
    let error = case.refused(Import::new().progress(|progress| rows = progress.rows));
    assert!(error.contains("row 19456 holds a bool of 2"), "{error}");
    assert_eq!(rows, 16 << 10);
}

#[test]
fn names_that_lead_out_of_the_destination_are_refused() {
    let array = npy("|u1", false, &[1], &[7]);
    for name in ["../x", "/x", "a/../../x", "./x", "a//x", "", "a/", "..", "a\\..\\x", "a\0x"] {
        let archives = METHODS.map(|method| Case::new("a.npz", &npz(&[(&format!("{name}.npy"), &array)], method)));
        let tensors = Case::new("a.safetensors", &safetensors(&[(name, &[1], &[7])]));
        for case in archives.iter().chain([&tensors]) {
            let error = case.refused(Import::new());
            assert!(error.contains("the name"), "{name:?}: {error}");
        }
    }
}

#[test]
fn a_store_is_never_put_inside_of_another() {
    let case = Case::new("a.safetensors", &safetensors(&[("b", &[1], &[1]), ("b/c", &[1], &[2]), ("b-", &[1], &[3])]));
    assert!(case.refused(Import::new()).contains("inside of it"));
    case.import(Import::new().tensors(["b/c", "b-"])).unwrap();
    assert_eq!(stored(&case.destination.join("b/c")).1.bytes, [2]);
    assert_eq!(stored(&case.destination.join("b-")).1.bytes, [3]);
}

#[test]
fn only_the_named_tables_are_looked_at() {
    let (good, bad) = (npy("|u1", false, &[2], &[1, 2]), npy("<c8", false, &[0], &[]));
    let bytes = npz(&[("bad.npy", &bad), ("good.npy", &good), ("notes.txt", b"")], METHODS[0]);
    let case = Case::new("a.npz", &bytes);
    assert!(case.refused(Import::new()).contains("a.npz/bad: dtype \"<c8\""));
    assert!(case.refused(Import::new().tensors(["good", "gone"])).contains("no \"gone\"; it has [\"bad\", \"good\""));
    assert_eq!(case.import(Import::new().tensors(["good.npy"])).unwrap().rows, 2);
    assert_eq!(stored(&case.destination.join("good")).1.bytes, [1, 2]);
}

#[test]
fn a_file_without_arrays_is_refused() {
    for case in [Case::new("a.npz", &npz(&[], METHODS[0])), Case::new("a.safetensors", &safetensors(&[]))] {
        assert!(case.refused(Import::new()).contains("nothing to import"));
    }
    assert!(Case::new("a.csv", b"1,2").refused(Import::new()).contains(".npy, .npz and .safetensors"));
}

#[test]
fn bfloat16_is_taken_at_the_callers_word_alone() {
    let case = Case::new("a.npy", &npy("<V2", false, &[2], &[1, 2, 3, 4]));
    assert!(case.refused(Import::new()).contains("dtype bf16"));
    assert!(case.refused(Import::new().dtype(DType::F16)).contains("only bf16"));
    case.import(Import::new().dtype(DType::BF16)).unwrap();
    assert_eq!(stored(&case.destination).0, schema(Kind::Dense, "<V2", &[]));
    let case = Case::new("a.npy", &npy("<f2", false, &[2], &[1, 2, 3, 4]));
    assert!(case.refused(Import::new().dtype(DType::BF16)).contains("dtype is f16, but bf16"));
}

#[test]
fn what_is_over_a_limit_is_refused_before_anything_is_made() {
    let case = Case::new("a.npy", &npy("|u1", false, &[(1 << 24) + 1, 0], &[]));
    assert!(case.refused(Import::new()).contains("at most 16777216 records"));
    let case = Case::new("a.npy", &npy("|u1", false, &[1, (1 << 20) + 1], &vec![7; (1 << 20) + 1]));
    assert!(case.refused(Import::new()).contains("raise it to 1048577"));
    case.import(Import::new().record_limit((1 << 20) + 1)).unwrap();
    assert_eq!(stored(&case.destination).1.bytes.len(), (1 << 20) + 1);
    let case = Case::new("a.npy", &npy("|u1", false, &[0, 1 << 32], &[]));
    assert!(case.refused(Import::new()).contains("no store takes"));
}

#[test]
fn rows_of_no_bytes_are_records() {
    let case = Case::new("a.npy", &npy("<f4", false, &[3, 0], &[]));
    assert_eq!(case.import(Import::new()).unwrap().rows, 3);
    assert_eq!(stored(&case.destination).1.offsets, [0; 4]);
    let case = Case::new("a.npy", &npy("<f4", true, &[0, 3], &[]));
    assert_eq!(case.import(Import::new().codec(Codec::ZstdDict)).unwrap().rows, 0);
    assert_eq!(
        stored(&case.destination),
        (schema(Kind::Dense, "<f4", &[3]), Records { bytes: vec![], offsets: vec![0] })
    );
}

#[test]
fn an_iterator_gives_a_ragged_store() {
    let case = Case::new("none", b"");
    let records = ["one", "", "three"];
    let mut total = None;
    let import = Import::new().progress(|progress| total = progress.rows_total);
    assert_eq!(import.records(records, &case.destination).unwrap().bytes, 8);
    let expected = Records { bytes: b"onethree".to_vec(), offsets: vec![0, 3, 3, 8] };
    assert_eq!(stored(&case.destination), (schema(Kind::Ragged, "|u1", &[]), expected));
    assert_eq!(total, Some(3));
}

#[test]
fn an_iterator_needs_samples_for_a_dictionary() {
    let case = Case::new("none", b"");
    let records: Vec<String> = (0..2000).map(|i| format!("a line like any other, number {i} of 2000")).collect();
    let import = || Import::new().codec(Codec::ZstdDict).dict_size(DictSize::Bytes(2048));
    let error = import().records(&records, &case.destination).unwrap_err().to_string();
    assert!(error.contains("give samples"), "{error}");
    import().samples(&records).records(&records, &case.destination).unwrap();
    assert_eq!(stored(&case.destination).1.bytes, records.concat().into_bytes());
}

#[test]
fn a_record_that_is_not_a_number_of_rows_is_refused() {
    let case = Case::new("none", b"");
    let ragged = |records: [&[i16]; 2]| Import::new().ragged_records::<i16>([2], records, &case.destination);
    let error = ragged([&[1, 2, 3, 4], &[1]]).unwrap_err().to_string();
    assert!(error.contains("1 values of record 1 are no whole number of rows of shape [2]"), "{error}");
    assert!(!case.destination.exists());
    ragged([&[1, -2, 3, 4], &[]]).unwrap();
    let expected = Records { bytes: vec![1, 0, 254, 255, 3, 0, 4, 0], offsets: vec![0, 8, 8] };
    assert_eq!(stored(&case.destination), (schema(Kind::Ragged, "<i2", &[2]), expected));
}

#[test]
fn a_record_of_another_shape_is_refused_in_a_dense_store() {
    let case = Case::new("none", b"");
    let dense = |records: [&[u16]; 2]| Import::new().dense_records::<u16>([1, 2], records, &case.destination);
    for wrong in [&[][..], &[1], &[1, 2, 3, 4]] {
        let error = dense([&[1, 2], wrong]).unwrap_err().to_string();
        assert!(error.contains(&format!("record 1 has {} values, one of shape [1, 2] has 2", wrong.len())), "{error}");
        assert!(!case.destination.exists());
    }
    dense([&[1, 2], &[3, 4]]).unwrap();
    let expected = Records { bytes: vec![1, 0, 2, 0, 3, 0, 4, 0], offsets: vec![0, 4, 8] };
    assert_eq!(stored(&case.destination), (schema(Kind::Dense, "<u2", &[1, 2]), expected));
}

#[test]
fn shapes_that_no_store_has_are_refused_before_anything_is_made() {
    let case = Case::new("none", b"");
    let left = || fs::read_dir(case.directory.path()).unwrap().count();
    let ragged = Import::new().ragged_records::<u8>([0], [[0u8; 0]], &case.destination).unwrap_err().to_string();
    assert!(ragged.contains("rows of no bytes"), "{ragged}");
    let dense = Import::new().dense_records::<f64>([1 << 18], [[0.0; 0]], &case.destination).unwrap_err().to_string();
    assert!(dense.contains("over the record limit of 1048576"), "{dense}");
    assert_eq!(left(), 1);
    let case = Case::new("a.npy", &npy("|u1", false, &[1, 0, 1 << 33], &[]));
    let error = case.refused(Import::new());
    assert!(error.contains("a.npy: item shape"), "{error}");
}

#[test]
fn a_record_over_the_limit_is_named_by_its_place_among_all() {
    let case = Case::new("none", b"");
    let records = [[7u8; 10].as_slice(), &[7; 11]];
    let error = Import::new().record_limit(10).records(records, &case.destination).unwrap_err().to_string();
    assert!(error.contains("record 1 has 11 bytes, the record limit is 10"), "{error}");
    Import::new().record_limit((1 << 20) + 9).records([vec![7; (1 << 20) + 9]], &case.destination).unwrap();
    assert_eq!(stored(&case.destination).1.bytes.len(), (1 << 20) + 9);
}

#[test]
fn metadata_is_kept_in_every_store_that_is_made() {
    let array = npy("|u1", false, &[2], &[1, 2]);
    let case = Case::new("a.npz", &npz(&[("a.npy", &array), ("b/c.npy", &array)], METHODS[1]));
    case.import(Import::new().metadata("classes", &["cat", "dog"]).metadata("year", &1998)).unwrap();
    for name in ["a", "b/c"] {
        let store = AnyDataset::open(case.destination.join(name)).unwrap();
        assert_eq!(store.metadata_keys().collect::<Vec<_>>(), ["classes", "year"]);
        assert_eq!(store.metadata::<Vec<String>>("classes").unwrap().unwrap(), ["cat", "dog"]);
        assert_eq!(store.metadata::<u16>("year").unwrap(), Some(1998));
    }
    let case = Case::new("a.npy", &array);
    assert!(case.refused(Import::new().metadata("dtype", &1)).contains("key \"dtype\""));
}

#[test]
fn names_are_for_files_that_have_them() {
    let case = Case::new("a.npy", &npy("|u1", false, &[1], &[7]));
    assert!(case.refused(Import::new().tensors(["x"])).contains("one array, without a name"));
}

#[test]
fn a_dictionary_that_cannot_be_trained_is_an_error_that_names_the_source() {
    let case = Case::new("a.npy", &npy("|u1", false, &[2, 1], &[1, 2]));
    let error = case.refused(Import::new().codec(Codec::ZstdDict));
    assert!(error.contains("a.npy: no dictionary") && error.contains("choose the codec zstd"), "{error}");
}

#[test]
fn an_import_that_is_alive_is_not_disturbed() {
    let case = Case::new("a.npy", &npy("|u1", false, &[2], &[1, 2]));
    let mut second = None;
    let import = Import::new().progress(|_| second = Some(case.import(Import::new())));
    assert!(!case.import(import).unwrap().replaced_partial);
    assert!(matches!(second, Some(Err(Error::Locked { .. }))), "{second:?}");
    assert_eq!(stored(&case.destination).1.bytes, [1, 2]);
}

/// Anonymous memory of this process in KiB.
#[cfg(target_os = "linux")]
fn anonymous_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Names the directory for a test that runs in a process of its own.
const CHILD: &str = "LOADERX_TEST_DIRECTORY";

/// Runs one test in a process of its own.
fn run_alone(name: &str, directory: &Path) -> std::process::ExitStatus {
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    test.args([&format!("convert::tests::import::{name}"), "--exact", "--nocapture"]).env(CHILD, directory);
    let output = test.output().unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status
}

#[cfg(unix)]
#[test]
fn an_import_that_was_killed_can_be_run_again() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let path = |name: &str| Path::new(&directory).join(name);
        let _ = Import::new().progress(|_| std::process::abort()).npy(path("a.npy"), path("store"));
        return;
    }
    let case = Case::new("a.npy", &npy("|u1", false, &[20 << 10, 1 << 10], &vec![7; 20 << 20]));
    let partial = case.directory.path().join("store.partial");
    let status = run_alone("an_import_that_was_killed_can_be_run_again", case.directory.path());
    assert!(status.code().is_none(), "the process was not killed: {status}");
    assert!(partial.exists() && !case.destination.exists());
    let imported = case.import(Import::new()).unwrap();
    assert_eq!((imported.rows, imported.replaced_partial), (20 << 10, true));
    assert!(stored(&case.destination).1.bytes == vec![7; 20 << 20]);
    assert!(!partial.exists());
}

/// A sparse array of 2 GiB with the codec raw, and less where compression takes longer: enough for several blocks, and
/// for as many samples as a dictionary is trained on. In a process of its own, where no other test takes memory.
#[cfg(target_os = "linux")]
#[test]
fn memory_stays_bounded_while_two_gigabytes_are_imported() {
    if std::env::var_os(CHILD).is_none() {
        let status = run_alone("memory_stays_bounded_while_two_gigabytes_are_imported", Path::new("."));
        assert!(status.success(), "{status}");
        return;
    }
    // Dictionaries are not trained on zeros alone.
    let words: Vec<u8> = (0..1u32 << 13).flat_map(|i| format!("{i} is no {} ", i % 977).into_bytes()).collect();
    let text: Vec<u8> = words.iter().copied().cycle().take(72 << 20).collect();
    for (codec, fortran, shape, data) in [
        (Codec::Raw, false, [2048, 1 << 20], &[][..]),
        (Codec::Zstd, true, [1 << 15, 1 << 12], &[]),
        (Codec::ZstdDict, false, [72 << 4, 1 << 16], &text),
    ] {
        let case = Case::new("a.npy", &npy("|u1", fortran, &shape, data));
        let file = fs::File::options().write(true).open(&case.source).unwrap();
        let header = file.metadata().unwrap().len() - data.len() as u64;
        file.set_len(header + shape[0] * shape[1]).unwrap();
        let (start, done) = (anonymous_memory(), AtomicBool::new(false));
        let peak = std::thread::scope(|scope| {
            let peak = scope.spawn(|| {
                let mut peak = 0;
                while !done.load(Ordering::Relaxed) {
                    peak = peak.max(anonymous_memory());
                    std::thread::sleep(Duration::from_millis(1));
                }
                peak
            });
            let imported = case.import(Import::new().codec(codec).level(1));
            done.store(true, Ordering::Relaxed);
            imported.unwrap();
            peak.join().unwrap()
        });
        let grown = peak.saturating_sub(start) >> 10;
        println!("{codec:?}, {shape:?}, fortran {fortran}: {grown} MiB");
        assert!(grown <= 128, "{grown} MiB");
    }
}
