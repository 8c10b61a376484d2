//! A controller that moves to another server.

use super::super::{Mutation, Test, integration, unit};

/// A test of a controller that moves.
const fn moves(name: &'static str) -> Test {
    unit("controller", name)
}

/// A test of the messages.
const fn messages(name: &'static str) -> Test {
    integration("tests-protocol", &["--test", "protocol"], name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "migrate-aborted-command-in-a-medium",
        guard: "a controller has halted when no medium has anything of an aborted command",
        file: "crates/controller/src/lane/service.rs",
        from: "Stop::Leaving if self.to_idle => Some(Awaits::Idle),",
        to: "Stop::Leaving if self.to_idle => Some(Awaits::Commands),",
        test: moves(
            "controller::tests::migrate::a_controller_with_commands_in_flight_gives_nothing",
        ),
    },
    Mutation {
        name: "migrate-another-drive",
        guard: "a controller takes no state of another drive",
        file: "crates/controller/src/controller/migrate/mod.rs",
        from: "    if theirs == ours {",
        to: "    if theirs != ours {",
        test: moves(
            "controller::tests::migrate::the_state_of_another_drive_is_refused_with_the_difference",
        ),
    },
    Mutation {
        name: "migrate-checksum",
        guard: "a state with a flipped bit is refused",
        file: "crates/controller/src/controller/migrate/stream.rs",
        from: "    if crc32c::crc32c(rest) != word(head, 24) {",
        to: "    if crc32c::crc32c(rest) == u32::MAX {",
        test: moves("controller::migrate::stream::tests::every_flipped_bit_is_found"),
    },
    Mutation {
        name: "migrate-medium-elsewhere",
        guard: "a controller whose medium another server has is not enabled",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "        if self.elsewhere {",
        to: "        if self.elsewhere && self.held_back {",
        test: moves(
            "controller::tests::migrate::a_controller_whose_medium_is_elsewhere_is_not_enabled",
        ),
    },
    Mutation {
        name: "migrate-doorbells",
        guard: "a doorbell that was rung before the copy counts at the other server",
        file: "crates/controller/src/controller/migrate/mod.rs",
        from: "            doorbells.store(slot, value);",
        to: "            doorbells.store(slot, value.min(1));",
        test: moves(
            "controller::tests::migrate::a_doorbell_that_was_rung_while_it_was_stopped_counts_there",
        ),
    },
    Mutation {
        name: "migrate-not-offered",
        guard: "a server whose configuration does not say so offers no migration",
        file: "crates/transport/src/vfio_user/session.rs",
        from: "Command::DEVICE_FEATURE if self.config.migrates => {",
        to: "Command::DEVICE_FEATURE => {",
        test: messages("cases::unknown::migration_is_not_offered"),
    },
];
