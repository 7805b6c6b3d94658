//! Ctrl-C: the first one asks the work to stop, the second one ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::Result;

/// What a shell expects of a program that Ctrl-C ended.
pub(crate) const STATUS: u8 = 130;

static STOP: AtomicBool = AtomicBool::new(false);

/// Becomes true with the first Ctrl-C. Called once.
pub(crate) fn flag() -> Result<&'static AtomicBool> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(STATUS.into());
        }
    })
    .map_err(|e| format!("cannot listen for Ctrl-C: {e}"))?;
    Ok(&STOP)
}

/// Ends work that has nothing to keep, where Ctrl-C was pressed.
pub(crate) fn check(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(loaderx::Error::Interrupted { records: 0, left: "nothing is left".into() }.into());
    }
    Ok(())
}
