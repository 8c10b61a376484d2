//! A server's counters at one moment, as far as the views show them.

/// A sample. All counters only grow, except those of commands in flight.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Nanoseconds since the server's start, on its clock.
    pub(super) time_ns: u64,
    pub(super) reactors: Vec<Reactor>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) controllers: Vec<Controller>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reactor {
    pub(super) reactor: usize,
    /// `poll`, `adaptive` or `interrupt`.
    pub(super) mode: String,
    pub(super) cpu: Option<u32>,
    pub(super) commands: u64,
    pub(super) turns: u64,
    pub(super) turns_with_work: u64,
    pub(super) busy_ns: u64,
    pub(super) spinning_ns: u64,
    pub(super) asleep_ns: u64,
    pub(super) stalled_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) commands: u64,
    pub(super) bytes: u64,
    pub(super) capped: u64,
    pub(super) held: u64,
    pub(super) at_media: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Controller {
    pub(super) name: String,
    pub(super) attached: bool,
    pub(super) namespaces: Vec<String>,
    pub(super) doorbell_messages: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    /// Commands that ended with an error.
    pub(super) errors: u64,
    pub(super) queues: Vec<Queue>,
    pub(super) latency: Vec<Latency>,
    /// Stages, with the total time of sampled commands in each.
    pub(super) stages: Vec<(String, u64)>,
}

impl Controller {
    /// Commands fetched but not completed.
    pub(super) fn depth(&self) -> u64 {
        self.queues.iter().map(|queue| queue.in_flight).sum()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Queue {
    /// The completion queue.
    pub(super) queue: u16,
    pub(super) reactor: usize,
    pub(super) in_flight: u64,
    pub(super) commands: u64,
    pub(super) errors: u64,
    pub(super) interrupts: u64,
    pub(super) interrupts_spared: u64,
}

/// Latencies of sampled commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latency {
    /// `read`, `write` or `other`.
    pub(super) operation: String,
    /// Number of sampled commands.
    pub(super) count: u64,
    /// Their total time in nanoseconds.
    pub(super) sum_ns: u64,
    /// Largest latency of each bucket in nanoseconds, and the number of commands in it; sorted.
    pub(super) buckets: Vec<(u64, u64)>,
}

/// Contents of a controller's queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Inspected {
    pub(super) controller: String,
    /// `mapped`, `shadow` or `trapped`.
    pub(super) doorbells: String,
    /// Its hosts come over NVMe/TCP, NBD, vhost-user-blk or ublk, and have queues of their own.
    pub(super) has_many_hosts: bool,
    pub(super) rings: Vec<Ring>,
    /// Commands in flight, the oldest first.
    pub(super) commands: Vec<Command>,
    /// Commands beyond those listed.
    pub(super) left_out: u64,
}

/// Ring of a completion or submission queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ring {
    /// `CQ 1` or `SQ 1`.
    pub(super) name: String,
    pub(super) size: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) phase: Option<bool>,
    pub(super) doorbell: u32,
    pub(super) shadow: Option<u32>,
    pub(super) event_idx: Option<u32>,
    /// Flags such as `full` and `frozen`; usually empty.
    pub(super) state: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Command {
    pub(super) queue: u16,
    pub(super) cid: u16,
    pub(super) command: String,
    pub(super) nsid: u32,
    pub(super) lba: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) at: String,
    pub(super) age_ns: Option<u64>,
    pub(super) stuck: bool,
}
