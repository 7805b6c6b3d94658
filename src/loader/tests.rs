//! What a loader promises, whatever its threads do.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::testing::{Memory, dawdle, watched};
use super::*;
use crate::engine::sampler::{Mode, Sampler, Shard};
use crate::error::{Error, Result};

const MODES: [Mode; 4] = [Mode::Sequential, Mode::Iid, Mode::Cyclic, Mode::CyclicCarry];

/// What the batch of a step is to be.
fn expected(memory: &Memory, sampler: &Sampler, shard: Shard, step: u64) -> Vec<u64> {
    let part = shard.range(sampler.batch_len());
    sampler.batch(step)[part.start as usize..part.end as usize].iter().map(|&index| memory.record(index)).collect()
}

/// A loader over 1000 records in batches of 4, whose transforms take up to 50 us each.
fn dawdling(workers: usize, prefetch: usize) -> DataLoader<Vec<u64>> {
    let builder = DataLoader::builder(Memory::new(1000)).batch_size(4).workers(workers).prefetch(prefetch);
    let builder = builder.map(|context, batch| {
        dawdle(context.step(), 50);
        Ok(batch)
    });
    builder.build().unwrap()
}

fn failed_step<T>(result: Option<Result<T>>) -> (u64, Error) {
    match result {
        Some(Err(Error::Step { step, source })) => (step, *source),
        Some(Err(other)) => panic!("{other} has no step"),
        Some(Ok(_)) => panic!("a batch where an error was due"),
        None => panic!("the end where an error was due"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn order_depends_on_neither_workers_nor_prefetch_nor_delays(
        workers in 0usize..=8,
        prefetch in 1usize..=9,
        mode in prop::sample::select(&MODES[..]),
        (rank, world) in (1u64..=4).prop_flat_map(|world| (0..world, Just(world))),
        share in 1u64..=5,
        len in 20u64..=60,
        start in prop_oneof![0u64..40, any::<u64>().prop_map(|step| step / 2)],
        seed: u64,
    ) {
        let memory = Memory::new(len);
        let shard = Shard::new(rank, world).unwrap();
        let builder = DataLoader::builder(memory.clone()).batch_size(share * world).mode(mode).seed(seed);
        let builder = builder.workers(workers).prefetch(prefetch).shard(shard).start_step(start);
        let builder = builder.map(move |context, batch| {
            dawdle(seed ^ context.step(), 200);
            Ok(batch)
        });
        let mut loader = builder.build().unwrap();
        let sampler = Sampler::new(mode, len, share * world, seed).unwrap();
        for step in start..start + 25 {
            prop_assert_eq!(loader.step(), step);
            // Any other step, made while the workers run, is the same as in its turn.
            prop_assert_eq!(loader.batch(step + 2).unwrap(), expected(&memory, &sampler, shard, step + 2));
            prop_assert_eq!(loader.next().unwrap().unwrap(), expected(&memory, &sampler, shard, step));
        }
        loader.seek(start / 3);
        prop_assert_eq!(loader.next().unwrap().unwrap(), expected(&memory, &sampler, shard, start / 3));
        prop_assert_eq!(loader.step(), start / 3 + 1);
    }

    #[test]
    fn a_failure_comes_in_its_place_and_stays(
        workers in 0usize..=5,
        prefetch in 1usize..=6,
        failing in 0u64..12,
        stage in prop::sample::select(&Stage::ALL[..]),
    ) {
        let loader = failing_loader(workers, prefetch, failing, stage);
        let mut loader = loader.map_err(|error| TestCaseError::fail(error.to_string()))?;
        for round in 0..2 {
            for step in 0..failing {
                prop_assert_eq!(loader.next().unwrap().unwrap(), loader.batch(step).unwrap());
            }
            for _ in 0..3 {
                let (step, source) = failed_step(loader.next());
                prop_assert_eq!(step, failing);
                prop_assert!(source.to_string().contains("no luck"), "{} in round {}", source, round);
                prop_assert_eq!(loader.step(), failing);
            }
            prop_assert_eq!(loader.state().step, failing);
            loader.seek(failing + 1);
            prop_assert_eq!(loader.next().unwrap().unwrap(), loader.batch(failing + 1).unwrap());
            loader.seek(0);
        }
    }
}

/// Where a step fails, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Gather,
    Transform,
    TransformPanics,
    Host,
    Finish,
    FinishPanics,
}

impl Stage {
    const ALL: [Stage; 6] =
        [Stage::Gather, Stage::Transform, Stage::TransformPanics, Stage::Host, Stage::Finish, Stage::FinishPanics];
}

/// Draws in order, a record a step, and cannot gather one of them.
struct Hole(u64);

impl Stream for Hole {
    type Batch = Vec<u64>;

    fn len(&self) -> u64 {
        100
    }

    fn gather(&self, indices: &[u64]) -> Result<Vec<u64>> {
        if indices.contains(&self.0) { Err(Error::invalid("hole", "no luck")) } else { Ok(indices.to_vec()) }
    }

    fn fingerprint(&self, _len: u64) -> Result<Vec<u64>> {
        Ok(vec![0])
    }
}

/// Fails where a batch holds the record.
struct Picky(u64, Stage);

impl Format<Vec<u64>> for Picky {
    type Host = Vec<u64>;
    type Out = Vec<u64>;

    fn host(&self, batch: Vec<u64>) -> Result<Vec<u64>> {
        if batch.contains(&self.0) && self.1 == Stage::Host {
            return Err(Error::invalid("host", "no luck"));
        }
        Ok(batch)
    }

    fn finish(&self, host: Vec<u64>) -> Result<Vec<u64>> {
        match self.1 {
            Stage::Finish if host.contains(&self.0) => Err(Error::invalid("finish", "no luck")),
            Stage::FinishPanics if host.contains(&self.0) => panic!("no luck"),
            _ => Ok(host),
        }
    }
}

fn failing_loader(workers: usize, prefetch: usize, failing: u64, stage: Stage) -> Result<DataLoader<Vec<u64>>> {
    let hole = Hole(if stage == Stage::Gather { failing } else { u64::MAX });
    let builder = DataLoader::builder(hole).batch_size(1).mode(Mode::Sequential).workers(workers).prefetch(prefetch);
    let builder = builder.map(move |context, batch| {
        dawdle(context.step(), 100);
        match stage {
            Stage::Transform if context.step() == failing => Err("no luck".into()),
            Stage::TransformPanics if context.step() == failing => panic!("no luck at {}", context.step()),
            _ => Ok(batch),
        }
    });
    builder.yields(Picky(failing, stage)).build()
}

#[test]
fn a_slow_step_lets_all_later_ones_through() {
    watched(|| {
        // Step 0 waits for steps 1 to 7, which fill the prefetch of 8.
        let made = Arc::new(AtomicU64::new(0));
        let builder = DataLoader::builder(Memory::new(1000)).batch_size(4).workers(2).prefetch(8);
        let builder = builder.map(move |context, batch| {
            while context.step() == 0 && made.load(Ordering::SeqCst) < 7 {
                thread::yield_now();
            }
            made.fetch_add(1, Ordering::SeqCst);
            Ok(batch)
        });
        let loader = builder.build().unwrap();
        assert_eq!(loader.take(20).filter(Result::is_ok).count(), 20);
    });
}

#[test]
fn a_prefetch_of_one_does_not_stall() {
    watched(|| {
        for workers in 0..=3 {
            assert_eq!(dawdling(workers, 1).take(50).filter(Result::is_ok).count(), 50);
        }
    });
}

/// A stream that counts its batches that are alive.
struct Counting(Arc<Live>);

#[derive(Default)]
struct Live {
    now: AtomicU64,
    most: AtomicU64,
    ever: AtomicU64,
}

struct Counted(Arc<Live>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Stream for Counting {
    type Batch = Counted;

    fn len(&self) -> u64 {
        1000
    }

    fn gather(&self, _indices: &[u64]) -> Result<Counted> {
        let now = self.0.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(now, Ordering::SeqCst);
        self.0.ever.fetch_add(1, Ordering::SeqCst);
        Ok(Counted(self.0.clone()))
    }

    fn fingerprint(&self, _len: u64) -> Result<Vec<u64>> {
        Ok(vec![0])
    }
}

#[test]
fn no_more_batches_exist_than_prefetch_and_the_consumers_own() {
    watched(|| {
        for (workers, prefetch) in [(1, 1), (2, 1), (2, 3), (8, 3), (3, 9)] {
            let live = Arc::new(Live::default());
            let builder = DataLoader::builder(Counting(live.clone())).batch_size(4);
            let builder = builder.workers(workers).prefetch(prefetch).map(|context, batch| {
                dawdle(context.step(), 100);
                Ok(batch)
            });
            let mut loader = builder.build().unwrap();
            for step in 0..200 {
                if step % 7 == 0 {
                    loader.seek(step * 31);
                }
                drop(loader.next().unwrap().unwrap());
            }
            // A consumer that stops: the workers fill the prefetch, and make no more.
            let held = loader.next().unwrap().unwrap();
            while live.now.load(Ordering::SeqCst) < prefetch as u64 + 1 {
                thread::yield_now();
            }
            let ever = live.ever.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(live.ever.load(Ordering::SeqCst), ever);
            assert_eq!(live.most.load(Ordering::SeqCst), prefetch as u64 + 1);
            drop(loader);
            assert_eq!(live.now.load(Ordering::SeqCst), 1, "the loader keeps batches alive");
            drop(held);
        }
    });
}

#[test]
fn dropped_at_any_moment_it_leaves_no_thread() {
    watched(|| {
        for round in 0..400 {
            let held = Arc::new(());
            let watch: Weak<()> = Arc::downgrade(&held);
            let builder = DataLoader::builder(Memory::new(100)).batch_size(4);
            let builder = builder.workers(round % 5).prefetch(1 + round % 4).map(move |context, batch| {
                let _held = &held;
                dawdle(context.step(), 100);
                if context.step() == 9 { Err("no luck".into()) } else { Ok(batch) }
            });
            let mut loader = builder.build().unwrap();
            for _ in 0..round % 13 {
                let _ = loader.next();
            }
            if round % 3 == 0 {
                loader.seek(4);
            }
            dawdle(round as u64, 300);
            if round % 2 == 0 {
                loader.close()
            } else {
                drop(loader)
            }
            assert_eq!(watch.strong_count(), 0, "a thread still holds the transform");
        }
    });
}

#[test]
fn dropped_by_its_own_transform_it_does_not_wait_for_itself() {
    watched(|| {
        for workers in 1..=4 {
            let slot: Arc<Mutex<Option<DataLoader<Vec<u64>>>>> = Arc::default();
            let (dropped, end) = mpsc::channel();
            let (inner, held) = (slot.clone(), Arc::new(()));
            let watch = Arc::downgrade(&held);
            let builder = DataLoader::builder(Memory::new(100)).batch_size(4).workers(workers).prefetch(4);
            let builder = builder.map(move |context, batch| {
                let _held = &held;
                if context.step() >= 2 {
                    // The lock is held while the loader goes, and other workers wait for it.
                    let mut slot = inner.lock().unwrap();
                    if slot.take().is_some() {
                        dropped.send(()).unwrap();
                    }
                }
                Ok(batch)
            });
            let loader = builder.build().unwrap();
            slot.lock().unwrap().insert(loader).next().unwrap().unwrap();
            end.recv().unwrap();
            while watch.strong_count() > 0 {
                thread::yield_now();
            }
        }
    });
}

#[test]
fn a_transform_that_nobody_waits_for_is_told() {
    watched(|| {
        let (began, begun) = mpsc::channel();
        let builder = DataLoader::builder(Memory::new(100)).batch_size(4).workers(3).prefetch(3);
        let builder = builder.map(move |context, batch| {
            if context.step() == 0 || context.step() > 1000 {
                return Ok(batch);
            }
            began.send(()).unwrap();
            while !context.is_cancelled() {
                thread::yield_now();
            }
            Err("given up".into())
        });
        let mut loader = builder.build().unwrap();
        loader.next().unwrap().unwrap();
        begun.recv().unwrap();
        loader.seek(2000);
        loader.next().unwrap().unwrap();
        loader.seek(0);
        loader.next().unwrap().unwrap();
        begun.recv().unwrap();
        drop(loader);
    });
}

#[test]
fn the_last_steps_there_are_come_and_then_the_end() {
    let mut loader = dawdling(2, 4);
    loader.seek(u64::MAX - 2);
    assert!(loader.next().is_some_and(|batch| batch.is_ok()));
    assert!(loader.next().is_some_and(|batch| batch.is_ok()));
    assert!(loader.next().is_none());
    assert!(loader.batch(u64::MAX).is_ok());
}

/// Makes batches that cannot leave their thread.
struct Local;

impl Format<Vec<u64>> for Local {
    type Host = (Vec<u64>, thread::ThreadId);
    type Out = Rc<Vec<u64>>;

    fn host(&self, batch: Vec<u64>) -> Result<Self::Host> {
        Ok((batch, thread::current().id()))
    }

    fn finish(&self, (batch, worker): Self::Host) -> Result<Rc<Vec<u64>>> {
        assert_ne!(worker, thread::current().id(), "the host's part belongs into a worker");
        Ok(Rc::new(batch))
    }
}

#[test]
fn a_format_finishes_in_the_consumers_thread() {
    fn shareable<T: Send + Sync>(_: &T) {}
    let mut loader = DataLoader::builder(Memory::new(100)).batch_size(4).workers(1).yields(Local).build().unwrap();
    shareable(&loader);
    let batch: Rc<Vec<u64>> = loader.next().unwrap().unwrap();
    assert_eq!(batch.len(), 4);
}

#[test]
fn transforms_follow_one_another_and_their_errors_keep_their_text() {
    let builder = DataLoader::builder(Memory::new(100)).batch_size(4).mode(Mode::Sequential).workers(2);
    let builder = builder.map(|context, batch| Ok((context.indices().to_vec(), batch)));
    let builder = builder.map(|context, (indices, _)| {
        let text = if context.step() == 2 { "twelve" } else { "12" };
        Ok(indices[0] + text.parse::<u64>()?)
    });
    let mut loader = builder.build().unwrap();
    assert_eq!((loader.next().unwrap().unwrap(), loader.next().unwrap().unwrap()), (12, 16));
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "step 2: the transform failed: invalid digit found in string");
}

/// The seed bytes of each record and of the step, for every rank.
fn seeds(workers: usize, world: u64, step: u64) -> (Vec<[u8; 32]>, Vec<[u8; 32]>) {
    let mut records = Vec::new();
    let mut steps = Vec::new();
    for rank in 0..world {
        let builder = DataLoader::builder(Memory::new(100)).batch_size(8).workers(workers).start_step(step);
        let builder = builder.shard(Shard::new(rank, world).unwrap()).map(|context, batch: Vec<u64>| {
            assert_eq!(context.positions().end - context.positions().start, batch.len() as u64);
            Ok(((0..batch.len()).map(|i| context.seed(i)).collect::<Vec<_>>(), context.step_seed()))
        });
        let (own, of_step) = builder.build().unwrap().next().unwrap().unwrap();
        records.extend(own);
        steps.push(of_step);
    }
    (records, steps)
}

#[test]
fn random_transforms_draw_the_same_whatever_the_workers_and_the_world() {
    let (records, step) = seeds(0, 1, 7);
    for (workers, world) in [(1, 1), (4, 1), (3, 2), (2, 8)] {
        assert_eq!(seeds(workers, world, 7), (records.clone(), vec![step[0]; world as usize]));
    }
    let (others, other) = seeds(0, 1, 8);
    let mut all = [records, others, step, other].concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "each record of each step has seeds of its own");
}

