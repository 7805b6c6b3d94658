//! Every record exactly once.

use std::fmt;

use super::metrics::Metrics;
use super::prefetch::Prefetch;
use crate::error::Result;
use crate::events::event;

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
        let pass = Pass { steps, left };
        event!(DEBUG, ?pass, "a pass begins");
        pass
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
        let total = self.steps.work().plan.steps();
        let mut shown = f.debug_struct("Pass");
        self.steps.show(shown.field("done", &(total - self.left)).field("total", &total));
        shown.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::DataLoader;
    use super::super::testing::Memory;
    use crate::engine::sampler::Shard;

    #[test]
    fn debug_says_what_a_loader_and_its_passes_draw_and_how_far_they_are() {
        let builder = DataLoader::builder(Memory::new(90)).batch_size(8).seed(7).workers(2).prefetch(5);
        let mut loader = builder.shard(Shard::new(1, 2).unwrap()).build().unwrap();
        let mut pass = loader.shuffled_pass(3);
        assert!(loader.next().is_some() && pass.next().is_some());
        assert_eq!(
            format!("{loader:?}"),
            "DataLoader { step: 1, mode: Cyclic, records: 90, batch_size: 8, seed: 7, rank: 1, world: 2, workers: 2, \
             prefetch: 5 }"
        );
        assert_eq!(
            format!("{pass:?}"),
            "Pass { done: 1, total: 12, shuffled: true, records: 90, batch_size: 8, rank: 1, world: 2, workers: 2, \
             prefetch: 5 }"
        );
        assert!(format!("{:?}", loader.pass()).starts_with("Pass { done: 0, total: 12, shuffled: false,"));
    }
}
