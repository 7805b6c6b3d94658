//! What a model saw at a step.

use std::fmt;

use super::context::{record_seed, step_seed};

/// Which records a step draws, for every rank, and with which seeds: see [`DataLoader::explain`](crate::DataLoader::explain).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The step.
    pub step: u64,
    /// What a transform's [`step_seed`](crate::StepContext::step_seed) gives.
    pub seed: [u8; 32],
    /// The records of the global batch, in order.
    pub records: Vec<Drawn>,
}

/// One record of a global batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drawn {
    /// The record's index.
    pub index: u64,
    /// Its position in the global batch.
    pub position: u64,
    /// The rank that gets it.
    pub rank: u64,
    /// Its position in that rank's batch.
    pub local: u64,
    /// What that rank's transform gets from [`seed(local)`](crate::StepContext::seed).
    pub seed: [u8; 32],
}

impl Explanation {
    /// `indices` is the global batch, which `world` ranks share evenly.
    pub(super) fn new(step: u64, seed: u64, world: u64, indices: &[u64]) -> Explanation {
        // A batch that is shared by several ranks is always full, so `world` divides it.
        let share = (indices.len() as u64 / world).max(1);
        let records = (0..).zip(indices).map(|(position, &index)| Drawn {
            index,
            position,
            rank: position / share,
            local: position % share,
            seed: record_seed(seed, step, position),
        });
        Explanation { step, seed: step_seed(seed, step), records: records.collect() }
    }
}

/// A line for the step and one for each rank with its indices.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {} records", self.step, self.records.len())?;
        for record in &self.records {
            if record.local == 0 {
                write!(f, "\nrank {}:", record.rank)?;
            }
            write!(f, " {}", record.index)?;
        }
        Ok(())
    }
}
