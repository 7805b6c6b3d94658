//! Imports and recodings on the simulated disk, crashed at every point: the destination is whole or not there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::npy;
use crate::data::{AnyDataset, Fault, SimDisk};
use crate::error::{Error, Result};
use crate::{Codec, DictSize, Import, Imported, Recode, StoreOptions};

const DESTINATION: &str = "/data/sets/new";
const SOURCE: &str = "/data/sets/old";

fn records() -> Vec<Vec<u8>> {
    (0..40u8).map(|i| [i, 7, i / 3].repeat(usize::from(i % 9) * 30)).collect()
}

fn import(disk: &SimDisk) -> Import<'static> {
    let mut import = Import::new();
    import.settings.disk = Arc::new(disk.clone());
    import
}

/// The records of the store at `path`; `None` where nothing is there.
fn held(disk: &SimDisk, path: &str, what: &str) -> Option<Vec<Vec<u8>>> {
    match AnyDataset::open_with(StoreOptions::new().disk(Arc::new(disk.clone())), Path::new(path)) {
        Ok(store) => Some((0..store.len()).map(|i| store.get(i).unwrap_or_else(|e| panic!("{what}: {e}"))).collect()),
        Err(Error::NotAStore { reason, .. }) if reason == "nothing is there" => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

fn crash_everywhere(prepare: impl Fn(&SimDisk), run: impl Fn(&SimDisk) -> Result<Imported>, wanted: &[Vec<u8>]) {
    let disk = SimDisk::new();
    prepare(&disk);
    let first = disk.changes();
    run(&disk).unwrap();
    let changes = disk.changes();
    assert!(changes > first + 20, "only {} changes", changes - first);
    for at in first..changes {
        for seed in 0..2 {
            let disk = SimDisk::new();
            prepare(&disk);
            disk.set_fault(Some(Fault::Crash { at, seed }));
            let done = run(&disk);
            assert!(disk.crashed(), "no crash at {at}");
            let failures =
                (0..3).map(|power| (disk.after_power_failure(power), format!("power failed at {at}/{power}")));
            for (disk, what) in failures.chain([(disk.after_kill(), format!("killed at {at}"))]) {
                match held(&disk, DESTINATION, &what) {
                    Some(found) => assert!(found == wanted, "{what}: other records"),
                    None => {
                        assert!(done.is_err(), "{what}: it was said to be done");
                        run(&disk).unwrap_or_else(|e| panic!("{what}: again: {e}"));
                        assert!(held(&disk, DESTINATION, &what).unwrap() == wanted, "{what}: other records, again");
                    }
                }
                if let Some(source) = held(&disk, SOURCE, &what) {
                    assert!(source == wanted, "{what}: the source has changed");
                }
            }
        }
    }
}

/// An import that is crashed at every point, and resumed: it gives the store of one that ran through.
fn resume_everywhere(run: impl Fn(&SimDisk, bool) -> Result<Imported>, wanted: &[Vec<u8>]) {
    let disk = SimDisk::new();
    run(&disk, false).unwrap();
    assert!(held(&disk, DESTINATION, "at once").unwrap() == wanted, "other records");
    let mut taken_up = 0;
    for at in 0..disk.changes() {
        let disk = SimDisk::new();
        disk.set_fault(Some(Fault::Crash { at, seed: at }));
        let done = run(&disk, false);
        let failures = (0..2).map(|power| (disk.after_power_failure(power), format!("power failed at {at}/{power}")));
        for (disk, what) in failures.chain([(disk.after_kill(), format!("killed at {at}"))]) {
            if held(&disk, DESTINATION, &what).is_some() {
                continue;
            }
            assert!(done.is_err(), "{what}: it was said to be done");
            // The resumed one is crashed, too.
            disk.set_fault(Some(Fault::Crash { at: disk.changes() + at % 40, seed: at }));
            let _ = run(&disk, true);
            let disk = if disk.crashed() { disk.after_power_failure(at) } else { disk };
            disk.set_fault(None);
            if held(&disk, DESTINATION, &what).is_none() {
                let resumed = run(&disk, true).unwrap_or_else(|e| panic!("{what}: {e}"));
                taken_up += u64::from(resumed.resumed);
                assert_eq!(resumed.rows, wanted.len() as u64, "{what}");
            }
            assert!(held(&disk, DESTINATION, &what).unwrap() == wanted, "{what}: other records");
        }
    }
    assert!(taken_up > 20, "only {taken_up} imports were resumed");
}

#[test]
fn an_import_of_arrays_resumed_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a.npy", "b.npy", "c.npy"].map(|name| dir.path().join(name));
    let mut rows = Vec::new();
    for (path, count) in paths.iter().zip([20u64, 1, 30]) {
        let data: Vec<u8> = (0..count * 50).map(|i| (i / 7 + count) as u8).collect();
        std::fs::write(path, npy("|u1", false, &[count, 50], &data)).unwrap();
        rows.extend(data.chunks(50).map(<[u8]>::to_vec));
    }
    let run = |disk: &SimDisk, resume| import(disk).codec(Codec::Raw).resume(resume).paths(&paths, DESTINATION);
    resume_everywhere(run, &rows);
}

#[test]
fn an_import_of_lines_with_a_dictionary_resumed_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.txt");
    let lines: Vec<String> = (0..60).map(|i| format!("line {i} is one of some lines; ").repeat(i % 4)).collect();
    std::fs::write(&source, lines.join("\n") + "\n").unwrap();
    let run = |disk: &SimDisk, resume| {
        let mut import = import(disk).codec(Codec::ZstdDict).level(1).dict_size(DictSize::Bytes(200)).resume(resume);
        import.settings.records_at_once = 11;
        import.path(&source, DESTINATION)
    };
    resume_everywhere(run, &lines.into_iter().map(String::into_bytes).collect::<Vec<_>>());
}

