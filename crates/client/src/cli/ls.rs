//! `nvmirage ls`: lists the objects of a running server.

use std::collections::BTreeSet;

use api::config::{Listen, MediumKind};
use api::{ControllerStatus, Inventory, IoStatus, MediumStatus, ProcessStatus, TenantStatus};
use machine::initiator::traddr;
use machine::nbd;
use terminal::table::{Align, Table};
use terminal::units;

use super::hosts::{ana_states, host, of_namespaces, over_tcp};
use super::parse::Control;
use super::trace::table as traces;
use crate::{exports, requests};

const EXAMPLES: &str = "\
Examples:
  nvmirage ls
      Media, namespaces and controllers, their relations, and attached hosts
  nvmirage ls --json | jq '.controllers[] | select(.attached).name'
      The controllers in use";

/// List the objects of a running server
///
/// A controller over NVMe/TCP has a second row, with what `nvme connect` needs: address (`-a`),
/// port (`-s`) and the NVMe Qualified Name of the subsystem (`-n`); one over NBD has a row with the
/// URI of each export, and one over ublk a row with its block device. `ANA` are the states of ANA
/// groups that are set; `ANA group` is the group of a namespace.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Ls {
    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ls {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let inventory = requests::inventory(&self.control.to_read()?)?;
        if self.json {
            return terminal::print_json(&inventory);
        }
        terminal::print(&tables(&inventory))
    }
}

/// The tables. One line replaces a table without rows.
fn tables(inventory: &Inventory) -> String {
    let parts = [
        ("media", media(inventory)),
        ("namespaces", namespaces(inventory)),
        ("controllers", controllers(inventory)),
        ("reactors", reactors(inventory)),
    ];
    let [media, namespaces, mut controllers, reactors] = parts.map(|(name, table)| {
        if table.is_empty() {
            format!("no {name}\n")
        } else {
            table.to_string()
        }
    });
    let entrances = entrances(inventory);
    // Shown only if controllers have such addresses.
    for table in [entrances, exports(inventory), disks(inventory)] {
        if !table.is_empty() {
            controllers.push('\n');
            controllers.push_str(&table.to_string());
        }
    }
    let mut shown = [media, namespaces, controllers, reactors].join("\n");
    // Shown only if a process was replaced.
    if let Some(line) = replaced(&inventory.process) {
        shown = format!("{line}\n\n{shown}");
    }
    // Shown only if there are such hosts.
    for table in [over_tcp(inventory), of_namespaces(inventory)] {
        if !table.is_empty() {
            shown.push('\n');
            shown.push_str(&table.to_string());
        }
    }
    // Shown only if there are tenants; most servers have none.
    if !inventory.tenants.is_empty() {
        shown.push('\n');
        shown.push_str(&tenants(inventory).to_string());
    }
    if !inventory.traces.is_empty() {
        shown.push('\n');
        shown.push_str(&traces(&inventory.traces).to_string());
    }
    shown
}

/// A line for a server's process that has replaced another one: the cause of that.
fn replaced(process: &ProcessStatus) -> Option<String> {
    let before = process.before.as_ref()?;
    let mut line = format!(
        "process {} of this server: the last one ended ({}); pause {} ms, {} commands executed again, {} interrupted",
        process.generation, before.cause, before.pause_ms, before.replayed, before.interrupted
    );
    for model in &before.timing {
        let media = &model.media;
        line.push_str(&match model.checkpoint_age_ms {
            _ if model.lost => {
                format!(
                    "\ntiming model of {media}: its checkpoint was lost: it began as a new drive"
                )
            }
            Some(age) => {
                format!("\ntiming model of {media}: continued with a checkpoint {age} ms old")
            }
            None => {
                format!("\ntiming model of {media}: continued with a checkpoint of unknown age")
            }
        });
    }
    Some(line)
}

