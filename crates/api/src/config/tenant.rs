//! Tenants: groups of commands that share media by weights and rate limits.

use std::time::Duration;

use engine::tenants::{Cap, TenantSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::{Bounds, object};
use super::problem::{Place, Problem};
use super::{Size, Span};

/// Most tenants.
pub(super) const MAX_TENANTS: usize = 1024;
/// The largest weight.
pub(super) const MAX_WEIGHT: u64 = 10_000;
const UNLIMITED: &str = "unlimited";
const NO_LIMIT: &str = "leave it out for no limit";

/// Scheduling class of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Share media by weight.
    #[default]
    Fair,
    /// Serve before other tenants, as long as the tenant uses no more than its share.
    Latency,
}

object! {
    /// Tenant: a group of commands that shares media with others.
    pub struct Tenant(TenantKeys, "tenant") {
        /// Name that controllers and namespaces write as `tenant`.
        name: String => Fixed { bounds: Bounds::Name };
        /// Weight of the tenant on a medium that several tenants use.
        weight: u32 = TenantSpec::default().weight => Live {
            bounds: Bounds::Whole(1, MAX_WEIGHT),
            value: "N",
        };
        /// Scheduling class: `fair` shares media by weight, `latency` is served before other
        /// tenants as long as the tenant uses no more than its share.
        class: Class = Class::default() => Live;
        /// Target latency of the tenant's commands, except the slowest 0.5 %. Only for `class =
        /// "latency"`.
        goal: Option<Span> | unset => Live {
            bounds: Bounds::Time(1, u64::MAX),
            unset: "twice their lowest latency",
            value: "TIME",
        };
        /// Maximum number of commands per second, on all reactors together.
        iops: Option<u64> | unset => Live {
            bounds: Bounds::Whole(1, u64::MAX),
            hint: NO_LIMIT,
            unset: UNLIMITED,
            value: "N",
        };
        /// Maximum number of bytes per second, on all reactors together.
        bandwidth: Option<Size> | unset => Live {
            bounds: Bounds::Bytes(1, u64::MAX),
            hint: NO_LIMIT,
            unset: UNLIMITED,
            value: "SIZE",
        };
        /// Burst allowance of `iops` and `bandwidth`: after a rest, commands worth this time may
        /// start at once.
        burst: Span = Span(Duration::from_millis(10)) => Live {
            bounds: Bounds::Time(0, 60_000_000_000),
            value: "TIME",
        };
        /// Maximum number of commands in flight at media, per reactor.
        in_flight: Option<u32> | unset => Live {
            bounds: Bounds::Whole(1, u64::MAX),
            hint: NO_LIMIT,
            unset: UNLIMITED,
            value: "N",
        };
    }
}

/// Default weight of a namespace among those of its tenant.
pub fn default_weight() -> u32 {
    TenantSpec::default().weight
}

impl Tenant {
    /// The tenant as engines take it.
    pub fn spec(&self) -> TenantSpec {
        let goal_ns = |goal: Span| u64::try_from(goal.0.as_nanos()).unwrap_or(u64::MAX);
        TenantSpec {
            weight: self.weight,
            class: match self.class {
                Class::Fair => engine::tenants::Class::Fair,
                Class::Latency => engine::tenants::Class::Latency {
                    goal_ns: self.goal.map(goal_ns),
                },
            },
            in_flight: self.in_flight,
        }
    }

    /// Its limits on commands and on bytes.
    pub fn caps(&self) -> (Option<Cap>, Option<Cap>) {
        let cap = |per_second: u64| {
            let burst = u128::from(per_second) * self.burst.0.as_nanos() / 1_000_000_000;
            Cap {
                per_second,
                burst: u64::try_from(burst).unwrap_or(u64::MAX).max(1),
            }
        };
        let bandwidth = self.bandwidth.map(|bytes| cap(bytes.0));
        (self.iops.map(cap), bandwidth)
    }

    /// Appends what is wrong with it.
    pub(super) fn validate(&self, problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("tenant {}", self.name),
            problems,
        };
        place.keys(self);
        place.require(self.goal.is_none() || self.class == Class::Latency, || {
            "goal is only for class = \"latency\": remove it, or write that class".into()
        });
    }
}
