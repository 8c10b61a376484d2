//! `nvmirage up`: creates everything for a first drive in one command, or nothing if a step fails.

mod made;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::ControllerStatus;
use api::config::{
    self, Config, Initial, Listen, Medium, MediumKeys, MediumKind, NbdAddress, Size, Timing, Zoned,
};
use client::cli::parse;
use client::cli::parse::Control;
use client::cli::qemu_args::{self, DEFAULT_MEMORY};
use client::{Address, exports, requests, words};
use machine::files::read_text;
use machine::vhost_user::Disk;
use machine::{initiator, nbd, qemu, ublk};
use model::Parameters;
use server::process::{self, Serving};
use terminal::interrupt::Interrupt;
use terminal::units;

use self::made::Made;
use super::UsageError;

const EXAMPLES: &str = "\
Examples:
  nvmirage up samsung-970-pro --size 8GiB
      A drive of 8 GiB in memory with the timing of a 970 Pro
  nvmirage up file --size 64GiB --path disk.img --name vm1
      A drive in a file, for a guest called vm1
  nvmirage up zns-prototype --size 4GiB
      A zoned drive, with the zones of its preset
  nvmirage up samsung-970-pro --path pro.img --set program=200us --serial PRO1 --memory 8GiB
      As large as the real drive, in a file, with a slower program, for a guest of 8 GiB
  nvmirage up intel-p3600 --size 8GiB --listen nvme-tcp:127.0.0.1:4420
      A drive over NVMe/TCP, which `nvme connect` makes a device of this machine
  nvmirage up samsung-970-pro --size 8GiB --listen nbd:/tmp/x.sock
      A drive over NBD, for qemu-img, nbdcopy, nbd-client and a guest without vfio-user
  nvmirage up samsung-970-pro --size 8GiB --listen vhost-user-blk:/tmp/b.sock
      A virtio disk of a guest, for QEMU 4.2 and newer, libvirt, Firecracker and cloud-hypervisor
  nvmirage up samsung-970-pro --path pro.img --size 8GiB --listen ublk:
      A block device of this machine, /dev/ublkbN, as root
  nvmirage down vm1
      Delete the drive again

A running server gets the drive. Without one, this command serves it until it is stopped.
Another server gets it where --control or NVMIRAGE_CONTROL names that. The same line again changes
nothing, and what it has made goes again where it fails.";

/// Create a drive in one command, and print how hosts attach to it
///
/// The drive is of a kind (null, ram, file, keyvalue), or of a preset (nvmirage explain lists
/// them), which is in memory unless --path names a file. Medium, namespace and controller all have
/// the drive's name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Up {
    /// Kind of a medium, preset, or file that describes a drive
    #[arg(value_name = "PRESET|KIND", add = lab::cli::presets_and_kinds())]
    what: String,

    /// Size of the drive
    ///
    /// Default: the size of the real drive for a preset, of the file for one that exists
    #[arg(long)]
    size: Option<Size>,

    /// Name of the medium, its namespace and its controller
    #[arg(long, default_value = "nvme0")]
    name: String,

    /// File of the medium; created if missing
    #[arg(long)]
    path: Option<PathBuf>,

    /// Bytes of a logical block: 512 or 4096; default: 4096
    #[arg(long, value_name = "N", value_parser = lba_size)]
    lba_size: Option<u32>,

    /// Open the file or device read-only, and serve it write protected
    #[arg(long, requires = "path")]
    read_only: bool,

    /// Begin with a flash drive on which nothing is written, so that reads of unwritten blocks cost
    /// no flash read; default: every block was written once, in order
    #[arg(long)]
    fresh: bool,

    /// Address that guests or hosts attach to; default: NAME.sock beside the control socket
    #[arg(long, value_name = "vfio-user:PATH|nvme-tcp:ADDRESS:PORT|nbd:PATH|nbd:ADDRESS:PORT|vhost-user-blk:PATH|ublk:|ublk:ID", value_parser = parse::listen)]
    listen: Option<Listen>,

    /// Change a parameter of the preset's model; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// File of the model's state, as `nvmirage precondition` and `clone` write it
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Serial number that guests and hosts see; default: derived from the name
    #[arg(long)]
    serial: Option<String>,

    /// Memory size of the guest, for the QEMU options
    #[arg(long, value_name = "SIZE", default_value_t = DEFAULT_MEMORY, value_parser = qemu_args::memory)]
    memory: Size,

    /// QEMU executable to check; default: the one on the PATH
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,

    /// Folder of identities and saved state, if this command becomes the server
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    control: Control,
}

