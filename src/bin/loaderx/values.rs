//! The values of a record: its elements as text, a summary of them, and the shortened form in which NumPy prints arrays.

use std::fmt::Write;

use loaderx::{AnyDataset, DType};

/// Arrays of more elements are shortened.
const WHOLE: usize = 100;
/// Elements that are shown at either end of a shortened axis.
const EDGE: usize = 3;

/// An element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
        }
    }

    fn less(self, other: Number) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a < b,
            _ => self.as_f64() < other.as_f64(),
        }
    }

    /// Null for what JSON has no number for.
    pub(crate) fn json(self) -> serde_json::Value {
        match self {
            Number::Int(int) => i64::try_from(int).map_or_else(|_| (int as u64).into(), Into::into),
            Number::Float(float) => float.into(),
        }
    }
}

/// How the elements of a store lie in its records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    pub(crate) dtype: DType,
    big_endian: bool,
}

impl Elements {
    /// Those of a store; raw records are bytes. `None` for a dtype without an element type.
    pub(crate) fn of(store: &AnyDataset) -> Option<Elements> {
        let dtype = if store.kind().is_none() { DType::U8 } else { store.element()? };
        Some(Elements { dtype, big_endian: store.dtype().is_some_and(|dtype| dtype.starts_with('>')) })
    }

    /// One element after the other.
    pub(crate) fn numbers(self, bytes: &[u8]) -> impl Iterator<Item = Number> + '_ {
        bytes.chunks_exact(self.dtype.size()).map(move |element| self.number(element))
    }

    fn number(self, element: &[u8]) -> Number {
        let mut bits = [0; 8];
        let size = element.len().min(8);
        bits[..size].copy_from_slice(&element[..size]);
        if self.big_endian {
            bits[..size].reverse();
        }
        let bits = u64::from_le_bytes(bits);
        match self.dtype {
            DType::I8 => Number::Int((bits as i8).into()),
            DType::I16 => Number::Int((bits as i16).into()),
            DType::I32 => Number::Int((bits as i32).into()),
            DType::I64 => Number::Int((bits as i64).into()),
            DType::F16 => Number::Float(half::f16::from_bits(bits as u16).to_f64()),
            DType::BF16 => Number::Float(half::bf16::from_bits(bits as u16).to_f64()),
            DType::F32 => Number::Float(f32::from_bits(bits as u32).into()),
            DType::F64 => Number::Float(f64::from_bits(bits)),
            _ => Number::Int(bits.into()),
        }
    }

    fn text(self, element: &[u8]) -> String {
        match self.number(element) {
            Number::Int(int) if self.dtype == DType::Bool => if int == 0 { "False" } else { "True" }.into(),
            Number::Int(int) => int.to_string(),
            // The shortest text that stands for the element itself, not for the same number as an f64.
            Number::Float(float) if self.dtype == DType::F64 => format!("{float:?}"),
            Number::Float(float) => format!("{:?}", float as f32),
        }
    }

    /// An array of that shape as NumPy prints it: the ends of long axes alone.
    pub(crate) fn array(self, bytes: &[u8], shape: &[usize]) -> String {
        let size = self.dtype.size();
        let shorten = bytes.len() / size > WHOLE;
        let mut cells = Vec::new();
        self.collect(bytes, shape, shorten, &mut cells);
        let width = cells.iter().map(String::len).max().unwrap_or(0);
        let (mut text, mut cells) = (String::new(), cells.into_iter());
        write_axis(shape, shorten, 0, width, &mut cells, &mut text);
        text
    }

    /// The elements that are shown, in order.
    fn collect(self, bytes: &[u8], shape: &[usize], shorten: bool, cells: &mut Vec<String>) {
        let Some((&len, rest)) = shape.split_first() else {
            cells.push(self.text(bytes));
            return;
        };
        let step = bytes.len().checked_div(len).unwrap_or(0);
        for at in shown(len, shorten).into_iter().flatten() {
            self.collect(&bytes[at * step..(at + 1) * step], rest, shorten, cells);
        }
    }
}

/// The places along an axis that are shown; `None` stands for those that are not.
fn shown(len: usize, shorten: bool) -> Vec<Option<usize>> {
    if shorten && len > 2 * EDGE {
        (0..EDGE).map(Some).chain([None]).chain((len - EDGE..len).map(Some)).collect()
    } else {
        (0..len).map(Some).collect()
    }
}

