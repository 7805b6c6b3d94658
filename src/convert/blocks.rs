//! The records of a store, in blocks of bounded size.

use super::table::BLOCK;
use crate::Records;
use crate::data::AnyDataset;
use crate::error::Result;

/// Records whose lengths are looked up at once.
pub(super) const LENGTHS: usize = 64 << 10;

/// Gathers the records at `indices`, in that order, as many at a time as have some MiB together, and gives each block to
/// `each` with its indices.
pub(super) fn each_block(
    store: &AnyDataset,
    mut indices: impl Iterator<Item = u64>,
    mut each: impl FnMut(&[u64], &Records) -> Result<()>,
) -> Result<()> {
    let mut records = Records::default();
    loop {
        let some: Vec<u64> = indices.by_ref().take(LENGTHS).collect();
        if some.is_empty() {
            return Ok(());
        }
        let (mut begin, mut bytes) = (0, 0);
        for (at, length) in store.lengths(&some)?.into_iter().enumerate() {
            if bytes + length > BLOCK && at > begin {
                store.gather_into(&some[begin..at], &mut records)?;
                each(&some[begin..at], &records)?;
                (begin, bytes) = (at, 0);
            }
            bytes += length;
        }
        store.gather_into(&some[begin..], &mut records)?;
        each(&some[begin..], &records)?;
    }
}
