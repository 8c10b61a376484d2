//! Measurements: what was asked of a drive, and how long its commands took on the average.
//!
//! A point is of use where a number of commands of one kind and size was always in flight.
//!
//! It does NOT judge a measurement: who has measured a cache, or a drive that throttles, gets a
//! model of that.

use model::Kind;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Read,
    Write,
    /// Of a zone that is full.
    Reset,
    Retrieve,
    Store,
    Delete,
}

impl Act {
    const ALL: [Act; 6] = [
        Act::Read,
        Act::Write,
        Act::Reset,
        Act::Retrieve,
        Act::Store,
        Act::Delete,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Act::Read => "read",
            Act::Write => "write",
            Act::Reset => "reset",
            Act::Retrieve => "retrieve",
            Act::Store => "store",
            Act::Delete => "delete",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|act| act.name() == name)
    }

    /// Those that a kind of drive must have been measured with, so that nothing has to be a
    /// preset's.
    pub(super) fn of_kind(kind: Kind) -> [Act; 2] {
        match kind {
            Kind::Kv => [Act::Retrieve, Act::Store],
            _ => [Act::Read, Act::Write],
        }
    }

    /// Whether it is a command for a key.
    pub(super) fn is_keyed(self) -> bool {
        matches!(self, Act::Retrieve | Act::Store | Act::Delete)
    }

    /// Whether its commands have no bytes.
    pub(super) fn is_bare(self) -> bool {
        matches!(self, Act::Reset | Act::Delete)
    }
}

/// Who writes to zones: each to zones that are its own, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writers {
    pub(crate) count: u32,
    /// From the first zone of one to that of the next; 0: they take the zones in turns.
    pub(crate) apart: u32,
}

impl Writers {
    /// One, or as good as one.
    pub(crate) const ONE: Self = Writers { count: 1, apart: 0 };
}

/// Which keys commands are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Those that stand for places of `nvmirage simulate`.
    Places,
    /// Those of `nvmirage kv bench`, one after the other.
    Bench,
}

/// A point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) act: Act,
    pub(crate) random: bool,
    /// Of one command; 0 where commands have none.
    pub(crate) block_bytes: u32,
    /// Commands in flight, of all queues together.
    pub(crate) depth: u32,
    /// Of zones.
    pub(crate) writers: Writers,
    /// Of a key-value drive.
    pub(crate) keys: Keys,
    /// Mean time of a command.
    pub(crate) mean_ns: f64,
    /// Of a drive in the steady state of random overwrites.
    pub(crate) sustained: bool,
}

impl Sample {
    /// `4 KiB randread, QD 32`.
    pub(crate) fn title(&self) -> String {
        let depth = u16::try_from(self.depth).unwrap_or(u16::MAX);
        let name = self.act.name();
        let title = match self.act {
            Act::Reset | Act::Delete => format!("{name}, QD {depth}"),
            Act::Retrieve | Act::Store => crate::report::job::title(name, self.block_bytes, depth),
            Act::Read | Act::Write => {
                let order = if self.random { "rand" } else { "" };
                crate::report::job::title(&format!("{order}{name}"), self.block_bytes, depth)
            }
        };
        let writers = match self.writers.count {
            1 => String::new(),
            count => format!(", {count} writers"),
        };
        let sustained = if self.sustained { ", sustained" } else { "" };
        format!("{title}{writers}{sustained}")
    }

    /// Commands in a second.
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.depth) * 1e9 / self.mean_ns
    }

    /// The point as a drive of `kind` has it.
    ///
    /// # Errors
    /// It says nothing of such a drive; why.
    pub(super) fn on(&self, kind: Kind) -> Result<Self, String> {
        let zoned = kind == Kind::Zns;
        let has = match self.act {
            Act::Read | Act::Write => kind != Kind::Kv,
            Act::Reset => zoned,
            Act::Retrieve | Act::Store | Act::Delete => kind == Kind::Kv,
        };
        if !has {
            let (name, kind) = (self.act.name(), kind.name());
            return Err(format!("a drive of kind {kind} knows no {name}"));
        }
        let writers = match (zoned, self.act) {
            (true, Act::Write) => self.writers,
            _ => Writers::ONE,
        };
        if zoned && self.act == Act::Write && self.random {
            return Err(
                "which zones it wrote to is not known: measure writes in order, each writer in zones of its own"
                    .to_owned(),
            );
        }
        if zoned && self.sustained {
            return Err("zones have no steady state of overwrites".to_owned());
        }
        if self.act == Act::Reset && self.depth > 1 {
            return Err("resets are measured one at a time".to_owned());
        }
        Ok(Sample {
            writers,
            ..self.clone()
        })
    }
}

/// A job whose name begins so has measured a drive in the steady state of random overwrites.
pub(crate) const SUSTAINED: &str = "sustained";

/// Most commands in flight that a point may have.
pub(super) const DEPTH_MAX: u32 = 1 << 16;
/// Largest command.
pub(super) const BLOCK_MAX: u32 = 1 << 27;