impl Up {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let server = self.control.to_change()?;
        let mut made = Made::default();
        let done = self.make(&server, &mut made);
        let Err(error) = done else {
            return Ok(());
        };
        match made.undo(&server) {
            Some(said) => Err(error.context(format!("{} is not up: {said}", self.name))),
            None => Err(error),
        }
    }

    fn make(&self, server: &Address, made: &mut Made) -> anyhow::Result<()> {
        let config = self.config(server)?;
        let listen = config.controller[0].listen.clone();
        let is_zoned = config.media[0].zoned().is_some();
        let guest = |controllers: &[ControllerStatus], survives| {
            self.attach(&listen, is_zoned, controllers, survives)
        };
        // before anything is created, for an operator without a QEMU for it
        if let Listen::Nbd(address) = &listen {
            at_utf8(address)?;
        }
        if let Listen::VhostUserBlk(path) = &listen {
            utf8(path)?;
        }
        if let Listen::VfioUser(path) = &listen {
            utf8(path)?;
            if let Some(warning) = qemu_args::warning(self.qemu.as_deref()) {
                terminal::progress::note(&format!("warning: {warning}"));
            }
        }
        if self.fresh {
            terminal::progress::note(
                "warning: a new drive begins without data (a saved state takes precedence): reads of blocks that were never written cost no flash read, and are faster than those of the real drive",
            );
        }
        if let Some(file) = self.state.as_ref().filter(|file| !file.exists()) {
            terminal::progress::note(&format!(
                "note: {} does not exist: a new drive is created, and its state is saved to this file",
                file.display()
            ));
        }
        if let Some(warning) = too_large(&config.media[0], memory_bytes()) {
            terminal::progress::note(&format!("warning: {warning}"));
        }
        let serves = match UnixStream::connect(server.path()) {
            Ok(_) => false,
            Err(error) if is_nobody(&error) => true,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot ask the server at {server}"));
            }
        };
        let is_default = server.path() == Address::default_of_server();
        if serves
            && is_default
            && let Some(folder) = server.path().parent()
        {
            made.folder(folder).with_context(|| {
                format!(
                    "cannot create {}: name another control socket with --control",
                    folder.display()
                )
            })?;
        }
        if let Some(path) = config.media[0].path() {
            made.file(path);
        }
        if serves {
            let serving = Serving {
                holder: None,
                config,
                saved: None,
                source: None,
                default_socket: Address::default_of_server(),
                stop_at_eof: false,
            };
            return process::run(serving, |controllers| {
                terminal::print(&guest(controllers, false)?)?;
                made.keep();
                Ok(())
            });
        }
        if self.state_dir.is_some() {
            return Err(UsageError(format!(
                "--state-dir: the server at {server} has its own: remove the option, or name another socket with --control"
            ))
            .into());
        }
        self.make_in(server, &config, made)?;
        // the server's log has it, which is not here
        if let Some(path) = config.media[0].path() {
            let found = machine::image::look(path, 0).unwrap_or_default();
            let how = "start again with --lba-size";
            if let Some(advice) = found.and_then(|found| found.advice(self.lba_size(), how)) {
                terminal::progress::note(&format!("warning: {}: {advice}", path.display()));
            }
        }
        let inventory = requests::inventory(server)?;
        let guest = guest(&inventory.controllers, inventory.process.survives)?;
        let served = requests::configuration(server)?;
        let dashboard = server::dashboard_address(&served.control.unwrap_or_default());
        terminal::print(&format!(
            "ready: {listen} controller {}, namespaces {}\n{guest}{dashboard}\n",
            self.name, self.name,
        ))
    }

    /// The line that tells how a host attaches to the drive.
    fn attach(
        &self,
        listen: &Listen,
        is_zoned: bool,
        controllers: &[ControllerStatus],
        survives: bool,
    ) -> anyhow::Result<String> {
        match listen {
            Listen::NvmeTcp(address) => {
                let mut controllers = controllers.iter();
                let served = controllers.find(|c| c.config.name == self.name);
                let identity = served.and_then(|served| served.identity.as_ref());
                let identity = identity.context("the server does not report the drive's NQN")?;
                let command = initiator::connect(*address, &identity.subnqn);
                Ok(format!("for a host: {command}\n"))
            }
            Listen::Nbd(address) => {
                let at = at_utf8(address)?;
                let mut text = format!("for a client: {}\n", nbd::uri(at, &self.name, false));
                for line in nbd::lines(at, &self.name) {
                    text.push_str(&format!("  {line}\n"));
                }
                Ok(text)
            }
            Listen::VhostUserBlk(path) => {
                let mut controllers = controllers.iter();
                let served = controllers.find(|c| c.config.name == self.name);
                let served = served.context("the server does not report the drive's controller")?;
                let disk = Disk {
                    name: &self.name,
                    socket: utf8(path)?,
                    rings: served.config.queues,
                    is_zoned,
                };
                let version = qemu_args::version(self.qemu.as_deref());
                Ok(for_monitors(&disk, self.memory.0, version))
            }
            Listen::Ublk(_) => {
                let mut controllers = controllers.iter();
                let served = controllers.find(|c| c.config.name == self.name);
                let served = served.context("the server does not report the drive's controller")?;
                Ok(for_this_machine(served, is_zoned))
            }
            Listen::VfioUser(path) | Listen::Fuse(path) | Listen::Unix(path) => {
                let options = qemu::options(&self.name, utf8(path)?, self.memory.0, survives);
                Ok(format!("for a guest: {}\n", of_qemu(&options)))
            }
        }
    }

    /// Has a server create the missing objects of the drive.
    fn make_in(&self, server: &Address, config: &Config, made: &mut Made) -> anyhow::Result<()> {
        let interrupt = Interrupt::install()?;
        let name = &self.name;
        let mut note = |is_new, kind, word| {
            if is_new {
                made.object(kind, word, name);
            }
            anyhow::ensure!(!interrupt.is_set(), "interrupted");
            anyhow::Ok(())
        };
        let is_new = requests::put(server, "media", name, &config.media[0])?;
        note(is_new, "media", "media")?;
        let is_new = requests::put(server, "namespaces", name, &config.namespace[0])?;
        note(is_new, "namespaces", "namespace")?;
        let is_new = requests::put(server, "controllers", name, &config.controller[0])?;
        note(is_new, "controllers", "controller")
    }

    fn lba_size(&self) -> u32 {
        self.lba_size.unwrap_or(config::DEFAULT_LBA_SIZE)
    }

    /// The complete configuration of the drive.
    fn config(&self, server: &Address) -> anyhow::Result<Config> {
        let name = &self.name;
        let listen = match &self.listen {
            Some(listen) => listen.clone().absolute(parse::absolute)?,
            None => Listen::VfioUser(beside(server.path(), name)?),
        };
        let is_of_guest = matches!(listen, Listen::VfioUser(_) | Listen::VhostUserBlk(_));
        let is_of_others = matches!(
            listen,
            Listen::NvmeTcp(_) | Listen::Nbd(_) | Listen::Ublk(_)
        );
        if !is_of_guest && !is_of_others {
            let text = format!(
                "--listen {listen}: hosts attach to vfio-user:PATH, nvme-tcp:ADDRESS:PORT, nbd:PATH, nbd:ADDRESS:PORT, vhost-user-blk:PATH, ublk: or ublk:ID; `nvmirage mount` makes files of a drive"
            );
            return Err(UsageError(text).into());
        }
        let is_of_qemu = self.qemu.is_some() || self.memory != DEFAULT_MEMORY;
        if is_of_qemu && !is_of_guest {
            let text = format!(
                "--listen {listen}: --qemu and --memory are for a guest over vfio-user or vhost-user-blk: remove them"
            );
            return Err(UsageError(text).into());
        }
        let medium = self.medium()?;
        if self.lba_size.is_some() && medium.kind() == MediumKind::KeyValue {
            let text = "--lba-size: a key-value drive has no blocks; remove the option";
            return Err(UsageError(text.to_owned()).into());
        }
        let mut namespace = config::Namespace::new(name.clone(), name.clone());
        namespace.lba_size = self.lba_size();
        let mut controller = config::Controller::new(name.clone(), listen);
        controller.namespaces.push(name.clone());
        controller.serial = self.serial.clone();
        let mut config = Config {
            short_form: Some(told_apart_by(&controller.listen, &medium)),
            state_dir: self.state_dir.clone().map(parse::absolute).transpose()?,
            media: vec![medium],
            namespace: vec![namespace],
            controller: vec![controller],
            ..Config::default()
        };
        if server.is_named() {
            let asked_for = &mut config.control.get_or_insert_default().socket;
            *asked_for = Some(Listen::Unix(server.path().to_owned()));
        }
        config.read_presets(read_text);
        let problems = config.problems_of_new();
        if !problems.is_empty() {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(UsageError(words::of_command_line(&lines.join("\n"))).into());
        }
        Ok(config)
    }

    fn medium(&self) -> anyhow::Result<Medium> {
        let path = self.path.clone().map(parse::absolute).transpose()?;
        let of = |kind| MediumKeys {
            size: self.size,
            path: path.clone(),
            read_only: self.read_only.then_some(true),
            ..MediumKeys::new(self.name.clone(), kind)
        };
        let kinds = ["null", "ram", "file", "keyvalue"];
        if kinds.contains(&self.what.as_str()) {
            self.check_kind(path.as_deref())?;
        }
        match self.what.as_str() {
            kind @ ("null" | "ram" | "file" | "keyvalue") if self.fresh => {
                return Err(not_flash(&format!("{kind} has no timing model")));
            }
            "null" => return Ok(of(MediumKind::Null).into()),
            "ram" => return Ok(of(MediumKind::Ram).into()),
            "file" => return Ok(of(MediumKind::File).into()),
            "keyvalue" => return Ok(of(MediumKind::KeyValue).into()),
            _ => {}
        }
        let mut timing = Timing::of(self.what.clone());
        timing.state.clone_from(&self.state);
        for change in &self.set {
            let written = match change.split_once('=') {
                Some((name, value)) => timing.write(name, value),
                None => Err("write NAME=VALUE, as in read_latency=8us".to_owned()),
            };
            written.map_err(|why| UsageError(format!("--set {change}: {why}")))?;
        }
        let mut timing = timing.absolute(|path| std::path::absolute(path))?;
        let drive = timing.find(read_text).map_err(|why| {
            let what = &self.what;
            UsageError(format!(
                "{what}: {why}; or write a kind: null, ram, file or keyvalue"
            ))
        })?;
        let size = self.size.unwrap_or(Size(drive.size_bytes()));
        if self.fresh {
            if !timing.has_state() {
                return Err(not_flash(&format!("{} is of another kind", self.what)));
            }
            timing.initial = Some(Initial::Fresh);
        }
        let parameters = timing
            .parameters(size.0)
            .map_err(|problems| UsageError(problems.join("; ")))?;
        let in_memory_or_file = match path {
            Some(_) => MediumKind::File,
            None => MediumKind::Ram,
        };
        let (kind, zoned) = match parameters {
            Parameters::Kv(_) => (MediumKind::KeyValue, None),
            Parameters::Zones(zones) => (
                in_memory_or_file,
                Some(Zoned::new(zones.zone_size_bytes, zones.zone_capacity_bytes)),
            ),
            _ => (in_memory_or_file, None),
        };
        let keys = MediumKeys {
            size: Some(size),
            timing: Some(timing),
            zoned,
            ..of(kind)
        };
        Ok(keys.into())
    }
}

