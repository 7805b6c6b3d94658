//! Rows out of data in Fortran order, where the values of one element over all rows lie together: a column.

use std::ops::Range;

use super::table::Table;
use crate::error::Result;

/// Bytes of rows that are read at once: the longer the block, the longer the part of a column that one read gives.
pub(super) const BLOCK: u64 = 32 << 20;

/// A column that is no longer than this is read whole, together with those after it, which costs less than a read for
/// the wanted rows of each.
const SHORT_COLUMN: u64 = 4 << 10;

/// Bytes of columns that are held at once.
const TILE: u64 = 512 << 10;

/// Rows that are filled at once, for elements of one byte: their ends stay in the cache from column to column.
const ROWS: usize = 8;

/// Fills `out` with rows of `table` in C order. `read` reads at an offset from the start of the data.
pub(super) fn read_rows(
    table: &Table,
    rows: &Range<u64>,
    buffer: &mut Vec<u8>,
    out: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let size = table.dtype.size() as u64;
    let (elements, column) = (table.row_bytes / size, table.rows * size);
    let (start, wanted) = (rows.start * size, (rows.end - rows.start) * size);
    let short = column <= SHORT_COLUMN;
    let (stride, skip) = if short { (column, start) } else { (wanted, 0) };
    let tile = (TILE / stride).clamp(1, elements);
    for first in (0..elements).step_by(tile as usize) {
        let some = first..elements.min(first + tile);
        buffer.resize(((some.end - some.start) * stride) as usize, 0);
        if short {
            read(first * column, buffer)?;
        } else {
            for (element, values) in some.clone().zip(buffer.chunks_exact_mut(wanted as usize)) {
                read(element * column + start, values)?;
            }
        }
        let places: Vec<usize> = some.map(|element| (c_index(element, &table.item_shape) * size) as usize).collect();
        let values =
            buffer.chunks_exact(stride as usize).map(|column| &column[skip as usize..(skip + wanted) as usize]);
        let columns = values.zip(places.iter().copied());
        let row_bytes = table.row_bytes as usize;
        match size {
            1 => scatter::<1>(columns, out, row_bytes),
            2 => scatter::<2>(columns, out, row_bytes),
            4 => scatter::<4>(columns, out, row_bytes),
            _ => scatter::<8>(columns, out, row_bytes),
        }
    }
    Ok(())
}

/// Where the element that is `index`-th with the first axis fastest comes with the last axis fastest.
fn c_index(mut index: u64, shape: &[u64]) -> u64 {
    let mut stride: u64 = shape.iter().product();
    let mut c_index = 0;
    for dimension in shape {
        stride /= dimension;
        c_index += index % dimension * stride;
        index /= dimension;
    }
    c_index
}

/// Puts the values of columns, of `N` bytes each, into the rows of `out`, at each column's place in a row.
fn scatter<'a, const N: usize>(
    columns: impl Iterator<Item = (&'a [u8], usize)> + Clone,
    out: &mut [u8],
    row_bytes: usize,
) {
    let rows_at_once = ROWS * N;
    for (block, rows) in out.chunks_mut(rows_at_once * row_bytes).enumerate() {
        for (values, place) in columns.clone() {
            let values = &values.as_chunks::<N>().0[block * rows_at_once..];
            for (value, row) in values.iter().zip(rows.chunks_exact_mut(row_bytes)) {
                row[place..place + N].copy_from_slice(value);
            }
        }
    }
}
