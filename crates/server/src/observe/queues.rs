//! Queues of a controller as JSON: the response of `GET /v1/controllers/{name}/queues`.

use api::{
    AssociationStatus, CommandUnderWay, CompletionQueue, CompletionRing, DoorbellWords, HostQueues,
    QueuesReport, SubmissionQueue,
};
use controller::inspect::{CommandView, CompletionView, SubmissionView};
use controller::queue::BadDoorbell;
use nvme_spec::command::QueuePriority;
use reactor::inspect::{Found, Inspection};

/// State of a controller's queues.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// Its own queues.
    pub(crate) own: Inspection,
    /// Whether its hosts come over NVMe/TCP, NBD, vhost-user-blk or ublk: they have queues of their
    /// own.
    pub(crate) has_many_hosts: bool,
    /// Those hosts.
    pub(crate) hosts: Vec<(AssociationStatus, Inspection)>,
    /// Number of hosts that are not among them.
    pub(crate) left_out: usize,
}

/// Why a submission queue is frozen.
fn frozen_sq(bad: BadDoorbell, entries: u32) -> String {
    let value = bad.value;
    if value < entries {
        format!("doorbell value {value} passes the entries that were free")
    } else {
        outside(value, entries)
    }
}

/// Why a completion queue is frozen.
fn frozen_cq(bad: BadDoorbell, entries: u32) -> String {
    let value = bad.value;
    if value < entries {
        format!("doorbell value {value} passes the entries that were posted")
    } else {
        outside(value, entries)
    }
}

fn outside(value: u32, entries: u32) -> String {
    format!("doorbell value {value} is outside the ring of {entries} entries")
}

fn priority(priority: QueuePriority) -> &'static str {
    match priority {
        QueuePriority::URGENT => "urgent",
        QueuePriority::HIGH => "high",
        QueuePriority::MEDIUM => "medium",
        _ => "low",
    }
}

/// Report of an inspection at `time_ns`.
pub(crate) fn report(inspected: &Inspected, time_ns: u64, stuck_after_ns: u64) -> QueuesReport {
    let (admin, queues) = queues_of(&inspected.own, stuck_after_ns);
    let hosts = inspected.hosts.iter().map(|(host, inspection)| {
        let (admin, queues) = queues_of(inspection, stuck_after_ns);
        HostQueues {
            cntlid: host.cntlid,
            protocol: host.protocol,
            nqn: host.nqn.clone(),
            export: host.export.clone(),
            admin,
            queues,
        }
    });
    let doorbells = if inspected.has_many_hosts {
        "none"
    } else {
        inspected.own.controller.doorbells.word()
    };
    QueuesReport {
        time_ns,
        doorbells: doorbells.to_owned(),
        stuck_after_ns,
        admin,
        queues,
        hosts: hosts.collect(),
        hosts_left_out: u32::try_from(inspected.left_out).unwrap_or(u32::MAX),
    }
}

fn queues_of(
    inspection: &Inspection,
    stuck_after_ns: u64,
) -> (Option<CompletionQueue>, Vec<CompletionQueue>) {
    let Inspection {
        controller,
        home,
        queues,
    } = inspection;
    let priority_of = |sqid: u16| {
        let mut priorities = controller.priorities.iter();
        let found = priorities.find(|(id, _)| *id == sqid);
        found.map(|(_, its)| *its)
    };
    let show = |found: &Found| {
        let mut shown = completion_queue(found, stuck_after_ns);
        for sq in &mut shown.submission_queues {
            sq.priority = priority_of(sq.queue).map(|its| priority(its).to_owned());
        }
        shown
    };
    let admin = controller.admin.clone().map(|view| Found {
        cqid: 0,
        reactor: *home,
        view: Some(view),
    });
    (admin.as_ref().map(show), queues.iter().map(show).collect())
}

fn completion_queue(found: &Found, stuck_after_ns: u64) -> CompletionQueue {
    let view = found.view.as_ref();
    let submission = view.map_or(&[][..], |view| &view.submission_queues);
    let submission = submission.iter();
    let submission_queues: Vec<_> = submission
        .map(|view| submission_queue(view, stuck_after_ns))
        .collect();
    CompletionQueue {
        queue: found.cqid,
        reactor: found.reactor,
        moving: view.is_none(),
        vector: view.and_then(|view| view.vector),
        ring: view.map(completion_ring),
        in_flight: submission_queues.iter().map(|sq| sq.in_flight).sum(),
        submission_queues,
    }
}

fn completion_ring(view: &CompletionView) -> CompletionRing {
    CompletionRing {
        size: view.entries,
        head: view.head,
        tail: view.tail,
        phase: view.phase,
        posted: view.posted,
        reserved: view.reserved,
        full: view.posted + 1 == view.entries,
        bell: DoorbellWords {
            doorbell: view.bell.doorbell,
            shadow: view.bell.shadow,
            event_idx: view.bell.event_idx,
            frozen: view.bell.frozen.map(|bad| frozen_cq(bad, view.entries)),
        },
        stopped: view.is_stopped,
        given_up: view.given_up,
    }
}

fn submission_queue(view: &SubmissionView, stuck_after_ns: u64) -> SubmissionQueue {
    let commands = view.commands.iter();
    let commands: Vec<_> = commands
        .map(|command| command_under_way(view.sqid, command, stuck_after_ns))
        .collect();
    let all = u64::from(view.waiting) + u64::from(view.in_flight);
    let left_out = all.saturating_sub(commands.len() as u64);
    SubmissionQueue {
        queue: view.sqid,
        size: view.entries,
        head: view.head,
        tail: view.tail,
        bell: DoorbellWords {
            doorbell: view.bell.doorbell,
            shadow: view.bell.shadow,
            event_idx: view.bell.event_idx,
            frozen: view.bell.frozen.map(|bad| frozen_sq(bad, view.entries)),
        },
        priority: None,
        deleting: view.is_ending,
        waiting: view.waiting,
        in_flight: view.in_flight,
        commands,
        left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

fn command_under_way(queue: u16, view: &CommandView, stuck_after_ns: u64) -> CommandUnderWay {
    CommandUnderWay {
        queue,
        cid: view.cid,
        opcode: view.opcode,
        command: view.name.to_owned(),
        nsid: view.nsid,
        lba: view.lba,
        bytes: view.bytes,
        fua: view.fua,
        at: view.place.word().to_owned(),
        age_ns: view.age_ns,
        stuck: view.age_ns.is_some_and(|age| age >= stuck_after_ns),
    }
}
