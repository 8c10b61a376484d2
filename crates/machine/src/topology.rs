//! CPUs, the cores they share, and the nodes of memory, from sysfs.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::cpu;

/// An online CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// The CPUs of its core, itself among them.
    pub core: Vec<u32>,
    /// Its socket.
    pub package: u32,
    /// Its node of memory.
    pub node: u32,
    /// Whether this process may run on it.
    pub usable: bool,
    /// Whether the kernel leaves it to those who ask for it by name (isolcpus).
    pub isolated: bool,
}

/// Huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// Pages reserved on the node.
    pub reserved: u64,
    /// Those that are not in use.
    pub free: u64,
}

/// A memory node and its CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Numbers of its CPUs.
    pub cpus: Vec<u32>,
    /// Zero where the system does not say.
    pub memory_bytes: u64,
    /// Its huge pages, by size.
    pub huge_pages: Vec<HugePages>,
}

/// CPUs and nodes of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The CPUs that are online.
    pub cpus: Vec<Cpu>,
    /// The nodes of memory.
    pub nodes: Vec<Node>,
}

impl Topology {
    /// Reads it below `root`. A machine without nodes has one, with all of its CPUs.
    pub fn read(root: &Path, usable: &[u32]) -> anyhow::Result<Self> {
        let cpus_dir = root.join("sys/devices/system/cpu");
        let nodes_dir = root.join("sys/devices/system/node");
        let online = word(&cpus_dir.join("online"))
            .context("sysfs does not list the online CPUs; check that it is mounted at /sys")?;
        let online = cpu::list(&online);
        ensure!(!online.is_empty(), "sysfs lists no online CPU");
        let mut nodes: Vec<Node> = word(&nodes_dir.join("online"))
            .map_or(Vec::new(), |list| cpu::list(&list))
            .into_iter()
            .map(|id| Node::read(&nodes_dir.join(format!("node{id}")), id))
            .collect();
        if nodes.is_empty() {
            nodes.push(Node {
                id: 0,
                cpus: online.clone(),
                memory_bytes: 0,
                huge_pages: Vec::new(),
            });
        }
        let isolated = word(&cpus_dir.join("isolated")).map_or(Vec::new(), |list| cpu::list(&list));
        let cpus = online.into_iter().map(|id| {
            let dir = cpus_dir.join(format!("cpu{id}/topology"));
            let core = word(&dir.join("thread_siblings_list"));
            let node = nodes.iter().find(|node| node.cpus.contains(&id));
            Cpu {
                id,
                core: core.map_or_else(|| vec![id], |list| cpu::list(&list)),
                package: number(&dir.join("physical_package_id")).unwrap_or(0) as u32,
                node: node.map_or(0, |node| node.id),
                usable: usable.contains(&id),
                isolated: isolated.contains(&id),
            }
        });
        Ok(Topology {
            cpus: cpus.collect(),
            nodes,
        })
    }

    /// A CPU that is online.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }
}

impl Node {
    fn read(dir: &Path, id: u32) -> Self {
        let cpus = word(&dir.join("cpulist")).map_or(Vec::new(), |list| cpu::list(&list));
        let meminfo = word(&dir.join("meminfo")).unwrap_or_default();
        // "Node 0 MemTotal:       24607584 kB"
        let total = meminfo.lines().find_map(|line| {
            let (_, rest) = line.split_once("MemTotal:")?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let mut huge_pages: Vec<HugePages> = fs::read_dir(dir.join("hugepages"))
            .into_iter()
            .flatten()
            .filter_map(|entry| HugePages::read(&entry.ok()?.path()))
            .collect();
        huge_pages.sort_by_key(|pages| pages.page_bytes);
        Node {
            id,
            cpus,
            memory_bytes: total.unwrap_or(0).saturating_mul(1024),
            huge_pages,
        }
    }
}

impl HugePages {
    /// Reads a folder such as `hugepages-2048kB`.
    fn read(dir: &Path) -> Option<Self> {
        let name = dir.file_name()?.to_str()?;
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        Some(HugePages {
            page_bytes: size.parse::<u64>().ok()?.checked_mul(1024)?,
            reserved: number(&dir.join("nr_hugepages"))?,
            free: number(&dir.join("free_hugepages"))?,
        })
    }
}

/// Text of a small file, without white space at its ends.
pub fn word(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The number that a small file holds.
pub fn number(path: &Path) -> Option<u64> {
    word(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::two_sockets;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = two_sockets();
        let topology = Topology::read(root.path(), &[0, 1, 2]).unwrap();
        assert_eq!(topology.cpus.len(), 8);
        let cpu = topology.cpu(6).unwrap();
        assert_eq!((&cpu.core[..], cpu.package, cpu.node), (&[2, 6][..], 1, 1));
        assert!(!cpu.usable && topology.cpu(1).unwrap().usable);
        assert!(topology.cpu(2).unwrap().isolated && !cpu.isolated);
        let node = &topology.nodes[1];
        assert_eq!((node.id, &node.cpus[..]), (1, &[2, 3, 6, 7][..]));
        assert_eq!(node.memory_bytes, 1 << 30);
        let pages = &node.huge_pages[0];
        assert_eq!(
            (pages.page_bytes, pages.reserved, pages.free),
            (2 << 20, 8, 3)
        );
    }

    #[test]
    fn a_machine_that_says_little_has_one_node_and_cores_of_one_thread() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/devices/system/cpu");
        fs::create_dir_all(&dir).unwrap();
        let error = Topology::read(root.path(), &[0]).unwrap_err();
        assert!(error.to_string().contains("mounted at /sys"), "{error}");
        fs::write(dir.join("online"), "0-1\n").unwrap();
        let topology = Topology::read(root.path(), &[0, 1]).unwrap();
        assert_eq!(topology.nodes[0].cpus, [0, 1]);
        assert_eq!(topology.cpus[1].core, [1]);
    }
}
