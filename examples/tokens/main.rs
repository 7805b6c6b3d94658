//! A small language model in Candle: imports a text, a record a paragraph, into a store that is compressed with a
//! dictionary trained on it; trains a recurrent network (GRU) to guess each byte from the ones before it, on shuffled
//! batches that come packed; measures how many bits a byte costs in the last tenth of the text, which it never learns
//! from; writes the weights as safetensors; and completes what you begin.
//!
//! ```text
//! cargo run --release --example tokens --features candle    Pride and Prejudice, which this example carries
//!   … -- --text FILE                                         any other text; bytes are the tokens
//!   … -- --steps 100                                         a short run; --minutes M trains for that long
//!   … -- --prompt "It is a truth"                            completes this, in place of each line of standard input
//!   … -- --weights FILE                                      where the weights go
//!   … -- --load FILE                                         completes with these weights, and trains nothing
//! ```

mod model;

use std::error::Error;
use std::fs;
use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use loaderx::{Candle, Codec, DataLoader, DictSize, Import, Mode, PackedTensor, PaddedTensor, RaggedDataset};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use model::{Adam, Gru};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SEED: u64 = 42;
const UNITS: usize = 256;
/// About how many bytes a batch has.
const BATCH_BYTES: u64 = 1024;
/// How many bytes the network reads in a row while it trains, at most.
const WINDOW: usize = 64;
const STEPS: u64 = 1200;
const LEARNING_RATE: f64 = 1.5e-2;
/// Below 1, completions keep closer to what is likely.
const TEMPERATURE: f64 = 0.6;
const PROMPT: &str = "It is a truth universally acknowledged, that";

/// What ends each record, and stands before the first: the end of a line, and an empty one.
const END: &[u8] = b"\n\n";
/// Paragraphs that are longer become several records.
const LONGEST: usize = 4096;

fn main() -> Result<()> {
    // Candle's threads spin while they wait for one another. That gains little on matrices of this size, and loses much
    // where other programs run: one thread, unless the user says otherwise. The weights are the same.
    for threads in ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"] {
        if std::env::var_os(threads).is_none() {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(threads, "1") };
        }
    }
    let Some(options) = Options::from_args()? else {
        include_str!("main.rs").lines().map_while(|line| line.strip_prefix("//!")).for_each(|line| println!("{line}"));
        return Ok(());
    };
    let model = match &options.load {
        Some(file) => Gru::load(file).map_err(|error| format!("{}: {error}", file.display()))?,
        None => learn(&options)?,
    };
    answer(&model, options.prompt.as_deref())
}

/// Imports the text, trains, writes the weights and measures them.
fn learn(options: &Options) -> Result<Gru> {
    let name = options.text.display();
    let text = fs::read(&options.text).map_err(|error| format!("{name}: {error}"))?;
    let (train, mut held_out) = split(paragraphs(&text));
    if text.len() < 16_000 || train.len() < 8 {
        let (bytes, records) = (text.len(), train.len() + held_out.len());
        let reason = format!("{bytes} bytes in {records} records are too little to learn from");
        return Err(format!("{name}: {reason}: give a text of 50 kB or more").into());
    }
    // Batches of neighbours, which are then about equally long, are padded little.
    held_out.sort_by_key(Vec::len);

    let stores = tempfile::tempdir()?;
    println!("{name}: {} bytes", text.len());
    let [held_out, train] = [(&held_out, "held-out"), (&train, "train")].map(|(records, name)| {
        // Both with a dictionary of the training set: what is held out stays unseen.
        import(records, &train, &stores.path().join(name))
    });

    let model = Gru::new(UNITS, SEED)?;
    fit(&model, train?, &options.budget)?;
    model.save(&options.weights)?;
    println!("weights in {}", options.weights.display());
    println!("held out: {:.3} bits a byte", bits_per_byte(&model, held_out?)?);
    Ok(model)
}

/// The paragraphs of a text, an empty line or more between any two, as records. White space at the ends of lines goes.
fn paragraphs(text: &[u8]) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end).collect();
    let paragraphs = lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty());
    let mut records = Vec::new();
    for paragraph in paragraphs.map(|lines| [&lines.join(&b'\n'), END].concat()) {
        let pieces = paragraph.len().div_ceil(LONGEST);
        records.extend(paragraph.chunks(paragraph.len().div_ceil(pieces)).map(<[u8]>::to_vec));
    }
    records
}

