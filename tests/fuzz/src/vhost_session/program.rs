//! What a front end and its guest do.

use arbitrary::Arbitrary;

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    pub(super) large_blocks: bool,
    pub(super) is_packed: bool,
    /// Whether rings run before the steps, and with which features. They say what the device is
    /// like, too: see `World::new`.
    pub(super) starts: Option<(u16, u8)>,
    pub(super) steps: Vec<Action>,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Action {
    /// A request, nearly right.
    Request {
        ring: u8,
        kind: u8,
        sector: u64,
        pieces: Vec<(u16, u16)>,
        is_indirect: bool,
    },
    /// What a front end sends for a ring to run.
    Setup {
        features: u16,
        rings: u8,
    },
    /// Any message.
    Message {
        request: u8,
        flags: u8,
        body: Vec<u8>,
        fds: Vec<Descriptor>,
    },
    /// One with a number of a ring.
    Number {
        request: u8,
        ring: u8,
        num: u32,
    },
    /// A region of memory that is added or removed.
    Region {
        adds: bool,
        at: u8,
        pages: u8,
        place: u8,
        fd: Descriptor,
    },
    /// Where a ring lies.
    Place {
        ring: u8,
        parts: [u16; 3],
    },
    /// Memory for what is in flight: made, and given back, as it was or changed.
    Inflight {
        queues: u8,
        entries: u16,
        changes: Option<(u16, u8)>,
    },
    Raw(Vec<u8>),
    /// Bytes in the guest's memory.
    Store {
        at: u16,
        bytes: Vec<u8>,
    },
    /// Entries that are made available without a request.
    Ahead {
        ring: u8,
        count: u16,
    },
    Kick,
    Turns(u8),
    Seconds(u8),
    Closed(bool),
    Release {
        count: u8,
        newest: bool,
    },
    Fails(u8),
    Namespace(u8),
    /// The front end reads nothing, or everything again.
    Reads(bool),
    /// The back end ends, and the front end connects again.
    Reconnect,
}

/// What a front end sends beside a message.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descriptor {
    Memory,
    Event,
    Socket,
    Short,
}
