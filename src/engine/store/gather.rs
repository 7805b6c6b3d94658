//! Reading many records at once, split over the cores where that pays.

use std::cell::Cell;
use std::mem::MaybeUninit;

use super::cold::Pace;
use super::format::{Entry, tag};
use super::reader::{Located, Reader};
use crate::error::{Error, Result};

/// A gather is split when each part has at least this many bytes: below it, waking another core costs more than the
/// copy.
const PART_BYTES: usize = 96 << 10;

/// The same where records are compressed.
const PACKED_PART_BYTES: usize = 16 << 10;

/// How many bytes of records are asked for ahead of the one that is read.
const AHEAD: usize = 2 << 10;

/// How many records are looked up before the first of them is read.
const BLOCK: usize = 32;

thread_local! {
    static UNSPLIT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with every gather on this thread done in one piece, not split over cores: a loader's workers are parallel
/// already.
pub(crate) fn unsplit<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            UNSPLIT.set(self.0);
        }
    }
    let _restore = Restore(UNSPLIT.replace(true));
    f()
}

/// Into how many parts a gather of `records` records of `bytes` bytes is split. `first`, the first of them, is asked for
/// only where there is enough to split.
fn parts(records: usize, bytes: usize, first: impl FnOnce() -> Result<Located>) -> Result<usize> {
    if UNSPLIT.get() || bytes < 2 * PACKED_PART_BYTES {
        return Ok(1);
    }
    let part = if first()?.entry.tag == tag::RAW { PART_BYTES } else { PACKED_PART_BYTES };
    Ok((bytes / part).min(rayon::current_num_threads()).min(records).max(1))
}

/// How fast records come from memory that are like the first.
fn pace(first: Option<Entry>) -> Pace {
    if first.is_some_and(|entry| entry.tag == tag::RAW) { Pace::RAW } else { Pace::COMPRESSED }
}

/// The words of the entries of a block of records, all asked for before the first is looked at.
#[inline(always)]
fn peek_block(reader: &Reader<'_>, indices: &[u64]) -> [[u64; 2]; BLOCK] {
    let mut words = [[0; 2]; BLOCK];
    for (words, &index) in words.iter_mut().zip(indices) {
        *words = reader.peek(index);
    }
    words
}

/// Records that were looked up and checked, and where each goes in a packed buffer.
#[derive(Debug)]
pub(crate) struct Layout {
    records: Vec<Located>,
    /// In bytes, one more than there are records.
    pub(crate) offsets: Vec<u64>,
}

impl Layout {
    pub(super) fn new(reader: &Reader<'_>, indices: &[u64]) -> Result<Layout> {
        let mut offsets = Vec::with_capacity(indices.len() + 1);
        let mut end = 0;
        offsets.push(0);
        let mut records = Vec::with_capacity(indices.len());
        for block in indices.chunks(BLOCK) {
            for (words, &index) in peek_block(reader, block).into_iter().zip(block) {
                let located = if reader.is_sound(index, words) {
                    Located { index, entry: Entry::from_words(words) }
                } else {
                    reader.locate(index)?
                };
                reader.check_claim(&located)?;
                end += u64::from(located.entry.length);
                offsets.push(end);
                records.push(located);
            }
        }
        Ok(Layout { records, offsets })
    }

    /// How many bytes all records have.
    pub(crate) fn len(&self) -> u64 {
        self.offsets[self.records.len()]
    }

    /// Fills `out`, which is as long as all records, wholly.
    pub(super) fn gather(&self, reader: &Reader<'_>, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        if reader.is_away() {
            return self.gather_away(reader, out);
        }
        let ask = || self.records.iter().for_each(|located| reader.need(located.entry.words()));
        let pace = pace(self.records.first().map(|located| located.entry));
        reader.cold().gather(pace, (self.records.len(), out.len()), ask, || self.read(reader, out))
    }

    /// The same where the records have to come near first, as many at a time as there is room for.
    fn gather_away(&self, reader: &Reader<'_>, mut out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let mut begin = 0;
        while begin < self.records.len() {
            let (near, count) = reader.bring(self.records[begin..].iter().map(|located| located.entry.words()))?;
            let end = (begin + count).min(self.records.len());
            let first = self.offsets[begin];
            let part = Layout {
                records: self.records[begin..end].to_vec(),
                offsets: self.offsets[begin..=end].iter().map(|offset| offset - first).collect(),
            };
            let (here, rest) = out.split_at_mut(part.len() as usize);
            part.read(&near, here)?;
            (begin, out) = (end, rest);
        }
        Ok(())
    }

    fn read(&self, reader: &Reader<'_>, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let read = |records: &[Located], mut out: &mut [MaybeUninit<u8>]| {
            for block in records.chunks(BLOCK) {
                block.iter().for_each(|located| reader.expect_record(located.entry.words()));
                for located in block {
                    let (record, rest) = out.split_at_mut(located.entry.length as usize);
                    reader.read(located, record)?;
                    out = rest;
                }
            }
            Ok(())
        };
        // There is a first record where there are bytes.
        let parts = parts(self.records.len(), out.len(), || Ok(self.records[0]))?;
        if parts == 1 {
            return read(&self.records, out);
        }
        // Parts of about the same number of bytes: one long record may outweigh many.
        let (mut jobs, mut begin, mut rest) = (Vec::with_capacity(parts), 0, out);
        for part in 1..=parts {
            let wanted = self.len() * part as u64 / parts as u64;
            let end = if part == parts { self.records.len() } else { self.offsets.partition_point(|&at| at < wanted) };
            let end = end.clamp(begin, self.records.len());
            let bytes = (self.offsets[end] - self.offsets[begin]) as usize;
            let (out, after) = rest.split_at_mut(bytes);
            jobs.push((&self.records[begin..end], out));
            (begin, rest) = (end, after);
        }
        in_parts(jobs, |(records, out)| read(records, out))
    }
}

