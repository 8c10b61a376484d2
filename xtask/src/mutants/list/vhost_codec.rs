//! What a message of a vhost-user front end may be.

use super::super::{Mutation, Test, unit};

const fn message(name: &'static str) -> Test {
    unit("vhost-user", name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "vhost-version",
        guard: "a message of another version, or a reply, is a fault",
        file: "crates/vhost-user/src/header.rs",
        from: "if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {",
        to: "if flags & VERSION_MASK != VERSION {",
        test: message("header::tests::another_version_a_reply_and_a_long_body_are_faults"),
    },
    Mutation {
        name: "vhost-body",
        guard: "no body is longer than a message's",
        file: "crates/vhost-user/src/header.rs",
        from: "if len as usize > MAX_BODY {",
        to: "if len == u32::MAX {",
        test: message("header::tests::another_version_a_reply_and_a_long_body_are_faults"),
    },
    Mutation {
        name: "vhost-body-length",
        guard: "a body has the length of its message",
        file: "crates/vhost-user/src/message/mod.rs",
        from: "        if self.body.len() != len {\n",
        to: "        if self.body.len() < len {\n",
        test: message("message::tests::another_length_is_a_fault"),
    },
    Mutation {
        name: "vhost-descriptors",
        guard: "a message comes with the descriptors that it must have",
        file: "crates/vhost-user/src/message/mod.rs",
        from: "        if self.fds == expected {",
        to: "        if self.fds >= expected {",
        test: message("message::tests::another_number_of_descriptors_is_a_fault"),
    },
    Mutation {
        name: "vhost-table-regions",
        guard: "a table of memory has up to eight regions",
        file: "crates/vhost-user/src/message/mod.rs",
        from: "        if count as usize > MAX_TABLE {",
        to: "        if count == u32::MAX {",
        test: message("message::tests::a_table_has_up_to_eight_regions"),
    },
    Mutation {
        name: "vhost-config",
        guard: "a part of the configuration space is not longer than a message may say",
        file: "crates/vhost-user/src/message/mod.rs",
        from: "if bytes.len() != len as usize || bytes.len() > MAX_CONFIG {",
        to: "if bytes.len() != len as usize {",
        test: message("message::tests::a_part_of_the_configuration_space_has_a_bound"),
    },
];
