//! The loader, worn down: transforms that fail, panic and sleep, loaders dropped at any moment, consumers that stop.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use loaderx::{
    DataLoader, DenseBatch, DenseDataset, Error, Mode, Native, RaggedBatch, RaggedDataset, Sampler, Shard, StepContext,
};

use crate::support::{Rng, Watchdog, scratch, thorough};

const RECORDS: usize = 301;
const BATCH: u64 = 16;
const MODES: [Mode; 4] = [Mode::Sequential, Mode::Iid, Mode::Cyclic, Mode::CyclicCarry];

type Dense = DenseDataset<f32, [usize; 1]>;
type Ragged = RaggedDataset<u16>;
/// The bytes of a batch of both datasets.
type Bytes = (Vec<u8>, Vec<u8>, Vec<u64>);

#[derive(Clone)]
struct Data {
    dense: Arc<Dense>,
    ragged: Arc<Ragged>,
    rows: Arc<Vec<[f32; 3]>>,
    texts: Arc<Vec<Vec<u16>>>,
}

impl Data {
    fn new(dir: &Path) -> Data {
        let mut rng = Rng::new(21);
        let rows: Vec<[f32; 3]> = (0..RECORDS).map(|i| [i as f32, rng.below(1000) as f32, -1.5]).collect();
        let texts: Vec<Vec<u16>> =
            (0..RECORDS).map(|_| (0..rng.below(40)).map(|_| rng.below(60_000) as u16).collect()).collect();
        let dense = Dense::create(dir.join("dense"), [3]).unwrap();
        dense.append(rows.as_flattened()).unwrap();
        dense.close().unwrap();
        let ragged = Ragged::create(dir.join("ragged"), ()).unwrap();
        ragged.append(&texts).unwrap();
        ragged.close().unwrap();
        Data {
            dense: Arc::new(Dense::open(dir.join("dense")).unwrap()),
            ragged: Arc::new(Ragged::open(dir.join("ragged")).unwrap()),
            rows: Arc::new(rows),
            texts: Arc::new(texts),
        }
    }

    fn streams(&self) -> (Arc<Dense>, Arc<Ragged>) {
        (self.dense.clone(), self.ragged.clone())
    }

    /// What a batch of these records holds, made from memory.
    fn wanted(&self, indices: &[u64]) -> Bytes {
        let (mut dense, mut ragged, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
        for &i in indices {
            self.rows[i as usize].iter().for_each(|value| dense.extend(value.to_le_bytes()));
            self.texts[i as usize].iter().for_each(|value| ragged.extend(value.to_le_bytes()));
            offsets.push(ragged.len() as u64 / 2);
        }
        (dense, ragged, offsets)
    }
}

fn bytes((dense, ragged): &(DenseBatch<f32, [usize; 1]>, RaggedBatch<u16>)) -> Bytes {
    (
        dense.values().iter().flat_map(|value| value.to_le_bytes()).collect(),
        ragged.values().iter().flat_map(|value| value.to_le_bytes()).collect(),
        ragged.offsets().to_vec(),
    )
}

/// What the transform does at a step: a function of the run and the step, so that the consumer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Fine,
    Sleeps(u64),
    Fails,
    Panics,
}

fn mood(run: u64, step: u64, trouble: u64) -> Mood {
    let mut rng = Rng::new(run << 24 ^ step);
    match rng.below(1000) {
        n if n < trouble => Mood::Fails,
        n if n < 2 * trouble => Mood::Panics,
        n if n < 300 => Mood::Sleeps(rng.below(400)),
        _ => Mood::Fine,
    }
}

fn live(mood: Mood) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match mood {
        Mood::Fine => Ok(()),
        Mood::Sleeps(micros) => {
            thread::sleep(Duration::from_micros(micros));
            Ok(())
        }
        Mood::Fails => Err("it fails".into()),
        // Without the hook that prints.
        Mood::Panics => resume_unwind(Box::new("it panics")),
    }
}

struct Run {
    number: u64,
    mode: Mode,
    seed: u64,
    workers: usize,
    prefetch: usize,
    shard: Shard,
    trouble: u64,
}

impl Run {
    fn draw(number: u64, trouble: u64) -> Run {
        let mut rng = Rng::new(number);
        let world = [1, 2, 4][rng.below(3) as usize];
        Run {
            number,
            mode: MODES[rng.below(4) as usize],
            seed: rng.next(),
            workers: rng.below(17) as usize,
            prefetch: 1 + rng.below(20) as usize,
            shard: Shard::new(rng.below(world), world).unwrap(),
            trouble,
        }
    }

