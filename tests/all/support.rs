//! What the tests share: a scratch directory, numbers from a seed, a watchdog, child processes, a small disk.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use loaderx::{Records, Store};

/// Whether the long form is asked for.
pub fn thorough() -> bool {
    std::env::var_os("LOADERX_THOROUGH").is_some_and(|value| value != "0")
}

/// A directory in memory where there is one: these tests are about processes and damage, not about power failures, and
/// need not wait for a disk.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(dir) = tempfile::tempdir_in(memory)
    {
        return dir;
    }
    tempfile::tempdir().unwrap()
}

/// Numbers that depend on a seed alone.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// Bytes that zstd makes smaller.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        let words = [&b"alpha "[..], b"beta ", b"gamma ", b"delta delta ", b"epsilon "];
        let mut bytes = Vec::with_capacity(len + 16);
        while bytes.len() < len {
            bytes.extend_from_slice(words[self.below(5) as usize]);
        }
        bytes.truncate(len);
        bytes
    }
}

/// Records as `append` takes them.
pub fn pack<R: AsRef<[u8]>>(records: &[R]) -> Records {
    let mut packed = Records { bytes: Vec::new(), offsets: vec![0] };
    for record in records {
        packed.bytes.extend_from_slice(record.as_ref());
        packed.offsets.push(packed.bytes.len() as u64);
    }
    packed
}

pub fn append<R: AsRef<[u8]>>(store: &Store, records: &[R]) -> loaderx::Result<u64> {
    let packed = pack(records);
    store.append(&packed.bytes, &packed.offsets)
}

/// Every record of a store, in order.
pub fn contents(store: &Store) -> loaderx::Result<Vec<Vec<u8>>> {
    let indices: Vec<u64> = (0..store.len()).collect();
    let records = store.gather(&indices)?;
    Ok((0..indices.len()).map(|i| records.get(i).unwrap().to_vec()).collect())
}

/// Equal records, or a failure that names the first one that differs.
pub fn assert_same(found: &[Vec<u8>], wanted: &[Vec<u8>], what: &str) {
    let differs = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    assert!(differs.is_none(), "{what}: record {} differs", differs.unwrap_or_default());
    assert_eq!(found.len(), wanted.len(), "{what}: the number of records");
}

/// Ends the process, loudly, where the test does not end in time.
pub struct Watchdog(#[expect(dead_code, reason = "its drop tells the thread")] Sender<()>);

impl Watchdog {
    pub fn new(what: &'static str, seconds: u64) -> Watchdog {
        let (alive, ended) = channel::<()>();
        thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(seconds)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // Not through the captured output, which is lost with the process.
                let _ = writeln!(std::io::stderr(), "{what} hangs: it did not end in {seconds} s");
                std::process::abort();
            }
        });
        Watchdog(alive)
    }
}

/// What marks a line of a child's protocol, since the test harness prints too.
const MARK: &str = "@@";

/// Says a line to the parent, at once.
pub fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let line = format!("\n{MARK}{line}\n");
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
}

/// A child process: this test binary again, running one ignored test as its entry.
pub struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    /// `limit` is a shell command that runs before, such as `ulimit -n 64`.
    pub fn start(entry: &str, variables: &[(&str, String)], limit: Option<&str>) -> Process {
        let test = std::env::current_exe().unwrap();
        let arguments = [entry, "--exact", "--ignored", "--nocapture", "--test-threads=1"];
        let mut command = match limit {
            None => Command::new(test),
            Some(limit) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]).arg(test);
                command
            }
        };
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.env("LOADERX_CHILD", entry).env_remove("RUST_BACKTRACE");
        for (name, value) in variables {
            command.env(name, value);
        }
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Process { child, out }
    }

    /// The next line of the protocol; `None` at its end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            // A line that was cut off by a kill has not been said.
            if self.out.read_line(&mut line).ok()? == 0 || !line.ends_with('\n') {
                return None;
            }
            if let Some(said) = line.trim_end().strip_prefix(MARK) {
                return Some(said.to_owned());
            }
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// The lines that are left, and whether the child ended well.
    pub fn finish(mut self) -> (Vec<String>, bool) {
        let lines: Vec<String> = std::iter::from_fn(|| self.line()).collect();
        (lines, self.child.wait().unwrap().success())
    }
}

/// The variable of a child's entry; `None` where the entry is run as a test, which does nothing.
pub fn given(entry: &str, name: &str) -> Option<String> {
    if std::env::var("LOADERX_CHILD").as_deref() != Ok(entry) {
        return None;
    }
    Some(std::env::var(name).unwrap_or_else(|_| panic!("{entry} needs {name}")))
}

/// A disk of its own, in memory; unmounted when dropped.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, with a printed line, where this process may not mount.
    pub fn mount(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk { dir });
        }
        println!("skipped: this machine mounts no tmpfs");
        None
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn remount(&self, options: &str) -> bool {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Sets the header's tail and length, as another program would, between opens.
pub fn set_header(store: &Path, tail_chunk: u16, tail_offset: u32, length: u32) {
    let mut header = b"ZREC\x03\x00".to_vec();
    header.extend_from_slice(&tail_chunk.to_le_bytes());
    header.extend_from_slice(&tail_offset.to_le_bytes());
    header.extend_from_slice(&length.to_le_bytes());
    write_at(&store.join("meta.zr"), 0, &header);
}

/// The header's tail chunk, tail offset and length.
pub fn header(store: &Path) -> (u16, u32, u32) {
    let bytes = read_at(&store.join("meta.zr"), 0, 16);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    (u16::from_le_bytes([bytes[6], bytes[7]]), word(8), word(12))
}

pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    use std::io::{Seek, SeekFrom};
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

pub fn read_at(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    let mut bytes = vec![0; len];
    file.read_exact(&mut bytes).unwrap();
    bytes
}

/// Copies a store's files; of meta.zr the used part, the rest is a hole again.
pub fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for (name, bytes, len) in files(from) {
        let path = to.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
    }
}

/// A store's files: name, bytes (of meta.zr the used part and some), length.
pub fn files(store: &Path) -> Vec<(PathBuf, Vec<u8>, u64)> {
    let used = 16 + (u64::from(header(store).2) + 64) * 16;
    let mut files: Vec<_> = std::fs::read_dir(store)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let (name, len) = (PathBuf::from(entry.file_name()), entry.metadata().unwrap().len());
            let read = if name == Path::new("meta.zr") { len.min(used) } else { len };
            (name, read_at(&entry.path(), 0, read as usize), len)
        })
        .collect();
    files.sort();
    files
}