impl Up {
    /// Options that a kind without a model lacks, and the size that it needs.
    fn check_kind(&self, path: Option<&Path>) -> Result<(), UsageError> {
        let what = &self.what;
        if let Some(option) = match (&self.set[..], &self.state) {
            ([_, ..], _) => Some("--set"),
            (_, Some(_)) => Some("--state"),
            _ => None,
        } {
            return Err(UsageError(format!(
                "{option}: `{what}` has no model: write a preset (nvmirage explain lists them)"
            )));
        }
        if what == "file" && path.is_none() {
            return Err(UsageError(
                "file: write its path, as in --path disk.img".into(),
            ));
        }
        if self.size.is_none() && !path.is_some_and(Path::exists) {
            return Err(UsageError(format!(
                "{what}: write the drive's size, as in --size 8GiB"
            )));
        }
        Ok(())
    }
}

/// Path by which identities of this drive differ from those of another one with the same name.
/// `ublk:` may be the address of several drives.
fn told_apart_by(listen: &Listen, medium: &Medium) -> PathBuf {
    let file = medium.path().filter(|_| *listen == Listen::Ublk(None));
    match listen.path().or(file) {
        Some(path) => path.to_owned(),
        None => PathBuf::from(listen.to_string()),
    }
}

/// Memory of this machine.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A warning about a drive in memory that this machine has not.
fn too_large(medium: &Medium, memory: Option<u64>) -> Option<String> {
    let (size, memory) = (medium.size()?, memory?);
    let in_memory = medium.path().is_none() && medium.kind() != MediumKind::Null;
    (in_memory && size.0 > memory).then(|| {
        format!(
            "the drive has {}, and this machine {} of memory, which holds the drive: a guest can write more than there is room for. Add --path FILE, or a smaller --size",
            units::bytes(size.0),
            units::bytes(memory)
        )
    })
}

