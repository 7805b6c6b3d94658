//! Records that lie one behind another are found by arithmetic: most tables are read once, and then not again.
//!
//! The table has 16 bytes a record, so that of a million small records the table alone fills the caches, and each entry
//! of a random batch has to come from memory. Where all records of a page of entries are raw, of one length and end to
//! end, one word says where they lie; each entry is checked before that is believed.

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::format::{Entry, MAX_CHUNKS, entry_offset, tag};
use super::map::Map;

/// How many entries a word stands for: 4 KiB of them.
const PAGE: u64 = 256;
/// Of a page that was not looked at yet.
const UNKNOWN: u64 = 0;
/// Of a page of other records.
const IRREGULAR: u64 = 1;
/// The mark of a page whose records follow one another. Below it, from the lowest bit: where its first record begins
/// in the chunk (32 bits), the chunk (12), the length of a record (18).
const RUN: u64 = 1 << 63;
const CHUNK_BITS: u32 = 12;
const LENGTH_BITS: u32 = 18;

/// What one reading handle knows of the table's pages. It holds while the header is the one that it was when the store
/// was opened: no other handle of this crate deletes or compacts meanwhile, and a program that takes no locks moves
/// the header when it does.
#[derive(Debug)]
pub(super) struct Runs {
    header: [u64; 2],
    /// The header was another one once.
    void: AtomicBool,
    pages: Box<[AtomicU64]>,
}

impl Runs {
    /// Knows nothing yet of the first `len` entries of `table`.
    pub(super) fn new(table: &Map, len: u64) -> Option<Runs> {
        let pages = iter::repeat_with(|| AtomicU64::new(UNKNOWN)).take((len / PAGE) as usize).collect();
        Some(Runs { header: table.words(0)?, void: AtomicBool::new(false), pages })
    }

    /// Whether what is known still holds.
    pub(super) fn hold(&self, table: &Map) -> bool {
        if self.void.load(Ordering::Relaxed) {
            return false;
        }
        let same = table.words(0) == Some(self.header);
        if !same {
            self.void.store(true, Ordering::Relaxed);
        }
        same
    }

    /// The words of an entry, where they follow from the page it stands in.
    #[inline(always)]
    pub(super) fn words(&self, table: &Map, index: u64) -> Option<[u64; 2]> {
        let page = self.pages.get((index / PAGE) as usize)?;
        let mut known = page.load(Ordering::Relaxed);
        if known == UNKNOWN {
            known = look(table, index / PAGE);
            page.store(known, Ordering::Relaxed);
        }
        if known & RUN == 0 {
            return None;
        }
        let chunk = known >> 32 & ((1 << CHUNK_BITS) - 1);
        let length = known >> (32 + CHUNK_BITS) & ((1 << LENGTH_BITS) - 1);
        let offset = (known & u64::from(u32::MAX)) + index % PAGE * length;
        Some([offset | length << 32, length | chunk << 32])
    }
}

/// What the word of a page is, from all of its entries.
#[cold]
fn look(table: &Map, page: u64) -> u64 {
    let entry = |i: u64| table.words(entry_offset(page * PAGE + i)).map(Entry::from_words);
    let Some(first) = entry(0) else { return IRREGULAR };
    let end = u64::from(first.offset) + PAGE * u64::from(first.length);
    if !first.is_sound() || first.tag != tag::RAW || first.length >= 1 << LENGTH_BITS || end > u64::from(u32::MAX) {
        return IRREGULAR;
    }
    const { assert!(MAX_CHUNKS <= 1 << CHUNK_BITS) };
    let follows = |i: u64| {
        let offset = first.offset + i as u32 * first.length;
        entry(i) == Some(Entry { offset, ..first })
    };
    if !(1..PAGE).all(follows) {
        return IRREGULAR;
    }
    RUN | u64::from(first.offset) | u64::from(first.chunk) << 32 | u64::from(first.length) << (32 + CHUNK_BITS)
}
