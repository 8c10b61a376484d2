//! `nvmirage qemu-args`: prints the QEMU options that give a guest a drive.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::config::{self, Controller, Listen, NbdAddress, Size};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use machine::files::read_text;
use machine::nbd::Credentials;
use machine::qemu::{self, NEEDED, Version};
use machine::vhost_user::{Disk, Monitor};
use machine::{initiator, nbd};

use super::parse::Control;
use super::{UsageError, live};
use crate::{exports, requests};

const EXAMPLES: &str = "\
Examples:
  nvmirage qemu-args nvme0
      For a controller of the running server
  nvmirage qemu-args vm1 --config nvmirage.toml --memory 8GiB
      For a controller of a configuration
  nvmirage qemu-args store
      The command `nvme connect`, for a controller with listen = \"nvme-tcp:…\"
  nvmirage qemu-args images
      A -blockdev for each export, for a controller with listen = \"nbd:…\"
  nvmirage qemu-args vm1 --monitor libvirt
      The disk in libvirt's XML, for a controller with listen = \"vhost-user-blk:…\"
  eval \"exec qemu-system-x86_64 -accel kvm -cpu host $(nvmirage qemu-args nvme0) -drive file=root.img\"
      Start a guest with it

The guest's memory must be shared: the drive reads and writes it. A second drive needs only its own
-device. QEMU has no NVMe/TCP client: the guest's own kernel connects.";

/// Default memory size of a guest.
pub const DEFAULT_MEMORY: Size = Size(4 << 30);

/// Reads the memory size of a guest.
///
/// # Errors
/// It is no size, or not whole MiB.
pub fn memory(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 == 0 || !size.0.is_multiple_of(1 << 20) {
        return Err("write whole MiB, as in 4GiB".to_owned());
    }
    Ok(size)
}

/// Print the QEMU options for a controller
///
/// A QEMU that is too old causes a warning on standard error, with a remedy. For a controller with
/// an NVMe/TCP address, the command is `nvme connect`; over NBD, QEMU is the client, and the guest
/// gets a virtio block device for each namespace. Over vhost-user-blk the guest gets one virtio
/// block device, also from another monitor than QEMU.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct QemuArgs {
    /// Name of the controller
    #[arg(add = live::controllers())]
    name: String,

    /// Configuration with the controller; default: ask the running server
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,

    #[command(flatten)]
    control: Control,

    /// Memory size of the guest
    #[arg(long, value_name = "SIZE", default_value_t = DEFAULT_MEMORY, value_parser = memory)]
    memory: Size,

    /// QEMU executable; default: the one on the PATH
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,

    /// Monitor of the guest, for a controller over vhost-user-blk; default: qemu
    #[arg(long, value_name = "MONITOR", value_parser = monitor())]
    monitor: Option<Monitor>,
}

fn monitor() -> impl TypedValueParser<Value = Monitor> {
    let names = Monitor::ALL.map(|(name, _)| name);
    PossibleValuesParser::new(names).map(|name| {
        let mut all = Monitor::ALL.into_iter();
        let found = all.find(|(other, _)| *other == name);
        found.expect("its names are the possible values").1
    })
}

