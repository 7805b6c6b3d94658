//! schema.msgpack: what a store's records are, beside whatever else its users wrote there.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use rmpv::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::DType;
use super::dtype::ByteOrder;
use super::shape::elements;
use crate::engine::store::{Codec, MAX_SCHEMA, RECORD_LIMIT, SCHEMA, Store};
use crate::error::{Error, Result};

const FORMAT: &str = "loaderx-zrecord";
const VERSION: u64 = 1;
const BFLOAT16: &str = "bfloat16";

/// No `dtype.str` is longer.
const MAX_DTYPE: usize = 64;
/// More axes are refused: NumPy's own limit.
const MAX_RANK: usize = 64;
/// What `row_size` takes.
const SHAPE: &str = "a list of at most 64 axis lengths, of rows under 4 GiB (an axis of length 0 counting as 1)";
/// Deeper metadata is refused. rmpv counts a container twice, so this is 32 of them.
const MAX_DEPTH: usize = 64;

/// The keys that are this crate's own.
const RESERVED: [&str; 8] = ["format", "version", "kind", "dtype", "item_shape", "codec", "element", "record_limit"];

/// Whether the records of a dataset all have one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Each record is one row of the item shape.
    Dense,
    /// Each record is any number of rows of the item shape.
    Ragged,
}

impl Kind {
    /// The name in the schema: "dense", "ragged".
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dense => "dense",
            Kind::Ragged => "ragged",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The content of schema.msgpack.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schema {
    kind: Kind,
    /// NumPy's `dtype.str`, as it is written.
    dtype: String,
    /// What a dtype that NumPy has no name for stands for.
    element: Option<String>,
    item_shape: Vec<usize>,
    codec: Codec,
    record_limit: u32,
    /// The whole map in the order of the file; the keys are distinct.
    entries: Vec<(String, Value)>,
}

impl Schema {
    /// What schema.msgpack of the store at `path` says; `None` where there is none. It is read without opening the
    /// store, since a store is opened for writing with the codec and the limit that stand here.
    pub(crate) fn peek(path: &Path) -> Result<Option<Self>> {
        Store::peek_schema(path)?.map(|bytes| Schema::parse(path, &bytes)).transpose()
    }

    /// Reads a schema of the store at `path`.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let file = path.join(SCHEMA);
        let corrupt = |expected: &str, found: String| Error::corrupt(&file, expected, found);
        if bytes.len() as u64 > MAX_SCHEMA {
            return Err(corrupt("at most 1 MiB", format!("{} bytes", bytes.len())));
        }
        let mut rest = bytes;
        let value = rmpv::decode::read_value_with_max_depth(&mut rest, MAX_DEPTH)
            .map_err(|error| corrupt("one MessagePack map", format!("a malformed one: {error}")))?;
        if !rest.is_empty() {
            return Err(corrupt("one MessagePack map", format!("{} bytes after it", rest.len())));
        }
        let entries = named(value).map_err(|found| corrupt("a map with string keys, each once", found))?;
        Self::from_entries(path, Entries { file: &file, entries })
    }

    fn from_entries(path: &Path, entries: Entries<'_>) -> Result<Self> {
        let format = entries.string("format", FORMAT)?;
        if format != FORMAT {
            return Err(entries.wrong("format", FORMAT));
        }
        let version = entries.number("version", "1")?;
        if version != VERSION {
            let reason = "this crate knows version 1: a newer release may know it";
            return Err(Error::unsupported(path, format!("schema version {version}"), reason));
        }
        let kind = match entries.string("kind", "\"dense\" or \"ragged\"")? {
            "dense" => Kind::Dense,
            "ragged" => Kind::Ragged,
            _ => return Err(entries.wrong("kind", "\"dense\" or \"ragged\"")),
        };
        let dtype = entries.string("dtype", "NumPy's dtype.str")?.to_owned();
        if dtype.len() > MAX_DTYPE {
            return Err(entries.wrong("dtype", "NumPy's dtype.str"));
        }
        let element = entries.get("element").and_then(Value::as_str).map(str::to_owned);
        let codec = entries.codec(path)?;
        let record_limit = entries.record_limit()?;
        let item_shape = entries.dims()?;
        if row_size(&item_shape, element_size(&dtype).unwrap_or(1)).is_none() {
            return Err(entries.wrong("item_shape", SHAPE));
        }
        Ok(Schema { kind, dtype, element, item_shape, codec, record_limit, entries: entries.entries })
    }

