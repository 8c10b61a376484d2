//! Machines that tests read.

use std::fs;

/// A machine of two sockets, each of two cores with two threads: core 0 has CPUs 0 and 4, and
/// so on.
#[must_use]
pub fn two_sockets() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("cpu/online", "0-7\n");
    write("cpu/isolated", "2\n");
    for id in 0..8 {
        let core = id % 4;
        let topology = format!("cpu/cpu{id}/topology");
        write(
            &format!("{topology}/thread_siblings_list"),
            &format!("{core},{}\n", core + 4),
        );
        write(
            &format!("{topology}/physical_package_id"),
            &format!("{}\n", core / 2),
        );
    }
    write("node/online", "0-1\n");
    for (node, cpus) in [(0, "0-1,4-5\n"), (1, "2-3,6-7\n")] {
        write(&format!("node/node{node}/cpulist"), cpus);
        write(
            &format!("node/node{node}/meminfo"),
            &format!("Node {node} MemTotal:       1048576 kB\nNode {node} MemFree:        5 kB\n"),
        );
        let pages = format!("node/node{node}/hugepages/hugepages-2048kB");
        write(&format!("{pages}/nr_hugepages"), "8\n");
        write(&format!("{pages}/free_hugepages"), "3\n");
    }
    root
}
