//! The threads on which requests are waited for.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use tokio::runtime::{Builder, Runtime};

/// How many threads move bytes. They wait most of the time.
const THREADS: usize = 2;

/// Chooses who does the cryptography. A program that has chosen keeps its own.
pub(super) fn choose_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// How often who waits looks at something else.
const TICK: Duration = Duration::from_millis(100);

fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made =
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("loaderx-remote").enable_all().build()?;
    // Where another thread was faster, this one is dropped unused.
    Ok(RUNTIME.get_or_init(|| made))
}

/// Begins `work`, without waiting for it.
pub(super) fn begin(work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    runtime()?.spawn(work);
    Ok(())
}

/// Waits for `work`, which runs on threads of its own: the caller may be on a thread of another runtime, where waiting for a
/// future is forbidden.
pub(crate) fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    wait_with(work, || ())
}

/// The same, calling `tick` now and then meanwhile.
pub(crate) fn wait_with<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    mut tick: impl FnMut(),
) -> io::Result<T> {
    let (done, result) = bounded(1);
    runtime()?.spawn(async move {
        let _ = done.send(work.await);
    });
    loop {
        match result.recv_timeout(TICK) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => tick(),
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a request has panicked")),
        }
    }
}
