use nvme_spec::fabrics::{ConnectData, FabricsType, text_of};
use nvme_spec::sqe::Fuse;
use nvme_spec::tcp::{Digests, PduFlags};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::{Encoder, Head, Offer, Piece};

/// Bytes that Linux 7.3 sent and received, recorded: an admin queue without digests, one with them,
/// and the controller's side of an I/O queue with them.
const HOST: &[u8] = include_bytes!("recorded/host.bin");
const HOST_WITH_DIGESTS: &[u8] = include_bytes!("recorded/host_with_digests.bin");
const CONTROLLER_WITH_DIGESTS: &[u8] = include_bytes!("recorded/controller_with_digests.bin");

const MAX_DATA: u32 = 8192;

fn offer(digests: bool) -> Offer {
    Offer {
        digests: Digests::new().with_header(digests).with_data(digests),
        alignment_z: 0,
        max_h2c_data: 1 << 17,
        max_r2t_z: 0,
    }
}

/// Events of a stream, with pieces of data joined. `cuts` are the lengths of its pieces, again and
/// again.
fn events(
    side: Side,
    ours: &Offer,
    stream: &[u8],
    cuts: &[usize],
) -> (Vec<Owned>, Result<(), Fault>) {
    let mut decoder = Decoder::new(side, MAX_DATA);
    let mut events = Vec::new();
    let mut rest = stream;
    for cut in cuts.iter().copied().cycle() {
        let (mut bytes, later) = rest.split_at(cut.min(rest.len()));
        rest = later;
        loop {
            let event = match decoder.step(&mut bytes) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(fault) => return (events, Err(fault)),
            };
            match event {
                Event::IcReq(request) => match ours.answer(&request) {
                    Ok((_, agreement)) => decoder.agree(agreement),
                    Err(fault) => return (events, Err(fault)),
                },
                Event::IcResp(response) => match ours.agreed(&response) {
                    Ok(agreement) => decoder.agree(agreement),
                    Err(fault) => return (events, Err(fault)),
                },
                _ => {}
            }
            match (event, events.last_mut()) {
                (Event::Data(piece), Some(Owned::Data(data))) => data.extend_from_slice(piece),
                (Event::Data(piece), _) => events.push(Owned::Data(piece.to_vec())),
                (Event::DataEnd { intact }, _) => events.push(Owned::End(intact)),
                (event, _) => events.push(Owned::Head(format!("{event:?}"))),
            }
        }
        assert!(bytes.is_empty(), "what is not taken is not asked for again");
        if rest.is_empty() {
            break;
        }
    }
    (events, Ok(()))
}

/// An event without the bytes of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Head(String),
    Data(Vec<u8>),
    End(bool),
}

#[test]
fn recorded_sessions_are_understood_however_they_are_cut() {
    // The counts are those of another decoder, written for the recording.
    for (side, digests, stream, heads) in [
        (Side::Controller, false, HOST, 28),
        (Side::Controller, true, HOST_WITH_DIGESTS, 21),
        (Side::Host, true, CONTROLLER_WITH_DIGESTS, 6),
    ] {
        let whole = events(side, &offer(digests), stream, &[usize::MAX]);
        assert_eq!(whole.1, Ok(()));
        let is_head = |event: &&Owned| matches!(event, Owned::Head(_));
        assert_eq!(whole.0.iter().filter(is_head).count(), heads);
        assert!(!whole.0.contains(&Owned::End(false)), "digests are right");
        for cuts in [&[1][..], &[7], &[3, 128, 1, 73], &[1000]] {
            assert_eq!(events(side, &offer(digests), stream, cuts), whole);
        }
    }
}