impl QemuArgs {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let found = self.found()?;
        if self.monitor.is_some() && !matches!(found, Found::Disk(..)) {
            let text = "--monitor: only for a controller with listen = \"vhost-user-blk:PATH\": remove the option";
            return Err(UsageError(text.to_owned()).into());
        }
        let (socket, survives) = match found {
            Found::Socket(socket, survives) => (socket, survives),
            Found::Disk(socket, rings, is_zoned) => {
                return self.print_disk(&socket, rings, is_zoned);
            }
            Found::Nbd(options, tls) => {
                let lines: Vec<String> = options
                    .iter()
                    .map(|[option, value]| format!("{option} {}", qemu::shell_quoted(value)))
                    .collect();
                terminal::print(&format!("{}\n", lines.join(" \\\n")))?;
                if let Some(tls) = tls {
                    terminal::progress::note(&format!("note: {}", tls.note()));
                }
                return Ok(());
            }
            Found::Tcp(address, subnqn) => {
                terminal::progress::note(&format!(
                    "QEMU has no NVMe/TCP client: run this in a guest or on another host; it needs root, and the module nvme-tcp{}",
                    note_of_address(address)
                ));
                return terminal::print(&format!("{}\n", initiator::connect(address, &subnqn)));
            }
        };
        let socket = socket.to_str().with_context(|| {
            format!(
                "the socket path {} is not UTF-8, which QEMU's JSON requires: use another path",
                socket.display()
            )
        })?;
        let lines: Vec<String> = qemu::options(&self.name, socket, self.memory.0, survives)
            .iter()
            .map(|[option, value]| format!("{option} {}", qemu::shell_quoted(value)))
            .collect();
        terminal::print(&format!("{}\n", lines.join(" \\\n")))?;
        if let Some(warning) = warning(self.qemu.as_deref()) {
            terminal::progress::note(&format!("warning: {warning}"));
        }
        Ok(())
    }

    /// Prints what the monitor of a guest needs for a vhost-user-blk disk.
    fn print_disk(&self, socket: &Path, rings: u16, is_zoned: bool) -> anyhow::Result<()> {
        let socket = socket.to_str().with_context(|| {
            format!(
                "the socket path {} is not UTF-8, which the options of monitors require: use another path",
                socket.display()
            )
        })?;
        let disk = Disk {
            name: &self.name,
            socket,
            rings,
            is_zoned,
        };
        let monitor = self.monitor.unwrap_or(Monitor::Qemu);
        anyhow::ensure!(
            !is_zoned || monitor == Monitor::Qemu,
            "controller `{}` has a namespace with zones, which only QEMU passes on to a guest: remove --monitor",
            self.name
        );
        let version = version(self.qemu.as_deref());
        terminal::print(&disk.text(monitor, self.memory.0, version))?;
        terminal::progress::note(&match monitor {
            Monitor::Firecracker => {
                "note: Firecracker connects when the drive is configured, and does not connect again to a restarted server".to_owned()
            }
            Monitor::Qemu if is_zoned => {
                "note: this device of QEMU passes zones on. It does not connect again to a restarted server".to_owned()
            }
            Monitor::Qemu | Monitor::Libvirt | Monitor::CloudHypervisor => format!(
                "note: the number of queues may be that of the guest's vCPUs, up to {rings} (`queues` of the controller)"
            ),
        });
        Ok(())
    }

    /// Where hosts reach the controller.
    fn found(&self) -> anyhow::Result<Found> {
        if let Some(file) = &self.config {
            let config = config::from_file(file, read_text)?;
            let controllers = config.controller.iter();
            let listen = find(&self.name, controllers.map(|c| (&c.name, &c.listen)))
                .with_context(|| format!("{} has no such controller", file.display()))?;
            let socket = match listen {
                Place::Socket(socket) => socket,
                Place::Disk(socket) => {
                    let mut written = config.controller.iter();
                    let written = written.find(|c| c.name == self.name);
                    let is_zoned = written.is_some_and(|written| written.has_zones(&config));
                    return disk(std::path::absolute(socket)?, written, is_zoned);
                }
                Place::Nbd(address) => {
                    // relative to the folder in which the server will be started
                    let address = absolute(address)?;
                    let mut written = config.controller.iter();
                    let written = written.find(|c| c.name == self.name);
                    return exported(&address, written);
                }
                Place::Tcp(address) => {
                    let mut written = config.controller.iter();
                    let written = written.find(|c| c.name == self.name);
                    let address = written
                        .and_then(config::Controller::host_address)
                        .unwrap_or(address);
                    let subnqn = written.and_then(|c| config.subnqn_of(c.subsystem()));
                    let subnqn = subnqn.context("subnqn is derived when the server starts: start it and ask it, or write subnqn in the configuration")?;
                    return Ok(Found::Tcp(address, subnqn.to_owned()));
                }
            };
            // relative to the folder in which the server will be started
            let socket = std::path::absolute(socket)?;
            return Ok(Found::Socket(socket, config.survival.enabled));
        }
        let inventory = requests::inventory(&self.control.to_read()?).context(
            if self.control.is_given() {
                "cannot get the controllers from the server"
            } else {
                "cannot get the controllers from the running server; write --config to read a configuration instead"
            },
        )?;
        let controllers = inventory.controllers.iter();
        let listen = find(
            &self.name,
            controllers.map(|c| (&c.config.name, &c.config.listen)),
        )?;
        let socket = match listen {
            Place::Socket(socket) => socket,
            Place::Disk(socket) => {
                note_if_relative(&socket);
                let mut all = inventory.controllers.iter();
                let status = all.find(|c| c.config.name == self.name);
                let served = status.map(|status| &status.config);
                let config = requests::configuration(&self.control.to_read()?)?;
                let is_zoned = served.is_some_and(|served| served.has_zones(&config));
                return disk(socket, served, is_zoned);
            }
            Place::Nbd(address) => {
                let mut all = inventory.controllers.iter();
                let status = all.find(|c| c.config.name == self.name);
                return exported(&address, status.map(|status| &status.config));
            }
            Place::Tcp(address) => {
                let mut all = inventory.controllers.iter();
                let status = all.find(|c| c.config.name == self.name);
                let advertised = status.and_then(|status| status.config.host_address());
                let address = advertised.unwrap_or(address);
                let identity = status.and_then(|status| status.identity.as_ref());
                let identity = identity.context("the server has not derived its subnqn yet")?;
                return Ok(Found::Tcp(address, identity.subnqn.clone()));
            }
        };
        note_if_relative(&socket);
        Ok(Found::Socket(socket, inventory.process.survives))
    }
}

