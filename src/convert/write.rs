//! The writing of an import: records into stores, with a dictionary where one is wanted, and who is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::files::RecordFile;
use super::import::{Imported, Progress};
use super::lines::LineReader;
use super::place::{Left, Partial};
use super::table::{BLOCK, Input, Table, TableReader};
use crate::data::{DType, Disk, Kind, MAX_RECORDS, MAX_SAMPLE_BYTES, Metadata, NewSchema, OsDisk, RECORD_LIMIT};
use crate::error::{Error, Result};
use crate::events::event;
use crate::{Codec, DictSize, Records, Store, StoreOptions};

/// Bytes of rows that a dictionary is trained on: half of what the store takes, since zstd's trainer needs memory of its
/// own beside them.
pub(super) const SAMPLE_BYTES: u64 = MAX_SAMPLE_BYTES as u64 / 2;

/// How stores are written.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) codec: Codec,
    pub(super) level: Option<i32>,
    pub(super) dict_size: DictSize,
    /// The dictionary, where it is not trained.
    pub(super) dictionary: Option<Vec<u8>>,
    pub(super) record_limit: u32,
    pub(super) metadata: Result<Metadata>,
    /// Where stores are made: another disk than the system's in tests alone.
    pub(super) disk: Arc<dyn Disk>,
    /// Records that are appended at once, unless they reach a block's bytes before: fewer in tests alone.
    pub(super) records_at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            codec: Codec::default(),
            level: None,
            dict_size: DictSize::default(),
            dictionary: None,
            record_limit: RECORD_LIMIT,
            metadata: Ok(Metadata::default()),
            disk: Arc::new(OsDisk),
            records_at_once: 64 << 10,
        }
    }
}

/// The methods that [`Import`](crate::Import) and [`Recode`](crate::Recode) share, over their fields `settings` and
/// `progress`.
macro_rules! shared_setters {
    () => {
        /// How records are compressed: zstd unless set. The dictionary codec trains on at most 8192 records spread
        /// evenly over all that go into a store, and at most 64 MiB of them.
        pub fn codec(mut self, codec: Codec) -> Self {
            self.settings.codec = codec;
            self
        }

        /// The compression level; the codec's default unless set.
        pub fn level(mut self, level: i32) -> Self {
            self.settings.level = Some(level);
            self
        }

        /// How large the dictionary may become.
        pub fn dict_size(mut self, size: DictSize) -> Self {
            self.settings.dict_size = size;
            self
        }

        /// The dictionary of the dictionary codec, which is then not trained: what [`Store::dict`](crate::Store::dict)
        /// gives, or `loaderx train-dict` writes.
        pub fn dictionary(mut self, bytes: impl Into<Vec<u8>>) -> Self {
            self.settings.dictionary = Some(bytes.into());
            self
        }

        /// Calls `progress` after every block of records that was written.
        pub fn progress(mut self, progress: impl FnMut(Progress) + 'a) -> Self {
            self.progress = Box::new(progress);
            self
        }
    };
}

pub(super) use shared_setters;

impl Settings {
    /// The content of schema.msgpack of a store.
    pub(super) fn schema(&self, kind: Kind, dtype: DType, item_shape: &[usize]) -> Result<Vec<u8>> {
        let metadata = self.metadata.as_ref().map_err(Error::clone)?;
        self.schema_with(kind, dtype, item_shape, metadata)
    }

    /// The same with other metadata.
    pub(super) fn schema_with(
        &self,
        kind: Kind,
        dtype: DType,
        item_shape: &[usize],
        metadata: &Metadata,
    ) -> Result<Vec<u8>> {
        let record_limit = self.record_limit;
        NewSchema { kind, dtype, item_shape, codec: self.codec, record_limit, metadata }.to_bytes()
    }

    /// An error, which names the table, where no store holds it.
    pub(super) fn check_table(&self, table: &Table) -> Result<()> {
        if table.rows > MAX_RECORDS {
            let what = format!("an array of {} rows", table.rows);
            let reason = format!("a store holds at most {MAX_RECORDS} records: save it in parts");
            return Err(Error::unsupported(&table.path, what, reason));
        }
        if table.row_bytes > u64::from(self.record_limit) {
            let reason = match u32::try_from(table.row_bytes) {
                Ok(bytes) => format!("the record limit is {}: raise it to {bytes}", self.record_limit),
                Err(_) => format!("no store takes records over {} bytes", u32::MAX),
            };
            return Err(Error::unsupported(&table.path, format!("a row of {} bytes", table.row_bytes), reason));
        }
        Ok(())
    }

    /// How a store to write to is created or opened.
    pub(super) fn options(&self) -> StoreOptions {
        let options = StoreOptions::new().codec(self.codec).record_limit(self.record_limit);
        let options = options.disk(Arc::clone(&self.disk));
        match self.level {
            Some(level) => options.level(level),
            None => options,
        }
    }

