//! A saved loader state and what became of its data meanwhile: accepted after what keeps the records, refused by name
//! after what does not.

use std::path::{Path, PathBuf};
use std::process::Command;

use loaderx::{DataLoader, DenseBatch, DenseDataset, Error, LoaderState, RaggedDataset};

use crate::support::{Rng, scratch};

type Dense = DenseDataset<i32, [usize; 1]>;
type Loader = DataLoader<DenseBatch<i32, [usize; 1]>>;

const RECORDS: u64 = 400;

fn rows(range: std::ops::Range<u64>) -> Vec<i32> {
    range.flat_map(|i| [i as i32, Rng::new(i).below(1 << 20) as i32]).collect()
}

fn create(path: &Path) {
    let dataset = Dense::create(path, [2]).unwrap();
    dataset.append(&rows(0..RECORDS)).unwrap();
    dataset.close().unwrap();
}

fn resume(path: &Path, state: Option<&LoaderState>) -> loaderx::Result<Loader> {
    let builder = DataLoader::builder(Dense::open(path)?).batch_size(16).seed(9).workers(1);
    match state {
        Some(state) => builder.resume(state.clone()).build(),
        None => builder.build(),
    }
}

/// A dataset, the state of a loader over it after seven steps, and the batch that comes next.
fn saved(dir: &Path) -> (PathBuf, LoaderState, Vec<i32>) {
    let path = dir.join("data");
    create(&path);
    let mut loader = resume(&path, None).unwrap();
    (0..7).for_each(|_| drop(loader.next().unwrap().unwrap()));
    let state = loader.state();
    let next = loader.next().unwrap().unwrap().into_values();
    (path, state, next)
}

fn assert_accepted(path: &Path, state: &LoaderState, next: &[i32]) {
    let mut loader = resume(path, Some(state)).unwrap();
    assert_eq!(loader.step(), 7);
    assert_eq!(loader.next().unwrap().unwrap().into_values(), next);
}

fn assert_refused(path: &Path, state: &LoaderState, says: &str) {
    match resume(path, Some(state)) {
        Err(Error::State { reason }) => assert!(reason.contains(says), "{reason}"),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the state was taken, though the data changed"),
    }
}

#[test]
fn a_state_is_accepted_after_append_copy_move_and_compact() {
    let dir = scratch();
    let (path, state, next) = saved(dir.path());
    assert_accepted(&path, &state, &next);
    let dataset = Dense::options().open_writable(&path).unwrap();
    dataset.append(&rows(5000..5100)).unwrap();
    // Appended, and not synced yet.
    assert_accepted(&path, &state, &next);
    dataset.close().unwrap();
    assert_accepted(&path, &state, &next);
    let copy = dir.path().join("copy");
    crate::support::copy_store(&path, &copy);
    assert_accepted(&copy, &state, &next);
    let moved = dir.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    assert_accepted(&moved, &state, &next);
    let mut dataset = Dense::options().open_writable(&moved).unwrap();
    dataset.compact().unwrap();
    dataset.close().unwrap();
    assert_accepted(&moved, &state, &next);
}

#[test]
fn a_state_is_refused_after_a_delete_whatever_is_appended_after_it() {
    let dir = scratch();
    let (path, state, _) = saved(dir.path());
    let mut dataset = Dense::options().open_writable(&path).unwrap();
    dataset.delete([17]).unwrap();
    dataset.sync().unwrap();
    assert_refused(&path, &state, "had 400 records when it was saved and has 399 now");
    // The same number of records again.
    dataset.append(&rows(17..18)).unwrap();
    assert_refused(&path, &state, "as after a delete or a rewrite");
    // The very same records again, in another order; and after compacting.
    dataset.compact().unwrap();
    dataset.close().unwrap();
    assert_refused(&path, &state, "as after a delete or a rewrite");
}

#[test]
fn a_state_is_refused_for_the_same_bytes_of_another_type() {
    let dir = scratch();
    let (path, state, _) = saved(dir.path());
    let other = dir.path().join("other");
    let ragged = RaggedDataset::<i32>::create(&other, ()).unwrap();
    ragged.append(rows(0..RECORDS).chunks(2)).unwrap();
    ragged.close().unwrap();
    let stream = RaggedDataset::<i32>::open(&other).unwrap();
    let refused = DataLoader::builder(stream).batch_size(16).seed(9).resume(state.clone()).build();
    assert!(matches!(&refused, Err(Error::State { reason }) if reason.contains("fingerprint")), "{:?}", refused.err());
    // And a pair is told which of the two it is.
    let pair = |second: &Path| {
        let streams = (Dense::open(&path).unwrap(), Dense::open(second).unwrap());
        DataLoader::builder(streams).batch_size(16)
    };
    let second = dir.path().join("second");
    create(&second);
    let state = pair(&second).build().unwrap().state();
    let mut dataset = Dense::options().open_writable(&second).unwrap();
    dataset.delete([3]).unwrap();
    dataset.append(&rows(3..4)).unwrap();
    dataset.close().unwrap();
    let refused = pair(&second).resume(state).build();
    assert!(matches!(&refused, Err(Error::State { reason }) if reason.contains("stream 1")), "{:?}", refused.err());
}

/// Runs Python on a dataset; `false`, with a printed line, where there is none.
fn python(path: &Path, does: &str) -> bool {
    let Some(python) = std::env::var_os("LOADERX_PYTHON") else {
        println!("skipped: LOADERX_PYTHON names no Python with loaderx 0.9");
        return false;
    };
    let begin =
        "import sys, numpy as np\nfrom loaderx.dataset import DenseDataset\nwith DenseDataset(sys.argv[1]) as ds:\n";
    let status = Command::new(python).args(["-c", &format!("{begin}    {does}")]).arg(path).status().unwrap();
    assert!(status.success(), "{does}");
    true
}

#[test]
fn a_state_is_refused_after_python_deletes() {
    let dir = scratch();
    let (path, state, _) = saved(dir.path());
    if python(&path, "ds.delete([200])") {
        assert_refused(&path, &state, "had 400 records when it was saved and has 399 now");
    }
}

#[test]
fn a_state_is_refused_after_python_deletes_and_appends_back_to_the_same_length() {
    for (victim, appended) in [(200, 200), (200, 7), (0, 0), (399, 7), (390, 390)] {
        let dir = scratch();
        let (path, state, _) = saved(dir.path());
        let does = format!("row = np.array(ds[{appended}:{appended}+1]); ds.delete([{victim}]); ds.append(row)");
        if !python(&path, &does) {
            return;
        }
        assert_eq!(Dense::open(&path).unwrap().len(), RECORDS);
        assert_refused(&path, &state, "as after a delete or a rewrite");
    }
}

#[test]
fn a_state_is_refused_after_python_rewrites() {
    let dir = scratch();
    let (path, state, _) = saved(dir.path());
    if python(&path, "rows = np.array(ds[:]); ds.delete(slice(None)); ds.append(rows[::-1].copy())") {
        assert_eq!(Dense::open(&path).unwrap().len(), RECORDS);
        assert_refused(&path, &state, "as after a delete or a rewrite");
    }
}

#[test]
fn a_state_is_accepted_after_python_appends_and_compacts() {
    let dir = scratch();
    let (path, state, next) = saved(dir.path());
    if python(&path, "ds.append(np.zeros((50, 2), np.int32)); ds.compact()") {
        assert_eq!(Dense::open(&path).unwrap().len(), RECORDS + 50);
        assert_accepted(&path, &state, &next);
    }
}
