//! Finding and reading records: the table and the chunk files, mapped or read positionally.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::codec::{self, Dictionary};
use super::cold::Cold;
use super::far::{BlockId, Far, Near};
use super::format::{DICT, ENTRY_SIZE, Entry, META, RECORD_LIMIT, chunk_name, entry_offset, tag};
use super::io::{Access, Disk, DiskFile};
use super::map::Map;
use super::runs::Runs;
use super::slot::{self, zeroed};
use super::sums::Sums;
use crate::error::{Corruption, Error, Result};

/// How many chunk files are kept open for positional reads, so that a store of many chunks needs few descriptors.
const OPEN_CHUNKS: usize = 16;

/// meta.zr's entries.
#[derive(Debug)]
pub(super) enum Table {
    Mapped(Map),
    Positional(Arc<dyn DiskFile>),
}

impl Table {
    pub(super) fn new(file: Arc<dyn DiskFile>, mapped: bool, meta: &Path) -> Result<Table> {
        match if mapped { file.map().map_err(Error::io("map", meta))? } else { None } {
            Some(map) => Ok(Table::Mapped(map)),
            None => Ok(Table::Positional(file)),
        }
    }

    /// Nothing known yet of the first `len` entries; `None` where they are not mapped.
    pub(super) fn runs(&self, len: u64) -> Option<Runs> {
        match self {
            Table::Mapped(map) => Runs::new(map, len),
            Table::Positional(_) => None,
        }
    }

    /// The entry of a record; `None` where meta.zr ends before it.
    #[inline]
    fn entry(&self, index: u64) -> io::Result<Option<Entry>> {
        match self {
            Table::Mapped(map) => Ok(map.words(entry_offset(index)).map(Entry::from_words)),
            Table::Positional(file) => {
                let mut bytes = [0; ENTRY_SIZE as usize];
                match file.read_at(&mut bytes, entry_offset(index)) {
                    Ok(()) => Ok(Some(Entry::decode(&bytes))),
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
                    Err(e) => Err(e),
                }
            }
        }
    }
}

/// The maps of the chunk files, by chunk number.
type Maps = Vec<Option<Arc<Map>>>;

/// The chunk files. A chunk is mapped when it is first read, and again when it has grown.
#[derive(Debug)]
pub(super) struct Chunks {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    mapped: bool,
    maps: RwLock<Arc<Maps>>,
    files: Mutex<VecDeque<(u16, Arc<dyn DiskFile>)>>,
    /// Where they are, if not on this disk.
    far: Option<Arc<dyn Far>>,
    cold: Cold,
}

/// Where a chunk's bytes can be had.
enum Bytes {
    Map(Arc<Map>),
    File(Arc<dyn DiskFile>),
}

impl Chunks {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, mapped: bool) -> Chunks {
        let far = disk.far();
        Chunks { disk, dir, mapped, maps: RwLock::default(), files: Mutex::default(), far, cold: Cold::default() }
    }

    pub(super) fn far(&self) -> Option<&dyn Far> {
        self.far.as_deref()
    }

    pub(super) fn path(&self, chunk: u16) -> PathBuf {
        self.dir.join(chunk_name(chunk))
    }

    fn maps(&self) -> Arc<Maps> {
        Arc::clone(&self.maps.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A chunk file that reaches to `end`, mapped anew or opened.
    #[cold]
    fn open(&self, chunk: u16, end: u64) -> Result<Bytes> {
        let path = self.path(chunk);
        let open = || self.disk.open(&path, Access::Read).map_err(Error::io("open", &path));
        if self.mapped && self.far.is_none() {
            if let Some(Some(map)) = self.maps().get(usize::from(chunk))
                && map.len() >= end
            {
                return Ok(Bytes::Map(Arc::clone(map)));
            }
            let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(map) = open()?.map().map_err(Error::io("map", &path))? {
                let map = Arc::new(map);
                let mut renewed = Maps::clone(&maps);
                if renewed.len() <= usize::from(chunk) {
                    renewed.resize(usize::from(chunk) + 1, None);
                }
                renewed[usize::from(chunk)] = Some(Arc::clone(&map));
                *maps = Arc::new(renewed);
                return Ok(Bytes::Map(map));
            }
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = files.iter().find(|(open, _)| *open == chunk) {
            return Ok(Bytes::File(Arc::clone(file)));
        }
        let file = open()?;
        if files.len() == OPEN_CHUNKS {
            files.pop_front();
        }
        files.push_back((chunk, Arc::clone(&file)));
        Ok(Bytes::File(file))
    }
}

/// An entry that is not sound, in place of one that is not there.
const NO_ENTRY: [u64; 2] = [u64::MAX; 2];

/// Chunks that are not on this disk, as one gather sees them.
#[derive(Debug, Clone)]
struct Away<'a> {
    far: &'a dyn Far,
    near: Arc<Near>,
    /// What comes is compared with them.
    sums: &'a Sums,
}

/// What one gather reads through: the store as it was when the gather began.
pub(super) struct Reader<'a> {
    table: &'a Table,
    chunks: &'a Chunks,
    /// The sums that raw records are verified against; `None` where they are not.
    sums: Option<&'a Sums>,
    /// Where the mapped table need not be read; `None` where nothing is known, or no longer.
    runs: Option<(&'a Runs, &'a Map)>,
    maps: Arc<Maps>,
    /// Where the chunks are, if not on this disk.
    away: Option<Away<'a>>,
    dictionary: Option<Arc<Dictionary>>,
    len: u64,
}

