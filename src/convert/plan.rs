//! Which stores an import makes of its sources, and what each is made of, in order.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::choose::{Choice, Chosen};
use super::files::{self, RecordFile};
use super::import::SourceFormat;
use super::journal::Origin;
use super::lines::Lines;
use super::npy::NpyFile;
use super::npz::NpzFile;
use super::safetensors::SafetensorsFile;
use super::table::{Source, Table};
use super::write::{Fill, SAMPLE_BYTES, Settings, sample_table};
use crate::data::{AnyDataset, DType, Kind, MAX_RECORDS, MAX_SAMPLES};
use crate::error::{Error, Result};
use crate::{Codec, Records};

/// The key of the metadata that holds the names of files.
const NAMES: &str = "names";

/// The key of the metadata that holds what a .safetensors file says of itself, under the name that it has there.
pub(super) const SAFETENSORS: &str = "__metadata__";

/// A store that is filled.
#[derive(Debug)]
pub(super) struct Target {
    /// Where it lies below the destination; empty where the destination is the store.
    pub(super) parts: Vec<String>,
    pub(super) kind: Kind,
    pub(super) dtype: DType,
    pub(super) item_shape: Vec<u64>,
    /// What a .safetensors file says of itself.
    pub(super) metadata: Option<BTreeMap<String, String>>,
    /// What comes into it, in order.
    pieces: Vec<Piece>,
}

/// Records of one source.
#[derive(Debug)]
enum Piece {
    /// The rows of a table, the `index`-th of the file.
    Table {
        file: PathBuf,
        format: SourceFormat,
        index: usize,
        table: Box<Table>,
    },
    Lines(Lines),
    Files(Vec<RecordFile>),
}

/// All that an import does.
pub(super) struct Plan<'a> {
    pub(super) targets: Vec<Target>,
    /// What the sources are now, for a resumed import; none where a source cannot be read again.
    pub(super) origins: Option<Vec<Origin>>,
    choice: Choice,
    /// The source that was looked at last, which stays open.
    open: Option<(PathBuf, Box<dyn Source>)>,
    /// The only source, where it is no file.
    stream: Option<Box<dyn Read + 'a>>,
}

impl fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl SourceFormat {
    /// What a file is, by the end of its name.
    fn of(path: &Path) -> Result<SourceFormat> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("").to_ascii_lowercase();
        Ok(match extension.as_str() {
            "npy" => SourceFormat::Npy,
            "npz" => SourceFormat::Npz,
            "safetensors" => SourceFormat::Safetensors,
            "txt" => SourceFormat::Text,
            "jsonl" | "ndjson" => SourceFormat::JsonLines,
            _ => {
                return Err(Error::unsupported(
                    path,
                    format!("the extension {extension:?}"),
                    "files named .npy, .npz and .safetensors are imported, .txt, .jsonl and .ndjson line by line, and \
                     folders file by file: say the format, where it is one of these",
                ));
            }
        })
    }

    /// Opens a file of arrays.
    fn open(self, path: &Path) -> Result<Box<dyn Source>> {
        Ok(match self {
            SourceFormat::Npz => Box::new(NpzFile::open(path)?),
            SourceFormat::Safetensors => Box::new(SafetensorsFile::open(path)?),
            _ => Box::new(NpyFile::open(path)?),
        })
    }
}

impl<'a> Plan<'a> {
    /// Looks at files and folders, in order.
    pub(super) fn new(choice: Choice, format: Option<SourceFormat>, sources: &[PathBuf]) -> Result<Self> {
        let mut plan = Plan { targets: Vec::new(), origins: None, choice, open: None, stream: None };
        let mut origins = Vec::with_capacity(sources.len());
        for (at, source) in sources.iter().enumerate() {
            let first = &sources[0];
            if fs::metadata(source).map_err(Error::io("open", source))?.is_dir() {
                plan.refuse_choice(source)?;
                if let Some(format) = format.filter(|format| *format != SourceFormat::Bytes) {
                    let reason = format!("it is a folder, whose files are records of bytes, and no {format} file");
                    return Err(Error::format(source, reason));
                }
                let files = files::folder(source)?;
                origins.push(Origin::folder(source, &files)?);
                plan.add(at, first, source, vec![Target::bytes(Piece::Files(files))])?;
                continue;
            }
            let format = format.map_or_else(|| SourceFormat::of(source), Ok)?;
            let targets = match format {
                SourceFormat::Npy | SourceFormat::Npz | SourceFormat::Safetensors => {
                    let mut opened = format.open(source)?;
                    let targets = plan.tables(format, &mut *opened)?;
                    plan.open = Some((source.clone(), opened));
                    targets
                }
                SourceFormat::Text | SourceFormat::JsonLines => {
                    plan.refuse_choice(source)?;
                    vec![Target::bytes(Piece::Lines(Lines::file(source, format == SourceFormat::JsonLines)?))]
                }
                SourceFormat::Bytes => {
                    plan.refuse_choice(source)?;
                    vec![Target::bytes(Piece::Files(vec![RecordFile::new(source)?]))]
                }
            };
            origins.push(Origin::file(source)?);
            plan.add(at, first, source, targets)?;
        }
        if plan.targets.is_empty() {
            return Err(Error::invalid("sources", "there are none: name a file or a folder"));
        }
        plan.origins = Some(origins);
        Ok(plan)
    }

