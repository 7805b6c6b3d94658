//! The crate's one error: what went wrong, where, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in this crate.
///
/// It is `Clone`, so that a loader can hand the same failure to every later call, and each variant says where
/// (a path, a record, a step) and what was expected beside what was found.
///
/// `Debug` gives the message that `Display` gives: a `main` that returns this error, and an `unwrap`, show it as one line
/// for people. A program that wants the parts matches on the variant.
///
/// ```
/// let error = loaderx::Store::open("nowhere").unwrap_err();
/// assert_eq!(format!("{error:?}"), "nowhere is not a record store: nothing is there");
/// assert!(matches!(error, loaderx::Error::NotAStore { .. }));
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: "open", "write", "sync".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: Arc<io::Error>,
    },

    /// The path holds no record store (nothing is there, or a creation was cut off before it became one).
    #[error("{} is not a record store: {reason}", path.display())]
    NotAStore {
        /// The path that was to be opened.
        path: PathBuf,
        /// What is missing or different.
        reason: String,
    },

    /// Something is already there.
    #[error("{} already exists: remove it, or choose another destination", path.display())]
    Exists {
        /// The path that was to be created.
        path: PathBuf,
    },

    /// Another handle, in this process or another one, holds a lock that excludes this one.
    #[error("{} is locked: {reason}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who excludes whom, and what to do.
        reason: String,
    },

    /// A change was asked of a handle that was opened for reading.
    #[error("{} is open for reading: {action} needs a handle for writing (`open_writable`)", path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
        /// The operation that was refused.
        action: &'static str,
    },

    /// Bytes on disk are not what the format allows or what a checksum says.
    #[error("{0}")]
    Corrupt(Box<Corruption>),

    /// An index is past the end.
    #[error("index {index} is out of range for {len} records")]
    OutOfRange {
        /// The index that was asked for.
        index: u64,
        /// How many records there are.
        len: u64,
    },

    /// The store holds something else than what was asked for.
    #[error("{}: {what} is {found}, but {expected} was asked for", path.display())]
    Mismatch {
        /// The store.
        path: PathBuf,
        /// Which property differs: "kind", "dtype", "item shape", "codec".
        what: &'static str,
        /// What was asked for.
        expected: String,
        /// What the store holds.
        found: String,
    },

    /// A file is well-formed, but holds something that this crate does not take.
    #[error("{}: {what} is not supported: {reason}", path.display())]
    Unsupported {
        /// The file or store.
        path: PathBuf,
        /// What it holds.
        what: String,
        /// Why it is refused, and what to do instead.
        reason: String,
    },

    /// A file that was to be imported is malformed.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file; for a member of an archive, `archive.npz/member`.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// An argument is outside of what the function accepts.
    #[error("{what}: {reason}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What is wrong with it, and what is accepted.
        reason: String,
    },

    /// A dictionary is missing, cannot be trained, or cannot be replaced.
    #[error("{}: {reason}", path.display())]
    Dictionary {
        /// The store.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },

    /// An earlier write to this handle could not be made durable; the handle takes no more writes.
    #[error("{} takes no more writes, since an earlier one failed ({source}): open it again", path.display())]
    Poisoned {
        /// The store.
        path: PathBuf,
        /// The earlier failure.
        source: Box<Error>,
    },

    /// A step of a loader failed. Every later `next` gives this error again, until `seek`.
    #[error("step {step}: {source}")]
    Step {
        /// The step whose batch could not be made.
        step: u64,
        /// Why.
        source: Box<Error>,
    },

    /// A transform returned an error.
    #[error("the transform failed: {0}")]
    Transform(Arc<dyn std::error::Error + Send + Sync>),

    /// A framework did not make a tensor of a batch: its device refused, or is out of memory.
    #[error("the batch became no tensor: {0}")]
    Tensor(Arc<dyn std::error::Error + Send + Sync>),

    /// A transform, or code below it, panicked.
    #[error("panic: {0}")]
    Panic(String),

    /// The work was given up because its loader was closed.
    #[error("cancelled: the loader was closed")]
    Cancelled,

    /// The work was stopped where it was asked to be: see [`Import::stop`](crate::Import::stop).
    #[error("interrupted after {records} records: {left}")]
    Interrupted {
        /// How many records had been written.
        records: u64,
        /// What is left of them, and how to go on.
        left: String,
    },

    /// A saved state does not belong to this loader.
    #[error("the saved state does not fit this loader: {reason}")]
    State {
        /// What differs: the saved value and the loader's.
        reason: String,
    },
}

/// Where bytes on disk differ from what they should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Corruption {
    /// The file or the store.
    pub path: PathBuf,
    /// The record's index, where one record is meant.
    pub record: Option<u64>,
    /// The chunk that holds the record.
    pub chunk: Option<u32>,
    /// The byte offset in the file.
    pub offset: Option<u64>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is corrupt", self.path.display())?;
        let mut separator = ": ";
        for (name, value) in [("record", self.record), ("chunk", self.chunk.map(u64::from)), ("offset", self.offset)] {
            if let Some(value) = value {
                write!(f, "{separator}{name} {value}")?;
                separator = ", ";
            }
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Closure for `map_err` on an I/O result.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source: Arc::new(source) }
    }

    /// A file whose content, as a whole, is not what the format says.
    pub(crate) fn corrupt(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Corrupt(Box::new(Corruption {
            path: path.to_path_buf(),
            expected: expected.into(),
            found: found.into(),
            ..Corruption::default()
        }))
    }

    /// An argument that is not accepted.
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Error {
        Error::Invalid { what, reason: reason.into() }
    }

    /// A malformed source file.
    pub(crate) fn format(path: &Path, reason: impl Into<String>) -> Error {
        Error::Format { path: path.to_path_buf(), reason: reason.into() }
    }

    /// Something well-formed that is refused by name.
    pub(crate) fn unsupported(path: &Path, what: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Unsupported { path: path.to_path_buf(), what: what.into(), reason: reason.into() }
    }

    /// The store holds something else than what was asked for.
    pub(crate) fn mismatch(
        path: &Path,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Mismatch { path: path.to_path_buf(), what, expected: expected.into(), found: found.into() }
    }

    /// The dictionary is missing or cannot be had.
    pub(crate) fn dictionary(path: &Path, reason: impl Into<String>) -> Error {
        Error::Dictionary { path: path.to_path_buf(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_the_message_with_all_that_led_to_it() {
        let torn = Error::Corrupt(Box::new(Corruption {
            path: "images".into(),
            record: Some(7),
            chunk: Some(0),
            offset: Some(4096),
            expected: "the checksum".into(),
            found: "another one".into(),
        }));
        let error = Error::Step { step: 3, source: Box::new(torn) };
        let message =
            "step 3: images is corrupt: record 7, chunk 0, offset 4096: expected the checksum, found another one";
        assert_eq!(error.to_string(), message);
        assert_eq!(format!("{error:?}"), message);
        assert_eq!(format!("{error:#?}"), message);
    }
}
