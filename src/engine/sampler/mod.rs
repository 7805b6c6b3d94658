//! Which records make up a batch: pure functions of (length, batch size, seed, step), and of weights, lengths, sources
//! or blocks in the modes that have such.

mod blocks;
mod cyclic;
mod hash;
mod iid;
mod mixture;
mod permutation;
mod sequential;
mod shard;
mod similar;
#[cfg(test)]
mod tests;
mod weighted;

pub(crate) use hash::seed_bytes;
pub(crate) use permutation::Permutation;
pub use shard::Shard;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use blocks::Blocks;
use mixture::Mixture;
use serde::{Deserialize, Serialize};
use similar::Similar;
use weighted::Weighted;

use crate::error::{Error, Result};

/// The most indices that a batch may have: 32 GiB of them.
const BATCH_LIMIT: u64 = 1 << 32;

/// The most records that can be drawn from.
const LEN_LIMIT: u64 = 1 << 62;

/// In which order records are drawn.
///
/// ```
/// use loaderx::{Mode, Sampler};
///
/// let draw = |mode, step| Ok::<_, loaderx::Error>(Sampler::new(mode, 5, 2, 42)?.batch(step));
/// assert_eq!(draw(Mode::Sequential, 2)?, [4, 0]);
/// // Two steps a cycle: four of the five records, each once, and the fifth another time.
/// let mut cycle = [draw(Mode::Cyclic, 0)?, draw(Mode::Cyclic, 1)?].concat();
/// cycle.sort();
/// cycle.dedup();
/// assert_eq!(cycle.len(), 4);
/// # Ok::<(), loaderx::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// In index order, going round.
    Sequential,
    /// Each index drawn uniformly, with replacement.
    Iid,
    /// A fresh permutation each cycle; the remainder that does not fill a batch is dropped, and is another one each
    /// cycle. Fewer records than a batch make one short batch a cycle.
    #[default]
    Cyclic,
    /// A fresh permutation each cycle; a batch runs on into the next cycle, so that no record is dropped. Batches are
    /// always full.
    CyclicCarry,
    /// Each index drawn with a probability of its own, with replacement: [`Sampler::weighted`].
    Weighted,
    /// As [`Cyclic`](Mode::Cyclic), with records of similar length in each batch: [`Sampler::similar_lengths`].
    SimilarLengths,
    /// A fixed share of every batch from each of several sources: [`Sampler::mixture`].
    Mixture,
    /// As [`Cyclic`](Mode::Cyclic), with records that lie close together drawn close together:
    /// [`Sampler::block_shuffle`].
    BlockShuffle,
}

/// Draws batches of indices, each a pure function of (mode, length, batch size, seed, step), and of the weights, lengths,
/// sources or blocks where there are some.
///
/// Any step costs the same, and the order stays the same in every later version. Weights and lengths are held, 16 and 8
/// bytes a record; nothing else that grows with the data.
///
/// # Example
///
/// ```
/// use loaderx::{Mode, Sampler};
///
/// let sampler = Sampler::new(Mode::Cyclic, 60_000, 256, 42)?;
/// let batch = sampler.batch(1_000_000_000_000);
/// assert_eq!(batch.len(), 256);
/// assert_eq!(batch, sampler.batch(1_000_000_000_000));
/// # Ok::<(), loaderx::Error>(())
/// ```
#[derive(Clone)]
pub struct Sampler {
    order: Order,
    len: u64,
    batch_size: u64,
    seed: u64,
}

/// A mode, with what it draws by.
#[derive(Clone)]
enum Order {
    Sequential,
    Iid,
    Cyclic,
    CyclicCarry,
    Weighted(Arc<Weighted>),
    Similar(Arc<Similar>),
    Mixture(Arc<Mixture>),
    Blocks(Blocks),
}

impl Sampler {
    /// A sampler over `len` records in global batches of `batch_size`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] where either is 0, `len` is above 2^62 or `batch_size` above 2^32, and for the modes that need
    /// more than that: [`weighted`](Self::weighted), [`similar_lengths`](Self::similar_lengths),
    /// [`mixture`](Self::mixture) and [`block_shuffle`](Self::block_shuffle) make them.
    pub fn new(mode: Mode, len: u64, batch_size: u64, seed: u64) -> Result<Self> {
        let order = match mode {
            Mode::Sequential => Order::Sequential,
            Mode::Iid => Order::Iid,
            Mode::Cyclic => Order::Cyclic,
            Mode::CyclicCarry => Order::CyclicCarry,
            Mode::Weighted | Mode::SimilarLengths | Mode::Mixture | Mode::BlockShuffle => {
                let reason =
                    format!("{mode:?} draws by weights, lengths, sources or blocks: give them, and they set the mode");
                return Err(Error::invalid("mode", reason));
            }
        };
        Self::with(order, len, batch_size, seed)
    }

