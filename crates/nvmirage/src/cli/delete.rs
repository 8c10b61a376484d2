//! `nvmirage delete`: ends an object of a running server.

use super::{live, parse::Control};
use crate::control;

const EXAMPLES: &str = "\
Examples:
  nvmirage delete controller vm1
      Serve it no longer; refused while a host is attached
  nvmirage delete namespace root && nvmirage delete media disk
      What nothing uses any more; files and their bytes stay
  nvmirage delete namespace vm1:3
      A namespace that a host has made";

/// Delete a medium, a namespace, a tenant or a controller of a running server
///
/// What something else uses is not deleted: first controllers, then namespaces, then media; or `nvmirage detach` takes a
/// namespace from its controllers. Files are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Delete {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Close a medium; a file stays, the bytes of `ram` are gone
    #[command(after_help = "\
Examples:
  nvmirage delete media disk
      Namespaces on it are deleted first")]
    Media(Named),
    /// Forget a namespace; its bytes stay in the medium
    #[command(after_help = "\
Examples:
  nvmirage delete namespace root
      Controllers that have it let go of it first: nvmirage detach root vm1")]
    Namespace(Named),
    /// Forget a tenant that no controller and no namespace names
    #[command(after_help = "\
Examples:
  nvmirage delete tenant web
      Its controllers and namespaces are deleted first")]
    Tenant(Named),
    /// Serve a controller no longer
    #[command(after_help = "\
Examples:
  nvmirage delete controller vm1
      Refused while a host is attached
  nvmirage delete controller vm1 --detach-hosts
      Its host loses the drive; a virtual machine that uses it may be ended by QEMU")]
    Controller(Controller),
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Its name
    #[arg(add = live::of_kind())]
    name: String,

    #[command(flatten)]
    control: Control,
}

#[derive(Debug, clap::Args)]
struct Controller {
    #[command(flatten)]
    named: Named,

    /// Delete it although a host is attached, which loses its drive
    #[arg(long)]
    detach_hosts: bool,
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (kind, named) = match self.what {
            What::Controller(Controller {
                named,
                detach_hosts,
            }) => {
                let socket = named.control.to_change()?;
                return control::client::delete_controller(&socket, &named.name, detach_hosts);
            }
            What::Media(named) => ("media", named),
            What::Namespace(named) => ("namespaces", named),
            What::Tenant(named) => ("tenants", named),
        };
        control::client::delete(&named.control.to_change()?, kind, &named.name)
    }
}