    /// The file's content with another codec, all else as it is.
    pub(crate) fn with_codec(&self, codec: Codec) -> Result<Vec<u8>> {
        let mut entries = self.entries.clone();
        match entries.iter_mut().find(|(key, _)| key == "codec") {
            Some((_, value)) => *value = codec.name().into(),
            None => entries.push(("codec".into(), codec.name().into())),
        }
        encode(entries)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// NumPy's `dtype.str`, as it is written.
    pub(crate) fn dtype(&self) -> &str {
        &self.dtype
    }

    pub(crate) fn item_shape(&self) -> &[usize] {
        &self.item_shape
    }

    pub(crate) fn codec(&self) -> Codec {
        self.codec
    }

    pub(crate) fn record_limit(&self) -> u32 {
        self.record_limit
    }

    /// The element type and its byte order; `None` for what this crate has no type for.
    pub(crate) fn element(&self) -> Option<(DType, ByteOrder)> {
        match (self.dtype.as_str(), self.element.as_deref()) {
            ("<V2", Some(BFLOAT16)) => Some((DType::BF16, ByteOrder::Little)),
            (dtype, _) => DType::from_numpy(dtype),
        }
    }

    /// Whether the records may be bf16, but only the caller knows: NumPy saves it as `<V2`, and so does loaderx.
    pub(crate) fn may_be_bf16(&self) -> bool {
        self.dtype == "<V2" && self.element.is_none()
    }

    /// Bytes a row, where the dtype's size is known.
    pub(crate) fn row_bytes(&self) -> Option<usize> {
        elements(&self.item_shape)?.checked_mul(element_size(&self.dtype)?)
    }

    /// The keys that are not this crate's own, in the order of the file.
    pub(crate) fn metadata_keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(key, _)| key.as_str()).filter(|key| !RESERVED.contains(key))
    }

    /// What a user wrote under `key`.
    pub(crate) fn metadata<M: DeserializeOwned>(&self, path: &Path, key: &str) -> Result<Option<M>> {
        let Some((_, value)) = self.entries.iter().find(|(name, _)| name == key && !RESERVED.contains(&key)) else {
            return Ok(None);
        };
        let bytes = encoded(value)?;
        let mut decoder = rmp_serde::Deserializer::from_read_ref(&bytes).with_human_readable();
        M::deserialize(&mut decoder).map(Some).map_err(|error| {
            let found = format!("{} under the key {key:?} ({error})", clipped(&value.to_string()));
            Error::mismatch(path, "metadata", std::any::type_name::<M>(), found)
        })
    }
}

/// A schema that is to be written.
#[derive(Debug)]
pub(crate) struct NewSchema<'a> {
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) item_shape: &'a [usize],
    pub(crate) codec: Codec,
    pub(crate) record_limit: u32,
    pub(crate) metadata: &'a Metadata,
}

impl NewSchema<'_> {
    /// The file's content. An error where no record of that shape could be stored or read back.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let refuse = |reason: String| Err(Error::invalid("item shape", format!("{:?} {reason}", self.item_shape)));
        if row_size(self.item_shape, self.dtype.size()).is_none() {
            return refuse(format!("is not {SHAPE}"));
        }
        // The check above bounds the product.
        let row_bytes = self.item_shape.iter().product::<usize>() * self.dtype.size();
        if row_bytes > self.record_limit as usize {
            return refuse(format!("takes {row_bytes} bytes, over the record limit of {}", self.record_limit));
        }
        if self.kind == Kind::Ragged && row_bytes == 0 {
            return refuse("has rows of no bytes, which leave no trace of how many a record has".into());
        }
        let dims = self.item_shape.iter().map(|&dim| Value::from(dim)).collect();
        let mut entries: Vec<(String, Value)> = [
            ("format", Value::from(FORMAT)),
            ("version", Value::from(VERSION)),
            ("kind", Value::from(self.kind.name())),
            ("dtype", Value::from(self.dtype.numpy())),
            ("item_shape", Value::Array(dims)),
            ("codec", Value::from(self.codec.name())),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        if self.dtype == DType::BF16 {
            entries.push(("element".into(), BFLOAT16.into()));
        }
        if self.record_limit > RECORD_LIMIT {
            entries.push(("record_limit".into(), self.record_limit.into()));
        }
        entries.extend(self.metadata.entries.iter().cloned());
        let bytes = encode(entries)?;
        if bytes.len() as u64 > MAX_SCHEMA {
            return Err(Error::invalid("metadata", format!("the schema takes {} bytes, over 1 MiB", bytes.len())));
        }
        Ok(bytes)
    }
}

