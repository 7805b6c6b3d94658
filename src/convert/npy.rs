//! NumPy's .npy: its header, read and written, and the file as a source of one table.
//!
//! The header is parsed here and not by `npyz`: 0.9.1 multiplies the dimensions unchecked, and its grammar takes
//! exponential time on nested brackets, so that a few crafted bytes panic it or keep it busy for ever.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::open_source;
use super::table::{Input, Source, Table, read_error};
use crate::data::{ByteOrder, DType};
use crate::error::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// A plain element's header is some hundred bytes long; only structures, which are refused anyway, have long ones.
const HEADER_LIMIT: u64 = 64 << 10;

/// NumPy leaves room for the first dimension to grow to so many digits.
const GROWTH_DIGITS: usize = 21;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) descr: String,
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
    /// Where the data begins, from the start of the header.
    pub(super) data_start: u64,
}

/// Reads the header that `reader` begins with.
pub(super) fn read_header(path: &Path, reader: &mut impl Read) -> Result<Header> {
    let mut take = |len: usize| -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        reader.read_exact(&mut bytes).map_err(|e| read_error(path, "the header", e))?;
        Ok(bytes)
    };
    let start = take(8)?;
    if !start.starts_with(MAGIC) {
        return Err(Error::format(path, "it does not begin with NumPy's \\x93NUMPY: this is not a .npy file"));
    }
    let (major, minor) = (start[6], start[7]);
    let width = match (major, minor) {
        (1, 0) => 2,
        (2 | 3, 0) => 4,
        _ => {
            let what = format!("version {major}.{minor} of the .npy format");
            return Err(Error::unsupported(path, what, "versions 1.0, 2.0 and 3.0 are read"));
        }
    };
    let len = take(width)?.iter().rev().fold(0u64, |len, byte| len << 8 | u64::from(*byte));
    if len > HEADER_LIMIT {
        let what = format!("a header of {len} bytes");
        return Err(Error::unsupported(path, what, format!("{HEADER_LIMIT} bytes are the most that is read")));
    }
    let text = take(len as usize)?;
    // Versions 1 and 2 are latin-1, whose bytes are the first 256 code points.
    let text = match major {
        3 => String::from_utf8(text).map_err(|_| Error::format(path, "the header is not UTF-8"))?,
        _ => text.into_iter().map(char::from).collect(),
    };
    Parser { path, rest: &text }.header(8 + width as u64 + len)
}

/// Reads the one form of Python literal that NumPy writes: a dictionary of a string, a bool and a tuple of integers.
struct Parser<'a> {
    path: &'a Path,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn header(mut self, data_start: u64) -> Result<Header> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.eat('}') {
            let key = self.string()?;
            self.expect(':')?;
            let again = match key {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => fortran.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.tuple()?).is_some(),
                _ => return Err(self.error(&format!("unknown key {key:?}"))),
            };
            if again {
                return Err(self.error(&format!("the key {key:?} stands twice")));
            }
            if !self.eat(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err(self.error("something follows the dictionary"));
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Header { descr, fortran, shape, data_start }),
            _ => Err(self.error("one of descr, fortran_order and shape is missing")),
        }
    }

    fn descr(&mut self) -> Result<String> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['[', '(', '{']) {
            return Err(Error::unsupported(self.path, "a structured dtype", "save each field as an array of its own"));
        }
        self.string().map(str::to_owned)
    }

    fn boolean(&mut self) -> Result<bool> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.error("fortran_order is neither True nor False"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>> {
        let mut values = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            values.push(self.integer()?);
            if !self.eat(',') {
                self.expect(')')?;
                // In Python, (3) is a number and no tuple.
                return if values.len() == 1 { Err(self.error("shape is not a tuple")) } else { Ok(values) };
            }
        }
        Ok(values)
    }

    fn integer(&mut self) -> Result<u64> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let value = digits.parse().map_err(|_| self.error("a dimension is not an integer from 0 to 2^64 - 1"))?;
        // Python 2 wrote its long integers as 3L.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(value)
    }

    fn string(&mut self) -> Result<&'a str> {
        self.rest = self.rest.trim_start();
        let quote = self.rest.chars().next().filter(|c| ['\'', '"'].contains(c));
        let body = quote.and_then(|quote| self.rest[1..].split_once(quote));
        let (body, rest) = body.ok_or_else(|| self.error("a string is expected"))?;
        if body.contains('\\') {
            return Err(self.error("a string holds an escape"));
        }
        self.rest = rest;
        Ok(body)
    }

    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) { Ok(()) } else { Err(self.error(&format!("'{c}' is expected"))) }
    }

    fn error(&self, reason: &str) -> Error {
        let rest: String = self.rest.chars().take(24).collect();
        Error::format(self.path, format!("the header is malformed: {reason}, before {rest:?}"))
    }
}

/// The element that a header's `descr` names. `void` is what the caller says that `<V2` means.
pub(super) fn element(path: &Path, descr: &str, void: Option<DType>) -> Result<(DType, ByteOrder)> {
    if let Some(element) = DType::from_numpy(descr) {
        return Ok(element);
    }
    let kind = descr.get(1..2).unwrap_or("");
    let reason = match (descr, kind) {
        ("<V2" | "|V2", _) => match void {
            Some(dtype) => return Ok((dtype, ByteOrder::Little)),
            None => "NumPy saves bfloat16 so, among others: if these are bfloat16, say so (dtype bf16)",
        },
        (_, "c") => "complex numbers have no element type here: save the real and the imaginary part",
        (_, "M" | "m") => "dates and durations have no element type here: save them with .view('i8')",
        (_, "S" | "U" | "a") => "strings have no element type here: import them as records of bytes",
        (_, "O") => "pickled objects are never loaded",
        (_, "V") => "raw bytes without a type: save them with .view('u1')",
        (_, "f") => "no float of this size exists outside NumPy: save them with .astype('f8')",
        _ => "it is none of NumPy's plain types",
    };
    Err(Error::unsupported(path, format!("dtype {descr:?}"), reason))
}

