//! In index order, going round.

/// Appends `count` indices from `place` on, which lies in `0..len`.
pub(super) fn extend(len: u64, mut place: u64, mut count: u64, out: &mut Vec<u64>) {
    while count > 0 {
        let taken = count.min(len - place);
        out.extend(place..place + taken);
        count -= taken;
        place = 0;
    }
}
