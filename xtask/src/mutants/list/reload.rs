//! The configuration file, read again.

use super::super::{Mutation, integration, unit};

const PROGRAM: &[&str] = &["--test", "program"];

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "reload-host-keeps-its-drive",
        guard: "a reload takes no drive from a host that nobody said may lose it",
        file: "crates/server/src/reconcile/hold.rs",
        from: "if ends && !self.consent && self.served.hosts.contains(name) {",
        to: "if ends && self.consent && self.served.hosts.contains(name) {",
        test: unit(
            "server",
            "reconcile::tests::a_plan_that_is_carried_out_gives_what_was_wanted_and_is_then_empty",
        ),
    },
    Mutation {
        name: "reload-users-first",
        guard: "nothing is deleted before those who use it",
        file: "crates/server/src/reconcile/order.rs",
        from: "if dropped || self.outcome(NamespaceId::new(namespace)).ends() {",
        to: "if dropped {",
        test: unit(
            "server",
            "reconcile::tests::what_is_used_goes_after_its_users_and_comes_before_them",
        ),
    },
    Mutation {
        name: "reload-memory-is-not-lost",
        guard: "a medium in memory is not made anew, as its bytes would be gone",
        file: "crates/server/src/reconcile/hold.rs",
        from: "if is_recreated && loses_bytes(&medium) {",
        to: "if is_recreated && !loses_bytes(&medium) {",
        test: unit(
            "server",
            "reconcile::tests::what_would_lose_something_stays_and_says_what_to_do",
        ),
    },
    Mutation {
        name: "reload-unfinished-is-known",
        guard: "what a plan has taken away and not given back is known to the next one",
        file: "crates/server/src/reconcile/order.rs",
        from: "            all.controllers.insert(controller, namespaces.clone());\n",
        to: "            let _ = (controller, namespaces);\n",
        test: unit(
            "server",
            "reconcile::tests::what_a_failed_step_has_left_undone_is_done_by_the_next_plan",
        ),
    },
    Mutation {
        name: "reload-unfinished-returns",
        guard: "a restart does not take what a plan was recreating for deleted",
        file: "crates/server/src/keep/merge/mod.rs",
        from: "    merging.merged.deleted.retain(|name| !is_recreated(name));\n",
        to: "",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload_failed::what_a_reload_has_taken_away_returns_after_a_failed_step_a_stop_or_a_kill",
        ),
    },
    Mutation {
        name: "reload-unfinished-medium",
        guard: "a medium that a plan was recreating is not compared with the earlier one",
        file: "crates/server/src/keep/merge/mod.rs",
        from: "        let before = before.filter(|_| !self.unfinished.media.contains(name));\n",
        to: "",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload_failed::what_a_reload_has_taken_away_returns_after_a_failed_step_a_stop_or_a_kill",
        ),
    },
    Mutation {
        name: "reload-returned-is-kept",
        guard: "what has returned is saved before it counts as finished",
        file: "crates/server/src/supervisor/subsystems.rs",
        from: "if let Some(restored) = restored {",
        to: "if let Some(restored) = restored.filter(|_| false) {",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload_failed::what_a_reload_has_taken_away_returns_after_a_failed_step_a_stop_or_a_kill",
        ),
    },
    Mutation {
        name: "reload-what-fits",
        guard: "what is held back and the rest are a configuration, or nothing is done",
        file: "crates/server/src/reconcile/mod.rs",
        from: "    if !problems.is_empty() {\n        return Err((problems, shown));",
        to: "    if problems.len() > 9 {\n        return Err((problems, shown));",
        test: unit(
            "server",
            "reconcile::tests::what_is_held_back_and_does_not_fit_the_rest_ends_it",
        ),
    },
    Mutation {
        name: "reload-dry-run-is-dry",
        guard: "a dry run changes nothing",
        file: "crates/server/src/supervisor/reload.rs",
        from: "        if request.dry_run {\n            return Ok(told);",
        to: "        if request.dry_run && told.steps.is_empty() {\n            return Ok(told);",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload::an_edited_file_is_served_while_hosts_go_on_and_after_a_restart",
        ),
    },
    Mutation {
        name: "reload-held-stays",
        guard: "a deferred object stays deferred while other deferrals would recreate it",
        file: "crates/server/src/reconcile/hold.rs",
        from: "held: held.map(|(id, why)| (id.clone(), why.clone())).collect(),",
        to: "held: held.map(|(id, why)| (id.clone(), why.clone())).take(0).collect(),",
        test: unit(
            "server",
            "reconcile::tests::a_controller_that_stays_keeps_its_subsystem_when_the_file_moves_it",
        ),
    },
    Mutation {
        name: "reload-pool-text",
        guard: "another controller that mentions the pool of its subsystem changes nothing",
        file: "crates/server/src/reconcile/outcome.rs",
        from: "        pool: now.pool.clone(),\n",
        to: "",
        test: unit(
            "server",
            "reconcile::tests::a_pool_that_another_controller_mentions_is_the_same_pool",
        ),
    },
    Mutation {
        name: "reload-pool-waits",
        guard: "the medium of a deferred namespace joins no other pool",
        file: "crates/server/src/reconcile/hold.rs",
        from: "is_in_pool(now, subsystem) != is_in_pool(then, subsystem)",
        to: "is_in_pool(now, subsystem) && !is_in_pool(then, subsystem)",
        test: unit(
            "server",
            "reconcile::tests::a_pool_waits_for_a_namespace_of_a_host_on_its_medium",
        ),
    },
    Mutation {
        name: "reload-has-what-it-had",
        guard: "a controller that is made anew has what it had",
        file: "crates/server/src/reconcile/order.rs",
        from: "match self.kept.get(&ControllerId::new(&one.name)) {",
        to: "match self.kept.get(&ControllerId::new(\"\")) {",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload::a_controller_that_is_made_anew_has_what_it_had",
        ),
    },
    Mutation {
        name: "reload-list-tells-what-it-had",
        guard: "a controller that is deleted keeps its list until then",
        file: "crates/server/src/reconcile/mod.rs",
        from: "if let Some(then) = then.filter(|_| stays) {",
        to: "if let Some(then) = then.filter(|_| stays || !plan.steps.is_empty()) {",
        test: unit(
            "server",
            "reconcile::tests::what_a_failed_step_has_left_undone_is_done_by_the_next_plan",
        ),
    },
    Mutation {
        name: "reload-operator-counts",
        guard: "what an operator changes after a reload that failed counts",
        file: "crates/server/src/supervisor/steps.rs",
        from: "let merged = merge(before, &self.desired, &now);",
        to: "let merged = merge(before, &now, &self.desired);",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload_failed::after_a_step_that_fails_an_operator_can_go_on",
        ),
    },
    Mutation {
        name: "reload-no-pipe",
        guard: "a pipe that was read before is not read again",
        file: "crates/server/src/supervisor/reload.rs",
        from: "        metadata.is_file(),",
        to: "        !metadata.is_dir(),",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload::a_pipe_and_an_empty_file_delete_nothing",
        ),
    },
    Mutation {
        name: "reload-shorter-elsewhere",
        guard: "a namespace that is to be elsewhere is not cut where it is",
        file: "crates/server/src/reconcile/hold.rs",
        from: "                && wanted.media == namespace.media\n",
        to: "",
        test: unit(
            "server",
            "reconcile::tests::a_shorter_namespace_elsewhere_cuts_nothing",
        ),
    },
    Mutation {
        name: "reload-pool-is-a-home",
        guard: "a namespace that goes to a pool stays attached to nobody elsewhere",
        file: "crates/server/src/reconcile/order.rs",
        from: "home.is_some_and(|home| home != controller.subsystem())",
        to: "home.is_some_and(|home| home.is_empty())",
        test: unit(
            "server",
            "reconcile::tests::a_namespace_that_goes_to_a_pool_is_attached_to_nobody",
        ),
    },
    Mutation {
        name: "reload-pool-of-a-host",
        guard: "what is in the pool of a subsystem stays with the controller that stays there, whichever names it",
        file: "crates/server/src/reconcile/hold.rs",
        from: "for name in config.pool_of(controller.subsystem()) {",
        to: "for name in controller.pool.iter().map(String::as_str) {",
        test: unit(
            "server",
            "reconcile::tests::the_pool_of_a_host_stays_with_what_has_it",
        ),
    },
    Mutation {
        name: "reload-pools-last",
        guard: "of a subsystem that is made anew the controller that names the pool goes last",
        file: "crates/server/src/reconcile/order.rs",
        from: "    pools_last.sort_by_key(|controller| controller.pool.len());\n",
        to: "",
        test: unit(
            "server",
            "reconcile::tests::the_pool_of_a_host_stays_with_what_has_it",
        ),
    },
    Mutation {
        name: "reload-subsystem-is-said-by-all",
        guard: "the first controller of a new subsystem has the pool and the serial number that another one says",
        file: "crates/server/src/reconcile/mod.rs",
        from: "            controller.say_too(one);\n",
        to: "",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload::what_a_subsystem_is_its_controllers_say_together",
        ),
    },
    Mutation {
        name: "pool-outlives-who-named-it",
        guard: "a pool is its subsystem's until the last controller goes",
        file: "crates/api/src/config/subsystems.rs",
        from: "            heir.say_too(&gone);\n",
        to: "            let _ = heir;\n",
        test: integration(
            "nvmirage",
            PROGRAM,
            "pool::a_pool_stays_when_the_controller_that_names_it_goes",
        ),
    },
    Mutation {
        name: "medium-gone-with-an-error",
        guard: "a medium that closes with an error is gone",
        file: "crates/server/src/supervisor/media.rs",
        from: "        self.config.media.retain(|m| m.name != name);\n        let recorded",
        to: "        let recorded",
        test: integration(
            "nvmirage",
            PROGRAM,
            "reload::a_medium_that_closes_with_an_error_is_gone",
        ),
    },
];
