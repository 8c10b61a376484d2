//! Hosts over NVMe/TCP of a running server: their places, their ends, and the port.

use super::super::{Mutation, program};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "network-refusal",
        guard: "a Connect command that the reactor refuses is answered",
        file: "crates/reactor/src/hosted/target.rs",
        from: "        if !farewell.poll(now) {\n",
        to: "        if now.0 > 0 {\n",
        test: program("network::crowds::one_host_too_many_is_refused_until_another_has_left"),
    },
    Mutation {
        name: "network-hosts",
        guard: "there are at most as many hosts as `hosts` says",
        file: "crates/reactor/src/hosted/target.rs",
        from: "self.removal.is_none() && self.associations.len() < self.hosts",
        to: "self.removal.is_none() && self.associations.len() <= self.hosts",
        test: program("network::crowds::one_host_too_many_is_refused_until_another_has_left"),
    },
    Mutation {
        name: "network-newcomers",
        guard: "connections that send nothing are bounded",
        file: "crates/reactor/src/hosted/target.rs",
        from: "        if self.callers.len() >= MAX_CONNECTIONS {\n",
        to: "        if self.callers.len() == usize::MAX {\n",
        test: program(
            "network::crowds::a_host_is_served_beside_connections_that_introduce_themselves_never",
        ),
    },
    Mutation {
        name: "network-chosen",
        guard: "only the hosts that the operator names are disconnected",
        file: "crates/reactor/src/run/targets.rs",
        from: "                && is_chosen(attached.cntlid())\n",
        to: "",
        test: program("network::operators::hosts_are_disconnected_by_name_by_identifier_or_all"),
    },
    Mutation {
        name: "network-sums",
        guard: "counters of a host stay when it leaves",
        file: "crates/reactor/src/network.rs",
        from: "        self.all.add(done);\n",
        to: "        let _ = done;\n",
        test: program("network::operators::counters_of_hosts_stay_when_they_leave"),
    },
    Mutation {
        name: "network-live",
        guard: "hosts that are there are counted",
        file: "crates/reactor/src/run/targets.rs",
        from: "                    counts.all.add(&done);\n",
        to: "                    let _ = done;\n",
        test: program("network::operators::counters_of_hosts_stay_when_they_leave"),
    },
    Mutation {
        name: "network-port-kept",
        guard: "no other program gets the port between two processes",
        file: "crates/server/src/supervisor/network.rs",
        from: "            holder.keep(&name, listener.as_fd())?;\n",
        to: "            let _ = holder;\n",
        test: program("network::survive::the_port_is_never_free_between_two_processes"),
    },
    Mutation {
        name: "network-port-freed",
        guard: "the holder forgets the port of a controller that is deleted",
        file: "crates/server/src/supervisor/controllers.rs",
        from: "            if gone.tcp_address().is_some() {\n",
        to: "            if false {\n",
        test: program("network::survive::a_deleted_controller_leaves_its_port_to_others"),
    },
    Mutation {
        name: "network-moved",
        guard: "what hosts that have left moved stays counted",
        file: "crates/reactor/src/hosted/target.rs",
        from: "        self.counts.moved.add_moved(moved);\n",
        to: "        let _ = moved;\n",
        test: program("network::operators::counters_of_hosts_stay_when_they_leave"),
    },
    Mutation {
        name: "network-move",
        guard: "queues of hosts over NVMe/TCP are not moved: their configuration has no reactors",
        file: "crates/server/src/supervisor/moves.rs",
        from: "        if config.is_some_and(|config| config.tcp_address().is_some()) {\n",
        to: "        if false {\n",
        test: program("network::operators::the_queues_of_hosts_over_tcp_are_not_moved"),
    },
];