    /// Lines that can be read once.
    pub(super) fn stream(name: &Path, stream: Box<dyn Read + 'a>, json: bool) -> Self {
        let lines = Lines { path: name.to_path_buf(), json, bytes: None };
        let targets = vec![Target::bytes(Piece::Lines(lines))];
        Plan { targets, origins: None, choice: Choice::default(), open: None, stream: Some(stream) }
    }

    /// A .npy file that is open, and whose path is just a name.
    pub(super) fn npy(choice: Choice, name: &Path, file: File) -> Result<Self> {
        let mut plan = Plan { targets: Vec::new(), origins: None, choice, open: None, stream: None };
        let mut opened: Box<dyn Source> = Box::new(NpyFile::of(name, file));
        plan.targets = plan.tables(SourceFormat::Npy, &mut *opened)?;
        plan.open = Some((name.to_path_buf(), opened));
        Ok(plan)
    }

    /// Names and dtypes are chosen of files of arrays alone.
    fn refuse_choice(&self, source: &Path) -> Result<()> {
        let what = if self.choice.dtype.is_some() {
            "dtype"
        } else if !self.choice.tensors.is_empty() {
            "tensors"
        } else {
            return Ok(());
        };
        let reason = format!("{} holds no arrays, only bytes: leave it out", source.display());
        Err(Error::invalid(what, reason))
    }

    /// The stores that the tables of a file give.
    fn tables(&self, format: SourceFormat, source: &mut dyn Source) -> Result<Vec<Target>> {
        let (metadata, file) = (source.metadata().cloned(), source.path().to_path_buf());
        let target = |Chosen { index, table, parts }| Target {
            parts,
            kind: Kind::Dense,
            dtype: table.dtype,
            item_shape: table.item_shape.clone(),
            metadata: metadata.clone(),
            pieces: vec![Piece::Table { file: file.clone(), format, index, table: Box::new(table) }],
        };
        Ok(self.choice.tables(source)?.into_iter().map(target).collect())
    }

    /// Puts what a source gives behind what those before it gave: the same stores, of the same elements and shapes.
    fn add(&mut self, at: usize, first: &Path, source: &Path, targets: Vec<Target>) -> Result<()> {
        if at == 0 {
            self.targets = targets;
            return Ok(());
        }
        let described = |targets: &[Target]| {
            let names: Vec<String> = targets.iter().map(|target| target.parts.join("/")).collect();
            if names.iter().all(String::is_empty) { "one array".to_owned() } else { format!("{names:?}") }
        };
        let differs = |what: &str, here: String, there: String| {
            let reason =
                format!("{what} is {here}, and of {} {there}: only what is alike goes into one store", first.display());
            Err(Error::format(source, reason))
        };
        let mut old: Vec<&mut Target> = self.targets.iter_mut().collect();
        let mut new = targets;
        old.sort_by(|a, b| a.parts.cmp(&b.parts));
        new.sort_by(|a, b| a.parts.cmp(&b.parts));
        if !old.iter().map(|target| &target.parts).eq(new.iter().map(|target| &target.parts)) {
            return differs("what it holds", described(&new), described(&self.targets));
        }
        for (old, new) in old.into_iter().zip(new) {
            let name = if new.parts.is_empty() { String::new() } else { format!(" of {:?}", new.parts.join("/")) };
            let kind = |kind| if kind == Kind::Dense { "an array" } else { "records of any length" };
            if old.kind != new.kind {
                return differs(&format!("the content{name}"), kind(new.kind).into(), kind(old.kind).into());
            }
            if old.dtype != new.dtype {
                return differs(&format!("the dtype{name}"), new.dtype.to_string(), old.dtype.to_string());
            }
            if old.item_shape != new.item_shape {
                let shape = |target: &Target| format!("{:?}", target.item_shape);
                return differs(&format!("the shape of a row{name}"), shape(&new), shape(old));
            }
            old.metadata = merged(old.metadata.take(), new.metadata);
            match (old.pieces.last_mut(), new.pieces.into_iter().next()) {
                // Files that were named one by one.
                (Some(Piece::Files(files)), Some(Piece::Files(more))) => files.extend(more),
                (_, piece) => old.pieces.extend(piece),
            }
        }
        Ok(())
    }

