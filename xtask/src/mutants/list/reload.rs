//! The configuration file, read again.

use super::super::{Mutation, integration, of_program};

const PROGRAM: &[&str] = &["--test", "program"];

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "reload-host-keeps-its-drive",
        guard: "a reload takes no drive from a host that nobody said may lose it",
        file: "crates/nvmirage/src/reload/hold.rs",
        from: "if ends && !self.consent && self.served.hosts.contains(name) {",
        to: "if ends && self.consent && self.served.hosts.contains(name) {",
        test: of_program(
            "reload::tests::a_plan_that_is_carried_out_gives_what_was_wanted_and_is_then_empty",
        ),
    },
    Mutation {
        name: "reload-users-first",
        guard: "nothing is deleted before those who use it",
        file: "crates/nvmirage/src/reload/order.rs",
        from: "if dropped || self.fate(Kind::Namespace, namespace).ends() {",
        to: "if dropped {",
        test: of_program("reload::tests::what_is_used_goes_after_its_users_and_comes_before_them"),
    },
    Mutation {
        name: "reload-memory-is-not-lost",
        guard: "a medium in memory is not made anew, as its bytes would be gone",
        file: "crates/nvmirage/src/reload/hold.rs",
        from: "if is_remade && loses_bytes(&medium) {",
        to: "if is_remade && !loses_bytes(&medium) {",
        test: of_program("reload::tests::what_would_lose_something_stays_and_says_what_to_do"),
    },
    Mutation {
        name: "reload-pending-is-kept",
        guard: "what is deleted to be made anew is in the record meanwhile",
        file: "crates/nvmirage/src/reload/mod.rs",
        from: "                None => now.push(one.clone()),",
        to: "                None => {}",
        test: of_program(
            "reload::tests::what_a_failed_step_has_left_undone_is_done_by_the_next_plan",
        ),
    },
    Mutation {
        name: "reload-what-fits",
        guard: "what is held back and the rest are a configuration, or nothing is done",
        file: "crates/nvmirage/src/reload/mod.rs",
        from: "    if !problems.is_empty() {\n        return Err((problems, shown));",
        to: "    if problems.len() > 9 {\n        return Err((problems, shown));",
        test: of_program("reload::tests::what_is_held_back_and_does_not_fit_the_rest_ends_it"),
    },
    Mutation {
        name: "reload-dry-run-is-dry",
        guard: "a dry run changes nothing",
        file: "crates/nvmirage/src/supervisor/reload.rs",
        from: "        if request.dry_run {\n            return Ok(told);",
        to: "        if request.dry_run && told.steps.is_empty() {\n            return Ok(told);",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload::an_edited_file_is_served_while_hosts_go_on_and_after_a_restart",
        ),
    },
];
