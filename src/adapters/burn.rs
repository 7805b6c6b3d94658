//! Burn, feature `burn`: batches as `TensorData` and tensors, datasets as Burn's `Dataset` with a `Batcher`, and the
//! loader as Burn's `DataLoader`.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader as BurnDataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Float, Int, Tensor, TensorData};
use half::{bf16, f16};

use crate::data::{DenseBatch, DenseDataset, Element, RaggedDataset, Shape};
use crate::error::{Error, Result};
use crate::loader::{Adapter, DataLoader, Format, LoaderState, Pass};

/// Makes a loader yield Burn tensors on a device: dense batches, and tuples of them, the batch axis first.
///
/// The element type is kept, and chooses the kind:
///
/// | element | kind |
/// |---|---|
/// | `f16`, `bf16`, `f32`, `f64` | `Float` |
/// | `i8` to `i64`, `u8` to `u64` | `Int` |
/// | `bool` | `Bool`, stored as the device stores it |
///
/// A backend that does not have the element type panics, which the loader gives as an error of the step: change the
/// type in a `map`. The item shape is `()` or `[usize; N]`, from which the tensor has its rank; for `Vec<usize>` there is
/// [`BurnData`]. Ragged batches are padded in a `map`.
///
/// Needs the feature `burn`.
#[derive(Debug, Clone)]
pub struct Burn(pub Device);

/// Makes a loader yield Burn's [`TensorData`]: dense batches, and tuples of them, the batch axis first. The vector that
/// the records were gathered into moves into it. [`DataLoader::into_burn`] builds on it.
///
/// ```
/// use burn::tensor::TensorData;
/// use loaderx::{BurnData, DataLoader, DenseDataset};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("images");
/// # DenseDataset::<f32, [usize; 2]>::create(&path, [28, 28])?.append(&vec![7.0; 100 * 28 * 28])?;
/// let images = DenseDataset::<f32, [usize; 2]>::open(path)?;
/// let loader = DataLoader::builder(images).batch_size(32).yields(BurnData).build()?;
/// for batch in loader.take(3) {
///     let images: TensorData = batch?;
///     assert_eq!(images.shape().as_slice(), [32, 28, 28]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Needs the feature `burn`.
#[derive(Debug, Clone, Copy, Default)]
pub struct BurnData;

/// An element type as Burn's: every [`Element`] is one.
///
/// Needs the feature `burn`.
pub trait BurnElement: Element + burn::tensor::Element {
    /// The kind of tensor that holds it.
    type Kind: Basic + 'static;
}

macro_rules! kinds {
    ($($kind:ident: $($type:ty)*;)*) => {$($(
        impl BurnElement for $type {
            type Kind = $kind;
        }
    )*)*};
}

kinds! {
    Float: f16 bf16 f32 f64;
    Int: i8 i16 i32 i64 u8 u16 u32 u64;
    Bool: bool;
}

/// A record shape with the type of a tensor of such records: `()` has `Tensor<1, K>`, `[usize; 2]` has `Tensor<3, K>`.
///
/// Needs the feature `burn`.
pub trait BurnShape: Shape {
    /// The tensor with the batch axis in front.
    type Tensor<K: Basic + 'static>: 'static;

    /// A tensor of the data's own element type.
    fn tensor<K: Basic + 'static>(data: TensorData, device: &Device) -> Self::Tensor<K>;
}

macro_rules! shapes {
    ($($shape:ty => $rank:literal),*) => {$(
        impl BurnShape for $shape {
            type Tensor<K: Basic + 'static> = Tensor<$rank, K>;

            fn tensor<K: Basic + 'static>(data: TensorData, device: &Device) -> Tensor<$rank, K> {
                let dtype = data.dtype();
                Tensor::from_data(data, (device, dtype))
            }
        }
    )*};
}

shapes!(() => 1, [usize; 1] => 2, [usize; 2] => 3, [usize; 3] => 4, [usize; 4] => 5, [usize; 5] => 6);

/// With the feature `burn`.
impl<T: BurnElement, S: Shape> DenseBatch<T, S> {
    /// The batch as Burn's data, the batch axis first. The vector moves into it.
    pub fn into_burn_data(self) -> TensorData {
        let shape = self.shape().dims().to_vec();
        TensorData::new(self.into_values(), shape)
    }

    /// The batch as a tensor on `device`, the batch axis first; its element type is kept.
    pub fn into_burn(self, device: &Device) -> S::Tensor<T::Kind>
    where
        S: BurnShape,
    {
        S::tensor(self.into_burn_data(), device)
    }
}

impl Adapter for BurnData {}

impl<T: BurnElement, S: Shape> Format<DenseBatch<T, S>> for BurnData {
    type Host = TensorData;
    type Out = TensorData;

