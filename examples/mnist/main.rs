//! MNIST in Burn: imports the digits that this example carries, trains a small convolutional network on shuffled batches
//! that come through Burn's `DataLoader`, and counts what it gets right on the test set. It stops and resumes from a
//! checkpoint, and ends with the same weights as a run that was not stopped: the last line shows a hash of them.
//!
//! ```text
//! cargo run --release --example mnist --features burn-flex     12,000 training and 2,000 test digits
//!   … -- --epochs 1                                            a short run
//!   … -- --checkpoint DIR --stop-after 2                       trains two epochs, leaves a checkpoint, and stops
//!   … -- --checkpoint DIR                                      goes on from the checkpoint that is there
//!   … -- --data DIR                                            the train.npz and test.npz of DIR
//! ```

use std::error::Error;
use std::fs;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::data::dataloader::DataLoader as _;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::activation::relu;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use loaderx::{BurnData, BurnLoader, DataLoader, DenseDataset, Import, LoaderState};
use xxhash_rust::xxh3::Xxh3;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// What the loader's workers make: images (n, 28, 28) from 0 to 1, and labels (n).
type Loaded = (TensorData, TensorData);

const SEED: u64 = 42;
const BATCH_SIZE: u64 = 64;
const LEARNING_RATE: f64 = 2e-3;

/// What the network is given.
struct Batch {
    images: Tensor<4>,
    labels: Tensor<1, Int>,
}

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let stores = tempfile::tempdir()?;
    let device = Device::flex();

    let train = open(&options.data.join("train.npz"), &stores.path().join("train"))?;
    let test = open(&options.data.join("test.npz"), &stores.path().join("test"))?;
    let test = test.build()?.into_burn_pass(&device, batch)?;

    let mut run = Run::begin(train, &device, options.checkpoint.as_deref())?;
    let last = options.stop_after.map_or(options.epochs, |epoch| epoch.min(options.epochs));
    while run.epoch < last {
        run.train_epoch()?;
        println!("epoch {}: test accuracy {:.4}", run.epoch, run.accuracy(&test)?);
        if let Some(folder) = &options.checkpoint {
            run.save(folder)?;
        }
    }
    println!("test accuracy {:.4}", run.accuracy(&test)?);
    println!("weights {:016x}", run.model.hash());
    Ok(())
}

type Builder = loaderx::DataLoaderBuilder<
    (DenseDataset<u8, [usize; 2]>, DenseDataset<u8, ()>),
    (loaderx::DenseBatch<f32, [usize; 2]>, loaderx::DenseBatch<i32, ()>),
    BurnData,
>;

/// Imports an archive of `images` (n, 28, 28) and `labels` (n), and loads batches from the stores.
fn open(archive: &Path, stores: &Path) -> Result<Builder> {
    let imported = Import::new().npz(archive, stores)?;
    println!("{}: {} records in {} stores", archive.display(), imported.rows, imported.stores.len());
    let images = DenseDataset::<u8, [usize; 2]>::open(stores.join("images"))?;
    let labels = DenseDataset::<u8, ()>::open(stores.join("labels"))?;
    Ok(DataLoader::builder((images, labels))
        .batch_size(BATCH_SIZE)
        .seed(SEED)
        .map(|_, (images, labels)| Ok((images.map(|pixel| f32::from(pixel) / 255.0), labels.map(i32::from))))
        .yields(BurnData))
}

/// In the thread that trains: what the workers made becomes tensors, without a copy.
fn batch((images, labels): Loaded, device: &Device) -> Batch {
    Batch {
        images: Tensor::<3>::from_data(images, (device, DType::F32)).unsqueeze_dim(1),
        labels: Tensor::from_data(labels, (device, DType::I32)),
    }
}

/// A training, between two of its epochs.
struct Run {
    model: Model,
    optimizer: ModuleOptimizer,
    loader: BurnLoader<Loaded, Batch>,
    /// How many were finished.
    epoch: u64,
}

impl Run {
    /// From the beginning, or from the checkpoint in `folder` where one is there.
    fn begin(train: Builder, device: &Device, folder: Option<&Path>) -> Result<Run> {
        let device = device.clone().autodiff();
        device.seed(SEED);
        let (mut model, mut optimizer) = (Model::new(&device), AdamConfig::new().init());
        let (mut train, mut epoch) = (train, 0);
        if let Some(folder) = folder.filter(|folder| folder.exists()) {
            let state: LoaderState = serde_json::from_slice(&fs::read(folder.join("loader.json"))?)?;
            model = model.try_load_record(burn::store::ModuleRecord::load(folder.join("model.bpk"))?)?;
            optimizer = optimizer.load(folder.join("optimizer.bpk"))?;
            epoch = state.step / (state.len / BATCH_SIZE);
            train = train.resume(state);
            println!("{}: goes on after epoch {epoch}", folder.display());
        }
        let train = train.build()?;
        let steps = train.state().len / BATCH_SIZE;
        Ok(Run { model, optimizer, loader: train.into_burn(steps, &device, batch)?, epoch })
    }

