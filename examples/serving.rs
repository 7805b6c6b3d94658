//! Inference in Candle over a store: clients ask for the digit that a record shows, and the server answers those that wait
//! together: one gather and one forward pass for all of them. It prints how long requests take and how many it answers a
//! second, one at a time and in batches, and checks that both give the same answers.
//!
//! The model is the one that the example mnist trains and writes with `--weights`; one is carried.
//!
//! ```text
//! cargo run --release --example serving --features candle
//!   … -- --weights FILE                   other weights of that model, as safetensors
//!   … -- --clients 16 --requests 4000     threads that ask, and how many requests they have together
//!   … -- --batch 32 --delay-us 200        a batch is full with so many, or when its first request has waited so long
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor, safetensors};
use crossbeam_channel::{Receiver, Sender, bounded};
use loaderx::{DenseDataset, Import};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// A score for each digit.
type Scores = Vec<f32>;

/// How far a score may be from the one that the record gets alone: another batch size may sum in another order.
const TOLERANCE: f32 = 1e-3;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let temporary = tempfile::tempdir()?;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/data/test.npz");
    let stores = temporary.path().join("test");
    Import::new().npz(data, &stores)?;
    let service = Service { images: DenseDataset::open(stores.join("images"))?, model: Model::read(&options.weights)? };
    let labels = DenseDataset::<u8, ()>::open(stores.join("labels"))?.read(..)?.into_values();

    let alone = run(&service, &Options { batch: 1, clients: 1, ..options.clone() })?;
    println!("one at a time   {alone}");
    let batched = run(&service, &options)?;
    println!("in batches      {batched}");
    println!("                {:.1} times as many", batched.throughput() / alone.throughput());

    let (mut right, mut furthest) = (0, 0.0_f32);
    for (request, (a, b)) in alone.answers.iter().zip(&batched.answers).enumerate() {
        furthest = a.iter().zip(b).fold(furthest, |furthest, (a, b)| furthest.max((a - b).abs()));
        let best = (0..b.len()).max_by(|&i, &j| b[i].total_cmp(&b[j]));
        right += usize::from(best == Some(labels[record(request, labels.len() as u64) as usize].into()));
    }
    println!("{:.4} of the answers are right", right as f64 / batched.answers.len() as f64);
    println!("a score differs from the one alone by {furthest:e} at most");
    if furthest > TOLERANCE {
        return Err(format!("that is more than {TOLERANCE:e}").into());
    }
    Ok(())
}

/// The record that a request is for.
fn record(request: usize, records: u64) -> u64 {
    (request as u64).wrapping_mul(7919) % records
}

struct Request {
    record: u64,
    answer: Sender<Result<Scores>>,
}

/// What answers requests.
struct Service {
    images: DenseDataset<u8, [usize; 2]>,
    model: Model,
}

impl Service {
    /// Answers all requests, in batches, until there are no more clients. Gives the number of batches.
    fn serve(&self, requests: &Receiver<Request>, options: &Options) -> usize {
        let mut batches = 0;
        while let Ok(first) = requests.recv() {
            let (mut batch, until) = (vec![first], Instant::now() + options.delay);
            while batch.len() < options.batch {
                match requests.recv_deadline(until) {
                    Ok(request) => batch.push(request),
                    Err(_) => break,
                }
            }
            batches += 1;
            self.answer(batch);
        }
        batches
    }

    fn answer(&self, batch: Vec<Request>) {
        let records: Vec<u64> = batch.iter().map(|request| request.record).collect();
        match self.scores(&records) {
            Ok(scores) => {
                for (request, scores) in batch.into_iter().zip(scores) {
                    // A client that went away wants no answer.
                    let _ = request.answer.send(Ok(scores));
                }
            }
            Err(error) => {
                for request in batch {
                    let _ = request.answer.send(Err(error.to_string().into()));
                }
            }
        }
    }

    /// One gather, one forward pass.
    fn scores(&self, records: &[u64]) -> Result<Vec<Scores>> {
        let images = self.images.gather(records)?.into_candle(&Device::Cpu)?; // (n, 28, 28), the gathered memory
        let pixels = (images.to_dtype(DType::F32)? / 255.0)?;
        Ok(self.model.forward(&pixels.unsqueeze(1)?)?.to_vec2()?)
    }
}

/// The network of the example mnist: two convolutions, each with a pooling, and two linear layers.
struct Model {
    convolutions: [(Tensor, Tensor); 2],
    linears: [(Tensor, Tensor); 2],
}