/// Splits off the last tenth of the bytes, in whole records.
fn split(mut records: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let total: usize = records.iter().map(Vec::len).sum();
    let (mut at, mut bytes) = (records.len(), 0);
    while bytes < total / 10 {
        at -= 1;
        bytes += records[at].len();
    }
    let held_out = records.split_off(at);
    (records, held_out)
}

/// Imports records into a store, compressed with a dictionary that is trained on samples.
fn import(records: &[Vec<u8>], samples: &[Vec<u8>], store: &Path) -> Result<RaggedDataset<u8>> {
    let sampled: usize = samples.iter().map(Vec::len).sum();
    let imported = Import::new()
        .codec(Codec::ZstdDict)
        .dict_size(DictSize::Bytes((sampled / 16).clamp(1 << 10, 128 << 10) as u32))
        .samples::<u8>(samples)
        .records(records, store)?;
    let dataset = RaggedDataset::open(store)?;
    let (stored, dict) = (dataset.stats()?.live_bytes, fs::metadata(store.join("dict.zr"))?.len());
    println!(
        "{}: {} records, {} bytes in {stored} ({:.2} times smaller), and a dictionary of {dict}",
        store.file_name().unwrap_or_default().display(),
        imported.rows,
        imported.bytes,
        imported.bytes as f64 / stored as f64,
    );
    Ok(dataset)
}

/// Trains on shuffled records that come packed: each batch, its records end to end, is cut into windows of equal length.
/// They begin anywhere in a paragraph and run on into the next one; the last few bytes, which fill no window, are left out.
fn fit(model: &Gru, train: RaggedDataset<u8>, budget: &Budget) -> Result<()> {
    let bytes: u64 = train.lengths(..)?.iter().sum();
    let records = (train.len() * BATCH_BYTES).div_ceil(bytes);
    let loader = DataLoader::builder(train)
        .mode(Mode::CyclicCarry)
        .batch_size(records)
        .seed(SEED)
        .yields(Candle(Device::Cpu).packed())
        .build()?;
    let mut adam = Adam::new(model.vars()?)?;
    let (begin, mut seen, mut mean) = (Instant::now(), 0, f64::NAN);
    for (batch, step) in loader.zip(1..) {
        let PackedTensor { values, .. } = batch?;
        let windows = values.dim(0)?.div_ceil(WINDOW);
        let length = values.dim(0)? / windows;
        let windows = values.narrow(0, 0, windows * length)?.reshape((windows, length))?;

        let costs = model.costs(&windows)?;
        let loss = costs.mean_all()?;
        let done = budget.done(step, begin.elapsed());
        // Up in the first steps, then down to 0.
        adam.step(&loss.backward()?, LEARNING_RATE * (step as f64 / 20.0).min(1.0) * (1.0 - done))?;

        let bits = f64::from(loss.to_scalar::<f32>()?) / f64::ln(2.0);
        mean = if mean.is_nan() { bits } else { mean + (bits - mean) / 20.0 };
        seen += costs.elem_count();
        let seconds = begin.elapsed().as_secs_f64();
        let (rate, left) = (seen as f64 / seconds, seconds / done - seconds);
        print!("\rstep {step}: {mean:.3} bits a byte  {rate:.0} bytes/s  {left:.0} s left  ");
        stdout().flush()?;
        if done >= 1.0 {
            println!("\rtrained for {step} steps, {seen} bytes, {seconds:.0} s: {mean:.3} bits a byte    ");
            break;
        }
    }
    Ok(())
}

/// What a byte of the records costs, each guessed from those before it in its own record alone. Every byte counts once,
/// those that end the records too.
fn bits_per_byte(model: &Gru, records: RaggedDataset<u8>) -> Result<f64> {
    let model = model.frozen();
    let loader = DataLoader::builder(records).batch_size(16).yields(Candle(Device::Cpu).padded(b'\n')).build()?;
    let (mut nats, mut bytes) = (0.0, 0.0);
    for batch in loader.pass() {
        let PaddedTensor { values, mask } = batch?; // (16, longest) both
        let before = Tensor::new(END, &Device::Cpu)?.unsqueeze(0)?.repeat((values.dim(0)?, 1))?;
        // Without the first cost, that of END's own second byte.
        let costs = model.costs(&Tensor::cat(&[&before, &values], 1)?)?.narrow(1, 1, values.dim(1)?)?;
        let mask = mask.to_dtype(DType::F64)?;
        nats += (costs.to_dtype(DType::F64)? * &mask)?.sum_all()?.to_scalar::<f64>()?;
        bytes += mask.sum_all()?.to_scalar::<f64>()?;
    }
    Ok(nats / bytes / f64::ln(2.0))
}

