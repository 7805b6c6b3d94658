//! Where a loader stands, to go on from there later or elsewhere.

use serde::{Deserialize, Serialize};

use super::stream::StreamPart;
use crate::engine::sampler::{Mode, Sampler};
use crate::error::{Error, Result};

/// Where a loader stands after the batches it handed out so far.
///
/// [`resume`](crate::DataLoaderBuilder::resume) goes on from there, in another process or on another machine, with
/// any number of workers and ranks. It holds a few numbers, and is saved with whatever serde format is at hand.
///
/// ```
/// use std::sync::Arc;
///
/// use loaderx::{DataLoader, DenseDataset, LoaderState};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("labels");
/// # DenseDataset::<i64, ()>::create(&path, ())?.append(&(0..1000).collect::<Vec<_>>())?;
/// let labels = Arc::new(DenseDataset::<i64, ()>::open(path)?);
/// let mut loader = DataLoader::builder(labels.clone()).batch_size(32).seed(1).build()?;
/// loader.seek(100);
/// let saved = serde_json::to_string(&loader.state())?;
///
/// let state: LoaderState = serde_json::from_str(&saved)?;
/// let resumed = DataLoader::builder(labels).batch_size(32).seed(1).resume(state).build()?;
/// assert_eq!(resumed.step(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoaderState {
    /// The step that goes out next.
    pub step: u64,
    /// The loader's seed.
    pub seed: u64,
    /// The order in which it draws.
    pub mode: Mode,
    /// Records in a global batch.
    pub batch_size: u64,
    /// How many records it draws from: the streams' length when the first of these loaders was built.
    pub len: u64,
    /// What identifies the weights, lengths, sources or blocks that it draws by; 0 in the modes that have none.
    #[serde(default)]
    pub order: u64,
    /// What identifies these records, a number for each stream.
    pub fingerprints: Vec<u64>,
}

impl LoaderState {
    /// Refuses options that would draw other records than the loader that saved this state.
    pub(super) fn check_order(&self, sampler: &Sampler) -> Result<()> {
        let mode = sampler.mode();
        same("mode", format_args!("{:?}", self.mode), format_args!("{mode:?}"))?;
        same("batch size", self.batch_size, sampler.batch_size())?;
        same("seed", self.seed, sampler.seed())?;
        if self.order == sampler.identity() {
            return Ok(());
        }
        let what = match mode {
            Mode::Weighted => "the weights are",
            Mode::SimilarLengths => "the lengths or the window are",
            Mode::BlockShuffle => "the block and the window are",
            _ => "the sources' lengths or weights are",
        };
        refuse(format!("{what} not those that it was saved with"))
    }

    /// Refuses streams that are not the ones this state was saved from, or no longer hold what they held.
    pub(super) fn check_streams(&self, parts: &[StreamPart], found: &[u64]) -> Result<()> {
        same("number of streams", self.fingerprints.len(), parts.len())?;
        for ((part, saved), found) in parts.iter().zip(&self.fingerprints).zip(found) {
            if saved != found {
                return refuse(format!(
                    "{} is not what it was, or other data: its first {} records have the fingerprint {saved:016x} in \
                     the state and {found:016x} now, as after a delete or a rewrite",
                    part.label(),
                    self.len,
                ));
            }
        }
        Ok(())
    }

    /// Refuses streams that are shorter than they were. They may have grown.
    pub(super) fn check_lengths(&self, parts: &[StreamPart]) -> Result<()> {
        if self.len == 0 {
            return refuse("it was saved with 0 records, which no loader draws from".to_owned());
        }
        match parts.iter().find(|part| part.len < self.len) {
            Some(part) => {
                refuse(format!("{} had {} records when it was saved and has {} now", part.label(), self.len, part.len))
            }
            None => Ok(()),
        }
    }
}

fn same<V: ToString>(what: &str, saved: V, found: V) -> Result<()> {
    let (saved, found) = (saved.to_string(), found.to_string());
    if saved == found { Ok(()) } else { refuse(format!("the {what} is {saved} in the state and {found} here")) }
}