    /// Draws each record with a probability in proportion to its weight, with replacement. A weight is any number from
    /// 0 up, one a record; a record of weight 0 is never drawn. The table takes 16 bytes a record.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for weights that are negative or not finite, or none above 0, and as [`new`](Self::new).
    ///
    /// ```
    /// use loaderx::Sampler;
    ///
    /// let sampler = Sampler::weighted(&[0.0, 1.0, 3.0], 1000, 42)?;
    /// let batch = sampler.batch(7);
    /// let count = |record| batch.iter().filter(|&&drawn| drawn == record).count();
    /// assert!(count(0) == 0 && count(1) > 200 && count(2) > 700);
    /// # Ok::<(), loaderx::Error>(())
    /// ```
    pub fn weighted(weights: &[f64], batch_size: u64, seed: u64) -> Result<Self> {
        let weighted = Weighted::new(weights)?;
        Self::with(Order::Weighted(weighted.into()), weights.len() as u64, batch_size, seed)
    }

    /// Draws each record once a cycle, in batches of records of similar length: `lengths` has one a record, in any unit.
    /// The records of `window` batches are sorted at a time, and their batches shuffled. A larger window makes the
    /// lengths within a batch more alike, and a shorter one the order more random; 64 is a good start.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a window of 0, and as [`new`](Self::new).
    ///
    /// ```
    /// use loaderx::Sampler;
    ///
    /// let lengths: Vec<u64> = (0..10_000).map(|record| record * 7919 % 500).collect();
    /// let sampler = Sampler::similar_lengths(lengths.clone(), 64, 32, 42)?;
    /// let batch = sampler.batch(3).into_iter().map(|record| lengths[record as usize]);
    /// let (least, most) = (batch.clone().min(), batch.max());
    /// assert!(most.zip(least).is_some_and(|(most, least)| most - least < 50));
    /// # Ok::<(), loaderx::Error>(())
    /// ```
    pub fn similar_lengths(lengths: impl Into<Vec<u64>>, window: u64, batch_size: u64, seed: u64) -> Result<Self> {
        if window == 0 {
            return Err(Error::invalid("window", "0 batches hold nothing to sort: at least 1"));
        }
        let lengths = lengths.into();
        let len = lengths.len() as u64;
        Self::with(Order::Similar(Similar::new(lengths, window).into()), len, batch_size, seed)
    }

    /// Draws from several sources, each of so many records and a weight above 0, whose indices follow one another. Each
    /// source has its share of every batch: after any number of steps its count is less than one record away from it.
    /// Its own records come once a cycle of its own. Weights are rounded to one record in 16384, or in one batch, if that
    /// is larger.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a weight that is not above 0 or less than that, a source of no records, and as
    /// [`new`](Self::new).
    ///
    /// ```
    /// use loaderx::Sampler;
    ///
    /// let sampler = Sampler::mixture(&[(60_000, 0.75), (500, 0.25)], 64, 42)?;
    /// let small = sampler.batch(1_000_000).iter().filter(|&&index| index >= 60_000).count();
    /// assert_eq!(small, 16);
    /// # Ok::<(), loaderx::Error>(())
    /// ```
    pub fn mixture(sources: &[(u64, f64)], batch_size: u64, seed: u64) -> Result<Self> {
        let len = sources.iter().fold(0, |len: u64, source| len.saturating_add(source.0));
        // What the sources are drawn by is made for a batch size that is one.
        let sampler = Self::with(Order::Sequential, len, batch_size, seed)?;
        Ok(Self { order: Order::Mixture(Mixture::new(sources, batch_size)?.into()), ..sampler })
    }

    /// Draws each record once a cycle, and neighbours close together: a block is `block` records one behind another, and
    /// the records of `window` blocks, drawn at random, are mixed at a time. So a stretch of steps needs few blocks, where
    /// [`Cyclic`](Mode::Cyclic) needs all, and is no full shuffle, unless a window holds all blocks or both are 1. What it
    /// is instead is measured in `docs/scale.md`. A batch may have records of two windows or more, and none of two cycles.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a block or a window of 0, and as [`new`](Self::new).
    ///
    /// ```
    /// use loaderx::Sampler;
    ///
    /// // 32 batches have the 2048 records of 4 blocks.
    /// let sampler = Sampler::block_shuffle(1_000_000, 512, 4, 64, 42)?;
    /// let mut blocks: Vec<u64> = (0..32).flat_map(|step| sampler.batch(step)).map(|record| record / 512).collect();
    /// blocks.sort();
    /// blocks.dedup();
    /// assert_eq!(blocks.len(), 4);
    /// # Ok::<(), loaderx::Error>(())
    /// ```
    pub fn block_shuffle(len: u64, block: u64, window: u64, batch_size: u64, seed: u64) -> Result<Self> {
        // The blocks of a length that can be drawn from.
        let sampler = Self::with(Order::Sequential, len, batch_size, seed)?;
        Ok(Self { order: Order::Blocks(Blocks::new(len, block, window)?), ..sampler })
    }

