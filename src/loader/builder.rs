//! How a loader is set up.

use std::error::Error as StdError;
use std::fmt;
use std::num::NonZero;
use std::thread;

use super::context::StepContext;
use super::corrupt::OnCorrupt;
use super::format::{Format, Native};
use super::loader::{DataLoader, check_shard};
use super::pipeline::{Transform, pipeline};
use super::prefetch::Threads;
use super::state::LoaderState;
use super::stream::{Stream, StreamPart};
use crate::engine::sampler::{Mode, Sampler, Shard};
use crate::error::{Error, Result};

/// The most batches that are made ahead, and the most workers.
const MAX_AHEAD: usize = 1 << 16;

/// Sets up a [`DataLoader`]; [`DataLoader::builder`] begins it and [`build`](Self::build) ends it.
///
/// | option | default | Python's loaderx |
/// |---|---|---|
/// | `batch_size` | 256 | 256 |
/// | `mode`, `weights`, `similar_lengths`, `block_shuffle` | [`Mode::Cyclic`]: each record once a cycle | IID: with replacement |
/// | `seed` | 42 | 42 |
/// | `workers` | one a core, 4 at most | 4 |
/// | `prefetch` | twice the workers: each has one batch in hand and one waiting | 4 |
/// | `shard` | rank 0 of 1 | none |
/// | `start_step` | 0 | 0 |
/// | `on_corrupt` | [`OnCorrupt::Fail`] | fails |
pub struct DataLoaderBuilder<S: Stream, B, F> {
    stream: S,
    transform: Transform<S::Batch, B>,
    format: F,
    options: Options,
}

/// What does not depend on the types.
struct Options {
    batch_size: u64,
    /// `None` until it is set.
    draw: Option<Draw>,
    seed: u64,
    workers: Option<usize>,
    prefetch: Option<usize>,
    shard: Shard,
    start_step: Option<u64>,
    state: Option<LoaderState>,
    on_corrupt: OnCorrupt,
}

/// By what records are drawn.
enum Draw {
    Mode(Mode),
    Weights(Vec<f64>),
    Lengths { lengths: Vec<u64>, window: u64 },
    Blocks { block: u64, window: u64 },
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_size: 256,
            draw: None,
            seed: 42,
            workers: None,
            prefetch: None,
            shard: Shard::default(),
            start_step: None,
            state: None,
            on_corrupt: OnCorrupt::default(),
        }
    }
}

impl<S: Stream> DataLoaderBuilder<S, S::Batch, Native> {
    pub(super) fn new(stream: S) -> Self {
        DataLoaderBuilder {
            stream,
            transform: Box::new(|_, batch| Ok(batch)),
            format: Native,
            options: Options::default(),
        }
    }
}

