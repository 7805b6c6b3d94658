use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const MODES: [Mode; 4] = [Mode::Sequential, Mode::Iid, Mode::Cyclic, Mode::CyclicCarry];

/// Small, odd, around the end of the tables, and around squares.
const LENGTHS: [u64; 17] = [2, 3, 4, 5, 7, 11, 13, 31, 97, 255, 256, 257, 259, 300, 511, 1000, 1021];

fn sampler(mode: Mode, len: u64, batch_size: u64, seed: u64) -> Sampler {
    Sampler::new(mode, len, batch_size, seed).unwrap()
}

fn permutation(len: u64, seed: u64, cycle: u64) -> Vec<u64> {
    images(len, seed, cycle, 0..len)
}

fn images(len: u64, seed: u64, cycle: u64, positions: Range<u64>) -> Vec<u64> {
    let mut out = Vec::new();
    Permutation::new(len, seed, cycle).extend(positions, &mut out);
    out
}

fn is_permutation(order: &[u64]) -> bool {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted.iter().copied().eq(0..order.len() as u64)
}

#[test]
fn a_permutation_goes_anywhere_and_backwards() {
    for len in (1..600).chain([1021, 3600, 3601, 1 << 24, 1 << 30, (1 << 30) + 1, 1 << 40, LEN_LIMIT - 1, LEN_LIMIT]) {
        let permutation = Permutation::new(len, 42, len);
        let mut places: Vec<u64> = [len / 3, len / 2, len - 1].into_iter().chain(0..len.min(600)).collect();
        let (before, one) = (places.clone(), |&place: &u64| images(len, 42, len, place..place + 1));
        let expected: Vec<u64> = places.iter().flat_map(one).collect();
        permutation.apply(&mut places);
        assert_eq!(places, expected, "{len} records");
        let back: Vec<u64> = places.iter().map(|&image| permutation.place_of(image)).collect();
        assert_eq!(back, before, "{len} records");
    }
}

/// Whether `chi_square` is no larger than chance makes it in all but one of 10^4 cases (Wilson and Hilferty 1931).
fn is_plausible(chi_square: f64, freedom: f64) -> bool {
    let variance = 2.0 / (9.0 * freedom);
    ((chi_square / freedom).cbrt() - (1.0 - variance)) / variance.sqrt() < 3.719
}

fn chi_square(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    assert!(expected >= 4.0, "too few draws for {} cells", counts.len());
    counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum()
}

/// Counts how often each of `cells` is drawn, and compares that with equal chances.
fn is_uniform(cells: u64, draws: impl IntoIterator<Item = u64>) -> bool {
    let mut counts = vec![0; cells as usize];
    draws.into_iter().for_each(|cell| counts[cell as usize] += 1);
    cells == 1 || is_plausible(chi_square(&counts), cells as f64 - 1.0)
}

/// In which of `buckets` equal parts of `0..len` an index lies.
fn bucket(index: u64, buckets: u64, len: u64) -> u64 {
    (u128::from(index) * u128::from(buckets) / u128::from(len)) as u64
}

#[test]
fn the_statistics_tell_chance_from_bias() {
    // The quantiles of p = 10^-4.
    for (quantile, freedom) in [(35.564, 10.0), (161.319, 100.0), (1174.9, 1000.0)] {
        assert!(is_plausible(quantile * 0.98, freedom));
        assert!(!is_plausible(quantile * 1.02, freedom));
    }
    assert!(is_uniform(10, (0..100_000).map(|draw| draw % 10)));
    assert!(!is_uniform(10, (0..100_000).map(|draw| draw % 1021 % 10 % 9)));
}

#[test]
fn every_short_permutation_is_a_bijection() {
    for len in (1..=2000).chain([2047, 2048, 2049, 3000, 3481, 3599, 3600, 3601, 4095, 4097, 4999, 5000]) {
        for (seed, cycle) in [(42, len), (len, 0)] {
            assert!(is_permutation(&permutation(len, seed, cycle)), "{len} records, seed {seed}, cycle {cycle}");
        }
    }
}

#[test]
fn long_permutations_stay_in_range_and_repeat_nothing() {
    let narrow = 1 << 30;
    for len in [(1 << 20) + 2000, 1 << 24, narrow, narrow + 1, (1 << 32) + 15, 1 << 40, LEN_LIMIT - 1, LEN_LIMIT] {
        let width = (len - 1).isqrt() + 1;
        let mut positions: Vec<u64> = [0, width - 500, len / 3, len / 2, len - width - 500, len - 4096]
            .into_iter()
            .flat_map(|start| start..start + 4096.min(len - start))
            .collect();
        positions.sort_unstable();
        positions.dedup();
        let mut seen = HashSet::new();
        for position in positions {
            let image = images(len, 7, 3, position..position + 1)[0];
            assert!(image < len, "{len} records, position {position}");
            assert!(seen.insert(image), "{len} records, position {position}");
        }
    }
}

