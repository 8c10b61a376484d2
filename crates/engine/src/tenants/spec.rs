//! What tenants are to whoever configures them: names, weights, classes, caps and figures.

use port::ChannelId;
use port::time::Time;

use super::bucket::{Bucket, Cap};
use super::figures::Had;
pub use super::figures::TenantFigures;

/// Which tenant, on every engine of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantId(pub u16);

/// How a tenant stands to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// By its weight.
    #[default]
    Fair,
    /// It goes first, within a bound.
    Latency {
        /// Its commands should take no longer than this, in nanoseconds, but for the slowest 0.5 %.
        /// `None`: than twice as long as they take at the least.
        goal_ns: Option<u64>,
    },
}

/// What a tenant may have, beside its caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    /// Its part, beside others' weights; at least 1.
    pub weight: u32,
    /// How it stands to others.
    pub class: Class,
    /// Most commands that media may have of it, for each reactor.
    pub in_flight: Option<u32>,
}

impl Default for TenantSpec {
    fn default() -> Self {
        TenantSpec {
            weight: 100,
            class: Class::Fair,
            in_flight: None,
        }
    }
}

/// What a tenant may spend and what it has had, on all reactors together.
#[derive(Debug, Default)]
pub struct Budget {
    pub(super) commands: Bucket,
    pub(super) bytes: Bucket,
    pub(super) had: Had,
}

impl Budget {
    /// Caps it differently from `now` on: commands and bytes in a second.
    pub fn set(&self, commands: Option<Cap>, bytes: Option<Cap>, now: Time) {
        self.commands.set(commands, now);
        self.bytes.set(bytes, now);
    }

    /// What the tenant has had. Reactors tell it once a turn.
    #[must_use]
    pub fn figures(&self) -> TenantFigures {
        self.had.get()
    }
}

/// A namespace, by where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceKey {
    /// Its medium.
    pub channel: ChannelId,
    /// Its first byte there.
    pub start: u64,
}
