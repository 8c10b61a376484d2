//! Checks of the machine against a configuration: CPUs of reactors, drives, folders of sockets,
//! files of TLS, memory and descriptors.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use anyhow::Context as _;
use api::config::{Config, Controller, Listen, Medium, Mode, Nbd, NbdAddress};
use driver::bus::place::Place;
use machine::files::read_text;
use machine::secret;
use machine::topology::Topology;
use rustix::fs::{Access, AtFlags, CWD};
use terminal::units;

use super::block_devices;
use super::checks::{Check, Level, good};
use super::snapshot::{Device, Snapshot};

/// Descriptors that the program uses in any case.
const OWN_DESCRIPTORS: u64 = 64;
/// Descriptors of a host besides its interrupts: sockets, memory, state.
const HOST_DESCRIPTORS: u64 = 16;

/// Connections of hosts over NVMe/TCP that are to close, at most, and those of strangers, on a
/// reactor.
const LEAVING: u64 = 4096;
const STRANGERS_LEAVING: u64 = 256;

/// Descriptors of a ring of a vhost-user-blk front end: notifications in both directions, and
/// errors.
const RING_DESCRIPTORS: u64 = 3;
/// Maximum number of memory regions of a vhost-user-blk front end.
const FRONT_END_REGIONS: u64 = 509;

/// Maximum number of NBD connections that have not chosen an export.
const NBD_NEWCOMERS: u64 = 512;

/// Bytes of a file of TLS that are read at most.
const TLS_LEN: usize = 1 << 20;

/// Memory that a drive locks for itself.
const DRIVE_MEMORY: u64 = media::drive::MEMORY_LEN as u64;

/// PCI addresses of the configured drives.
pub(super) fn pci(config: &Config) -> Vec<String> {
    let drives = config.media.iter().filter_map(Medium::drive);
    let addresses = drives.filter_map(|drive| match &drive.target {
        Place::Pci(address) => Some(address.to_string()),
        Place::VfioUser(_) | Place::NvmeTcp(_) => None,
    });
    addresses.collect()
}

/// All checks of a configuration.
pub(super) fn all(config: &Config, machine: &Snapshot, topology: &Topology) -> Vec<Check> {
    let mut checks = Vec::new();
    reactors(config, topology, &mut checks);
    drives(config, machine, topology, &mut checks);
    checks.push(descriptors(config, machine.descriptors));
    checks.extend(memory(config, topology));
    checks.extend(memory_of_clients(config, topology));
    block_devices::all(config, machine, &mut checks);
    folders(config, &mut checks);
    tls_files(config, &mut checks);
    ports(config, &mut checks);
    checks
}

fn reactors(config: &Config, topology: &Topology, checks: &mut Vec<Check>) {
    for (index, reactor) in config.reactor.iter().enumerate() {
        let polls = reactor.mode == Mode::Poll;
        let what = format!("reactor {index}");
        let Some(id) = reactor.cpu else {
            let check = good(what, format!("{}, not pinned", reactor.mode.name()));
            checks.push(if polls {
                check.but(
                    Level::Advice,
                    "it polls and is not pinned: write cpu = N, with an otherwise unused CPU",
                )
            } else {
                check
            });
            continue;
        };
        let found = good(what, format!("{}, CPU {id}", reactor.mode.name()));
        let Some(cpu) = topology.cpu(id) else {
            let advice = "no such CPU is online: write another cpu";
            checks.push(found.but(Level::Problem, advice));
            continue;
        };
        if !cpu.usable {
            let advice = "this process must not use it: change its affinity (CPUAffinity=, taskset), or write another cpu";
            checks.push(found.but(Level::Problem, advice));
            continue;
        }
        let mut others = config.reactor.iter().enumerate();
        let beside = others.find(|(other, one)| {
            *other != index && one.cpu.is_some_and(|other| cpu.core.contains(&other))
        });
        checks.push(match beside {
            Some((other, one)) if one.cpu == Some(id) => found.but(
                Level::Advice,
                format!("reactor {other} has the same CPU: give each its own CPU"),
            ),
            Some((other, one)) if polls || one.mode == Mode::Poll => found.but(
                Level::Advice,
                format!("reactor {other} is on the other thread of its core, and polling slows it: use different cores"),
            ),
            _ if polls && !cpu.isolated => found.but(
                Level::Advice,
                format!("other tasks can run on it: boot with isolcpus={id}, or exclude them with cpusets"),
            ),
            _ => found,
        });
    }
}

