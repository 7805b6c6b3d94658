//! Batches as Candle tensors, feature `candle`: on the CPU the vector is moved, never copied, where Candle has the
//! element type.

use std::sync::Arc;

use candle_core::{Device, Tensor, WithDType};
use half::{bf16, f16};

use crate::data::{DenseBatch, Element, RaggedBatch, Shape};
use crate::error::{Error, Result};
use crate::loader::{Adapter, Format};

/// Makes a loader yield Candle [`Tensor`]s on a device: dense batches, and tuples of them, the batch axis first.
///
/// On the CPU the vector that the records were gathered into moves into the tensor. Candle lacks four element types;
/// their values are kept, in the smallest type that holds them all:
///
/// | element | tensor | memory |
/// |---|---|---|
/// | `u8`, `u32`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`, `f64` | the same | moved |
/// | `bool` | `u8`, 0 or 1 | moved |
/// | `u64` | `i64`; a value above `i64::MAX` is an error | moved |
/// | `i8` | `i16` | copied, in the workers |
/// | `u16` | `u32` | copied, in the workers |
///
/// Where a tensor of indices is asked for, Candle takes the largest value of the type for "none" and gives zeros: bytes
/// that are token numbers go to `u32` first, since 255 is one of them.
///
/// For ragged batches choose [`padded`](Candle::padded) or [`packed`](Candle::packed).
///
/// ```
/// use candle_core::{Device, Tensor};
/// use loaderx::{Candle, DataLoader, DenseDataset};
///
/// # let directory = tempfile::tempdir()?;
/// # let (images, labels) = (directory.path().join("images"), directory.path().join("labels"));
/// # DenseDataset::<f32, [usize; 2]>::create(&images, [28, 28])?.append(&vec![7.0; 100 * 28 * 28])?;
/// # DenseDataset::<i64, ()>::create(&labels, ())?.append(&(0..100).collect::<Vec<_>>())?;
/// let images = DenseDataset::<f32, [usize; 2]>::open(images)?;
/// let labels = DenseDataset::<i64, ()>::open(labels)?;
/// let loader = DataLoader::builder((images, labels)).batch_size(32).yields(Candle(Device::Cpu)).build()?;
/// for batch in loader.take(3) {
///     let (images, labels): (Tensor, Tensor) = batch?;
///     assert_eq!((images.dims(), labels.dims()), (&[32, 28, 28][..], &[32][..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Needs the feature `candle`.
#[derive(Debug, Clone)]
pub struct Candle(pub Device);

/// As [`Candle`], and ragged batches of elements `T` padded to their longest record: [`Candle::padded`] makes it.
///
/// Needs the feature `candle`.
#[derive(Debug, Clone)]
pub struct CandlePadded<T> {
    device: Device,
    value: T,
}

/// As [`Candle`], and ragged batches end to end: [`Candle::packed`] makes it.
///
/// Needs the feature `candle`.
#[derive(Debug, Clone)]
pub struct CandlePacked(Device);

/// A ragged batch, each record filled up at its end to the length of the longest.
///
/// Needs the feature `candle`.
#[derive(Debug, Clone)]
pub struct PaddedTensor {
    /// The rows of each record: (records, longest, item shape…).
    pub values: Tensor,
    /// 1 where a row is the record's own, 0 where it fills up: `u8`, (records, longest).
    pub mask: Tensor,
}

/// A ragged batch, its records end to end, as variable-length attention takes them.
///
/// Needs the feature `candle`.
#[derive(Debug, Clone)]
pub struct PackedTensor {
    /// The rows of all records: (rows, item shape…). The gathered vector itself, where [`Candle`] moves it.
    pub values: Tensor,
    /// Where each record begins, and at last where the last one ends, in rows: `u32`, (records + 1).
    pub cu_seqlens: Tensor,
    /// How many rows the longest record has; 0 without records.
    pub max_seqlen: usize,
}

