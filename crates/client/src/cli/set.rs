//! `nvmirage set`: changes settings while hosts use the objects.

use std::iter;

use api::config::log::{Format, Log};
use api::config::object::{Key, Object};
use api::config::{Controller, Tenant, Text};
use api::{ControllerChange, MediumChange, TenantChange, ZoneLoss};
use serde_json::{Map, Value};

use super::parse::Control;
use super::{UsageError, live};
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage set media fast timing.read_latency=8us
      From now on reads of this drive take 8 us; commands in flight keep their latency
  nvmirage set media fast timing.read_bandwidth=2GiB/s timing.read_rate=500K/s
      Several changes, applied all or none
  nvmirage set media zns zone.7=read-only zone.8=offline
      Zones 7 and 8, counted from 0, wear out: the one keeps what is in it, the other is gone; hosts
      get the event and the Changed Zone List, and there is no way back
  nvmirage set tenant web iops=50000 bandwidth=400MiB weight=300
      Limit a tenant from now on
  nvmirage set tenant web iops=none
      Remove the limit on commands
  nvmirage set controller vm1 sample=16
      From now on one in 16 commands is timed, for a slow drive; 0 disables sampling
  nvmirage set controller portal ana.2=inaccessible
      Hosts of this controller use another path to the namespaces of ANA group 2
  nvmirage set log filter=info,transport=debug format=json
      From the next line on the server logs what goes over its sockets, an object of JSON a line

Which parameters there are, and which of them may change while hosts use the drive: nvmirage explain
PRESET; one that is not known is answered with those that there are. A drive of flash has no
read_latency: what a read takes follows from its parts, as timing.read_4k_cell0";

/// Change a medium, a tenant, a controller or the log of a running server
///
/// A change that is impossible while the object is in use is rejected, with the moment at which it
/// is possible: a controller reset, or creation of the medium.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Set {
    /// Kind of the object
    #[arg(value_parser = ["media", "tenant", "controller", "log"])]
    kind: String,

    /// Name of the object; the log has none
    #[arg(value_name = "NAME|KEY=VALUE", add = live::of_kind())]
    name: String,

    /// Timing parameters of a medium, as in a configuration, and states of its zones; or keys of a
    /// tenant, of a controller or of the log
    #[arg(value_name = "timing.PARAMETER=VALUE|zone.NUMBER=STATE|KEY=VALUE|ana.GROUP=STATE", add = live::changes())]
    changes: Vec<String>,

    #[command(flatten)]
    control: Control,
}

impl Set {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_change()?;
        if self.kind == "log" {
            let changes = iter::once(&self.name).chain(&self.changes);
            requests::change_log(&socket, &log_change(changes)?)?;
            return terminal::print("changed log\n");
        }
        if self.changes.is_empty() {
            let (kind, name) = (&self.kind, &self.name);
            return Err(UsageError(format!("{kind} {name}: write at least one KEY=VALUE")).into());
        }
        if self.kind == "tenant" {
            let changes = self.changes.iter().map(|change| {
                let (key, value) = key_and_value(change, "iops=50000")?;
                checked(Tenant::live(key), key, value)?;
                Ok((key.to_owned(), value.to_owned()))
            });
            let changes = changes.collect::<Result<_, UsageError>>()?;
            requests::change_tenant(&socket, &self.name, &TenantChange { changes })?;
            return self.changed();
        }
        if self.kind == "controller" {
            let change = controller_change(&self.changes)?;
            requests::change_controller(&socket, &self.name, &change)?;
            return self.changed();
        }
        let mut all = MediumChange::default();
        for change in &self.changes {
            let wrong = || {
                UsageError(format!(
                    "`{change}`: write timing.PARAMETER=VALUE, as in timing.read_latency=8us, or zone.NUMBER=read-only or offline"
                ))
            };
            let (name, value) = change.split_once('=').ok_or_else(wrong)?;
            let (kind, name) = name.split_once('.').ok_or_else(wrong)?;
            match (kind, value) {
                ("timing", _) => drop(all.timing.insert(name.to_owned(), Text(value.to_owned()))),
                ("zone", "read-only" | "offline") => {
                    let loss = match value {
                        "offline" => ZoneLoss::Offline,
                        _ => ZoneLoss::ReadOnly,
                    };
                    all.zones.insert(name.parse().map_err(|_| wrong())?, loss);
                }
                _ => return Err(wrong().into()),
            }
        }
        requests::change_medium(&socket, &self.name, &all)?;
        self.changed()
    }

    fn changed(&self) -> anyhow::Result<()> {
        terminal::print(&format!("changed {} {}\n", self.kind, self.name))
    }
}