    fn with(order: Order, len: u64, batch_size: u64, seed: u64) -> Result<Self> {
        if len == 0 {
            return Err(Error::invalid("len", "there are no records to draw from: append some first"));
        }
        if len > LEN_LIMIT {
            return Err(Error::invalid("len", format!("at most {LEN_LIMIT} records can be drawn from, not {len}")));
        }
        if batch_size == 0 || batch_size > BATCH_LIMIT {
            let reason = format!("a batch has 1 to {BATCH_LIMIT} records, not {batch_size}");
            return Err(Error::invalid("batch_size", reason));
        }
        Ok(Self { order, len, batch_size, seed })
    }

    /// In which order records are drawn.
    pub fn mode(&self) -> Mode {
        match self.order {
            Order::Sequential => Mode::Sequential,
            Order::Iid => Mode::Iid,
            Order::Cyclic => Mode::Cyclic,
            Order::CyclicCarry => Mode::CyclicCarry,
            Order::Weighted(_) => Mode::Weighted,
            Order::Similar(_) => Mode::SimilarLengths,
            Order::Mixture(_) => Mode::Mixture,
            Order::Blocks(_) => Mode::BlockShuffle,
        }
    }

    /// What tells the weights, lengths, sources or blocks that are drawn by from others; 0 where there are none.
    pub(crate) fn identity(&self) -> u64 {
        match &self.order {
            Order::Weighted(weighted) => weighted.identity(),
            Order::Similar(similar) => similar.identity(),
            Order::Mixture(mixture) => mixture.identity(),
            Order::Blocks(blocks) => blocks.identity(),
            Order::Sequential | Order::Iid | Order::Cyclic | Order::CyclicCarry => 0,
        }
    }

    /// How many records are drawn from; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a sampler over no records cannot be made")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The global batch size that was asked for.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many indices a batch holds: `batch_size`, or `len` where Cyclic, SimilarLengths or BlockShuffle draws from fewer
    /// records than that.
    pub fn batch_len(&self) -> u64 {
        match self.order {
            Order::Cyclic | Order::Similar(_) | Order::Blocks(_) => self.batch_size.min(self.len),
            _ => self.batch_size,
        }
    }

    /// How many steps a cycle takes; `None` for the modes whose batches do not begin anew with each cycle.
    pub fn steps_per_cycle(&self) -> Option<u64> {
        match self.order {
            Order::Cyclic | Order::Similar(_) | Order::Blocks(_) => Some(self.len / self.batch_len()),
            _ => None,
        }
    }

    /// The indices of a step.
    pub fn batch(&self, step: u64) -> Vec<u64> {
        let mut out = Vec::new();
        self.batch_into(step, 0..self.batch_len(), &mut out);
        out
    }

    /// The indices at `positions` of a step's batch, into `out`, which is cleared first. Positions past the end of the
    /// batch have none.
    pub fn batch_into(&self, step: u64, positions: Range<u64>, out: &mut Vec<u64>) {
        out.clear();
        let end = positions.end.min(self.batch_len());
        let start = positions.start.min(end);
        let count = end - start;
        out.reserve(count as usize);
        match &self.order {
            Order::Sequential => {
                let (_, place) = self.running(step, start);
                sequential::extend(self.len, place, count, out);
            }
            Order::Iid => iid::Draws::new(self.len, self.seed, step).extend(start..end, out),
            Order::Cyclic => {
                let (cycle, place) = self.whole(step, start);
                cyclic::extend(self.len, self.seed, cycle, place, count, out);
            }
            Order::CyclicCarry => {
                let (cycle, place) = self.running(step, start);
                cyclic::extend(self.len, self.seed, cycle, place, count, out);
            }
            Order::Weighted(weighted) => weighted.extend(self.seed, step, start..end, out),
            Order::Similar(similar) => similar.extend(self.seed, self.batch_len(), step, start..end, out),
            Order::Mixture(mixture) => mixture.extend(self.seed, step, start..end, out),
            Order::Blocks(blocks) => {
                let (cycle, place) = self.whole(step, start);
                blocks.extend(self.seed, cycle, place, count, out);
            }
        }
    }

    /// In which cycle, and where in it, a position lies when each cycle is as many whole batches as it has records for.
    fn whole(&self, step: u64, position: u64) -> (u64, u64) {
        let steps = self.len / self.batch_len();
        (step / steps, step % steps * self.batch_len() + position)
    }

    /// In which cycle, and where in it, a position lies when batches follow one another without a gap. Cycles are
    /// counted modulo 2^64.
    fn running(&self, step: u64, position: u64) -> (u64, u64) {
        let at = u128::from(step) * u128::from(self.batch_size) + u128::from(position);
        let len = u128::from(self.len);
        ((at / len) as u64, (at % len) as u64)
    }
}

/// Without the weights or lengths, of which there are as many as records.
impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, batch_size, seed, .. } = self;
        let mut f = f.debug_struct("Sampler");
        f.field("mode", &self.mode()).field("len", len).field("batch_size", batch_size).field("seed", seed).finish()
    }
}
