//! `nvmirage create`: creates a medium, a namespace, a tenant or a controller in a running server.
//!
//! Keys, units and defaults are those of the configuration file.

use machine::files::read_text;
use std::path::PathBuf;

use api::config::tenant::{Class, Tenant};
use api::config::{
    self, AdminAllow, Dialect, Direct, Doorbells, Listen, MediumKeys, MediumKind, Range, Size,
    SocketMode, Span, Timing,
};

use super::live;
use super::parse::{self, Control};
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage create media disk --kind file --path disk.img --size 64GiB
  nvmirage create namespace root --media disk --range 0GiB..16GiB
  nvmirage create controller vm1 --namespaces root --listen vfio-user:/tmp/vm1.sock
      A drive for one more guest, without a restart
  nvmirage create namespace data --media disk --range 16GiB..32GiB && nvmirage attach data vm1
      One more namespace for a running guest";

/// Create a medium, a namespace, a tenant or a controller in a running server
///
/// A server that was started with a configuration creates the object again at its next start;
/// `nvmirage export` prints it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Create {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Media(MediumArgs),
    Namespace(NamespaceArgs),
    Tenant(TenantArgs),
    Controller(Box<ControllerArgs>),
}

/// Create a medium, the storage behind namespaces
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create media scratch --kind ram --size 8GiB
  nvmirage create media disk --kind file --path disk.img --size 64GiB
  nvmirage create media pro --kind ram --size 8GiB --timing samsung-970-pro,program=200us")]
struct MediumArgs {
    /// Name of the medium
    name: String,

    /// Kind of the medium
    #[arg(long, value_parser = parse::word::<MediumKind>(&["null", "ram", "file", "drive", "keyvalue"]))]
    kind: MediumKind,

    /// File or block device of a `file`; file that a `keyvalue` is kept in
    #[arg(long)]
    path: Option<PathBuf>,

    /// Size, 64KiB to 8EiB; optional for a file that exists, invalid for a `drive`
    #[arg(long)]
    size: Option<Size>,

    /// Address of a `drive`
    #[arg(long, value_name = "vfio-user:PATH|pci:ADDRESS")]
    target: Option<String>,

    /// Namespace identifier on a `drive`; default: the first active namespace
    #[arg(long, value_name = "N")]
    nsid: Option<u32>,

    /// Vendor log pages of a `drive` that hosts may read, as in get-log-page:0xc0; default: none
    #[arg(long, value_delimiter = ',', value_name = "get-log-page:LID[:BYTES]")]
    admin_allow: Vec<AdminAllow>,

    /// Write size that a `drive` keeps atomic across a power failure, where it is more than the
    /// drive reports: 512B or 4KiB
    #[arg(long, value_name = "SIZE")]
    awupf: Option<Size>,

    /// Reactor that polls all completion queues of a `drive`; default: each reactor polls its own
    #[arg(long, value_name = "REACTOR")]
    completions: Option<usize>,

    /// Reactor that writes the completion queue head doorbells of a `drive`; default: that of
    /// --completions
    #[arg(long, value_name = "REACTOR")]
    heads: Option<usize>,

    /// Direct I/O of a `file` (O_DIRECT); default: auto
    #[arg(long, value_parser = parse::word::<Direct>(&["auto", "on", "off"]))]
    direct: Option<Direct>,

    /// Submit I/O of a `file` through a polling kernel thread; default: false
    #[arg(long, value_name = "BOOL")]
    poll_submissions: Option<bool>,

    /// Poll the device of a `file` for completions instead of taking interrupts; default: false
    #[arg(long, value_name = "BOOL")]
    poll_completions: Option<bool>,

    /// Register hosts' memory with the kernel for I/O of a `file`; default: true
    #[arg(long, value_name = "BOOL")]
    register_memory: Option<bool>,

    /// Open a `file` read-only and serve it write protected; default: false
    #[arg(long, value_name = "BOOL")]
    read_only: Option<bool>,

    /// Timing model: a preset, and parameters that differ from it; default: none
    #[arg(long, value_name = "PRESET[,NAME=VALUE...]", value_parser = |text: &str| Timing::parse(text, read_text))]
    timing: Option<Timing>,

    /// Command set of a `keyvalue`; default: nvme
    #[arg(long, value_parser = parse::word::<Dialect>(&["nvme", "samsung"]))]
    dialect: Option<Dialect>,

    /// Maximum number of keys of a `keyvalue`, 1 to 4294967294; default: one for each 512 bytes
    #[arg(long, value_name = "N")]
    max_keys: Option<u32>,

    /// File in which the contents are saved when the server stops; only for `ram`, and `keyvalue`
    /// without a path
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    #[command(flatten)]
    control: Control,
}

/// Create a namespace, a part of a medium
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create namespace root --media disk
  nvmirage create namespace boot --media disk --range 0GiB..1GiB --lba-size 512")]