fn note_if_relative(socket: &Path) {
    if socket.is_relative() {
        terminal::progress::note(
            "warning: the server was given a relative path: it is relative to the server's folder",
        );
    }
}

/// The disk of a controller over vhost-user-blk.
fn disk(socket: PathBuf, config: Option<&Controller>, is_zoned: bool) -> anyhow::Result<Found> {
    let config = config.context("the controller was deleted meanwhile; see nvmirage ls")?;
    Ok(Found::Disk(socket, config.queues, is_zoned))
}

/// How guests reach a controller.
enum Found {
    /// A socket, as an absolute path if its folder is known, and whether its server survives the
    /// death of its process.
    Socket(PathBuf, bool),
    /// A TCP address, and the NQN of the subsystem.
    Tcp(SocketAddr, String),
    /// Options for exports over NBD, and what they need of TLS.
    Nbd(Vec<[String; 2]>, Option<Credentials>),
    /// The socket of a vhost-user-blk disk, its rings, and whether it has zones.
    Disk(PathBuf, u16, bool),
}

/// An address with an absolute path.
fn absolute(address: NbdAddress) -> anyhow::Result<NbdAddress> {
    Ok(match address {
        NbdAddress::Unix(path) => NbdAddress::Unix(std::path::absolute(path)?),
        tcp @ NbdAddress::Tcp(_) => tcp,
    })
}

/// The options for all exports of a controller.
fn exported(address: &NbdAddress, config: Option<&Controller>) -> anyhow::Result<Found> {
    let at = exports::at(address);
    let at = at.with_context(|| {
        format!("the socket path {address} is not UTF-8, which an option of QEMU requires: use another path")
    })?;
    let config = config.context("the controller was deleted meanwhile; see nvmirage ls")?;
    let tls = exports::credentials(config);
    let names = exports::names(config).enumerate();
    let mut options: Vec<_> = names
        .flat_map(|(index, name)| nbd::qemu_options(at, &name, index, tls.is_some()))
        .collect();
    anyhow::ensure!(
        !options.is_empty(),
        "controller `{}` has no namespace, so no export: attach one (nvmirage attach)",
        config.name
    );
    options.splice(0..0, tls.map(Credentials::qemu_option));
    Ok(Found::Nbd(options, tls))
}

