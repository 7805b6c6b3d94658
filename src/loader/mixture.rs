//! Several streams, each with its share of every batch.

use std::fmt;

use super::stream::{Stream, StreamPart};
use crate::data::{DenseBatch, Element, RaggedBatch, Shape};
use crate::error::{Error, Result};

/// Streams of one type that are mixed with fixed weights: a loader over one takes each stream's share for every batch,
/// unless another mode is set.
///
/// After any number of steps the count of each stream is less than one record away from its share; each stream's own
/// records come once a cycle of its own, however long it is. The indices of the streams follow one another, so a pass
/// goes over all of them. What is mixed is fixed when the mixture is made: a state fits one of the same lengths and
/// weights.
///
/// ```
/// use loaderx::{DataLoader, DenseDataset, Mixture};
///
/// # let directory = tempfile::tempdir()?;
/// # let (web, books) = (directory.path().join("web"), directory.path().join("books"));
/// # DenseDataset::<u32, [usize; 1]>::create(&web, [8])?.append(&vec![0; 1000 * 8])?;
/// # DenseDataset::<u32, [usize; 1]>::create(&books, [8])?.append(&vec![1; 100 * 8])?;
/// let web = DenseDataset::<u32, [usize; 1]>::open(web)?;
/// let books = DenseDataset::<u32, [usize; 1]>::open(books)?;
/// let mixture = Mixture::new([(web, 3.0), (books, 1.0)])?;
/// let mut loader = DataLoader::builder(mixture).batch_size(64).build()?;
/// if let Some(batch) = loader.next() {
///     assert_eq!(batch?.rows().filter(|row| row[0] == 1).count(), 16);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mixture<S> {
    streams: Vec<S>,
    weights: Vec<f64>,
    /// Where the indices of each stream begin, and where the last one's end.
    firsts: Vec<u64>,
}

impl<S: Stream> Mixture<S>
where
    S::Batch: Interleave,
{
    /// Mixes these streams, each with its weight, in any unit.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is none, or where a stream has no records or more than 2^62 together. Weights are
    /// checked when a loader is built: numbers above 0.
    pub fn new(streams: impl IntoIterator<Item = (S, f64)>) -> Result<Mixture<S>> {
        let (streams, weights): (Vec<S>, Vec<f64>) = streams.into_iter().unzip();
        if streams.is_empty() {
            return Err(Error::invalid("mixture", "there are no streams: it needs one at least"));
        }
        let mut firsts = vec![0u64];
        for (at, stream) in streams.iter().enumerate() {
            let (end, len) = (firsts[at], stream.len());
            if len == 0 {
                return Err(Error::invalid("mixture", format!("stream {at} has no records to draw from")));
            }
            firsts.push(end.saturating_add(len));
        }
        Ok(Mixture { streams, weights, firsts })
    }
}

impl<S> Mixture<S> {
    /// The streams, in order.
    pub fn streams(&self) -> &[S] {
        &self.streams
    }

    /// The stream that an index lies in, and the index within it: what drew a record that
    /// [`explain`](crate::DataLoader::explain) names. `None` past the end.
    pub fn locate(&self, index: u64) -> Option<(usize, u64)> {
        let at = self.firsts.partition_point(|first| *first <= index).checked_sub(1)?;
        (at < self.streams.len()).then(|| (at, index - self.firsts[at]))
    }
}

/// In which stream's batch each record is, and at which place.
type Places = Vec<(usize, usize)>;

impl<S: Stream> Mixture<S> {
    /// The indices within each stream, and where each record then is: in which stream's batch, and at which place.
    fn own(&self, indices: &[u64]) -> Result<(Vec<Vec<u64>>, Places)> {
        let mut own = vec![Vec::new(); self.streams.len()];
        let mut places = Vec::with_capacity(indices.len());
        for &index in indices {
            let len = self.firsts[self.streams.len()];
            let (at, within) = self.locate(index).ok_or(Error::OutOfRange { index, len })?;
            places.push((at, own[at].len()));
            own[at].push(within);
        }
        Ok((own, places))
    }
}

