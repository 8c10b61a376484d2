//! Memory that a server keeps for a controller that is attached, beyond the host's own.

use std::fs;

use anyhow::{Context as _, Result};

use super::sleep::attach;
use super::{Reach, Row};
use crate::ours::{Ours, Setup};

/// Controllers: what one takes is too little to see beside what the server takes itself.
const CONTROLLERS: usize = 100;
/// What our host calls the memory that it shares.
const HOSTS: &str = "/memfd:nvmirage-host";

pub(super) fn footprint(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let setup = Setup {
        controllers: CONTROLLERS,
        queues: 8,
        doorbells: "unmapped",
        mode: "adaptive",
        ..Setup::new("null", "1GiB")
    };
    let ours = Ours::start(reach.workspace, &setup, reach.args.cpus.pair())?;
    let before = own_kib(&smaps(ours.pid())?);
    // four queue pairs of 256 entries for each: the one that is busy, and all others
    let idle = (4 * CONTROLLERS - 1).to_string();
    let more = ["--qd", "255", "--idle-queues", &idle, "--idle-qd", "255"];
    let host = attach(reach, &ours, CONTROLLERS, &more)?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    let after = own_kib(&smaps(ours.pid())?);
    drop(host);
    ours.stop()?;
    let each = (after as f64 - before as f64) / CONTROLLERS as f64;
    Ok(vec![Row::new(
        "memory per attached controller with 4 queue pairs of 256",
        "<= 1 MiB beyond the guest's own",
        format!("{each:.0} KiB (server alone {before} KiB)"),
        Some(each / 1024.0),
    )])
}

pub(crate) fn smaps(pid: u32) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/smaps")).context("the server has ended")
}

/// Kilobytes of a process's own memory on huge pages.
pub(super) fn huge_kib(smaps: &str) -> u64 {
    let names = ["AnonHugePages:", "Private_Hugetlb:", "Shared_Hugetlb:"];
    let lines = smaps.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let kib = rest.trim().strip_suffix(" kB")?;
        names
            .iter()
            .any(|name| line.starts_with(name))
            .then(|| kib.parse::<u64>().ok())?
    });
    lines.sum()
}

/// Resident kilobytes of all mappings but those of hosts' memory (proc_pid_smaps(5)).
fn own_kib(smaps: &str) -> u64 {
    sum(smaps, |is_hosts| (!is_hosts).then_some("Rss:"))
}

/// Resident kilobytes of all mappings. Memory of hosts that the process maps twice counts once.
pub(crate) fn resident_kib(smaps: &str) -> u64 {
    sum(smaps, |is_hosts| {
        Some(if is_hosts { "Pss:" } else { "Rss:" })
    })
}

/// The sum of one field of each mapping, or none, which depends on whether it is hosts' memory.
fn sum(smaps: &str, field: impl Fn(bool) -> Option<&'static str>) -> u64 {
    let mut sum = 0;
    let mut wanted = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if first.contains('-') && !first.ends_with(':') {
            wanted = field(line.contains(HOSTS));
        } else if Some(first) == wanted {
            sum += words
                .next()
                .and_then(|kib| kib.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_hosts_counts_where_the_server_has_made_it() {
        let smaps = "\
55d0-55d4 r--p 00000000 fe:00 131 /usr/bin/nvmirage
Size:                 16 kB
Rss:                  12 kB
VmFlags: rd mr mw me
7f00-7f80 rw-s 00000000 00:01 1027 /memfd:nvmirage-host (deleted)
Rss:                 800 kB
Pss:                 400 kB
7f90-7f94 rw-s 00000000 00:01 1028 /memfd:nvmirage-state (deleted)
Rss:                   4 kB
Pss:                   2 kB
";
        assert_eq!(own_kib(smaps), 16);
        assert_eq!(resident_kib(smaps), 416);
    }

    #[test]
    fn huge_pages_of_every_kind_count() {
        let smaps = "AnonHugePages:      2048 kB\nShmemPmdMapped:    2048 kB\nPrivate_Hugetlb:    4096 kB\n";
        assert_eq!(huge_kib(smaps), 6144);
    }
}
