//! What a loader asks of a store that is read from afar: counted without reading it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::loader::check_shard;
use crate::data::{AnyDataset, Place};
use crate::engine::sampler::{Sampler, Shard};
use crate::error::{Error, Result};

/// The most bytes that are asked for at a time, unless a block has more.
const REQUEST: u64 = 8 << 20;

/// The least and the largest block.
const BLOCKS: Range<u64> = 64 << 10..(64 << 20) + 1;

/// The most steps that are counted unless a number is set.
const STEPS: u64 = 1000;

/// How many places are looked up together.
const AT_ONCE: u64 = 64 << 10;

/// Counts the requests and bytes that a loader's ranks would ask for, from the table of a store alone: no record is read.
///
/// Each chunk file is cut into blocks; the last one ends where the chunk's last record does. A step of a rank needs all
/// blocks that its records touch. Those that are not in its cache are fetched, neighbours of one chunk together, in requests
/// of 8 MiB at most, or of one block. The cache is empty at step 0; after a step, the blocks that were used least recently leave it until the
/// others fit, where those of one step count as used in the order of the chunks.
///
/// | option | default |
/// |---|---|
/// | `world` | 1 |
/// | `block_bytes` | 1 MiB |
/// | `cache_bytes`, of each rank | 1 GiB |
/// | `steps` | one cycle, at most 1000 |
///
/// ```
/// use loaderx::{AccessPlan, AnyDataset, DenseDataset, Sampler};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("images");
/// # DenseDataset::<u8, [usize; 1]>::options().codec(loaderx::Codec::Raw).create(&path, [1 << 16])?.append(&vec![7; 64 << 16])?;
/// let images = AnyDataset::open(path)?; // 64 records of 64 KiB: 4 blocks of 1 MiB
/// let sampler = Sampler::block_shuffle(images.len(), 16, 1, 4, 42)?;
/// let access = AccessPlan::new(sampler).cache_bytes(1 << 20).count(&images)?;
/// // Each block is fetched for the first of the four batches that are drawn from it.
/// let total = access.total();
/// assert_eq!((access.steps, total.requests, total.bytes), (16, 4, 4 << 20));
/// assert_eq!(total.hit_rate(), Some(0.75));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct AccessPlan {
    sampler: Sampler,
    world: u64,
    block_bytes: u64,
    cache_bytes: u64,
    steps: Option<u64>,
}

/// What an [`AccessPlan`] counted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// How many steps were counted, from step 0 on.
    pub steps: u64,
    /// What each rank asked for in these steps.
    pub ranks: Vec<Fetched>,
    /// How many records the store holds.
    pub records: u64,
    /// Stored bytes of all records.
    pub stored_bytes: u64,
    /// How many blocks its chunk files have.
    pub blocks: u64,
}

/// What was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fetched {
    /// Blocks that a step needed, added up over the steps.
    pub needed: u64,
    /// Of these, how many the cache held.
    pub found: u64,
    /// Requests for the others.
    pub requests: u64,
    /// Bytes of the others.
    pub bytes: u64,
}

impl Fetched {
    /// The part of the needed blocks that the cache held; `None` where none was needed.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.needed > 0).then(|| self.found as f64 / self.needed as f64)
    }
}

impl Access {
    /// The sum over all ranks.
    pub fn total(&self) -> Fetched {
        self.ranks.iter().fold(Fetched::default(), |sum, rank| Fetched {
            needed: sum.needed + rank.needed,
            found: sum.found + rank.found,
            requests: sum.requests + rank.requests,
            bytes: sum.bytes + rank.bytes,
        })
    }
}

impl AccessPlan {
    /// The records that this sampler draws.
    pub fn new(sampler: Sampler) -> AccessPlan {
        AccessPlan { sampler, world: 1, block_bytes: 1 << 20, cache_bytes: 1 << 30, steps: None }
    }

    /// How many ranks share a batch. It divides the batch size.
    pub fn world(mut self, ranks: u64) -> AccessPlan {
        self.world = ranks;
        self
    }

    /// Bytes of a block: a power of two, 64 KiB to 64 MiB.
    pub fn block_bytes(mut self, bytes: u64) -> AccessPlan {
        self.block_bytes = bytes;
        self
    }

