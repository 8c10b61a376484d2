//! Which interrupts a host gets, and when.

use super::super::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "pin-level",
        guard: "the pin is asserted while entries are not acknowledged",
        file: "crates/controller/src/controller/interrupts.rs",
        from: "let asserted = by_pin && self.is_asserted(lanes);",
        to: "let asserted = by_pin && self.admin.is_none();",
        test: unit(
            "controller",
            "controller::tests::interrupts::the_pin_falls_with_a_reset_and_with_a_deleted_queue",
        ),
    },
    Mutation {
        name: "pin-mask",
        guard: "a vector masked by INTMS asserts nothing",
        file: "crates/controller/src/controller/interrupts.rs",
        from: "lane.asserts_pin() && !masked",
        to: "lane.asserts_pin() || masked",
        test: unit(
            "controller",
            "controller::tests::interrupts::intms_holds_the_pin_down_and_intmc_lets_it_rise",
        ),
    },
    Mutation {
        name: "mask-end",
        guard: "an interrupt that a mask deferred is raised when the mask ends",
        file: "crates/controller/src/controller/interrupts.rs",
        from: "if unmasked || mechanism != state.mechanism {",
        to: "if unmasked && mechanism != state.mechanism {",
        test: unit(
            "controller",
            "controller::tests::interrupts::a_message_is_sent_when_its_mask_goes_and_entries_are_unacknowledged",
        ),
    },
    Mutation {
        name: "withheld-deadline",
        guard: "a coalesced interrupt is raised when its time is over",
        file: "crates/controller/src/controller/interrupts.rs",
        from: "        state.due = Some(state.due.map_or(due, |first| first.min(due)));\n        true\n",
        to: "        let _ = due;\n        true\n",
        test: unit(
            "controller",
            "controller::tests::coalescing::the_time_counts_from_the_first_entry",
        ),
    },
    Mutation {
        name: "withheld-wakes",
        guard: "a reactor sleeps no longer than a withheld interrupt may wait",
        file: "crates/controller/src/controller/exchange.rs",
        from: "let others = stage.chain(silent).chain(withheld);",
        to: "let others = stage.chain(silent).chain(withheld.filter(|_| false));",
        test: unit(
            "controller",
            "controller::tests::coalescing::the_time_counts_from_the_first_entry",
        ),
    },
    Mutation {
        name: "failed-at-once",
        guard: "the interrupt of a command that failed is not withheld",
        file: "crates/controller/src/controller/interrupts.rs",
        from: "if !coalesced || posted.failed || withheld.is_due(state.coalescing, now) {",
        to: "if !coalesced || withheld.is_due(state.coalescing, now) {",
        test: unit(
            "controller",
            "controller::tests::coalescing::a_command_that_failed_is_told_at_once",
        ),
    },
    Mutation {
        name: "pin-once",
        guard: "the pin is triggered once until the host has unmasked it",
        file: "crates/transport/src/vfio_user/interrupts/mod.rs",
        from: "            self.line.masked = self.triggered;\n",
        to: "",
        test: integration(
            "transport",
            &["--lib"],
            "vfio_user::interrupts::pin_tests::it_is_triggered_once_until_it_is_unmasked",
        ),
    },
    Mutation {
        name: "polls-acknowledged",
        guard: "only a host that has consumed everything is not interrupted",
        file: "crates/controller/src/lane/polling.rs",
        from: "if !queues.is_unacknowledged() && queues.service.is_serving()",
        to: "if queues.service.is_serving()",
        test: unit(
            "controller",
            "lane::tests::polling::a_host_that_waits_is_told_of_every_batch",
        ),
    },
    Mutation {
        name: "polls-patience",
        guard: "a host that has stopped polling is interrupted after some turns",
        file: "crates/controller/src/lane/polling.rs",
        from: "queues.patience -= 1;",
        to: "queues.patience -= 0;",
        test: unit(
            "controller",
            "lane::tests::polling::one_that_has_stopped_polling_is_told_after_some_turns_and_then_at_once",
        ),
    },
    Mutation {
        name: "bus-interrupts",
        guard: "without bus mastering no interrupt goes by MSI",
        file: "crates/transport/src/vfio_user/interrupts/mod.rs",
        from: "                    line.deliver(self.msi_masked);\n                }\n            }\n            Interrupt::Pin",
        to: "                    line.deliver(false);\n                }\n            }\n            Interrupt::Pin",
        test: unit(
            "transport",
            "vfio_user::interrupts::tests::without_bus_mastering_vectors_and_messages_wait_and_the_pin_does_not",
        ),
    },
    Mutation {
        name: "bus-admin",
        guard: "without bus mastering no admin command is fetched",
        file: "crates/controller/src/controller/admin/mod.rs",
        from: "        if !self.serves_admin() {\n            return false;\n        }\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::bus::nothing_is_fetched_or_posted_without_bus_mastering_and_all_of_it_follows",
        ),
    },
    Mutation {
        name: "bus-drain",
        guard: "the bus is left when nothing is in flight",
        file: "crates/controller/src/lane/control.rs",
        from: "Some(Awaits::Commands) => self.outstanding() == 0,",
        to: "Some(Awaits::Commands) => true,",
        test: unit(
            "controller",
            "controller::tests::bus::what_is_with_a_medium_ends_before_the_bus_is_left",
        ),
    },
    Mutation {
        name: "admin-event-idx",
        guard: "a host that uses doorbell buffers for queue 0 is asked to ring",
        file: "crates/controller/src/controller/admin/queue.rs",
        from: "        self.sq.arm(bells);\n        self.cq.arm(bells);\n        memory::full_fence();\n",
        to: "        let _ = bells;\n",
        test: unit(
            "controller",
            "controller::tests::doorbell_buffers::a_host_that_uses_the_buffers_for_queue_0_is_asked_to_ring_for_every_admin_command",
        ),
    },
];
