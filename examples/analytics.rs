//! ndarray over a store, on all cores and in bounded memory: mean, standard deviation and histogram of all pixels, and the
//! mean image of each class, written as PNG. Sums are whole numbers, so the figures are the same on every run.
//!
//! ```text
//! cargo run --release --example analytics                        the digits that the example mnist carries
//!   … -- --data DIR                       the train.npz and test.npz of DIR: images (n, h, w) and labels (n), u8
//!   … -- --out DIR                        where the mean images go: by default a folder of the system's for such
//!   … -- --json                           the figures as JSON
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use loaderx::{DenseDataset, Import};
use ndarray::{Array1, Array2, Array3, Axis};
use rayon::prelude::*;
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How many records a thread holds at a time.
const BLOCK: u64 = 1024;
/// Of the 256 values of a pixel.
const BINS: usize = 16;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let stores = tempfile::tempdir()?;
    let mut all = serde_json::Map::new();
    for part in ["train", "test"] {
        let stores = stores.path().join(part);
        Import::new().npz(options.data.join(part).with_extension("npz"), &stores)?;
        let images = DenseDataset::<u8, [usize; 2]>::open(stores.join("images"))?;
        let labels = DenseDataset::<u8, ()>::open(stores.join("labels"))?;
        let figures = Figures::of(&images, &labels)?;
        figures.write_mean_images(&options.out.join(part))?;
        if !options.json {
            println!("{part}: {} images of {:?}", images.len(), images.item_shape());
            println!("  mean {:.6}, standard deviation {:.6}", figures.mean(), figures.deviation());
            println!("  histogram {}", figures.histogram);
            println!("  images a class {}", figures.counts);
        }
        all.insert(format!("mnist/{part}_images"), figures.json());
    }
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&all)?),
        false => println!("mean images: {}", options.out.display()),
    }
    Ok(())
}

/// What is summed over records; the sums of two parts add up to those of both.
struct Figures {
    /// Of the pixels and their squares.
    sum: u64,
    sum_of_squares: u64,
    /// Pixels of 0 to 15, of 16 to 31, …
    histogram: Array1<u64>,
    /// Images of each class.
    counts: Array1<u64>,
    /// The sum of the images of each class: (classes, h, w).
    images: Array3<u64>,
}

impl Figures {
    fn zero([height, width]: [usize; 2], classes: usize) -> Figures {
        Figures {
            sum: 0,
            sum_of_squares: 0,
            histogram: Array1::zeros(BINS),
            counts: Array1::zeros(classes),
            images: Array3::zeros((classes, height, width)),
        }
    }

    /// Each thread reads a block, sums it, and lets it go.
    fn of(images: &DenseDataset<u8, [usize; 2]>, labels: &DenseDataset<u8, ()>) -> Result<Figures> {
        let (len, shape, done) = (images.len(), *images.item_shape(), AtomicU64::new(0));
        if labels.len() != len {
            return Err(format!("{len} images have {} labels", labels.len()).into());
        }
        let classes = labels.read(..)?.values().iter().max().map_or(0, |&label| usize::from(label) + 1);
        let blocks: Vec<_> = (0..len).step_by(BLOCK as usize).map(|first| first..len.min(first + BLOCK)).collect();
        let figures = blocks.into_par_iter().map(|block| {
            let (images, labels) = (images.read(block.clone())?, labels.read(block.clone())?);
            let mut figures = Figures::zero(shape, classes);
            for (image, &label) in images.view().axis_iter(Axis(0)).zip(labels.values()) {
                figures.counts[usize::from(label)] += 1;
                let mut sum = figures.images.index_axis_mut(Axis(0), label.into());
                sum.zip_mut_with(&image, |sum, &pixel| *sum += u64::from(pixel));
                for pixel in image {
                    figures.sum_of_squares += u64::from(*pixel).pow(2);
                    figures.histogram[usize::from(*pixel) * BINS / 256] += 1;
                }
            }
            figures.sum = figures.images.sum();
            let done = done.fetch_add(block.end - block.start, Ordering::Relaxed) + block.end - block.start;
            if stderr().is_terminal() {
                eprint!("\r{done}/{len} records{}", if done == len { "\n" } else { "" });
            }
            Ok(figures)
        });
        figures.try_reduce(|| Figures::zero(shape, classes), |a, b| Ok(a.and(b)))
    }

    fn and(self, other: Figures) -> Figures {
        Figures {
            sum: self.sum + other.sum,
            sum_of_squares: self.sum_of_squares + other.sum_of_squares,
            histogram: self.histogram + other.histogram,
            counts: self.counts + other.counts,
            images: self.images + other.images,
        }
    }

    fn pixels(&self) -> f64 {
        self.histogram.sum() as f64
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.pixels()
    }

    /// Of all pixels, not of a sample of them.
    fn deviation(&self) -> f64 {
        (self.sum_of_squares as f64 / self.pixels() - self.mean().powi(2)).sqrt()
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "sum": self.sum,
            "mean": self.mean(),
            "std_pop": self.deviation(),
            "hist16": self.histogram.to_vec(),
            "images_a_class": self.counts.to_vec(),
        })
    }

    /// One grey image a class: `0.png`, `1.png`, …
    fn write_mean_images(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (class, (sum, &count)) in self.images.axis_iter(Axis(0)).zip(&self.counts).enumerate() {
            let mean: Array2<u8> = sum.mapv(|sum| (sum / count.max(1)) as u8);
            let file = BufWriter::new(File::create(folder.join(format!("{class}.png")))?);
            let mut encoder = png::Encoder::new(file, mean.ncols() as u32, mean.nrows() as u32);
            encoder.set_color(png::ColorType::Grayscale);
            let mut image = encoder.write_header()?;
            image.write_image_data(&mean.into_raw_vec_and_offset().0)?;
            image.finish()?;
        }
        Ok(())
    }
}

struct Options {
    data: PathBuf,
    out: PathBuf,
    json: bool,
}

impl Options {
    fn from_args() -> Result<Options> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/data");
        let mut options = Options { data, out: std::env::temp_dir().join("loaderx-analytics"), json: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--data" => options.data = value()?.into(),
                "--out" => options.out = value()?.into(),
                "--json" => options.json = true,
                _ => return Err(format!("{arg} is not known: --data, --out and --json are").into()),
            }
        }
        Ok(options)
    }
}