/// The user's entries of a schema that is to be created.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metadata {
    entries: Vec<(String, Value)>,
}

impl Metadata {
    /// Adds an entry.
    pub(crate) fn insert(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        let refuse = |reason: String| Error::invalid("metadata", format!("key {key:?}: {reason}"));
        if RESERVED.contains(&key) {
            return Err(refuse("it is one of the schema's own: choose another".into()));
        }
        if self.entries.iter().any(|(name, _)| name == key) {
            return Err(refuse("it is given twice".into()));
        }
        // Structs as maps with names, and dates and the like as text: what Python makes something of.
        let mut bytes = Vec::new();
        let mut encoder = rmp_serde::Serializer::new(&mut bytes).with_struct_map().with_human_readable();
        value.serialize(&mut encoder).map_err(|error| refuse(error.to_string()))?;
        let value = rmpv::decode::read_value_with_max_depth(&mut bytes.as_slice(), MAX_DEPTH - 2)
            .map_err(|error| refuse(error.to_string()))?;
        check(&value).map_err(refuse)?;
        self.entries.push((key.to_owned(), value));
        Ok(())
    }
}

/// The entries of a schema, looked up with errors that name the key.
struct Entries<'a> {
    file: &'a Path,
    entries: Vec<(String, Value)>,
}

impl Entries<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn string(&self, key: &str, expected: &str) -> Result<&str> {
        self.get(key).and_then(Value::as_str).ok_or_else(|| self.wrong(key, expected))
    }

    fn number(&self, key: &str, expected: &str) -> Result<u64> {
        self.get(key).and_then(Value::as_u64).ok_or_else(|| self.wrong(key, expected))
    }

    fn codec(&self, path: &Path) -> Result<Codec> {
        if self.get("codec").is_none() {
            return Ok(Codec::Zstd);
        }
        let name = self.string("codec", "a string")?;
        Codec::from_name(name).ok_or_else(|| {
            let codec = format!("codec {:?}", clipped(name));
            Error::unsupported(path, codec, "the codecs are raw, zstd and zstd_dict")
        })
    }

    fn record_limit(&self) -> Result<u32> {
        let expected = "a number of bytes below 4 GiB";
        match self.get("record_limit") {
            Some(limit) => {
                let limit = limit.as_u64().and_then(|limit| u32::try_from(limit).ok());
                limit.ok_or_else(|| self.wrong("record_limit", expected))
            }
            None => Ok(RECORD_LIMIT),
        }
    }

    fn dims(&self) -> Result<Vec<usize>> {
        let list = self.get("item_shape").and_then(Value::as_array);
        let dims = list.and_then(|list| list.iter().map(|dim| usize::try_from(dim.as_u64()?).ok()).collect());
        dims.ok_or_else(|| self.wrong("item_shape", SHAPE))
    }

    fn wrong(&self, key: &str, expected: &str) -> Error {
        let found = self.get(key).map_or("nothing".into(), |value| clipped(&value.to_string()));
        Error::corrupt(self.file, format!("the key {key:?} to hold {expected}"), found)
    }
}

