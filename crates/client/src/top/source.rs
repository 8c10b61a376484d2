//! Polls the server on a separate thread, so that keys work while the server is slow.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use api::config::Span;
use api::{CompletionQueue, ControllerStats, DoorbellWords, QueuesReport, Stats};

use super::sample::{
    Command, Controller, Inspected, Latency, Queue, Reactor, Ring, Sample, Tenant,
};
use crate::{Address, requests};

/// Commands per submission queue to request.
const COMMANDS: usize = 64;
/// Age from which a command counts as stuck.
const STUCK_AFTER: Span = Span(Duration::from_secs(1));

/// Server or file to poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
    /// The controller whose queues to read.
    pub(super) controller: Option<String>,
}

/// Answer of the server.
#[derive(Debug)]
pub(super) enum News {
    Up(Box<Sample>, Option<Inspected>),
    Down(String),
}

/// Starts the thread, which ends when one of the returned channel ends is dropped.
pub(super) fn start(
    socket: Address,
    order: Order,
) -> anyhow::Result<(Sender<Order>, Receiver<News>)> {
    let (orders, taken) = mpsc::channel();
    let (told, news) = mpsc::channel();
    thread::Builder::new()
        .name("top".into())
        .spawn(move || ask(&socket, order, &taken, &told))?;
    Ok((orders, news))
}

fn ask(socket: &Address, mut order: Order, orders: &Receiver<Order>, news: &Sender<News>) {
    let mut last = None::<Instant>;
    loop {
        let due = last.map_or_else(Instant::now, |last| last + order.interval);
        let wait = if order.is_paused {
            Duration::from_secs(3600)
        } else {
            due.saturating_duration_since(Instant::now())
        };
        match orders.recv_timeout(wait) {
            Ok(new) => {
                if new.controller != order.controller {
                    last = None;
                }
                order = new;
                continue;
            }
            Err(RecvTimeoutError::Timeout) if order.is_paused => continue,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        last = Some(Instant::now());
        let said = match look(socket, order.controller.as_deref()) {
            Ok((sample, inspected)) => News::Up(Box::new(sample), inspected),
            Err(error) => News::Down(format!("{error:#}")),
        };
        if news.send(said).is_err() {
            return;
        }
    }
}

/// Polls once. A deleted controller has no queues.
pub(super) fn look(
    socket: &Address,
    controller: Option<&str>,
) -> anyhow::Result<(Sample, Option<Inspected>)> {
    let stats = requests::stats(socket)?;
    let inspected = controller.and_then(|name| {
        let report = requests::queues(socket, name, COMMANDS, STUCK_AFTER, None).ok()?;
        Some(Inspected::new(name, &report))
    });
    Ok((stats.into(), inspected))
}

impl From<Stats> for Sample {
    fn from(stats: Stats) -> Self {
        let reactors = stats.reactors.into_iter().map(|its| Reactor {
            reactor: its.reactor,
            mode: its.config.mode.name().to_owned(),
            cpu: its.config.cpu,
            commands: its.commands,
            turns: its.turns,
            turns_with_work: its.turns_with_work,
            busy_ns: its.busy_ns,
            spinning_ns: its.spinning_ns,
            asleep_ns: its.asleep_ns,
            stalled_ns: its.stalled_ns,
        });
        let tenants = stats.tenants.into_iter().map(|its| Tenant {
            name: its.config.name,
            commands: its.commands,
            bytes: its.bytes,
            capped: its.capped,
            held: its.held,
            at_media: its.at_media,
        });
        Sample {
            time_ns: stats.time_ns,
            reactors: reactors.collect(),
            tenants: tenants.collect(),
            controllers: stats.controllers.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ControllerStats> for Controller {
    fn from(its: ControllerStats) -> Self {
        let queues = its.completion_queues.iter().map(|queue| Queue {
            queue: queue.queue,
            reactor: queue.reactor,
            in_flight: queue.in_flight,
            commands: queue.commands,
            errors: queue.errors,
            interrupts: queue.interrupts,
            interrupts_spared: queue.interrupts_spared,
        });
        let latency = its.latency.into_iter().map(|one| Latency {
            operation: one.operation,
            count: one.count,
            sum_ns: one.sum_ns,
            buckets: one.buckets,
        });
        let stages = its.stages.into_iter().map(|one| (one.stage, one.sum_ns));
        Controller {
            attached: its.status.attached,
            namespaces: its.status.config.namespaces,
            doorbell_messages: its.status.doorbell_messages,
            reads: its.commands.read,
            writes: its.commands.write,
            read_bytes: its.bytes.read,
            write_bytes: its.bytes.write,
            errors: its.errors_by_status.iter().map(|one| one.count).sum(),
            queues: queues.collect(),
            latency: latency.collect(),
            stages: stages.collect(),
            name: its.status.config.name,
        }
    }
}

impl Inspected {
    fn new(controller: &str, report: &QueuesReport) -> Self {
        let mut rings = Vec::new();
        let mut commands = Vec::new();
        let mut left_out = 0;
        let of_hosts = report.hosts.iter().flat_map(|host| &host.queues);
        for cq in report.queues.iter().chain(of_hosts) {
            rings.push(completion(cq));
            for sq in &cq.submission_queues {
                let state = match sq {
                    _ if sq.bell.frozen.is_some() => "frozen",
                    _ if sq.deleting => "deleting",
                    _ => sq.priority.as_deref().unwrap_or_default(),
                };
                rings.push(Ring {
                    size: sq.size,
                    head: sq.head,
                    tail: sq.tail,
                    ..ring(format!("SQ {}", sq.queue), &sq.bell, state)
                });
                left_out += u64::from(sq.left_out);
                commands.extend(sq.commands.iter().map(|one| Command {
                    queue: one.queue,
                    cid: one.cid,
                    command: one.command.clone(),
                    nsid: one.nsid,
                    lba: one.lba,
                    bytes: one.bytes,
                    at: one.at.clone(),
                    age_ns: one.age_ns,
                    stuck: one.stuck,
                }));
            }
        }
        // the oldest first, commands not yet fetched last
        commands.sort_by_key(|one| std::cmp::Reverse(one.age_ns.map_or(0, |age| age + 1)));
        Inspected {
            controller: controller.to_owned(),
            doorbells: report.doorbells.clone(),
            has_many_hosts: report.has_many_hosts(),
            rings,
            commands,
            left_out,
        }
    }
}

fn ring(name: String, bell: &DoorbellWords, state: &str) -> Ring {
    Ring {
        name,
        doorbell: bell.doorbell,
        shadow: bell.shadow,
        event_idx: bell.event_idx,
        state: state.to_owned(),
        ..Ring::default()
    }
}

fn completion(cq: &CompletionQueue) -> Ring {
    let name = format!("CQ {}", cq.queue);
    let Some(its) = &cq.ring else {
        return Ring {
            name,
            state: "moving".into(),
            ..Ring::default()
        };
    };
    let state = match its {
        _ if its.bell.frozen.is_some() => "frozen",
        _ if its.stopped => "stopped",
        _ if its.full => "full",
        _ => "",
    };
    Ring {
        size: its.size,
        head: its.head,
        tail: its.tail,
        phase: Some(its.phase),
        ..ring(name, &its.bell, state)
    }
}