#[test]
fn the_first_command_of_a_recorded_session_is_connect_with_its_data() {
    let mut decoder = Decoder::new(Side::Controller, MAX_DATA);
    let mut bytes = HOST;
    let Ok(Some(Event::IcReq(request))) = decoder.step(&mut bytes) else {
        panic!("ICReq is first");
    };
    decoder.agree(offer(false).answer(&request).unwrap().1);
    let Ok(Some(Event::Capsule { sqe, data: 1024 })) = decoder.step(&mut bytes) else {
        panic!("Connect has 1024 bytes of data");
    };
    assert_eq!(sqe.fabrics_type(), FabricsType::CONNECT);
    assert_eq!(sqe.cdw12, 5000, "KATO");
    assert_eq!(decoder.data_left(), 1024);
    let Ok(Some(Event::Data(data))) = decoder.step(&mut bytes) else {
        panic!("its data follow");
    };
    let data = ConnectData::read_from_bytes(data).unwrap();
    assert_eq!(data.cntlid, 0xffff);
    assert_eq!(text_of(&data.subnqn), Some("nqn.2026-11.t:s0"));
    let end = decoder.step(&mut bytes);
    assert_eq!(end, Ok(Some(Event::DataEnd { intact: true })));
    let Ok(Some(Event::Capsule { sqe, data: 0 })) = decoder.step(&mut bytes) else {
        panic!("Property Get has no data");
    };
    assert_eq!(sqe.fabrics_type(), FabricsType::PROPERTY_GET);
}

#[test]
fn data_may_be_received_beside_the_decoder() {
    for broken in [false, true] {
        let mut stream = HOST_WITH_DIGESTS.to_vec();
        // ICReq, then header, digest and data of Connect.
        let data = 128 + 76..128 + 76 + 1024;
        stream[data.start + 20] ^= u8::from(broken);
        let mut decoder = Decoder::new(Side::Controller, MAX_DATA);
        let mut bytes = &stream[..data.start];
        let Ok(Some(Event::IcReq(request))) = decoder.step(&mut bytes) else {
            panic!("ICReq is first");
        };
        decoder.agree(offer(true).answer(&request).unwrap().1);
        assert!(matches!(
            decoder.step(&mut bytes),
            Ok(Some(Event::Capsule { .. }))
        ));
        assert_eq!(decoder.step(&mut bytes), Ok(None));
        let (one, two) = stream[data.clone()].split_at(1000);
        decoder.received(one);
        assert_eq!(decoder.data_left(), 24);
        decoder.received(two);
        assert_eq!(decoder.data_left(), 0);
        let mut bytes = &stream[data.end..];
        let end = decoder.step(&mut bytes);
        assert_eq!(end, Ok(Some(Event::DataEnd { intact: !broken })));
        let next = decoder.step(&mut bytes);
        assert!(
            matches!(next, Ok(Some(Event::Capsule { .. }))),
            "the connection goes on"
        );
    }
}

/// A decoder before the data of Connect, of a stream with or without digests.
fn before_data(digests: bool, stream: &'static [u8]) -> (Decoder, &'static [u8]) {
    let mut decoder = Decoder::new(Side::Controller, MAX_DATA);
    let mut bytes = stream;
    let Ok(Some(Event::IcReq(request))) = decoder.step(&mut bytes) else {
        panic!("ICReq is first");
    };
    decoder.agree(offer(digests).answer(&request).unwrap().1);
    decoder.step(&mut bytes).unwrap();
    (decoder, bytes)
}

#[test]
fn data_without_a_digest_need_not_be_shown() {
    let (mut decoder, bytes) = before_data(false, HOST);
    decoder.received_unseen(1000);
    assert_eq!(decoder.data_left(), 24);
    decoder.received_unseen(24);
    let mut bytes = &bytes[1024..];
    let end = decoder.step(&mut bytes);
    assert_eq!(end, Ok(Some(Event::DataEnd { intact: true })));
    let next = decoder.step(&mut bytes);
    assert!(matches!(next, Ok(Some(Event::Capsule { .. }))));
}

#[test]
#[should_panic(expected = "data with a digest are shown")]
fn data_with_a_digest_are_shown() {
    before_data(true, HOST_WITH_DIGESTS).0.received_unseen(1);
}

