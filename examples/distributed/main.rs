//! Several processes train one model on MNIST, each on its share of every batch, from stores that may be in object storage.
//!
//! The loader needs nothing but the rank and the world, which `Shard::from_env` takes from the launcher: which records a rank
//! gets follows from the step alone, and no process asks another one. The gradients are another matter; here they are summed
//! by rank 0 over plain TCP, in an order that does not depend on the world. So the weights are the same, bit for bit, for 1, 2,
//! 4 and 8 ranks, and for a run that was killed and went on with another world: the last line shows a hash of them.
//!
//! ```text
//! cargo build --example distributed --features remote
//! examples/distributed/launch.sh 4 target/debug/examples/distributed --data s3://bucket/mnist
//! mpirun -n 2 target/debug/examples/distributed --data s3://bucket/mnist
//!
//!   --data PLACE         a folder or URL with the stores `images` (n, 28, 28) and `labels` (n), both u8
//!   --steps N            how many steps there are (100)
//!   --checkpoint FILE    saves the state there after every 10 steps, and goes on from what is there
//!   --seen FOLDER        writes the records that each step drew, a file a rank
//!   --die-at N           ends rank 1 at that step, as a machine that fails would
//! ```

mod model;
mod sum;

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use loaderx::{DataLoader, DenseDataset, LoaderState, Shard};
use model::Model;
use serde::{Deserialize, Serialize};
use sum::Ranks;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const BATCH_SIZE: u64 = 256;
/// A batch has so many parts, whose gradients are summed in their order: the most ranks that there may be.
const PARTS: u64 = 8;
const LEARNING_RATE: f32 = 0.1;
/// Steps between checkpoints.
const SAVED: u64 = 10;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let shard = Shard::from_env()?;
    let (rank, world) = (shard.rank(), shard.world());
    if !PARTS.is_multiple_of(world) {
        return Err(format!("{world} ranks: {PARTS} parts of a batch are shared by 1, 2, 4 or 8").into());
    }
    let saved = options.checkpoint.as_deref().map(Checkpoint::load).transpose()?.flatten();
    let place = options.data.trim_end_matches('/');
    let images = DenseDataset::<u8, [usize; 2]>::open(format!("{place}/images"))?;
    let labels = DenseDataset::<u8, ()>::open(format!("{place}/labels"))?;
    let builder = DataLoader::builder((images, labels)).batch_size(BATCH_SIZE).seed(42).shard(shard);
    let builder = match &saved {
        Some(saved) => builder.resume(saved.state.clone()),
        None => builder,
    };
    let mut loader = builder.map(|context, batch| Ok((context.indices().to_vec(), batch))).build()?;
    let mut model = saved.map_or_else(Model::new, |saved| Model { weights: saved.weights });
    let mut ranks = Ranks::join(rank, world)?;
    let mut seen = options.seen.as_deref().map(|folder| Seen::create(folder, rank)).transpose()?;

    while loader.step() < options.steps {
        let step = loader.step();
        if rank == 1 && options.die_at == Some(step) {
            std::process::exit(9);
        }
        let Some(batch) = loader.next() else { break };
        let (indices, (images, labels)) = batch?;
        if let Some(seen) = &mut seen {
            seen.write(step, &indices)?;
        }
        // This rank's parts, in their order; then the sum of all ranks' parts, in theirs.
        let parts = (PARTS / world) as usize;
        let gradients = model.gradients(images.values(), labels.values(), parts);
        let gradient = ranks.sum(gradients)?;
        model.step(&gradient, LEARNING_RATE / BATCH_SIZE as f32);
        if let Some(file) = options.checkpoint.as_deref().filter(|_| rank == 0 && loader.step().is_multiple_of(SAVED)) {
            Checkpoint { state: loader.state(), weights: model.weights.clone() }.save(file)?;
        }
    }
    if rank == 0 {
        println!("{} steps, {world} ranks: weights {:016x}", options.steps, model.hash());
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    state: LoaderState,
    weights: Vec<f32>,
}

impl Checkpoint {
    fn load(file: &Path) -> Result<Option<Checkpoint>> {
        if file.exists() { Ok(Some(rmp_serde::from_slice(&fs::read(file)?)?)) } else { Ok(None) }
    }

    /// Whole, or as before.
    fn save(&self, file: &Path) -> Result<()> {
        let unfinished = file.with_extension("unfinished");
        fs::write(&unfinished, rmp_serde::to_vec_named(self)?)?;
        Ok(fs::rename(unfinished, file)?)
    }
}

/// What a rank saw, a line a step: the step, and its records.
struct Seen(File);

impl Seen {
    fn create(folder: &Path, rank: u64) -> Result<Seen> {
        fs::create_dir_all(folder)?;
        Ok(Seen(File::options().create(true).append(true).open(folder.join(format!("{rank}.txt")))?))
    }

    fn write(&mut self, step: u64, indices: &[u64]) -> Result<()> {
        let indices: Vec<String> = indices.iter().map(u64::to_string).collect();
        Ok(writeln!(self.0, "{step} {}", indices.join(" "))?)
    }
}

struct Options {
    data: String,
    steps: u64,
    checkpoint: Option<PathBuf>,
    seen: Option<PathBuf>,
    die_at: Option<u64>,
}

impl Options {
    fn from_args() -> Result<Options> {
        let mut options = Options { data: String::new(), steps: 100, checkpoint: None, seen: None, die_at: None };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            match name.as_str() {
                "--data" => options.data = value,
                "--steps" => options.steps = value.parse()?,
                "--checkpoint" => options.checkpoint = Some(value.into()),
                "--seen" => options.seen = Some(value.into()),
                "--die-at" => options.die_at = Some(value.parse()?),
                _ => return Err(format!("{name} is no option: --data, --steps, --checkpoint, --seen, --die-at").into()),
            }
        }
        if options.data.is_empty() { Err("--data says where the stores are".into()) } else { Ok(options) }
    }
}
