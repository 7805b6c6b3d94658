//! Keys and random words as pure functions: a keyed word at any counter, with no state to carry.

/// The increment of splitmix64's counter, 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64's output function (Steele, Lea and Flood 2014): a bijection in which each bit of `x` moves each bit of
/// the result.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Takes `part` into a key. With either of the two fixed, different values of the other give different results.
fn absorb(state: u64, part: u64) -> u64 {
    mix(state.wrapping_add(GOLDEN) ^ part)
}

/// What words are drawn for. Each purpose has keys of its own, so that equal numbers in two of them mean nothing.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Permutation,
    Iid,
    IidRejected,
    Weighted,
    Similar,
    Mixture,
    Blocks,
}

/// An endless sequence of random words with random access.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    offset: u64,
    key: u64,
}

impl Words {
    /// The sequence of (purpose, seed, number); `number` is a step or a cycle.
    pub(super) fn new(purpose: Purpose, seed: u64, number: u64) -> Self {
        let state = absorb(absorb(0, seed), number);
        Self { offset: absorb(state, 2 * purpose as u64), key: absorb(state, 2 * purpose as u64 + 1) }
    }

    /// The word at `counter`: splitmix64 with a second key between its two multiplications, so that no sequence is a
    /// shifted copy of another one.
    #[inline]
    pub(super) fn at(&self, counter: u64) -> u64 {
        let mut x = self.offset.wrapping_add(counter.wrapping_mul(GOLDEN));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.key;
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// The word scaled to `0..len`, or `None` where it has to be rejected for the result to be uniform (Lemire 2019).
/// `threshold` is [`threshold(len)`](threshold).
#[inline]
pub(super) fn scale(word: u64, len: u64, threshold: u64) -> Option<u64> {
    let product = u128::from(word) * u128::from(len);
    (product as u64 >= threshold).then_some((product >> 64) as u64)
}

/// 2^64 mod `len`: how many of the products that `scale` makes are one too many for some result.
#[inline]
pub(super) fn threshold(len: u64) -> u64 {
    len.wrapping_neg() % len
}

/// 32 bytes for a generator, a pure function of (seed, step, position), unrelated to the indices that are drawn.
pub(crate) fn seed_bytes(seed: u64, step: u64, position: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        // Four chains from starts of their own: 256 bits of state, where one chain would have 64.
        let start = mix(index as u64 + 1);
        word.copy_from_slice(&[seed, step, position].into_iter().fold(start, absorb).to_le_bytes());
    }
    bytes
}
