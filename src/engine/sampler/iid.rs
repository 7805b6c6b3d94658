//! Each index drawn uniformly from `0..len`, with replacement.

use std::ops::Range;

use super::hash::{Purpose, Words, scale, threshold};

/// How many words are scaled side by side.
const LANES: usize = 8;

/// The draws of one step. The index at a position is a function of (seed, step, position) alone.
pub(super) struct Draws {
    len: u64,
    words: Words,
    rejected: Words,
}

impl Draws {
    pub(super) fn new(len: u64, seed: u64, step: u64) -> Self {
        Self {
            len,
            words: Words::new(Purpose::Iid, seed, step),
            rejected: Words::new(Purpose::IidRejected, seed, step),
        }
    }

    /// Appends the indices at `positions`, which lie below 2^32.
    pub(super) fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        if self.len <= 1 << 32 {
            self.extend_halves(positions, out);
        } else {
            let threshold = threshold(self.len);
            out.extend(positions.map(|position| {
                scale(self.words.at(position), self.len, threshold).unwrap_or_else(|| self.again(position))
            }));
        }
    }

    /// Half a word suffices for an index: position `p` has the half `p % 2` of word `p / 2`.
    fn extend_halves(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let threshold = (1 << 32) % self.len;
        let mut position = positions.start & !1;
        // The first pair may begin before the range.
        let mut skipped = (positions.start - position) as usize;
        while position < positions.end {
            let mut products = [0; 2 * LANES];
            for lane in 0..LANES {
                let word = self.words.at(position / 2 + lane as u64);
                products[2 * lane] = (word & 0xffff_ffff) * self.len;
                products[2 * lane + 1] = (word >> 32) * self.len;
            }
            let mut indices = products.map(|product| product >> 32);
            let count = (positions.end - position).min(2 * LANES as u64) as usize;
            if products.iter().any(|product| (product & 0xffff_ffff) < threshold) {
                for lane in 0..count {
                    if products[lane] & 0xffff_ffff < threshold {
                        indices[lane] = self.again(position + lane as u64);
                    }
                }
            }
            out.extend_from_slice(&indices[skipped..count]);
            skipped = 0;
            position += count as u64;
        }
    }

    /// The index at a position whose own word was rejected, from words of its own.
    #[cold]
    fn again(&self, position: u64) -> u64 {
        let threshold = threshold(self.len);
        let mut attempt = 0u64;
        loop {
            if let Some(index) = scale(self.rejected.at(attempt << 32 | position), self.len, threshold) {
                return index;
            }
            attempt += 1;
        }
    }
}