/// An entry that was checked by itself: a known codec, within 4 GiB, raw as long as the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located {
    pub(super) index: u64,
    pub(super) entry: Entry,
}

impl<'a> Reader<'a> {
    pub(super) fn new(table: &'a Table, chunks: &'a Chunks, dictionary: Option<Arc<Dictionary>>, len: u64) -> Self {
        Reader { table, chunks, sums: None, runs: None, maps: chunks.maps(), away: None, dictionary, len }
    }

    /// The same, for chunks that may not be on this disk: what comes from elsewhere is compared with `sums`.
    #[inline]
    pub(super) fn receiving(self, sums: &'a Sums) -> Self {
        match &self.chunks.far {
            Some(far) => Reader { away: Some(Away { far: &**far, near: far.near(), sums }), ..self },
            None => self,
        }
    }

    /// The same, verifying raw records against `sums`.
    pub(super) fn verifying(self, sums: &'a Sums) -> Self {
        Reader { sums: Some(sums), ..self }
    }

    /// The same, with what is known of the table, if it still holds.
    #[inline]
    pub(super) fn knowing(self, runs: Option<&'a Runs>) -> Self {
        let runs = match (runs, self.table) {
            (Some(runs), Table::Mapped(map)) if runs.hold(map) => Some((runs, map)),
            _ => None,
        };
        Reader { runs, ..self }
    }

    /// How many records there are.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The record's entry, checked.
    pub(super) fn locate(&self, index: u64) -> Result<Located> {
        if index >= self.len {
            return Err(Error::OutOfRange { index, len: self.len });
        }
        let entry = self.table.entry(index).map_err(|e| Error::io("read", &self.chunks.dir.join(META))(e))?;
        let Some(entry) = entry else {
            return Err(Error::Corrupt(Box::new(Corruption {
                path: self.chunks.dir.join(META),
                record: Some(index),
                offset: Some(entry_offset(index)),
                expected: format!("entries of {} records", self.len),
                found: "the end of the file".into(),
                ..Corruption::default()
            })));
        };
        let located = Located { index, entry };
        if entry.is_sound() {
            return Ok(located);
        }
        let (expected, found) = entry.fault();
        Err(self.corrupt(&located, expected, found))
    }

    /// The words of an entry, known or as they stand in a mapped table, to be checked by [`is_sound`](Self::is_sound). Nothing
    /// depends on them yet, so that many are on their way from memory at once: to wait for one after another takes
    /// longer than to copy the records.
    #[inline(always)]
    pub(super) fn peek(&self, index: u64) -> [u64; 2] {
        if let Some((runs, map)) = self.runs
            && let Some(words) = runs.words(map, index)
        {
            return words;
        }
        match self.table {
            // An index past the end has no place there.
            Table::Mapped(map) => map.words(entry_offset(index.min(self.len))).unwrap_or(NO_ENTRY),
            Table::Positional(_) => NO_ENTRY,
        }
    }

    /// Whether there is such a record, and the words that [`peek`](Self::peek) gave are a sound entry; where not,
    /// [`locate`](Self::locate) finds it or says what is wrong.
    #[inline(always)]
    pub(super) fn is_sound(&self, index: u64, words: [u64; 2]) -> bool {
        index < self.len && Entry::from_words(words).is_sound()
    }

    /// Asks for the first bytes of the record with an entry of these words.
    #[inline]
    pub(super) fn expect_record(&self, words: [u64; 2]) {
        let entry = Entry::from_words(words);
        match self.maps.get(usize::from(entry.chunk)) {
            Some(Some(map)) => map.prefetch(u64::from(entry.offset), entry.stored as usize),
            _ => {
                if let Some((map, at)) = self.near(&entry) {
                    map.prefetch(at, entry.stored as usize);
                }
            }
        }
    }