impl<S: Stream> Stream for Mixture<S>
where
    S::Batch: Interleave,
{
    type Batch = S::Batch;

    fn len(&self) -> u64 {
        self.firsts[self.streams.len()]
    }

    fn gather(&self, indices: &[u64]) -> Result<S::Batch> {
        let (own, places) = self.own(indices)?;
        let batches = self.streams.iter().zip(&own).map(|(stream, own)| stream.gather(own));
        S::Batch::interleave(batches.collect::<Result<_>>()?, &places)
    }

    /// All of each stream's, whatever `len` is: a mixture does not grow.
    fn fingerprint(&self, _len: u64) -> Result<Vec<u64>> {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for (at, stream) in self.streams.iter().enumerate() {
            let numbers = stream.fingerprint(self.firsts[at + 1] - self.firsts[at])?;
            numbers.iter().for_each(|number| hash.update(&number.to_le_bytes()));
        }
        Ok(vec![hash.digest()])
    }

    fn reads_ahead(&self) -> bool {
        self.streams.iter().any(S::reads_ahead)
    }

    fn prefetch(&self, indices: &[u64]) -> bool {
        let Ok((own, _)) = self.own(indices) else { return false };
        let far = self.streams.iter().zip(&own).filter(|(stream, _)| stream.reads_ahead());
        far.fold(true, |more, (stream, own)| stream.prefetch(own) && more)
    }

    fn batch_bytes(batch: &S::Batch) -> u64 {
        S::batch_bytes(batch)
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        let names = self.streams.iter().map(|stream| Ok(stream.parts()?.into_iter().map(|part| part.name).collect()));
        let names = names.collect::<Result<Vec<Vec<String>>>>()?.concat().join(", ");
        Ok(vec![StreamPart { name: format!("mixture of {names}"), len: self.len() }])
    }

    fn sources(&self) -> Option<Vec<(u64, f64)>> {
        Some(self.firsts.windows(2).map(|pair| pair[1] - pair[0]).zip(self.weights.iter().copied()).collect())
    }
}

impl<S: fmt::Debug> fmt::Debug for Mixture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.streams.iter().zip(&self.weights)).finish()
    }
}

/// Batches that can be put together, record by record, for a [`Mixture`]: those of datasets, vectors, and tuples of
/// such.
pub trait Interleave: Sized {
    /// One batch of them all: its record `i` is record `places[i].1` of `batches[places[i].0]`.
    ///
    /// # Errors
    /// Where records of different batches are of different shapes.
    fn interleave(batches: Vec<Self>, places: &[(usize, usize)]) -> Result<Self>;
}

/// The one shape of all batches.
fn one_shape<'a, S: Shape>(shapes: impl IntoIterator<Item = &'a S>) -> Result<S> {
    let mut shapes = shapes.into_iter();
    let Some(first) = shapes.next() else { return Err(Error::invalid("mixture", "there are no batches")) };
    match (1..).zip(shapes).find(|(_, shape)| shape.dims() != first.dims()) {
        Some((at, other)) => {
            let (first, other) = (first.dims(), other.dims());
            let reason = format!("records of stream {at} have the shape {other:?}, those of stream 0 {first:?}");
            Err(Error::invalid("mixture", reason))
        }
        None => Ok(first.clone()),
    }
}

impl<T: Element, S: Shape> Interleave for DenseBatch<T, S> {
    fn interleave(batches: Vec<Self>, places: &[(usize, usize)]) -> Result<Self> {
        let shape = one_shape(batches.iter().map(DenseBatch::item_shape))?;
        let mut values = Vec::with_capacity(batches.iter().map(|batch| batch.values().len()).sum());
        places.iter().for_each(|&(at, row)| values.extend_from_slice(batches[at].row(row).unwrap_or_default()));
        DenseBatch::new(places.len(), shape, values)
    }
}

impl<T: Element, S: Shape> Interleave for RaggedBatch<T, S> {
    fn interleave(batches: Vec<Self>, places: &[(usize, usize)]) -> Result<Self> {
        let shape = one_shape(batches.iter().map(RaggedBatch::item_shape))?;
        let mut values = Vec::with_capacity(batches.iter().map(|batch| batch.values().len()).sum());
        let mut offsets = vec![0];
        let mut rows = 0;
        for &(at, record) in places {
            values.extend_from_slice(batches[at].record(record).unwrap_or_default());
            rows += batches[at].offsets()[record + 1] - batches[at].offsets()[record];
            offsets.push(rows);
        }
        RaggedBatch::new(shape, offsets, values)
    }
}

impl<T: Clone> Interleave for Vec<T> {
    fn interleave(batches: Vec<Self>, places: &[(usize, usize)]) -> Result<Self> {
        Ok(places.iter().map(|&(at, record)| batches[at][record].clone()).collect())
    }
}

