//! Whether records have to come from the disk, told by how long gathers take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many gathers are taken to be cold after one that was.
const STAYS: u32 = 64;
/// How many are when a store is opened, until they show that it is not.
const AT_FIRST: u32 = 4;
/// A gather is cold that takes longer than this a record, and than its bytes at this rate: more than a copy takes, or
/// decompression, and less than a disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    record: Duration,
    bytes_a_microsecond: u64,
}

impl Pace {
    pub(super) const RAW: Pace = Pace { record: Duration::from_micros(2), bytes_a_microsecond: 2048 };
    pub(super) const COMPRESSED: Pace = Pace { record: Duration::from_micros(8), bytes_a_microsecond: 256 };

    fn limit(self, records: usize, bytes: usize) -> Duration {
        self.record.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX))
            + Duration::from_micros(bytes as u64 / self.bytes_a_microsecond)
    }
}

/// Counts down from the last cold gather.
#[derive(Debug)]
pub(super) struct Cold(AtomicU32);

impl Default for Cold {
    fn default() -> Self {
        Cold(AtomicU32::new(AT_FIRST))
    }
}

impl Cold {
    /// Reads `bytes` bytes of `records` records with `read`; see `watch`.
    pub(super) fn gather<R>(
        &self,
        pace: Pace,
        (records, bytes): (usize, usize),
        ask: impl FnOnce(),
        read: impl FnOnce() -> R,
    ) -> R {
        self.watch(pace.limit(records, bytes), ask, read)
    }

    /// Runs `read`, which takes `limit` at most from memory. Where the last ones came from the disk, `ask` asks the system
    /// for all records first, so that it reads many at a time, and not one after another as each is touched.
    fn watch<R>(&self, limit: Duration, ask: impl FnOnce(), read: impl FnOnce() -> R) -> R {
        let left = self.0.load(Ordering::Relaxed);
        // Asking for what is in memory is quick too.
        let begin = Instant::now();
        if left > 0 {
            ask();
        }
        let done = read();
        if begin.elapsed() > limit {
            self.0.store(STAYS, Ordering::Relaxed);
        } else if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread::sleep;

    use super::*;

    #[test]
    fn the_first_gathers_and_those_after_a_slow_one_ask_first() {
        let cold = Cold::default();
        let asked = Cell::new(0);
        let limit = Duration::from_millis(50);
        let gather = |time| cold.watch(limit, || asked.set(asked.get() + 1), || sleep(time));
        (0..20).for_each(|_| gather(Duration::ZERO));
        assert_eq!(asked.get(), AT_FIRST);
        cold.watch(Duration::ZERO, || asked.set(0), || sleep(Duration::from_millis(1)));
        asked.set(0);
        (0..200).for_each(|_| gather(Duration::ZERO));
        assert_eq!(asked.get(), STAYS);
    }
}
