//! Control: who may steer, what holds while they do, and how much they may take.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "api-if-match",
        guard: "what was changed meanwhile is not changed by who has not seen that",
        file: "crates/server/src/control/routes/item.rs",
        from: "if tags.any(|one| one == \"*\" || one == tag) {",
        to: "if tags.any(|_| true) {",
        test: program("api::objects_have_names_tags_and_conditions"),
    },
    Mutation {
        name: "api-put-differs",
        guard: "an object that differs is not confirmed",
        file: "crates/server/src/control/routes/item.rs",
        from: "if said.as_ref() == Some(&wanted) || present.config() == wanted {",
        to: "if said.is_some() {",
        test: program("api::objects_have_names_tags_and_conditions"),
    },
    Mutation {
        name: "api-token",
        guard: "over TCP nobody is heard without the token",
        file: "crates/server/src/control/token.rs",
        from: "scheme.eq_ignore_ascii_case(\"bearer\") && same",
        to: "scheme.eq_ignore_ascii_case(\"bearer\")",
        test: program("api_abuse::over_tcp_it_takes_the_token_and_the_address"),
    },
    Mutation {
        name: "dashboard-exempt",
        guard: "of what is answered without the token, everything is the dashboard's",
        file: "crates/server/src/control/dashboard/mod.rs",
        from: "(path == \"/\" || path.starts_with(ASSETS))",
        to: "path.starts_with('/')",
        test: program("dashboard::the_way_to_it_passes_on_what_has_its_token_and_address_alone"),
    },
    Mutation {
        name: "dashboard-loopback",
        guard: "the dashboard's own address is of this machine",
        file: "crates/server/src/control/dashboard/proxy.rs",
        from: "address.ip().is_loopback(),",
        to: "address.port() < u16::MAX,",
        test: program("dashboard::the_way_to_it_is_for_this_machine_and_a_server_that_runs"),
    },
    Mutation {
        name: "api-token-file",
        guard: "a token that others can read is none",
        file: "crates/server/src/control/token.rs",
        from: "metadata.mode() & 0o077 == 0,",
        to: "metadata.mode() != 0,",
        test: unit(
            "server",
            "control::token::tests::a_token_is_made_once_and_for_its_owner",
        ),
    },
    Mutation {
        name: "api-host",
        guard: "a page of another site cannot ask by a name of its own",
        file: "crates/server/src/control/guard.rs",
        from: "if !is_address(request.headers(), request.uri()) {",
        to: "if false {",
        test: program("api_abuse::over_tcp_it_takes_the_token_and_the_address"),
    },
    Mutation {
        name: "api-peer",
        guard: "only the server's user and root may steer",
        file: "crates/server/src/control/guard.rs",
        from: "uid == 0 || uid == rustix::process::geteuid().as_raw()",
        to: "uid == 0 || uid != u32::MAX",
        test: unit(
            "server",
            "control::guard::tests::its_user_and_root_may_steer_and_nobody_else",
        ),
    },
    Mutation {
        name: "api-body",
        guard: "a body that is too large is not read",
        file: "crates/server/src/control/guard.rs",
        from: "let read = Limited::new(body, MAX_BODY_LEN).collect().await;",
        to: "let read = Limited::new(body, usize::MAX).collect().await;",
        test: program("api_abuse::whatever_is_sent_it_says_what_is_wrong_and_serves_on"),
    },
    Mutation {
        name: "api-stall",
        guard: "a client that never reads is cut",
        file: "crates/server/src/control/stalling.rs",
        from: "Box::pin(sleep(bound)));",
        to: "Box::pin(sleep(1000 * bound)));",
        test: unit(
            "server",
            "control::stalling::tests::who_does_not_read_is_cut_and_who_reads_slowly_is_not",
        ),
    },
    Mutation {
        name: "api-events-lost",
        guard: "who comes too late for events is told that some are gone",
        file: "crates/server/src/events.rs",
        from: "let lost = first.saturating_sub(id.saturating_add(1));",
        to: "let lost = 0 * first;",
        test: unit(
            "server",
            "events::tests::the_last_are_kept_and_who_is_late_is_told",
        ),
    },
];
