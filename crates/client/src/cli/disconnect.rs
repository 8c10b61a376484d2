//! `nvmirage disconnect`: ends connections of hosts over NVMe/TCP, of NBD clients and of
//! vhost-user-blk front ends.

use api::Disconnection;

use super::live;
use super::parse::{self, Control};
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage disconnect store --host nqn.2014-08.org.nvmexpress:uuid:…
      Every connection of one host to controller store
  nvmirage disconnect store --cntlid 0x100
      One association, NBD client or front end, by its identifier in `nvmirage hosts`
  nvmirage disconnect images --export root
      The NBD clients, or the vhost-user-blk front end, of namespace `root`
  nvmirage disconnect store --all
      All hosts; the controller still listens";

/// Disconnect hosts over NVMe/TCP, NBD or vhost-user-blk from a controller of a running server
///
/// Commands in flight end without a reply. A host may connect again: Linux does so after the time
/// of `nvme connect -c`, unless it is disconnected there, and QEMU within the
/// `reconnect-delay` of its NBD client, or after the `reconnect-ms` of its vhost-user-blk disk. To
/// serve no more hosts, delete the controller. A block device (ublk) cannot be disconnected.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Disconnect {
    /// Name of the controller
    #[arg(add = live::controllers())]
    controller: String,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    control: Control,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// NVMe Qualified Name of the host; all of its associations
    #[arg(long, value_name = "NQN")]
    host: Option<String>,

    /// Name of a namespace: all NBD clients of that export, or its vhost-user-blk front end
    #[arg(long, value_name = "NAME")]
    export: Option<String>,

    /// Controller identifier of the association, NBD client or front end, decimal or hexadecimal
    /// (0x…)
    #[arg(long, value_name = "ID", value_parser = parse::cntlid)]
    cntlid: Option<u16>,

    /// All hosts of the controller
    #[arg(long)]
    all: bool,
}

impl Disconnect {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let Which {
            host,
            export,
            cntlid,
            all,
        } = self.which;
        let wanted = Disconnection {
            nqn: host,
            export,
            cntlid,
            all,
        };
        let server = self.control.to_change()?;
        let ended = requests::disconnect(&server, &self.controller, &wanted)?;
        let noun = if ended.len() == 1 { "host" } else { "hosts" };
        let (count, name) = (ended.len(), &self.controller);
        terminal::print(&format!(
            "disconnected {count} {noun} of controller {name}\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::parse::cntlid;

    #[test]
    fn identifiers_are_decimal_or_hexadecimal() {
        assert_eq!(cntlid("256").unwrap(), 0x100);
        assert_eq!(cntlid("0xffef").unwrap(), 0xffef);
        for wrong in ["", "0x", "x100", "-1", "65536", "0x10000"] {
            assert!(cntlid(wrong).is_err(), "{wrong}");
        }
    }
}
