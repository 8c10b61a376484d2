//! `nvmirage partition`: lists and changes the partitions of a drive, through the server that has
//! the drive, or directly if no server has it.

use std::path::PathBuf;

use anyhow::Context;
use api::config::{Range, Size};
use api::{NewPartition, Partition};
use client::cli::live;
use client::cli::parse::Control;
use client::requests;
use media::{Direct, FileIo, Medium, MediumKind, MediumSpec};
use serde::Serialize;
use server::identity;
use server::partition::{Owner, Store, Table, stored};
use terminal::table::{Align, Table as Shown};
use terminal::{progress, units};

const EXAMPLES: &str = "\
Examples:
  nvmirage partition create pci:0000:01:00.0 vm1 100GiB
      A partition of a drive that no server uses
  nvmirage partition ls
      List partitions of all drives, and the free space
  nvmirage partition create nvme vm2 100GiB
      Create one on a running server's drive, by the name of its medium
  nvmirage partition resize nvme vm1 150GiB
      Its guest is notified; then grow partitions and file systems there
  nvmirage partition delete nvme vm2 --erase";

/// Divide a drive into partitions for namespaces
///
/// A partition is a persistent named part of a drive or file: a namespace names it with
/// `partition = "vm1"` instead of a range. It belongs to the drive's serial number, at any address.
/// Nothing is written to the drive: the partition table is in the state folder.
///
/// DRIVE is the name of a medium of a running server. Where no server uses the drive, it is the
/// drive's address: `pci:ADDRESS`, `vfio-user:PATH`, or the path of a file, with a `/` in it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PartitionCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Create(Create),
    #[command(alias = "list")]
    Ls(Ls),
    #[command(alias = "grow")]
    Resize(Resize),
    Delete(Delete),
}

/// Create a partition in the first gap that is large enough
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage partition create pci:0000:01:00.0 vm1 100GiB
  nvmirage partition create nvme vm2 100GiB --at 200GiB
      With room for vm1 to grow")]
pub(super) struct Create {
    #[command(flatten)]
    drive: Drive,

    /// Name: letters, digits, `.`, `_` and `-`
    name: String,

    /// Size: a multiple of 4KiB
    size: Size,

    /// Start: a multiple of 1MiB; default: the first gap that is large enough
    #[arg(long, value_name = "OFFSET")]
    at: Option<Size>,
}

/// List the partitions of all known drives, and the free space between them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage partition ls
  nvmirage partition ls --json | jq -r '.[].partitions[].name'")]
struct Ls {
    /// Folder of the partition tables: `state_dir` of the server's configuration
    ///
    /// Default: $XDG_STATE_HOME/nvmirage, or ~/.local/state/nvmirage.
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Extend a partition into the free space behind it; its start is unchanged
///
/// Where a server uses the drive, an asynchronous event notifies the host of the partition's
/// namespace. A partition cannot shrink.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage partition resize nvme vm1 150GiB")]
struct Resize {
    #[command(flatten)]
    drive: Drive,

    /// Name of the partition
    #[arg(add = live::partitions())]
    name: String,

    /// New size: a multiple of 4KiB
    size: Size,
}

/// Delete a partition that no namespace of a running server uses
///
/// Without --erase the data stays on the drive, and the next partition in its place exposes it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage partition delete nvme vm2 --erase")]
pub(super) struct Delete {
    #[command(flatten)]
    drive: Drive,

    /// Name of the partition
    #[arg(add = live::partitions())]
    name: String,

    /// Zero the partition's bytes first, which takes as long as the drive needs
    #[arg(long)]
    erase: bool,
}

/// Which drive.
#[derive(Debug, clap::Args)]
struct Drive {
    /// Medium of a running server; or `pci:ADDRESS`, `vfio-user:PATH` or a file's path
    #[arg(add = live::media())]
    drive: String,

    /// Namespace identifier on the drive; default: the first one
    #[arg(long, value_name = "N")]
    nsid: Option<u32>,