    /// Bytes of the blocks that each rank keeps; with 0 it keeps none.
    pub fn cache_bytes(mut self, bytes: u64) -> AccessPlan {
        self.cache_bytes = bytes;
        self
    }

    /// How many steps are counted, from step 0 on.
    pub fn steps(mut self, steps: u64) -> AccessPlan {
        self.steps = Some(steps);
        self
    }

    /// Counts. Every entry of the table is read once, and those of each batch again.
    ///
    /// # Errors
    /// [`Error::Invalid`] for blocks that are not as described, a world that does not divide the batch size, and a sampler
    /// over more records than there are; [`Error::Corrupt`].
    pub fn count(&self, store: &AnyDataset) -> Result<Access> {
        self.count_places(store.len(), |indices| store.places(indices))
    }

    fn count_places(&self, records: u64, places: impl Fn(&[u64]) -> Result<Vec<Place>>) -> Result<Access> {
        let AccessPlan { ref sampler, world, block_bytes, .. } = *self;
        if !block_bytes.is_power_of_two() || !BLOCKS.contains(&block_bytes) {
            let reason = format!("{block_bytes} bytes are no block: a power of two, from 64 KiB to 64 MiB");
            return Err(Error::invalid("block_bytes", reason));
        }
        check_shard(Shard::new(0, world)?, sampler, sampler.batch_size())?;
        if sampler.len() > records {
            let reason = format!("it draws from {} records, and the store has {records}", sampler.len());
            return Err(Error::invalid("sampler", reason));
        }
        let (mut stored_bytes, mut ends) = (0u64, BTreeMap::<u32, u64>::new());
        for first in (0..records).step_by(AT_ONCE as usize) {
            let indices: Vec<u64> = (first..records.min(first + AT_ONCE)).collect();
            for Place { chunk, offset, stored } in places(&indices)?.into_iter().filter(|place| place.stored > 0) {
                stored_bytes += stored;
                let end = ends.entry(chunk).or_default();
                *end = (*end).max(offset + stored);
            }
        }
        let blocks = ends.values().map(|end| end.div_ceil(block_bytes)).sum();
        let cycle = sampler.steps_per_cycle().unwrap_or_else(|| sampler.len().div_ceil(sampler.batch_size()));
        let steps = self.steps.unwrap_or(cycle.min(STEPS));
        let layout = Layout { block_bytes, ends };
        let mut ranks = Vec::new();
        for rank in 0..world {
            let positions = Shard::new(rank, world)?.range(sampler.batch_len());
            let (mut cache, mut fetched, mut indices) = (Cache::new(self.cache_bytes), Fetched::default(), Vec::new());
            for step in 0..steps {
                sampler.batch_into(step, positions.clone(), &mut indices);
                layout.step(&places(&indices)?, &mut cache, &mut fetched);
            }
            ranks.push(fetched);
        }
        Ok(Access { steps, ranks, records, stored_bytes, blocks })
    }
}

/// The chunk that a block lies in, and its number there.
type Block = (u32, u64);

/// How the chunk files are cut.
struct Layout {
    block_bytes: u64,
    /// Where the last record of each chunk ends.
    ends: BTreeMap<u32, u64>,
}

impl Layout {
    /// Bytes of a block: the last one of a chunk may be short.
    fn bytes(&self, (chunk, number): Block) -> u64 {
        let end = self.ends.get(&chunk).copied().unwrap_or(0);
        end.saturating_sub(number * self.block_bytes).min(self.block_bytes)
    }

    /// The blocks that records at these places touch, in order: ranges that neither overlap nor follow one another.
    fn touched(&self, places: &[Place]) -> Vec<(u32, Range<u64>)> {
        let block = |offset: u64| offset / self.block_bytes;
        let mut ranges: Vec<(u32, Range<u64>)> = places
            .iter()
            .filter(|place| place.stored > 0)
            .map(|place| (place.chunk, block(place.offset)..block(place.offset + place.stored - 1) + 1))
            .collect();
        ranges.sort_unstable_by_key(|(chunk, range)| (*chunk, range.start));
        ranges.dedup_by(|(chunk, range), (before, joined)| {
            let joins = chunk == before && range.start <= joined.end;
            if joins {
                joined.end = joined.end.max(range.end);
            }
            joins
        });
        ranges
    }

