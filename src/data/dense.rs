//! Datasets whose records all have one shape.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::buffer::{gather_fixed, to_stored};
use super::fingerprint::fingerprint;
use super::options::{Dataset, DatasetOptions};
use super::schema::Kind;
use super::typed::{Typed, shared_methods};
use super::{DenseBatch, Element, Selection, Shape};
#[cfg(feature = "remote")]
use crate::engine::store::RemoteStats;
use crate::engine::store::{Codec, DictSize, Stats};
use crate::error::{Error, Result};

/// About how many bytes a scan of all records reads at a time.
const SCAN_BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// A persistent dataset of records of one shape: images, embeddings, labels.
///
/// `T` is the element type, `S` the shape of one record: `()` for scalars, `[usize; N]`, or `Vec<usize>` where the
/// rank is known at run time.
///
/// ```
/// use loaderx::DenseDataset;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("images");
/// let images = DenseDataset::<u8, [usize; 2]>::create(&path, [28, 28])?;
/// images.append(&vec![7; 10 * 28 * 28])?; // ten images, end to end
/// images.close()?;
///
/// let images = DenseDataset::<u8, [usize; 2]>::open(&path)?;
/// assert_eq!(images.len(), 10);
/// let batch = images.gather(&[3, 1, 3])?;
/// assert_eq!(batch.shape(), [3, 28, 28]);
/// assert_eq!(images.read(..4)?.len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DenseDataset<T, S = Vec<usize>> {
    typed: Typed<T, S>,
}

impl<T, S: fmt::Debug> fmt::Debug for DenseDataset<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.typed.fmt(f)
    }
}

impl<T: Element, S: Shape> Dataset for DenseDataset<T, S> {
    type Element = T;
    type Shape = S;
    const KIND: Kind = Kind::Dense;

    fn from_typed(typed: Typed<T, S>) -> Self {
        DenseDataset { typed }
    }
}

impl<T: Element, S: Shape> DenseDataset<T, S> {
    shared_methods!();

    /// Appends records that lie end to end in `values`, and gives the index of the first.
    ///
    /// What was appended can be read at once, by this handle; it is durable after [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Error::Invalid`] where `values` is no whole number of records, or a record is over the limit;
    /// [`Error::ReadOnly`]; [`Error::Dictionary`] before one is trained; [`Error::Unsupported`] where the format is full;
    /// [`Error::Io`]. After an error none of the records is in the dataset.
    pub fn append(&self, values: &[T]) -> Result<u64> {
        let count = self.count(values)?;
        self.append_rows(count, values)
    }

    /// Appends `count` records, and gives the index of the first. This says of records without elements, too, how
    /// many there are.
    ///
    /// # Errors
    /// As [`append`](Self::append), and where `values` are not `count` records.
    pub fn append_rows(&self, count: usize, values: &[T]) -> Result<u64> {
        let typed = &self.typed;
        if count.checked_mul(typed.item_len) != Some(values.len()) {
            let reason = format!("{} are not {count} records of shape {:?}", values.len(), typed.item_shape.dims());
            return Err(Error::invalid("values", reason));
        }
        typed.store.append_fixed(&to_stored(values, typed.order), typed.row_bytes(), count)
    }

    /// Trains the dictionary of a dataset with [`Codec::ZstdDict`] on sample records, which lie end to end in
    /// `samples`, as for [`append`](Self::append).
    ///
    /// # Errors
    /// [`Error::Dictionary`] where the samples are too few or unfit, and while a record needs the dictionary that is
    /// there; [`Error::Invalid`] where `samples` is no whole number of records; [`Error::ReadOnly`]; [`Error::Io`].
    pub fn train_dict(&self, samples: &[T], size: DictSize) -> Result<()> {
        let typed = &self.typed;
        let count = self.count(samples)?;
        typed.store.train_dict_fixed(&to_stored(samples, typed.order), typed.row_bytes(), count, size)
    }

    /// The records at `indices`, in that order; they may repeat. The batch has the shape (`indices.len()`, item shape…).
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Corrupt`], which names the record and its place; [`Error::Dictionary`] where that
    /// is missing; [`Error::Io`].
    pub fn gather(&self, indices: &[u64]) -> Result<DenseBatch<T, S>> {
        let mut values = Vec::new();
        gather_fixed(&self.typed.store, indices, self.typed.item_len, self.typed.order, &mut values)?;
        DenseBatch::new(indices.len(), self.typed.item_shape.clone(), values)
    }

    /// The same into `batch`, whose memory is used again.
    ///
    /// # Errors
    /// As [`gather`](Self::gather). `batch` is empty then.
    pub fn gather_into(&self, indices: &[u64], batch: &mut DenseBatch<T, S>) -> Result<()> {
        // The whole shape is checked where a batch is made, and this one is made anew.
        let mut values = std::mem::take(&mut batch.values);
        batch.rows = 0;
        let gathered = gather_fixed(&self.typed.store, indices, self.typed.item_len, self.typed.order, &mut values);
        let rows = if gathered.is_ok() { indices.len() } else { 0 };
        *batch = DenseBatch::new(rows, self.typed.item_shape.clone(), values)?;
        gathered
    }

    /// The records that `selection` means: an index, a range, a list or a mask.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and [`Error::Invalid`] for a mask of another length than the dataset's.
    pub fn read(&self, selection: impl Selection) -> Result<DenseBatch<T, S>> {
        self.gather(&selection.indices(self.len())?)
    }

    /// The indices of the records whose values `keep` says yes to, in order: a choice by label, for a
    /// [`Subset`](crate::Subset). Records are read some MiB at a time.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    pub fn indices_where(&self, mut keep: impl FnMut(&[T]) -> bool) -> Result<Vec<u64>> {
        let at_once = (SCAN_BYTES / self.typed.row_bytes().max(1)).max(1) as u64;
        let (mut kept, mut begin, len) = (Vec::new(), 0, self.len());
        while begin < len {
            let indices: Vec<u64> = (begin..len.min(begin + at_once)).collect();
            let batch = self.gather(&indices)?;
            kept.extend(indices.iter().zip(batch.rows()).filter(|(_, row)| keep(row)).map(|(index, _)| index));
            begin += indices.len() as u64;
        }
        Ok(kept)
    }

    /// The length of each record that `selection` means, in bytes before compression.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn lengths(&self, selection: impl Selection) -> Result<Vec<u64>> {
        self.typed.store.lengths(&selection.indices(self.len())?)
    }

    /// How many records lie end to end in `values`.
    fn count(&self, values: &[T]) -> Result<usize> {
        let shape = self.typed.item_shape.dims();
        match values.len().checked_rem(self.typed.item_len) {
            Some(0) => Ok(values.len() / self.typed.item_len),
            Some(_) => {
                let reason = format!("{} are no whole number of records of shape {shape:?}", values.len());
                Err(Error::invalid("values", reason))
            }
            None => {
                let reason = format!("records of shape {shape:?} have none to count: use append_rows");
                Err(Error::invalid("values", reason))
            }
        }
    }
}