#[test]
fn explain_tells_what_each_rank_saw() {
    let (world, step) = (4, 11);
    let explanation = DataLoader::builder(Memory::new(50)).batch_size(8).build().unwrap().explain(step);
    let (seeds, step_seeds) = seeds(2, 4, step);
    assert_eq!(explanation.records.len(), 8);
    assert_eq!(step_seeds, vec![explanation.seed; 4]);
    assert_eq!(explanation.records.iter().map(|record| record.seed).collect::<Vec<_>>(), seeds);
    for rank in 0..world {
        let shard = Shard::new(rank, world).unwrap();
        let builder = DataLoader::builder(Memory::new(50)).batch_size(8).shard(shard).workers(2).start_step(step);
        let mut loader = builder.map(|context, _| Ok(context.indices().to_vec())).build().unwrap();
        let seen = loader.next().unwrap().unwrap();
        let explanation = loader.explain(step);
        let own: Vec<_> = explanation.records.iter().filter(|record| record.rank == rank).collect();
        assert_eq!(own.iter().map(|record| record.index).collect::<Vec<_>>(), seen);
        assert_eq!(own.iter().map(|record| record.local).collect::<Vec<_>>(), [0, 1]);
        assert!(own.iter().all(|record| record.position == 2 * rank + record.local));
    }
    let text = explanation.to_string();
    assert!(text.starts_with("step 11: 8 records\nrank 0: "), "{text}");
}

