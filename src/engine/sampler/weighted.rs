//! Each index drawn with a probability of its own, with replacement.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use super::hash::{Purpose, Words};
use crate::error::{Error, Result};

/// Walker's alias table: a draw picks one of `len` equally likely slots, and then one of the two indices in it.
#[derive(Debug)]
pub(super) struct Weighted {
    slots: Vec<Slot>,
    identity: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Below it, the slot's own index is drawn: its share of the slot times 2^64.
    own: u64,
    other: u64,
}

impl Weighted {
    /// The table of these weights, as Vose (1991) builds it.
    pub(super) fn new(weights: &[f64]) -> Result<Weighted> {
        let wrong = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0));
        if let Some(index) = wrong {
            let reason = format!("weight {index} is {}: weights are numbers from 0 up", weights[index]);
            return Err(Error::invalid("weights", reason));
        }
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if largest == 0.0 {
            return Err(Error::invalid("weights", "none is above 0: no record could be drawn"));
        }
        // Relative to the largest, so that no sum overflows.
        let total: f64 = weights.iter().map(|weight| weight / largest).sum();
        let mut share: Vec<f64> = weights.iter().map(|w| w / largest / total * weights.len() as f64).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|&i| share[i] < 1.0);
        let mut slots: Vec<Slot> = (0..weights.len() as u64).map(|i| Slot { own: u64::MAX, other: i }).collect();
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            // As 2^64 is no f64 below it, `as` takes what rounds up to it to the largest u64.
            slots[poor] = Slot { own: (share[poor] * 2f64.powi(64)) as u64, other: rich as u64 };
            share[rich] -= 1.0 - share[poor];
            if share[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        // What is left over was 1 but for rounding, or has no weight at all.
        let heaviest = weights.iter().position(|weight| *weight == largest).unwrap_or(0) as u64;
        for i in small.into_iter().filter(|&i| weights[i] == 0.0) {
            slots[i] = Slot { own: 0, other: heaviest };
        }
        let mut identity = Xxh3::new();
        weights.iter().for_each(|weight| identity.update(&weight.to_bits().to_le_bytes()));
        Ok(Weighted { slots, identity: identity.digest() })
    }

    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    /// What tells these weights from others.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Appends the indices at `positions` of a step.
    pub(super) fn extend(&self, seed: u64, step: u64, positions: Range<u64>, out: &mut Vec<u64>) {
        let words = Words::new(Purpose::Weighted, seed, step);
        out.extend(positions.map(|position| {
            // The product's upper word is the slot, its lower one the place within it.
            let product = u128::from(words.at(position)) * u128::from(self.len());
            let (slot, within) = ((product >> 64) as u64, product as u64);
            let Slot { own, other } = self.slots[slot as usize];
            if within < own { slot } else { other }
        }));
    }
}
