//! Stores in object storage, read through a cache on the local disk. The only asynchronous code of the crate; it runs on
//! threads of its own.

mod blocks;
mod bucket;
mod cache;
mod disk;
mod manifest;
mod options;
mod runtime;

#[cfg(test)]
pub(crate) use bucket::Fault;
pub(crate) use bucket::{Bucket, Held, Put, Version};
#[cfg(test)]
pub(crate) use disk::open_in;
pub(crate) use disk::{RemoteDisk, RemoteFile, open};
pub(crate) use manifest::{PUBLISHED, PUBLISHING, Published, PublishedObject, SEAL, seal};
#[cfg(test)]
pub(crate) use object_store::memory::InMemory;
pub use options::RemoteOptions;
pub(crate) use runtime::{wait, wait_with};
