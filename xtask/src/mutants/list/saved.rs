//! What is made at run time, over a restart.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "saved-killed-is-known",
        guard: "only a process that ends by itself takes its number out of the lock file",
        file: "crates/server/src/keep/claim.rs",
        from: "        if !thread::panicking() {\n            note(&self.lock, \"\");",
        to: "        if thread::panicking() {\n            note(&self.lock, \"\");",
        test: unit(
            "server",
            "keep::claim::tests::a_process_that_was_killed_is_known_to_the_next",
        ),
    },
    Mutation {
        name: "saved-before-the-answer",
        guard: "what is changed is kept before it is answered",
        file: "crates/server/src/saved/mod.rs",
        from: "        let before = std::mem::replace(&mut self.content, content);\n        let written = self.write();",
        to: "        let before = std::mem::replace(&mut self.content, content);\n        let written = Ok(());",
        test: program("saved::it_is_there_again_after_a_stop_and_after_a_kill"),
    },
    Mutation {
        name: "saved-edited-counts",
        guard: "what the configuration has edited since is as it says",
        file: "crates/server/src/reconcile/merge.rs",
        from: "    if theirs == then { mine } else { theirs }",
        to: "    if theirs == then || mine != then { mine } else { theirs }",
        test: unit(
            "server",
            "reconcile::merge::tests::each_object_is_of_one_side",
        ),
    },
    Mutation {
        name: "saved-default-revision",
        guard: "a new version of the program is no edit of the configuration",
        file: "crates/server/src/saved/mod.rs",
        from: "            one.firmware_revision = revision.to_owned();\n",
        to: "            let _ = (one, revision);\n",
        test: unit(
            "server",
            "saved::tests::a_change_is_kept_when_only_the_default_revision_is_another_one",
        ),
    },
    Mutation {
        name: "saved-loss-is-told",
        guard: "it is said what counts no longer",
        file: "crates/server/src/reconcile/merge.rs",
        from: "if edited && changed && end != Some(object) {",
        to: "if edited && changed && end == Some(object) {",
        test: unit(
            "server",
            "reconcile::merge::tests::where_both_have_the_configuration_counts_and_it_is_said",
        ),
    },
    Mutation {
        name: "saved-one-server",
        guard: "two servers do not keep what is made in one file",
        file: "crates/server/src/saved/mod.rs",
        from: "path.with_extension(\"lock\")",
        to: "path.with_extension(std::process::id().to_string())",
        test: program(
            "saved::what_does_not_fit_any_more_or_cannot_be_read_ends_the_start_and_loses_nothing",
        ),
    },
    Mutation {
        name: "saved-at-each-start",
        guard: "what is made at run time is there at each start, whatever was lost at one",
        file: "crates/server/src/saved/mod.rs",
        from: "            keep_copy(&self.path)?;",
        to: "            return put_aside(&self.path);",
        test: program("saved::what_the_file_changes_counts_for_what_it_changes"),
    },
];
