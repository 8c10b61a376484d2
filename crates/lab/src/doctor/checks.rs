//! Checks of the kernel and of this process's limits, with advice where they fall short.

use machine::qemu::NEEDED;
use machine::topology::Topology;
use serde::Serialize;
use terminal::units;

use super::snapshot::{Device, Limit, Qemu, Snapshot};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// No problem.
    Ok,
    /// Works, but could be better.
    Advice,
    /// Does not work.
    Problem,
}

impl Level {
    /// The word for the level.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Advice => "advice",
            Level::Problem => "problem",
        }
    }
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) found: String,
    pub(crate) level: Level,
    /// Advice; empty if there is nothing to do.
    pub(crate) advice: String,
}

/// Minimum kernel version for io_uring.
const KERNEL: (u32, u32) = (5, 15);
/// Descriptors for dozens of guests: sockets, memory and an eventfd for each vector.
const DESCRIPTORS: u64 = 4096;
/// Default limit of the kernel on memory maps per process.
const MAPS: u64 = 65_530;

/// Checks that do not depend on the configuration. Without configured files (`of_files`), the needs
/// of files are only advice.
pub(super) fn all(machine: &Snapshot, topology: &Topology, of_files: bool) -> Vec<Check> {
    let for_files = |check: Check| match (check.level, of_files) {
        (Level::Problem, false) => Check {
            level: Level::Advice,
            ..check
        },
        _ => check,
    };
    let text = |value: &Option<String>| value.clone();
    let mut checks = vec![
        for_files(kernel(text(&machine.kernel))),
        for_files(io_uring(
            text(&machine.io_uring_disabled),
            machine.may_io_uring,
        )),
        locked_memory(machine.locked_memory),
        descriptors(machine.descriptors),
        maps(machine.max_map_count),
        huge_pages(topology, text(&machine.transparent_huge_pages)),
        shared_huge_pages(text(&machine.shmem_huge_pages)),
        clock(machine),
        kvm(&machine.kvm),
        qemu(&machine.qemu),
        initiator(machine),
        block_devices(machine),
    ];
    if topology.nodes.len() > 1 {
        checks.push(balancing(text(&machine.numa_balancing)));
        checks.extend(nodes(&machine.distances));
    }
    checks.extend(governor(&machine.governors));
    checks.extend(siblings(topology));
    checks
}

pub(super) fn good(what: impl Into<String>, found: impl Into<String>) -> Check {
    Check {
        what: what.into(),
        found: found.into(),
        level: Level::Ok,
        advice: String::new(),
    }
}

impl Check {
    pub(super) fn but(self, level: Level, advice: impl Into<String>) -> Self {
        Check {
            level,
            advice: advice.into(),
            ..self
        }
    }
}

/// Version of a kernel's release, as `6.12.0-1-amd64`.
pub(super) fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|word| word.parse().ok());
    next().zip(next())
}

fn kernel(release: Option<String>) -> Check {
    let release = release.unwrap_or_else(|| "unknown".into());
    let version = version_of(&release);
    let check = good("kernel", release.clone());
    match version {
        Some(version) if version >= KERNEL => check,
        Some(_) => check.but(
            Level::Problem,
            "media of kind file need Linux 5.15 or newer",
        ),
        None => check.but(
            Level::Advice,
            "media of kind file need Linux 5.15 or newer; this version is unknown",
        ),
    }
}

pub(super) fn io_uring(disabled: Option<String>, may: bool) -> Check {
    let what = "io_uring";
    match disabled.as_deref() {
        None | Some("0") => good(what, "allowed"),
        Some("1") if may => good(what, "allowed, to some"),
        Some("1") => good(what, "for some processes, and not for this one").but(
            Level::Problem,
            "media of kind file need it: set kernel.io_uring_disabled = 0, or kernel.io_uring_group to a group of this user",
        ),
        Some(_) => good(what, "disabled").but(
            Level::Problem,
            "media of kind file need it: set kernel.io_uring_disabled = 0",
        ),
    }
}

fn locked_memory(limit: Limit) -> Check {
    let what = "locked memory";
    match limit {
        None => good(what, "no limit"),
        Some(bytes) => good(what, format!("at most {}", units::bytes(bytes))).but(
            Level::Advice,
            "it limits the guest memory that is registered for files: raise it to the size of their memory (LimitMEMLOCK=infinity, or ulimit -l)",
        ),
    }
}

