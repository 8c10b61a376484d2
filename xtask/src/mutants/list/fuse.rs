//! Drives that are mounted as files.

use crate::mutants::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "fuse-edges",
        guard: "a block that is written in part keeps the rest of its bytes",
        file: "crates/nvmirage/src/fuse/plan.rs",
        from: "if tail.end < block_len {",
        to: "if false {",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "fuse::namespaces_are_files_that_hold_what_is_written",
        ),
    },
    Mutation {
        name: "fuse-identifiers",
        guard: "a command submitted while completions are looked at has the identifier of none of those to come",
        file: "crates/driver/src/queue.rs",
        from: "                *in_flight = false;\n",
        to: "                *in_flight = false;\n                self.free.push(cid);\n",
        test: unit(
            "driver",
            "queue::tests::an_identifier_is_free_once_its_completion_is_handed_out_and_not_before",
        ),
    },
    Mutation {
        name: "fuse-holes",
        guard: "a hole that begins inside of a block is zero from there on",
        file: "crates/nvmirage/src/fuse/request.rs",
        from: "buffer.write_from(base + bytes.start, &vec![0; bytes.len()]);",
        to: "let _ = (buffer, base, bytes);",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "fuse::namespaces_are_files_that_hold_what_is_written",
        ),
    },
    Mutation {
        name: "fuse-dead",
        guard: "what a killed server has left mounted is unmounted",
        file: "crates/nvmirage/src/fuse/mount.rs",
        from: "== Some(Errno::NOTCONN)",
        to: "== Some(Errno::NOTTY)",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "fuse::a_mount_of_a_killed_server_is_cleaned_by_the_next",
        ),
    },
    Mutation {
        name: "fuse-in-use",
        guard: "a controller whose files are in use is not deleted",
        file: "crates/nvmirage/src/supervisor/mod.rs",
        from: "        state.unmount(at)?;\n",
        to: "",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "fuse::files_follow_namespaces_while_they_are_mounted",
        ),
    },
    Mutation {
        name: "fuse-helper",
        guard: "a user who may not unmount has the helper do it",
        file: "crates/nvmirage/src/fuse/mount.rs",
        from: "Err(Errno::PERM) => ask_helper(dir, in_use),",
        to: "Err(Errno::PERM) => Ok(()),",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "fuse_user::a_user_has_the_helper_mount_and_unmount",
        ),
    },
];