fn drives(config: &Config, machine: &Snapshot, topology: &Topology, checks: &mut Vec<Check>) {
    let addresses = pci(config);
    if addresses.is_empty() {
        return;
    }
    let groups = good("IOMMU", format!("{} groups", machine.iommu_groups));
    checks.push(match machine.iommu_groups {
        0 => groups.but(
            Level::Problem,
            "a drive could access all memory: enable the IOMMU in the firmware, and boot with intel_iommu=on or amd_iommu=on",
        ),
        _ => groups,
    });
    checks.push(if machine.has_vfio_pci {
        good("vfio-pci", "loaded")
    } else {
        good("vfio-pci", "not loaded").but(
            Level::Problem,
            format!(
                "drives need it: run modprobe vfio-pci, then nvmirage drive bind {}",
                addresses[0]
            ),
        )
    });
    checks.push(match &machine.vfio {
        Device::Usable => good("VFIO", "usable"),
        Device::Refused(error) => good("VFIO", format!("not usable: {error}")).but(
            Level::Problem,
            "give this user /dev/vfio/vfio and the drive's group below /dev/vfio",
        ),
        Device::Missing => good("VFIO", "not there").but(Level::Problem, "modprobe vfio-pci"),
    });
    if let Some(limit) = machine.locked_memory {
        let own = DRIVE_MEMORY.saturating_mul(addresses.len() as u64);
        let level = if limit < own {
            Level::Problem
        } else {
            Level::Advice
        };
        let advice = format!(
            "drives need all memory of their hosts locked, plus {} of their own: LimitMEMLOCK=infinity, or ulimit -l unlimited",
            units::bytes(own)
        );
        let found = format!("at most {} locked", units::bytes(limit));
        checks.push(good("memory of drives' hosts", found).but(level, advice));
    }
    for (address, node) in &machine.pci_nodes {
        let far = config.reactor.iter().filter_map(|reactor| reactor.cpu);
        let mut far = far.filter(|cpu| topology.cpu(*cpu).is_some_and(|cpu| cpu.node != *node));
        let found = good(format!("drive {address}"), format!("node {node}"));
        checks.push(match far.next() {
            Some(cpu) => found.but(
                Level::Advice,
                format!("a reactor is on CPU {cpu} of another node, and every command crosses nodes: use CPUs of node {node}"),
            ),
            None => found,
        });
    }
}

fn descriptors(config: &Config, limit: Option<u64>) -> Check {
    let of_host = |queues: u16| u64::from(queues) + 1 + HOST_DESCRIPTORS;
    let first = |c: &Controller| match c.listen {
        // An NBD client has one queue, and a block device.
        Listen::Nbd(_) | Listen::Ublk(_) => of_host(1),
        Listen::VhostUserBlk(_) => {
            HOST_DESCRIPTORS + FRONT_END_REGIONS + RING_DESCRIPTORS * u64::from(c.queues)
        }
        _ => of_host(c.queues),
    };
    let hosts = config.controller.iter().map(first);
    let least = hosts.sum::<u64>() + OWN_DESCRIPTORS;
    // the first host of a TCP address is among the least
    let over_tcp = config
        .controller
        .iter()
        .filter(|c| c.tcp_address().is_some());
    let others = over_tcp.map(|c| {
        let hosts = u64::from(c.tcp.clone().unwrap_or_default().hosts);
        // A host that returns opens its connections before the former ones have closed.
        let leaving = (hosts * (u64::from(c.queues) + 1)).min(LEAVING) + STRANGERS_LEAVING;
        hosts.saturating_sub(1) * of_host(c.queues) + leaving
    });
    let others = others.sum::<u64>();
    let of_nbd = nbd_clients(config).map(|clients| (clients - 1) * of_host(1) + NBD_NEWCOMERS);
    let needed = least + others + of_nbd.sum::<u64>();
    let found = good("descriptors for all hosts", format!("{needed} at most"));
    match limit.filter(|limit| *limit < needed) {
        Some(limit) => found.but(
            if limit < least { Level::Problem } else { Level::Advice },
            format!("the limit of this process is {limit}: raise it (LimitNOFILE={needed}, or ulimit -n), or write fewer queues"),
        ),
        None => found,
    }
}

fn memory(config: &Config, topology: &Topology) -> Option<Check> {
    let media = config.media.iter().filter(|m| m.is_in_memory());
    let wanted: u64 = media.filter_map(Medium::size).map(|size| size.0).sum();
    let there_is: u64 = topology.nodes.iter().map(|node| node.memory_bytes).sum();
    if wanted == 0 || there_is == 0 {
        return None;
    }
    let (shown, all) = (units::bytes(wanted), units::bytes(there_is));
    let found = good("media in memory", format!("{shown} when full, of {all}"));
    Some(if wanted > there_is {
        found.but(
            Level::Advice,
            "they cannot all be filled: make them smaller, or use kind = \"file\"",
        )
    } else {
        found
    })
}

