//! The loader itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::builder::DataLoaderBuilder;
use super::context::Token;
use super::explain::Explanation;
use super::format::Native;
use super::metrics::Metrics;
use super::pass::Pass;
use super::pipeline::{Pipeline, Work};
use super::plan::Plan;
use super::prefetch::{Prefetch, Threads};
use super::state::LoaderState;
use super::stream::Stream;
use crate::engine::sampler::{Sampler, Shard};
use crate::error::{Error, Result};
use crate::events::event;

/// An endless loader of batches `T`.
///
/// The bytes of step k's batch depend on the data, the mode, batch size and seed, k, the rank and the world alone,
/// whatever the workers, the prefetch depth or the restarts. As an iterator it gives one step after the other, for
/// ever; [`batch`](Self::batch) gives any step at once.
///
/// A failure at step k comes in step k's place, as [`Error::Step`](crate::Error::Step), after the batches before it. It
/// stays: every later `next` gives it again, until [`seek`](Self::seek).
///
/// Dropping a loader ends its threads. It waits for the stage that each is in, a gather or a transform, which
/// [`StepContext::is_cancelled`](crate::StepContext::is_cancelled) lets a transform cut short. Dropped by a transform
/// of its own, it does not wait.
///
/// ```
/// use loaderx::{DataLoader, DenseBatch, DenseDataset};
///
/// # let directory = tempfile::tempdir()?;
/// # let (images, labels) = (directory.path().join("images"), directory.path().join("labels"));
/// # DenseDataset::<u8, [usize; 2]>::create(&images, [28, 28])?.append(&vec![7; 100 * 28 * 28])?;
/// # DenseDataset::<i64, ()>::create(&labels, ())?.append(&(0..100).collect::<Vec<_>>())?;
/// let images = DenseDataset::<u8, [usize; 2]>::open(images)?;
/// let labels = DenseDataset::<i64, ()>::open(labels)?;
/// let loader: DataLoader<(DenseBatch<f32, [usize; 2]>, DenseBatch<i64, ()>)> =
///     DataLoader::builder((images, labels))
///         .batch_size(32)
///         .map(|_, (images, labels)| Ok((images.map(|pixel| f32::from(pixel) / 255.0), labels)))
///         .build()?;
/// for batch in loader.take(10) {
///     let (images, labels) = batch?;
///     assert_eq!(images.shape(), [32, 28, 28]);
///     assert_eq!(labels.len(), 32);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DataLoader<T: 'static> {
    pipeline: Pipeline<T>,
    sampler: Sampler,
    shard: Shard,
    /// With the step it began at.
    start: LoaderState,
    steps: Prefetch<T>,
}

impl DataLoader<()> {
    /// Begins to set up a loader over a dataset, a tuple of datasets, or any other [`Stream`].
    pub fn builder<S: Stream>(stream: S) -> DataLoaderBuilder<S, S::Batch, Native> {
        DataLoaderBuilder::new(stream)
    }
}