fn not_flash(why: &str) -> anyhow::Error {
    UsageError(format!(
        "--fresh is only for presets of kind flash, and {why}: remove it"
    ))
    .into()
}

/// A size that a namespace can have.
fn lba_size(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("write 512 or 4096".to_owned()),
    }
}

/// Whether no server listens at a control socket; this process then becomes the server.
fn is_nobody(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    kinds.contains(&error.kind())
}

/// The socket of a controller, in the control socket's folder.
fn beside(control: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let control = std::path::absolute(control)?;
    let folder = control
        .parent()
        .context("the control socket has no folder")?;
    Ok(folder.join(format!("{name}.sock")))
}

/// An NBD address as URIs require it.
fn at_utf8(address: &NbdAddress) -> anyhow::Result<nbd::At<'_>> {
    let at = exports::at(address);
    at.context("the socket path is not UTF-8, which an NBD URI requires: use another path")
}

/// The path of a socket as the options of monitors require it.
fn utf8(path: &Path) -> anyhow::Result<&str> {
    let path = path.to_str();
    path.context("the socket path is not UTF-8, which QEMU's options require: use another path")
}

fn of_qemu(options: &[[String; 2]]) -> String {
    format!("qemu-system-x86_64 … {}", qemu::in_one_line(options))
}

