//! What a target of NVMe/TCP may do to our host.

use super::super::{Mutation, Test, unit};

/// A test of the bus.
const fn bus(name: &'static str) -> Test {
    unit("driver", name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
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
        file: "crates/driver/src/bus/nvme_tcp/connection.rs",
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
];
