//! The Python loaderx, the reference implementation of the format, reads and writes what this crate wrote, and the
//! other way round.
//!
//! LOADERX_PYTHON names an interpreter with the packages of peers/requirements.txt in the shared folder.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use half::{bf16, f16};
use loaderx::{
    AnyDataset, Codec, DType, DenseDataset, DictSize, Element, Import, RaggedDataset, ReadMode, Recode, Records, Shape,
    StoreOptions, export_npy,
};
use tempfile::TempDir;

use crate::{shared, unpack};

const CODECS: [Codec; 3] = [Codec::Raw, Codec::Zstd, Codec::ZstdDict];

/// The reference implementation, and room for stores.
struct Reference {
    python: PathBuf,
    shared: PathBuf,
    scratch: TempDir,
}

impl Reference {
    /// `None` where there is none, which is said.
    fn find() -> Option<Reference> {
        let shared = shared()?;
        let Some(python) = std::env::var_os("LOADERX_PYTHON").map(PathBuf::from) else {
            println!("skipped: LOADERX_PYTHON is not set");
            return None;
        };
        Some(Reference { python, shared, scratch: tempfile::tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn run(&self, script: &Path, arguments: &[&OsStr]) {
        let output = Command::new(&self.python).arg(script).args(arguments).output().expect("LOADERX_PYTHON runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {} {said}", script.display(), output.status);
    }

    fn own(&self, script: &str, arguments: &[&OsStr]) {
        self.run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop").join(script), arguments);
    }

    /// Exports a store; the reference must find the same records in it, and change a copy.
    fn check(&self, store: &Path) {
        let out = store.with_extension("npy");
        let exported = export_npy(store, &out).unwrap();
        let mut arguments = vec![store.as_os_str(), out.as_os_str()];
        if let Some(rows) = &exported.row_counts {
            arguments.extend(["--rows".as_ref(), rows.as_os_str()]);
        }
        self.run(&self.shared.join("peers/check_store.py"), &arguments);
        exported.row_counts.iter().chain([&out]).for_each(|file| fs::remove_file(file).unwrap());
    }

    /// Changes a store by the reference, and gives the records that it then reads.
    fn change(&self, store: &Path, actions: &[&str]) -> Records {
        let held = self.path("held");
        let mut arguments = vec![store.as_os_str(), held.as_os_str()];
        arguments.extend(actions.iter().map(OsStr::new));
        self.own("change.py", &arguments);
        let held = fs::read(held).unwrap();
        let (count, rest) = held.split_first_chunk().unwrap();
        let (lengths, bytes) = rest.split_at(8 * u64::from_le_bytes(*count) as usize);
        let mut offsets = vec![0];
        for length in lengths.as_chunks().0 {
            offsets.push(offsets[offsets.len() - 1] + u64::from_le_bytes(*length));
        }
        Records { bytes: bytes.to_vec(), offsets }
    }
}

/// The records that this crate reads.
fn read(store: &Path) -> Records {
    let store = AnyDataset::open(store).unwrap();
    store.gather(&(0..store.len()).collect::<Vec<_>>()).unwrap()
}

fn write_dense<T: Element, S: Shape>(path: &Path, codec: Codec, item_shape: S, values: &[T]) {
    let options = DenseDataset::<T, S>::options().codec(codec);
    let options = options.metadata("classes", &["cat", "dog"]).metadata("mean", &0.25);
    let dataset = options.create(path, item_shape).unwrap();
    if codec == Codec::ZstdDict {
        dataset.train_dict(values, DictSize::Small).unwrap();
    }
    let half = values.len() / dataset.item_len() / 2 * dataset.item_len();
    dataset.append(&values[..half]).unwrap();
    dataset.append(&values[half..]).unwrap();
    dataset.close().unwrap();
}

fn write_ragged<T: Element, S: Shape>(path: &Path, codec: Codec, item_shape: S, records: &[Vec<T>]) {
    let options = RaggedDataset::<T, S>::options().codec(codec).record_limit(4 << 20);
    let dataset = options.metadata("classes", &["cat", "dog"]).create(path, item_shape).unwrap();
    if codec == Codec::ZstdDict {
        dataset.train_dict(records, DictSize::Small).unwrap();
    }
    dataset.append(&records[..records.len() / 3]).unwrap();
    dataset.append(&records[records.len() / 3..]).unwrap();
    dataset.close().unwrap();
}

/// Values with something to compress in them.
fn values<T>(count: usize, value: impl Fn(u64) -> T) -> Vec<T> {
    (0..count as u64).map(|i| value(i * i / 7 % 251 * (i / 50 % 3))).collect()
}

/// Records of rows of `item_len` values, of 0 to 40 rows.
fn rows<T>(count: usize, item_len: usize, value: impl Fn(u64) -> T + Copy) -> Vec<Vec<T>> {
    (0..count).map(|i| values((i * i + 3) % 41 * item_len, value)).collect()
}

#[test]
fn reference_reads_and_writes_dense_stores_of_each_codec() {
    let Some(reference) = Reference::find() else { return };
    for codec in CODECS {
        let images = reference.path(&format!("images_{}", codec.name()));
        write_dense(&images, codec, [28, 28], &values(400 * 784, |i| i as u8));
        reference.check(&images);
        let volumes = reference.path(&format!("volumes_{}", codec.name()));
        write_dense(&volumes, codec, [4, 5, 6], &values(300 * 120, |i| i as f32 / 8.0));
        reference.check(&volumes);
    }
}

#[test]
fn reference_reads_and_writes_ragged_stores_of_each_codec() {
    let Some(reference) = Reference::find() else { return };
    for codec in CODECS {
        let tokens = reference.path(&format!("tokens_{}", codec.name()));
        write_ragged(&tokens, codec, (), &rows(600, 1, |i| i as i32));
        reference.check(&tokens);
        let points = reference.path(&format!("points_{}", codec.name()));
        write_ragged(&points, codec, [3], &rows(500, 3, |i| i as f64 / 4.0));
        reference.check(&points);
    }
}

#[test]
fn reference_reads_and_writes_each_dtype() {
    let Some(reference) = Reference::find() else { return };
    fn check<T: Element>(reference: &Reference, value: impl Fn(u64) -> T) {
        let path = reference.path(T::DTYPE.name());
        write_dense(&path, Codec::Zstd, [2, 3], &values(20 * 6, value));
        reference.check(&path);
    }
    check(&reference, |i| i % 2 == 0);
    check(&reference, |i| i as i8);
    check(&reference, |i| -(i as i16) * 50);
    check(&reference, |i| -(i as i32) << 20);
    check(&reference, |i| -(i as i64) << 50);
    check(&reference, |i| i as u8);
    check(&reference, |i| (i as u16) << 8);
    check(&reference, |i| (i as u32) << 24);
    check(&reference, |i| i << 56);
    check(&reference, |i| f16::from_f32(i as f32 / 8.0));
    check(&reference, |i| bf16::from_f32(i as f32 / 8.0));
    check(&reference, |i| i as f32 / 8.0);
    check(&reference, |i| i as f64 / 8.0);
}

#[test]
fn reference_reads_and_writes_scalars_and_stores_without_records() {
    let Some(reference) = Reference::find() else { return };
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = reference.path(&format!("labels_{}", codec.name()));
        write_dense(&path, codec, (), &values(1000, |i| i as i64));
        reference.check(&path);
    }
    for codec in CODECS {
        let dense = reference.path(&format!("no_rows_{}", codec.name()));
        DenseDataset::<f32, [usize; 1]>::options().codec(codec).create(&dense, [4]).unwrap().close().unwrap();
        reference.check(&dense);
        let ragged = reference.path(&format!("no_records_{}", codec.name()));
        RaggedDataset::<u16, ()>::options().codec(codec).create(&ragged, ()).unwrap().close().unwrap();
        reference.check(&ragged);
    }
}

#[test]
fn reference_reads_empty_records_and_records_over_its_own_limit() {
    let Some(reference) = Reference::find() else { return };
    for codec in [Codec::Raw, Codec::Zstd] {
        let mut records = rows(40, 1, |i| i as u8);
        records[5] = values(3 << 20, |i| i as u8);
        for (at, name) in [(0, "empty_first"), (7, "empty_within"), (39, "empty_last")] {
            records[at] = Vec::new();
            let path = reference.path(&format!("{name}_{}", codec.name()));
            write_ragged(&path, codec, (), &records);
            reference.check(&path);
        }
    }
}

#[test]
fn reference_reads_records_that_this_crate_appends_over_a_chunk_edge() {
    let Some(reference) = Reference::find() else { return };
    let path = reference.path("edge");
    DenseDataset::<i32, [usize; 1]>::options().codec(Codec::Raw).create(&path, [1000]).unwrap().close().unwrap();
    // Where the next record goes, moved to just below 4 GiB: the file stays sparse.
    let meta = OpenOptions::new().write(true).open(path.join("meta.zr")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&meta, &(u32::MAX - 10_000).to_le_bytes(), 8).unwrap();
    let values: Vec<i32> = (0..8000).collect();
    let dataset = DenseDataset::<i32, [usize; 1]>::open_writable(&path).unwrap();
    for record in values.chunks(3000) {
        dataset.append(record).unwrap();
    }
    dataset.close().unwrap();
    assert!(path.join("1.zr").exists());
    assert_eq!(DenseDataset::<i32, [usize; 1]>::open(&path).unwrap().read(..).unwrap().values(), values);
    reference.check(&path);
}

#[test]
fn this_crate_and_the_reference_write_in_turn() {
    let Some(reference) = Reference::find() else { return };
    let mut stores = Vec::new();
    for codec in CODECS {
        let dense = reference.path(&format!("dense_{}", codec.name()));
        write_dense(&dense, codec, [28, 28], &values(300 * 784, |i| i as u8));
        let ragged = reference.path(&format!("ragged_{}", codec.name()));
        write_ragged(&ragged, codec, [2], &rows(400, 2, |i| i as i16));
        stores.extend([dense, ragged]);
    }
    for store in stores {
        in_turn(&reference, &store);
        let store = AnyDataset::open(&store).unwrap();
        assert_eq!(store.metadata::<Vec<String>>("classes").unwrap().unwrap(), ["cat", "dog"]);
    }
}

#[test]
fn stores_that_the_reference_wrote_and_changed_are_read_and_appended_to() {
    let Some(reference) = Reference::find() else { return };
    let folder = reference.shared.join("fixtures/stores");
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".tar.gz") else { continue };
        in_turn(&reference, &unpack(&folder, name, reference.scratch.path()));
    }
}

