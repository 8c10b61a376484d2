//! `nvmirage down`: deletes what `nvmirage up` has created.

use client::cli::parse::Control;
use client::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage down vm1
      Delete controller vm1, its namespace and its medium; a file stays
  nvmirage down
      The same of nvme0, the name that `nvmirage up` gives";

/// Delete a drive that `nvmirage up` has created: its controller, namespace and medium
///
/// Files keep their data, the contents of memory are lost. The server goes on; `nvmirage stop`
/// ends it. Rejected while a host is attached.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Down {
    /// Name of the drive
    #[arg(default_value = "nvme0")]
    name: String,

    /// Delete the drive even while a host is attached, which loses it
    #[arg(long)]
    detach_hosts: bool,

    #[command(flatten)]
    control: Control,
}

impl Down {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let server = self.control.to_change()?;
        let name = &self.name;
        let inventory = requests::inventory(&server)?;
        // before anything is deleted: a host would have lost its drive for nothing
        let mut namespaces = inventory.namespaces.iter();
        if let Some(namespace) = namespaces.find(|n| n.config.name == *name)
            && let Some(other) = namespace.controllers.iter().find(|c| *c != name)
        {
            anyhow::bail!(
                "namespace {name} is attached to controller {other}, too: nvmirage detach {name} {other}"
            );
        }
        let mut deleted = Vec::new();
        if inventory.controllers.iter().any(|c| c.config.name == *name) {
            requests::delete_controller(&server, name, self.detach_hosts)?;
            deleted.push("controller");
        }
        // after an interrupted `down`, only a part is there
        if inventory.namespaces.iter().any(|n| n.config.name == *name) {
            requests::delete(&server, "namespaces", name)?;
            deleted.push("namespace");
        }
        if inventory.media.iter().any(|m| m.config.name == *name) {
            requests::delete(&server, "media", name)?;
            deleted.push("media");
        }
        anyhow::ensure!(
            !deleted.is_empty(),
            "there is no drive `{name}`; `nvmirage ls` lists the controllers"
        );
        terminal::print(&format!("deleted {} {name}\n", deleted.join(", ")))
    }
}
