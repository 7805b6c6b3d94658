//! Standard output for results, standard error for one line a message.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use loaderx::{AnyDataset, Progress};
use serde::Serialize;

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

/// A store that was made or changed.
#[derive(Serialize)]
struct Made {
    path: String,
    records: u64,
    live_bytes: u64,
}

/// A line for each store that was made or changed: its path, records and stored bytes, separated by tabs; or a JSON
/// object.
pub(crate) fn stores(paths: &[PathBuf], json: bool) -> Result<()> {
    let mut lines = String::new();
    for path in paths {
        let stats = AnyDataset::open(path)?.stats()?;
        let made = Made { path: path.display().to_string(), records: stats.records, live_bytes: stats.live_bytes };
        lines += &match json {
            true => serde_json::to_string(&made)? + "\n",
            false => format!("{}\t{}\t{}\n", one_line(&made.path), made.records, made.live_bytes),
        };
    }
    result(&lines)
}

/// How long work goes on before a bar is drawn.
const SHORT: Duration = Duration::from_secs(1);

/// A progress bar on standard error, unless that is no terminal. It is drawn after a second, and disappears when it is
/// dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
    what: &'static str,
    begin: Instant,
    drawn: AtomicBool,
}

impl Bar {
    /// Counts rows or records, as `what` says.
    pub(crate) fn new(what: &'static str) -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        Bar { bar, what, begin: Instant::now(), drawn: AtomicBool::new(false) }
    }

    /// How far it is, in records and bytes.
    pub(crate) fn show(&self, progress: Progress) {
        let Progress { rows, rows_total, bytes, source_bytes, source_bytes_total, .. } = progress;
        let rate = |seconds: f64| BinaryBytes((bytes as f64 / seconds) as u64);
        let (done, total, of) = match (rows_total, source_bytes_total) {
            (Some(total), _) => (rows, total, format!("/{total}")),
            (None, Some(total)) => (source_bytes, total, String::new()),
            (None, None) => (0, 0, String::new()),
        };
        let what = self.what;
        self.set(done, total, |seconds| format!("{rows}{of} {what}, {}, {}/s", BinaryBytes(bytes), rate(seconds)));
    }

    /// `done` of `total`.
    pub(crate) fn count(&self, done: u64, total: u64) {
        let (what, rate) = (self.what, |seconds: f64| HumanCount((done as f64 / seconds) as u64));
        self.set(done, total, |seconds| format!("{done}/{total} {what}, {}/s", rate(seconds)));
    }

    /// Turns a wheel while `work`, which does not say how far it is, goes on.
    pub(crate) fn working<R>(&self, work: impl FnOnce() -> R) -> R {
        let (done, wait) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                if wait.recv_timeout(SHORT) == Err(RecvTimeoutError::Timeout) {
                    self.draw("{spinner} {elapsed}");
                    self.bar.enable_steady_tick(Duration::from_millis(200));
                }
            });
            let result = work();
            drop(done);
            result
        })
    }

    fn draw(&self, template: &str) {
        // A template that is not understood gives the default bar.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style);
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
    }

    /// Moves the bar, and says what `message` makes of the seconds that have passed, once some have.
    fn set(&self, done: u64, total: u64, message: impl FnOnce(f64) -> String) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        let elapsed = self.begin.elapsed();
        if elapsed < SHORT {
            return;
        }
        self.bar.set_message(message(elapsed.as_secs_f64()));
        if !self.drawn.swap(true, Ordering::Relaxed) {
            self.draw(if total > 0 { "{wide_bar} {msg}, {eta} left" } else { "{spinner} {msg}" });
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
