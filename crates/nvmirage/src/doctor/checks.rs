//! What the kernel and the limits of this process allow, and what to do where that is less than it could be.

use std::{fs::OpenOptions, path::Path};

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::{
    plan::Plan,
    topology::{Topology, word},
};
use crate::report::units;

/// How it stands with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Good,
    /// It works, and could be faster.
    Slower,
    /// Something does not work.
    Bad,
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) verdict: Verdict,
    /// What to do; empty where nothing is to be done.
    pub(crate) advice: String,
}

/// The kernel that io_uring is good enough in.
const KERNEL: (u32, u32) = (5, 15);
/// Descriptors for some dozens of guests: sockets, memory and an eventfd for each vector.
const DESCRIPTORS: u64 = 4096;

/// Everything that is looked at, below `root`.
pub(super) fn all(root: &Path, topology: &Topology, plan: &Plan) -> Vec<Check> {
    let sysctl = |name: &str| word(&root.join("proc/sys").join(name));
    let mut checks = vec![
        kernel(sysctl("kernel/osrelease")),
        io_uring(sysctl("kernel/io_uring_disabled")),
        locked_memory(getrlimit(Resource::Memlock).current),
        descriptors(getrlimit(Resource::Nofile).current),
        huge_pages(
            topology,
            word(&root.join("sys/kernel/mm/transparent_hugepage/enabled")),
        ),
        kvm(root),
    ];
    if topology.nodes.len() > 1 {
        checks.push(balancing(sysctl("kernel/numa_balancing")));
    }
    checks.extend(governor(root, plan));
    checks
}

fn good(what: &'static str, found: impl Into<String>) -> Check {
    Check {
        what,
        found: found.into(),
        verdict: Verdict::Good,
        advice: String::new(),
    }
}

impl Check {
    fn but(self, verdict: Verdict, advice: impl Into<String>) -> Self {
        Check {
            verdict,
            advice: advice.into(),
            ..self
        }
    }
}

fn kernel(release: Option<String>) -> Check {
    let release = release.unwrap_or_else(|| "unknown".into());
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|word| word.parse().ok());
    let version: Option<(u32, u32)> = next().zip(next());
    let check = good("kernel", release.clone());
    match version {
        Some(version) if version >= KERNEL => check,
        Some(_) => check.but(Verdict::Bad, "media of files need Linux 5.15 or newer"),
        None => check.but(
            Verdict::Slower,
            "media of files need Linux 5.15 or newer; this one is not known",
        ),
    }
}

fn io_uring(disabled: Option<String>) -> Check {
    let what = "io_uring";
    match disabled.as_deref() {
        None | Some("0") => good(what, "allowed"),
        Some("1") => good(what, "for privileged processes").but(
            Verdict::Bad,
            "media of files need it: set kernel.io_uring_disabled = 0, or its group by kernel.io_uring_group",
        ),
        Some(_) => good(what, "disabled").but(
            Verdict::Bad,
            "media of files need it: set kernel.io_uring_disabled = 0",
        ),
    }
}

fn locked_memory(limit: Option<u64>) -> Check {
    let what = "locked memory";
    match limit {
        None => good(what, "no limit"),
        Some(bytes) => good(what, format!("at most {}", units::bytes(bytes))).but(
            Verdict::Slower,
            "memory of guests is registered for files within it: raise it to their memory (LimitMEMLOCK=infinity, or ulimit -l)",
        ),
    }
}

fn descriptors(limit: Option<u64>) -> Check {
    let what = "descriptors";
    match limit {
        None => good(what, "no limit"),
        Some(count) if count >= DESCRIPTORS => good(what, format!("at most {count}")),
        Some(count) => good(what, format!("at most {count}")).but(
            Verdict::Slower,
            format!("each host takes some dozens: raise it to {DESCRIPTORS} for many (LimitNOFILE=, or ulimit -n)"),
        ),
    }
}