macro_rules! tuple {
    ($($batch:ident $at:tt),+) => {
        impl<$($batch: Interleave),+> Interleave for ($($batch,)+) {
            fn interleave(batches: Vec<Self>, places: &[(usize, usize)]) -> Result<Self> {
                let mut apart = ($(Vec::<$batch>::with_capacity(batches.len()),)+);
                for batch in batches {
                    $(apart.$at.push(batch.$at);)+
                }
                Ok(($($batch::interleave(apart.$at, places)?,)+))
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::DataLoader;
    use super::super::testing::Memory;
    use super::*;
    use crate::engine::sampler::{Mode, Shard};

    fn mixture(parts: &[(u64, f64)]) -> Mixture<(Memory, Memory)> {
        let streams = (0..)
            .zip(parts)
            .map(|(salt, &(len, weight))| ((Memory::salted(len, salt), Memory::salted(len, salt + 100)), weight));
        Mixture::new(streams).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_batch_has_the_records_that_the_indices_name(parts in vec((1..40u64, 0.1..1f64), 1..5), draws in vec(any::<prop::sample::Index>(), 0..60)) {
            let mixture = mixture(&parts);
            let indices: Vec<u64> = draws.iter().map(|draw| draw.index(mixture.len() as usize) as u64).collect();
            let (first, second) = mixture.gather(&indices).unwrap();
            for (i, &index) in indices.iter().enumerate() {
                let (at, within) = mixture.locate(index).unwrap();
                let (a, b) = &mixture.streams()[at];
                prop_assert_eq!((first[i], second[i]), (a.record(within), b.record(within)));
            }
            prop_assert!(mixture.locate(mixture.len()).is_none() && mixture.gather(&[mixture.len()]).is_err());
        }

        #[test]
        fn ranks_share_what_one_rank_draws_and_a_state_goes_on(parts in vec((1..40u64, 0.1..1f64), 1..4), steps in 0..400u64, seed: u64) {
            let builder = |rank, world| {
                let shard = Shard::new(rank, world).unwrap();
                DataLoader::builder(mixture(&parts)).batch_size(32).seed(seed).shard(shard).workers(0)
            };
            let mut one = builder(0, 1).build().unwrap();
            one.seek(steps);
            let state = one.state();
            prop_assert_eq!(state.mode, Mode::Mixture);
            let whole = one.next().unwrap().unwrap();
            let halves = [0, 1].map(|rank| builder(rank, 2).resume(state.clone()).build().unwrap().next().unwrap().unwrap());
            prop_assert_eq!(whole.0, [halves[0].0.clone(), halves[1].0.clone()].concat());
        }
    }

    #[test]
    fn other_weights_or_lengths_do_not_fit_a_state() {
        let of = |parts: &[(u64, f64)]| DataLoader::builder(mixture(parts)).batch_size(8);
        let state = of(&[(30, 1.0), (20, 2.0)]).build().unwrap().state();
        assert!(of(&[(30, 0.5), (20, 1.0)]).resume(state.clone()).build().is_ok());
        for parts in [[(30, 1.0), (20, 1.0)], [(31, 1.0), (19, 2.0)], [(30, 1.0), (21, 2.0)]] {
            assert!(matches!(of(&parts).resume(state.clone()).build(), Err(Error::State { .. })), "{parts:?}");
        }
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        assert!(Mixture::<Memory>::new([]).is_err());
        assert!(Mixture::new([(Memory::new(0), 1.0)]).is_err());
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            let error = DataLoader::builder(mixture(&[(9, 1.0), (9, weight)])).build().unwrap_err().to_string();
            assert!(error.contains("source 1"), "{error}");
        }
        let dense = |shape: [usize; 2]| DenseBatch::new(1, shape, vec![0u8; 6]).unwrap();
        assert!(DenseBatch::interleave(vec![dense([2, 3]), dense([3, 2])], &[(0, 0), (1, 0)]).is_err());
    }

    #[test]
    fn dense_and_ragged_records_are_interleaved() {
        let dense = |values: &[u8]| DenseBatch::new(values.len() / 2, [2], values.to_vec()).unwrap();
        let both =
            DenseBatch::interleave(vec![dense(&[1, 2, 3, 4]), dense(&[5, 6])], &[(0, 1), (1, 0), (0, 0)]).unwrap();
        assert_eq!(both.values(), [3, 4, 5, 6, 1, 2]);
        let ragged = |offsets: &[u64], values: &[u8]| RaggedBatch::new((), offsets.to_vec(), values.to_vec()).unwrap();
        let parts = vec![ragged(&[0, 2, 2], &[1, 2]), ragged(&[0, 1], &[3])];
        let both = RaggedBatch::interleave(parts, &[(0, 1), (1, 0), (0, 0)]).unwrap();
        assert_eq!((both.values(), both.offsets()), (&[3, 1, 2][..], &[0, 0, 1, 3][..]));
    }
}