impl Candle {
    /// Ragged batches of elements `T` come out as [`PaddedTensor`]s filled up with `value`. One of another element type
    /// in the same tuple is padded in a `map`. A ragged batch without records is an error, since it has no longest.
    pub fn padded<T: CandleElement>(self, value: T) -> CandlePadded<T> {
        CandlePadded { device: self.0, value }
    }

    /// Ragged batches come out as [`PackedTensor`]s. 2^32 rows and more in one batch are an error.
    pub fn packed(self) -> CandlePacked {
        CandlePacked(self.0)
    }
}

/// An element type and what stands for it in Candle: every [`Element`] is one.
///
/// Needs the feature `candle`.
pub trait CandleElement: Element {
    /// The type of the tensor's elements: see the table at [`Candle`].
    type Counterpart: WithDType;

    /// The same values in that type, in the same memory where it is as wide.
    ///
    /// # Errors
    /// A `u64` above `i64::MAX`.
    fn counterparts(values: Vec<Self>) -> Result<Vec<Self::Counterpart>>;
}

macro_rules! counterparts {
    ($($type:ty => $counterpart:ty, $convert:expr;)*) => {$(
        impl CandleElement for $type {
            type Counterpart = $counterpart;

            fn counterparts(values: Vec<Self>) -> Result<Vec<$counterpart>> {
                $convert(values)
            }
        }
    )*};
}

counterparts! {
    u8 => u8, Ok; u32 => u32, Ok; i16 => i16, Ok; i32 => i32, Ok; i64 => i64, Ok;
    f16 => f16, Ok; bf16 => bf16, Ok; f32 => f32, Ok; f64 => f64, Ok;
    bool => u8, |values| Ok(bytemuck::cast_vec::<bool, u8>(values));
    i8 => i16, |values: Vec<i8>| Ok(values.into_iter().map(i16::from).collect());
    u16 => u32, |values: Vec<u16>| Ok(values.into_iter().map(u32::from).collect());
    u64 => i64, signed;
}

fn signed(values: Vec<u64>) -> Result<Vec<i64>> {
    if let Some(at) = values.iter().position(|&value| i64::try_from(value).is_err()) {
        let reason = format!(
            "element {at} of the batch is {}, above i64::MAX, and Candle has no u64: change it in a `map`",
            values[at]
        );
        return Err(Error::invalid("values", reason));
    }
    Ok(bytemuck::cast_vec(values))
}

/// What a worker hands over: the elements and the shape of a tensor.
///
/// Needs the feature `candle`.
#[derive(Debug)]
pub struct CandleHost<C> {
    values: Vec<C>,
    shape: Vec<usize>,
}

impl<C: WithDType> CandleHost<C> {
    fn on(self, device: &Device) -> Result<Tensor> {
        Tensor::from_vec(self.values, self.shape, device).map_err(|error| Error::Tensor(Arc::new(error)))
    }
}

fn dense_host<T: CandleElement, S: Shape>(batch: DenseBatch<T, S>) -> Result<CandleHost<T::Counterpart>> {
    let shape = batch.shape().dims().to_vec();
    Ok(CandleHost { values: T::counterparts(batch.into_values())?, shape })
}

/// With the feature `candle`.
impl<T: CandleElement, S: Shape> DenseBatch<T, S> {
    /// The batch as a tensor on `device`, the batch axis first. On the CPU the vector moves into it, where [`Candle`]
    /// has the element type.
    ///
    /// # Errors
    /// A `u64` above `i64::MAX`, and where the device refuses.
    pub fn into_candle(self, device: &Device) -> Result<Tensor> {
        dense_host(self)?.on(device)
    }
}

/// Each of the formats makes tensors of dense batches, and tensors of the parts of a tuple.
macro_rules! dense {
    ($($format:ident $(<$value:ident>)?, $device:tt);*) => {$(
        impl $(<$value: CandleElement>)? Adapter for $format $(<$value>)? {}

        impl<$($value: CandleElement,)? E: CandleElement, S: Shape> Format<DenseBatch<E, S>> for $format $(<$value>)? {
            type Host = CandleHost<E::Counterpart>;
            type Out = Tensor;

            fn host(&self, batch: DenseBatch<E, S>) -> Result<Self::Host> {
                dense_host(batch)
            }

            fn finish(&self, host: Self::Host) -> Result<Tensor> {
                host.on(&self.$device)
            }
        }
    )*};
}

