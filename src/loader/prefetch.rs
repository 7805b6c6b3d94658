//! Makes the batches of coming steps in worker threads, and hands them out in order.
//!
//! The consumer sends jobs, one a step, and never has more than `prefetch` of them out or waiting for their turn. A job
//! is the credit and the step at once, so workers never block on a full channel: however slow a step is, its result
//! gets through, and later ones wait in the consumer's map. A cancelled token marks what is not wanted any more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::context::Token;
use super::metrics::Metrics;
use super::pipeline::{Prepared, Work, at};
use crate::engine::store::unsplit;
use crate::error::{Error, Result};
use crate::events::event;

/// How many threads make batches, and how far ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Threads {
    pub(super) workers: usize,
    pub(super) prefetch: usize,
}

/// The steps of a plan, in order, each made ahead of its turn.
pub(super) struct Prefetch<T> {
    work: Arc<Work<T>>,
    threads: Threads,
    /// The step that goes out next.
    next: u64,
    /// The first step that no job was sent for.
    unsent: u64,
    /// Jobs that were sent and did not come back yet, unwanted ones included.
    out: usize,
    /// Batches that wait for their turn. The lock is never contended, since only `&mut self` reaches it; it makes the
    /// loader `Sync` though a batch need not be.
    ready: Mutex<BTreeMap<u64, Result<Prepared<T>>>>,
    /// Wanted jobs carry a clone of it.
    token: Token,
    /// The failure that every later call gets.
    failed: Option<Error>,
    /// Started by the first `next`.
    pool: Option<Pool<T>>,
    /// The index buffer of a loader without workers.
    indices: Vec<u64>,
    counts: Metrics,
    workers_waited: Arc<AtomicU64>,
}

struct Job {
    step: u64,
    token: Token,
}

struct Done<T> {
    job: Job,
    result: Result<Prepared<T>>,
}

struct Pool<T> {
    jobs: Sender<Job>,
    done: Receiver<Done<T>>,
    workers: Vec<JoinHandle<()>>,
}

impl<T: 'static> Prefetch<T> {
    pub(super) fn new(work: Arc<Work<T>>, threads: Threads, start: u64) -> Self {
        Prefetch {
            work,
            threads,
            next: start,
            unsent: start,
            out: 0,
            ready: Mutex::default(),
            token: Token::default(),
            failed: None,
            pool: None,
            indices: Vec::new(),
            counts: Metrics::default(),
            workers_waited: Arc::default(),
        }
    }

    /// The step that goes out next.
    pub(super) fn step(&self) -> u64 {
        self.next
    }

    /// What can make any step.
    pub(super) fn work(&self) -> &Work<T> {
        &self.work
    }

    pub(super) fn threads(&self) -> Threads {
        self.threads
    }

    /// Adds what is drawn and by how many threads to what a loader or a pass shows of itself.
    pub(super) fn show(&self, shown: &mut fmt::DebugStruct<'_, '_>) {
        self.work.plan.show(shown);
        shown.field("workers", &self.threads.workers).field("prefetch", &self.threads.prefetch);
    }

    /// Goes on at `step`, and forgets a failure.
    pub(super) fn seek(&mut self, step: u64) {
        self.forget();
        self.token = Token::default();
        self.failed = None;
        self.next = step;
        self.unsent = step;
    }

    /// The next step's batch, `None` after the plan's last.
    pub(super) fn next(&mut self) -> Option<Result<T>> {
        if let Some(error) = &self.failed {
            return Some(Err(error.clone()));
        }
        if self.next >= self.work.plan.steps() {
            return None;
        }
        let result = self.batch();
        match &result {
            Ok(_) => self.next += 1,
            Err(error) => {
                event!(ERROR, step = self.next, error = %error, "a step failed");
                self.failed = Some(error.clone());
                self.forget();
            }
        }
        Some(result)
    }

    fn batch(&mut self) -> Result<T> {
        let step = self.next;
        let prepared = if self.threads.workers == 0 { self.prepare_here(step) } else { self.prepared(step) }?;
        let (records, bytes, replaced) = (prepared.records, prepared.bytes, prepared.replaced);
        let batch = prepared.finish(step)?;
        self.counts.steps += 1;
        self.counts.records += records;
        self.counts.bytes += bytes;
        self.counts.replaced += replaced;
        Ok(batch)
    }

    fn prepare_here(&mut self, step: u64) -> Result<Prepared<T>> {
        let started = Instant::now();
        let prepared = self.work.prepare(step, &self.token, &mut self.indices);
        self.counts.consumer_waited += started.elapsed();
        prepared
    }

    /// Waits for the workers' part of `step`, and gives its credit away again before the consumer's part begins.
    fn prepared(&mut self, step: u64) -> Result<Prepared<T>> {
        if self.pool.is_none() {
            self.pool = Some(Pool::start(&self.work, self.threads, &self.workers_waited).map_err(at(step))?);
        }
        loop {
            self.send_jobs();
            if let Some(result) = self.ready().remove(&step) {
                self.send_jobs();
                return result;
            }
            self.receive(step)?;
        }
    }

    fn send_jobs(&mut self) {
        let Some(pool) = &self.pool else { return };
        let ready = self.ready.get_mut().unwrap_or_else(PoisonError::into_inner);
        while self.out + ready.len() < self.threads.prefetch && self.unsent < self.work.plan.steps() {
            // Where no worker is left to take it, `receive` says so.
            if pool.jobs.send(Job { step: self.unsent, token: self.token.clone() }).is_err() {
                return;
            }
            self.out += 1;
            self.unsent += 1;
        }
    }

    fn receive(&mut self, step: u64) -> Result<()> {
        let started = Instant::now();
        let done = self.pool.as_ref().and_then(|pool| pool.done.recv().ok());
        self.counts.consumer_waited += started.elapsed();
        let Some(Done { job, result }) = done else {
            return Err(at(step)(Error::Panic("every worker of the loader has ended".to_owned())));
        };
        self.out -= 1;
        if !job.token.is_cancelled() {
            self.ready().insert(job.step, result);
        }
        Ok(())
    }

    fn ready(&mut self) -> &mut BTreeMap<u64, Result<Prepared<T>>> {
        self.ready.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what was made ahead, and tells the workers that the rest is not wanted.
    fn forget(&mut self) {
        self.token.cancel();
        self.ready().clear();
    }
}

