//! Updates of tenants, for the engine of a reactor.

use std::sync::Arc;

use engine::tenants::{Budget, NamespaceKey, TenantId, TenantSpec};
use engine::{ControllerSlot, Engine, EngineId};

/// An update for a reactor.
#[derive(Clone, Debug)]
pub enum TenantNews {
    /// A tenant is new or changed.
    Tenant(TenantId, TenantSpec, Arc<Budget>),
    /// Tenant of a namespace, and its weight within the tenant.
    Namespace(NamespaceKey, Option<TenantId>, u32),
    /// Tenant of a controller.
    Controller(EngineId, ControllerSlot, Option<TenantId>),
    /// A tenant was deleted.
    Gone(TenantId),
}

impl TenantNews {
    /// Applies the update to an engine.
    pub fn tell<C: port::Channel>(self, engine: &mut Engine<C>) {
        match self {
            TenantNews::Tenant(id, spec, budget) => engine.set_tenant(id, spec, budget),
            TenantNews::Namespace(key, tenant, weight) => {
                engine.assign_namespace(key, tenant, weight);
            }
            TenantNews::Controller(home, slot, tenant) => {
                engine.assign_controller(home, slot, tenant);
            }
            TenantNews::Gone(id) => engine.remove_tenant(id),
        }
    }
}
