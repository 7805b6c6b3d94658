//! A folder in object storage: the objects below one URL.

use std::env;
use std::error::Error as StdError;
use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig, UpdateVersion, WriteMultipart,
};
use url::Url;
use xxhash_rust::xxh3::Xxh3;

use super::manifest::hash;
use super::options::RemoteOptions;
use super::runtime::choose_provider;
use crate::error::{Error, Result};

/// How often the whole of a request is tried, where what came was cut off. The client tries by itself again where a server
/// fails.
const TRIES: u32 = 3;
/// An object above this size is put in parts of it: small enough to go out within the time of a request on a slow line.
const PART: u64 = 8 << 20;
/// The most parts that providers take, nearly.
const MOST_PARTS: u64 = 9000;
/// How many parts go out at a time.
const PARTS_AT_ONCE: usize = 4;
/// Bytes a second that a request may take its time for.
const SLOW: u64 = 64 << 10;
/// How often the client tries again.
const RETRIES: usize = 5;

/// A folder in object storage.
#[derive(Debug)]
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    /// As it is shown: without what could be a secret.
    url: String,
    timeout: Duration,
    #[cfg(test)]
    fault: Fault,
}

/// Is asked before and after each change, and says whether it fails.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Fault(pub(crate) Arc<dyn Fn() -> bool + Send + Sync>);

#[cfg(test)]
impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fault")
    }
}

/// Which of an object's versions is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) size: u64,
    pub(crate) tag: Option<String>,
    /// Where a server gives no tag, when the object was changed, in milliseconds; 0 where it does not say.
    pub(crate) modified: i64,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Version {
        let modified = meta.last_modified.timestamp_millis();
        Version { size: meta.size, tag: meta.e_tag.clone(), modified: if meta.e_tag.is_some() { 0 } else { modified } }
    }

    /// Whether another version could be told from this one.
    pub(super) fn is_certain(&self) -> bool {
        self.tag.is_some() || self.modified != 0
    }

    /// The tag, where a server can be asked to hold to it: weak ones never match.
    fn strong(&self) -> Option<String> {
        self.tag.clone().filter(|tag| !tag.starts_with("W/"))
    }
}

/// A version that is to be replaced, as the provider calls it: GCS by another name than the tag.
#[derive(Debug, Clone)]
pub(crate) struct Held(UpdateVersion);

impl Held {
    /// A version that nothing has.
    pub(crate) fn nothing() -> Held {
        Held(UpdateVersion { e_tag: Some(format!("\"{:032x}\"", 0)), version: Some("1".into()) })
    }
}

/// How an object is put.
#[derive(Debug, Clone)]
pub(crate) enum Put {
    /// Over what may be there.
    Over,
    /// Only where nothing is.
    New,
    /// Only over that version.
    Instead(Held),
}

impl Bucket {
    /// The folder at a URL; nothing is asked of it yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that is none, or of another kind, or that carries a secret.
    pub(crate) fn new(url: &str, options: &RemoteOptions) -> Result<Bucket> {
        options.check()?;
        // What is refused is not repeated: it may be a secret.
        let invalid = |reason: String| Error::invalid("url", reason);
        let parsed = Url::parse(url).map_err(|e| invalid(format!("it is no URL: {e}")))?;
        // Azure's abfss://container@account has no user.
        let user = !parsed.username().is_empty() && !parsed.scheme().starts_with("abfs");
        if user || parsed.password().is_some() || parsed.query().is_some() || parsed.fragment().is_some() {
            let reason =
                "it carries a user, a query or a fragment, where secrets may be: credentials come from the environment";
            return Err(invalid(reason.into()));
        }
        let shown = url.trim_end_matches('/').to_owned();
        choose_provider();
        let root = &parsed[..url::Position::BeforePath];
        let mut path = parsed.path();
        let built = |built: object_store::Result<Arc<dyn ObjectStore>>| {
            built.map_err(|e| Error::io("open", &PathBuf::from(&shown))(told(&e, None)))
        };
        let store = match parsed.scheme() {
            "s3" | "s3a" => built(amazon(root, options).build().map(|store| Arc::new(store) as _))?,
            "gs" => built(google(root, options).build().map(|store| Arc::new(store) as _))?,
            "az" | "azure" | "abfs" | "abfss" => built(azure(root, options).build().map(|store| Arc::new(store) as _))?,
            "http" | "https" => {
                let client = client(options).with_allow_http(parsed.scheme() == "http");
                let http = HttpBuilder::new().with_url(root).with_client_options(client).with_retry(retries(options));
                built(http.build().map(|store| Arc::new(store) as _))?
            }
            "file" => {
                return Err(invalid("it names a folder of this machine: copy the store there or from there".into()));
            }
            other => {
                let reason = format!("{other}:// is not known: s3://, gs://, az://, http:// and https:// are");
                return Err(invalid(reason));
            }
        };
        path = path.trim_matches('/');
        let folder = Path::from_url_path(path).map_err(|e| invalid(e.to_string()))?;
        Ok(Bucket {
            store,
            folder,
            url: shown,
            timeout: options.timeout,
            #[cfg(test)]
            fault: Fault(Arc::new(|| false)),
        })
    }