/// Bytes an element, of any dtype that NumPy spells: the number after the letter, in units of 4 bytes for U.
fn element_size(dtype: &str) -> Option<usize> {
    let (order, rest) = dtype.split_at_checked(1)?;
    let (letter, rest) = rest.split_at_checked(1)?;
    let (digits, unit) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
    // Of dates: [ns], [25s]. Whatever else stands here is no spelling of NumPy's.
    let unit = if unit.is_empty() { Some("") } else { unit.strip_prefix('[')?.strip_suffix(']') }?;
    let number: usize = digits.parse().ok()?;
    match letter {
        _ if !"<>|=".contains(order) || digits.starts_with('+') || !unit.chars().all(char::is_alphanumeric) => None,
        "U" => number.checked_mul(4),
        "b" | "i" | "u" | "f" | "c" | "m" | "M" | "S" | "V" | "O" => Some(number),
        _ => None,
    }
}

/// Bytes a row of elements of that size, as if axes of length 0 had length 1; `None` for what is no `SHAPE`.
fn row_size(item_shape: &[usize], element: usize) -> Option<u32> {
    let dims = item_shape.iter().filter(|&&dim| dim > 0);
    let size = dims.chain([&element.max(1)]).try_fold(1u32, |size, &dim| size.checked_mul(u32::try_from(dim).ok()?));
    size.filter(|_| item_shape.len() <= MAX_RANK)
}

/// The start of a text that a file may have made long.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The entries of a map whose keys are distinct strings; else what there is instead.
fn named(value: Value) -> Result<Vec<(String, Value)>, String> {
    check(&value)?;
    let Value::Map(map) = value else {
        return Err(clipped(&value.to_string()));
    };
    let mut entries: Vec<(String, Value)> = Vec::with_capacity(map.len());
    let mut seen = HashSet::with_capacity(map.len());
    for (key, value) in map {
        let Value::String(key) = key else {
            return Err(format!("the key {}", clipped(&key.to_string())));
        };
        let key = key.into_str().ok_or("a key that is not UTF-8")?;
        if !seen.insert(key.clone()) {
            return Err(format!("the key {:?} twice", clipped(&key)));
        }
        entries.push((key, value));
    }
    Ok(entries)
}

/// Whether Python's `msgpack.loads` takes a value: text is UTF-8, and the keys of maps are text or bytes.
fn check(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) if !text.is_str() => Err("text that is not UTF-8".into()),
        Value::Array(items) => items.iter().try_for_each(check),
        Value::Map(entries) => entries.iter().try_for_each(|(key, value)| {
            if !matches!(key, Value::String(_) | Value::Binary(_)) {
                return Err(format!("a map with the key {}: the keys of maps are strings", clipped(&key.to_string())));
            }
            check(key)?;
            check(value)
        }),
        _ => Ok(()),
    }
}

fn encode(entries: Vec<(String, Value)>) -> Result<Vec<u8>> {
    let map = Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect());
    encoded(&map)
}

