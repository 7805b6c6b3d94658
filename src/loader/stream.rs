//! What a loader draws records from.

use std::sync::Arc;

use crate::error::Result;

/// Records that can be gathered by index: a dataset, an `Arc` of one, a tuple of streams, named streams.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stream of records",
    note = "a stream is a DenseDataset, a RaggedDataset, an Arc of one, a tuple of 1 to 8 streams, or NamedStreams"
)]
pub trait Stream: Send + Sync + 'static {
    /// What one gather gives.
    type Batch: Send + 'static;

    /// How many records there are now. Streams of a tuple have equal lengths.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records at `indices`, in that order.
    fn gather(&self, indices: &[u64]) -> Result<Self::Batch>;

    /// What identifies the first `len` records, for a saved state: it survives appending, copying, moving, compacting
    /// and recoding, and differs after a delete or a rewrite.
    fn fingerprint(&self, len: u64) -> Result<Vec<u64>>;
}

impl<S: Stream> Stream for Arc<S> {
    type Batch = S::Batch;

    fn len(&self) -> u64 {
        S::len(self)
    }

    fn gather(&self, indices: &[u64]) -> Result<Self::Batch> {
        S::gather(self, indices)
    }

    fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
        S::fingerprint(self, len)
    }
}
