//! Activity of a drive's servers: the number of operations, and the time that they take.
//!
//! Time is counted when an operation is requested, so it may run ahead of the present by the queued
//! work. With the rules of the published program (`arithmetic = "code"`), `nvm` and `key-value`
//! have no servers in this sense, and count none.

/// A resource that is occupied by each piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A die of flash.
    Die,
    /// The channel of several dies.
    Channel,
    /// The link to the host, in both directions at once.
    Link,
    /// Low-latency memory: reads and writes in parallel.
    Pipeline,
    /// A unit of a key-value drive: reads and writes in parallel.
    Unit,
}

impl Server {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Server::Die => "die",
            Server::Channel => "channel",
            Server::Link => "link",
            Server::Pipeline => "pipeline",
            Server::Unit => "unit",
        }
    }
}

/// Kind of a server's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sense of cells, for hosts, for collection and for the map.
    Sense,
    /// Program of wordlines.
    Program,
    /// Erase of blocks.
    Erase,
    /// Transfer over a channel.
    Transfer,
    /// Transfer to the host.
    ToHost,
    /// Transfer from the host.
    FromHost,
    /// Read by a pipeline or unit.
    Read,
    /// Write by a pipeline or unit.
    Write,
}

impl Work {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Work::Sense => "sense",
            Work::Program => "program",
            Work::Erase => "erase",
            Work::Transfer => "transfer",
            Work::ToHost => "to_host",
            Work::FromHost => "from_host",
            Work::Read => "read",
            Work::Write => "write",
        }
    }
}

/// Work of one kind by all servers of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Kind of the servers.
    pub server: Server,
    /// Kind of the work.
    pub work: Work,
    /// Number of operations.
    pub operations: u64,
    /// Total time of all servers, in nanoseconds.
    pub busy_ns: u64,
}

/// Activity of a drive's servers since it was created, or since it last came to rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Number of servers of each kind.
    pub servers: Vec<(Server, u64)>,
    /// Their work.
    pub busy: Vec<Busy>,
}

/// Number of operations of one kind, and their time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    operations: u64,
    ns: u64,
}

impl Tally {
    /// Counts operations that take this long together.
    #[inline]
    pub(crate) fn add(&mut self, operations: u64, ns: u64) {
        self.operations += operations;
        self.ns = self.ns.saturating_add(ns);
    }

    pub(crate) fn busy(self, server: Server, work: Work) -> Busy {
        Busy {
            server,
            work,
            operations: self.operations,
            busy_ns: self.ns,
        }
    }
}
