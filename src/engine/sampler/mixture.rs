//! Several sources, end to end in one space of indices, each with a share of every batch.
//!
//! Which source a place of the endless sequence belongs to repeats after some batches; within that period Tijdeman's
//! chairman assignment (1980) keeps the count of each source less than one away from its share at every place. A
//! source's own draws follow its own permutations, cycle after cycle, so that each of its records comes once a cycle.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use super::cyclic;
use super::hash::{Purpose, Words};
use super::permutation::Permutation;
use crate::error::{Error, Result};

/// About how many places a period has, unless a batch alone has more.
const PERIOD: u64 = 1 << 14;

#[derive(Debug)]
pub(super) struct Mixture {
    sources: Vec<Source>,
    batch_size: u64,
    /// Batches after which the counts repeat.
    period: u64,
    identity: u64,
}

#[derive(Debug)]
struct Source {
    len: u64,
    /// The index of its first record.
    first: u64,
    /// How many places of a period are its own, in the first batch, the first two, and so on; 0 before all.
    drawn: Vec<u64>,
}

impl Mixture {
    /// Sources of (records, weight), of which none is empty.
    pub(super) fn new(sources: &[(u64, f64)], batch_size: u64) -> Result<Mixture> {
        let invalid = |reason: String| Err(Error::invalid("mixture", reason));
        if let Some(at) = sources.iter().position(|(_, weight)| !(weight.is_finite() && *weight > 0.0)) {
            return invalid(format!("the weight of source {at} is {}: weights are numbers above 0", sources[at].1));
        }
        if let Some(at) = sources.iter().position(|(len, _)| *len == 0) {
            return invalid(format!("source {at} has no records"));
        }
        let period = (PERIOD / batch_size).max(1);
        let places = period * batch_size;
        let shares = shares(sources, places);
        if let Some(at) = shares.iter().position(|share| *share == 0) {
            let weight = sources[at].1;
            return invalid(format!("the weight {weight} of source {at} is less than one record in {places}"));
        }
        let drawn = assign(&shares, batch_size, period);
        let (mut first, mut identity) = (0, Xxh3::new());
        let mut placed = Vec::with_capacity(sources.len());
        for ((&(len, _), share), drawn) in sources.iter().zip(&shares).zip(drawn) {
            placed.push(Source { len, first, drawn });
            first += len;
            identity.update(&len.to_le_bytes());
            identity.update(&share.to_le_bytes());
        }
        Ok(Mixture { sources: placed, batch_size, period, identity: identity.digest() })
    }

    /// What tells these sources and weights from others.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Appends the indices at `positions` of a step.
    pub(super) fn extend(&self, seed: u64, step: u64, positions: Range<u64>, out: &mut Vec<u64>) {
        let (periods, at) = (step / self.period, (step % self.period) as usize);
        let mut batch = Vec::with_capacity(self.batch_size as usize);
        for (number, source) in (0..).zip(&self.sources) {
            let before = source.drawn[at];
            let count = source.drawn[at + 1] - before;
            let a_period = source.drawn[self.period as usize];
            let drawn = u128::from(periods) * u128::from(a_period) + u128::from(before);
            let (cycle, place) = (drawn / u128::from(source.len), drawn % u128::from(source.len));
            let own = Words::new(Purpose::Mixture, seed, number).at(0);
            let begin = batch.len();
            cyclic::extend(source.len, own, cycle as u64, place as u64, count, &mut batch);
            batch[begin..].iter_mut().for_each(|index| *index += source.first);
        }
        // Spread over the batch, so that every rank gets of every source.
        let from = out.len();
        let spread = Words::new(Purpose::Mixture, seed, u64::MAX).at(0);
        Permutation::new(self.batch_size, spread, step).extend(positions, out);
        out[from..].iter_mut().for_each(|place| *place = batch[*place as usize]);
    }
}

/// How many of `places` each source gets: its share, rounded so that they sum up.
fn shares(sources: &[(u64, f64)], places: u64) -> Vec<u64> {
    let largest = sources.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
    let total: f64 = sources.iter().map(|(_, weight)| weight / largest).sum();
    let exact: Vec<f64> = sources.iter().map(|(_, weight)| weight / largest / total * places as f64).collect();
    let mut shares: Vec<u64> = exact.iter().map(|share| *share as u64).collect();
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let missing = places.saturating_sub(shares.iter().sum());
    order.iter().cycle().take(missing as usize).for_each(|&source| shares[source] += 1);
    shares
}

/// For each source, how many places it has had after each batch of a period.
fn assign(shares: &[u64], batch_size: u64, period: u64) -> Vec<Vec<u64>> {
    let places = i128::from(period * batch_size);
    let spread = 2 * shares.len().max(2) as i128 - 2;
    let mut counts = vec![0u64; shares.len()];
    let mut drawn = vec![vec![0]; shares.len()];
    for place in 1..=period * batch_size {
        // How far a source lags behind its share, times `places`.
        let lag = |i: usize| i128::from(place) * i128::from(shares[i]) - i128::from(counts[i]) * places;
        // The one whose turn must come soonest, of those whose turn may come.
        let due = |i: &usize| spread * lag(*i) >= places;
        let later = |a: &usize, b: &usize| {
            let slack = |i: usize| places * (spread - 1) - spread * lag(i);
            (slack(*a) * i128::from(shares[*b])).cmp(&(slack(*b) * i128::from(shares[*a])))
        };
        let next = (0..shares.len()).filter(due).min_by(later);
        let next = next.or_else(|| (0..shares.len()).max_by_key(|&i| lag(i))).unwrap_or(0);
        counts[next] += 1;
        if place.is_multiple_of(batch_size) {
            drawn.iter_mut().zip(&counts).for_each(|(drawn, &count)| drawn.push(count));
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_source_is_a_place_away_from_its_share(weights in vec(0.01..1f64, 1..7), batch_size in 1..300u64) {
            let sources: Vec<_> = weights.iter().map(|weight| (9, *weight)).collect();
            let period = 40;
            let shares = shares(&sources, period * batch_size);
            prop_assert_eq!(shares.iter().sum::<u64>(), period * batch_size);
            for (drawn, share) in assign(&shares, batch_size, period).iter().zip(&shares) {
                prop_assert_eq!(drawn[period as usize], *share);
                for (batch, count) in drawn.iter().enumerate() {
                    let wanted = *share as f64 * batch as f64 / period as f64;
                    prop_assert!((*count as f64 - wanted).abs() < 1.0, "{count} for {wanted} after {batch}");
                }
            }
        }
    }
}
