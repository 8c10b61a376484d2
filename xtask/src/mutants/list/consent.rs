//! Consent: what takes a drive from a host, data from a drive, or a change to another server, is
//! done where that is meant.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "consent-hosts",
        guard: "a host that is attached keeps its drive unless the operator means it",
        file: "crates/server/src/supervisor/hosts.rs",
        from: "Some(host) if !consent => refuse(&[host]),",
        to: "Some(host) if !consent && host.controller.is_empty() => refuse(&[host]),",
        test: program("consent::a_host_keeps_its_drive_unless_the_operator_means_it"),
    },
    Mutation {
        name: "consent-stop",
        guard: "a server with hosts does not stop unless the operator means it",
        file: "crates/server/src/supervisor/hosts.rs",
        from: "            refuse(&self.attached_hosts())?;",
        to: "            let _ = self.attached_hosts();",
        test: program("consent::a_host_keeps_its_drive_unless_the_operator_means_it"),
    },
    Mutation {
        name: "consent-ctrl-c",
        guard: "the first Ctrl-C in a terminal warns where hosts are attached",
        file: "crates/server/src/process/ctrl_c.rs",
        from: "        self.warned = Some(Instant::now());\n        false",
        to: "        self.warned = Some(Instant::now());\n        true",
        test: program("consent::ctrl_c_in_a_terminal_warns_once_where_hosts_are_attached"),
    },
    Mutation {
        name: "consent-bench",
        guard: "a bench that verifies reads overwrites data only where that is meant",
        file: "crates/lab/src/cli/bench/mod.rs",
        from: "if self.destroy_data || !(writes || self.verify) {",
        to: "if self.destroy_data || !writes {",
        test: program("consent::a_bench_that_would_overwrite_data_says_so_first"),
    },
    Mutation {
        name: "consent-bench-keys",
        guard: "a bench of keys spares keys that are not its own",
        file: "crates/lab/src/cli/kv/bench.rs",
        from: "        ensure!(!found, self.keys_taken());",
        to: "        let _ = (found, self.keys_taken());",
        test: program("consent::a_bench_of_keys_spares_those_of_others"),
    },
    Mutation {
        name: "address-fallback",
        guard: "a command that changes something never falls back to the system's server",
        file: "crates/client/src/address.rs",
        from: "let falls_back = intent == Intent::Read\n            && default.origin",
        to: "let falls_back = default.origin",
        test: unit(
            "client",
            "address::tests::what_changes_something_never_goes_to_the_server_of_the_system",
        ),
    },
    Mutation {
        name: "up-undo",
        guard: "what `up` has made goes again where it fails",
        file: "crates/nvmirage/src/cli/up/mod.rs",
        from: "                made.object(kind, word, name);",
        to: "                let _ = (kind, word);",
        test: program("up::a_drive_that_a_server_refuses_leaves_nothing_there"),
    },
    Mutation {
        name: "log-level",
        guard: "a word that is no level does not turn the log off",
        file: "crates/api/src/config/log.rs",
        from: "if LEVELS.iter().any(|one| level.eq_ignore_ascii_case(one)) {",
        to: "if !level.is_empty() {",
        test: unit(
            "api",
            "config::log::tests::a_filter_that_would_log_nothing_by_a_typo_is_refused",
        ),
    },
];
