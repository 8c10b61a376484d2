//! `nvmirage create` and `nvmirage delete`: objects of a running server, and partitions, which also
//! drives have that no server uses.

use super::partition;

const CREATE_EXAMPLES: &str = "\
Examples:
  nvmirage create media disk --kind file --path disk.img --size 64GiB
  nvmirage create namespace root --media disk --range 0GiB..16GiB
  nvmirage create controller vm1 --namespaces root --listen vfio-user:/tmp/vm1.sock
      A drive for one more guest, without a restart
  nvmirage create namespace data --media disk --range 16GiB..32GiB && nvmirage attach data vm1
      One more namespace for a running guest
  nvmirage create partition disk left 20GiB
      A persistent named part of a drive or file";

const DELETE_EXAMPLES: &str = "\
Examples:
  nvmirage delete controller vm1
      Delete a controller; rejected while a host is attached
  nvmirage delete namespace root && nvmirage delete media disk
      Delete unused objects; files and their data are kept
  nvmirage delete namespace vm1:3
      A namespace that a host created";

/// Create a medium, a namespace, a tenant, a controller or a partition in a running server
///
/// A server that was started with a configuration creates the object again at its next start;
/// `nvmirage export` prints it. A partition is kept with its drive.
#[derive(Debug, clap::Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub(super) struct Create {
    #[command(subcommand)]
    what: Created,
}

#[derive(Debug, clap::Subcommand)]
enum Created {
    #[command(flatten)]
    Object(client::cli::create::Create),
    Partition(partition::Create),
}

/// Delete a medium, a namespace, a tenant, a controller or a partition of a running server
///
/// Objects in use are not deleted: delete controllers first, then namespaces, then media; or detach
/// a namespace from its controllers with `nvmirage detach`. Files are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(super) struct Delete {
    #[command(subcommand)]
    what: Deleted,
}

#[derive(Debug, clap::Subcommand)]
enum Deleted {
    #[command(flatten)]
    Object(client::cli::delete::Delete),
    Partition(partition::Delete),
}

impl Create {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what {
            Created::Object(create) => create.run(),
            Created::Partition(create) => create.run(),
        }
    }
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what {
            Deleted::Object(delete) => delete.run(),
            Deleted::Partition(delete) => delete.run(),
        }
    }
}