    fn host(&self, batch: DenseBatch<T, S>) -> Result<TensorData> {
        Ok(batch.into_burn_data())
    }

    fn finish(&self, host: TensorData) -> Result<TensorData> {
        Ok(host)
    }
}

impl Adapter for Burn {}

impl<T: BurnElement, S: BurnShape> Format<DenseBatch<T, S>> for Burn {
    type Host = TensorData;
    type Out = S::Tensor<T::Kind>;

    fn host(&self, batch: DenseBatch<T, S>) -> Result<TensorData> {
        Ok(batch.into_burn_data())
    }

    fn finish(&self, host: TensorData) -> Result<Self::Out> {
        Ok(S::tensor(host, &self.0))
    }
}

/// One record of a dataset, as an item of Burn's [`Dataset`].
///
/// Needs the feature `burn`.
#[derive(Debug, Clone, PartialEq)]
pub struct BurnItem<T, S> {
    /// Its elements.
    pub values: Vec<T>,
    /// Its shape; a ragged record's begins with its number of rows.
    pub shape: S,
}

/// As Burn's dataset: an index past the end is an error, where Burn's own panic.
impl<T: Element, S: Shape> Dataset<BurnItem<T, S>> for DenseDataset<T, S> {
    fn get(&self, index: usize) -> Result<BurnItem<T, S>, DatasetError> {
        let batch = self.gather(&[index as u64]).map_err(DatasetError::new)?;
        Ok(BurnItem { shape: batch.item_shape().clone(), values: batch.into_values() })
    }

    /// One gather for all of them.
    fn get_many(&self, indexes: Vec<usize>) -> Result<Vec<BurnItem<T, S>>, DatasetError> {
        let batch = self.gather(&wide(indexes)).map_err(DatasetError::new)?;
        Ok(batch.rows().map(|row| BurnItem { values: row.to_vec(), shape: batch.item_shape().clone() }).collect())
    }

    fn len(&self) -> usize {
        DenseDataset::len(self) as usize
    }
}

/// As Burn's dataset: an index past the end is an error, where Burn's own panic.
impl<T: Element, S: Shape> Dataset<BurnItem<T, S::WithRows>> for RaggedDataset<T, S> {
    fn get(&self, index: usize) -> Result<BurnItem<T, S::WithRows>, DatasetError> {
        let batch = self.gather(&[index as u64]).map_err(DatasetError::new)?;
        let shape = batch.item_shape().with_rows(batch.offsets()[1] as usize);
        Ok(BurnItem { shape, values: batch.into_parts().0 })
    }

    /// One gather for all of them.
    fn get_many(&self, indexes: Vec<usize>) -> Result<Vec<BurnItem<T, S::WithRows>>, DatasetError> {
        let batch = self.gather(&wide(indexes)).map_err(DatasetError::new)?;
        let shape = |rows| batch.item_shape().with_rows(rows as usize);
        let items = batch.iter().zip(batch.lengths());
        Ok(items.map(|(record, rows)| BurnItem { values: record.to_vec(), shape: shape(rows) }).collect())
    }

    fn len(&self) -> usize {
        RaggedDataset::len(self) as usize
    }
}

fn wide(indexes: Vec<usize>) -> Vec<u64> {
    indexes.into_iter().map(|index| index as u64).collect()
}

/// Stacks items of one shape into a tensor, for Burn's own loaders over a [`DenseDataset`].
///
/// A batcher cannot return an error: no items at all, or items of different shapes, are a panic.
///
/// Needs the feature `burn`.
#[derive(Debug, Clone, Copy, Default)]
pub struct BurnBatcher;

impl<T: BurnElement, S: BurnShape> Batcher<BurnItem<T, S>, S::Tensor<T::Kind>> for BurnBatcher {
    fn batch(&self, items: Vec<BurnItem<T, S>>, device: &Device) -> S::Tensor<T::Kind> {
        let first = items.first().expect("a batch has an item at least").shape.clone();
        let mut values = Vec::with_capacity(items.len() * items[0].values.len());
        for item in &items {
            assert_eq!(item.shape, first, "items of one shape are stacked");
            values.extend_from_slice(&item.values);
        }
        S::tensor(TensorData::new(values, first.with_rows(items.len()).dims().to_vec()), device)
    }
}

/// What makes Burn's batch of a loader's, on the device that Burn says.
type OnDevice<H, O> = Arc<dyn Fn(H, &Device) -> O + Send + Sync>;

