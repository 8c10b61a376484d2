//! Tenants: groups of commands that share media by weights and rate limits.

use std::time::Duration;

use engine::tenants::{Cap, TenantSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::object::object;
use super::validate::{Place, Problem};
use super::{Config, Size, Span};

/// Most tenants.
const MAX_TENANTS: usize = 1024;
/// The largest weight.
const MAX_WEIGHT: u32 = 10_000;
/// Longest burst allowance.
const MAX_BURST: Duration = Duration::from_secs(60);

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
        /// Name that controllers and namespaces write as `tenant`: 1 to 64 letters, digits, `.`,
        /// `_` or `-`.
        name: String => Fixed;
        /// Weight of the tenant on a medium that several tenants use: 1 to 10000. Default: 100.
        weight: u32 = TenantSpec::default().weight => Live;
        /// Scheduling class: `fair` or `latency`. Default: `fair`.
        class: Class = Class::default() => Live;
        /// Target latency of its commands, except the slowest 0.5 %; more than 0. Only for `class =
        /// "latency"`. Default: twice their lowest latency.
        goal: Option<Span> | unset => Live;
        /// Maximum number of commands per second, on all reactors together; at least 1. Default:
        /// unlimited.
        iops: Option<u64> | unset => Live;
        /// Maximum number of bytes per second, on all reactors together; more than 0. Default:
        /// unlimited.
        bandwidth: Option<Size> | unset => Live;
        /// Burst allowance of `iops` and `bandwidth`: after a rest, commands worth this time may
        /// start at once. Up to 60s. Default: `10ms`.
        burst: Span = Span(Duration::from_millis(10)) => Live;
        /// Maximum number of commands in flight at media, per reactor; at least 1. Default:
        /// unlimited.
        in_flight: Option<u32> | unset => Live;
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

    /// The tenant with new values for some keys, in the syntax of a configuration; `none` removes
    /// an optional key.
    ///
    /// # Errors
    /// A key or value that is invalid.
    pub fn changed(&self, changes: &[(String, String)]) -> Result<Tenant, String> {
        let table = toml::Table::try_from(self);
        let mut table = table.map_err(|error| error.to_string())?;
        for (key, text) in changes {
            if key == "name" {
                return Err("the name of a tenant cannot change: create another tenant".to_owned());
            }
            if text == "none" {
                table.remove(key);
                continue;
            }
            let value = text
                .parse::<i64>()
                .map_or_else(|_| toml::Value::String(text.clone()), toml::Value::Integer);
            table.insert(key.clone(), value);
        }
        let changed = table.try_into();
        changed.map_err(|error: toml::de::Error| error.message().to_owned())
    }

    fn validate(&self, problems: &mut Vec<Problem>) {
        let mut place = Place {
            name: format!("tenant {}", self.name),
            problems,
        };
        place.weight(self.weight);
        place.require(self.goal.is_none() || self.class == Class::Latency, || {
            "goal is only for class = \"latency\": remove it, or write that class".into()
        });
        let goal_is_zero = self.goal.is_some_and(|goal| goal.0.is_zero());
        place.require(!goal_is_zero, || "goal: write more than 0".into());
        place.require(self.iops != Some(0), || {
            "iops = 0: write 1 or more, or remove it for no limit".into()
        });
        place.require(self.bandwidth != Some(Size(0)), || {
            "bandwidth: write more than 0, or remove it for no limit".into()
        });
        place.require(self.in_flight != Some(0), || {
            "in_flight = 0: write 1 or more, or remove it for no limit".into()
        });
        let burst = self.burst;
        place.require(burst.0 <= MAX_BURST, || {
            format!("burst = \"{burst}\": write at most 60s")
        });
    }
}

impl Place<'_> {
    fn weight(&mut self, weight: u32) {
        self.require((1..=MAX_WEIGHT).contains(&weight), || {
            format!("weight = {weight}: write 1 to {MAX_WEIGHT}")
        });
    }
}

impl Config {
    /// Appends what is wrong with tenants, and with references to them.
    pub(super) fn validate_tenants(&self, problems: &mut Vec<Problem>) {
        let tenants = &self.tenant;
        if tenants.len() > MAX_TENANTS {
            problems.push(Problem {
                place: "tenant".into(),
                what: format!(
                    "{} tenants, more than the maximum of {MAX_TENANTS}: remove some",
                    tenants.len()
                ),
            });
        }
        tenants.iter().for_each(|tenant| tenant.validate(problems));
        let controllers = self.controller.iter();
        let controllers = controllers.map(|c| (format!("controller {}", c.name), &c.tenant, None));
        let namespaces = self.namespace.iter();
        let namespaces = namespaces.map(|n| (format!("namespace {}", n.name), &n.tenant, n.weight));
        for (name, tenant, weight) in controllers.chain(namespaces) {
            let mut place = Place { name, problems };
            if let Some(weight) = weight {
                place.weight(weight);
            }
            if let Some(tenant) = tenant
                && !tenants.iter().any(|one| one.name == *tenant)
            {
                place.problem(format!(
                    "tenant = \"{tenant}\": there is no such tenant: write a [[tenant]] with that name"
                ));
            }
        }
    }
}
