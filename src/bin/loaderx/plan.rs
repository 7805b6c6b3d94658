//! `loaderx plan`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use loaderx::{Access, AccessPlan, AnyDataset, Mode, Sampler};
use serde::Serialize;

use crate::output::{self, Bar, Result};

/// Bytes that a suggested block has, about: those of the largest request.
const BLOCK: f64 = (8 << 20) as f64;

/// Below it, a part of the blocks that is found in the cache is a low one.
const LOW: f64 = 0.5;

/// Show what training on a store that lies far away would ask of it: requests, bytes, and what a cache finds.
///
/// The table alone is read, no record is. The chunk files are cut into blocks; a step of a rank needs those that its records
/// touch, and fetches what is not in its cache, neighbours together, in requests of 8 MiB at most. The cache is empty at
/// first. Figures are means over the steps and all ranks.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Records a global batch
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch_size: u64,
    /// Ranks that share a batch
    #[arg(long, value_name = "W", default_value_t = 1)]
    world: u64,
    /// In which order records are drawn [default: cyclic, or block-shuffle where --block is given]
    #[arg(long, value_enum)]
    mode: Option<Order>,
    /// Records a block of the block shuffle
    #[arg(long, value_name = "R", requires = "window")]
    block: Option<u64>,
    /// Blocks of the block shuffle that are mixed at a time
    #[arg(long, value_name = "W", requires = "block")]
    window: Option<u64>,
    /// The seed
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Bytes that the chunk files are cut into, such as 256KiB or 4MiB
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = bytes)]
    block_bytes: u64,
    /// Bytes of blocks that each rank keeps, such as 512MiB or 20GiB
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = bytes)]
    cache: u64,
    /// Steps, from the first on [default: one cycle, at most 1000]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// One JSON object: records, stored_bytes, blocks, records_per_block, world, steps; a step and rank needed, found,
    /// requests and bytes; hit_rate; suggestion
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// In index order
    Sequential,
    /// With replacement
    Iid,
    /// A fresh permutation each cycle
    Cyclic,
    /// The same, batches running on into the next cycle
    CyclicCarry,
    /// Blocks of neighbours in random order, some of them mixed at a time; takes --block and --window
    BlockShuffle,
}

/// A number of bytes, with a unit or without.
fn bytes(text: &str) -> std::result::Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1), ("", 1u64)];
    let unit = units.iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?.trim_end(), of)));
    let found = unit.and_then(|(number, of)| number.parse::<u64>().ok()?.checked_mul(*of));
    found.ok_or_else(|| "a number of bytes, or of KiB, MiB, GiB or TiB, such as 4MiB".into())
}

/// What is shown, under the names of the JSON object.
#[derive(Serialize)]
struct Shown {
    records: u64,
    stored_bytes: u64,
    blocks: u64,
    /// Null where there are no blocks.
    records_per_block: Option<f64>,
    world: u64,
    steps: u64,
    /// From here to `bytes`: means of a step and a rank.
    needed: f64,
    found: f64,
    requests: f64,
    bytes: f64,
    /// Null where no block was needed.
    hit_rate: Option<f64>,
    /// A block shuffle, where the order is a full one and the cache finds little.
    suggestion: Option<Suggestion>,
}

#[derive(Serialize)]
struct Suggestion {
    block: u64,
    window: u64,
}

impl Shown {
    fn new(access: &Access, sampler: &Sampler, cache: u64) -> Shown {
        let (total, ranks) = (access.total(), access.ranks.len() as u64);
        let mean = |sum: u64| sum as f64 / (access.steps.max(1) as f64 * ranks.max(1) as f64);
        let is_full = matches!(sampler.mode(), Mode::Cyclic | Mode::CyclicCarry);
        let is_low = total.hit_rate().is_some_and(|rate| rate < LOW);
        let Access { steps, records, stored_bytes, blocks, .. } = *access;
        Shown {
            records,
            stored_bytes,
            blocks,
            records_per_block: (blocks > 0).then(|| records as f64 / blocks as f64),
            world: ranks,
            steps,
            needed: mean(total.needed),
            found: mean(total.found),
            requests: mean(total.requests),
            bytes: mean(total.bytes),
            hit_rate: total.hit_rate(),
            suggestion: (is_full && is_low).then(|| Suggestion {
                block: ((BLOCK * records as f64 / stored_bytes as f64) as u64).clamp(1, records),
                // One window is read while the cache still holds the one before it.
                window: (cache / (2 * BLOCK as u64)).max(1),
            }),
        }
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<18}{value}");
        };
        line("records", self.records.to_string());
        line("stored_bytes", self.stored_bytes.to_string());
        line("blocks", self.blocks.to_string());
        if let Some(records) = self.records_per_block {
            line("records_per_block", format!("{records:.1}"));
        }
        line("world", self.world.to_string());
        line("steps", self.steps.to_string());
        let _ = writeln!(text, "\na step and rank");
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<18}{value}");
        };
        line("needed", format!("{:.1} blocks", self.needed));
        line("found", format!("{:.1} blocks", self.found));
        line("requests", format!("{:.1}", self.requests));
        line("bytes", format!("{:.0}", self.bytes));
        if let Some(rate) = self.hit_rate {
            line("hit_rate", format!("{rate:.3}"));
        }
        if let Some(Suggestion { block, window }) = self.suggestion {
            let _ = writeln!(
                text,
                "\nthe cache finds little: try --block {block} --window {window}, 8 MiB a block and two windows in the cache"
            );
        }
        text
    }
}

fn sampler(arguments: &Arguments, len: u64) -> Result<Sampler> {
    let Arguments { batch_size, seed, .. } = *arguments;
    let mode = match (arguments.mode, arguments.block.zip(arguments.window)) {
        (None | Some(Order::BlockShuffle), Some((block, window))) => {
            return Ok(Sampler::block_shuffle(len, block, window, batch_size, seed)?);
        }
        (Some(Order::BlockShuffle), None) => return Err("--mode block-shuffle takes --block and --window".into()),
        (Some(_), Some(_)) => return Err("--block and --window are for --mode block-shuffle".into()),
        (Some(Order::Sequential), None) => Mode::Sequential,
        (Some(Order::Iid), None) => Mode::Iid,
        (Some(Order::CyclicCarry), None) => Mode::CyclicCarry,
        (None | Some(Order::Cyclic), None) => Mode::Cyclic,
    };
    Ok(Sampler::new(mode, len, batch_size, seed)?)
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let sampler = sampler(arguments, store.len())?;
    let mut plan = AccessPlan::new(sampler.clone())
        .world(arguments.world)
        .block_bytes(arguments.block_bytes)
        .cache_bytes(arguments.cache);
    if let Some(steps) = arguments.steps {
        plan = plan.steps(steps);
    }
    let access = Bar::new("steps").working(|| plan.count(&store))?;
    let shown = Shown::new(&access, &sampler, arguments.cache);
    output::result(&if arguments.json { serde_json::to_string(&shown)? + "\n" } else { shown.lines() })
}
