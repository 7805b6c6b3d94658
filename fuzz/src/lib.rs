//! What is fuzzed: each target takes any bytes, and fails by a panic, a signal, a hang, or memory out of proportion.
//!
//! `cargo fuzz run TARGET` drives them for as long as one likes; tests/fuzz.rs runs the same functions over the corpus
//! and some thousands of mutations of it, in seconds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use loaderx::{
    AnyDataset, Codec, DenseDataset, DictSize, Error, Import, RaggedDataset, ReadMode, Records, Store, StoreOptions,
    Verify, export_npy,
};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// A target.
pub type Target = fn(&[u8]);

/// All targets, by the name of their corpus.
pub const TARGETS: [(&str, Target); 8] = [
    ("store", store),
    ("table", table),
    ("commit", commit),
    ("schema", schema),
    ("npy", npy),
    ("npz", npz),
    ("safetensors", safetensors),
    ("operations", operations),
];

const META_SIZE: u64 = 16 + (1 << 28);
/// More records than this are not all read.
const MANY: u64 = 256;

/// A directory in memory, where the system has one: the disk is not what is tested.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.expect("a temporary directory")
}

/// Takes what it needs from the front of the input, and zeros behind its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.split_off(..len.min(self.0.len())).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The files of a store, each a length and so many bytes; 65535 for a file that is not there.
const FILES: [&str; 8] =
    ["meta.zr", "commit.zr", "schema.msgpack", "dict.zr", "0.zr", "0.sum", "delete.zr", "compact.zr"];

