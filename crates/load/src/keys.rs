//! Commands on keys: those of `nvmirage kv bench`.

use std::ops::Range;

use anyhow::{anyhow, bail};
use driver::key_value::{Compound, Keys, Rule};
use machine::clock::Clock;
use memory::Buffer;
use nvme_spec::{Status, samsung};

use crate::host::Queue;

/// Fill byte of values.
pub const VALUE_BYTE: u8 = 0x5a;

/// A kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Exist, which ends at the first key that is there.
    Exist,
    /// Store.
    Put,
    /// Retrieve.
    Get,
    /// Delete; a missing key is no error.
    Del,
}

/// Commands of one kind, on every key.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Number of keys.
    pub count: u32,
    /// Bytes of a value.
    pub value_len: u32,
    /// Keys of a command that stores; `None` for a usual one.
    pub compound: Option<u8>,
}

/// Measurements of a job.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Of each command, in nanoseconds.
    pub latencies: Vec<u64>,
    /// Of all of them.
    pub elapsed_ns: u64,
    /// [`Op::Exist`] has found a key.
    pub found: bool,
}

/// The name of a key.
#[must_use]
pub fn bench_key(number: u64) -> String {
    format!("bench-{number:010x}")
}

/// Runs a job on an idle queue, with a buffer for each of its commands.
///
/// # Errors
/// A command failed, or the drive is gone.
pub fn run(
    clock: &Clock,
    (queue, keys, buffers): (&mut Queue, &Keys, &[Buffer]),
    job: &Job,
    op: Op,
) -> anyhow::Result<Done> {
    let now = || clock.now().0;
    let len = job.value_len;
    // Keys per command.
    let each = match op {
        Op::Put => job.compound.unwrap_or(1).into(),
        Op::Exist | Op::Get | Op::Del => 1,
    };
    let commands = job.count.div_ceil(each) as usize;
    let mut latencies = Vec::with_capacity(commands);
    let mut begun = vec![0; buffers.len()];
    let start = now();
    let mut next = 0;
    let mut found = false;
    while latencies.len() < commands && !found {
        while next < job.count && queue.in_flight() < queue.depth() {
            let Some(cid) = queue.next_cid() else {
                break;
            };
            let buffer = &buffers[usize::from(cid)];
            let last = job.count.min(next + each);
            let (mut sqe, moves) = match op {
                Op::Put if job.compound.is_some() => {
                    let compound = compound(next..last, len)?;
                    let bytes = compound.bytes();
                    buffer.write_from(0, &bytes);
                    (keys.compound(&compound), bytes.len())
                }
                Op::Put => (keys.store(&key(next), len, Rule::Any)?, len as usize),
                Op::Get => (keys.retrieve(&key(next), len)?, len as usize),
                Op::Exist => (keys.exist(&key(next))?, 0),
                Op::Del => (keys.delete(&key(next))?, 0),
            };
            if moves > 0 {
                queue.pointer(cid, buffer, 0, moves)?.put(&mut sqe);
            }
            begun[usize::from(cid)] = now();
            let submitted = queue.submit(sqe);
            submitted.map_err(|_| anyhow!("the queue is full"))?;
            next = last;
        }
        queue.ring()?;
        queue.poll()?;
        let ended = now();
        while let Some(cqe) = queue.next_completion() {
            let status = cqe.status.status();
            match op {
                Op::Del => {}
                Op::Exist if status.is_success() => found = true,
                Op::Exist if is_missing(status) => {}
                _ if status.is_success() => {}
                _ => bail!("a command ended with {status}"),
            }
            latencies.push(ended - begun[usize::from(cqe.cid)]);
        }
    }
    Ok(Done {
        latencies,
        elapsed_ns: now() - start,
        found,
    })
}

/// Whether a status means that the key does not exist.
fn is_missing(status: Status) -> bool {
    [
        Status::KV_KEY_DOES_NOT_EXIST,
        samsung::status::KEY_DOES_NOT_EXIST,
    ]
    .contains(&status)
}

fn key(number: u32) -> Vec<u8> {
    bench_key(number.into()).into_bytes()
}

/// Compound command that stores these keys.
fn compound(keys: Range<u32>, len: u32) -> anyhow::Result<Compound> {
    let value = vec![VALUE_BYTE; len as usize];
    let mut compound = Compound::default();
    for number in keys {
        compound.store(&key(number), &value, Rule::Any)?;
    }
    Ok(compound)
}
