//! What a state of an ANA group does, for whom, and who is notified.

use super::super::{Mutation, Test, unit};

const fn controller(name: &'static str) -> Test {
    unit("controller", name)
}

const STATES: Test = unit(
    "subsystem",
    "subsystem::tests::dynamic::states_of_groups_are_an_entrances_and_restrict_its_hosts_alone",
);

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "ana-entrance",
        guard: "a host's controller has the states of its entrance",
        file: "crates/subsystem/src/subsystem/mod.rs",
        from: "self.directory.ana_state(self.entrance_of(id), group)",
        to: "self.directory.ana_state(id, group)",
        test: STATES,
    },
    Mutation {
        name: "ana-refusal-first",
        guard: "a path related status comes before one by which a host looks for no other path",
        file: "crates/subsystem/src/directory.rs",
        from: "restrictions.all = refusal.or(lock).or(restrictions.all);",
        to: "restrictions.all = lock.or(restrictions.all).or(refusal);",
        test: STATES,
    },
    Mutation {
        name: "ana-retry",
        guard: "a command that a state refuses may be sent by another path",
        file: "crates/port/src/status.rs",
        from: "            | Status::ASYMMETRIC_ACCESS_INACCESSIBLE\n",
        to: "",
        test: unit(
            "port",
            "status::tests::do_not_retry_stands_with_the_hosts_mistakes_only",
        ),
    },
    Mutation {
        name: "ana-same-states",
        guard: "states that are set again change nothing",
        file: "crates/subsystem/src/access.rs",
        from: "let is_changed = before != states;",
        to: "let is_changed = before != states || true;",
        test: STATES,
    },
    Mutation {
        name: "ana-leave",
        guard: "states of an entrance do not close the next controller of its name",
        file: "crates/subsystem/src/subsystem/mod.rs",
        from: "        self.set_ana_states(id, AnaStates::new());\n",
        to: "",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::states_of_groups_end_with_their_entrance",
        ),
    },
    Mutation {
        name: "ana-event",
        guard: "a namespace that comes or goes is no event of its group",
        file: "crates/controller/src/controller/admin/access.rs",
        from: "is_news |= group.state != state;",
        to: "is_news = true;",
        test: controller(
            "controller::tests::access::counts_start_at_a_reset_and_follow_what_the_page_shows",
        ),
    },
    Mutation {
        name: "ana-gone",
        guard: "a state that changes while its group has no namespace is notified",
        file: "crates/controller/src/controller/admin/access.rs",
        from: "        self.gone.extend(gone);\n",
        to: "        drop(gone);\n",
        test: controller(
            "controller::tests::access::a_state_that_changes_while_its_group_has_no_namespace_is_notified_when_it_has_one",
        ),
    },
    Mutation {
        name: "ana-flush-all",
        guard: "a flush of all namespaces does not succeed where the path to one is closed",
        file: "crates/controller/src/lane/issue.rs",
        from: "            return Issued::Ended(refusal);\n",
        to: "            let _ = refusal;\n",
        test: controller(
            "lane::tests::commands::flush_of_all_namespaces_is_refused_where_the_path_to_one_is_closed",
        ),
    },
    Mutation {
        name: "ana-fused",
        guard: "a host sends both commands of a pair by another path",
        file: "crates/controller/src/lane/fused.rs",
        from: "            return Err(both(refusal));\n",
        to: "            return Err(refused(refusal));\n",
        test: controller(
            "lane::tests::fused::a_closed_path_refuses_both_and_a_host_may_send_both_again",
        ),
    },
    Mutation {
        name: "ana-reset",
        guard: "change counts begin again with a reset",
        file: "crates/controller/src/controller/exchange.rs",
        from: "            self.logs.ana = AnaLog::default();\n",
        to: "",
        test: controller(
            "controller::tests::access::counts_start_at_a_reset_and_follow_what_the_page_shows",
        ),
    },
    Mutation {
        name: "ana-admin",
        guard: "no admin command changes a namespace of an inaccessible group",
        file: "crates/controller/src/controller/admin/mod.rs",
        from: "        self.check_access(sqe, subsystem)?;\n",
        to: "",
        test: controller(
            "controller::tests::access::admin_commands_to_an_inaccessible_namespace_are_refused",
        ),
    },
    Mutation {
        name: "ana-function-notices",
        guard: "a PCI function has no ANA change notices",
        file: "crates/controller/src/controller/admin/features/values.rs",
        from: ".with_anacn(e.anacn() && over_fabrics)",
        to: ".with_anacn(e.anacn() || over_fabrics && false)",
        test: controller(
            "controller::tests::access::a_change_of_state_is_notified_where_it_is_asked_for",
        ),
    },
    Mutation {
        name: "ana-function-log",
        guard: "a PCI function has no ANA log page",
        file: "crates/controller/src/controller/admin/access.rs",
        from: "self.config.is_over_fabrics().then_some(&self.logs.ana)",
        to: "Some(&self.logs.ana)",
        test: controller("controller::tests::access::the_log_has_each_group_that_has_namespaces"),
    },
    Mutation {
        name: "ana-group",
        guard: "a group is 1 to 128",
        file: "crates/api/src/config/ana.rs",
        from: "(1..=MAX_ANA_GROUP).contains(number)",
        to: "(1..=MAX_ANA_GROUP + 1).contains(number)",
        test: unit(
            "api",
            "config::ana::tests::what_is_no_group_or_no_state_is_refused",
        ),
    },
    Mutation {
        name: "ana-other-groups",
        guard: "a group keeps its state when another one is set",
        file: "crates/api/src/change.rs",
        from: "        Value::Object(all) => all,",
        to: "        Value::Object(_) => Map::new(),",
        test: unit(
            "api",
            "change::tests::a_table_changes_the_parts_that_it_has",
        ),
    },
    Mutation {
        name: "ana-whole-and-part",
        guard: "a change of a part is not lost to one of the whole key",
        file: "crates/client/src/cli/set.rs",
        from: "            && let Some(part) = parts.keys().next()\n",
        to: "            && let Some(part) = parts.keys().nth(1)\n",
        test: unit(
            "client",
            "cli::set::tests::a_key_changes_as_a_whole_or_by_its_parts",
        ),
    },
];