/// With the feature `burn`.
impl<H: 'static> DataLoader<H> {
    /// The loader as Burn's `DataLoader`, for training: each epoch is the next `steps` steps, and goes on where the one
    /// before ended. `on_device` makes the model's batch of the loader's, in the thread that trains; what the loader
    /// yields, such as [`BurnData`], is made in the workers.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use burn::data::dataloader::DataLoader as _;
    /// use burn::tensor::{DType, Device, Int, Tensor, TensorData};
    /// use loaderx::{BurnData, DataLoader, DenseDataset};
    ///
    /// struct Batch {
    ///     images: Tensor<3>,
    ///     labels: Tensor<1, Int>,
    /// }
    ///
    /// fn loader(
    ///     images: DenseDataset<f32, [usize; 2]>,
    ///     labels: DenseDataset<i64, ()>,
    ///     device: &Device,
    /// ) -> loaderx::Result<Arc<dyn burn::data::dataloader::DataLoader<Batch>>> {
    ///     let loader = DataLoader::builder((images, labels)).batch_size(64).yields(BurnData).build()?;
    ///     let loader = loader.into_burn(1000, device, |(images, labels): (TensorData, TensorData), device| Batch {
    ///         images: Tensor::from_data(images, (device, DType::F32)),
    ///         labels: Tensor::from_data(labels, (device, DType::I64)),
    ///     })?;
    ///     Ok(Arc::new(loader))
    /// }
    /// ```
    ///
    /// # Errors
    /// No steps, or more records an epoch than 2^48.
    pub fn into_burn<O: 'static>(
        self,
        steps: u64,
        device: &Device,
        on_device: impl Fn(H, &Device) -> O + Send + Sync + 'static,
    ) -> Result<BurnLoader<H, O>> {
        // Burn multiplies totals by epochs and by devices.
        let records = self.step_len().checked_mul(steps).filter(|records| (1..=1 << 48).contains(records));
        let Some(records) = records else {
            return Err(Error::invalid("steps", format!("{steps} an epoch give no records, or more than 2^48")));
        };
        let first = self.step();
        let source = Source { template: self.part(0, 1)?, kept: Mutex::new(Some(self)) };
        let epochs = Epochs { first, steps, records: records as usize };
        Ok(BurnLoader {
            source: Ok(Arc::new(source)),
            epochs,
            next: AtomicU64::new(0),
            device: device.clone(),
            on_device: Arc::new(on_device),
        })
    }

    /// The loader as Burn's `DataLoader`, for validation: each iteration is a [`pass`](Self::pass), which gives every
    /// record exactly once, in order, and begins at the first again. `on_device` as for [`into_burn`](Self::into_burn).
    ///
    /// # Errors
    /// A loader of one rank of several: Burn itself splits what it is given.
    pub fn into_burn_pass<O: 'static>(
        self,
        device: &Device,
        on_device: impl Fn(H, &Device) -> O + Send + Sync + 'static,
    ) -> Result<BurnPass<H, O>> {
        let records = 0..self.state().len;
        self.pass_over(records.clone())?;
        Ok(BurnPass {
            loader: Arc::new(self),
            records: Ok(records),
            device: device.clone(),
            on_device: Arc::new(on_device),
        })
    }
}

/// A loader as Burn's `DataLoader`, for training: [`DataLoader::into_burn`] makes it.
///
/// - Epoch e is the steps from e × N up to (e + 1) × N of the loader, whatever was read of the epochs before: an iterator
///   that is dropped early, or two at once, change nothing in what the next one gives.
/// - The workers are made once, and work ahead across the end of an epoch. An iterator beside another one has its own.
/// - `slice(start, end)` is the rank `start / (end - start)` of a world of equal parts: each step's batch, drawn from all
///   records, is shared. Where the parts are not equal, or do not share a batch evenly, the first `next` says so.
/// - `to_device` and `slice` begin at the epoch at which this loader stands, and count their own from there.
/// - A failure takes the place of every batch that is left of its epoch.
///
/// Needs the feature `burn`.
pub struct BurnLoader<H: 'static, O> {
    /// The error of an impossible slice.
    source: Result<Arc<Source<H>>>,
    epochs: Epochs,
    /// The epoch of the next iterator.
    next: AtomicU64,
    device: Device,
    on_device: OnDevice<H, O>,
}

/// Which steps and how many records an epoch has.
#[derive(Debug, Clone, Copy)]
struct Epochs {
    first: u64,
    steps: u64,
    records: usize,
}

/// Loaders for iterators.
struct Source<H: 'static> {
    /// Never iterated, so that it has no threads.
    template: DataLoader<H>,
    /// The one that is used again, unless an iterator has it.
    kept: Mutex<Option<DataLoader<H>>>,
}

