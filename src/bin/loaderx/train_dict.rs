//! `loaderx train-dict`.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use loaderx::{AnyDataset, Codec, DictSize};
use serde_json::json;

use crate::compression::dict_size;
use crate::interrupt;
use crate::output::{self, Bar, Result};
use crate::trial::{self, Choice, Sample, Trial};

/// Train a dictionary on records of a store, or try codecs, levels and dictionary sizes on them.
///
/// Half of a sample of the records, spread evenly over the store, is trained on, and the other half is measured, so that
/// what is printed holds for records that come later. The store is not changed: `loaderx recode STORE DST --codec zstd_dict
/// --dict FILE` makes one with the dictionary, and import takes --dict, too.
///
/// --try prints a table: how many times smaller the records become, and how fast they are written and gathered at random
/// on this machine (from memory, since a sample is small). The dictionary is no part of the ratio. Temporary stores lie
/// beside STORE.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  loaderx train-dict logs --try                    which codec?
  loaderx train-dict logs --out logs.dict          then:
  loaderx recode logs small --codec zstd_dict --dict logs.dict")]
pub(crate) struct Arguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Write the dictionary to this file. Nothing may be there
    #[arg(long, value_name = "FILE", required_unless_present = "trial", conflicts_with = "trial")]
    out: Option<PathBuf>,
    /// Print a table of codecs, levels and dictionary sizes
    #[arg(long = "try")]
    trial: bool,
    /// Size of the dictionary: small (32 KiB), balanced (128 KiB), max (1 MiB), or bytes [default: balanced]
    #[arg(long, value_name = "SIZE", value_parser = dict_size, conflicts_with = "trial")]
    dict_size: Option<DictSize>,
    /// Compression level at which it is measured: 1 to 22, or one of zstd's negative levels [default: 19]
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "trial")]
    level: Option<i32>,
    /// One JSON object: out, and with and without the dictionary what --try gives as an array: codec, level, dictionary
    /// (bytes), ratio, write_bytes_per_second, gather_records_per_second, gather_bytes_per_second
    #[arg(long)]
    json: bool,
}

/// What --try tries.
fn choices() -> Vec<Choice> {
    let plain = |codec, level| Choice { codec, level, dict_size: DictSize::Balanced };
    let mut choices = vec![plain(Codec::Raw, None)];
    choices.extend([1, 3, 9, 19].map(|level| plain(Codec::Zstd, Some(level))));
    for dict_size in [DictSize::Small, DictSize::Balanced, DictSize::Max] {
        choices.extend([3, 19].map(|level| Choice { codec: Codec::ZstdDict, level: Some(level), dict_size }));
    }
    choices
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let store = AnyDataset::open(&arguments.store)?;
    let sample = Sample::of(&store)?;
    let directory = trial::directory(&arguments.store)?;
    match &arguments.out {
        Some(out) => train(arguments, &sample, directory.path(), out),
        None => compare(arguments, &sample, directory.path()),
    }
}

fn train(arguments: &Arguments, sample: &Sample, directory: &Path, out: &Path) -> Result<()> {
    let level = arguments.level.unwrap_or(19);
    let dict_size = arguments.dict_size.unwrap_or_default();
    let choice = |codec| Choice { codec, level: Some(level), dict_size };
    let with = Trial::run(directory, sample, choice(Codec::ZstdDict))?;
    let without = Trial::run(directory, sample, choice(Codec::Zstd))?;
    let dict = with.dict.as_deref().unwrap_or_default();
    write_new(out, dict)?;
    let (records, bytes) = sample.measured();
    output::result(&match arguments.json {
        true => json!({"out": out.display().to_string(), "with": with, "without": without}).to_string() + "\n",
        false => format!(
            "{}\t{} bytes\n{records} other records of {bytes} bytes become {:.2} times smaller at level {level}, {:.2} \
             times without it\n",
            output::one_line(&out.display().to_string()),
            dict.len(),
            with.ratio,
            without.ratio,
        ),
    })
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} already exists: remove it, or choose another file", path.display()).into()
        }
        _ => format!("cannot write {}: {e}", path.display()).into(),
    })
}

fn compare(arguments: &Arguments, sample: &Sample, directory: &Path) -> Result<()> {
    let (choices, bar) = (choices(), Bar::new("trials"));
    let (records, bytes) = sample.measured();
    let mut trials = Vec::new();
    let mut text = format!(
        "{records} records of {bytes} bytes\n{:<10}{:>6}{:>12}{:>8}{:>14}{:>16}{:>14}\n",
        "codec", "level", "dictionary", "ratio", "write", "gather rec/s", "gather"
    );
    // The temporary stores are removed then, too.
    let stop = interrupt::flag()?;
    for (done, choice) in choices.iter().enumerate() {
        interrupt::check(stop)?;
        match Trial::run(directory, sample, *choice) {
            Ok(trial) => {
                let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
                text += &format!(
                    "{:<10}{:>6}{:>12}{:>8.2}{:>14}{:>16.0}{:>14}\n",
                    trial.codec,
                    or_dash(trial.level.map(|level| level.to_string())),
                    or_dash(trial.dictionary.map(|bytes| bytes.to_string())),
                    trial.ratio,
                    trial::rate(trial.write_bytes_per_second),
                    trial.gather_records_per_second,
                    trial::rate(trial.gather_bytes_per_second),
                );
                trials.push(trial);
            }
            // Few or strange records give no dictionary, and the other rows are still worth something.
            Err(error) => match error.downcast_ref() {
                Some(loaderx::Error::Dictionary { .. }) => {
                    text += &format!(
                        "{:<10}{:>6}  these records give no dictionary of that size\n",
                        choice.codec.name(),
                        ""
                    );
                    std::fs::remove_dir_all(directory.join("trial"))?;
                }
                _ => return Err(error),
            },
        }
        bar.count(done as u64 + 1, choices.len() as u64);
    }
    drop(bar);
    output::result(&if arguments.json { serde_json::to_string(&trials)? + "\n" } else { text })
}
