//! Batches as `ndarray` arrays, feature `ndarray`: the vector is moved, never copied.

use ndarray::{Array, ArrayRef, ArrayView, Dim, Dimension, Ix1, Ix2, Ix3, Ix4, Ix5, Ix6, IxDyn};

use crate::data::{DenseBatch, DenseDataset, Element, RaggedBatch, Shape};
use crate::error::{Error, Result};
use crate::loader::{Adapter, Format};

/// Makes a loader yield [`ndarray::Array`]s: dense batches, and tuples of them, the batch axis first. The vector that the
/// records were gathered into moves into the array.
///
/// Ragged batches, for which ndarray has no type, stay what they are: [`RaggedBatch::views`] shows their records as
/// arrays, and [`RaggedBatch::pad`] in a `map` makes them dense.
///
/// ```
/// use loaderx::{DataLoader, DenseDataset, Ndarray};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("images");
/// # DenseDataset::<u8, [usize; 2]>::create(&path, [28, 28])?.append(&vec![7; 100 * 28 * 28])?;
/// let images = DenseDataset::<u8, [usize; 2]>::open(path)?;
/// let mut loader = DataLoader::builder(images).batch_size(32).yields(Ndarray).build()?;
/// let batch: Option<ndarray::Array3<u8>> = loader.next().transpose()?;
/// assert_eq!(batch.map(|images| images.dim()), Some((32, 28, 28)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Needs the feature `ndarray`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ndarray;

impl Adapter for Ndarray {}

impl<T: Element, S: ArrayShape> Format<DenseBatch<T, S>> for Ndarray {
    type Host = Array<T, S::Batch>;
    type Out = Array<T, S::Batch>;

    fn host(&self, batch: DenseBatch<T, S>) -> Result<Self::Host> {
        Ok(batch.into_ndarray())
    }

    fn finish(&self, host: Self::Host) -> Result<Self::Out> {
        Ok(host)
    }
}

impl<T: Element, S: Shape> Format<RaggedBatch<T, S>> for Ndarray {
    type Host = RaggedBatch<T, S>;
    type Out = RaggedBatch<T, S>;

    fn host(&self, batch: RaggedBatch<T, S>) -> Result<Self::Host> {
        Ok(batch)
    }

    fn finish(&self, host: Self::Host) -> Result<Self::Out> {
        Ok(host)
    }
}

/// A record shape with the dimension of a batch of such records: `()` has `Ix1`, `[usize; 2]` has `Ix3`, `Vec<usize>`
/// has `IxDyn`.
///
/// Needs the feature `ndarray`.
pub trait ArrayShape: Shape {
    /// The dimension with the batch axis, or the axis of rows, in front.
    type Batch: Dimension;

    /// `rows` records of this shape.
    fn batch_dim(&self, rows: usize) -> Self::Batch;
}

macro_rules! fixed {
    ($($shape:ty => $batch:ty),*) => {$(
        impl ArrayShape for $shape {
            type Batch = $batch;

            fn batch_dim(&self, rows: usize) -> $batch {
                let mut dim = <$batch>::default();
                dim[0] = rows;
                dim.slice_mut()[1..].copy_from_slice(self.dims());
                dim
            }
        }
    )*};
}

fixed!(
    () => Ix1, [usize; 1] => Ix2, [usize; 2] => Ix3, [usize; 3] => Ix4, [usize; 4] => Ix5, [usize; 5] => Ix6
);

impl ArrayShape for Vec<usize> {
    type Batch = IxDyn;

    fn batch_dim(&self, rows: usize) -> IxDyn {
        Dim(self.with_rows(rows))
    }
}

/// Why the conversions below do not fail.
const CHECKED: &str = "a batch's values fill its shape: that is checked where it is made";

/// With the feature `ndarray`.
impl<T: Element, S: ArrayShape> DenseBatch<T, S> {
    /// The batch as an array, the batch axis first. The vector moves into it, without a copy.
    ///
    /// ```
    /// use loaderx::DenseBatch;
    ///
    /// let batch = DenseBatch::new(2, [3], vec![1u8, 2, 3, 4, 5, 6])?;
    /// let array: ndarray::Array2<u8> = batch.into_ndarray();
    /// assert_eq!(array, ndarray::array![[1, 2, 3], [4, 5, 6]]);
    /// # Ok::<(), loaderx::Error>(())
    /// ```
    pub fn into_ndarray(self) -> Array<T, S::Batch> {
        let dim = self.item_shape().batch_dim(self.len());
        Array::from_shape_vec(dim, self.into_values()).expect(CHECKED)
    }

    /// The batch seen as an array, the batch axis first.
    pub fn view(&self) -> ArrayView<'_, T, S::Batch> {
        ArrayView::from_shape(self.item_shape().batch_dim(self.len()), self.values()).expect(CHECKED)
    }
}

/// With the feature `ndarray`.
impl<T: Element, S: ArrayShape> RaggedBatch<T, S> {
    /// Record `i` of the batch seen as an array, the axis of rows first.
    pub fn view(&self, i: usize) -> Option<ArrayView<'_, T, S::Batch>> {
        let rows = self.offsets().get(i.checked_add(1)?)? - self.offsets()[i];
        let dim = self.item_shape().batch_dim(rows as usize);
        Some(ArrayView::from_shape(dim, self.record(i)?).expect(CHECKED))
    }

    /// Each record in turn as an array, the axis of rows first.
    pub fn views(&self) -> impl Iterator<Item = ArrayView<'_, T, S::Batch>> {
        (0..self.len()).filter_map(|i| self.view(i))
    }
}

