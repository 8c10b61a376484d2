//! The floor of NVMe/TCP on this machine: two threads exchange the same bytes over loopback,
//! without NVMe.
//!
//! Both sides poll. A turn of the server is one receive and one send with the answers to all that
//! came, three pieces for each: the header of the data, the data, the response. A turn of the
//! client is one send for what was answered and one receive. A command costs as many system calls
//! as it does with the program.
//!
//! As in `nvmirage bench`, times in which the system did not let a thread run are left out.

use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::Case;

/// Bytes of a command capsule without data: its header and the command (TCP 1.1, 3.6.2.4).
const CAPSULE: usize = 8 + 64;
/// Bytes of the header of a C2HData (TCP 1.1, 3.6.2.9).
const DATA_HEADER: usize = 24;
/// Bytes of a response capsule (TCP 1.1, 3.6.2.5).
const RESPONSE: usize = 8 + 16;
/// Pieces of one send at most (`UIO_MAXIOV` of Linux).
const PIECES: usize = 1024;
/// Bytes that one receive takes at most.
const INPUT: usize = 256 << 10;
/// Number of commands whose data lie side by side; later commands use the same places again.
const SLOTS: usize = 64;
/// Bytes that come so long after those before come after a stall of one side.
const STALL: Duration = Duration::from_millis(1);
/// A side that moves nothing for so long has lost the other one.
const SILENT: Duration = Duration::from_secs(5);

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// Commands a second.
    pub(super) rate: f64,
    /// Nanoseconds of the server's turns that found something, for each command.
    pub(super) busy_ns: f64,
}

/// What the server has done.
#[derive(Debug, Default)]
struct Served {
    busy: Duration,
    commands: u64,
}

/// What both threads know.
#[derive(Debug, Default)]
struct Meter {
    /// The server counts.
    counts: AtomicBool,
    over: AtomicBool,
}

/// Measures for so long, with the server on the first processor and the client on the second.
///
/// # Errors
/// There is no such processor or no loopback, or a side stops.
pub(super) fn measure((server, client): (u32, u32), case: Case, seconds: u32) -> Result<Floor> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let meter = Meter::default();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            pin(server)?;
            let (stream, _) = listener.accept()?;
            serve(stream, case, &meter)
        });
        let calling = scope.spawn(|| {
            // Before anything that can fail: the server waits for it.
            let mut stream = TcpStream::connect(address)?;
            pin(client)?;
            let called = call(
                &mut stream,
                case,
                Duration::from_secs(seconds.into()),
                &meter,
            );
            meter.over.store(true, Ordering::Relaxed);
            called
        });
        let called = calling.join().expect("the client does not panic");
        let served = serving.join().expect("the server does not panic");
        let (served, rate) = (served.context("the floor's server")?, called?);
        ensure!(served.commands > 0, "the floor's server has no commands");
        let busy_ns = served.busy.as_nanos() as f64 / served.commands as f64;
        Ok(Floor { rate, busy_ns })
    })
}

fn pin(cpu: u32) -> Result<()> {
    let cpu = usize::try_from(cpu)?;
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot use CPU {cpu}"))
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(())
}

