//! The shape of one record, or of one row of a ragged record.

use std::fmt::Debug;

/// A shape: `()` for a scalar, `[usize; N]` with N from 1 to 5, or `Vec<usize>` for a rank that is known at run time.
///
/// Sealed: these are all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the shape of a record",
    note = "a shape is `()` for scalars, `[usize; N]` with N from 1 to 5, or `Vec<usize>` for any rank"
)]
pub trait Shape: sealed::FromDims + Clone + PartialEq + Debug + Send + Sync + 'static {
    /// The shape with one axis more, in front: that of a batch of such records.
    type WithRows: Shape;

    /// The length of each axis, the outermost first.
    fn dims(&self) -> &[usize];

    /// The shape with an axis of `rows` in front.
    fn with_rows(&self, rows: usize) -> Self::WithRows;
}

pub(crate) mod sealed {
    pub trait FromDims: Sized {
        /// How many axes, `None` where any number will do.
        const RANK: Option<usize>;

        /// The shape with these axes, `None` where the rank is another.
        fn from_dims(dims: &[usize]) -> Option<Self>;
    }
}

use sealed::FromDims;

impl FromDims for () {
    const RANK: Option<usize> = Some(0);

    fn from_dims(dims: &[usize]) -> Option<Self> {
        dims.is_empty().then_some(())
    }
}

impl Shape for () {
    type WithRows = [usize; 1];

    fn dims(&self) -> &[usize] {
        &[]
    }

    fn with_rows(&self, rows: usize) -> [usize; 1] {
        [rows]
    }
}

macro_rules! fixed {
    ($($rank:literal + 1 = $next:literal),*) => {$(
        impl Shape for [usize; $rank] {
            type WithRows = [usize; $next];

            fn dims(&self) -> &[usize] {
                self
            }

            fn with_rows(&self, rows: usize) -> [usize; $next] {
                let mut shape = [rows; $next];
                shape[1..].copy_from_slice(self);
                shape
            }
        }
    )*};
}

impl<const N: usize> FromDims for [usize; N] {
    const RANK: Option<usize> = Some(N);

    fn from_dims(dims: &[usize]) -> Option<Self> {
        dims.try_into().ok()
    }
}

fixed!(1 + 1 = 2, 2 + 1 = 3, 3 + 1 = 4, 4 + 1 = 5);

impl Shape for [usize; 5] {
    type WithRows = Vec<usize>;

    fn dims(&self) -> &[usize] {
        self
    }

    fn with_rows(&self, rows: usize) -> Vec<usize> {
        prepend(rows, self)
    }
}

impl FromDims for Vec<usize> {
    const RANK: Option<usize> = None;

    fn from_dims(dims: &[usize]) -> Option<Self> {
        Some(dims.to_vec())
    }
}

impl Shape for Vec<usize> {
    type WithRows = Vec<usize>;

    fn dims(&self) -> &[usize] {
        self
    }

    fn with_rows(&self, rows: usize) -> Vec<usize> {
        prepend(rows, self)
    }
}

fn prepend(rows: usize, dims: &[usize]) -> Vec<usize> {
    let mut shape = Vec::with_capacity(dims.len() + 1);
    shape.push(rows);
    shape.extend_from_slice(dims);
    shape
}

/// How many elements an array of these axes holds, `None` where the product of the axes that are not 0 does not fit a
/// memory object: every other product over these axes is then safe, ndarray's strides included.
pub(crate) fn elements(dims: &[usize]) -> Option<usize> {
    let product = dims.iter().filter(|&&dim| dim > 0).try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
    isize::try_from(product).ok()?;
    Some(if dims.contains(&0) { 0 } else { product })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<S: Shape>(shape: S, rank: Option<usize>) {
        let dims = shape.dims().to_vec();
        assert_eq!(S::RANK, rank);
        assert_eq!(S::from_dims(&dims), Some(shape.clone()));
        let batched = shape.with_rows(7);
        assert_eq!(batched.dims()[0], 7);
        assert_eq!(batched.dims()[1..], dims);
        if rank.is_some() {
            assert_eq!(S::from_dims(batched.dims()), None, "another rank is not taken");
        }
    }

    #[test]
    fn a_shape_gains_one_axis_in_front() {
        check((), Some(0));
        check([2], Some(1));
        check([2, 3], Some(2));
        check([2, 3, 4], Some(3));
        check([2, 3, 4, 5], Some(4));
        check([2, 3, 4, 5, 6], Some(5));
        check(vec![], None);
        check(vec![2, 3, 4, 5, 6, 7], None);
    }

    #[test]
    fn products_that_overflow_are_none_even_beside_a_zero() {
        assert_eq!(elements(&[]), Some(1));
        assert_eq!(elements(&[28, 28]), Some(784));
        assert_eq!(elements(&[3, 0, 5]), Some(0));
        assert_eq!(elements(&[usize::MAX, 2]), None);
        assert_eq!(elements(&[0, usize::MAX, 2]), None);
        assert_eq!(elements(&[usize::MAX]), None);
    }
}