#[test]
fn an_import_of_a_folder_resumed_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<Vec<u8>> = (0..40u8).map(|i| [i, 7].repeat(usize::from(i % 5) * 20)).collect();
    for (i, bytes) in files.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{i:02}")), bytes).unwrap();
    }
    let run = |disk: &SimDisk, resume| {
        let mut import = import(disk).resume(resume);
        import.settings.records_at_once = 9;
        import.path(dir.path(), DESTINATION)
    };
    resume_everywhere(run, &files);
}

#[test]
fn an_import_that_is_stopped_anywhere_is_resumed_and_never_with_other_settings() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.txt");
    let lines: Vec<String> = (0..50).map(|i| format!("line {i}")).collect();
    std::fs::write(&source, lines.join("\n")).unwrap();
    for stop_at in 0..6 {
        let (disk, stop) = (SimDisk::new(), AtomicBool::new(false));
        let run = |codec, resume| {
            let mut left = stop_at;
            let mut import = import(&disk).codec(codec).resume(resume).stop(&stop).progress(|_| {
                left -= 1;
                stop.store(left < 0, Ordering::Relaxed);
            });
            import.settings.records_at_once = 10;
            import.path(&source, DESTINATION)
        };
        let first = run(Codec::Zstd, false);
        if stop_at == 5 {
            assert_eq!(first.unwrap().rows, 50);
            break;
        }
        let error = first.unwrap_err();
        assert!(matches!(error, Error::Interrupted { records, .. } if records == (stop_at as u64 + 1) * 10), "{error}");
        assert!(error.to_string().contains("new.partial holds them"), "{error}");
        assert!(held(&disk, DESTINATION, "stopped").is_none());
        let other = run(Codec::Raw, true).unwrap_err().to_string();
        assert!(other.contains("begun with the codec zstd, and is to be resumed with raw"), "{other}");
        let mut resumed = import(&disk).resume(true);
        resumed.settings.records_at_once = 10;
        assert!(resumed.path(&source, DESTINATION).unwrap().resumed);
        assert!(held(&disk, DESTINATION, "resumed").unwrap().iter().eq(lines.iter().map(|line| line.as_bytes())));
    }
}

#[test]
fn importing_records_crashed_everywhere() {
    crash_everywhere(|_| {}, |disk| import(disk).records(records(), DESTINATION), &records());
}

#[test]
fn importing_a_file_crashed_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.npy");
    let data: Vec<u8> = (0..60 * 50u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(&source, npy("|u1", false, &[60, 50], &data)).unwrap();
    let rows: Vec<Vec<u8>> = data.chunks(50).map(<[u8]>::to_vec).collect();
    crash_everywhere(|_| {}, |disk| import(disk).codec(Codec::Raw).npy(&source, DESTINATION), &rows);
}

#[test]
fn recoding_crashed_everywhere() {
    let prepare = |disk: &SimDisk| drop(import(disk).records(records(), SOURCE).unwrap());
    let recode = |disk: &SimDisk| {
        let mut recode = Recode::new().codec(Codec::Raw);
        recode.settings.disk = Arc::new(disk.clone());
        recode.store(SOURCE, DESTINATION)
    };
    crash_everywhere(prepare, recode, &records());
}
