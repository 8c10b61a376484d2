//! The tables of keys.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "keys-bounds",
        guard: "a value outside a key's bounds is refused",
        file: "crates/api/src/config/object/mod.rs",
        from: "if value.is_null() || is_off || self.bounds.hold(value) {",
        to: "if value.is_null() || is_off || self.bounds.hold(value) || true {",
        test: unit("api", "config::object::tests::an_error_says_what_to_write"),
    },
    Mutation {
        name: "keys-fixed",
        guard: "only live keys change while an object is served",
        file: "crates/api/src/config/object/mod.rs",
        from: "            Some(key) if key.when == When::Live => Ok(key),",
        to: "            Some(key) => Ok(key),",
        test: unit("api", "config::object::tests::only_live_keys_change"),
    },
    Mutation {
        name: "keys-line",
        guard: "unknown keys of an object are refused, with its known keys",
        file: "crates/api/src/config/object/mod.rs",
        from: "        #[serde(deny_unknown_fields)]\n        struct $written {",
        to: "        struct $written {",
        test: unit(
            "api",
            "config::object::tests::errors_have_a_line_and_the_known_keys",
        ),
    },
    Mutation {
        name: "keys-taken",
        guard: "a reload takes only the live keys of an object that stays",
        file: "crates/api/src/config/object/mod.rs",
        from: "if when == $crate::config::object::When::$when {",
        to: "if when != $crate::config::object::When::Restart {",
        test: unit(
            "api",
            "config::object::tests::what_changes_live_is_taken_and_nothing_else",
        ),
    },
    Mutation {
        name: "tcp-anonymous",
        guard: "an address that other machines reach is served with the operator's consent only",
        file: "crates/api/src/config/over_tcp.rs",
        from: "                || address.ip().to_canonical().is_loopback()\n",
        to: "                || address.port() > 0\n",
        test: unit(
            "api",
            "config::over_tcp::tests::only_loopback_is_served_without_consent",
        ),
    },
    Mutation {
        name: "tcp-one-address",
        guard: "an address of all interfaces is refused beside one of them",
        file: "crates/api/src/config/listen.rs",
        from: "all == ip || all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4())",
        to: "all == ip",
        test: unit(
            "api",
            "config::over_tcp::tests::the_table_is_only_for_tcp_and_addresses_are_used_once",
        ),
    },
    Mutation {
        name: "tcp-least-memory",
        guard: "a host's memory holds two of its largest commands",
        file: "crates/api/src/config/over_tcp.rs",
        from: "self.max_transfer.0.saturating_mul(2)",
        to: "self.max_transfer.0",
        test: unit(
            "api",
            "config::over_tcp::tests::each_key_without_effect_is_refused_by_name",
        ),
    },
    Mutation {
        name: "tcp-host-text",
        guard: "a host's text reaches a terminal without its control characters",
        file: "crates/client/src/cli/hosts.rs",
        from: "nqn => nqn.escape_debug().to_string(),",
        to: "nqn => nqn.to_owned(),",
        test: unit("client", "cli::hosts::tests::each_host_has_a_row"),
    },
    Mutation {
        name: "tcp-last-host",
        guard: "a controller has hosts until its last one has left",
        file: "crates/reactor/src/presence.rs",
        from: "        if hosts.is_empty() {",
        to: "        if hosts.len() < count {",
        test: unit(
            "reactor",
            "presence::tests::hosts_over_tcp_come_change_and_go_one_by_one",
        ),
    },
    Mutation {
        name: "keys-of-a-kind",
        guard: "a medium has only the keys of its kind",
        file: "crates/api/src/config/medium/keys.rs",
        from: "key.kinds.contains(&self.kind))",
        to: "!key.kinds.contains(&self.kind))",
        test: unit(
            "api",
            "config::medium::keys::tests::each_kind_has_its_keys_and_no_other",
        ),
    },
    Mutation {
        name: "records-live",
        guard: "a controller's live keys reach its queues",
        file: "crates/reactor/src/run/controllers.rs",
        from: "    watching.records = keys.records.into();",
        to: "    watching.records = watching.records.max(256);",
        test: program("sample::as_many_commands_are_kept_as_one_wants"),
    },
    Mutation {
        name: "records-ring",
        guard: "a ring of another size takes the place of the one that is there",
        file: "crates/controller/src/controller/flights.rs",
        from: "records.filter(|records| records.room() == spec.records.max(1));",
        to: "records.filter(|_| true);",
        test: program("sample::as_many_commands_are_kept_as_one_wants"),
    },
];
