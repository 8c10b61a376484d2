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

const LET_GO: Test = moves(
    "controller::tests::migrate::a_device_that_is_let_go_fetches_nothing_before_its_reset_ends",
);

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
        from: "        if self.holds.elsewhere() {",
        to: "        if self.holds.elsewhere() && self.holds.until_release() {",
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
        from: "Command::DEVICE_FEATURE if self.config.custody.is_some() => {",
        to: "Command::DEVICE_FEATURE => {",
        test: messages("cases::unknown::migration_is_not_offered"),
    },
    Mutation {
        name: "migrate-subsystem-keeps",
        guard: "a controller does not leave a subsystem that has what does not move",
        file: "crates/transport/src/vfio_user/migration.rs",
        from: "Release::Failed(errno) => Err(errno),",
        to: "Release::Failed(_) => Ok(()),",
        test: messages("cases::migration::a_subsystem_with_what_does_not_move_stays"),
    },
    Mutation {
        name: "migrate-not-durable",
        guard: "a medium that is not durable is not released",
        file: "crates/transport/src/vfio_user/migration.rs",
        from: "Some(synced.and_then(|()| self.release(controller)))",
        to: "Some(synced.or(Ok(())).and_then(|()| self.release(controller)))",
        test: messages("cases::migration::a_medium_that_is_not_durable_stays"),
    },
    Mutation {
        name: "migrate-back-without-lock",
        guard: "a source goes on only with the lock of its medium",
        file: "crates/transport/src/vfio_user/migration.rs",
        from: "                self.leaving = (Vec::new(), 0);\n                self.claim(controller)?;",
        to: "                self.leaving = (Vec::new(), 0);",
        test: messages("cases::migration::the_medium_changes_hands_with_the_state"),
    },
    Mutation {
        name: "migrate-reset-elsewhere",
        guard: "a reset does not enable a controller whose medium is elsewhere",
        file: "crates/transport/src/vfio_user/migration.rs",
        from: "    controller.set_elsewhere(claimed.is_err());",
        to: "    controller.set_elsewhere(false);",
        test: messages("cases::migration::the_medium_changes_hands_with_the_state"),
    },
    Mutation {
        name: "migrate-failed-target",
        guard: "a target that takes no state gives the medium back",
        file: "crates/transport/src/vfio_user/migration.rs",
        from: "            custody.release();\n        }\n        controller.set_elsewhere(true);\n        controller.function_reset();",
        to: "            custody.place();\n        }\n        controller.set_elsewhere(true);\n        controller.function_reset();",
        test: messages("cases::migration::a_target_with_what_does_not_move_gives_the_medium_back"),
    },
    Mutation {
        name: "migrate-other-medium",
        guard: "the state of another medium is not taken",
        file: "crates/transport/src/vfio_user/migration.rs",
        from: "        same.map_err(MigrateError::OtherMedia)?;",
        to: "        let _ = same.map_err(MigrateError::OtherMedia);",
        test: messages("cases::migration::a_state_of_another_medium_is_not_taken"),
    },
    Mutation {
        name: "migrate-stale-flush",
        guard: "a flush that began before the last write is not taken for one after it",
        file: "crates/reactor/src/custody.rs",
        from: "            sync.refused = Some(\"an earlier flush has not ended\".to_owned());\n",
        to: "",
        test: unit(
            "reactor",
            "custody::tests::a_flush_that_runs_is_no_flush_of_what_was_written_since",
        ),
    },
    Mutation {
        name: "migrate-some-locks",
        guard: "the locks of several media are taken together or not at all",
        file: "crates/reactor/src/custody.rs",
        from: "                self.media.iter().for_each(|medium| medium.release());\n                return",
        to: "                return",
        test: unit("reactor", "custody::tests::all_media_are_taken_or_none"),
    },
    Mutation {
        name: "migrate-changed-file",
        guard: "a file of another length is not held",
        file: "crates/media/src/file/open.rs",
        from: "        same.inspect_err(|_| unlock(&self.fd))",
        to: "        same",
        test: integration(
            "media",
            &["--test", "media"],
            "handed::a_file_of_another_length_is_not_taken",
        ),
    },
    Mutation {
        name: "migrate-marked-blocks",
        guard: "blocks marked by Write Uncorrectable do not stay behind unnoticed",
        file: "crates/subsystem/src/subsystem/moving.rs",
        from: "            if allocated.uncorrectable.iter().next().is_some() {",
        to: "            if allocated.uncorrectable.iter().next().is_none() {",
        test: unit(
            "subsystem",
            "subsystem::moving::tests::what_hosts_have_given_a_subsystem_keeps_its_controllers",
        ),
    },
    Mutation {
        name: "migrate-left-halted",
        guard: "a host that leaves a stopped device leaves one that serves",
        file: "crates/reactor/src/hosted/local.rs",
        from: "        controller.halt(false);",
        to: "",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "migrate::a_host_that_leaves_a_stopped_drive_leaves_a_usable_one",
        ),
    },
    Mutation {
        name: "migrate-died-elsewhere",
        guard: "a process that continues executes nothing again where another server has the medium",
        file: "crates/reactor/src/run/controllers.rs",
        from: "            Some(resumed) if !is_here =>",
        to: "            Some(resumed) if !is_here && resumed.left.crashed =>",
        test: integration(
            "nvmirage",
            &["--test", "program"],
            "migrate::a_source_that_dies_without_its_medium_goes_on_with_nothing",
        ),
    },
    Mutation {
        name: "migrate-fetches-after-leaving",
        guard: "queues of a device that is let go fetch nothing before a reset ends them",
        file: "crates/controller/src/controller/bus.rs",
        from: "let may_fetch = !self.is_stopping() && !self.holds.elsewhere();",
        to: "let may_fetch = !self.holds.elsewhere();",
        test: LET_GO,
    },
    Mutation {
        name: "migrate-fetches-elsewhere",
        guard: "queues of a device that is let go fetch nothing while another server has the media",
        file: "crates/controller/src/controller/bus.rs",
        from: "let may_fetch = !self.is_stopping() && !self.holds.elsewhere();",
        to: "let may_fetch = !self.is_stopping();",
        test: moves("controller::tests::migrate::a_device_without_its_medium_is_not_let_go"),
    },
    Mutation {
        name: "migrate-fetches-before-the-reset",
        guard: "lanes that do not know yet that they may serve are not told so when a reset begins",
        file: "crates/controller/src/controller/bus.rs",
        from: "        if self.changed && self.halted == Halt::No {",
        to: "        if self.changed && self.off {",
        test: LET_GO,
    },
];
