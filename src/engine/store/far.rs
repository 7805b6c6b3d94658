//! Chunk files that are not on this disk: their bytes come near in blocks, which are mapped.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::format::Entry;
use super::map::Map;
use crate::error::Result;

/// One block of a chunk file: the one that begins at `number` times the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId {
    pub(crate) chunk: u16,
    pub(crate) number: u32,
}

/// A block that is mapped.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) map: Map,
    /// The part of the chunk that it was found to be right for: records there need no more than is done for local ones.
    /// Unset until the checksums of the records in it were compared, and empty where one differs.
    pub(super) checked: OnceLock<Range<u64>>,
}

impl Block {
    #[cfg(feature = "remote")]
    pub(crate) fn new(map: Map) -> Block {
        Block { map, checked: OnceLock::new() }
    }
}

/// The blocks of a chunk, by number.
type Blocks = Vec<Option<Arc<Block>>>;

/// Blocks that are near: a view that stays as it is while it is held.
#[derive(Debug, Clone)]
pub(crate) struct Near {
    /// The bytes of a block, as a power of two.
    shift: u32,
    chunks: Vec<Option<Arc<Blocks>>>,
}

impl Near {
    #[cfg(feature = "remote")]
    pub(crate) fn new(shift: u32) -> Near {
        Near { shift, chunks: Vec::new() }
    }

    pub(crate) fn get(&self, id: BlockId) -> Option<&Arc<Block>> {
        self.chunks.get(usize::from(id.chunk))?.as_ref()?.get(id.number as usize)?.as_ref()
    }

    /// Puts a block there, or takes it away.
    #[cfg(feature = "remote")]
    pub(crate) fn set(&mut self, id: BlockId, block: Option<Arc<Block>>) {
        let (chunk, number) = (usize::from(id.chunk), id.number as usize);
        if self.chunks.len() <= chunk {
            self.chunks.resize(chunk + 1, None);
        }
        let blocks = Arc::make_mut(self.chunks[chunk].get_or_insert_default());
        if blocks.len() <= number {
            blocks.resize(number + 1, None);
        }
        blocks[number] = block;
    }

    /// The blocks that an entry's bytes lie in.
    pub(super) fn blocks_of(&self, entry: &Entry) -> impl Iterator<Item = BlockId> + use<> {
        self.blocks_in(entry.chunk, u64::from(entry.offset)..entry.end())
    }

    /// The blocks that a part of a chunk lies in, which may not all be there.
    pub(super) fn blocks_in(&self, chunk: u16, part: Range<u64>) -> impl Iterator<Item = BlockId> + use<> {
        let range = if part.is_empty() { 0..0 } else { part.start >> self.shift..((part.end - 1) >> self.shift) + 1 };
        range.map(move |number| BlockId { chunk, number: number as u32 })
    }

    /// Where the record with that entry lies, if it is wholly within one block, and nothing is to be checked.
    #[inline]
    pub(super) fn find(&self, entry: &Entry) -> Option<(&Map, u64)> {
        let number = entry.offset >> self.shift;
        let block = self.get(BlockId { chunk: entry.chunk, number })?;
        let checked = block.checked.get()?;
        let (begin, end) = (u64::from(entry.offset), entry.end());
        let within = begin < end && checked.start <= begin && end <= checked.end;
        within.then(|| (&block.map, begin - (u64::from(number) << self.shift)))
    }

    /// Where a block begins in its chunk.
    pub(super) fn begin(&self, id: BlockId) -> u64 {
        u64::from(id.number) << self.shift
    }
}

/// Where chunk files are, if not on this disk.
pub(crate) trait Far: fmt::Debug + Send + Sync {
    /// What is near now.
    fn near(&self) -> Arc<Near>;
    /// How many blocks one gather may hold at a time.
    fn at_once(&self) -> usize;
    /// Waits until these blocks, sorted, are near, and gives a view that has them. Blocks that no chunk has are left out.
    fn bring(&self, blocks: &[BlockId]) -> Result<Arc<Near>>;
    /// Begins to bring them near, without waiting; `false` where there is no room for more at the moment.
    fn expect(&self, blocks: &[BlockId]) -> bool;
    /// Brings a block anew, whose bytes were not what a checksum says; `None` where that was done often enough.
    fn renew(&self, block: BlockId) -> Result<Option<Arc<Block>>>;
    /// What was fetched so far.
    #[cfg(feature = "remote")]
    fn stats(&self) -> RemoteStats;
}

/// What a handle has fetched so far: see [`Store::remote_stats`](crate::Store::remote_stats).
#[cfg(feature = "remote")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStats {
    /// Requests for records' bytes that were answered, not counting tries that failed.
    pub requests: u64,
    /// Bytes that they brought.
    pub bytes: u64,
    /// Blocks that gathers needed: each once a gather.
    pub needed: u64,
    /// Those of them that were in the cache, or already on their way.
    pub hits: u64,
    /// Blocks that were fetched another time, since what had come was not what a checksum says.
    pub renewed: u64,
}