    /// Creates a store to write to.
    pub(super) fn create(&self, path: &Path, schema: &[u8]) -> Result<Store> {
        self.options().create_with_schema(path, schema)
    }

    /// Opens the store that an import left which was begun in the same way, or creates it where none is.
    pub(super) fn open_or_create(&self, path: &Path, schema: &[u8]) -> Result<Store> {
        match self.create(path, schema) {
            Err(Error::Exists { .. }) => {}
            created => return created,
        }
        let store = self.options().open_writable(path)?;
        if store.schema_bytes()?.as_deref() != Some(schema) {
            let reason = "the store in it has another schema than this import gives: import without resuming";
            return Err(Error::format(path, reason));
        }
        Ok(store)
    }

    /// Gives the store its dictionary, or trains it on `samples`. The store's own path, in `DST.partial`, is gone when an
    /// error is read, which names `path` instead.
    pub(super) fn train(&self, store: &Store, path: &Path, samples: impl FnOnce() -> Result<Records>) -> Result<()> {
        if let Some(bytes) = &self.dictionary {
            return store.set_dict(bytes).map_err(|e| match e {
                Error::Corrupt(bad) => {
                    Error::invalid("dictionary", format!("expected {}, found {}", bad.expected, bad.found))
                }
                e => e,
            });
        }
        let samples = samples()?;
        store.train_dict(&samples.bytes, &samples.offsets, self.dict_size).map_err(|e| match e {
            Error::Dictionary { reason, .. } => Error::dictionary(path, reason),
            e => e,
        })
    }
}

/// Adds at most `count` rows to the samples, spread evenly over a table, and at most `budget` bytes of them.
pub(super) fn sample_table(
    table: &Table,
    input: Input<'_>,
    spill: &Path,
    (count, budget): (u64, u64),
    samples: &mut Records,
) -> Result<()> {
    let affordable = budget.checked_div(table.row_bytes).unwrap_or(u64::MAX);
    let count = table.rows.min(count).min(affordable);
    let mut reader = TableReader::new(table, input, spill, true)?;
    for sample in 0..count {
        let row = (u128::from(sample) * u128::from(table.rows) / u128::from(count)) as u64;
        let begin = samples.bytes.len();
        samples.bytes.resize(begin + table.row_bytes as usize, 0);
        reader.read(row..row + 1, &mut samples.bytes[begin..])?;
        samples.offsets.push(samples.bytes.len() as u64);
    }
    Ok(())
}

/// One store that is filled: what is appended comes behind the records that it holds already, of which a resumed import
/// gives the first again.
pub(super) struct Fill<'f, 'a> {
    store: &'f Store,
    limit: u32,
    records_at_once: usize,
    /// How many of the records that come are there already.
    there: u64,
    block: Records,
    /// Bytes of the sources that the block was made of.
    read: u64,
    done: &'f mut Done<'a>,
}

impl<'f, 'a> Fill<'f, 'a> {
    /// `there` records of those that will come are in the store.
    pub(super) fn new(settings: &Settings, store: &'f Store, there: u64, done: &'f mut Done<'a>) -> Fill<'f, 'a> {
        let Settings { record_limit: limit, records_at_once, .. } = *settings;
        let block = Records { bytes: Vec::new(), offsets: vec![0] };
        Fill { store, limit, records_at_once, there, block, read: 0, done }
    }

    /// The largest record.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Appends the rows of a table.
    pub(super) fn table(&mut self, table: &Table, input: Input<'_>, spill: &Path) -> Result<()> {
        let skipped = self.there.min(table.rows);
        self.there -= skipped;
        let row_bytes = table.row_bytes as usize;
        if skipped > 0 {
            self.done.add(skipped, skipped * table.row_bytes, skipped * table.row_bytes)?;
            if skipped == table.rows {
                return Ok(());
            }
        }
        let mut reader = TableReader::new(table, input, spill, false)?;
        let rows_at_once = BLOCK.checked_div(table.row_bytes).unwrap_or(table.rows).max(1) as usize;
        let mut block = Vec::new();
        for rows in reader.skip(skipped)? {
            let count = (rows.end - rows.start) as usize;
            block.resize(count * row_bytes, 0);
            reader.read(rows, &mut block)?;
            for first in (0..count).step_by(rows_at_once) {
                let some = rows_at_once.min(count - first);
                self.store.append_fixed(&block[first * row_bytes..(first + some) * row_bytes], row_bytes, some)?;
                let bytes = (some * row_bytes) as u64;
                self.done.add(some as u64, bytes, bytes)?;
            }
        }
        reader.finish()
    }