dense!(Candle, 0; CandlePadded<T>, device; CandlePacked, 0);

impl<T: CandleElement, S: Shape> Format<RaggedBatch<T, S>> for CandlePadded<T> {
    type Host = (CandleHost<T::Counterpart>, CandleHost<u8>);
    type Out = PaddedTensor;

    fn host(&self, batch: RaggedBatch<T, S>) -> Result<Self::Host> {
        let (padded, lengths) = batch.pad(None, self.value)?;
        let values = dense_host(padded)?;
        let longest = values.shape[1];
        let mut mask = Vec::with_capacity(lengths.len() * longest);
        for (i, length) in lengths.iter().enumerate() {
            mask.resize(i * longest + *length as usize, 1);
            mask.resize((i + 1) * longest, 0);
        }
        Ok((values, CandleHost { values: mask, shape: vec![lengths.len(), longest] }))
    }

    fn finish(&self, (values, mask): Self::Host) -> Result<PaddedTensor> {
        Ok(PaddedTensor { values: values.on(&self.device)?, mask: mask.on(&self.device)? })
    }
}

impl<T: CandleElement, S: Shape> Format<RaggedBatch<T, S>> for CandlePacked {
    type Host = (CandleHost<T::Counterpart>, CandleHost<u32>, usize);
    type Out = PackedTensor;

    fn host(&self, batch: RaggedBatch<T, S>) -> Result<Self::Host> {
        let rows = batch.offsets()[batch.len()];
        if u32::try_from(rows).is_err() {
            let reason = format!("it has {rows} rows, which u32 offsets cannot count: make it smaller");
            return Err(Error::invalid("batch", reason));
        }
        let longest = batch.lengths().into_iter().max().unwrap_or(0) as usize;
        let shape = batch.item_shape().with_rows(rows as usize).dims().to_vec();
        let (values, offsets) = batch.into_parts();
        let values = CandleHost { values: T::counterparts(values)?, shape };
        let shape = vec![offsets.len()];
        Ok((values, CandleHost { values: offsets.into_iter().map(|offset| offset as u32).collect(), shape }, longest))
    }

    fn finish(&self, (values, offsets, max_seqlen): Self::Host) -> Result<PackedTensor> {
        Ok(PackedTensor { values: values.on(&self.0)?, cu_seqlens: offsets.on(&self.0)?, max_seqlen })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Storage};
    use proptest::prelude::*;

    use super::super::conformance::{self, Sample, Seen, conforms};
    use super::*;

    fn slice<C: WithDType, R>(tensor: &Tensor, see: impl FnOnce(&[C]) -> R) -> R {
        let (storage, layout) = tensor.storage_and_layout();
        assert!(layout.is_contiguous() && layout.start_offset() == 0);
        match &*storage {
            Storage::Cpu(storage) => see(storage.as_slice().unwrap()),
            _ => panic!("not on the CPU"),
        }
    }

    fn seen<C: WithDType + Sample>(tensor: &Tensor) -> (Vec<String>, usize) {
        slice(tensor, |values: &[C]| (values.iter().map(|value| value.text()).collect(), values.as_ptr() as usize))
    }

    fn seen_any(tensor: &Tensor) -> (Vec<String>, usize) {
        match tensor.dtype() {
            DType::U8 => seen::<u8>(tensor),
            DType::U32 => seen::<u32>(tensor),
            DType::I16 => seen::<i16>(tensor),
            DType::I32 => seen::<i32>(tensor),
            DType::I64 => seen::<i64>(tensor),
            DType::F16 => seen::<f16>(tensor),
            DType::BF16 => seen::<bf16>(tensor),
            DType::F32 => seen::<f32>(tensor),
            DType::F64 => seen::<f64>(tensor),
            other => panic!("{other:?} stands for no element type"),
        }
    }

    impl Seen for Tensor {
        fn shape(&self) -> Vec<usize> {
            self.dims().to_vec()
        }

