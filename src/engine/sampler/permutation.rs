//! A permutation of `0..len` that costs the same at every place and holds nothing the size of the data.

use std::ops::{Add, Range, Sub};

use super::hash::{Purpose, Words, scale, threshold};

/// Up to this length a permutation is a table, shuffled when it is made.
const TABLE: usize = 256;

/// Up to this length the coordinates of the Feistel network are numbers of 16 bits.
const NARROW: u64 = 1 << 30;

/// Rounds of the Feistel network. The shortest length that it serves shows most: over 77 million neighbours of 257, the
/// distribution of their differences is off by 17 standard deviations after 6 rounds, about 16 times less with every two
/// more, and by nothing that can be seen from 10 on.
const ROUNDS: usize = 12;

/// How many places go through the network side by side: plain loops over arrays of this length become vector
/// instructions, whichever the target has.
const LANES: usize = 32;

/// One permutation of `0..len`: what a cycle or a shuffled pass reads.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    order: Order,
}

#[derive(Debug, Clone)]
enum Order {
    Table([u8; TABLE]),
    Narrow(Feistel<u16>),
    Wide(Feistel<u32>),
}

impl Permutation {
    /// The permutation of (seed, cycle). `len` is 1 to [`LEN_LIMIT`](super::LEN_LIMIT).
    pub(crate) fn new(len: u64, seed: u64, cycle: u64) -> Self {
        let words = Words::new(Purpose::Permutation, seed, cycle);
        let order = if len <= TABLE as u64 {
            Order::Table(shuffled(len as usize, words))
        } else if len <= NARROW {
            Order::Narrow(Feistel::new(len, words))
        } else {
            Order::Wide(Feistel::new(len, words))
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
            Order::Narrow(network) => network.extend(positions, out),
            Order::Wide(network) => network.extend(positions, out),
        }
    }

    /// Puts the image of each position, which lies in `0..len`, in its place.
    pub(super) fn apply(&self, positions: &mut [u64]) {
        match &self.order {
            Order::Table(table) => {
                positions.iter_mut().for_each(|position| *position = u64::from(table[*position as usize]));
            }
            Order::Narrow(network) => network.apply(positions),
            Order::Wide(network) => network.apply(positions),
        }
    }

