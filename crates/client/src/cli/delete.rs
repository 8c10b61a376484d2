//! `nvmirage delete`: deletes an object of a running server.

use super::live;
use super::parse::Control;
use crate::requests;

/// Delete an object.
#[derive(Debug, clap::Subcommand)]
pub enum Delete {
    /// Close a medium; a file is kept, the contents of `ram` are lost
    #[command(after_help = "\
Examples:
  nvmirage delete media disk
      Namespaces on it are deleted first")]
    Media(Named),
    /// Delete a namespace; its data stays in the medium
    #[command(after_help = "\
Examples:
  nvmirage delete namespace root
      Detach it from its controllers first: nvmirage detach root vm1")]
    Namespace(Named),
    /// Delete a tenant that no controller and no namespace names
    #[command(after_help = "\
Examples:
  nvmirage delete tenant web
      Its controllers and namespaces are deleted first")]
    Tenant(Named),
    /// Delete a controller
    #[command(after_help = "\
Examples:
  nvmirage delete controller vm1
      Rejected while a host is attached
  nvmirage delete controller vm1 --detach-hosts
      Its host loses the drive; QEMU may end a virtual machine that uses it")]
    Controller(Controller),
}

/// An object by its name.
#[derive(Debug, clap::Args)]
pub struct Named {
    /// Name of the object
    #[arg(add = live::of_kind())]
    name: String,

    #[command(flatten)]
    control: Control,
}

/// A controller by its name.
#[derive(Debug, clap::Args)]
pub struct Controller {
    #[command(flatten)]
    named: Named,

    /// Delete the controller even while a host is attached, which loses its drive
    #[arg(long)]
    detach_hosts: bool,
}

impl Delete {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let (kind, word, named) = match self {
            Delete::Controller(Controller {
                named,
                detach_hosts,
            }) => {
                let socket = named.control.to_change()?;
                requests::delete_controller(&socket, &named.name, detach_hosts)?;
                return deleted("controller", &named.name);
            }
            Delete::Media(named) => ("media", "media", named),
            Delete::Namespace(named) => ("namespaces", "namespace", named),
            Delete::Tenant(named) => ("tenants", "tenant", named),
        };
        requests::delete(&named.control.to_change()?, kind, &named.name)?;
        deleted(word, &named.name)
    }
}

fn deleted(word: &str, name: &str) -> anyhow::Result<()> {
    terminal::print(&format!("deleted {word} {name}\n"))
}
