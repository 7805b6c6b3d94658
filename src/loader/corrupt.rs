//! What becomes of a batch that draws a damaged record.

use std::collections::HashSet;

use super::context::{StepContext, record_seed};
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::events::event;

/// What a loader does where a record of a batch is corrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnCorrupt {
    /// The step fails, with an error that names the record.
    #[default]
    Fail,
    /// Another record takes its place, drawn from (seed, step, position in the global batch): the same one in every run and
    /// on every rank. [`Metrics::replaced`](crate::Metrics::replaced) counts them. A pass repeats records then.
    Replace,
}

/// Where the draws of replacements begin among the seeds of a position.
const REPLACEMENT: u64 = 0x5245_504c_4143_4544;
/// More damaged records in one batch are a damaged store.
const MOST: usize = 1024;

/// Gathers the batch, and says how many of its records are replacements. `context` holds their indices then.
pub(super) fn gather<S: Stream>(stream: &S, context: &mut StepContext, policy: OnCorrupt) -> Result<(S::Batch, u64)> {
    let mut bad: HashSet<u64> = HashSet::new();
    let mut tries: Vec<u64> = Vec::new();
    loop {
        let error = match stream.gather(&context.indices) {
            Ok(batch) => return Ok((batch, tries.iter().filter(|&&tries| tries > 0).count() as u64)),
            Err(error) => error,
        };
        match (policy, &error) {
            (OnCorrupt::Replace, Error::Corrupt(corruption))
                if bad.len() < MOST && corruption.record.is_some_and(|record| context.indices.contains(&record)) =>
            {
                event!(WARN, step = context.step, error = %error, "another record takes the place of a damaged one");
                bad.extend(corruption.record);
            }
            _ => return Err(error),
        }
        if bad.len() as u64 >= context.len {
            return Err(error);
        }
        tries.resize(context.indices.len(), 0);
        for (i, tries) in tries.iter_mut().enumerate() {
            // The first of a position's draws that is not damaged, in whichever order the damage is found.
            while bad.contains(&context.indices[i]) {
                *tries += 1;
                context.indices[i] = draw(context, i, *tries);
            }
        }
    }
}

/// The `n`-th replacement of the record at position `i`.
fn draw(context: &StepContext, i: usize, n: u64) -> u64 {
    let position = context.positions.start.wrapping_add(i as u64);
    let seed = record_seed(context.seed ^ REPLACEMENT.wrapping_add(n), context.step, position);
    let word = seed.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    // The upper half of the product: at most 2^-32 from even, for the 2^24 records of a store.
    ((u128::from(word) * u128::from(context.len)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::super::testing::Memory;
    use super::*;
    use crate::error::Corruption;
    use crate::{DataLoader, LoaderState, Shard};

    /// Records of which some are damaged.
    struct Damaged(Memory, Vec<u64>);

    impl Stream for Damaged {
        type Batch = Vec<u64>;

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn gather(&self, indices: &[u64]) -> Result<Vec<u64>> {
            match indices.iter().find(|index| self.1.contains(index)) {
                Some(&record) => {
                    Err(Error::Corrupt(Box::new(Corruption { record: Some(record), ..Corruption::default() })))
                }
                None => Ok(indices.to_vec()),
            }
        }

        fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
            self.0.fingerprint(len)
        }

        fn batch_bytes(batch: &Vec<u64>) -> u64 {
            8 * batch.len() as u64
        }
    }

    fn loader(bad: &[u64], policy: OnCorrupt, workers: usize, shard: Shard) -> DataLoader<Vec<u64>> {
        DataLoader::builder(Damaged(Memory::new(100), bad.to_vec()))
            .batch_size(20)
            .workers(workers)
            .shard(shard)
            .on_corrupt(policy)
            .build()
            .unwrap()
    }

    #[test]
    fn a_damaged_record_fails_its_step_unless_it_is_to_be_replaced() {
        let mut failing = loader(&[7], OnCorrupt::Fail, 2, Shard::default());
        let failure = failing.find_map(Result::err).unwrap();
        assert!(
            matches!(&failure, Error::Step { source, .. } if matches!(&**source, Error::Corrupt(bad) if bad.record == Some(7))),
            "{failure}"
        );
        assert!(failing.next().unwrap().is_err());
    }

    #[test]
    fn replacements_are_the_same_whatever_the_workers_the_world_and_the_restarts() {
        let bad: Vec<u64> = (0..100).filter(|i| i % 3 == 0).collect();
        let mut whole = loader(&bad, OnCorrupt::Replace, 3, Shard::default());
        let clean = loader(&[], OnCorrupt::Fail, 0, Shard::default());
        let batches: Vec<Vec<u64>> = whole.by_ref().take(20).map(Result::unwrap).collect();
        let mut replaced = 0;
        for (step, batch) in (0..).zip(&batches) {
            for (found, drawn) in batch.iter().zip(clean.batch(step).unwrap()) {
                assert!(!bad.contains(found));
                assert_eq!(*found == drawn, !bad.contains(&drawn), "step {step}: {drawn} became {found}");
                replaced += u64::from(*found != drawn);
            }
            let alone = loader(&bad, OnCorrupt::Replace, 0, Shard::default());
            assert_eq!(alone.batch(step).unwrap(), *batch);
            let ranks = (0..4).flat_map(|rank| {
                loader(&bad, OnCorrupt::Replace, 1, Shard::new(rank, 4).unwrap()).batch(step).unwrap()
            });
            assert!(ranks.eq(batch.iter().copied()));
        }
        assert_eq!(whole.metrics().replaced, replaced);
        let LoaderState { step, .. } = whole.state();
        assert_eq!(step, 20);
    }

    #[test]
    fn a_batch_of_damaged_records_alone_fails() {
        let all: Vec<u64> = (0..100).collect();
        assert!(loader(&all, OnCorrupt::Replace, 0, Shard::default()).next().unwrap().is_err());
    }
}
