//! Text and JSON lines: each line a record of its bytes.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::open_source;
use super::table::read_error;
use super::write::push;
use crate::Records;
use crate::error::{Error, Result};

/// Bytes that are read at once.
const READ: usize = 1 << 20;

/// What is read line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lines {
    /// For errors, and to open where it is a file.
    pub(super) path: PathBuf,
    /// Whether each line must be a JSON value.
    pub(super) json: bool,
    /// The size of the file; `None` where it is a stream.
    pub(super) bytes: Option<u64>,
}

impl Lines {
    /// Looks at a file.
    pub(super) fn file(path: &Path, json: bool) -> Result<Lines> {
        let bytes = open_source(path)?.metadata().map_err(Error::io("read", path))?.len();
        Ok(Lines { path: path.to_path_buf(), json, bytes: Some(bytes) })
    }

    /// Reads the stream, or else the file. A line over `limit` bytes is an error.
    pub(super) fn reader<'a>(
        &self,
        stream: Option<Box<dyn Read + 'a>>,
        limit: u32,
    ) -> Result<LineReader<BufReader<Box<dyn Read + 'a>>>> {
        let input = match stream {
            Some(stream) => stream,
            None => Box::new(open_source(&self.path)?),
        };
        Ok(LineReader::new(self, BufReader::with_capacity(READ, input), limit))
    }

    /// Adds at most `count` lines, spread evenly over the file, of `budget` bytes at most: at each of as many places the
    /// first line that begins there or later. What is wrong with a line is said by the import, which knows its number.
    pub(super) fn sample(&self, count: u64, budget: u64, limit: u32, samples: &mut Records) -> Result<()> {
        let share = |of: u64, i: u64| (u128::from(of) * u128::from(i) / u128::from(count)) as u64;
        let mut reader = LineReader::new(self, BufReader::new(open_source(&self.path)?), limit);
        let (mut end, mut taken) = (0, 0);
        for i in 0..count {
            let place = share(self.bytes.unwrap_or(0), i);
            // A place within the line that was taken last gives no other one.
            if place < end {
                continue;
            }
            end = reader.seek_line(place)?;
            let Ok(Some(line)) = reader.next_line() else { break };
            let bytes = line.len() as u64;
            // A long line is left out until its share has grown, so that what is taken stays spread over the file.
            if taken + bytes <= share(budget, i + 1) {
                taken += bytes;
                push(samples, line);
            }
            end += reader.buffer.len() as u64;
        }
        Ok(())
    }
}

/// Gives one line after the other.
pub(super) struct LineReader<R> {
    path: PathBuf,
    json: bool,
    input: R,
    limit: u32,
    /// The number of the last line that was read; the first is 1.
    number: u64,
    /// That line, with what ends it.
    buffer: Vec<u8>,
}

impl<R: BufRead> LineReader<R> {
    fn new(lines: &Lines, input: R, limit: u32) -> LineReader<R> {
        LineReader { path: lines.path.clone(), json: lines.json, input, limit, number: 0, buffer: Vec::new() }
    }

