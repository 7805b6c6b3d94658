//! Iterators of records into stores.

use std::path::Path;

use super::import::{Import, Imported};
use super::place::Partial;
use super::write::{Done, Fill, push};
use crate::data::{ByteOrder, Element, Kind, MAX_SAMPLE_BYTES, MAX_SAMPLES, Shape, to_stored};
use crate::error::{Error, Result};
use crate::{Codec, Records};

impl Import<'_> {
    /// Records to train the dictionary on, where an iterator is imported with the dictionary codec: of the same elements
    /// as those that will come, and like them. They are not stored; those after the first 8192, or after 128 MiB, are
    /// not looked at.
    pub fn samples<T: Element>(mut self, records: impl IntoIterator<Item = impl AsRef<[T]>>) -> Self {
        let mut samples = Records { bytes: Vec::new(), offsets: vec![0] };
        for record in records.into_iter().take(MAX_SAMPLES) {
            let record = to_stored(record.as_ref(), ByteOrder::Little);
            if samples.bytes.len() + record.len() > MAX_SAMPLE_BYTES {
                break;
            }
            push(&mut samples, &record);
        }
        self.samples = Some(samples);
        self
    }

    /// Imports records of bytes into the ragged store `destination`: a record is a number of rows of one u8 each.
    ///
    /// The dictionary codec is refused unless [`samples`](Import::samples) are given: a dictionary is trained before the
    /// first record is stored, and an iterator cannot be looked at twice.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dst = dir.path().join("words");
    /// use loaderx::Import;
    ///
    /// let imported = Import::new().records(["one", "", "three"], &dst)?;
    /// assert_eq!((imported.rows, imported.bytes), (3, 8));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a record that is over the limit or of another shape; else as [`paths`](Import::paths).
    pub fn records(
        self,
        records: impl IntoIterator<Item = impl AsRef<[u8]>>,
        destination: impl AsRef<Path>,
    ) -> Result<Imported> {
        self.ragged_records::<u8>((), records, destination)
    }

    /// Imports records of any number of rows of `item_shape` into the ragged store `destination`. The elements of a
    /// record lie in a slice or vector, row after row; `()` is the shape of rows of one element.
    ///
    /// A record that is no whole number of rows is an error. The dictionary codec needs
    /// [`samples`](Import::samples), as with [`records`](Import::records).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dst = dir.path().join("tokens");
    /// use loaderx::{Import, RaggedDataset};
    ///
    /// let sentences = [vec![17, 4, 8], vec![], vec![99]];
    /// Import::new().metadata("vocabulary", &"bpe").ragged_records::<i32>((), sentences, &dst)?;
    ///
    /// let tokens = RaggedDataset::<i32>::open(&dst)?;
    /// assert_eq!(tokens.gather(&[2, 0])?.values(), [99, 17, 4, 8]);
    /// assert_eq!(tokens.metadata::<String>("vocabulary")?.as_deref(), Some("bpe"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a record that is over the limit or of another shape; else as [`paths`](Import::paths).
    pub fn ragged_records<T: Element>(
        self,
        item_shape: impl Shape,
        records: impl IntoIterator<Item = impl AsRef<[T]>>,
        destination: impl AsRef<Path>,
    ) -> Result<Imported> {
        self.typed_records(Kind::Ragged, item_shape.dims(), records, destination.as_ref())
    }

    /// Imports records of one `item_shape` into the dense store `destination`. The elements of a record lie in a slice
    /// or vector, in C order.
    ///
    /// A record of another number of elements is an error. The dictionary codec needs
    /// [`samples`](Import::samples), as with [`records`](Import::records).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let dst = dir.path().join("points");
    /// use loaderx::{DenseDataset, Import};
    ///
    /// let points = (0..100).map(|i| [i as f32, 0.5]);
    /// Import::new().dense_records::<f32>([2], points, &dst)?;
    ///
    /// let points = DenseDataset::<f32, [usize; 1]>::open(&dst)?;
    /// assert_eq!(points.gather(&[7])?.values(), [7.0, 0.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a record that is over the limit or of another shape; else as [`paths`](Import::paths).
    pub fn dense_records<T: Element>(
        self,
        item_shape: impl Shape,
        records: impl IntoIterator<Item = impl AsRef<[T]>>,
        destination: impl AsRef<Path>,
    ) -> Result<Imported> {
        self.typed_records(Kind::Dense, item_shape.dims(), records, destination.as_ref())
    }

    fn typed_records<T: Element>(
        mut self,
        kind: Kind,
        item_shape: &[usize],
        records: impl IntoIterator<Item = impl AsRef<[T]>>,
        destination: &Path,
    ) -> Result<Imported> {
        if self.resume {
            return Err(Error::invalid("resume", "an iterator cannot be read again: import without resuming"));
        }
        let settings = &self.settings;
        let with_dict = settings.codec == Codec::ZstdDict;
        if with_dict && self.samples.is_none() && settings.dictionary.is_none() {
            let reason = "a dictionary is trained before records are stored, and an iterator cannot be looked at twice: \
                          give samples, or choose another codec";
            return Err(Error::dictionary(destination, reason));
        }
        // The schema's check bounds the product.
        let schema = settings.schema(kind, T::DTYPE, item_shape)?;
        let fits = Fits { kind, item_shape, item_len: item_shape.iter().product(), limit: settings.record_limit };

        let records = records.into_iter();
        let total = Some(records.size_hint()).and_then(|(low, high)| high.filter(|high| *high == low));
        let mut partial = Partial::begin(&settings.disk, destination)?;
        let store = settings.create(&partial.below(&[""; 0])?, &schema)?;
        if with_dict {
            settings.train(&store, destination, || Ok(self.samples.take().unwrap_or_default()))?;
        }
        let mut done = Done::new(&mut self.progress, self.stop, total.map(|total| total as u64), None);
        let mut fill = Fill::new(settings, &store, 0, &mut done);
        for (record, index) in records.zip(0u64..) {
            let record = record.as_ref();
            fits.check(index, record)?;
            fill.record(&to_stored(record, ByteOrder::Little))?;
        }
        fill.finish()?;
        store.close()?;
        done.finish(partial, vec![destination.to_path_buf()])
    }
}

/// What a record must be.
struct Fits<'a> {
    kind: Kind,
    item_shape: &'a [usize],
    /// Elements a row.
    item_len: usize,
    /// Bytes a record.
    limit: u32,
}

impl Fits<'_> {
    fn check<T>(&self, index: u64, record: &[T]) -> Result<()> {
        let (values, shape) = (record.len(), self.item_shape);
        let bytes = size_of_val(record);
        let reason = match self.kind {
            Kind::Dense if values != self.item_len => {
                format!("record {index} has {values} values, one of shape {shape:?} has {}", self.item_len)
            }
            Kind::Ragged if !values.is_multiple_of(self.item_len) => {
                format!("{values} values of record {index} are no whole number of rows of shape {shape:?}")
            }
            _ if bytes > self.limit as usize => {
                format!("record {index} has {bytes} bytes, the record limit is {}: raise it", self.limit)
            }
            _ => return Ok(()),
        };
        Err(Error::invalid("records", reason))
    }
}