impl<S: Stream, B: 'static, F> DataLoaderBuilder<S, B, F> {
    /// Records in a global batch; the ranks share them evenly.
    pub fn batch_size(mut self, records: u64) -> Self {
        self.options.batch_size = records;
        self
    }

    /// In which order records are drawn.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.draw = Some(Draw::Mode(mode));
        self
    }

    /// Draws each record with a probability in proportion to its weight, with replacement: one number from 0 up for each
    /// record, as in [`Sampler::weighted`]. It sets the mode.
    pub fn weights(mut self, weights: impl Into<Vec<f64>>) -> Self {
        self.options.draw = Some(Draw::Weights(weights.into()));
        self
    }

    /// Draws each record once a cycle, in batches of similar length, so that padding is short: one length for each
    /// record, which [`RaggedDataset::lengths`](crate::RaggedDataset::lengths) gives, and how many batches are sorted at
    /// a time, as in [`Sampler::similar_lengths`]. It sets the mode.
    ///
    /// ```
    /// use loaderx::{DataLoader, RaggedDataset};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("tokens");
    /// # RaggedDataset::<u32>::create(&path, ())?.append((0..1000).map(|i| vec![i; 1 + i as usize * 37 % 90]))?;
    /// let tokens = RaggedDataset::<u32>::open(path)?;
    /// let lengths = tokens.lengths(..)?;
    /// let mut loader = DataLoader::builder(tokens).batch_size(16).similar_lengths(lengths, 32).build()?;
    /// if let Some(batch) = loader.next() {
    ///     let (padded, lengths) = batch?.pad(None, 0)?;
    ///     let used = lengths.iter().sum::<u64>() as f64 / padded.values().len() as f64;
    ///     assert!(used > 0.9);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn similar_lengths(mut self, lengths: impl Into<Vec<u64>>, window: u64) -> Self {
        self.options.draw = Some(Draw::Lengths { lengths: lengths.into(), window });
        self
    }

    /// Draws each record once a cycle, and neighbours close together, for data that is read from afar: the records of
    /// `window` blocks, each of `block` neighbours, are mixed at a time, as in [`Sampler::block_shuffle`]. It sets the mode.
    /// `loaderx plan` says what a block and a window ask of a store.
    ///
    /// ```
    /// use loaderx::{DataLoader, DenseDataset};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("labels");
    /// # DenseDataset::<i64, ()>::create(&path, ())?.append(&(0..1000).collect::<Vec<_>>())?;
    /// let labels = DenseDataset::<i64, ()>::open(path)?;
    /// let loader = DataLoader::builder(labels).batch_size(50).block_shuffle(25, 4).build()?;
    /// // Each two batches are the 100 records of four blocks.
    /// let mut drawn = [loader.batch(6)?.into_values(), loader.batch(7)?.into_values()].concat();
    /// drawn.sort();
    /// assert!(drawn.chunks(25).all(|block| block[0] % 25 == 0 && block[24] == block[0] + 24));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_shuffle(mut self, block: u64, window: u64) -> Self {
        self.options.draw = Some(Draw::Blocks { block, window });
        self
    }

    /// What the order and the transforms' seeds are made from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// How many threads make batches; 0 makes each in the caller of `next`. The batches are the same either way.
    pub fn workers(mut self, threads: usize) -> Self {
        self.options.workers = Some(threads);
        self
    }

    /// How many batches are made ahead at most, beside the one that the consumer holds; at least 1. Without workers it
    /// has no meaning.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.options.prefetch = Some(batches);
        self
    }

    /// Draws one rank's part of each global batch; the world divides the batch size.
    pub fn shard(mut self, shard: Shard) -> Self {
        self.options.shard = shard;
        self
    }

    /// The step that goes out first.
    pub fn start_step(mut self, step: u64) -> Self {
        self.options.start_step = Some(step);
        self
    }

    /// Goes on where another loader stood. The mode, seed and batch size must be set as they were there, and the
    /// streams must hold the same records; they may have grown, which the loader does not see: it goes on with the
    /// length it had. Workers, prefetch, rank and world may differ.
    pub fn resume(mut self, state: LoaderState) -> Self {
        self.options.state = Some(state);
        self
    }

    /// What becomes of a step that draws a damaged record: it fails, unless set.
    pub fn on_corrupt(mut self, policy: OnCorrupt) -> Self {
        self.options.on_corrupt = policy;
        self
    }

    /// Transforms each batch, in the workers; further calls transform what the earlier ones gave. An error of any type
    /// reaches the consumer as [`Error::Transform`] within [`Error::Step`], a panic as [`Error::Panic`].
    pub fn map<U, M>(self, transform: M) -> DataLoaderBuilder<S, U, F>
    where
        M: Fn(&StepContext, B) -> Result<U, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    {
        let DataLoaderBuilder { stream, transform: earlier, format, options } = self;
        let transform: Transform<S::Batch, U> = Box::new(move |context, batch| {
            transform(context, earlier(context, batch)?).map_err(|error| Error::Transform(error.into()))
        });
        DataLoaderBuilder { stream, transform, format, options }
    }

    /// What comes out: batches as they are ([`Native`], unless set), or what a [`Format`] of your own makes of them.
    pub fn yields<G: Format<B>>(self, format: G) -> DataLoaderBuilder<S, B, G> {
        let DataLoaderBuilder { stream, transform, options, .. } = self;
        DataLoaderBuilder { stream, transform, format, options }
    }

    /// Builds the loader. No thread starts before the first `next`.
    ///
    /// # Errors
    /// - [`Error::Invalid`]: no streams, streams of unequal lengths, no records; a batch of no records or of more than
    ///   2^32; a block or a window of 0; weights or lengths that are not one a record, and weights that [`Sampler`] refuses; a world that does not divide the batch size; a batch that is larger than the data in a mode of whole cycles, with more than
    ///   one rank (with one, each step is one short batch: the whole data); a prefetch of 0 with workers, or more than
    ///   65536 of either; both `start_step` and `resume`.
    /// - [`Error::State`]: the saved state does not fit.
    /// - What the streams report.
    pub fn build(self) -> Result<DataLoader<F::Out>>
    where
        F: Format<B>,
    {
        let DataLoaderBuilder { stream, transform, format, options } = self;
        let threads = options.threads()?;
        let parts = stream.parts()?;
        let len = options.len(&parts)?;
        let sampler = options.sampler(len, stream.sources())?;
        if let Some(state) = &options.state {
            state.check_order(&sampler)?;
        }
        let shard = options.shard;
        check_shard(shard, &sampler, options.batch_size)?;
        let fingerprints = stream.fingerprint(len)?;
        let on_corrupt = options.on_corrupt;
        let start = options.start(&sampler, &parts, fingerprints)?;
        Ok(DataLoader::new(pipeline(stream, on_corrupt, transform, format), sampler, shard, threads, start))
    }
}