        fn dtype(&self) -> String {
            Tensor::dtype(self).as_str().to_owned()
        }

        fn values(&self) -> Vec<String> {
            seen_any(self).0
        }

        fn address(self) -> usize {
            seen_any(&self).1
        }
    }

    #[test]
    fn it_conforms() {
        conforms!(Candle(Device::Cpu);
            bool => "u8" moved, i8 => "i16" copied, i16 => "i16" moved, i32 => "i32" moved, i64 => "i64" moved,
            u8 => "u8" moved, u16 => "u32" copied, u32 => "u32" moved, u64 => "i64" moved, f16 => "f16" moved,
            bf16 => "bf16" moved, f32 => "f32" moved, f64 => "f64" moved,
        );
        conformance::shape(&Candle(Device::Cpu), vec![2, 1, 2, 1, 2, 1, 2]);
        conformance::loader(Candle(Device::Cpu).packed());
        conformance::loader(Candle(Device::Cpu).padded(0u8));
    }

    #[test]
    fn a_u64_that_i64_cannot_hold_is_an_error_that_says_where() {
        let batch = DenseBatch::new(3, (), vec![0, 1, 1u64 << 63]).unwrap();
        let error = batch.into_candle(&Device::Cpu).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("element 2 of the batch is 9223372036854775808"), "{error}");
    }

    #[test]
    fn a_batch_of_no_records_packs_and_does_not_pad() {
        let batch = RaggedBatch::<f32, _>::new([2], vec![0], vec![]).unwrap();
        let format = Candle(Device::Cpu).packed();
        let packed: PackedTensor = conformance::converted(&format, batch.clone());
        assert_eq!((packed.values.dims(), packed.cu_seqlens.dims(), packed.max_seqlen), (&[0, 2][..], &[1][..], 0));
        assert!(matches!(Candle(Device::Cpu).padded(0f32).host(batch), Err(Error::Invalid { what: "batch", .. })));
    }

    proptest! {
        #[test]
        fn ragged_records_come_out_packed_and_padded(
            records in proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..9), 1..12),
        ) {
            let offsets = std::iter::once(0).chain(records.iter().scan(0, |end, record| {
                *end += record.len() as u64;
                Some(*end)
            }));
            let batch = RaggedBatch::new((), offsets.collect(), records.concat()).unwrap();
            let longest = records.iter().map(Vec::len).max().unwrap();

            let format = Candle(Device::Cpu).padded(7u32);
            let padded: PaddedTensor = conformance::converted(&format, batch.clone());
            let filled = |value: fn(u32) -> u32, fill| -> Vec<u32> {
                let record = |record: &Vec<u32>| {
                    let mut record: Vec<_> = record.iter().map(|kept| value(*kept)).collect();
                    record.resize(longest, fill);
                    record
                };
                records.iter().flat_map(record).collect()
            };
            prop_assert_eq!(padded.values.dims(), [records.len(), longest]);
            prop_assert_eq!(padded.mask.dims(), [records.len(), longest]);
            prop_assert_eq!(slice(&padded.values, <[u32]>::to_vec), filled(|value| value, 7));
            let mask: Vec<u32> = slice(&padded.mask, |mask: &[u8]| mask.iter().map(|&kept| kept.into()).collect());
            prop_assert_eq!(mask, filled(|_| 1, 0));

            let (address, offsets) = (batch.values().as_ptr(), batch.offsets().to_vec());
            let format = Candle(Device::Cpu).packed();
            let packed: PackedTensor = conformance::converted(&format, batch);
            prop_assert_eq!(slice(&packed.values, <[u32]>::to_vec), records.concat());
            prop_assert!(slice(&packed.values, |values: &[u32]| values.as_ptr()) == address, "the vector moves");
            let starts: Vec<u64> = slice(&packed.cu_seqlens, |all: &[u32]| all.iter().map(|&at| at.into()).collect());
            prop_assert_eq!(starts, offsets);
            prop_assert_eq!(packed.max_seqlen, longest);
        }
    }
}
