//! Some of a stream's records, as a stream.

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::stream::{Stream, StreamPart};
use crate::error::{Error, Result};

/// The records of a stream at chosen indices, in that order: record `i` is the stream's record `indices[i]`.
///
/// ```
/// use loaderx::{DataLoader, DenseDataset, Subset};
///
/// # let directory = tempfile::tempdir()?;
/// # let (images, labels) = (directory.path().join("images"), directory.path().join("labels"));
/// # DenseDataset::<u8, [usize; 1]>::create(&images, [4])?.append(&vec![7; 1000 * 4])?;
/// # DenseDataset::<u8, ()>::create(&labels, ())?.append(&(0..1000).map(|i| (i % 10) as u8).collect::<Vec<_>>())?;
/// let images = DenseDataset::<u8, [usize; 1]>::open(images)?;
/// let labels = DenseDataset::<u8, ()>::open(labels)?;
///
/// // The records of two classes.
/// let indices = labels.indices_where(|label| label[0] < 2)?;
/// let two = Subset::new((images, labels), indices)?;
/// assert_eq!(two.indices().len(), 200);
///
/// // A tenth of them held out, by seed.
/// let (train, valid) = Subset::split(two, 42, 0.1)?;
/// let train = DataLoader::builder(train).batch_size(16).build()?;
/// let valid = DataLoader::builder(valid).batch_size(16).build()?;
/// # let _ = (train, valid);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Subset<S> {
    stream: S,
    indices: Vec<u64>,
}

impl<S: Stream> Subset<S> {
    /// The records at `indices`, which may repeat.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an index that the stream does not have.
    pub fn new(stream: S, indices: Vec<u64>) -> Result<Subset<S>> {
        let len = stream.len();
        match indices.iter().find(|&&index| index >= len) {
            Some(&index) => Err(Error::OutOfRange { index, len }),
            None => Ok(Subset { stream, indices }),
        }
    }

    /// Splits the records into two streams, of which the second holds out about the share `held_out` of them, 0 to 1.
    ///
    /// On which side a record goes depends on the seed and its index alone, so that no record changes sides when others
    /// are appended. Each is drawn by itself: of n records, the number held out is off by about the root of their number.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `held_out` is no number from 0 to 1.
    #[expect(clippy::type_complexity, reason = "a name for this pair would say less")]
    pub fn split(stream: S, seed: u64, held_out: f64) -> Result<(Subset<Arc<S>>, Subset<Arc<S>>)> {
        if !(0.0..=1.0).contains(&held_out) {
            return Err(Error::invalid("held_out", format!("{held_out} is no share from 0 to 1")));
        }
        // A number of 53 bits is below it, as a float holds them exactly.
        let limit = (held_out * (1u64 << 53) as f64) as u64;
        let is_held_out = |index: &u64| xxh3_64_with_seed(&index.to_le_bytes(), seed) >> 11 < limit;
        let (held_out, kept) = (0..stream.len()).partition(is_held_out);
        let stream = Arc::new(stream);
        Ok((Subset { stream: Arc::clone(&stream), indices: kept }, Subset { stream, indices: held_out }))
    }
}

impl<S> Subset<S> {
    /// Which records of the stream it has, in order.
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The whole stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: Stream> Stream for Subset<S> {
    type Batch = S::Batch;

    fn len(&self) -> u64 {
        self.indices.len() as u64
    }

    fn gather(&self, indices: &[u64]) -> Result<S::Batch> {
        let chosen = |&index: &u64| {
            let len = self.len();
            self.indices.get(index as usize).copied().ok_or(Error::OutOfRange { index, len })
        };
        self.stream.gather(&indices.iter().map(chosen).collect::<Result<Vec<_>>>()?)
    }

    /// Of the records up to the last that is chosen, and of the choice.
    fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
        let chosen = &self.indices[..(len as usize).min(self.indices.len())];
        let whole = self.stream.fingerprint(chosen.iter().max().map_or(0, |last| last + 1))?;
        let fold = |number: u64| {
            let mut hash = Xxh3::with_seed(number);
            chosen.iter().for_each(|index| hash.update(&index.to_le_bytes()));
            hash.digest()
        };
        Ok(whole.into_iter().map(fold).collect())
    }