    /// Folder of the partition tables: `state_dir` of the server's configuration
    ///
    /// Default: $XDG_STATE_HOME/nvmirage, or ~/.local/state/nvmirage. A running server uses its
    /// own.
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    control: Control,
}

/// A drive that no server uses, opened.
struct Opened {
    medium: std::sync::Arc<Medium>,
    store: Store,
}

impl Drive {
    /// Opens the drive; `None` if a running server has it.
    fn open(&self) -> anyhow::Result<Option<Opened>> {
        let path = PathBuf::from(&self.drive);
        let (kind, path) = if self.drive.contains(':') {
            let place = self.drive.parse();
            let place = place.map_err(|error| anyhow::anyhow!("`{}`: {error}", self.drive))?;
            let nsid = self.nsid;
            let shown = Vec::new();
            let place = (place, None);
            (MediumKind::Drive { place, nsid, shown }, None)
        } else if self.drive.contains('/') {
            let file = MediumKind::File {
                path: path.clone(),
                size: None,
                direct: Direct::Off,
                io: FileIo::default(),
            };
            (file, Some(path))
        } else {
            return Ok(None);
        };
        let medium = Medium::open(&MediumSpec { kind }).with_context(
            || "if a server uses it, give the name of its medium instead of an address",
        )?;
        let owner = Owner::of(&medium, path.as_deref())?;
        let owner = owner.context("a drive without a serial number cannot have partitions")?;
        let store = Store::open(&state_dir(self.state_dir.clone())?, owner, medium.size())?;
        Ok(Some(Opened { medium, store }))
    }
}

fn state_dir(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    given.map_or_else(identity::default_state_dir, Ok)
}

impl PartitionCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what {
            What::Create(create) => create.run(),
            What::Ls(ls) => ls.run(),
            What::Resize(resize) => resize.run(),
            What::Delete(delete) => delete.run(),
        }
    }
}

fn refused(refusal: api::Refusal) -> anyhow::Error {
    anyhow::Error::msg(refusal.detail)
}

impl Create {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Create {
            drive,
            name,
            size,
            at,
        } = self;
        let range = match drive.open()? {
            Some(mut opened) => opened
                .store
                .change(|table| table.create(&name, size, at, &[]))
                .map_err(refused)?,
            None => {
                let new = NewPartition {
                    name: name.clone(),
                    size,
                    at,
                };
                let socket = drive.control.to_change()?;
                requests::create_partition(&socket, &drive.drive, &new)?.range
            }
        };
        terminal::print(&format!("partition {name} has {range}\n"))
    }
}

impl Resize {
    fn run(self) -> anyhow::Result<()> {
        let Resize { drive, name, size } = self;
        let range = match drive.open()? {
            Some(mut opened) => opened
                .store
                .change(|table| table.grow(&name, size, &[]))
                .map_err(refused)?,
            None => {
                let socket = drive.control.to_change()?;
                requests::grow_partition(&socket, &drive.drive, &name, size)?.range
            }
        };
        terminal::print(&format!("partition {name} has {range}\n"))
    }
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Delete { drive, name, erase } = self;
        let Some(Opened { medium, mut store }) = drive.open()? else {
            let socket = drive.control.to_change()?;
            requests::delete_partition(&socket, &drive.drive, &name, erase)?;
            return deleted(&name);
        };
        if erase {
            let range = store
                .change(|table| table.begin_delete(&name))
                .map_err(refused)?;
            let _line = progress::waiting("erasing");
            medium.erase(range.start.0, range.len()).with_context(|| {
                format!("partition {name} is not fully erased, and cannot be used: delete it again")
            })?;
        }
        store.change(|table| table.delete(&name)).map_err(refused)?;
        deleted(&name)
    }
}

fn deleted(name: &str) -> anyhow::Result<()> {
    terminal::print(&format!("deleted partition {name}\n"))
}

/// Output for one drive.
#[derive(Debug, Serialize)]
struct Listed {
    /// Type of the drive.
    #[serde(flatten)]
    owner: Owner,
    /// Size in bytes.
    bytes: u64,
    partitions: Vec<Partition>,
    /// Ranges outside of all partitions. Namespaces with a range may use parts of them.
    free: Vec<Range>,
}

impl Ls {
    fn run(self) -> anyhow::Result<()> {
        let tables = stored(&state_dir(self.state_dir)?)?;
        if self.json {
            let listed = tables.into_iter().map(|(owner, table)| Listed {
                owner,
                bytes: table.bytes(),
                partitions: table.partitions().to_vec(),
                free: table.gaps(&[]),
            });
            return terminal::print_json(&listed.collect::<Vec<_>>());
        }
        terminal::print(&shown(&tables))
    }
}

fn shown(tables: &[(Owner, Table)]) -> String {
    if tables.is_empty() {
        return "no drive has partitions\n".to_owned();
    }
    let parts = tables.iter().map(|(owner, table)| {
        let mut shown = Shown::new(&[
            ("partition", Align::Left),
            ("size", Align::Right),
            ("range", Align::Left),
        ]);
        let partitions = table.partitions().iter().map(|p| {
            let name = if p.deleting {
                format!("{} (being deleted)", p.name)
            } else {
                p.name.clone()
            };
            (name, p.range)
        });
        let free = table.gaps(&[]).into_iter().map(|gap| ("-".to_owned(), gap));
        let mut rows: Vec<(String, Range)> = partitions.chain(free).collect();
        rows.sort_by_key(|(_, range)| range.start);
        for (name, range) in rows {
            shown.row(vec![name, units::bytes(range.len()), range.to_string()]);
        }
        format!("{owner}, {}\n{shown}", units::bytes(table.bytes()))
    });
    parts.collect::<Vec<_>>().join("\n")
}
