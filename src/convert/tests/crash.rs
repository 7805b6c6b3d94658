//! Imports and recodings on the simulated disk, crashed at every point: the destination is whole or not there.

use std::path::Path;
use std::sync::Arc;

use super::npy;
use crate::data::{AnyDataset, Fault, SimDisk};
use crate::error::{Error, Result};
use crate::{Codec, Import, Imported, Recode, StoreOptions};

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
