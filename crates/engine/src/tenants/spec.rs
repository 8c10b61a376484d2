//! The configuration of tenants: names, weights, classes, caps and figures.

use port::ChannelId;
use port::time::Time;

use super::bucket::{Bucket, Cap};
use super::figures::Had;
pub use super::figures::TenantFigures;

/// Index of a tenant, the same on every engine of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantId(pub u16);

/// Priority class of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// By its weight.
    #[default]
    Fair,
    /// Before fair tenants, within a bound.
    Latency {
        /// Latency goal of its commands, in nanoseconds, except for the slowest 0.5 %. `None`:
        /// twice their minimum latency.
        goal_ns: Option<u64>,
    },
}

/// Configuration of a tenant, without its caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    /// Its part, beside others' weights; at least 1.
    pub weight: u32,
    /// Its priority class.
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

/// Caps and usage of a tenant, on all reactors together.
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

    /// Usage of the tenant. Reactors publish it once a turn.
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
