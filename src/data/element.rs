//! The Rust types that stand for a store's element types.

use std::fmt::Debug;

use half::{bf16, f16};

use super::DType;

/// A type of element: `bool`, `i8` to `i64`, `u8` to `u64`, [`f16`](half::f16), [`bf16`](half::bf16), `f32`, `f64`.
///
/// Sealed: these are all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of a dataset",
    note = "the element types are bool, i8, i16, i32, i64, u8, u16, u32, u64, half::f16, half::bf16, f32 and f64"
)]
pub trait Element: sealed::Bits + Copy + Default + PartialEq + Debug + Send + Sync + 'static {
    /// Its name in a schema.
    const DTYPE: DType;
}

mod sealed {
    /// What `buffer` builds on: no padding, and a check for which bits are a value.
    pub trait Bits: bytemuck::NoUninit + bytemuck::CheckedBitPattern<Bits: std::fmt::Debug> {}
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Bits for $type {}

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    bool => Bool, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64
}