/// An address that guests can use.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Socket(PathBuf),
    Tcp(SocketAddr),
    Nbd(NbdAddress),
    Disk(PathBuf),
}

/// Advice for an address that the command does not contain, or that only this machine reaches.
fn note_of_address(address: SocketAddr) -> &'static str {
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() {
        "; ADDRESS is one of the server's machine"
    } else if ip.is_loopback() {
        "; a guest with QEMU's user network reaches this address as 10.0.2.2"
    } else {
        ""
    }
}

/// The address of the controller `name`.
fn find<'a>(
    name: &str,
    controllers: impl Iterator<Item = (&'a String, &'a Listen)> + Clone,
) -> anyhow::Result<Place> {
    if let Some((_, listen)) = controllers.clone().find(|(other, _)| *other == name) {
        return match listen {
            Listen::VfioUser(path) => Ok(Place::Socket(path.clone())),
            Listen::NvmeTcp(address) => Ok(Place::Tcp(*address)),
            Listen::Nbd(address) => Ok(Place::Nbd(address.clone())),
            Listen::VhostUserBlk(path) => Ok(Place::Disk(path.clone())),
            Listen::Ublk(_) => bail!(
                "controller `{name}` with listen = \"{listen}\" is a block device of the server's machine, /dev/ublkbID in `nvmirage ls`: guests do not attach to it. Use it there, or create another controller with vfio-user:PATH or vhost-user-blk:PATH"
            ),
            _ => bail!("controller `{name}` is mounted at {listen}: guests cannot attach to it"),
        };
    }
    let names: Vec<&str> = controllers.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        bail!("there is no controller `{name}`, nor any other");
    }
    bail!(
        "there is no controller `{name}`; there are {}",
        names.join(", ")
    )
}

/// The version of the QEMU in use, where it is known.
pub fn version(given: Option<&Path>) -> Option<Version> {
    let found = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        qemu::on_path(&qemu::program_name(), &path)
    };
    let program = given.map(Path::to_owned).or_else(found)?;
    qemu::version_of(&program).ok().flatten()
}

/// Problem of the QEMU in use, and its remedy.
pub fn warning(given: Option<&Path>) -> Option<String> {
    let advice = format!(
        "vfio-user-pci came with QEMU {NEEDED}: on Debian, `apt install -t trixie-backports {}` has a newer one; --qemu names another",
        package()
    );
    let program = match given {
        Some(program) => program.to_owned(),
        None => {
            let name = qemu::program_name();
            let path = std::env::var_os("PATH").unwrap_or_default();
            match qemu::on_path(&name, &path) {
                Some(program) => program,
                None => return Some(format!("{name} is not on the PATH; {advice}")),
            }
        }
    };
    let shown = program.display();
    match qemu::version_of(&program) {
        Ok(Some(version)) if version >= NEEDED => None,
        Ok(Some(version)) => Some(format!(
            "{shown} is QEMU {version}, which has no such device; {advice}"
        )),
        Ok(None) => Some(format!(
            "{shown} does not identify itself as QEMU; {advice}"
        )),
        Err(error) => Some(format!("cannot run {shown}: {error}; {advice}")),
    }
}

/// Debian's QEMU package for this machine.
fn package() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" | "x86" => "qemu-system-x86",
        "aarch64" | "arm" => "qemu-system-arm",
        _ => "qemu-system-misc",
    }
}

#[cfg(test)]
mod tests {
    use api::config::Nbd;

    use super::*;