fn refuse(reason: String) -> Result<()> {
    Err(Error::State { reason })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;

    use super::super::testing::Memory;
    use super::super::{DataLoader, DataLoaderBuilder, Native};
    use super::*;
    use crate::engine::sampler::Shard;

    type Builder = DataLoaderBuilder<Memory, Vec<u64>, Native>;

    fn builder(memory: &Memory, mode: Mode) -> Builder {
        DataLoader::builder(memory.clone()).mode(mode).batch_size(8).seed(5).workers(1)
    }

    fn take(loader: &mut DataLoader<Vec<u64>>, steps: u64) -> Vec<Vec<u64>> {
        (0..steps).map(|_| loader.next().unwrap().unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn resumed_at_any_step_and_twice_in_a_row_the_run_is_the_uninterrupted_one(
            mode in prop::sample::select(&[Mode::Sequential, Mode::Iid, Mode::Cyclic, Mode::CyclicCarry][..]),
            len in 8u64..40,
            first in 0u64..20,
            second in 0u64..20,
        ) {
            let memory = Memory::new(len);
            let mut whole = builder(&memory, mode).build().unwrap();
            let whole = take(&mut whole, first + second + 5);
            let mut run = Vec::new();
            let mut loader = builder(&memory, mode).build().unwrap();
            for steps in [first, second, 5] {
                let state = loader.state();
                let saved = rmp_serde::to_vec_named(&state).unwrap();
                drop(loader);
                let state_read: LoaderState = rmp_serde::from_slice(&saved).unwrap();
                prop_assert_eq!(&state_read, &state);
                loader = builder(&memory, mode).workers(2).prefetch(3).resume(state_read).build().unwrap();
                prop_assert_eq!(loader.state(), state);
                run.extend(take(&mut loader, steps));
            }
            prop_assert_eq!(run, whole);
        }
    }

    #[test]
    fn a_changed_world_shares_the_same_batches() {
        let memory = Memory::new(100);
        let whole = take(&mut builder(&memory, Mode::Cyclic).build().unwrap(), 30);
        let mut state = builder(&memory, Mode::Cyclic).build().unwrap().state();
        for (at, world) in [4, 2, 8].into_iter().enumerate() {
            let ranks = (0..world).map(|rank| {
                let shard = Shard::new(rank, world).unwrap();
                builder(&memory, Mode::Cyclic).shard(shard).resume(state.clone()).build().unwrap()
            });
            let mut ranks: Vec<_> = ranks.collect();
            for batch in &whole[10 * at..10 * (at + 1)] {
                let union: Vec<_> = ranks.iter_mut().flat_map(|loader| loader.next().unwrap().unwrap()).collect();
                assert_eq!(&union, batch);
            }
            state = ranks[0].state();
            assert!(ranks.iter().all(|loader| loader.state() == state));
        }
    }

    #[test]
    fn after_an_append_the_run_goes_on_with_the_length_it_had() {
        let memory = Memory::new(20);
        let whole = take(&mut builder(&memory, Mode::Cyclic).build().unwrap(), 12);
        let mut loader = builder(&memory, Mode::Cyclic).build().unwrap();
        let mut run = take(&mut loader, 3);
        memory.len.store(33, Ordering::SeqCst);
        run.extend(take(&mut loader, 3));
        let state = loader.state();
        let mut loader = builder(&memory, Mode::Cyclic).resume(state.clone()).build().unwrap();
        assert_eq!(loader.state(), state);
        run.extend(take(&mut loader, 6));
        assert_eq!(run, whole);
    }

    fn refusal<T>(loader: Result<T>) -> String {
        match loader {
            Err(error @ Error::State { .. }) => error.to_string(),
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("the state was taken"),
        }
    }

    #[test]
    fn a_state_that_does_not_fit_is_refused_with_both_values() {
        let memory = Memory::new(20);
        let state = builder(&memory, Mode::Cyclic).build().unwrap().state();
        let resumed = || builder(&memory, Mode::Cyclic).resume(state.clone());
        assert!(resumed().build().is_ok());
        for (altered, saved, found) in [
            (resumed().mode(Mode::Iid), "mode is Cyclic", "Iid here"),
            (resumed().seed(6), "seed is 5", "6 here"),
            (resumed().batch_size(4), "batch size is 8", "4 here"),
        ] {
            let text = refusal(altered.build());
            assert!(text.contains(saved) && text.contains(found), "{text}");
        }
        let blocks = |block, window| builder(&memory, Mode::Cyclic).block_shuffle(block, window);
        let state = blocks(3, 2).build().unwrap().state();
        assert!(blocks(3, 2).resume(state.clone()).build().is_ok());
        for other in [blocks(4, 2), blocks(3, 1)] {
            assert!(refusal(other.resume(state.clone()).build()).contains("the block and the window are not those"));
        }
        let error = resumed().start_step(3).build().unwrap_err().to_string();
        assert!(error.contains("step 3") && error.contains("says 0"), "{error}");
    }

    #[test]
    fn other_or_shorter_streams_are_refused_by_name() {
        let named = |name, len, salt| Memory { name, ..Memory::salted(len, salt) };
        let pair = |len, salt| DataLoader::builder((named("a", len, 1), named("b", len, salt))).batch_size(8);
        let state = pair(20, 2).build().unwrap().state();
        assert!(pair(20, 2).resume(state.clone()).build().is_ok());

        let text = refusal(pair(20, 7).resume(state.clone()).build());
        assert!(text.contains("stream 1 (b)") && text.contains("2 in the state and 0000000000000007 now"), "{text}");
        let text = refusal(pair(19, 2).resume(state.clone()).build());
        assert!(text.contains("stream 0 (a) had 20 records when it was saved and has 19 now"), "{text}");
        let text = refusal(DataLoader::builder(named("a", 20, 1)).batch_size(8).resume(state.clone()).build());
        assert!(text.contains("number of streams is 2 in the state and 1 here"), "{text}");
        let empty = LoaderState { len: 0, ..state };
        assert!(refusal(pair(20, 2).resume(empty).build()).contains("0 records"));
    }
}
