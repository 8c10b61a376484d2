//! `nvmirage show`: shows all details of one object of a running server.

use serde_json::Value;

use super::live;
use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage show controller vm1
      Every key of its configuration, and its status
  nvmirage show media disk --json | jq .bytes
      One of them";

/// The kinds, by their singular and plural words.
const KINDS: [(&str, &str); 6] = [
    ("media", "media"),
    ("namespace", "namespaces"),
    ("tenant", "tenants"),
    ("controller", "controllers"),
    ("reactor", "reactors"),
    ("trace", "traces"),
];

/// Show one object of a running server
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Show {
    /// Kind of the object
    #[arg(value_parser = KINDS.map(|(one, _)| one))]
    kind: String,

    /// Name of the object; for a reactor its number, from 0
    #[arg(add = live::of_kind())]
    name: String,

    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let inventory = requests::inventory(&self.control.to_read()?)?;
        let inventory = serde_json::to_value(&inventory)?;
        let all = KINDS.iter().find(|(one, _)| *one == self.kind);
        let all = all.map_or(&Value::Null, |(_, all)| &inventory[*all]);
        let found = match self.kind.as_str() {
            "reactor" => self.name.parse().ok().and_then(|at: usize| all.get(at)),
            _ => all
                .as_array()
                .and_then(|all| all.iter().find(|one| one["name"] == self.name)),
        };
        let found = found.ok_or_else(|| {
            let (kind, name) = (&self.kind, &self.name);
            anyhow::anyhow!(
                "there is no {} `{name}`; `nvmirage ls` shows what there is",
                api::noun(kind)
            )
        })?;
        if self.json {
            return terminal::print_json(found);
        }
        let mut shown = String::new();
        lines("", found, &mut shown);
        terminal::print(&shown)
    }
}

/// A line for each value, preceded by its path.
fn lines(way: &str, value: &Value, shown: &mut String) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if way.is_empty() { "" } else { "." };
                lines(&format!("{way}{dot}{key}"), value, shown);
            }
        }
        Value::Array(values) if values.iter().all(|v| !v.is_object() && !v.is_array()) => {
            let words: Vec<_> = values.iter().map(word).collect();
            *shown += &format!("{way:<24} {}\n", words.join(", "));
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                lines(&format!("{way}.{at}"), value, shown);
            }
        }
        value => *shown += &format!("{way:<24} {}\n", word(value)),
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_line() {
        let value = serde_json::json!({
            "name": "a", "timing": {"read_latency": "8us"}, "namespaces": ["x", "y"],
            "placement": [{"queue": 1}, {"queue": 2}], "empty": [],
        });
        let mut shown = String::new();
        lines("", &value, &mut shown);
        let mut words: Vec<Vec<&str>> = shown
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        words.sort();
        let expected: [&[&str]; 6] = [
            &["empty"],
            &["name", "a"],
            &["namespaces", "x,", "y"],
            &["placement.0.queue", "1"],
            &["placement.1.queue", "2"],
            &["timing.read_latency", "8us"],
        ];
        assert_eq!(words, expected);
    }
}
