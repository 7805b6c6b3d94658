//! `loaderx push` and `loaderx pull`.

use std::path::PathBuf;

use loaderx::{Pull, Push};
use serde_json::json;

use crate::output::{self, Bar, Result};

/// Publish a store in object storage: s3://bucket/name, gs://…, az://…
///
/// The record table goes last: readers find the store that was there, or none, until all of the new one is there. What is there already and is
/// the same is not sent again. Credentials come from the environment. The number of objects that were sent, of those that were kept, and the
/// bytes are printed.
#[derive(Debug, clap::Args)]
pub(crate) struct PushArguments {
    /// The store's directory
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Where it is to be
    #[arg(value_name = "URL")]
    url: String,
    /// Take over from a push that was cut off, and go on with what it sent
    #[arg(long)]
    resume: bool,
    /// One JSON object: records, sent, kept, bytes
    #[arg(long)]
    json: bool,
}

/// Bring a store from object storage to this disk, and compare each file with the hash that push has noted, or where there is
/// none, each record with its checksum.
///
/// The store is built in DST.partial: DST appears when it is whole. Ctrl-C leaves DST.partial, from where --resume goes on. The
/// number of records is printed, those of the objects that came and that were kept, and the bytes that came.
#[derive(Debug, clap::Args)]
pub(crate) struct PullArguments {
    /// Where it is
    #[arg(value_name = "URL")]
    url: String,
    /// The store to make. Nothing may be there
    #[arg(value_name = "DST")]
    destination: PathBuf,
    /// Go on with what a pull of the same store left in DST.partial
    #[arg(long)]
    resume: bool,
    /// One JSON object: records, fetched, kept, bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn push(arguments: &PushArguments) -> Result<()> {
    let bar = Bar::new("bytes");
    let show = |done: loaderx::Progress| bar.count(done.source_bytes, done.source_bytes_total.unwrap_or(0));
    let push = Push::new().resume(arguments.resume).stop(crate::interrupt::flag()?).progress(show);
    let pushed = push.store(&arguments.store, &arguments.url)?;
    drop(bar);
    let loaderx::Pushed { records, sent, kept, bytes, .. } = pushed;
    output::result(&match arguments.json {
        true => json!({"records": records, "sent": sent, "kept": kept, "bytes": bytes}).to_string() + "\n",
        false => format!("{records} records: {sent} objects sent, {kept} kept, {bytes} bytes\n"),
    })
}

pub(crate) fn pull(arguments: &PullArguments) -> Result<()> {
    let bar = Bar::new("bytes");
    let show = |done: loaderx::Progress| bar.count(done.source_bytes, done.source_bytes_total.unwrap_or(0));
    let pull = Pull::new().resume(arguments.resume).stop(crate::interrupt::flag()?).progress(show);
    let pulled = pull.store(&arguments.url, &arguments.destination)?;
    drop(bar);
    let loaderx::Pulled { records, fetched, kept, bytes, .. } = pulled;
    output::result(&match arguments.json {
        true => json!({"records": records, "fetched": fetched, "kept": kept, "bytes": bytes}).to_string() + "\n",
        false => format!("{records} records: {fetched} objects came, {kept} kept, {bytes} bytes\n"),
    })
}