#[test]
fn a_long_permutation_is_a_bijection_as_a_whole() {
    assert!(is_permutation(&permutation((1 << 20) + 2000, 42, 0)));
}

#[test]
fn each_index_lands_everywhere() {
    for len in LENGTHS {
        let permutations = (100_000 / len).max(6 * len);
        let mut counts = vec![0; (len * len) as usize];
        for cycle in 0..permutations {
            for (place, index) in permutation(len, 42, cycle).into_iter().enumerate() {
                counts[place * len as usize + index as usize] += 1;
            }
        }
        // Each row and each column of the table has a fixed sum, which leaves (len - 1)^2 degrees of freedom and
        // stretches the statistic by len / (len - 1).
        let freedom = (len - 1) as f64;
        assert!(is_plausible(chi_square(&counts) * freedom / len as f64, freedom * freedom), "{len} records");
    }
}

#[test]
fn first_elements_and_pairs_are_uniform_over_seeds_and_over_cycles() {
    for len in LENGTHS {
        for seeds in [true, false] {
            let firsts: Vec<[u64; 2]> = (0..100_000)
                .map(|draw| if seeds { (draw, 5) } else { (5, draw) })
                .map(|(seed, cycle)| images(len, seed, cycle, 0..2))
                .map(|pair| [pair[0], pair[1]])
                .collect();
            assert!(is_uniform(len, firsts.iter().map(|pair| pair[0])), "first of {len}");
            assert!(is_uniform(len, firsts.iter().map(|pair| pair[1])), "second of {len}");
            let apart = |pair: &[u64; 2]| (pair[1] + len - pair[0]) % len - 1;
            assert!(is_uniform(len - 1, firsts.iter().map(apart)), "difference of a pair of {len}");
            if len < 100 {
                let pair = |pair: &[u64; 2]| pair[0] * (len - 1) + apart(pair);
                assert!(is_uniform(len * (len - 1), firsts.iter().map(pair)), "pairs of {len}");
            }
        }
    }
}

#[test]
fn neighbours_within_a_permutation_and_between_cycles_are_unrelated() {
    for len in LENGTHS.into_iter().filter(|len| *len > 200) {
        let width = (len - 1).isqrt() + 1;
        for distance in [1, 2, width - 1, width, 2 * width] {
            let orders = (0..400_000 / len + 1).map(|cycle| permutation(len, 9, cycle));
            let apart = orders.flat_map(|order| {
                let pairs = order.iter().zip(&order[distance as usize..]);
                pairs.map(|(a, b)| (b + len - a) % len - 1).collect::<Vec<_>>()
            });
            assert!(is_uniform(len - 1, apart), "{len} records, distance {distance}");
        }
        let moved = (0..200_000 / len + 1).flat_map(|cycle| {
            let next = permutation(len, 9, cycle + 1);
            permutation(len, 9, cycle).into_iter().zip(next).map(|(a, b)| (b + len - a) % len).collect::<Vec<_>>()
        });
        assert!(is_uniform(len, moved), "{len} records, from cycle to cycle");
    }
}

#[test]
fn neighbours_in_long_permutations_are_unrelated() {
    for len in [(1 << 20) + 2000, 999_999_937, 1 << 30, (1 << 30) + 1, (1 << 40) + 7, LEN_LIMIT] {
        let images = images(len, 3, 1, 1000..401_000);
        let pairs = || images.chunks_exact(2);
        assert!(is_uniform(4096, pairs().map(|p| bucket(p[0], 64, len) * 64 + bucket(p[1], 64, len))), "{len}");
        assert!(is_uniform(4096, pairs().map(|p| p[0] % 64 * 64 + p[1] % 64)), "{len}, low bits");
        let apart = pairs().map(|p| bucket((p[1] + len - p[0]) % len, 1000, len));
        assert!(is_uniform(1000, apart), "{len}, differences");
    }
}

#[test]
fn iid_draws_are_uniform_and_unrelated() {
    for len in LENGTHS {
        let draws = sampler(Mode::Iid, len, 200_000, 42).batch(len);
        assert!(is_uniform(len, draws.iter().copied()), "{len} records");
        if len < 100 {
            assert!(is_uniform(len * len, draws.chunks_exact(2).map(|pair| pair[0] * len + pair[1])), "{len} records");
            assert!(is_uniform(len * len, draws[1..].chunks_exact(2).map(|pair| pair[0] * len + pair[1])), "{len}");
        }
        let firsts = (0..100_000).map(|step| sampler(Mode::Iid, len, 1, 42).batch(step)[0]);
        assert!(is_uniform(len, firsts), "first draws of {len}");
    }
}