    /// Adds what a step with records at these places asks for, and moves the cache on.
    fn step(&self, places: &[Place], cache: &mut Cache, fetched: &mut Fetched) {
        let ranges = self.touched(places);
        for (chunk, range) in &ranges {
            // Blocks that are missing one behind another, and how many of them are one request.
            let (mut missing, most) = (0u64, (REQUEST / self.block_bytes).max(1));
            for number in range.clone() {
                fetched.needed += 1;
                if cache.holds((*chunk, number)) {
                    fetched.found += 1;
                    fetched.requests += missing.div_ceil(most);
                    missing = 0;
                } else {
                    fetched.bytes += self.bytes((*chunk, number));
                    missing += 1;
                }
            }
            fetched.requests += missing.div_ceil(most);
        }
        for (chunk, range) in ranges {
            range.for_each(|number| cache.touch((chunk, number), self.bytes((chunk, number))));
        }
    }
}

/// Blocks, the ones used last.
struct Cache {
    capacity: u64,
    held: u64,
    /// When a block was used, and how many bytes it has; and which block was used when.
    blocks: HashMap<Block, (u64, u64)>,
    uses: BTreeMap<u64, Block>,
    now: u64,
}

impl Cache {
    fn new(capacity: u64) -> Cache {
        Cache { capacity, held: 0, blocks: HashMap::new(), uses: BTreeMap::new(), now: 0 }
    }

