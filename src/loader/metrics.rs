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

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} steps, {} records, {:.1} MiB; the consumer waited {:.3} s, the workers {:.3} s",
            self.steps,
            self.records,
            self.bytes as f64 / (1 << 20) as f64,
            self.consumer_waited.as_secs_f64(),
            self.workers_waited.as_secs_f64(),
        )?;
        if self.replaced > 0 { write!(f, "; {} damaged records replaced", self.replaced) } else { Ok(()) }
    }
}
