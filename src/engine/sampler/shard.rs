//! Which part of a batch a rank reads.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// One rank of a world: the one that reads part `rank` of the `world` parts of every batch. Rank 0 of 1 by default.
///
/// # Example
///
/// ```
/// use loaderx::Shard;
///
/// let last = Shard::new(3, 4)?;
/// assert_eq!(last.range(256), 192..256);
/// # Ok::<(), loaderx::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Shard {
    rank: u64,
    world: u64,
}

/// What a serialised [`Shard`] claims.
#[derive(Deserialize)]
#[serde(rename = "Shard")]
struct Unchecked {
    rank: u64,
    world: u64,
}

impl TryFrom<Unchecked> for Shard {
    type Error = Error;

    fn try_from(claimed: Unchecked) -> Result<Self> {
        Self::new(claimed.rank, claimed.world)
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, world: 1 }
    }
}

impl Shard {
    /// Rank `rank` of `world` ranks, counted from 0.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] where `rank` is not below `world`.
    pub fn new(rank: u64, world: u64) -> Result<Self> {
        if rank >= world {
            let reason = format!("rank {rank} is not one of {world} ranks: it is to be below the world's size");
            return Err(Error::invalid("shard", reason));
        }
        Ok(Self { rank, world })
    }

    /// Which rank this is, from 0.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> u64 {
        self.world
    }

    /// The positions of this rank in a batch of `batch_len`: contiguous, and over all ranks every position once. The
    /// parts are equal where `world` divides `batch_len`; else they differ by one at most.
    pub fn range(&self, batch_len: u64) -> Range<u64> {
        // rank <= world, so the quotient is at most batch_len.
        let edge = |rank: u64| (u128::from(rank) * u128::from(batch_len) / u128::from(self.world)) as u64;
        edge(self.rank)..edge(self.rank + 1)
    }
}