/// A directory of any files: a store, or an error.
pub fn store(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let dir = directory();
    let mut meta = &[][..];
    for name in FILES {
        let len = input.number();
        if len == 0xffff {
            continue;
        }
        let mut bytes = input.bytes(len).to_vec();
        // Checksums are put right, or a fuzzer would never come behind them.
        match name {
            "meta.zr" => meta = &data[data.len() - input.0.len() - bytes.len()..][..bytes.len()],
            "commit.zr" if flags & 1 != 0 => {
                bytes.resize(4192, 0);
                seal_slot(&mut bytes[..96]);
                seal_slot(&mut bytes[4096..]);
            }
            "delete.zr" | "compact.zr" if flags & 1 != 0 && bytes.len() >= 8 => {
                let end = bytes.len() - 8;
                let hash = xxh3_64(&bytes[..end]);
                bytes[end..].copy_from_slice(&hash.to_le_bytes());
            }
            _ => {}
        }
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    if flags & 2 == 0 {
        extend(dir.path());
    }
    exercise(dir.path(), meta);
}

/// Makes meta.zr as long as the format has it.
fn extend(dir: &Path) {
    if let Ok(file) = fs::File::options().write(true).open(dir.join("meta.zr")) {
        file.set_len(META_SIZE).unwrap();
    }
}

fn seal_slot(slot: &mut [u8]) {
    let hash = xxh3_64(&slot[..88]);
    slot[88..96].copy_from_slice(&hash.to_le_bytes());
}

/// A table of any header and entries over one chunk of known bytes.
pub fn table(data: &[u8]) {
    let mut input = Input(data);
    let chunk = chunk();
    let mut meta = b"ZREC\x03\0".to_vec();
    let tail_chunk = u16::from(input.byte() % 4);
    meta.extend(tail_chunk.to_le_bytes());
    let tail = if input.byte() % 2 == 0 { chunk.len() as u32 } else { input.number() as u32 };
    meta.extend(tail.to_le_bytes());
    let length = if input.byte() % 2 == 0 { (input.0.len() / 16) as u32 } else { input.number() as u32 };
    meta.extend(length.to_le_bytes());
    meta.extend(input.0);
    let dir = directory();
    fs::write(dir.path().join("meta.zr"), &meta).unwrap();
    fs::write(dir.path().join("0.zr"), chunk).unwrap();
    extend(dir.path());
    exercise(dir.path(), &meta);
}

/// Some frames and raw bytes, as two writers leave them: a frame of 60 zeros at 0, one of 300 bytes of text behind it,
/// then raw bytes.
fn chunk() -> Vec<u8> {
    let dir = directory();
    let path = dir.path().join("store");
    let store = StoreOptions::new().codec(Codec::Zstd).create(&path).unwrap();
    let text: Vec<u8> = b"a line like any other. ".iter().copied().cycle().take(300).collect();
    let noise: Vec<u8> = (0..200u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    for record in [&[0; 60][..], &text, &noise] {
        store.append(record, &[0, record.len() as u64]).unwrap();
    }
    store.close().unwrap();
    fs::read(path.join("0.zr")).unwrap()
}

/// A store and slots of commit.zr whose checksums and digests are right, and whose fields are any.
pub fn commit(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let dir = directory();
    let header = |input: &mut Input<'_>| {
        let mut header = b"ZREC\x03\0".to_vec();
        header.extend([input.byte() % 8, 0]);
        header.extend((input.number() as u32).to_le_bytes());
        header.extend([input.byte() % 32, 0, 0, 0]);
        header
    };
    let on_disk = header(&mut input);
    let slots: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let kind = input.byte();
            let mut slot = b"ZRCOMMIT".to_vec();
            slot.extend(u64::from(kind >> 4).to_le_bytes());
            slot.extend(if kind & 1 == 0 { on_disk.clone() } else { header(&mut input) });
            slot.extend(header(&mut input));
            slot.extend(u64::from(input.byte()).to_le_bytes());
            slot
        })
        .collect();
    let entries = input.number() % 33 * 16;
    let mut meta = on_disk.clone();
    meta.extend(input.bytes(entries));
    let chunk = input.0;
    let mut bytes = vec![0; 4192];
    for (at, slot) in [0, 4096].into_iter().zip(slots) {
        let place = &mut bytes[at..at + 96];
        place[..56].copy_from_slice(&slot);
        place[56..88].copy_from_slice(&digest(&meta, chunk, slot[28], slot[44]));
        if flags & 1 == 0 {
            seal_slot(place);
        }
    }
    fs::write(dir.path().join("meta.zr"), &meta).unwrap();
    fs::write(dir.path().join("0.zr"), chunk).unwrap();
    fs::write(dir.path().join("commit.zr"), bytes).unwrap();
    extend(dir.path());
    exercise(dir.path(), &meta);
}

/// The digest of the entries from `begin` to `end`, and of what they have stored in chunk 0.
fn digest(meta: &[u8], chunk: &[u8], begin: u8, end: u8) -> [u8; 32] {
    let (mut entries, mut stored) = (Xxh3Default::new(), Xxh3Default::new());
    for index in usize::from(begin)..usize::from(end) {
        let mut bytes = [0; 16];
        let at = (16 + 16 * index).min(meta.len());
        let held = &meta[at..(at + 16).min(meta.len())];
        bytes[..held.len()].copy_from_slice(held);
        entries.update(&bytes);
        let entry = Entry::of(&bytes);
        if let Some(bytes) = chunk.get(entry.offset as usize..entry.offset as usize + entry.stored as usize) {
            stored.update(bytes);
        }
    }
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&entries.digest128().to_le_bytes());
    digest[16..].copy_from_slice(&stored.digest128().to_le_bytes());
    digest
}

struct Entry {
    offset: u32,
    stored: u32,
    chunk: u16,
}

impl Entry {
    fn of(bytes: &[u8]) -> Entry {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        Entry { offset: word(0), stored: word(4), chunk: word(12) as u16 }
    }
}

/// Whether all entries lie below the tail, as the format has it: then an append touches none of the records.
fn is_below_tail(meta: &[u8]) -> bool {
    let Some((header, entries)) = meta.split_at_checked(16) else { return false };
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let (tail, count) = ((word(4) >> 16, u64::from(word(8))), word(12) as usize);
    entries.len() / 16 >= count
        && entries
            .chunks_exact(16)
            .take(count)
            .map(Entry::of)
            .all(|entry| (u32::from(entry.chunk), u64::from(entry.offset) + u64::from(entry.stored)) <= tail)
}

