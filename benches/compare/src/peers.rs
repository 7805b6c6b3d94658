//! Other Rust crates, each used as its documentation does.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use heed::types::{Bytes, U64};
use heed::{Database, EnvFlags, EnvOpenOptions, PutFlags, byteorder::BigEndian};
use memmap2::Mmap;
use ndarray::{ArrayView, ArrayViewD, Axis, Ix2};
use ndarray_npy::{ViewElement, ViewNpyExt};

use crate::{Data, Options, Result, Turn, best, print};

/// A mapped .npy, rows selected by ndarray.
pub fn ndarray_npy(data: &Data, options: &Options) -> Result<()> {
    if data.name == "vectors" { select::<f32>(data, options) } else { select::<u8>(data, options) }
}

fn select<T: ViewElement + Copy>(data: &Data, options: &Options) -> Result<()> {
    // SAFETY: nothing changes the file while it is measured.
    let map = unsafe { Mmap::map(&File::open(&data.path)?)? };
    let rows = ArrayViewD::<T>::view_npy(&map)?;
    let mut turn = Turn::new(data.rows, options.batch);
    let mut indices = Vec::new();
    let value = best(|| {
        indices.clear();
        indices.extend(turn.next().iter().map(|&index| index as usize));
        Ok(rows.select(Axis(0), &indices))
    })?;
    print("ndarray-npy", "gather", &data.name, "raw", value, "us/batch");
    Ok(())
}

/// LMDB: a record a key.
pub fn heed(data: &Data, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(&options.data)?;
    // SAFETY: nothing else opens or changes the file.
    let map = unsafe { Mmap::map(&File::open(&data.path)?)? };
    let rows =
        ArrayView::from_shape((data.rows as usize, data.row), &map[data.begin..])?.into_dimensionality::<Ix2>()?;
    let begin = Instant::now();
    // SAFETY: as above.
    let env = unsafe { EnvOpenOptions::new().map_size(4 << 30).flags(EnvFlags::NO_READ_AHEAD).open(folder.path())? };
    let mut writing = env.write_txn()?;
    let database: Database<U64<BigEndian>, Bytes> = env.create_database(&mut writing, None)?;
    for (index, row) in rows.rows().into_iter().enumerate() {
        database.put_with_flags(&mut writing, PutFlags::APPEND, &(index as u64), row.as_slice().ok_or("no row")?)?;
    }
    writing.commit()?;
    let took = begin.elapsed().as_secs_f64();
    if options.wants("write") {
        print("heed", "write", &data.name, "raw", data.bytes() / took / f64::from(1 << 20), "MiB/s");
        print("heed", "disk", &data.name, "raw", len(folder.path())? as f64, "bytes");
    }
    if options.wants("gather") {
        let mut turn = Turn::new(data.rows, options.batch);
        let value = best(|| {
            let reading = env.read_txn()?;
            let mut out = Vec::with_capacity(options.batch * data.row);
            for index in turn.next() {
                out.extend_from_slice(database.get(&reading, index)?.ok_or("no record")?);
            }
            Ok(out)
        })?;
        print("heed", "gather", &data.name, "raw", value, "us/batch");
    }
    Ok(())
}

fn len(folder: &Path) -> std::io::Result<u64> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
