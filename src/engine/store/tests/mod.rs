//! The store against a plain model: on real files here, on the simulated disk in `crash`.

mod crash;
mod model;
mod runs;
mod sums;