impl<T> Prefetch<T> {
    pub(super) fn metrics(&self) -> Metrics {
        let workers_waited = Duration::from_nanos(self.workers_waited.load(Ordering::Relaxed));
        Metrics { workers_waited, ..self.counts }
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.token.cancel();
        if let Some(pool) = self.pool.take() {
            pool.stop();
        }
        event!(DEBUG, endless = self.work.plan.steps() == u64::MAX, step = self.next, metrics = %self.metrics(),
            "a loader ends");
    }
}

impl<T: 'static> Pool<T> {
    fn start(work: &Arc<Work<T>>, threads: Threads, waited: &Arc<AtomicU64>) -> Result<Self> {
        let (jobs, queue) = unbounded();
        let (results, done) = unbounded();
        let mut pool = Pool { jobs, done, workers: Vec::new() };
        // More workers than batches under way would have nothing to do.
        let count = threads.workers.min(threads.prefetch);
        for at in 0..count {
            let (work, queue, results, waited) = (work.clone(), queue.clone(), results.clone(), waited.clone());
            let name = format!("loaderx-{at}");
            match thread::Builder::new().name(name).spawn(move || run(&work, &queue, &results, &waited)) {
                Ok(worker) => pool.workers.push(worker),
                Err(refusal) => {
                    pool.stop();
                    let reason = format!("the system refused thread {} of {count}: {refusal}; ask for fewer", at + 1);
                    return Err(Error::invalid("workers", reason));
                }
            }
        }
        Ok(pool)
    }
}

impl<T> Pool<T> {
    /// Waits until the workers have ended. Where one of them drops the loader, from its transform, nobody is waited
    /// for: another's transform may wait for something that this one holds.
    fn stop(self) {
        let Pool { jobs, done, workers } = self;
        drop(jobs);
        let here = thread::current().id();
        if workers.iter().all(|worker| worker.thread().id() != here) {
            for worker in workers {
                // A worker that panicked has ended too, and its panic was reported as its step's error.
                let _ = worker.join();
            }
        }
        drop(done);
    }
}

/// What a worker does until there are no more jobs.
fn run<T>(work: &Work<T>, jobs: &Receiver<Job>, results: &Sender<Done<T>>, waited: &AtomicU64) {
    let mut indices = Vec::new();
    loop {
        let started = Instant::now();
        let Ok(job) = jobs.recv() else { return };
        waited.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let result = if job.token.is_cancelled() {
            Err(Error::Cancelled)
        } else {
            unsplit(|| work.prepare(job.step, &job.token, &mut indices))
        };
        if results.send(Done { job, result }).is_err() {
            return;
        }
    }
}
