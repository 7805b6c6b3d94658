//! From a step to a batch: draw, gather, transform, format.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::ahead::{Ahead, Tell};
use super::context::{StepContext, Token};
use super::corrupt::{OnCorrupt, gather};
use super::format::Format;
use super::plan::Plan;
use super::stream::Stream;
use crate::error::{Error, Result};

/// What a transform makes of a gathered batch.
pub(super) type Transform<A, B> = Box<dyn Fn(&StepContext, A) -> Result<B> + Send + Sync>;

/// From a context to what only the consumer's part is missing of.
type Make<T> = Arc<dyn Fn(&mut StepContext) -> Result<Prepared<T>> + Send + Sync>;

/// Stream, transform and format, their types forgotten.
pub(super) struct Pipeline<T> {
    make: Make<T>,
    /// Of a stream that wants to know early what will be gathered.
    tell: Option<Tell>,
}

impl<T> Clone for Pipeline<T> {
    fn clone(&self) -> Self {
        Pipeline { make: self.make.clone(), tell: self.tell.clone() }
    }
}

/// The part of a format that the consumer does.
type Finish<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// A batch that a worker is done with.
pub(super) struct Prepared<T> {
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Records in the place of damaged ones.
    pub(super) replaced: u64,
    /// The format's part that runs in the consumer.
    finish: Finish<T>,
}

/// Joins the stages, and stops between them when nobody waits any more.
pub(super) fn pipeline<S, B, F>(
    stream: S,
    on_corrupt: OnCorrupt,
    transform: Transform<S::Batch, B>,
    format: F,
) -> Pipeline<F::Out>
where
    S: Stream,
    B: 'static,
    F: Format<B>,
{
    let (stream, format) = (Arc::new(stream), Arc::new(format));
    let told = stream.clone();
    let tell = stream.reads_ahead().then(|| Arc::new(move |indices: &[u64]| told.prefetch(indices)) as Tell);
    let make = Arc::new(move |context: &mut StepContext| {
        let (batch, replaced) = gather(&*stream, context, on_corrupt)?;
        let bytes = S::batch_bytes(&batch);
        go_on(context)?;
        let batch = transform(context, batch)?;
        go_on(context)?;
        let host = format.host(batch)?;
        let format = format.clone();
        let records = context.indices().len() as u64;
        let finish: Finish<F::Out> = Box::new(move || format.finish(host));
        Ok(Prepared { records, bytes, replaced, finish })
    });
    Pipeline { make, tell }
}

fn go_on(context: &StepContext) -> Result<()> {
    if context.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

/// Makes the batch of any step of a plan.
pub(super) struct Work<T> {
    make: Make<T>,
    ahead: Option<Ahead>,
    pub(super) plan: Plan,
}

impl<T> Work<T> {
    pub(super) fn new(pipeline: &Pipeline<T>, plan: Plan) -> Self {
        Work { make: pipeline.make.clone(), ahead: pipeline.tell.clone().map(Ahead::new), plan }
    }

    /// The part that a worker does. `indices` is memory that is used again.
    pub(super) fn prepare(&self, step: u64, token: &Token, indices: &mut Vec<u64>) -> Result<Prepared<T>> {
        caught(step, || {
            if let Some(ahead) = &self.ahead {
                ahead.from(&self.plan, step);
            }
            let mut context = self.plan.context(step, mem::take(indices), token.clone());
            let prepared = (self.make)(&mut context);
            *indices = context.indices;
            prepared
        })
    }
}

impl<T> Prepared<T> {
    /// The part that the consumer does.
    pub(super) fn finish(self, step: u64) -> Result<T> {
        caught(step, self.finish)
    }
}

/// Gives errors and panics alike as errors of that step.
fn caught<R>(step: u64, stage: impl FnOnce() -> Result<R>) -> Result<R> {
    // What a panic leaves behind is dropped or, in the transform's own captures, guarded by their own `Sync`.
    let result = catch_unwind(AssertUnwindSafe(stage)).unwrap_or_else(|payload| Err(Error::Panic(text(payload))));
    result.map_err(at(step))
}

/// Closure for `map_err`: the step that an error belongs to.
pub(super) fn at(step: u64) -> impl FnOnce(Error) -> Error {
    move |source| Error::Step { step, source: Box::new(source) }
}

/// The message of a panic, whose payload is dropped. Where that panics, the new payload is leaked: it may do the same,
/// and a worker that unwinds would leave its step without an answer.
fn text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a message").to_owned();
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(another);
    }
    text
}
