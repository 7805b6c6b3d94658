//! Files and iterators into stores, and stores into files. Imports `data` and `error`, and the format crates.