impl<H: 'static> Source<H> {
    fn of(template: DataLoader<H>) -> Self {
        Source { template, kept: Mutex::default() }
    }

    fn take(&self, step: u64) -> Result<DataLoader<H>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut loader = kept.map_or_else(|| self.template.part(0, 1), Ok)?;
        if loader.step() != step {
            loader.seek(step);
        }
        Ok(loader)
    }

    fn give_back(&self, loader: DataLoader<H>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(loader);
    }

    fn part(&self, part: Range<usize>, of: usize) -> Result<Source<H>> {
        let len = part.len();
        if part.end > of || len == 0 || !of.is_multiple_of(len) || !part.start.is_multiple_of(len) {
            let Range { start, end } = part;
            let reason =
                format!("{start}..{end} is none of equal parts of the {of} records of an epoch, as ranks need");
            return Err(Error::invalid("slice", reason));
        }
        Ok(Source::of(self.template.part((part.start / len) as u64, (of / len) as u64)?))
    }
}

impl<H: 'static, O: 'static> BurnLoader<H, O> {
    /// Begins with `epoch`, counted from 0: when a run of Burn's is resumed, as many as it has finished, which is the
    /// number that its `checkpoint` is given. Burn itself passes none.
    pub fn start_epoch(self, epoch: u64) -> Self {
        BurnLoader { next: AtomicU64::new(epoch), ..self }
    }

    /// Where the next epoch begins, to [`resume`](crate::DataLoaderBuilder::resume) from; a loader that is resumed so
    /// begins with epoch 0 there.
    ///
    /// # Errors
    /// The loader is an impossible slice.
    pub fn state(&self) -> Result<LoaderState> {
        let source = self.source.as_ref().map_err(Error::clone)?;
        let step = self.epochs.start(self.next.load(Ordering::Relaxed));
        Ok(LoaderState { step, ..source.template.state() })
    }

    fn with(&self, source: Result<Source<H>>, records: usize, device: &Device) -> Arc<dyn BurnDataLoader<O>> {
        Arc::new(BurnLoader {
            source: source.map(Arc::new),
            epochs: Epochs { records, ..self.epochs },
            next: AtomicU64::new(self.next.load(Ordering::Relaxed)),
            device: device.clone(),
            on_device: self.on_device.clone(),
        })
    }
}

impl Epochs {
    fn start(&self, epoch: u64) -> u64 {
        self.first.saturating_add(epoch.saturating_mul(self.steps))
    }
}

impl<H: 'static, O: 'static> BurnDataLoader<O> for BurnLoader<H, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let first = self.epochs.start(self.next.fetch_add(1, Ordering::Relaxed));
        Box::new(Epoch { of: self, running: None, first, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.epochs.records
    }

    fn to_device(&self, device: &Device) -> Arc<dyn BurnDataLoader<O>> {
        let source = self.source.as_ref().map_err(Error::clone);
        let source = source.and_then(|source| Ok(Source::of(source.template.part(0, 1)?)));
        self.with(source, self.epochs.records, device)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn BurnDataLoader<O>> {
        let source = self.source.as_ref().map_err(Error::clone);
        let source = source.and_then(|source| source.part(start..end, self.epochs.records));
        self.with(source, end.saturating_sub(start), &self.device)
    }
}

/// The steps of one epoch.
struct Epoch<'a, H: 'static, O> {
    of: &'a BurnLoader<H, O>,
    /// Taken from the source by the first `next`; the error where there is none to take.
    running: Option<Result<DataLoader<H>>>,
    first: u64,
    done: u64,
}

impl<H: 'static, O> Iterator for Epoch<'_, H, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let BurnLoader { source, epochs, device, on_device, .. } = self.of;
        if self.done == epochs.steps {
            return None;
        }
        let take = || source.as_ref().map_err(Error::clone).and_then(|source| source.take(self.first));
        let batch = match self.running.get_or_insert_with(take) {
            Ok(loader) => loader.next()?,
            Err(error) => Err(error.clone()),
        };
        self.done += 1;
        Some(batch.map(|batch| on_device(batch, device)).map_err(DatasetError::new))
    }
}

impl<H: 'static, O> DataLoaderIterator<O> for Epoch<'_, H, O> {
    fn progress(&self) -> Progress {
        let Epochs { steps, records, .. } = self.of.epochs;
        // The records of an epoch are a whole number of steps, unless the slice is impossible.
        let step = records as u64 / steps;
        let done = if self.done == steps { records } else { (self.done * step) as usize };
        Progress::new(done, records, Some("items".to_owned()))
    }
}

impl<H: 'static, O> Drop for Epoch<'_, H, O> {
    fn drop(&mut self) {
        if let (Some(Ok(loader)), Ok(source)) = (self.running.take(), &self.of.source) {
            source.give_back(loader);
        }
    }
}

/// A loader as Burn's `DataLoader`, for validation: [`DataLoader::into_burn_pass`] makes it.
///
/// `slice(start, end)` gives the records from `start` up to `end`; where they are not there, the first `next` says so. A
/// failure takes the place of every batch that is left.
///
/// Needs the feature `burn`.
pub struct BurnPass<H: 'static, O> {
    loader: Arc<DataLoader<H>>,
    /// The error of an impossible slice.
    records: Result<Range<u64>>,
    device: Device,
    on_device: OnDevice<H, O>,
}