/// Transparent huge pages are what a drive in memory asks for where none are reserved.
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
            Verdict::Slower,
            "drives in memory are slower on small pages: write madvise into /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(_) => good(what, "none reserved; asked for page by page"),
        None => good(what, "none").but(
            Verdict::Slower,
            "drives in memory are slower on small pages, and this kernel has no others",
        ),
    }
}

fn kvm(root: &Path) -> Check {
    let what = "KVM";
    let path = root.join("dev/kvm");
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(_) => good(what, "usable"),
        Err(error) if path.exists() => good(what, format!("not usable: {error}")).but(
            Verdict::Slower,
            "guests of this user are emulated: add the user to the group kvm",
        ),
        Err(_) => good(what, "not there").but(
            Verdict::Slower,
            "guests on this machine are emulated, which is slow: load the module kvm, or turn virtualisation on",
        ),
    }
}

fn balancing(on: Option<String>) -> Check {
    let what = "NUMA balancing";
    match on.as_deref() {
        Some("1" | "2") => good(what, "on").but(
            Verdict::Slower,
            "it unmaps memory to see who uses it: with guests pinned as below set kernel.numa_balancing = 0",
        ),
        _ => good(what, "off"),
    }
}

/// How fast the reactors' CPUs run; nothing where the system does not say, in a virtual machine for one.
fn governor(root: &Path, plan: &Plan) -> Option<Check> {
    let what = "CPU frequency";
    let dir = root.join("sys/devices/system/cpu");
    let of = |cpu: &u32| word(&dir.join(format!("cpu{cpu}/cpufreq/scaling_governor")));
    let governors: Vec<String> = plan.reactors.iter().filter_map(of).collect();
    let first = governors.first()?;
    let check = good(what, first.clone());
    if governors.iter().all(|governor| governor == "performance") {
        return Some(check);
    }
    Some(check.but(
        Verdict::Slower,
        "a CPU that slows down when idle answers late: cpupower frequency-set -g performance",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn kernels_by_their_numbers() {
        let verdict = |release| kernel(text(release)).verdict;
        assert_eq!(verdict("6.12.48+deb13-amd64"), Verdict::Good);
        assert_eq!(verdict("5.15.0-1"), Verdict::Good);
        assert_eq!(verdict("5.14.21"), Verdict::Bad);
        assert_eq!(verdict("4.19.0"), Verdict::Bad);
        assert_eq!(verdict("rolling"), Verdict::Slower);
    }

    #[test]
    fn what_is_missing_says_what_to_do() {
        let bad = [
            io_uring(text("2")),
            io_uring(text("1")),
            locked_memory(Some(8 << 20)),
            descriptors(Some(1024)),
            balancing(text("1")),
        ];
        for check in bad {
            assert_ne!(check.verdict, Verdict::Good, "{check:?}");
            assert!(!check.advice.is_empty(), "{check:?}");
        }
        let fine = [
            io_uring(None),
            io_uring(text("0")),
            locked_memory(None),
            descriptors(Some(4096)),
            balancing(text("0")),
        ];
        for check in fine {
            assert_eq!(
                (check.verdict, &*check.advice),
                (Verdict::Good, ""),
                "{check:?}"
            );
        }
    }

    #[test]
    fn huge_pages_are_reserved_or_asked_for() {
        let root = super::super::topology::tests::two_sockets();
        let topology = Topology::read(root.path(), &[0]).unwrap();
        // Three of 2 MiB on each node are free.
        assert!(huge_pages(&topology, None).found.contains("12.0 MiB"));
        let mut bare = topology;
        bare.nodes
            .iter_mut()
            .for_each(|node| node.huge_pages.clear());
        let verdict = |words: &str| huge_pages(&bare, text(words)).verdict;
        assert_eq!(verdict("always [madvise] never"), Verdict::Good);
        assert_eq!(verdict("always madvise [never]"), Verdict::Slower);
        assert_eq!(huge_pages(&bare, None).verdict, Verdict::Slower);
    }
}
