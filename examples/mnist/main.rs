//! MNIST in Burn: imports the digits that this example carries, trains a small convolutional network on shuffled batches
//! that come through Burn's `DataLoader`, and counts what it gets right on the test set. It stops and resumes from a
//! checkpoint, and ends with the same weights as a run that was not stopped: the last line shows a hash of them.
//!
//! ```text
//! cargo run --release --example mnist --features burn-flex     12,000 training and 2,000 test digits
//!   … -- --epochs 1                                            a short run
//!   … -- --weights FILE                                        writes the weights as safetensors, for the example serving
//!   … -- --checkpoint DIR --stop-after 2                       trains two epochs, leaves a checkpoint, and stops
//!   … -- --checkpoint DIR                                      goes on from the checkpoint that is there
//!   … -- --data DIR                                            the train.npz and test.npz of DIR
//! ```

use std::error::Error;
use std::fs;
use std::io::{IsTerminal, Write, stdout};
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
use safetensors::tensor::TensorView;
use xxhash_rust::xxh3::Xxh3;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// What the loader's workers make: images (n, 28, 28) from 0 to 1, and labels (n).
type Loaded = (TensorData, TensorData);

const SEED: u64 = 42;
const BATCH_SIZE: u64 = 64;
/// At the first step; it falls to nothing at the last one.
const LEARNING_RATE: f64 = 4e-3;

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

    let mut run = Run::begin(train, &device, &options)?;
    let last = options.stop_after.map_or(options.epochs, |epoch| epoch.min(options.epochs));
    while run.epoch < last {
        run.train_epoch()?;
        println!("epoch {}: test accuracy {:.4}", run.epoch, run.accuracy(&test)?);
        if let Some(folder) = &options.checkpoint {
            run.save(folder)?;
        }
    }
    if let Some(file) = &options.weights {
        run.model.write(file)?;
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
    let images = DenseDataset::<u8, [usize; 2]>::open(stores.join("images"))?;
    let labels = DenseDataset::<u8, ()>::open(stores.join("labels"))?;
    println!("{}: {} stores of {} records", archive.display(), imported.stores.len(), images.len());
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
    /// How many steps an epoch has.
    steps: u64,
    /// How many steps the whole training has.
    steps_total: u64,
}

impl Run {
    /// From the beginning, or from the last checkpoint where there is one.
    fn begin(train: Builder, device: &Device, options: &Options) -> Result<Run> {
        let device = device.clone().autodiff();
        device.seed(SEED);
        let (mut model, mut optimizer) = (Model::new(&device), AdamConfig::new().init());
        let mut train = train;
        if let Some(checkpoint) = options.checkpoint.as_deref().map(last_checkpoint).transpose()?.flatten() {
            let state: LoaderState = serde_json::from_slice(&fs::read(checkpoint.join("loader.json"))?)?;
            model = model.try_load_record(burn::store::ModuleRecord::load(checkpoint.join("model.bpk"))?)?;
            optimizer = optimizer.load(checkpoint.join("optimizer.bpk"))?;
            println!("goes on from {}", checkpoint.display());
            train = train.resume(state);
        }
        let train = train.build()?;
        let steps = train.state().len / BATCH_SIZE;
        let epoch = train.step() / steps;
        let loader = train.into_burn(steps, &device, batch)?;
        Ok(Run { model, optimizer, loader, epoch, steps, steps_total: steps * options.epochs })
    }

