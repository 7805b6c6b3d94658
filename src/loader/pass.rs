//! Every record exactly once.

use std::fmt;

use super::metrics::Metrics;
use super::prefetch::Prefetch;
use crate::error::Result;

/// Goes over every record exactly once: see [`DataLoader::pass`](crate::DataLoader::pass).
///
/// Dropping it ends its threads, as dropping the loader does.
pub struct Pass<T: 'static> {
    steps: Prefetch<T>,
    left: u64,
}

impl<T: 'static> Pass<T> {
    pub(super) fn new(steps: Prefetch<T>) -> Self {
        let left = steps.work().plan.steps();
        Pass { steps, left }
    }

    /// What this pass has done so far.
    pub fn metrics(&self) -> Metrics {
        self.steps.metrics()
    }
}

impl<T: 'static> Iterator for Pass<T> {
    type Item = Result<T>;

    /// The next batch. A failure takes the place of every batch that is left, so that a pass stays as long as it said.
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.steps.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The crate builds for 64-bit targets alone.
        (self.left as usize, Some(self.left as usize))
    }
}

impl<T: 'static> ExactSizeIterator for Pass<T> {}

impl<T: 'static> std::iter::FusedIterator for Pass<T> {}

impl<T: 'static> fmt::Debug for Pass<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("left", &self.left).finish_non_exhaustive()
    }
}
