//! The objects of a configuration that can change at run time.

use api::Held;
use api::config::tenant::Tenant;
use api::config::{Config, Controller, Medium, Namespace};
use serde::{Deserialize, Serialize};

/// The objects that can change at run time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Objects {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) media: Vec<Medium>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) namespace: Vec<Namespace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenant: Vec<Tenant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) controller: Vec<Controller>,
}

impl Objects {
    /// The objects of a configuration.
    pub(crate) fn of(config: &Config) -> Self {
        Objects {
            media: config.media.clone(),
            namespace: config.namespace.clone(),
            tenant: config.tenant.clone(),
            controller: config.controller.clone(),
        }
    }

    /// Adds the objects of `before` that are deferred and have no version here.
    pub(crate) fn add_held(&mut self, before: &Objects, held: &[Held]) {
        fn kind<T: Named>(all: &mut Vec<T>, before: &[T], held: &[Held]) {
            for one in held.iter().filter(|one| one.kind.name() == T::KIND) {
                if find(all, &one.name).is_none() {
                    all.extend(find(before, &one.name).cloned());
                }
            }
        }
        kind(&mut self.media, &before.media, held);
        kind(&mut self.namespace, &before.namespace, held);
        kind(&mut self.tenant, &before.tenant, held);
        kind(&mut self.controller, &before.controller, held);
    }

    /// Replaces the objects of a configuration.
    pub(crate) fn put_into(self, config: &mut Config) {
        config.media = self.media;
        config.namespace = self.namespace;
        config.tenant = self.tenant;
        config.controller = self.controller;
    }
}

/// An object with a name.
pub(crate) trait Named: Clone + PartialEq {
    /// Kind, for messages.
    const KIND: &'static str;
    /// Its name, unique within its kind.
    fn name(&self) -> &str;
}

/// The object of that name.
pub(crate) fn find<'a, T: Named>(all: &'a [T], name: &str) -> Option<&'a T> {
    all.iter().find(|one| one.name() == name)
}

macro_rules! named {
    ($($type:ty: $kind:literal),*) => {$(
        impl Named for $type {
            const KIND: &'static str = $kind;
            fn name(&self) -> &str {
                &self.name
            }
        }
    )*};
}

named!(Medium: "media", Namespace: "namespace", Tenant: "tenant", Controller: "controller");
