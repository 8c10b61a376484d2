//! Changes of objects by key.

use serde_json::{Map, Value};

use crate::config::object::{Object, json};
use crate::{Refusal, body};

/// Sets parts of a key that is a table; null, and the word `none`, remove one.
fn change_parts(there: &mut Value, parts: &Map<String, Value>) {
    let mut all = match there.take() {
        Value::Object(all) => all,
        _ => Map::new(),
    };
    for (part, value) in parts {
        if value.is_null() || value == "none" {
            all.remove(part);
        } else {
            all.insert(part.clone(), value.clone());
        }
    }
    *there = Value::Object(all);
}

/// The object with new values for live keys, in JSON, or as on a command line. Null, and the
/// word `none`, restore the default. A table changes those parts of a key that it has. `at` is the
/// place of the changes in the request.
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
        if let (Value::Object(parts), false) = (value, key.parts.is_empty()) {
            change_parts(&mut values[key.name], parts);
            continue;
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{AnaState, Controller, Listen};

    fn change(from: &Controller, changes: Value) -> Result<Controller, Refusal> {
        let Value::Object(changes) = changes else {
            panic!("a table");
        };
        changed(from, &changes, "")
    }

    #[test]
    fn a_table_changes_the_parts_that_it_has() {
        let listen: Listen = "nvme-tcp:127.0.0.1:4420".parse().unwrap();
        let none = Controller::new("c".to_owned(), listen);
        let two = change(&none, json!({"ana": {"1": "non-optimized", "2": "change"}})).unwrap();
        let other = change(&two, json!({"ana": {"2": "inaccessible"}})).unwrap();
        assert_eq!(other.ana.state(1), AnaState::NonOptimized);
        assert_eq!(other.ana.state(2), AnaState::Inaccessible);
        for nothing in [json!(null), json!("none")] {
            let less = change(&other, json!({"ana": {"1": nothing}})).unwrap();
            assert_eq!(less.ana.to_string(), "2=inaccessible");
            assert_eq!(
                change(&other, json!({"ana": nothing})).unwrap().ana,
                none.ana
            );
        }
        // A text is the whole.
        let whole = change(&other, json!({"ana": "3=change"})).unwrap();
        assert_eq!(whole.ana.to_string(), "3=change");
        // Other keys have no parts, and parts are checked as the whole is.
        assert!(change(&none, json!({"sample": {"1": 2}})).is_err());
        assert!(change(&two, json!({"ana": {"129": "change"}})).is_err());
        assert!(change(&two, json!({"ana": {"1": 7}})).is_err());
    }
}