impl<H: 'static, O: 'static> BurnPass<H, O> {
    fn with(&self, records: Result<Range<u64>>, device: &Device) -> Arc<dyn BurnDataLoader<O>> {
        Arc::new(BurnPass {
            loader: self.loader.clone(),
            records,
            device: device.clone(),
            on_device: self.on_device.clone(),
        })
    }

    fn len(&self) -> usize {
        self.records.as_ref().map_or(0, |records| (records.end - records.start) as usize)
    }
}

impl<H: 'static, O: 'static> BurnDataLoader<O> for BurnPass<H, O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let records = self.records.as_ref().map_err(Error::clone);
        let steps = match records.and_then(|records| self.loader.pass_over(records.clone())) {
            Ok(pass) => Ok(pass),
            Err(error) => Err(Some(error)),
        };
        Box::new(Passing { of: self, steps })
    }

    fn num_items(&self) -> usize {
        self.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn BurnDataLoader<O>> {
        self.with(self.records.clone(), device)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn BurnDataLoader<O>> {
        let slice = |records: &Range<u64>| {
            if start > end || end > self.len() {
                let reason = format!("{start}..{end} is no range of the {} records of a pass", self.len());
                return Err(Error::invalid("slice", reason));
            }
            Ok(records.start + start as u64..records.start + end as u64)
        };
        self.with(self.records.as_ref().map_err(Error::clone).and_then(slice), &self.device)
    }
}

/// One pass, or the error that it gives once.
struct Passing<'a, H: 'static, O> {
    of: &'a BurnPass<H, O>,
    steps: Result<Pass<H>, Option<Error>>,
}

impl<H: 'static, O> Iterator for Passing<'_, H, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match &mut self.steps {
            Ok(pass) => pass.next()?,
            Err(error) => Err(error.take()?),
        };
        Some(batch.map(|batch| (self.of.on_device)(batch, &self.of.device)).map_err(DatasetError::new))
    }
}

impl<H: 'static, O: 'static> DataLoaderIterator<O> for Passing<'_, H, O> {
    fn progress(&self) -> Progress {
        let done = self.steps.as_ref().map_or(0, |pass| pass.metrics().records as usize);
        Progress::new(done, self.of.len(), Some("items".to_owned()))
    }
}

impl<H: 'static, O> fmt::Debug for BurnLoader<H, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurnLoader")
            .field("epochs", &self.epochs)
            .field("next", &self.next)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl<H: 'static, O> fmt::Debug for BurnPass<H, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BurnPass").field("records", &self.records).field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "burn-flex"))]
mod tests {
    use std::path::Path;

    use burn::data::dataloader::split::split_dataloader;
    use proptest::prelude::*;

    use super::super::conformance::{self, Sample, Seen, conforms};
    use super::*;
    use crate::data::RaggedBatch;

    fn texts<T: Sample + burn::tensor::Element>(data: &TensorData) -> Vec<String> {
        data.as_slice::<T>().unwrap().iter().map(|value| value.text()).collect()
    }

    impl Seen for TensorData {
        fn shape(&self) -> Vec<usize> {
            TensorData::shape(self).as_slice().to_vec()
        }

        fn dtype(&self) -> String {
            format!("{:?}", TensorData::dtype(self)).to_lowercase()
        }

        fn values(&self) -> Vec<String> {
            use burn::tensor::DType;
            match TensorData::dtype(self) {
                DType::Bool(_) => texts::<bool>(self),
                DType::I8 => texts::<i8>(self),
                DType::I16 => texts::<i16>(self),
                DType::I32 => texts::<i32>(self),
                DType::I64 => texts::<i64>(self),
                DType::U8 => texts::<u8>(self),
                DType::U16 => texts::<u16>(self),
                DType::U32 => texts::<u32>(self),
                DType::U64 => texts::<u64>(self),
                DType::F16 => texts::<f16>(self),
                DType::BF16 => texts::<bf16>(self),
                DType::F32 => texts::<f32>(self),
                DType::F64 => texts::<f64>(self),
                other => panic!("{other:?} stands for no element type"),
            }
        }

        fn address(self) -> usize {
            self.bytes().as_ptr() as usize
        }
    }

    impl<const D: usize, K: Basic> Seen for Tensor<D, K> {
        fn shape(&self) -> Vec<usize> {
            self.dims().to_vec()
        }

        fn dtype(&self) -> String {
            Seen::dtype(&self.to_data())
        }

        fn values(&self) -> Vec<String> {
            self.to_data().values()
        }

        fn address(self) -> usize {
            self.into_data().address()
        }
    }

