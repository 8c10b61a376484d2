//! The configuration of tenants: names, weights, classes, caps and figures.

use std::sync::Arc;

use port::time::Time;
use port::{Channel, ChannelId};

use super::bucket::{Bucket, Cap};
use super::figures::Had;
pub use super::figures::TenantFigures;
use crate::Engine;
use crate::mail::EngineId;
use crate::turn::ControllerSlot;

/// Index of a tenant, the same on every engine of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantId(pub u16);

/// Priority class of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// By its weight.
    #[default]
    Fair,
    /// It goes first, within a bound.
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

impl<C: Channel> Engine<C> {
    /// Adds or changes a tenant. Every engine of a process receives the same, with the same budget.
    pub fn set_tenant(&mut self, id: TenantId, spec: TenantSpec, budget: Arc<Budget>) {
        self.tenants.get_or_insert_default().set(id, spec, budget);
    }

    /// Whose a namespace's commands are, whichever controller they come by, and its weight beside
    /// others of the same tenant. `None`: the controller's.
    pub fn assign_namespace(
        &mut self,
        namespace: NamespaceKey,
        tenant: Option<TenantId>,
        weight: u32,
    ) {
        let tenants = self.tenants.get_or_insert_default();
        tenants.assign(namespace, tenant, weight);
    }

    /// Whose the commands of a controller of that engine are.
    pub fn assign_controller(
        &mut self,
        home: EngineId,
        controller: ControllerSlot,
        tenant: Option<TenantId>,
    ) {
        self.lanes.assign(home, controller.0, tenant);
    }

    /// Removes a tenant, which must not be referenced any more. Its commands in media end without a
    /// tenant.
    pub fn remove_tenant(&mut self, id: TenantId) {
        if let Some(tenants) = &mut self.tenants {
            tenants.remove(id);
        }
    }
}
