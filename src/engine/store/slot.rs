//! Where one record goes: bytes that are not initialised yet. With `map.rs` and a call in `io.rs`, the store's only unsafe code.

use std::mem::MaybeUninit;

use zstd::zstd_safe::WriteBuf;

use crate::error::{Error, Result};

/// A record's place in the destination, to be filled wholly.
pub(super) struct Slot<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    filled: usize,
}

impl<'a> Slot<'a> {
    pub(super) fn new(bytes: &'a mut [MaybeUninit<u8>]) -> Slot<'a> {
        Slot { bytes, filled: 0 }
    }

    /// How many bytes zstd wrote.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }
}

/// The bytes as ones that can be read into: filled with zeros first.
pub(super) fn zeroed(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    bytes.fill(MaybeUninit::new(0));
    // SAFETY: every byte was initialised just now, and MaybeUninit<u8> has the layout of u8.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>(), bytes.len()) }
}

// SAFETY: the pointer has `capacity` writable bytes; `as_slice` covers only the bytes that `filled_until` was told are
// initialised; nothing is reallocated.
unsafe impl WriteBuf for Slot<'_> {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: `filled` bytes are initialised, by the contract of `filled_until`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast::<u8>(), self.filled) }
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().cast::<u8>()
    }

    unsafe fn filled_until(&mut self, n: usize) {
        self.filled = n;
    }
}

/// Appends to `bytes` the `len` bytes that `f` fills: `f` fills all of its slice, or gives an error, and `bytes` is as
/// before then. The memory is never zeroed first.
pub(super) fn extend(
    bytes: &mut Vec<u8>,
    len: u64,
    f: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<()>,
) -> Result<()> {
    let too_much =
        || Error::invalid("indices", format!("the records have {len} bytes together: gather fewer at a time"));
    let len = usize::try_from(len).map_err(|_| too_much())?;
    bytes.try_reserve(len).map_err(|_| too_much())?;
    f(&mut bytes.spare_capacity_mut()[..len])?;
    // SAFETY: `len` bytes are reserved behind those that are there, and `f` has filled them: each gather writes every
    // byte of every record's slot before it returns Ok.
    unsafe { bytes.set_len(bytes.len() + len) };
    Ok(())
}
