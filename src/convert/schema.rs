//! The content of schema.msgpack, as far as converting needs it.

use std::path::Path;

use rmpv::Value;

use crate::Codec;
use crate::data::DType;
use crate::error::{Error, Result};

/// What a store says of its records.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) kind: String,
    pub(super) dtype: String,
    pub(super) item_shape: Vec<u64>,
}

/// The content of schema.msgpack of a new store.
pub(super) fn schema_bytes(kind: &str, dtype: DType, item_shape: &[u64], codec: Codec) -> Vec<u8> {
    let shape = item_shape.iter().map(|dimension| Value::from(*dimension)).collect();
    let mut map: Vec<(Value, Value)> = vec![
        ("format".into(), "loaderx-zrecord".into()),
        ("version".into(), 1.into()),
        ("kind".into(), kind.into()),
        ("dtype".into(), dtype.numpy().into()),
        ("item_shape".into(), Value::Array(shape)),
        ("codec".into(), codec.name().into()),
    ];
    if dtype == DType::BF16 {
        map.push(("element".into(), "bfloat16".into()));
    }
    let mut bytes = Vec::new();
    // Writing to a vector does not fail.
    let _ = rmpv::encode::write_value(&mut bytes, &Value::Map(map));
    bytes
}

/// Reads the content of schema.msgpack.
pub(super) fn read_schema(path: &Path, mut bytes: &[u8]) -> Result<Schema> {
    let malformed =
        || Error::corrupt(path, "a map with kind, dtype and item_shape in schema.msgpack", "something else");
    let value = rmpv::decode::read_value(&mut bytes).map_err(|_| malformed())?;
    let map = value.as_map().ok_or_else(malformed)?;
    let get = |key: &str| map.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value);
    let text = |key| get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(malformed);
    let shape = get("item_shape").and_then(Value::as_array).ok_or_else(malformed)?;
    let item_shape: Option<Vec<u64>> = shape.iter().map(Value::as_u64).collect();
    Ok(Schema { kind: text("kind")?, dtype: text("dtype")?, item_shape: item_shape.ok_or_else(malformed)? })
}
