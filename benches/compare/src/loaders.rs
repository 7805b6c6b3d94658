//! The loaders of other Rust crates, each used as its documentation does, over the rows of the array in memory.

use dataloader_rs::{Collator, Dataset, RandomSampler};

use crate::{Data, Options, Result, best, print};

/// How many threads the loaders that take a number are measured with.
const WORKERS: [usize; 3] = [0, 1, 4];

fn rows(data: &Data) -> Result<Vec<Vec<u8>>> {
    Ok(std::fs::read(&data.path)?[data.begin..].chunks_exact(data.row).map(<[u8]>::to_vec).collect())
}

fn report<T>(peer: &str, data: &Data, next: impl FnMut() -> Result<T>) -> Result<()> {
    print(peer, "loader", &data.name, "raw", 1e6 / best(next)?, "batches/s");
    Ok(())
}

/// Puts items into one buffer.
#[derive(Clone)]
struct Stack;

impl Collator<Vec<u8>> for Stack {
    type Batch = Vec<u8>;

    fn collate(&self, items: Vec<Vec<u8>>) -> dataloader_rs::error::Result<Vec<u8>> {
        Ok(items.concat())
    }
}

#[cfg(feature = "burn")]
pub mod burn {
    use std::sync::Arc;

    use ::burn::data::dataloader::batcher::Batcher;
    use ::burn::data::dataloader::{DataLoader, DataLoaderBuilder};
    use ::burn::data::dataset::InMemDataset;
    use ::burn::tensor::{Device, TensorData};

    use super::*;

    impl Batcher<Vec<u8>, TensorData> for Stack {
        fn batch(&self, items: Vec<Vec<u8>>, _device: &Device) -> TensorData {
            TensorData::new(items.concat(), [items.len(), items.first().map_or(0, Vec::len)])
        }
    }

    /// Burn's `DataLoaderBuilder`, epoch after epoch.
    pub fn measure(data: &Data, options: &Options) -> Result<()> {
        for workers in WORKERS {
            let loader: Arc<dyn DataLoader<TensorData>> = DataLoaderBuilder::new(Stack)
                .batch_size(options.batch)
                .shuffle(42)
                .num_workers(workers)
                .build(InMemDataset::new(rows(data)?));
            let mut epoch = loader.iter();
            report(&format!("burn-{workers}"), data, || {
                loop {
                    match epoch.next() {
                        Some(batch) => return Ok(batch?),
                        None => epoch = loader.iter(),
                    }
                }
            })?;
        }
        Ok(())
    }
}

#[cfg(feature = "candle")]
pub mod candle {
    use candle_core::Tensor;

    use super::*;
    use crate::Turn;

    /// candle-datasets' `Batcher`, over tensors of the rows in a shuffled order, which it has not itself.
    pub fn measure(data: &Data, options: &Options) -> Result<()> {
        let device = candle_core::Device::Cpu;
        let rows = rows(data)?;
        let rows = rows.into_iter().map(|row| Tensor::from_vec(row, data.row, &device));
        let rows = rows.collect::<candle_core::Result<Vec<_>>>()?;
        let mut turn = Turn::new(data.rows, options.batch);
        let order = std::iter::from_fn(|| Some(turn.next().to_vec())).flatten();
        let endless = order.map(|index| rows[index as usize].clone());
        let mut batches = candle_datasets::Batcher::new1(endless).batch_size(options.batch);
        report("candle-datasets", data, || Ok(batches.next().ok_or("it ended")??))
    }
}

struct Rows(Vec<Vec<u8>>);

impl Dataset for Rows {
    type Item = Vec<u8>;

    fn get(&self, index: usize) -> dataloader_rs::error::Result<Vec<u8>> {
        Ok(self.0[index].clone())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// dataloader-rs, epoch after epoch, its items put into one buffer as the others' are.
pub fn dataloader_rs(data: &Data, options: &Options) -> Result<()> {
    for workers in WORKERS {
        let mut loader = dataloader_rs::DataLoader::builder(Rows(rows(data)?))
            .batch_size(options.batch)
            .sampler(RandomSampler::new(42))
            .collator(Stack)
            .num_workers(workers)
            .build();
        let mut epoch = loader.iter();
        report(&format!("dataloader-rs-{workers}"), data, || {
            loop {
                match epoch.next() {
                    Some(batch) => return Ok(batch?),
                    None => epoch = loader.iter(),
                }
            }
        })?;
    }
    Ok(())
}
