//! What a publisher says of a store: `published.json`, and the end of `meta.zr` that names it.
//!
//! Objects are replaced one by one, so that a reader may come in the middle. The table is removed first and put last, and 32
//! bytes behind its entries (which mean nothing to who does not know them) say which `published.json` it goes with:
//!
//! ```text
//! 0    magic "ZRPUBLSH"
//! 8    XXH3-128 of published.json
//! 24   zero
//! ```

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::bucket::{Bucket, Version};

pub(crate) const PUBLISHED: &str = "published.json";
/// Is there while a store is published: who does, and how far it is.
pub(crate) const PUBLISHING: &str = "publishing.json";
pub(crate) const SEAL: usize = 32;
const MAGIC: [u8; 8] = *b"ZRPUBLSH";
/// A larger one is refused: that of 4096 chunks has about 1 MiB.
pub(crate) const MAX_PUBLISHED: u64 = 16 << 20;

/// The objects of a published store, but for `meta.zr` and `published.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Published {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// Where it was published, as XXH3-128 of the URL and the server.
    pub(crate) place: String,
    /// XXH3-128 of the header and the entries.
    pub(crate) table: String,
    pub(crate) objects: Vec<PublishedObject>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedObject {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// XXH3-128 of its bytes.
    pub(crate) hash: String,
    /// The tag that the server gave it.
    pub(crate) tag: Option<String>,
}

impl Published {
    pub(crate) const FORMAT: &str = "loaderx-published";

    pub(crate) fn new(bucket: &Bucket, table: &[u8], objects: Vec<PublishedObject>) -> Published {
        Published { format: Self::FORMAT.into(), version: 1, place: bucket.place(), table: hash(table), objects }
    }

    /// The object. The same store gives the same bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut sorted = self.clone();
        sorted.objects.sort_by(|a, b| a.name.cmp(&b.name));
        // Strings and numbers can be written.
        serde_json::to_vec_pretty(&sorted).unwrap_or_default()
    }

    /// What is wrong with it at a place, beside that table and these versions of its objects, in that order; `None` where
    /// nothing is.
    ///
    /// Where it was published, each object has its tag. A copy elsewhere may have others: of all objects, where tags are no
    /// hashes, or of those that were put in parts, whose tags have a dash.
    pub(super) fn fault(&self, place: &str, table: &[u8], found: &[Option<Version>]) -> Option<String> {
        if self.format != Self::FORMAT || self.version != 1 {
            return Some(format!("{PUBLISHED} is of another kind or version: a newer version of this crate reads it"));
        }
        if self.table != hash(table) {
            return Some("the record table is not the one that was published with these objects".into());
        }
        let pairs = || self.objects.iter().zip(found);
        let elsewhere = self.place != place;
        let in_parts = |object: &PublishedObject| object.tag.as_ref().is_some_and(|tag| tag.contains('-'));
        let differs = |object: &PublishedObject, found: &Version| object.tag.is_some() && object.tag != found.tag;
        let all_differ = pairs()
            .filter(|(object, _)| !in_parts(object))
            .all(|(object, found)| found.as_ref().is_some_and(|found| differs(object, found)));
        let may_differ = |object: &PublishedObject| elsewhere && (all_differ || in_parts(object));
        pairs().find_map(|(object, found)| match found {
            None => Some(format!("{} is not there", object.name)),
            Some(found) if found.size != object.size => {
                Some(format!("{} has {} bytes, where {} were published", object.name, found.size, object.size))
            }
            Some(found) if differs(object, found) && !may_differ(object) => {
                Some(format!("{} is another one than was published", object.name))
            }
            Some(_) => None,
        })
    }
}

/// XXH3-128, as it stands in the manifest.
pub(super) fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// What stands behind a table that goes with a manifest of these bytes.
pub(crate) fn seal(published: &[u8]) -> [u8; SEAL] {
    let mut seal = [0; SEAL];
    seal[..8].copy_from_slice(&MAGIC);
    seal[8..24].copy_from_slice(&xxh3_128(published).to_le_bytes());
    seal
}

/// Whether there is a seal, which [`seal`] of the manifest must then equal.
pub(super) fn is_seal(bytes: &[u8]) -> bool {
    bytes.len() == SEAL && bytes.starts_with(&MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_which_object_was_published_and_a_copy_elsewhere_may_have_others() {
        let tags = ["\"a1\"", "\"b2\"", "\"c3-7\""];
        let object = |tag: &&str| PublishedObject {
            name: format!("{}.zr", &tag[1..2]),
            size: 9,
            hash: hash(b"bytes"),
            tag: Some((*tag).to_owned()),
        };
        let published = Published {
            format: Published::FORMAT.into(),
            version: 1,
            place: "here".into(),
            table: hash(b"table"),
            objects: tags.iter().map(object).collect(),
        };
        let fault = |place: &str, size: u64, tags: [&str; 3]| {
            let found = tags.map(|tag| Some(Version { size, tag: Some(tag.into()), modified: 0 }));
            published.fault(place, b"table", &found)
        };
        let [a, b, c] = tags;
        for (tags, here, elsewhere) in [
            ([a, b, c], true, true),
            // Put in parts, and copied whole.
            ([a, b, "\"d4\""], false, true),
            // Where tags are no hashes, all are others.
            (["\"1\"", "\"2\"", "\"3\""], false, true),
            (["\"1\"", b, c], false, false),
            ([a, "\"2\"", "\"3\""], false, false),
        ] {
            assert_eq!(fault("here", 9, tags).is_none(), here, "{tags:?}");
            assert_eq!(fault("elsewhere", 9, tags).is_none(), elsewhere, "{tags:?}");
            assert!(fault("elsewhere", 8, tags).is_some());
        }
        assert!(published.fault("here", b"another", &[]).is_some());
        assert!(published.fault("here", b"table", &[None, None, None]).unwrap().contains("a.zr is not there"));
    }
}