#[test]
#[should_panic(expected = "no more than the data that are left")]
fn no_more_than_the_data_is_received_unseen() {
    before_data(false, HOST).0.received_unseen(1025);
}

#[test]
#[should_panic(expected = "no more than the data that are left")]
fn more_than_the_data_cannot_be_received_beside_it() {
    let mut decoder = Decoder::new(Side::Controller, MAX_DATA);
    let mut bytes = HOST;
    let Ok(Some(Event::IcReq(request))) = decoder.step(&mut bytes) else {
        panic!("ICReq is first");
    };
    decoder.agree(offer(false).answer(&request).unwrap().1);
    decoder.step(&mut bytes).unwrap();
    decoder.received(&[0; 1025]);
}

/// Header of a PDU of this type, right in everything, for `data` bytes of data at `pdo`.
fn right(pdu_type: PduType, data: u32, digests: bool) -> Vec<u8> {
    let agreement = offer(digests).answer(&offer(digests).request()).unwrap().1;
    let encoder = Encoder::new(agreement);
    let piece = Piece {
        cccid: 1,
        ttag: 2,
        offset: 0,
        len: data,
        last: true,
    };
    let head: Head = match pdu_type {
        PduType::CAPSULE_CMD => encoder.capsule(&Sqe::default(), data),
        PduType::CAPSULE_RESP => encoder.response(&Cqe::default()),
        PduType::H2C_DATA => encoder.h2c_data(&piece),
        PduType::C2H_DATA => encoder.c2h_data(&piece, false),
        PduType::R2T => encoder.r2t(&piece),
        PduType::IC_REQ => (&offer(digests).request()).into(),
        PduType::IC_RESP => (&offer(digests).answer(&offer(digests).request()).unwrap().0).into(),
        _ => panic!("termination requests are made of faults"),
    };
    head.to_vec()
}

/// Answer of a side to a head, when both have agreed.
fn verdict(side: Side, digests: bool, head: &[u8]) -> Result<Option<String>, Fault> {
    let mut decoder = Decoder::new(side, MAX_DATA);
    decoder.agree(offer(digests).answer(&offer(digests).request()).unwrap().1);
    let mut bytes = head;
    let verdict = decoder
        .step(&mut bytes)
        .map(|event| event.map(|event| format!("{event:?}")));
    if verdict.is_err() {
        let len = decoder.at_fault().len();
        assert_eq!(decoder.at_fault(), &head[..len], "the header is kept");
        assert!(len >= 8);
        let mut more = HOST;
        assert_eq!(
            decoder.step(&mut more),
            Ok(None),
            "nothing is read after a fault"
        );
    }
    verdict
}