fn media(inventory: &Inventory) -> Table {
    let mut columns = vec![
        ("media", Align::Left),
        ("size", Align::Right),
        ("registered", Align::Right),
    ];
    // Shown only if some medium fails; on most servers none does.
    let any_fails = inventory.media.iter().any(|m| failing(m).is_some());
    columns.extend(any_fails.then_some(("fails", Align::Left)));
    // likewise the drive that a medium has the timing of
    let any_timed = inventory.media.iter().any(|m| m.config.timing.is_some());
    columns.extend(any_timed.then_some(("timing", Align::Left)));
    columns.push(("kind", Align::Left));
    let mut table = Table::new(&columns);
    for medium in &inventory.media {
        let mut row = vec![
            medium.config.name.clone(),
            units::bytes(medium.bytes),
            medium.io.as_ref().map_or("-".into(), registered),
        ];
        row.extend(any_fails.then(|| failing(medium).unwrap_or("-".into())));
        row.extend(any_timed.then(|| {
            let timing = medium.config.timing.as_ref();
            timing.map_or("-".into(), |timing| timing.preset.clone())
        }));
        row.push(medium.description.clone());
        table.row(row);
    }
    table
}

/// Why requests to a medium fail at present.
fn failing(medium: &MediumStatus) -> Option<String> {
    let errors = medium.errors.iter().filter(|error| error.current);
    let causes: Vec<_> = errors.map(|error| error.cause.clone()).collect();
    (!causes.is_empty()).then(|| causes.join(", "))
}

/// Share of commands that used memory registered by their hosts.
fn registered(io: &IoStatus) -> String {
    match io.registered.saturating_add(io.plain) {
        0 => "-".into(),
        all => format!("{:.0} %", io.registered as f64 * 100.0 / all as f64),
    }
}

fn namespaces(inventory: &Inventory) -> Table {
    let mut columns = vec![
        ("namespace", Align::Left),
        ("nsid", Align::Right),
        ("media", Align::Left),
        ("size", Align::Right),
        ("blocks", Align::Right),
        ("block", Align::Right),
    ];
    // Only hosts over NVMe/TCP see groups.
    let mut controllers = inventory.controllers.iter();
    let has_groups = controllers.any(|c| c.config.tcp_address().is_some());
    columns.extend(has_groups.then_some(("ANA group", Align::Right)));
    columns.push(("attached to", Align::Left));
    let mut table = Table::new(&columns);
    for namespace in &inventory.namespaces {
        let lba_size = namespace.config.lba_size;
        let mut media = inventory.media.iter();
        let keys = media.find(|medium| {
            medium.config.name == namespace.config.media
                && medium.config.kind() == MediumKind::KeyValue
        });
        let (size, blocks, block) = match keys {
            Some(medium) => (medium.bytes, "-".to_owned(), "-".to_owned()),
            None => (
                namespace.blocks.saturating_mul(lba_size.into()),
                namespace.blocks.to_string(),
                units::block(lba_size),
            ),
        };
        let mut row = vec![
            namespace.config.name.clone(),
            namespace.nsid.map_or("-".into(), |nsid| nsid.to_string()),
            namespace.config.media.clone(),
            units::bytes(size),
            blocks,
            block,
        ];
        row.extend(has_groups.then(|| namespace.config.ana_group().to_string()));
        row.push(listed(&namespace.controllers));
        table.row(row);
    }
    table
}

/// Addresses and names with which hosts connect to each controller with a TCP address.
fn entrances(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("address", Align::Left),
        ("port", Align::Right),
        ("ANA", Align::Left),
        ("subsystem NQN", Align::Left),
    ]);
    for controller in &inventory.controllers {
        let config = &controller.config;
        let Some(address) = config.host_address() else {
            continue;
        };
        let identity = controller.identity.as_ref();
        table.row(vec![
            config.name.clone(),
            traddr(address).unwrap_or("any of this machine".into()),
            address.port().to_string(),
            ana_states(config),
            identity.map_or("-".into(), |identity| identity.subnqn.clone()),
        ]);
    }
    table
}