fn encoded(value: &Value) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).map_err(|error| Error::invalid("metadata", error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    fn path() -> &'static Path {
        Path::new("store")
    }

    fn new(dtype: DType, item_shape: &[usize], metadata: &Metadata) -> Result<Vec<u8>> {
        let (kind, codec, record_limit) = (Kind::Dense, Codec::ZstdDict, RECORD_LIMIT);
        NewSchema { kind, dtype, item_shape, codec, record_limit, metadata }.to_bytes()
    }

    /// A schema of a dense f32 store of shape [2, 3] with `changes` made to its entries.
    fn changed(changes: impl FnOnce(&mut Vec<(Value, Value)>)) -> Result<Schema> {
        let bytes = new(DType::F32, &[2, 3], &Metadata::default()).unwrap();
        let Value::Map(mut entries) = rmpv::decode::read_value(&mut bytes.as_slice()).unwrap() else { unreachable!() };
        changes(&mut entries);
        Schema::parse(path(), &encoded(&Value::Map(entries)).unwrap())
    }

    fn with(key: &str, value: impl Into<Value>) -> Result<Schema> {
        changed(|entries| {
            entries.retain(|(name, _)| name.as_str() != Some(key));
            entries.push((key.into(), value.into()));
        })
    }

    #[test]
    fn the_bytes_are_those_of_loaderx_0_9_17() {
        let expected = b"\x86\xa6format\xafloaderx-zrecord\xa7version\x01\xa4kind\xa5dense\xa5dtype\xa3|u1\
            \xaaitem_shape\x92\x1c\xcd\x01\x00\xa5codec\xa9zstd_dict";
        assert_eq!(new(DType::U8, &[28, 256], &Metadata::default()).unwrap(), expected);
    }

    #[test]
    fn an_absent_codec_means_zstd_and_bf16_is_said_by_a_key() {
        let schema = changed(|entries| entries.retain(|(key, _)| key.as_str() != Some("codec"))).unwrap();
        assert_eq!(schema.codec(), Codec::Zstd);
        let schema = Schema::parse(path(), &new(DType::BF16, &[], &Metadata::default()).unwrap()).unwrap();
        assert_eq!((schema.dtype(), schema.element()), ("<V2", Some((DType::BF16, ByteOrder::Little))));
        let schema = with("dtype", "<V2").unwrap();
        assert!(schema.may_be_bf16() && schema.element().is_none());
        assert_eq!(with("dtype", ">f4").unwrap().element(), Some((DType::F32, ByteOrder::Big)));
    }

    #[test]
    fn sizes_of_rows_are_known_for_every_dtype_that_numpy_spells() {
        for (dtype, size) in [
            ("<f4", 4),
            ("|b1", 1),
            ("<c16", 16),
            ("<M8[25s]", 8),
            ("|V12", 12),
            ("<U5", 20),
            ("|S7", 7),
            ("<f16", 16),
            ("|S0", 0),
        ] {
            assert_eq!(with("dtype", dtype).unwrap().row_bytes(), Some(6 * size), "{dtype}");
        }
        for dtype in [
            "",
            "<",
            "f",
            "float32",
            "<x4",
            "<f99999999999999999999",
            "<f",
            "<f4'",
            "<f+4",
            "<M8[n'",
            "<M8[']",
            "<i4, ",
            "<U9223372036854775807",
            "\u{e9}4",
            "<\u{e9}",
        ] {
            assert_eq!(with("dtype", dtype).unwrap().row_bytes(), None, "{dtype}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dims = |dims: &[u64]| Value::Array(dims.iter().map(|&dim| dim.into()).collect());
        for (key, value) in [
            ("format", Value::from("other")),
            ("version", Value::from("1")),
            ("kind", Value::from("sparse")),
            ("kind", Value::Nil),
            ("dtype", Value::from(4)),
            ("dtype", Value::from("f".repeat(65))),
            ("codec", Value::from(7)),
            ("record_limit", Value::from(1u64 << 32)),
            ("record_limit", Value::from(-1)),
            ("item_shape", Value::from(3)),
            ("item_shape", Value::Array(vec![(-1).into()])),
            ("item_shape", Value::Array(vec![1.5.into()])),
            ("item_shape", dims(&[1 << 30])),
            ("item_shape", dims(&[u64::MAX, u64::MAX])),
            ("item_shape", dims(&[0, u64::MAX])),
            ("item_shape", dims(&[1; 65])),
        ] {
            let error = with(key, value.clone()).unwrap_err();
            assert!(matches!(error, Error::Corrupt(_)), "{key} {value}: {error}");
            let text = error.to_string();
            assert!(text.contains(&format!("{key:?}")) && text.contains("schema.msgpack"), "{text}");
        }
        assert!(matches!(with("version", 2), Err(Error::Unsupported { .. })));
        assert!(matches!(with("codec", "lz4"), Err(Error::Unsupported { .. })));
        let twice = changed(|entries| entries.push(("kind".into(), "dense".into()))).unwrap_err();
        assert!(twice.to_string().contains("\"kind\" twice"), "{twice}");
        for key in ["format", "version", "kind", "dtype", "item_shape"] {
            let error = changed(|entries| entries.retain(|(name, _)| name.as_str() != Some(key))).unwrap_err();
            assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        let good = new(DType::F32, &[2], &Metadata::default()).unwrap();
        let shapes = [&[1; 65][..], &[1 << 30], &[0, 1 << 33], &[usize::MAX; 2]];
        assert!(shapes.iter().all(|shape| new(DType::F32, shape, &Metadata::default()).is_err()));
        let deep = [vec![0x91; 100_000], vec![0xc0]].concat();
        let cases = [
            vec![],
            b"\xc0".to_vec(),
            b"\x81\x01\x02".to_vec(),
            b"\x81\xa1\xff\x02".to_vec(),
            [&good[..], b"\xc0"].concat(),
            [&good[..], &[0xc0; MAX_SCHEMA as usize]].concat(),
            deep,
            b"\xdf\xff\xff\xff\xff".to_vec(),
            b"\xdd\xff\xff\xff\xff".to_vec(),
            b"\xc6\xff\xff\xff\xff".to_vec(),
        ];
        for bytes in cases {
            assert!(matches!(Schema::parse(path(), &bytes), Err(Error::Corrupt(_))));
        }
        for end in 0..good.len() {
            assert!(Schema::parse(path(), &good[..end]).is_err(), "cut to {end}");
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Colour {
        Grey,
        Mixed { share: f64 },
        Named(String),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Notes {
        classes: Vec<String>,
        mean: Option<f32>,
        colours: Vec<Colour>,
        seen: BTreeMap<String, u64>,
        address: std::net::IpAddr,
    }

    #[test]
    fn metadata_returns_as_it_was_given() {
        let notes = Notes {
            classes: vec!["cat".into(), "Hündin".into()],
            mean: Some(0.5),
            colours: vec![Colour::Grey, Colour::Mixed { share: 0.25 }, Colour::Named("red".into())],
            seen: [("a".into(), u64::MAX)].into(),
            address: [127, 0, 0, 1].into(),
        };
        let mut metadata = Metadata::default();
        metadata.insert("notes", &notes).unwrap();
        metadata.insert("version_of_data", &3).unwrap();
        let schema = Schema::parse(path(), &new(DType::F32, &[2], &metadata).unwrap()).unwrap();
        assert_eq!(schema.metadata_keys().collect::<Vec<_>>(), ["notes", "version_of_data"]);
        assert_eq!(schema.metadata::<Notes>(path(), "notes").unwrap(), Some(notes));
        assert_eq!(schema.metadata::<u8>(path(), "version_of_data").unwrap(), Some(3));
        assert_eq!(schema.metadata::<u8>(path(), "absent").unwrap(), None);
        assert_eq!(schema.metadata::<String>(path(), "codec").unwrap(), None, "the schema's own keys are no metadata");
        assert!(matches!(schema.metadata::<String>(path(), "version_of_data"), Err(Error::Mismatch { .. })));
    }

    #[test]
    fn metadata_that_python_could_not_read_is_refused() {
        let mut metadata = Metadata::default();
        for key in RESERVED {
            assert!(metadata.insert(key, &1).is_err(), "{key}");
        }
        assert!(metadata.insert("numbers", &BTreeMap::from([(1, 2)])).is_err());
        metadata.insert("once", &1).unwrap();
        assert!(metadata.insert("once", &1).is_err());
        metadata.insert("large", &"x".repeat(MAX_SCHEMA as usize)).unwrap();
        assert!(matches!(new(DType::F32, &[2], &metadata), Err(Error::Invalid { .. })));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,40}".prop_map(|text: String| Value::from(text)),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Binary),
            (any::<i8>(), proptest::collection::vec(any::<u8>(), 0..20)).prop_map(|(tag, data)| Value::Ext(tag, data)),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                proptest::collection::vec((".{0,9}".prop_map(Value::from), inner), 0..5).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn unknown_keys_keep_their_place_and_value(extra in proptest::collection::btree_map("x.{0,9}", value(), 0..5)) {
            let bytes = new(DType::I64, &[4], &Metadata::default()).unwrap();
            let Value::Map(mut entries) = rmpv::decode::read_value(&mut bytes.as_slice()).unwrap() else { unreachable!() };
            for (i, (key, value)) in extra.into_iter().enumerate() {
                entries.insert(i * 2 % entries.len(), (key.into(), value));
            }
            let bytes = encoded(&Value::Map(entries)).unwrap();
            let schema = Schema::parse(path(), &bytes).unwrap();
            prop_assert_eq!(encode(schema.entries).unwrap(), bytes);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..99, flip in 1u8..) {
            let _ = Schema::parse(path(), &bytes);
            let mut flipped = new(DType::I64, &[4], &Metadata::default()).unwrap();
            let at = at % flipped.len();
            flipped[at] ^= flip;
            let _ = Schema::parse(path(), &flipped);
        }
    }
}
