//! Damaged files: the right answer or an error that names the place; never a panic, a signal, a hang, or memory out of
//! proportion.
//!
//! Each set of damages runs in a child process with little address space. What is right:
//!
//! - A record that is stored as a zstd frame of this crate is as it was appended, or an error: the frame's checksum sees
//!   to that.
//! - A raw record has no checksum in `meta.zr` or beside it. Where its own bytes or its own entry were damaged, it may
//!   come back changed; where anything else was, it is as it was appended, or an error.
//! - Records that were appended and not synced are certified by `commit.zr`, raw ones too: they are as they were
//!   appended, or cut off as a suffix.
//! - A header has no checksum: a store whose header was damaged may say another number of records, and what is appended
//!   to it may take the place of what is there. The records it still shows are right or an error.

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use loaderx::{AnyDataset, Codec, DictSize, Error, RaggedDataset, ReadMode, Store, StoreOptions};
use xxhash_rust::xxh3::xxh3_64;

use crate::support::{
    Process, Rng, Watchdog, append, contents, copy_store, files, given, pack, say, scratch, set_header, thorough,
};

const MODES: [ReadMode; 2] = [ReadMode::Mapped, ReadMode::Positional];
const SUBJECTS: [&str; 7] = ["raw", "zstd", "zstd_dict", "ragged", "deleted", "unsynced-raw", "unsynced-zstd"];

/// A whole store, and what it holds.
struct Subject {
    name: String,
    codec: Codec,
    files: Vec<(PathBuf, Vec<u8>, u64)>,
    records: Vec<Vec<u8>>,
    /// Which are stored raw.
    raw: Vec<bool>,
    /// Records below this are behind the header.
    synced: usize,
    /// How many records it may hold where the header is whole.
    lengths: BTreeSet<u64>,
}

fn train(store: &Store) -> loaderx::Result<()> {
    let mut rng = Rng::new(1);
    let samples = pack(&(0..60).map(|_| rng.text(80)).collect::<Vec<_>>());
    store.train_dict(&samples.bytes, &samples.offsets, DictSize::Bytes(300))
}

impl Subject {
    fn build(name: &str, scratch: &Path) -> Subject {
        let codec = match name {
            "raw" | "unsynced-raw" => Codec::Raw,
            "zstd_dict" => Codec::ZstdDict,
            _ => Codec::Zstd,
        };
        let (live, dir) = (scratch.join("live"), scratch.join("pristine"));
        let mut rng = Rng::new(2);
        // No two of one length, so that no frame is taken for another.
        let mut records: Vec<Vec<u8>> = (0..7).map(|i| rng.text(41 + 14 * i)).collect();
        records.insert(3, Vec::new());
        records.insert(5, rng.bytes(30));
        let synced = if name.starts_with("unsynced") { 4 } else { records.len() };
        let options = StoreOptions::new().codec(codec).level(3);
        if name == "ragged" {
            let rows = |record: &Vec<u8>| -> Vec<u16> {
                record.as_chunks().0.iter().map(|&pair| u16::from_le_bytes(pair)).collect()
            };
            records.iter_mut().for_each(|record| record.truncate(record.len() & !1));
            let dataset = RaggedDataset::<u16>::options().metadata("note", &"kept").create(&live, ()).unwrap();
            dataset.append(records.iter().map(rows)).unwrap();
            dataset.close().unwrap();
            copy_store(&live, &dir);
        } else {
            let mut store = options.create(&live).unwrap();
            if codec == Codec::ZstdDict {
                train(&store).unwrap();
            }
            append(&store, &records[..synced]).unwrap();
            store.sync().unwrap();
            if name == "deleted" {
                store.delete(&[1, 6]).unwrap();
                records.swap_remove(6);
                records.swap_remove(1);
            }
            if synced < records.len() {
                append(&store, &records[synced..7]).unwrap();
                append(&store, &records[7..]).unwrap();
            }
            // As a killed process leaves it.
            copy_store(&live, &dir);
        }
        let files: Vec<_> =
            files(&dir).into_iter().filter(|(name, ..)| name.extension() != Some("lock".as_ref())).collect();
        let table = &files.iter().find(|(name, ..)| name == Path::new("meta.zr")).unwrap().1;
        let raw = (0..records.len()).map(|i| table[16 + 16 * i + 14] == 0).collect();
        let lengths = if synced < records.len() { vec![synced, 7, records.len()] } else { vec![records.len()] };
        let lengths = lengths.into_iter().map(|length| length as u64).collect();
        let synced = synced.min(records.len());
        Subject { name: name.to_owned(), codec, files, records, raw, synced, lengths }
    }

    fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(file, ..)| file == Path::new(name)).map(|(_, bytes, _)| &bytes[..])
    }

    fn restore(&self, dir: &Path) {
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir(dir).unwrap();
        self.files.iter().for_each(|(name, ..)| self.restore_file(dir, name));
    }

    fn restore_file(&self, dir: &Path, name: &Path) {
        let Some((_, bytes, len)) = self.files.iter().find(|(file, ..)| file == name) else {
            return std::fs::remove_file(dir.join(name)).unwrap_or_default();
        };
        std::fs::write(dir.join(name), bytes).unwrap();
        std::fs::OpenOptions::new().write(true).open(dir.join(name)).unwrap().set_len(*len).unwrap();
    }
}

/// One damage.
#[derive(Debug, Clone)]
enum Damage {
    Flip { file: String, at: usize, bits: u8 },
    Patch { file: String, at: usize, bytes: Vec<u8> },
    Cut { file: String, len: u64 },
    Remove { file: String },
    Add { file: String, bytes: Vec<u8> },
}

impl Damage {
    fn file(&self) -> &str {
        match self {
            Damage::Flip { file, .. } | Damage::Patch { file, .. } | Damage::Cut { file, .. } => file,
            Damage::Remove { file } | Damage::Add { file, .. } => file,
        }
    }

    fn inflict(&self, dir: &Path) {
        let path = dir.join(self.file());
        match self {
            Damage::Flip { at, bits, .. } => {
                let old = crate::support::read_at(&path, *at as u64, 1)[0];
                crate::support::write_at(&path, *at as u64, &[old ^ bits]);
            }
            Damage::Patch { at, bytes, .. } => crate::support::write_at(&path, *at as u64, bytes),
            Damage::Cut { len, .. } => {
                std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(*len).unwrap();
            }
            Damage::Remove { .. } => std::fs::remove_file(path).unwrap(),
            Damage::Add { bytes, .. } => std::fs::write(path, bytes).unwrap(),
        }
    }

    /// The bytes that were changed, where they lie in that file.
    fn within(&self, name: &str) -> Option<Range<usize>> {
        match self {
            Damage::Flip { file, at, .. } if file == name => Some(*at..*at + 1),
            Damage::Patch { file, at, bytes } if file == name => Some(*at..*at + bytes.len()),
            _ => None,
        }
    }

    fn hits_header(&self) -> bool {
        self.within("meta.zr").is_some_and(|range| range.start < 16)
    }

    /// Whether record `i` may come back changed.
    fn may_change(&self, subject: &Subject, i: usize) -> bool {
        let own_entry = |range: Range<usize>| range.start < 32 + 16 * i && 16 + 16 * i < range.end;
        let entry = self.within("meta.zr").is_some_and(own_entry);
        let chunk = self.within("0.zr").is_some();
        match self {
            // A whole other entry, made to be believed.
            Damage::Patch { .. } => entry,
            _ => subject.raw[i] && i < subject.synced && (entry || chunk),
        }
    }
}

/// An error that says where; else a fault.
fn named(error: &Error, dir: &Path, doing: &str) -> Result<(), String> {
    let text = error.to_string();
    if text.contains(&*dir.to_string_lossy()) {
        Ok(())
    } else {
        Err(format!("{doing}: the error names no place: {text}"))
    }
}

