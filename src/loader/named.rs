//! Streams that are told apart by name, where a tuple would be too rigid.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use super::stream::{Stream, StreamPart};
use crate::error::{Error, Result};

/// Streams by name; each batch is a [`NamedBatch`].
///
/// Names are unique and there is at least one stream: else building the loader is an error.
///
/// ```
/// use loaderx::{DataLoader, DenseBatch, DenseDataset, NamedStreams, RaggedBatch, RaggedDataset};
///
/// # let directory = tempfile::tempdir()?;
/// # let (tokens, labels) = (directory.path().join("tokens"), directory.path().join("labels"));
/// # RaggedDataset::<u32>::create(&tokens, ())?.append([vec![1, 2], vec![3]])?;
/// # DenseDataset::<i64, ()>::create(&labels, ())?.append(&[0, 1])?;
/// let streams = NamedStreams::new()
///     .with("tokens", RaggedDataset::<u32>::open(tokens)?)
///     .with("labels", DenseDataset::<i64, ()>::open(labels)?);
/// let mut loader = DataLoader::builder(streams).batch_size(2).build()?;
/// if let Some(batch) = loader.next() {
///     let mut batch = batch?;
///     let tokens: RaggedBatch<u32> = batch.take("tokens")?;
///     let labels: DenseBatch<i64, ()> = batch.take("labels")?;
///     assert_eq!((tokens.len(), labels.len()), (2, 2));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct NamedStreams {
    streams: Vec<(Arc<str>, Box<dyn AnyStream>)>,
}

impl NamedStreams {
    /// No streams yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stream.
    pub fn with(mut self, name: &str, stream: impl Stream) -> Self {
        self.streams.push((name.into(), Box::new(stream)));
        self
    }

    /// The names, in the order in which the streams were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|(name, _)| &**name)
    }
}

/// `{"tokens": RaggedDataset<u32, ()> of 100 records}`.
impl fmt::Debug for NamedStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_map();
        for (name, stream) in &self.streams {
            shown.entry(name, &format_args!("{} of {} records", ShortName(stream.kind()), stream.len()));
        }
        shown.finish()
    }
}

impl Stream for NamedStreams {
    type Batch = NamedBatch;

    fn len(&self) -> u64 {
        self.streams.iter().map(|(_, stream)| stream.len()).min().unwrap_or(0)
    }

    fn gather(&self, indices: &[u64]) -> Result<NamedBatch> {
        let gathered = self.streams.iter().map(|(name, stream)| stream.gather(name, indices));
        Ok(NamedBatch { entries: gathered.collect::<Result<_>>()? })
    }

    fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
        let each = self.streams.iter().map(|(_, stream)| stream.fingerprint(len));
        Ok(each.collect::<Result<Vec<_>>>()?.concat())
    }

    fn reads_ahead(&self) -> bool {
        self.streams.iter().any(|(_, stream)| stream.reads_ahead())
    }

    /// Each is told; those that read ahead say whether there is room.
    fn prefetch(&self, indices: &[u64]) -> bool {
        let far = self.streams.iter().filter(|(_, stream)| stream.reads_ahead());
        far.fold(true, |more, (_, stream)| stream.prefetch(indices) && more)
    }

    fn batch_bytes(batch: &NamedBatch) -> u64 {
        batch.entries.iter().map(|entry| entry.bytes).sum()
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        let mut parts = Vec::new();
        for (at, (name, stream)) in self.streams.iter().enumerate() {
            if self.names().take(at).any(|earlier| earlier == &**name) {
                return Err(Error::invalid("streams", format!("two streams are named {name:?}: names are unique")));
            }
            parts.extend(stream.parts(name)?);
        }
        Ok(parts)
    }
}

/// A [`Stream`] whose batch type is forgotten.
trait AnyStream: Send + Sync {
    /// The name of its type.
    fn kind(&self) -> &'static str;
    fn len(&self) -> u64;
    fn gather(&self, name: &Arc<str>, indices: &[u64]) -> Result<Entry>;
    fn fingerprint(&self, len: u64) -> Result<Vec<u64>>;
    fn reads_ahead(&self) -> bool;
    fn prefetch(&self, indices: &[u64]) -> bool;
    fn parts(&self, name: &str) -> Result<Vec<StreamPart>>;
}

impl<S: Stream> AnyStream for S {
    fn kind(&self) -> &'static str {
        type_name::<S>()
    }

    fn len(&self) -> u64 {
        Stream::len(self)
    }

    fn gather(&self, name: &Arc<str>, indices: &[u64]) -> Result<Entry> {
        let batch = Stream::gather(self, indices)?;
        let bytes = S::batch_bytes(&batch);
        Ok(Entry { name: name.clone(), kind: type_name::<S::Batch>(), bytes, batch: Some(Box::new(batch)) })
    }

    fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
        Stream::fingerprint(self, len)
    }

    fn reads_ahead(&self) -> bool {
        Stream::reads_ahead(self)
    }

    fn prefetch(&self, indices: &[u64]) -> bool {
        Stream::prefetch(self, indices)
    }

    fn parts(&self, name: &str) -> Result<Vec<StreamPart>> {
        StreamPart::within(name, self)
    }
}

/// One step's batch of each of [`NamedStreams`].
pub struct NamedBatch {
    entries: Vec<Entry>,
}

struct Entry {
    name: Arc<str>,
    kind: &'static str,
    bytes: u64,
    /// `None` once it was taken.
    batch: Option<Box<dyn Any + Send>>,
}