    #[test]
    fn data_and_tensors_conform() {
        conforms!(BurnData;
            bool => "bool(native)" moved, i8 => "i8" moved, i16 => "i16" moved, i32 => "i32" moved, i64 => "i64" moved,
            u8 => "u8" moved, u16 => "u16" moved, u32 => "u32" moved, u64 => "u64" moved, f16 => "f16" moved,
            bf16 => "bf16" moved, f32 => "f32" moved, f64 => "f64" moved,
        );
        conformance::shape(&BurnData, vec![2, 1, 2, 1, 2, 1, 2]);
        conforms!(Burn(Device::flex());
            bool => "bool(native)" moved, i8 => "i8" moved, i16 => "i16" moved, i32 => "i32" moved, i64 => "i64" moved,
            u8 => "u8" moved, u16 => "u16" moved, u32 => "u32" moved, u64 => "u64" moved, f16 => "f16" moved,
            bf16 => "bf16" moved, f32 => "f32" moved, f64 => "f64" moved,
        );
    }

    /// 0, 1, 2, …
    fn numbers(root: &Path, len: u32) -> DenseDataset<u32, ()> {
        let path = root.join("numbers");
        if !path.exists() {
            DenseDataset::create(&path, ()).unwrap().append(&(0..len).collect::<Vec<u32>>()).unwrap();
        }
        DenseDataset::open(path).unwrap()
    }

    fn loader(root: &Path, len: u32, batch_size: u64) -> DataLoader<DenseBatch<u32, ()>> {
        DataLoader::builder(numbers(root, len)).batch_size(batch_size).workers(2).build().unwrap()
    }

    fn values(batch: DenseBatch<u32, ()>, _: &Device) -> Vec<u32> {
        batch.into_values()
    }