#[test]
fn each_rule_of_a_header_has_its_fault() {
    use PduType as Pdu;
    let change = |pdu_type, data, digests, at: usize, to: u8| {
        let mut head = right(pdu_type, data, digests);
        head[at] = to;
        head
    };
    let controller = Side::Controller;
    for pdu_type in [Pdu::CAPSULE_CMD, Pdu::H2C_DATA] {
        assert!(verdict(controller, false, &right(pdu_type, 512, false)).is_ok());
        assert!(verdict(controller, true, &right(pdu_type, 512, true)).is_ok());
    }
    let length = |pdu_type, plen| Fault::Length { pdu_type, plen };
    let cases = [
        // Types: unknown ones, those of the other side, and one that is late.
        (
            change(Pdu::CAPSULE_CMD, 0, false, 0, 8),
            Fault::Type(PduType(8)),
        ),
        (
            change(Pdu::CAPSULE_CMD, 0, false, 0, 0xff),
            Fault::Type(PduType(0xff)),
        ),
        (right(Pdu::R2T, 512, false), Fault::Type(Pdu::R2T)),
        (
            right(Pdu::CAPSULE_RESP, 0, false),
            Fault::Type(Pdu::CAPSULE_RESP),
        ),
        (right(Pdu::C2H_DATA, 512, false), Fault::Type(Pdu::C2H_DATA)),
        (right(Pdu::IC_RESP, 0, false), Fault::Type(Pdu::IC_RESP)),
        (right(Pdu::IC_REQ, 0, false), Fault::Sequence(Pdu::IC_REQ)),
        // HLEN.
        (
            change(Pdu::CAPSULE_CMD, 0, false, 2, 71),
            Fault::HeaderLength {
                pdu_type: Pdu::CAPSULE_CMD,
                hlen: 71,
            },
        ),
        (
            change(Pdu::H2C_DATA, 512, false, 2, 255),
            Fault::HeaderLength {
                pdu_type: Pdu::H2C_DATA,
                hlen: 255,
            },
        ),
        // Digests that were not agreed on.
        (
            change(Pdu::CAPSULE_CMD, 0, false, 1, 1),
            Fault::Flags {
                pdu_type: Pdu::CAPSULE_CMD,
                flags: 1,
            },
        ),
        (
            change(Pdu::H2C_DATA, 512, false, 1, 6),
            Fault::Flags {
                pdu_type: Pdu::H2C_DATA,
                flags: 6,
            },
        ),
        // PDO in the header, and not aligned.
        (
            change(Pdu::H2C_DATA, 512, false, 3, 20),
            Fault::DataOffset {
                pdu_type: Pdu::H2C_DATA,
                pdo: 20,
            },
        ),
        (
            change(Pdu::H2C_DATA, 512, false, 3, 26),
            Fault::DataOffset {
                pdu_type: Pdu::H2C_DATA,
                pdo: 26,
            },
        ),
        (
            change(Pdu::CAPSULE_CMD, 512, false, 3, 0),
            Fault::DataOffset {
                pdu_type: Pdu::CAPSULE_CMD,
                pdo: 0,
            },
        ),
        // PLEN below the header, at the padding, and not that of DATAL.
        (
            change(Pdu::CAPSULE_CMD, 0, false, 4, 71),
            length(Pdu::CAPSULE_CMD, 71),
        ),
        (
            change(Pdu::H2C_DATA, 100, false, 4, 23),
            length(Pdu::H2C_DATA, 23),
        ),
        (
            change(Pdu::H2C_DATA, 100, false, 4, 24),
            Fault::NoData(Pdu::H2C_DATA),
        ),
        (
            change(Pdu::H2C_DATA, 100, false, 4, 125),
            length(Pdu::H2C_DATA, 125),
        ),
        (
            change(Pdu::H2C_DATA, 100, false, 16, 101),
            length(Pdu::H2C_DATA, 124),
        ),
        // Data beyond the limit: of the queue, and of MAXH2CDATA.
        (
            right(Pdu::CAPSULE_CMD, MAX_DATA + 1, false),
            Fault::DataTooLong {
                pdu_type: Pdu::CAPSULE_CMD,
                limit: MAX_DATA,
            },
        ),
        (
            right(Pdu::H2C_DATA, (1 << 17) + 1, false),
            Fault::DataTooLong {
                pdu_type: Pdu::H2C_DATA,
                limit: 1 << 17,
            },
        ),
        (
            change(Pdu::CAPSULE_CMD, 512, false, 7, 0xff),
            Fault::DataTooLong {
                pdu_type: Pdu::CAPSULE_CMD,
                limit: MAX_DATA,
            },
        ),
    ];
    for (head, fault) in cases {
        assert_eq!(verdict(controller, false, &head), Err(fault), "{head:02x?}");
    }
    assert!(verdict(controller, false, &right(Pdu::CAPSULE_CMD, MAX_DATA, false)).is_ok());
    assert!(verdict(controller, false, &right(Pdu::H2C_DATA, 1 << 17, false)).is_ok());
}