    /// Where a record lies whose chunk is not on this disk, if it is near and nothing is to be checked.
    #[inline(never)]
    fn near(&self, entry: &Entry) -> Option<(&Map, u64)> {
        self.away.as_ref()?.near.find(entry)
    }

    /// Where a record lies that is mapped.
    #[inline]
    fn place(&self, entry: &Entry) -> Option<(&Map, u64)> {
        match self.maps.get(usize::from(entry.chunk)) {
            Some(Some(map)) => Some((map, u64::from(entry.offset))),
            _ => self.near(entry),
        }
    }

    /// Whether the chunks are not on this disk.
    pub(super) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The blocks of the records with entries of these words, for which memory and disk are enough at a time, and how many
    /// records those are: at least one.
    fn blocks_of(&self, away: &Away<'_>, words: impl Iterator<Item = [u64; 2]>) -> (Vec<BlockId>, usize) {
        let (mut blocks, mut records, at_once) = (BTreeSet::new(), 0, away.far.at_once());
        for entry in words.map(Entry::from_words) {
            if entry.is_sound() {
                let more: Vec<BlockId> =
                    away.near.blocks_of(&entry).filter(|id| !blocks.contains(id)).take(at_once + 1).collect();
                if records > 0 && blocks.len() + more.len() > at_once {
                    break;
                }
                // One that is too large for all is brought a part at a time, when it is read.
                if more.len() <= at_once {
                    blocks.extend(more);
                }
            }
            records += 1;
        }
        (blocks.into_iter().collect(), records)
    }

    /// Brings records near, from the first on, with entries of these words: a reader that has them, and how many they are.
    pub(super) fn bring(&self, words: impl Iterator<Item = [u64; 2]>) -> Result<(Reader<'a>, usize)> {
        let plain = Reader { maps: Arc::clone(&self.maps), away: None, dictionary: self.dictionary.clone(), ..*self };
        let Some(away) = &self.away else { return Ok((plain, usize::MAX)) };
        let (blocks, records) = self.blocks_of(away, words);
        let mut near = away.far.bring(&blocks)?;
        while !self.check_blocks(away, &near, &blocks)? {
            near = away.far.bring(&blocks)?;
        }
        Ok((Reader { away: Some(Away { near, ..away.clone() }), ..plain }, records))
    }

    /// Begins to bring near the records with entries of these words, if there is room for more.
    pub(super) fn expect(&self, words: impl Iterator<Item = [u64; 2]>) -> bool {
        self.away.as_ref().is_none_or(|away| away.far.expect(&self.blocks_of(away, words).0))
    }

    /// Compares blocks that have come with the sums that lie in them. Says whether all were what they should be, or are
    /// known not to be; where not, they have been brought anew.
    fn check_blocks(&self, away: &Away<'_>, near: &Near, blocks: &[BlockId]) -> Result<bool> {
        let mut all = true;
        for &id in blocks {
            let Some(block) = near.get(id).filter(|block| block.checked.get().is_none()) else { continue };
            let (begin, len) = (near.begin(id), block.map.len());
            let check = |bytes: &[u8]| away.sums.check_block(id.chunk, begin, bytes);
            match block.map.with_frame(0, len as usize, check).transpose()?.flatten() {
                Some(checked) => _ = block.checked.set(checked),
                None if away.far.renew(id)?.is_some() => all = false,
                // Each of its records is verified by itself.
                None => _ = block.checked.set(begin..begin),
            }
        }
        Ok(all)
    }

    /// Checks that the chunk file of a large record reaches to its end, and that a frame lies there which says that it
    /// is as long, before memory is taken for what the entry claims.
    #[inline]
    pub(super) fn check_claim(&self, located: &Located) -> Result<()> {
        if located.entry.stored.max(located.entry.length) <= RECORD_LIMIT { Ok(()) } else { self.check_chunk(located) }
    }

    #[cold]
    fn check_chunk(&self, located: &Located) -> Result<()> {
        let entry = &located.entry;
        let head_len = codec::FRAME_HEADER.min(entry.stored as usize);
        let (len, content) = match self.chunks.open(entry.chunk, entry.end())? {
            Bytes::Map(map) => {
                (map.len(), map.with_frame(u64::from(entry.offset), head_len, codec::content_size).flatten())
            }
            Bytes::File(file) => {
                let path = self.chunks.path(entry.chunk);
                let len = file.len().map_err(Error::io("read", &path))?;
                let mut head = [0; codec::FRAME_HEADER];
                if len >= entry.end() {
                    let read = file.read_at(&mut head[..head_len], u64::from(entry.offset));
                    read.map_err(Error::io("read", &path))?;
                }
                (len, codec::content_size(&head[..head_len]))
            }
        };
        if len < entry.end() {
            return Err(self.too_short(located, len));
        }
        match content {
            _ if entry.tag == tag::RAW => Ok(()),
            Some(content) if content == u64::from(entry.length) => Ok(()),
            content => {
                let found = content.map_or("none that says its length".into(), |content| format!("one of {content}"));
                Err(self.corrupt(located, format!("a zstd frame of {} bytes", entry.length), found))
            }
        }
    }

