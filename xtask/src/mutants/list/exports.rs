//! NBD clients in a reactor: what they are offered, how many there are, and how they end.

use super::super::{Mutation, Test, integration, unit};

const fn reactor(name: &'static str) -> Test {
    integration("reactor", &["--test", "nbd"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "exports-clients",
        guard: "there are at most as many NBD clients as `clients` says",
        file: "crates/reactor/src/hosted/exports/mod.rs",
        from: "self.roster().free() <= self.arrivals.len()",
        to: "false",
        test: reactor("one_client_too_many_is_refused_until_another_has_left"),
    },
    Mutation {
        name: "exports-same-time",
        guard: "an NBD client that is acknowledged has a place",
        file: "crates/reactor/src/hosted/exports/mod.rs",
        from: "self.roster().free() <= self.arrivals.len()",
        to: "self.roster().free() == 0",
        test: unit(
            "reactor",
            "hosted::exports::tests::of_two_that_choose_at_the_same_time_one_gets_the_last_place",
        ),
    },
    Mutation {
        name: "exports-left",
        guard: "NBD clients that only ask are not counted as refused",
        file: "crates/reactor/src/hosted/exports/mod.rs",
        from: "        if !matches!(end, End::Left) {\n            roster.counts_mut().refuse(end.name());\n        }\n",
        to: "        roster.counts_mut().refuse(end.name());\n",
        test: unit(
            "reactor",
            "hosted::exports::tests::one_that_leaves_without_an_export_is_no_refusal",
        ),
    },
    Mutation {
        name: "exports-leaving",
        guard: "controllers of NBD clients that come and go fast are bounded",
        file: "crates/reactor/src/hosted/places.rs",
        from: "self.leaving.len().min(self.hosts)",
        to: "self.leaving.len()",
        test: unit(
            "reactor",
            "hosted::places::tests::a_host_that_has_left_keeps_no_other_out_but_as_many_at_most",
        ),
    },
    Mutation {
        name: "exports-displaced",
        guard: "connections that have sent something do not give way to silent ones",
        file: "crates/reactor/src/hosted/exports/mod.rs",
        from: "u8::from(!self.newcomer.is_silent())",
        to: "0",
        test: unit(
            "reactor",
            "hosted::exports::tests::one_that_says_nothing_gives_way_where_there_are_too_many",
        ),
    },
    Mutation {
        name: "exports-connections",
        guard: "connections that have chosen no export are bounded",
        file: "crates/reactor/src/hosted/entrance/callers.rs",
        from: "        if self.all.len() >= MAX_CONNECTIONS {\n",
        to: "        if self.all.len() > MAX_CONNECTIONS {\n",
        test: unit(
            "reactor",
            "hosted::exports::tests::one_that_says_nothing_gives_way_where_there_are_too_many",
        ),
    },
    Mutation {
        name: "exports-late",
        guard: "connections that choose no export end at their deadline",
        file: "crates/reactor/src/hosted/entrance/callers.rs",
        from: "            all.extend(late.map(|(number, _)| *number));\n",
        to: "            all.extend(late.map(|(number, _)| *number).take(0));\n",
        test: unit(
            "reactor",
            "hosted::exports::tests::one_that_chooses_nothing_is_closed_at_its_deadline",
        ),
    },
    Mutation {
        name: "exports-pause",
        guard: "a reactor does not spin where it cannot accept",
        file: "crates/reactor/src/hosted/entrance/listener.rs",
        from: "                    self.accepts_at = Some(now + PAUSE_NS);\n",
        to: "                    self.accepts_at = Some(now);\n",
        test: unit(
            "reactor",
            "hosted::exports::tests::a_failed_accept_is_tried_again_after_a_pause",
        ),
    },
    Mutation {
        name: "exports-closed",
        guard: "an entrance that closes has no client that was about to come",
        file: "crates/reactor/src/hosted/exports/mod.rs",
        from: "        self.arrivals.clear();\n",
        to: "",
        test: unit(
            "reactor",
            "hosted::exports::tests::clients_wait_in_the_socket_of_a_closed_entrance_until_it_opens",
        ),
    },
    Mutation {
        name: "exports-masked",
        guard: "namespaces for certain hosts are not offered to NBD clients",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "n.hosts.is_none() && n.attached",
        to: "n.attached",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::namespaces_for_every_host_have_names_of_their_own",
        ),
    },
    Mutation {
        name: "exports-names",
        guard: "no two exports have the same name",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "while !taken.insert(name.clone()) {",
        to: "while name.is_empty() {",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::namespaces_for_every_host_have_names_of_their_own",
        ),
    },
    Mutation {
        name: "exports-generation",
        guard: "NBD clients are offered the namespaces that there are when they come",
        file: "crates/reactor/src/hosted/exports/mod.rs",
        from: "self.offers.0 == Some(generation)",
        to: "self.offers.0 <= Some(generation) && self.offers.0.is_some()",
        test: reactor("namespaces_that_are_attached_later_are_offered_then"),
    },
    Mutation {
        name: "exports-output",
        guard: "an NBD client that reads late wakes the reactor",
        file: "crates/reactor/src/hosted/association.rs",
        from: "poller.set(connection, source, Interest { input, output })",
        to: "poller.set(connection, source, Interest { input, output: output && input })",
        test: reactor("a_client_that_reads_nothing_lets_the_reactor_sleep"),
    },
    Mutation {
        name: "exports-input",
        guard: "a reactor does not spin for requests that wait in the socket of an NBD client",
        file: "crates/reactor/src/hosted/association.rs",
        from: "poller.set(connection, source, Interest { input, output })",
        to: "poller.set(connection, source, Interest { input: input || output, output })",
        test: reactor("a_client_that_reads_nothing_lets_the_reactor_sleep"),
    },
    Mutation {
        name: "exports-stay",
        guard: "the queue of an NBD client stays on the reactor of its controller",
        file: "crates/reactor/src/run/mod.rs",
        from: "            if self.target_mut(controller.0).is_none() {\n",
        to: "            if self.roster_mut(controller.0).is_none() {\n",
        test: reactor("the_queue_of_a_client_stays_on_the_reactor_of_its_controller"),
    },
    Mutation {
        name: "exports-unwatched",
        guard: "a connection that does not wait for its socket does not wake the reactor",
        file: "crates/reactor/src/poller.rs",
        from: "        if interest == Interest::NONE {\n",
        to: "        if false {\n",
        test: unit(
            "reactor",
            "poller::tests::a_socket_that_is_watched_for_nothing_is_not_reported_when_it_ends",
        ),
    },
    Mutation {
        name: "exports-sums",
        guard: "counters of an NBD client stay when it leaves",
        file: "crates/reactor/src/network.rs",
        from: "            Done::Nbd(done) => self.nbd.add(done),\n",
        to: "            Done::Nbd(_) => {}\n",
        test: reactor("a_client_reads_what_it_wrote_and_is_listed_until_it_leaves"),
    },
    Mutation {
        name: "exports-chosen",
        guard: "only the NBD clients that the operator names are disconnected",
        file: "crates/reactor/src/run/targets.rs",
        from: "                && is_chosen(attached)\n",
        to: "",
        test: reactor("the_operator_ends_one_client_or_all"),
    },
];