/// Bytes that arrived now; none where there are none.
fn receive(stream: &mut TcpStream, input: &mut [u8]) -> Result<Option<usize>> {
    match stream.read(input) {
        Ok(0) => Ok(Some(0)),
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Answers until the client has gone.
fn serve(mut stream: TcpStream, case: Case, meter: &Meter) -> Result<Served> {
    prepare(&stream)?;
    let (header, response) = ([7; DATA_HEADER], [5; RESPONSE]);
    let data = vec![1; SLOTS * case.len];
    let slots = data.chunks_exact(case.len).cycle();
    let answers: Vec<IoSlice<'_>> = slots
        .take(usize::try_from(case.depth)?)
        .flat_map(|data| [&header[..], data, &response[..]].map(IoSlice::new))
        .collect();
    let mut left: Vec<IoSlice<'_>> = Vec::with_capacity(answers.len());
    let mut input = vec![0; INPUT];
    let mut served = Served::default();
    let (mut have, mut heard) = (0, Instant::now());
    loop {
        let now = Instant::now();
        let received = receive(&mut stream, &mut input);
        if meter.over.load(Ordering::Relaxed) {
            return Ok(served);
        }
        match received? {
            None => {
                ensure!(now - heard < SILENT, "its client stops");
                continue;
            }
            Some(0) => return Ok(served),
            Some(len) => have += len,
        }
        heard = now;
        let commands = have / CAPSULE;
        have %= CAPSULE;
        left.clear();
        left.extend_from_slice(&answers[..3 * commands]);
        if !send(&mut stream, &mut left, meter)? {
            return Ok(served);
        }
        let took = now.elapsed();
        if took < STALL && meter.counts.load(Ordering::Relaxed) {
            served.commands += u64::try_from(commands)?;
            served.busy += took;
        }
    }
}

/// Sends all; false where the client has gone.
fn send(stream: &mut TcpStream, left: &mut [IoSlice<'_>], meter: &Meter) -> Result<bool> {
    let mut left = left;
    while !left.is_empty() {
        match stream.write_vectored(&left[..left.len().min(PIECES)]) {
            Ok(0) => bail!("a send takes nothing"),
            Ok(sent) => IoSlice::advance_slices(&mut left, sent),
            Err(_) if meter.over.load(Ordering::Relaxed) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Sends commands, as many as were answered, and counts answers: their rate.
fn call(stream: &mut TcpStream, case: Case, time: Duration, meter: &Meter) -> Result<f64> {
    prepare(stream)?;
    let answer = DATA_HEADER + case.len + RESPONSE;
    let depth = usize::try_from(case.depth)?;
    let capsules = vec![4; CAPSULE * depth];
    let mut input = vec![0; INPUT];
    // Bytes to send, and bytes of an answer that is not whole.
    let (mut owed, mut have) = (capsules.len(), 0);
    let (mut done, mut stalled) = (0u64, Duration::ZERO);
    let begun = Instant::now();
    let (warm, mut counting) = (begun + time / 10, None);
    let mut heard = begun;
    loop {
        let now = Instant::now();
        if counting.is_none() && now >= warm {
            meter.counts.store(true, Ordering::Relaxed);
            (done, stalled, counting) = (0, Duration::ZERO, Some(now));
        }
        if let Some(since) = counting
            && now - begun > time
        {
            let ran = (now - since).saturating_sub(stalled);
            ensure!(
                !ran.is_zero() && done > 0,
                "the floor did not run: {done} commands, stalls of {stalled:?}"
            );
            return Ok(done as f64 / ran.as_secs_f64());
        }
        if owed > 0 {
            match stream.write(&capsules[..owed]) {
                Ok(sent) => owed -= sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        match receive(stream, &mut input)? {
            Some(0) => bail!("the floor's server has ended"),
            Some(len) => {
                if now - heard > STALL {
                    stalled += now - heard;
                }
                heard = now;
                have += len;
                let answers = have / answer;
                have %= answer;
                done += u64::try_from(answers)?;
                owed += answers * CAPSULE;
            }
            None => ensure!(now - heard < SILENT, "the floor's server stops"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_for_commands() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let cpu = u32::try_from(cpu).unwrap();
        let meter = Meter::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let case = Case { len: 512, depth: 3 };
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                pin(cpu).unwrap();
                serve(listener.accept().unwrap().0, case, &meter).unwrap()
            });
            client.write_all(&[0; 2 * CAPSULE + 1]).unwrap();
            let mut answers = vec![0; 2 * (DATA_HEADER + 512 + RESPONSE)];
            client.read_exact(&mut answers).unwrap();
            assert_eq!(answers[..25], [[7; 24].as_slice(), &[1]].concat());
            assert_eq!(answers[24 + 511..][..2], [1, 5]);
            meter.over.store(true, Ordering::Relaxed);
            assert_eq!(server.join().unwrap().commands, 0, "it was not to count");
        });
    }
}
