//! Standard output for results, standard error for one line a message.

use std::error::Error;
use std::io::{self, ErrorKind, Write};

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
