//! How commands on files reach the kernel: registered memory, two rings, and files in memory.

use super::super::{Mutation, Test, integration, program, unit};

/// Memory that is registered and released, and other memory at the same place.
const REGISTERED: Test = integration(
    "media",
    &["--test", "media"],
    "registered::memory_is_registered_given_up_and_never_another",
);
/// Two rings: one asks the device.
const POLLED: Test = unit(
    "media",
    "file::ring::tests::what_is_not_polled_for_goes_to_the_second_ring_and_what_is_prevents_sleep",
);

/// Zones on such a disk.
const ZONES_FULL: &str =
    "full_disk::slow::zones_on_a_full_disk_are_written_reset_and_flushed_again_when_there_is_room";
/// A log on a disk that is full for a while.
const FULL: &str = "journal::tests::what_finds_no_space_is_written_when_there_is_some_again";

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "full-frame-whole",
        guard: "a frame that could not be written is written again as a whole",
        file: "crates/media/src/journal/stall.rs",
        from: "(self.handed, self.failed) = (0, false);",
        to: "self.failed = false;",
        test: unit("media", FULL),
    },
    Mutation {
        name: "full-log-recovers",
        guard: "a log that could not be written is tried again",
        file: "crates/media/src/journal/stall.rs",
        from: "self.stall = Stall::Trying { waits: false };",
        to: "",
        test: unit("media", FULL),
    },
    Mutation {
        name: "full-zone-rewinds",
        guard: "a write that found no space moves no write pointer",
        file: "crates/media/src/zoned/durable.rs",
        from: "if outcome.cause == Cause::NoSpace && self.is_kept() {",
        to: "if outcome.cause == Cause::Aborted && self.is_kept() {",
        test: program(ZONES_FULL),
    },
    Mutation {
        name: "full-reset-undone",
        guard: "a reset that found no space leaves its zones as they were",
        file: "crates/media/src/zoned/mod.rs",
        from: "Taken::Erase { .. } if outcome.cause == Cause::NoSpace => {",
        to: "Taken::Erase { .. } if outcome.cause == Cause::Aborted => {",
        test: program(ZONES_FULL),
    },
    Mutation {
        name: "full-told-once",
        guard: "a cause is reported once, however often it fails",
        file: "crates/server/src/trouble.rs",
        from: "Some(_) if is_more || look.is_current => {",
        to: "Some(_) if !is_more && look.is_current => {",
        test: unit(
            "server",
            "trouble::tests::a_cause_is_reported_once_however_often_it_fails_and_again_when_it_has_passed",
        ),
    },
    Mutation {
        name: "file-size-signal",
        guard: "a file that would be too large ends no server",
        file: "crates/nvmirage/src/cli/mod.rs",
        from: "let _ = memory::survive_file_size_limit();",
        to: "",
        test: program("full_disk::a_limit_of_file_sizes_is_an_error_of_who_asks_and_ends_no_drive"),
    },
    Mutation {
        name: "registered-number",
        guard: "registered memory is found by the number of its map, not by its address",
        file: "crates/media/src/file/ring/registrar.rs",
        from: "self.id == id && offset <= self.len",
        to: "id > 0 && offset <= self.len",
        test: REGISTERED,
    },
    Mutation {
        name: "registered-given-up",
        guard: "memory that no view has any more is let go",
        file: "crates/media/src/file/ring/registrar.rs",
        from: "entry.retired.is_none() && entry.lent.strong_count() == 0",
        to: "entry.retired.is_none() && entry.lent.strong_count() > 9",
        test: REGISTERED,
    },
    Mutation {
        name: "registered-limit",
        guard: "what is registered is within the limit of locked memory",
        file: "crates/media/src/file/ring/registrar.rs",
        from: "if (taken + len) as u64 > limit {",
        to: "if taken as u64 > limit {",
        test: REGISTERED,
    },
    Mutation {
        name: "lent-number",
        guard: "what is lent has another number after each map",
        file: "crates/memory/src/guest/dma/lent.rs",
        from: "id: NEXT.fetch_add(1, Ordering::Relaxed),",
        to: "id: NEXT.load(Ordering::Relaxed),",
        test: integration(
            "memory",
            &["--test", "client_memory"],
            "lent::what_is_lent_ends_with_the_last_view_of_its_region_and_is_another_after_the_next_map",
        ),
    },
    Mutation {
        name: "second-ring",
        guard: "flushes and durable writes do not go to a ring that asks the device",
        file: "crates/media/src/file/ring/mod.rs",
        from: "let second = self.rings[0].looks_at_device() && !io.is_polled_for();",
        to: "let second = self.rings[0].looks_at_device() && io.is_polled_for();",
        test: POLLED,
    },
    Mutation {
        name: "polled-sleep",
        guard: "a reactor does not sleep while it polls a device",
        file: "crates/media/src/file/uring.rs",
        from: "self.looks.at_device && self.in_kernel > 0",
        to: "self.looks.at_device && self.in_kernel > 1",
        test: POLLED,
    },
    Mutation {
        name: "memory-file-turns",
        guard: "a file in memory leaves others their turn",
        file: "crates/media/src/file/pace.rs",
        from: "self.left = self.left.saturating_sub(bytes);",
        to: "self.left = self.left.saturating_sub(bytes / 1024);",
        test: integration(
            "media",
            &["--test", "media"],
            "commands::commands_on_a_file_in_memory_take_turns_with_what_else_a_reactor_does",
        ),
    },
    Mutation {
        name: "claim-memory",
        guard: "commands of two reactors on one medium in memory do not mix",
        file: "crates/media/src/ram/mod.rs",
        from: ".must_claim(|claimant| slices.claim_at_once(claimant))",
        to: ".must_claim(|claimant| slices.claim_at_once(claimant)) && false",
        test: integration(
            "media",
            &["--test", "media"],
            "beside::commands_of_two_threads_do_not_mix",
        ),
    },
    Mutation {
        name: "claim-file",
        guard: "commands of two reactors on one file do not mix",
        file: "crates/media/src/order.rs",
        from: "!self.must_claim() || self.claim_beside(slot)",
        to: "!self.must_claim() || self.claim_beside(slot) || true",
        test: integration(
            "media",
            &["--test", "media"],
            "beside::commands_of_two_threads_do_not_mix",
        ),
    },
    Mutation {
        name: "claim-in-flight",
        guard: "what a file's only channel has in flight is claimed when a second one comes",
        file: "crates/media/src/order.rs",
        from: "claimant.claim_at_once(claim, bytes(table, slot, touched));",
        to: "",
        test: integration(
            "media",
            &["--test", "media"],
            "beside::a_second_channel_waits_until_the_first_has_looked",
        ),
    },
    Mutation {
        name: "claim-release",
        guard: "who claims bytes sees what was done to them before",
        file: "crates/memory/src/sync/claims.rs",
        from: "fetch_sub(1, Ordering::Release)",
        to: "fetch_sub(1, Ordering::Relaxed)",
        test: integration(
            "memory",
            &["--release", "--features", "loom", "--test", "loom"],
            "claimed_bytes_are_one_claimants_at_a_time",
        ),
    },
    Mutation {
        name: "claim-second-look",
        guard: "between saying that something is not claimed and looking for others stands a full fence",
        file: "crates/memory/src/sync/claims.rs",
        from: "                full_fence();\n                if",
        to: "                if",
        test: integration(
            "memory",
            &["--release", "--features", "loom", "--test", "loom"],
            "one_that_rests_looks_before_it_begins",
        ),
    },
    Mutation {
        name: "file-slices",
        guard: "on a medium with a timing model, no turn copies more than a slice to or from a buffered file",
        file: "crates/media/src/file/pace.rs",
        from: "let is_copied = bounced || self.is_buffered;",
        to: "let is_copied = bounced;",
        test: unit(
            "media",
            "file::channel::tests::slices::no_turn_copies_more_than_a_slice",
        ),
    },
    Mutation {
        name: "file-slices-durable",
        guard: "slices of a durable write are on the media before it ends",
        file: "crates/media/src/file/channel/mod.rs",
        from: "_ if sliced => self.after_all(slot),",
        to: "_ if sliced && left > 0 => self.after_all(slot),",
        test: unit(
            "media",
            "file::channel::tests::slices::slices_are_made_durable_together",
        ),
    },
];