/// Without the rejection, 3/4 of 2^32 would show in which remainder of 3 an index has.
#[test]
fn iid_draws_have_no_bias_near_a_power_of_two() {
    for len in [3 << 30, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 3 << 33, 3 << 60, LEN_LIMIT - 1] {
        let draws = sampler(Mode::Iid, len, 200_000, 1).batch(0);
        assert!(draws.iter().all(|index| *index < len));
        assert!(is_uniform(3, draws.iter().map(|index| index % 3)), "{len} records, remainders");
        assert!(is_uniform(96, draws.iter().map(|index| bucket(*index, 96, len))), "{len} records, parts");
        let pairs = draws.chunks_exact(2).map(|pair| pair[0] % 3 * 3 + pair[1] % 3);
        assert!(is_uniform(9, pairs), "{len} records, pairs");
    }
}

#[test]
fn seed_bytes_are_uniform_and_differ_in_every_argument() {
    let mut seen = HashSet::new();
    let mut bytes = Vec::new();
    for seed in 0..16 {
        for step in 0..64 {
            for position in 0..32 {
                let drawn = seed_bytes(seed, step, position);
                assert!(seen.insert(drawn), "seed {seed}, step {step}, position {position}");
                bytes.extend(drawn.map(u64::from));
            }
        }
    }
    assert!(is_uniform(256, bytes.iter().copied()));
    assert!(is_uniform(65536, bytes.chunks_exact(2).map(|pair| pair[0] * 256 + pair[1])));
    assert!(is_uniform(256, bytes.chunks_exact(32).map(|drawn| drawn[0])));
}

/// What a mode draws, one index at a time: the model that batches are compared with. Iid has none but its own draws.
fn index_at(sampler: &Sampler, step: u64, position: u64) -> u64 {
    let len = u128::from(sampler.len());
    let running = u128::from(step) * u128::from(sampler.batch_size()) + u128::from(position);
    let shuffled = |cycle: u128, place: u128| {
        let place = place as u64;
        images(sampler.len(), sampler.seed(), cycle as u64, place..place + 1)[0]
    };
    match sampler.mode() {
        Mode::Sequential => (running % len) as u64,
        Mode::Iid => {
            let mut out = Vec::new();
            sampler.batch_into(step, position..position + 1, &mut out);
            out[0]
        }
        Mode::Cyclic => {
            let steps = sampler.steps_per_cycle().unwrap();
            let place = step % steps * sampler.batch_len() + position;
            shuffled(u128::from(step / steps), u128::from(place))
        }
        Mode::CyclicCarry => shuffled(running / len, running % len),
        Mode::Weighted | Mode::SimilarLengths | Mode::Mixture | Mode::BlockShuffle => {
            unreachable!("they have tests of their own")
        }
    }
}

fn any_step() -> impl Strategy<Value = u64> {
    prop_oneof![0..50_u64, Just(1_000_000_000_000), any::<u64>(), u64::MAX - 3..=u64::MAX]
}

fn any_len() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, 200..700_u64, 1..1_u64 << 24, 1..=LEN_LIMIT, Just(LEN_LIMIT)]
}

proptest! {
    #[test]
    fn batches_follow_the_model(
        mode in prop::sample::select(&MODES[..]), len in any_len(), batch_size in 1..200_u64, seed: u64, step in any_step(),
    ) {
        let sampler = sampler(mode, len, batch_size, seed);
        let expected: Vec<u64> = (0..sampler.batch_len()).map(|position| index_at(&sampler, step, position)).collect();
        prop_assert!(expected.iter().all(|index| *index < len));
        prop_assert_eq!(sampler.batch(step), expected);
    }

    #[test]
    fn a_part_of_a_batch_is_that_part_of_the_whole(
        mode in prop::sample::select(&MODES[..]), len in any_len(), batch_size in 1..200_u64, seed: u64, step in any_step(),
        start in 0..250_u64, end in 0..250_u64,
    ) {
        let sampler = sampler(mode, len, batch_size, seed);
        let batch = sampler.batch(step);
        let mut part = vec![99; 7];
        sampler.batch_into(step, start..end, &mut part);
        let expected: Vec<u64> =
            (start..end).filter_map(|position| batch.get(position as usize).copied()).collect();
        prop_assert_eq!(part, expected);
    }

    #[test]
    fn ranks_together_read_the_batch(
        mode in prop::sample::select(&MODES[..]), len in any_len(), batch_size in 1..200_u64, seed: u64, step in any_step(),
        world in prop::sample::select(&[1_u64, 2, 3, 4, 7, 8][..]),
    ) {
        let sampler = sampler(mode, len, batch_size, seed);
        let mut union = Vec::new();
        let mut part = Vec::new();
        for rank in 0..world {
            let range = Shard::new(rank, world).unwrap().range(sampler.batch_len());
            sampler.batch_into(step, range, &mut part);
            prop_assert!(part.len() as u64 >= sampler.batch_len() / world);
            prop_assert!(part.len() as u64 <= sampler.batch_len().div_ceil(world));
            union.append(&mut part);
        }
        prop_assert_eq!(union, sampler.batch(step));
    }

    #[test]
    fn a_cycle_repeats_nothing(len in 1..900_u64, batch_size in 1..900_u64, seed: u64, cycle in 0..u64::MAX / 900) {
        let cyclic = sampler(Mode::Cyclic, len, batch_size, seed);
        let steps = cyclic.steps_per_cycle().unwrap();
        let drawn: Vec<u64> = (cycle * steps..(cycle + 1) * steps).flat_map(|step| cyclic.batch(step)).collect();
        prop_assert_eq!(drawn.len() as u64, if batch_size < len { len - len % batch_size } else { len });
        prop_assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
    }

    #[test]
    fn a_cycle_that_carries_on_shows_every_record_once(len in 1..900_u64, batch_size in 1..900_u64, seed: u64) {
        let carrying = sampler(Mode::CyclicCarry, len, batch_size, seed);
        let drawn: Vec<u64> = (0..(3 * len).div_ceil(batch_size)).flat_map(|step| {
            let batch = carrying.batch(step);
            assert_eq!(batch.len() as u64, batch_size);
            batch
        }).collect();
        for cycle in drawn.chunks_exact(len as usize) {
            prop_assert!(is_permutation(cycle));
        }
    }

    #[test]
    fn parts_of_any_length_join(batch_len: u64, world in 1..2000_u64) {
        let mut end = 0;
        for rank in 0..world {
            let range = Shard::new(rank, world).unwrap().range(batch_len);
            prop_assert_eq!(range.start, end);
            end = range.end;
        }
        prop_assert_eq!(end, batch_len);
    }
}

