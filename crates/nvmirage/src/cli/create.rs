//! `nvmirage create`: makes a medium, a namespace, a tenant or a controller in a running server.
//!
//! Keys, units and defaults are those of the configuration file.

use std::path::PathBuf;

use super::{
    live,
    parse::{self, Control},
};
use crate::{
    config::{
        self, AdminAllow, Dialect, Direct, Doorbells, Listen, MediumKind, Range, Size, SocketMode,
        Span, Timing,
        tenant::{Class, Tenant},
    },
    control,
};

const EXAMPLES: &str = "\
Examples:
  nvmirage create media disk --kind file --path disk.img --size 64GiB
  nvmirage create namespace root --media disk --range 0GiB..16GiB
  nvmirage create controller vm1 --namespaces root --listen vfio-user:/tmp/vm1.sock
      A drive for one more guest, without a restart
  nvmirage create namespace data --media disk --range 16GiB..32GiB && nvmirage attach data vm1
      One more namespace for a guest that runs";

/// Create a medium, a namespace, a tenant or a controller in a running server
///
/// A server that was started with a configuration has it again at its next start; `nvmirage export` prints it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Create {
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

/// A place where bytes live
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create media scratch --kind ram --size 8GiB
  nvmirage create media disk --kind file --path disk.img --size 64GiB
  nvmirage create media pro --kind ram --size 8GiB --timing samsung-970-pro,program=200us")]
struct MediumArgs {
    /// Its name
    name: String,

    /// What it is made of
    #[arg(long, value_parser = parse::word::<MediumKind>(&["null", "ram", "file", "drive", "keyvalue"]))]
    kind: MediumKind,

    /// The file or block device of a `file`; the file that a `keyvalue` is kept in
    #[arg(long)]
    path: Option<PathBuf>,

    /// Its size; a file that exists may leave it out
    #[arg(long)]
    size: Option<Size>,

    /// Where a `drive` is
    #[arg(long, value_name = "vfio-user:PATH|pci:ADDRESS")]
    target: Option<String>,

    /// The namespace of a `drive`; default: its first one
    #[arg(long, value_name = "N")]
    nsid: Option<u32>,

    /// Log pages of a `drive` that hosts may read, as in get-log-page:0xc0
    #[arg(long, value_delimiter = ',', value_name = "get-log-page:LID[:BYTES]")]
    admin_allow: Vec<AdminAllow>,

    /// What a `drive` writes wholly or not at all when the power fails, where that is more than it says: 512B or 4KiB
    #[arg(long, value_name = "SIZE")]
    awupf: Option<Size>,

    /// The reactor that polls the completion queues of a `drive`, whichever places its commands; default: each its own
    #[arg(long, value_name = "REACTOR")]
    completions: Option<usize>,

    /// The reactor that tells a `drive` which completions were taken; default: that of --completions
    #[arg(long, value_name = "REACTOR")]
    heads: Option<usize>,

    /// Whether a file is opened with O_DIRECT
    #[arg(long, value_parser = parse::word::<Direct>(&["auto", "on", "off"]))]
    direct: Option<Direct>,

    /// Whether a thread of the kernel looks for submissions to a file
    #[arg(long, value_name = "BOOL")]
    poll_submissions: Option<bool>,

    /// Whether a file's device is asked for completions, and does not interrupt
    #[arg(long, value_name = "BOOL")]
    poll_completions: Option<bool>,

    /// Whether hosts' memory is registered with the kernel for a file
    #[arg(long, value_name = "BOOL")]
    register_memory: Option<bool>,

    /// Whether a file or device is opened for reading alone and served write protected
    #[arg(long, value_name = "BOOL")]
    read_only: Option<bool>,

    /// The model that says when its commands are done: a preset, and parameters that differ from it
    #[arg(long, value_name = "PRESET[,NAME=VALUE...]")]
    timing: Option<Timing>,

    /// What hosts of a key-value medium speak
    #[arg(long, value_parser = parse::word::<Dialect>(&["nvme", "samsung"]))]
    dialect: Option<Dialect>,

    /// Most keys of a key-value medium; default: one for each 512 bytes
    #[arg(long, value_name = "N")]
    max_keys: Option<u32>,

    /// The file that holds what is in memory while it is not served; only for ram, and keyvalue without a path
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    #[command(flatten)]
    control: Control,
}

/// A part of a medium, as hosts see it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create namespace root --media disk
  nvmirage create namespace boot --media disk --range 0GiB..1GiB --lba-size 512")]
struct NamespaceArgs {
    /// Its name
    name: String,

    /// The medium that holds its bytes
    #[arg(long, add = live::media())]
    media: String,

    /// The part of the medium, as in 0GiB..16GiB; default: all of it
    #[arg(long)]
    range: Option<Range>,

    /// The partition of the drive or file that it is, in place of a range
    #[arg(long, value_name = "NAME", conflicts_with = "range")]
    partition: Option<String>,

    /// Bytes of a logical block: 512 or 4096
    #[arg(long, default_value_t = config::DEFAULT_LBA_SIZE)]
    lba_size: u32,

    /// NGUID, 32 hexadecimal digits; default: derived from the name
    #[arg(long)]
    nguid: Option<String>,

    /// EUI-64, 16 hexadecimal digits; default: derived from the name
    #[arg(long)]
    eui64: Option<String>,

    /// Whose its commands are; default: the controller's tenant's
    #[arg(long, add = live::tenants())]
    tenant: Option<String>,