    fn train_epoch(&mut self) -> Result<()> {
        let (begin, first, mut loss_sum) = (Instant::now(), self.epoch * self.steps, 0.0);
        let mut batches = self.loader.iter();
        for step in first..first + self.steps {
            let Batch { images, labels } = batches.next().ok_or("an epoch has all of its steps")??;
            let scores = self.model.forward(images);
            let loss = CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels);
            loss_sum += f64::from(loss.clone().into_scalar::<f32>());
            let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
            let rate = LEARNING_RATE * (1.0 - step as f64 / self.steps_total as f64);
            self.model = self.optimizer.step(rate, self.model.clone(), gradients);

            let (steps, progress) = (step + 1 - first, batches.progress());
            if steps == self.steps || stdout().is_terminal() {
                print!(
                    "\repoch {}: {}/{} records  loss {:.4}  {:.0} records/s ",
                    self.epoch + 1,
                    progress.items_processed,
                    progress.items_total,
                    loss_sum / steps as f64,
                    progress.items_processed as f64 / begin.elapsed().as_secs_f64(),
                );
                stdout().flush()?;
            }
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

    /// Leaves a checkpoint in `folder`, and takes away the older ones: there is a whole one at any time.
    fn save(&self, folder: &Path) -> Result<()> {
        let (new, finished) = (folder.join("new"), folder.join(format!("epoch-{:04}", self.epoch)));
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        fs::create_dir_all(&new)?;
        self.model.clone().save_file(new.join("model.bpk"))?;
        self.optimizer.save(new.join("optimizer.bpk"))?;
        fs::write(new.join("loader.json"), serde_json::to_vec(&self.loader.state()?)?)?;
        fs::rename(new, &finished)?;
        for checkpoint in checkpoints(folder)? {
            if checkpoint != finished {
                fs::remove_dir_all(checkpoint)?;
            }
        }
        Ok(())
    }
}

fn checkpoints(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_one = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("epoch-"));
    Ok(paths.into_iter().filter(is_one).collect())
}

fn last_checkpoint(folder: &Path) -> Result<Option<PathBuf>> {
    if !folder.exists() {
        return Ok(None);
    }
    Ok(checkpoints(folder)?.into_iter().max())
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
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            hidden: LinearConfig::new(16 * 5 * 5, 64).init(device),
            output: LinearConfig::new(64, 10).init(device),
        }
    }

    /// From (n, 1, 28, 28) to a score for each digit, (n, 10).
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(relu(self.conv1.forward(images))); // (n, 8, 13, 13)
        let x = self.pool.forward(relu(self.conv2.forward(x))); // (n, 16, 5, 5)
        self.output.forward(relu(self.hidden.forward(x.flatten::<2>(1, 3))))
    }

    /// Writes the weights as safetensors: those of a layer (in, out), those of a convolution (out, in, 3, 3).
    fn write(&self, file: &Path) -> Result<()> {
        let bias = |bias: &Option<Param<Tensor<1>>>| bias.as_ref().map(|bias| bias.val().into_data());
        let tensors = [
            ("conv1.weight", Some(self.conv1.weight.val().into_data())),
            ("conv1.bias", bias(&self.conv1.bias)),
            ("conv2.weight", Some(self.conv2.weight.val().into_data())),
            ("conv2.bias", bias(&self.conv2.bias)),
            ("hidden.weight", Some(self.hidden.weight.val().into_data())),
            ("hidden.bias", bias(&self.hidden.bias)),
            ("output.weight", Some(self.output.weight.val().into_data())),
            ("output.bias", bias(&self.output.bias)),
        ];
        let views = tensors.iter().filter_map(|(name, data)| {
            let data = data.as_ref()?;
            let shape = data.shape().as_slice().to_vec();
            Some(TensorView::new(safetensors::Dtype::F32, shape, data.bytes()).map(|view| (*name, view)))
        });
        let views = views.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(safetensors::serialize_to_file(views, None, file)?)
    }

    /// A hash of every bit of the weights.
    fn hash(&self) -> u64 {
        struct Hash(Xxh3);
        impl ModuleVisitor for Hash {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.update(param.val().into_data().bytes());
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
    weights: Option<PathBuf>,
}

impl Options {
    fn from_args() -> Result<Options> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/data");
        let mut options = Options { data, epochs: 8, checkpoint: None, stop_after: None, weights: None };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number = || value.parse().map_err(|error| format!("{arg} {value}: {error}"));
            match arg.as_str() {
                "--data" => options.data = value.into(),
                "--epochs" => options.epochs = number()?,
                "--checkpoint" => options.checkpoint = Some(value.into()),
                "--stop-after" => options.stop_after = Some(number()?),
                "--weights" => options.weights = Some(value.into()),
                _ => {
                    let known = "--data, --epochs, --checkpoint, --stop-after and --weights are";
                    return Err(format!("{arg} is not known: {known}").into());
                }
            }
        }
        Ok(options)
    }
}
