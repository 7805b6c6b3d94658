//! What a loader draws records from.

use std::sync::Arc;

use crate::error::Result;

/// Records that can be gathered by index: a dataset, an `Arc` of one, a tuple of 1 to 8 streams,
/// [`NamedStreams`](crate::NamedStreams), a [`Subset`](crate::Subset), a [`Mixture`](crate::Mixture), or a type of your own.
///
/// Every stream of a tuple is gathered at the same indices, so that record `i` lines up across them.
///
/// ```
/// use loaderx::{DataLoader, Mode, Result, Stream};
///
/// /// The squares of 0, 1, 2, …
/// struct Squares(u64);
///
/// impl Stream for Squares {
///     type Batch = Vec<u64>;
///
///     fn len(&self) -> u64 {
///         self.0
///     }
///
///     fn gather(&self, indices: &[u64]) -> Result<Vec<u64>> {
///         Ok(indices.iter().map(|i| i * i).collect())
///     }
///
///     fn fingerprint(&self, _len: u64) -> Result<Vec<u64>> {
///         Ok(vec![0]) // These records never change.
///     }
/// }
///
/// let mut loader = DataLoader::builder(Squares(5)).batch_size(2).mode(Mode::Sequential).build()?;
/// assert_eq!(loader.next().transpose()?, Some(vec![0, 1]));
/// assert_eq!(loader.batch(2)?, [16, 0]);
/// # Ok::<(), loaderx::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stream of records",
    note = "a stream is a DenseDataset, a RaggedDataset, an Arc of one, a tuple of 1 to 8 streams, or NamedStreams"
)]
pub trait Stream: Send + Sync + 'static {
    /// What one gather gives.
    type Batch: Send + 'static;

    /// How many records there are now. It may grow; a loader goes on with the length it was built with.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records at `indices`, in that order.
    ///
    /// # Errors
    /// Where an index is out of range or a record cannot be read.
    fn gather(&self, indices: &[u64]) -> Result<Self::Batch>;

    /// What identifies the first `len` records, one number for each of [`parts`](Stream::parts), for a saved state. It
    /// survives appending, copying, moving, compacting and recoding, and differs after a delete or a rewrite.
    ///
    /// # Errors
    /// Where the records cannot be read.
    fn fingerprint(&self, len: u64) -> Result<Vec<u64>>;

    /// Whether records come from so far that it helps to know early which: then a loader says so with
    /// [`prefetch`](Stream::prefetch).
    fn reads_ahead(&self) -> bool {
        false
    }

    /// The records at `indices` will be gathered soon. It does not wait. Says whether it wants to know of more: not where as
    /// much is on its way already as there is room for.
    fn prefetch(&self, _indices: &[u64]) -> bool {
        false
    }

    /// How many bytes of data a batch holds, for [`Metrics`](crate::Metrics). 0 where nobody says.
    fn batch_bytes(_batch: &Self::Batch) -> u64 {
        0
    }

    /// The single streams that this one is made of: one without a name, unless it is a tuple or named streams.
    ///
    /// # Errors
    /// Where two streams have the same name.
    fn parts(&self) -> Result<Vec<StreamPart>> {
        Ok(vec![StreamPart { name: String::new(), len: self.len() }])
    }

    /// For a stream whose records are several sources', one behind the other: how many records each has, and its weight
    /// in every batch. A loader over it draws so unless its mode is set. `None`, as here, for any other stream.
    fn sources(&self) -> Option<Vec<(u64, f64)>> {
        None
    }
}

/// One stream of a tuple or of named streams: what errors call it, and its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPart {
    /// Its place or name, and its path where it has one; empty for a stream that stands alone and has none.
    pub name: String,
    /// How many records it has.
    pub len: u64,
}

impl StreamPart {
    /// The parts of `stream`, which is called `name` in what holds it.
    pub(crate) fn within<S: Stream + ?Sized>(name: &str, stream: &S) -> Result<Vec<StreamPart>> {
        let mut parts = stream.parts()?;
        for part in &mut parts {
            part.name = if part.name.is_empty() { name.to_owned() } else { format!("{name} ({})", part.name) };
        }
        Ok(parts)
    }

    /// The name, for an error.
    pub(crate) fn label(&self) -> &str {
        if self.name.is_empty() { "the stream" } else { &self.name }
    }
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

    fn batch_bytes(batch: &Self::Batch) -> u64 {
        S::batch_bytes(batch)
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        S::parts(self)
    }

    fn sources(&self) -> Option<Vec<(u64, f64)>> {
        S::sources(self)
    }

    fn reads_ahead(&self) -> bool {
        S::reads_ahead(self)
    }

    fn prefetch(&self, indices: &[u64]) -> bool {
        S::prefetch(self, indices)
    }
}

macro_rules! tuple {
    ($($stream:ident $at:tt),+) => {
        impl<$($stream: Stream),+> Stream for ($($stream,)+) {
            type Batch = ($($stream::Batch,)+);

            /// The shortest stream's; a loader refuses streams of unequal lengths.
            fn len(&self) -> u64 {
                [$(self.$at.len()),+].into_iter().fold(u64::MAX, u64::min)
            }

            fn gather(&self, indices: &[u64]) -> Result<Self::Batch> {
                Ok(($(self.$at.gather(indices)?,)+))
            }

            fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
                Ok([$(self.$at.fingerprint(len)?),+].concat())
            }

            fn reads_ahead(&self) -> bool {
                false $(|| self.$at.reads_ahead())+
            }

            /// Each is told; those that read ahead say whether there is room.
            fn prefetch(&self, indices: &[u64]) -> bool {
                let told = [$(!self.$at.reads_ahead() || self.$at.prefetch(indices)),+];
                told.into_iter().all(|more| more)
            }

            fn batch_bytes(batch: &Self::Batch) -> u64 {
                0 $(+ $stream::batch_bytes(&batch.$at))+
            }

            fn parts(&self) -> Result<Vec<StreamPart>> {
                Ok([$(StreamPart::within(concat!("stream ", $at), &self.$at)?),+].concat())
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

#[cfg(test)]
mod tests {
    use super::super::testing::Memory;
    use super::*;

    #[test]
    fn a_tuple_gathers_all_its_streams_at_the_same_indices() {
        let of = |salt| Memory::salted(9, salt);
        let streams = (of(0), Arc::new(of(1)), (of(2), of(3)), of(4), of(5), of(6), of(7), of(8));
        let (a, b, (c, d), .., h) = streams.gather(&[5, 2, 5]).unwrap();
        for (salt, batch) in [(0, &a), (1, &b), (2, &c), (3, &d), (8, &h)] {
            assert_eq!(batch, &of(salt).gather(&[5, 2, 5]).unwrap());
        }
        assert_eq!(streams.fingerprint(9).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let names: Vec<_> = streams.parts().unwrap().into_iter().map(|part| part.name).collect();
        assert_eq!(names[1..4], ["stream 1", "stream 2 (stream 0)", "stream 2 (stream 1)"]);
        assert_eq!((streams.len(), (of(0), Memory::new(3)).len()), (9, 3));
        assert!((Memory::new(0),).is_empty());
        assert_eq!(<(Memory, Memory)>::batch_bytes(&(vec![1, 2], vec![3])), 24);
    }
}
