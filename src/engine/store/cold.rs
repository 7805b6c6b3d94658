//! Whether records have to come from the disk, told by how long gathers take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many gathers are taken to be cold after one that was.
const STAYS: u32 = 64;
/// A gather is cold that takes longer than this a record and this a byte: more than a copy or the decompression of a
/// frame takes, and less than a disk.
const RECORD: Duration = Duration::from_micros(8);
const BYTES_A_MICROSECOND: u64 = 256;

/// Counts down from the last cold gather.
#[derive(Debug, Default)]
pub(super) struct Cold(AtomicU32);

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
    fn after_a_slow_gather_the_next_ones_ask_first() {
        let cold = Cold::default();
        let asked = Cell::new(0);
        let gather = |time| cold.watch(1, 1, || asked.set(asked.get() + 1), || sleep(time));
        gather(Duration::ZERO);
        assert_eq!(asked.get(), 0);
        gather(RECORD * 200);
        assert_eq!(asked.get(), 0);
        gather(Duration::ZERO);
        assert_eq!(asked.get(), 1);
        assert!(cold.0.load(Ordering::Relaxed) > 0);
    }
}