impl<T: 'static> DataLoader<T> {
    pub(super) fn new(
        pipeline: Pipeline<T>,
        sampler: Sampler,
        shard: Shard,
        threads: Threads,
        start: LoaderState,
    ) -> Self {
        let plan = Plan::endless(sampler.clone(), shard, start.seed);
        let work = Arc::new(Work::new(&pipeline, plan));
        let steps = Prefetch::new(work, threads, start.step);
        let loader = DataLoader { pipeline, sampler, shard, start, steps };
        event!(DEBUG, ?loader, "a loader begins");
        loader
    }

    /// The batch of any step, made here and now. It neither moves nor disturbs the iteration.
    ///
    /// # Errors
    /// What the step fails with. It is not remembered.
    pub fn batch(&self, step: u64) -> Result<T> {
        self.steps.work().prepare(step, &Token::default(), &mut Vec::new())?.finish(step)
    }

    /// Goes on at `step`, which may lie anywhere, and forgets a failure. Batches that were made ahead are dropped.
    pub fn seek(&mut self, step: u64) {
        self.steps.seek(step);
    }

    /// The step that `next` gives.
    pub fn step(&self) -> u64 {
        self.steps.step()
    }

    /// Where the loader stands after the batches it handed out, to [`resume`](DataLoaderBuilder::resume) from.
    pub fn state(&self) -> LoaderState {
        LoaderState { step: self.step(), ..self.start.clone() }
    }

    /// Which records a step draws for which rank, and with which seeds, for finding out what a model saw.
    /// Replacements of damaged records are not among them.
    ///
    /// ```
    /// use loaderx::{DataLoader, DenseDataset};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("labels");
    /// # DenseDataset::<u64, ()>::create(&path, ())?.append(&(0..1000).collect::<Vec<_>>())?;
    /// // Each label is its own index here.
    /// let loader = DataLoader::builder(DenseDataset::<u64, ()>::open(path)?).batch_size(8).build()?;
    /// let drawn: Vec<u64> = loader.explain(70).records.iter().map(|record| record.index).collect();
    /// assert_eq!(loader.batch(70)?.values(), drawn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain(&self, step: u64) -> Explanation {
        Explanation::new(step, self.start.seed, self.shard.world(), &self.sampler.batch(step))
    }

    /// Goes over every record exactly once, in order: for evaluation. The last batch is short.
    ///
    /// Each rank gets its part of each global batch. Nothing is padded and no batch is empty, so a rank may get one
    /// batch fewer than another. The pass begins at step 0, has its own threads, and neither moves nor disturbs the
    /// endless iteration. Its transforms get the number of the batch as their step, and seeds of its own: those of pass
    /// number 0.
    pub fn pass(&self) -> Pass<T> {
        self.new_pass(None)
    }

    /// The same in a random order, a pure function of the loader's seed and `number`. Each number has seeds of its own.
    pub fn shuffled_pass(&self, number: u64) -> Pass<T> {
        self.new_pass(Some(number))
    }

    fn new_pass(&self, shuffle: Option<u64>) -> Pass<T> {
        self.new_pass_over(0..self.start.len, shuffle)
    }

    fn new_pass_over(&self, records: Range<u64>, shuffle: Option<u64>) -> Pass<T> {
        let LoaderState { batch_size, seed, .. } = self.start;
        let plan = Plan::pass(records, batch_size, self.shard, seed, shuffle);
        let work = Arc::new(Work::new(&self.pipeline, plan));
        Pass::new(Prefetch::new(work, self.steps.threads(), 0))
    }

    /// Goes over `records`, in order, as [`pass`](Self::pass) goes over all. The ranks of a loader that is one of several
    /// would share them in a way of their own: it is refused.
    #[cfg(feature = "burn")]
    pub(crate) fn pass_over(&self, records: Range<u64>) -> Result<Pass<T>> {
        let (len, world) = (self.start.len, self.shard.world());
        if records.start > records.end || records.end > len {
            return Err(Error::OutOfRange { index: records.start.max(len), len });
        }
        if world > 1 {
            let reason = format!("a pass over chosen records is not shared by {world} ranks: build the loader for one");
            return Err(Error::invalid("shard", reason));
        }
        Ok(self.new_pass_over(records, None))
    }

    /// A loader of its own for part `rank` of `world` equal parts of what this one draws, at the step where this one
    /// stands. It shares the stream and the transform.
    #[cfg(feature = "burn")]
    pub(crate) fn part(&self, rank: u64, world: u64) -> Result<DataLoader<T>> {
        // A world that overflows divides no batch.
        let worlds = self.shard.world().saturating_mul(world);
        let shard = Shard::new(self.shard.rank().saturating_mul(world).saturating_add(rank), worlds)?;
        check_shard(shard, &self.sampler, self.start.batch_size)?;
        let (pipeline, sampler, start) = (self.pipeline.clone(), self.sampler.clone(), self.state());
        Ok(DataLoader::new(pipeline, sampler, shard, self.steps.threads(), start))
    }

    /// How many records a step has.
    #[cfg(feature = "burn")]
    pub(crate) fn step_len(&self) -> u64 {
        let part = self.shard.range(self.sampler.batch_len());
        part.end - part.start
    }

    /// How many steps a cycle takes, where each begins with a batch of its own.
    pub(super) fn steps_per_cycle(&self) -> Option<u64> {
        self.sampler.steps_per_cycle()
    }

    /// What the iteration has done so far, and which side of it waits.
    pub fn metrics(&self) -> Metrics {
        self.steps.metrics()
    }

    /// Ends the loader and its threads, as dropping it does.
    pub fn close(self) {}
}

/// Endless: `next` gives a batch or an error, up to step 2^64 - 2.
impl<T: 'static> Iterator for DataLoader<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.steps.next()
    }
}

/// Whether a shard gives every rank of the sampler's batches the same number of records.
pub(super) fn check_shard(shard: Shard, sampler: &Sampler, batch_size: u64) -> Result<()> {
    let (world, batch_len) = (shard.world(), sampler.batch_len());
    if !batch_size.is_multiple_of(world) {
        let reason = format!("{world} ranks cannot share a batch of {batch_size} evenly: the world must divide it");
        return Err(Error::invalid("shard", reason));
    }
    if world > 1 && batch_len < batch_size {
        let reason = format!(
            "{batch_len} records do not fill a batch of {batch_size}, which ranks share: set at most {batch_len}, or \
             Mode::CyclicCarry"
        );
        return Err(Error::invalid("batch_size", reason));
    }
    Ok(())
}

impl<T: 'static> fmt::Debug for DataLoader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DataLoader");
        self.steps.show(shown.field("step", &self.step()));
        shown.finish()
    }
}