/// Reads each record, and all at once: `None` for one that is an error. Past the records that there are, `extra` more are
/// tried.
fn read_all(store: &Store, dir: &Path, extra: u64, known: usize) -> Result<Vec<Option<Vec<u8>>>, String> {
    let indices: Vec<u64> = (0..store.len().min(known as u64 + extra)).collect();
    let mut records = Vec::new();
    for &i in &indices {
        match store.get(i) {
            Ok(record) => records.push(Some(record)),
            Err(error) => {
                named(&error, dir, "get")?;
                records.push(None);
            }
        }
    }
    match store.gather(&indices) {
        Ok(all) => {
            let same = (0..indices.len()).all(|i| records[i].as_deref() == all.get(i));
            if !same {
                return Err("gather gives other records than get".to_owned());
            }
        }
        Err(error) => {
            named(&error, dir, "gather")?;
            if records.iter().all(Option::is_some) {
                return Err(format!("get reads what gather does not: {error}"));
            }
        }
    }
    Ok(records)
}

impl Subject {
    fn check_records(&self, damage: &Damage, found: &[Option<Vec<u8>>], len: u64) -> Result<(), String> {
        if !damage.hits_header() && !self.lengths.contains(&len) && !matches!(damage, Damage::Add { .. }) {
            return Err(format!("{len} records, where there may be {:?}", self.lengths));
        }
        for (i, (found, wanted)) in found.iter().zip(&self.records).enumerate() {
            if let Some(found) = found
                && found != wanted
                && !damage.may_change(self, i)
            {
                return Err(format!("record {i} is silently wrong: {} bytes, {} expected", found.len(), wanted.len()));
            }
        }
        Ok(())
    }

    /// Opens for reading and reads.
    fn read(&self, dir: &Path, damage: &Damage, heavy: bool) -> Result<(), String> {
        for mode in MODES {
            match StoreOptions::new().read_mode(mode).open(dir) {
                Err(error) => named(&error, dir, "open")?,
                Ok(store) => {
                    let found = read_all(&store, dir, 4, self.records.len())?;
                    self.check_records(damage, &found, store.len())?;
                    if store.len() < 1 << 20 || heavy {
                        store.stats().map(drop).or_else(|error| named(&error, dir, "stats"))?;
                    }
                }
            }
        }
        match AnyDataset::open(dir) {
            Err(error) => named(&error, dir, "AnyDataset::open")?,
            Ok(any) if !any.is_empty() => {
                any.get(0).map(drop).or_else(|error| named(&error, dir, "AnyDataset::get"))?
            }
            Ok(_) => {}
        }
        if self.name == "ragged" {
            self.read_typed(dir, damage)?;
        }
        Ok(())
    }

