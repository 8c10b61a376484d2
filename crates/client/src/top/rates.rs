//! Rates and latencies from samples: rates are differences over the server's time, latencies cover
//! the last seconds.
//!
//! Invariant: differences never span two servers. If the clock went back, the server was restarted,
//! and older samples are dropped. A counter that fell belongs to a recreated object, and its value
//! is the whole difference.

use std::collections::{BTreeMap, VecDeque};

use super::sample::{Controller, Latency, Queue, Reactor, Sample, Tenant};

/// Maximum period that latencies cover.
pub(super) const LATENCY_WINDOW_NS: u64 = 10_000_000_000;
/// Maximum number of samples kept for latencies.
const KEPT: usize = 64;
/// Queue depths kept for each controller.
pub(super) const DEPTHS: usize = 240;

/// The samples, and the queue depth of every controller over time.
#[derive(Debug, Default)]
pub(super) struct Course {
    samples: VecDeque<Sample>,
    depths: BTreeMap<String, VecDeque<u64>>,
    /// Whether the server was gone since the last sample.
    is_broken: bool,
}

/// Activity of a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ControllerRates {
    pub(super) name: String,
    pub(super) attached: bool,
    pub(super) namespaces: Vec<String>,
    /// Mean number of commands in flight, from the host's doorbell to completion.
    pub(super) depth: f64,
    /// `None` until there are two samples.
    pub(super) per_s: Option<ControllerPerSecond>,
    /// Latencies of all sampled commands of the last seconds; `None` if there were none.
    pub(super) latency: Option<Percentiles>,
    /// The same for reads and for writes.
    pub(super) by_operation: Vec<(String, Percentiles)>,
    /// Share of each stage in the time of these commands; the sum is 1, or the list is empty.
    pub(super) stages: Vec<(String, f64)>,
    pub(super) queues: Vec<QueueRates>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ControllerPerSecond {
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) read_bytes: f64,
    pub(super) write_bytes: f64,
    pub(super) errors: f64,
    pub(super) doorbell_messages: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueueRates {
    pub(super) queue: u16,
    pub(super) reactor: usize,
    pub(super) in_flight: u64,
    /// Per second: commands, errors, interrupts sent, interrupts avoided.
    pub(super) per_s: Option<[f64; 4]>,
}

/// Latency percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) count: u64,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReactorRates {
    pub(super) reactor: usize,
    pub(super) mode: String,
    pub(super) cpu: Option<u32>,
    pub(super) per_s: Option<ReactorPerSecond>,
}

/// Activity of a reactor; its shares of time add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ReactorPerSecond {
    pub(super) commands: f64,
    pub(super) turns: f64,
    /// Share of turns that found work.
    pub(super) found: f64,
    pub(super) busy: f64,
    pub(super) spinning: f64,
    pub(super) asleep: f64,
    pub(super) stalled: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TenantRates {
    pub(super) name: String,
    pub(super) at_media: u64,
    /// Per second: commands, bytes, commands that waited for a cap, commands that waited for their
    /// turn.
    pub(super) per_s: Option<[f64; 4]>,
}

/// All rates between two samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Uptime of the server.
    pub(super) uptime_ns: u64,
    pub(super) controllers: Vec<ControllerRates>,
    pub(super) reactors: Vec<ReactorRates>,
    pub(super) tenants: Vec<TenantRates>,
}

