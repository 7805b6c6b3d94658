//! Whether records have to come from the disk, told by how long gathers take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many gathers are taken to be cold after one that was.
const STAYS: u32 = 64;
/// How many are when a store is opened, until they show that it is not.
const AT_FIRST: u32 = 4;
/// A gather is cold that takes longer than this a record and this a byte: more than a copy or the decompression of a
/// frame takes, and less than a disk.
const RECORD: Duration = Duration::from_micros(8);
const BYTES_A_MICROSECOND: u64 = 256;

/// Counts down from the last cold gather.
#[derive(Debug)]
pub(super) struct Cold(AtomicU32);

impl Default for Cold {
    fn default() -> Self {
        Cold(AtomicU32::new(AT_FIRST))
    }
}

impl Cold {
    /// Reads `bytes` bytes of `records` records with `read`. Where the last ones came from the disk, `ask` asks the
    /// system for all of these first, so that it reads many at a time, and not one after another as each is touched.
    pub(super) fn watch<R>(&self, records: usize, bytes: usize, ask: impl FnOnce(), read: impl FnOnce() -> R) -> R {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            ask();
        }
        let begin = Instant::now();
        let done = read();
        let limit = RECORD.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX))
            + Duration::from_micros(bytes as u64 / BYTES_A_MICROSECOND);
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
        let gather = |time| cold.watch(1 << 20, 1, || asked.set(asked.get() + 1), || sleep(time));
        (0..20).for_each(|_| gather(Duration::ZERO));
        assert_eq!(asked.get(), AT_FIRST);
        cold.watch(1, 1, || asked.set(0), || sleep(RECORD * 2));
        (0..200).for_each(|_| gather(Duration::ZERO));
        assert_eq!(asked.get(), AT_FIRST + STAYS);
    }
}
