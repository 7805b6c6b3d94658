//! Typed datasets as streams.

use xxhash_rust::xxh3::Xxh3;

use super::stream::{Stream, StreamPart};
use crate::data::{DenseBatch, DenseDataset, Element, RaggedBatch, RaggedDataset, Shape};
use crate::error::Result;

impl<T: Element, S: Shape> Stream for DenseDataset<T, S> {
    type Batch = DenseBatch<T, S>;

    fn len(&self) -> u64 {
        DenseDataset::len(self)
    }

    fn gather(&self, indices: &[u64]) -> Result<DenseBatch<T, S>> {
        DenseDataset::gather(self, indices)
    }

    fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
        Ok(vec![folded(&DenseDataset::fingerprint(self, len)?)])
    }

    fn batch_bytes(batch: &DenseBatch<T, S>) -> u64 {
        size_of_val(batch.values()) as u64
    }

    fn reads_ahead(&self) -> bool {
        self.is_far()
    }

    fn prefetch(&self, indices: &[u64]) -> bool {
        DenseDataset::prefetch(self, indices)
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        Ok(vec![StreamPart { name: self.path().display().to_string(), len: self.len() }])
    }
}

impl<T: Element, S: Shape> Stream for RaggedDataset<T, S> {
    type Batch = RaggedBatch<T, S>;

    fn len(&self) -> u64 {
        RaggedDataset::len(self)
    }

    fn gather(&self, indices: &[u64]) -> Result<RaggedBatch<T, S>> {
        RaggedDataset::gather(self, indices)
    }

    fn fingerprint(&self, len: u64) -> Result<Vec<u64>> {
        Ok(vec![folded(&RaggedDataset::fingerprint(self, len)?)])
    }

    /// Values and offsets.
    fn batch_bytes(batch: &RaggedBatch<T, S>) -> u64 {
        (size_of_val(batch.values()) + size_of_val(batch.offsets())) as u64
    }

    fn reads_ahead(&self) -> bool {
        self.is_far()
    }

    fn prefetch(&self, indices: &[u64]) -> bool {
        RaggedDataset::prefetch(self, indices)
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        Ok(vec![StreamPart { name: self.path().display().to_string(), len: self.len() }])
    }
}

/// The one number that stands for a dataset's in a saved state.
fn folded(identity: &[u64]) -> u64 {
    let mut hash = Xxh3::new();
    identity.iter().for_each(|number| hash.update(&number.to_le_bytes()));
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::super::{DataLoader, NamedStreams};
    use super::*;
    use crate::engine::sampler::Mode;
    use crate::error::Error;

    /// Dense and ragged datasets of `len` records: record `i` is [i, i], and i times the number i.
    fn datasets(root: &std::path::Path, len: u16) -> (DenseDataset<u16, [usize; 1]>, RaggedDataset<u16>) {
        let dense = DenseDataset::open_or_create(root.join("dense"), [2]).unwrap();
        let ragged = RaggedDataset::open_or_create(root.join("ragged"), ()).unwrap();
        let held = dense.len() as u16;
        dense.append(&(held..len).flat_map(|i| [i, i]).collect::<Vec<_>>()).unwrap();
        ragged.append((held..len).map(|i| vec![i; i as usize])).unwrap();
        (dense, ragged)
    }

    #[test]
    fn dense_and_ragged_records_line_up() {
        let root = tempfile::tempdir().unwrap();
        let streams = datasets(root.path(), 50);
        let mut loader = DataLoader::builder(streams).batch_size(8).workers(2).build().unwrap();
        for _ in 0..12 {
            let indices: Vec<_> =
                loader.explain(loader.step()).records.iter().map(|record| record.index as u16).collect();
            let (dense, ragged) = loader.next().unwrap().unwrap();
            assert_eq!(dense.values(), indices.iter().flat_map(|&i| [i, i]).collect::<Vec<_>>());
            assert!(ragged.iter().zip(&indices).all(|(record, &i)| record == vec![i; i as usize]));
        }
        let (dense, ragged) = loader.batch(0).unwrap();
        let bytes = <(DenseDataset<u16, [usize; 1]>, RaggedDataset<u16>)>::batch_bytes(&(dense, ragged.clone()));
        assert_eq!(bytes, 8 * 4 + 2 * ragged.values().len() as u64 + 9 * 8);
    }

    #[test]
    fn a_state_survives_an_append_and_names_the_dataset_that_is_another() {
        let root = tempfile::tempdir().unwrap();
        let named = |(dense, ragged)| NamedStreams::new().with("x", dense).with("y", ragged);
        let builder =
            |len| DataLoader::builder(named(datasets(root.path(), len))).batch_size(8).mode(Mode::Cyclic).workers(1);
        let mut loader = builder(50).build().unwrap();
        loader.next().unwrap().unwrap();
        let (state, records) = (loader.state(), loader.explain(loader.step()));
        drop(loader);
        let loader = builder(60).resume(state.clone()).build().unwrap();
        assert_eq!((loader.state(), loader.explain(loader.step())), (state.clone(), records));
        drop(loader);

        std::fs::remove_dir_all(root.path().join("ragged")).unwrap();
        let ragged = RaggedDataset::<u16>::create(root.path().join("ragged"), ()).unwrap();
        ragged.append((0..60).map(|i| [i])).unwrap();
        drop(ragged);
        let error = builder(60).resume(state).build().unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error}");
        assert!(error.to_string().contains("y (") && error.to_string().contains("ragged"), "{error}");
    }
}