/// Addresses and names with which NBD clients connect to each namespace of a controller over NBD.
fn exports(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("export", Align::Left),
        ("URI", Align::Left),
    ]);
    for controller in &inventory.controllers {
        let config = &controller.config;
        // A path that is not UTF-8 is in no URI.
        let Some(at) = config.nbd_address().and_then(exports::at) else {
            continue;
        };
        for name in exports::names(config) {
            let is_secured = exports::credentials(config).is_some();
            let uri = nbd::uri(at, &name, is_secured);
            table.row(vec![config.name.clone(), name, uri]);
        }
    }
    table
}

/// The block device of each controller over ublk.
fn disks(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("block device", Align::Left),
        ("state", Align::Left),
    ]);
    let controllers = inventory.controllers.iter();
    for controller in controllers.filter(|c| c.config.ublk_id().is_some()) {
        table.row(vec![
            controller.config.name.clone(),
            controller.disk.clone().unwrap_or("-".into()),
            controller.device.clone().unwrap_or("-".into()),
        ]);
    }
    table
}

fn controllers(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("subsystem", Align::Left),
        ("namespaces", Align::Left),
        ("serial", Align::Left),
        ("host", Align::Left),
        ("queues on", Align::Left),
        ("listen", Align::Left),
    ]);
    for controller in &inventory.controllers {
        let config = &controller.config;
        let listen: &Listen = &config.listen;
        let serial = controller.identity.as_ref().map(|its| its.serial.clone());
        table.row(vec![
            config.name.clone(),
            config.subsystem().to_owned(),
            listed(&config.namespaces),
            serial.unwrap_or("-".into()),
            host(controller),
            listed(&reactors_of(controller)),
            listen.to_string(),
        ]);
    }
    table
}

/// Usage of each tenant since its creation. The share is that of the cost of all tenants' commands,
/// as divided by weights.
fn tenants(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("tenant", Align::Left),
        ("weight", Align::Right),
        ("cap", Align::Left),
        ("share", Align::Right),
        ("commands", Align::Right),
        ("moved", Align::Right),
        ("waited for cap", Align::Right),
        ("waited for turn", Align::Right),
        ("at media", Align::Right),
    ]);
    let cost = |one: &TenantStatus| one.bytes as f64 + one.commands as f64 * 4096.0;
    let all: f64 = inventory.tenants.iter().map(cost).sum();
    for tenant in &inventory.tenants {
        let config = &tenant.config;
        let iops = config.iops.map(|iops| format!("{iops}/s"));
        let bandwidth = config.bandwidth.map(|bytes| format!("{bytes}/s"));
        let caps: Vec<String> = iops.into_iter().chain(bandwidth).collect();
        table.row(vec![
            config.name.clone(),
            config.weight.to_string(),
            listed(&caps),
            format!("{:.1} %", cost(tenant) * 100.0 / all.max(1.0)),
            tenant.commands.to_string(),
            units::bytes(tenant.bytes),
            tenant.capped.to_string(),
            tenant.held.to_string(),
            tenant.at_media.to_string(),
        ]);
    }
    table
}

/// Reactors that serve queues of a controller.
fn reactors_of(controller: &ControllerStatus) -> Vec<String> {
    let placement = controller.placement.iter();
    let reactors: BTreeSet<usize> = placement.map(|queue| queue.reactor).collect();
    reactors.iter().map(usize::to_string).collect()
}

/// Time of each reactor by use since its start.
fn reactors(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("reactor", Align::Left),
        ("cpu", Align::Right),
        ("mode", Align::Left),
        ("busy", Align::Right),
        ("spinning", Align::Right),
        ("asleep", Align::Right),
        ("stalled", Align::Right),
        ("sleeps", Align::Right),
        ("commands", Align::Right),
    ]);
    for (index, reactor) in inventory.reactors.iter().enumerate() {
        let times = [
            reactor.busy_ns,
            reactor.spinning_ns,
            reactor.asleep_ns,
            reactor.stalled_ns,
        ];
        let total = times.into_iter().fold(0, u64::saturating_add).max(1);
        let share = |ns: u64| format!("{:.1} %", ns as f64 * 100.0 / total as f64);
        let cpu = reactor.config.cpu;
        table.row(vec![
            index.to_string(),
            cpu.map_or("-".into(), |cpu| cpu.to_string()),
            reactor.config.mode.name().into(),
            share(reactor.busy_ns),
            share(reactor.spinning_ns),
            share(reactor.asleep_ns),
            share(reactor.stalled_ns),
            reactor.sleeps.to_string(),
            reactor.commands.to_string(),
        ]);
    }
    table
}

