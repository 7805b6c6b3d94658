//! Standard output for results, standard error for one line a message.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use loaderx::{AnyDataset, Progress};

/// What ends a command early: the crate's error, or a standard output that takes no more.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Writes the result. A reader that has read enough and gone is no failure.
pub(crate) fn result(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {e}: free space there, or write elsewhere").into())
        }
        _ => Ok(()),
    }
}

/// Says something on standard error, in one line whatever it holds.
pub(crate) fn note(message: &str) {
    // There is nowhere to say that nothing can be said.
    let _ = writeln!(io::stderr(), "loaderx: {}", one_line(message));
}

/// Control characters, which may stand in a path, in their escaped form.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// A line for each store that was made: its path, records and stored bytes, separated by tabs.
pub(crate) fn stores(paths: &[PathBuf]) -> Result<String> {
    let mut lines = String::new();
    for path in paths {
        let stats = AnyDataset::open(path)?.stats()?;
        lines += &format!("{}\t{}\t{}\n", one_line(&path.display().to_string()), stats.records, stats.live_bytes);
    }
    Ok(lines)
}

/// A progress bar on standard error, which is hidden unless that is a terminal. It disappears when it is dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Over rows and bytes, as an import reports them.
    pub(crate) fn new() -> Bar {
        Bar::with_template(0, "{wide_bar} {pos}/{len} rows, {msg}, {eta} left")
    }

    /// Over that many records.
    pub(crate) fn of(records: u64) -> Bar {
        Bar::with_template(records, "{wide_bar} {pos}/{len} records, {per_sec}, {eta} left")
    }

    fn with_template(len: u64, template: &str) -> Bar {
        // A template that is not understood gives the default bar.
        let style = ProgressStyle::with_template(template);
        Bar(ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(crate) fn show(&self, progress: Progress) {
        if let Some(total) = progress.rows_total {
            self.0.set_length(total);
        }
        self.0.set_message(indicatif::BinaryBytes(progress.bytes).to_string());
        self.0.set_position(progress.rows);
    }

    pub(crate) fn set(&self, records: u64) {
        self.0.set_position(records);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