struct NamespaceArgs {
    /// Name of the namespace
    name: String,

    /// Medium that stores the namespace
    #[arg(long, add = live::media())]
    media: String,

    /// Byte range of the medium, as in 0GiB..16GiB; default: all of it
    #[arg(long)]
    range: Option<Range>,

    /// Partition of the drive or file, instead of a range
    #[arg(long, value_name = "NAME", conflicts_with = "range")]
    partition: Option<String>,

    /// Logical block size in bytes: 512 or 4096
    #[arg(long, default_value_t = config::DEFAULT_LBA_SIZE)]
    lba_size: u32,

    /// NGUID, 32 hexadecimal digits; default: derived from the name
    #[arg(long)]
    nguid: Option<String>,

    /// EUI-64, 16 hexadecimal digits; default: derived from the name
    #[arg(long)]
    eui64: Option<String>,

    /// Tenant that its commands count for; default: the controller's tenant
    #[arg(long, add = live::tenants())]
    tenant: Option<String>,

    /// Weight among the namespaces of one tenant on the medium: 1 to 10000; default: 100
    #[arg(long)]
    weight: Option<u32>,

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
struct TenantArgs {
    /// Name of the tenant
    name: String,

    /// Weight on a medium that several tenants use: 1 to 10000
    #[arg(long, default_value_t = config::tenant::default_weight())]
    weight: u32,

    /// Scheduling class; default: fair
    #[arg(long, value_parser = parse::word::<Class>(&["fair", "latency"]))]
    class: Option<Class>,

    /// Target latency of its commands; only with `--class latency`; default: twice their lowest
    /// latency
    #[arg(long, value_name = "TIME")]
    goal: Option<Span>,

    /// Maximum number of commands per second; default: unlimited
    #[arg(long, value_name = "N")]
    iops: Option<u64>,

    /// Maximum number of bytes per second; default: unlimited
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<Size>,

    /// Burst allowance of --iops and --bandwidth, as a time: 60s at most
    #[arg(long, value_name = "TIME", default_value_t = config::tenant::default_burst())]
    burst: Span,

    /// Maximum number of commands in flight at media, per reactor; default: unlimited
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,

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
      One more controller of subsystem `pair`, for a second guest")]
struct ControllerArgs {
    /// Name of the controller
    name: String,

    /// NVM subsystem, shared by the controllers that name it; default: one of its own
    #[arg(long)]
    subsystem: Option<String>,

    /// Names of attached namespaces; their identifiers in the subsystem count from 1
    #[arg(long, value_delimiter = ',', value_name = "NAMES", add = live::namespaces())]
    namespaces: Vec<String>,

    /// Names of media in whose unallocated space hosts may create namespaces
    #[arg(long, value_delimiter = ',', value_name = "MEDIA", add = live::media())]
    pool: Vec<String>,

    /// Address that hosts attach to: a socket, or a folder in which the server's machine has each
    /// namespace as a file
    #[arg(long, value_name = "vfio-user:PATH|fuse:FOLDER", value_parser = parse::listen)]
    listen: Listen,

    /// Let other users open the files of a mount
    #[arg(long)]
    allow_other: bool,

    /// Use the machine's page cache for the files of a mount
    #[arg(long)]
    page_cache: bool,

    /// Mode of the socket, as in chmod: 0600 for its owner, 0660 for its group too, 0666 for all
    /// users; default: 0600
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<SocketMode>,

    /// Maximum number of I/O queue pairs, 1 to 64; default: 64
    #[arg(long)]
    queues: Option<u16>,

    /// Maximum number of entries of an I/O queue, 2 to 4096; default: 1024
    #[arg(long)]
    queue_depth: Option<u16>,

    /// Maximum data transfer size of one command, a power of two, 8KiB to 4MiB; default: 1MiB
    #[arg(long)]
    max_transfer: Option<Size>,

    /// Doorbell delivery to the reactor; default: auto
    #[arg(long, value_parser = parse::word::<Doorbells>(&["auto", "mapped", "unmapped", "trapped"]))]
    doorbells: Option<Doorbells>,

    /// Offer MSI-X; false offers only MSI, so that QEMU 11.1 can unplug the device
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    msix: bool,

    /// Provide an interrupt pin (INTx), for guests without MSI-X
    #[arg(long)]
    intx: bool,

    /// Number of the reactor that serves the controller, from 0; default: the one with the fewest
    /// controllers
    #[arg(long)]
    reactor: Option<usize>,

    /// Tenant that the commands of its hosts count for; default: none
    #[arg(long, add = live::tenants())]
    tenant: Option<String>,

    /// Latency sampling rate: on average one in N I/O commands is timed, 1 to 65536; 0 disables
    /// sampling; default: 256
    #[arg(long, value_name = "N")]
    sample: Option<u32>,