fn descriptors(limit: Limit) -> Check {
    let what = "descriptors";
    match limit {
        None => good(what, "no limit"),
        Some(count) if count >= DESCRIPTORS => good(what, format!("at most {count}")),
        Some(count) => good(what, format!("at most {count}")).but(
            Level::Advice,
            format!("each host needs some dozens: raise it to {DESCRIPTORS} for many hosts (LimitNOFILE=, or ulimit -n)"),
        ),
    }
}

/// A drive in memory uses transparent huge pages if no huge pages are reserved.
fn huge_pages(topology: &Topology, transparent: Option<String>) -> Check {
    let what = "huge pages";
    let pages = || topology.nodes.iter().flat_map(|node| &node.huge_pages);
    let reserved: u64 = pages().map(|p| p.free.saturating_mul(p.page_bytes)).sum();
    if reserved > 0 {
        return good(
            what,
            format!("{} reserved and free", units::bytes(reserved)),
        );
    }
    // "always [madvise] never"
    match transparent.as_deref() {
        Some(words) if words.contains("[never]") => good(what, "none").but(
            Level::Advice,
            "drives in memory are slower on small pages: write madvise to /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(_) => good(what, "none reserved; asked for page by page"),
        None => good(what, "none").but(
            Level::Advice,
            "drives in memory are slower on small pages, and this kernel has no huge pages",
        ),
    }
}

fn kvm(device: &Device) -> Check {
    let what = "KVM";
    match device {
        Device::Usable => good(what, "usable"),
        Device::Refused(error) => good(what, format!("not usable: {error}")).but(
            Level::Advice,
            "guests of this user are emulated: add the user to the group kvm",
        ),
        Device::Missing => good(what, "not there").but(
            Level::Advice,
            "guests on this machine are emulated, which is slow: load the module kvm, or enable virtualization in the firmware",
        ),
    }
}

/// Each region of a host's memory may need a map.
fn maps(count: Option<u64>) -> Check {
    let what = "maps of memory";
    match count {
        None => good(what, "unknown"),
        Some(count) if count >= MAPS => good(what, format!("at most {count}")),
        Some(count) => good(what, format!("at most {count}")).but(
            Level::Advice,
            format!(
                "a host with many memory regions is rejected: set vm.max_map_count = {MAPS} or more"
            ),
        ),
    }
}

/// Guests' memory is shared memory, which has its own setting.
fn shared_huge_pages(words: Option<String>) -> Check {
    let what = "huge pages of guests";
    match words.as_deref() {
        Some(words) if words.contains("[never]") || words.contains("[deny]") => good(what, "never").but(
            Level::Advice,
            "guest memory is on small pages: write advise to /sys/kernel/mm/transparent_hugepage/shmem_enabled, or give guests hugetlb=on",
        ),
        Some(words) => {
            let chosen = words.split_whitespace().find(|word| word.starts_with('['));
            good(what, chosen.unwrap_or(words).trim_matches(['[', ']']))
        }
        None => good(what, "unknown"),
    }
}

/// Every turn of a reactor reads the clock.
fn clock(machine: &Snapshot) -> Check {
    let what = "clock";
    let has = |flag: &str| machine.cpu_flags.iter().any(|one| one == flag);
    let invariant = has("constant_tsc") && has("nonstop_tsc");
    let source = machine.clock_source.as_deref().unwrap_or("unknown");
    let found = if invariant {
        format!("{source}, the processor's own goes on at one rate")
    } else {
        source.to_owned()
    };
    match source {
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter" => good(what, found),
        _ if invariant => good(what, found).but(
            Level::Advice,
            "the kernel does not trust the CPU's clock, and reading another one takes a microsecond: check the reason in dmesg, and boot with tsc=reliable if the clock is correct",
        ),
        _ => good(what, found).but(
            Level::Advice,
            "each read of the time accesses a device, which takes a microsecond: use a CPU with an invariant TSC (constant_tsc, nonstop_tsc); in a guest, host-passthrough",
        ),
    }
}

fn qemu(qemu: &Qemu) -> Check {
    let what = "QEMU";
    match qemu {
        Qemu::Missing => good(what, "not on the PATH").but(
            Level::Advice,
            format!("guests need QEMU {NEEDED} or newer, or another hypervisor with vfio-user; --qemu names one"),
        ),
        Qemu::Unknown(program) => good(what, format!("{} does not report its version", program.display()))
            .but(Level::Advice, "name a QEMU with --qemu"),
        Qemu::Found(program, version) => {
            let found = good(what, format!("{version}, {}", program.display()));
            if *version >= NEEDED { found } else { found.but(
                Level::Problem,
                format!("its guests cannot attach a drive: vfio-user-pci needs QEMU {NEEDED}; on Debian 13, newer versions are in trixie-backports"),
            ) }
        }
    }
}

/// Drives over NVMe/TCP become devices of this machine by its own initiator.
fn initiator(machine: &Snapshot) -> Check {
    let what = "NVMe/TCP initiator";
    match (&machine.initiator, machine.has_nvme_tcp) {
        (Device::Usable, true) => good(what, "usable"),
        (Device::Refused(error), true) => good(what, format!("only for root: {error}")),
        (Device::Missing, true) => good(what, "installed, not loaded").but(
            Level::Advice,
            "drives over NVMe/TCP become devices of this machine with it: run modprobe nvme-tcp",
        ),
        (_, false) => good(what, "not there").but(
            Level::Advice,
            "this machine cannot connect to drives over NVMe/TCP, guests can: install a kernel with the module nvme-tcp (CONFIG_NVME_TCP)",
        ),
    }
}

/// The driver by which drives become block devices of this machine.
fn block_devices(machine: &Snapshot) -> Check {
    let what = "ublk driver";
    match (&machine.ublk, machine.has_ublk) {
        (Device::Usable, _) => good(what, "usable"),
        (Device::Refused(error), _) => good(what, format!("only for root: {error}")),
        (Device::Missing, true) => good(what, "installed, not loaded").but(
            Level::Advice,
            "drives over ublk become block devices of this machine with it: run modprobe ublk_drv",
        ),
        (Device::Missing, false) => good(what, "not there").but(
            Level::Advice,
            "this machine cannot have drives over ublk: install a kernel with the module ublk_drv (CONFIG_BLK_DEV_UBLK)",
        ),
    }
}

/// Distant NUMA nodes.
fn nodes(distances: &[Vec<u32>]) -> Option<Check> {
    let farthest = distances.iter().flatten().max()?;
    let found = format!(
        "{} nodes, up to {:.1} x as far",
        distances.len(),
        f64::from(*farthest) / 10.0
    );
    Some(good("NUMA distance", found))
}

/// Two threads of a core share its throughput.
fn siblings(topology: &Topology) -> Option<Check> {
    let threads = topology.cpus.iter().map(|cpu| cpu.core.len()).max()?;
    (threads > 1).then(|| {
        let isolated = topology.cpus.iter().filter(|cpu| cpu.isolated).count();
        good(
            "threads",
            format!("{threads} a core, {isolated} CPUs isolated"),
        )
    })
}

fn balancing(on: Option<String>) -> Check {
    let what = "NUMA balancing";
    match on.as_deref() {
        Some("1" | "2") => good(what, "on").but(
            Level::Advice,
            "it unmaps memory to trace its users: with guests pinned as below, set kernel.numa_balancing = 0",
        ),
        _ => good(what, "off"),
    }
}

/// CPU frequency governors; `None` if the system does not report them, as in a virtual machine.
fn governor(governors: &[(u32, String)]) -> Option<Check> {
    let what = "CPU frequency";
    let (_, first) = governors.first()?;
    let slow = governors
        .iter()
        .find(|(_, governor)| governor != "performance");
    match slow {
        None => Some(good(what, first.clone())),
        Some((cpu, governor)) => Some(good(what, format!("{governor} on CPU {cpu}")).but(
            Level::Advice,
            "a CPU that clocks down when idle responds late: run cpupower frequency-set -g performance",
        )),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn kernels_by_their_numbers() {
        let level = |release| kernel(text(release)).level;
        assert_eq!(level("6.12.48+deb13-amd64"), Level::Ok);
        assert_eq!(level("5.15.0-1"), Level::Ok);
        assert_eq!(level("5.14.21"), Level::Problem);
        assert_eq!(level("4.19.0"), Level::Problem);
        assert_eq!(level("rolling"), Level::Advice);
    }

    #[test]
    fn what_is_missing_says_what_to_do() {
        let bad = [
            io_uring(text("2"), true),
            io_uring(text("1"), false),
            locked_memory(Some(8 << 20)),
            descriptors(Some(1024)),
            balancing(text("1")),
        ];
        for check in bad {
            assert_ne!(check.level, Level::Ok, "{check:?}");
            assert!(!check.advice.is_empty(), "{check:?}");
        }
        let fine = [
            io_uring(None, false),
            io_uring(text("0"), false),
            io_uring(text("1"), true),
            locked_memory(None),
            descriptors(Some(4096)),
            balancing(text("0")),
        ];
        for check in fine {
            assert_eq!((check.level, &*check.advice), (Level::Ok, ""), "{check:?}");
        }
    }

    #[test]
    fn huge_pages_are_reserved_or_asked_for() {
        let root = machine::testing::two_sockets();
        let topology = Topology::read(root.path(), &[0]).unwrap();
        // Three of 2 MiB on each node are free.
        assert!(huge_pages(&topology, None).found.contains("12.0 MiB"));
        let mut bare = topology;
        bare.nodes
            .iter_mut()
            .for_each(|node| node.huge_pages.clear());
        let level = |words: &str| huge_pages(&bare, text(words)).level;
        assert_eq!(level("always [madvise] never"), Level::Ok);
        assert_eq!(level("always madvise [never]"), Level::Advice);
        assert_eq!(huge_pages(&bare, None).level, Level::Advice);
    }

    /// A machine without problems.
    pub(in crate::doctor) fn machine() -> Snapshot {
        Snapshot {
            kernel: text("6.12.0"),
            io_uring_disabled: text("0"),
            may_io_uring: false,
            locked_memory: None,
            descriptors: Some(65_536),
            max_map_count: Some(65_530),
            transparent_huge_pages: text("always [madvise] never"),
            shmem_huge_pages: text("always within_size [advise] never deny force"),
            kvm: Device::Usable,
            numa_balancing: text("0"),
            clock_source: text("tsc"),
            cpu_flags: vec!["constant_tsc".into(), "nonstop_tsc".into()],
            governors: vec![(0, "performance".into())],
            distances: vec![vec![10, 21], vec![21, 10]],
            iommu_groups: 12,
            has_vfio_pci: true,
            vfio: Device::Usable,
            initiator: Device::Usable,
            has_nvme_tcp: true,
            is_admin: true,
            ublk: Device::Usable,
            has_ublk: true,
            qemu: Qemu::Found("/usr/bin/qemu".into(), NEEDED),
            guests: Vec::new(),
            pci_nodes: Vec::new(),
        }
    }

    fn levels(machine: &Snapshot, of_files: bool) -> Vec<(String, Level)> {
        let root = machine::testing::two_sockets();
        let topology = Topology::read(root.path(), &[0]).unwrap();
        let checks = all(machine, &topology, of_files).into_iter();
        let amiss = checks.filter(|check| check.level != Level::Ok);
        amiss
            .map(|check| {
                assert!(!check.advice.is_empty(), "{check:?}");
                (check.what, check.level)
            })
            .collect()
    }

    #[test]
    fn each_thing_that_is_amiss_is_found_and_nothing_else() {
        assert_eq!(levels(&machine(), true), []);
        type Change = fn(&mut Snapshot);
        let cases: [(&str, Level, Change); 16] = [
            ("kernel", Level::Problem, |m| m.kernel = text("5.10.0")),
            ("io_uring", Level::Problem, |m| {
                m.io_uring_disabled = text("2")
            }),
            ("locked memory", Level::Advice, |m| {
                m.locked_memory = Some(8 << 20)
            }),
            ("maps of memory", Level::Advice, |m| {
                m.max_map_count = Some(1000)
            }),
            ("huge pages of guests", Level::Advice, |m| {
                m.shmem_huge_pages = text("always within_size advise [never] deny force");
            }),
            ("clock", Level::Advice, |m| m.clock_source = text("hpet")),
            ("KVM", Level::Advice, |m| m.kvm = Device::Missing),
            ("QEMU", Level::Advice, |m| m.qemu = Qemu::Missing),
            ("ublk driver", Level::Advice, |m| m.ublk = Device::Missing),
            ("ublk driver", Level::Advice, |m| {
                (m.ublk, m.has_ublk) = (Device::Missing, false);
            }),
            ("NVMe/TCP initiator", Level::Advice, |m| {
                m.initiator = Device::Missing;
            }),
            ("NVMe/TCP initiator", Level::Advice, |m| {
                m.has_nvme_tcp = false;
            }),
            ("NUMA balancing", Level::Advice, |m| {
                m.numa_balancing = text("1")
            }),
            ("CPU frequency", Level::Advice, |m| {
                m.governors.push((1, "powersave".into()))
            }),
            ("QEMU", Level::Problem, |m| {
                let old = machine::qemu::Version { major: 7, minor: 2 };
                m.qemu = Qemu::Found("/usr/bin/qemu".into(), old);
            }),
            ("descriptors", Level::Advice, |m| m.descriptors = Some(1024)),
        ];
        for (what, level, change) in cases {
            let mut machine = machine();
            change(&mut machine);
            assert_eq!(levels(&machine, true), [(what.to_owned(), level)]);
        }
        // what no file needs is no problem
        let mut without = machine();
        without.io_uring_disabled = text("2");
        assert_eq!(
            levels(&without, false),
            [("io_uring".to_owned(), Level::Advice)]
        );
    }
}
