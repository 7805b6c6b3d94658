//! Real processes: killed, on a full disk, short of descriptors, on a read-only disk, and racing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use loaderx::{Codec, DictSize, Error, Import, ReadMode, Store, StoreOptions};

use crate::support::{
    Process, Rng, SmallDisk, Watchdog, append, assert_same, contents, given, header, pack, say, scratch, set_header,
    thorough,
};

const CODECS: [Codec; 3] = [Codec::Raw, Codec::Zstd, Codec::ZstdDict];
const MODES: [ReadMode; 2] = [ReadMode::Mapped, ReadMode::Positional];

fn options(codec: Codec) -> StoreOptions {
    // The level of dictionaries, 19, is for import, not for thousands of small appends.
    StoreOptions::new().codec(codec).level(1)
}

fn samples() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(7);
    (0..200).map(|_| rng.text(100)).collect()
}

fn train(store: &Store) -> loaderx::Result<()> {
    let samples = pack(&samples());
    store.train_dict(&samples.bytes, &samples.offsets, DictSize::Bytes(1024))
}

/// What a process does to a store; a function of the seed, the operation's number and the number of records.
#[derive(Debug, Clone)]
enum Op {
    Create,
    Train,
    Append(Vec<Vec<u8>>),
    Sync,
    Delete(Vec<u64>),
    Compact,
    Close,
}

impl Op {
    fn nth(seed: u64, k: u64, records: usize) -> Op {
        let mut rng = Rng::new(seed << 20 | k);
        let records = records as u64;
        match (k, rng.below(100)) {
            (0, _) => Op::Create,
            (1, _) if codec_of(seed) == Codec::ZstdDict => Op::Train,
            (_, 0..15) if records > 0 => {
                let count = 1 + rng.below(records);
                Op::Delete((0..count).map(|_| rng.below(records)).collect())
            }
            (_, 15..25) => Op::Compact,
            (_, 25..37) => Op::Sync,
            (_, 37..47) => Op::Close,
            (_, 47..50) => Op::Train,
            _ => Op::Append(
                (0..rng.below(30))
                    .map(|_| {
                        let len = rng.below(3000) as usize * usize::from(!rng.chance(10));
                        if rng.chance(70) { rng.text(len) } else { rng.bytes(len) }
                    })
                    .collect(),
            ),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Train => "train_dict",
            Op::Append(_) => "append",
            Op::Sync => "sync",
            Op::Delete(_) => "delete",
            Op::Compact => "compact",
            Op::Close => "close",
        }
    }

    fn apply(&self, records: &mut Vec<Vec<u8>>) {
        match self {
            Op::Append(new) => records.extend_from_slice(new),
            Op::Delete(indices) => {
                let mut holes = indices.clone();
                holes.sort_unstable();
                holes.dedup();
                holes.iter().rev().for_each(|&hole| drop(records.swap_remove(hole as usize)));
            }
            _ => {}
        }
    }
}

fn codec_of(seed: u64) -> Codec {
    CODECS[(seed % 3) as usize]
}

/// The first operations' records.
fn replay(seed: u64, done: u64) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for k in 0..done {
        Op::nth(seed, k, records.len()).apply(&mut records);
    }
    records
}