/// Growth of a counter. A counter that fell started again from 0.
fn grown(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

/// Ratio of a part to its whole; 0 for an empty whole.
fn part(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

impl Course {
    /// Adds a sample.
    pub(super) fn take(&mut self, sample: Sample) {
        let last = self.samples.back();
        if self.is_broken || last.is_some_and(|last| sample.time_ns < last.time_ns) {
            self.forget();
        }
        for controller in &sample.controllers {
            self.depths.entry(controller.name.clone()).or_default();
        }
        let is_there = |name: &String| sample.controllers.iter().any(|its| its.name == *name);
        self.depths.retain(|name, _| is_there(name));
        while self.samples.len() >= KEPT || self.is_old(&sample) {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        for controller in self.rates().map_or(Vec::new(), |rates| rates.controllers) {
            let depths = self.depths.entry(controller.name).or_default();
            if depths.len() == DEPTHS {
                depths.pop_front();
            }
            // whole commands, for a chart
            depths.push_back(controller.depth.ceil() as u64);
        }
    }

    /// Whether the second sample is old enough to replace the first.
    fn is_old(&self, now: &Sample) -> bool {
        self.samples
            .get(1)
            .is_some_and(|second| grown(second.time_ns, now.time_ns) >= LATENCY_WINDOW_NS)
    }

    fn forget(&mut self) {
        self.samples.clear();
        self.depths.clear();
        self.is_broken = false;
    }

    /// The server does not answer; the next sample may come from another one.
    pub(super) fn break_off(&mut self) {
        self.is_broken = true;
    }

    /// Queue depths of a controller, the latest last.
    pub(super) fn depths(&self, controller: &str) -> Vec<u64> {
        let depths = self.depths.get(controller).into_iter().flatten();
        depths.copied().collect()
    }

    /// Rates between the last two samples; `None` before the second.
    pub(super) fn rates(&self) -> Option<Rates> {
        let now = self.samples.back()?;
        let before = self
            .samples
            .len()
            .checked_sub(2)
            .map(|at| &self.samples[at]);
        let since = self.samples.front().filter(|_| before.is_some());
        let seconds = before.map_or(0.0, |before| {
            grown(before.time_ns, now.time_ns) as f64 / 1e9
        });
        let before = before.filter(|_| seconds > 0.0);
        let controllers = now.controllers.iter().map(|controller| {
            let of = |sample: &'_ Sample| -> Option<Controller> {
                let mut all = sample.controllers.iter();
                all.find(|its| its.name == controller.name).cloned()
            };
            let (before, since) = (before.and_then(of), since.and_then(of));
            controller_rates(controller, before.as_ref(), since.as_ref(), seconds)
        });
        let reactors = now.reactors.iter().map(|reactor| {
            let before = before.and_then(|sample| {
                let mut all = sample.reactors.iter();
                all.find(|its| its.reactor == reactor.reactor)
            });
            ReactorRates {
                reactor: reactor.reactor,
                mode: reactor.mode.clone(),
                cpu: reactor.cpu,
                per_s: before.map(|before| reactor_rates(before, reactor, seconds)),
            }
        });
        let tenants = now.tenants.iter().map(|tenant| {
            let before = before.and_then(|sample| {
                let mut all = sample.tenants.iter();
                all.find(|its| its.name == tenant.name)
            });
            TenantRates {
                name: tenant.name.clone(),
                at_media: tenant.at_media,
                per_s: before.map(|before| tenant_rates(before, tenant, seconds)),
            }
        });
        Some(Rates {
            uptime_ns: now.time_ns,
            controllers: controllers.collect(),
            reactors: reactors.collect(),
            tenants: tenants.collect(),
        })
    }
}

fn controller_rates(
    now: &Controller,
    before: Option<&Controller>,
    since: Option<&Controller>,
    seconds: f64,
) -> ControllerRates {
    let per_s = before.map(|before| {
        let rate = |of: fn(&Controller) -> u64| grown(of(before), of(now)) as f64 / seconds;
        ControllerPerSecond {
            reads: rate(|its| its.reads),
            writes: rate(|its| its.writes),
            read_bytes: rate(|its| its.read_bytes),
            write_bytes: rate(|its| its.write_bytes),
            errors: rate(|its| its.errors),
            doorbell_messages: rate(|its| its.doorbell_messages),
        }
    });
    let queues = now.queues.iter().map(|queue| {
        let before = before.map(|before| {
            let mut all = before.queues.iter();
            // a new queue has counted from 0
            let found = all.find(|its| its.queue == queue.queue);
            found.cloned().unwrap_or_default()
        });
        QueueRates {
            queue: queue.queue,
            reactor: queue.reactor,
            in_flight: queue.in_flight,
            per_s: before.map(|before| queue_rates(&before, queue, seconds)),
        }
    });
    let mut all = BTreeMap::new();
    let mut by_operation = Vec::new();
    if let Some(since) = since {
        for latency in &now.latency {
            let mut before = since.latency.iter();
            let before = before.find(|its| its.operation == latency.operation);
            let before = before.map_or(&[][..], |before| &before.buckets);
            let new = new_ones(before, &latency.buckets);
            new.iter()
                .for_each(|(last, count)| *all.entry(*last).or_default() += count);
            if let Some(percentiles) = percentiles(&new) {
                by_operation.push((latency.operation.clone(), percentiles));
            }
        }
    }
    ControllerRates {
        name: now.name.clone(),
        attached: now.attached,
        namespaces: now.namespaces.clone(),
        depth: depth(now, before, since, seconds),
        per_s,
        latency: percentiles(&all),
        by_operation,
        stages: since.map_or(Vec::new(), |since| stages(since, now)),
        queues: queues.collect(),
    }
}

/// Mean number of commands in flight, by Little's law: the commands of a second times the time that
/// each takes. A count of one moment reads 0 under load, where a turn ends with an empty medium.
/// The count of commands in flight stands in only where no command was sampled.
fn depth(
    now: &Controller,
    before: Option<&Controller>,
    since: Option<&Controller>,
    seconds: f64,
) -> f64 {
    let (Some(before), Some(since)) = (before, since) else {
        return now.depth() as f64;
    };
    let commands = |its: &Controller| its.queues.iter().map(|queue| queue.commands).sum();
    let commands = grown(commands(before), commands(now));
    let total = |its: &Controller, of: fn(&Latency) -> u64| its.latency.iter().map(of).sum();
    let sampled = grown(total(since, |l| l.count), total(now, |l| l.count));
    let time_ns = grown(total(since, |l| l.sum_ns), total(now, |l| l.sum_ns));
    match (commands, sampled) {
        (0, _) | (_, 0) => now.depth() as f64,
        (commands, sampled) => {
            let mean_s = time_ns as f64 / sampled as f64 / 1e9;
            commands as f64 / seconds * mean_s
        }
    }
}

/// Growth of each bucket.
fn new_ones(before: &[(u64, u64)], now: &[(u64, u64)]) -> BTreeMap<u64, u64> {
    let before: BTreeMap<u64, u64> = before.iter().copied().collect();
    let new = now.iter().map(|(last, count)| {
        let before = before.get(last).copied().unwrap_or(0);
        (*last, grown(before, *count))
    });
    new.filter(|(_, count)| *count > 0).collect()
}

fn percentiles(buckets: &BTreeMap<u64, u64>) -> Option<Percentiles> {
    let count: u64 = buckets.values().sum();
    // the nearest rank
    let at = |of_100: u64| {
        let rank = (u128::from(count) * u128::from(of_100)).div_ceil(100);
        let mut below = 0;
        let found = buckets.iter().find(|(_, count)| {
            below += u128::from(**count);
            below >= rank
        });
        found.map(|(last, _)| *last)
    };
    Some(Percentiles {
        count,
        p50: at(50)?,
        p99: at(99)?,
        max: *buckets.last_key_value()?.0,
    })
}

fn stages(since: &Controller, now: &Controller) -> Vec<(String, f64)> {
    let new = now.stages.iter().map(|(stage, sum)| {
        let mut before = since.stages.iter();
        let before = before.find(|(its, _)| its == stage);
        (stage, grown(before.map_or(0, |(_, sum)| *sum), *sum))
    });
    let new: Vec<_> = new.collect();
    let whole: u64 = new.iter().map(|(_, ns)| ns).sum();
    match whole {
        0 => Vec::new(),
        whole => new
            .into_iter()
            .map(|(stage, ns)| (stage.clone(), part(ns, whole)))
            .collect(),
    }
}

fn queue_rates(before: &Queue, now: &Queue, seconds: f64) -> [f64; 4] {
    let counts: [fn(&Queue) -> u64; 4] = [
        |q| q.commands,
        |q| q.errors,
        |q| q.interrupts,
        |q| q.interrupts_spared,
    ];
    counts.map(|of| grown(of(before), of(now)) as f64 / seconds)
}

fn reactor_rates(before: &Reactor, now: &Reactor, seconds: f64) -> ReactorPerSecond {
    let grew = |of: fn(&Reactor) -> u64| grown(of(before), of(now));
    let turns = grew(|r| r.turns);
    let times = [
        grew(|r| r.busy_ns),
        grew(|r| r.spinning_ns),
        grew(|r| r.asleep_ns),
        grew(|r| r.stalled_ns),
    ];
    // A sleep is counted when it ends; the missing time is a sleep in progress.
    let whole = times.iter().sum::<u64>().max((seconds * 1e9) as u64);
    let [busy, spinning, slept, stalled] = times;
    let asleep = slept + (whole - times.iter().sum::<u64>());
    ReactorPerSecond {
        commands: grew(|r| r.commands) as f64 / seconds,
        turns: turns as f64 / seconds,
        found: part(grew(|r| r.turns_with_work), turns),
        busy: part(busy, whole),
        spinning: part(spinning, whole),
        asleep: part(asleep, whole),
        stalled: part(stalled, whole),
    }
}

fn tenant_rates(before: &Tenant, now: &Tenant, seconds: f64) -> [f64; 4] {
    let counts: [fn(&Tenant) -> u64; 4] = [|t| t.commands, |t| t.bytes, |t| t.capped, |t| t.held];
    counts.map(|of| grown(of(before), of(now)) as f64 / seconds)
}