/// The header that NumPy writes for an array in C order.
pub(super) fn header_bytes(path: &Path, descr: &str, shape: &[u64]) -> Result<Vec<u8>> {
    let dimensions: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", dimensions.join(", "));
    let growth = dimensions.first().map_or(0, |first| GROWTH_DIGITS.saturating_sub(first.len()));
    text.push_str(&" ".repeat(growth));
    // Magic, version, length and newline are the other 11 bytes.
    let padding = 64 - (text.len() + 11) % 64;
    text.push_str(&" ".repeat(padding));
    text.push('\n');
    let too_long = |_| Error::unsupported(path, format!("{} dimensions", shape.len()), "a .npy header is too short");
    let len = u16::try_from(text.len()).map_err(too_long)?;
    Ok([MAGIC, &[1, 0][..], &len.to_le_bytes(), text.as_bytes()].concat())
}

/// A .npy file, as a source of one table without a name.
#[derive(Debug)]
pub(super) struct NpyFile {
    path: PathBuf,
    file: File,
}

impl NpyFile {
    pub(super) fn open(path: &Path) -> Result<NpyFile> {
        Ok(NpyFile::of(path, open_source(path)?))
    }

    /// A file that is open; the path is for errors.
    pub(super) fn of(path: &Path, file: File) -> NpyFile {
        NpyFile { path: path.to_path_buf(), file }
    }
}

impl Source for NpyFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> &[String] {
        const NAMES: &[String] = &[String::new()];
        NAMES
    }

    fn is_archive(&self) -> bool {
        false
    }

    fn table(&mut self, _index: usize, void: Option<DType>) -> Result<Table> {
        let path = &self.path;
        self.file.seek(SeekFrom::Start(0)).map_err(Error::io("read", path))?;
        let header = read_header(path, &mut self.file)?;
        let len = self.file.metadata().map_err(Error::io("read", path))?.len();
        Table::from_npy(path, header, void, len)
    }

    fn input(&mut self, _index: usize, table: &Table, _in_order: bool) -> Result<Input<'_>> {
        Input::file(&self.path, &self.file, table.data_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(version: u8, text: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[version, 0][..]].concat();
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Header> {
        read_header(Path::new("test.npy"), &mut &bytes[..])
    }

    fn parse_text(text: &str) -> Result<Header> {
        parse(&file(3, text.as_bytes()))
    }

    #[test]
    fn all_versions_and_spellings_of_a_header_are_read() {
        let expected = |data_start| Header { descr: "<f4".into(), fortran: true, shape: vec![3, 4], data_start };
        let text = "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }";
        assert_eq!(parse(&file(1, text.as_bytes())).unwrap(), expected(10 + text.len() as u64));
        assert_eq!(parse(&file(2, text.as_bytes())).unwrap(), expected(12 + text.len() as u64));
        assert_eq!(parse(&file(3, text.as_bytes())).unwrap(), expected(12 + text.len() as u64));
        for text in [
            "{'shape': (3L, 4L), \"fortran_order\":True,'descr':\"<f4\"}\n",
            "  {  'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 3 , 4 , ) , }   \n",
        ] {
            assert_eq!(parse_text(text).unwrap(), expected(12 + text.len() as u64));
        }
    }

    #[test]
    fn headers_that_numpy_does_not_write_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "'{' is expected"),
            ("{'descr': '<f4', 'fortran_order': True}", "missing"),
            ("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", "neither True nor False"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (3)}", "not a tuple"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (-3,)}", "not an integer"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (18446744073709551616,)}", "not an integer"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), 'x': 1}", "unknown key"),
            ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': True, 'shape': (3,)}", "twice"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (3,)} 1", "follows the dictionary"),
            ("{'descr': [('a', '<f4')], 'fortran_order': True, 'shape': (3,)}", "structured"),
            ("{'descr': '<f4", "a string is expected"),
            ("{'\\x64escr': '<f4'", "escape"),
        ] {
            let error = parse_text(text).unwrap_err().to_string();
            assert!(error.contains(reason) && error.starts_with("test.npy"), "{text}: {error}");
        }
    }

    #[test]
    fn brackets_nested_without_end_cost_neither_stack_nor_time() {
        for bracket in ["(", "[", "{", "{'shape': ("] {
            assert!(parse_text(&bracket.repeat(5000)).is_err());
            let text = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {}", bracket.repeat(5000));
            assert!(parse_text(&text).is_err());
        }
    }

    #[test]
    fn a_header_that_claims_gigabytes_is_refused_before_they_are_allocated() {
        let mut bytes = file(2, b"");
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(parse(&bytes).unwrap_err().to_string().contains("4294967295 bytes"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_aligned_and_read_back(shape in prop::collection::vec(any::<u64>(), 0..9)) {
            let bytes = header_bytes(Path::new("x"), "<f4", &shape).unwrap();
            prop_assert_eq!(bytes.len() % 64, 0);
            let header = parse(&bytes).unwrap();
            let data_start = bytes.len() as u64;
            prop_assert_eq!(header, Header { descr: "<f4".into(), fortran: false, shape, data_start });
        }

        #[test]
        fn no_text_panics(text in "[{}()\\[\\]'\":,A-Za-z0-9 éL_-]{0,80}") {
            let _ = parse_text(&text);
        }
    }
}
