//! Drives that guests share.

use super::super::{Mutation, integration, program, unit};

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "drive-zeros-over-a-network",
        guard: "zeros for a drive over a network are no more than the page of them",
        file: "crates/media/src/drive/command.rs",
        from: "        None if over_fabrics => limit.min(PAGE as u32),\n",
        to: "",
        test: unit(
            "media",
            "drive::tests::fabrics::zeros_for_a_drive_over_a_network_are_one_data_block",
        ),
    },
    Mutation {
        name: "drive-over-a-network-survives",
        guard: "no process continues with a drive over a network that another one had",
        file: "crates/server/src/survival.rs",
        from: "} else if let Some(Place::NvmeTcp(_)) = target {",
        to: "} else if let (true, Some(Place::NvmeTcp(_))) = (records, target) {",
        test: program("network::remote::tenants_share_a_drive_of_another_machine"),
    },
    Mutation {
        name: "drive-own-controller",
        guard: "a drive over a network is no controller of the same configuration",
        file: "crates/api/src/config/medium/check.rs",
        from: "place.require(own.is_none(), || {",
        to: "place.require(own.is_none() || own.is_some(), || {",
        test: program("drives::what_cannot_be_a_drive_says_why"),
    },
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
        file: "crates/media/src/drive/channel/mod.rs",
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
        guard: "memory that a host unmaps is unmapped from the drive",
        file: "crates/media/src/drive/windows.rs",
        from: "if entry.lent.strong_count() > 0 || result.is_err() {",
        to: "if entry.lent.strong_count() > 0 || result.is_ok() {",
        test: unit(
            "media",
            "drive::tests::windows::what_a_host_takes_back_is_taken_back_from_the_drive",
        ),
    },
    Mutation {
        name: "drive-silence",
        guard: "a mapping without an answer is the last one that a drive is asked for",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "Err(error) if is_silence(error) => silent",
        to: "Err(error) if is_silence(error) && error.to_string().is_empty() => silent",
        test: program(
            "drives::slow::a_host_with_many_regions_does_not_delay_others_of_a_stalled_drive",
        ),
    },
    Mutation {
        name: "drive-hang",
        guard: "a drive that hangs costs its tenants interrupted commands",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "self.give_up(\"a command had no answer for too long\");",
        to: "",
        test: unit(
            "media",
            "drive::tests::faults::a_command_that_hangs_ends_after_4_s_and_the_next_one_is_done",
        ),
    },
    Mutation {
        name: "drive-whole-blocks",
        guard: "a host is promised no blocks that its drive may tear when the power fails",
        file: "crates/media/src/drive/facts.rs",
        from: "let promised = u64::from(block_len) * (u64::from(units_z) + 1);",
        to: "let promised = u64::from(block_len) * (u64::from(units_z) + 8);",
        test: unit(
            "media",
            "drive::facts::tests::what_is_written_whole_is_what_the_drive_promises",
        ),
    },
    Mutation {
        name: "drive-whole-formats",
        guard: "a namespace is formatted to no blocks that its medium may tear",
        file: "crates/subsystem/src/subsystem/plan.rs",
        from: "if !namespace.takes(1 << lba_shift) ||",
        to: "if",
        test: unit(
            "controller",
            "controller::tests::namespaces::blocks_that_a_medium_may_tear_are_no_format",
        ),
    },
    Mutation {
        name: "drive-quiet",
        guard: "who has a drive's interrupts switched off counts on none",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "            queue.wakes = Wakes::Can;\n            self.sleeps = false;\n",
        to: "",
        test: unit(
            "media",
            "drive::tests::sleep::a_drive_stops_signalling_a_reactor_that_is_busy_without_sleep",
        ),
    },
    Mutation {
        name: "drive-spared",
        guard: "a channel takes the posted completions of a queue before it abandons the queue",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "let is_spared = is_posted && ",
        to: "let is_spared = false && ",
        test: unit(
            "media",
            "drive::tests::faults::what_the_drive_has_answered_is_taken_before_it_is_given_up",
        ),
    },
    Mutation {
        name: "drive-aborts",
        guard: "a command that hangs ends alone where the drive can abort it",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "            self.abort(&to_abort);\n",
        to: "",
        test: unit(
            "media",
            "drive::tests::faults::a_command_that_the_drive_aborts_ends_alone",
        ),
    },
    Mutation {
        name: "drive-looks-again",
        guard: "a reactor does not sleep over what a drive has completed",
        file: "crates/media/src/drive/channel/keep.rs",
        from: "self.untold || queue.pair.is_posted()",
        to: "self.untold",
        test: unit(
            "media",
            "drive::tests::sleep::a_completion_of_the_drive_wakes_who_sleeps",
        ),
    },
    Mutation {
        name: "drive-asks-to-be-woken",
        guard: "a reactor sleeps with commands at a drive only where the drive wakes it",
        file: "crates/media/src/drive/channel/keep.rs",
        from: ".is_none_or(|queue| queue.wakes != Wakes::Does)",
        to: ".is_none_or(|queue| queue.wakes == Wakes::Cannot)",
        test: unit(
            "media",
            "drive::tests::sleep::a_completion_of_the_drive_wakes_who_sleeps",
        ),
    },
    Mutation {
        name: "drive-disabled-by-others",
        guard: "a drive that somebody else has disabled is reset at once, and asked for nothing before",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "Ok(status) if status.rdy() => return true,",
        to: "Ok(status) if status.rdy() || self.now > 0 => return true,",
        test: unit(
            "media",
            "drive::tests::faults::a_drive_that_somebody_else_has_disabled_is_reset",
        ),
    },
    Mutation {
        name: "drive-next-queue-wakes",
        guard: "the queues of a drive that comes back wake their reactors, too",
        file: "crates/media/src/drive/keeper/mod.rs",
        from: "connect(device, client, &self.relays)\n                    {\n                        queue.wakes = wakes;",
        to: "Some(crate::drive::queue::Wakes::Does)\n                    {\n                        queue.wakes = wakes;",
        test: unit(
            "media",
            "drive::tests::sleep::a_drive_that_was_lost_and_comes_back_wakes_as_before",
        ),
    },
    Mutation {
        name: "drive-rings-later",
        guard: "a doorbell that could not be rung at once is rung later",
        file: "crates/driver/src/queue/mod.rs",
        from: "self.tail_moved = rang == Rang::NotYet;",
        to: "self.tail_moved = false;",
        test: unit(
            "driver",
            "queue::tests::what_a_busy_bus_did_not_take_is_rung_once_when_it_does",
        ),
    },
    Mutation {
        name: "drive-server-that-does-not-read",
        guard: "a doorbell of a server that does not read is not waited for",
        file: "crates/vfio-user/src/client.rs",
        from: "        if !self.connection.flush()? {\n            return Ok(false);",
        to: "        if !self.connection.flush()? {\n            return Ok(true);",
        test: integration(
            "driver",
            &["--test", "driver"],
            "vfio_user_bus::doorbells_for_a_server_that_does_not_read_fill_its_socket_and_are_not_waited_for",
        ),
    },
    Mutation {
        name: "drive-fence-waits",
        guard: "a process serves no host while commands of the last one may be at a drive",
        file: "crates/media/src/drive/mod.rs",
        from: "let _ = passed.recv_timeout(FENCE_BOUND);",
        to: "drop(passed);",
        test: unit(
            "media",
            "drive::tests::again::the_process_waits_for_the_commands_of_the_last_one",
        ),
    },
    Mutation {
        name: "drive-fence-bound",
        guard: "the wait for a drive that does not answer has a bound",
        file: "crates/media/src/drive/mod.rs",
        from: "let _ = passed.recv_timeout(FENCE_BOUND);",
        to: "let _ = passed.recv();",
        test: unit(
            "media",
            "drive::tests::again::slow::a_server_that_does_not_answer_is_waited_for_for_a_bounded_time",
        ),
    },
    Mutation {
        name: "drive-fence-server",
        guard: "a server that closes connections may still execute commands of the last process",
        file: "crates/driver/src/error.rs",
        from: "            Self::Target { kind, .. } => *kind,\n            _ => None,",
        to: "            Self::Target { kind, .. } => *kind,\n            _ => Some(io::ErrorKind::NotFound),",
        test: unit(
            "media",
            "drive::tests::again::a_server_that_closes_connections_is_waited_for_too",
        ),
    },
];
