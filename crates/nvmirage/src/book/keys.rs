//! Reference of configuration keys, generated from the types that read them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use api::config::object::{Key, When};
use api::config::schema;
use serde_json::Value;

use super::{check, first_column, page, section};

/// The tables: title, type, and heading in `configuration.md`, which explains its keys; none for a
/// request.
const TABLES: &[(&str, &str, &str)] = &[
    ("Top level", "Config", "## Top level"),
    ("`[control]`", "Control", "### `[control]`"),
    ("`[log]`", "Log", "## `[log]`"),
    ("`[survival]`", "Survival", "## `[survival]`"),
    ("`[[reactor]]`", "Reactor", "## `[[reactor]]`"),
    ("`[[media]]`", "Medium", "## `[[media]]`"),
    ("`[media.zoned]`", "Zoned", "### `[media.zoned]`"),
    ("`[media.timing]`", "Timing", "### `[media.timing]`"),
    ("`[[namespace]]`", "Namespace", "## `[[namespace]]`"),
    ("`[[host]]`", "Host", "## `[[host]]`"),
    ("`[[tenant]]`", "Tenant", "## `[[tenant]]`"),
    ("`[[controller]]`", "Controller", "## `[[controller]]`"),
    ("`fuse` of a controller", "Fuse", "## `[[controller]]`"),
    ("`tcp` of a controller", "Tcp", "## `[[controller]]`"),
    ("`nbd` of a controller", "Nbd", "## `[[controller]]`"),
    ("A trace (`nvmirage trace start`)", "Trace", ""),
];

/// Schemas of the configuration and request types, from the generated API description; another test
/// keeps that current.
pub(super) fn schemas() -> Value {
    let document: Value = serde_json::from_str(&page("openapi.json")).unwrap();
    document["components"]["schemas"].clone()
}

pub(super) fn properties<'a>(schemas: &'a Value, name: &str) -> &'a serde_json::Map<String, Value> {
    schemas[name]["properties"]
        .as_object()
        .unwrap_or_else(|| panic!("{name} is no type with keys"))
}

