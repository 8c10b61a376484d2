//! A metric of an object, and its values.

use super::text::{Kind, Number, Unit};

/// A metric of one kind of object.
pub(super) struct Metric<T> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) values: fn(&T) -> Vec<Value>,
}

/// A value, with additional labels if an object has several.
pub(super) struct Value(pub(super) Vec<(&'static str, String)>, pub(super) Number);

pub(super) fn one(value: u64) -> Vec<Value> {
    vec![Value(Vec::new(), Number::Whole(value))]
}

/// An optional value.
pub(super) fn maybe(value: Option<u64>) -> Vec<Value> {
    value.map_or(Vec::new(), one)
}

pub(super) fn labelled(label: &'static str, word: impl Into<String>, value: u64) -> Value {
    Value(vec![(label, word.into())], Number::Whole(value))
}

pub(super) fn by(label: &'static str, values: &[(&str, u64)]) -> Vec<Value> {
    let values = values.iter();
    values
        .map(|(name, value)| labelled(label, *name, *value))
        .collect()
}
