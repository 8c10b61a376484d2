//! `nvmirage hosts`: lists the hosts of a running server.

use std::time::Duration;

use api::config::{self, Listen, Span};
use api::{AssociationStatus, Authentication, ControllerStatus, Inventory, Protocol};
use terminal::table::{Align, Table};

use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage hosts
      The host of each controller, every host over NVMe/TCP, NBD client, vhost-user-blk front end
      and block device
  nvmirage hosts --json | jq '.[].hosts[] | select(.io_queues == 0)'
      Hosts over NVMe/TCP that have no I/O queue";

/// List the hosts of a running server
///
/// A controller over NVMe/TCP or NBD has any number of hosts, each with its address and controller
/// identifier (CNTLID), and its NQN or export; other controllers have one host at a time. `export`
/// is the namespace of an NBD client, of a vhost-user-blk front end or of a block device (ublk),
/// whose path is in `address`.
/// `authenticated` is `host` where the host has proved its secret by DH-HMAC-CHAP, and `both` where
/// the controller has, too. `keep alive` is the time after which a silent host is disconnected;
/// `ANA` are the states of ANA groups that are set.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Hosts {
    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Hosts {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let server = self.control.to_read()?;
        if self.json {
            return terminal::print_json(&requests::hosts(&server)?);
        }
        terminal::print(&shown(&requests::inventory(&server)?))
    }
}

/// The tables: a host for each controller, those over NVMe/TCP, and those of single namespaces.
fn shown(inventory: &Inventory) -> String {
    let controllers = || inventory.controllers.iter();
    let mut parts = Vec::new();
    let single = |c: &&ControllerStatus| c.attached && c.hosts.is_empty();
    if controllers().any(|c| single(&c)) {
        let mut table = Table::new(&[
            ("controller", Align::Left),
            ("host", Align::Left),
            ("listen", Align::Left),
        ]);
        for controller in controllers().filter(single) {
            table.row(vec![
                controller.config.name.clone(),
                host(controller),
                controller.config.listen.to_string(),
            ]);
        }
        parts.push(table.to_string());
    }
    for table in [over_tcp(inventory), of_namespaces(inventory)] {
        if !table.is_empty() {
            parts.push(table.to_string());
        }
    }
    if parts.is_empty() {
        return "no hosts\n".to_owned();
    }
    parts.join("\n")
}

/// The host of a controller: its process, where the system reports it; the number of hosts over
/// NVMe/TCP or NBD; a vhost-user-blk front end; the path of a block device.
pub(super) fn host(controller: &ControllerStatus) -> String {
    match (&controller.host, controller.attached) {
        _ if !controller.hosts.is_empty() => {
            let count = controller.hosts.len();
            match &controller.config.listen {
                Listen::VhostUserBlk(_) => "front end".to_owned(),
                Listen::Ublk(_) => controller.disk.clone().unwrap_or("block device".to_owned()),
                Listen::Nbd(_) => format!("{count} over NBD"),
                _ => format!("{count} over TCP"),
            }
        }
        (Some(host), _) => {
            let command = host.command.as_deref().unwrap_or("process");
            format!("{command} ({})", host.process)
        }
        (None, true) => "attached".to_owned(),
        (None, false) => "-".to_owned(),
    }
}

/// The hosts over NVMe/TCP of all controllers.
pub(super) fn over_tcp(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("address", Align::Left),
        ("cntlid", Align::Right),
        ("queues", Align::Right),
        ("authenticated", Align::Left),
        ("TLS", Align::Left),
        ("keep alive", Align::Right),
        ("connected", Align::Right),
        ("ANA", Align::Left),
        ("host", Align::Left),
    ]);
    for controller in &inventory.controllers {
        let hosts = controller.hosts.iter();
        for host in hosts.filter(|host| host.protocol == Protocol::NvmeTcp) {
            table.row(row(&controller.config, host));
        }
    }
    table
}

/// The NBD clients, vhost-user-blk front ends and block devices of all controllers.
pub(super) fn of_namespaces(inventory: &Inventory) -> Table {
    let mut table = Table::new(&[
        ("controller", Align::Left),
        ("protocol", Align::Left),
        ("export", Align::Left),
        ("address", Align::Left),
        ("cntlid", Align::Right),
        ("TLS", Align::Left),
        ("connected", Align::Right),
    ]);
    for controller in &inventory.controllers {
        for host in &controller.hosts {
            let protocol = match host.protocol {
                Protocol::NvmeTcp => continue,
                Protocol::Nbd => "NBD",
                Protocol::VhostUserBlk => "vhost-user-blk",
                Protocol::Ublk => "ublk",
            };
            let connected = Duration::from_secs(host.connected_ms / 1000);
            table.row(vec![
                controller.config.name.clone(),
                protocol.to_owned(),
                host.export.clone().unwrap_or_default(),
                match host.protocol {
                    Protocol::Ublk => controller.disk.clone().unwrap_or("-".to_owned()),
                    _ => address(host),
                },
                format!("{:#x}", host.cntlid),
                tls(host),
                Span(connected).to_string(),
            ]);
        }
    }
    table
}

/// The address of a host, or that it has come over a UNIX socket.
fn address(host: &AssociationStatus) -> String {
    host.address
        .map_or("unix".to_owned(), |address| address.to_string())
}

fn tls(host: &AssociationStatus) -> String {
    if host.tls { "yes" } else { "-" }.to_owned()
}