    fn loader(&self, data: &Data) -> DataLoader<Bytes> {
        let (number, trouble) = (self.number, self.trouble);
        let transform = move |context: &StepContext, batch: (DenseBatch<f32, [usize; 1]>, RaggedBatch<u16>)| {
            live(mood(number, context.step(), trouble))?;
            Ok(bytes(&batch))
        };
        let builder = DataLoader::builder(data.streams()).batch_size(BATCH).mode(self.mode).seed(self.seed);
        let builder = builder.workers(self.workers).prefetch(self.prefetch).shard(self.shard);
        builder.map(transform).yields(Native).build().unwrap()
    }

    /// The records of a step, drawn without a loader.
    fn indices(&self, step: u64) -> Vec<u64> {
        let sampler = Sampler::new(self.mode, RECORDS as u64, BATCH, self.seed).unwrap();
        let mut indices = Vec::new();
        sampler.batch_into(step, self.shard.range(sampler.batch_len()), &mut indices);
        indices
    }

    /// Checks one result of `next` at `step`; whether the loader goes on.
    fn check(&self, data: &Data, step: u64, result: &loaderx::Result<Bytes>) -> bool {
        let mood = mood(self.number, step, self.trouble);
        match result {
            Ok(found) => {
                assert!(!matches!(mood, Mood::Fails | Mood::Panics), "run {} step {step}", self.number);
                assert!(*found == data.wanted(&self.indices(step)), "run {} step {step}: other bytes", self.number);
                true
            }
            Err(Error::Step { step: at, source }) => {
                assert_eq!(*at, step, "run {}", self.number);
                match &**source {
                    Error::Transform(error) => assert!(mood == Mood::Fails && error.to_string() == "it fails"),
                    Error::Panic(text) => assert!(mood == Mood::Panics && text == "it panics"),
                    other => panic!("run {} step {step}: {other}", self.number),
                }
                false
            }
            Err(other) => panic!("run {} step {step}: {other}", self.number),
        }
    }
}

#[test]
fn order_is_equal_byte_for_byte_whatever_fails_panics_or_sleeps() {
    let _watchdog = Watchdog::new("an unruly loader", 300);
    let dir = scratch();
    let data = Data::new(dir.path());
    let (mut batches, mut failures) = (0, 0);
    for number in 0..if thorough() { 2000 } else { 150 } {
        let run = Run::draw(number, 20);
        let mut loader = run.loader(&data);
        let mut step = 0;
        while step < 60 {
            let result = loader.next().unwrap();
            if run.check(&data, step, &result) {
                batches += 1;
                step += 1;
                continue;
            }
            failures += 1;
            // Every later call gives the same error, until the consumer goes on behind it.
            let again = loader.next().unwrap();
            assert_eq!(again.unwrap_err().to_string(), result.unwrap_err().to_string());
            assert_eq!(loader.step(), step);
            step += 1;
            loader.seek(step);
        }
    }
    println!("{batches} batches, {failures} failures");
    assert!(batches > 1000 && failures > 100);
}

/// The threads of loaders in this process.
fn threads() -> Option<BTreeSet<String>> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    Some(tasks.filter_map(name).filter(|name| name.starts_with("stress-")).collect())
}

#[test]
fn a_loader_dropped_at_any_moment_neither_hangs_nor_leaves_threads() {
    let _watchdog = Watchdog::new("a dropped loader", 300);
    let dir = scratch();
    let data = Data::new(dir.path());
    let drops = if thorough() { 20_000 } else { 2500 };
    for number in 0..drops {
        let run = Run::draw(number, 40);
        let mut rng = Rng::new(number ^ 0xd209);
        let mut loader = run.loader(&data);
        let mut step = 0;
        for _ in 0..rng.below(12) {
            match rng.below(10) {
                0 => {
                    step = rng.below(1000);
                    loader.seek(step);
                }
                1 => thread::sleep(Duration::from_micros(rng.below(300))),
                _ => {
                    let going = run.check(&data, step, &loader.next().unwrap());
                    step += u64::from(going);
                }
            }
        }
        if rng.chance(20) {
            loader.close();
        } else {
            drop(loader);
        }
    }
}

