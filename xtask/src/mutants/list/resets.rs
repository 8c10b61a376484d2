//! Enabling, resets, shutdown, and what must not outlive them.

use super::super::{Mutation, integration, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "reset-doorbells-of-before",
        guard: "what a host submitted while the controller was disabled is not done",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "        self.doorbells.pages.zero_all();\n        match self.make_admin_queue() {",
        to: "        match self.make_admin_queue() {",
        test: unit(
            "controller",
            "controller::tests::lifecycle::what_was_submitted_while_disabled_is_not_done",
        ),
    },
    Mutation {
        name: "shadow-after-reset",
        guard: "the registration of doorbell buffers ends with every reset",
        file: "crates/controller/src/controller/doorbells.rs",
        from: "        self.shadow = None;\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::doorbell_buffers::the_registration_of_doorbell_buffers_ends_at_every_reset",
        ),
    },
    Mutation {
        name: "device-reset",
        guard: "DEVICE_RESET resets the controller",
        file: "crates/transport/src/vfio_user/session.rs",
        from: "                controller.function_reset();\n                Ok(Answer::Later(Until::Reset))\n",
        to: "                Ok(Answer::Later(Until::Reset))\n",
        test: integration(
            "tests-protocol",
            &["--test", "protocol"],
            "cases::reset::registers_and_configuration_space_are_as_after_power_on",
        ),
    },
    Mutation {
        name: "reset-reply",
        guard: "the reply to DEVICE_RESET waits until the controller is quiet",
        file: "crates/transport/src/vfio_user/waiting.rs",
        from: "Until::Reset if controller.is_quiet() => Some(Ok(())),",
        to: "Until::Reset if !controller.is_quiet() => Some(Ok(())),",
        test: integration(
            "tests-protocol",
            &["--test", "protocol"],
            "cases::reset::the_reply_waits_for_commands_in_flight",
        ),
    },
    Mutation {
        name: "quiet-reset",
        guard: "a controller whose reset is in progress is not quiet, with or without lanes",
        file: "crates/controller/src/controller/mod.rs",
        from: "!self.is_stopping() && !self.queues.has_lanes()",
        to: "!self.queues.has_lanes()",
        test: unit(
            "controller",
            "controller::tests::lifecycle::a_reset_in_progress_is_not_quiet_without_lanes",
        ),
    },
    Mutation {
        name: "quiet-lanes",
        guard: "a controller with lanes is not quiet",
        file: "crates/controller/src/controller/mod.rs",
        from: "!self.is_stopping() && !self.queues.has_lanes()",
        to: "!self.is_stopping()",
        test: unit(
            "controller",
            "controller::tests::lifecycle::a_controller_with_lanes_is_not_quiet",
        ),
    },
    Mutation {
        name: "ready-falls",
        guard: "RDY falls when no command of the former life is in flight",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "        if !self.queues.has_lanes() {\n            self.finish_stop(stopping.then);\n",
        to: "        if true {\n            self.finish_stop(stopping.then);\n",
        test: unit(
            "controller",
            "controller::tests::lifecycle::disable_waits_for_commands_in_flight",
        ),
    },
    Mutation {
        name: "reset-deadline",
        guard: "a reset gives up what hangs",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "        if self.now >= deadline {\n            self.tell_lanes(lanes, || LaneCommand::AbandonAll);\n        }\n        self.take_events(lanes);\n        if ",
        to: "        let _ = deadline;\n        self.take_events(lanes);\n        if ",
        test: unit(
            "controller",
            "controller::tests::lifecycle::disable_is_bounded_where_a_medium_hangs",
        ),
    },
    Mutation {
        name: "stale-doorbells",
        guard: "doorbells are zero when RDY falls",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "                self.doorbells.pages.zero_all();\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::lifecycle::a_controller_reset_keeps_the_admin_queue_registers_and_forgets_the_rest",
        ),
    },
    Mutation {
        name: "stopped-lane",
        guard: "a lane that was stopped posts nothing more",
        file: "crates/controller/src/lane/service.rs",
        from: "        // Nothing is posted from here on: the host may use the rings for something else.\n        self.serving = false;\n",
        to: "",
        test: unit(
            "controller",
            "lane::tests::control::stop_fetches_and_posts_nothing_more",
        ),
    },
    Mutation {
        name: "shutdown-flush",
        guard: "a shutdown is complete when the media are flushed",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "                    Shutdown::Flushing(self.begin_flush())\n",
        to: "                    self.registers.set_shutdown_status(ShutdownStatus::COMPLETE);\n                    Shutdown::Complete\n",
        test: unit(
            "controller",
            "controller::tests::shutdown::a_normal_shutdown_flushes_and_then_tells",
        ),
    },
    Mutation {
        name: "saved-values-after-reset",
        guard: "a reset brings the saved values of features back",
        file: "crates/controller/src/controller/admin/features/mod.rs",
        from: "        self.current = self.saved.clone();\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::saved_features::a_saved_value_outlives_a_reset_and_one_that_is_not_saved_does_not",
        ),
    },
    Mutation {
        name: "keep-alive",
        guard: "a host that falls silent loses its controller",
        file: "crates/controller/src/controller/admin/keep_alive.rs",
        from: "        self.fail(Failure::KeepAlive);\n",
        to: "",
        test: unit(
            "controller",
            "controller::tests::keep_alive::a_host_that_is_silent_too_long_loses_its_controller",
        ),
    },
    Mutation {
        name: "entry-sizes",
        guard: "a controller is not enabled with settings that cannot be",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "        if cc.mps() != 0 {\n",
        to: "        if cc.mps() > 1 {\n",
        test: unit(
            "controller",
            "controller::tests::lifecycle::bad_settings_set_cfs_and_not_rdy",
        ),
    },
    Mutation {
        name: "lost-memory",
        guard: "a controller whose memory was truncated fails",
        file: "crates/controller/src/controller/lifecycle.rs",
        from: "        if self.is_memory_lost() {\n",
        to: "        if self.is_memory_lost() && self.admin.is_none() {\n",
        test: unit(
            "controller",
            "controller::tests::lifecycle::memory_that_was_truncated_fails_this_controller",
        ),
    },
    Mutation {
        name: "reset-forwards",
        guard: "a reservation command that a lane has at a reset is of no other host",
        file: "crates/controller/src/controller/exchange.rs",
        from: "if self.life.phase != Phase::Ready {\n                    lanes.answer(",
        to: "if self.life.phase == Phase::Failed {\n                    lanes.answer(",
        test: unit(
            "controller",
            "controller::tests::reservations::a_command_that_a_lane_has_at_a_reset_registers_no_host",
        ),
    },
];
