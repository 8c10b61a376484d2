//! The dashboard's types of configurations, generated from the types that the server answers with.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use api::config::object::Object;
use api::config::tenant::Tenant;
use api::config::{Controller, Medium, Namespace, Reactor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::keys::{properties, schemas};

/// Keys that are always in a reply: those of the shortest object.
fn always<T: Serialize + DeserializeOwned>(shortest: Value) -> Value {
    let object: T = serde_json::from_value(shortest).unwrap();
    serde_json::to_value(object).unwrap()
}

/// The type of a value in TypeScript.
fn kind(schemas: &Value, value: &Value) -> String {
    let words = |words: &Vec<Value>| {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        words.join(" | ")
    };
    if let Some(path) = value["$ref"].as_str() {
        let schema = &schemas[path.rsplit('/').next().unwrap()];
        return if schema["properties"].is_object() {
            "{ [key: string]: unknown }".to_owned()
        } else {
            kind(schemas, schema)
        };
    }
    if let Some(ways) = value["oneOf"].as_array() {
        let ways = ways.iter().filter(|way| way["type"] != "null");
        let ways: Vec<String> = ways.map(|way| kind(schemas, way)).collect();
        return ways.join(" | ");
    }
    if let Some(all) = value["enum"].as_array() {
        return words(all);
    }
    let types = match &value["type"] {
        Value::Array(types) => types.iter().find(|one| **one != "null"),
        one => Some(one),
    };
    match types.and_then(Value::as_str) {
        Some("integer" | "number") => "number".to_owned(),
        Some("boolean") => "boolean".to_owned(),
        Some("array") => match kind(schemas, &value["items"]) {
            item if item.contains(' ') => format!("({item})[]"),
            item => format!("{item}[]"),
        },
        Some("string") => "string".to_owned(),
        Some("object") if value["additionalProperties"].is_object() => {
            let part = kind(schemas, &value["additionalProperties"]);
            format!("{{ [key: string]: {part} }}")
        }
        _ => "unknown".to_owned(),
    }
}

#[test]
fn a_value_has_a_type() {
    let schemas = json!({"Word": {"type": "string", "enum": ["a", "b"]}});
    for (value, wanted) in [
        (json!({"type": ["integer", "null"]}), "number"),
        (json!({"$ref": "#/components/schemas/Word"}), r#""a" | "b""#),
        (
            json!({"type": "array", "items": {"$ref": "#/components/schemas/Word"}}),
            r#"("a" | "b")[]"#,
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "{ [key: string]: string }",
        ),
        (
            json!({"oneOf": [{"type": "null"}, {"type": "string"}]}),
            "string",
        ),
    ] {
        assert_eq!(kind(&schemas, &value), wanted);
    }
}

#[test]
fn the_dashboard_knows_every_key() {
    let schemas = schemas();
    let mut text = String::from(
        "// Configurations of objects, generated from the program: renew it with\n// UPDATE_BOOK=1 cargo test -p nvmirage --bin nvmirage book::\n",
    );
    let namespace = json!({"name": "n", "media": "m"});
    let controller = json!({"name": "c", "listen": "vfio-user:/c"});
    for (name, about, always) in [
        ("Reactor", Reactor::KIND, always::<Reactor>(json!({}))),
        (
            "Medium",
            "medium",
            always::<Medium>(json!({"name": "m", "kind": "ram"})),
        ),
        ("Namespace", Namespace::KIND, always::<Namespace>(namespace)),
        (
            "Tenant",
            Tenant::KIND,
            always::<Tenant>(json!({"name": "t"})),
        ),
        (
            "Controller",
            Controller::KIND,
            always::<Controller>(controller),
        ),
    ] {
        write!(
            text,
            "\n/** Keys of a {about}. */\nexport interface {name} {{\n"
        )
        .unwrap();
        for (key, value) in properties(&schemas, name) {
            let optional = if always[key].is_null() { "?" } else { "" };
            writeln!(text, "  {key}{optional}: {};", kind(&schemas, value)).unwrap();
        }
        text += "}\n";
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/config.ts");
    if env::var_os("UPDATE_BOOK").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "web/src/config.ts is not what the program has: renew it with UPDATE_BOOK=1 cargo test -p nvmirage --bin nvmirage book::"
    );
}
