//! Which records make up a batch: pure functions of (length, batch size, seed, step).

mod cyclic;
mod hash;
mod iid;
mod permutation;
mod sequential;
mod shard;
#[cfg(test)]
mod tests;

pub(crate) use hash::seed_bytes;
pub(crate) use permutation::Permutation;
pub use shard::Shard;

use std::ops::Range;

use serde::{Deserialize, Serialize};

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
}

/// Draws batches of indices, each a pure function of (mode, length, batch size, seed, step).
///
/// Any step costs the same, nothing the size of the data is held, and the order stays the same in every later version.
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
#[derive(Debug, Clone)]
pub struct Sampler {
    mode: Mode,
    len: u64,
    batch_size: u64,
    seed: u64,
}

impl Sampler {
    /// A sampler over `len` records in global batches of `batch_size`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] where either is 0, `len` is above 2^62 or `batch_size` above 2^32.
    pub fn new(mode: Mode, len: u64, batch_size: u64, seed: u64) -> Result<Self> {
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
        Ok(Self { mode, len, batch_size, seed })
    }

    /// In which order records are drawn.
    pub fn mode(&self) -> Mode {
        self.mode
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

    /// How many indices a batch holds: `batch_size`, or `len` where Cyclic draws from fewer records than that.
    pub fn batch_len(&self) -> u64 {
        match self.mode {
            Mode::Cyclic => self.batch_size.min(self.len),
            Mode::Sequential | Mode::Iid | Mode::CyclicCarry => self.batch_size,
        }
    }

    /// How many steps a cycle takes; `None` for the modes whose batches do not begin anew with each cycle.
    pub fn steps_per_cycle(&self) -> Option<u64> {
        match self.mode {
            Mode::Cyclic => Some(self.len / self.batch_len()),
            Mode::Sequential | Mode::Iid | Mode::CyclicCarry => None,
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
        match self.mode {
            Mode::Sequential => {
                let (_, place) = self.running(step, start);
                sequential::extend(self.len, place, count, out);
            }
            Mode::Iid => iid::Draws::new(self.len, self.seed, step).extend(start..end, out),
            Mode::Cyclic => {
                let steps = self.len / self.batch_len();
                let place = step % steps * self.batch_len() + start;
                cyclic::extend(self.len, self.seed, step / steps, place, count, out);
            }
            Mode::CyclicCarry => {
                let (cycle, place) = self.running(step, start);
                cyclic::extend(self.len, self.seed, cycle, place, count, out);
            }
        }
    }

    /// In which cycle, and where in it, a position lies when batches follow one another without a gap. Cycles are
    /// counted modulo 2^64.
    fn running(&self, step: u64, position: u64) -> (u64, u64) {
        let at = u128::from(step) * u128::from(self.batch_size) + u128::from(position);
        let len = u128::from(self.len);
        ((at / len) as u64, (at % len) as u64)
    }
}