    /// Appends the lines that are left.
    pub(super) fn lines<R: std::io::BufRead>(&mut self, mut reader: LineReader<R>) -> Result<()> {
        while self.there > 0 {
            let (mut skipped, mut bytes, mut read) = (0, 0, 0);
            while skipped < self.there.min(self.records_at_once as u64) {
                let Some(line) = reader.next_line()? else { break };
                (skipped, bytes) = (skipped + 1, bytes + line.len() as u64);
                read += reader.consumed();
            }
            if skipped == 0 {
                return Ok(());
            }
            self.there -= skipped;
            self.done.add(skipped, bytes, read)?;
        }
        loop {
            let full = self.store.len() + self.block.offsets.len() as u64 > MAX_RECORDS;
            let Some(line) = reader.next_record()? else { return Ok(()) };
            if full {
                let what = format!("line {} as one more record", reader.number());
                let reason = format!("a store holds at most {MAX_RECORDS} records: import it in parts");
                return Err(Error::unsupported(reader.path(), what, reason));
            }
            push(&mut self.block, line);
            self.read += reader.consumed();
            self.flush_full()?;
        }
    }

    /// Appends files, each as it is.
    pub(super) fn files(&mut self, files: &[RecordFile]) -> Result<()> {
        let skipped = self.there.min(files.len() as u64);
        self.there -= skipped;
        let (skipped, files) = files.split_at(skipped as usize);
        if !skipped.is_empty() {
            let bytes = skipped.iter().map(|file| file.bytes).sum();
            self.done.add(skipped.len() as u64, bytes, bytes)?;
        }
        for file in files {
            let bytes = file.read(self.limit)?;
            push(&mut self.block, &bytes);
            self.read += bytes.len() as u64;
            self.flush_full()?;
        }
        Ok(())
    }

    /// Appends one record.
    pub(super) fn record(&mut self, record: &[u8]) -> Result<()> {
        push(&mut self.block, record);
        self.read += record.len() as u64;
        self.flush_full()
    }

    fn flush_full(&mut self) -> Result<()> {
        let full = self.block.bytes.len() as u64 >= BLOCK || self.block.offsets.len() > self.records_at_once;
        if full { self.flush() } else { Ok(()) }
    }

    /// Appends what is held, empties it, and says so.
    fn flush(&mut self) -> Result<()> {
        let (count, bytes) = (self.block.offsets.len() as u64 - 1, self.block.bytes.len() as u64);
        if count > 0 {
            self.store.append(&self.block.bytes, &self.block.offsets)?;
            self.block.bytes.clear();
            self.block.offsets.truncate(1);
            self.done.add(count, bytes, std::mem::take(&mut self.read))?;
        }
        Ok(())
    }

    /// Appends what is left. Gives how many records the store has that were not among those that came.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.there)
    }
}

/// What was imported so far, who is told, and who may stop it.
pub(super) struct Done<'a> {
    progress: &'a mut dyn FnMut(Progress),
    stop: Option<&'a AtomicBool>,
    so_far: Progress,
}

impl<'a> Done<'a> {
    /// `records` and `source_bytes` in all, where they are known.
    pub(super) fn new(
        progress: &'a mut dyn FnMut(Progress),
        stop: Option<&'a AtomicBool>,
        records: Option<u64>,
        source_bytes: Option<u64>,
    ) -> Done<'a> {
        let so_far =
            Progress { rows: 0, rows_total: records, bytes: 0, source_bytes: 0, source_bytes_total: source_bytes };
        Done { progress, stop, so_far }
    }

    /// Counts records that were written. An error where the work was told to stop.
    pub(super) fn add(&mut self, rows: u64, bytes: u64, source_bytes: u64) -> Result<()> {
        self.so_far.rows += rows;
        self.so_far.bytes += bytes;
        self.so_far.source_bytes += source_bytes;
        (self.progress)(self.so_far);
        self.check()
    }

    /// An error where the work was told to stop.
    pub(super) fn check(&self) -> Result<()> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::Interrupted { records: self.so_far.rows, left: "nothing is left of them".into() });
        }
        Ok(())
    }

    /// Appends a block of records.
    pub(super) fn append(&mut self, store: &Store, block: &Records) -> Result<()> {
        store.append(&block.bytes, &block.offsets)?;
        let bytes = block.bytes.len() as u64;
        self.add(block.offsets.len() as u64 - 1, bytes, bytes)
    }

    /// Puts what was made into its place.
    pub(super) fn finish(self, partial: Partial, stores: Vec<PathBuf>) -> Result<Imported> {
        let left = partial.left();
        partial.finish()?;
        event!(INFO, stores = ?stores, rows = self.so_far.rows, bytes = self.so_far.bytes, "an import ends");
        Ok(Imported {
            stores,
            rows: self.so_far.rows,
            bytes: self.so_far.bytes,
            replaced_partial: left == Left::Replaced,
            resumed: left == Left::Resumed,
        })
    }

    /// How far it is.
    pub(super) fn so_far(&self) -> Progress {
        self.so_far
    }
}

/// Adds a record to packed ones.
pub(super) fn push(records: &mut Records, record: &[u8]) {
    records.bytes.extend_from_slice(record);
    records.offsets.push(records.bytes.len() as u64);
}
