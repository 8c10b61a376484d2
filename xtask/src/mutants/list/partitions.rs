//! Partitions of drives, and what drives say of themselves.

use super::super::{Mutation, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "partition-apart",
        guard: "a partition is not made where something is",
        file: "crates/server/src/partition/table/mod.rs",
        from: "match self.taken(taken).find(|t| t.range.overlaps(range)) {",
        to: "match self.taken(taken).find(|t| t.range == range) {",
        test: unit(
            "server",
            "partition::table::tests::what_cannot_be_made_changes_nothing_and_says_why",
        ),
    },
    Mutation {
        name: "partition-grows-into-another",
        guard: "a partition grows only up to the next one",
        file: "crates/server/src/partition/table/mod.rs",
        from: ".filter(|t| t.range.start >= range.end)",
        to: ".filter(|t| t.range.start > range.end)",
        test: unit(
            "server",
            "partition::table::tests::partitions_stay_apart_whatever_is_done",
        ),
    },
    Mutation {
        name: "partition-two-writers",
        guard: "who changes a table has read it with the lock",
        file: "crates/server/src/partition/store/mod.rs",
        from: "        if self.claim.is_none() {\n            self.claim()",
        to: "        if false {\n            self.claim()",
        test: unit(
            "server",
            "partition::store::tests::two_do_not_have_it_at_once",
        ),
    },
    Mutation {
        name: "partition-in-use",
        guard: "a partition that a namespace is cannot be deleted",
        file: "crates/server/src/supervisor/partitions.rs",
        from: "n.media == medium && n.partition.as_deref() == Some(name)",
        to: "n.media == medium && n.partition.is_none() && n.name == name",
        test: program("partitions::partitions_come_and_go_while_others_are_in_use"),
    },
    Mutation {
        name: "partition-range-over-it",
        guard: "a namespace that names no partition has no byte of one",
        file: "crates/server/src/supervisor/media.rs",
        from: "None => self.refuse_partition(&namespace.media, range, &namespace.name),",
        to: "None => Ok(()),",
        test: program("partitions::files_have_partitions_too_and_what_cannot_be_is_told"),
    },
    Mutation {
        name: "partition-erased-whole",
        guard: "a partition that is erased reads as zeros, and nothing beside it",
        file: "crates/media/src/drive/erase.rs",
        from: "let bytes = most.min(end - at);",
        to: "let bytes = most;",
        test: unit(
            "media",
            "drive::tests::erase::erased_bytes_read_as_zeros_and_no_others_do",
        ),
    },
    Mutation {
        name: "drive-health-of-another",
        guard: "a drive counts where a namespace on it is attached",
        file: "crates/controller/src/controller/admin/drives.rs",
        from: "namespaces.iter().any(|n| n.channel == channel)",
        to: "namespaces.iter().any(|n| n.channel <= channel)",
        test: unit(
            "controller",
            "controller::tests::drives::of_several_drives_the_worst_is_told_and_others_do_not_count",
        ),
    },
    Mutation {
        name: "drive-page-of-ours",
        guard: "a drive's log page is shown where the operator allows it",
        file: "crates/media/src/drive/report.rs",
        from: "for page in shown {",
        to: "for page in shown.iter().chain([&ShownPage { lid: 0xca, len: 16 }]) {",
        test: unit(
            "media",
            "drive::tests::report::a_channel_knows_the_drive_s_health_and_the_pages_that_are_shown",
        ),
    },
    Mutation {
        name: "drive-slow-commands",
        guard: "what takes drives long has its time",
        file: "crates/media/src/drive/op.rs",
        from: "Kind::Zeroes { .. } | Kind::Deallocate { .. } | Kind::Flush => SLOW_HANG_TICKS,",
        to: "Kind::Zeroes { .. } | Kind::Deallocate { .. } | Kind::Flush => HANG_TICKS,",
        test: unit(
            "media",
            "drive::tests::faults::what_takes_drives_long_has_20_s",
        ),
    },
];
