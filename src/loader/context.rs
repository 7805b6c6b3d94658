//! What a transform knows about the batch it is given.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::sampler::{Shard, seed_bytes};

/// The position whose seed is the step's own: no record lies there.
const STEP: u64 = u64::MAX;
/// The position whose seed a pass takes its own from.
const PASS: u64 = u64::MAX - 1;

/// Which step, which rank and which records a transform is given, and the seeds for what it draws at random.
///
/// The seeds depend on the loader's seed, the step and a record's position in the global batch alone: neither the
/// workers nor the world change what a random transform does to a record.
#[derive(Debug)]
pub struct StepContext {
    pub(super) step: u64,
    pub(super) seed: u64,
    pub(super) shard: Shard,
    pub(super) positions: Range<u64>,
    pub(super) indices: Vec<u64>,
    /// How many records the indices are drawn from.
    pub(super) len: u64,
    pub(super) token: Token,
}

impl StepContext {
    /// The step; in a pass, the number of the batch, from 0.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// This loader's rank, from 0.
    pub fn rank(&self) -> u64 {
        self.shard.rank()
    }

    /// How many ranks there are.
    pub fn world(&self) -> u64 {
        self.shard.world()
    }

    /// Which part of the global batch this is.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// The index of each record of the batch.
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The seed for the record at position `i` of this batch: 32 bytes, as `SeedableRng::from_seed` of most generators
    /// takes them.
    pub fn seed(&self, i: usize) -> [u8; 32] {
        record_seed(self.seed, self.step, self.positions.start.wrapping_add(i as u64))
    }

    /// The seed for what is drawn once a step; every rank has the same.
    pub fn step_seed(&self) -> [u8; 32] {
        step_seed(self.seed, self.step)
    }

    /// Whether nobody waits for this batch any longer, since the loader was dropped, closed or sent elsewhere by
    /// `seek`. A slow transform that asks now and then, and returns any error when it is so, lets the drop go on.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }
}

/// The seed for the record at `position` of a step's global batch.
pub(super) fn record_seed(seed: u64, step: u64, position: u64) -> [u8; 32] {
    seed_bytes(seed, step, position)
}

/// The seed for what is drawn once a step.
pub(super) fn step_seed(seed: u64, step: u64) -> [u8; 32] {
    seed_bytes(seed, step, STEP)
}

/// The seed that a pass uses in place of the loader's, so that each pass draws other numbers.
pub(super) fn pass_seed(seed: u64, number: u64) -> u64 {
    seed_bytes(seed, number, PASS).into_iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(byte))
}

/// Says that some batches are not wanted any more. Its clones share one fate.
#[derive(Debug, Clone, Default)]
pub(super) struct Token(Arc<AtomicBool>);

impl Token {
    pub(super) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