/// Values of a key in words: the name of its type, or the accepted values.
fn kind(schemas: &Value, property: &Value) -> String {
    if let Some(path) = property["$ref"].as_str() {
        let name = path.rsplit('/').next().unwrap();
        match name {
            "AdminAllow" | "SocketMode" => return "text".into(),
            "Control" => return "address, or table".into(),
            "HostAddress" | "Listen" => return "address".into(),
            "Span" => return "time".into(),
            _ if schemas[name]["properties"].is_object() => return "table".into(),
            _ => {}
        }
        return match schemas[name]["enum"].as_array() {
            Some(words) => words
                .iter()
                .map(|word| format!("`\"{}\"`", word.as_str().unwrap()))
                .collect::<Vec<_>>()
                .join(", "),
            None => match schemas[name]["oneOf"].as_array() {
                Some(ways) if ways.iter().all(|way| way["enum"].is_array()) => ways
                    .iter()
                    .map(|way| kind(schemas, way))
                    .collect::<Vec<_>>()
                    .join(", "),
                _ => name.to_lowercase(),
            },
        };
    }
    if let Some(words) = property["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str);
        return words
            .map(|word| format!("`\"{word}\"`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(ways) = property["oneOf"].as_array() {
        let one = ways.iter().find(|way| way["type"] != "null").unwrap();
        return kind(schemas, one);
    }
    let types: Vec<&str> = match &property["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec!["any"],
    };
    match types.iter().find(|one| **one != "null").copied() {
        Some("array") => match kind(schemas, &property["items"]).as_str() {
            item @ ("integer" | "table") => format!("list of {item}s"),
            item => format!("list of {item}"),
        },
        Some("string") => "text".into(),
        Some(other) => other.into(),
        None => "any".into(),
    }
}

fn about(property: &Value) -> String {
    let own = property["description"].as_str();
    let of_one = property["oneOf"]
        .as_array()
        .and_then(|ways| ways.iter().find_map(|way| way["description"].as_str()));
    let text = own.or(of_one).unwrap_or_default();
    text.replace('\n', " ").replace('|', "\\|")
}

/// When a key can change, in a word.
fn changes(key: &Key) -> &'static str {
    match key.when {
        When::Live => "live",
        When::Step => "command",
        When::Fixed => "recreated",
        When::Restart => "restart",
    }
}

fn table(schemas: &Value, name: &str) -> String {
    let required: BTreeSet<&str> = schemas[name]["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    // A trace does not change.
    let mut tables = schema::TABLES.iter();
    let keys = tables.find(|(table, _)| *table == name && name != "Trace");
    let mut text = match keys {
        Some(_) => String::from("| key | value | changes | |\n|---|---|---|---|\n"),
        None => String::from("| key | value | |\n|---|---|---|\n"),
    };
    for (key, property) in properties(schemas, name) {
        let must = if required.contains(key.as_str()) {
            " Required."
        } else {
            ""
        };
        let kind = kind(schemas, property);
        let about = about(property);
        let key_of = |keys: &[Key]| keys.iter().find(|one| one.name == key).map(changes);
        let changes = keys.map(|(_, keys)| format!("{} | ", key_of(keys).unwrap()));
        let changes = changes.unwrap_or_default();
        writeln!(text, "| `{key}` | {kind} | {changes}{about}{must} |").unwrap();
    }
    text
}

#[test]
fn the_book_lists_every_key() {
    let schemas = schemas();
    let mut text = String::from(
        "# Configuration keys\n\nAll keys of a [configuration](configuration.md) file, generated from the program's types; that page explains behaviour and conditions. The bodies of requests on the\n\
         [control socket](control-socket.md) and the options of `nvmirage create` have the same keys. Sizes, times, ranges and addresses are text with \
         [units](configuration.md#forms).\n\nColumn *changes* states when a key can change:\n\n\
         - `live`: while hosts use the object, by `nvmirage reload`; for the log, tenants, controllers and timing parameters also by `nvmirage set`.\n\
         - `command`: while hosts use the object, by `nvmirage reload`, or by a command for this purpose: `create`, `delete`, `attach`, `detach`, `move`, `resize`.\n\
         - `recreated`: a reload deletes the object and creates it again.\n\
         - `restart`: at the next start of the server.\n",
    );
    for (title, name, _) in TABLES {
        write!(text, "\n## {title}\n\n{}", table(&schemas, name)).unwrap();
    }
    check("keys.md", &text);
}

#[test]
fn every_table_is_on_the_page() {
    for (table, _) in schema::TABLES {
        assert!(TABLES.iter().any(|(_, name, _)| name == table), "{table}");
    }
}

/// The keys that a section explains: the code at the start of each item.
fn explained(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`:"))
        .flat_map(|(keys, _)| keys.split("`, `").map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn the_page_that_explains_keys_has_no_other_key_and_repeats_no_table() {
    let schemas = schemas();
    let page = page("configuration.md");
    let described = TABLES
        .iter()
        .filter(|(_, name, _)| !["Fuse", "Nbd", "Tcp", "Trace"].contains(name));
    let mut all = BTreeSet::new();
    for (title, name, heading) in described {
        let of_type: BTreeSet<String> = properties(&schemas, name).keys().cloned().collect();
        let mut text = section(&page, heading);
        // a heading below it is another type's
        if let Some(at) = text[heading.len()..].find("\n###") {
            text = &text[..heading.len() + at];
        }
        let explained = explained(text);
        let unknown: Vec<_> = explained.difference(&of_type).collect();
        assert_eq!(unknown, Vec::<&String>::new(), "no keys of {title}");
        let rows = first_column(text);
        let repeated: Vec<_> = rows.intersection(&of_type).collect();
        assert_eq!(
            repeated,
            Vec::<&String>::new(),
            "keys of {title} are in keys.md"
        );
        all.extend(explained);
    }
    assert!(all.len() > 20, "the page explains keys: {all:?}");
}

#[test]
fn items_of_a_section_name_keys() {
    let text = "## A\n- `a`: x\n- `b`, `c`: y `d`: z\n- `ram` allocates\n| `e` | x |\n";
    let keys: Vec<_> = explained(text).into_iter().collect();
    assert_eq!(keys, ["a", "b", "c"]);
}
