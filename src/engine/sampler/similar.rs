//! Batches of records of similar length, each record once a cycle.
//!
//! A cycle's permutation is cut into windows of some batches. A window is sorted by length and cut into batches, which
//! go out in a random order, their records too: within a window nothing tells where in the batches a record of its
//! length will come.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::Xxh3;

use super::hash::{Purpose, Words};
use super::permutation::Permutation;

#[derive(Debug)]
pub(super) struct Similar {
    lengths: Vec<u64>,
    /// Batches a window.
    window: u64,
    identity: u64,
    /// The window that was sorted last: neighbouring steps lie in it.
    last: Mutex<Option<(Key, Arc<Vec<u64>>)>>,
}

/// What a window's order follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    seed: u64,
    cycle: u64,
    batch_len: u64,
    window: u64,
}

impl Similar {
    pub(super) fn new(lengths: Vec<u64>, window: u64) -> Similar {
        let mut identity = Xxh3::new();
        identity.update(&window.to_le_bytes());
        lengths.iter().for_each(|length| identity.update(&length.to_le_bytes()));
        Similar { lengths, window, identity: identity.digest(), last: Mutex::default() }
    }

    pub(super) fn len(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// What tells these lengths and this window from others.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Appends the indices at `positions` of a step, in batches of `batch_len`.
    pub(super) fn extend(&self, seed: u64, batch_len: u64, step: u64, positions: Range<u64>, out: &mut Vec<u64>) {
        let steps = self.len() / batch_len;
        let (cycle, at) = (step / steps, step % steps);
        let key = Key { seed, cycle, batch_len, window: at / self.window };
        let first = key.window * self.window;
        let batches = self.window.min(steps - first);
        let sorted = self.sorted(key, first * batch_len..(first + batches) * batch_len);

        let orders = Words::new(Purpose::Similar, seed, cycle).at(key.window);
        let mut batch = Vec::with_capacity(1);
        Permutation::new(batches, orders, 0).extend(at - first..at - first + 1, &mut batch);
        let begin = batch.first().copied().unwrap_or(0) * batch_len;
        let from = out.len();
        Permutation::new(batch_len, orders, 1 + at - first).extend(positions, out);
        out[from..].iter_mut().for_each(|place| *place = sorted[(begin + *place) as usize]);
    }

    /// The records at `places` of a cycle's permutation, the shortest first.
    fn sorted(&self, key: Key, places: Range<u64>) -> Arc<Vec<u64>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((found, sorted)) = &*last
            && *found == key
        {
            return Arc::clone(sorted);
        }
        let mut records = Vec::new();
        Permutation::new(self.len(), key.seed, key.cycle).extend(places, &mut records);
        // Stable: equal lengths stay in the permutation's order.
        records.sort_by_key(|&record| self.lengths[record as usize]);
        let records = Arc::new(records);
        *last = Some((key, Arc::clone(&records)));
        records
    }
}