    fn holds(&self, block: Block) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Uses a block. What no longer fits goes at once: those that a step uses later are newer still, so it is what would
    /// go at the end of the step.
    fn touch(&mut self, block: Block, bytes: u64) {
        self.now += 1;
        match self.blocks.insert(block, (self.now, bytes)) {
            Some((used, _)) => _ = self.uses.remove(&used),
            None => self.held += bytes,
        }
        self.uses.insert(self.now, block);
        while self.held > self.capacity {
            let Some((_, oldest)) = self.uses.pop_first() else { break };
            self.held -= self.blocks.remove(&oldest).map_or(0, |(_, bytes)| bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::sampler::Mode;

    const BLOCK: u64 = 64 << 10;

    /// Records of up to some blocks, one behind another in chunks of `per_chunk`, with gaps.
    fn places(shapes: &[(u64, u64)], per_chunk: usize) -> Vec<Place> {
        let chunks = (0..).zip(shapes.chunks(per_chunk));
        let placed = chunks.flat_map(|(chunk, shapes)| {
            let mut end = 0;
            shapes.iter().map(move |&(gap, stored)| {
                let offset = end + gap;
                end = offset + stored;
                Place { chunk, offset, stored }
            })
        });
        placed.collect()
    }

    /// The model of the documentation, word by word: sets and lists of blocks.
    fn naive(
        table: &[Place],
        sampler: &Sampler,
        shard: Shard,
        block_bytes: u64,
        cache_bytes: u64,
        steps: u64,
    ) -> Fetched {
        let end = |chunk| table.iter().filter(|p| p.chunk == chunk && p.stored > 0).map(|p| p.offset + p.stored).max();
        let bytes = |(chunk, number): Block| block_bytes.min(end(chunk).unwrap() - number * block_bytes);
        // The one used last stands last.
        let (mut cache, mut fetched) = (Vec::<Block>::new(), Fetched::default());
        for step in 0..steps {
            let mut indices = Vec::new();
            sampler.batch_into(step, shard.range(sampler.batch_len()), &mut indices);
            let mut needed = Vec::new();
            for place in indices.iter().map(|index| table[*index as usize]) {
                let touches = |number: u64| {
                    number * block_bytes < place.offset + place.stored && (number + 1) * block_bytes > place.offset
                };
                needed.extend(
                    (0..end(place.chunk).unwrap_or(0).div_ceil(block_bytes))
                        .filter(|&n| place.stored > 0 && touches(n))
                        .map(|n| (place.chunk, n)),
                );
            }
            needed.sort_unstable();
            needed.dedup();
            let missing: Vec<Block> = needed.iter().filter(|block| !cache.contains(block)).copied().collect();
            fetched.needed += needed.len() as u64;
            fetched.found += (needed.len() - missing.len()) as u64;
            fetched.bytes += missing.iter().map(|block| bytes(*block)).sum::<u64>();
            for run in missing.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
                fetched.requests += (run.len() as u64).div_ceil(((8 << 20) / block_bytes).max(1));
            }
            cache.retain(|block| !needed.contains(block));
            cache.extend(needed);
            while cache.iter().map(|block| bytes(*block)).sum::<u64>() > cache_bytes {
                cache.remove(0);
            }
        }
        fetched
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn what_is_counted_is_what_the_model_asks_for(
            shapes in vec((0..2 * BLOCK, prop_oneof![Just(0), 1..3000_u64, 1..5 * BLOCK]), 1..80),
            per_chunk in 1..40_usize, larger in 0..3_u32, cached in 0..60_u64, odd in 0..BLOCK, share in 1..6_u64,
            world in 1..4_u64, steps in 0..30_u64, seed: u64, mode in 0..3,
        ) {
            let (table, batch) = (places(&shapes, per_chunk), share * world);
            let len = table.len() as u64;
            let sampler = match mode {
                0 => Sampler::new(Mode::CyclicCarry, len, batch, seed),
                1 => Sampler::new(Mode::Sequential, len, batch, seed),
                _ => Sampler::block_shuffle(len, 7, 2, batch.min(len), seed),
            }.unwrap();
            let world = if sampler.batch_size() == batch { world } else { 1 };
            let (block_bytes, cache_bytes) = (BLOCK << larger, cached * BLOCK + odd);
            let plan = AccessPlan::new(sampler.clone()).world(world).block_bytes(block_bytes).cache_bytes(cache_bytes).steps(steps);
            let access = plan.count_places(len, |indices| Ok(indices.iter().map(|index| table[*index as usize]).collect())).unwrap();
            for (rank, found) in (0..).zip(&access.ranks) {
                let shard = Shard::new(rank, world).unwrap();
                prop_assert_eq!(*found, naive(&table, &sampler, shard, block_bytes, cache_bytes, steps));
            }
            prop_assert_eq!(access.ranks.len() as u64, world);
            prop_assert_eq!(access.stored_bytes, table.iter().map(|place| place.stored).sum::<u64>());
        }
    }

    #[test]
    fn long_runs_are_several_requests_and_what_does_not_fit_is_not_kept() {
        let table = [Place { chunk: 0, offset: 5, stored: 20 << 20 }, Place { chunk: 1, offset: 0, stored: 1 }];
        let plan = AccessPlan::new(Sampler::new(Mode::Sequential, 2, 2, 1).unwrap());
        let count =
            |plan: AccessPlan| plan.count_places(2, |indices| Ok(indices.iter().map(|i| table[*i as usize]).collect()));
        let access = count(plan.clone().steps(2)).unwrap();
        let bytes = (20 << 20) + 5 + 1;
        assert_eq!(access.ranks, [Fetched { needed: 44, found: 22, requests: 4, bytes }]);
        assert_eq!(access.blocks, 22);
        let access = count(plan.clone().block_bytes(64 << 20).cache_bytes(9).steps(2)).unwrap();
        assert_eq!(access.ranks, [Fetched { needed: 4, found: 1, requests: 3, bytes: 2 * bytes - 1 }]);
        assert_eq!(count(plan.clone()).unwrap().steps, 1);
        for (plan, says) in [
            (plan.clone().block_bytes(100_000), "100000 bytes are no block"),
            (plan.clone().block_bytes(1 << 27), "no block"),
            (plan.clone().block_bytes(0), "no block"),
            (plan.clone().world(0), "0 ranks"),
            (plan.clone().world(3), "3 ranks cannot share a batch of 2"),
            (AccessPlan::new(Sampler::new(Mode::Cyclic, 3, 1, 1).unwrap()), "3 records, and the store has 2"),
        ] {
            let error = count(plan).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