impl Model {
    fn read(file: &Path) -> Result<Model> {
        let mut tensors = safetensors::load(file, &Device::Cpu).map_err(|e| format!("{}: {e}", file.display()))?;
        let mut tensor = |name: String| tensors.remove(&name).ok_or(format!("{}: no tensor {name}", file.display()));
        let mut layer =
            |name: &str| Ok::<_, String>((tensor(format!("{name}.weight"))?, tensor(format!("{name}.bias"))?));
        let (conv1, conv2) = (layer("conv1")?, layer("conv2")?);
        let bias =
            |(weight, bias): (Tensor, Tensor)| Ok::<_, candle_core::Error>((weight, bias.reshape((1, (), 1, 1))?));
        Ok(Model { convolutions: [bias(conv1)?, bias(conv2)?], linears: [layer("hidden")?, layer("output")?] })
    }

    /// From (n, 1, 28, 28) to (n, 10).
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = images.clone();
        for (weight, bias) in &self.convolutions {
            x = x.conv2d(weight, 0, 1, 1, 1)?.broadcast_add(bias)?.relu()?.max_pool2d(2)?;
        }
        let [(hidden, hidden_bias), (output, output_bias)] = &self.linears;
        let x = x.flatten_from(1)?.matmul(hidden)?.broadcast_add(hidden_bias)?.relu()?;
        x.matmul(output)?.broadcast_add(output_bias)
    }
}

/// What clients saw.
struct Report {
    /// By the number of the request.
    answers: Vec<Scores>,
    /// From the shortest to the longest.
    latencies: Vec<Duration>,
    batches: usize,
    elapsed: Duration,
}

/// Lets clients ask for all requests, each client one after another.
fn run(service: &Service, options: &Options) -> Result<Report> {
    let (begin, next, records) = (Instant::now(), AtomicUsize::new(0), service.images.len());
    let client = |requests: Sender<Request>| -> Result<Vec<(usize, Scores, Duration)>> {
        let (mut seen, (answer, answers)) = (Vec::new(), bounded(1));
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.requests {
                return Ok(seen);
            }
            let begin = Instant::now();
            requests.send(Request { record: record(number, records), answer: answer.clone() })?;
            let scores = answers.recv()??;
            seen.push((number, scores, begin.elapsed()));
        }
    };
    thread::scope(|scope| {
        let (requests, waiting) = bounded(options.batch.max(options.clients));
        let clients: Vec<_> = (0..options.clients)
            .map(|_| {
                let requests = requests.clone();
                scope.spawn(|| client(requests))
            })
            .collect();
        drop(requests);
        let batches = service.serve(&waiting, options);
        let mut seen = Vec::with_capacity(options.requests);
        for client in clients {
            seen.extend(client.join().map_err(|_| "a client panicked")??);
        }
        seen.sort_by_key(|(number, _, _)| *number);
        let mut latencies: Vec<Duration> = seen.iter().map(|(_, _, latency)| *latency).collect();
        latencies.sort();
        let answers = seen.into_iter().map(|(_, scores, _)| scores).collect();
        Ok(Report { answers, latencies, batches, elapsed: begin.elapsed() })
    })
}

impl Report {
    /// Requests a second.
    fn throughput(&self) -> f64 {
        self.answers.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// How long the given share of the requests took at most.
    fn latency(&self, share: f64) -> Duration {
        let at = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies[at.clamp(1, self.latencies.len()) - 1]
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [half, most, nearly_all] = [0.5, 0.9, 0.99].map(|share| self.latency(share).as_micros());
        write!(
            f,
            "{:6.0} requests/s   p50 {half} us, p90 {most} us, p99 {nearly_all} us   mean batch {:.1}",
            self.throughput(),
            self.answers.len() as f64 / self.batches as f64,
        )
    }
}

#[derive(Clone)]
struct Options {
    weights: PathBuf,
    clients: usize,
    requests: usize,
    batch: usize,
    delay: Duration,
}

impl Options {
    fn from_args() -> Result<Options> {
        let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/model.safetensors");
        let delay = Duration::from_micros(200);
        let mut options = Options { weights, clients: 16, requests: 4000, batch: 32, delay };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number = || match value.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{arg} {value}: a number from 1 is needed")),
            };
            match arg.as_str() {
                "--weights" => options.weights = value.into(),
                "--clients" => options.clients = number()?,
                "--requests" => options.requests = number()?,
                "--batch" => options.batch = number()?,
                "--delay-us" => options.delay = Duration::from_micros(number()? as u64),
                _ => {
                    let known = "--weights, --clients, --requests, --batch and --delay-us are";
                    return Err(format!("{arg} is not known: {known}").into());
                }
            }
        }
        Ok(options)
    }
}
