//! Of what files a store consists, told by its table alone: for those who read or send it elsewhere.

use std::collections::BTreeMap;
use std::path::Path;

use super::format::{
    COMMIT, DELETE, DICT, ENTRY_SIZE, Entry, HEADER_SIZE, Header, META, META_SIZE, SCHEMA, chunk_name,
};
use super::sums::sum_name;
use crate::error::Result;

/// The table.
pub(crate) const TABLE: &str = META;
/// The files that a store may have once, beside its table.
pub(crate) const SINGLE: [&str; 3] = [SCHEMA, DICT, COMMIT];
/// The file that is there while records are deleted.
pub(crate) const DELETION: &str = DELETE;
/// The bytes of a table's header.
pub(crate) const TABLE_HEADER: u64 = HEADER_SIZE;
/// The bytes of the file of a table, of which those behind its entries mean nothing.
pub(crate) const TABLE_FILE: u64 = META_SIZE;

/// How many bytes of a table mean something: the header, and the entries that it says there are.
pub(crate) fn table_len(header: &[u8; HEADER_SIZE as usize], meta: &Path) -> Result<u64> {
    Ok(HEADER_SIZE + u64::from(Header::decode(header, meta)?.length) * ENTRY_SIZE)
}

/// The chunks that hold records of a table, and where the last record in each ends. Entries that are not sound are left
/// out.
pub(crate) fn chunk_ends(table: &[u8]) -> BTreeMap<u16, u64> {
    let mut ends = BTreeMap::new();
    // Most entries name the chunk that the one before does.
    let (mut chunk, mut end) = (None, 0);
    for entry in table.get(HEADER_SIZE as usize..).unwrap_or_default().as_chunks().0 {
        let entry = Entry::decode(entry);
        if !entry.is_sound() || entry.stored == 0 {
            continue;
        }
        if chunk == Some(entry.chunk) {
            end = end.max(entry.end());
            continue;
        }
        if let Some(chunk) = chunk.replace(entry.chunk) {
            ends.insert(chunk, end);
        }
        end = entry.end().max(ends.get(&entry.chunk).copied().unwrap_or(0));
    }
    ends.extend(chunk.map(|chunk| (chunk, end)));
    ends
}

/// The file of a chunk's records, and that of their checksums, which may be missing.
pub(crate) fn chunk_files(chunk: u16) -> (String, String) {
    (chunk_name(chunk), sum_name(chunk))
}
