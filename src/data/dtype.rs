//! The element types that a dataset may hold, and how NumPy spells them.

use std::fmt;

/// The type of one element of a record, as the store's schema names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE half precision.
    F16,
    /// Brain float: the upper half of an `f32`. NumPy has no name for it and saves it as `<V2`.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

/// In which order the bytes of an element lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// Every type with its short name and NumPy's `dtype.str` of the little-endian form.
const NAMES: [(DType, &str, &str); 13] = [
    (DType::Bool, "bool", "|b1"),
    (DType::I8, "i8", "|i1"),
    (DType::I16, "i16", "<i2"),
    (DType::I32, "i32", "<i4"),
    (DType::I64, "i64", "<i8"),
    (DType::U8, "u8", "|u1"),
    (DType::U16, "u16", "<u2"),
    (DType::U32, "u32", "<u4"),
    (DType::U64, "u64", "<u8"),
    (DType::F16, "f16", "<f2"),
    (DType::BF16, "bf16", "<V2"),
    (DType::F32, "f32", "<f4"),
    (DType::F64, "f64", "<f8"),
];

impl DType {
    /// Bytes an element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// The short name: `"f32"`, `"u8"`, `"bool"`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// NumPy's `dtype.str`, little-endian: `"<f4"`, `"|u1"`, `"|b1"`; `"<V2"` for bf16.
    pub fn numpy(self) -> &'static str {
        self.row().2
    }

    /// The type that NumPy's `dtype.str` names, and its byte order. `<V2` is not taken for bf16 here: only the caller
    /// or the schema knows that.
    pub(crate) fn from_numpy(descr: &str) -> Option<(DType, ByteOrder)> {
        let (order, name) = descr.split_at_checked(1)?;
        let (dtype, ..) = NAMES.iter().find(|(dtype, _, numpy)| *dtype != DType::BF16 && numpy[1..] == *name)?;
        let order = match order {
            "<" | "=" => ByteOrder::Little,
            ">" => ByteOrder::Big,
            "|" if dtype.size() == 1 => ByteOrder::Little,
            _ => return None,
        };
        Some((*dtype, order))
    }

    fn row(self) -> &'static (DType, &'static str, &'static str) {
        // NAMES lists every variant; the test below holds it to that.
        NAMES.iter().find(|row| row.0 == self).unwrap_or(&NAMES[0])
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_named_as_numpy_names_it() {
        use DType::*;
        for dtype in [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64] {
            assert_eq!(dtype.row().0, dtype);
            if dtype != BF16 {
                assert_eq!(DType::from_numpy(dtype.numpy()), Some((dtype, ByteOrder::Little)));
            }
        }
        assert_eq!(DType::from_numpy(">f4"), Some((F32, ByteOrder::Big)));
        for refused in ["", "<", "<V2", "<c8", "<M8[s]", "|O", "<U5", "é4", "|f4"] {
            assert_eq!(DType::from_numpy(refused), None, "{refused}");
        }
    }
}