    fn train_epoch(&mut self) -> Result<()> {
        let (begin, mut loss_sum, mut steps) = (Instant::now(), 0.0, 0);
        let mut batches = self.loader.iter();
        while let Some(batch) = batches.next() {
            let Batch { images, labels } = batch?;
            let scores = self.model.forward(images);
            let loss = CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels);
            loss_sum += f64::from(loss.clone().into_scalar::<f32>());
            steps += 1;
            let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
            self.model = self.optimizer.step(LEARNING_RATE, self.model.clone(), gradients);

            let progress = batches.progress();
            let rate = progress.items_processed as f64 / begin.elapsed().as_secs_f64();
            print!(
                "\repoch {}: {}/{} records  loss {:.4}  {rate:.0} records/s ",
                self.epoch + 1,
                progress.items_processed,
                progress.items_total,
                loss_sum / f64::from(steps),
            );
            stdout().flush()?;
        }
        println!();
        self.epoch += 1;
        Ok(())
    }

    /// The share of all records that the model gets right.
    fn accuracy(&self, test: &impl burn::data::dataloader::DataLoader<Batch>) -> Result<f64> {
        let model = self.model.valid();
        let mut right = 0;
        for batch in test.iter() {
            let Batch { images, labels } = batch?;
            let best = model.forward(images).argmax(1).squeeze_dim::<1>(1);
            right += best.equal(labels).int().sum().into_scalar::<i64>();
        }
        Ok(right as f64 / test.num_items() as f64)
    }

    /// Leaves a checkpoint in `folder`, in place of the one that is there.
    fn save(&self, folder: &Path) -> Result<()> {
        let new = folder.with_extension("new");
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        fs::create_dir_all(&new)?;
        self.model.clone().save_file(new.join("model.bpk"))?;
        self.optimizer.save(new.join("optimizer.bpk"))?;
        fs::write(new.join("loader.json"), serde_json::to_vec(&self.loader.state()?)?)?;
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        Ok(fs::rename(new, folder)?)
    }
}

/// Two convolutions, each with a pooling, and two linear layers.
#[derive(Module, Debug)]
struct Model {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    hidden: Linear,
    output: Linear,
}

impl Model {
    fn new(device: &Device) -> Model {
        Model {
            conv1: Conv2dConfig::new([1, 16], [3, 3]).init(device),
            conv2: Conv2dConfig::new([16, 32], [3, 3]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            hidden: LinearConfig::new(32 * 5 * 5, 64).init(device),
            output: LinearConfig::new(64, 10).init(device),
        }
    }

    /// From (n, 1, 28, 28) to a score for each digit, (n, 10).
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(relu(self.conv1.forward(images))); // (n, 16, 13, 13)
        let x = self.pool.forward(relu(self.conv2.forward(x))); // (n, 32, 5, 5)
        self.output.forward(relu(self.hidden.forward(x.flatten::<2>(1, 3))))
    }

    /// A hash of every bit of the weights.
    fn hash(&self) -> u64 {
        struct Hash(Xxh3);
        impl ModuleVisitor for Hash {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.update(&param.val().into_data().bytes().to_vec());
            }
        }
        let mut hash = Hash(Xxh3::new());
        self.visit(&mut hash);
        hash.0.digest()
    }
}

struct Options {
    data: PathBuf,
    epochs: u64,
    checkpoint: Option<PathBuf>,
    stop_after: Option<u64>,
}

impl Options {
    fn from_args() -> Result<Options> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/data");
        let mut options = Options { data, epochs: 6, checkpoint: None, stop_after: None };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number = || value.parse().map_err(|error| format!("{arg} {value}: {error}"));
            match arg.as_str() {
                "--data" => options.data = value.into(),
                "--epochs" => options.epochs = number()?,
                "--checkpoint" => options.checkpoint = Some(value.into()),
                "--stop-after" => options.stop_after = Some(number()?),
                _ => return Err(format!("{arg} is not known: --data, --epochs, --checkpoint, --stop-after are").into()),
            }
        }
        Ok(options)
    }
}