    #[cold]
    fn too_short(&self, located: &Located, len: u64) -> Error {
        let expected = format!("a chunk file of at least {} bytes", located.entry.end());
        self.corrupt(located, expected, format!("one of {len}"))
    }

    /// Asks the system for the pages of the record with an entry of these words, which need not be sound.
    pub(super) fn need(&self, words: [u64; 2]) {
        if self.away.is_some() {
            return;
        }
        let entry = Entry::from_words(words);
        let (offset, stored) = (u64::from(entry.offset), entry.stored as usize);
        match self.maps.get(usize::from(entry.chunk)) {
            Some(Some(map)) if map.len() >= entry.end() => map.need(offset, stored),
            // What cannot be opened is said when it is read.
            _ if entry.is_sound() => {
                if let Ok(Bytes::Map(map)) = self.chunks.open(entry.chunk, entry.end()) {
                    map.need(offset, stored);
                }
            }
            _ => {}
        }
    }

    /// Whether records come from the disk.
    pub(super) fn cold(&self) -> &Cold {
        &self.chunks.cold
    }

    /// Copies the record with an entry of these words over all of `out`, which is as long as the record, where no more
    /// is to be done than that; says whether it was.
    #[inline(always)]
    pub(super) fn copy(&self, words: [u64; 2], out: &mut [MaybeUninit<u8>]) -> bool {
        let entry = Entry::from_words(words);
        match self.maps.get(usize::from(entry.chunk)) {
            Some(Some(map)) if entry.tag == tag::RAW && self.sums.is_none() => {
                map.copy_to(u64::from(entry.offset), out)
            }
            Some(Some(_)) => false,
            _ if entry.tag == tag::RAW && self.sums.is_none() => {
                self.near(&entry).is_some_and(|(map, at)| map.copy_to(at, out))
            }
            _ => false,
        }
    }

    /// Copies or decompresses a record over all of `out`, which is as long as the record.
    #[inline]
    pub(super) fn read(&self, located: &Located, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let entry = &located.entry;
        debug_assert_eq!(out.len(), entry.length as usize);
        if self.sums.is_some() && entry.tag == tag::RAW {
            self.verify_raw(located)?;
        }
        let read = match self.place(entry) {
            Some((map, at)) if entry.tag == tag::RAW && map.copy_to(at, out) => Ok(()),
            Some((map, at)) if entry.tag != tag::RAW && map.len() >= at + u64::from(entry.stored) => {
                self.decode_mapped(map, at, located, out)
            }
            _ => self.read_slowly(located, out),
        };
        match (read, &self.away) {
            (Err(error @ Error::Corrupt(_)), Some(away)) => self.read_anew(away, located, out, error),
            (read, _) => read,
        }
    }

    /// The same where that gave `error`, and the bytes came from elsewhere: they may have changed on the way.
    #[cold]
    fn read_anew(
        &self,
        away: &Away<'_>,
        located: &Located,
        out: &mut [MaybeUninit<u8>],
        mut error: Error,
    ) -> Result<()> {
        let entry = &located.entry;
        // A sum may cover its neighbours too.
        let sum = if entry.tag == tag::RAW { away.sums.find(entry)? } else { None };
        let part = sum.map_or(u64::from(entry.offset)..entry.end(), |sum| u64::from(sum.offset)..sum.end());
        loop {
            let mut renewed = false;
            for id in away.near.blocks_in(entry.chunk, part.clone()) {
                renewed |= away.far.renew(id)?.is_some();
            }
            if !renewed {
                return Err(error);
            }
            match self.read_slowly(located, out) {
                Err(again @ Error::Corrupt(_)) => error = again,
                read => return read,
            }
        }
    }

