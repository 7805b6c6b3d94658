//! The writing of an import: tables into new stores, with a dictionary where one is wanted, and who is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::import::{Imported, Progress};
use super::place::Partial;
use super::table::{BLOCK, Input, Table, TableReader};
use crate::data::{
    DType, Disk, Kind, MAX_RECORDS, MAX_SAMPLE_BYTES, MAX_SAMPLES, Metadata, NewSchema, OsDisk, RECORD_LIMIT,
};
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
    pub(super) record_limit: u32,
    pub(super) metadata: Result<Metadata>,
    /// Where stores are made: another disk than the system's in tests alone.
    pub(super) disk: Arc<dyn Disk>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            codec: Codec::default(),
            level: None,
            dict_size: DictSize::default(),
            record_limit: RECORD_LIMIT,
            metadata: Ok(Metadata::default()),
            disk: Arc::new(OsDisk),
        }
    }
}

impl Settings {
    /// The content of schema.msgpack of a store.
    pub(super) fn schema(&self, kind: Kind, dtype: DType, item_shape: &[usize]) -> Result<Vec<u8>> {
        let metadata = self.metadata.as_ref().map_err(Error::clone)?;
        let record_limit = self.record_limit;
        NewSchema { kind, dtype, item_shape, codec: self.codec, record_limit, metadata }.to_bytes()
    }

    /// The schema of the store that a table becomes. An error, which names the table, where no store holds it.
    pub(super) fn table_schema(&self, table: &Table) -> Result<Vec<u8>> {
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
        // The crate is for 64-bit targets alone.
        let item_shape: Vec<usize> = table.item_shape.iter().map(|&dimension| dimension as usize).collect();
        self.schema(Kind::Dense, table.dtype, &item_shape).map_err(|e| match e {
            Error::Invalid { what: what @ "item shape", reason } => Error::unsupported(&table.path, what, reason),
            e => e,
        })
    }

    /// How a store to write to is created.
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

    /// Trains the store's dictionary. The store's own path, in `DST.partial`, is gone when an error is read, which names
    /// `path` instead.
    pub(super) fn train(&self, store: &Store, samples: &Records, path: &Path) -> Result<()> {
        store.train_dict(&samples.bytes, &samples.offsets, self.dict_size).map_err(|e| match e {
            Error::Dictionary { reason, .. } => Error::dictionary(path, reason),
            e => e,
        })
    }

    /// Puts one table into a new store.
    pub(super) fn import_table(
        &self,
        table: &Table,
        input: Input<'_>,
        store: Store,
        spill: &Path,
        done: &mut Done<'_>,
    ) -> Result<()> {
        let with_dict = self.codec == Codec::ZstdDict && table.rows > 0;
        let mut reader = TableReader::new(table, input, spill, with_dict)?;
        if with_dict {
            self.train(&store, &samples(table, &mut reader)?, &table.path)?;
        }
        let row_bytes = table.row_bytes as usize;
        let rows_at_once = BLOCK.checked_div(table.row_bytes).unwrap_or(table.rows).max(1) as usize;
        let mut block = Vec::new();
        for rows in reader.blocks() {
            let count = (rows.end - rows.start) as usize;
            block.resize(count * row_bytes, 0);
            reader.read(rows, &mut block)?;
            for first in (0..count).step_by(rows_at_once) {
                let some = rows_at_once.min(count - first);
                store.append_fixed(&block[first * row_bytes..(first + some) * row_bytes], row_bytes, some)?;
                done.add(some as u64, (some * row_bytes) as u64);
            }
        }
        reader.finish()?;
        store.close()
    }
}

/// Rows spread evenly over a table.
fn samples(table: &Table, reader: &mut TableReader<'_>) -> Result<Records> {
    let affordable = SAMPLE_BYTES.checked_div(table.row_bytes).unwrap_or(u64::MAX);
    let count = table.rows.min(MAX_SAMPLES as u64).min(affordable);
    let row_bytes = table.row_bytes as usize;
    let mut samples = Records { bytes: vec![0; count as usize * row_bytes], offsets: Vec::new() };
    samples.offsets.extend((0..=count).map(|sample| sample * table.row_bytes));
    for sample in 0..count as usize {
        let row = sample as u64 * table.rows / count;
        reader.read(row..row + 1, &mut samples.bytes[sample * row_bytes..(sample + 1) * row_bytes])?;
    }
    Ok(samples)
}

/// What was imported so far, and who is told.
pub(super) struct Done<'a> {
    progress: &'a mut dyn FnMut(Progress),
    total: Option<u64>,
    rows: u64,
    bytes: u64,
}

impl<'a> Done<'a> {
    pub(super) fn new(progress: &'a mut dyn FnMut(Progress), total: Option<u64>) -> Done<'a> {
        Done { progress, total, rows: 0, bytes: 0 }
    }

    fn add(&mut self, rows: u64, bytes: u64) {
        self.rows += rows;
        self.bytes += bytes;
        (self.progress)(Progress { rows: self.rows, rows_total: self.total, bytes: self.bytes });
    }

    /// Appends a block of records, and empties it.
    pub(super) fn append(&mut self, store: &Store, block: &mut Records) -> Result<()> {
        let count = block.offsets.len() as u64 - 1;
        if count > 0 {
            store.append(&block.bytes, &block.offsets)?;
            self.add(count, block.bytes.len() as u64);
            block.bytes.clear();
            block.offsets.truncate(1);
        }
        Ok(())
    }

    pub(super) fn finish(self, partial: Partial, stores: Vec<PathBuf>) -> Result<Imported> {
        let replaced_partial = partial.replaced();
        partial.finish()?;
        event!(INFO, stores = ?stores, rows = self.rows, bytes = self.bytes, "an import ends");
        Ok(Imported { stores, rows: self.rows, bytes: self.bytes, replaced_partial })
    }
}

/// Adds a record to packed ones.
pub(super) fn push(records: &mut Records, record: &[u8]) {
    records.bytes.extend_from_slice(record);
    records.offsets.push(records.bytes.len() as u64);
}
