//! Tells a stream which records coming steps will gather, so that those that are far are on their way by then.

use std::sync::{Arc, Mutex};

use super::context::Token;
use super::plan::Plan;

/// How many steps ahead at most. The stream says earlier when it has enough.
const STEPS: u64 = 256;

/// What a stream is told: indices. It says whether it wants to be told more.
pub(super) type Tell = Arc<dyn Fn(&[u64]) -> bool + Send + Sync>;

pub(super) struct Ahead {
    tell: Tell,
    /// The first step that the stream was not told of.
    next: Mutex<u64>,
}

impl Ahead {
    pub(super) fn new(tell: Tell) -> Ahead {
        Ahead { tell, next: Mutex::new(0) }
    }

    /// Tells of the steps from `step` on, which is made now. One worker at a time does; the others have no need to wait.
    pub(super) fn from(&self, plan: &Plan, step: u64) {
        let Ok(mut next) = self.next.try_lock() else { return };
        let end = step.saturating_add(STEPS).min(plan.steps());
        if *next > end {
            // The loader went back.
            *next = step;
        }
        *next = step.max(*next);
        let mut indices = Vec::new();
        while *next < end {
            let context = plan.context(*next, indices, Token::default());
            if !(self.tell)(context.indices()) {
                return;
            }
            indices = context.indices;
            *next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DataLoader, Stream};
    use super::*;
    use crate::engine::sampler::Mode;
    use crate::error::Result;

    /// Wants to be told of three batches more than were gathered.
    #[derive(Default)]
    struct Told {
        told: Mutex<Vec<u64>>,
        gathered: Mutex<Vec<u64>>,
    }

    impl Stream for Told {
        type Batch = Vec<u64>;

        fn len(&self) -> u64 {
            1000
        }

        fn gather(&self, indices: &[u64]) -> Result<Vec<u64>> {
            self.gathered.lock().unwrap().extend(indices);
            Ok(indices.to_vec())
        }

        fn fingerprint(&self, _len: u64) -> Result<Vec<u64>> {
            Ok(vec![0])
        }

        fn reads_ahead(&self) -> bool {
            true
        }

        fn prefetch(&self, indices: &[u64]) -> bool {
            let gathered = self.gathered.lock().unwrap().len();
            let mut told = self.told.lock().unwrap();
            if told.len() >= gathered + 30 {
                return false;
            }
            told.extend(indices);
            true
        }
    }

    #[test]
    fn a_stream_is_told_of_each_coming_step_once_and_in_order_until_it_has_enough() {
        for workers in [0, 1, 3] {
            let stream = Arc::new(Told::default());
            let builder = DataLoader::builder((stream.clone(),)).batch_size(10).mode(Mode::CyclicCarry);
            let mut loader = builder.workers(workers).prefetch(4).build().unwrap();
            let mut gathered = Vec::new();
            (0..20).for_each(|_| gathered.extend(loader.next().unwrap().unwrap().0));
            let told = stream.told.lock().unwrap().clone();
            assert!(told.len() >= gathered.len(), "{}", told.len());
            assert_eq!(told[..gathered.len()], gathered);
            if workers == 0 {
                assert_eq!(told.len(), 220);
            }
            // From where it goes back to, and from where it goes on.
            for step in [3, 1_000_000_000_000] {
                stream.told.lock().unwrap().clear();
                stream.gathered.lock().unwrap().clear();
                loader.seek(step);
                let next = loader.next().unwrap().unwrap().0;
                if workers == 0 && step > 3 {
                    assert_eq!(stream.told.lock().unwrap()[..10], next);
                }
            }
        }
    }
}