/// Completes the prompt; without one, each line of standard input; and where that is a terminal or empty, [`PROMPT`].
fn answer(model: &Gru, prompt: Option<&str>) -> Result<()> {
    let model = model.frozen();
    if let Some(prompt) = prompt {
        return complete(&model, prompt.as_bytes());
    }
    let mut lines = 0;
    if !stdin().is_terminal() {
        for line in stdin().lock().split(b'\n') {
            complete(&model, line?.trim_ascii_end())?;
            lines += 1;
        }
    }
    if lines == 0 { complete(&model, PROMPT.as_bytes()) } else { Ok(()) }
}

/// Prints the prompt and what the model goes on with, to the end of a paragraph.
fn complete(model: &Gru, prompt: &[u8]) -> Result<()> {
    let mut text = [END, prompt].concat();
    let mut unread = text.clone();
    let mut state = model.begin(1)?;
    for _ in 0..600 {
        let bytes: Vec<u32> = unread.iter().map(|&byte| byte.into()).collect();
        state = model.read(&Tensor::new(bytes, &Device::Cpu)?, &state)?.narrow(0, unread.len() - 1, 1)?;
        let scores: Vec<f32> = model.scores(&state)?.squeeze(0)?.to_vec1()?;
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let weights = scores.iter().map(|score| (f64::from(score - most) / TEMPERATURE).exp());

        // From 0 to 1, a hash of the text so far: the same prompt is completed in the same way.
        let chance = (xxh3_64_with_seed(&text, SEED) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = chance * weights.clone().sum::<f64>();
        let drawn = weights.zip(0..=u8::MAX).find(|(weight, _)| {
            left -= weight;
            left < 0.0
        });
        let byte = drawn.map_or(b'\n', |(_, byte)| byte);
        text.push(byte);
        unread = vec![byte];
        if text.ends_with(END) {
            break;
        }
    }
    println!("\n{}", String::from_utf8_lossy(text.trim_ascii()));
    Ok(())
}

/// How long to train.
enum Budget {
    Steps(u64),
    Time(Duration),
}

impl Budget {
    /// How much of it is spent, up to 1.
    fn done(&self, step: u64, elapsed: Duration) -> f64 {
        match self {
            Budget::Steps(steps) => step as f64 / *steps as f64,
            Budget::Time(time) => elapsed.div_duration_f64(*time).min(1.0),
        }
    }
}

struct Options {
    text: PathBuf,
    budget: Budget,
    weights: PathBuf,
    load: Option<PathBuf>,
    prompt: Option<String>,
}

impl Options {
    /// `None` where help is asked for.
    fn from_args() -> Result<Option<Options>> {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tokens/data/prideprejudice.txt");
        let weights = std::env::temp_dir().join("tokens.safetensors");
        let mut options = Options { text, budget: Budget::Steps(STEPS), weights, load: None, prompt: None };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            if arg == "--help" {
                return Ok(None);
            }
            if !["--text", "--steps", "--minutes", "--weights", "--load", "--prompt"].contains(&arg.as_str()) {
                let known = "--text, --steps, --minutes, --weights, --load, --prompt and --help are";
                return Err(format!("{arg} is not known: {known}").into());
            }
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number = || {
                let number = value.parse().ok().filter(|number: &f64| *number > 0.0);
                number.ok_or_else(|| format!("{arg} {value}: it is a number above 0"))
            };
            match arg.as_str() {
                "--text" => options.text = value.into(),
                "--steps" => options.budget = Budget::Steps(number()?.ceil() as u64),
                "--minutes" => options.budget = Budget::Time(Duration::try_from_secs_f64(number()? * 60.0)?),
                "--weights" => options.weights = value.into(),
                "--load" => options.load = Some(value.into()),
                _ => options.prompt = Some(value),
            }
        }
        Ok(Some(options))
    }
}