    /// Its part of what its tenant has, beside other namespaces of that: 1 to 10000
    #[arg(long)]
    weight: Option<u32>,

    #[command(flatten)]
    control: Control,
}

/// Who shares media with others
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create tenant web --weight 300
  nvmirage create tenant backup --iops 20000 --bandwidth 200MiB
  nvmirage create controller vm3 --namespaces logs --listen vfio-user:/tmp/vm3.sock --tenant backup")]
struct TenantArgs {
    /// Its name
    name: String,

    /// Its part of a medium that others want, too, beside their weights: 1 to 10000
    #[arg(long, default_value_t = config::tenant::default_weight())]
    weight: u32,

    /// Whether it goes first
    #[arg(long, value_parser = parse::word::<Class>(&["fair", "latency"]))]
    class: Option<Class>,

    /// How long its commands should take at most; only with `--class latency`
    #[arg(long, value_name = "TIME")]
    goal: Option<Span>,

    /// Most commands in a second
    #[arg(long, value_name = "N")]
    iops: Option<u64>,

    /// Most bytes in a second
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<Size>,

    /// What the caps save up: as much as they give in this time
    #[arg(long, value_name = "TIME", default_value_t = config::tenant::default_burst())]
    burst: Span,

    /// Most commands that media may have of it, for each reactor
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,

    #[command(flatten)]
    control: Control,
}

/// What hosts attach to
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage create controller vm1 --namespaces root,data --listen vfio-user:/tmp/vm1.sock
  nvmirage create controller vm2 --namespaces logs --listen vfio-user:/tmp/vm2.sock --queues 4 --serial LOGS1
  nvmirage create controller b --subsystem pair --namespaces shared --listen vfio-user:/tmp/b.sock
      One more controller of subsystem `pair`, for a second guest")]
struct ControllerArgs {
    /// Its name
    name: String,

    /// The NVM subsystem it belongs to, with others that name it; default: one of its own
    #[arg(long)]
    subsystem: Option<String>,

    /// Names of its namespaces; in a subsystem they are counted from 1
    #[arg(long, value_delimiter = ',', value_name = "NAMES", add = live::namespaces())]
    namespaces: Vec<String>,

    /// Names of media whose unallocated space its host may make namespaces of
    #[arg(long, value_delimiter = ',', value_name = "MEDIA", add = live::media())]
    pool: Vec<String>,

    /// Where hosts reach it: a socket, or a folder in which the server's machine has each namespace as a file
    #[arg(long, value_name = "vfio-user:PATH|fuse:FOLDER", value_parser = parse::listen)]
    listen: Listen,

    /// Other users may open the files of a mount
    #[arg(long)]
    allow_other: bool,

    /// The files of a mount are read and written through the machine's page cache
    #[arg(long)]
    page_cache: bool,

    /// Who may connect to its socket, as in chmod: 0600 for its owner, 0660 for its group, too, 0666 for all
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<SocketMode>,

    /// I/O queue pairs it offers, 1 to 64
    #[arg(long)]
    queues: Option<u16>,

    /// Entries of a queue at most, 2 to 4096
    #[arg(long)]
    queue_depth: Option<u16>,

    /// The largest transfer of one command: a power of two, 8KiB to 4MiB
    #[arg(long)]
    max_transfer: Option<Size>,

    /// How doorbells reach the reactor
    #[arg(long, value_parser = parse::word::<Doorbells>(&["auto", "mapped", "unmapped", "trapped"]))]
    doorbells: Option<Doorbells>,

    /// Offer MSI-X; false: MSI alone, so that QEMU 11.1 can unplug it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    msix: bool,

    /// With an interrupt pin (INTx), for guests that use no MSI-X
    #[arg(long)]
    intx: bool,

    /// Which reactor serves it, counted from 0
    #[arg(long)]
    reactor: Option<usize>,

    /// Whose the commands of its hosts are
    #[arg(long, add = live::tenants())]
    tenant: Option<String>,

    /// Of so many I/O commands the times of one are taken, at random distances: 1 to 65536, or 0 for none
    #[arg(long, value_name = "N")]
    sample: Option<u32>,

    /// Serial number; default: derived from the name
    #[arg(long)]
    serial: Option<String>,

    /// Model number
    #[arg(long)]
    model_number: Option<String>,

    /// Firmware revision
    #[arg(long)]
    firmware_revision: Option<String>,

    /// NVM subsystem NQN; default: derived from the name
    #[arg(long)]
    subnqn: Option<String>,

    /// PCI vendor id, as in 0x1234
    #[arg(long, value_parser = pci_id)]
    vendor_id: Option<u16>,

    /// PCI device id, as in 0x1234
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
    id.ok_or_else(|| format!("`{text}` is no id: write 0x1 to 0xfffe"))
}

impl Create {
    pub(super) fn run(self) -> anyhow::Result<()> {
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
        let medium = config::Medium {
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
            timing: self.timing.map(Timing::absolute).transpose()?,
            zoned: None,
            dialect: self.dialect,
            max_keys: self.max_keys,
            state: self.state.as_ref().map(std::path::absolute).transpose()?,
        };
        control::client::create(&self.control.to_change()?, "media", &medium)
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
        control::client::create(&self.control.to_change()?, "namespaces", &namespace)
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
        control::client::create(&self.control.to_change()?, "tenants", &tenant)
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
        control::client::create(&socket, "controllers", &controller)
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
