//! What the servers of a drive have done: how many operations, and how much of their time is taken
//! by them.
//!
//! Time is counted when it is asked for, so that it may run ahead of the present by as much as is
//! queued. Of the rules of the published program (`arithmetic = "code"`) `nvm` and `key-value` have
//! no servers in this sense, and count none.

/// What takes a time for each piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A die of flash.
    Die,
    /// What dies hang on.
    Channel,
    /// The link to the host, both directions at once.
    Link,
    /// Low-latency memory: reads and writes at once.
    Pipeline,
    /// A unit of a key-value drive: reads and writes at once.
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

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Cells are sensed, for hosts, for collection and for the map.
    Sense,
    /// Wordlines are programmed.
    Program,
    /// Blocks are erased.
    Erase,
    /// Bytes go over a channel.
    Transfer,
    /// Bytes go to the host.
    ToHost,
    /// Bytes come from the host.
    FromHost,
    /// A pipeline or unit reads.
    Read,
    /// A pipeline or unit writes.
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

/// What all servers of a kind have done of one work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Which servers.
    pub server: Server,
    /// What they did.
    pub work: Work,
    /// How often.
    pub operations: u64,
    /// Their time that it takes, of all of them together, in nanoseconds.
    pub busy_ns: u64,
}

/// What the servers of a drive have done since it was made, or since it last came to rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// How many servers of each kind there are.
    pub servers: Vec<(Server, u64)>,
    /// What they did.
    pub busy: Vec<Busy>,
}

/// Operations of one work, and the time that they take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    operations: u64,
    ns: u64,
}

impl Tally {
    /// Counts so many operations, which take so long together.
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