    fn read_typed(&self, dir: &Path, damage: &Damage) -> Result<(), String> {
        let dataset = match RaggedDataset::<u16>::open(dir) {
            Err(error) => return named(&error, dir, "RaggedDataset::open"),
            Ok(dataset) => dataset,
        };
        for i in 0..dataset.len().min(self.records.len() as u64) {
            match dataset.gather(&[i]) {
                Err(error) => named(&error, dir, "RaggedDataset::gather")?,
                Ok(batch) => {
                    let bytes: Vec<u8> = batch.values().iter().flat_map(|value| value.to_le_bytes()).collect();
                    let i = i as usize;
                    // Another schema that fits has other types.
                    if bytes != self.records[i] && !damage.may_change(self, i) && damage.file() != "schema.msgpack" {
                        return Err(format!("typed record {i} is silently wrong"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens for writing, and does everything that a writer does.
    fn write(&self, dir: &Path, damage: &Damage, heavy: bool) -> Result<(), String> {
        let options = StoreOptions::new().codec(self.codec).level(3);
        let mut store = match options.open_writable(dir) {
            Err(error) => return named(&error, dir, "open_writable"),
            Ok(store) => store,
        };
        let known = self.records.len() + 8;
        let mut wanted = read_all(&store, dir, 8, self.records.len())?;
        self.check_records(damage, &wanted, store.len())?;
        let large = store.len() > known as u64;
        let new = [b"appended".to_vec(), vec![b'x'; 200]];
        match append(&store, &new) {
            Err(error) => named(&error, dir, "append")?,
            Ok(first) => {
                for (i, new) in (first..).zip(&new) {
                    if store.get(i).as_ref().map_err(|error| error.to_string())? != new {
                        return Err("what was appended is not what is read".to_owned());
                    }
                }
                if !large {
                    wanted.extend(new.map(Some));
                }
            }
        }
        if self.codec == Codec::ZstdDict {
            train(&store).or_else(|error| named(&error, dir, "train_dict"))?;
        }
        let same = |store: &Store, wanted: &[Option<Vec<u8>>], after: &str| -> Result<(), String> {
            if damage.hits_header() {
                return read_all(store, dir, 8, wanted.len()).map(drop);
            }
            let found = read_all(store, dir, 8, wanted.len())?;
            let differs = (0..wanted.len()).find(|&i| wanted[i].is_some() && found.get(i) != Some(&wanted[i]));
            differs.map_or(Ok(()), |i| Err(format!("after {after}, record {i} is another or none")))
        };
        same(&store, &wanted, "append")?;
        let holes = [1, 2];
        match store.delete(&holes) {
            Err(Error::OutOfRange { .. }) if store.len() < 3 => {}
            Err(error) => named(&error, dir, "delete")?,
            Ok(()) if large => wanted.clear(),
            Ok(()) => holes.iter().rev().for_each(|&hole| drop(wanted.swap_remove(hole as usize))),
        }
        same(&store, &wanted, "delete")?;
        if store.len() < 1 << 17 || heavy {
            store.compact().or_else(|error| named(&error, dir, "compact"))?;
            same(&store, &wanted, "compact")?;
        }
        store.close().or_else(|error| named(&error, dir, "close"))?;
        match Store::open(dir) {
            Err(error) => Err(format!("what was written does not open: {error}")),
            Ok(store) => same(&store, &wanted, "opening again"),
        }
    }
}

/// The damages of a set.
fn damages(set: &str, subject: &Subject) -> Vec<Damage> {
    let mut damages = Vec::new();
    let named = subject.files.iter().map(|(name, bytes, _)| (name.to_str().unwrap().to_owned(), bytes.len()));
    let used = 16 + 16 * subject.records.len();
    match set {
        "flips" => {
            for (file, len) in named {
                let is_used = |at: &usize| match &*file {
                    "meta.zr" => *at < used + 16,
                    "commit.zr" => *at < 96 || *at >= 4096,
                    _ => true,
                };
                for at in (0..len).filter(is_used) {
                    damages.extend([0x01, 0x80, 0xff].map(|bits| Damage::Flip { file: file.clone(), at, bits }));
                }
            }
        }
        "cuts" => {
            for (file, len) in named {
                let lens: Vec<usize> = match &*file {
                    "meta.zr" => (0..used + 40).collect(),
                    "commit.zr" => (0..100).chain(4090..len).collect(),
                    _ => (0..len).collect(),
                };
                damages.extend(lens.into_iter().map(|len| Damage::Cut { file: file.clone(), len: len as u64 }));
            }
        }
        "missing" => damages.extend(named.map(|(file, _)| Damage::Remove { file })),
        "headers" => {
            let records = subject.records.len() as u32;
            for length in [0, 1, records - 1, records, records + 1, 1 << 24, (1 << 24) + 1, u32::MAX] {
                for tail_chunk in [0u16, 1, 4095, 4096, u16::MAX] {
                    for tail_offset in [0u32, 1, 1 << 31, u32::MAX] {
                        let mut bytes = tail_chunk.to_le_bytes().to_vec();
                        bytes.extend([tail_offset.to_le_bytes(), length.to_le_bytes()].concat());
                        damages.push(Damage::Patch { file: "meta.zr".to_owned(), at: 6, bytes });
                    }
                }
            }
        }
        "entries" => {
            let table = subject.file("meta.zr").unwrap();
            let entry = |i: usize| table[16 + 16 * i..32 + 16 * i].to_vec();
            for i in 0..subject.records.len() {
                let mut patch = |at: usize, bytes: &[u8]| {
                    let mut changed = entry(i);
                    changed[at..at + bytes.len()].copy_from_slice(bytes);
                    damages.push(Damage::Patch { file: "meta.zr".to_owned(), at: 16 + 16 * i, bytes: changed });
                };
                for value in [0, 1, 1000, 1 << 20, 1 << 31, u32::MAX] {
                    // offset, stored length, length, both lengths
                    [0, 4, 8].into_iter().for_each(|at| patch(at, &value.to_le_bytes()));
                    patch(4, &[value.to_le_bytes(), value.to_le_bytes()].concat());
                }
                [0u16, 1, 4095, 4096, u16::MAX].into_iter().for_each(|chunk| patch(12, &chunk.to_le_bytes()));
                let codecs = if i == 0 { (0..=255).collect() } else { vec![0, 1, 2, 3, 128, 255] };
                codecs.into_iter().for_each(|codec| patch(14, &[codec]));
                patch(0, &[0; 16]);
                patch(0, &[0xff; 16]);
                // Two records in one place.
                patch(0, &entry((i + 1) % subject.records.len()));
            }
        }
        "journals" => damages.extend(journals(subject)),
        other => panic!("{other}"),
    }
    damages
}

fn hashed(mut bytes: Vec<u8>) -> Vec<u8> {
    let hash = xxh3_64(&bytes);
    bytes.extend(hash.to_le_bytes());
    bytes
}

/// What may lie in delete.zr and compact.zr: noise, cut and flipped ones, and ones with a true checksum that lie.
fn journals(subject: &Subject) -> Vec<Damage> {
    let table = subject.file("meta.zr").unwrap();
    let header = table[..16].to_vec();
    let with_length = |length: u32| [&header[..12], &length.to_le_bytes()].concat();
    let shorter = with_length(subject.synced as u32 - 1);
    let deletion = |after: &[u8], count: u64, index: u32, entry: &[u8]| {
        let parts: [&[u8]; 7] =
            [b"ZRDELETE", &header, after, &9u64.to_le_bytes(), &count.to_le_bytes(), &index.to_le_bytes(), entry];
        hashed(parts.concat())
    };
    let compaction =
        |after: &[u8], first: u64| hashed([b"ZRCOMPCT", &header[..], after, &first.to_le_bytes()].concat());
    let other_header = [b"ZREC\x03\0\0\0", &[7; 8][..]].concat();
    let mut contents = vec![
        ("delete.zr", vec![]),
        ("delete.zr", b"ZRDELETE".to_vec()),
        ("delete.zr", Rng::new(3).bytes(100)),
        ("delete.zr", deletion(&shorter, u64::MAX, 0, &[0; 16])),
        // Indices beyond the table, and beyond the file; entries that are none; records out of nothing.
        ("delete.zr", deletion(&shorter, 1, subject.synced as u32, &[0; 16])),
        ("delete.zr", deletion(&shorter, 1, u32::MAX, &[0; 16])),
        ("delete.zr", deletion(&with_length(1 << 24), 1, 0, &[0xff; 16])),
        ("delete.zr", hashed([b"ZRDELETE", &other_header[..], &other_header, &[0; 16]].concat())),
        ("compact.zr", vec![]),
        ("compact.zr", b"ZRCOMPCT".to_vec()),
        ("compact.zr", Rng::new(4).bytes(56)),
        ("compact.zr", Rng::new(4).bytes(57)),
        ("compact.zr", compaction(&other_header, u64::MAX)),
        ("compact.zr", hashed([b"ZRCOMPCT", &other_header[..], &other_header, &0u64.to_le_bytes()].concat())),
    ];
    let valid = [("delete.zr", deletion(&shorter, 1, 0, &table[16..32])), ("compact.zr", compaction(&other_header, 3))];
    for (file, bytes) in valid {
        contents.extend((0..bytes.len()).map(|len| (file, bytes[..len].to_vec())));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            contents.push((file, flipped));
        }
    }
    contents.into_iter().map(|(file, bytes)| Damage::Add { file: file.to_owned(), bytes }).collect()
}

/// What this process has in memory of its own, maps of files aside; 0 where the system does not say.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

#[test]
#[ignore = "the entry of child processes"]
fn suffer() {
    let Some(set) = given("damage::suffer", "SET") else { return };
    let _watchdog = Watchdog::new("a damaged store", 1200);
    let scratch = scratch();
    let subject = Subject::build(&given("damage::suffer", "SUBJECT").unwrap(), scratch.path());
    let (dir, damages) = (scratch.path().join("damaged"), damages(&set, &subject));
    // Every damage is read; in the short form, some are written to.
    let every = if thorough() || damages.len() < 300 { 1 } else { damages.len() / 150 };
    subject.restore(&dir);
    let mut faults = 0;
    for (i, damage) in damages.iter().enumerate() {
        say(format_args!("case {damage:?}"));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            damage.inflict(&dir);
            subject.read(&dir, damage, thorough())?;
            if i % every == 0 {
                subject.restore(&dir);
                damage.inflict(&dir);
                subject.write(&dir, damage, thorough())?;
                subject.restore(&dir);
            }
            Ok::<(), String>(())
        }));
        match outcome {
            Ok(Ok(())) => subject.restore_file(&dir, Path::new(damage.file())),
            Ok(Err(fault)) => {
                faults += 1;
                say(format_args!("fault {fault}"));
                subject.restore(&dir);
            }
            Err(_) => {
                faults += 1;
                say(format_args!("fault a panic"));
                subject.restore(&dir);
            }
        }
        if memory_mib() > 256 {
            faults += 1;
            say(format_args!("fault {} MiB of memory are taken", memory_mib()));
        }
        if faults == 10 {
            break;
        }
    }
    say(format_args!("tried {}", damages.len()));
}

/// Runs a set of damages over the subjects, each in a process that has 10 GiB of address space: the maps of a table and
/// of two chunks at most.
fn suffered(set: &str, subjects: &[&str]) {
    let mut tried = 0;
    for subject in subjects {
        let variables = [("SET", set.to_owned()), ("SUBJECT", (*subject).to_owned())];
        let mut child = Process::start("damage::suffer", &variables, Some("ulimit -v 10485760"));
        let (mut case, mut faults) = (String::new(), Vec::new());
        let mut ended = false;
        while let Some(line) = child.line() {
            match line.split_once(' ') {
                Some(("fault", fault)) => faults.push(format!("{subject}: {case}: {fault}")),
                Some(("tried", count)) => {
                    tried += count.parse::<u64>().unwrap();
                    ended = true;
                }
                _ => case = line,
            }
        }
        let (_, well) = child.finish();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(ended && well, "{subject}: the process ended in {case}");
    }
    println!("{set}: {tried} damages");
}

#[test]
fn a_flipped_byte_is_an_error_or_changes_nothing_but_raw_bytes() {
    suffered("flips", &SUBJECTS);
}

#[test]
fn a_file_that_was_cut_is_an_error_or_loses_a_suffix() {
    suffered("cuts", &SUBJECTS);
}

#[test]
fn a_missing_dictionary_chunk_or_table_is_named() {
    suffered("missing", &SUBJECTS);
}

#[test]
fn header_fields_at_their_extremes_neither_crash_nor_take_memory() {
    suffered("headers", &SUBJECTS);
}

#[test]
fn entries_that_overlap_or_point_out_of_range_neither_crash_nor_take_memory() {
    suffered("entries", &SUBJECTS);
}

#[test]
fn garbage_in_delete_zr_and_compact_zr_harms_no_record() {
    suffered("journals", &["raw", "zstd", "deleted", "unsynced-zstd"]);
}

#[test]
fn a_file_that_is_cut_while_it_is_open_is_an_error_in_positional_mode() {
    // What the mapped mode promises about that, which is nothing, ReadMode says.
    let scratch = scratch();
    for (name, file) in SUBJECTS.iter().flat_map(|name| [(name, "0.zr"), (name, "meta.zr")]) {
        let subject = Subject::build(name, &scratch.path().join(format!("{name}-{file}")));
        let dir = scratch.path().join("damaged");
        for len in (0..subject.file(file).unwrap().len()).step_by(7) {
            subject.restore(&dir);
            let store = StoreOptions::new().read_mode(ReadMode::Positional).open(&dir).unwrap();
            assert_eq!(contents(&store).unwrap(), subject.records);
            let damage = Damage::Cut { file: file.to_owned(), len: len as u64 };
            damage.inflict(&dir);
            let found = read_all(&store, &dir, 0, subject.records.len()).unwrap();
            subject.check_records(&damage, &found, store.len()).unwrap();
        }
    }
}

#[test]
fn another_schema_is_a_mismatch_and_not_other_numbers() {
    let scratch = scratch();
    let subject = Subject::build("ragged", scratch.path());
    let dir = scratch.path().join("damaged");
    subject.restore(&dir);
    let wrong = RaggedDataset::<i16>::open(&dir);
    assert!(matches!(&wrong, Err(Error::Mismatch { what: "the dtype", .. })), "{wrong:?}");
    let wrong = loaderx::DenseDataset::<u16>::open(&dir);
    assert!(matches!(&wrong, Err(Error::Mismatch { .. })), "{wrong:?}");
    // Dense rows of three numbers: every record has another length.
    let other = scratch.path().join("other");
    loaderx::DenseDataset::<u16, [usize; 1]>::create(&other, [3]).unwrap().close().unwrap();
    std::fs::copy(other.join("schema.msgpack"), dir.join("schema.msgpack")).unwrap();
    let dense = loaderx::DenseDataset::<u16, [usize; 1]>::open(&dir).unwrap();
    let read = dense.read(..);
    assert!(matches!(&read, Err(Error::Corrupt(_))), "{read:?}");
    set_header(&dir, 0, 0, 0);
    assert!(loaderx::DenseDataset::<u16, [usize; 1]>::open(&dir).unwrap().read(..).unwrap().is_empty());
}

#[test]
fn a_table_that_was_cut_is_not_filled_up_with_empty_records() {
    let scratch = scratch();
    let subject = Subject::build("raw", scratch.path());
    let dir = scratch.path().join("damaged");
    subject.restore(&dir);
    Damage::Cut { file: "meta.zr".to_owned(), len: 40 }.inflict(&dir);
    let refused = StoreOptions::new().open_writable(&dir);
    assert!(matches!(&refused, Err(Error::Corrupt(place)) if place.path.ends_with("meta.zr")), "{refused:?}");
    assert_eq!(std::fs::metadata(dir.join("meta.zr")).unwrap().len(), 40);
}

#[test]
fn an_entry_that_claims_4_gib_is_refused_before_memory_is_taken() {
    let scratch = scratch();
    for name in ["raw", "zstd"] {
        let subject = Subject::build(name, &scratch.path().join(name));
        let dir = scratch.path().join("damaged");
        let lengths = if name == "raw" { [[0xff; 4], [0xff; 4]].concat() } else { vec![0xff; 4] };
        let at = if name == "raw" { 16 + 4 } else { 16 + 8 };
        subject.restore(&dir);
        Damage::Patch { file: "meta.zr".to_owned(), at, bytes: lengths }.inflict(&dir);
        for mode in MODES {
            let refused = StoreOptions::new().read_mode(mode).open(&dir).unwrap().get(0);
            assert!(matches!(&refused, Err(Error::Corrupt(place)) if place.record == Some(0)), "{name}: {refused:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_is_an_error_and_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo runs").success());
    };
    let source = dir.path().join("a.npy");
    pipe(&source);
    let error = loaderx::Import::new().npy(&source, dir.path().join("store")).unwrap_err();
    assert!(error.to_string().contains("no regular file"), "{error}");
    for name in ["meta.zr", "commit.zr", "0.zr", "schema.msgpack", "dict.zr"] {
        let path = dir.path().join(format!("store of {name}"));
        let data = loaderx::DenseDataset::<u8, ()>::create(&path, ()).unwrap();
        data.append(&[1, 2, 3]).unwrap();
        data.close().unwrap();
        let _ = std::fs::remove_file(path.join(name));
        pipe(&path.join(name));
        let read = loaderx::DenseDataset::<u8, ()>::open(&path).and_then(|data| data.read(..).map(drop));
        assert!(read.is_err(), "{name}");
        assert!(
            loaderx::DenseDataset::<u8, ()>::open_writable(&path).and_then(|data| data.append(&[4])).is_err(),
            "{name}"
        );
    }
}