#[test]
fn reference_reads_and_writes_what_this_crate_deleted_from_compacted_and_recoded() {
    let Some(reference) = Reference::find() else { return };
    for codec in CODECS {
        let path = reference.path(codec.name());
        let values: Vec<i32> = (0..400 * 16).map(|i| i % 1000 / 7).collect();
        write_dense(&path, codec, [16], &values);
        let open = || DenseDataset::<i32, [usize; 1]>::open_writable(&path).unwrap();
        let mut dataset = open();
        dataset.delete((0..400).step_by(3).collect::<Vec<u64>>()).unwrap();
        dataset.close().unwrap();
        reference.check(&path);
        let mut dataset = open();
        dataset.compact().unwrap();
        dataset.append(&values[..160]).unwrap();
        dataset.close().unwrap();
        reference.check(&path);
        // Once more, so that the low chunk numbers are free.
        let mut dataset = open();
        dataset.delete(0..5).unwrap();
        dataset.compact().unwrap();
        dataset.close().unwrap();
        reference.check(&path);
        for other in CODECS {
            let recoded = reference.path(&format!("{}-{}", codec.name(), other.name()));
            Recode::new().codec(other).dict_size(DictSize::Small).store(&path, &recoded).unwrap();
            assert_eq!(read(&recoded), read(&path));
            reference.check(&recoded);
        }
    }
}