#[test]
fn each_rule_of_a_host_has_its_fault() {
    use PduType as Pdu;
    let host = Side::Host;
    for pdu_type in [Pdu::CAPSULE_RESP, Pdu::C2H_DATA, Pdu::R2T] {
        assert!(verdict(host, false, &right(pdu_type, 512, false)).is_ok());
        assert!(verdict(host, true, &right(pdu_type, 512, true)).is_ok());
    }
    let mut success_alone = right(Pdu::C2H_DATA, 512, false);
    success_alone[1] = PduFlags::new().with_success(true).into();
    let mut longer = right(Pdu::CAPSULE_RESP, 0, false);
    longer[4] += 4;
    for (head, fault) in [
        (right(Pdu::H2C_DATA, 512, false), Fault::Type(Pdu::H2C_DATA)),
        (
            right(Pdu::CAPSULE_CMD, 0, false),
            Fault::Type(Pdu::CAPSULE_CMD),
        ),
        (right(Pdu::IC_REQ, 0, false), Fault::Type(Pdu::IC_REQ)),
        (right(Pdu::IC_RESP, 0, false), Fault::Sequence(Pdu::IC_RESP)),
        (
            success_alone,
            Fault::Flags {
                pdu_type: Pdu::C2H_DATA,
                flags: 8,
            },
        ),
        (
            longer,
            Fault::Length {
                pdu_type: Pdu::CAPSULE_RESP,
                plen: 28,
            },
        ),
        (right(Pdu::R2T, 0, false), Fault::NoData(Pdu::R2T)),
        (
            right(Pdu::C2H_DATA, MAX_DATA + 1, false),
            Fault::DataTooLong {
                pdu_type: Pdu::C2H_DATA,
                limit: MAX_DATA,
            },
        ),
    ] {
        assert_eq!(verdict(host, false, &head), Err(fault), "{head:02x?}");
    }
}

#[test]
fn a_header_whose_digest_is_wrong_ends_the_connection() {
    for pdu_type in [PduType::CAPSULE_CMD, PduType::H2C_DATA] {
        let mut head = right(pdu_type, 512, true);
        let header = usize::from(head[2]);
        head[header - 1] ^= 0x80;
        let received = u32::from_le_bytes(head[header..header + 4].try_into().unwrap());
        let fault = Fault::HeaderDigest { received };
        assert_eq!(verdict(Side::Controller, true, &head), Err(fault));
    }
    let without = right(PduType::CAPSULE_CMD, 0, false);
    let fault = Fault::Flags {
        pdu_type: PduType::CAPSULE_CMD,
        flags: 0,
    };
    assert_eq!(verdict(Side::Controller, true, &without), Err(fault));
}

#[test]
fn nothing_comes_before_the_first_pdu_of_a_side() {
    for (side, pdu_type) in [
        (Side::Controller, PduType::CAPSULE_CMD),
        (Side::Controller, PduType::H2C_DATA),
        (Side::Host, PduType::CAPSULE_RESP),
        (Side::Host, PduType::R2T),
    ] {
        let mut decoder = Decoder::new(side, MAX_DATA);
        let head = right(pdu_type, 512, false);
        assert_eq!(decoder.step(&mut &head[..]), Err(Fault::Sequence(pdu_type)));
    }
}

#[test]
fn a_termination_request_is_the_last_that_is_read() {
    for agreed in [false, true] {
        let fault = Fault::TransferTag(5);
        let head = right(PduType::H2C_DATA, 512, false);
        let mut stream = fault.termination(Side::Host, &head).to_vec();
        assert_eq!(stream.len(), 48);
        assert_eq!(stream[24..], head[..]);
        stream.extend_from_slice(HOST);
        let mut decoder = Decoder::new(Side::Controller, MAX_DATA);
        if agreed {
            decoder.agree(offer(false).answer(&offer(false).request()).unwrap().1);
        }
        let mut bytes = &stream[..];
        let terminated = Event::Terminated {
            fes: FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
            fei: 10,
        };
        assert_eq!(decoder.step(&mut bytes), Ok(Some(terminated)));
        assert_eq!(decoder.step(&mut bytes), Ok(None));
        assert!(bytes.is_empty());
    }
}