impl Options {
    fn threads(&self) -> Result<Threads> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers = self.workers.unwrap_or(cores.min(4));
        let prefetch = self.prefetch.unwrap_or(workers.saturating_mul(2).min(MAX_AHEAD));
        if workers > 0 && prefetch == 0 {
            return Err(Error::invalid(
                "prefetch",
                "0 batches leave the workers nothing to make: at least 1, or workers(0)",
            ));
        }
        for (what, value) in [("workers", workers), ("prefetch", prefetch)] {
            if value > MAX_AHEAD {
                return Err(Error::invalid(what, format!("{value} are more than {MAX_AHEAD}")));
            }
        }
        Ok(Threads { workers, prefetch })
    }

    /// How many records are drawn from: what there is, or what there was when the state was saved.
    fn len(&self, parts: &[StreamPart]) -> Result<u64> {
        let Some(first) = parts.first() else {
            return Err(Error::invalid("streams", "there are none: a loader needs one at least"));
        };
        if let Some(state) = &self.state {
            state.check_lengths(parts)?;
            return Ok(state.len);
        }
        if let Some(other) = parts.iter().find(|part| part.len != first.len) {
            let (name, len) = (first.label(), first.len);
            let reason = format!(
                "{name} has {len} records and {} has {}: streams must be equally long",
                other.label(),
                other.len
            );
            return Err(Error::invalid("streams", reason));
        }
        if first.len == 0 {
            return Err(Error::invalid("streams", format!("{} has no records to draw from", first.label())));
        }
        Ok(first.len)
    }

    /// Draws from `len` records, which may be several sources'.
    fn sampler(&self, len: u64, sources: Option<Vec<(u64, f64)>>) -> Result<Sampler> {
        let (batch_size, seed) = (self.batch_size, self.seed);
        let one_each = |what, given: usize| {
            let reason = format!("there are {given} for {len} records: one for each is needed");
            if given as u64 == len { Ok(()) } else { Err(Error::invalid(what, reason)) }
        };
        match (&self.draw, sources) {
            (Some(Draw::Weights(weights)), _) => {
                one_each("weights", weights.len())?;
                Sampler::weighted(weights, batch_size, seed)
            }
            (Some(Draw::Lengths { lengths, window }), _) => {
                one_each("lengths", lengths.len())?;
                Sampler::similar_lengths(lengths.clone(), *window, batch_size, seed)
            }
            (Some(Draw::Blocks { block, window }), _) => Sampler::block_shuffle(len, *block, *window, batch_size, seed),
            (None | Some(Draw::Mode(Mode::Mixture)), Some(sources)) => Sampler::mixture(&sources, batch_size, seed),
            (Some(Draw::Mode(mode)), _) => Sampler::new(*mode, len, batch_size, seed),
            (None, None) => Sampler::new(Mode::default(), len, batch_size, seed),
        }
    }

    /// Where the loader begins.
    fn start(self, sampler: &Sampler, parts: &[StreamPart], fingerprints: Vec<u64>) -> Result<LoaderState> {
        if fingerprints.len() != parts.len() {
            let (given, parts) = (fingerprints.len(), parts.len());
            let reason = format!("{given} fingerprints for {parts} parts: `Stream::fingerprint` gives one for each");
            return Err(Error::invalid("streams", reason));
        }
        let Some(state) = self.state else {
            return Ok(LoaderState {
                step: self.start_step.unwrap_or(0),
                seed: sampler.seed(),
                mode: sampler.mode(),
                batch_size: sampler.batch_size(),
                len: sampler.len(),
                order: sampler.identity(),
                fingerprints,
            });
        };
        if let Some(step) = self.start_step {
            let reason = format!("step {step} was asked for, and the state to resume says {}: set one", state.step);
            return Err(Error::invalid("start_step", reason));
        }
        state.check_streams(parts, &fingerprints)?;
        Ok(state)
    }
}

