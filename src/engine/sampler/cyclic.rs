//! A fresh permutation each cycle.

use super::permutation::Permutation;

/// Appends `count` indices from `place` of `cycle` on, running on into the next cycles where it has to. `place` lies in
/// `0..len`.
pub(super) fn extend(len: u64, seed: u64, mut cycle: u64, mut place: u64, mut count: u64, out: &mut Vec<u64>) {
    while count > 0 {
        let taken = count.min(len - place);
        Permutation::new(len, seed, cycle).extend(place..place + taken, out);
        count -= taken;
        cycle = cycle.wrapping_add(1);
        place = 0;
    }
}