    /// The same where the chunk is not mapped that far.
    #[cold]
    fn read_slowly(&self, located: &Located, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let entry = &located.entry;
        if out.is_empty() && entry.tag == tag::RAW {
            // It has no bytes that a file could lack.
            return Ok(());
        }
        if self.away.is_some() && entry.tag == tag::RAW {
            self.verify_raw(located)?;
        }
        match self.chunks.open(entry.chunk, entry.end())? {
            Bytes::Map(map) if map.len() < entry.end() => Err(self.too_short(located, map.len())),
            Bytes::Map(map) if entry.tag == tag::RAW && map.copy_to(u64::from(entry.offset), out) => Ok(()),
            Bytes::Map(map) => self.decode_mapped(&map, u64::from(entry.offset), located, out),
            Bytes::File(file) => {
                let path = self.chunks.path(entry.chunk);
                // Before memory is touched for what the entry claims.
                let len = file.len().map_err(Error::io("read", &path))?;
                if len < entry.end() {
                    return Err(self.too_short(located, len));
                }
                let read =
                    |bytes: &mut [u8]| file.read_at(bytes, u64::from(entry.offset)).map_err(Error::io("read", &path));
                if entry.tag == tag::RAW {
                    return read(zeroed(out));
                }
                let mut frame = vec![0; entry.stored as usize];
                read(&mut frame)?;
                self.decode(&frame, located, out)
            }
        }
    }

    /// Appends the stored bytes of a record to `out`, as they are, and says whether a sum has shown them to be right.
    pub(super) fn stored(&self, located: &Located, out: &mut Vec<u8>) -> Result<bool> {
        self.check_claim(located)?;
        let verified = located.entry.tag == tag::RAW && self.verify_raw(located)?;
        let entry = Entry { tag: tag::RAW, length: located.entry.stored, ..located.entry };
        let (maps, away) = (Arc::clone(&self.maps), self.away.clone());
        let plain = Reader { sums: None, maps, away, dictionary: None, ..*self };
        slot::extend(out, u64::from(entry.length), |out| plain.read(&Located { entry, ..*located }, out))?;
        Ok(verified)
    }

    /// Verifies the chunk's bytes that the sum of a raw record covers; says whether there is one.
    #[cold]
    pub(super) fn verify_raw(&self, located: &Located) -> Result<bool> {
        let entry = &located.entry;
        let sums = self.sums.or(self.away.as_ref().map(|away| away.sums));
        let Some(sum) = sums.map_or(Ok(None), |sums| sums.find(entry))? else { return Ok(false) };
        let check = |bytes: &[u8]| {
            sum.check(bytes).map_err(|(expected, found)| self.corrupt(located, expected, found)).map(|()| true)
        };
        let short =
            || self.corrupt(located, format!("a chunk file of at least {} bytes", sum.end()), "a shorter one".into());
        match self.chunks.open(entry.chunk, sum.end())? {
            Bytes::Map(map) => {
                map.with_frame(u64::from(sum.offset), sum.length as usize, check).unwrap_or_else(|| Err(short()))
            }
            Bytes::File(file) => {
                let path = self.chunks.path(entry.chunk);
                if file.len().map_err(Error::io("read", &path))? < sum.end() {
                    return Err(short());
                }
                let mut bytes = vec![0; sum.length as usize];
                file.read_at(&mut bytes, u64::from(sum.offset)).map_err(Error::io("read", &path))?;
                check(&bytes)
            }
        }
    }

    /// Decompresses the record whose frame lies at `at` in `map`.
    fn decode_mapped(&self, map: &Map, at: u64, located: &Located, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        map.with_frame(at, located.entry.stored as usize, |frame| self.decode(frame, located, out))
            .unwrap_or_else(|| Err(self.corrupt(located, "a frame within its chunk".into(), "the end of it".into())))
    }

    fn decode(&self, frame: &[u8], located: &Located, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        let dictionary = if located.entry.tag == tag::ZSTD_DICT { Some(self.dictionary(located)?) } else { None };
        codec::decompress(frame, dictionary, out).map_err(|(expected, found)| self.corrupt(located, expected, found))
    }

    /// The dictionary that a record needs.
    pub(super) fn dictionary(&self, located: &Located) -> Result<&Dictionary> {
        self.dictionary.as_deref().ok_or_else(|| {
            Error::dictionary(
                &self.chunks.dir.join(DICT),
                format!("record {} needs the dictionary, and there is none", located.index),
            )
        })
    }

    /// The store's directory.
    pub(super) fn path(&self) -> &Path {
        &self.chunks.dir
    }

    #[cold]
    pub(super) fn corrupt(&self, located: &Located, expected: String, found: String) -> Error {
        Error::Corrupt(Box::new(Corruption {
            path: self.chunks.dir.clone(),
            record: Some(located.index),
            chunk: Some(u32::from(located.entry.chunk)),
            offset: Some(u64::from(located.entry.offset)),
            expected,
            found,
        }))
    }
}
