//! What an import was begun with, kept beside what it has written, so that only the same import goes on there.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::files::RecordFile;
use crate::error::{Error, Result};

/// Larger ones are refused: of a million sources, each of some hundred bytes.
pub(super) const MAX_JOURNAL: u64 = 1 << 28;

/// What is written to `DST.partial/import.json` before the first record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    version: u32,
    settings: Vec<(String, String)>,
    sources: Vec<Origin>,
}

/// A file or folder, and what changes when it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    path: String,
    /// Of a folder: how many files are in it, and a hash over their names, sizes and times.
    files: Option<(u64, u64)>,
    bytes: u64,
    /// Nanoseconds since 1970, before it negative; 0 of a folder.
    modified: i64,
}

impl Origin {
    pub(super) fn file(path: &Path) -> Result<Origin> {
        let found = fs::metadata(path).map_err(Error::io("read", path))?;
        Ok(Origin { path: absolute(path), files: None, bytes: found.len(), modified: modified(&found) })
    }

    pub(super) fn folder(path: &Path, files: &[RecordFile]) -> Result<Origin> {
        let (mut hash, mut bytes) = (Xxh3Default::new(), 0u64);
        for file in files {
            let found = fs::metadata(&file.path).map_err(Error::io("read", &file.path))?;
            hash.update(file.name.as_bytes());
            hash.update(&[0]);
            hash.update(&found.len().to_le_bytes());
            hash.update(&modified(&found).to_le_bytes());
            bytes = bytes.saturating_add(found.len());
        }
        Ok(Origin { path: absolute(path), files: Some((files.len() as u64, hash.digest())), bytes, modified: 0 })
    }
}

fn modified(found: &Metadata) -> i64 {
    let Ok(time) = found.modified() else { return 0 };
    let nanoseconds = |duration: std::time::Duration| duration.as_nanos() as i64;
    time.duration_since(UNIX_EPOCH).map_or_else(|before| -nanoseconds(before.duration()), nanoseconds)
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).to_string_lossy().into_owned()
}

impl Journal {
    pub(super) fn new(settings: Vec<(String, String)>, sources: Vec<Origin>) -> Journal {
        Journal { version: 1, settings, sources }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers are always written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// An error, which names the first contradiction, where `begun` was written by another import than this one.
    pub(super) fn check(&self, path: &Path, begun: &[u8]) -> Result<()> {
        let begun: Journal = serde_json::from_slice(begun).map_err(|e| {
            let reason = format!("it does not say what the import was begun with ({e}): import without resuming");
            Error::format(path, reason)
        })?;
        let Some((what, then, now)) = self.contradiction(&begun) else { return Ok(()) };
        let reason = format!(
            "the import was begun with {what} {then}, and is to be resumed with {now}: give the same, or import without \
             resuming, which begins anew"
        );
        Err(Error::format(path, reason))
    }

    /// What differs, as it was, and as it is.
    fn contradiction(&self, begun: &Journal) -> Option<(String, String, String)> {
        if begun.version != self.version {
            return Some(("the journal's version".into(), begun.version.to_string(), self.version.to_string()));
        }
        for (name, now) in &self.settings {
            let then = begun.settings.iter().find(|(begun, _)| begun == name).map_or("nothing", |(_, value)| value);
            if then != now {
                return Some((name.clone(), then.to_owned(), now.clone()));
            }
        }
        for (then, now) in begun.sources.iter().zip(&self.sources) {
            if then.path != now.path {
                return Some(("the source".into(), then.path.clone(), now.path.clone()));
            }
            if then != now {
                return Some((format!("{} of", then.path), then.describe(), now.describe()));
            }
        }
        let (then, now) = (begun.sources.len(), self.sources.len());
        let sources = |count: usize| count.to_string();
        (then != now).then(|| ("a number of sources of".into(), sources(then), sources(now)))
    }
}

impl Origin {
    fn describe(&self) -> String {
        match self.files {
            Some((files, hash)) => format!("{files} files, {} bytes in all (hash {hash:016x})", self.bytes),
            None => format!("{} bytes, last modified {} ns after 1970", self.bytes, self.modified),
        }
    }
}

/// The absolute path of `DST.partial`'s journal.
pub(super) fn path(partial: &Path) -> PathBuf {
    partial.join(NAME)
}

/// Its name.
pub(super) const NAME: &str = "import.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contradiction_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let (a, b) = (file("a", b"one"), file("b", b"two"));
        let journal = |codec: &str, sources: &[&PathBuf]| {
            let sources = sources.iter().map(|path| Origin::file(path).unwrap()).collect();
            Journal::new(vec![("codec".into(), codec.into())], sources)
        };
        let begun = journal("raw", &[&a, &b]);
        let check = |now: &Journal| now.check(Path::new("p"), &begun.to_bytes()).map_err(|e| e.to_string());
        check(&begun).unwrap();
        assert!(check(&journal("zstd", &[&a, &b])).unwrap_err().contains("begun with codec raw"));
        assert!(check(&journal("raw", &[&a])).unwrap_err().contains("a number of sources of 2"));
        assert!(check(&journal("raw", &[&b, &a])).unwrap_err().contains("the source"));
        file("b", b"three");
        assert!(check(&journal("raw", &[&a, &b])).unwrap_err().contains("3 bytes"));
        assert!(begun.check(Path::new("p"), b"{}").unwrap_err().to_string().contains("without resuming"));
    }

    #[test]
    fn a_folder_whose_files_change_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let folder = || {
            let files = super::super::files::folder(directory.path()).unwrap();
            Origin::folder(directory.path(), &files).unwrap()
        };
        fs::write(directory.path().join("a"), b"one").unwrap();
        let before = folder();
        assert_eq!(folder(), before);
        fs::rename(directory.path().join("a"), directory.path().join("b")).unwrap();
        assert_ne!(folder(), before);
    }
}
