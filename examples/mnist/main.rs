//! MNIST, from the .npz files that this example carries to a trained classifier: imports them into stores, opens those
//! typed, and trains softmax regression in ndarray on shuffled batches, then counts what it gets right on the test set.
//!
//! ```text
//! cargo run --release --example mnist                  12,000 training and 2,000 test digits
//! cargo run --release --example mnist -- --data DIR    the train.npz and test.npz of DIR, such as all of MNIST
//! cargo run --release --example mnist -- --steps 100   a short run
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use loaderx::{DataLoader, DenseDataset, Import};
use ndarray::{Array1, Array2, Axis};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// Images as rows of pixels from 0 to 1, and the digit that each shows.
type Batch = (Array2<f32>, Array1<u8>);

const CLASSES: usize = 10;
const LEARNING_RATE: f32 = 0.5;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let stores = tempfile::tempdir()?;
    let train = open(&options.data.join("train.npz"), &stores.path().join("train"))?;
    let test = open(&options.data.join("test.npz"), &stores.path().join("test"))?;

    let mut model = Model::new(28 * 28);
    let begin = Instant::now();
    let mut loss = 0.0;
    for (step, batch) in train.take(options.steps).enumerate() {
        let (images, labels) = batch?;
        loss += model.train(&images, &labels);
        if (step + 1) % 100 == 0 || step + 1 == options.steps {
            let steps = step % 100 + 1;
            let rate = ((step + 1) * labels.len()) as f64 / begin.elapsed().as_secs_f64();
            println!("step {:5}  loss {:.4}  {rate:.0} records/s", step + 1, loss / steps as f32);
            loss = 0.0;
        }
    }

    // A pass gives every record once; the last batch is short.
    let (mut right, mut records) = (0, 0);
    for batch in test.pass() {
        let (images, labels) = batch?;
        right += model.count_right(&images, &labels);
        records += labels.len();
    }
    println!("test accuracy {:.4} ({right} of {records})", right as f64 / records as f64);
    Ok(())
}

/// Imports an archive of `images` (n, 28, 28) and `labels` (n), and loads batches from the stores.
fn open(archive: &Path, stores: &Path) -> Result<DataLoader<Batch>> {
    let imported = Import::new().npz(archive, stores)?;
    println!("{}: {} records in {} stores", archive.display(), imported.rows, imported.stores.len());
    let images = DenseDataset::<u8, [usize; 2]>::open(stores.join("images"))?;
    let labels = DenseDataset::<u8, ()>::open(stores.join("labels"))?;
    let loader = DataLoader::builder((images, labels))
        .map(|_, (images, labels)| {
            let images = images.map(|pixel| f32::from(pixel) / 255.0);
            let rows = images.len();
            let pixels = Array2::from_shape_vec((rows, 28 * 28), images.into_values())?;
            Ok((pixels, labels.into_ndarray()))
        })
        .build()?;
    Ok(loader)
}

/// Softmax regression: one weight for each pixel and class.
struct Model {
    weights: Array2<f32>,
    bias: Array1<f32>,
}

impl Model {
    fn new(pixels: usize) -> Model {
        Model { weights: Array2::zeros((pixels, CLASSES)), bias: Array1::zeros(CLASSES) }
    }

    /// The probability of each class, a row an image.
    fn probabilities(&self, images: &Array2<f32>) -> Array2<f32> {
        let mut scores = images.dot(&self.weights) + &self.bias;
        for mut row in scores.rows_mut() {
            let highest = row.fold(f32::MIN, |a, &b| a.max(b));
            row.mapv_inplace(|score| (score - highest).exp());
            let sum = row.sum();
            row /= sum;
        }
        scores
    }

    /// One step of gradient descent; gives the mean cross-entropy before it.
    fn train(&mut self, images: &Array2<f32>, labels: &Array1<u8>) -> f32 {
        let mut error = self.probabilities(images);
        let mut loss = 0.0;
        for (mut row, &label) in error.rows_mut().into_iter().zip(labels) {
            loss -= row[usize::from(label)].max(f32::MIN_POSITIVE).ln();
            row[usize::from(label)] -= 1.0;
        }
        let rate = LEARNING_RATE / labels.len() as f32;
        self.weights.scaled_add(-rate, &images.t().dot(&error));
        self.bias.scaled_add(-rate, &error.sum_axis(Axis(0)));
        loss / labels.len() as f32
    }

    fn count_right(&self, images: &Array2<f32>, labels: &Array1<u8>) -> usize {
        let best = |row: ndarray::ArrayView1<'_, f32>| {
            row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(class, _)| class)
        };
        self.probabilities(images)
            .rows()
            .into_iter()
            .zip(labels)
            .filter(|(row, label)| best(*row) == usize::from(**label))
            .count()
    }
}

struct Options {
    data: PathBuf,
    steps: usize,
}

impl Options {
    fn from_args() -> Result<Options> {
        let mut options =
            Options { data: Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/data"), steps: 1000 };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--data" => options.data = value.into(),
                "--steps" => options.steps = value.parse().map_err(|e| format!("--steps {value}: {e}"))?,
                _ => return Err(format!("{arg} is not known: --data DIR and --steps N are").into()),
            }
        }
        Ok(options)
    }
}