    /// A folder of that store, which errors call `url`.
    #[cfg(test)]
    pub(crate) fn of(store: Arc<dyn ObjectStore>, url: &str, fault: Fault) -> Bucket {
        Bucket { store, folder: Path::from("folder"), url: url.into(), timeout: Duration::from_secs(20), fault }
    }

    #[cfg(test)]
    fn fails(&self) -> io::Result<()> {
        if (self.fault.0)() { Err(io::Error::other("a fault of the test")) } else { Ok(()) }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests make it fail")]
    fn fails(&self) -> io::Result<()> {
        Ok(())
    }

    /// The URL, as errors show it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What tells the folder from those of other servers.
    pub(super) fn address(&self) -> String {
        let servers =
            ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT"].map(env::var);
        format!("{} {}", self.url, servers.into_iter().filter_map(Result::ok).collect::<Vec<_>>().join(" "))
    }

    /// The same, as a publisher notes it.
    pub(super) fn place(&self) -> String {
        hash(self.address().as_bytes())
    }

    fn path(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    /// The version of an object that is there now; `None` where there is none.
    pub(crate) async fn head(&self, name: &str) -> io::Result<Option<Version>> {
        let path = self.path(name);
        match self.within(None, async { self.store.head(&path).await }).await {
            Ok(meta) => Ok(Some(Version::of(&meta))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The bytes of a range of that version of an object: all of them, or an error.
    pub(crate) async fn get(&self, name: &str, range: Range<u64>, version: &Version) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        self.get_into(name, range, version, |piece| bytes.extend_from_slice(piece)).await?;
        Ok(bytes)
    }

    /// The same a piece at a time, in order. What was cut off is asked for from there on.
    pub(super) async fn get_into(
        &self,
        name: &str,
        range: Range<u64>,
        version: &Version,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let get = async {
            let (mut left, mut tried) = (range.clone(), 0);
            while let Err(e) = self.try_get(name, &mut left, version, &mut take).await {
                tried += 1;
                if tried == TRIES || told(&e, None).kind() != ErrorKind::UnexpectedEof {
                    return Err(e);
                }
                tokio::time::sleep(Duration::from_millis(100) * tried).await;
            }
            Ok(())
        };
        self.within(Some(&range), get).await
    }

    /// Takes what comes off the begin of `left`.
    async fn try_get(
        &self,
        name: &str,
        left: &mut Range<u64>,
        version: &Version,
        take: &mut impl FnMut(&[u8]),
    ) -> object_store::Result<()> {
        let whole = *left == (0..version.size);
        let asked = GetOptions {
            if_match: version.strong(),
            // A server that knows no ranges can still give the whole.
            range: (!whole).then(|| GetRange::Bounded(left.clone())),
            ..GetOptions::default()
        };
        let generic = |reason: String| object_store::Error::Generic { store: "answer", source: reason.into() };
        let got = self.store.get_opts(&self.path(name), asked).await?;
        let found = Version::of(&got.meta);
        if found != *version {
            let reason = format!("{} bytes, tag {}", found.size, found.tag.as_deref().unwrap_or("none"));
            return Err(object_store::Error::Precondition { path: name.into(), source: reason.into() });
        }
        if got.range != *left {
            return Err(generic(format!("the server gave bytes {}..{}", got.range.start, got.range.end)));
        }
        let mut body = got.into_stream();
        while let Some(piece) = body.next().await {
            let piece = piece?;
            if piece.len() as u64 > left.end - left.start {
                return Err(generic(format!("the server gave more than was asked for, {} bytes", left.end)));
            }
            take(&piece);
            left.start += piece.len() as u64;
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(generic(format!("the server gave nothing from byte {} on", left.start)))
        }
    }

    /// All bytes of a small object, and which version they are; `None` where there is none.
    pub(crate) async fn read(&self, name: &str, limit: u64) -> io::Result<Option<(Vec<u8>, Held)>> {
        let path = self.path(name);
        let read = async {
            let got = self.store.get_opts(&path, GetOptions::default()).await?;
            let held = Held(UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() });
            let bytes = if got.meta.size > limit { None } else { Some(got.bytes().await?) };
            Ok((bytes, held))
        };
        match self.moving(limit, None, read).await {
            Ok((Some(bytes), held)) => Ok(Some((bytes.to_vec(), held))),
            Ok((None, _)) => Err(io::Error::new(ErrorKind::InvalidData, format!("it has more than {limit} bytes"))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Puts a small object.
    pub(crate) async fn put(&self, name: &str, bytes: Vec<u8>, how: Put) -> io::Result<Held> {
        self.fails()?;
        let path = self.path(name);
        let size = bytes.len() as u64;
        let mode = match how {
            Put::Over => PutMode::Overwrite,
            Put::New => PutMode::Create,
            Put::Instead(Held(version)) => PutMode::Update(version),
        };
        let put = async { self.store.put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode)).await };
        let put = self.moving(size, None, put).await?;
        self.fails()?;
        Ok(Held(put.into()))
    }

    /// Puts the first `size` bytes of a file, over what may be there, and gives their XXH3-128. The object is there when all
    /// of it has come, and not before. `sent` grows by the bytes that went out; when `stop` becomes true, it ends soon.
    pub(crate) async fn put_file(
        &self,
        name: &str,
        mut file: File,
        size: u64,
        (sent, stop): (&AtomicU64, &AtomicBool),
    ) -> io::Result<u128> {
        let part = PART.max(size.div_ceil(MOST_PARTS).next_multiple_of(1 << 20)) as usize;
        let mut hash = Xxh3::new();
        if size <= PART {
            let mut bytes = vec![0; size as usize];
            file.read_exact(&mut bytes)?;
            hash.update(&bytes);
            self.put(name, bytes, Put::Over).await?;
            sent.fetch_add(size, Ordering::Relaxed);
            return Ok(hash.digest128());
        }
        self.fails()?;
        let path = self.path(name);
        let upload = self.within(None, async { self.store.put_multipart(&path).await }).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, part);
        let mut left = size;
        let written: io::Result<()> = async {
            while left > 0 {
                if stop.load(Ordering::Relaxed) {
                    return Err(ErrorKind::Interrupted.into());
                }
                let mut bytes = vec![0; left.min(part as u64) as usize];
                file.read_exact(&mut bytes)?;
                hash.update(&bytes);
                let waiting = part as u64 * PARTS_AT_ONCE as u64;
                self.moving(waiting, None, upload.wait_for_capacity(PARTS_AT_ONCE)).await?;
                left -= bytes.len() as u64;
                sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                upload.put(bytes.into());
            }
            Ok(())
        }
        .await;
        match written {
            Ok(()) => {
                self.moving(part as u64 * PARTS_AT_ONCE as u64, None, upload.finish()).await?;
                self.fails()?;
            }
            Err(e) => {
                // What cannot be taken back is for the provider's own clearing of parts.
                let _ = self.within(None, upload.abort()).await;
                return Err(e);
            }
        }
        Ok(hash.digest128())
    }

    /// Removes an object, if it is there.
    pub(crate) async fn delete(&self, name: &str) -> io::Result<()> {
        self.fails()?;
        let path = self.path(name);
        match self.within(None, async { self.store.delete(&path).await }).await {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            done => done.and_then(|()| self.fails()),
        }
    }

    /// Waits for `work`, but not for ever.
    async fn within<T>(
        &self,
        range: Option<&Range<u64>>,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> io::Result<T> {
        let bytes = range.map_or(0, |range| range.end - range.start);
        self.moving(bytes, range, work).await
    }

    /// Waits for `work`, which moves so many bytes: for as long as a slow line takes, but not for ever.
    async fn moving<T>(
        &self,
        bytes: u64,
        range: Option<&Range<u64>>,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> io::Result<T> {
        let limit = self.timeout + Duration::from_secs(bytes / SLOW);
        match tokio::time::timeout(limit, work).await {
            Ok(done) => done.map_err(|e| told(&e, range)),
            Err(_) => Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("{}no whole answer came within {limit:?}", in_range(range)),
            )),
        }
    }
}

fn client(options: &RemoteOptions) -> ClientOptions {
    // So that there is time to ask again. How long all may take is for `within`.
    let part = options.timeout / 8;
    let client = ClientOptions::new().with_timeout_disabled().with_connect_timeout(part.min(Duration::from_secs(5)));
    // Nothing is read while a part is sent, which takes as long as the line is slow.
    let client = if options.sends { client } else { client.with_read_timeout(part.min(Duration::from_secs(10))) };
    client.with_pool_max_idle_per_host(options.requests)
}

fn retries(options: &RemoteOptions) -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: options.timeout * 3 / 4 }
}

/// The environment's variables whose names begin with `prefix`, in lower case.
fn set(prefix: &'static str) -> impl Iterator<Item = (String, String)> {
    let variables =
        env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(move |(name, _)| name.starts_with(prefix)).map(|(name, value)| (name.to_ascii_lowercase(), value))
}

fn amazon(root: &str, options: &RemoteOptions) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new().with_client_options(client(options)).with_retry(retries(options));
    for (name, value) in set("AWS_") {
        if name.starts_with("aws_endpoint") && value.starts_with("http://") {
            builder = builder.with_allow_http(true);
        }
        if let Ok(key) = name.parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    builder.with_url(root)
}

fn google(root: &str, options: &RemoteOptions) -> GoogleCloudStorageBuilder {
    let builder = GoogleCloudStorageBuilder::new().with_client_options(client(options)).with_retry(retries(options));
    let builder = match env::var("SERVICE_ACCOUNT") {
        Ok(path) => builder.with_service_account_path(path),
        Err(_) => builder,
    };
    let set = set("GOOGLE_").filter_map(|(name, value)| Some((name.parse::<GoogleConfigKey>().ok()?, value)));
    set.fold(builder, |builder, (key, value)| builder.with_config(key, value)).with_url(root)
}

fn azure(root: &str, options: &RemoteOptions) -> MicrosoftAzureBuilder {
    let builder = MicrosoftAzureBuilder::new().with_client_options(client(options)).with_retry(retries(options));
    let set = set("AZURE_").filter_map(|(name, value)| Some((name.parse::<AzureConfigKey>().ok()?, value)));
    set.fold(builder, |builder, (key, value)| builder.with_config(key, value)).with_url(root)
}

fn in_range(range: Option<&Range<u64>>) -> String {
    range.map_or(String::new(), |range| format!("bytes {}..{}: ", range.start, range.end))
}

/// What went wrong, in words. The client's own text is not repeated: it has URLs, and what the server said, and so may have
/// secrets.
fn told(error: &object_store::Error, range: Option<&Range<u64>>) -> io::Error {
    use object_store::Error as E;
    let text = error.to_string();
    let status = text
        .split("status code: ")
        .nth(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let code = text.split("<Code>").nth(1).and_then(|rest| rest.split("</Code>").next());
    let code = code.filter(|code| code.len() < 64 && code.chars().all(|c| c.is_ascii_alphanumeric()));
    let status = status.filter(|status| status.len() == 3);
    let said = match (&status, code) {
        (Some(status), Some(code)) => format!(" ({status} {code})"),
        (Some(status), None) => format!(" ({status})"),
        (None, Some(code)) => format!(" ({code})"),
        (None, None) => String::new(),
    };
    let (kind, reason) = match error {
        E::NotFound { .. } => (ErrorKind::NotFound, format!("there is no such object{said}")),
        E::AlreadyExists { .. } => (ErrorKind::AlreadyExists, format!("it is there already{said}")),
        E::Precondition { .. } | E::NotModified { .. } => (
            ErrorKind::StaleNetworkFileHandle,
            format!("it is another one than before, and was replaced{said}: open it again"),
        ),
        E::PermissionDenied { .. } => {
            (ErrorKind::PermissionDenied, format!("the server refuses{said}: see the credentials in the environment"))
        }
        E::Unauthenticated { .. } => {
            (ErrorKind::PermissionDenied, format!("the server asks for credentials{said}: set them in the environment"))
        }
        E::NotSupported { .. } if text.contains("Range request") => (
            ErrorKind::Unsupported,
            "the server sends whole objects alone, and no ranges of bytes: use one that does".into(),
        ),
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Unsupported, format!("the server does not know how to do that: {}", root_cause(error)))
        }
        _ => match status.as_deref() {
            Some("401" | "403") => (
                ErrorKind::PermissionDenied,
                format!("the server refuses{said}: see the credentials in the environment"),
            ),
            Some("416") => (ErrorKind::InvalidData, format!("the server has no such range{said}")),
            Some(_) => (ErrorKind::Other, format!("the server fails{said}, also when it is asked again")),
            None if text.contains("timed out") || text.contains("timeout") => {
                (ErrorKind::TimedOut, "the server does not answer in time".into())
            }
            None => (ErrorKind::UnexpectedEof, root_cause(error)),
        },
    };
    io::Error::new(kind, format!("{}{reason}", in_range(range)))
}

