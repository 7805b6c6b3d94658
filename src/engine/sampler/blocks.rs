//! Neighbouring records in blocks, each record once a cycle: for data that is read from afar a block at a time.
//!
//! A cycle permutes the blocks and cuts them into windows of some blocks. The records of a window are permuted, and the
//! windows follow one another. The last block may be short, and what lies behind it in the cycle's order moves up by what
//! it lacks; where it lies is the inverse of the blocks' permutation, so nothing is kept.

use xxhash_rust::xxh3::Xxh3;

use super::hash::{Purpose, Words};
use super::permutation::Permutation;
use crate::error::{Error, Result};

/// What the order of all cycles follows from, beside the seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    len: u64,
    /// Records a block, at most `len`.
    block: u64,
    /// Blocks a window, at most as many as there are: with `len` at most 2^62, no sum of a place and a window overflows.
    window: u64,
    identity: u64,
}

impl Blocks {
    /// `len` is above 0.
    pub(super) fn new(len: u64, block: u64, window: u64) -> Result<Blocks> {
        if block == 0 {
            return Err(Error::invalid("block", "a block of 0 records holds nothing to draw: at least 1"));
        }
        if window == 0 {
            return Err(Error::invalid("window", "0 blocks hold nothing to mix: at least 1"));
        }
        let mut identity = Xxh3::new();
        identity.update(&block.to_le_bytes());
        identity.update(&window.to_le_bytes());
        let block = block.min(len);
        Ok(Blocks { len, block, window: window.min(len.div_ceil(block)), identity: identity.digest() })
    }

    /// What tells this block and window from others.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Appends the `count` indices from `place` of `cycle` on, all of which lie within it.
    pub(super) fn extend(&self, seed: u64, cycle: u64, mut place: u64, count: u64, out: &mut Vec<u64>) {
        let end = place + count;
        let cycle = Cycle::new(*self, seed, cycle);
        while place < end {
            let window = cycle.window(place);
            let until = cycle.start(window + 1).min(end);
            cycle.extend(window, place, until, out);
            place = until;
        }
    }
}

/// The order of one cycle.
struct Cycle {
    of: Blocks,
    order: Permutation,
    /// A key for each window.
    keys: Words,
    /// Where the last block lies in the order, and how many records it lacks.
    last: u64,
    lacks: u64,
}

impl Cycle {
    fn new(of: Blocks, seed: u64, cycle: u64) -> Cycle {
        let blocks = of.len.div_ceil(of.block);
        let order = Permutation::new(blocks, seed, cycle);
        let last = order.place_of(blocks - 1);
        let keys = Words::new(Purpose::Blocks, seed, cycle);
        Cycle { of, order, keys, last, lacks: blocks * of.block - of.len }
    }

    /// The window that the last block lies in.
    fn short(&self) -> u64 {
        self.last / self.of.window
    }

    /// The window that a place lies in.
    fn window(&self, place: u64) -> u64 {
        let records = self.of.block * self.of.window;
        let behind = (place + self.lacks) / records;
        if behind > self.short() { behind } else { place / records }
    }

    /// The first place of a window; of the one past the last, where the cycle ends.
    fn start(&self, window: u64) -> u64 {
        let lacks = if window > self.short() { self.lacks } else { 0 };
        (window * self.of.window * self.of.block - lacks).min(self.of.len)
    }

    /// Appends the indices at the places from `begin` to `end`, which lie in `window`.
    fn extend(&self, window: u64, begin: u64, end: u64, out: &mut Vec<u64>) {
        let Blocks { block, window: blocks, .. } = self.of;
        let (start, first, from) = (self.start(window), window * blocks, out.len());
        let records = Permutation::new(self.start(window + 1) - start, self.keys.at(window), 0);
        records.extend(begin - start..end - start, out);
        // Where the last block ends, among the records of its window.
        let gap = if window == self.short() { (self.last - first + 1) * block - self.lacks } else { u64::MAX };
        let slot = |record: u64| if record >= gap { record + self.lacks } else { record };
        let mut drawn: Vec<u64> = out[from..].iter().map(|&record| first + slot(record) / block).collect();
        self.order.apply(&mut drawn);
        for (index, drawn) in out[from..].iter_mut().zip(drawn) {
            *index = drawn * block + slot(*index) % block;
        }
    }
}
