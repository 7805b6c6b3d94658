//! Which records make up a batch: pure functions of (length, batch size, seed, step).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// In which order records are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// In index order, going round.
    Sequential,
    /// Each index drawn uniformly, with replacement.
    Iid,
    /// A fresh permutation each cycle; the remainder that does not fill a batch is dropped.
    #[default]
    Cyclic,
    /// A fresh permutation each cycle; a batch runs on into the next cycle, so that no record is dropped.
    CyclicCarry,
}

/// Draws batches of indices.
#[derive(Debug, Clone)]
pub struct Sampler {}

impl Sampler {
    /// A sampler over `len` records in global batches of `batch_size`. An error where either is 0.
    pub fn new(_mode: Mode, _len: u64, _batch_size: u64, _seed: u64) -> Result<Self> {
        todo!()
    }
    /// How many indices a batch holds: `batch_size`, or `len` where Cyclic draws from fewer records than that.
    pub fn batch_len(&self) -> u64 {
        todo!()
    }
    /// The indices of a step.
    pub fn batch(&self, _step: u64) -> Vec<u64> {
        todo!()
    }
    /// The indices at `positions` of a step's batch, into `out`, which is cleared first.
    pub fn batch_into(&self, _step: u64, _positions: Range<u64>, _out: &mut Vec<u64>) {
        todo!()
    }
}

/// One permutation of `0..len`: what a shuffled pass reads.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {}

impl Permutation {
    /// The permutation of (seed, cycle).
    pub(crate) fn new(_len: u64, _seed: u64, _cycle: u64) -> Self {
        todo!()
    }
    /// Appends the images of `positions` to `out`.
    pub(crate) fn extend(&self, _positions: Range<u64>, _out: &mut Vec<u64>) {
        todo!()
    }
}

/// 32 bytes for a generator, a pure function of (seed, step, position).
pub(crate) fn seed_bytes(_seed: u64, _step: u64, _position: u64) -> [u8; 32] {
    todo!()
}