    /// How many records there will be in all stores, and how many bytes the sources have, where that is known.
    pub(super) fn totals(targets: &[Target]) -> (Option<u64>, Option<u64>) {
        let pieces = || targets.iter().flat_map(|target| &target.pieces);
        (pieces().map(Piece::records).sum(), pieces().map(Piece::bytes).sum())
    }

    /// Samples for the dictionary of a target: of each piece as many as are due to it by its bytes.
    pub(super) fn samples(&mut self, target: &Target, limit: u32, spill: &Path) -> Result<Records> {
        let mut samples = Records { bytes: Vec::new(), offsets: vec![0] };
        let Some(total) = target.pieces.iter().map(Piece::bytes).sum::<Option<u64>>() else {
            let reason = "a dictionary is trained before records are stored, and a stream cannot be read twice: save it \
                          to a file first, or choose another codec";
            return Err(Error::dictionary(target.path(), reason));
        };
        for piece in &target.pieces {
            let share =
                |of: u64| (u128::from(of) * u128::from(piece.bytes().unwrap_or(0))).div_ceil(u128::from(total.max(1)));
            let (count, budget) = (share(MAX_SAMPLES as u64) as u64, share(SAMPLE_BYTES) as u64);
            match piece {
                Piece::Table { file, format, index, table } => {
                    let input = self.source(file, *format, *index, table)?.input(*index, table, false)?;
                    sample_table(table, input, spill, (count, budget), &mut samples)?;
                }
                Piece::Lines(lines) => lines.sample(count, budget, limit, &mut samples)?,
                Piece::Files(files) => files::sample(files, count, budget, limit, &mut samples)?,
            }
        }
        Ok(samples)
    }

    /// Puts all records of a target into its store.
    pub(super) fn fill(&mut self, target: &Target, spill: &Path, fill: &mut Fill<'_, '_>) -> Result<()> {
        for piece in &target.pieces {
            match piece {
                Piece::Table { file, format, index, table } => {
                    let source = self.source(file, *format, *index, table)?;
                    fill.table(table, source.input(*index, table, table.is_c_order())?, spill)?;
                }
                Piece::Lines(lines) => fill.lines(lines.reader(self.stream.take(), fill.limit())?)?,
                Piece::Files(files) => fill.files(files)?,
            }
        }
        Ok(())
    }

    /// A file of arrays, which must hold the table that it held.
    fn source(&mut self, file: &Path, format: SourceFormat, index: usize, table: &Table) -> Result<&mut dyn Source> {
        if self.open.as_ref().is_none_or(|(path, _)| path != file) {
            let mut opened = format.open(file)?;
            if opened.names().len() <= index || opened.table(index, self.choice.dtype)? != *table {
                return Err(Error::format(file, "it was changed while it was imported: import it again"));
            }
            self.open = Some((file.to_path_buf(), opened));
        }
        match &mut self.open {
            Some((_, source)) => Ok(&mut **source),
            None => Err(Error::format(file, "it is not open")),
        }
    }
}

impl Target {
    /// Records of bytes.
    fn bytes(piece: Piece) -> Target {
        Target {
            parts: Vec::new(),
            kind: Kind::Ragged,
            dtype: DType::U8,
            item_shape: Vec::new(),
            metadata: None,
            pieces: vec![piece],
        }
    }

    /// For errors: its first source.
    pub(super) fn path(&self) -> &Path {
        match self.pieces.first() {
            Some(Piece::Table { table, .. }) => &table.path,
            Some(Piece::Lines(lines)) => &lines.path,
            Some(Piece::Files(files)) => files.first().map_or(Path::new(""), |file| &file.path),
            None => Path::new(""),
        }
    }