#[test]
fn no_two_seeds_steps_or_cycles_give_the_same_batch() {
    for mode in [Mode::Iid, Mode::Cyclic, Mode::CyclicCarry] {
        for len in [100, 1_000_000, 1 << 40] {
            let mut seen = HashSet::new();
            for seed in (0..30).chain([u64::MAX, 1 << 63]) {
                for step in (0..30).chain([u64::MAX, 1 << 63]) {
                    assert!(
                        seen.insert(sampler(mode, len, 50, seed).batch(step)),
                        "{mode:?}, seed {seed}, step {step}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_dropped_remainder_differs_from_cycle_to_cycle() {
    let cyclic = sampler(Mode::Cyclic, 1000, 300, 42);
    let drawn: HashSet<u64> = (0..3).flat_map(|step| cyclic.batch(step)).collect();
    let later: HashSet<u64> = (3..30).flat_map(|step| cyclic.batch(step)).collect();
    assert_eq!(drawn.len(), 900);
    assert_eq!(later.len(), 1000);
}

#[test]
fn fewer_records_than_a_batch() {
    let lengths = MODES.map(|mode| sampler(mode, 3, 8, 42).batch(5).len());
    assert_eq!(lengths, [8, 8, 3, 8]);
    assert_eq!(sampler(Mode::Sequential, 3, 8, 42).batch(0), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(sampler(Mode::Cyclic, 3, 8, 42).steps_per_cycle(), Some(1));
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    for (len, batch_size) in [(0, 1), (1, 0), (0, 0), (LEN_LIMIT + 1, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let refused = Sampler::new(Mode::Cyclic, len, batch_size, 0);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{len} records, batch size {batch_size}");
    }
    for (rank, world) in [(0, 0), (1, 1), (5, 4), (u64::MAX, u64::MAX)] {
        assert!(matches!(Shard::new(rank, world), Err(Error::Invalid { .. })), "rank {rank} of {world}");
    }
}

#[test]
fn shards_and_modes_survive_serde_and_no_impossible_shard_does() {
    let shard = Shard::new(2, 3).unwrap();
    let text = serde_json::to_string(&shard).unwrap();
    assert_eq!(text, r#"{"rank":2,"world":3}"#);
    assert_eq!(serde_json::from_str::<Shard>(&text).unwrap(), shard);
    assert!(serde_json::from_str::<Shard>(r#"{"rank":3,"world":3}"#).is_err());
    assert_eq!(Shard::default(), Shard::new(0, 1).unwrap());
    assert_eq!(serde_json::to_string(&MODES).unwrap(), r#"["sequential","iid","cyclic","cyclic_carry"]"#);
}

/// The order is stable for ever: these numbers may not change.
#[test]
fn the_first_indices_stay_as_they_are() {
    let golden = [
        (Mode::Sequential, 10, 0, 0, [0, 1, 2, 3, 4, 5]),
        (Mode::Sequential, 100, 42, 7, [42, 43, 44, 45, 46, 47]),
        (Mode::Sequential, 256, 42, 1, [6, 7, 8, 9, 10, 11]),
        (Mode::Sequential, 257, 42, 0, [0, 1, 2, 3, 4, 5]),
        (Mode::Sequential, 60000, 1, 1000000000000, [0, 1, 2, 3, 4, 5]),
        (Mode::Sequential, 1050576, 42, 3, [18, 19, 20, 21, 22, 23]),
        (Mode::Sequential, 3221225472, u64::MAX, 5, [30, 31, 32, 33, 34, 35]),
        (
            Mode::Sequential,
            1099511627776,
            42,
            u64::MAX,
            [1099511627770, 1099511627771, 1099511627772, 1099511627773, 1099511627774, 1099511627775],
        ),
        (Mode::Iid, 10, 0, 0, [3, 7, 6, 5, 0, 6]),
        (Mode::Iid, 100, 42, 7, [17, 11, 69, 15, 26, 96]),
        (Mode::Iid, 256, 42, 1, [18, 58, 237, 130, 35, 212]),
        (Mode::Iid, 257, 42, 0, [33, 24, 189, 24, 115, 136]),
        (Mode::Iid, 60000, 1, 1000000000000, [47851, 35251, 4728, 31226, 53006, 37122]),
        (Mode::Iid, 1050576, 42, 3, [335965, 176623, 307668, 648207, 427269, 1025087]),
        (Mode::Iid, 3221225472, u64::MAX, 5, [2715463929, 167074190, 2820998099, 113769618, 2460360719, 870421821]),
        (
            Mode::Iid,
            1099511627776,
            42,
            u64::MAX,
            [909827147243, 173885653859, 485060093932, 948397676478, 236506779795, 926652754940],
        ),
        (Mode::Cyclic, 10, 0, 0, [6, 4, 5, 9, 8, 1]),
        (Mode::Cyclic, 100, 42, 7, [65, 54, 98, 87, 23, 64]),
        (Mode::Cyclic, 256, 42, 1, [248, 0, 187, 202, 62, 40]),
        (Mode::Cyclic, 257, 42, 0, [139, 131, 197, 193, 61, 94]),
        (Mode::Cyclic, 60000, 1, 1000000000000, [40016, 22198, 52839, 7573, 15970, 13689]),
        (Mode::Cyclic, 1050576, 42, 3, [345012, 805318, 649482, 872310, 979281, 175004]),
        (Mode::Cyclic, 3221225472, u64::MAX, 5, [1017730932, 1026121970, 64455273, 1680087178, 782499177, 882956557]),
        (
            Mode::Cyclic,
            1099511627776,
            42,
            u64::MAX,
            [984379063089, 259944498053, 961986045016, 216672325118, 295493034278, 1067850279980],
        ),
        (Mode::CyclicCarry, 10, 0, 0, [6, 4, 5, 9, 8, 1]),
        (Mode::CyclicCarry, 100, 42, 7, [65, 54, 98, 87, 23, 64]),
        (Mode::CyclicCarry, 256, 42, 1, [248, 0, 187, 202, 62, 40]),
        (Mode::CyclicCarry, 257, 42, 0, [139, 131, 197, 193, 61, 94]),
        (Mode::CyclicCarry, 60000, 1, 1000000000000, [40016, 22198, 52839, 7573, 15970, 13689]),
        (Mode::CyclicCarry, 1050576, 42, 3, [345012, 805318, 649482, 872310, 979281, 175004]),
        (
            Mode::CyclicCarry,
            3221225472,
            u64::MAX,
            5,
            [1017730932, 1026121970, 64455273, 1680087178, 782499177, 882956557],
        ),
        (
            Mode::CyclicCarry,
            1099511627776,
            42,
            u64::MAX,
            [547675698618, 589439675476, 201596831863, 591840454068, 84431413041, 499044899358],
        ),
    ];
    for (mode, len, seed, step, expected) in golden {
        let batch = sampler(mode, len, 6, seed).batch(step);
        assert_eq!(batch, expected, "{mode:?}, {len} records, seed {seed}, step {step}");
    }
    let bytes = [
        191, 94, 159, 191, 226, 94, 208, 140, 193, 49, 127, 73, 163, 193, 208, 95, 193, 35, 95, 101, 63, 185, 5, 93,
        187, 114, 238, 89, 108, 122, 222, 132,
    ];
    assert_eq!(seed_bytes(42, 1000, 7), bytes);
}

/// A sampler of each mode that draws by more than a length, over `len` records.
fn by_more(len: u64, batch_size: u64, seed: u64) -> [Sampler; 4] {
    let weights: Vec<f64> = (0..len).map(|i| (i % 3) as f64 + 0.5).collect();
    let lengths: Vec<u64> = (0..len).map(|i| i * 7919 % 100).collect();
    let sources = [(len.div_ceil(3), 0.2), (len.div_ceil(2), 0.5), (len.div_ceil(5), 0.3)];
    [
        Sampler::weighted(&weights, batch_size, seed).unwrap(),
        Sampler::similar_lengths(lengths, 5, batch_size, seed).unwrap(),
        Sampler::mixture(&sources, batch_size, seed).unwrap(),
        Sampler::block_shuffle(len, 7, 3, batch_size, seed).unwrap(),
    ]
}

proptest! {
    #[test]
    fn parts_of_weighted_similar_mixed_and_blockwise_batches_are_parts_of_the_whole(
        len in 1..400_u64, batch_size in 10..60_u64, seed: u64, step in any_step(), begin in 0..60_u64, count in 0..60_u64,
    ) {
        for sampler in by_more(len, batch_size, seed) {
            let whole = sampler.batch(step);
            prop_assert_eq!(whole.len() as u64, sampler.batch_len());
            prop_assert!(whole.iter().all(|index| *index < sampler.len()));
            let mut part = vec![7];
            sampler.batch_into(step, begin..begin + count, &mut part);
            let end = (begin + count).min(sampler.batch_len());
            prop_assert_eq!(&part[..], &whole[begin.min(end) as usize..end as usize], "{:?}", sampler);
            let mode = sampler.mode();
            prop_assert!(Sampler::new(mode, len, batch_size, seed).is_err());
        }
    }

    #[test]
    fn similar_lengths_draw_each_record_once_a_cycle_in_batches_that_are_alike(
        lengths in prop::collection::vec(0..1000_u64, 1..500), batch_size in 1..40_u64, window in 1..9_u64, seed: u64, cycle in 0..9_u64,
    ) {
        let len = lengths.len() as u64;
        let sampler = Sampler::similar_lengths(lengths.clone(), window, batch_size, seed).unwrap();
        let steps = sampler.steps_per_cycle().unwrap();
        let batches: Vec<Vec<u64>> = (cycle * steps..(cycle + 1) * steps).map(|step| sampler.batch(step)).collect();
        let drawn: HashSet<u64> = batches.iter().flatten().copied().collect();
        prop_assert_eq!(drawn.len() as u64, steps * sampler.batch_len());
        // It is the window's records, sorted, in pieces: no two batches of one overlap by more than an end.
        let mut places = permutation(len, seed, cycle);
        places.truncate((steps * sampler.batch_len()) as usize);
        for (batches, places) in batches.chunks(window as usize).zip(places.chunks((window * sampler.batch_len()) as usize)) {
            let mut found: Vec<Vec<u64>> = batches.iter().map(|batch| {
                let mut of: Vec<u64> = batch.iter().map(|record| lengths[*record as usize]).collect();
                of.sort_unstable();
                of
            }).collect();
            found.sort();
            let mut wanted: Vec<u64> = places.iter().map(|record| lengths[*record as usize]).collect();
            wanted.sort_unstable();
            prop_assert_eq!(found.concat(), wanted);
        }
    }

    #[test]
    fn a_mixture_gives_each_source_its_share_and_each_record_once_a_cycle(
        sources in prop::collection::vec((1..90_u64, 0.05..1_f64), 1..5), batch_size in 1..100_u64, seed: u64,
    ) {
        let sampler = Sampler::mixture(&sources, batch_size, seed).unwrap();
        let total: f64 = sources.iter().map(|(_, weight)| weight).sum();
        let steps = 60;
        let mut drawn = vec![Vec::new(); sources.len()];
        for step in 0..steps {
            for index in sampler.batch(step) {
                let mut within = index;
                let source = sources.iter().position(|(len, _)| {
                    let here = within < *len;
                    if !here { within -= len }
                    here
                });
                drawn[source.unwrap()].push(within);
            }
            for (drawn, (_, weight)) in drawn.iter().zip(&sources) {
                let wanted = weight / total * ((step + 1) * batch_size) as f64;
                // One place, and what the rounding of the weights adds up to.
                prop_assert!((drawn.len() as f64 - wanted).abs() < 1.0 + 1e-3 * wanted, "{} for {wanted}", drawn.len());
            }
        }
        for (drawn, (len, _)) in drawn.iter().zip(&sources) {
            // Batches are shuffled, so a cycle's end may fall within one: the counts say as much.
            let mut counts = vec![0_u64; *len as usize];
            drawn.iter().for_each(|&record| counts[record as usize] += 1);
            let cycles = drawn.len() as u64 / len;
            prop_assert!(counts.iter().all(|count| (cycles..=cycles + 1).contains(count)), "{counts:?}");
        }
    }
}

/// A cycle of a block shuffle, record after record: the blocks of a window end to end, then the records permuted.
fn blocks_of_a_cycle(len: u64, block: u64, window: u64, seed: u64, cycle: u64) -> Vec<u64> {
    let order = permutation(len.div_ceil(block), seed, cycle);
    let keys = hash::Words::new(hash::Purpose::Blocks, seed, cycle);
    let windows = (0..).zip(order.chunks(window as usize)).flat_map(|(number, blocks)| {
        let records: Vec<u64> =
            blocks.iter().flat_map(|number| number * block..((number + 1) * block).min(len)).collect();
        let places = permutation(records.len() as u64, keys.at(number), 0);
        places.into_iter().map(move |place| records[place as usize])
    });
    windows.collect()
}

/// Blocks and windows around the ends of what there is.
fn any_block() -> impl Strategy<Value = u64> {
    prop_oneof![1..30_u64, 1..2000_u64, any::<u64>().prop_map(|block| block.max(1)), Just(LEN_LIMIT), Just(u64::MAX)]
}

proptest! {
    #[test]
    fn a_block_shuffle_follows_the_model_and_draws_each_record_once_a_cycle(
        len in 1..1500_u64, block in 1..400_u64, window in 1..20_u64, batch_size in 1..300_u64, seed: u64, cycle in 0..9_u64,
    ) {
        let sampler = Sampler::block_shuffle(len, block, window, batch_size, seed).unwrap();
        let mut expected = blocks_of_a_cycle(len, block, window, seed, cycle);
        prop_assert!(is_permutation(&expected));
        let steps = sampler.steps_per_cycle().unwrap();
        prop_assert_eq!(steps, len / batch_size.min(len));
        expected.truncate((steps * sampler.batch_len()) as usize);
        let drawn: Vec<u64> = (cycle * steps..(cycle + 1) * steps).flat_map(|step| sampler.batch(step)).collect();
        prop_assert_eq!(drawn, expected);
    }

    #[test]
    fn blocks_of_one_record_in_windows_of_one_are_cyclic(len in any_len(), batch_size in 1..200_u64, seed: u64, step in any_step()) {
        let sampler = Sampler::block_shuffle(len, 1, 1, batch_size, seed).unwrap();
        prop_assert_eq!(sampler.batch(step), Sampler::new(Mode::Cyclic, len, batch_size, seed).unwrap().batch(step));
    }

    #[test]
    fn a_block_shuffle_of_any_size_draws_from_few_blocks(
        len in any_len(), block in any_block(), window in any_block(), batch_size in 1..200_u64, seed: u64, step in any_step(),
        world in prop::sample::select(&[1_u64, 2, 3, 4, 8][..]),
    ) {
        let sampler = Sampler::block_shuffle(len, block, window, batch_size, seed).unwrap();
        let batch = sampler.batch(step);
        prop_assert_eq!(batch.len() as u64, batch_size.min(len));
        prop_assert!(batch.iter().all(|index| *index < len));
        prop_assert_eq!(batch.iter().collect::<HashSet<_>>().len(), batch.len());
        // The whole windows that fit in, and one at each end; the short block makes one shorter.
        let (block, blocks) = (block.min(len), len.div_ceil(block));
        let windows = batch_size / block.saturating_mul(window).max(1) + 3;
        let touched: HashSet<u64> = batch.iter().map(|index| index / block).collect();
        prop_assert!(touched.len() as u64 <= window.min(blocks).saturating_mul(windows), "{} blocks", touched.len());
        let mut union = Vec::new();
        for rank in 0..world {
            let mut part = Vec::new();
            sampler.batch_into(step, Shard::new(rank, world).unwrap().range(sampler.batch_len()), &mut part);
            union.extend(part);
        }
        prop_assert_eq!(union, batch);
    }
}

#[test]
fn a_window_of_all_blocks_is_a_full_shuffle() {
    for (len, block) in [(30, 7), (97, 97), (300, 1), (300, 64), (1021, 100)] {
        let sampler = |seed| Sampler::block_shuffle(len, block, len.div_ceil(block), len.min(2), seed).unwrap();
        for seeds in [true, false] {
            let draws = 0..60_000_u64;
            let pairs: Vec<Vec<u64>> = match seeds {
                true => draws.map(|seed| sampler(seed).batch(5 * (len / 2))).collect(),
                false => draws.map(|cycle| sampler(5).batch(cycle * (len / 2))).collect(),
            };
            assert!(is_uniform(len, pairs.iter().map(|pair| pair[0])), "first of {len} in blocks of {block}");
            let apart = |pair: &Vec<u64>| (pair[1] + len - pair[0]) % len - 1;
            assert!(is_uniform(len - 1, pairs.iter().map(apart)), "differences of {len} in blocks of {block}");
        }
        let sampler = Sampler::block_shuffle(len, block, u64::MAX, len, 9).unwrap();
        let places = (0..(20 * len).max(3000)).map(|step| sampler.batch(step).iter().position(|&index| index == 0));
        assert!(is_uniform(len, places.map(|place| place.unwrap() as u64)), "places of {len} in blocks of {block}");
    }
}

#[test]
fn no_two_seeds_or_steps_of_a_block_shuffle_are_the_same_and_no_size_of_0_is_taken() {
    let mut seen = HashSet::new();
    for seed in (0..30).chain([u64::MAX]) {
        let sampler = Sampler::block_shuffle(1 << 40, 1000, 8, 50, seed).unwrap();
        for step in (0..30).chain([1 << 35, u64::MAX]) {
            assert!(seen.insert(sampler.batch(step)), "seed {seed}, step {step}");
        }
    }
    for (len, block, window, batch_size) in
        [(9, 0, 1, 1), (9, 1, 0, 1), (0, 1, 1, 1), (9, 1, 1, 0), (LEN_LIMIT + 1, 1, 1, 1)]
    {
        let refused = Sampler::block_shuffle(len, block, window, batch_size, 1);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{len} {block} {window} {batch_size}");
    }
    let golden = [
        (1_000_000, 512, 16, 3, [519675, 148560, 72278, 249186, 148647, 927525]),
        (
            1_u64 << 40,
            1000,
            1 << 20,
            u64::MAX,
            [31943397868, 324504298703, 128896089957, 554491582052, 594864037479, 164674530359],
        ),
        (100, 7, 3, 1, [46, 78, 47, 81, 26, 48]),
    ];
    for (len, block, window, step, expected) in golden {
        // As the other modes' numbers, these may not change.
        assert_eq!(Sampler::block_shuffle(len, block, window, 6, 42).unwrap().batch(step), expected, "{len} records");
    }
}

/// How close the batches of one cycle come to those of a full shuffle, for data that is sorted by class, 1000 records of
/// each of 1000: the mean number of classes in a batch, and the variance of a class's count beside that of a full shuffle.
fn mixing(sampler: &Sampler) -> (f64, f64) {
    let (mut distinct, mut squares) = (0, 0);
    let steps = sampler.steps_per_cycle().unwrap();
    for step in 0..steps {
        let mut counts = [0_u64; 1000];
        sampler.batch(step).iter().for_each(|index| counts[(index / 1000) as usize] += 1);
        distinct += counts.iter().filter(|count| **count > 0).count();
        squares += counts.iter().map(|count| count * count).sum::<u64>();
    }
    let mean = sampler.batch_len() as f64 / 1000.0;
    let variance = squares as f64 / (1000 * steps) as f64 - mean * mean;
    // That many draws without replacement.
    let (len, drawn) = (sampler.len() as f64, sampler.batch_len() as f64);
    (distinct as f64 / steps as f64, variance / (mean * 0.999 * (len - drawn) / (len - 1.0)))
}

/// The table of docs/scale.md.
fn mixing_table() -> Vec<String> {
    let len = 1_000_000;
    let row = |name: &str, records: u64, sampler: Sampler| {
        let (distinct, ratio) = mixing(&sampler);
        format!("| {name} | {records} | {distinct:.1} | {ratio:.2} |")
    };
    let mut rows = Vec::new();
    for window in [1, 4, 16, 64, 256, 1024] {
        let sampler = Sampler::block_shuffle(len, 512, window, 256, 42).unwrap();
        rows.push(row(&window.to_string(), window * 512, sampler));
    }
    rows.push(row("1954, all", len, Sampler::block_shuffle(len, 512, 1954, 256, 42).unwrap()));
    rows.push(row("full shuffle", len, sampler(Mode::Cyclic, len, 256, 42)));
    rows
}

#[test]
fn a_block_shuffle_is_as_far_from_a_full_one_as_the_document_says() {
    let document = include_str!("../../../docs/scale.md");
    for row in mixing_table() {
        assert!(document.lines().any(|line| line == row), "docs/scale.md does not have {row}");
    }
}

#[test]
#[ignore = "prints the table of docs/scale.md"]
fn block_shuffle_table() {
    mixing_table().iter().for_each(|row| println!("{row}"));
}

#[test]
fn weights_are_the_chances_of_their_records() {
    for weights in [vec![1.0], vec![0.0, 1.0], vec![1e-300, 3e-300], vec![1e300; 7], vec![0.1, 0.2, 0.3, 0.0, 0.4]] {
        let sampler = Sampler::weighted(&weights, 1000, 7).unwrap();
        let mut counts = vec![0_u64; weights.len()];
        (0..200).flat_map(|step| sampler.batch(step)).for_each(|record| counts[record as usize] += 1);
        let total: f64 = weights.iter().map(|weight| weight / weights.iter().fold(0.0, |a: f64, b| a.max(*b))).sum();
        let largest = weights.iter().fold(0.0, |a: f64, b| a.max(*b));
        let expected: Vec<f64> = weights.iter().map(|weight| weight / largest / total * 200_000.0).collect();
        let possible = || counts.iter().zip(&expected).filter(|(_, expected)| **expected > 0.0);
        assert!(counts.iter().zip(&weights).all(|(count, weight)| *weight > 0.0 || *count == 0), "{counts:?}");
        let chi_square: f64 = possible().map(|(count, expected)| (*count as f64 - expected).powi(2) / expected).sum();
        let freedom = possible().count() as f64 - 1.0;
        assert!(freedom == 0.0 || is_plausible(chi_square, freedom), "{weights:?}: {counts:?}");
    }
    // Many records, a few of them without a weight: none of those is ever drawn.
    let weights: Vec<f64> = (0..10_007).map(|i| if i % 10 == 0 { 0.0 } else { 1.0 / f64::from(i + 1) }).collect();
    let sampler = Sampler::weighted(&weights, 8192, 3).unwrap();
    assert!((0..100).flat_map(|step| sampler.batch(step)).all(|record| weights[record as usize] > 0.0));
    for wrong in [vec![], vec![0.0, 0.0], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY]] {
        assert!(Sampler::weighted(&wrong, 8, 1).is_err(), "{wrong:?}");
    }
}
