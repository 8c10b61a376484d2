//! `nvmirage create`: creates a medium, a namespace, a tenant or a controller in a running server.
//!
//! Keys, units and defaults are those of the configuration file.

use std::path::PathBuf;

use api::config::tenant::Tenant;
use api::config::{
    AdminAllow, Controller, Dialect, Direct, MediumKeys, MediumKind, Namespace, Size, Timing,
};
use machine::files::read_text;
use serde_json::Value;

use super::UsageError;
use super::options::Options;
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
    Media(Box<MediumArgs>),
    Namespace(NamespaceArgs),
    Tenant(TenantArgs),
    Controller(ControllerArgs),
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
    #[command(flatten)]
    namespace: Options<Namespace>,

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
    #[command(flatten)]
    tenant: Options<Tenant>,

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
    #[command(flatten)]
    controller: Options<Controller>,

    #[command(flatten)]
    control: Control,
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
        requests::create(
            &self.control.to_change()?,
            "namespaces",
            &self.namespace.given,
        )
    }
}

impl TenantArgs {
    fn run(self) -> anyhow::Result<()> {
        requests::create(&self.control.to_change()?, "tenants", &self.tenant.given)
    }
}

impl ControllerArgs {
    fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_change()?;
        let mut controller = self.controller.given;
        if let Some(Value::String(listen)) = controller.get_mut("listen") {
            let absolute = parse::listen(listen).map_err(UsageError)?;
            *listen = parse::absolute_listen(absolute)?.to_string();
        }
        requests::create(&socket, "controllers", &controller)
    }
}
