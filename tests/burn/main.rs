//! Burn's own training, over our loaders: a run, one that is resumed, and one that two devices share.

use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::data::dataloader::DataLoader as BurnDataLoader;
use burn::module::{Module, Param};
use burn::optim::SgdConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::{
    ExecutionStrategy, InferenceStep, Learner, LearningResult, MultiDeviceOptim, RegressionOutput, SupervisedTraining,
    TrainOutput, TrainStep,
};
use loaderx::{BurnData, DataLoader, DenseDataset};

const RECORDS: usize = 50;
const BATCH: u64 = 8;
const STEPS: u64 = 5;

#[derive(Debug, Clone)]
struct Batch {
    x: Tensor<2>,
}

/// Learns one factor; it is to become 3.
#[derive(Module, Debug)]
struct Factor {
    factor: Param<Tensor<2>>,
}

impl Factor {
    fn regression(&self, batch: Batch) -> RegressionOutput {
        let (output, targets) = (batch.x.clone() * self.factor.val(), batch.x * 3.0);
        let loss = (output.clone() - targets.clone()).powi_scalar(2).mean();
        RegressionOutput::new(loss, output, targets)
    }
}

impl TrainStep for Factor {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> TrainOutput<RegressionOutput> {
        let output = self.regression(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Factor {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> RegressionOutput {
        self.regression(batch)
    }
}

/// The batches that a loader handed to Burn.
type Handed = Arc<Mutex<Vec<Vec<f32>>>>;

fn dataset(root: &Path) -> DenseDataset<f32, [usize; 1]> {
    let path = root.join("x");
    if !path.exists() {
        let values: Vec<f32> = (0..RECORDS).map(|i| i as f32 / RECORDS as f32).collect();
        DenseDataset::create(&path, [1]).unwrap().append(&values).unwrap();
    }
    DenseDataset::open(path).unwrap()
}

fn loader(root: &Path) -> DataLoader<TensorData> {
    DataLoader::builder(dataset(root)).batch_size(BATCH).workers(2).yields(BurnData).build().unwrap()
}

fn watched(handed: &Handed) -> impl Fn(TensorData, &Device) -> Batch + Send + Sync + 'static {
    let handed = handed.clone();
    move |x, device| {
        handed.lock().unwrap().push(x.try_to_vec().unwrap());
        Batch { x: Tensor::from_data(x, (device, DType::F32)) }
    }
}

struct Run {
    train: Handed,
    valid: Handed,
    result: LearningResult<Factor>,
}

impl Run {
    fn factor(&self) -> f32 {
        self.result.model.factor.val().into_data().try_to_vec::<f32>().unwrap()[0]
    }
}

/// Trains in `root` to the end of epoch `epochs`, from the checkpoint of epoch `from` where there is one.
fn run(root: &Path, from: Option<usize>, epochs: usize, strategy: ExecutionStrategy) -> Run {
    let device = Device::flex();
    let (train, valid) = (Handed::default(), Handed::default());
    let train_loader = loader(root).into_burn(STEPS, &device, watched(&train)).unwrap();
    let train_loader = train_loader.start_epoch(from.unwrap_or(0) as u64);
    let valid_loader = loader(root).into_burn_pass(&device, watched(&valid)).unwrap();
    let train_loader: Arc<dyn BurnDataLoader<Batch>> = Arc::new(train_loader);

    let mut training = SupervisedTraining::new(root.join("run"), train_loader, Arc::new(valid_loader))
        .num_epochs(epochs)
        .with_training_strategy(strategy.into())
        .with_default_checkpointers()
        .with_checkpointing_strategy(KeepLastNCheckpoints::new(4))
        .with_metric_logger(InMemoryMetricLogger::new())
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .with_application_logger(None);
    if let Some(from) = from {
        training = training.checkpoint(from);
    }
    let model = Factor { factor: Param::from_tensor(Tensor::zeros([1, 1], &device.autodiff())) };
    let result = training.launch(Learner::new(model, SgdConfig::new().init(), ConstantLr::new(0.5)));
    assert!(result.error.is_none(), "{:?}", result.error);
    Run { train, valid, result }
}

/// What our loader gives at these steps.
fn steps(root: &Path, steps: std::ops::Range<u64>) -> Vec<Vec<f32>> {
    let loader = loader(root);
    steps.map(|step| loader.batch(step).unwrap().try_to_vec().unwrap()).collect()
}

fn one() -> ExecutionStrategy {
    ExecutionStrategy::single(Device::flex().autodiff())
}

#[test]
fn two_epochs_of_supervised_training_and_a_third_that_is_resumed() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let uninterrupted = run(whole.path(), None, 3, one());

    let first = run(parts.path(), None, 2, one());
    assert_eq!(*first.train.lock().unwrap(), steps(parts.path(), 0..2 * STEPS));
    let valid = first.valid.lock().unwrap();
    let all: Vec<f32> = (0..RECORDS).map(|i| i as f32 / RECORDS as f32).collect();
    assert_eq!(valid.concat(), [&all[..], &all[..]].concat());
    assert!((first.factor() - 3.0).abs() < 0.5, "{}", first.factor());

    let resumed = run(parts.path(), Some(2), 3, one());
    assert_eq!(*resumed.train.lock().unwrap(), steps(parts.path(), 2 * STEPS..3 * STEPS));
    assert_eq!(resumed.factor().to_bits(), uninterrupted.factor().to_bits());
}

#[test]
fn two_devices_share_each_batch() {
    let root = tempfile::tempdir().unwrap();
    let devices = vec![Device::flex().autodiff(); 2];
    let shared = run(root.path(), None, 2, ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice));
    assert!((shared.factor() - 3.0).abs() < 0.5, "{}", shared.factor());

    // The devices run at once, in any order; between them they get what one device would.
    let sorted = |batches: Vec<Vec<f32>>| {
        let mut all = batches.concat();
        all.sort_by(f32::total_cmp);
        all
    };
    let handed = shared.train.lock().unwrap().clone();
    assert!(handed.iter().all(|part| part.len() as u64 == BATCH / 2));
    assert_eq!(sorted(handed), sorted(steps(root.path(), 0..2 * STEPS)));
}
