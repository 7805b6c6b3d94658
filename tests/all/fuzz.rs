//! The fuzz targets, run over the corpus and seeded mutations of it: what `cargo fuzz` does for as long as one likes,
//! in seconds. A find's input goes into fuzz/corpus/TARGET, named after the fault.

use std::fs;
use std::path::Path;
use std::process::abort;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// Inputs of each target beside the corpus.
const MUTATIONS: u64 = 1000;
/// One input takes milliseconds; what takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize % bound
    }

    /// A few changes, of bytes, runs and lengths.
    fn mutate(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(input.len() + 1);
            let end = (at + self.below(24)).min(input.len());
            match self.below(7) {
                0 => input.truncate(at),
                1 => drop(input.drain(at..end)),
                2 => drop(input.splice(at..at, other.iter().copied().skip(self.below(other.len() + 1)).take(24))),
                3 => input[at..end].fill([0, 1, 0x7f, 0xff][self.below(4)]),
                4 if at < input.len() => input[at] ^= 1 << self.below(8),
                5 if at < input.len() => input[at] = input[at].wrapping_add(self.below(5) as u8).wrapping_sub(2),
                _ => input.insert(at, self.below(256) as u8),
            }
        }
    }
}

/// Says which input it was that a target failed on.
struct Tell<'a>(&'a str, &'a [u8]);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{} fails on {hex}", self.0);
        }
    }
}

fn replay(name: &str) {
    let (_, target) = targets::TARGETS.into_iter().find(|(target, _)| *target == name).expect("a target");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(&folder).expect("a corpus").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!corpus.is_empty(), "{} is empty", folder.display());
    let (done, watched) = channel();
    thread::spawn(move || {
        loop {
            match watched.recv_timeout(PATIENCE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("an input hangs");
                    abort();
                }
            }
        }
    });
    let run = |input: &[u8]| {
        let _tell = Tell(name, input);
        target(input);
        done.send(()).expect("the watchdog is there");
    };
    corpus.iter().for_each(|input| run(input));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..MUTATIONS {
        let (mut input, other) = (corpus[random.below(corpus.len())].clone(), &corpus[random.below(corpus.len())]);
        random.mutate(&mut input, other);
        run(&input);
    }
}

macro_rules! replayed {
    ($($target:ident)*) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target));
        }
    )*};
}

replayed!(store table commit schema npy npz safetensors operations);
