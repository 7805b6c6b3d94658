//! What a read gives: values end to end, with their shape or their offsets.

use std::fmt;

use super::shape::elements;
use super::{Element, Shape};
use crate::error::{Error, Result};

/// Records of one shape, end to end in one vector.
///
/// ```
/// use loaderx::DenseBatch;
///
/// let batch = DenseBatch::new(2, [3], vec![1u8, 2, 3, 4, 5, 6])?;
/// assert_eq!(batch.shape(), [2, 3]);
/// assert_eq!(batch.row(1), Some(&[4, 5, 6][..]));
/// let scaled = batch.map(|value| f32::from(value) / 2.0);
/// assert_eq!(scaled.values()[..2], [0.5, 1.0]);
/// # Ok::<(), loaderx::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct DenseBatch<T, S = Vec<usize>> {
    // `values` holds `rows` times the item shape, and no product over the whole shape overflows.
    pub(super) values: Vec<T>,
    pub(super) rows: usize,
    pub(super) item_shape: S,
}

impl<T: Element, S: Shape> DenseBatch<T, S> {
    /// A batch of `rows` records of `item_shape`, which lie end to end in `values`.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `values` holds as many elements.
    pub fn new(rows: usize, item_shape: S, values: Vec<T>) -> Result<Self> {
        let shape = item_shape.with_rows(rows);
        if elements(shape.dims()) != Some(values.len()) {
            let reason = format!("{} values do not fill the shape {:?}", values.len(), shape.dims());
            return Err(Error::invalid("batch", reason));
        }
        Ok(DenseBatch { values, rows, item_shape })
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The shape of one record.
    pub fn item_shape(&self) -> &S {
        &self.item_shape
    }

    /// How many elements a record has.
    pub fn item_len(&self) -> usize {
        self.item_shape.dims().iter().product()
    }

    /// The shape of the whole, the batch axis first.
    pub fn shape(&self) -> S::WithRows {
        self.item_shape.with_rows(self.rows)
    }

    /// The values of all records, end to end.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The same, to be changed in place.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// The vector itself, without a copy.
    pub fn into_values(self) -> Vec<T> {
        self.values
    }

    /// The values of record `i`, counted within the batch.
    pub fn row(&self, i: usize) -> Option<&[T]> {
        let len = self.item_len();
        (i < self.rows).then(|| &self.values[i * len..(i + 1) * len])
    }

    /// The values of each record in turn.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[T]> {
        let len = self.item_len();
        (0..self.rows).map(move |i| &self.values[i * len..(i + 1) * len])
    }

    /// The batch with each value changed, of another type perhaps.
    pub fn map<U: Element>(self, change: impl FnMut(T) -> U) -> DenseBatch<U, S> {
        let values = self.values.into_iter().map(change).collect();
        DenseBatch { values, rows: self.rows, item_shape: self.item_shape }
    }
}

impl<T: Element, S: Shape> fmt::Debug for DenseBatch<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenseBatch")
            .field("dtype", &format_args!("{}", T::DTYPE))
            .field("shape", &self.shape())
            .finish()
    }
}

/// Records of varying length: the rows of all of them end to end, and where each begins.
///
/// `offsets` counts rows, as variable-length attention's `cu_seqlens` does.
///
/// ```
/// use loaderx::RaggedBatch;
///
/// let batch = RaggedBatch::new((), vec![0, 3, 3, 5], vec![1u16, 2, 3, 4, 5])?;
/// assert_eq!(batch.record(2), Some(&[4, 5][..]));
/// let (padded, lengths) = batch.pad(None, 0)?;
/// assert_eq!(padded.shape(), [3, 3]);
/// assert_eq!(padded.values(), [1, 2, 3, 0, 0, 0, 4, 5, 0]);
/// assert_eq!(lengths, [3, 0, 2]);
/// # Ok::<(), loaderx::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct RaggedBatch<T, S = ()> {
    // `check_offsets` holds.
    pub(super) values: Vec<T>,
    pub(super) offsets: Vec<u64>,
    pub(super) item_shape: S,
}

