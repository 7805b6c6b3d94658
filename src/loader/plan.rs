//! Which records make up each batch: of the endless loop, or of one pass.

use std::fmt;
use std::ops::Range;

use super::context::{StepContext, Token, pass_seed};
use crate::engine::sampler::{Permutation, Sampler, Shard};

/// In which order records are drawn, and which of them this rank gets.
pub(super) struct Plan {
    draw: Draw,
    shard: Shard,
    /// What the contexts' seeds are made from.
    seed: u64,
}

enum Draw {
    Endless(Sampler),
    /// The `len` records from `first` on.
    Pass {
        first: u64,
        len: u64,
        batch_size: u64,
        shuffle: Option<Box<Permutation>>,
    },
}

impl Plan {
    /// The endless loop.
    pub(super) fn endless(sampler: Sampler, shard: Shard, seed: u64) -> Plan {
        Plan { draw: Draw::Endless(sampler), shard, seed }
    }

    /// Each of `records` once, in order, or in the order of pass `shuffle`.
    pub(super) fn pass(records: Range<u64>, batch_size: u64, shard: Shard, seed: u64, shuffle: Option<u64>) -> Plan {
        let number = shuffle.unwrap_or(0);
        let (first, len) = (records.start, records.end - records.start);
        let shuffle = shuffle.map(|number| Box::new(Permutation::new(len, seed, number)));
        Plan { draw: Draw::Pass { first, len, batch_size, shuffle }, shard, seed: pass_seed(seed, number) }
    }

    /// How many steps there are; `u64::MAX` in the endless loop.
    pub(super) fn steps(&self) -> u64 {
        match &self.draw {
            Draw::Endless(_) => u64::MAX,
            Draw::Pass { len, batch_size, .. } => {
                // Only the last batch is short, so it alone may have nothing for this rank.
                let last = !self.shard.range(len % batch_size).is_empty();
                len / batch_size + u64::from(last)
            }
        }
    }

    /// Adds what is drawn, and for whom, to what a loader or a pass shows of itself.
    pub(super) fn show(&self, shown: &mut fmt::DebugStruct<'_, '_>) {
        match &self.draw {
            Draw::Endless(sampler) => shown
                .field("mode", &sampler.mode())
                .field("records", &sampler.len())
                .field("batch_size", &sampler.batch_size())
                .field("seed", &sampler.seed()),
            Draw::Pass { len, batch_size, shuffle, .. } => {
                shown.field("shuffled", &shuffle.is_some()).field("records", len).field("batch_size", batch_size)
            }
        };
        shown.field("rank", &self.shard.rank()).field("world", &self.shard.world());
    }

    /// Everything about a step. `indices` is memory that is used again.
    pub(super) fn context(&self, step: u64, mut indices: Vec<u64>, token: Token) -> StepContext {
        let positions = self.shard.range(self.global_len(step));
        self.draw_into(step, positions.clone(), &mut indices);
        StepContext { step, seed: self.seed, shard: self.shard, positions, indices, len: self.len(), token }
    }

    /// How many records are drawn from.
    fn len(&self) -> u64 {
        match &self.draw {
            Draw::Endless(sampler) => sampler.len(),
            Draw::Pass { len, .. } => *len,
        }
    }

    /// How many records the global batch of a step holds.
    fn global_len(&self, step: u64) -> u64 {
        match &self.draw {
            Draw::Endless(sampler) => sampler.batch_len(),
            Draw::Pass { len, batch_size, .. } => len.saturating_sub(step.saturating_mul(*batch_size)).min(*batch_size),
        }
    }

    fn draw_into(&self, step: u64, positions: Range<u64>, indices: &mut Vec<u64>) {
        match &self.draw {
            Draw::Endless(sampler) => sampler.batch_into(step, positions, indices),
            Draw::Pass { first, batch_size, shuffle, .. } => {
                let begin = step * batch_size;
                let drawn = begin + positions.start..begin + positions.end;
                indices.clear();
                match shuffle {
                    Some(permutation) => permutation.extend(drawn, indices),
                    None => indices.extend(drawn),
                }
                indices.iter_mut().for_each(|index| *index += first);
            }
        }
    }
}
