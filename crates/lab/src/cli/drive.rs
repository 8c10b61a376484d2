//! `nvmirage drive`: lists the NVMe drives of this machine, binds them to vfio-pci and returns
//! them.

use driver::bus::PciAddress;
use terminal::table::{Align, Table};

use crate::physical::{Drive, System};

const EXAMPLES: &str = "\
Examples:
  nvmirage drive ls
      List drives and their users
  nvmirage drive bind 0000:01:00.0
      Bind a drive to vfio-pci; rejected while it is in use
  nvmirage identify --target pci:0000:01:00.0
      Use it
  nvmirage drive unbind 0000:01:00.0
      Return it to the kernel";

/// List the NVMe drives of this machine, bind them to vfio-pci, return them to the kernel
///
/// A drive is used through VFIO: the machine's IOMMU restricts it to the memory mapped for it.
/// While it is bound, the kernel has no block device for it. Its data is kept.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DriveCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    #[command(alias = "list")]
    Ls(Ls),
    Bind(Bind),
    Unbind(Unbind),
}

/// List the NVMe drives of this machine: address, model, driver, IOMMU group, and users
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage drive ls
  nvmirage drive ls --json | jq -r '.[] | select(.in_use_by == []).address'
      List unused drives

Without root, processes of other users are not seen.")]
struct Ls {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Unbind drives from the kernel's driver and bind them to vfio-pci
///
/// The command rejects a drive that is mounted, used for swap, part of a volume or RAID, or held
/// open by a process, and names the user; a drive without an IOMMU; and a drive in one IOMMU group
/// with a function that the kernel drives. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage drive bind 0000:01:00.0
  nvmirage drive bind 01:00.0 02:00.0")]
struct Bind {
    /// PCI address of the drive, as `nvmirage drive ls` shows it
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<PciAddress>,
}

/// Return drives to the kernel's NVMe driver
///
/// The command rejects a drive that a process uses, and names the process. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage drive unbind 0000:01:00.0")]
struct Unbind {
    /// PCI address of the drive, as `nvmirage drive ls` shows it
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<PciAddress>,
}

impl DriveCommand {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let system = System::this();
        match self.what {
            What::Ls(Ls { json }) => {
                let drives = system.drives()?;
                if json { terminal::print_json(&drives) } else { terminal::print(&shown(&drives)) }
            }
            What::Bind(Bind { addresses }) => addresses.into_iter().try_for_each(|address| {
                let drive = system.bind(address)?;
                let group = drive.iommu_group.map_or(String::new(), |n| n.to_string());
                terminal::print(&format!(
                    "{address} is bound to vfio-pci: --target pci:{address}, for users that may open /dev/vfio/{group}\n"
                ))
            }),
            What::Unbind(Unbind { addresses }) => addresses.into_iter().try_for_each(|address| {
                let drive = system.unbind(address)?;
                let driver = drive.driver.unwrap_or_else(|| "no driver".to_owned());
                terminal::print(&format!("{address} is bound to {driver}\n"))
            }),
        }
    }
}

fn shown(drives: &[Drive]) -> String {
    if drives.is_empty() {
        return "this machine has no NVMe drives on PCI\n".to_owned();
    }
    let mut table = Table::new(&[
        ("address", Align::Left),
        ("model", Align::Left),
        ("serial", Align::Left),
        ("driver", Align::Left),
        ("IOMMU group", Align::Right),
        ("in use by", Align::Left),
    ]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for drive in drives {
        let model = drive.model.clone();
        let mut users = drive.in_use_by.iter();
        table.row(vec![
            drive.address.to_string(),
            model.unwrap_or_else(|| format!("PCI {}", drive.id)),
            or_dash(&drive.serial),
            or_dash(&drive.driver),
            or_dash(&drive.iommu_group.map(|group| group.to_string())),
            users.next().map_or("-".to_owned(), Clone::clone),
        ]);
        for user in users {
            let mut cells = vec![String::new(); 5];
            cells.push(user.clone());
            table.row(cells);
        }
    }
    table.to_string()
}
