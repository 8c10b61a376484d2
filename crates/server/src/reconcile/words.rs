//! Descriptions of steps: the keys that differ, and the properties of new objects.

use api::config::tenant::Tenant;
use api::config::{Controller, Medium, Namespace};
use serde::Serialize;
use serde_json::Value;

/// Keys of two objects that differ, with their values: `iops 1000 -> 2000`.
pub(super) fn differences(now: &impl Serialize, wanted: &impl Serialize) -> String {
    let lines = keys(now, wanted).into_iter().map(|(key, now, wanted)| {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "none".into());
        format!("{key} {} -> {}", shown(now), shown(wanted))
    });
    lines.collect::<Vec<_>>().join(", ")
}

/// The same, without values.
pub(super) fn names(now: &impl Serialize, wanted: &impl Serialize) -> String {
    let names = keys(now, wanted).into_iter().map(|(key, _, _)| key);
    names.collect::<Vec<_>>().join(", ")
}

type Difference = (String, Option<String>, Option<String>);

fn keys(now: &impl Serialize, wanted: &impl Serialize) -> Vec<Difference> {
    let (now, wanted) = (flat(now), flat(wanted));
    let mut names: Vec<&String> = now.iter().chain(&wanted).map(|(key, _)| key).collect();
    names.sort();
    names.dedup();
    let get = |all: &[(String, String)], key: &String| {
        let found = all.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.clone())
    };
    let differ = names.into_iter().filter_map(|key| {
        let (now, wanted) = (get(&now, key), get(&wanted, key));
        (now != wanted).then(|| (key.clone(), now, wanted))
    });
    differ.collect()
}

/// Keys with their values; keys of nested tables as `table.key`.
fn flat(object: &impl Serialize) -> Vec<(String, String)> {
    fn below(prefix: &str, value: &Value, all: &mut Vec<(String, String)>) {
        match value {
            Value::Object(keys) => {
                for (key, value) in keys {
                    let name = match prefix {
                        "" => key.clone(),
                        prefix => format!("{prefix}.{key}"),
                    };
                    below(&name, value, all);
                }
            }
            Value::String(text) => all.push((prefix.to_owned(), text.clone())),
            other => all.push((prefix.to_owned(), other.to_string())),
        }
    }
    let mut all = Vec::new();
    let value = serde_json::to_value(object).unwrap_or_default();
    below("", &value, &mut all);
    all
}

pub(super) fn medium(medium: &Medium) -> String {
    let kind = serde_json::to_value(medium.kind()).unwrap_or_default();
    let mut words = vec![kind.as_str().unwrap_or_default().to_owned()];
    words.extend(medium.path().map(|path| path.display().to_string()));
    words.extend(medium.drive().map(|drive| drive.target.to_string()));
    words.extend(medium.size().map(|size| size.to_string()));
    words.extend(medium.timing.as_ref().map(|timing| timing.preset.clone()));
    words.join(", ")
}

pub(super) fn namespace(namespace: &Namespace) -> String {
    let part = match (&namespace.range, &namespace.partition) {
        (Some(range), _) => format!(", {range}"),
        (_, Some(partition)) => format!(", partition {partition}"),
        _ => String::new(),
    };
    format!("on medium {}{part}", namespace.media)
}

pub(super) fn tenant(tenant: &Tenant) -> String {
    let one_of_that_name = serde_json::json!({ "name": tenant.name });
    let words = keys(&one_of_that_name, tenant).into_iter();
    let words = words.map(|(key, _, value)| format!("{key} {}", value.unwrap_or_default()));
    words.collect::<Vec<_>>().join(", ")
}

pub(super) fn controller(controller: &Controller) -> String {
    let namespaces = match controller.namespaces.as_slice() {
        [] => "no namespaces".to_owned(),
        names => format!("namespaces {}", names.join(", ")),
    };
    format!("{}, {namespaces}", controller.listen)
}