/// Maximum number of NBD clients, by controller.
fn nbd_clients(config: &Config) -> impl Iterator<Item = u64> {
    let controllers = config.controller.iter();
    let over_nbd = controllers.filter(|c| c.nbd_address().is_some());
    over_nbd.map(|c| c.nbd.clone().unwrap_or_default().clients.into())
}

fn memory_of_clients(config: &Config, topology: &Topology) -> Option<Check> {
    let clients: u64 = nbd_clients(config).sum();
    let there_is: u64 = topology.nodes.iter().map(|node| node.memory_bytes).sum();
    if clients == 0 || there_is == 0 {
        return None;
    }
    // Those that leave have theirs until a medium has ended their commands.
    let wanted = 2 * clients * Nbd::CLIENT_MEMORY;
    let (shown, all) = (units::bytes(wanted), units::bytes(there_is));
    let found = format!("{shown} for {clients} clients and as many that leave, of {all}");
    let found = good("memory of NBD clients", found);
    Some(if wanted > there_is {
        found.but(Level::Advice, "write fewer `clients` in `nbd`")
    } else {
        found
    })
}

/// Checks the TCP addresses of NBD clients.
fn ports(config: &Config, checks: &mut Vec<Check>) {
    for controller in &config.controller {
        let Some(NbdAddress::Tcp(address)) = controller.nbd_address() else {
            continue;
        };
        let what = format!("controller {}", controller.name);
        match TcpListener::bind(address).map_err(|error| error.kind()) {
            Err(ErrorKind::AddrInUse) => checks.push(
                good(what, format!("{address} is in use")).but(
                    Level::Advice,
                    "unless a server with this configuration runs, stop the other program, or write another port",
                ),
            ),
            Err(ErrorKind::AddrNotAvailable) => checks.push(
                good(what, format!("this machine has no address {}", address.ip()))
                    .but(Level::Problem, "write an address of this machine"),
            ),
            Err(ErrorKind::PermissionDenied) => checks.push(
                good(what, format!("this user may not listen at {address}"))
                    .but(Level::Problem, "write a port from 1024 upwards"),
            ),
            _ => {}
        }
    }
}

/// Checks the folders of sockets and files.
fn folders(config: &Config, checks: &mut Vec<Check>) {
    let parent = |path: &Path| {
        let path = std::path::absolute(path).ok()?;
        path.parent().map(Path::to_owned)
    };
    for controller in &config.controller {
        let folder = match &controller.listen {
            Listen::Fuse(folder) => Some(folder.clone()),
            listen => listen.path().and_then(parent),
        };
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let found = format!("there is no folder {}", folder.display());
            let what = format!("controller {}", controller.name);
            checks.push(good(what, found).but(Level::Problem, "create it, or listen elsewhere"));
            continue;
        }
        let of_socket = controller.listen.socket().and_then(parent);
        if let Some(folder) = of_socket.filter(|folder| !is_writable(folder)) {
            let found = format!("this user cannot create a socket in {}", folder.display());
            let what = format!("controller {}", controller.name);
            let advice = "change the folder's mode or owner, or listen elsewhere";
            checks.push(good(what, found).but(Level::Problem, advice));
        }
    }
    for medium in &config.media {
        let Some(file) = medium.file().filter(|file| !file.path.exists()) else {
            continue;
        };
        let path = &file.path;
        let what = format!("media {}", medium.name);
        match parent(path).filter(|folder| folder.is_dir()) {
            None => checks.push(
                good(what, format!("there is no folder for {}", path.display()))
                    .but(Level::Problem, "create it, or write another path"),
            ),
            Some(_) if file.size.is_none() => checks.push(
                good(what, format!("there is no {}", path.display()))
                    .but(Level::Problem, "write a size to have it created"),
            ),
            Some(_) => checks.push(good(what, "made at the start")),
        }
    }
}

/// Checks the files of TLS of NBD clients. Credentials are those of the server's unit.
fn tls_files(config: &Config, checks: &mut Vec<Check>) {
    for controller in &config.controller {
        let files = controller.nbd.iter().flat_map(Nbd::tls_files);
        for (key, path) in files.filter_map(|(key, path)| Some((key, path?))) {
            let read = match key {
                _ if path.to_string_lossy().starts_with("credential:") => continue,
                "tls_cert_key" | "tls_psk" => secret::read_up_to(path, TLS_LEN).map(drop),
                _ => read_text(path, TLS_LEN as u64)
                    .map(drop)
                    .with_context(|| format!("{}", path.display())),
            };
            if let Err(error) = read {
                let what = format!("controller {}", controller.name);
                let advice =
                    "write another file, or change this one: the server does not start with it";
                checks.push(good(what, format!("{key}: {error:#}")).but(Level::Problem, advice));
            }
        }
    }
}

