//! What the tables of keys say, in the API description.

use std::collections::BTreeMap;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::{Key, Object};
use crate::config::tenant::Tenant;
use crate::config::{Controller, Fuse, Namespace, Reactor, Zoned};

/// The tables, by the names of their types.
const TABLES: [(&str, &[Key]); 6] = [
    ("Controller", Controller::KEYS),
    ("Fuse", Fuse::KEYS),
    ("Namespace", Namespace::KEYS),
    ("Reactor", Reactor::KEYS),
    ("Tenant", Tenant::KEYS),
    ("Zoned", Zoned::KEYS),
];

/// Completes the schemas of objects by their tables.
pub fn describe(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    for (name, keys) in TABLES {
        let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(name) else {
            continue;
        };
        let required = keys.iter().filter(|key| key.default.is_none());
        object.required = required.map(|key| key.name.to_owned()).collect();
    }
}
