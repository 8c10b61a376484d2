//! Drives that guests share.

use super::super::{Mutation, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "drive-bounds",
        guard: "no command of a drive's guest goes beyond the namespace",
        file: "crates/media/src/possible.rs",
        from: ".is_some_and(|end| end <= size)",
        to: ".is_some()",
        test: unit(
            "media",
            "drive::tests::faults::requests_that_no_medium_may_get_are_refused_here_too",
        ),
    },
    Mutation {
        name: "drive-pin",
        guard: "a host's memory is kept for the drive as long as it has a command there",
        file: "crates/media/src/drive/channel.rs",
        from: "(!segments.is_empty()).then(|| self.pins.pin(view))",
        to: "(segments.is_empty()).then(|| self.pins.pin(view))",
        test: unit(
            "media",
            "drive::tests::windows::memory_is_kept_for_the_drive_as_long_as_it_has_a_command_there",
        ),
    },
    Mutation {
        name: "drive-odd-pieces",
        guard: "data that entries cannot say goes through a buffer",
        file: "crates/media/src/drive/data.rs",
        from: "let is_odd_end = index != last && ",
        to: "let is_odd_end = index != last && index == usize::MAX && ",
        test: unit(
            "media",
            "drive::tests::model::requests_do_what_a_vector_of_bytes_says",
        ),
    },
    Mutation {
        name: "drive-window-close",
        guard: "what a host takes back is taken back from the drive",
        file: "crates/media/src/drive/windows.rs",
        from: "let is_used = entry.lent.strong_count() > 0;",
        to: "let is_used = true;",
        test: unit(
            "media",
            "drive::tests::windows::what_a_host_takes_back_is_taken_back_from_the_drive",
        ),
    },
    Mutation {
        name: "drive-hang",
        guard: "a drive that hangs costs its tenants interrupted commands",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "self.give_up(\"a command had no answer for 4 s\");",
        to: "",
        test: unit(
            "media",
            "drive::tests::faults::a_command_that_hangs_ends_after_4_s_and_the_next_one_is_done",
        ),
    },
];
