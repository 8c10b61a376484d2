//! Tenants: who may go, what is counted, and what is forgotten.

use super::super::{Mutation, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "tenants-flows",
        guard: "namespaces that a host makes for ever take no more room",
        file: "crates/engine/src/tenants/mod.rs",
        from: "if flows.len() < FLOWS {",
        to: "if flows.len() < usize::MAX {",
        test: unit(
            "engine",
            "tenants::tests::namespaces_that_are_made_for_ever_take_no_more_room",
        ),
    },
    Mutation {
        name: "tenants-in-flight",
        guard: "a namespace of which a medium has commands keeps its place",
        file: "crates/engine/src/tenants/mod.rs",
        from: ".find(|at| self.flows[**at].claim.in_flight == 0);",
        to: ".find(|_| true);",
        test: unit(
            "engine",
            "tenants::tests::a_namespace_with_commands_in_flight_keeps_its_place",
        ),
    },
    Mutation {
        name: "tenants-told",
        guard: "each engine reports the figures of a tenant once",
        file: "crates/engine/src/tenants/figures.rs",
        from: "        self.sent = now;\n",
        to: "",
        test: unit(
            "engine",
            "tenants::tests::what_a_tenant_had_is_the_sum_of_all_engines",
        ),
    },
    Mutation {
        name: "tenants-gone",
        guard: "a deleted tenant defers no other",
        file: "crates/engine/src/tenants/mod.rs",
        from: "            *tenant = None;\n",
        to: "",
        test: unit("engine", "tenants::tests::a_deleted_tenant_defers_no_other"),
    },
    Mutation {
        name: "tenants-deleted-queue",
        guard: "a command that waits for its tenant's turn ends with its queue",
        file: "crates/controller/src/lane/control.rs",
        from: "        self.drop_held(Status::ABORTED_SQ_DELETION, |slot| slot.sqid() == sqid);\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::held::what_waits_is_aborted_deleted_and_dropped",
        ),
    },
    Mutation {
        name: "tenants-last-number",
        guard: "no flow has a number that a slot cannot store",
        file: "crates/engine/src/tenants/mod.rs",
        from: "if self.flows.len() >= FlowId::LIMIT {",
        to: "if self.flows.len() > FlowId::LIMIT {",
        test: unit("engine", "tenants::tests::the_number_65535_is_no_flows"),
    },
    Mutation {
        name: "tenants-leave",
        guard: "what a medium has of a tenant is counted until it has ended",
        file: "crates/controller/src/lane/release.rs",
        from: "            && slot.outstanding == 1\n",
        to: "            && slot.outstanding == u16::MAX\n",
        test: unit(
            "controller",
            "lane::tests::held::every_command_that_a_medium_has_leaves_the_gate_once",
        ),
    },
];
