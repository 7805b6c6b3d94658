//! An HTTP server on loopback that serves a folder, and misbehaves where it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use std::{fs, io};

/// A request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path, without the slash before it.
    pub name: String,
    pub range: Option<Range<u64>>,
    pub if_match: Option<String>,
    /// How many requests for that object with that method came before.
    pub before: usize,
}

/// What is done with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Right,
    /// Another status, with a body that repeats a secret.
    Status(u16),
    /// Closed without a word.
    Closed,
    /// Closed in the middle of the body.
    Cut,
    /// Nothing comes, and the connection stays open.
    Silent,
    /// The body stops in the middle, and the connection stays open.
    Stuck,
    /// A byte of the body is another one.
    Flipped,
    /// The answer says that it has fewer bytes than were asked for, and has as many as it says.
    Short,
    /// The bytes of another range, which it names.
    Elsewhere,
    /// Other bytes altogether.
    Lying,
    /// The whole object, as if no range were known.
    Whole,
    /// Right, but late.
    Late(Duration),
    /// The bytes of the object with another tag.
    Retagged,
}

type Decide = Box<dyn Fn(&Request) -> Answer + Send + Sync>;

struct Shared {
    folder: PathBuf,
    decide: Mutex<Decide>,
    tags: Mutex<Tags>,
    seen: Mutex<Vec<(Request, u64)>>,
    before: Mutex<BTreeMap<(String, String), usize>>,
    closed: AtomicBool,
}

/// Which tags objects have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    Strong,
    Weak,
    /// None, and no date either.
    Missing,
}

pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Server {
    /// Serves `folder`.
    pub fn new(folder: &Path) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            folder: folder.to_path_buf(),
            decide: Mutex::new(Box::new(|_| Answer::Right)),
            tags: Mutex::new(Tags::Strong),
            seen: Mutex::default(),
            before: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let served = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.closed.load(Ordering::SeqCst) {
                    return;
                }
                let served = served.clone();
                thread::spawn(move || {
                    let _ = serve(&served, stream);
                });
            }
        });
        Server { shared, address }
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// What becomes of requests from now on.
    pub fn answers(&self, decide: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap() = Box::new(decide);
        self.shared.before.lock().unwrap().clear();
    }

    pub fn tags(&self, tags: Tags) {
        *self.shared.tags.lock().unwrap() = tags;
    }

    /// The requests since this was asked last, each with the bytes of its body.
    pub fn seen(&self) -> Vec<(Request, u64)> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    /// Of those, the ones for chunk files' bytes.
    pub fn seen_chunks(&self) -> Vec<(Request, u64)> {
        let is_chunk = |name: &str| {
            let number = name.rsplit('/').next().and_then(|name| name.strip_suffix(".zr"));
            number.is_some_and(|number| number.parse::<u16>().is_ok())
        };
        self.seen().into_iter().filter(|(request, _)| request.method == "GET" && is_chunk(&request.name)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(shared: &Shared, stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    while let Some(mut request) = read_request(&mut input)? {
        {
            let mut before = shared.before.lock().unwrap();
            let count = before.entry((request.method.clone(), request.name.clone())).or_default();
            request.before = *count;
            *count += 1;
        }
        let answer = shared.decide.lock().unwrap()(&request);
        let sent = send(shared, &request, answer, &mut output);
        let bytes = *sent.as_ref().unwrap_or(&0);
        shared.seen.lock().unwrap().push((request, bytes));
        sent?;
    }
    Ok(())
}

fn read_request(input: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned());
    let (mut range, mut if_match, mut length) = (None, None, 0);
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (begin, last) = value.strip_prefix("bytes=").and_then(|value| value.split_once('-')).unwrap();
                range = Some(begin.parse().unwrap()..last.parse::<u64>().unwrap() + 1);
            }
            "if-match" => if_match = Some(value.to_owned()),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    io::copy(&mut input.take(length), &mut io::sink())?;
    Ok(Some(Request { method, name: target.trim_start_matches('/').to_owned(), range, if_match, before: 0 }))
}

/// Sends an answer, and says how many bytes its body had. An error closes the connection.
fn send(shared: &Shared, request: &Request, answer: Answer, output: &mut TcpStream) -> io::Result<u64> {
    let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
    match answer {
        Answer::Closed => {
            output.shutdown(Shutdown::Both)?;
            return Err(closed());
        }
        Answer::Silent => {
            thread::sleep(Duration::from_secs(20));
            return Err(closed());
        }
        Answer::Late(time) => thread::sleep(time),
        Answer::Status(status) => return plain(request, status, "<Code>Odd</Code> the secret is hunter2", output),
        _ => {}
    }
    let path = shared.folder.join(&request.name);
    let Some(found) = fs::metadata(&path).ok().filter(fs::Metadata::is_file) else {
        return plain(request, 404, "", output);
    };
    let (size, modified) = (found.len(), found.modified()?);
    let tag = format!("\"{size:x}-{:?}\"", modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos());
    let retagged = if answer == Answer::Retagged { "\"another\"".to_owned() } else { tag.clone() };
    let (tag, header) = match *shared.tags.lock().unwrap() {
        Tags::Strong => (Some(tag), format!("ETag: {retagged}\r\n")),
        Tags::Weak => (None, format!("ETag: W/{retagged}\r\n")),
        Tags::Missing => (None, String::new()),
    };
    if request.if_match.is_some() && request.if_match != tag {
        return plain(request, 412, "", output);
    }
    let (mut range, status) = match &request.range {
        Some(range) if answer != Answer::Whole => (range.start..range.end.min(size), 206),
        _ => (0..size, 200),
    };
    if range.start >= range.end && size > 0 {
        return plain(request, 416, "", output);
    }
    let read = |range: Range<u64>| -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(&path)?;
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = Vec::new();
        file.take(range.end - range.start).read_to_end(&mut bytes).map(|_| bytes)
    };
    let mut body = if request.method == "HEAD" { Vec::new() } else { read(range.clone())? };
    let length = range.end - range.start;
    let middle = body.len() / 2;
    match answer {
        Answer::Flipped if !body.is_empty() => body[middle] ^= 1,
        Answer::Short if !body.is_empty() => {
            body.truncate(middle);
            range.end = range.start + middle as u64;
        }
        Answer::Elsewhere => {
            let begin = if range.start > 0 { 0 } else { (size - length).min(1) };
            body = read(begin..begin + length)?;
            range = begin..begin + length;
        }
        Answer::Lying => body.reverse(),
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n{header}", range.end - range.start);
    if status == 206 {
        head += &format!("Content-Range: bytes {}-{}/{size}\r\n", range.start, range.end - 1);
    }
    output.write_all((head + "\r\n").as_bytes())?;
    if request.method == "HEAD" {
        return Ok(0);
    }
    match answer {
        Answer::Cut | Answer::Stuck => {
            output.write_all(&body[..middle])?;
            if answer == Answer::Stuck {
                thread::sleep(Duration::from_secs(20));
            }
            output.shutdown(Shutdown::Both)?;
            Err(closed())
        }
        _ => output.write_all(&body).map(|()| body.len() as u64),
    }
}

fn plain(request: &Request, status: u16, body: &str, output: &mut TcpStream) -> io::Result<u64> {
    let body = if request.method == "HEAD" { "" } else { body };
    write!(output, "HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    Ok(0)
}
