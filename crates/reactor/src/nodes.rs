//! NUMA nodes: which node a thread's CPUs belong to, and whether a host's memory is on another one.
//!
//! On a machine with one node, all memory is near, and the system is not asked.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use machine::cpu;
use machine::topology::Topology;

/// Pages of a host that must be sampled before anything is said about its memory.
const ENOUGH_PAGES: usize = 16;

/// The nodes of a machine, each with its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(Vec<(u32, Vec<u32>)>);

/// Memory that is on a node other than its user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Far {
    /// Node of the CPUs.
    pub cpus: u32,
    /// Node of most of the memory.
    pub memory: u32,
}

impl Nodes {
    /// The nodes of this machine; none if the system does not report them.
    pub fn of_machine() -> &'static Nodes {
        static NODES: OnceLock<Nodes> = OnceLock::new();
        NODES.get_or_init(|| match Topology::read(Path::new("/"), &[]) {
            Ok(topology) => Nodes::of(&topology),
            Err(error) => {
                tracing::debug!("NUMA nodes of memory are unknown: {error:#}");
                Nodes(Vec::new())
            }
        })
    }

    /// The nodes of a topology.
    pub fn of(topology: &Topology) -> Self {
        let nodes = topology.nodes.iter();
        Nodes(nodes.map(|node| (node.id, node.cpus.clone())).collect())
    }

    /// Whether there is more than one node.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// The node that all of these CPUs belong to. `None` if they do not, and on a machine with one
    /// node.
    pub fn of_cpus(&self, cpus: &[u32]) -> Option<u32> {
        if !self.are_several() {
            return None;
        }
        let (first, others) = cpus.split_first()?;
        let (id, here) = self.0.iter().find(|(_, here)| here.contains(first))?;
        others.iter().all(|cpu| here.contains(cpu)).then_some(*id)
    }

    /// The node of the CPUs on which the calling thread may run.
    pub fn of_this_thread(&self) -> Option<u32> {
        if !self.are_several() {
            return None;
        }
        self.of_cpus(&cpu::usable().ok()?)
    }
}

/// Whether most of the pages, given as counts per node, are on a node other than the CPUs'.
pub fn far(cpus: u32, pages: &[(u32, usize)]) -> Option<Far> {
    let all: usize = pages.iter().map(|(_, pages)| pages).sum();
    let (memory, most) = pages.iter().max_by_key(|(_, pages)| *pages)?;
    let is_far = all >= ENOUGH_PAGES && *memory != cpus && 2 * most > all;
    is_far.then_some(Far {
        cpus,
        memory: *memory,
    })
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Far { cpus, memory } = self;
        write!(
            f,
            "its host's memory lies on node {memory}, its reactor runs on node {cpus}, and every command crosses between them: \
             give the guest memory of node {cpus} (libvirt: <numatune>, which `nvmirage doctor` prints; QEMU: host-nodes={cpus},policy=bind), \
             or name a CPU of node {memory} for the reactor"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Nodes {
        Nodes(vec![
            (0, vec![0, 1, 4, 5]),
            (1, vec![2, 3, 6, 7]),
            (3, vec![]),
        ])
    }

    #[test]
    fn a_thread_is_near_a_node_where_all_its_cpus_are() {
        let nodes = machine();
        assert_eq!(nodes.of_cpus(&[5]), Some(0));
        assert_eq!(nodes.of_cpus(&[2, 7]), Some(1));
        assert_eq!(nodes.of_cpus(&[1, 2]), None);
        assert_eq!(nodes.of_cpus(&[9]), None);
        assert_eq!(nodes.of_cpus(&[]), None);
    }

    #[test]
    fn on_one_node_nothing_is_far_or_asked() {
        let one = Nodes(vec![(0, vec![0, 1])]);
        assert_eq!(one.of_cpus(&[0]), None);
        assert_eq!(one.of_this_thread(), None);
        assert_eq!(Nodes(Vec::new()).of_cpus(&[0]), None);
    }

    #[test]
    fn memory_is_far_where_most_of_it_is_elsewhere() {
        let there = Some(Far { cpus: 0, memory: 1 });
        assert_eq!(far(0, &[(1, 16)]), there);
        assert_eq!(far(0, &[(0, 10), (1, 11)]), there);
        assert_eq!(far(0, &[(0, 11), (1, 11)]), None);
        assert_eq!(far(0, &[(0, 4), (1, 9), (2, 8)]), None, "no half of it");
        assert_eq!(far(0, &[(0, 100)]), None);
        assert_eq!(far(0, &[(1, 15)]), None, "too few pages to tell");
        assert_eq!(far(0, &[]), None);
        let said = far(0, &[(1, 16)]).map(|far| far.to_string()).unwrap();
        assert!(said.contains("node 1") && said.contains("node 0"), "{said}");
        assert!(said.contains("nvmirage doctor"), "{said}");
    }

    #[test]
    fn this_machine_has_nodes() {
        assert!(!Nodes::of_machine().0.is_empty());
    }
}
