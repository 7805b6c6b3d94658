//! Between bytes and values: fresh vectors that are filled before anything reads them. The one file of this room that
//! holds `unsafe`.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::slice;

use super::Element;
use super::dtype::ByteOrder;
use crate::engine::store::{Layout, Store};
use crate::error::{Corruption, Error, Result};

/// Fills `values` with the records at `indices`, each of `record_len` elements. An error leaves it empty.
pub(crate) fn gather_fixed<T: Element>(
    store: &Store,
    indices: &[u64],
    record_len: usize,
    order: ByteOrder,
    values: &mut Vec<T>,
) -> Result<()> {
    let len = indices.len().checked_mul(record_len);
    // SAFETY: `Store::gather_fixed` fills its destination wholly, or fails.
    let filled =
        unsafe { fill(values, len, order, |out| store.gather_fixed(indices, record_len * size_of::<T>(), out)) };
    // A value that is no value lies in a record, so `record_len` is not 0 there.
    filled?.map_or(Ok(()), |bad| Err(bad.error(store, indices[bad.position / record_len])))
}

/// Fills `values` with the records at `indices`, which were looked up as `layout`: whole elements each. An error
/// leaves it empty.
pub(crate) fn gather_located<T: Element>(
    store: &Store,
    indices: &[u64],
    layout: &Layout,
    order: ByteOrder,
    values: &mut Vec<T>,
) -> Result<()> {
    let bytes = layout.offsets.last().copied().unwrap_or(0);
    let len = usize::try_from(bytes).ok().map(|bytes| bytes / size_of::<T>());
    // SAFETY: `Store::gather_located` fills its destination wholly, or fails.
    let filled = unsafe { fill(values, len, order, |out| store.gather_located(layout, out)) };
    filled?.map_or(Ok(()), |bad| {
        let offset = (bad.position * size_of::<T>()) as u64;
        let slot = layout.offsets.partition_point(|&begin| begin <= offset) - 1;
        Err(bad.error(store, indices[slot]))
    })
}

/// The bytes of `values` as a store of that byte order holds them; a copy only for big-endian.
pub(crate) fn to_stored<T: Element>(values: &[T], order: ByteOrder) -> Cow<'_, [u8]> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    match order {
        ByteOrder::Little => Cow::Borrowed(bytes),
        ByteOrder::Big => {
            let mut bytes = bytes.to_vec();
            swap_bytes(&mut bytes, size_of::<T>());
            Cow::Owned(bytes)
        }
    }
}

/// Bits that are no value of the element type.
#[derive(Debug, PartialEq)]
struct Invalid {
    /// Which element.
    position: usize,
    /// What they are.
    found: String,
}

impl Invalid {
    fn error(&self, store: &Store, record: u64) -> Error {
        Error::Corrupt(Box::new(Corruption {
            path: store.path().to_path_buf(),
            record: Some(record),
            expected: "a bool of 0 or 1".into(),
            found: self.found.clone(),
            ..Corruption::default()
        }))
    }
}

/// Makes `values` hold `len` elements whose bytes `write` gives, in that byte order, without zeroing them first.
/// It is empty after an error, and where bits are found that are no value of `T`.
///
/// # Safety
///
/// `write` returns `Ok` only after it has initialised every byte of the slice.
unsafe fn fill<T: Element>(
    values: &mut Vec<T>,
    len: Option<usize>,
    order: ByteOrder,
    write: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<()>,
) -> Result<Option<Invalid>> {
    values.clear();
    let len = len.unwrap_or(usize::MAX);
    if values.try_reserve(len).is_err() {
        return Err(Error::invalid("batch", format!("{len} elements of {} do not fit in memory", T::DTYPE)));
    }
    let spare = &mut values.spare_capacity_mut()[..len];
    let start = spare.as_mut_ptr().cast::<MaybeUninit<u8>>();
    // SAFETY: the spare capacity is one allocation of at least `len` elements, borrowed for as long as this slice, and
    // any byte, padding or none, may be seen as `MaybeUninit<u8>`.
    let raw = unsafe { slice::from_raw_parts_mut(start, size_of_val(spare)) };
    write(raw)?;
    if order == ByteOrder::Big {
        // SAFETY: `write` has initialised every byte.
        swap_bytes(unsafe { raw.assume_init_mut() }, size_of::<T>());
    }
    // SAFETY: `T::Bits` has the size and alignment of `T` and takes any bits, and every byte is initialised.
    let bits = unsafe { slice::from_raw_parts(start.cast::<T::Bits>(), len) };
    // A sum over all, since a loop that may end early is not vectorised.
    if !bits.iter().fold(true, |valid, bits| valid & T::is_valid_bit_pattern(bits)) {
        let position = bits.iter().position(|bits| !T::is_valid_bit_pattern(bits)).unwrap_or(0);
        return Ok(Some(Invalid { position, found: format!("{:?}", bits[position]) }));
    }
    // SAFETY: all `len` elements are initialised, with bits that are values of `T`.
    unsafe { values.set_len(len) };
    Ok(None)
}

