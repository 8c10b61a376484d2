//! `nvmirage kv bench`: how fast a key-value drive stores and retrieves.

use anyhow::{bail, ensure};
use driver::key_value::Rule;
use memory::Buffer;
use nvme_spec::Cqe;
use serde::Serialize;

use super::{Client, VALUE_MAX};
use crate::{
    config::Size,
    report::{
        self,
        table::{Align, Table},
        units,
    },
};

/// Measure how fast values are stored and retrieved, with keys of its own, which it deletes at the end
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage kv --target vfio-user:/tmp/kv.sock bench --value-size 4KiB --qd 32")]
pub(super) struct Bench {
    /// Bytes of a value, up to 2MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    value_size: Size,

    /// Keys
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,

    /// Commands in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    qd: u16,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    value_size: u32,
    queue_depth: u16,
    count: u32,
    put: Figure,
    get: Figure,
    del: Figure,
}

/// Of one kind of command; latencies from its submission until its completion was seen.
#[derive(Debug, Serialize)]
struct Figure {
    ops_per_s: f64,
    mib_per_s: f64,
    latency_ns_mean: f64,
    latency_ns_p50: u64,
    latency_ns_p99: u64,
    latency_ns_max: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Put,
    Get,
    Del,
}

impl Bench {
    /// Commands in flight, and bytes of the largest.
    pub(super) fn needs(&self) -> (u16, u32) {
        let size = self.value_size.0.clamp(1, VALUE_MAX.into());
        (self.qd, u32::try_from(size).unwrap_or(VALUE_MAX))
    }

    pub(super) fn run(&self, client: &mut Client) -> anyhow::Result<()> {
        let len = client.check_len(self.value_size.0)?;
        ensure!(len > 0, "--value-size: a value to measure with has bytes");
        let mut buffers = Vec::new();
        for _ in 0..client.queue.depth() {
            let buffer = client.host.device().alloc(len as usize)?;
            buffer.write_from(0, &vec![0x5a; len as usize]);
            buffers.push(buffer);
        }
        let mut run = |op| self.measure(client, op, len, &buffers);
        let put = run(Op::Put);
        // What was stored is deleted in any case.
        let get = put.is_ok().then(|| run(Op::Get));
        let del = run(Op::Del);
        let (put, Some(get), del) = (put?, get.transpose()?, del?) else {
            bail!("nothing was retrieved");
        };
        let figures = Figures {
            value_size: len,
            queue_depth: client.queue.depth(),
            count: self.count,
            put,
            get,
            del,
        };
        if self.json {
            return report::print_json(&figures);
        }
        report::print(&figures.in_words())
    }

    /// Does one kind of command with every key; those of a key that is not there are no errors of Delete.
    fn measure(
        &self,
        client: &mut Client,
        op: Op,
        len: u32,
        buffers: &[Buffer],
    ) -> anyhow::Result<Figure> {
        let clock = client.host.clock();
        let now = || clock.now().0;
        let mut latencies = Vec::with_capacity(self.count as usize);
        let mut begun = vec![0; buffers.len()];
        let mut cqes = [Cqe::default(); 64];
        let start = now();
        let mut next = 0;
        while latencies.len() < self.count as usize {
            while next < self.count && client.queue.in_flight() < client.queue.depth() {
                let key = format!("bench-{next:010x}");
                let mut sqe = match op {
                    Op::Put => client.keys.store(key.as_bytes(), len, Rule::Any)?,
                    Op::Get => client.keys.retrieve(key.as_bytes(), len)?,
                    Op::Del => client.keys.delete(key.as_bytes())?,
                };
                let Some(cid) = client.queue.next_cid() else {
                    break;
                };
                if op != Op::Del {
                    let buffer = &buffers[usize::from(cid)];
                    let prps = client.queue.prps(cid, buffer, 0, len as usize)?;
                    (sqe.prp1, sqe.prp2) = (prps.prp1, prps.prp2);
                }
                begun[usize::from(cid)] = now();
                client
                    .queue
                    .submit(sqe)
                    .map_err(|_| anyhow::anyhow!("the queue is full"))?;
                next += 1;
            }
            client.queue.ring()?;
            let taken = client.queue.poll(&mut cqes)?;
            let ended = now();
            for cqe in &cqes[..taken] {
                let status = cqe.status.status();
                if !status.is_success() && op != Op::Del {
                    bail!("a command ended with {status}");
                }
                latencies.push(ended - begun[usize::from(cqe.cid)]);
            }
        }
        Ok(Figure::of(
            &mut latencies,
            now() - start,
            if op == Op::Del { 0 } else { len },
        ))
    }
}

impl Figure {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn of(latencies: &mut [u64], time_ns: u64, len: u32) -> Self {
        latencies.sort_unstable();
        let count = latencies.len();
        let at = |percent: usize| latencies[(count * percent).div_ceil(100).clamp(1, count) - 1];
        let ops_per_s = count as f64 * 1e9 / time_ns.max(1) as f64;
        Figure {
            ops_per_s,
            mib_per_s: ops_per_s * f64::from(len) / f64::from(1 << 20),
            latency_ns_mean: latencies.iter().sum::<u64>() as f64 / count as f64,
            latency_ns_p50: at(50),
            latency_ns_p99: at(99),
            latency_ns_max: latencies[count - 1],
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
        for (name, figure) in [("put", &self.put), ("get", &self.get), ("del", &self.del)] {
            let mib = match name {
                "del" => "-".to_owned(),
                _ => units::mib_s(figure.mib_per_s),
            };
            table.row(vec![
                name.into(),
                units::rate(figure.ops_per_s),
                mib,
                units::nanoseconds(figure.latency_ns_mean),
                units::nanoseconds(figure.latency_ns_p50 as f64),
                units::nanoseconds(figure.latency_ns_p99 as f64),
                units::nanoseconds(figure.latency_ns_max as f64),
            ]);
        }
        let (size, depth) = (units::bytes(self.value_size.into()), self.queue_depth);
        format!(
            "{} keys, values of {size}, queue depth {depth}\n{table}",
            self.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut latencies: Vec<u64> = (1..=200).rev().collect();
        let figure = Figure::of(&mut latencies, 1_000_000, 1 << 20);
        assert_eq!((figure.latency_ns_p50, figure.latency_ns_p99), (100, 198));
        assert_eq!(figure.latency_ns_max, 200);
        assert!((figure.ops_per_s - 200_000.0).abs() < 1e-6);
        assert!((figure.mib_per_s - 200_000.0).abs() < 1e-6);
        let one = Figure::of(&mut [7], 7, 0);
        assert_eq!((one.latency_ns_p50, one.latency_ns_p99), (7, 7));
    }
}
