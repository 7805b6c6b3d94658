//! A permutation of `0..len` that costs the same at every place and holds nothing the size of the data.

use std::ops::Range;

use super::hash::{Purpose, Words, scale, threshold};

/// Up to this length a permutation is a table, shuffled when it is made.
const TABLE: usize = 256;

/// Rounds of the Feistel network.
const ROUNDS: usize = 8;

/// How many places go through the network side by side: plain loops over arrays of this length become vector
/// instructions, whichever the target has. It is less than `columns` ever is.
const LANES: usize = 8;

/// One permutation of `0..len`: what a cycle or a shuffled pass reads.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    order: Order,
}

#[derive(Debug, Clone)]
enum Order {
    Table([u8; TABLE]),
    Feistel(Feistel),
}

impl Permutation {
    /// The permutation of (seed, cycle). `len` is not 0.
    pub(crate) fn new(len: u64, seed: u64, cycle: u64) -> Self {
        let words = Words::new(Purpose::Permutation, seed, cycle);
        let order = if len <= TABLE as u64 {
            Order::Table(shuffled(len as usize, words))
        } else {
            Order::Feistel(Feistel::new(len, words))
        };
        Self { order }
    }

    /// Appends the images of `positions`, which lie in `0..len`, to `out`.
    pub(crate) fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        match &self.order {
            Order::Table(table) => {
                out.extend(
                    table[positions.start as usize..positions.end as usize].iter().map(|&index| u64::from(index)),
                );
            }
            Order::Feistel(network) => network.extend(positions, out),
        }
    }
}

/// Fisher and Yates: each of the `len!` orders is as likely as the words are uniform.
fn shuffled(len: usize, words: Words) -> [u8; TABLE] {
    let mut table: [u8; TABLE] = std::array::from_fn(|index| index as u8);
    let mut counter = 0;
    for last in (1..len).rev() {
        let choices = last as u64 + 1;
        let chosen = loop {
            let word = words.at(counter);
            counter += 1;
            if let Some(chosen) = scale(word, choices, threshold(choices)) {
                break chosen as usize;
            }
        };
        table.swap(last, chosen);
    }
    table
}

/// A generalised Feistel network (Black and Rogaway 2002) over `rows * columns` places, the least rectangle near a
/// square that holds `len`: a round adds a keyed hash of one coordinate to the other one, modulo its extent. Fewer than
/// `rows` images lie past `len`; those go through the network again until they do not.
#[derive(Debug, Clone)]
struct Feistel {
    len: u64,
    /// The extents less one, so that they fit 32 bits at every length.
    last_row: u32,
    last_column: u32,
    keys: [[u32; 2]; ROUNDS],
}

impl Feistel {
    fn new(len: u64, words: Words) -> Self {
        let rows = (len - 1).isqrt() + 1;
        let columns = len.div_ceil(rows);
        let keys = std::array::from_fn(|round| {
            let word = words.at(round as u64);
            [word as u32, (word >> 32) as u32]
        });
        Self { len, last_row: (rows - 1) as u32, last_column: (columns - 1) as u32, keys }
    }

    fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let columns = u64::from(self.last_column) + 1;
        let mut row = positions.start / columns;
        let mut column = positions.start % columns;
        let mut left = positions.end.saturating_sub(positions.start);
        while left > 0 {
            let mut rows = [row; LANES];
            let mut cols: [u64; LANES] = std::array::from_fn(|lane| column + lane as u64);
            for lane in 0..LANES {
                let over = u64::from(cols[lane] >= columns);
                rows[lane] += over;
                cols[lane] -= over * columns;
            }
            let mut images = self.images(rows, cols);
            let count = left.min(LANES as u64) as usize;
            for image in &mut images[..count] {
                while *image >= self.len {
                    *image = self.images([*image / columns], [*image % columns])[0];
                }
            }
            out.extend_from_slice(&images[..count]);
            left -= count as u64;
            column += LANES as u64;
            if column >= columns {
                column -= columns;
                row += 1;
            }
        }
    }

    /// Sends places, each a row and a column, through the network once. Lanes past the rectangle give numbers without
    /// meaning, hence the wrapping sums.
    #[inline]
    fn images<const N: usize>(&self, mut rows: [u64; N], mut columns: [u64; N]) -> [u64; N] {
        for pair in self.keys.chunks_exact(2) {
            for lane in 0..N {
                rows[lane] = add(rows[lane], columns[lane], pair[0], self.last_row);
            }
            for lane in 0..N {
                columns[lane] = add(columns[lane], rows[lane], pair[1], self.last_column);
            }
        }
        let mut images = [0; N];
        for lane in 0..N {
            images[lane] =
                (low(rows[lane]) * u64::from(self.last_column)).wrapping_add(rows[lane]).wrapping_add(columns[lane]);
        }
        images
    }
}

/// `(to + hash(from)) mod (last + 1)`. Every product is of two 32-bit numbers, which is what vector units multiply.
#[inline(always)]
fn add(to: u64, from: u64, key: [u32; 2], last: u32) -> u64 {
    let product = low(from ^ u64::from(key[0])) * 0xed5a_d4bb;
    let folded = product ^ (product >> 32) ^ u64::from(key[1]);
    let hash = low(low(folded) * 0xac4c_1b51);
    let amount = (hash * u64::from(last) + hash) >> 32;
    let sum = to + amount;
    let wrapped = sum.wrapping_sub(u64::from(last) + 1);
    // `sum` where it is within the extent (`wrapped` is negative then), else `wrapped`.
    wrapped.wrapping_add((u64::from(last) + 1) & ((wrapped as i64 >> 63) as u64))
}

#[inline(always)]
fn low(x: u64) -> u64 {
    x & 0xffff_ffff
}
