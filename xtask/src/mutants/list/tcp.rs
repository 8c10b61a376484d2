//! What a peer of an NVMe/TCP connection may do wrong.

use super::super::{Mutation, Test, unit};

/// A test of the codec.
const fn tcp(name: &'static str) -> Test {
    unit("nvme-tcp", name)
}

pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "tcp-type",
        guard: "a PDU that only the other side may send ends the connection",
        file: "crates/nvme-tcp/src/header.rs",
        from: "(Side::Host, PduType::R2T) =>",
        to: "(_, PduType::R2T) =>",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-header-length",
        guard: "the length of a header is the one of its type",
        file: "crates/nvme-tcp/src/header.rs",
        from: "if usize::from(common.hlen) != header {",
        to: "if usize::from(common.hlen) < header {",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-data-limit",
        guard: "data beyond the limit are refused before the first byte of them",
        file: "crates/nvme-tcp/src/header.rs",
        from: "        if data > max_data {",
        to: "        if data > max_data && false {",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-data-offset",
        guard: "data do not begin in the header",
        file: "crates/nvme-tcp/src/header.rs",
        from: "        if head < after || !head",
        to: "        if !head",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-sequence",
        guard: "a second first PDU ends the connection",
        file: "crates/nvme-tcp/src/header.rs",
        from: "            PduType::IC_REQ | PduType::IC_RESP => return Err(Fault::Sequence(pdu_type)),",
        to: "            PduType::IC_REQ | PduType::IC_RESP => {}",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-before-agreement",
        guard: "nothing is read before the first PDU",
        file: "crates/nvme-tcp/src/header.rs",
        from: "                _ => Err(Fault::Sequence(pdu_type)),",
        to: "                _ => without_data(header, common, length),",
        test: tcp("decoder::tests::nothing_comes_before_the_first_pdu_of_a_side"),
    },
    Mutation {
        name: "tcp-header-digest",
        guard: "the digest of a header is compared",
        file: "crates/nvme-tcp/src/decoder/mod.rs",
        from: "if *received != of_header(header) {",
        to: "if *received != of_header(header) && false {",
        test: tcp("decoder::tests::a_header_whose_digest_is_wrong_ends_the_connection"),
    },
    Mutation {
        name: "tcp-data-digest",
        guard: "the digest of data is compared",
        file: "crates/nvme-tcp/src/decoder/mod.rs",
        from: "            intact: self.head[..DIGEST_SIZE] == digest.bytes(),",
        to: "            intact: self.head[..DIGEST_SIZE] == digest.bytes() || true,",
        test: tcp("decoder::tests::data_may_be_received_beside_the_decoder"),
    },
    Mutation {
        name: "tcp-data-length",
        guard: "DATAL is what PLEN leaves for data",
        file: "crates/nvme-tcp/src/decoder/mod.rs",
        from: "    if header.datal != layout.data {",
        to: "    if header.datal < layout.data {",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-after-a-fault",
        guard: "nothing is read after a fault",
        file: "crates/nvme-tcp/src/decoder/mod.rs",
        from: "                if event.is_err() {",
        to: "                if event.is_err() && false {",
        test: tcp("decoder::tests::each_rule_of_a_header_has_its_fault"),
    },
    Mutation {
        name: "tcp-termination",
        guard: "nothing is read after a termination request",
        file: "crates/nvme-tcp/src/decoder/mod.rs",
        from: "            Ok(Event::Terminated { .. }) => self.state = State::Ended,",
        to: "            Ok(Event::Terminated { .. }) => {}",
        test: tcp("decoder::tests::a_termination_request_is_the_last_that_is_read"),
    },
    Mutation {
        name: "tcp-transfer-tag",
        guard: "data of another transfer are refused",
        file: "crates/nvme-tcp/src/transfer.rs",
        from: "        if header.ttag != self.ttag {",
        to: "        if header.ttag != self.ttag && false {",
        test: tcp("transfer::tests::data_that_were_not_to_come_are_refused_and_change_nothing"),
    },
    Mutation {
        name: "tcp-range",
        guard: "data come in order, and not beyond the end",
        file: "crates/nvme-tcp/src/transfer.rs",
        from: "            Some(end) if header.datao == self.at && end <= self.end",
        to: "            Some(end) if header.datao >= self.at && end <= self.end",
        test: tcp("transfer::tests::data_that_were_not_to_come_are_refused_and_change_nothing"),
    },
    Mutation {
        name: "tcp-last",
        guard: "LAST_PDU stands where the transfer ends",
        file: "crates/nvme-tcp/src/transfer.rs",
        from: "        if header.common.flags.last() != (range.end == self.end) {",
        to: "        if header.common.flags.last() && range.end != self.end {",
        test: tcp("transfer::tests::data_that_were_not_to_come_are_refused_and_change_nothing"),
    },
    Mutation {
        name: "tcp-r2t-range",
        guard: "an R2T asks for what comes next",
        file: "crates/nvme-tcp/src/transfer.rs",
        from: "            Some(end) if r2t.r2to == sent && end <= total",
        to: "            Some(end) if r2t.r2to == sent && end > 0",
        test: tcp("transfer::tests::an_r2t_is_answered_in_pieces_that_end_with_the_last"),
    },
    Mutation {
        name: "tcp-max-h2c-data",
        guard: "MAXH2CDATA is at least 4096",
        file: "crates/nvme-tcp/src/agreement.rs",
        from: "if max_h2c_data < MIN_MAXH2CDATA || !max",
        to: "if !max",
        test: tcp("agreement::tests::parameters_out_of_their_range_are_refused"),
    },
];