/// What was set; where nothing is said of an option, it has the default.
impl<S: Stream, B, F> fmt::Debug for DataLoaderBuilder<S, B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { batch_size, draw, seed, workers, prefetch, shard, start_step, state, on_corrupt } = &self.options;
        let mut shown = f.debug_struct("DataLoaderBuilder");
        shown.field("records", &self.stream.len()).field("batch_size", batch_size);
        match draw {
            Some(Draw::Mode(mode)) => shown.field("mode", mode),
            Some(Draw::Weights(weights)) => shown.field("weights", &weights.len()),
            Some(Draw::Lengths { lengths, window }) => {
                shown.field("similar_lengths", &lengths.len()).field("window", window)
            }
            Some(Draw::Blocks { block, window }) => shown.field("block", block).field("window", window),
            None => &mut shown,
        };
        shown.field("seed", seed).field("rank", &shard.rank()).field("world", &shard.world());
        let resume = &state.as_ref().map(|state| state.step);
        for (name, set) in [("start_step", start_step), ("resume", resume)] {
            set.iter().for_each(|step| _ = shown.field(name, step));
        }
        for (name, set) in [("workers", workers), ("prefetch", prefetch)] {
            set.iter().for_each(|count| _ = shown.field(name, count));
        }
        shown.field("on_corrupt", on_corrupt).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::NamedStreams;
    use super::super::testing::Memory;
    use super::*;

    fn refusal<T>(loader: Result<DataLoader<T>>) -> String {
        match loader {
            Err(error @ Error::Invalid { .. }) => error.to_string(),
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("it was built"),
        }
    }

    fn of(len: u64) -> DataLoaderBuilder<Memory, Vec<u64>, Native> {
        DataLoader::builder(Memory::new(len)).batch_size(8)
    }

    #[test]
    fn unfit_options_are_refused_when_the_loader_is_built() {
        let shard = |rank, world| Shard::new(rank, world).unwrap();
        for (loader, says) in [
            (of(0), "no records"),
            (of(9).batch_size(0), "not 0"),
            (of(9).batch_size(u64::MAX), "not 18446744073709551615"),
            (of(9).shard(shard(1, 3)), "3 ranks cannot share a batch of 8 evenly"),
            (of(7).shard(shard(1, 2)), "7 records do not fill a batch of 8"),
            (of(7).shard(shard(1, 2)).block_shuffle(3, 2), "7 records do not fill a batch of 8"),
            (of(9).block_shuffle(0, 2), "a block of 0 records"),
            (of(9).block_shuffle(3, 0), "0 blocks hold nothing"),
            (of(9).mode(Mode::BlockShuffle), "sources or blocks: give them"),
            (of(9).workers(1).prefetch(0), "at least 1"),
            (of(9).workers(usize::MAX), "more than 65536"),
            (of(9).prefetch(usize::MAX), "more than 65536"),
        ] {
            let text = refusal(loader.build());
            assert!(text.contains(says), "{text}");
        }
        assert!(of(9).workers(0).prefetch(0).build().is_ok());
        assert!(of(7).shard(shard(1, 2)).mode(Mode::CyclicCarry).build().is_ok());
    }

    #[test]
    fn debug_says_what_was_set_and_not_each_weight() {
        let shown = format!("{:?}", of(9).workers(3).shard(Shard::new(1, 2).unwrap()).weights(vec![0.5; 9]));
        let wanted = "DataLoaderBuilder { records: 9, batch_size: 8, weights: 9, seed: 42, rank: 1, world: 2, workers: 3, \
                      on_corrupt: Fail, .. }";
        assert_eq!(shown, wanted);
        let state = of(9).start_step(5).build().unwrap().state();
        let shown = format!("{:?}", of(9).similar_lengths(vec![7; 9], 4).resume(state));
        assert!(shown.contains(" similar_lengths: 9, window: 4,") && shown.contains(" resume: 5,"), "{shown}");
        assert!(format!("{:?}", of(9).mode(Mode::Iid)).contains(" mode: Iid,"));
        assert!(format!("{:?}", of(9).block_shuffle(3, 2)).contains(" block: 3, window: 2,"));
    }

    #[test]
    fn a_cyclic_batch_larger_than_the_data_is_short() {
        let mut loader = of(5).build().unwrap();
        for _ in 0..3 {
            let mut batch = loader.next().unwrap().unwrap();
            batch.sort_unstable();
            let mut all: Vec<_> = (0..5).map(|index| Memory::new(5).record(index)).collect();
            all.sort_unstable();
            assert_eq!(batch, all);
        }
        assert_eq!(loader.pass().map(Result::unwrap).map(|batch| batch.len()).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn streams_are_one_at_least_and_equally_long() {
        let text = refusal(DataLoader::builder(NamedStreams::new()).build());
        assert!(text.contains("there are none"), "{text}");
        let text = refusal(DataLoader::builder((Memory::new(300), Memory::new(301))).build());
        assert!(text.contains("stream 0 has 300 records and stream 1 has 301"), "{text}");
        let named = NamedStreams::new().with("x", Memory::new(3)).with("y", (Memory::new(3), Memory::new(4)));
        let text = refusal(DataLoader::builder(named).build());
        assert!(text.contains("x has 3 records and y (stream 1) has 4"), "{text}");
        let text = refusal(
            DataLoader::builder(NamedStreams::new().with("x", Memory::new(3)).with("x", Memory::new(3))).build(),
        );
        assert!(text.contains("two streams are named \"x\""), "{text}");
    }
}
