//! The promises of the crate, each tried by what breaks it: see docs/guarantees.md.
//!
//! `LOADERX_THOROUGH=1` runs the long forms. What a machine does not allow (mounting a small disk, running Python) is
//! skipped with a printed line.

mod damage;
mod identity;
mod processes;
mod sizes;
mod stress;
mod support;