    /// All batches of an iterator, whose progress goes up by their lengths and ends with its total.
    fn read<'a>(mut iterator: Box<dyn DataLoaderIterator<Vec<u32>> + 'a>) -> Vec<Vec<u32>> {
        let (mut batches, mut done) = (Vec::new(), 0);
        while let Some(batch) = iterator.next() {
            let batch = batch.unwrap();
            done += batch.len();
            assert_eq!(iterator.progress().items_processed, done);
            batches.push(batch);
        }
        assert!(iterator.progress().is_completed());
        batches
    }

    fn refusal<'a>(mut iterator: Box<dyn DataLoaderIterator<Vec<u32>> + 'a>) -> String {
        iterator.next().unwrap().unwrap_err().to_string()
    }

    #[test]
    fn datasets_are_burns_and_many_items_are_those_one_by_one() {
        let root = tempfile::tempdir().unwrap();
        let dense = DenseDataset::<u8, [usize; 1]>::create(root.path().join("dense"), [2]).unwrap();
        dense.append(&[0, 1, 2, 3, 4, 5]).unwrap();
        let ragged = RaggedDataset::<u8, [usize; 1]>::create(root.path().join("ragged"), [2]).unwrap();
        ragged.append([vec![], vec![1, 2], vec![3, 4, 5, 6]]).unwrap();
        fn item<S>(values: &[u8], shape: S) -> BurnItem<u8, S> {
            BurnItem { values: values.to_vec(), shape }
        }

        let dense: Arc<dyn Dataset<BurnItem<u8, [usize; 1]>>> = Arc::new(dense);
        assert_eq!(dense.len(), 3);
        assert_eq!(dense.get(1).unwrap(), item(&[2, 3], [2]));
        let many = dense.get_many(vec![2, 0, 2]).unwrap();
        assert_eq!(many, [item(&[4, 5], [2]), item(&[0, 1], [2]), item(&[4, 5], [2])]);
        let tensor: Tensor<2, Int> = BurnBatcher.batch(many, &Device::flex());
        assert_eq!(tensor.into_data(), TensorData::new(vec![4u8, 5, 0, 1, 4, 5], [3, 2]));

        let ragged: Arc<dyn Dataset<BurnItem<u8, [usize; 2]>>> = Arc::new(ragged);
        assert_eq!(ragged.len(), 3);
        assert_eq!(ragged.get(2).unwrap(), item(&[3, 4, 5, 6], [2, 2]));
        assert_eq!(ragged.get_many(vec![1, 0]).unwrap(), [item(&[1, 2], [1, 2]), item(&[], [0, 2])]);
        for error in [dense.get(3).unwrap_err(), ragged.get_many(vec![0, 3]).unwrap_err()] {
            assert!(error.to_string().contains("index 3 is out of range for 3 records"), "{error}");
        }
    }

    #[test]
    fn burns_own_loader_stacks_our_records() {
        let root = tempfile::tempdir().unwrap();
        let loader = burn::data::dataloader::DataLoaderBuilder::new(BurnBatcher)
            .batch_size(4)
            .set_device(Device::flex())
            .build(numbers(root.path(), 10));
        let tensors: Vec<Tensor<1, Int>> = loader.iter().map(Result::unwrap).collect();
        let batches: Vec<Vec<u32>> = tensors.into_iter().map(|t| t.into_data().try_to_vec().unwrap()).collect();
        assert_eq!(batches, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn epochs_are_the_loaders_steps_whatever_was_read_of_those_before(
            steps in 1u64..6,
            first in 0u64..9,
            epochs in 0u64..3,
            reads in proptest::collection::vec(0usize..7, 1..6),
            together in any::<bool>(),
        ) {
            let root = tempfile::tempdir().unwrap();
            let plain = loader(root.path(), 23, 4);
            let start = DataLoader::builder(numbers(root.path(), 23)).batch_size(4).workers(2).start_step(first);
            let burn = start.build().unwrap().into_burn(steps, &Device::flex(), values).unwrap().start_epoch(epochs);
            prop_assert_eq!(burn.num_items() as u64, steps * 4);
            let epoch = |epoch: u64| -> Vec<Vec<u32>> {
                let first = first + (epochs + epoch) * steps;
                (first..first + steps).map(|step| plain.batch(step).unwrap().into_values()).collect()
            };
            let mut others = Vec::new();
            for (at, read) in reads.iter().enumerate() {
                let mut iterator = burn.iter();
                let taken: Vec<_> = iterator.by_ref().take(*read).map(Result::unwrap).collect();
                prop_assert_eq!(&taken[..], &epoch(at as u64)[..taken.len()]);
                prop_assert_eq!(taken.len(), (*read).min(steps as usize));
                if together {
                    others.push(iterator);
                }
            }
            prop_assert_eq!(read(burn.iter()), epoch(reads.len() as u64));

            let state = burn.state().unwrap();
            prop_assert_eq!(state.step, first + (epochs + reads.len() as u64 + 1) * steps);
            let resumed = DataLoader::builder(numbers(root.path(), 23)).batch_size(4).resume(state).build().unwrap();
            let resumed = resumed.into_burn(steps, &Device::flex(), values).unwrap();
            prop_assert_eq!(read(resumed.iter()), epoch(reads.len() as u64 + 1));
        }

        #[test]
        fn devices_share_each_batch_of_the_whole_shuffle(
            steps in 1u64..5,
            world in prop::sample::select(&[1usize, 2, 3, 4, 6][..]),
            epochs in 0u64..3,
        ) {
            let root = tempfile::tempdir().unwrap();
            let whole = loader(root.path(), 50, 12).into_burn(steps, &Device::flex(), values).unwrap();
            let whole: Arc<dyn BurnDataLoader<Vec<u32>>> = Arc::new(whole.start_epoch(epochs));
            let devices = vec![Device::flex(); world];
            let parts = split_dataloader(whole.clone(), &devices);
            prop_assert_eq!(parts.iter().map(|part| part.num_items()).sum::<usize>(), whole.num_items());
            for _ in 0..2 {
                let parts: Vec<_> = parts.iter().map(|part| read(part.iter())).collect();
                let joined: Vec<Vec<u32>> =
                    (0..steps as usize).map(|step| parts.iter().flat_map(|part| part[step].clone()).collect()).collect();
                // One device is not split off: Burn gives the loader itself.
                if world > 1 {
                    prop_assert_eq!(joined, read(whole.iter()));
                } else {
                    prop_assert_eq!(joined.len() as u64, steps);
                }
            }
        }
    }

    #[test]
    fn a_slice_of_a_slice_is_a_rank_of_more() {
        let root = tempfile::tempdir().unwrap();
        let whole = loader(root.path(), 50, 12).into_burn(2, &Device::flex(), values).unwrap();
        let (half, rank) = (whole.slice(12, 24), whole.slice(18, 24));
        assert_eq!(read(half.slice(6, 12).iter()), read(rank.iter()));
        assert_eq!(read(rank.iter())[0].len(), 3);
    }

    #[test]
    fn an_impossible_slice_is_an_error_at_the_first_next() {
        let root = tempfile::tempdir().unwrap();
        let whole = loader(root.path(), 50, 12).into_burn(5, &Device::flex(), values).unwrap();
        for (slice, says) in [
            (whole.slice(0, 29), "0..29 is none of equal parts of the 60 records"),
            (whole.slice(7, 37), "7..37 is none"),
            (whole.slice(30, 90), "30..90 is none"),
            (whole.slice(10, 10), "10..10 is none"),
            (whole.slice(20, 10), "20..10 is none"),
            (whole.slice(0, 12), "5 ranks cannot share a batch of 12 evenly"),
            (whole.slice(0, 29).slice(0, 1).to_device(&Device::flex()), "0..29 is none"),
        ] {
            let text = refusal(slice.iter());
            assert!(text.contains(says), "{text}");
        }
        let valid = loader(root.path(), 50, 12).into_burn_pass(&Device::flex(), values).unwrap();
        for slice in [valid.slice(0, 51), valid.slice(9, 3), valid.slice(0, 51).slice(0, 1)] {
            let text = refusal(slice.iter());
            assert!(text.contains("is no range of the 50 records"), "{text}");
        }
    }

    #[test]
    fn epochs_without_steps_or_too_long_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for steps in [0, 1 << 47, u64::MAX] {
            let error = loader(root.path(), 50, 4).into_burn(steps, &Device::flex(), values).unwrap_err();
            assert!(matches!(error, Error::Invalid { what: "steps", .. }), "{error}");
        }
    }

    #[test]
    fn a_failure_takes_the_rest_of_its_epoch_and_the_next_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let plain = loader(root.path(), 50, 4);
        let failing = DataLoader::builder(numbers(root.path(), 50))
            .batch_size(4)
            .map(|context, batch| if context.step() == 1 { Err("no".into()) } else { Ok(batch) });
        let burn = failing.build().unwrap().into_burn(3, &Device::flex(), values).unwrap();
        let epoch: Vec<_> = burn.iter().collect();
        assert_eq!(epoch.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false]);
        assert!(epoch[2].as_ref().unwrap_err().to_string().contains("step 1"));
        let next = (3..6).map(|step| plain.batch(step).unwrap().into_values()).collect::<Vec<_>>();
        assert_eq!(read(burn.iter()), next);
    }

    #[test]
    fn a_validation_covers_every_record_once_each_time_and_is_split_by_ranges() {
        let root = tempfile::tempdir().unwrap();
        let valid = loader(root.path(), 50, 12).into_burn_pass(&Device::flex(), values).unwrap();
        assert_eq!(valid.num_items(), 50);
        let all: Vec<u32> = (0..50).collect();
        assert_eq!(valid.iter().next().unwrap().unwrap(), all[..12]);
        for _ in 0..2 {
            let batches = read(valid.iter());
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [12, 12, 12, 12, 2]);
            assert_eq!(batches.concat(), all);
        }
        let valid: Arc<dyn BurnDataLoader<Vec<u32>>> = Arc::new(valid);
        let parts = split_dataloader(valid.clone(), &vec![Device::flex(); 3]);
        assert_eq!(parts.iter().map(|part| part.num_items()).collect::<Vec<_>>(), [16, 16, 18]);
        assert_eq!(parts.iter().flat_map(|part| read(part.iter()).concat()).collect::<Vec<_>>(), all);
        assert_eq!(read(valid.slice(10, 40).slice(5, 20).iter()).concat(), all[15..30]);
        assert_eq!(read(valid.slice(7, 7).iter()), Vec::<Vec<u32>>::new());

        let shard = crate::Shard::new(1, 2).unwrap();
        let ranked = DataLoader::builder(numbers(root.path(), 50)).batch_size(4).shard(shard).build().unwrap();
        assert!(matches!(ranked.into_burn_pass(&Device::flex(), values), Err(Error::Invalid { what: "shard", .. })));
    }

    #[test]
    fn batches_are_made_on_the_device_that_burn_says() {
        let root = tempfile::tempdir().unwrap();
        let device = Device::flex();
        let autodiff = |_: DenseBatch<u32, ()>, device: &Device| device.is_autodiff();
        let train = loader(root.path(), 50, 4).into_burn(2, &device, autodiff).unwrap();
        let valid = loader(root.path(), 50, 4).into_burn_pass(&device, autodiff).unwrap();
        let loaders: [&dyn BurnDataLoader<bool>; 2] = [&train, &valid];
        for loader in loaders {
            assert!(!loader.iter().next().unwrap().unwrap());
            let moved = loader.to_device(&device.clone().autodiff());
            assert!(moved.iter().next().unwrap().unwrap());
        }
    }

    #[test]
    fn ragged_batches_are_padded_in_a_map() {
        let root = tempfile::tempdir().unwrap();
        let ragged = RaggedDataset::<u8>::create(root.path().join("ragged"), ()).unwrap();
        ragged.append([vec![1, 2], vec![3]]).unwrap();
        let loader = DataLoader::builder(ragged)
            .batch_size(2)
            .map(|_, batch: RaggedBatch<u8>| {
                let (padded, lengths) = batch.pad(None, 0)?;
                Ok((padded, DenseBatch::new(lengths.len(), (), lengths)?))
            })
            .yields(BurnData)
            .build()
            .unwrap();
        let (padded, lengths) = loader.pass().next().unwrap().unwrap();
        assert_eq!(padded, TensorData::new(vec![1u8, 2, 3, 0], [2, 2]));
        assert_eq!(lengths, TensorData::new(vec![2u64, 1], [2]));
    }
}
