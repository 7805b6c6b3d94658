//! Reading every record of a store once, to see which are whole.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::Store;
use super::codec;
use super::format::tag;
use super::reader::{Located, Reader};
use super::slot;
use crate::error::{Corruption, Error, Result};

/// How many records one job reads.
const JOB: u64 = 256;

/// What [`Store::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// How many records the store has.
    pub records: u64,
    /// How many of them are whole and carry a checksum that says so.
    pub verified: u64,
    /// How many are readable, but carry no checksum: the Python loaderx wrote them.
    pub unverified: u64,
    /// The records that are not whole, by ascending index, each with its place and what is wrong.
    pub bad: Vec<Corruption>,
}

impl Store {
    /// Reads every record, on all cores, and checks its place, its length, its checksum where it has one, and that no
    /// other record uses its bytes. `progress` is told how many records are done, in the order in which they are done.
    ///
    /// # Errors
    /// Damage to records is no error but part of what is found; [`Error::Io`] and the like are.
    pub fn verify(&self, progress: impl Fn(u64) + Sync) -> Result<Verification> {
        let reader = self.verifying_reader();
        let records = reader.len();
        let done = AtomicU64::new(0);
        let jobs: Vec<Job> = (0..records.div_ceil(JOB))
            .into_par_iter()
            .map(|job| {
                let range = job * JOB..((job + 1) * JOB).min(records);
                let count = range.end - range.start;
                let mut found = Job::default();
                let mut bytes = Vec::new();
                range.for_each(|index| found.record(&reader, index, &mut bytes));
                progress(done.fetch_add(count, Ordering::Relaxed) + count);
                found
            })
            .collect();
        let mut all = Job::default();
        for job in jobs {
            all.verified += job.verified;
            all.unverified += job.unverified;
            all.bad.extend(job.bad);
            all.extents.extend(job.extents);
        }
        all.overlaps(&reader);
        all.bad.sort_by_key(|bad| bad.record);
        Ok(Verification { records, verified: all.verified, unverified: all.unverified, bad: all.bad })
    }
}

/// What some records are like.
#[derive(Debug, Default)]
struct Job {
    verified: u64,
    unverified: u64,
    bad: Vec<Corruption>,
    extents: Vec<Extent>,
}

/// The bytes of a record that has any.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Chunk and offset.
    place: u64,
    stored: u32,
    index: u32,
    /// Whether a checksum has shown it to be right; `None` for a bad one.
    verified: Option<bool>,
}

impl Job {
    fn record(&mut self, reader: &Reader<'_>, index: u64, bytes: &mut Vec<u8>) {
        let located = reader.locate(index);
        let checked = located.as_ref().map_err(Error::clone).and_then(|at| has_checksum(reader, at, bytes));
        let verified = checked.as_ref().ok().copied();
        if let Ok(Located { entry, .. }) = located
            && entry.stored > 0
        {
            let place = u64::from(entry.chunk) << 32 | u64::from(entry.offset);
            self.extents.push(Extent { place, stored: entry.stored, index: index as u32, verified });
        }
        match checked {
            Ok(true) => self.verified += 1,
            Ok(false) => self.unverified += 1,
            Err(Error::Corrupt(corruption)) => self.bad.push(*corruption),
            Err(other) => self.bad.push(Corruption {
                path: reader.path().to_path_buf(),
                record: Some(index),
                expected: "a record that can be read".into(),
                found: other.to_string(),
                ..Corruption::default()
            }),
        }
    }

    /// Finds records that use the same bytes. Of two, the one that begins later, or has the higher index, is bad.
    fn overlaps(&mut self, reader: &Reader<'_>) {
        self.extents.par_sort_unstable_by_key(|extent| (extent.place, extent.index));
        let (mut end, mut owner) = (0, 0);
        for extent in &self.extents {
            // One that is bad already is named already.
            if extent.place < end
                && let Some(verified) = extent.verified
                && let Ok(located) = reader.locate(u64::from(extent.index))
                && let Error::Corrupt(bad) =
                    reader.corrupt(&located, "bytes of its own".into(), format!("bytes of record {owner}, too"))
            {
                *(if verified { &mut self.verified } else { &mut self.unverified }) -= 1;
                self.bad.push(*bad);
            }
            if extent.place + u64::from(extent.stored) > end {
                (end, owner) = (extent.place + u64::from(extent.stored), extent.index);
            }
        }
    }
}

/// Reads a record, and says whether a checksum has shown it to be right.
fn has_checksum(reader: &Reader<'_>, located: &Located, bytes: &mut Vec<u8>) -> Result<bool> {
    let entry = &located.entry;
    bytes.clear();
    let verified = reader.stored(located, bytes)?;
    if entry.tag == tag::RAW {
        // An empty record is all there.
        return Ok(verified || entry.stored == 0);
    }
    let frame = std::mem::take(bytes);
    let dictionary = if entry.tag == tag::ZSTD_DICT { Some(reader.dictionary(located)?) } else { None };
    let decoded = slot::extend(bytes, u64::from(entry.length), |out| {
        codec::decompress(&frame, dictionary, out).map_err(|(expected, found)| reader.corrupt(located, expected, found))
    });
    decoded.map(|()| codec::has_checksum(&frame))
}
