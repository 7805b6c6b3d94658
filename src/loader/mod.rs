//! The endless, step-based loader. Imports `data`, `engine::sampler` and `error`, and of the store only the switch that
//! keeps a worker's gather in one piece.

mod access;
mod ahead;
mod builder;
mod context;
mod corrupt;
mod datasets;
mod epoch;
mod explain;
mod format;
#[allow(clippy::module_inception)]
mod loader;
mod metrics;
mod mixture;
mod named;
mod pass;
mod pipeline;
mod plan;
mod prefetch;
mod state;
mod stream;
mod subset;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use access::{Access, AccessPlan, Fetched};
pub use builder::DataLoaderBuilder;
pub use context::StepContext;
pub use corrupt::OnCorrupt;
pub use epoch::Epoch;
pub use explain::{Drawn, Explanation};
pub use format::{Adapter, Format, Native};
pub use loader::DataLoader;
pub use metrics::Metrics;
pub use mixture::{Interleave, Mixture};
pub use named::{NamedBatch, NamedStreams};
pub use pass::Pass;
pub use state::LoaderState;
pub use stream::{Stream, StreamPart};
pub use subset::Subset;
