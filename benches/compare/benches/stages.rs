//! What a batch is made of, stage by stage: `cargo bench --manifest-path benches/compare/Cargo.toml`.

use std::error::Error;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use loaderx::{Codec, DataLoader, Mode, Records, Sampler, Store, StoreOptions};

const RECORDS: u64 = 60_000;
const RECORD: usize = 784;
const BATCH: u64 = 256;

/// Records that compress about as images do.
fn bytes(records: usize) -> Vec<u8> {
    (0..records * RECORD).map(|i| if i % 28 < 18 { 0 } else { (i * 2_654_435_761 >> 13) as u8 }).collect()
}

fn offsets(records: usize) -> Vec<u64> {
    (0..=records).map(|i| (i * RECORD) as u64).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let folder = tempfile::tempdir()?;
    let sampler = Sampler::new(Mode::Cyclic, RECORDS, BATCH, 42)?;

    let mut group = criterion.benchmark_group("sampler, 256 indices");
    for mode in [Mode::Sequential, Mode::Iid, Mode::Cyclic] {
        let (sampler, mut step, mut out) = (Sampler::new(mode, RECORDS, BATCH, 42)?, 0, Vec::new());
        group.bench_function(format!("{mode:?}"), |bencher| {
            bencher.iter(|| {
                step += 1;
                sampler.batch_into(step, 0..BATCH, &mut out);
                black_box(out[0])
            });
        });
    }
    group.finish();

    for codec in [Codec::Raw, Codec::Zstd] {
        let path = folder.path().join(codec.name());
        let store = Store::create(&path, codec)?;
        let all = bytes(RECORDS as usize);
        store.append(&all, &offsets(RECORDS as usize))?;
        store.close()?;
        let store = Store::open(&path)?;

        let mut group = criterion.benchmark_group(format!("{}, 256 records of 784 B", codec.name()));
        group.throughput(Throughput::Bytes(BATCH * RECORD as u64));
        let mut step = 0;
        let mut indices = || {
            step += 1;
            sampler.batch(step)
        };
        group.bench_function("lengths: table alone", |bencher| {
            bencher.iter_batched(&mut indices, |indices| store.lengths(&indices), BatchSize::SmallInput);
        });
        let mut records = Records::default();
        group.bench_function("gather into used memory", |bencher| {
            bencher.iter_batched(
                &mut indices,
                |indices| store.gather_into(&indices, &mut records),
                BatchSize::SmallInput,
            );
        });
        group.bench_function("gather", |bencher| {
            bencher.iter_batched(&mut indices, |indices| store.gather(&indices), BatchSize::SmallInput);
        });
        group.bench_function("get, one after another", |bencher| {
            bencher.iter_batched(
                &mut indices,
                |indices| indices.iter().try_for_each(|&index| store.get(index).map(|record| drop(black_box(record)))),
                BatchSize::SmallInput,
            );
        });
        let labels = loaderx::DenseDataset::<u8, [usize; 1]>::options().codec(codec);
        let rows = labels.create(folder.path().join(format!("rows-{}", codec.name())), [RECORD])?;
        rows.append(&all)?;
        let mut loader = DataLoader::builder(rows).batch_size(BATCH).build()?;
        group.bench_function("loader", |bencher| bencher.iter(|| loader.next()));

        let appended = bytes(BATCH as usize);
        let store = StoreOptions::new().codec(codec).create(folder.path().join(format!("append-{}", codec.name())))?;
        let ends = offsets(BATCH as usize);
        group.sample_size(20).bench_function("append, without a sync", |bencher| {
            bencher.iter(|| store.append(&appended, &ends));
        });
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}