#[test]
#[ignore = "the entry of child processes"]
fn operate() {
    let Some(dir) = given("processes::operate", "DIR") else { return };
    let number = |name| given("processes::operate", name).unwrap().parse::<u64>().unwrap();
    let (seed, done) = (number("SEED"), number("DONE"));
    let mut records = replay(seed, done);
    let options = options(codec_of(seed));
    let mut store = (done > 0).then(|| options.clone().open_writable(&dir).unwrap());
    assert!(store.as_ref().is_none_or(|store| store.len() == records.len() as u64));
    for k in done.. {
        let op = Op::nth(seed, k, records.len());
        say(format_args!("begin {k} {}", op.name()));
        let mut open = store.take().unwrap_or_else(|| {
            if k == 0 { options.clone().create(&dir) } else { options.clone().open_writable(&dir) }.unwrap()
        });
        match &op {
            Op::Create => {}
            Op::Append(new) => drop(append(&open, new).unwrap()),
            Op::Sync => open.sync().unwrap(),
            Op::Delete(indices) => open.delete(indices).unwrap(),
            Op::Compact => open.compact().unwrap(),
            Op::Train => match train(&open) {
                Ok(()) | Err(Error::Dictionary { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Op::Close => {}
        }
        store = match op {
            Op::Close => open.close().map(|()| None).unwrap(),
            _ => Some(open),
        };
        op.apply(&mut records);
        say(format_args!("done {k}"));
    }
}

/// Starts a child where `done` operations are done, kills it, and gives how many are done for certain and which one
/// was under way.
fn kill_one(dir: &Path, seed: u64, done: u64, rng: &mut Rng) -> (u64, Option<String>) {
    let variables = [("DIR", dir.display().to_string()), ("SEED", seed.to_string()), ("DONE", done.to_string())];
    let mut child = Process::start("processes::operate", &variables, None);
    // A new store is often killed while it is created.
    let lines = if done == 0 && rng.chance(60) { 1 } else { rng.below(24) };
    let (mut done, mut under_way) = (done, None);
    let mut hear = |line: String| match line.split_once(' ') {
        Some(("done", k)) => (done, under_way) = (k.parse::<u64>().unwrap() + 1, None),
        Some(("begin", rest)) => under_way = rest.split_once(' ').map(|(_, name)| name.to_owned()),
        _ => panic!("{line}"),
    };
    for _ in 0..lines {
        match child.line() {
            Some(line) => hear(line),
            None => panic!("the child failed by itself"),
        }
    }
    if lines != 1 {
        let within = if rng.chance(50) { 200 } else { 4000 };
        thread::sleep(Duration::from_micros(rng.below(within)));
    }
    child.kill();
    child.finish().0.into_iter().for_each(&mut hear);
    (done, under_way)
}

#[test]
fn a_killed_process_loses_nothing_that_returned_and_tears_nothing() {
    let kills = if thorough() { 450 } else { 90 };
    let _watchdog = Watchdog::new("killing processes", 600);
    let dir = scratch();
    let mut rng = Rng::new(3);
    let mut hit: BTreeMap<String, u32> = BTreeMap::new();
    let (mut seed, mut done, mut path) = (0, 0, dir.path().join("0"));
    for kill in 0..kills {
        let (returned, under_way) = kill_one(&path, seed, done, &mut rng);
        let context = format!("kill {kill}, seed {seed}, {returned} operations done, in {under_way:?}");
        *hit.entry(under_way.clone().unwrap_or("between two".to_owned())).or_default() += 1;
        let before = replay(seed, returned);
        let mut after = before.clone();
        Op::nth(seed, returned, before.len()).apply(&mut after);
        let opening = StoreOptions::new().read_mode(MODES[rng.below(2) as usize]);
        let opened = if rng.chance(50) { opening.open(&path) } else { opening.open_writable(&path) };
        done = match opened {
            Err(Error::NotAStore { .. }) if returned == 0 => 0,
            Err(error) => panic!("{context}: {error}"),
            Ok(store) => {
                let found = contents(&store).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(returned < 2 || codec_of(seed) != Codec::ZstdDict || store.has_dict(), "{context}");
                if returned > 0 && found == before {
                    returned
                } else {
                    assert!(found == after && (under_way.is_some() || before == after), "{context}");
                    returned + 1
                }
            }
        };
        if done > 150 || rng.chance(8) {
            let _ = std::fs::remove_dir_all(&path);
            seed += 1;
            (done, path) = (0, dir.path().join(seed.to_string()));
        }
    }
    println!("{kills} kills, by what was under way: {hit:?}");
}

const IMPORTED: usize = 4000;

fn imported(i: usize) -> Vec<u8> {
    let mut rng = Rng::new(i as u64);
    let len = rng.below(800) as usize;
    rng.text(len)
}

fn import(codec: Codec, dst: &Path) -> loaderx::Result<loaderx::Imported> {
    Import::new().codec(codec).level(1).samples(samples()).records((0..IMPORTED).map(imported), dst)
}

#[test]
#[ignore = "the entry of child processes"]
fn import_records() {
    let Some(dst) = given("processes::import_records", "DST") else { return };
    let codec: usize = given("processes::import_records", "CODEC").unwrap().parse().unwrap();
    say(format_args!("begin"));
    import(CODECS[codec], Path::new(&dst)).unwrap();
    say(format_args!("done"));
}

#[test]
fn a_killed_import_leaves_no_half_made_store() {
    let kills: usize = if thorough() { 60 } else { 12 };
    let _watchdog = Watchdog::new("killing imports", 600);
    let dir = scratch();
    let mut rng = Rng::new(11);
    let (mut cut_off, mut whole) = (0, 0);
    for kill in 0..kills {
        let dst = dir.path().join((kill / 3).to_string());
        let codec = kill / 3 % 3;
        let variables = [("DST", dst.display().to_string()), ("CODEC", codec.to_string())];
        if dst.exists() {
            continue;
        }
        let mut child = Process::start("processes::import_records", &variables, None);
        assert_eq!(child.line().as_deref(), Some("begin"));
        thread::sleep(Duration::from_micros(rng.below(40_000)));
        child.kill();
        let (lines, _) = child.finish();
        if !dst.exists() {
            assert!(lines.is_empty(), "an import that returned is gone");
            cut_off += 1;
            if kill % 3 < 2 {
                continue;
            }
            import(CODECS[codec], &dst).unwrap();
        }
        whole += 1;
        let store = Store::open(&dst).unwrap();
        assert_same(&contents(&store).unwrap(), &(0..IMPORTED).map(imported).collect::<Vec<_>>(), "every record");
    }
    println!("{cut_off} imports cut off, {whole} whole");
    assert!(cut_off > 0);
}

/// Fills a file until the disk is full.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

fn assert_full<T: std::fmt::Debug>(done: loaderx::Result<T>, what: &str) {
    match done {
        Err(Error::Io { source, .. }) if source.raw_os_error() == Some(28) => {}
        other => panic!("{what} on a full disk: {other:?}"),
    }
}

#[test]
fn a_full_disk_is_an_error_and_takes_no_record_with_it() {
    let Some(disk) = SmallDisk::mount("5m") else { return };
    let _watchdog = Watchdog::new("filling a disk", 300);
    for (codec, mode) in CODECS.into_iter().flat_map(|codec| MODES.map(|mode| (codec, mode))) {
        let what = format!("{codec:?} {mode:?}");
        let mut rng = Rng::new(5);
        let (path, ballast, filler) =
            (disk.path().join("store"), disk.path().join("ballast"), disk.path().join("filler"));
        std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
        let mut store = options(codec).read_mode(mode).create(&path).unwrap();
        train(&store).unwrap();
        let mut records: Vec<Vec<u8>> = Vec::new();
        let error = loop {
            let new: Vec<Vec<u8>> = (0..1 + rng.below(40)).map(|_| rng.bytes(3000)).collect();
            match append(&store, &new) {
                Ok(first) => {
                    assert_eq!(first, records.len() as u64);
                    records.extend(new);
                }
                Err(error) => break error,
            }
        };
        assert_full(Err::<(), _>(error), &what);
        fill(&filler);
        for count in [1, 7, 300] {
            let new: Vec<Vec<u8>> = (0..count).map(|_| rng.bytes(9000)).collect();
            match append(&store, &new) {
                // What fits in the blocks that the failed append had taken is stored.
                Ok(_) if count < 300 => records.extend(new),
                other => assert_full(other, &what),
            }
        }
        assert_same(&contents(&store).unwrap(), &records, &what);
        assert_full(store.compact(), &what);
        assert_full(store.delete(&[0, 2]), &what);
        assert_same(&contents(&store).unwrap(), &records, &what);
        let other = disk.path().join("other");
        assert_full(import(codec, &other), &what);
        assert!(!other.exists());
        let created = options(codec).create(&other);
        assert!(matches!(&created, Err(Error::Io { .. })), "{created:?}");
        assert_same(&contents(&Store::open(&path).unwrap()).unwrap(), &records, &what);

        // Room again: the same handle goes on.
        std::fs::remove_file(&ballast).unwrap();
        options(codec).create(&other).unwrap().close().unwrap();
        std::fs::remove_dir_all(&other).unwrap();
        store.delete(&(1000..records.len() as u64).chain(0..300).collect::<Vec<_>>()).unwrap();
        let deletion = Op::Delete((1000..records.len() as u64).chain(0..300).collect());
        deletion.apply(&mut records);
        assert_same(&contents(&store).unwrap(), &records, &what);
        store.delete(&(100..records.len() as u64).collect::<Vec<_>>()).unwrap();
        records.truncate(100);
        store.compact().unwrap();
        append(&store, &[b"later"]).unwrap();
        records.push(b"later".to_vec());
        assert_same(&contents(&store).unwrap(), &records, &what);
        store.close().unwrap();
        assert_same(&contents(&options(codec).read_mode(mode).open(&path).unwrap()).unwrap(), &records, &what);
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::remove_file(&filler).unwrap();
    }
}

const CHUNKS: u16 = 300;

/// A store with a record in each of 300 chunks, the first of which end just below 4 GiB.
fn many_chunks(path: &Path) -> Vec<Vec<u8>> {
    let records: Vec<Vec<u8>> = (0..CHUNKS).map(|i| Rng::new(u64::from(i)).bytes(100)).collect();
    Store::create(path, Codec::Raw).unwrap().close().unwrap();
    for (chunk, record) in records.iter().enumerate() {
        let (tail_chunk, _, length) = header(path);
        let (tail_chunk, tail) = if chunk < 3 { (tail_chunk, u32::MAX - 50) } else { (chunk as u16 + 1, 0) };
        set_header(path, tail_chunk, tail, length);
        let store = StoreOptions::new().open_writable(path).unwrap();
        append(&store, &[record]).unwrap();
        store.close().unwrap();
    }
    records
}

#[test]
#[ignore = "the entry of child processes"]
fn read_with_few_descriptors() {
    let Some(dir) = given("processes::read_with_few_descriptors", "DIR") else { return };
    let records: Vec<Vec<u8>> = (0..CHUNKS).map(|i| Rng::new(u64::from(i)).bytes(100)).collect();
    for mode in MODES {
        let store = StoreOptions::new().read_mode(mode).open(&dir).unwrap();
        thread::scope(|scope| {
            for thread in 0..8 {
                let (store, records) = (&store, &records);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..2000 {
                        let i = rng.below(u64::from(CHUNKS));
                        assert_eq!(store.get(i).unwrap(), records[i as usize]);
                    }
                });
            }
        });
        assert_same(&contents(&store).unwrap(), &records, "every record");
        store.stats().unwrap();
    }
    for mode in MODES {
        let mut store = StoreOptions::new().codec(Codec::Raw).read_mode(mode).open_writable(&dir).unwrap();
        append(&store, &records).unwrap();
        store.delete(&(u64::from(CHUNKS)..2 * u64::from(CHUNKS)).collect::<Vec<_>>()).unwrap();
        store.compact().unwrap();
        assert_same(&contents(&store).unwrap(), &records, "every record");
    }
    say(format_args!("all read"));
}

#[test]
fn hundreds_of_chunks_need_few_descriptors() {
    let dir = scratch();
    let path = dir.path().join("store");
    let records = many_chunks(&path);
    assert_same(&contents(&Store::open(&path).unwrap()).unwrap(), &records, "every record");
    let variables = [("DIR", path.display().to_string())];
    let child = Process::start("processes::read_with_few_descriptors", &variables, Some("ulimit -n 64"));
    let (lines, well) = child.finish();
    assert!(well, "the child failed");
    assert_eq!(lines, ["all read"]);
}

#[test]
fn a_directory_that_turns_read_only_is_read_without_locks_and_not_written() {
    let Some(disk) = SmallDisk::mount("8m") else { return };
    let records: Vec<Vec<u8>> = (0..50).map(|i| Rng::new(i).text(300)).collect();
    let (with, without) = (disk.path().join("with-locks"), disk.path().join("without-locks"));
    for path in [&with, &without] {
        let store = options(Codec::Zstd).create(path).unwrap();
        append(&store, &records).unwrap();
        store.close().unwrap();
    }
    for lock in ["read.lock", "write.lock"] {
        std::fs::remove_file(without.join(lock)).unwrap();
    }
    if !disk.remount("ro") {
        println!("skipped: this machine remounts no tmpfs read-only");
        return;
    }
    for path in [&with, &without] {
        for mode in MODES {
            let store = StoreOptions::new().read_mode(mode).open(path).unwrap();
            assert_same(&contents(&store).unwrap(), &records, "every record");
            let again = StoreOptions::new().read_mode(mode).open(path).unwrap();
            assert_same(&contents(&again).unwrap(), &records, "two readers at once");
        }
        let refused = StoreOptions::new().open_writable(path);
        assert!(matches!(&refused, Err(Error::Io { path: named, .. }) if named.starts_with(path)), "{refused:?}");
    }
    let created = Store::create(disk.path().join("new"), Codec::Raw);
    assert!(matches!(&created, Err(Error::Io { .. })), "{created:?}");
    let imported = import(Codec::Raw, &disk.path().join("new"));
    assert!(matches!(&imported, Err(Error::Io { .. })), "{imported:?}");
}

/// A record that says which process made it, and can be told from every other one.
fn raced(process: u64, number: u64) -> Vec<u8> {
    let id = process << 40 | number;
    let mut rng = Rng::new(id);
    let len = rng.below(400) as usize;
    [id.to_le_bytes().to_vec(), rng.text(len)].concat()
}

/// Who made a record, where it is whole.
fn maker(record: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(*record.first_chunk()?);
    (raced(id >> 40, id & ((1 << 40) - 1)) == record).then_some(id)
}

fn read_whole(store: &Store) -> Result<Vec<u64>, String> {
    let records = contents(store).map_err(|error| format!("reading: {error}"))?;
    let ids: Vec<u64> = records
        .iter()
        .map(|record| maker(record).ok_or_else(|| format!("no process appended {record:?}")))
        .collect::<Result<_, _>>()?;
    if ids.iter().collect::<BTreeSet<_>>().len() != ids.len() { Err("a record twice".to_owned()) } else { Ok(ids) }
}

/// Tries again where others have the store open.
fn patiently(mut change: impl FnMut() -> loaderx::Result<()>) -> loaderx::Result<()> {
    for _ in 0..40 {
        match change() {
            Err(Error::Locked { .. }) => thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
    change()
}

/// One turn of a racing process. `Err` is a fault; whether there is a store is told by `exists`.
fn race_once(dir: &Path, process: u64, rng: &mut Rng, next: &mut u64, exists: &mut bool) -> Result<(), String> {
    let options = options(Codec::Zstd).read_mode(MODES[rng.below(2) as usize]);
    let choice = rng.below(10);
    let opened = match choice {
        0..5 => options.open(dir),
        5 => options.create(dir),
        6 => options.open_writable(dir),
        _ => options.open_or_create(dir),
    };
    let mut store = match opened {
        Ok(store) => store,
        Err(Error::Locked { .. }) => return Ok(()),
        Err(Error::Exists { .. }) if choice == 5 => return Ok(()),
        Err(Error::NotAStore { .. }) if !*exists && choice < 7 => return Ok(()),
        Err(error) => return Err(format!("opening, way {choice}: {error}")),
    };
    *exists = true;
    let ids = read_whole(&store)?;
    if choice < 5 {
        thread::sleep(Duration::from_micros(rng.below(2000)));
        return if read_whole(&store)? == ids { Ok(()) } else { Err("an open handle's records changed".to_owned()) };
    }
    for _ in 0..if ids.len() < 3000 { rng.below(4) } else { 0 } {
        let count = rng.below(20);
        let new: Vec<Vec<u8>> = (*next..*next + count).map(|number| raced(process, number)).collect();
        append(&store, &new).map_err(|error| format!("append: {error}"))?;
        say(format_args!("appended {next} {count}"));
        *next += count;
    }
    if rng.chance(60) {
        let ids = read_whole(&store)?;
        let holes: Vec<u64> =
            (0..ids.len() as u64).filter(|_| rng.chance(if ids.len() > 500 { 60 } else { 10 })).collect();
        match patiently(|| store.delete(&holes)) {
            Ok(()) => {
                for &hole in &holes {
                    say(format_args!("deleted {}", ids[hole as usize]));
                }
            }
            Err(Error::Locked { .. }) => {}
            Err(error) => return Err(format!("delete: {error}")),
        }
    }
    if rng.chance(30) {
        match patiently(|| store.compact()) {
            Ok(()) => say(format_args!("compacted")),
            Err(Error::Locked { .. }) => {}
            Err(error) => return Err(format!("compact: {error}")),
        }
    }
    read_whole(&store)?;
    if rng.chance(50) { store.close().map_err(|error| format!("close: {error}")) } else { Ok(()) }
}

#[test]
#[ignore = "the entry of child processes"]
fn race() {
    let Some(dir) = given("processes::race", "DIR") else { return };
    let number = |name| given("processes::race", name).unwrap().parse::<u64>().unwrap();
    let (process, until) = (number("ID"), Instant::now() + Duration::from_millis(number("MILLIS")));
    let (mut rng, mut next, mut exists) = (Rng::new(process), 0, false);
    while Instant::now() < until {
        // Without a handle, so that a writer finds the store alone now and then.
        thread::sleep(Duration::from_micros(rng.below(12_000)));
        if let Err(fault) = race_once(Path::new(&dir), process, &mut rng, &mut next, &mut exists) {
            say(format_args!("fault {fault}"));
            return;
        }
    }
    say(format_args!("ended"));
}

fn race_of(processes: u64, millis: u64) {
    let _watchdog = Watchdog::new("racing processes", 120 + millis / 1000);
    let dir = scratch();
    let path = dir.path().join("store");
    let mut children: Vec<Process> = (0..processes)
        .map(|id| {
            let variables =
                [("DIR", path.display().to_string()), ("ID", id.to_string()), ("MILLIS", millis.to_string())];
            Process::start("processes::race", &variables, None)
        })
        .collect();
    // All of them are heard at once: none waits for its parent.
    let heard: Vec<(Vec<String>, bool)> = thread::scope(|scope| {
        let ears: Vec<_> = children.drain(..).map(|child| scope.spawn(|| child.finish())).collect();
        ears.into_iter().map(|ear| ear.join().unwrap()).collect()
    });
    let (mut appended, mut deleted, mut compacted) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (process, (lines, well)) in (0u64..).zip(heard) {
        assert!(well, "process {process} failed");
        assert_eq!(lines.last().map(String::as_str), Some("ended"), "process {process}");
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |i: usize| words[i].parse::<u64>().unwrap();
            match words[0] {
                "appended" => appended.extend((number(1)..number(1) + number(2)).map(|n| process << 40 | n)),
                "deleted" => assert!(deleted.insert(number(1)), "deleted twice"),
                "compacted" => compacted += 1,
                _ => {}
            }
        }
    }
    let left: BTreeSet<u64> = read_whole(&Store::open(&path).unwrap()).unwrap().into_iter().collect();
    println!("{processes} processes: {} appended, {} deleted, {compacted} compactions", appended.len(), deleted.len());
    assert!(!appended.is_empty());
    assert_eq!(left, appended.difference(&deleted).copied().collect());
}

#[test]
fn two_processes_at_once_lose_and_tear_nothing() {
    race_of(2, if thorough() { 20_000 } else { 4000 });
}

#[test]
fn twenty_processes_at_once_lose_and_tear_nothing() {
    race_of(20, if thorough() { 30_000 } else { 5000 });
}

#[test]
fn a_store_that_another_creates_meanwhile_is_opened_and_not_in_the_way() {
    let dir = scratch();
    for round in 0..if thorough() { 2000 } else { 200 } {
        let path = dir.path().join(round.to_string());
        let barrier = Barrier::new(6);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    barrier.wait();
                    match StoreOptions::new().open_or_create(&path) {
                        Ok(store) => store.close().unwrap(),
                        Err(Error::Locked { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
    }
}
