//! Records lying end to end in one buffer, as `append` and `train_dict` take them.

use std::ops::Range;

use crate::error::{Error, Result};

/// Packed records that were checked: every record lies within `bytes`, and together they cover it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed<'a> {
    pub(super) bytes: &'a [u8],
    layout: Layout<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Layout<'a> {
    /// All of one length.
    Fixed { length: usize, count: usize },
    /// Where each begins and the last one ends.
    Offsets(&'a [u64]),
}

impl<'a> Packed<'a> {
    /// Record `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    pub(super) fn with_offsets(bytes: &'a [u8], offsets: &'a [u64]) -> Result<Packed<'a>> {
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
            return Err(Error::invalid("offsets", "there are none: n records have n + 1 offsets, the first of them 0"));
        };
        if first != 0 || last != bytes.len() as u64 {
            return Err(Error::invalid(
                "offsets",
                format!("they go from {first} to {last}, but the records cover bytes 0 to {}", bytes.len()),
            ));
        }
        if let Some(i) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            let (begin, end) = (offsets[i], offsets[i + 1]);
            return Err(Error::invalid(
                "offsets",
                format!("record {i} begins at {begin} and ends before it, at {end}"),
            ));
        }
        Ok(Packed { bytes, layout: Layout::Offsets(offsets) })
    }

    /// `count` records of `length` bytes.
    pub(super) fn fixed(bytes: &'a [u8], length: usize, count: usize) -> Result<Packed<'a>> {
        if length.checked_mul(count) != Some(bytes.len()) {
            return Err(Error::invalid(
                "records",
                format!("{count} records of {length} bytes do not fill a buffer of {} bytes", bytes.len()),
            ));
        }
        Ok(Packed { bytes, layout: Layout::Fixed { length, count } })
    }

    pub(super) fn len(&self) -> usize {
        match self.layout {
            Layout::Fixed { count, .. } => count,
            Layout::Offsets(offsets) => offsets.len() - 1,
        }
    }

    /// Where record `i` lies in `bytes`.
    pub(super) fn range(&self, i: usize) -> Range<usize> {
        match self.layout {
            Layout::Fixed { length, .. } => i * length..(i + 1) * length,
            Layout::Offsets(offsets) => offsets[i] as usize..offsets[i + 1] as usize,
        }
    }

    pub(super) fn record(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.range(i)]
    }
}