/// Commands for the block device of a drive, a line for each; its state, while there is none.
fn for_this_machine(served: &ControllerStatus, is_zoned: bool) -> String {
    let Some(disk) = &served.disk else {
        let state = served.device.as_deref().unwrap_or("is being made");
        return format!(
            "for this machine: the block device {state}; `nvmirage ls` shows its path\n"
        );
    };
    let mut text = format!("for this machine: {disk}\n");
    for line in ublk::lines(disk, is_zoned) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// Options of a guest's monitor for a vhost-user-blk disk, a line for each.
fn for_monitors(disk: &Disk<'_>, memory_bytes: u64, version: Option<qemu::Version>) -> String {
    let options = disk.qemu_options(memory_bytes, version);
    if disk.is_zoned {
        return format!(
            "for a guest: {}\n  other monitors hide zones: use QEMU 11, or vfio-user\n",
            of_qemu(&options)
        );
    }
    let [memory, element] = disk.libvirt();
    let of_cloud_hypervisor = disk.cloud_hypervisor(memory_bytes);
    let lines = [
        format!("for a guest: {}", of_qemu(&options)),
        format!("  libvirt: {memory} {element}"),
        format!("  Firecracker (not tested): {}", disk.firecracker()),
        format!(
            "  cloud-hypervisor (not tested): cloud-hypervisor … {}",
            qemu::in_one_line(&of_cloud_hypervisor)
        ),
    ];
    lines.map(|line| line + "\n").concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_monitor_has_a_line() {
        let disk = Disk {
            name: "nvme0",
            socket: "/tmp/b.sock",
            rings: 64,
            is_zoned: false,
        };
        let zoned = Disk {
            is_zoned: true,
            ..disk
        };
        let only = for_monitors(&zoned, 4 << 30, None);
        assert!(only.contains("vhost-user-test-device-pci") && !only.contains("libvirt"));
        let text = for_monitors(&disk, 4 << 30, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        for (line, parts) in lines.iter().zip([
            [
                "for a guest: qemu-system-x86_64 …",
                "path=/tmp/b.sock,reconnect-ms=1000",
            ],
            ["  libvirt: <memoryBacking>", "path='/tmp/b.sock'"],
            [
                "  Firecracker (not tested): \"drives\"",
                "\"socket\":\"/tmp/b.sock\"",
            ],
            [
                "  cloud-hypervisor (not tested): ",
                "vhost_user=true,socket=/tmp/b.sock",
            ],
        ]) {
            assert!(
                line.starts_with(parts[0]) && line.contains(parts[1]),
                "{line}"
            );
        }
    }

    #[test]
    fn a_block_device_comes_with_commands_for_it() {
        let served = |more: &str| -> ControllerStatus {
            let text = format!(r#"{{"name":"nvme0","listen":"ublk:","attached":true{more}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let there = served(r#","disk":"/dev/ublkb3","device":"is served""#);
        let text = for_this_machine(&there, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "for this machine: /dev/ublkb3");
        assert!(lines[1].starts_with("  mkfs.ext4 /dev/ublkb3 && mount "));
        assert!(lines[2].starts_with("  fio ") && lines[2].contains("--filename=/dev/ublkb3 "));
        let zoned = for_this_machine(&there, true);
        assert!(zoned.contains("mkzonefs /dev/ublkb3") && !zoned.contains("mkfs.ext4"));
        let waits = served(r#","device":"waits for a namespace""#);
        for (of, state) in [
            (waits, "waits for a namespace"),
            (served(""), "is being made"),
        ] {
            let text = for_this_machine(&of, false);
            assert!(
                text.contains(state) && text.contains("nvmirage ls"),
                "{text}"
            );
            assert!(
                !text.contains("/dev/") && text.lines().count() == 1,
                "{text}"
            );
        }
    }

    #[test]
    fn drives_with_chosen_ids_are_told_apart_by_their_files() {
        let file = |path: &str| -> Medium {
            let mut keys = MediumKeys::new("m".to_owned(), MediumKind::File);
            keys.path = Some(PathBuf::from(path));
            keys.into()
        };
        for (listen, expected) in [
            ("ublk:", "/a.img"),
            ("ublk:3", "ublk:3"),
            ("nvme-tcp:127.0.0.1:4420", "nvme-tcp:127.0.0.1:4420"),
            ("nbd:/x.sock", "/x.sock"),
        ] {
            let found = told_apart_by(&listen.parse().unwrap(), &file("/a.img"));
            assert_eq!(found, PathBuf::from(expected), "{listen}");
        }
    }

    #[test]
    fn a_drive_larger_than_memory_is_warned_of() {
        let medium = |kind, path: Option<&str>| -> Medium {
            let mut keys = MediumKeys::new("m".to_owned(), kind);
            keys.size = Some(Size(8 << 30));
            keys.path = path.map(PathBuf::from);
            keys.into()
        };
        let ram = medium(MediumKind::Ram, None);
        assert!(too_large(&ram, Some(7 << 30)).unwrap().contains("--path"));
        assert_eq!(too_large(&ram, Some(8 << 30)), None);
        assert_eq!(too_large(&ram, None), None);
        for other in [
            medium(MediumKind::File, Some("/d")),
            medium(MediumKind::Null, None),
        ] {
            assert_eq!(too_large(&other, Some(7 << 30)), None);
        }
        assert!(memory_bytes().unwrap() > 1 << 20);
    }
}