impl NamedBatch {
    /// Takes out the batch of the stream `name`; `T` is that stream's batch type.
    ///
    /// # Errors
    /// An unknown name, another type, or a batch that was taken before; the error lists what there is.
    pub fn take<T: 'static>(&mut self, name: &str) -> Result<T> {
        let entry = self.entries.iter_mut().find(|entry| &*entry.name == name);
        if let Some(slot) = entry.map(|entry| &mut entry.batch)
            && slot.as_ref().is_some_and(|batch| batch.is::<T>())
            && let Some(Ok(batch)) = slot.take().map(|batch| batch.downcast::<T>())
        {
            return Ok(*batch);
        }
        Err(self.refusal::<T>(name))
    }

    /// The batch of the stream `name`; `T` is that stream's batch type.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn get<T: 'static>(&self, name: &str) -> Result<&T> {
        let entry = self.entries.iter().find(|entry| &*entry.name == name);
        let batch = entry.and_then(|entry| entry.batch.as_ref()?.downcast_ref());
        batch.ok_or_else(|| self.refusal::<T>(name))
    }

    /// The names, in the order in which the streams were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    fn refusal<T>(&self, name: &str) -> Error {
        let reason = match self.entries.iter().find(|entry| &*entry.name == name) {
            None => format!("there is no stream {name:?}"),
            Some(Entry { batch: None, .. }) => format!("the batch of {name:?} was taken before"),
            Some(_) => format!("the batch of {name:?} is no {}", ShortName(type_name::<T>())),
        };
        Error::invalid("named batch", format!("{reason}; there is {self}"))
    }
}

/// The name of a type without the modules that it and its parameters lie in.
struct ShortName<'a>(&'a str);

impl fmt::Display for ShortName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        self.0
            .split_inclusive(|letter| !in_path(letter))
            .try_for_each(|piece| f.write_str(piece.rsplit_once("::").map_or(piece, |(_, name)| name)))
    }
}

/// `images: DenseBatch<u8, [usize; 2]>, labels: DenseBatch<i64, ()>`.
impl fmt::Display for NamedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.entries.iter().enumerate() {
            let taken = if entry.batch.is_none() { " (taken)" } else { "" };
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}{taken}", entry.name, ShortName(entry.kind))?;
        }
        Ok(())
    }
}

impl fmt::Debug for NamedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedBatch {{ {self} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::DataLoader;
    use super::super::testing::Memory;
    use super::*;

    #[test]
    fn batches_are_taken_by_name_and_type() {
        let streams =
            NamedStreams::new().with("x", Memory::new(9)).with("pair", (Memory::new(9), Memory::salted(9, 1)));
        assert_eq!(streams.names().collect::<Vec<_>>(), ["x", "pair"]);
        assert_eq!(Stream::fingerprint(&streams, 9).unwrap(), [0, 0, 1]);
        let mut batch = Stream::gather(&streams, &[3, 1]).unwrap();
        assert_eq!(NamedStreams::batch_bytes(&batch), 3 * 16);
        assert_eq!(batch.names().collect::<Vec<_>>(), ["x", "pair"]);

        let memory = Memory::new(9);
        let x = vec![memory.record(3), memory.record(1)];
        let error = batch.take::<u8>("x").unwrap_err().to_string();
        assert!(error.contains("\"x\" is no u8") && error.contains("pair: ("), "{error}");
        assert_eq!(batch.get::<Vec<u64>>("x").unwrap(), &x);
        assert_eq!(batch.take::<Vec<u64>>("x").unwrap(), x);
        for error in [batch.take::<Vec<u64>>("x").unwrap_err(), batch.get::<Vec<u64>>("x").unwrap_err()] {
            assert!(error.to_string().contains("was taken before"), "{error}");
        }
        let error = batch.take::<Vec<u64>>("y").unwrap_err().to_string();
        assert!(error.contains("no stream \"y\"") && error.contains("(taken), pair: ("), "{error}");
        assert_eq!(batch.take::<(Vec<u64>, Vec<u64>)>("pair").unwrap().0, x);
    }

    #[test]
    fn types_are_called_by_their_short_names() {
        for (name, short) in [
            ("u8", "u8"),
            ("alloc::vec::Vec<u64>", "Vec<u64>"),
            ("loaderx::data::batch::DenseBatch<half::binary16::f16, [usize; 2]>", "DenseBatch<f16, [usize; 2]>"),
            ("(a::B, a::c::D<e::F, g::h::I>)", "(B, D<F, I>)"),
            ("a::b::{{closure}}", "{{closure}}"),
        ] {
            assert_eq!(ShortName(name).to_string(), short);
        }
        let streams =
            NamedStreams::new().with("x", Arc::new(Memory::new(9))).with("pair", (Memory::new(9), Memory::new(8)));
        let shown = "{\"x\": Arc<Memory> of 9 records, \"pair\": (Memory, Memory) of 8 records}";
        assert_eq!(format!("{streams:?}"), shown);
        let mut batch = Stream::gather(&streams, &[3]).unwrap();
        let error = batch.take::<std::rc::Rc<u8>>("x").unwrap_err().to_string();
        assert!(error.contains("is no Rc<u8>; there is x: Vec<u64>, pair: (Vec<u64>, Vec<u64>)"), "{error}");
        assert_eq!(format!("{batch:?}"), "NamedBatch { x: Vec<u64>, pair: (Vec<u64>, Vec<u64>) }");
    }

    #[test]
    fn a_loader_of_named_streams_lines_records_up() {
        let streams = NamedStreams::new().with("x", Memory::new(90)).with("y", Memory::salted(90, 1));
        let builder = DataLoader::builder(streams).batch_size(4).workers(2);
        let builder = builder.map(|_, mut batch| Ok((batch.take::<Vec<u64>>("x")?, batch.take::<Vec<u64>>("y")?)));
        for batch in builder.build().unwrap().take(5) {
            let (x, y) = batch.unwrap();
            assert!(x.iter().zip(&y).all(|(x, y)| x ^ 1 == *y));
        }
    }
}
