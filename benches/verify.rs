//! What verifying raw records costs: microseconds a gather of 256 records into memory that is used again, warm.
//!
//! ```text
//! cargo bench --bench verify
//! ```

use std::time::Instant;

use loaderx::{Codec, DenseDataset, Mode, Result, Sampler, Verify};

const BATCHES: u64 = 300;

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("{:>12} {:>10} {:>10}", "record bytes", "Off, us", "Always, us");
    for (length, records) in [(12_288, 10_000), (1536, 50_000), (784, 60_000), (1, 1_000_000)] {
        let path = dir.path().join(length.to_string());
        let dataset = DenseDataset::<u8, [usize; 1]>::options().codec(Codec::Raw).create(&path, [length])?;
        let values: Vec<u8> = (0..length as u64 * records).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 20) as u8).collect();
        values.chunks((8 << 20) / length * length).try_for_each(|some| dataset.append(some).map(drop))?;
        dataset.close()?;
        let sampler = Sampler::new(Mode::Cyclic, records, 256, 1)?;
        let measure = |verify| -> Result<f64> {
            let dataset = DenseDataset::<u8, [usize; 1]>::options().verify(verify).open(&path)?;
            let (mut batch, mut least) = (dataset.gather(&[])?, f64::MAX);
            // The first round maps the pages; the least of the others counts.
            for round in 0..7 {
                let begin = Instant::now();
                for step in round * BATCHES..(round + 1) * BATCHES {
                    dataset.gather_into(&sampler.batch(step), &mut batch)?;
                }
                least = least.min(begin.elapsed().as_secs_f64() / BATCHES as f64 * 1e6);
            }
            Ok(least)
        };
        // Once for nothing: the allocator's first pages.
        measure(Verify::Off)?;
        println!("{length:>12} {:>10.0} {:>10.0}", measure(Verify::Off)?, measure(Verify::Always)?);
    }
    Ok(())
}
