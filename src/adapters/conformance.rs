//! What every adapter is held to: shapes, values, types, order, errors, and that the memory which a gather wrote is the
//! memory which the tensor holds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use half::{bf16, f16};

use crate::data::{DenseBatch, DenseDataset, Element, Shape};
use crate::error::Error;
use crate::loader::{Adapter, DataLoader, Format};

/// What a test sees of a framework's array.
pub(super) trait Seen: Sized {
    fn shape(&self) -> Vec<usize>;
    /// The framework's name of the element type.
    fn dtype(&self) -> String;
    /// The elements in order, as [`Sample::text`] writes them.
    fn values(&self) -> Vec<String>;
    /// Where they lie. Burn gives no pointer, but gives up the data of a tensor that nobody else has.
    fn address(self) -> usize;
}

/// An element type with a few values that are unlike, the outermost among them.
pub(super) trait Sample: Element {
    fn samples() -> Vec<Self>;
    fn text(self) -> String;
}

macro_rules! samples {
    ($($type:ty: $samples:expr, $text:expr;)*) => {$(
        impl Sample for $type {
            fn samples() -> Vec<Self> {
                $samples.to_vec()
            }

            fn text(self) -> String {
                let text: fn(Self) -> String = $text;
                text(self)
            }
        }
    )*};
}

samples! {
    bool: [true, false, true], |value| u8::from(value).to_string();
    i8: [i8::MIN, -1, 0, i8::MAX], |value| value.to_string();
    i16: [i16::MIN, -1, 0, i16::MAX], |value| value.to_string();
    i32: [i32::MIN, -1, 0, i32::MAX], |value| value.to_string();
    i64: [i64::MIN, -1, 0, i64::MAX], |value| value.to_string();
    u8: [0, 1, u8::MAX], |value| value.to_string();
    u16: [0, 1, u16::MAX], |value| value.to_string();
    u32: [0, 1, u32::MAX], |value| value.to_string();
    u64: [0, 1, i64::MAX as u64], |value| value.to_string();
    f16: [f16::MIN, f16::MIN_POSITIVE, f16::ZERO, f16::MAX], |value| f64::from(value).to_string();
    bf16: [bf16::MIN, bf16::MIN_POSITIVE, bf16::ZERO, bf16::MAX], |value| f64::from(value).to_string();
    f32: [f32::MIN, f32::MIN_POSITIVE, 0.0, f32::MAX], |value| f64::from(value).to_string();
    f64: [f64::MIN, f64::MIN_POSITIVE, 0.0, f64::MAX], |value| value.to_string();
}

/// Holds an adapter to all of it: for each element type, the framework's name of what comes out, and whether the memory
/// is `moved` or `copied`.
macro_rules! conforms {
    ($format:expr; $($type:ty => $dtype:literal $memory:ident),* $(,)?) => {
        $(conformance::element_type::<$type, _>(&$format, $dtype, conformance::Memory::$memory);)*
        conformance::shape(&$format, ());
        conformance::shape(&$format, [2]);
        conformance::shape(&$format, [2, 3]);
        conformance::shape(&$format, [2, 0, 3]);
        conformance::shape(&$format, [2, 1, 3, 2]);
        conformance::loader($format);
        conformance::errors($format);
    };
}
pub(super) use conforms;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "words of the macro `conforms`")]
pub(super) enum Memory {
    moved,
    #[cfg_attr(not(feature = "candle"), expect(dead_code, reason = "every other framework has all element types"))]
    copied,
}

/// What a format makes of a batch.
pub(super) fn converted<B, F: Format<B>>(format: &F, batch: B) -> F::Out {
    format.finish(format.host(batch).unwrap()).unwrap()
}

pub(super) fn element_type<T: Sample, F>(format: &F, dtype: &str, memory: Memory)
where
    F: Format<DenseBatch<T, [usize; 1]>, Out: Seen>,
{
    let samples = T::samples();
    let values = [&samples[..], &samples[..]].concat();
    let batch = DenseBatch::new(2, [samples.len()], values.clone()).unwrap();
    let address = batch.values().as_ptr() as usize;
    let array = converted(format, batch);
    assert_eq!(array.shape(), [2, samples.len()], "{}", T::DTYPE);
    assert_eq!(array.dtype(), dtype, "{}", T::DTYPE);
    assert_eq!(array.values(), values.into_iter().map(T::text).collect::<Vec<_>>(), "{}", T::DTYPE);
    assert_eq!(array.address() == address, memory == Memory::moved, "{}", T::DTYPE);
}

