//! How a store in object storage is read.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

/// The least and the largest block, in bytes.
const BLOCK_BYTES: (u64, u64) = (64 << 10, 64 << 20);

/// How a store in object storage is read: where its blocks are kept on the local disk, and how they are fetched.
///
/// Credentials are not among the options. They come from the environment, under the names that the providers' own tools use:
/// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL` and the others that the
/// crate `object_store` reads, and `AZURE_…` and `GOOGLE_…` of theirs; on the providers' machines, from their metadata
/// services.
///
/// ```
/// use loaderx::{DenseDataset, RemoteOptions};
///
/// # fn open() -> loaderx::Result<()> {
/// let remote = RemoteOptions::new().cache("/mnt/nvme/loaderx").capacity(200 << 30);
/// let images = DenseDataset::<u8, [usize; 2]>::options().remote(remote).open("s3://bucket/images")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    cache: Option<PathBuf>,
    pub(super) capacity: u64,
    pub(super) block_bytes: u64,
    pub(super) requests: usize,
    pub(super) timeout: Duration,
    /// Whether it is written to.
    pub(super) sends: bool,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        RemoteOptions {
            cache: None,
            capacity: 16 << 30,
            block_bytes: 1 << 20,
            requests: 16,
            timeout: Duration::from_secs(60),
            sends: false,
        }
    }
}

impl RemoteOptions {
    /// The defaults: a cache of 16 GiB in blocks of 1 MiB, 16 requests at a time, each done within 60 seconds and those that its bytes take.
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder of the cache, which is made where it is not there. Processes of one host share it, and it stays for the
    /// next run. `$LOADERX_CACHE` unless set; else `loaderx` in the user's folder of caches.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// How many bytes the cache may hold. Blocks that were not used for longest go first. The record table and the
    /// checksums of an open store are among them.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// How many bytes are fetched and kept together: a power of two from 64 KiB to 64 MiB. Small blocks waste less on a full
    /// shuffle, large ones need fewer requests. A request brings several that lie side by side.
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// How many requests are under way at a time, at least 1.
    pub fn requests(mut self, requests: usize) -> Self {
        self.requests = requests;
        self
    }

    /// After how long a request is given up, all its tries together: one that moves bytes has a second more for each 64 KiB.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many requests are under way at a time.
    pub(crate) fn at_once(&self) -> usize {
        self.requests
    }

    /// For a place that is written to.
    pub(crate) fn sending(mut self) -> Self {
        self.sends = true;
        self
    }

    /// Refuses what cannot be done.
    pub(super) fn check(&self) -> Result<()> {
        let (least, most) = BLOCK_BYTES;
        if !self.block_bytes.is_power_of_two() || !(least..=most).contains(&self.block_bytes) {
            let reason = format!("{} is no power of two from 64 KiB to 64 MiB", self.block_bytes);
            return Err(Error::invalid("block_bytes", reason));
        }
        if self.capacity < 4 * self.block_bytes {
            let reason = format!("{} bytes do not hold 4 blocks of {}", self.capacity, self.block_bytes);
            return Err(Error::invalid("capacity", reason));
        }
        if self.requests == 0 {
            return Err(Error::invalid("requests", "with 0 at a time nothing is fetched: at least 1"));
        }
        if self.timeout.is_zero() {
            return Err(Error::invalid("timeout", "no request is done within 0 seconds"));
        }
        Ok(())
    }

    /// The folder of the cache.
    pub(super) fn folder(&self) -> PathBuf {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let users = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let default = || users().unwrap_or_else(env::temp_dir).join("loaderx");
        self.cache.clone().or_else(|| set("LOADERX_CACHE")).unwrap_or_else(default)
    }
}
