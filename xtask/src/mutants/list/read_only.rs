//! Media that take no writes, and saves that fail.

use super::super::{Mutation, Test, program, unit};

/// What hosts may do with a namespace that takes no writes.
const WRITES: Test = unit(
    "controller",
    "controller::tests::read_only::writes_end_as_attempts_to_write_a_read_only_range_and_nothing_reaches_the_medium",
);

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "read-only-writes",
        guard: "a namespace whose medium takes no writes refuses them",
        file: "crates/subsystem/src/allocated.rs",
        from: "            read_only: self.namespace.traits.read_only,\n            uncorrectable",
        to: "            read_only: false,\n            uncorrectable",
        test: WRITES,
    },
    Mutation {
        name: "read-only-format",
        guard: "a format of it is refused",
        file: "crates/subsystem/src/subsystem/plan.rs",
        from: "            namespace.check_writable()?;\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::read_only::format_and_sanitize_are_refused_where_a_namespace_is_write_protected",
        ),
    },
    Mutation {
        name: "read-only-device",
        guard: "a read-only device is not served as one that takes writes",
        file: "crates/media/src/file/open.rs",
        from: "if is_block_device && !read_only && is_read_only_device(status.st_rdev) {",
        to: "if is_block_device && read_only && is_read_only_device(status.st_rdev) {",
        test: program(
            "read_only::a_read_only_device_is_refused_unless_it_is_to_be_served_write_protected",
        ),
    },
    Mutation {
        name: "read-only-later",
        guard: "hosts are notified of a device that becomes read-only while it is served",
        file: "crates/server/src/supervisor/protection.rs",
        from: "self.protect(media, read_only)",
        to: "self.protect(media, false)",
        test: program(
            "read_only::a_device_that_becomes_read_only_while_it_is_served_is_write_protected_until_it_is_not",
        ),
    },
    Mutation {
        name: "save-that-fails",
        guard: "a save that fails puts back what was saved before",
        file: "crates/controller/src/controller/admin/features/unkept.rs",
        from: "self.saved.put_back(sqe, set, &failed.saved);",
        to: "self.saved.put_back(sqe, set, set);",
        test: unit(
            "controller",
            "controller::tests::saved_features::a_save_that_fails_changes_nothing",
        ),
    },
    Mutation {
        name: "refused-memory-log",
        guard: "a host whose memory is refused again and again does not fill the log",
        file: "crates/transport/src/vfio_user/memory_map.rs",
        from: "        self.refused += 1;\n",
        to: "        self.refused = 1;\n",
        test: program(
            "refused_memory::memory_that_is_refused_is_logged_with_the_reason_and_does_not_fill_the_log",
        ),
    },
];
