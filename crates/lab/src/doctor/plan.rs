//! CPU placement: reactors get their own cores, the guest's processors the next cores of the same
//! node, and the emulator's threads the rest.

use std::fmt::Write as _;

use anyhow::ensure;
use machine::topology::Topology;
use serde::Serialize;

/// The guest to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Guest {
    /// Number of reactors that serve it.
    pub(crate) reactors: usize,
    /// Number of its processors.
    pub(crate) vcpus: usize,
}

/// The placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Plan {
    /// A CPU for each reactor.
    pub(crate) reactors: Vec<u32>,
    /// A CPU for each processor of the guest.
    pub(crate) vcpus: Vec<u32>,
    /// CPUs for the emulator's other threads.
    pub(crate) emulator: Vec<u32>,
    /// Where the guest's memory belongs.
    pub(crate) node: u32,
    /// Shortcomings of the placement.
    pub(crate) notes: Vec<String>,
    /// Whether two tasks that need a whole CPU share one.
    pub(crate) shared: bool,
}

impl Plan {
    /// Places a guest and its reactors on the usable CPUs.
    pub(super) fn new(topology: &Topology, guest: &Guest) -> anyhow::Result<Self> {
        let cores = cores(topology);
        ensure!(
            !cores.is_empty(),
            "this process must not use any online CPU: change its affinity"
        );
        ensure!(
            guest.reactors > 0 && guest.vcpus > 0,
            "a guest needs at least one virtual CPU and one reactor"
        );
        let all: Vec<u32> = cores.iter().flatten().copied().collect();
        let mut notes = Vec::new();
        // A polling reactor slows the other thread of its core, so that thread is assigned last.
        let own = guest.reactors.min(cores.len().saturating_sub(1));
        let (served, rest) = cores.split_at(own);
        let mut reactors: Vec<u32> = served.iter().map(|core| core[0]).collect();
        let beside = served.iter().flat_map(|core| &core[1..]);
        let mut free: Vec<u32> = rest.iter().flatten().chain(beside).copied().collect();
        let wanted = guest.reactors - own + guest.vcpus;
        let shared = free.len() < wanted;
        if shared {
            notes.push(format!(
                "reactors and virtual CPUs need {} CPUs, and this process may use {}: some share a CPU, so let the reactors sleep (mode = \"adaptive\")",
                guest.reactors + guest.vcpus,
                all.len()
            ));
        }
        let mut next = 0;
        let mut take = |free: &[u32]| {
            let pool = if free.is_empty() { &all } else { free };
            let cpu = pool[next % pool.len()];
            next += 1;
            cpu
        };
        let pool = free.clone();
        reactors.extend((own..guest.reactors).map(|_| take(&pool)));
        let vcpus: Vec<u32> = (0..guest.vcpus).map(|_| take(&pool)).collect();
        free.retain(|cpu| !vcpus.contains(cpu) && !reactors.contains(cpu));
        let node_of = |cpu: u32| topology.cpu(cpu).map_or(0, |cpu| cpu.node);
        let node = node_of(reactors[0]);
        free.retain(|cpu| node_of(*cpu) == node);
        let mut emulator = if free.is_empty() { vcpus.clone() } else { free };
        emulator.sort_unstable();
        emulator.dedup();
        let mut others: Vec<u32> = reactors
            .iter()
            .chain(&vcpus)
            .map(|cpu| node_of(*cpu))
            .collect();
        others.sort_unstable();
        others.dedup();
        if others.len() > 1 {
            notes.push(format!(
                "node {node} has too few CPUs: {others:?} are used, and every command crosses nodes"
            ));
        }
        Ok(Plan {
            reactors,
            vcpus,
            emulator,
            node,
            notes,
            shared,
        })
    }

    /// Reactor tables for nvmirage's configuration.
    pub(super) fn configuration(&self) -> String {
        let mode = if self.shared { "adaptive" } else { "poll" };
        let mut text = String::new();
        for cpu in &self.reactors {
            // writing to a string does not fail
            let _ = writeln!(text, "[[reactor]]\ncpu = {cpu}\nmode = \"{mode}\"");
        }
        text
    }
}

/// The usable CPUs by core: isolated cores first, and cores of the node with the most of them
/// before others.
fn cores(topology: &Topology) -> Vec<Vec<u32>> {
    let mut nodes: Vec<(usize, u32)> = topology
        .nodes
        .iter()
        .map(|node| {
            let mut cpus = topology.cpus.iter();
            let usable = cpus
                .by_ref()
                .filter(|cpu| cpu.node == node.id && cpu.usable);
            (usable.count(), node.id)
        })
        .collect();
    nodes.sort_by_key(|(usable, id)| (std::cmp::Reverse(*usable), *id));
    let mut cores: Vec<Vec<u32>> = Vec::new();
    for (_, node) in nodes {
        let mut here: Vec<(bool, Vec<u32>)> = Vec::new();
        for cpu in topology
            .cpus
            .iter()
            .filter(|cpu| cpu.node == node && cpu.usable)
        {
            match here
                .iter_mut()
                .find(|(_, core)| cpu.core.contains(&core[0]))
            {
                Some((_, core)) => core.push(cpu.id),
                None => here.push((!cpu.isolated, vec![cpu.id])),
            }
        }
        here.sort_by_key(|(shared, core)| (*shared, core[0]));
        cores.extend(here.into_iter().map(|(_, core)| core));
    }
    cores
}

#[cfg(test)]
mod tests {
    use machine::testing::two_sockets;

    use super::*;

    fn plan(usable: &[u32], reactors: usize, vcpus: usize) -> Plan {
        let root = two_sockets();
        let topology = Topology::read(root.path(), usable).unwrap();
        Plan::new(&topology, &Guest { reactors, vcpus }).unwrap()
    }

    #[test]
    fn a_reactor_has_a_core_of_its_own_and_the_guest_is_near() {
        let plan = plan(&[0, 1, 4, 5], 1, 2);
        assert_eq!(plan.reactors, [0]);
        assert_eq!(plan.vcpus, [1, 5]);
        assert_eq!(
            plan.emulator,
            [4],
            "the thread beside the reactor is the last one"
        );
        assert_eq!(plan.node, 0);
        assert_eq!(plan.notes, [""; 0]);
        assert_eq!(
            plan.configuration(),
            "[[reactor]]\ncpu = 0\nmode = \"poll\"\n"
        );
    }

    #[test]
    fn isolated_cpus_are_for_reactors() {
        // Node 1 has as many, and CPU 2 is isolated there.
        let plan = plan(&[2, 3, 6, 7], 1, 1);
        assert_eq!((plan.reactors[0], plan.vcpus[0], plan.node), (2, 3, 1));
    }

    #[test]
    fn too_few_cpus_are_shared_and_said_so() {
        let few = plan(&[0, 1], 1, 2);
        assert_eq!((&few.reactors[..], &few.vcpus[..]), (&[0][..], &[1, 1][..]));
        assert!(few.shared && few.notes[0].contains("may use 2"), "{few:?}");
        assert_eq!(few.emulator, [1]);
        assert!(few.configuration().contains("adaptive"));
        let one = plan(&[3], 1, 1);
        assert_eq!((one.reactors[0], one.vcpus[0]), (3, 3));
        assert!(one.shared);
    }

    #[test]
    fn a_guest_over_two_nodes_is_told() {
        let wide = plan(&[0, 1, 2, 3, 4, 5, 6, 7], 1, 6);
        assert!(wide.notes[0].contains("[0, 1]"), "{wide:?}");
        assert!(!wide.shared);
    }
}