fn key_and_value<'a>(change: &'a str, as_in: &str) -> Result<(&'a str, &'a str), UsageError> {
    let both = change.split_once('=');
    both.ok_or_else(|| UsageError(format!("`{change}`: write KEY=VALUE, as in {as_in}")))
}

/// The value of a key that may change; null for `none`.
fn checked(key: Result<&Key, String>, name: &str, value: &str) -> Result<Value, UsageError> {
    let key = key.map_err(UsageError)?;
    let value = match value {
        "none" => Ok(Value::Null),
        value => key.parse(value),
    };
    value.map_err(|error| UsageError(format!("{name}: {error}")))
}

/// Changes of a controller. `none` restores a key's default.
fn controller_change(changes: &[String]) -> Result<ControllerChange, UsageError> {
    let mut all = ControllerChange::default();
    for change in changes {
        let (name, value) = key_and_value(change, "sample=16")?;
        if let Some((key, part)) = part_of(name) {
            let value = match value {
                "none" => Value::Null,
                word => {
                    let as_whole = format!("{part}={word}");
                    checked(Ok(key), name, &as_whole)?;
                    word.into()
                }
            };
            let parts = all.0.entry(key.name).or_insert_with(|| Map::new().into());
            if !parts.is_object() {
                return Err(whole_and_part(key.name, part));
            }
            parts[part] = value;
            continue;
        }
        let value = checked(Controller::live(name), name, value)?;
        let before = all.0.insert(name.to_owned(), value);
        if let Some(Value::Object(parts)) = before
            && let Some(part) = parts.keys().next()
        {
            return Err(whole_and_part(name, part));
        }
    }
    Ok(all)
}

/// One request changes a key as a whole or some of its parts: the order of both says nothing.
fn whole_and_part(key: &str, part: &str) -> UsageError {
    UsageError(format!("{key}: write {key}=VALUE, or {key}.{part}=VALUE"))
}

/// The key and the part that a change names.
fn part_of(name: &str) -> Option<(&'static Key, &str)> {
    let (key, part) = name.split_once('.')?;
    let key = Controller::live(key).ok()?;
    (!key.parts.is_empty()).then_some((key, part))
}

/// Changes of the log. A filter contains `=` and `,` itself, and the server knows its modules.
fn log_change<'a>(
    changes: impl Iterator<Item = &'a String>,
) -> Result<Map<String, Value>, UsageError> {
    let mut all = Map::new();
    for change in changes {
        let (name, value) = key_and_value(change, "filter=debug")?;
        if !Log::KEYS.iter().any(|key| key.name == name) {
            return Err(UsageError(format!(
                "the log has no key `{name}`: write filter=FILTER or format=text, json or journal"
            )));
        }
        let is_format = |format: &str| Format::ALL.iter().any(|(word, _)| *word == format);
        if name == "format" && !is_format(value) {
            return Err(UsageError(format!(
                "`{change}`: write format=text, json or journal"
            )));
        }
        all.insert(name.to_owned(), value.into());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(changes: &[&str]) -> Result<Value, String> {
        let changes: Vec<String> = changes.iter().map(|&change| change.into()).collect();
        let change = controller_change(&changes);
        change
            .map(|all| all.0.into())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_changes_as_a_whole_or_by_its_parts() {
        assert_eq!(
            change(&["ana.2=change", "sample=16", "ana.3=none"]),
            Ok(json!({"ana": {"2": "change", "3": null}, "sample": 16}))
        );
        assert_eq!(change(&["ana=3=change"]), Ok(json!({"ana": "3=change"})));
        let both = Err("ana: write ana=VALUE, or ana.2=VALUE".to_owned());
        assert_eq!(change(&["ana.2=change", "ana=3=change"]), both);
        assert_eq!(change(&["ana=3=change", "ana.2=change"]), both);
        assert_eq!(change(&["ana.2=none", "ana=none"]), both);
        assert_eq!(change(&["ana=none", "ana.2=none"]), both);
    }
}
