//! Which records a read means: an index, a range, a list or a mask.

use std::borrow::Cow;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::error::{Error, Result};

/// Records of a dataset, by index (`3`), range (`10..20`, `..`), list (`[0, 5, 2]`, repeats allowed, any order) or mask
/// (one `bool` a record).
///
/// A range must lie within the dataset, and a mask must be as long as it.
///
/// ```
/// use loaderx::DenseDataset;
///
/// # let directory = tempfile::tempdir()?;
/// let labels = DenseDataset::<u8, ()>::create(directory.path().join("labels"), ())?;
/// labels.append(&[10, 11, 12, 13])?;
/// assert_eq!(labels.read(3)?.values(), [13]);
/// assert_eq!(labels.read(1..3)?.values(), [11, 12]);
/// assert_eq!(labels.read([3, 0, 3])?.values(), [13, 10, 13]);
/// assert_eq!(labels.read([true, false, false, true])?.values(), [10, 13]);
/// assert!(labels.read(2..9).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not select records",
    note = "records are selected by a u64, a range of u64, a list of u64 ([u64; N], &[u64], Vec<u64>) \
            or a mask with one bool a record ([bool; N], &[bool], Vec<bool>)"
)]
pub trait Selection {
    /// The indices that are meant, of a dataset of `len` records. The indices of a list are not checked here.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a range that ends past `len`; [`Error::Invalid`] for one that ends before it begins, and for
    /// a mask of another length than `len`.
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>>;
}

impl<S: Selection + ?Sized> Selection for &S {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        (**self).indices(len)
    }
}

impl Selection for u64 {
    fn indices(&self, _len: u64) -> Result<Cow<'_, [u64]>> {
        Ok(Cow::Owned(vec![*self]))
    }
}

impl Selection for Range<u64> {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        range(self.start, self.end, len)
    }
}

impl Selection for RangeInclusive<u64> {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        range(*self.start(), self.end().saturating_add(1), len)
    }
}

impl Selection for RangeFrom<u64> {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        range(self.start, len.max(self.start), len)
    }
}

impl Selection for RangeTo<u64> {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        range(0, self.end, len)
    }
}

impl Selection for RangeToInclusive<u64> {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        range(0, self.end.saturating_add(1), len)
    }
}

impl Selection for RangeFull {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        range(0, len, len)
    }
}

impl Selection for [u64] {
    fn indices(&self, _len: u64) -> Result<Cow<'_, [u64]>> {
        Ok(Cow::Borrowed(self))
    }
}

impl Selection for [bool] {
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        if self.len() as u64 != len {
            return Err(Error::invalid(
                "mask",
                format!("it has {} entries for {len} records: a mask has one entry a record", self.len()),
            ));
        }
        Ok(Cow::Owned(self.iter().zip(0..).filter(|(chosen, _)| **chosen).map(|(_, index)| index).collect()))
    }
}

impl<T, const N: usize> Selection for [T; N]
where
    [T]: Selection,
{
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        self.as_slice().indices(len)
    }
}

impl<T> Selection for Vec<T>
where
    [T]: Selection,
{
    fn indices(&self, len: u64) -> Result<Cow<'_, [u64]>> {
        self.as_slice().indices(len)
    }
}

/// The indices from `start` up to `end`, which all lie below `len`.
fn range<'a>(start: u64, end: u64, len: u64) -> Result<Cow<'a, [u64]>> {
    if start > end {
        return Err(Error::invalid("range", format!("it ends before {end}, but starts at {start}")));
    }
    if end > len {
        return Err(Error::OutOfRange { index: start.max(len), len });
    }
    Ok(Cow::Owned((start..end).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn indices(selection: impl Selection, len: u64) -> Result<Vec<u64>> {
        Ok(selection.indices(len)?.into_owned())
    }

    #[test]
    fn plain_integers_and_every_kind_of_selection() -> Result<()> {
        assert_eq!(indices(3, 5)?, [3]);
        assert_eq!(indices(1..3, 5)?, [1, 2]);
        assert_eq!(indices(1..=3, 5)?, [1, 2, 3]);
        assert_eq!(indices(3.., 5)?, [3, 4]);
        assert_eq!(indices(..2, 5)?, [0, 1]);
        assert_eq!(indices(..=2, 5)?, [0, 1, 2]);
        assert_eq!(indices(.., 5)?, [0, 1, 2, 3, 4]);
        assert_eq!(indices([4, 0, 4], 5)?, [4, 0, 4]);
        assert_eq!(indices(&[4, 0][..], 5)?, [4, 0]);
        let list = vec![4, 0];
        assert_eq!(indices(&list, 5)?, [4, 0]);
        assert_eq!(indices(list, 5)?, [4, 0]);
        assert_eq!(indices([true, false, true], 3)?, [0, 2]);
        assert_eq!(indices(vec![true, false, true], 3)?, [0, 2]);
        assert_eq!(indices(&[true, false, true][..], 3)?, [0, 2]);
        assert_eq!(indices(5.., 5)?, Vec::<u64>::new());
        assert_eq!(indices(5..5, 5)?, Vec::<u64>::new());
        Ok(())
    }

    #[test]
    fn a_mask_of_another_length_is_refused() {
        for mask in [vec![true; 4], vec![true; 6], vec![]] {
            assert!(matches!(indices(mask, 5), Err(Error::Invalid { what: "mask", .. })));
        }
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges)]
    fn ranges_that_leave_the_dataset_are_refused() {
        for (result, index) in [
            (indices(0..6, 5), 5),
            (indices(7..9, 5), 7),
            (indices(0..=u64::MAX, 5), 5),
            (indices(..=5, 5), 5),
            (indices(6.., 5), 6),
            (indices(0..1 << 60, 5), 5),
        ] {
            assert!(matches!(result, Err(Error::OutOfRange { index: i, len: 5 }) if i == index), "{result:?}");
        }
        assert!(matches!(indices(3..2, 5), Err(Error::Invalid { what: "range", .. })));
    }

    proptest! {
        #[test]
        fn ranges_and_masks_agree_with_lists(len in 0u64..40, a in 0u64..50, b in 0u64..50) {
            let plain: Vec<u64> = (a..b).collect();
            match indices(a..b, len) {
                Ok(chosen) => {
                    prop_assert!(a <= b && b <= len);
                    prop_assert_eq!(&chosen, &plain);
                    let mask: Vec<bool> = (0..len).map(|i| (a..b).contains(&i)).collect();
                    prop_assert_eq!(indices(mask, len).unwrap(), plain);
                }
                Err(_) => prop_assert!(a > b || b > len),
            }
        }
    }
}