fn write_axis(
    shape: &[usize],
    shorten: bool,
    depth: usize,
    width: usize,
    cells: &mut impl Iterator<Item = String>,
    text: &mut String,
) {
    let Some((&len, rest)) = shape.split_first() else {
        let _ = write!(text, "{:>width$}", cells.next().unwrap_or_default());
        return;
    };
    text.push('[');
    for (i, at) in shown(len, shorten).into_iter().enumerate() {
        if i > 0 && rest.is_empty() {
            text.push(' ');
        } else if i > 0 {
            let _ = write!(text, "{}{}", "\n".repeat(rest.len().min(2)), " ".repeat(depth + 1));
        }
        match at {
            Some(_) => write_axis(rest, shorten, depth + 1, width, cells, text),
            None => text.push_str("..."),
        }
    }
    text.push(']');
}

/// The smallest and the largest element, and the mean; NaN counts for nothing but itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) min: Number,
    pub(crate) max: Number,
    pub(crate) mean: f64,
    pub(crate) nan: u64,
}

impl Summary {
    /// `None` where there is no element but NaN.
    pub(crate) fn of(numbers: impl Iterator<Item = Number>) -> Option<Summary> {
        let mut found: Option<(Number, Number)> = None;
        let (mut sum, mut count, mut nan) = (0.0, 0u64, 0);
        for number in numbers {
            if number.as_f64().is_nan() {
                nan += 1;
                continue;
            }
            found = Some(match found {
                None => (number, number),
                Some((min, max)) => {
                    (if number.less(min) { number } else { min }, if max.less(number) { number } else { max })
                }
            });
            sum += number.as_f64();
            count += 1;
        }
        let (min, max) = found?;
        Some(Summary { min, max, mean: sum / count as f64, nan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Elements {
        Elements { dtype: DType::U8, big_endian: false }
    }

    #[test]
    fn arrays_are_printed_as_numpy_prints_them() {
        assert_eq!(bytes().array(&[7], &[]), "7");
        assert_eq!(bytes().array(&[1, 2, 30], &[3]), "[ 1  2 30]");
        assert_eq!(bytes().array(&[1, 2, 3, 4], &[2, 2]), "[[1 2]\n [3 4]]");
        assert_eq!(bytes().array(&[1, 2, 3, 4], &[2, 1, 2]), "[[[1 2]]\n\n [[3 4]]]");
        assert_eq!(bytes().array(&[], &[0]), "[]");
        assert_eq!(bytes().array(&[], &[2, 0]), "[[]\n []]");
        let many: Vec<u8> = (0..200).collect();
        assert_eq!(bytes().array(&many, &[200]), "[  0   1   2 ... 197 198 199]");
        let wide = "[[  0   1   2 ...  17  18  19]\n [ 20";
        assert!(bytes().array(&many, &[10, 20]).starts_with(wide), "{}", bytes().array(&many, &[10, 20]));
        assert!(bytes().array(&many, &[10, 20]).contains("\n ...\n [140"));
    }

    #[test]
    fn elements_of_every_type_are_read_in_either_order() {
        let text = |dtype, big_endian, bytes: &[u8]| Elements { dtype, big_endian }.array(bytes, &[]);
        assert_eq!(text(DType::I16, false, &[0xfe, 0xff]), "-2");
        assert_eq!(text(DType::I16, true, &[0xff, 0xfe]), "-2");
        assert_eq!(text(DType::U64, false, &[0xff; 8]), "18446744073709551615");
        assert_eq!(text(DType::F32, false, &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(text(DType::F64, true, &0.1f64.to_be_bytes()), "0.1");
        assert_eq!(text(DType::F16, false, &half::f16::from_f32(1.5).to_le_bytes()), "1.5");
        assert_eq!(text(DType::BF16, false, &half::bf16::from_f32(-2.0).to_le_bytes()), "-2.0");
        assert_eq!(text(DType::Bool, false, &[1]), "True");
    }

    #[test]
    fn a_summary_is_exact_for_integers_and_leaves_nan_out() {
        let large = [u64::MAX - 1, u64::MAX, u64::MAX - 2].map(|int| Number::Int(int.into()));
        let summary = Summary::of(large.into_iter()).unwrap();
        assert_eq!((summary.min, summary.max), (Number::Int((u64::MAX - 2).into()), Number::Int(u64::MAX.into())));
        let floats = [f64::NAN, 3.0, 1.0].map(Number::Float);
        let summary = Summary::of(floats.into_iter()).unwrap();
        assert_eq!((summary.min, summary.max), (Number::Float(1.0), Number::Float(3.0)));
        assert_eq!((summary.mean, summary.nan), (2.0, 1));
        assert!(Summary::of(floats.into_iter().take(1)).is_none());
    }
}
