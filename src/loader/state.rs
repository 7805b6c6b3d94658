//! Where a loader stands, to go on from there later or elsewhere.

use serde::{Deserialize, Serialize};

use super::stream::StreamPart;
use crate::engine::sampler::Mode;
use crate::error::{Error, Result};

/// Where a loader stands after the batches it handed out so far.
///
/// [`resume`](crate::DataLoaderBuilder::resume) goes on from there, in another process or on another machine, with
/// any number of workers and ranks. It holds a few numbers, and is saved with whatever serde format is at hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoaderState {
    /// The step that goes out next.
    pub step: u64,
    /// The loader's seed.
    pub seed: u64,
    /// The order in which it draws.
    pub mode: Mode,
    /// Records in a global batch.
    pub batch_size: u64,
    /// How many records it draws from: the streams' length when the first of these loaders was built.
    pub len: u64,
    /// What identifies these records, a number for each stream.
    pub fingerprints: Vec<u64>,
}

impl LoaderState {
    /// Refuses options that would draw other records than the loader that saved this state.
    pub(super) fn check_options(&self, mode: Mode, batch_size: u64, seed: u64) -> Result<()> {
        same("mode", format_args!("{:?}", self.mode), format_args!("{mode:?}"))?;
        same("batch size", self.batch_size, batch_size)?;
        same("seed", self.seed, seed)
    }

    /// Refuses streams that are not the ones this state was saved from, or no longer hold what they held.
    pub(super) fn check_streams(&self, parts: &[StreamPart], found: &[u64]) -> Result<()> {
        same("number of streams", self.fingerprints.len(), parts.len())?;
        for ((part, saved), found) in parts.iter().zip(&self.fingerprints).zip(found) {
            if saved != found {
                return refuse(format!(
                    "{} is not what it was, or other data: its first {} records have the fingerprint {saved:016x} in \
                     the state and {found:016x} now, as after a delete or a rewrite",
                    part.label(),
                    self.len,
                ));
            }
        }
        Ok(())
    }

    /// Refuses streams that are shorter than they were. They may have grown.
    pub(super) fn check_lengths(&self, parts: &[StreamPart]) -> Result<()> {
        if self.len == 0 {
            return refuse("it was saved with 0 records, which no loader draws from".to_owned());
        }
        match parts.iter().find(|part| part.len < self.len) {
            Some(part) => {
                refuse(format!("{} had {} records when it was saved and has {} now", part.label(), self.len, part.len))
            }
            None => Ok(()),
        }
    }
}

fn same<V: ToString>(what: &str, saved: V, found: V) -> Result<()> {
    let (saved, found) = (saved.to_string(), found.to_string());
    if saved == found { Ok(()) } else { refuse(format!("the {what} is {saved} in the state and {found} here")) }
}

fn refuse(reason: String) -> Result<()> {
    Err(Error::State { reason })
}
