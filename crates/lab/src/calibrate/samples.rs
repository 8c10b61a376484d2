//! Measurements: commands of a drive, and their mean time.
//!
//! A point is usable if a constant number of commands of one kind and size was in flight.
//!
//! Not included: any judgement of a measurement. A measured cache or a throttling drive gives a
//! model of that.

use model::Kind;

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Read,
    Write,
    /// Reset of a full zone.
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

    /// The kinds of commands that must be measured on a kind of drive, so that it needs no preset.
    pub(super) fn of_kind(kind: Kind) -> [Act; 2] {
        match kind {
            Kind::Kv => [Act::Retrieve, Act::Store],
            _ => [Act::Read, Act::Write],
        }
    }

    /// Whether the command has a key.
    pub(super) fn is_keyed(self) -> bool {
        matches!(self, Act::Retrieve | Act::Store | Act::Delete)
    }

    /// Whether the command transfers no data.
    pub(super) fn is_bare(self) -> bool {
        matches!(self, Act::Reset | Act::Delete)
    }
}

/// Writers of zones; each writes its own zones in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writers {
    pub(crate) count: u32,
    /// Distance from the first zone of a writer to that of the next; 0: they take zones in turns.
    pub(crate) apart: u32,
}

impl Writers {
    /// One writer, or an equivalent.
    pub(crate) const ONE: Self = Writers { count: 1, apart: 0 };
}

/// Keys of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Keys that `nvmirage simulate` derives from places.
    Places,
    /// Keys of `nvmirage kv bench`, in order.
    Bench,
}

/// A measured point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) act: Act,
    pub(crate) random: bool,
    /// Size of one command; 0 for commands without data.
    pub(crate) block_bytes: u32,
    /// Commands in flight, all queues together.
    pub(crate) depth: u32,
    /// Writers, on a zoned drive.
    pub(crate) writers: Writers,
    /// Keys, on a key-value drive.
    pub(crate) keys: Keys,
    /// Mean time of a command.
    pub(crate) mean_ns: f64,
    /// Whether the drive was in the steady state of random overwrites.
    pub(crate) sustained: bool,
}

impl Sample {
    /// Title, as in `4 KiB randread, QD 32`.
    pub(crate) fn title(&self) -> String {
        let depth = u16::try_from(self.depth).unwrap_or(u16::MAX);
        let name = self.act.name();
        let title = match self.act {
            Act::Reset | Act::Delete => format!("{name}, QD {depth}"),
            Act::Retrieve | Act::Store => crate::job::title(name, self.block_bytes, depth),
            Act::Read | Act::Write => {
                let order = if self.random { "rand" } else { "" };
                crate::job::title(&format!("{order}{name}"), self.block_bytes, depth)
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

    /// The point as it applies to a drive of `kind`.
    ///
    /// # Errors
    /// The reason why it does not apply.
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

/// Prefix of the names of jobs that measured the steady state of random overwrites.
pub(crate) const SUSTAINED: &str = "sustained";

/// Maximum number of commands in flight of a point.
pub(super) const DEPTH_MAX: u32 = 1 << 16;
/// Maximum size of a command.
pub(super) const BLOCK_MAX: u32 = 1 << 27;
