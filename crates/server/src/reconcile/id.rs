//! Identifiers of objects. The kind is part of the type, so a name of one kind is not taken for a
//! name of another.

use api::Kind;
use api::config::tenant::Tenant;
use api::config::{Controller, Medium, Namespace};

use super::inventory::Named;

/// An object of a configuration, its hosts, or the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectId {
    /// A medium.
    Media(MediumId),
    /// A namespace.
    Namespace(NamespaceId),
    /// A tenant.
    Tenant(TenantId),
    /// A controller.
    Controller(ControllerId),
    /// The hosts over NVMe/TCP.
    Hosts,
    /// The log.
    Log,
}

impl ObjectId {
    /// Its kind.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            ObjectId::Media(_) => Kind::Media,
            ObjectId::Namespace(_) => Kind::Namespace,
            ObjectId::Tenant(_) => Kind::Tenant,
            ObjectId::Controller(_) => Kind::Controller,
            ObjectId::Hosts => Kind::Host,
            ObjectId::Log => Kind::Log,
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        match self {
            ObjectId::Media(id) => id.as_str(),
            ObjectId::Namespace(id) => id.as_str(),
            ObjectId::Tenant(id) => id.as_str(),
            ObjectId::Controller(id) => id.as_str(),
            ObjectId::Hosts => "hosts",
            ObjectId::Log => "log",
        }
    }
}

/// An object that has an identifier.
pub(crate) trait Identified: Named {
    /// Its identifier.
    fn id(&self) -> ObjectId;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident, $object:ident, $variant:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $id(Box<str>);

        impl $id {
            pub(crate) fn new(name: &str) -> Self {
                $id(name.into())
            }

            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<$id> for ObjectId {
            fn from(id: $id) -> Self {
                ObjectId::$variant(id)
            }
        }

        impl Identified for $object {
            fn id(&self) -> ObjectId {
                $id::new(&self.name).into()
            }
        }
    )*};
}

ids! {
    /// Name of a medium.
    MediumId, Medium, Media;
    /// Name of a namespace.
    NamespaceId, Namespace, Namespace;
    /// Name of a tenant.
    TenantId, Tenant, Tenant;
    /// Name of a controller.
    ControllerId, Controller, Controller;
}