    fn reads_ahead(&self) -> bool {
        self.stream.reads_ahead()
    }

    fn prefetch(&self, indices: &[u64]) -> bool {
        let chosen = indices.iter().filter_map(|&index| self.indices.get(index as usize).copied());
        self.stream.prefetch(&chosen.collect::<Vec<_>>())
    }

    fn batch_bytes(batch: &S::Batch) -> u64 {
        S::batch_bytes(batch)
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        let mut parts = self.stream.parts()?;
        parts.iter_mut().for_each(|part| part.len = self.len());
        Ok(parts)
    }
}

impl<S: fmt::Debug> fmt::Debug for Subset<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.indices.len();
        f.debug_struct("Subset").field("stream", &self.stream).field("len", &len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::DataLoader;
    use super::super::testing::Memory;
    use super::*;

    proptest! {
        #[test]
        fn a_subset_has_the_records_that_were_chosen(chosen in vec(0..50u64, 1..80)) {
            let memory = Memory::new(50);
            let subset = Subset::new(memory.clone(), chosen.clone()).unwrap();
            let all: Vec<u64> = (0..subset.len()).collect();
            prop_assert_eq!(subset.gather(&all).unwrap(), memory.gather(&chosen).unwrap());
            let loader = DataLoader::builder(subset).batch_size(7).workers(0).build().unwrap();
            let mut seen: Vec<u64> = loader.pass().flat_map(Result::unwrap).collect();
            let mut wanted = memory.gather(&chosen).unwrap();
            seen.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(seen, wanted);
        }

        #[test]
        fn a_record_stays_on_its_side_when_others_are_appended(len in 0..3000u64, more in 0..3000u64, seed: u64, share in 0..=1000u32) {
            let share = f64::from(share) / 1000.0;
            let sides = |len| {
                let (kept, held_out) = Subset::split(Memory::new(len), seed, share).unwrap();
                (kept.indices().to_vec(), held_out.indices().to_vec())
            };
            let (kept, held_out) = sides(len);
            let both: BTreeSet<u64> = kept.iter().chain(&held_out).copied().collect();
            prop_assert_eq!(both.len() as u64, len);
            prop_assert_eq!(kept.len() + held_out.len(), len as usize);
            let (later, held_out_later) = sides(len + more);
            prop_assert_eq!(&later[..kept.len()], &kept[..]);
            prop_assert_eq!(&held_out_later[..held_out.len()], &held_out[..]);
            // Six standard deviations.
            let off = held_out.len() as f64 - share * len as f64;
            prop_assert!(off.abs() <= 1.0 + 6.0 * (len as f64 * share * (1.0 - share)).sqrt(), "{off}");
        }
    }

    #[test]
    fn what_is_not_there_or_no_share_is_refused() {
        assert!(matches!(Subset::new(Memory::new(3), vec![1, 3]), Err(Error::OutOfRange { index: 3, len: 3 })));
        let subset = Subset::new(Memory::new(3), vec![1]).unwrap();
        assert!(matches!(subset.gather(&[0, 1]), Err(Error::OutOfRange { index: 1, len: 1 })));
        for share in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(Subset::split(Memory::new(3), 1, share), Err(Error::Invalid { .. })));
        }
    }

    #[test]
    fn a_state_survives_growth_and_names_another_choice() {
        let memory = Memory::new(40);
        let of = |indices: &[u64]| DataLoader::builder(Subset::new(memory.clone(), indices.to_vec()).unwrap());
        let state = of(&[1, 5, 9]).batch_size(2).build().unwrap().state();
        memory.len.store(60, Ordering::SeqCst);
        assert!(of(&[1, 5, 9, 50]).batch_size(2).resume(state.clone()).build().is_ok());
        assert!(matches!(of(&[1, 5, 8]).batch_size(2).resume(state).build(), Err(Error::State { .. })));
    }
}
