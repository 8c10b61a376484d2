//! Hosts that come over a network, each to a controller of its own.

use super::super::{Mutation, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "dynamic-id-late",
        guard: "a dynamic controller's identifier is given again as late as possible",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "        self.next_dynamic = after(id);\n",
        to: "",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::an_identifier_is_given_again_as_late_as_possible",
        ),
    },
    Mutation {
        name: "dynamic-id-process",
        guard: "the next process begins with another identifier",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "DYNAMIC_IDS.start() + (process % count) as u16",
        to: "DYNAMIC_IDS.start() + (process % count / count) as u16",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::another_process_begins_with_another_identifier",
        ),
    },
    Mutation {
        name: "dynamic-limit",
        guard: "a subsystem has a limit of hosts over networks",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "if dynamic.count() >= MAX_DYNAMIC_CONTROLLERS {",
        to: "if dynamic.count() > MAX_DYNAMIC_CONTROLLERS {",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::there_are_256_at_most",
        ),
    },
    Mutation {
        name: "dynamic-outstanding",
        guard: "a dynamic controller that leaves waits for its operations",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "let is_over = member.outstanding == 0;",
        to: "let is_over = member.outstanding < 2;",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::one_that_left_keeps_its_place_until_its_operations_have_ended",
        ),
    },
    Mutation {
        name: "dynamic-operations",
        guard: "a dynamic controller has fewer operations outstanding",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "Some(_) => OUTSTANDING_LIMIT_DYNAMIC,",
        to: "Some(_) => OUTSTANDING_LIMIT,",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::it_has_1024_operations_outstanding_at_most",
        ),
    },
    Mutation {
        name: "dynamic-changes",
        guard: "a dynamic controller learns of changes of what its entrance has",
        file: "crates/subsystem/src/subsystem/mod.rs",
        from: "let attached = member.entrance();",
        to: "let attached = member.id;",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::it_sees_what_its_entrance_sees_and_learns_of_changes",
        ),
    },
    Mutation {
        name: "dynamic-notices",
        guard: "a dynamic controller gets its host's reservation notifications",
        file: "crates/subsystem/src/subsystem/reserve.rs",
        from: "namespace.attached.contains(m.entrance())",
        to: "namespace.attached.contains(m.id)",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::a_host_is_notified_on_each_of_its_paths",
        ),
    },
    Mutation {
        name: "dynamic-marks",
        guard: "a dynamic controller marks blocks of its entrance's namespaces",
        file: "crates/subsystem/src/subsystem/plan.rs",
        from: "        let attached = |n: &&Allocated| self.is_attached(n, controller);\n        let namespace = ",
        to: "        let attached = |n: &&Allocated| n.attached.contains(controller);\n        let namespace = ",
        test: unit(
            "controller",
            "controller::tests::fabrics::a_mark_of_one_host_is_read_by_another",
        ),
    },
    Mutation {
        name: "dynamic-answers",
        guard: "no answer of a dynamic controller is kept for another process",
        file: "crates/subsystem/src/subsystem/progress.rs",
        from: "if controller.is_dynamic() {",
        to: "if !controller.is_dynamic() && controller.0 == 0 {",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::nothing_of_it_is_in_the_record",
        ),
    },
    Mutation {
        name: "dynamic-anonymous",
        guard: "no registration of a host without identifier outlives its dynamic controller",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "        self.forget_host(Host::Anonymous(id));\n",
        to: "",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::nothing_of_it_is_in_the_record",
        ),
    },
    Mutation {
        name: "dynamic-restore",
        guard: "no process goes on with a dynamic controller",
        file: "crates/controller/src/controller/restore.rs",
        from: "if config.is_over_fabrics() {",
        to: "if config.is_over_fabrics() && config.queues == 0 {",
        test: unit(
            "controller",
            "controller::tests::fabrics::no_process_goes_on_with_it",
        ),
    },
    Mutation {
        name: "fabrics-attach",
        guard: "a list of controllers to attach has configured ones alone",
        file: "crates/controller/src/controller/admin/namespaces.rs",
        from: "(set.len() == count).then_some(set).ok_or(invalid)",
        to: "(set.len() <= count).then_some(set).ok_or(invalid)",
        test: unit(
            "controller",
            "controller::tests::fabrics::namespaces_are_attached_to_the_entrance",
        ),
    },
    Mutation {
        name: "fabrics-effects",
        guard: "a host over a network is offered no commands of queues",
        file: "crates/controller/src/controller/admin/mod.rs",
        from: "let queues = (!self.config.is_over_fabrics()).then_some(QUEUES);",
        to: "let queues = Some(QUEUES);",
        test: unit(
            "controller",
            "controller::tests::fabrics::effects_are_of_commands_that_a_host_may_send",
        ),
    },
    Mutation {
        name: "fabrics-host-identifier",
        guard: "a host over a network has the identifier that it connected with",
        file: "crates/controller/src/controller/admin/features/mod.rs",
        from: "if !traits.changeable {",
        to: "if !traits.changeable && traits.saveable {",
        test: unit(
            "controller",
            "controller::tests::fabrics::the_host_identifier_is_that_of_connect",
        ),
    },
    Mutation {
        name: "fabrics-reset",
        guard: "a reset keeps what Connect has set",
        file: "crates/controller/src/controller/exchange.rs",
        from: "            self.host.stays();\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::fabrics::the_host_identifier_is_that_of_connect",
        ),
    },
    Mutation {
        name: "fabrics-nssr",
        guard: "a host over a network resets no other host's controller",
        file: "crates/controller/src/registers.rs",
        from: "NSSR if value == NSSR_MAGIC && self.cap.nssrs() =>",
        to: "NSSR if value == NSSR_MAGIC =>",
        test: unit(
            "controller",
            "controller::tests::fabrics::cap_offers_what_a_host_over_a_network_can_use",
        ),
    },
    Mutation {
        name: "fabrics-heard",
        guard: "traffic of any kind keeps a host over a network alive",
        file: "crates/controller/src/controller/admin/keep_alive.rs",
        from: "        if self.host.take_heard() {\n            self.restart_keep_alive();\n        }\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::fabrics::all_that_comes_from_a_host_keeps_it_alive",
        ),
    },
    Mutation {
        name: "fabrics-grace",
        guard: "a reactor that was stopped blames no host",
        file: "crates/controller/src/controller/admin/keep_alive.rs",
        from: "            self.admin.keep_alive_late = Some(self.now);\n            return;\n",
        to: "            self.admin.keep_alive_late = Some(self.now);\n",
        test: unit(
            "controller",
            "controller::tests::fabrics::a_reactor_that_was_stopped_blames_no_host",
        ),
    },
    Mutation {
        name: "fabrics-silent",
        guard: "a host that connects and falls silent ends",
        file: "crates/controller/src/controller/admin/keep_alive.rs",
        from: "self.admin.queue.is_some() || self.waits_for_enable();",
        to: "self.admin.queue.is_some();",
        test: unit(
            "controller",
            "controller::tests::fabrics::the_timer_runs_from_connect_on",
        ),
    },
];