/// Reverses the bytes of each element of `size` bytes. As integers, which the compiler vectorises.
pub(crate) fn swap_bytes(bytes: &mut [u8], size: usize) {
    match size {
        2 => bytes.as_chunks_mut().0.iter_mut().for_each(|b| *b = u16::from_ne_bytes(*b).swap_bytes().to_ne_bytes()),
        4 => bytes.as_chunks_mut().0.iter_mut().for_each(|b| *b = u32::from_ne_bytes(*b).swap_bytes().to_ne_bytes()),
        8 => bytes.as_chunks_mut().0.iter_mut().for_each(|b| *b = u64::from_ne_bytes(*b).swap_bytes().to_ne_bytes()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use proptest::prelude::*;

    use super::*;

    fn filled<T: Element>(bytes: &[u8], order: ByteOrder, values: &mut Vec<T>) -> Result<Option<Invalid>> {
        let len = bytes.len() / size_of::<T>();
        // SAFETY: every byte is written.
        unsafe {
            fill(values, Some(len), order, |out| {
                assert_eq!(out.len(), bytes.len());
                out.write_copy_of_slice(bytes);
                Ok(())
            })
        }
    }

    fn round_trip<T: Element>(values: &[T]) {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut read = vec![T::default(); 3];
            assert_eq!(filled(&to_stored(values, order), order, &mut read).unwrap(), None);
            assert_eq!(bytemuck::cast_slice::<T, u8>(&read), bytemuck::cast_slice::<T, u8>(values));
        }
    }

    proptest! {
        #[test]
        fn values_return_from_either_byte_order(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            round_trip(&bytes);
            round_trip(&bytes.iter().map(|&b| b > 9).collect::<Vec<_>>());
            let words: Vec<u64> = bytes.iter().map(|&b| u64::from(b).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            round_trip(&words);
            round_trip(&words.iter().map(|&w| w as i16).collect::<Vec<_>>());
            round_trip(&words.iter().map(|&w| f32::from_bits(w as u32)).collect::<Vec<_>>());
            round_trip(&words.iter().map(|&w| f64::from_bits(w)).collect::<Vec<_>>());
            round_trip(&words.iter().map(|&w| bf16::from_bits(w as u16)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn big_endian_is_big_endian() {
        assert_eq!(*to_stored(&[0x0102_0304u32], ByteOrder::Big), [1, 2, 3, 4]);
        let mut values: Vec<u32> = Vec::new();
        assert_eq!(filled(&[1, 2, 3, 4, 5, 6, 7, 8], ByteOrder::Big, &mut values).unwrap(), None);
        assert_eq!(values, [0x0102_0304, 0x0506_0708]);
    }

    #[test]
    fn a_bool_byte_of_two_is_found_and_leaves_nothing() {
        let mut values = vec![true; 4];
        let found = filled(&[0, 1, 2, 1, 255], ByteOrder::Little, &mut values).unwrap();
        assert_eq!(found, Some(Invalid { position: 2, found: "2".into() }));
        assert!(values.is_empty());
    }

    #[test]
    fn a_gather_that_fails_leaves_nothing() {
        let mut values = vec![7u32; 4];
        // SAFETY: it never returns `Ok`.
        let result = unsafe { fill(&mut values, Some(2), ByteOrder::Little, |_| Err(Error::Cancelled)) };
        assert!(matches!(result, Err(Error::Cancelled)));
        assert!(values.is_empty());
    }

    #[test]
    fn more_than_memory_is_an_error() {
        for len in [None, Some(usize::MAX / 8)] {
            let mut values = vec![7u64];
            // SAFETY: it never returns `Ok`.
            let result = unsafe { fill(&mut values, len, ByteOrder::Little, |_| Err(Error::Cancelled)) };
            assert!(matches!(result, Err(Error::Invalid { what: "batch", .. })));
        }
    }
}