/// Opens what is at `dir` in every way, reads, and writes; what could be read stays as it was.
fn exercise(dir: &Path, meta: &[u8]) {
    let mapped = read_all(dir, ReadMode::Mapped, Verify::Off);
    let positional = read_all(dir, ReadMode::Positional, Verify::Off);
    assert_eq!(mapped, positional, "the read modes differ");
    let verified = read_all(dir, ReadMode::Mapped, Verify::Always);
    if let (Some(mapped), Some(verified)) = (&mapped, &verified) {
        for (one, other) in mapped.iter().zip(verified) {
            assert!(other.is_none() || one == other, "a verified record differs");
        }
    }
    typed(dir);
    let Ok(mut store) = StoreOptions::new().open_writable(dir) else { return };
    let mut model: Vec<Option<Vec<u8>>> = some(&store).map(|index| store.get(index).ok()).collect();
    let whole = store.len() <= MANY;
    if let Ok(first) = store.append(b"one of two", &[0, 7, 10]) {
        assert_eq!(first + 2, store.len());
        let added = store.gather(&[first, first + 1]).unwrap();
        assert_eq!((added.get(0), added.get(1)), (Some(&b"one of "[..]), Some(&b"two"[..])));
        if is_below_tail(meta) {
            let again: Vec<Option<Vec<u8>>> = some(&store).map(|index| store.get(index).ok()).collect();
            for (before, after) in model.iter().zip(&again) {
                assert!(before.is_none() || before == after, "an append changed a record");
            }
        }
    }
    if !whole || !is_below_tail(meta) {
        return;
    }
    model = some(&store).map(|index| store.get(index).ok()).collect();
    if !model.is_empty() && store.delete(&[0]).is_ok() {
        model.swap_remove(0);
    }
    let same = |store: &Store, what: &str| {
        assert_eq!(store.len(), model.len() as u64);
        for (index, record) in model.iter().enumerate().filter(|(_, record)| record.is_some()) {
            assert_eq!(store.get(index as u64).ok(), *record, "{what} changed record {index}");
        }
    };
    same(&store, "a deletion");
    let _ = store.compact();
    same(&store, "a compaction");
    if store.close().is_ok() {
        same(&Store::open(dir).unwrap(), "opening it again");
    }
}

/// The indices of all records, of a few where there are many.
fn some(store: &Store) -> impl Iterator<Item = u64> + use<> {
    let len = store.len();
    (0..len.min(MANY)).chain(len.saturating_sub(4).max(MANY)..len)
}

fn read_all(dir: &Path, mode: ReadMode, verify: Verify) -> Option<Vec<Option<Vec<u8>>>> {
    let store = StoreOptions::new().read_mode(mode).verify(verify).open(dir).ok()?;
    let records: Vec<Option<Vec<u8>>> = some(&store).map(|index| store.get(index).ok()).collect();
    let indices: Vec<u64> = some(&store).collect();
    let gathered = store.gather(&indices);
    match gathered {
        Ok(gathered) => {
            for (i, record) in records.iter().enumerate() {
                assert_eq!(gathered.get(i), record.as_deref());
            }
        }
        Err(_) => assert!(records.iter().any(Option::is_none), "a gather failed whose records can be read"),
    }
    let _ = store.lengths(&indices);
    if store.len() <= MANY {
        let _ = store.stats();
        if let Ok(found) = store.verify(|_| {}) {
            assert!(found.verified + found.unverified <= found.records);
            assert!(!found.bad.is_empty() || records.iter().all(Option::is_some), "a bad record is not named");
        }
    }
    Some(records)
}

