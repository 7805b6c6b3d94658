//! What identifies the records that a saved loader state was made over.

use xxhash_rust::xxh3::Xxh3;

use super::schema::Schema;
use crate::engine::store::Store;
use crate::error::{Error, Result};

/// The last records, all of which are hashed: where a delete moves the last record into the hole and an append then
/// takes its place, it shows here.
const TAIL: u64 = 64;
/// Records spread evenly over the others.
const SPREAD: u64 = 960;
/// Of how many records, spread evenly, the contents are hashed too: few, since each may have to come from elsewhere.
const CONTENTS: u64 = 32;
/// Contents beyond this many bytes are not read, their lengths alone count.
const MAX_BYTES: u64 = 8 << 20;
/// Contents are gathered that many bytes at a time.
const PIECE: u64 = 4 << 20;

/// The identity of the first `len` records of a store: its generation, `len`, and a hash of the schema's types and of
/// the lengths of 1024 of these records at most, and the contents of 96 of those.
///
/// It depends on logical contents, so a copy, a move, a compaction and a recoding keep it, and so does appending. It
/// sees every delete and rewrite by this crate (the generation), and those by Python's loaderx that change the last
/// records, which a delete with an append after it does. It does not see another program's change that leaves the
/// generation, the last 64 and the other sampled records as they are: records in the middle that were rewritten, or
/// deleted and the same last ones appended again.
pub(super) fn fingerprint(store: &Store, schema: &Schema, len: u64) -> Result<Vec<u64>> {
    let held = store.len();
    if len > held {
        return Err(Error::State { reason: format!("it was made over {len} records, and there are {held} now") });
    }
    let indices = sample(len, SPREAD);
    // A damaged record is no record for the hash, and no reason to know the others less: what becomes of it is for the
    // one who draws it.
    let length = |&index: &u64| unless_damaged(store.lengths(&[index])).map(|found| found.map_or(0, |one| one[0]));
    let lengths = indices.iter().map(length).collect::<Result<Vec<_>>>()?;
    let mut hash = Xxh3::new();
    hash.update(format!("{} {} {:?}", schema.kind(), schema.dtype(), schema.item_shape()).as_bytes());
    lengths.iter().for_each(|length| hash.update(&length.to_le_bytes()));
    let indices = sample(len, CONTENTS);
    for piece in pieces(&indices.iter().map(length).collect::<Result<Vec<_>>>()?) {
        let indices = &indices[piece];
        if let Some(records) = unless_damaged(store.gather(indices))? {
            hash.update(&records.bytes);
            continue;
        }
        for &index in indices {
            hash.update(&unless_damaged(store.get(index))?.unwrap_or_default());
        }
    }
    Ok(vec![store.generation(), len, hash.digest()])
}

/// `None` for a record that is corrupt.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Which of the first `len` records are hashed: the last ones, then `most` others, spread over the rest.
fn sample(len: u64, most: u64) -> Vec<u64> {
    let rest = len.saturating_sub(TAIL);
    let spread = rest.min(most);
    // A store's length fits 32 bits, so the product fits 64.
    let spread = (0..spread).map(|i| i * rest / spread);
    (rest..len).rev().chain(spread).collect()
}

/// The leading records whose contents are read, in ranges that are gathered at once: the first of all, whatever its
/// length, and more while they stay within the bounds.
fn pieces(lengths: &[u64]) -> Vec<std::ops::Range<usize>> {
    let mut pieces = vec![];
    let (mut begin, mut bytes, mut total) = (0, 0u64, 0u64);
    for (i, &length) in lengths.iter().enumerate() {
        total = total.saturating_add(length);
        if i > 0 && total > MAX_BYTES {
            pieces.push(begin..i);
            return pieces;
        }
        if i > begin && bytes.saturating_add(length) > PIECE {
            pieces.push(begin..i);
            (begin, bytes) = (i, 0);
        }
        bytes = bytes.saturating_add(length);
    }
    if begin < lengths.len() {
        pieces.push(begin..lengths.len());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_sample_holds_the_tail_and_distinct_others(len in 0u64..1 << 24) {
            let indices = sample(len, SPREAD);
            prop_assert_eq!(indices.len() as u64, len.min(TAIL + SPREAD));
            let mut distinct = indices.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), indices.len());
            prop_assert!(distinct.iter().all(|&i| i < len));
            prop_assert!((len.saturating_sub(TAIL)..len).all(|i| distinct.binary_search(&i).is_ok()));
            let widest = distinct.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            prop_assert!(widest <= len / SPREAD + 1);
        }

        #[test]
        fn pieces_are_a_bounded_prefix(lengths in proptest::collection::vec(0u64..8 << 20, 0..40)) {
            let pieces = pieces(&lengths);
            let end = pieces.last().map_or(0, |piece| piece.end);
            let total: u64 = lengths[..end].iter().sum();
            prop_assert!(total <= MAX_BYTES);
            prop_assert!(end == lengths.len() || total + lengths[end] > MAX_BYTES);
            prop_assert_eq!(pieces.first().map_or(0, |piece| piece.start), 0);
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            for piece in pieces {
                prop_assert!(piece.len() == 1 || lengths[piece].iter().sum::<u64>() <= PIECE);
            }
        }
    }
}