/// With the feature `ndarray`.
impl<T: Element, S: ArrayShape> DenseDataset<T, S> {
    /// Appends the records of an array, which lie along its first axis, and gives the index of the first. An array in
    /// standard layout is not copied first.
    ///
    /// # Errors
    /// As [`append`](DenseDataset::append), and [`Error::Invalid`] where the other axes are not the item shape.
    pub fn append_array(&self, array: &ArrayRef<T, S::Batch>) -> Result<u64> {
        let item_shape = self.item_shape().dims();
        let Some((&rows, _)) = array.shape().split_first().filter(|(_, item)| *item == item_shape) else {
            let reason = format!("its shape is {:?}, of records of shape {item_shape:?}", array.shape());
            return Err(Error::invalid("array", reason));
        };
        match array.as_slice() {
            Some(values) => self.append_rows(rows, values),
            None => self.append_rows(rows, &array.iter().copied().collect::<Vec<T>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use ndarray::Array3;

    use super::super::conformance::{self, Sample, Seen, conforms};
    use super::*;

    impl<T: Sample, D: Dimension> Seen for Array<T, D> {
        fn shape(&self) -> Vec<usize> {
            let array: &ArrayRef<T, D> = self;
            array.shape().to_vec()
        }

        fn dtype(&self) -> String {
            T::DTYPE.name().to_owned()
        }

        fn values(&self) -> Vec<String> {
            self.iter().map(|value| value.text()).collect()
        }

        fn address(self) -> usize {
            self.as_ptr() as usize
        }
    }

    #[test]
    fn it_conforms() {
        conforms!(Ndarray;
            bool => "bool" moved, i8 => "i8" moved, i16 => "i16" moved, i32 => "i32" moved, i64 => "i64" moved,
            u8 => "u8" moved, u16 => "u16" moved, u32 => "u32" moved, u64 => "u64" moved, f16 => "f16" moved,
            bf16 => "bf16" moved, f32 => "f32" moved, f64 => "f64" moved,
        );
        conformance::shape(&Ndarray, vec![2, 1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn a_ragged_batch_stays_what_it_is() {
        let batch = RaggedBatch::new((), vec![0, 2, 3], vec![1u8, 2, 3]).unwrap();
        let (same, _) = Ndarray.host((batch.clone(), DenseBatch::new(1, (), vec![1u8]).unwrap())).unwrap();
        assert_eq!(same, batch);
    }

    fn check<S: ArrayShape>(item_shape: S) {
        let len = 3 * item_shape.dims().iter().product::<usize>();
        let values: Vec<u32> = (0..len as u32).collect();
        let at = values.as_ptr();
        let batch = DenseBatch::new(3, item_shape.clone(), values.clone()).unwrap();
        let shape = batch.shape();
        assert_eq!(batch.view().shape(), shape.dims());
        let batch = DenseBatch::new(3, item_shape, values).unwrap();
        let same = batch.values().as_ptr();
        let array = batch.into_ndarray();
        assert_eq!((array.as_ptr(), same), (at, at), "the vector moves");
        assert_eq!(array.shape(), shape.dims());
        assert!(array.iter().copied().eq(0..len as u32));
    }

    #[test]
    fn every_rank_moves_into_an_array() {
        check(());
        check([2]);
        check([2, 3]);
        check([2, 3, 4]);
        check([2, 1, 3, 2]);
        check([2, 1, 3, 2, 2]);
        check(vec![]);
        check(vec![2, 0, 3]);
        check(vec![1, 2, 1, 2, 1, 2, 1]);
    }

    #[test]
    fn records_are_views_with_their_rows_in_front() {
        let batch = RaggedBatch::new([2], vec![0, 1, 1, 3], vec![1u8, 2, 3, 4, 5, 6]).unwrap();
        let shapes: Vec<_> = batch.views().map(|view| view.dim()).collect();
        assert_eq!(shapes, [(1, 2), (0, 2), (2, 2)]);
        assert_eq!(batch.view(2).unwrap(), ndarray::array![[3, 4], [5, 6]]);
        assert!(batch.view(3).is_none() && batch.view(usize::MAX).is_none());
    }

    #[test]
    fn an_array_of_any_layout_is_appended_in_index_order() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let dataset = DenseDataset::<u16, [usize; 2]>::create(directory.path().join("store"), [4, 3])?;
        let array = Array3::from_shape_fn((5, 3, 4), |(i, j, k)| (i * 12 + j * 4 + k) as u16);
        let turned = array.view().permuted_axes([0, 2, 1]);
        dataset.append_array(&turned)?;
        dataset.append_array(&turned.as_standard_layout())?;
        let read = dataset.read(..)?.into_ndarray();
        assert_eq!(read.slice(ndarray::s![..5, .., ..]), turned);
        assert_eq!(read.slice(ndarray::s![5.., .., ..]), turned);
        assert!(matches!(dataset.append_array(&array), Err(Error::Invalid { what: "array", .. })));
        Ok(())
    }
}
