//! Who may connect over NVMe/TCP, and who only says so.

use super::super::{Mutation, Test, integration, program, unit};

/// A test of hosts over a controller.
const fn host(name: &'static str) -> Test {
    integration("transport", &["--test", "transport"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "authentication-proof",
        guard: "a proof is compared",
        file: "crates/authentication/src/hash.rs",
        from: "    one.ct_eq(other).into()",
        to: "    one.len() == other.len()",
        test: unit(
            "authentication",
            "tests::a_constant_answer_or_another_name_is_refused",
        ),
    },
    Mutation {
        name: "authentication-group",
        guard: "a value whose powers are known is refused",
        file: "crates/authentication/src/group.rs",
        from: " || value < least || value > most {",
        to: " {",
        test: unit("authentication", "tests::fields_of_a_reply_are_checked"),
    },
    Mutation {
        name: "authentication-controller",
        guard: "a host takes only a controller that has proved its secret",
        file: "crates/authentication/src/host.rs",
        from: "        if !same(owed, take(&mut rest, self.hl.into())?) {",
        to: "        if take(&mut rest, self.hl.into())?.is_empty() {",
        test: unit(
            "authentication",
            "tests::wrong_secrets_are_refused_on_both_sides",
        ),
    },
    Mutation {
        name: "authentication-gate",
        guard: "nothing else is served before a host has proved its secret",
        file: "crates/transport/src/nvme_tcp/judge.rs",
        from: "    if limits.gate == Gate::Closed && !(is_fabrics",
        to: "    if limits.small == 0 && !(is_fabrics",
        test: host(
            "nvme_tcp::authentication::nothing_else_is_served_before_a_host_has_proved_its_secret",
        ),
    },
    Mutation {
        name: "authentication-io-queue",
        guard: "an I/O queue serves nothing before its host has proved its secret there",
        file: "crates/transport/src/nvme_tcp/newcomer.rs",
        from: "    if connect.is_discovery || connect.generated.is_some() {",
        to: "    if connect.qid > 0 || connect.is_discovery {",
        test: host(
            "nvme_tcp::authentication::an_io_queue_of_a_proved_host_serves_only_one_that_proves_it_again",
        ),
    },
    Mutation {
        name: "authentication-fused",
        guard: "a message is no half of a pair",
        file: "crates/transport/src/nvme_tcp/judge.rs",
        from: "    if is_fused || (cdw10",
        to: "    if (is_fused && sqe.cdw11 == 0) || (cdw10",
        test: host(
            "nvme_tcp::authentication::an_io_queue_of_a_proved_host_serves_only_one_that_proves_it_again",
        ),
    },
    Mutation {
        name: "authentication-time",
        guard: "an exchange has a time limit",
        file: "crates/transport/src/nvme_tcp/queue/messages.rs",
        from: "            Outcome::Pending if now >= until =>",
        to: "            Outcome::Pending if now.0 == u64::MAX =>",
        test: host("nvme_tcp::authentication::an_exchange_has_a_time_limit_whatever_its_host_does"),
    },
    Mutation {
        name: "authentication-busy",
        guard: "the exchanges in progress are limited",
        file: "crates/transport/src/secure/places.rs",
        from: " || all.values().sum::<usize>() >= most {",
        to: " {",
        test: host("nvme_tcp::authentication::exchanges_are_limited_for_each_host_and_for_all"),
    },
    Mutation {
        name: "authentication-busy-host",
        guard: "one host does not have the exchanges of all",
        file: "crates/transport/src/secure/places.rs",
        from: "        if taken >= of_one ||",
        to: "        if taken >= most ||",
        test: host("nvme_tcp::authentication::exchanges_are_limited_for_each_host_and_for_all"),
    },
    Mutation {
        name: "authentication-pending",
        guard: "those that have proved nothing take no host's place",
        file: "crates/reactor/src/hosted/places.rs",
        from: "let taken = self.all.len() - self.pending.len() - leaving;",
        to: "let taken = self.all.len() - leaving;",
        test: unit(
            "reactor",
            "hosted::places::tests::those_that_have_proved_nothing_take_no_place_of_a_host",
        ),
    },
    Mutation {
        name: "authentication-identity",
        guard: "a Host Identifier counts when its host has proved its secret",
        file: "crates/controller/src/controller/fabrics.rs",
        from: "        if association.is_claimed || !std",
        to: "        if !std",
        test: unit(
            "controller",
            "controller::tests::fabrics::a_host_is_introduced_when_it_has_proved_who_it_is",
        ),
    },
    Mutation {
        name: "authentication-identifier",
        guard: "a host does not act as another one in reservations",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "is_some_and(|other| other != nqn))",
        to: "is_some_and(|other| other == \"\"))",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::a_host_identifier_is_of_one_name_while_its_host_is_there",
        ),
    },
    Mutation {
        name: "access-allow",
        guard: "a host that is not allowed is refused",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "    if !is_discovery && !config.access.admits(nqn) {",
        to: "    if is_discovery && !config.access.admits(nqn) {",
        test: host("nvme_tcp::authentication::a_host_that_is_not_allowed_is_refused"),
    },
    Mutation {
        name: "access-nameless",
        guard: "a host without a name is none of those that are allowed",
        file: "crates/transport/src/nvme_tcp/connect.rs",
        from: "    if !is_discovery && !config.access.admits(nqn) {",
        to: "    if !is_discovery && !nqn.is_empty() && !config.access.admits(nqn) {",
        test: host("nvme_tcp::authentication::a_host_that_is_not_allowed_is_refused"),
    },
    Mutation {
        name: "access-mask",
        guard: "a namespace for certain hosts is hidden from others",
        file: "crates/subsystem/src/subsystem/dynamic.rs",
        from: "hosts.iter().any(|host| host == nqn)",
        to: "hosts.iter().any(|host| host != nqn || host == nqn)",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::a_namespace_for_certain_hosts_is_hidden_from_others",
        ),
    },
    Mutation {
        name: "access-news",
        guard: "changes of a hidden namespace are no news",
        file: "crates/subsystem/src/subsystem/mod.rs",
        from: "member.present && concerned && sees && Some(member.id) != by",
        to: "member.present && concerned && (sees || by.is_some()) && Some(member.id) != by",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::changes_of_a_hidden_namespace_are_no_news",
        ),
    },
    Mutation {
        name: "access-notices",
        guard: "reservations of a hidden namespace are no news",
        file: "crates/subsystem/src/subsystem/reserve.rs",
        from: "                    && m.sees(namespace.hosts.as_deref())\n",
        to: "",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::reservations_of_a_hidden_namespace_are_no_news",
        ),
    },
    Mutation {
        name: "access-attached",
        guard: "a namespace that no controller lists stays hidden after a restart",
        file: "crates/server/src/supervisor/subsystems.rs",
        from: "            let mut all = aim.namespace.iter();\n",
        to: "            let mut all = aim.namespaces_of(name).into_iter();\n",
        test: program(
            "network::secure::a_namespace_that_was_attached_stays_hidden_after_a_restart",
        ),
    },
    Mutation {
        name: "access-reload",
        guard: "a host that a reload gives a secret is a host no longer before it has proved it",
        file: "crates/transport/src/nvme_tcp/access.rs",
        from: "            Proof::Unasked => !is_asked,\n",
        to: "            Proof::Unasked => true,\n",
        test: program("network::secure::a_host_that_gets_a_secret_by_a_reload_has_to_prove_it"),
    },
    Mutation {
        name: "access-reload-gone",
        guard: "a host that a reload takes away is disconnected",
        file: "crates/transport/src/nvme_tcp/access.rs",
        from: "            (Some(_), None) => false,\n",
        to: "            (Some(_), None) => true,\n",
        test: program("network::secure::a_reload_allows_the_hosts_of_the_file_with_their_secrets"),
    },
    Mutation {
        name: "access-reload-name",
        guard: "a reload gives a namespace to no other host",
        file: "crates/server/src/supervisor/reload.rs",
        from: "        refuse_other_names(&self.config, &file, &plan)?;\n",
        to: "",
        test: program("network::secure::a_namespace_stays_visible_to_the_host_that_it_is_for"),
    },
    Mutation {
        name: "access-manage",
        guard: "a host manages no namespace that is hidden from it",
        file: "crates/subsystem/src/subsystem/plan.rs",
        from: "        let is_hidden = |n: &Allocated| !self.is_visible(n, by);",
        to: "        let is_hidden = |n: &Allocated| n.nsid() == 0 && !self.is_visible(n, by);",
        test: unit(
            "subsystem",
            "subsystem::tests::dynamic::a_namespace_for_certain_hosts_is_hidden_from_others",
        ),
    },
    Mutation {
        name: "access-file-mode",
        guard: "a secret that others may read is refused",
        file: "crates/machine/src/secret.rs",
        from: "metadata.mode() & 0o077 == 0",
        to: "metadata.mode() & 0o007 == 0",
        test: unit("machine", "secret::tests::only_a_private_file_is_read"),
    },
    Mutation {
        name: "access-consent",
        guard: "an address for other machines needs a secret of every host",
        file: "crates/api/src/config/host.rs",
        from: "all.iter().all(|(_, host)| host.is_some_and(has_key))",
        to: "all.iter().any(|(_, host)| host.is_some_and(has_key))",
        test: unit(
            "api",
            "config::host::tests::an_address_for_others_needs_a_key_of_every_host_or_consent",
        ),
    },
];