    /// Whether there is nothing to put in.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.iter().all(|piece| piece.records().or(piece.bytes()) == Some(0))
    }

    /// The destination's store of it.
    pub(super) fn below(&self, destination: &Path) -> PathBuf {
        self.parts.iter().fold(destination.to_path_buf(), |path, part| path.join(part))
    }

    /// The codec and the record limit of a store that it may be appended to. An error, which names both, where it holds
    /// something else.
    pub(super) fn appended(&self, store: &AnyDataset) -> Result<(Codec, u32)> {
        let (Some(kind), Some(codec), Some(limit)) = (store.kind(), store.codec(), store.record_limit()) else {
            let reason = "it holds raw records without a schema: append to it with Store::append";
            return Err(Error::unsupported(store.path(), "appending files", reason));
        };
        let described =
            |kind: Kind, dtype: &str, shape: String| format!("{kind}, of dtype {dtype} and item shape {shape}");
        let same = kind == self.kind
            && store.dtype() == Some(self.dtype.numpy())
            && store.element() == Some(self.dtype)
            && store.item_shape().unwrap_or(&[]).iter().map(|&dim| dim as u64).eq(self.item_shape.iter().copied());
        if !same {
            let held =
                described(kind, store.dtype().unwrap_or_default(), format!("{:?}", store.item_shape().unwrap_or(&[])));
            let given = described(self.kind, self.dtype.numpy(), format!("{:?}", self.item_shape));
            let reason = format!("it gives records that are {given}, and {} holds {held}", store.path().display());
            return Err(Error::format(self.path(), reason));
        }
        for piece in &self.pieces {
            if let Piece::Table { table, .. } = piece {
                Settings { record_limit: limit, ..Settings::default() }.check_table(table)?;
            }
        }
        Ok((codec, limit))
    }

    /// The schema of its store; `carried` where it holds what the sources say of themselves. An error, which names the source, where no store holds it.
    pub(super) fn schema(&self, settings: &Settings, carried: bool) -> Result<Vec<u8>> {
        let mut metadata = settings.metadata.clone()?;
        for piece in &self.pieces {
            if let Piece::Table { table, .. } = piece {
                settings.check_table(table)?;
            }
        }
        self.check_count()?;
        if let Some(said) = self.metadata.as_ref().filter(|_| carried) {
            metadata.insert(SAFETENSORS, said)?;
        }
        let files = self.pieces.iter().flat_map(|piece| if let Piece::Files(files) = piece { &files[..] } else { &[] });
        let files: Vec<&str> = files.map(|file| &file.name[..]).collect();
        if carried && !files.is_empty() {
            metadata.insert(NAMES, &files)?;
        }
        let item_shape: Vec<usize> = self.item_shape.iter().map(|&dimension| dimension as usize).collect();
        settings.schema_with(self.kind, self.dtype, &item_shape, &metadata).map_err(|e| match e {
            Error::Invalid { what: what @ "item shape", reason } => Error::unsupported(self.path(), what, reason),
            Error::Invalid { what: what @ "metadata", reason } if carried => {
                let files = files.len();
                Error::invalid(
                    what,
                    format!("{reason}, with the names of {files} files: leave the source's metadata out"),
                )
            }
            e => e,
        })
    }

    fn check_count(&self) -> Result<()> {
        let known: u64 = self.pieces.iter().filter_map(Piece::records).sum();
        if known > MAX_RECORDS {
            let what = format!("{known} records in all sources");
            let reason = format!("a store holds at most {MAX_RECORDS}: import them in parts");
            return Err(Error::unsupported(self.path(), what, reason));
        }
        Ok(())
    }
}

impl Piece {
    /// How many records; `None` for lines, which are counted when they are read.
    fn records(&self) -> Option<u64> {
        match self {
            Piece::Table { table, .. } => Some(table.rows),
            Piece::Lines(_) => None,
            Piece::Files(files) => Some(files.len() as u64),
        }
    }

    /// How many bytes of its source are read.
    fn bytes(&self) -> Option<u64> {
        match self {
            Piece::Table { table, .. } => Some(table.data_bytes()),
            Piece::Lines(lines) => lines.bytes,
            Piece::Files(files) => Some(files.iter().map(|file| file.bytes).sum()),
        }
    }
}

/// What several files say of themselves, where they agree.
fn merged(
    old: Option<BTreeMap<String, String>>,
    new: Option<BTreeMap<String, String>>,
) -> Option<BTreeMap<String, String>> {
    let (mut old, new) = (old?, new?);
    old.retain(|key, value| new.get(key) == Some(value));
    (!old.is_empty()).then_some(old)
}
