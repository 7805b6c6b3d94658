//! Files as they are: each a record of its bytes.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::table::read_error;
use super::write::push;
use crate::Records;
use crate::data::MAX_RECORDS;
use crate::error::{Error, Result};

/// A file that becomes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordFile {
    pub(super) path: PathBuf,
    /// What the record is called: the path below the folder that was imported, with `/` between its parts.
    pub(super) name: String,
    pub(super) bytes: u64,
}

impl RecordFile {
    /// Looks at a file that was named itself.
    pub(super) fn new(path: &Path) -> Result<RecordFile> {
        let name = path.file_name().unwrap_or_default();
        RecordFile::named(path.to_path_buf(), name.to_string_lossy().into_owned())
    }

    fn named(path: PathBuf, name: String) -> Result<RecordFile> {
        let found = fs::metadata(&path).map_err(Error::io("read", &path))?;
        if !found.is_file() {
            let reason = "a folder's files become records, and this is no regular file: remove it from the folder";
            return Err(Error::unsupported(&path, "what is neither a file nor a folder", reason));
        }
        Ok(RecordFile { path, name, bytes: found.len() })
    }

    /// Its bytes, of which there may be `limit`.
    pub(super) fn read(&self, limit: u32) -> Result<Vec<u8>> {
        let file = File::open(&self.path).map_err(Error::io("open", &self.path))?;
        let mut bytes = Vec::with_capacity(self.bytes.min(limit.into()) as usize);
        file.take(u64::from(limit) + 1).read_to_end(&mut bytes).map_err(|e| read_error(&self.path, "the file", e))?;
        if bytes.len() as u64 > u64::from(limit) {
            let what = format!("a file of {} bytes", self.bytes);
            return Err(Error::unsupported(&self.path, what, format!("the record limit is {limit}: raise it")));
        }
        Ok(bytes)
    }
}

/// All files below a folder, by the order of their names' bytes. What is hidden is left out; a link to a file is that
/// file; a link to a folder, which may lead in circles, is refused.
pub(super) fn folder(root: &Path) -> Result<Vec<RecordFile>> {
    let (mut files, mut folders) = (Vec::new(), vec![(root.to_path_buf(), String::new())]);
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let entry = entry.map_err(Error::io("read", &folder))?;
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(|name| format!("{prefix}{name}")) else {
                let reason = "names are kept as text: rename the file";
                return Err(Error::unsupported(&path, "a name that is not UTF-8", reason));
            };
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let kind = entry.file_type().map_err(Error::io("read", &path))?;
            if kind.is_dir() {
                folders.push((path, name + "/"));
            } else if kind.is_symlink() && path.is_dir() {
                let reason = "it may lead in circles: import what it leads to by its own path";
                return Err(Error::unsupported(&path, "a link to a folder", reason));
            } else {
                files.push(RecordFile::named(path, name)?);
            }
            if files.len() as u64 > MAX_RECORDS {
                let reason = format!("a store holds at most {MAX_RECORDS} records: import it in parts");
                return Err(Error::unsupported(root, "a folder of more files", reason));
            }
        }
    }
    files.sort_unstable_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(files)
}

/// Adds at most `count` of the files, spread evenly, of `budget` bytes at most.
pub(super) fn sample(files: &[RecordFile], count: u64, budget: u64, limit: u32, samples: &mut Records) -> Result<()> {
    let count = count.min(files.len() as u64);
    let mut taken = 0;
    for i in 0..count {
        let file = &files[(i * files.len() as u64 / count) as usize];
        // As with lines: large files wait until their share has grown.
        if taken + file.bytes <= (u128::from(budget) * u128::from(i + 1) / u128::from(count)) as u64 {
            let bytes = file.read(limit)?;
            taken += bytes.len() as u64;
            push(samples, &bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, bytes: &[u8]) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_folder_gives_its_files_by_name_and_leaves_out_what_is_hidden() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b", "a/2", "a/10", "a-b", ".hidden", ".git/x", "Z", "empty"] {
            write(directory.path(), name, name.as_bytes());
        }
        let files = folder(directory.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|file| &file.name[..]).collect();
        assert_eq!(names, ["Z", "a-b", "a/10", "a/2", "b", "empty"]);
        assert_eq!(files[2].read(10).unwrap(), b"a/10");
        assert!(files[2].read(3).unwrap_err().to_string().contains("the record limit is 3"));
    }

    #[cfg(unix)]
    #[test]
    fn links_to_files_are_followed_and_links_to_folders_are_refused() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "in/a", b"one");
        symlink("a", directory.path().join("in/b")).unwrap();
        let names: Vec<String> =
            folder(&directory.path().join("in")).unwrap().into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["a", "b"]);
        symlink("..", directory.path().join("in/c")).unwrap();
        assert!(folder(directory.path()).unwrap_err().to_string().contains("c: a link to a folder"));
        fs::remove_file(directory.path().join("in/c")).unwrap();
        symlink("nowhere", directory.path().join("in/c")).unwrap();
        assert!(folder(directory.path()).unwrap_err().to_string().contains("in/c"));
    }
}
