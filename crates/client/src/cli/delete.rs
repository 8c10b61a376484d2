//! `nvmirage delete`: deletes an object of a running server.

use super::live;
use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage delete controller vm1
      Delete a controller; rejected while a host is attached
  nvmirage delete namespace root && nvmirage delete media disk
      Delete unused objects; files and their data are kept
  nvmirage delete namespace vm1:3
      A namespace that a host created";

/// Delete a medium, a namespace, a tenant or a controller of a running server
///
/// Objects in use are not deleted: delete controllers first, then namespaces, then media; or detach
/// a namespace from its controllers with `nvmirage detach`. Files are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Delete {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
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

#[derive(Debug, clap::Args)]
struct Named {
    /// Name of the object
    #[arg(add = live::of_kind())]
    name: String,

    #[command(flatten)]
    control: Control,
}

#[derive(Debug, clap::Args)]
struct Controller {
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
        let (kind, word, named) = match self.what {
            What::Controller(Controller {
                named,
                detach_hosts,
            }) => {
                let socket = named.control.to_change()?;
                requests::delete_controller(&socket, &named.name, detach_hosts)?;
                return deleted("controller", &named.name);
            }
            What::Media(named) => ("media", "media", named),
            What::Namespace(named) => ("namespaces", "namespace", named),
            What::Tenant(named) => ("tenants", "tenant", named),
        };
        requests::delete(&named.control.to_change()?, kind, &named.name)?;
        deleted(word, &named.name)
    }
}

fn deleted(word: &str, name: &str) -> anyhow::Result<()> {
    terminal::print(&format!("deleted {word} {name}\n"))
}
