//! State of a machine, read at once and not judged here. All files are opened below a root folder,
//! so that tests can provide their own machines.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use machine::qemu::{self, Version};
use machine::topology::{number, word};
use rustix::process::{Resource, getegid, getgroups, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// A limit; `None` if it is unlimited or not reported.
pub(super) type Limit = Option<u64>;

/// Access to a device file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Device {
    Usable,
    /// The device exists, but this user may not open it.
    Refused(String),
    Missing,
}

/// QEMU for guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Qemu {
    /// No QEMU on the `PATH`.
    Missing,
    Found(PathBuf, Version),
    /// It does not run, or is another program.
    Unknown(PathBuf),
}

/// A process with one of the program's drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GuestProcess {
    /// Name of the process in a finding.
    pub(super) called: String,
    /// Its command line.
    pub(super) args: Vec<String>,
}

/// State of a machine.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) kernel: Option<String>,
    pub(super) io_uring_disabled: Option<String>,
    /// Whether this process may use io_uring if that is restricted: by a capability or by its
    /// group.
    pub(super) may_io_uring: bool,
    /// `None` also if a capability lifts the limit.
    pub(super) locked_memory: Limit,
    pub(super) descriptors: Limit,
    pub(super) max_map_count: Option<u64>,
    /// Setting, as in `always [madvise] never`.
    pub(super) transparent_huge_pages: Option<String>,
    /// The same setting for shared memory.
    pub(super) shmem_huge_pages: Option<String>,
    pub(super) kvm: Device,
    pub(super) numa_balancing: Option<String>,
    pub(super) clock_source: Option<String>,
    /// Flags of the first processor, such as `constant_tsc`.
    pub(super) cpu_flags: Vec<String>,
    /// Governors, of CPUs whose frequency the system sets.
    pub(super) governors: Vec<(u32, String)>,
    /// Distances between nodes, a row for each node.
    pub(super) distances: Vec<Vec<u32>>,
    pub(super) iommu_groups: usize,
    /// Whether the driver vfio-pci is loaded.
    pub(super) has_vfio_pci: bool,
    pub(super) vfio: Device,
    /// The kernel's NVMe over Fabrics initiator.
    pub(super) initiator: Device,
    /// Whether its transport for TCP is loaded, built in, or installed as a module.
    pub(super) has_nvme_tcp: bool,
    /// Whether this process has the capability CAP_SYS_ADMIN.
    pub(super) is_admin: bool,
    /// The control device of the kernel's ublk driver.
    pub(super) ublk: Device,
    /// Whether that driver is loaded, built in, or installed as a module.
    pub(super) has_ublk: bool,
    pub(super) qemu: Qemu,
    pub(super) guests: Vec<GuestProcess>,
    /// Nodes of the requested PCI devices.
    pub(super) pci_nodes: Vec<(String, u32)>,
}

/// Access of this user to the first device file in a folder.
fn device(path: &Path) -> Device {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Device::Usable,
        Err(error) if path.exists() => Device::Refused(error.to_string()),
        Err(_) => Device::Missing,
    }
}

/// Whether this process has a capability.
fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Whether this process is in the group with that number.
fn is_in_group(number: &str) -> bool {
    let own = getgroups().unwrap_or_default().into_iter();
    own.chain([getegid()])
        .any(|group| group.to_string() == number)
}

impl Snapshot {
    /// Reads the machine whose files are below `root`, with its devices `pci`, and `program` or the
    /// QEMU on the `PATH`.
    pub(super) fn take(root: &Path, cpus: &[u32], pci: &[String], program: Option<&Path>) -> Self {
        let sysctl = |name: &str| word(&root.join("proc/sys").join(name));
        let system = root.join("sys/devices/system");
        let huge = root.join("sys/kernel/mm/transparent_hugepage");
        let governor = |cpu: &u32| {
            let path = system.join(format!("cpu/cpu{cpu}/cpufreq/scaling_governor"));
            Some((*cpu, word(&path)?))
        };
        let node = |address: &String| {
            let device = root.join("sys/bus/pci/devices").join(address);
            let node = number(&device.join("numa_node"))?;
            Some((address.clone(), u32::try_from(node).ok()?))
        };
        let entries = |path: &str| fs::read_dir(root.join(path)).map_or(0, Iterator::count);
        Snapshot {
            kernel: sysctl("kernel/osrelease"),
            io_uring_disabled: sysctl("kernel/io_uring_disabled"),
            may_io_uring: has(CapabilitySet::SYS_ADMIN)
                || sysctl("kernel/io_uring_group").is_some_and(|group| is_in_group(&group)),
            locked_memory: getrlimit(Resource::Memlock)
                .current
                .filter(|_| !has(CapabilitySet::IPC_LOCK)),
            // A server raises its own limit to it.
            descriptors: getrlimit(Resource::Nofile).maximum,
            max_map_count: sysctl("vm/max_map_count").and_then(|count| count.parse().ok()),
            transparent_huge_pages: word(&huge.join("enabled")),
            shmem_huge_pages: word(&huge.join("shmem_enabled")),
            kvm: device(&root.join("dev/kvm")),
            numa_balancing: sysctl("kernel/numa_balancing"),
            clock_source: word(&system.join("clocksource/clocksource0/current_clocksource")),
            cpu_flags: flags(&root.join("proc/cpuinfo")),
            governors: cpus.iter().filter_map(governor).collect(),
            distances: distances(&system.join("node")),
            iommu_groups: entries("sys/kernel/iommu_groups"),
            has_vfio_pci: root.join("sys/bus/pci/drivers/vfio-pci").exists(),
            vfio: device(&root.join("dev/vfio/vfio")),
            initiator: device(&root.join("dev/nvme-fabrics")),
            has_nvme_tcp: has_module(root, "nvme_tcp"),
            is_admin: has(CapabilitySet::SYS_ADMIN),
            ublk: device(&root.join("dev/ublk-control")),
            has_ublk: has_module(root, "ublk_drv"),
            qemu: qemu_of(program),
            guests: guests(&root.join("proc")),
            pci_nodes: pci.iter().filter_map(node).collect(),
        }
    }
}

