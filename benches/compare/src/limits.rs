//! What the machine allows: the same bytes from the same places, without a store.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use memmap2::Mmap;
use rayon::prelude::*;
use zstd::bulk::Decompressor;

use crate::{Data, Options, Result, Turn, best, print};

/// Copies rows of the mapped array into a fresh and a used buffer, on one core and on all.
pub fn memcpy(data: &Data, options: &Options) -> Result<()> {
    // SAFETY: nothing changes the file while it is measured.
    let map = unsafe { Mmap::map(&File::open(&data.path)?)? };
    let (rows, row) = (&map[data.begin..], data.row);
    let copy = |indices: &[u64], out: &mut [u8]| {
        for (&index, out) in indices.iter().zip(out.chunks_exact_mut(row)) {
            out.copy_from_slice(&rows[index as usize * row..][..row]);
        }
    };
    let append = |indices: &[u64], out: &mut Vec<u8>| {
        for &index in indices {
            out.extend_from_slice(&rows[index as usize * row..][..row]);
        }
    };
    let cores = rayon::current_num_threads();
    let spread = |indices: &[u64], out: &mut [u8]| {
        let part = indices.len().div_ceil(cores);
        indices.par_chunks(part).zip(out.par_chunks_mut(part * row)).for_each(|(indices, out)| copy(indices, out));
    };
    let bytes = options.batch * row;
    let mut turn = Turn::new(data.rows, options.batch);
    let report =
        |kind: &str, value| print(&format!("limit-memcpy-{kind}"), "gather", &data.name, "raw", value, "us/batch");

    report(
        "fresh-1",
        best(|| {
            let mut out = Vec::with_capacity(bytes);
            append(turn.next(), &mut out);
            Ok(out)
        })?,
    );
    report(
        "fresh-all",
        best(|| {
            let indices = turn.next();
            let part = indices.len().div_ceil(cores);
            let mut out: Vec<u8> = Vec::with_capacity(bytes);
            out.spare_capacity_mut()[..bytes].par_chunks_mut(part * row).zip(indices.par_chunks(part)).for_each(
                |(out, indices)| {
                    for (&index, out) in indices.iter().zip(out.chunks_exact_mut(row)) {
                        out.write_copy_of_slice(&rows[index as usize * row..][..row]);
                    }
                },
            );
            // SAFETY: all parts together fill all bytes.
            unsafe { out.set_len(bytes) };
            Ok(out)
        })?,
    );
    let mut out = vec![0; bytes];
    report(
        "reused-1",
        best(|| {
            copy(turn.next(), &mut out);
            Ok(())
        })?,
    );
    report(
        "reused-all",
        best(|| {
            spread(turn.next(), &mut out);
            Ok(())
        })?,
    );
    Ok(())
}

/// Reads the array and writes it into a new file, to the end of a sync.
pub fn write(data: &Data, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir_in(&options.data)?;
    let begin = Instant::now();
    let (mut from, mut to) = (File::open(&data.path)?, File::create(folder.path().join("copy"))?);
    let mut block = vec![0; 8 << 20];
    loop {
        match from.read(&mut block)? {
            0 => break,
            len => to.write_all(&block[..len])?,
        }
    }
    to.sync_all()?;
    let took = begin.elapsed().as_secs_f64();
    print("limit-write", "write", &data.name, "raw", data.bytes() / took / f64::from(1 << 20), "MiB/s");
    Ok(())
}

/// Decompresses the stored frames from memory, on all cores, contexts kept.
pub fn zstd(data: &Data, codec: &str, store: &Path, options: &Options) -> Result<()> {
    let meta = fs::read(store.join("meta.zr"))?;
    let dictionary = if codec == "zstd_dict" { fs::read(store.join("dict.zr"))? } else { Vec::new() };
    let mut chunks = Vec::new();
    while let Ok(chunk) = fs::read(store.join(format!("{}.zr", chunks.len()))) {
        chunks.push(chunk);
    }
    let frames: Vec<(&[u8], bool)> = meta[16..]
        .chunks_exact(16)
        .take(data.rows as usize)
        .map(|entry| {
            let word =
                |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]) as usize;
            let chunk = u16::from_le_bytes([entry[12], entry[13]]);
            (&chunks[usize::from(chunk)][word(0)..word(0) + word(4)], entry[14] == 0)
        })
        .collect();
    let cores = rayon::current_num_threads();
    let mut contexts =
        (0..cores).map(|_| Decompressor::with_dictionary(&dictionary)).collect::<std::io::Result<Vec<_>>>()?;
    let mut turn = Turn::new(data.rows, options.batch);
    let mut out = vec![0; options.batch * data.row];
    let value = best(|| {
        let indices = turn.next();
        let part = indices.len().div_ceil(cores);
        let jobs = indices.par_chunks(part).zip(out.par_chunks_mut(part * data.row)).zip(&mut contexts);
        jobs.try_for_each(|((indices, out), context)| {
            for (&index, out) in indices.iter().zip(out.chunks_exact_mut(data.row)) {
                match frames[index as usize] {
                    (bytes, true) => out.copy_from_slice(bytes),
                    (frame, false) => drop(context.decompress_to_buffer(frame, out)?),
                }
            }
            Ok::<_, std::io::Error>(())
        })?;
        Ok(())
    })?;
    print("limit-zstd", "gather", &data.name, codec, value, "us/batch");
    Ok(())
}
