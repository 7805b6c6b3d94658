//! `Import`: what is imported, and how.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::choose::Choice;
use super::journal::Journal;
use super::place::{Left, Partial, nameless_file, refuse_existing};
use super::plan::{Plan, Target};
use super::write::{Done, Fill, Settings, shared_setters};
use crate::data::{AnyDataset, DType};
use crate::error::{Error, Result};
use crate::{Codec, DictSize, Records, StoreOptions};

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Rows that were appended; records, where records are imported.
    pub rows: u64,
    /// Rows in all, over all tables of all sources. `None` where an iterator does not say, and for lines.
    pub rows_total: Option<u64>,
    /// Bytes of those rows, before compression.
    pub bytes: u64,
    /// Bytes of the sources that were read.
    pub source_bytes: u64,
    /// Bytes of the sources in all. `None` where nobody knows.
    pub source_bytes_total: Option<u64>,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// The stores that were made: the destination itself, or one a member or tensor in it.
    pub stores: Vec<PathBuf>,
    /// Records that were imported, into all stores together.
    pub rows: u64,
    /// Their bytes, before compression.
    pub bytes: u64,
    /// Whether a `DST.partial` that an earlier import left when it was killed was replaced.
    pub replaced_partial: bool,
    /// Whether the import went on where an earlier one had stopped.
    pub resumed: bool,
}

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceFormat {
    /// NumPy's `.npy`: each row along the first axis is a record.
    Npy,
    /// NumPy's `.npz`: a store for each array.
    Npz,
    /// `.safetensors`: a store for each tensor.
    Safetensors,
    /// Text: each line is a record of its bytes, without `\n` or `\r\n` at its end. What follows the last newline is a
    /// record where it is not empty. No encoding is asked for.
    Text,
    /// JSON lines: the same, and each line must be a JSON value.
    JsonLines,
    /// Any file: all of it is one record.
    Bytes,
}

impl fmt::Display for SourceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SourceFormat::Npy => "npy",
            SourceFormat::Npz => "npz",
            SourceFormat::Safetensors => "safetensors",
            SourceFormat::Text => "text",
            SourceFormat::JsonLines => "jsonl",
            SourceFormat::Bytes => "bytes",
        })
    }
}

/// Imports files, folders, or an iterator of records, into a store.
///
/// Each row along the first axis of an array becomes a record; each line of a text; each file of a folder. The store is
/// built in `DST.partial`, a directory beside the destination `DST`, and moved to `DST` when it is complete and durable:
/// `DST` never appears half-made. An error removes `DST.partial`; what a killed or stopped import left is replaced by the
/// next one, or taken up by one that [resumes](Import::resume). An existing `DST` is an error.
///
/// Arrays are stored in C order and little-endian, whatever the file has. Memory stays bounded by some blocks of 8 MiB
/// (32 MiB for Fortran order), or by a record where one is larger, and by 64 MiB of samples where a dictionary is
/// trained. A folder's file names are in memory, too.
///
/// # Errors
///
/// Arrays that no dataset can hold (complex numbers, dates, strings, structures, pickled objects, no dimensions), bools
/// other than 0 and 1, data that is cut short or followed by more, more than 2^24 rows, and rows over the record limit
/// are refused with the file's name and the reason.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (src, dst) = (dir.path().join("images.npy"), dir.path().join("images"));
/// # let mut npy = b"\x93NUMPY\x01\x00\x38\x00{'descr': '|u1', 'fortran_order': False, 'shape': (2,3)}".to_vec();
/// # npy.resize(10 + 0x38, b' ');
/// # std::fs::write(&src, [&npy[..], &[1, 2, 3, 4, 5, 6]].concat())?;
/// use loaderx::{Codec, Import};
///
/// // A .npy file of shape (2, 3) becomes two records of three elements.
/// let imported = Import::new().codec(Codec::Raw).npy(&src, &dst)?;
/// assert_eq!((imported.rows, imported.bytes), (2, 6));
/// # Ok(())
/// # }
/// ```
pub struct Import<'a> {
    pub(super) settings: Settings,
    choice: Choice,
    format: Option<SourceFormat>,
    source_metadata: bool,
    pub(super) resume: bool,
    pub(super) stop: Option<&'a AtomicBool>,
    pub(super) samples: Option<Records>,
    pub(super) progress: Box<dyn FnMut(Progress) + 'a>,
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("settings", &self.settings)
            .field("choice", &self.choice)
            .field("format", &self.format)
            .field("resume", &self.resume)
            .finish_non_exhaustive()
    }
}