/// Opens a store as datasets of several types, and writes it out.
fn typed(dir: &Path) {
    let Ok(any) = AnyDataset::open(dir) else { return };
    let _ = (any.kind(), any.dtype(), any.element(), any.item_shape().map(<[usize]>::len), any.codec());
    if any.len() > MANY {
        return;
    }
    if let Ok(dataset) = DenseDataset::<u8>::open(dir) {
        let _ = dataset.read(..);
        for key in dataset.metadata_keys().map(str::to_owned).collect::<Vec<_>>() {
            let _ = dataset.metadata::<Vec<String>>(&key);
        }
    }
    if let Ok(dataset) = DenseDataset::<bool, [usize; 1]>::open(dir) {
        let _ = dataset.read(..);
    }
    if let Ok(dataset) = RaggedDataset::<u16, Vec<usize>>::open(dir)
        && let Ok(batch) = dataset.read(..)
        && batch.values().len() < 1 << 16
    {
        let _ = batch.pad(None, 0);
    }
    if let Ok(dataset) = DenseDataset::<f32>::open_writable(dir) {
        let _ = dataset.append_rows(1, &vec![0.5; dataset.item_len().min(1 << 16)]);
    }
    let out = directory();
    let _ = export_npy(dir, out.path().join("out.npy"));
}

/// A store of four records of four bytes, with any schema.
pub fn schema(data: &[u8]) {
    let dir = directory();
    let path = dir.path().join("store");
    let store = StoreOptions::new().codec(Codec::Raw).create(&path).unwrap();
    store.append(b"\x01\0\x01\0\0\0\0\0\xff\xff\0\0abcd", &[0, 4, 8, 12, 16]).unwrap();
    store.close().unwrap();
    fs::write(path.join("schema.msgpack"), data).unwrap();
    typed(&path);
    if let Ok(dataset) = RaggedDataset::<u16, Vec<usize>>::open_writable(&path) {
        let _ = dataset.append([vec![1; dataset.item_len().min(1 << 16)]]);
    }
}

/// A .npy file of any bytes.
pub fn npy(data: &[u8]) {
    import("a.npy", data);
}

/// A .npz file of any bytes.
pub fn npz(data: &[u8]) {
    import("a.npz", data);
}

/// A .safetensors file of any bytes.
pub fn safetensors(data: &[u8]) {
    import("a.safetensors", data);
}

/// Imports a file; what is imported can be read, and comes back from an export and another import.
fn import(name: &str, data: &[u8]) {
    let dir = directory();
    let (source, destination) = (dir.path().join(name), dir.path().join("store"));
    fs::write(&source, data).unwrap();
    let codec = match data.len() % 3 {
        0 => Codec::ZstdDict,
        1 => Codec::Zstd,
        _ => Codec::Raw,
    };
    let import = |codec| Import::new().codec(codec).dict_size(DictSize::Bytes(512));
    let imported = match import(codec).path(&source, &destination) {
        Ok(imported) => imported,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a failed import left something");
            return;
        }
    };
    let mut rows = 0;
    for (i, path) in imported.stores.iter().enumerate() {
        let any = AnyDataset::open(path).expect("what is imported can be opened");
        rows += any.len();
        if any.len() > 1 << 16 {
            continue;
        }
        let all: Vec<u64> = (0..any.len()).collect();
        let records = any.gather(&all).expect("what is imported can be read");
        let out = dir.path().join(format!("{i}.npy"));
        export_npy(path, &out).expect("what is imported can be exported");
        let again = dir.path().join(format!("{i}"));
        let mut second = import(Codec::Raw);
        if any.dtype() == Some("<V2") {
            second = second.dtype(loaderx::DType::BF16);
        }
        second.npy(&out, &again).expect("what is exported can be imported");
        assert_eq!(Store::open(&again).unwrap().gather(&all).unwrap(), records);
    }
    assert_eq!(rows, imported.rows);
}

