//! The interface of the kernel's ublk driver: devices that can be served, rings, and bounds.

use super::super::{Mutation, Test, unit};

const fn driver(name: &'static str) -> Test {
    unit("ublk", name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "ublk-tags-overflow",
        guard: "tags of all queues are counted without an overflow",
        file: "crates/ublk/src/device.rs",
        from: "let tags = queues.checked_mul(depth);",
        to: "let tags = Some(queues.wrapping_mul(depth));",
        test: driver("device::tests::a_device_without_tags_or_with_too_many_is_not_opened"),
    },
    Mutation {
        name: "ublk-tags",
        guard: "a device has no more tags than can be served",
        file: "crates/ublk/src/device.rs",
        from: "(1..=MAX_TAGS).contains(&tags)",
        to: "tags > 0",
        test: driver("device::tests::a_device_without_tags_or_with_too_many_is_not_opened"),
    },
    Mutation {
        name: "ublk-long-requests",
        guard: "requests are no longer than can be served",
        file: "crates/ublk/src/device.rs",
        from: "if !(PAGE..=MAX_BUFFER).contains(&len) ||",
        to: "if len < PAGE ||",
        test: driver("device::tests::a_device_with_long_requests_or_parts_of_pages_is_not_opened"),
    },
    Mutation {
        name: "ublk-pages",
        guard: "a buffer has whole pages",
        file: "crates/ublk/src/device.rs",
        from: " || !len.is_multiple_of(PAGE) {",
        to: " {",
        test: driver("device::tests::a_device_with_long_requests_or_parts_of_pages_is_not_opened"),
    },
    Mutation {
        name: "ublk-features",
        guard: "requests come in a way that a ring has",
        file: "crates/ublk/src/device.rs",
        from: "        || flags.auto_buf_reg()\n",
        to: "",
        test: driver("device::tests::a_device_whose_requests_come_otherwise_is_not_opened"),
    },
    Mutation {
        name: "ublk-index",
        guard: "an index that there is not has no descriptor",
        file: "crates/ublk/src/device.rs",
        from: "let queue = self.queues.get(usize::from(queue))?;",
        to: "let queue = &self.queues[usize::from(queue)];",
        test: driver("device::tests::descriptors_and_data_are_where_the_header_has_them"),
    },
    Mutation {
        name: "ublk-data-place",
        guard: "data of a tag are at its own offset",
        file: "crates/ublk/src/abi.rs",
        from: "const TAG_SHIFT: u32 = 25;",
        to: "const TAG_SHIFT: u32 = 24;",
        test: driver("device::tests::descriptors_and_data_are_where_the_header_has_them"),
    },
    Mutation {
        name: "ublk-failed-descriptor",
        guard: "a command that failed has no descriptor",
        file: "crates/ublk/src/ring.rs",
        from: "        let event = match entry.result() {\n",
        to: "        let _ = self.device.descriptor(index);\n        let event = match entry.result() {\n",
        test: driver("ring::tests::commands_to_what_is_no_device_fail"),
    },
    Mutation {
        name: "ublk-short-copy",
        guard: "fewer bytes than a request has are an error",
        file: "crates/ublk/src/ring.rs",
        from: "if done == len {",
        to: "if done <= len {",
        test: driver("ring::tests::data_are_copied_from_and_to_their_place"),
    },
    Mutation {
        name: "ublk-ring-due",
        guard: "a completion that has come is due",
        file: "crates/ublk/src/ring.rs",
        from: "is_due || !self.ring.completion().is_empty()",
        to: "is_due",
        test: driver("ring::tests::what_comes_wakes_while_it_is_armed"),
    },
    Mutation {
        name: "ublk-ring-drain",
        guard: "a ring that is not armed is not readable",
        file: "crates/ublk/src/ring.rs",
        from: "            self.wake.drain();\n",
        to: "",
        test: driver("ring::tests::what_comes_wakes_while_it_is_armed"),
    },
    Mutation {
        name: "ublk-bound",
        guard: "a bound has no overflow",
        file: "crates/ublk/src/control.rs",
        from: "Instant::now() + bound.min(LONGEST)",
        to: "Instant::now() + bound",
        test: driver("control::tests::commands_to_what_is_no_driver_are_refused_by_name"),
    },
    Mutation {
        name: "ublk-quiesce-bound",
        guard: "the bound of a quiesce has no overflow",
        file: "crates/ublk/src/control.rs",
        from: "bound.saturating_add(SHORT)",
        to: "bound + SHORT",
        test: driver("control::tests::commands_to_what_is_no_driver_are_refused_by_name"),
    },
    Mutation {
        name: "ublk-stuck",
        guard: "a control that is stuck takes no further command",
        file: "crates/ublk/src/control.rs",
        from: "        if self.is_stuck {\n            return Err(Error::Late(name));\n        }\n        // A user",
        to: "        // A user",
        test: driver("control::tests::a_command_that_waits_is_cancelled_and_the_next_one_runs"),
    },
];
