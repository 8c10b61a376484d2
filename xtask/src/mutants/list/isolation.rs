//! Hosts that mean harm to a drive that they share, and drives that lie or hang.

use super::super::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "shared-window",
        guard: "a host's data goes to its own memory",
        file: "crates/media/src/drive/windows.rs",
        from: "if self.last.id == id && id != 0 {",
        to: "if self.last.id != 0 && id != 0 {",
        test: integration(
            "tests-hostile",
            &["--test", "hostile"],
            "list::both_hosts_use_their_parts",
        ),
    },
    Mutation {
        name: "shared-drive-of-all-blocks",
        guard: "a drive with more blocks than can be counted is refused",
        file: "crates/media/src/drive/facts.rs",
        from: "if blocks.checked_mul(u64::from(block_len)).is_none() {",
        to: "if blocks == 0 {",
        test: integration(
            "tests-hostile",
            &["--test", "hostile"],
            "lies::what_a_drive_says_of_itself_is_looked_at",
        ),
    },
    Mutation {
        name: "completion-of-another-queue",
        guard: "a drive's completion names the queue that the command was in",
        file: "crates/driver/src/queue/mod.rs",
        from: "Some(in_flight) if *in_flight && sqid == self.qid => {",
        to: "Some(in_flight) if *in_flight => {",
        test: integration(
            "tests-hostile",
            &["--test", "hostile"],
            "lies::a_drive_that_lies_is_used_again_when_it_does_not",
        ),
    },
    Mutation {
        name: "taken-back-deletes-queue",
        guard: "commands in memory that its host unmaps have 2 s",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "self.tell_all(|| News::TakenBack);",
        to: "",
        test: unit(
            "media",
            "drive::tests::windows::a_command_in_memory_that_is_taken_back_has_two_seconds",
        ),
    },
    Mutation {
        name: "taken-back-is-revoked",
        guard: "a drive that hangs loses access to memory that its host unmaps",
        file: "crates/media/src/drive/warden.rs",
        from: "< REVOKE_TICKS {",
        to: "< REVOKE_TICKS * 9 {",
        test: unit(
            "media",
            "drive::tests::windows::memory_is_taken_from_a_drive_whose_keeper_waits",
        ),
    },
    Mutation {
        name: "taken-back-is-told-late",
        guard: "the answer to an unmap goes out when no device reaches the memory",
        file: "crates/transport/src/vfio_user/waiting.rs",
        from: "!reached.iter().any(|reach| reach.is_held());",
        to: "reached.len() < 1000;",
        test: integration(
            "tests-protocol",
            &["--test", "protocol"],
            "cases::dma_unmap::the_reply_to_what_hangs_waits_until_no_device_reaches_the_memory",
        ),
    },
    Mutation {
        name: "taken-back-is-not-held",
        guard: "a region that its host has unmapped is not shown to a drive",
        file: "crates/memory/src/guest/dma/lent.rs",
        from: "if self.is_taken_back() {",
        to: "if false {",
        test: unit(
            "memory",
            "guest::dma::lent::tests::a_region_that_is_taken_back_is_held_no_more",
        ),
    },
    Mutation {
        name: "taken-back-by-death",
        guard: "a host that is gone has taken everything back",
        file: "crates/memory/src/guest/dma/mod.rs",
        from: "            lent.reach().take_back();\n        }\n    }\n}",
        to: "            lent.reach();\n        }\n    }\n}",
        test: unit(
            "memory",
            "guest::dma::lent::tests::a_region_that_is_taken_back_is_held_no_more",
        ),
    },
];