fn row(controller: &config::Controller, host: &AssociationStatus) -> Vec<String> {
    let keep_alive = Duration::from_millis(host.keep_alive_ms.into());
    let keep_alive = match host.keep_alive_ms {
        0 => "-".to_owned(),
        _ => Span(keep_alive).to_string(),
    };
    let connected = Duration::from_secs(host.connected_ms / 1000);
    vec![
        controller.name.clone(),
        address(host),
        format!("{:#x}", host.cntlid),
        host.io_queues.to_string(),
        match host.authentication {
            Authentication::None => "-",
            Authentication::Pending => "not yet",
            Authentication::Host => "host",
            Authentication::Both => "both",
        }
        .to_owned(),
        tls(host),
        keep_alive,
        Span(connected).to_string(),
        ana_states(controller),
        // it is the host's text: no control character of it reaches the terminal
        match host.nqn.as_str() {
            "" => "-".to_owned(),
            nqn => nqn.escape_debug().to_string(),
        },
    ]
}

/// States of the ANA groups of a controller with a TCP address: those that are set.
pub(super) fn ana_states(controller: &config::Controller) -> String {
    match controller.ana.to_string() {
        all if all.is_empty() => "optimized".to_owned(),
        others => others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_host_is_a_line() {
        assert_eq!(shown(&Inventory::default()), "no hosts\n");
    }

    #[test]
    fn each_host_of_a_namespace_has_a_row() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[],"namespaces":[],"tenants":[],"reactors":[],
                "controllers":[{"name":"images","listen":"nbd:/x.sock","attached":true,
                                "hosts":[{"protocol":"nbd","export":"root","cntlid":256,"io_queues":1,"keep_alive_ms":0,"connected_ms":61999}]},
                               {"name":"far","listen":"nbd:127.0.0.1:10809","attached":true,
                                "hosts":[{"protocol":"nbd","export":"data","address":"127.0.0.1:50000","cntlid":257,"tls":true,"io_queues":1,"keep_alive_ms":0,"connected_ms":0}]},
                               {"name":"vm","listen":"vhost-user-blk:/b.sock","attached":true,
                                "hosts":[{"protocol":"vhost-user-blk","export":"disk","cntlid":258,"io_queues":1,"keep_alive_ms":0,"connected_ms":2000}]},
                               {"name":"local","listen":"ublk:","attached":true,"disk":"/dev/ublkb3","device":"in use",
                                "hosts":[{"protocol":"ublk","export":"data","cntlid":259,"io_queues":1,"keep_alive_ms":0,"connected_ms":3000}]},
                               {"name":"early","listen":"ublk:1","attached":true,
                                "hosts":[{"protocol":"ublk","export":"disk","cntlid":260,"io_queues":1,"keep_alive_ms":0,"connected_ms":0}]}]}"#,
        )
        .unwrap();
        let text = shown(&inventory);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected = [
            vec![
                "controller",
                "protocol",
                "export",
                "address",
                "cntlid",
                "TLS",
                "connected",
            ],
            vec!["images", "NBD", "root", "unix", "0x100", "-", "61s"],
            vec![
                "far",
                "NBD",
                "data",
                "127.0.0.1:50000",
                "0x101",
                "yes",
                "0s",
            ],
            vec!["vm", "vhost-user-blk", "disk", "unix", "0x102", "-", "2s"],
            vec!["local", "ublk", "data", "/dev/ublkb3", "0x103", "-", "3s"],
            vec!["early", "ublk", "disk", "-", "0x104", "-", "0s"],
        ];
        assert_eq!(rows, expected);
        assert_eq!(host(&inventory.controllers[0]), "1 over NBD");
        assert_eq!(host(&inventory.controllers[2]), "front end");
        assert_eq!(host(&inventory.controllers[3]), "/dev/ublkb3");
        assert_eq!(host(&inventory.controllers[4]), "block device");
        let json = serde_json::to_value(&inventory.controllers[0].hosts).unwrap();
        let keys: Vec<_> = json[0].as_object().unwrap().keys().collect();
        assert!(!keys.contains(&&"nqn".to_owned()) && !keys.contains(&&"address".to_owned()));
    }

    #[test]
    fn each_host_has_a_row() {
        let inventory: Inventory = serde_json::from_str(
            r#"{"media":[],"namespaces":[],"tenants":[],"reactors":[],
                "controllers":[{"name":"vm1","listen":"vfio-user:/a","attached":true,"host":{"process":7,"command":"qemu"}},
                               {"name":"vm2","listen":"vfio-user:/b","attached":false},
                                {"name":"store","listen":"nvme-tcp:127.0.0.1:4420","attached":true,"ana":{"2":"inaccessible"},
                                 "hosts":[{"nqn":"nqn.a","address":"127.0.0.1:50000","cntlid":256,"authentication":"both","tls":true,"io_queues":2,"keep_alive_ms":5000,"connected_ms":61999},
                                         {"nqn":"nqn.\u001bb","address":"[::1]:50001","cntlid":257,"io_queues":0,"keep_alive_ms":0,"connected_ms":0},
                                         {"address":"127.0.0.1:50002","cntlid":258,"io_queues":0,"keep_alive_ms":0,"connected_ms":0}]}]}"#,
        )
        .unwrap();
        let text = shown(&inventory);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(rows.contains(&vec!["vm1", "qemu", "(7)", "vfio-user:/a"]));
        assert!(!text.contains("vm2") && !text.contains('\u{1b}'), "{text}");
        assert!(rows.contains(&vec![
            "store",
            "127.0.0.1:50000",
            "0x100",
            "2",
            "both",
            "yes",
            "5s",
            "61s",
            "2=inaccessible",
            "nqn.a"
        ]));
        let is_nameless = |row: &Vec<&str>| row.contains(&"0x102") && row.last() == Some(&"-");
        assert!(rows.iter().any(is_nameless), "{text}");
        assert!(rows.contains(&vec![
            "store",
            "[::1]:50001",
            "0x101",
            "0",
            "-",
            "-",
            "-",
            "0s",
            "2=inaccessible",
            "nqn.\\u{1b}b"
        ]));
    }
}
