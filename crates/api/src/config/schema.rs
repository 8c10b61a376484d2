//! The tables of keys of all objects, and what they say in the API description.

use std::collections::BTreeMap;

use utoipa::Number;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema};

use super::log::Log;
use super::object::{Key, Listed, Object, When};
use super::survival::Survival;
use super::tenant::Tenant;
use super::trace::Trace;
use super::{
    Config, Control, Controller, Fuse, Host, MediumKeys, Namespace, Nbd, Reactor, Tcp, Zoned,
};

macro_rules! tables {
    ($($name:literal: $object:ty,)+) => {
        /// The tables, by the names of their types in the API description.
        pub const TABLES: &[(&str, &[Key])] = &[$(($name, <$object>::KEYS)),+];

        $(impl Listed for $object {})+
    };
}

tables! {
    "Config": Config,
    "Control": Control,
    "Controller": Controller,
    "Fuse": Fuse,
    "Host": Host,
    "Log": Log,
    "Medium": MediumKeys,
    "Namespace": Namespace,
    "Nbd": Nbd,
    "Reactor": Reactor,
    "Survival": Survival,
    "Tcp": Tcp,
    "Tenant": Tenant,
    "Trace": Trace,
    "Zoned": Zoned,
}

/// Requests that change keys of an object, by the names of their types.
const CHANGES: [(&str, &str, &[Key]); 1] = [("ControllerChange", "Controller", Controller::KEYS)];

/// Completes the schemas of objects, and of the requests that change them, by the tables.
pub fn describe(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    for (name, keys) in TABLES.iter().copied() {
        let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(name) else {
            continue;
        };
        let required = keys.iter().filter(|key| key.default.is_none());
        object.required = required.map(|key| key.name.to_owned()).collect();
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        for key in keys {
            if let Some(property) = object.properties.get_mut(key.name) {
                describe_key(property, key);
            }
        }
    }
    for (name, object, keys) in CHANGES {
        let Some(RefOr::T(Schema::Object(object))) = schemas.get(object) else {
            continue;
        };
        let mut change =
            ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(false)));
        for key in keys.iter().filter(|key| key.when == When::Live) {
            if let Some(property) = object.properties.get(key.name) {
                change = change.property(key.name, property.clone());
            }
        }
        if let Some(RefOr::T(Schema::Object(there))) = schemas.get_mut(name) {
            let description = there.description.take();
            *there = change.description(description).build();
        }
    }
}

fn describe_key(property: &mut RefOr<Schema>, key: &Key) {
    let text = key.text();
    match property {
        RefOr::Ref(reference) => reference.description = text,
        RefOr::T(Schema::Array(array)) => array.description = Some(text),
        RefOr::T(Schema::OneOf(ways)) => {
            for way in &mut ways.items {
                if let RefOr::Ref(reference) = way {
                    reference.description.clone_from(&text);
                }
            }
        }
        RefOr::T(Schema::Object(value)) => {
            value.description = Some(text);
            if let Some((least, most)) = key.bounds.numbers() {
                let least = if key.off.is_empty() { least } else { 0 };
                value.minimum = usize::try_from(least).ok().map(Number::UInt);
                let most = usize::try_from(most).ok().filter(|most| *most < usize::MAX);
                value.maximum = most.map(Number::UInt);
            }
            let default = key.default.map(|of| of());
            value.default = default.filter(|value| !value.is_null() && key.unset.is_empty());
        }
        RefOr::T(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::object::Bounds;

    #[test]
    fn every_default_is_accepted() {
        let mut bounded = 0;
        for (table, keys) in TABLES {
            for key in *keys {
                assert!(key.about.ends_with('.'), "{table} {}", key.name);
                let default = key.default.map(|of| of()).unwrap_or_default();
                assert_eq!(key.check(&default), Ok(()), "{table}");
                bounded += usize::from(key.bounds != Bounds::Any);
            }
        }
        assert!(bounded > 20, "{bounded}");
    }
}