#[test]
fn a_termination_request_has_at_most_152_bytes() {
    let fault = Fault::Sequence(PduType::IC_REQ);
    let longest = fault.termination(Side::Controller, &[7; 200]);
    assert_eq!(longest.len(), 152);
    assert_eq!(longest[..8], [3, 0, 24, 0, 152, 0, 0, 0]);
    assert_eq!(longest[8..10], [2, 0]);
    let mut decoder = Decoder::new(Side::Host, MAX_DATA);
    let event = decoder.step(&mut &longest[..]).unwrap();
    assert!(matches!(event, Some(Event::Terminated { .. })));
    let mut longer = longest.to_vec();
    longer[4] = 153;
    let fault = Fault::Length {
        pdu_type: PduType::C2H_TERM_REQ,
        plen: 153,
    };
    let mut decoder = Decoder::new(Side::Host, MAX_DATA);
    assert_eq!(decoder.step(&mut &longer[..]), Err(fault));
}

/// A PDU that a controller may receive.
#[derive(Clone, Debug)]
enum Sent {
    Capsule(u16, Vec<u8>),
    Data(Piece, Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = |min| prop::collection::vec(any::<u8>(), min..300);
    prop_oneof![
        (any::<u16>(), bytes(0)).prop_map(|(cid, data)| Sent::Capsule(cid, data)),
        (any::<[u16; 2]>(), any::<u32>(), any::<bool>(), bytes(1)).prop_map(
            |([cccid, ttag], offset, last, data)| {
                let len = u32::try_from(data.len()).unwrap();
                Sent::Data(
                    Piece {
                        cccid,
                        ttag,
                        offset,
                        len,
                        last,
                    },
                    data,
                )
            }
        ),
    ]
}

/// The first event of a head that comes in one piece, or with its first byte apart from the rest.
fn first(side: Side, agreement: Agreement, head: &[u8], apart: bool) -> String {
    let mut decoder = Decoder::new(side, MAX_DATA);
    decoder.agree(agreement);
    let (mut one, mut rest) = head.split_at(usize::from(apart));
    let event = decoder.step(&mut one);
    if !one.is_empty() || event != Ok(None) {
        return format!("{event:?} of one byte");
    }
    let event = decoder.step(&mut rest);
    match event.map(|event| format!("{event:?}")) {
        // The connection ends.
        Err(fault) => format!("{fault:?}"),
        Ok(event) => format!(
            "{event:?}, {} of data, {} left",
            decoder.data_left(),
            rest.len()
        ),
    }
}

proptest! {
    #[test]
    fn a_head_in_one_piece_is_judged_as_one_in_two(
        side in prop_oneof![Just(Side::Host), Just(Side::Controller)],
        digests in prop_oneof![3 => Just([false; 2]), 1 => any::<[bool; 2]>()],
        alignments in prop_oneof![3 => Just([0; 2]), 1 => prop::array::uniform2(0..=31u8)],
        data in prop_oneof![Just(0), 1..=2 * MAX_DATA],
        last in any::<bool>(),
        success in any::<bool>(),
        changed in prop::option::of((0..24usize, 1..=255u8)),
        other_digest in any::<bool>(),
    ) {
        let agreement = Agreement {
            digests: Digests::new().with_header(digests[0]).with_data(digests[1]),
            host_alignment_z: alignments[0],
            controller_alignment_z: alignments[1],
            max_h2c_data: MAX_DATA,
            max_r2t_z: 0,
        };
        // An agreement with another alignment has other heads, which are at fault here.
        let other = Agreement {
            host_alignment_z: alignments[1],
            controller_alignment_z: alignments[0],
            ..agreement
        };
        for encoder in [agreement, other].map(Encoder::new) {
            let piece = Piece { cccid: 1, ttag: 2, offset: 0, len: data.max(1), last };
            let head = match side {
                Side::Controller => encoder.capsule(&Sqe::default(), data),
                Side::Host => encoder.c2h_data(&piece, success),
            };
            let mut bytes = head.to_vec();
            if let Some((at, by)) = changed {
                bytes[at] ^= by;
            }
            if other_digest {
                bytes[1] ^= u8::from(PduFlags::new().with_ddgst(true));
            }
            bytes.extend([0; 8]);
            let [whole, apart] = [false, true].map(|apart| first(side, agreement, &bytes, apart));
            prop_assert_eq!(whole, apart);
        }
    }

    #[test]
    fn what_a_host_writes_a_controller_reads(
        pdus in prop::collection::vec(sent(), 1..8),
        header in any::<bool>(),
        data in any::<bool>(),
        alignment_z in 0..=31u8,
        cuts in prop::collection::vec(1..200usize, 1..5),
    ) {
        let digests = Digests::new().with_header(header).with_data(data);
        let ours = Offer { digests, alignment_z, ..offer(false) };
        let theirs = Offer { digests, ..offer(false) };
        let (_, agreement) = ours.answer(&theirs.request()).unwrap();
        let encoder = Encoder::new(agreement);
        let mut stream = Head::from(&theirs.request()).to_vec();
        let mut expected = vec![Owned::Head(format!("{:?}", Event::IcReq(theirs.request())))];
        for pdu in &pdus {
            let (head, event, data) = match pdu {
                Sent::Capsule(cid, data) => {
                    let mut sqe = Sqe { cid: *cid, ..Sqe::default() };
                    sqe.flags.set_fuse(Fuse::FIRST);
                    let len = u32::try_from(data.len()).unwrap();
                    let event = Event::Capsule { sqe, data: len };
                    (encoder.capsule(&sqe, len), event, data)
                }
                Sent::Data(piece, data) => {
                    let head = encoder.h2c_data(piece);
                    let header = DataHeader::read_from_bytes(&head[..24]).unwrap();
                    prop_assert_eq!((header.cccid, header.ttag), (piece.cccid, piece.ttag));
                    prop_assert_eq!((header.datao, header.datal), (piece.offset, piece.len));
                    prop_assert_eq!(header.common.flags.last(), piece.last);
                    (head, Event::H2cData(header), data)
                }
            };
            let begun = stream.len();
            stream.extend_from_slice(&head);
            expected.push(Owned::Head(format!("{event:?}")));
            if !data.is_empty() {
                prop_assert_eq!((stream.len() - begun) % ((usize::from(alignment_z) + 1) * 4), 0);
                stream.extend_from_slice(data);
                if encoder.data_digest() {
                    let mut digest = DataDigest::default();
                    digest.add(data);
                    stream.extend_from_slice(&digest.bytes());
                }
                expected.push(Owned::Data(data.clone()));
                expected.push(Owned::End(true));
            }
            let plen = u32::from_le_bytes(head[4..8].try_into().unwrap());
            prop_assert_eq!(stream.len() - begun, plen as usize, "PLEN is the sum");
        }
        let (events, end) = events(Side::Controller, &ours, &stream, &cuts);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(events, expected);
    }
}

#[test]
fn a_digest_is_crc32c() {
    // The check value of CRC-32C, of the digits 1 to 9 (RFC 3720, B.4 has others).
    let mut digest = DataDigest::default();
    digest.add(b"1234");
    digest.add(b"56789");
    assert_eq!(digest.bytes(), 0xe306_9283u32.to_le_bytes());
    assert_eq!(
        of_header(&[0; 32]),
        [0xaa, 0x36, 0x91, 0x8a],
        "RFC 3720, B.4"
    );
    assert_eq!(Sqe::default().as_bytes().len(), 64);
}