/// The names, or a mark that there are none.
fn listed(names: &[String]) -> String {
    match names {
        [] => "-".to_owned(),
        names => names.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_server_says_so() {
        let text = tables(&Inventory::default());
        assert_eq!(
            text,
            "no media\n\nno namespaces\n\nno controllers\n\nno reactors\n"
        );
    }

    #[test]
    fn a_controller_over_ublk_has_a_row_with_its_block_device() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[],"reactors":[],"namespaces":[],
                "controllers":[{"name":"vm","listen":"vfio-user:/a","attached":false},
                               {"name":"local","listen":"ublk:","attached":true,"disk":"/dev/ublkb3","device":"in use"},
                               {"name":"early","listen":"ublk:1","attached":false}]}"#,
        )
        .unwrap();
        let rows = |text: &str| -> Vec<String> {
            let lines = text.lines();
            let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
            words.map(|words| words.join(" ")).collect()
        };
        let expected = [
            "controller block device state",
            "local /dev/ublkb3 in use",
            "early - -",
        ];
        assert_eq!(rows(&disks(&inventory).to_string()), expected);
        let all = rows(&tables(&inventory));
        for row in expected {
            assert!(all.iter().any(|one| one == row), "{all:?}");
        }
        let none = tables(&Inventory::default());
        assert!(!none.contains("block device"), "{none}");
    }

    #[test]
    fn controllers_over_tcp_have_what_a_host_needs_to_connect() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[],"reactors":[],
                "namespaces":[{"name":"a","media":"disk","blocks":1,"controllers":[],"made_by_host":false},
                              {"name":"b","media":"disk","blocks":1,"ana_group":3,"controllers":["left"],"made_by_host":false}],
                "controllers":[{"name":"near","listen":"vfio-user:/a","attached":false,"identity":{"serial":"S","subnqn":"nqn.x"}},
                               {"name":"left","listen":"nvme-tcp:[fe80::1%2]:4420","attached":false,"ana":{"3":"inaccessible"},"identity":{"serial":"S","subnqn":"nqn.y"}},
                               {"name":"right","listen":"nvme-tcp:127.0.0.1:4421","advertise":"192.0.2.1","attached":false,"identity":{"serial":"S","subnqn":"nqn.y"}},
                               {"name":"all","listen":"nvme-tcp:0.0.0.0:4422","attached":false}]}"#,
        )
        .unwrap();
        let entrances = entrances(&inventory).to_string();
        let rows = entrances
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows: Vec<_> = rows.skip(1).map(|words| words.join(" ")).collect();
        let expected = [
            "left fe80::1%2 4420 3=inaccessible nqn.y",
            "right 192.0.2.1 4421 optimized nqn.y",
            "all any of this machine 4422 optimized -",
        ];
        assert_eq!(rows, expected);
        let namespaces = namespaces(&inventory).to_string();
        let words = |start| {
            let line = namespaces.lines().find(|line| line.starts_with(start));
            line.unwrap()
                .split_whitespace()
                .rev()
                .take(2)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (words("a"), words("b")),
            (vec!["-", "1"], vec!["left", "3"])
        );
        assert!(tables(&inventory).contains(&entrances));
    }

    #[test]
    fn each_export_has_its_uri() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[],"reactors":[],"namespaces":[],
                "controllers":[{"name":"near","listen":"nbd:/run/x.sock","attached":false,"namespaces":["a","s:7"]},
                               {"name":"far","listen":"nbd:0.0.0.0:10809","attached":false,"namespaces":["c"],"nbd":{"tls_psk":"/k"}},
                               {"name":"other","listen":"vfio-user:/y","attached":false,"namespaces":["d"]}]}"#,
        )
        .unwrap();
        let text = exports(&inventory).to_string();
        let rows = text.lines().map(|line| line.split_whitespace().collect());
        let rows: Vec<Vec<&str>> = rows.skip(1).collect();
        let expected = [
            ["near", "a", "nbd+unix:///a?socket=/run/x.sock"],
            ["near", "ns7", "nbd+unix:///ns7?socket=/run/x.sock"],
            ["far", "c", "nbds://ADDRESS:10809/c"],
        ];
        assert_eq!(rows, expected);
        assert!(tables(&inventory).contains(&text));
    }

    #[test]
    fn what_is_served_is_in_the_tables() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[{"name":"disk","kind":"ram","size":"8GiB","timing":{"preset":"intel-p3600"},"bytes":8589934592,"description":"ram, memory"},
                         {"name":"slow","kind":"file","path":"/a","bytes":4096,"description":"file","io":{"registered":3,"plain":1}}],
                "namespaces":[{"name":"root","media":"disk","lba_size":4096,"blocks":2097152,"nsid":1,"subsystem":"vm1","controllers":["vm1","vm2"],"made_by_host":false},
                              {"name":"spare","media":"disk","lba_size":4096,"blocks":1,"controllers":[],"made_by_host":false}],
                "controllers":[{"name":"vm1","namespaces":["root"],"listen":"vfio-user:/a/b","attached":true,"identity":{"serial":"NVM1","subnqn":"nqn.x"},"host":{"process":7,"command":"qemu"},
                                "placement":[{"queue":1,"reactor":2},{"queue":2,"reactor":0},{"queue":3,"reactor":2}]}],
                "tenants":[{"name":"web","weight":300,"iops":5000,"bandwidth":"1MiB","commands":2,"bytes":0,"capped":5,"held":6,"at_media":7},
                           {"name":"backup","commands":3,"bytes":12288,"capped":0,"held":0,"at_media":0}],
                "reactors":[{"cpu":3,"mode":"adaptive","spin":"50us","budget":30,"commands":7,"turns":9,"turns_with_work":4,
                             "busy_ns":250,"spinning_ns":250,"asleep_ns":1000,"sleeps":2,"stalls":1,"stalled_ns":500}]}"#,
        )
        .unwrap();
        let text = tables(&inventory);
        let row = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            row("disk"),
            ["disk", "8.00", "GiB", "-", "intel-p3600", "ram,", "memory"]
        );
        assert_eq!(row("slow"), ["slow", "4.00", "KiB", "75", "%", "-", "file"]);
        assert_eq!(
            row("root"),
            [
                "root", "1", "disk", "8.00", "GiB", "2097152", "4", "KiB", "vm1,vm2"
            ]
        );
        assert_eq!(
            row("spare"),
            ["spare", "-", "disk", "4.00", "KiB", "1", "4", "KiB", "-"]
        );
        assert_eq!(
            row("vm1"),
            [
                "vm1",
                "vm1",
                "root",
                "NVM1",
                "qemu",
                "(7)",
                "0,2",
                "vfio-user:/a/b"
            ]
        );
        // 2 commands of 4 KiB against 3 of 8 KiB.
        assert_eq!(
            row("web"),
            [
                "web",
                "300",
                "5000/s,1MiB/s",
                "25.0",
                "%",
                "2",
                "0",
                "B",
                "5",
                "6",
                "7"
            ]
        );
        assert_eq!(row("backup")[..5], ["backup", "100", "-", "75.0", "%"]);
        assert_eq!(
            row("0 "),
            [
                "0", "3", "adaptive", "12.5", "%", "12.5", "%", "50.0", "%", "25.0", "%", "2", "7"
            ]
        );
    }
}
