//! `nvmirage kv bench`: measures the throughput and latency of a key-value drive.

use anyhow::{bail, ensure};
use api::config::Size;
use driver::key_value::Dialect;
use load::keys::{self, Done, Job, Op, bench_key};
use memory::Buffer;
use serde::Serialize;
use terminal::table::{Align, Table};
use terminal::{progress, units};

use super::{Client, VALUE_MAX};
use crate::figures::{LatencyReport, bytes_per_s, rounded};

/// Measure store and retrieve performance, with keys of its own, deleted at the end
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock bench --value-size 4KiB --qd 32
  nvmirage kv --target vfio-user:/tmp/kv.sock --dialect samsung bench --value-size 256B --compound 8")]
pub(super) struct Bench {
    /// Size of a value, up to 2MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    value_size: Size,

    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,

    /// Queue depth: commands in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    qd: u16,

    /// Number of keys in each compound store command; only for --dialect samsung
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    compound: Option<u8>,

    /// Allow keys to be overwritten that have the names of the benchmark's own; these are deleted
    /// at the end
    #[arg(long)]
    destroy_data: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Results.
#[derive(Debug, Serialize)]
struct Figures {
    value_size: u32,
    queue_depth: u16,
    count: u32,
    /// Keys of each storing command; absent without compound commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    compound: Option<u8>,
    jobs: Vec<JobReport>,
}

/// Results of one kind of command, with the keys that all results have.
#[derive(Debug, Serialize)]
struct JobReport {
    /// `store`, `retrieve` or `delete`.
    name: &'static str,
    /// Number of commands, each of one key, or of as many as a compound command has.
    commands: u64,
    elapsed_ns: u64,
    /// Keys per second.
    iops: f64,
    /// Bytes of values per second.
    bytes_per_s: u64,
    latency_ns: LatencyReport,
    /// Failed commands: the benchmark ends with the first.
    errors: u64,
}

impl Bench {
    /// Commands in flight, and bytes of the largest command.
    pub(super) fn needs(&self) -> (u16, u32) {
        let size = self.value_size.0.clamp(1, VALUE_MAX.into());
        let size = u32::try_from(size).unwrap_or(VALUE_MAX);
        (self.qd, self.data_len(size))
    }

    /// Data bytes of one storing command.
    fn data_len(&self, value_len: u32) -> u32 {
        match self.compound {
            None => value_len,
            // The command's head, and for each sub-command its own head, the key and the value,
            // each rounded up to 64 bytes.
            Some(keys) => 512 + u32::from(keys) * (64 + 64 + value_len.next_multiple_of(64)),
        }
    }

    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub(super) fn run(&self, client: &mut Client) -> anyhow::Result<()> {
        ensure!(
            self.compound.is_none() || client.keys.dialect == Dialect::Samsung,
            "--compound: not a command of the Key Value command set: add --dialect samsung"
        );
        let len = client.check_len(self.value_size.0)?;
        ensure!(len > 0, "--value-size: write at least 1B");
        let data_len = self.data_len(len);
        client.check_transfer(data_len)?;
        let _line = progress::waiting("measuring");
        let mut buffers = Vec::new();
        for _ in 0..client.queue.depth() {
            let buffer = client.host.device().alloc(data_len as usize)?;
            buffer.write_from(0, &vec![keys::VALUE_BYTE; data_len as usize]);
            buffers.push(buffer);
        }
        let mut run = |op| self.measure(client, op, len, &buffers);
        if !self.destroy_data {
            run(Op::Exist)?;
        }
        let put = run(Op::Put);
        // Delete everything that was stored, also after an error.
        let get = put.is_ok().then(|| run(Op::Get));
        let del = run(Op::Del);
        let (put, Some(get), del) = (put?, get.transpose()?, del?) else {
            bail!("nothing was retrieved");
        };
        let figures = Figures {
            value_size: len,
            queue_depth: client.queue.depth(),
            count: self.count,
            compound: self.compound,
            jobs: vec![put, get, del],
        };
        if self.json {
            return terminal::print_json(&figures);
        }
        terminal::print(&figures.in_words())
    }

    /// Error for a bench that would overwrite existing values.
    fn keys_taken(&self) -> String {
        let (first, last) = (bench_key(0), bench_key((self.count - 1).into()));
        format!(
            "the drive has keys from {first} to {last}, which the benchmark would overwrite and delete: add --destroy-data if they are not needed"
        )
    }

    /// Runs one kind of command on every key; Delete of a missing key is no error.
    fn measure(
        &self,
        client: &mut Client,
        op: Op,
        len: u32,
        buffers: &[Buffer],
    ) -> anyhow::Result<JobReport> {
        let job = Job {
            count: self.count,
            value_len: len,
            compound: self.compound,
        };
        let clock = client.host.clock();
        let drive = (&mut client.queue, &client.keys, buffers);
        let Done {
            mut latencies,
            elapsed_ns,
            found,
        } = keys::run(&clock, drive, &job, op)?;
        ensure!(!found, self.keys_taken());
        let len = match op {
            Op::Put | Op::Get => len,
            Op::Exist | Op::Del => 0,
        };
        Ok(JobReport::of(
            op,
            &mut latencies,
            self.count,
            elapsed_ns,
            len,
        ))
    }
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Exist => "exist",
        Op::Put => "store",
        Op::Get => "retrieve",
        Op::Del => "delete",
    }
}

impl JobReport {
    /// Results of commands for this many keys, with values of `len` bytes.
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn of(op: Op, latencies: &mut [u64], keys: u32, elapsed_ns: u64, len: u32) -> Self {
        let iops = f64::from(keys) * 1e9 / elapsed_ns.max(1) as f64;
        JobReport {
            name: name(op),
            commands: latencies.len() as u64,
            elapsed_ns,
            iops: rounded(iops),
            bytes_per_s: bytes_per_s(iops, len),
            latency_ns: LatencyReport::of(latencies),
            errors: 0,
        }
    }
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn in_words(&self) -> String {
        let mut table = Table::new(&[
            ("", Align::Left),
            ("ops/s", Align::Right),
            ("MiB/s", Align::Right),
            ("mean", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("max", Align::Right),
        ]);
        for job in &self.jobs {
            let latency = &job.latency_ns;
            table.row(vec![
                job.name.into(),
                units::rate(job.iops),
                match job.bytes_per_s {
                    0 => "-".to_owned(),
                    bytes => units::mib_s(bytes as f64 / f64::from(1 << 20)),
                },
                units::nanoseconds(latency.mean),
                units::nanoseconds(latency.p50 as f64),
                units::nanoseconds(latency.p99 as f64),
                units::nanoseconds(latency.max as f64),
            ]);
        }
        let (size, depth) = (units::bytes(self.value_size.into()), self.queue_depth);
        let compound = self.compound.map_or(String::new(), |keys| {
            format!(", {keys} stored by each command")
        });
        format!(
            "{} keys{compound}, values of {size}, queue depth {depth}\n{table}",
            self.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_keys_and_of_the_bytes_of_values() {
        let mut latencies: Vec<u64> = (1..=25).collect();
        let store = JobReport::of(Op::Put, &mut latencies, 200, 1_000_000, 1 << 20);
        assert_eq!((store.name, store.commands), ("store", 25));
        assert!((store.iops - 200_000.0).abs() < 1e-6);
        assert_eq!(store.bytes_per_s, 200_000 << 20);
        assert_eq!((store.latency_ns.min, store.latency_ns.max), (1, 25));
    }
}