#[test]
fn metrics_count_what_went_out() {
    for workers in [0, 2] {
        let mut loader = dawdling(workers, 3);
        for _ in 0..10 {
            loader.next().unwrap().unwrap();
        }
        loader.batch(3).unwrap();
        let metrics = loader.metrics();
        assert_eq!((metrics.steps, metrics.records, metrics.bytes), (10, 40, 320));
        assert!(metrics.consumer_waited > Duration::ZERO);
        assert_eq!(metrics.workers_waited == Duration::ZERO, workers == 0);
        assert!(metrics.to_string().starts_with("10 steps, 40 records, 0.0 MiB; the consumer waited "));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_pass_gives_each_record_once(
        len in 1u64..=150,
        share in 1u64..=9,
        world in 1u64..=8,
        shuffle in prop::option::of(0u64..1000),
        workers in 0usize..=3,
        seed: u64,
    ) {
        let memory = Memory::new(len);
        let mut given = Vec::new();
        let batch_size = share * world;
        for rank in 0..world {
            let shard = Shard::new(rank, world).unwrap();
            let builder = DataLoader::builder(memory.clone()).batch_size(batch_size).mode(Mode::Sequential).seed(seed);
            let builder = builder.shard(shard).workers(workers);
            let mut loader = builder.map(|context, batch| Ok((context.step(), batch))).build().unwrap();
            let first = loader.next().unwrap().unwrap();
            let pass = || shuffle.map_or_else(|| loader.pass(), |number| loader.shuffled_pass(number));
            let mut batches = pass();
            for at in 0.. {
                let left = batches.len();
                let Some(batch) = batches.next() else { break };
                let (step, batch) = batch.unwrap();
                prop_assert_eq!((step, batches.len()), (at, left - 1));
                prop_assert!(!batch.is_empty(), "an empty batch");
                given.extend(batch);
            }
            prop_assert!(batches.next().is_none());
            let (once, again): (Vec<_>, Vec<_>) = (pass().map(Result::unwrap).collect(), pass().map(Result::unwrap).collect());
            prop_assert_eq!(once, again);
            // The endless iteration goes on where it was.
            prop_assert_eq!((first.0, loader.next().unwrap().unwrap().0, loader.step()), (0, 1, 2));
        }
        let mut all: Vec<_> = (0..len).map(|index| memory.record(index)).collect();
        if shuffle.is_none() && world == 1 {
            prop_assert_eq!(&given, &all);
        }
        all.sort_unstable();
        given.sort_unstable();
        prop_assert_eq!(given, all);
    }
}

#[test]
fn a_shuffled_pass_has_an_order_and_seeds_of_its_own() {
    let builder = DataLoader::builder(Memory::new(500)).batch_size(500).workers(0);
    let loader = builder.map(|context, batch| Ok((batch, context.seed(0)))).build().unwrap();
    let first = |mut pass: Pass<(Vec<u64>, [u8; 32])>| pass.next().unwrap().unwrap();
    let (in_order, one, two) = (first(loader.pass()), first(loader.shuffled_pass(1)), first(loader.shuffled_pass(2)));
    assert!(in_order.0 != one.0 && one.0 != two.0 && in_order.0 != two.0);
    assert!(in_order.1 != one.1 && one.1 != two.1 && in_order.1 != two.1);
    assert_ne!(in_order.1, loader.batch(0).unwrap().1);
}

#[test]
fn a_failed_pass_fails_until_its_end() {
    let loader = failing_loader(2, 2, 97, Stage::Transform).unwrap();
    let pass: Vec<_> = loader.pass().collect();
    assert_eq!(pass.len(), 100);
    assert_eq!(pass.iter().filter(|batch| batch.is_ok()).count(), 97);
    for batch in pass.into_iter().skip(97) {
        assert_eq!(failed_step(Some(batch)).0, 97);
    }
}