    #[test]
    fn each_export_is_a_block_device() {
        let listen: Listen = "nbd:/x.sock".parse().unwrap();
        let mut config = Controller::new("c".to_owned(), listen.clone());
        let names = ["c".to_owned()];
        let found = find("c", names.iter().map(|name| (name, &listen))).unwrap();
        let Place::Nbd(address) = found else {
            panic!("{found:?}")
        };
        let none = exported(&address, Some(&config)).err().unwrap();
        assert!(none.to_string().contains("no export"), "{none}");
        config.namespaces = vec!["a".to_owned(), "b".to_owned()];
        let Ok(Found::Nbd(options, None)) = exported(&address, Some(&config)) else {
            panic!()
        };
        let options: Vec<String> = options.iter().map(|both| both.join(" ")).collect();
        assert_eq!(options.len(), 4);
        assert!(options[0].starts_with("-blockdev driver=nbd,node-name=nbd0,"));
        assert!(options[0].contains("server.path=/x.sock,export=a,"));
        assert_eq!(options[3], "-device virtio-blk-pci,drive=nbd1");
        for (nbd, first) in [
            (
                Nbd {
                    tls_psk: Some("/k".into()),
                    ..Nbd::default()
                },
                "-object tls-creds-psk,id=tls0,endpoint=client,dir=DIR,username=USER",
            ),
            (
                Nbd {
                    tls_cert: Some("/c".into()),
                    tls_cert_key: Some("/k".into()),
                    ..Nbd::default()
                },
                "-object tls-creds-x509,id=tls0,endpoint=client,dir=DIR",
            ),
        ] {
            config.nbd = Some(nbd);
            let Ok(Found::Nbd(options, Some(_))) = exported(&address, Some(&config)) else {
                panic!()
            };
            let options: Vec<String> = options.iter().map(|both| both.join(" ")).collect();
            assert_eq!((options.len(), &*options[0]), (5, first));
            assert!(options[3].ends_with(",tls-creds=tls0"), "{options:?}");
        }
        let relative = absolute(NbdAddress::Unix("x".into())).unwrap();
        assert!(matches!(relative, NbdAddress::Unix(path) if path.is_absolute()));
    }

    #[test]
    fn a_disk_has_the_rings_of_its_controller() {
        let listen: Listen = "vhost-user-blk:/b.sock".parse().unwrap();
        let mut config = Controller::new("c".to_owned(), listen.clone());
        config.queues = 3;
        let names = ["c".to_owned()];
        let found = find("c", names.iter().map(|name| (name, &listen))).unwrap();
        let Place::Disk(socket) = found else {
            panic!("{found:?}")
        };
        let found = disk(socket, Some(&config), true).unwrap();
        assert!(matches!(found, Found::Disk(socket, 3, true) if socket == Path::new("/b.sock")));
        assert!(disk("/b.sock".into(), None, false).is_err());
        for (name, expected) in Monitor::ALL {
            let of = clap::Command::new("x").arg(clap::Arg::new("m").value_parser(monitor()));
            let read = of.get_matches_from(["x", name]);
            assert_eq!(read.get_one::<Monitor>("m"), Some(&expected));
        }
    }

    #[test]
    fn a_block_device_is_refused_with_what_it_is() {
        for listen in ["ublk:", "ublk:7"] {
            let listen: Listen = listen.parse().unwrap();
            let names = ["c".to_owned()];
            let error = find("c", names.iter().map(|name| (name, &listen))).unwrap_err();
            let error = error.to_string();
            for part in [
                "controller `c`",
                &format!("\"{listen}\""),
                "a block device of the server's machine",
                "nvmirage ls",
                "vfio-user:PATH or vhost-user-blk:PATH",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_answered_with_those_that_are() {
        let listen: Listen = "vfio-user:/a".parse().unwrap();
        let names = ["vm1".to_owned(), "vm2".to_owned()];
        let all = || names.iter().map(|name| (name, &listen));
        assert_eq!(find("vm2", all()).unwrap(), Place::Socket("/a".into()));
        let error = find("vm3", all()).unwrap_err().to_string();
        assert!(error.contains("vm1, vm2"), "{error}");
        assert!(
            find("vm3", all().take(0))
                .unwrap_err()
                .to_string()
                .contains("nor any other")
        );
    }
}
