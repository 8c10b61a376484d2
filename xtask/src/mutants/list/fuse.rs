//! Drives that are mounted as files.

use crate::mutants::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "fuse-edges",
        guard: "a block that is written in part keeps the rest of its bytes",
        file: "crates/fuse/src/plan.rs",
        from: "if tail.end < block_len {",
        to: "if false {",
        test: program("fuse::namespaces_are_files_that_hold_what_is_written"),
    },
    Mutation {
        name: "fuse-identifiers",
        guard: "a command submitted while completions are looked at has the identifier of none of those to come",
        file: "crates/driver/src/queue/mod.rs",
        from: "                *in_flight = false;\n",
        to: "                *in_flight = false;\n                self.free.push(cid);\n",
        test: unit(
            "driver",
            "queue::tests::an_identifier_is_free_once_its_completion_is_handed_out_and_not_before",
        ),
    },
    Mutation {
        name: "fuse-parts-alone",
        guard: "who writes a part of a block has the block for itself",
        file: "crates/fuse/src/filesystem.rs",
        from: "(plan.blocks.clone(), plan.exclusive)",
        to: "(plan.blocks.clone(), false)",
        test: program(
            "fuse_bytes::writers_of_parts_of_the_same_blocks_do_not_change_each_others_bytes",
        ),
    },
    Mutation {
        name: "fuse-panic",
        guard: "a panic of the thread that takes completions ends its mount",
        file: "crates/fuse/src/lib.rs",
        from: "shared.give_up(&panicked);",
        to: "drop(panicked);",
        test: unit(
            "server",
            "supervisor::mounts::tests::a_panic_of_any_thread_ends_its_mount_with_errors_and_no_other",
        ),
    },
    Mutation {
        name: "fuse-reader-panic",
        guard: "a panic of a thread that reads requests ends its mount",
        file: "crates/fuse/src/guarded.rs",
        from: "self.0.0.give_up(&panicked);",
        to: "drop(panicked);",
        test: unit(
            "server",
            "supervisor::mounts::tests::a_panic_of_any_thread_ends_its_mount_with_errors_and_no_other",
        ),
    },
    Mutation {
        name: "fuse-lost-in-tree",
        guard: "a mount that is lost is unmounted, also while its files are open",
        file: "crates/fuse/src/watch.rs",
        from: "                shared.end();\n",
        to: "                shared.loss.set_ended();\n",
        test: unit(
            "server",
            "supervisor::mounts::tests::a_panic_of_any_thread_ends_its_mount_with_errors_and_no_other",
        ),
    },
    Mutation {
        name: "fuse-elsewhere",
        guard: "a copy of a mount in another mount namespace does not keep its server",
        file: "crates/fuse/src/lib.rs",
        from: "        if !within(UNREAD, is_over) {\n",
        to: "        if false {\n",
        test: program(
            "fuse_bytes::a_copy_of_the_mount_in_another_mount_namespace_does_not_keep_the_server",
        ),
    },
    Mutation {
        name: "fuse-holes",
        guard: "a hole that begins inside of a block is zero from there on",
        file: "crates/fuse/src/request.rs",
        from: "buffer.write_from(base + bytes.start, &vec![0; bytes.len()]);",
        to: "let _ = (buffer, base, bytes);",
        test: program("fuse::namespaces_are_files_that_hold_what_is_written"),
    },
    Mutation {
        name: "fuse-dead",
        guard: "what a killed server has left mounted is unmounted",
        file: "crates/fuse/src/mount.rs",
        from: "== Some(Errno::NOTCONN)",
        to: "== Some(Errno::NOTTY)",
        test: program("fuse::a_mount_of_a_killed_server_is_cleaned_by_the_next"),
    },
    Mutation {
        name: "fuse-in-use",
        guard: "a controller whose files are in use is not deleted",
        file: "crates/server/src/supervisor/steps.rs",
        from: "            self.unmount(at)?;\n",
        to: "",
        test: program("fuse::files_follow_namespaces_while_they_are_mounted"),
    },
    Mutation {
        name: "fuse-helper",
        guard: "a user who may not unmount has the helper do it",
        file: "crates/fuse/src/mount.rs",
        from: "Err(Errno::PERM) => ask_helper(dir, in_use),",
        to: "Err(Errno::PERM) => Err(Errno::PERM.into()),",
        test: program("fuse_user::a_user_has_the_helper_mount_and_unmount"),
    },
];