/// Whether the running kernel has a module: loaded, built in, or installed.
fn has_module(root: &Path, name: &str) -> bool {
    if root.join("sys/module").join(name).exists() {
        return true;
    }
    let Some(release) = word(&root.join("proc/sys/kernel/osrelease")) else {
        return false;
    };
    let modules = root.join("lib/modules").join(release);
    let lists = ["modules.dep", "modules.builtin"].map(|list| modules.join(list));
    lists.iter().any(|list| {
        let text = fs::read_to_string(list).unwrap_or_default();
        text.lines().any(|line| is_module(line, name))
    })
}

/// Whether a line of `modules.dep` or `modules.builtin` is about a module, as in
/// `kernel/drivers/nvme/host/nvme-tcp.ko.xz: …`.
fn is_module(line: &str, name: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let stem = file.split(".ko").next().unwrap_or_default();
    file.contains(".ko") && stem.replace('-', "_") == name
}

fn flags(cpuinfo: &Path) -> Vec<String> {
    let text = fs::read_to_string(cpuinfo).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("flags"));
    let words = line.and_then(|line| line.split_once(':'));
    words.map_or_else(Vec::new, |(_, words)| {
        words.split_whitespace().map(str::to_owned).collect()
    })
}

fn distances(nodes: &Path) -> Vec<Vec<u32>> {
    let row = |node: u32| {
        let text = word(&nodes.join(format!("node{node}/distance")))?;
        let row = text.split_whitespace().map(str::parse);
        row.collect::<Result<Vec<u32>, _>>().ok()
    };
    (0..).map_while(row).collect()
}

fn qemu_of(program: Option<&Path>) -> Qemu {
    let program = program.map(Path::to_owned).or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        qemu::on_path(&qemu::program_name(), &path)
    });
    let Some(program) = program else {
        return Qemu::Missing;
    };
    match qemu::version_of(&program) {
        Ok(Some(version)) => Qemu::Found(program, version),
        _ => Qemu::Unknown(program),
    }
}

/// Processes that use a drive over vfio-user.
fn guests(proc: &Path) -> Vec<GuestProcess> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let guest = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let args = line.split(|byte| *byte == 0).filter(|arg| !arg.is_empty());
        let args: Vec<String> = args
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect();
        let has_drive = args.iter().any(|arg| arg.contains("vfio-user-pci"));
        let is_guest = has_drive && args.first().is_some_and(|arg| arg.contains("qemu"));
        let called = format!("process {pid}");
        is_guest.then_some(GuestProcess { called, args })
    };
    let mut all: Vec<GuestProcess> = entries.filter_map(guest).collect();
    all.sort_by(|a, b| a.called.cmp(&b.called));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_built_in_or_installed() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let has = |name| has_module(root.path(), name);
        assert!(!has("nvme_tcp"));
        write("proc/sys/kernel/osrelease", "6.12.0\n");
        assert!(!has("nvme_tcp"));
        write(
            "lib/modules/6.12.0/modules.dep",
            "kernel/drivers/nvme/host/nvme-fabrics.ko.xz:\nkernel/drivers/nvme/host/nvme-tcp.ko.xz: kernel/drivers/nvme/host/nvme-fabrics.ko.xz\n",
        );
        write(
            "lib/modules/6.12.0/modules.builtin",
            "kernel/drivers/nvme/host/nvme.ko\n",
        );
        assert!(has("nvme_tcp") && has("nvme_fabrics") && has("nvme"));
        assert!(!has("tcp") && !has("nvmet_tcp"));
        fs::create_dir_all(root.path().join("sys/module/nvmet_tcp")).unwrap();
        assert!(has("nvmet_tcp"));
    }
}
