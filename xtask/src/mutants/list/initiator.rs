//! What a target of NVMe/TCP may do to our host.

use super::super::{Mutation, Test, unit};

/// A test of the bus.
const fn bus(name: &'static str) -> Test {
    unit("driver", name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "initiator-queue-again",
        guard: "a queue that the target still has is connected when it has noticed the end",
        file: "crates/driver/src/bus/nvme_tcp/connect.rs",
        from: "        if !has_it || Instant::now() + RETRY >= deadline {",
        to: "        if has_it || !has_it {",
        test: bus(
            "bus::nvme_tcp::connect::tests::a_queue_that_the_target_still_has_is_connected_later",
        ),
    },
    Mutation {
        name: "initiator-short-data",
        guard: "a read that succeeds without all its data fails",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "} else if command.falls_short(&cqe) {",
        to: "} else if false {",
        test: bus("bus::nvme_tcp::wire::tests::a_read_ends_with_its_response_or_with_success"),
    },
    Mutation {
        name: "initiator-look-connects",
        guard: "a reactor that looks at completions waits for no connection",
        file: "crates/driver/src/bus/nvme_tcp/mod.rs",
        from: "0 => self.answer(queue, shared),",
        to: "0 => self.serve(queue, shared),",
        test: bus("bus::nvme_tcp::tests::a_look_fetches_no_admin_command"),
    },
    Mutation {
        name: "initiator-io-queue-elsewhere",
        guard: "an I/O queue goes to the target that has its controller",
        file: "crates/driver/src/bus/nvme_tcp/connect.rs",
        from: "peer.map_or_else(|| target.resolve(), |peer| Ok(vec![peer]))",
        to: "peer.map_or_else(|| target.resolve(), |_| target.resolve())",
        test: bus("bus::nvme_tcp::connect::tests::an_io_queue_goes_where_the_admin_queue_is"),
    },
    Mutation {
        name: "initiator-own-listener",
        guard: "a listener at all addresses is one at each of them",
        file: "crates/driver/src/bus/nvme_tcp/address.rs",
        from: "        let includes = at.is_unspecified() &&",
        to: "        let includes = at.is_loopback() &&",
        test: bus(
            "bus::nvme_tcp::address::tests::a_subsystem_of_this_machine_is_known_by_its_address",
        ),
    },
    Mutation {
        name: "initiator-damaged-data",
        guard: "a read whose data have a wrong digest fails",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "        command.is_damaged |= !intact;\n",
        to: "",
        test: bus("bus::nvme_tcp::wire::tests::wrong_digests_are_found"),
    },
    Mutation {
        name: "conformance-pcie-only",
        guard: "a controller over NVMe/TCP passes no test of PCIe",
        file: "crates/conformance/src/chapters/mod.rs",
        from: "Self::Pcie(why) if is_over_fabrics => Some(why),",
        to: "Self::Pcie(_) if is_over_fabrics => None,",
        test: unit(
            "conformance",
            "run::tests::tests_of_pcie_are_not_for_controllers_over_fabrics",
        ),
    },
    Mutation {
        name: "initiator-data-of-a-write",
        guard: "a target sends data only of a command that reads",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "let data = command.data.filter(|data| !data.to_controller)?;",
        to: "let data = command.data?;",
        test: bus("bus::nvme_tcp::wire::tests::a_target_moves_no_data_but_those_of_the_command"),
    },
    Mutation {
        name: "initiator-r2t-of-a-read",
        guard: "a target asks only for data of a command that writes",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "let data = command.data.filter(|data| data.to_controller);",
        to: "let data = command.data;",
        test: bus("bus::nvme_tcp::wire::tests::a_target_moves_no_data_but_those_of_the_command"),
    },
    Mutation {
        name: "initiator-one-r2t",
        guard: "a command has one R2T in flight, so that what waits to be sent is bounded",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "        if command.is_answering {\n",
        to: "        if false {\n",
        test: bus("bus::nvme_tcp::wire::tests::a_target_moves_no_data_but_those_of_the_command"),
    },
    Mutation {
        name: "initiator-ended-command",
        guard: "a command that ended has nothing to send in the name of the next one",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "        if command.is_answering || !command.is_sent {",
        to: "        if !command.is_sent {",
        test: bus("bus::nvme_tcp::wire::tests::a_command_that_ends_early_sends_no_more_data"),
    },
    Mutation {
        name: "initiator-behind",
        guard: "bytes that come behind data received to their place are not lost",
        file: "crates/driver/src/bus/nvme_tcp/connection.rs",
        from: "self.received = count.saturating_sub(place.1);",
        to: "self.received = 0;",
        test: bus("bus::nvme_tcp::connection::tests::long_data_and_what_comes_behind_them_arrive"),
    },
    Mutation {
        name: "initiator-place",
        guard: "data that are received to their place are behind those before",
        file: "crates/driver/src/bus/nvme_tcp/wire.rs",
        from: "            incoming.address = incoming.address.wrapping_add(len.into());\n",
        to: "",
        test: bus("bus::nvme_tcp::wire::tests::data_that_are_received_to_their_place_count"),
    },
    Mutation {
        name: "initiator-shared",
        guard: "data lie wholly in memory that the driver shares",
        file: "crates/driver/src/bus/nvme_tcp/shared.rs",
        from: "(end <= memory.len()).then_some((memory, at))",
        to: "(at <= memory.len()).then_some((memory, at))",
        test: bus("bus::nvme_tcp::shared::tests::only_bytes_inside_one_piece_are_found"),
    },
    Mutation {
        name: "initiator-doorbell",
        guard: "a doorbell's value lies in its queue",
        file: "crates/driver/src/bus/nvme_tcp/rings.rs",
        from: "let inside = tail < self.entries;",
        to: "let inside = tail <= self.entries;",
        test: bus(
            "bus::nvme_tcp::rings::tests::entries_go_around_and_completions_change_their_phase",
        ),
    },
    Mutation {
        name: "initiator-deadline",
        guard: "a target that sends a byte now and then gets no more time than the timeout",
        file: "crates/driver/src/bus/nvme_tcp/stream.rs",
        from: "        if left.is_zero() {",
        to: "        if false {",
        test: bus(
            "bus::nvme_tcp::connection::tests::a_socket_with_bytes_is_not_waited_for_after_the_deadline",
        ),
    },
    Mutation {
        name: "initiator-prps",
        guard: "PRPs, which have no length, are not sent",
        file: "crates/driver/src/bus/nvme_tcp/commands.rs",
        from: "        Psdt::PRP if none => return Ok(None),",
        to: "        Psdt::PRP if none || true => return Ok(None),",
        test: bus("bus::nvme_tcp::commands::tests::data_are_what_the_opcode_and_one_block_say"),
    },
    Mutation {
        name: "initiator-short-receive",
        guard: "a receive that took all is not followed by one that finds nothing",
        file: "crates/driver/src/bus/nvme_tcp/connection.rs",
        from: "            if std::mem::take(&mut self.is_drained) {",
        to: "            if std::mem::take(&mut self.is_drained) && self.received == usize::MAX {",
        test: bus(
            "bus::nvme_tcp::connection::tests::a_receive_that_took_all_is_the_last_one_of_a_look",
        ),
    },
    Mutation {
        name: "initiator-idle-queue",
        guard: "looks do not read the socket of an idle queue while another one is busy",
        file: "crates/driver/src/bus/nvme_tcp/queues.rs",
        from: "            self.recent.store(0, Ordering::Relaxed);\n",
        to: "",
        test: bus("bus::nvme_tcp::tests::a_queue_that_is_busy_after_another_one_is_found_at_once"),
    },
    Mutation {
        name: "initiator-admin-waits",
        guard: "an admin command is waited for beside one busy I/O queue",
        file: "crates/driver/src/bus/nvme_tcp/queues.rs",
        from: ".has_other_than(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST),",
        to: ".has_other_than(AdminOpcode::IDENTIFY),",
        test: bus("bus::nvme_tcp::tests::an_admin_command_is_found_at_once_beside_a_busy_queue"),
    },
    Mutation {
        name: "initiator-all-looks",
        guard: "connections without a busy queue are read now and then",
        file: "crates/driver/src/bus/nvme_tcp/mod.rs",
        from: "if !ended && !looks.is_multiple_of(LOOKS_AT_ALL) {",
        to: "if !ended && looks > 0 {",
        test: bus(
            "bus::nvme_tcp::tests::the_only_busy_queue_is_read_itself_and_now_and_then_all_are",
        ),
    },
    Mutation {
        name: "initiator-sole-queue",
        guard: "the socket of the only busy queue is read without asking which are ready",
        file: "crates/driver/src/bus/nvme_tcp/mod.rs",
        from: "(recent > 0 && self.busy.load(Ordering::Relaxed) == 1)",
        to: "(recent > 0 && self.busy.load(Ordering::Relaxed) == 0)",
        test: bus(
            "bus::nvme_tcp::tests::the_only_busy_queue_is_read_itself_and_now_and_then_all_are",
        ),
    },
];