    /// The next line without `\n` or `\r\n` at its end, unchecked; `None` at the end. What follows the last newline is a
    /// line where it is not empty.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>> {
        self.buffer.clear();
        // A line at the limit, and the two bytes that may end it.
        let most = u64::from(self.limit) + 2;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut self.buffer);
        if read.map_err(|e| read_error(&self.path, "a line", e))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = match self.buffer.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => &self.buffer,
        };
        if line.len() as u64 > u64::from(self.limit) {
            let what = format!("line {}, of over {} bytes,", self.number, self.limit);
            return Err(Error::unsupported(&self.path, what, "it is over the record limit: raise it"));
        }
        Ok(Some(line))
    }

    /// The same, held to be JSON where it must be.
    pub(super) fn next_record(&mut self) -> Result<Option<&[u8]>> {
        let Some(length) = self.next_line()?.map(<[u8]>::len) else { return Ok(None) };
        let line = &self.buffer[..length];
        if self.json {
            let number = self.number;
            let refuse = |reason: String| Error::format(&self.path, format!("line {number} is no JSON: {reason}"));
            let text = str::from_utf8(line).map_err(|e| refuse(e.to_string()))?;
            if text.trim_ascii().is_empty() {
                return Err(refuse("it is empty: remove it, or import the file as text".into()));
            }
            serde_json::from_str::<IgnoredAny>(text).map_err(|e| {
                // The error counts lines itself, and sees one.
                refuse(e.to_string().replace(" at line 1 column ", " at column "))
            })?;
        }
        Ok(Some(line))
    }

    /// Where the last line lies among those of its file; the first is 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the last line, with what ends it.
    pub(super) fn consumed(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl<R: BufRead + Seek> LineReader<R> {
    /// Goes to the first line that begins at `place` or later, and says where that is.
    fn seek_line(&mut self, place: u64) -> Result<u64> {
        let error = |e| read_error(&self.path, "a line", e);
        // A line begins here where the byte before ends one.
        self.input.seek(SeekFrom::Start(place.saturating_sub(1))).map_err(error)?;
        if place == 0 {
            return Ok(0);
        }
        let skipped = self.input.skip_until(b'\n').map_err(error)?;
        Ok(place - 1 + skipped as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8], json: bool, limit: u32) -> Result<Vec<Vec<u8>>> {
        let lines = Lines { path: "a.txt".into(), json, bytes: None };
        let mut reader = lines.reader(Some(Box::new(bytes)), limit)?;
        let mut all = Vec::new();
        while let Some(line) = reader.next_record()? {
            all.push(line.to_vec());
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn lines_are_what_stands_between_newlines(text in "[ab\r\n]{0,60}") {
            let mut expected: Vec<&str> = text.split('\n').collect();
            let last = expected.pop().unwrap();
            let mut expected: Vec<&str> =
                expected.into_iter().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
            if !last.is_empty() {
                expected.push(last);
            }
            let found = read(text.as_bytes(), false, 100).unwrap();
            prop_assert_eq!(found, expected.into_iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>());
        }

        #[test]
        fn samples_are_lines_in_order_and_all_of_them_where_places_suffice(
            lines in prop::collection::vec("[a-z]{0,30}", 1..80),
            count in 1u64..40,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("a.txt");
            std::fs::write(&path, lines.join("\n")).unwrap();
            let of = |count, budget| {
                let mut samples = Records { bytes: Vec::new(), offsets: vec![0] };
                Lines::file(&path, false).unwrap().sample(count, budget, 100, &mut samples).unwrap();
                (0..samples.offsets.len() - 1).map(|i| samples.get(i).unwrap().to_vec()).collect::<Vec<_>>()
            };
            let mut rest = lines.iter();
            let some = of(count, 1 << 20);
            prop_assert!(some.len() as u64 <= count);
            for sample in some {
                prop_assert!(rest.any(|line| line.as_bytes() == sample), "{sample:?} is no later line");
            }
            let mut all: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
            // Behind the last newline there is a line only where it is not empty.
            all.truncate(all.len() - usize::from(all.last().unwrap().is_empty()));
            prop_assert_eq!(of(10_000, 1 << 40), all);
            prop_assert!(of(count, 50).concat().len() <= 50);
        }
    }

    #[test]
    fn a_line_over_the_limit_is_an_error_that_names_it() {
        for end in ["", "\n", "\r\n"] {
            assert_eq!(read(format!("ok\n12345{end}").as_bytes(), false, 5).unwrap().len(), 2, "{end:?}");
            let error = read(format!("ok\n123456{end}").as_bytes(), false, 5).unwrap_err().to_string();
            assert!(error.contains("a.txt: line 2, of over 5 bytes"), "{error}");
        }
    }

    #[test]
    fn json_is_checked_line_by_line() {
        let good = "{\"a\": [1, 2.5e3, null, \"\\u00e9\"]}\r\n\"text\"\n17";
        assert_eq!(read(good.as_bytes(), true, 100).unwrap().len(), 3);
        for (bad, reason) in [
            (&b"1\n{\"a\": }\n"[..], "a.txt: line 2 is no JSON: expected value at column 7"),
            (b"1\n\n", "line 2 is no JSON: it is empty"),
            (b"1\n2 3\n", "line 2 is no JSON: trailing characters"),
            (b"1\n\"\xff\"\n", "line 2 is no JSON: invalid utf-8"),
        ] {
            let error = read(bad, true, 100).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
