//! One cycle of the endless loop, for those who think in epochs.

use std::fmt;

use super::loader::DataLoader;
use crate::error::{Error, Result};

impl<T: 'static> DataLoader<T> {
    /// The steps of cycle `number`, from 0: in them each record comes once, but for those that fill no batch. It is the
    /// same loop: steps `number * n` to `(number + 1) * n` of the endless iteration, with `n` steps a cycle. The next
    /// epoch is made ahead while this one ends, if they follow one another; and a loader that was resumed within epoch
    /// `number` gives what is left of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] in a mode whose cycles do not begin with a batch: only [`Mode::Cyclic`](crate::Mode::Cyclic),
    /// [`Mode::SimilarLengths`](crate::Mode::SimilarLengths) and [`Mode::BlockShuffle`](crate::Mode::BlockShuffle) have
    /// epochs.
    ///
    /// ```
    /// use loaderx::{DataLoader, DenseDataset};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("labels");
    /// # DenseDataset::<i64, ()>::create(&path, ())?.append(&(0..1000).collect::<Vec<_>>())?;
    /// let labels = DenseDataset::<i64, ()>::open(path)?;
    /// let mut loader = DataLoader::builder(labels).batch_size(32).build()?;
    /// for number in 0..3 {
    ///     let mut sum = 0;
    ///     for batch in loader.epoch(number)? {
    ///         sum += batch?.values().iter().sum::<i64>();
    ///     }
    ///     println!("epoch {number}: {sum}");
    /// }
    /// assert_eq!(loader.step(), 3 * 31);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn epoch(&mut self, number: u64) -> Result<Epoch<'_, T>> {
        let Some(steps) = self.steps_per_cycle() else {
            let mode = self.state().mode;
            return Err(Error::invalid("epoch", format!("{mode:?} has no cycles of whole batches: set Mode::Cyclic")));
        };
        let begin = number.checked_mul(steps).and_then(|begin| Some((begin, begin.checked_add(steps)?)));
        let Some((begin, end)) = begin else {
            return Err(Error::invalid("epoch", format!("number {number} lies past the last step")));
        };
        if !(begin..end).contains(&self.step()) {
            self.seek(begin);
        }
        Ok(Epoch { loader: self, end, failed: false })
    }
}

/// The batches of one cycle: see [`DataLoader::epoch`].
pub struct Epoch<'a, T: 'static> {
    loader: &'a mut DataLoader<T>,
    end: u64,
    failed: bool,
}

impl<T: 'static> Iterator for Epoch<'_, T> {
    type Item = Result<T>;

    /// The next batch. A failure ends the epoch.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.loader.step() >= self.end {
            return None;
        }
        let batch = self.loader.next();
        self.failed = matches!(batch, Some(Err(_)));
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The crate builds for 64-bit targets alone.
        let left = if self.failed { 0 } else { self.end.saturating_sub(self.loader.step()) as usize };
        (left, Some(left))
    }
}

impl<T: 'static> fmt::Debug for Epoch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("step", &self.loader.step()).field("end", &self.end).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::Memory;
    use super::*;
    use crate::engine::sampler::Mode;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn an_epoch_is_a_cycle_of_the_endless_loop(len in 1..60u64, number in 0..40u64, skip in 0..100usize, workers in 0..2usize) {
            let mut loader = DataLoader::builder(Memory::new(len)).batch_size(8).workers(workers).build().unwrap();
            let steps = len.div_ceil(8).min((len / 8).max(1));
            let whole: Vec<_> = loader.epoch(number).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(whole.len() as u64, steps);
            let batches: Vec<_> = (number * steps..(number + 1) * steps).map(|step| loader.batch(step).unwrap()).collect();
            prop_assert_eq!(&whole, &batches);
            prop_assert_eq!(loader.step(), (number + 1) * steps);
            // Left early, the rest of it is what comes when it is asked for again.
            let skip = skip % whole.len();
            loader.epoch(number).unwrap().take(skip).for_each(drop);
            let left: Vec<_> = loader.epoch(number).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(&left[..], &whole[skip..]);
        }
    }

    #[test]
    fn modes_without_whole_cycles_have_no_epochs() {
        for mode in [Mode::Sequential, Mode::Iid, Mode::CyclicCarry] {
            let mut loader = DataLoader::builder(Memory::new(9)).batch_size(2).mode(mode).build().unwrap();
            assert!(matches!(loader.epoch(0), Err(Error::Invalid { .. })));
        }
        let mut loader = DataLoader::builder(Memory::new(9)).batch_size(2).build().unwrap();
        assert!(loader.epoch(u64::MAX).is_err());
    }
}
