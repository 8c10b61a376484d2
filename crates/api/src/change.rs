//! Changes of objects by key.

use serde_json::{Map, Value};

use crate::config::object::{Object, json};
use crate::{Refusal, body};

/// The object with new values for live keys, in JSON, or as on a command line. Null, and the
/// word `none`, restore the default. `at` is the place of the changes in the request.
///
/// # Errors
/// A key that cannot change, or a value that is not of its type.
pub fn changed<T: Object>(
    object: &T,
    changes: &Map<String, Value>,
    at: &str,
) -> Result<T, Refusal> {
    let mut values = json(object);
    for (name, value) in changes {
        let invalid =
            |error: String| Refusal::invalid_at(format!("{at}/{}", body::escaped(name)), error);
        let key = T::live(name).map_err(invalid)?;
        values[key.name] = match value {
            Value::String(text) if text == "none" => Value::Null,
            Value::String(text) => key.parse(text).map_err(invalid)?,
            value => value.clone(),
        };
    }
    if let Value::Object(values) = &mut values {
        values.retain(|_, value| !value.is_null());
    }
    body::from_value(values, at)
}