/// A transform that is in the middle of a step holds one of these.
#[derive(Clone)]
struct Inside(#[expect(dead_code, reason = "counted")] Arc<()>);

#[test]
fn threads_and_what_they_hold_are_gone_when_drop_returns() {
    let _watchdog = Watchdog::new("a dropped loader", 300);
    let dir = scratch();
    let data = Data::new(dir.path());
    for number in 0..200 {
        let run = Run::draw(number, 0);
        let (alive, count) = (Arc::new(()), Arc::new(()));
        let inside = Inside(alive.clone());
        let transform = move |context: &StepContext, batch| {
            // Named, since other tests have loaders too.
            let _ = std::fs::write("/proc/thread-self/comm", format!("stress-{number}"));
            let _inside = inside.clone();
            live(mood(number, context.step(), 0))?;
            Ok((batch, Inside(count.clone())))
        };
        let builder =
            DataLoader::builder(data.streams()).batch_size(BATCH).workers(1 + run.workers).prefetch(run.prefetch);
        let mut loader = builder.map(transform).build().unwrap();
        let held: Vec<_> = (0..number % 5).map(|_| loader.next().unwrap().unwrap()).collect();
        drop(loader);
        assert_eq!(Arc::strong_count(&alive), 1, "a transform lives on");
        drop(held);
        // The system lists a thread for a moment after it has ended.
        while threads().is_some_and(|names| names.contains(&format!("stress-{number}\n"))) {
            thread::yield_now();
        }
    }
}

#[test]
fn a_consumer_that_stops_reading_bounds_the_batches_that_exist() {
    let _watchdog = Watchdog::new("a loader that nobody reads", 300);
    let dir = scratch();
    let data = Data::new(dir.path());
    for (workers, prefetch) in [(1, 1), (4, 2), (16, 5), (3, 20)] {
        let counted = Arc::new(());
        let counter = counted.clone();
        let builder = DataLoader::builder(data.streams()).batch_size(BATCH).workers(workers).prefetch(prefetch);
        let mut loader = builder.map(move |_, batch| Ok((batch, counter.clone()))).build().unwrap();
        let held = loader.next().unwrap().unwrap();
        thread::sleep(Duration::from_millis(60));
        // The transform's own, this test's, the one held, and the ones made ahead.
        assert!(Arc::strong_count(&counted) <= 3 + prefetch, "{}", Arc::strong_count(&counted));
        drop(held);
        for _ in 0..100 {
            loader.next().unwrap().unwrap();
        }
        drop(loader);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

#[test]
fn ranks_together_draw_what_one_rank_draws() {
    let _watchdog = Watchdog::new("ranks", 300);
    let dir = scratch();
    let data = Data::new(dir.path());
    for world in [1, 2, 4] {
        for mode in MODES {
            let whole = Run { mode, trouble: 0, shard: Shard::default(), ..Run::draw(world, 0) };
            let ranks = (0..world).map(|rank| Run {
                shard: Shard::new(rank, world).unwrap(),
                number: 100 + rank,
                ..Run { mode, seed: whole.seed, ..Run::draw(rank, 0) }
            });
            let mut loaders: Vec<_> = ranks.map(|run| run.loader(&data)).collect();
            for step in 0..40 {
                let parts: Vec<Bytes> = loaders.iter_mut().map(|loader| loader.next().unwrap().unwrap()).collect();
                let dense: Vec<u8> = parts.iter().flat_map(|(dense, ..)| dense.clone()).collect();
                let ragged: Vec<u8> = parts.iter().flat_map(|(_, ragged, _)| ragged.clone()).collect();
                let wanted = data.wanted(&whole.indices(step));
                assert!((dense, ragged) == (wanted.0, wanted.1), "{mode:?}, world {world}, step {step}");
            }
        }
    }
}

/// A panic payload that panics itself when it is dropped.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(Bomb(self.0 - 1)));
        }
    }
}

#[test]
fn a_panic_payload_whose_drop_panics_is_an_error_too_and_no_hang() {
    let _watchdog = Watchdog::new("a loader of bombs", 60);
    let dir = scratch();
    let data = Data::new(dir.path());
    for (workers, depth) in [(0, 1), (1, 1), (4, 1), (4, 3)] {
        let builder = DataLoader::builder(data.streams()).batch_size(BATCH).workers(workers).prefetch(8);
        let transform = move |context: &StepContext, batch| {
            if context.step() % 3 == 2 { resume_unwind(Box::new(Bomb(depth))) } else { Ok(batch) }
        };
        let mut loader = builder.map(transform).build().unwrap();
        for step in 0..30 {
            let result =
                catch_unwind(AssertUnwindSafe(|| loader.next())).expect("no panic reaches the consumer").unwrap();
            if step % 3 == 2 {
                assert!(matches!(&result, Err(Error::Step { step: at, .. }) if *at == step), "{result:?}");
                loader.seek(step + 1);
            } else {
                assert!(result.is_ok(), "{result:?}");
            }
        }
    }
}
