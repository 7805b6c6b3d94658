//! Each index drawn uniformly from `0..len`, with replacement.

use std::ops::Range;

use super::hash::{Purpose, Words, scale, threshold};

/// How many pairs of indices are drawn side by side.
const PAIRS: usize = 8;

/// The draws of one step. The index at a position is a function of (len, seed, step, position) alone.
pub(super) struct Draws {
    len: u64,
    seed: u64,
    step: u64,
    words: Words,
}

impl Draws {
    pub(super) fn new(len: u64, seed: u64, step: u64) -> Self {
        Self { len, seed, step, words: Words::new(Purpose::Iid, seed, step) }
    }

    /// Appends the indices at `positions`, which lie below 2^32.
    pub(super) fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        if self.len <= 1 << 32 {
            self.extend_halves(positions, out);
        } else {
            let threshold = threshold(self.len);
            out.extend(positions.map(|position| {
                scale(self.words.at(position), self.len, threshold).unwrap_or_else(|| self.draw_again(position))
            }));
        }
    }

    /// Half a word is enough for an index: position `p` has half `p % 2` of word `p / 2`.
    fn extend_halves(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let threshold = ((1 << 32) % self.len) as u32;
        let product = |position: u64| (self.words.at(position / 2) >> (position % 2 * 32) & 0xffff_ffff) * self.len;
        let mut first = positions.start & !1;
        // The first pair may begin before the range.
        let mut skipped = (positions.start - first) as usize;
        while first < positions.end {
            let mut indices = [0; 2 * PAIRS];
            let mut rejected = false;
            for pair in 0..PAIRS {
                let word = self.words.at(first / 2 + pair as u64);
                let products = [(word & 0xffff_ffff) * self.len, (word >> 32) * self.len];
                for half in 0..2 {
                    indices[2 * pair + half] = products[half] >> 32;
                    rejected |= (products[half] as u32) < threshold;
                }
            }
            let count = (positions.end - first).min(2 * PAIRS as u64) as usize;
            if rejected {
                for (position, index) in (first..).zip(&mut indices[..count]) {
                    if (product(position) as u32) < threshold {
                        *index = self.draw_again(position);
                    }
                }
            }
            out.extend_from_slice(&indices[skipped..count]);
            skipped = 0;
            first += count as u64;
        }
    }

    /// The index at a position whose own word was rejected, from words that no other position reads.
    #[cold]
    fn draw_again(&self, position: u64) -> u64 {
        let words = Words::new(Purpose::IidRejected, self.seed, self.step);
        let threshold = threshold(self.len);
        (0..)
            .find_map(|attempt: u64| scale(words.at(attempt << 32 | position), self.len, threshold))
            .expect("at least half of the words are accepted")
    }
}