/// Operations on a store, against a vector of records.
pub fn operations(data: &[u8]) {
    let mut input = Input(data);
    let setup = input.byte();
    let codec = [Codec::Raw, Codec::Zstd, Codec::ZstdDict][usize::from(setup % 3)];
    let mode = if setup & 16 == 0 { ReadMode::Mapped } else { ReadMode::Positional };
    let verify = if setup & 32 == 0 { Verify::Off } else { Verify::Always };
    let options = StoreOptions::new().codec(codec).read_mode(mode).verify(verify).level(1);
    let dir = directory();
    let path = dir.path().join("store");
    let mut store = options.clone().create(&path).unwrap();
    let mut model: Vec<Vec<u8>> = Vec::new();
    while !input.is_empty() {
        match input.byte() % 9 {
            0..=2 => {
                let records = records(&mut input);
                let packed = pack(&records);
                match store.append(&packed.bytes, &packed.offsets) {
                    Ok(first) => {
                        assert_eq!(first, model.len() as u64);
                        model.extend(records);
                    }
                    Err(Error::Dictionary { .. }) => assert!(codec == Codec::ZstdDict && !store.has_dict()),
                    Err(error) => panic!("append: {error}"),
                }
            }
            3 => {
                let indices = indices(&mut input, model.len());
                store.delete(&indices).unwrap();
                let holes: BTreeSet<u64> = indices.into_iter().collect();
                holes.into_iter().rev().for_each(|hole| drop(model.swap_remove(hole as usize)));
            }
            4 => store.compact().unwrap(),
            5 => store.sync().unwrap(),
            6 => {
                if input.byte() % 2 == 0 {
                    store.close().unwrap();
                } else {
                    drop(store);
                }
                store = options.clone().open_writable(&path).unwrap();
            }
            7 => {
                let samples = pack(&records(&mut input));
                let size = DictSize::Bytes(1 + input.number() as u32);
                match store.train_dict(&samples.bytes, &samples.offsets, size) {
                    Ok(()) => assert!(store.has_dict()),
                    Err(error) => assert!(matches!(error, Error::Dictionary { .. }), "{error}"),
                }
            }
            _ => {
                let reader = options.clone().open(&path).unwrap();
                check(&reader, &model);
                assert!(model.is_empty() || matches!(store.delete(&[0]), Err(Error::Locked { .. })));
                let found = reader.verify(|_| {}).unwrap();
                assert_eq!((found.verified, found.bad), (model.len() as u64, vec![]));
            }
        }
        check(&store, &model);
    }
    store.close().unwrap();
    check(&options.open(&path).unwrap(), &model);
}

fn records(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let count = usize::from(input.byte() % 12);
    let record = |_| match input.byte() % 4 {
        0 => Vec::new(),
        1 => vec![input.byte(); input.number() % 5000],
        2 => {
            let len = usize::from(input.byte());
            input.bytes(len).to_vec()
        }
        _ => {
            let (seed, len) = (u32::from(input.byte()), input.number() as u32 % 2000);
            (0..len).map(|i| (i.wrapping_add(seed << 16).wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
        }
    };
    (0..count).map(record).collect()
}

fn indices(input: &mut Input<'_>, len: usize) -> Vec<u64> {
    let count = if len == 0 { 0 } else { input.byte() % 6 };
    (0..count).map(|_| (input.number() % len) as u64).collect()
}

fn pack(records: &[Vec<u8>]) -> Records {
    let mut packed = Records { bytes: Vec::new(), offsets: vec![0] };
    for record in records {
        packed.bytes.extend_from_slice(record);
        packed.offsets.push(packed.bytes.len() as u64);
    }
    packed
}

/// The store holds what the model holds.
fn check(store: &Store, model: &[Vec<u8>]) {
    assert_eq!(store.len(), model.len() as u64);
    let all: Vec<u64> = (0..store.len()).rev().collect();
    let reversed: Vec<Vec<u8>> = model.iter().rev().cloned().collect();
    assert_eq!(store.gather(&all).unwrap(), pack(&reversed));
}
