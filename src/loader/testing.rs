//! Streams in memory and a watchdog, for the tests of this room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::stream::{Stream, StreamPart};
use crate::error::{Error, Result};

/// Record `i` is a number that follows from `salt` and `i`.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub(super) name: &'static str,
    pub(super) salt: u64,
    pub(super) len: Arc<AtomicU64>,
}

impl Memory {
    pub(super) fn new(len: u64) -> Memory {
        Memory::salted(len, 0)
    }

    pub(super) fn salted(len: u64, salt: u64) -> Memory {
        Memory { name: "", salt, len: Arc::new(AtomicU64::new(len)) }
    }

    pub(super) fn record(&self, index: u64) -> u64 {
        index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.salt
    }
}

impl Stream for Memory {
    type Batch = Vec<u64>;

    fn len(&self) -> u64 {
        self.len.load(Ordering::SeqCst)
    }

    fn gather(&self, indices: &[u64]) -> Result<Vec<u64>> {
        let len = self.len();
        let record = |&index| if index < len { Ok(self.record(index)) } else { Err(Error::OutOfRange { index, len }) };
        indices.iter().map(record).collect()
    }

    fn fingerprint(&self, _len: u64) -> Result<Vec<u64>> {
        Ok(vec![self.salt])
    }

    fn batch_bytes(batch: &Vec<u64>) -> u64 {
        8 * batch.len() as u64
    }

    fn parts(&self) -> Result<Vec<StreamPart>> {
        Ok(vec![StreamPart { name: self.name.to_owned(), len: self.len() }])
    }
}

/// Runs `test` in a thread of its own, and fails where it has not ended after two minutes.
pub(super) fn watched(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel::<()>();
    let thread = thread::spawn(move || {
        let _ended = ended;
        test();
    });
    let hangs = end.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout);
    assert!(!hangs, "the test hangs");
    thread.join().unwrap();
}

/// Sleeps for up to `most` microseconds, as `key` has it.
pub(super) fn dawdle(key: u64, most: u64) {
    let word = key.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    thread::sleep(Duration::from_micros(word % (most + 1)));
}