pub(super) fn shape<S: Shape, F>(format: &F, item_shape: S)
where
    F: Format<DenseBatch<i32, S>, Out: Seen>,
{
    let len: usize = item_shape.dims().iter().product();
    for rows in [0, 1, 3] {
        let values: Vec<_> = (0..(rows * len) as i32).collect();
        let batch = DenseBatch::new(rows, item_shape.clone(), values.clone()).unwrap();
        let shape = batch.shape();
        let array = converted(format, batch);
        assert_eq!(array.shape(), shape.dims());
        assert_eq!(array.values(), values.iter().map(i32::to_string).collect::<Vec<_>>());
    }
}

type Pair = (DenseBatch<u8, [usize; 2]>, DenseBatch<f32, ()>);

/// Images of 2 by 3 pixels and a number each.
fn datasets(root: &Path, len: u8) -> (DenseDataset<u8, [usize; 2]>, DenseDataset<f32, ()>) {
    let images = DenseDataset::open_or_create(root.join("images"), [2, 3]).unwrap();
    let numbers = DenseDataset::open_or_create(root.join("numbers"), ()).unwrap();
    if images.is_empty() {
        images.append(&(0..len).flat_map(|i| [i; 6]).collect::<Vec<_>>()).unwrap();
        numbers.append(&(0..len).map(|i| f32::from(i) / 4.0).collect::<Vec<_>>()).unwrap();
    }
    (images, numbers)
}

/// A tuple of datasets gives a tuple of arrays, in the loader's order, in the memory that the gather wrote.
pub(super) fn loader<F, A: Seen + 'static, B: Seen + 'static>(format: F)
where
    F: Format<DenseBatch<u8, [usize; 2]>, Out = A> + Format<DenseBatch<f32, ()>, Out = B> + Adapter,
{
    let root = tempfile::tempdir().unwrap();
    let native: DataLoader<Pair> = DataLoader::builder(datasets(root.path(), 50)).batch_size(8).build().unwrap();
    let expected: Vec<Pair> = (0..20).map(|step| native.batch(step).unwrap()).collect();
    drop(native);

    let addresses = Arc::new(Mutex::new(BTreeMap::new()));
    let written = addresses.clone();
    let mut loader = DataLoader::builder(datasets(root.path(), 50))
        .batch_size(8)
        .workers(3)
        .map(move |context, (images, numbers)| {
            let at = (images.values().as_ptr() as usize, numbers.values().as_ptr() as usize);
            written.lock().unwrap().insert(context.step(), at);
            Ok((images, numbers))
        })
        .yields(format)
        .build()
        .unwrap();
    for (step, (images, numbers)) in (0..).zip(expected) {
        let (a, b) = loader.next().unwrap().unwrap();
        assert_eq!((a.shape(), b.shape()), (vec![8, 2, 3], vec![8]));
        assert_eq!(a.values(), images.values().iter().map(|value| value.text()).collect::<Vec<_>>());
        assert_eq!(b.values(), numbers.values().iter().map(|value| value.text()).collect::<Vec<_>>());
        assert_eq!((a.address(), b.address()), addresses.lock().unwrap()[&step]);
    }
}

/// A failure reaches the caller at its step, after the arrays before it.
pub(super) fn errors<F>(format: F)
where
    F: Format<DenseBatch<f32, ()>, Out: Seen>,
{
    let root = tempfile::tempdir().unwrap();
    let mut loader = DataLoader::builder(datasets(root.path(), 50).1)
        .batch_size(8)
        .workers(2)
        .map(|context, batch| if context.step() == 3 { Err("no".into()) } else { Ok(batch) })
        .yields(format)
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(loader.next().unwrap().unwrap().shape(), [8]);
    }
    for _ in 0..2 {
        assert!(matches!(loader.next(), Some(Err(Error::Step { step: 3, .. }))));
    }
}
