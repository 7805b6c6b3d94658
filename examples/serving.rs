//! Inference in Candle over a store: clients ask for the digit that a record shows, and the server answers those that wait
//! together: one gather and one forward pass for all of them, a batch a core at a time. It prints how long requests take
//! and how many it answers a second, one at a time and in batches, and checks that both give the same answers.
//!
//! The model is the one that the example mnist trains and writes with `--weights`; one is carried.
//!
//! ```text
//! cargo run --release --example serving --features candle
//!   … -- --weights FILE                   other weights of that model, as safetensors
//!   … -- --clients 32 --requests 20000    threads that ask, and how many requests they have together
//!   … -- --batch 8 --delay-us 200         a batch is full with so many, or when its first request has waited so long
//!   … -- --servers 2                      how many batches are answered at once; by default as many as there are cores
//! ```

use std::error::Error;
use std::io::{IsTerminal, stderr};
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
    // The cores are busy with one batch each: threads within a batch would only wait for one another.
    for threads in ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"] {
        if std::env::var_os(threads).is_none() {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(threads, "1") };
        }
    }
    let options = Options::from_args()?;
    let temporary = tempfile::tempdir()?;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/data/test.npz");
    let stores = temporary.path().join("test");
    Import::new().npz(data, &stores)?;
    let service = Service { images: DenseDataset::open(stores.join("images"))?, model: Model::read(&options.weights)? };
    let labels = DenseDataset::<u8, ()>::open(stores.join("labels"))?.read(..)?.into_values();

    let alone = run(&service, &Options { batch: 1, clients: 1, servers: 1, ..options.clone() })?;
    println!("\rone at a time   {alone}");
    let batched = run(&service, &options)?;
    println!("\rin batches      {batched}");
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
        Ok(self.model.forward(&pixels)?.to_vec2()?)
    }
}

/// The network of the example mnist, two convolutions, each with a pooling, and two linear layers, as four matrix products
/// for all images together.
struct Model {
    /// Weights (in, out) and bias (out); what goes into a convolution are the 3 × 3 × channels numbers around a place.
    layers: [(Tensor, Tensor); 4],
}

impl Model {
    fn read(file: &Path) -> Result<Model> {
        let mut tensors = safetensors::load(file, &Device::Cpu).map_err(|e| format!("{}: {e}", file.display()))?;
        let mut layer = |name: &str| -> Result<(Tensor, Tensor)> {
            let mut tensor = |name: String| tensors.remove(&name).ok_or(format!("{}: no {name}", file.display()));
            Ok((tensor(format!("{name}.weight"))?, tensor(format!("{name}.bias"))?))
        };
        let [conv1, conv2, hidden, output] = [layer("conv1")?, layer("conv2")?, layer("hidden")?, layer("output")?];
        // From (out, in, 3, 3); and the hidden layer takes places of channels here, where training has channels of places.
        let places = |weight: &Tensor| weight.permute((2, 3, 1, 0))?.flatten(0, 2)?.contiguous();
        let channels = conv2.1.dim(0)?;
        let side = ((hidden.0.dim(0)? / channels) as f64).sqrt() as usize;
        let first = hidden.0.reshape((channels, side, side, ()))?.permute((1, 2, 0, 3))?.flatten(0, 2)?.contiguous()?;
        Ok(Model { layers: [(places(&conv1.0)?, conv1.1), (places(&conv2.0)?, conv2.1), (first, hidden.1), output] })
    }

    /// From (n, 28, 28) to (n, 10).
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let [conv1, conv2, hidden, output] = &self.layers;
        let apply = |x: &Tensor, (weight, bias): &(Tensor, Tensor)| x.matmul(weight)?.broadcast_add(bias);
        let mut x = images.unsqueeze(3)?; // (n, height, width, channels)
        for layer in [conv1, conv2] {
            let (n, height, width, _) = x.dims4()?;
            let (height, width) = (height - 2, width - 2);
            let around = (0..9).map(|at| x.narrow(1, at / 3, height)?.narrow(2, at % 3, width));
            let around = Tensor::cat(&around.collect::<candle_core::Result<Vec<_>>>()?, 3)?;
            x = apply(&around.flatten(0, 2)?, layer)?.relu()?.reshape((n, height, width, ()))?;
            // The larger one of two columns, then of two rows; an odd one at the end is left out.
            x = x.narrow(2, 0, width / 2 * 2)?.reshape((n, height, width / 2, 2, ()))?.max(3)?;
            x = x.narrow(1, 0, height / 2 * 2)?.reshape((n, height / 2, 2, width / 2, ()))?.max(2)?;
        }
        apply(&apply(&x.flatten_from(1)?, hidden)?.relu()?, output)
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
            if number.is_multiple_of(500) && stderr().is_terminal() {
                eprint!("\r{number}/{} requests ", options.requests);
            }
            let begin = Instant::now();
            requests.send(Request { record: record(number, records), answer: answer.clone() })?;
            let scores = answers.recv()??;
            seen.push((number, scores, begin.elapsed()));
        }
    };
    let (requests, waiting) = bounded(options.clients);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..options.clients)
            .map(|_| {
                let requests = requests.clone();
                scope.spawn(|| client(requests))
            })
            .collect();
        drop(requests);
        let servers: Vec<_> = (0..options.servers).map(|_| scope.spawn(|| service.serve(&waiting, options))).collect();
        let mut batches = 0;
        for server in servers {
            batches += server.join().map_err(|_| "a server panicked")?;
        }
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
    servers: usize,
}

impl Options {
    fn from_args() -> Result<Options> {
        let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mnist/model.safetensors");
        let (delay, servers) = (Duration::from_micros(200), thread::available_parallelism().map_or(1, usize::from));
        let mut options = Options { weights, clients: 32, requests: 20_000, batch: 8, delay, servers };
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
                "--servers" => options.servers = number()?,
                "--delay-us" => options.delay = Duration::from_micros(number()? as u64),
                _ => {
                    let known = "--weights, --clients, --requests, --batch, --delay-us and --servers are";
                    return Err(format!("{arg} is not known: {known}").into());
                }
            }
        }
        Ok(options)
    }
}