/// The words of the innermost error, without what may be a URL's query.
fn root_cause(error: &object_store::Error) -> String {
    let mut cause: &dyn StdError = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    let words =
        text.split_whitespace().filter(|word| !word.contains("://") && !word.contains('?') && !word.contains('='));
    words.take(40).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use object_store::StaticCredentialProvider;
    use object_store::gcp::GcpCredential;

    use super::*;
    use crate::engine::remote::wait;

    /// The URL of a server that reads each request whole, and answers what `answer` says to its head.
    fn server(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answer) = (stream.unwrap(), answer.clone());
                thread::spawn(move || {
                    let mut input = BufReader::new(stream.try_clone().unwrap());
                    loop {
                        let mut head = String::new();
                        while !head.ends_with("\r\n\r\n") {
                            if input.read_line(&mut head).unwrap_or(0) == 0 {
                                return;
                            }
                        }
                        let head = head.to_ascii_lowercase();
                        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                        let length = length.map_or(0, |length| length.parse().unwrap());
                        io::copy(&mut (&mut input).take(length), &mut io::sink()).unwrap();
                        stream.write_all(answer(&head).as_bytes()).unwrap();
                    }
                });
            }
        });
        url
    }

    #[test]
    fn a_put_that_takes_longer_than_another_request_may_is_not_cut_off() {
        let url = server(|head| {
            let slow = head.starts_with("put") && head.contains("content-length: 4194304");
            thread::sleep(Duration::from_millis(if slow { 1200 } else { 0 }));
            "HTTP/1.1 201 Created\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n".into()
        });
        // A request that sends nothing is given up after half of that.
        let options = RemoteOptions::new().timeout(Duration::from_secs(1));
        let bucket = Bucket::new(&format!("{url}/folder"), &options.sending()).unwrap();
        let put = async move { bucket.put("a", vec![0; 4 << 20], Put::Over).await.map(drop) };
        wait(put).unwrap().unwrap();
    }

    #[test]
    fn a_version_that_is_replaced_is_named_as_its_provider_names_it() {
        let url = server(|head| {
            let replaces = head.contains("x-goog-if-generation-match: 7\r\n");
            let status =
                if replaces || head.contains("x-goog-if-generation-match: 0\r\n") { "200 OK" } else { "412 No" };
            let is_get = head.starts_with("get");
            let (status, body) = if is_get { ("200 OK", "it") } else { (status, "") };
            let length = body.len();
            format!(
                "HTTP/1.1 {status}\r\netag: \"a\"\r\nlast-modified: Mon, 30 Nov 2026 07:00:00 GMT\r\nx-goog-generation: 7\r\ncontent-length: {length}\r\n\r\n{body}"
            )
        });
        let options = RemoteOptions::new();
        let store = GoogleCloudStorageBuilder::new()
            .with_bucket_name("bucket")
            .with_base_url(&url)
            .with_credentials(Arc::new(StaticCredentialProvider::new(GcpCredential { bearer: "test".into() })))
            .with_client_options(client(&options).with_allow_http(true));
        let bucket = Bucket::of(Arc::new(store.build().unwrap()), &url, Fault(Arc::new(|| false)));
        let replace = async move {
            let held = bucket.put("a", vec![1], Put::New).await?;
            bucket.put("a", vec![2], Put::Instead(held)).await?;
            let (bytes, held) = bucket.read("a", 2).await?.unwrap();
            assert_eq!(bytes, b"it");
            bucket.put("a", vec![3], Put::Instead(held)).await?;
            assert_eq!(bucket.read("a", 1).await.unwrap_err().kind(), ErrorKind::InvalidData);
            io::Result::Ok(())
        };
        wait(replace).unwrap().unwrap();
    }
}
