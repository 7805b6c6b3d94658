//! What a model saw at a step.

use std::fmt;

use super::context::{record_seed, step_seed};

/// Which records a step draws, for every rank, and with which seeds: see [`DataLoader::explain`](crate::DataLoader::explain).
#[derive(Clone, PartialEq, Eq)]
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
#[derive(Clone, PartialEq, Eq)]
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

/// The seeds in hexadecimal.
impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { step, seed, records } = self;
        let mut shown = f.debug_struct("Explanation");
        shown.field("step", step).field("seed", &Hexadecimal(seed)).field("records", records).finish()
    }
}

/// The seed in hexadecimal.
impl fmt::Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Drawn { index, position, rank, local, seed } = self;
        let mut shown = f.debug_struct("Drawn");
        shown.field("index", index).field("position", position).field("rank", rank).field("local", local);
        shown.field("seed", &Hexadecimal(seed)).finish()
    }
}

struct Hexadecimal<'a>(&'a [u8; 32]);

impl fmt::Debug for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_has_each_seed_as_one_word() {
        let mut explanation = Explanation::new(70, 42, 2, &[5, 9]);
        explanation.seed = [0x0a; 32];
        explanation.records[1].seed = [0xf0; 32];
        assert_eq!(
            format!("{:?}", explanation.records[1]),
            format!("Drawn {{ index: 9, position: 1, rank: 1, local: 0, seed: {} }}", "f0".repeat(32))
        );
        let shown = format!("{explanation:?}");
        let begin = format!("Explanation {{ step: 70, seed: {}, records: [Drawn {{ index: 5,", "0a".repeat(32));
        assert!(shown.starts_with(&begin), "{shown}");
        assert_eq!(explanation.to_string(), "step 70: 2 records\nrank 0: 5\nrank 1: 9");
    }
}
