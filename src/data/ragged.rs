//! Datasets whose records have different lengths.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::batch::check_offsets;
use super::buffer::{gather_located, to_stored};
use super::fingerprint::fingerprint;
use super::options::{Dataset, DatasetOptions};
use super::schema::Kind;
use super::typed::{Typed, shared_methods};
use super::{Element, RaggedBatch, Selection, Shape};
#[cfg(feature = "remote")]
use crate::engine::store::RemoteStats;
use crate::engine::store::{Codec, DictSize, Stats};
use crate::error::Result;

/// A persistent dataset of records of varying length: token sequences, point clouds, audio.
///
/// A record is any number of rows. `T` is the element type, `S` the shape of one row: `()` where a row is one element.
/// Lengths and offsets count rows.
///
/// ```
/// use loaderx::RaggedDataset;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("tokens");
/// let tokens = RaggedDataset::<u32>::create(&path, ())?;
/// tokens.append([vec![1, 2, 3], vec![4], vec![]])?;
/// tokens.close()?;
///
/// let tokens = RaggedDataset::<u32>::open(&path)?;
/// let batch = tokens.gather(&[1, 0])?;
/// assert_eq!(batch.values(), [4, 1, 2, 3]);
/// assert_eq!(batch.offsets(), [0, 1, 4]);
/// let (padded, lengths) = batch.pad(None, 0)?;
/// assert_eq!(padded.shape(), [2, 3]);
/// assert_eq!(lengths, [1, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RaggedDataset<T, S = ()> {
    typed: Typed<T, S>,
}

impl<T, S: fmt::Debug> fmt::Debug for RaggedDataset<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.typed.fmt(f)
    }
}

impl<T: Element, S: Shape> Dataset for RaggedDataset<T, S> {
    type Element = T;
    type Shape = S;
    const KIND: Kind = Kind::Ragged;

    fn from_typed(typed: Typed<T, S>) -> Self {
        RaggedDataset { typed }
    }
}

impl<T: Element, S: Shape> RaggedDataset<T, S> {
    shared_methods!();

    /// Appends records, each a slice or vector of whole rows, and gives the index of the first. One record is
    /// `append([&record])`.
    ///
    /// What was appended can be read at once, by this handle; it is durable after [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where a record is no whole number of rows, or over the limit;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::Dictionary`](crate::Error::Dictionary) before one is trained;
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the format is full; [`Error::Io`](crate::Error::Io). After
    /// an error none of the records is in the dataset.
    pub fn append(&self, records: impl IntoIterator<Item = impl AsRef<[T]>>) -> Result<u64> {
        let (values, offsets) = self.packed(records)?;
        self.append_packed(&values, &offsets)
    }

    /// Appends records that lie end to end: record `i` is the rows `offsets[i]..offsets[i + 1]` of `values`.
    ///
    /// # Errors
    /// As [`append`](Self::append), and [`Error::Invalid`](crate::Error::Invalid) unless the offsets begin with 0, never
    /// fall, and end with the number of rows in `values`.
    pub fn append_packed(&self, values: &[T], offsets: &[u64]) -> Result<u64> {
        let offsets = self.byte_offsets(values, offsets)?;
        self.typed.store.append(&to_stored(values, self.typed.order), &offsets)
    }

    /// Trains the dictionary of a dataset with [`Codec::ZstdDict`] on sample records, given as for
    /// [`append`](Self::append).
    ///
    /// # Errors
    /// [`Error::Dictionary`](crate::Error::Dictionary) where the samples are too few or unfit, and while a record needs
    /// the dictionary that is there; [`Error::Invalid`](crate::Error::Invalid) where a sample is no whole number of rows;
    /// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::Io`](crate::Error::Io).
    pub fn train_dict(&self, samples: impl IntoIterator<Item = impl AsRef<[T]>>, size: DictSize) -> Result<()> {
        let (values, offsets) = self.packed(samples)?;
        let offsets = self.byte_offsets(&values, &offsets)?;
        self.typed.store.train_dict(&to_stored(&values, self.typed.order), &offsets, size)
    }

    /// The records at `indices`, in that order; they may repeat.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange); [`Error::Corrupt`](crate::Error::Corrupt), which names the record
    /// and its place; [`Error::Dictionary`](crate::Error::Dictionary) where that is missing;
    /// [`Error::Io`](crate::Error::Io).
    pub fn gather(&self, indices: &[u64]) -> Result<RaggedBatch<T, S>> {
        let mut batch = RaggedBatch { values: Vec::new(), offsets: vec![0], item_shape: self.typed.item_shape.clone() };
        self.gather_into(indices, &mut batch)?;
        Ok(batch)
    }

    /// The same into `batch`, whose memory is used again.
    ///
    /// # Errors
    /// As [`gather`](Self::gather). `batch` is empty then.
    pub fn gather_into(&self, indices: &[u64], batch: &mut RaggedBatch<T, S>) -> Result<()> {
        batch.values.clear();
        batch.offsets.clear();
        batch.offsets.push(0);
        batch.item_shape.clone_from(&self.typed.item_shape);

        let typed = &self.typed;
        let located = typed.store.locate(indices)?;
        let row_bytes = typed.row_bytes() as u64;
        if let Some(i) = located.offsets.windows(2).position(|pair| (pair[1] - pair[0]) % row_bytes != 0) {
            return Err(typed.torn(indices[i], located.offsets[i + 1] - located.offsets[i]));
        }
        gather_located(&typed.store, indices, &located, typed.order, &mut batch.values)?;
        batch.offsets = located.offsets;
        batch.offsets.iter_mut().for_each(|offset| *offset /= row_bytes);
        Ok(())
    }

    /// The records that `selection` means: an index, a range, a list or a mask.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and [`Error::Invalid`](crate::Error::Invalid) for a mask of another length than the
    /// dataset's.
    pub fn read(&self, selection: impl Selection) -> Result<RaggedBatch<T, S>> {
        self.gather(&selection.indices(self.len())?)
    }

    /// The length of each record that `selection` means, in rows.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn lengths(&self, selection: impl Selection) -> Result<Vec<u64>> {
        let indices = selection.indices(self.len())?;
        let mut lengths = self.typed.store.lengths(&indices)?;
        let row_bytes = self.typed.row_bytes() as u64;
        if let Some(i) = lengths.iter().position(|bytes| bytes % row_bytes != 0) {
            return Err(self.typed.torn(indices[i], lengths[i]));
        }
        lengths.iter_mut().for_each(|length| *length /= row_bytes);
        Ok(lengths)
    }

    /// Records end to end, and their offsets in rows.
    fn packed(&self, records: impl IntoIterator<Item = impl AsRef<[T]>>) -> Result<(Vec<T>, Vec<u64>)> {
        let item_len = self.typed.item_len;
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for record in records {
            let record = record.as_ref();
            if record.len() % item_len != 0 {
                let (i, shape) = (offsets.len() - 1, self.typed.item_shape.dims());
                let reason = format!("{} values of record {i} are no whole number of rows of {shape:?}", record.len());
                return Err(crate::Error::invalid("records", reason));
            }
            values.extend_from_slice(record);
            offsets.push((values.len() / item_len) as u64);
        }
        Ok((values, offsets))
    }

    /// Offsets in rows as offsets in bytes, checked against the values.
    fn byte_offsets(&self, values: &[T], offsets: &[u64]) -> Result<Vec<u64>> {
        check_offsets(offsets, self.typed.item_shape.dims(), values.len())?;
        let row_bytes = self.typed.row_bytes() as u64;
        Ok(offsets.iter().map(|offset| offset * row_bytes).collect())
    }
}