    /// Serial number, up to 20 ASCII characters; default: derived from the name
    #[arg(long)]
    serial: Option<String>,

    /// Model number, up to 40 ASCII characters; default: nvmirage
    #[arg(long)]
    model_number: Option<String>,

    /// Firmware revision, up to 8 ASCII characters; default: the program's version
    #[arg(long)]
    firmware_revision: Option<String>,

    /// NVM subsystem NQN; default: derived from the name
    #[arg(long)]
    subnqn: Option<String>,

    /// PCI vendor ID, as in 0x1234; default: 0x4e56
    #[arg(long, value_parser = pci_id)]
    vendor_id: Option<u16>,

    /// PCI device ID, as in 0x1234; default: 0x0001
    #[arg(long, value_parser = pci_id)]
    device_id: Option<u16>,

    #[command(flatten)]
    control: Control,
}

fn pci_id(text: &str) -> Result<u16, String> {
    let id = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    id.ok_or_else(|| format!("`{text}` is not an ID: write 0x1 to 0xfffe"))
}

impl Create {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        match self.what {
            What::Media(args) => args.run(),
            What::Namespace(args) => args.run(),
            What::Tenant(args) => args.run(),
            What::Controller(args) => args.run(),
        }
    }
}

impl MediumArgs {
    fn run(self) -> anyhow::Result<()> {
        let medium = MediumKeys {
            name: self.name,
            kind: self.kind,
            path: self.path.map(parse::absolute).transpose()?,
            size: self.size,
            target: self.target,
            nsid: self.nsid,
            admin_allow: self.admin_allow,
            awupf: self.awupf,
            completions: self.completions,
            heads: self.heads,
            direct: self.direct,
            poll_submissions: self.poll_submissions,
            poll_completions: self.poll_completions,
            register_memory: self.register_memory,
            read_only: self.read_only,
            timing: self
                .timing
                .map(|timing| timing.absolute(|path| std::path::absolute(path)))
                .transpose()?,
            zoned: None,
            dialect: self.dialect,
            max_keys: self.max_keys,
            state: self.state.as_ref().map(std::path::absolute).transpose()?,
        };
        requests::create(&self.control.to_change()?, "media", &medium)
    }
}

impl NamespaceArgs {
    fn run(self) -> anyhow::Result<()> {
        let namespace = config::Namespace {
            name: self.name,
            media: self.media,
            range: self.range,
            partition: self.partition,
            lba_size: self.lba_size,
            nguid: self.nguid,
            eui64: self.eui64,
            tenant: self.tenant,
            weight: self.weight,
        };
        requests::create(&self.control.to_change()?, "namespaces", &namespace)
    }
}

impl TenantArgs {
    fn run(self) -> anyhow::Result<()> {
        let tenant = Tenant {
            name: self.name,
            weight: self.weight,
            class: self.class.unwrap_or_default(),
            goal: self.goal,
            iops: self.iops,
            bandwidth: self.bandwidth,
            burst: self.burst,
            in_flight: self.in_flight,
        };
        requests::create(&self.control.to_change()?, "tenants", &tenant)
    }
}

impl ControllerArgs {
    fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_change()?;
        let defaults = config::Controller::new(self.name, parse::absolute_listen(self.listen)?);
        let fuse = config::Fuse {
            allow_other: self.allow_other,
            page_cache: self.page_cache,
        };
        let controller = config::Controller {
            subsystem: self.subsystem,
            namespaces: self.namespaces,
            pool: self.pool,
            socket_mode: self.socket_mode.unwrap_or_default(),
            fuse: (fuse != config::Fuse::default()).then_some(fuse),
            queues: self.queues.unwrap_or(defaults.queues),
            queue_depth: self.queue_depth.unwrap_or(defaults.queue_depth),
            max_transfer: self.max_transfer.unwrap_or(defaults.max_transfer),
            doorbells: self.doorbells.unwrap_or_default(),
            msix: self.msix,
            intx: self.intx,
            reactor: self.reactor,
            tenant: self.tenant,
            sample: self.sample.unwrap_or(defaults.sample),
            serial: self.serial,
            model_number: self
                .model_number
                .unwrap_or_else(|| defaults.model_number.clone()),
            firmware_revision: self
                .firmware_revision
                .unwrap_or_else(|| defaults.firmware_revision.clone()),
            subnqn: self.subnqn,
            vendor_id: self.vendor_id,
            device_id: self.device_id,
            ..defaults
        };
        requests::create(&socket, "controllers", &controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_both_bases() {
        assert_eq!(pci_id("0x1b36"), Ok(0x1b36));
        assert_eq!(pci_id("7"), Ok(7));
        assert!(pci_id("0x12345").is_err());
        assert!(pci_id("red").is_err());
    }
}