/// Whether this process may create files in a folder.
fn is_writable(folder: &Path) -> bool {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, folder, wanted, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use api::config::from_toml;

    use super::super::checks::tests::machine;
    use super::*;

    fn amiss(text: &str, change: impl FnOnce(&mut Snapshot)) -> Vec<(String, Level)> {
        let root = machine::testing::two_sockets();
        let topology = Topology::read(root.path(), &[0, 1, 2, 4]).unwrap();
        let config = from_toml(text).unwrap();
        let mut machine = machine();
        change(&mut machine);
        let checks = all(&config, &machine, &topology).into_iter();
        let amiss = checks.filter(|check| check.level != Level::Ok);
        amiss
            .map(|check| {
                assert!(!check.advice.is_empty(), "{check:?}");
                (check.what, check.level)
            })
            .collect()
    }

    #[test]
    fn reactors_want_cpus_of_their_own() {
        // CPUs 0 and 4 share a core, 2 is isolated, 3 is not available to this process, 9 does not
        // exist
        for (text, expected) in [
            ("[[reactor]]\ncpu = 2\nmode = \"poll\"\n", None),
            ("[[reactor]]\ncpu = 0\n", None),
            ("[[reactor]]\nmode = \"poll\"\n", Some(Level::Advice)),
            (
                "[[reactor]]\ncpu = 0\nmode = \"poll\"\n",
                Some(Level::Advice),
            ),
            ("[[reactor]]\ncpu = 3\n", Some(Level::Problem)),
            ("[[reactor]]\ncpu = 9\n", Some(Level::Problem)),
        ] {
            let found = amiss(text, |_| {});
            let expected: Vec<_> = expected
                .map(|level| ("reactor 0".to_owned(), level))
                .into_iter()
                .collect();
            assert_eq!(found, expected, "{text}");
        }
        let both = "[[reactor]]\ncpu = 0\nmode = \"poll\"\n[[reactor]]\ncpu = 4\n";
        assert_eq!(amiss(both, |_| {}).len(), 2);
    }

    #[test]
    fn a_drive_wants_an_iommu_vfio_and_memory() {
        let drive = "[[media]]\nname = \"d\"\nkind = \"drive\"\ntarget = \"pci:0000:01:00.0\"\n[[reactor]]\ncpu = 0\n";
        assert_eq!(amiss(drive, |_| {}), []);
        let problem = |what: &str| vec![(what.to_owned(), Level::Problem)];
        assert_eq!(amiss(drive, |m| m.iommu_groups = 0), problem("IOMMU"));
        assert_eq!(
            amiss(drive, |m| m.has_vfio_pci = false),
            problem("vfio-pci")
        );
        assert_eq!(
            amiss(drive, |m| m.vfio = Device::Refused("no".into())),
            problem("VFIO")
        );
        let locked = amiss(drive, |m| m.locked_memory = Some(8 << 20));
        assert_eq!(locked, problem("memory of drives' hosts"));
        let more = amiss(drive, |m| m.locked_memory = Some(8 << 30));
        assert_eq!(
            more,
            [("memory of drives' hosts".to_owned(), Level::Advice)]
        );
        let far = amiss(drive, |m| m.pci_nodes = vec![("0000:01:00.0".into(), 1)]);
        assert_eq!(far, [("drive 0000:01:00.0".to_owned(), Level::Advice)]);
    }

    #[test]
    fn nbd_clients_want_memory_descriptors_and_a_free_port() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let text =
            |listen: &str| format!("[[controller]]\nname = \"c\"\nlisten = \"nbd:{listen}\"\n");
        let unix = text("/tmp/c.sock");
        assert_eq!(amiss(&unix, |_| {}), []);
        let at = text(&format!("127.0.0.1:{port}"));
        let controller = |level| vec![("controller c".to_owned(), level)];
        assert_eq!(amiss(&at, |_| {}), controller(Level::Advice));
        // 192.0.2.0/24 is for documentation (RFC 5737)
        let far = text("192.0.2.1:10809");
        let far = format!("{far}nbd = {{ allow_anonymous = true }}\n");
        assert_eq!(amiss(&far, |_| {}), controller(Level::Problem));
        // 64 for the program, 18 for each of 16 clients, and 512 that choose nothing
        assert_eq!(amiss(&unix, |m| m.descriptors = Some(864)), []);
        let few = amiss(&unix, |m| m.descriptors = Some(863));
        assert_eq!(few.len(), 1);
        let root = machine::testing::two_sockets();
        let topology = Topology::read(root.path(), &[0]).unwrap();
        let of = |clients| {
            let text = format!("{unix}nbd = {{ clients = {clients} }}\n");
            memory_of_clients(&from_toml(&text).unwrap(), &topology).unwrap()
        };
        let there_is: u64 = topology.nodes.iter().map(|node| node.memory_bytes).sum();
        let fits = there_is / (2 * Nbd::CLIENT_MEMORY);
        for clients in [1, 256] {
            let expected = if clients <= fits {
                Level::Ok
            } else {
                Level::Advice
            };
            assert_eq!(of(clients).level, expected, "{clients}");
        }
    }

    #[test]
    fn a_front_end_wants_descriptors_for_rings_and_memory() {
        let media = "[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"1GiB\"\n[[namespace]]\nname = \"n\"\nmedia = \"m\"\n";
        let text = format!(
            "{media}[[controller]]\nname = \"c\"\nlisten = \"vhost-user-blk:/tmp/c.sock\"\nnamespaces = [\"n\"]\nqueues = 4\n"
        );
        // 64 for the program, 16 for the front end, 3 for each of 4 rings, and 509 regions
        assert_eq!(amiss(&text, |m| m.descriptors = Some(601)), []);
        let few = amiss(&text, |m| m.descriptors = Some(600));
        assert_eq!(
            few,
            [("descriptors for all hosts".to_owned(), Level::Problem)]
        );
        let nowhere = text.replace("/tmp/", "/nowhere/");
        let found = amiss(&nowhere, |_| {});
        assert_eq!(found, [("controller c".to_owned(), Level::Problem)]);
    }

    #[test]
    fn files_of_tls_are_there_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.psk");
        let config = |path: &str| {
            format!(
                "[[controller]]\nname = \"c\"\nlisten = \"nbd:/tmp/c.sock\"\nnbd = {{ tls_psk = \"{path}\" }}\n"
            )
        };
        let found = |path: &str| amiss(&config(path), |m| m.descriptors = Some(4096));
        let shown = path.display().to_string();
        let problem = [("controller c".to_owned(), Level::Problem)];
        assert_eq!(found(&shown), problem);
        std::fs::write(&path, "x").unwrap();
        for (mode, expected) in [(0o644, &problem[..]), (0o600, &[])] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(found(&shown), expected, "{mode:o}");
        }
        assert_eq!(found("credential:keys"), []);
    }

    #[test]
    fn hosts_want_descriptors_and_sockets_folders() {
        let text = "[[controller]]\nname = \"c\"\nlisten = \"vfio-user:/tmp/c.sock\"\n";
        assert_eq!(amiss(text, |m| m.descriptors = Some(1024)), []);
        let few = amiss(text, |m| m.descriptors = Some(100));
        assert_eq!(
            few,
            [("descriptors for all hosts".to_owned(), Level::Problem)]
        );
        let tcp = text.replace("vfio-user:/tmp/c.sock", "nvme-tcp:127.0.0.1:4420");
        let many = amiss(&tcp, |m| m.descriptors = Some(1024));
        assert_eq!(
            many,
            [("descriptors for all hosts".to_owned(), Level::Advice)]
        );
        let few = format!("{tcp}queues = 2\ntcp = {{ hosts = 8 }}\n");
        assert_eq!(amiss(&few, |m| m.descriptors = Some(1024)), []);
        // 83 for the program and the first host, 133 for the others; 24 and 256 connections leave.
        assert_eq!(amiss(&few, |m| m.descriptors = Some(496)), []);
        assert_eq!(amiss(&few, |m| m.descriptors = Some(495)).len(), 1);
        let nowhere = amiss(&text.replace("/tmp/", "/there/is/no/"), |_| {});
        assert_eq!(nowhere, [("controller c".to_owned(), Level::Problem)]);
        let file = "[[media]]\nname = \"f\"\nkind = \"file\"\npath = \"/there/is/no/f\"\nsize = \"1MiB\"\n";
        assert_eq!(
            amiss(file, |_| {}),
            [("media f".to_owned(), Level::Problem)]
        );
        let ram = "[[media]]\nname = \"r\"\nkind = \"ram\"\nsize = \"3GiB\"\n";
        assert_eq!(
            amiss(ram, |_| {}),
            [("media in memory".to_owned(), Level::Advice)]
        );
    }
}