/// Fills `out`, of `indices.len()` times `length` bytes, wholly; a record of another length is an error.
pub(super) fn gather_fixed(
    reader: &Reader<'_>,
    indices: &[u64],
    length: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<()> {
    if indices.len().checked_mul(length) != Some(out.len()) {
        return Err(Error::invalid(
            "out",
            format!("{} bytes, where {} records of {length} bytes go", out.len(), indices.len()),
        ));
    }
    if reader.is_away() {
        let (mut indices, mut out) = (indices, out);
        while !indices.is_empty() {
            let (near, count) = reader.bring(indices.iter().map(|&index| reader.peek(index)))?;
            let (part, rest) = indices.split_at(count.min(indices.len()));
            let (here, after) = out.split_at_mut(part.len() * length);
            read_fixed(&near, part, length, here)?;
            (indices, out) = (rest, after);
        }
        return Ok(());
    }
    let ask = || {
        for block in indices.chunks(BLOCK) {
            peek_block(reader, block).into_iter().take(block.len()).for_each(|words| reader.need(words));
        }
    };
    let pace = pace(indices.first().map(|&index| Entry::from_words(reader.peek(index))));
    reader.cold().gather(pace, (indices.len(), out.len()), ask, || read_fixed(reader, indices, length, out))
}

fn read_fixed(reader: &Reader<'_>, indices: &[u64], length: usize, out: &mut [MaybeUninit<u8>]) -> Result<()> {
    let read = |indices: &[u64], out: &mut [MaybeUninit<u8>]| {
        let ahead = (AHEAD / length.max(1)).clamp(4, BLOCK);
        let mut outs = out.chunks_mut((BLOCK * length).max(1));
        for block in indices.chunks(BLOCK) {
            let mut words = peek_block(reader, block);
            for (words, &index) in words.iter_mut().zip(block) {
                // In place: an entry that moves between the two takes longer than its check.
                if !reader.is_sound(index, *words) {
                    *words = reader.locate(index)?.entry.words();
                }
                let entry = Entry::from_words(*words);
                if entry.length as usize != length {
                    return Err(other_length(reader, &Located { index, entry }, length));
                }
            }
            // Records without bytes have no place to go to.
            let Some(out) = outs.next() else { continue };
            let words = &words[..block.len()];
            words.iter().take(ahead).for_each(|&words| reader.expect_record(words));
            for (i, (&index, out)) in block.iter().zip(out.chunks_exact_mut(length)).enumerate() {
                if let Some(&words) = words.get(i + ahead) {
                    reader.expect_record(words);
                }
                if !reader.copy(words[i], out) {
                    reader.read(&Located { index, entry: Entry::from_words(words[i]) }, out)?;
                }
            }
        }
        Ok(())
    };
    let parts = parts(indices.len(), out.len(), || reader.locate(indices[0]))?;
    if parts == 1 {
        return read(indices, out);
    }
    let records = indices.len().div_ceil(parts);
    let jobs = indices.chunks(records).zip(out.chunks_mut(records * length)).collect();
    in_parts(jobs, |(indices, out)| read(indices, out))
}

#[cold]
fn other_length(reader: &Reader<'_>, located: &Located, length: usize) -> Error {
    let expected = format!("a record of {length} bytes, as the schema says");
    reader.corrupt(located, expected, format!("one of {}", located.entry.length))
}

/// Does the first part here and the others on other cores. The error is that of the earliest part, so that which one is
/// reported does not depend on the threads.
fn in_parts<J: Send>(jobs: Vec<J>, read: impl Fn(J) -> Result<()> + Sync) -> Result<()> {
    let mut done: Vec<Result<()>> = jobs.iter().map(|_| Ok(())).collect();
    rayon::in_place_scope(|scope| {
        let (read, mut parts) = (&read, jobs.into_iter().zip(&mut done));
        let own = parts.next();
        parts.for_each(|(job, done)| scope.spawn(move |_| *done = read(job)));
        if let Some((job, done)) = own {
            *done = read(job);
        }
    });
    done.into_iter().collect()
}