impl<T: Element, S: Shape> RaggedBatch<T, S> {
    /// A batch whose record `i` is the rows `offsets[i]..offsets[i + 1]` of `values`, each of `item_shape`.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the offsets begin with 0, never fall, and end with the number of rows in `values`.
    pub fn new(item_shape: S, offsets: Vec<u64>, values: Vec<T>) -> Result<Self> {
        check_offsets(&offsets, item_shape.dims(), values.len())?;
        Ok(RaggedBatch { values, offsets, item_shape })
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape of one row.
    pub fn item_shape(&self) -> &S {
        &self.item_shape
    }

    /// How many elements a row has.
    pub fn item_len(&self) -> usize {
        self.item_shape.dims().iter().product()
    }

    /// The values of all records, end to end.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The same, to be changed in place.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Where each record begins, and at last where the last one ends, in rows: one more than there are records.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// How many rows each record has.
    pub fn lengths(&self) -> Vec<u64> {
        self.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The values and the offsets, without a copy.
    pub fn into_parts(self) -> (Vec<T>, Vec<u64>) {
        (self.values, self.offsets)
    }

    /// The values of record `i`, counted within the batch.
    pub fn record(&self, i: usize) -> Option<&[T]> {
        (i < self.len()).then(|| self.slice(i))
    }

    /// The values of each record in turn.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[T]> {
        (0..self.len()).map(|i| self.slice(i))
    }

    fn slice(&self, i: usize) -> &[T] {
        let len = self.item_len();
        &self.values[self.offsets[i] as usize * len..self.offsets[i + 1] as usize * len]
    }

    /// The batch with each value changed, of another type perhaps.
    pub fn map<U: Element>(self, change: impl FnMut(T) -> U) -> RaggedBatch<U, S> {
        let values = self.values.into_iter().map(change).collect();
        RaggedBatch { values, offsets: self.offsets, item_shape: self.item_shape }
    }

    /// The records as one dense batch of `max_len` rows each (as many as the longest has, unless given), filled up at
    /// the end with `value`, and how many rows each had before.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a record is longer than `max_len`, where the batch is empty, and where the result does not
    /// fit in memory.
    #[expect(clippy::type_complexity, reason = "a name for this pair would say less")]
    pub fn pad(&self, max_len: Option<usize>, value: T) -> Result<(DenseBatch<T, S::WithRows>, Vec<u64>)> {
        let lengths = self.lengths();
        let Some((longest, &most)) = lengths.iter().enumerate().max_by_key(|(_, length)| **length) else {
            return Err(Error::invalid("batch", "it holds no records: an empty batch cannot be padded"));
        };
        // A length counts rows that lie in memory, or rows of no elements.
        let rows = max_len.unwrap_or(usize::try_from(most).unwrap_or(usize::MAX));
        if most > rows as u64 {
            let reason = format!("{rows} is less than the {most} rows of record {longest} of the batch");
            return Err(Error::invalid("max_len", reason));
        }
        let item_shape = self.item_shape.with_rows(rows);
        let total = elements(item_shape.with_rows(self.len()).dims());
        let mut values = Vec::new();
        if total.is_none_or(|total| values.try_reserve_exact(total).is_err()) {
            let reason = format!("{} records of {:?} do not fit in memory", self.len(), item_shape.dims());
            return Err(Error::invalid("max_len", reason));
        }
        let stride = rows * self.item_len();
        for (i, record) in self.iter().enumerate() {
            values.extend_from_slice(record);
            values.resize((i + 1) * stride, value);
        }
        Ok((DenseBatch { values, rows: self.len(), item_shape }, lengths))
    }
}

impl<T: Element, S: Shape> fmt::Debug for RaggedBatch<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaggedBatch")
            .field("dtype", &format_args!("{}", T::DTYPE))
            .field("records", &self.len())
            .field("rows", &self.offsets[self.len()])
            .field("item_shape", &self.item_shape)
            .finish()
    }
}

