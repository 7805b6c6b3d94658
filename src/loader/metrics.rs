//! What a loader has done, and which side of it waits.

use std::fmt;
use std::time::Duration;

/// A snapshot of a loader's counters. Where the consumer waits, more workers or a cheaper transform help; where only
/// the workers wait, the loader keeps up.
///
/// ```
/// use loaderx::{DataLoader, DenseDataset};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("labels");
/// # DenseDataset::<u64, ()>::create(&path, ())?.append(&(0..1000).collect::<Vec<_>>())?;
/// let mut loader = DataLoader::builder(DenseDataset::<u64, ()>::open(path)?).batch_size(50).build()?;
/// loader.by_ref().take(10).collect::<Result<Vec<_>, _>>()?;
/// let metrics = loader.metrics();
/// assert_eq!((metrics.steps, metrics.records, metrics.bytes), (10, 500, 4000));
/// println!("{metrics}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Batches that were handed out.
    pub steps: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes that were gathered for them.
    pub bytes: u64,
    /// Records in the place of damaged ones: [`OnCorrupt::Replace`](crate::OnCorrupt::Replace).
    pub replaced: u64,
    /// How long `next` has waited for a batch to be made.
    pub consumer_waited: Duration,
    /// How long the workers, taken together, have waited until a batch was wanted. A wait counts once it is over.
    pub workers_waited: Duration,
}

impl Metrics {
    /// Which side waits for the other, in a few words: what to change, if anything.
    fn verdict(&self) -> &'static str {
        let (consumer, workers) = (self.consumer_waited, self.workers_waited);
        // The first batch is always waited for, and each wait has a little of its own.
        let little =
            Duration::from_millis(1) + Duration::from_micros(20) * u32::try_from(self.steps).unwrap_or(u32::MAX);
        if self.steps == 0 {
            "nothing was asked for yet"
        } else if consumer <= little {
            "the loader waits for the model"
        } else if consumer > workers {
            "the model waits for the loader: more workers, or a cheaper transform"
        } else {
            "both wait now and then: more prefetch evens it out"
        }
    }
}

/// One line: what was done, who waited how long, and what follows from it.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metrics { steps, records, bytes, .. } = self;
        let (mib, waited) = (*bytes as f64 / (1 << 20) as f64, self.consumer_waited.as_secs_f64());
        write!(f, "{steps} steps, {records} records, {mib:.1} MiB; the consumer waited {waited:.3} s, ")?;
        write!(f, "the workers {:.3} s: {}", self.workers_waited.as_secs_f64(), self.verdict())?;
        if self.replaced > 0 { write!(f, "; {} damaged records replaced", self.replaced) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_which_side_waits() {
        let of = |consumer, workers| Metrics {
            steps: 1000,
            records: 256_000,
            bytes: 3 << 20,
            replaced: 0,
            consumer_waited: Duration::from_millis(consumer),
            workers_waited: Duration::from_millis(workers),
        };
        for (metrics, says) in [
            (Metrics::default(), "nothing was asked for yet"),
            (of(3, 9000), "the loader waits for the model"),
            (of(9000, 3), "the model waits for the loader"),
            (of(3000, 4000), "both wait"),
        ] {
            let line = metrics.to_string();
            assert!(line.ends_with(says) || line.contains(says), "{line}");
            assert!(!line.contains('\n'));
        }
        let line = Metrics { replaced: 2, ..of(3, 9000) }.to_string();
        assert_eq!(
            line,
            "1000 steps, 256000 records, 3.0 MiB; the consumer waited 0.003 s, the workers 9.000 s: the loader waits \
             for the model; 2 damaged records replaced"
        );
    }
}
