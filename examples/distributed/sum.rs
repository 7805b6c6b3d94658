//! Sums what the ranks computed: all send to rank 0, which answers with the sum. Nobody waits for ever.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Result;

/// How long a rank waits for the others.
const PATIENCE: Duration = Duration::from_secs(60);

/// The connections of one rank.
pub enum Ranks {
    /// Rank 0, and those to the others in their order.
    First(Vec<TcpStream>),
    Other(TcpStream),
}

impl Ranks {
    /// Meets the others where `MASTER_ADDR` and `MASTER_PORT` say, as torchrun sets them; else on this machine.
    pub fn join(rank: u64, world: u64) -> Result<Ranks> {
        let set = |name, default: &str| std::env::var(name).unwrap_or(default.into());
        let address = format!("{}:{}", set("MASTER_ADDR", "127.0.0.1"), set("MASTER_PORT", "29511"));
        if rank > 0 {
            let begin = Instant::now();
            loop {
                match TcpStream::connect(&address) {
                    Ok(mut stream) => {
                        prepare(&stream)?;
                        stream.write_all(&rank.to_le_bytes())?;
                        return Ok(Ranks::Other(stream));
                    }
                    Err(_) if begin.elapsed() < PATIENCE => sleep(Duration::from_millis(20)),
                    Err(error) => return Err(format!("rank 0 is not at {address}: {error}").into()),
                }
            }
        }
        if world == 1 {
            return Ok(Ranks::First(Vec::new()));
        }
        let listener = TcpListener::bind(&address)?;
        listener.set_nonblocking(true)?;
        let mut streams = Vec::new();
        let begin = Instant::now();
        while streams.len() as u64 + 1 < world {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false)?;
                    prepare(&stream)?;
                    let mut rank = [0; 8];
                    stream.read_exact(&mut rank)?;
                    streams.push((u64::from_le_bytes(rank), stream));
                }
                Err(_) if begin.elapsed() < PATIENCE => sleep(Duration::from_millis(5)),
                Err(_) => {
                    return Err(format!("{} of {} ranks did not come", world - 1 - streams.len() as u64, world).into());
                }
            }
        }
        streams.sort_by_key(|(rank, _)| *rank);
        Ok(Ranks::First(streams.into_iter().map(|(_, stream)| stream).collect()))
    }

    /// The sum of all ranks' parts, in the order of the ranks and of their parts.
    pub fn sum(&mut self, parts: Vec<Vec<f32>>) -> Result<Vec<f32>> {
        let (count, len) = (parts.len(), parts[0].len());
        let lost = |error: std::io::Error| format!("another rank is gone: {error}");
        match self {
            Ranks::Other(stream) => {
                stream.write_all(&bytes(&parts.concat())).map_err(lost)?;
                floats(stream, len).map_err(|error| lost(error).into())
            }
            Ranks::First(streams) => {
                let mut sum = vec![0.0; len];
                let mut add = |part: &[f32]| sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
                parts.iter().for_each(|part| add(part));
                for stream in streams.iter_mut() {
                    floats(stream, count * len).map_err(lost)?.chunks(len).for_each(&mut add);
                }
                for stream in streams {
                    stream.write_all(&bytes(&sum)).map_err(lost)?;
                }
                Ok(sum)
            }
        }
    }
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream.set_write_timeout(Some(PATIENCE))?)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(stream: &mut TcpStream, count: usize) -> std::io::Result<Vec<f32>> {
    let mut bytes = vec![0; count * 4];
    stream.read_exact(&mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
}
