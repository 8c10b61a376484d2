//! `nvmirage create`: creates a medium, a namespace, a tenant or a controller in a running server.
//!
//! Keys, units and defaults are those of the configuration file.

use anyhow::anyhow;
use api::ControllerStatus;
use api::config::tenant::Tenant;
use api::config::{Controller, MediumKeys, Namespace};
use serde_json::Value;

use super::UsageError;
use super::options::Options;
use super::parse::{self, Control};
use crate::requests;

/// Create an object.
#[derive(Debug, clap::Subcommand)]
pub enum Create {
    /// Create a medium, the storage behind namespaces
    Media(Box<MediumArgs>),
    /// Create a namespace, a part of a medium
    Namespace(NamespaceArgs),
    /// Create a tenant, which shares media with others by weight and limits
    Tenant(TenantArgs),
    /// Create a controller that hosts attach to
    Controller(ControllerArgs),
}

/// Create a medium, the storage behind namespaces
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create media scratch --kind ram --size 8GiB
  nvmirage create media disk --kind file --path disk.img --size 64GiB
  nvmirage create media pro --kind ram --size 8GiB --timing samsung-970-pro,program=200us
  nvmirage create media zns --kind ram --size 8GiB --zone-size 128MiB --zone-capacity 96MiB")]
pub struct MediumArgs {
    #[command(flatten)]
    medium: Options<MediumKeys>,

    #[command(flatten)]
    control: Control,
}

/// Create a namespace, a part of a medium
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create namespace root --media disk
  nvmirage create namespace boot --media disk --range 0GiB..1GiB --lba-size 512")]
pub struct NamespaceArgs {
    #[command(flatten)]
    namespace: Options<Namespace>,

    #[command(flatten)]
    control: Control,
}

/// Create a tenant, which shares media with others by weight and limits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create tenant web --weight 300
  nvmirage create tenant backup --iops 20000 --bandwidth 200MiB
  nvmirage create controller vm3 --namespaces logs --listen vfio-user:/tmp/vm3.sock --tenant backup")]
pub struct TenantArgs {
    #[command(flatten)]
    tenant: Options<Tenant>,

    #[command(flatten)]
    control: Control,
}

/// Create a controller that hosts attach to
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create controller vm1 --namespaces root,data --listen vfio-user:/tmp/vm1.sock
  nvmirage create controller vm2 --namespaces logs --listen vfio-user:/tmp/vm2.sock --queues 4 --serial LOGS1
  nvmirage create controller b --subsystem pair --namespaces shared --listen vfio-user:/tmp/b.sock
      One more controller of subsystem `pair`, for a second guest
  nvmirage create controller store --namespaces root --listen nvme-tcp:127.0.0.1:4420
      Hosts over NVMe/TCP
  nvmirage create controller images --namespaces root,data --listen nbd:/tmp/images.sock
      NBD clients: exports `root` and `data`
  nvmirage create controller vm1 --namespaces root --listen vhost-user-blk:/tmp/b.sock --queues 4
      A virtio disk of a guest: namespace `root`, with up to 4 rings
  nvmirage create controller local --namespaces root --listen ublk:0
      The block device /dev/ublkb0 of the server's machine: namespace `root`")]
pub struct ControllerArgs {
    #[command(flatten)]
    controller: Options<Controller>,

    #[command(flatten)]
    control: Control,
}

impl Create {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Create::Media(args) => args.run(),
            Create::Namespace(args) => args.run(),
            Create::Tenant(args) => args.run(),
            Create::Controller(args) => args.run(),
        }
    }
}

impl MediumArgs {
    fn run(self) -> anyhow::Result<()> {
        let mut medium = self.medium.given;
        for key in ["path", "state"] {
            if let Some(Value::String(path)) = medium.get_mut(key) {
                let absolute = std::path::absolute(&*path)?;
                let absolute = absolute.into_os_string().into_string();
                *path = absolute.map_err(|path| {
                    anyhow!("{} is not UTF-8: use another folder", path.display())
                })?;
            }
        }
        requests::create(&self.control.to_change()?, "media", &medium)?;
        created("media", &medium)
    }
}

impl NamespaceArgs {
    fn run(self) -> anyhow::Result<()> {
        requests::create(
            &self.control.to_change()?,
            "namespaces",
            &self.namespace.given,
        )?;
        created("namespace", &self.namespace.given)
    }
}

impl TenantArgs {
    fn run(self) -> anyhow::Result<()> {
        requests::create(&self.control.to_change()?, "tenants", &self.tenant.given)?;
        created("tenant", &self.tenant.given)
    }
}

impl ControllerArgs {
    fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_change()?;
        let mut controller = self.controller.given;
        if let Some(Value::String(listen)) = controller.get_mut("listen") {
            let absolute = parse::listen(listen).map_err(UsageError)?;
            *listen = absolute.absolute(parse::absolute)?.to_string();
        }
        requests::create(&socket, "controllers", &controller)?;
        created("controller", &controller)?;
        let has_disk = word(&controller, "listen").is_some_and(|to| to.starts_with("ublk:"));
        if !has_disk {
            return Ok(());
        }
        let inventory = requests::inventory(&socket)?;
        let name = word(&controller, "name");
        let mut all = inventory.controllers.iter();
        let status = all.find(|status| Some(status.config.name.as_str()) == name);
        terminal::print(&status.map_or(String::new(), block_device))
    }
}

/// The block device of a controller over ublk, and what it is doing.
fn block_device(status: &ControllerStatus) -> String {
    let state = status.device.as_deref().unwrap_or("is being made");
    match &status.disk {
        Some(disk) => format!("block device {disk} {state}\n"),
        None => format!("block device: {state}; `nvmirage ls` shows its path\n"),
    }
}

fn created(word: &str, object: &serde_json::Map<String, Value>) -> anyhow::Result<()> {
    let name = self::word(object, "name").unwrap_or_default();
    terminal::print(&format!("created {word} {name}\n"))
}

fn word<'a>(object: &'a serde_json::Map<String, Value>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_block_device_is_named_with_its_state() {
        let of = |more: &str| {
            let text = format!(r#"{{"name":"c","listen":"ublk:","attached":true{more}}}"#);
            block_device(&serde_json::from_str(&text).unwrap())
        };
        let there = of(r#","disk":"/dev/ublkb3","device":"is served""#);
        assert_eq!(there, "block device /dev/ublkb3 is served\n");
        for (more, state) in [
            (
                r#","device":"waits for a namespace""#,
                "waits for a namespace;",
            ),
            ("", "is being made;"),
        ] {
            let text = of(more);
            assert!(
                text.contains(state) && text.contains("nvmirage ls"),
                "{text}"
            );
        }
    }
}