/// Whether `offsets` begin with 0, never fall, and end with the number of rows of `item_shape` in `values` elements.
pub(super) fn check_offsets(offsets: &[u64], item_shape: &[usize], values: usize) -> Result<()> {
    if offsets.first() != Some(&0) {
        return Err(Error::invalid("offsets", "they begin with 0: no records have the offsets [0]"));
    }
    if let Some(i) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
        let reason = format!("they fall from {} to {} at record {i}", offsets[i], offsets[i + 1]);
        return Err(Error::invalid("offsets", reason));
    }
    let rows = offsets[offsets.len() - 1];
    let needed = usize::try_from(rows).ok().and_then(|rows| elements(item_shape.to_vec().with_rows(rows).dims()));
    if needed != Some(values) {
        let reason = format!("they end with {rows} rows of shape {item_shape:?}, but there are {values} values");
        return Err(Error::invalid("offsets", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Vec<Vec<u16>>> {
        proptest::collection::vec(proptest::collection::vec(any::<u16>(), 0..9), 0..12)
    }

    /// A batch of records of rows of two elements each.
    fn pairs(records: &[Vec<u16>]) -> RaggedBatch<u16, [usize; 1]> {
        let mut offsets = vec![0];
        let mut values = vec![];
        for record in records {
            record.iter().for_each(|&value| values.extend([value, !value]));
            offsets.push(values.len() as u64 / 2);
        }
        RaggedBatch::new([2], offsets, values).unwrap()
    }

    proptest! {
        #[test]
        fn padding_keeps_the_records_and_adds_the_value(records in records(), more in proptest::option::of(0usize..20)) {
            let batch = pairs(&records);
            let longest = records.iter().map(Vec::len).max();
            let padded = batch.pad(more, 7);
            let Some(rows) = longest.map(|longest| more.unwrap_or(longest)).filter(|rows| *rows >= longest.unwrap()) else {
                prop_assert!(padded.is_err());
                return Ok(());
            };
            let (padded, lengths) = padded.unwrap();
            prop_assert_eq!(padded.shape(), [records.len(), rows, 2]);
            for (i, record) in records.iter().enumerate() {
                prop_assert_eq!(lengths[i], record.len() as u64);
                let (kept, filled) = padded.row(i).unwrap().split_at(2 * record.len());
                prop_assert_eq!(kept, batch.record(i).unwrap());
                prop_assert_eq!(filled, vec![7; 2 * (rows - record.len())]);
            }
        }

        #[test]
        fn records_and_rows_are_the_slices_that_went_in(records in records()) {
            let batch = pairs(&records);
            prop_assert_eq!(batch.len(), records.len());
            prop_assert_eq!(batch.record(records.len()), None);
            let firsts: Vec<Vec<u16>> = batch.iter().map(|r| r.iter().step_by(2).copied().collect()).collect();
            prop_assert_eq!(&firsts, &records);

            let flat = records.concat();
            let dense = DenseBatch::new(flat.len(), (), flat.clone()).unwrap();
            prop_assert_eq!(dense.rows().map(|row| row[0]).collect::<Vec<_>>(), flat);
            prop_assert_eq!(dense.row(dense.len()), None);
        }

        #[test]
        fn offsets_that_do_not_fit_are_refused(offsets in proptest::collection::vec(0u64..6, 0..5), values in 0usize..12) {
            let fits = offsets.first() == Some(&0)
                && offsets.is_sorted()
                && offsets.last().unwrap() * 2 == values as u64;
            prop_assert_eq!(RaggedBatch::new([2], offsets, vec![0u8; values]).is_ok(), fits);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused_and_empty_items_have_a_count() {
        assert!(DenseBatch::new(2, [3], vec![0u8; 5]).is_err());
        assert!(DenseBatch::new(usize::MAX, [0, 2], Vec::<u8>::new()).is_err(), "no product may overflow");
        let batch = DenseBatch::new(3, [0], Vec::<f32>::new()).unwrap();
        assert_eq!(batch.len(), 3);
        assert_eq!(batch.rows().map(<[f32]>::len).collect::<Vec<_>>(), [0; 3]);
    }

    #[test]
    fn padding_to_more_than_memory_is_an_error() {
        let batch = pairs(&[vec![1]]);
        assert!(batch.pad(Some(usize::MAX), 0).is_err());
        assert!(batch.pad(Some(usize::MAX / 16), 0).is_err());
        let empty_rows = RaggedBatch::new([0], vec![0, 1 << 62, 1 << 62], Vec::<u8>::new()).unwrap();
        assert!(empty_rows.pad(None, 0).is_err());
        assert!(RaggedBatch::new([0], vec![0, u64::MAX], Vec::<u8>::new()).is_err());
    }

    #[test]
    fn debug_shows_the_shape_and_not_the_values() {
        let dense = DenseBatch::new(1000, [3], vec![0f32; 3000]).unwrap();
        assert_eq!(format!("{dense:?}"), "DenseBatch { dtype: f32, shape: [1000, 3] }");
        let ragged = pairs(&[vec![1, 2], vec![]]);
        assert_eq!(format!("{ragged:?}"), "RaggedBatch { dtype: u16, records: 2, rows: 2, item_shape: [2] }");
    }
}
