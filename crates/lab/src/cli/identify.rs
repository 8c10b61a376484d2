//! `nvmirage identify`: shows how a drive identifies itself.

use driver::Doorbells;
use driver::bus::place::Place;
use load::{Host, Needs};

use super::as_host::AsHost;
use super::wait::WaitArg;
use crate::identity::Identity;

const EXAMPLES: &str = "\
Examples:
  nvmirage identify --target vfio-user:/tmp/nvme.sock
  nvmirage identify --target vfio-user:/tmp/nvme.sock --json | jq '.namespaces[].bytes'

A controller serves one host at a time: while a guest has the drive this fails; --wait waits.";

/// Show the Identify data of a drive, over vfio-user, NVMe/TCP or on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Identify {
    /// Address of the drive: a server's socket, a subsystem behind a target, or a PCI function
    /// bound to vfio-pci
    #[arg(long, value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS")]
    target: Place,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wait: WaitArg,

    #[command(flatten)]
    as_host: AsHost,
}

impl Identify {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        self.as_host.assume(Some(&self.target))?;
        let needs = Needs::of(1, 4096).waiting(self.wait.get());
        let mut host = Host::connect(&self.target, Doorbells::Auto, needs)?;
        let identity = Identity::ask(&mut host)?;
        host.leave()?;
        if self.json {
            return terminal::print_json(&identity);
        }
        terminal::print(&identity.in_words())
    }
}
