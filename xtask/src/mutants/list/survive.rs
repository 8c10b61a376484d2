//! Hosts that keep their drives when the server's process dies or is replaced.

use super::super::{Mutation, Test, program, unit};

/// A test of the holder.
const fn holder(name: &'static str) -> Test {
    unit("holder", name)
}

const SESSION: &str = "crates/holder/src/hold/session/mod.rs";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "survive-reservations-lost",
        guard: "a replaced process is no power failure for reservations",
        file: "crates/server/src/supervisor/subsystems.rs",
        from: "namespace.reservation = its.map(|it| it.reservation.clone()).unwrap_or_default();",
        to: "let _ = (its, &mut namespace.reservation);",
        test: program(
            "survive::a_reservation_is_the_same_hosts_after_a_death_and_released_once_for_all",
        ),
    },
    Mutation {
        name: "survive-host-anonymous",
        guard: "a host that goes on has its identifier",
        file: "crates/controller/src/controller/restore.rs",
        from: "        subsystem.continue_host(controller.id, identifier);\n",
        to: "        let _ = identifier;\n",
        test: unit(
            "controller",
            "controller::tests::restart::a_host_keeps_its_identifier",
        ),
    },
    Mutation {
        name: "survive-posted-reply",
        guard: "a host that wants no reply gets none",
        file: SESSION,
        from: "if !request.header.no_reply() {",
        to: "if request.id > 0 {",
        test: holder(
            "hold::session::tests::a_posted_write_is_given_with_a_reply_that_goes_no_further",
        ),
    },
    Mutation {
        name: "survive-request-lost",
        guard: "the next worker gets the requests that have no reply",
        file: SESSION,
        from: "        self.given = 0;\n",
        to: "        self.given = self.pending.len();\n",
        test: holder("hold::session::tests::the_next_worker_gets_what_has_no_reply_and_in_order"),
    },
    Mutation {
        name: "survive-reply-unread",
        guard: "a reply that a worker sent before it died reaches the host",
        file: SESSION,
        from: "            match self.hear_worker() {",
        to: "            match Ok::<usize, Fate>(0) {",
        test: holder("hold::session::tests::the_next_worker_gets_what_has_no_reply_and_in_order"),
    },
    Mutation {
        name: "survive-refused-learnt",
        guard: "what the server refuses is not set up at the next worker",
        file: SESSION,
        from: "if Known::learns(request.header.command) && !header.is_error() {",
        to: "if Known::learns(request.header.command) {",
        test: holder("hold::session::tests::the_next_worker_learns_what_the_host_has_set_up"),
    },
    Mutation {
        name: "survive-memory-order",
        guard: "a host's memory is remembered in the order of its requests",
        file: SESSION,
        from: "given.position(|request| Known::learns(request.header.command))",
        to: "given.position(|request| request.is_granted)",
        test: holder("hold::session::tests::memory_is_remembered_in_the_order_of_the_requests"),
    },
    Mutation {
        name: "survive-host-keeps",
        guard: "a host cannot send what is between holder and worker",
        file: SESSION,
        from: "command if is_between(command) => Some(unknown(&header, is_host)),",
        to: "command if is_between(command) && header.id == 0 => Some(unknown(&header, is_host)),",
        test: holder("hold::session::tests::messages_between_holder_and_worker_are_no_host_s"),
    },
    Mutation {
        name: "survive-host-unbounded",
        guard: "a host makes the holder keep a bounded number of requests",
        file: SESSION,
        from: "self.pending.len() < MAX_PENDING && self.pending_len < MAX_PENDING_LEN",
        to: "self.pending_len < MAX_PENDING_LEN",
        test: holder("hold::session::tests::a_host_that_only_asks_is_read_to_a_limit"),
    },
    Mutation {
        name: "survive-unmap-forgotten",
        guard: "memory that a host has unmapped is not mapped at the next worker",
        file: "crates/holder/src/hold/known.rs",
        from: "            Command::DMA_UNMAP => self.unmap(&body),\n",
        to: "",
        test: holder("hold::known::tests::ranges_go_with_an_unmap"),
    },
    Mutation {
        name: "survive-irqs-grow",
        guard: "a request that sets an interrupt again replaces the one before",
        file: "crates/holder/src/hold/known.rs",
        from: "            self.irqs.retain(|irq| !key.replaces(&irq.key));\n",
        to: "            let _ = key.replaces(&key);\n",
        test: holder("hold::known::tests::the_last_request_for_an_interrupt_counts"),
    },
    Mutation {
        name: "survive-deaths-forever",
        guard: "a worker that dies again and again is not replaced for ever",
        file: "crates/holder/src/hold/child.rs",
        from: "        self.0.len() < Self::MAX\n",
        to: "        self.0.len() <= Self::MAX\n",
        test: holder("hold::child::tests::three_deaths_without_service_are_the_end"),
    },
    Mutation {
        name: "survive-first-connection",
        guard: "a host that connects while there is no worker is served by the next one",
        file: "crates/reactor/src/run/controllers.rs",
        from: "        self.poll_hosted(slot.0, self.clock.now(), Hosted::poll_door);\n",
        to: "",
        test: program("survive::a_host_that_connects_while_there_is_no_worker_is_served"),
    },
    Mutation {
        name: "survive-edited-configuration",
        guard: "the next process begins with the configuration that the last one had read",
        file: "crates/nvmirage/src/cli/serve.rs",
        from: "kept.map_or_else(|| config::text_of(file, read_text), Ok)?",
        to: "kept.map_or_else(|| config::text_of(file, read_text), |_| config::text_of(file, read_text))?",
        test: program("survive::an_edit_of_the_configuration_counts_when_it_is_reloaded"),
    },
    Mutation {
        name: "survive-memory-new",
        guard: "the next process has the bytes of a medium in memory",
        file: "crates/server/src/supervisor/media.rs",
        from: "Medium::open_kept(spec, holder.fetch(&name)?)",
        to: "Medium::open_kept(spec, holder.fetch(&name)?.filter(|_| false))",
        test: program("survive::a_host_keeps_bytes_features_and_requests_over_a_death"),
    },
    Mutation {
        name: "survive-unsupported-medium",
        guard: "a medium that would be lost is refused",
        file: "crates/server/src/survival.rs",
        from: "    if medium.timing.is_some() {",
        to: "    if medium.timing.is_some() && medium.vendor.is_some() {",
        test: program("survive::what_would_be_lost_is_refused"),
    },
];