/// Both append, the reference deletes and compacts in between, and each finds what the other left.
fn in_turn(reference: &Reference, store: &Path) {
    for actions in [&["append"][..], &["delete", "append"], &["delete", "compact", "append"]] {
        let held = reference.change(store, actions);
        assert_eq!(read(store), held, "{}: {actions:?}", store.display());
        let count = held.offsets.len() - 1;
        let Some(record) = held.get(count / 2) else { continue };
        let codec = AnyDataset::open(store).unwrap().codec().unwrap_or_default();
        let writer = StoreOptions::new().codec(codec).open_writable(store).unwrap();
        let length = record.len() as u64;
        assert_eq!(writer.append(&record.repeat(2), &[0, length, 2 * length]).unwrap(), count as u64);
        writer.close().unwrap();
        assert_eq!(read(store).offsets.len(), count + 3);
    }
    assert_eq!(reference.change(store, &[]), read(store), "{}", store.display());
}

/// What the reference moves, a handle that was open before reads as something else, or not at all, but as no record
/// that never was: the frames' checksums tell. Raw records have none.
#[test]
fn positional_handle_outlives_a_compaction_by_the_reference() {
    let Some(reference) = Reference::find() else { return };
    for codec in [Codec::Raw, Codec::Zstd] {
        let path = reference.path(codec.name());
        write_ragged(&path, codec, (), &rows(300, 1, |i| i as i32));
        let before = read(&path);
        let open = StoreOptions::new().read_mode(ReadMode::Positional).open(&path).unwrap();
        let after = reference.change(&path, &["delete", "delete", "delete", "compact", "append"]);
        let known: HashSet<&[u8]> = [&before, &after].into_iter().flat_map(records).collect();
        let results: Vec<_> = (0..open.len()).map(|index| open.get(index)).collect();
        let strange = results.iter().flatten().filter(|record| !known.contains(&record[..])).count();
        assert!(codec == Codec::Raw || strange == 0, "{strange} of {} records never were", results.len());
    }
}

fn records(records: &Records) -> impl Iterator<Item = &[u8]> {
    (0..records.offsets.len() - 1).filter_map(|i| records.get(i))
}

#[test]
fn arrays_of_numpy_and_safetensors_go_in_and_out() {
    let Some(reference) = Reference::find() else { return };
    let root = reference.scratch.path();
    reference.own("arrays.py", &["write".as_ref(), root.as_os_str()]);
    let (stores, exported) = (root.join("stores"), root.join("exported"));
    fs::create_dir(&stores).unwrap();
    fs::create_dir(&exported).unwrap();
    for entry in fs::read_dir(root.join("sources")).unwrap() {
        let source = entry.unwrap().path();
        let stem = source.file_stem().unwrap();
        let import = if stem == "bf16" { Import::new().dtype(DType::BF16) } else { Import::new() };
        let imported = import.path(&source, stores.join(stem)).unwrap();
        for store in imported.stores {
            let name: Vec<_> = store.strip_prefix(&stores).unwrap().iter().map(|part| part.to_str().unwrap()).collect();
            export_npy(&store, exported.join(format!("{}.npy", name.join(".")))).unwrap();
        }
    }
    reference.own("arrays.py", &["check".as_ref(), root.as_os_str()]);
}