impl Default for Import<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Import<'a> {
    /// The defaults: codec zstd at its default level, all tables of the file, records to 1 MiB, no progress.
    pub fn new() -> Self {
        Import {
            settings: Settings::default(),
            choice: Choice::default(),
            format: None,
            source_metadata: true,
            resume: false,
            stop: None,
            samples: None,
            progress: Box::new(|_| {}),
        }
    }

    shared_setters!();

    /// What the sources are, whatever their names end with.
    pub fn format(mut self, format: SourceFormat) -> Self {
        self.format = Some(format);
        self
    }

    /// Whether the store's metadata keeps what the sources say of themselves, which it does unless this is false: under
    /// `names` the names of files that became records, a list of strings, and under `__metadata__` that entry of a
    /// .safetensors file, a map of strings. All metadata together takes 1 MiB at most.
    pub fn source_metadata(mut self, keep: bool) -> Self {
        self.source_metadata = keep;
        self
    }

    /// Whether to go on with what an earlier import left in `DST.partial` when it was stopped or killed. The store is
    /// then the same as that of an import in one go.
    ///
    /// It must have been begun with the same sources, of the same sizes and times, and the same settings: a contradiction
    /// is an error that names it, and leaves all as it is. Where nothing was left, the import begins anew. Streams and
    /// iterators cannot be read again, and are never resumed.
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Stops with [`Error::Interrupted`] soon after `stop` becomes true, at the end of a block of records. `DST.partial`
    /// stays where the import can be [resumed](Import::resume), and is removed where not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (src, dst) = (dir.path().join("words.txt"), dir.path().join("words"));
    /// # std::fs::write(&src, "one\ntwo\n")?;
    /// use std::sync::atomic::AtomicBool;
    /// use loaderx::{Error, Import};
    ///
    /// let stop = AtomicBool::new(true); // by a signal handler, or another thread
    /// assert!(matches!(Import::new().stop(&stop).path(&src, &dst), Err(Error::Interrupted { .. })));
    /// assert!(!dst.exists());
    /// assert_eq!(Import::new().resume(true).path(&src, &dst)?.rows, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// What elements are that NumPy saved as `<V2`: [`DType::BF16`] is the only answer. Other arrays of the file keep
    /// the type that they have; an error where no array needs the word.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.choice.dtype = Some(dtype);
        self
    }

    /// The largest record in bytes, up to 4 GiB - 1; 1 MiB unless set.
    pub fn record_limit(mut self, bytes: u32) -> Self {
        self.settings.record_limit = bytes;
        self
    }

    /// Takes only these members of a .npz (named without .npy) or tensors of a .safetensors.
    pub fn tensors(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.choice.tensors.extend(names.into_iter().map(Into::into));
        self
    }

    /// An entry for the schema of every store that is made: a key of your own, and anything that serde can write. A
    /// struct becomes a map.
    ///
    /// A key that is taken or that cannot be written is an error when the import begins.
    pub fn metadata(mut self, key: &str, value: &impl Serialize) -> Self {
        self.settings.metadata = self.settings.metadata.and_then(|mut metadata| {
            metadata.insert(key, value)?;
            Ok(metadata)
        });
        self
    }

    /// Imports a file, whose extension says what it is unless [`format`](Import::format) does: .npy, .npz, .safetensors,
    /// .txt, .jsonl or .ndjson; or a folder, each of whose files becomes a record of bytes.
    ///
    /// The files of a folder are those below it, too, in the order of their names' bytes, which are the paths below the
    /// folder with `/` between their parts. Hidden files and folders, whose names begin with a dot, are left out. Links
    /// to files are followed, links to folders are an error.
    ///
    /// ```
    /// use loaderx::{AnyDataset, Import};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let (folder, dst) = (dir.path().join("letters"), dir.path().join("store"));
    /// std::fs::create_dir_all(folder.join("b"))?;
    /// std::fs::write(folder.join("b/1.txt"), "second")?;
    /// std::fs::write(folder.join("a.txt"), "first")?;
    /// Import::new().path(&folder, &dst)?;
    ///
    /// let store = AnyDataset::open(&dst)?;
    /// assert_eq!(store.get(0)?, b"first");
    /// assert_eq!(store.metadata::<Vec<String>>("names")?.unwrap(), ["a.txt", "b/1.txt"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`paths`](Import::paths).
    pub fn path(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.paths([source], destination)
    }

    /// Imports files and folders, one behind the other, into one store: what [`path`](Import::path) takes, and all of one
    /// dtype and item shape. The arrays of several archives become the same stores, by their names.
    ///
    /// ```
    /// use loaderx::{Import, RaggedDataset};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let (one, two, dst) = (dir.path().join("1.txt"), dir.path().join("2.txt"), dir.path().join("store"));
    /// std::fs::write(&one, "first\r\nsecond\n")?;
    /// std::fs::write(&two, "third")?;
    /// assert_eq!(Import::new().paths([&one, &two], &dst)?.rows, 3);
    /// assert_eq!(RaggedDataset::<u8>::open(&dst)?.read(1)?.values(), b"second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What [`Import`] refuses; [`Error::Exists`], where the destination or something else in its place is; [`Error::Locked`] while
    /// another import makes it; [`Error::Dictionary`]; [`Error::Interrupted`] after [`stop`](Import::stop); [`Error::Io`].
    pub fn paths(
        self,
        sources: impl IntoIterator<Item = impl AsRef<Path>>,
        destination: impl AsRef<Path>,
    ) -> Result<Imported> {
        let plan = self.plan(sources)?;
        self.run(plan, destination.as_ref())
    }

    /// Imports a .npy file of shape `(n, …)` into the dense store `destination` of `n` records.
    ///
    /// # Errors
    /// As [`paths`](Import::paths).
    pub fn npy(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.format(SourceFormat::Npy).path(source, destination)
    }

    /// Imports the members of a .npz archive, each into a dense store `destination/<name>`.
    ///
    /// A member that is not an array, or has no element type of a dataset, is an error: choose the others with
    /// [`tensors`](Import::tensors). Names may have folders, but lead nowhere outside of `destination`.
    ///
    /// # Errors
    /// As [`paths`](Import::paths).
    pub fn npz(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.format(SourceFormat::Npz).path(source, destination)
    }

    /// Imports the tensors of a .safetensors file along their first axis, each into a dense store
    /// `destination/<name>`. What holds for the members of an archive holds for them.
    ///
    /// # Errors
    /// As [`paths`](Import::paths).
    pub fn safetensors(self, source: impl AsRef<Path>, destination: impl AsRef<Path>) -> Result<Imported> {
        self.format(SourceFormat::Safetensors).path(source, destination)
    }

    /// Imports what `reader` gives, once and to its end; `name` is what errors call it. The [`format`](Import::format)
    /// must be set: text and JSON lines are read as they come, and a .npy is written to a nameless file beside the
    /// destination first. Others, and training a dictionary on lines, need a file.
    ///
    /// ```
    /// use loaderx::{Import, SourceFormat};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let dst = dir.path().join("store");
    /// let response = &b"{\"text\": \"one\"}\n{\"text\": \"two\"}\n"[..];
    /// let imported = Import::new().format(SourceFormat::JsonLines).reader("the response", response, &dst)?;
    /// assert_eq!(imported.rows, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`paths`](Import::paths), and [`Error::Invalid`] where the format is not set, or needs a file.
    pub fn reader(self, name: impl AsRef<Path>, reader: impl Read, destination: impl AsRef<Path>) -> Result<Imported> {
        let destination = destination.as_ref();
        // Before anything is read.
        refuse_existing(&*self.settings.disk, destination)?;
        let plan = self.stream(name.as_ref(), reader, destination)?;
        self.run(plan, destination)
    }

    /// Appends files and folders to the store `destination`, which must exist and hold records of the same kind, dtype
    /// and item shape; an archive's arrays to the stores `destination/<name>`. The codec is the store's own, and its
    /// metadata stays as it is. Gives the records that were appended.
    ///
    /// # Errors
    /// As [`paths`](Import::paths). Before anything is appended, all sources are looked at; what fails later, such as a
    /// line that is no JSON, leaves the records before it in the store.
    pub fn append(
        self,
        sources: impl IntoIterator<Item = impl AsRef<Path>>,
        destination: impl AsRef<Path>,
    ) -> Result<Imported> {
        let plan = self.plan(sources)?;
        self.extend(plan, destination.as_ref())
    }

    /// The same of what `reader` gives, as [`reader`](Import::reader) takes it.
    ///
    /// # Errors
    /// As [`append`](Import::append).
    pub fn append_reader(
        self,
        name: impl AsRef<Path>,
        reader: impl Read,
        destination: impl AsRef<Path>,
    ) -> Result<Imported> {
        let destination = destination.as_ref();
        let plan = self.stream(name.as_ref(), reader, destination)?;
        self.extend(plan, destination)
    }

    fn plan<'s>(&self, sources: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Plan<'s>> {
        let sources: Vec<PathBuf> = sources.into_iter().map(|source| source.as_ref().to_path_buf()).collect();
        Plan::new(self.choice.clone(), self.format, &sources)
    }

    fn stream<'s>(&self, name: &Path, mut reader: impl Read + 's, destination: &Path) -> Result<Plan<'s>> {
        if self.resume {
            let reason = format!("{} cannot be read again: save it to a file first", name.display());
            return Err(Error::invalid("resume", reason));
        }
        match self.format {
            Some(format @ (SourceFormat::Text | SourceFormat::JsonLines)) => {
                Ok(Plan::stream(name, Box::new(reader), format == SourceFormat::JsonLines))
            }
            Some(SourceFormat::Npy) => {
                let mut file = nameless_file(destination)?;
                io::copy(&mut reader, &mut file).map_err(Error::io("copy to a temporary file", name))?;
                Plan::npy(self.choice.clone(), name, file)
            }
            Some(format) => {
                let reason = "text, jsonl and npy are read from a stream: save it to a file first";
                Err(Error::unsupported(name, format!("a stream of the format {format}"), reason))
            }
            None => {
                Err(Error::invalid("format", format!("it must be said for {}: text, jsonl or npy", name.display())))
            }
        }
    }

    /// Makes the stores of a plan.
    fn run(mut self, mut plan: Plan<'_>, destination: &Path) -> Result<Imported> {
        let targets = std::mem::take(&mut plan.targets);
        let schemas = targets.iter().map(|target| target.schema(&self.settings, self.source_metadata));
        let schemas: Vec<Vec<u8>> = schemas.collect::<Result<_>>()?;
        let disk = &self.settings.disk;
        let mut partial = match plan.origins.take() {
            Some(origins) => {
                let journal = Journal::new(self.said(), origins);
                Partial::begin_with(disk, destination, &journal, self.resume)?
            }
            None => Partial::begin(disk, destination)?,
        };
        let resumable = partial.is_resumable();
        let (rows, source_bytes) = Plan::totals(&targets);
        let mut done = Done::new(&mut self.progress, self.stop, rows, source_bytes);
        let written = targets
            .iter()
            .zip(&schemas)
            .try_for_each(|(target, schema)| write(&self.settings, &mut plan, target, schema, &mut partial, &mut done));
        match written {
            Ok(()) => {
                let stores = targets.iter().map(|target| target.below(destination)).collect();
                done.finish(partial, stores)
            }
            Err(Error::Interrupted { records, .. }) if resumable => {
                let partial = partial.keep();
                let left = format!(
                    "{} holds them: the same import with resume (--resume) goes on there, any other begins anew",
                    partial.display()
                );
                Err(Error::Interrupted { records, left })
            }
            Err(error) => Err(error),
        }
    }

    /// Appends to the stores of a plan, which are there.
    fn extend(mut self, mut plan: Plan<'_>, destination: &Path) -> Result<Imported> {
        let targets = std::mem::take(&mut plan.targets);
        let options = || StoreOptions::new().disk(std::sync::Arc::clone(&self.settings.disk));
        let mut stores = Vec::with_capacity(targets.len());
        for target in &targets {
            let path = target.below(destination);
            let (codec, record_limit) = target.appended(&AnyDataset::open_with(options(), &path)?)?;
            stores.push((path, Settings { codec, record_limit, ..self.settings.clone() }));
        }
        let (rows, source_bytes) = Plan::totals(&targets);
        let mut done = Done::new(&mut self.progress, self.stop, rows, source_bytes);
        for (target, (path, settings)) in targets.iter().zip(&stores) {
            let store = settings.options().open_writable(path)?;
            let mut fill = Fill::new(settings, &store, 0, &mut done);
            let appended = plan.fill(target, path, &mut fill).and_then(|()| fill.finish().map(drop));
            store.close()?;
            appended.map_err(|error| match error {
                Error::Interrupted { records, .. } => {
                    Error::Interrupted { records, left: format!("they are in {}", destination.display()) }
                }
                error => error,
            })?;
        }
        let so_far = done.so_far();
        let stores = stores.into_iter().map(|(path, ..)| path).collect();
        Ok(Imported { stores, rows: so_far.rows, bytes: so_far.bytes, replaced_partial: false, resumed: false })
    }

    /// The settings that the stores depend on, for the journal.
    fn said(&self) -> Vec<(String, String)> {
        let Settings { codec, level, dict_size, dictionary, record_limit, metadata, .. } = &self.settings;
        let dictionary = dictionary.as_ref().map_or("trained".to_owned(), |bytes| format!("{:016x}", xxh3_64(bytes)));
        let level = level.map_or("of the codec".to_owned(), |level| level.to_string());
        let format = self.format.map_or("of the names".to_owned(), |format| format.to_string());
        [
            ("the codec", codec.name().to_owned()),
            ("the level", level),
            ("the dictionary size", format!("{dict_size:?}")),
            ("the dictionary", dictionary),
            ("the record limit", record_limit.to_string()),
            ("the metadata", format!("{metadata:?}")),
            ("the source's metadata kept:", self.source_metadata.to_string()),
            ("the format", format),
            ("the tensors", format!("{:?}", self.choice.tensors)),
            ("the dtype", format!("{:?}", self.choice.dtype)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// Fills one store of a plan, which a resumed import may have begun.
fn write(
    settings: &Settings,
    plan: &mut Plan<'_>,
    target: &Target,
    schema: &[u8],
    partial: &mut Partial,
    done: &mut Done<'_>,
) -> Result<()> {
    let path = partial.below(&target.parts)?;
    let resumed = partial.left() == Left::Resumed;
    let store = if resumed { settings.open_or_create(&path, schema)? } else { settings.create(&path, schema)? };
    if settings.codec == Codec::ZstdDict && !store.has_dict() && !target.is_empty() {
        let samples = || plan.samples(target, settings.record_limit, partial.path());
        settings.train(&store, target.path(), samples)?;
    }
    let mut fill = Fill::new(settings, &store, store.len(), done);
    plan.fill(target, partial.path(), &mut fill)?;
    let over = fill.finish()?;
    if over > 0 {
        let reason = format!("it holds {over} records that the sources do not give: import without resuming");
        return Err(Error::format(&path, reason));
    }
    store.close()
}