    /// The position whose image is `image`, which lies in `0..len`.
    pub(super) fn place_of(&self, image: u64) -> u64 {
        match &self.order {
            // Past `len` the table holds its own places, so each image stands in it once.
            Order::Table(table) => table.iter().take_while(|&&other| u64::from(other) != image).count() as u64,
            Order::Narrow(network) => network.place_of(image),
            Order::Wide(network) => network.place_of(image),
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
struct Feistel<C> {
    len: u64,
    rows: C,
    columns: C,
    keys: [[C; 2]; ROUNDS],
}

/// A coordinate of a place. It uses all bits but the top one, so that the sum of two does not overflow.
trait Coordinate: Copy + Ord + From<u16> + Into<u64> + Add<Output = Self> + Sub<Output = Self> {
    /// The low bits of `value`.
    fn truncate(value: u64) -> Self;

    /// `(self + hash(from)) mod extent`, by multiplications that vector units have.
    fn add_hash(self, from: Self, key: [Self; 2], extent: Self) -> Self;

    /// The number of the place at this row: `self * columns + column`.
    fn place(self, column: Self, columns: Self) -> u64;
}

impl Coordinate for u16 {
    #[inline(always)]
    fn truncate(value: u64) -> Self {
        value as u16
    }

    #[inline(always)]
    fn add_hash(self, from: Self, key: [Self; 2], extent: Self) -> Self {
        let high = |a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16;
        let fold = |a: u16, b: u16| a.wrapping_mul(b) ^ high(a, b);
        let hash = fold(fold(from ^ key[0], 0xe9a5), 0xb52d);
        let hash = (hash ^ key[1]).wrapping_mul(0xa3c7);
        let sum = self.wrapping_add(high(hash, extent));
        // The one of the two that did not wrap around.
        sum.min(sum.wrapping_sub(extent))
    }

    #[inline(always)]
    fn place(self, column: Self, columns: Self) -> u64 {
        u64::from(u32::from(self) * u32::from(columns) + u32::from(column))
    }
}

impl Coordinate for u32 {
    #[inline(always)]
    fn truncate(value: u64) -> Self {
        value as u32
    }

    #[inline(always)]
    fn add_hash(self, from: Self, key: [Self; 2], extent: Self) -> Self {
        let product = u64::from(from ^ key[0]) * 0xed5a_d4bb;
        let hash = ((product ^ (product >> 32)) as u32 ^ key[1]).wrapping_mul(0xac4c_1b51);
        let sum = self.wrapping_add(((u64::from(hash) * u64::from(extent)) >> 32) as u32);
        sum.min(sum.wrapping_sub(extent))
    }

    #[inline(always)]
    fn place(self, column: Self, columns: Self) -> u64 {
        u64::from(self) * u64::from(columns) + u64::from(column)
    }
}

impl<C: Coordinate> Feistel<C> {
    fn new(len: u64, words: Words) -> Self {
        let rows = (len - 1).isqrt() + 1;
        let columns = len.div_ceil(rows);
        let keys = std::array::from_fn(|round| {
            let word = words.at(round as u64);
            [C::truncate(word), C::truncate(word >> 32)]
        });
        Self { len, rows: C::truncate(rows), columns: C::truncate(columns), keys }
    }

    fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let mut first = positions.start;
        while first < positions.end {
            let (rows, columns) = self.coordinates(first);
            let mut images = self.images(rows, columns);
            let count = (positions.end - first).min(LANES as u64) as usize;
            if images[..count].iter().any(|image| *image >= self.len) {
                images[..count].iter_mut().for_each(|image| self.walk(image));
            }
            out.extend_from_slice(&images[..count]);
            first += count as u64;
        }
    }

    fn apply(&self, positions: &mut [u64]) {
        let width: u64 = self.columns.into();
        for positions in positions.chunks_mut(LANES) {
            let (mut rows, mut columns) = ([C::from(0); LANES], [C::from(0); LANES]);
            for ((position, row), column) in positions.iter().zip(&mut rows).zip(&mut columns) {
                (*row, *column) = (C::truncate(position / width), C::truncate(position % width));
            }
            let images = self.images(rows, columns);
            positions.copy_from_slice(&images[..positions.len()]);
            positions.iter_mut().filter(|image| **image >= self.len).for_each(|image| self.walk(image));
        }
    }

    /// The place of one image: the rounds backwards, until the place lies in `0..len`.
    fn place_of(&self, mut image: u64) -> u64 {
        let (width, zero): (u64, C) = (self.columns.into(), C::from(0));
        let subtract = |from: C, hash: C, extent: C| if from >= hash { from - hash } else { from + (extent - hash) };
        loop {
            let (mut row, mut column) = (C::truncate(image / width), C::truncate(image % width));
            for pair in self.keys.chunks_exact(2).rev() {
                column = subtract(column, zero.add_hash(row, pair[1], self.columns), self.columns);
                row = subtract(row, zero.add_hash(column, pair[0], self.rows), self.rows);
            }
            image = row.place(column, self.columns);
            if image < self.len {
                return image;
            }
        }
    }

    /// The rows and columns of the places from `first` on.
    #[inline]
    fn coordinates(&self, first: u64) -> ([C; LANES], [C; LANES]) {
        let width: u64 = self.columns.into();
        let mut rows = [C::truncate(first / width); LANES];
        let mut columns = std::array::from_fn(|lane| C::truncate(first % width) + C::from(lane as u16));
        // The narrowest network has 16 columns, so LANES places reach into the second next row at most.
        for _ in 0..2 {
            for lane in 0..LANES {
                if columns[lane] >= self.columns {
                    columns[lane] = columns[lane] - self.columns;
                    rows[lane] = rows[lane] + C::from(1);
                }
            }
        }
        (rows, columns)
    }

    /// Sends an image through the network until it lies in `0..len`.
    #[cold]
    fn walk(&self, image: &mut u64) {
        let width: u64 = self.columns.into();
        while *image >= self.len {
            [*image] = self.images([C::truncate(*image / width)], [C::truncate(*image % width)]);
        }
    }

    /// Sends places, each a row and a column, through the network once.
    #[inline]
    fn images<const N: usize>(&self, mut rows: [C; N], mut columns: [C; N]) -> [u64; N] {
        for pair in self.keys.chunks_exact(2) {
            for lane in 0..N {
                rows[lane] = rows[lane].add_hash(columns[lane], pair[0], self.rows);
            }
            for lane in 0..N {
                columns[lane] = columns[lane].add_hash(rows[lane], pair[1], self.columns);
            }
        }
        std::array::from_fn(|lane| rows[lane].place(columns[lane], self.columns))
    }
}
