//! Hosts that break rules, are slow, or do not read.

use std::io::Write as _;
use std::time::Duration;

use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::sgl::{SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::{Fuse, Psdt};
use nvme_spec::tcp::FatalErrorStatus;
use nvme_spec::{Sqe, Status};
use nvme_tcp::Piece;

use super::host::{Host, Manner, beside, fuse, in_capsule, pattern};
use super::rig::{MAX_TRANSFER, Rig};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;

/// The name of the only end of a queue.
fn ended(rig: &Rig) -> Vec<&'static str> {
    let counters = rig.association.as_ref().unwrap().counters();
    counters.ended.keys().copied().collect()
}

#[test]
fn a_data_pointer_that_cannot_be_is_a_status_and_the_queue_goes_on() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let identifier = |descriptor_type: SglDescriptorType, sub_type: u8| {
        SglIdentifier::new()
            .with_descriptor_type(descriptor_type)
            .with_sub_type(SglDescriptorSubType(sub_type))
    };
    let block = SglDescriptorType::DATA_BLOCK;
    let transport = SglDescriptorType::TRANSPORT_DATA_BLOCK;
    // Opcode, type and sub type, address, length, bytes in the capsule; the status.
    let cases = [
        (NvmOpcode::WRITE, (block, 1), 0, 512, 512, GOOD),
        (
            NvmOpcode::WRITE,
            (block, 1),
            0,
            512,
            0,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (block, 0),
            0,
            512,
            512,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (transport, 0xa),
            0,
            512,
            512,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (block, 1),
            16,
            512,
            512,
            Status::SGL_OFFSET_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (block, 1),
            u64::MAX,
            512,
            512,
            Status::SGL_OFFSET_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (block, 1),
            0,
            511,
            512,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (block, 1),
            0,
            1024,
            512,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (block, 1),
            0,
            1024,
            1024,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (transport, 0xa),
            0,
            1024,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            NvmOpcode::WRITE,
            (transport, 0xa),
            0,
            0,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        // No data, as SPDK says it.
        (NvmOpcode::FLUSH, (block, 1), 0, 0, 0, GOOD),
        (
            NvmOpcode::FLUSH,
            (block, 1),
            8,
            0,
            0,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (NvmOpcode::READ, (transport, 0xa), 0, 512, 0, GOOD),
        (
            NvmOpcode::READ,
            (transport, 0xa),
            0,
            4096,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            NvmOpcode::READ,
            (transport, 0xa),
            0,
            0,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            NvmOpcode::READ,
            (transport, 0xb),
            0,
            512,
            0,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            NvmOpcode::READ,
            (block, 0),
            0,
            512,
            0,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            NvmOpcode::READ,
            (block, 1),
            0,
            512,
            512,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            NvmOpcode::READ,
            (SglDescriptorType::LAST_SEGMENT, 0),
            0,
            512,
            0,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (NvmOpcode::FLUSH, (transport, 0xa), 0, 0, 0, GOOD),
        (
            NvmOpcode::FLUSH,
            (transport, 0xa),
            0,
            512,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        // More than MDTS, whatever the command makes of it.
        (
            NvmOpcode::DATASET_MANAGEMENT,
            (transport, 0xa),
            0,
            MAX_TRANSFER + 4,
            0,
            Status::INVALID_FIELD_IN_COMMAND,
        ),
        (
            NvmOpcode::READ,
            (transport, 0xa),
            0,
            u32::MAX,
            0,
            Status::INVALID_FIELD_IN_COMMAND,
        ),
        // Less than the command takes, which its controller finds.
        (
            NvmOpcode::RESERVATION_REGISTER,
            (transport, 0xa),
            0,
            0,
            0,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        // In both directions.
        (
            NvmOpcode(3),
            (transport, 0xa),
            0,
            512,
            0,
            Status::INVALID_COMMAND_OPCODE,
        ),
    ];
    for (number, (opcode, kind, address, len, data, expected)) in cases.into_iter().enumerate() {
        let mut sqe = host.blocks(opcode, 8, 1);
        let mut sgl = sqe.sgl1();
        (sgl.address, sgl.length) = (address, len);
        sgl.identifier = identifier(kind.0, kind.1);
        sqe.set_sgl1(sgl);
        let status = host.io[0].status(&mut rig, &sqe, &vec![1; data]);
        assert_eq!(status, expected, "case {number}");
        assert!(host.io[0].r2ts.is_empty(), "case {number}");
    }
    let mut sqe = host.blocks(NvmOpcode::READ, 8, 1);
    sqe.flags.set_psdt(Psdt::PRP);
    let status = host.io[0].status(&mut rig, &sqe, &[]);
    assert_eq!(status, Status::INVALID_FIELD_IN_COMMAND, "no PRPs");
    let mut sqe = host.blocks(NvmOpcode::READ, 8, 1);
    sqe.flags.set_psdt(Psdt::SGL_METADATA_SGL);
    sqe.mptr = 0xdead_0000;
    assert_eq!(host.io[0].status(&mut rig, &sqe, &[]), GOOD);
    let mut sqe = fuse(host.blocks(NvmOpcode::COMPARE, 8, 17), Fuse::FIRST);
    beside(&mut sqe, 17 * 512);
    let status = host.io[0].status(&mut rig, &sqe, &[]);
    assert_eq!(
        status,
        Status::INVALID_FIELD_IN_COMMAND,
        "no such long pair"
    );
    assert_eq!(host.read(&mut rig, 0, 8, 1), [1; 512]);
}

#[test]
fn blocks_of_another_size_are_counted_as_such() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let mut sqe = host.blocks(NvmOpcode::READ, 0, 1);
    sqe.nsid = 2;
    let status = host.io[0].status(&mut rig, &sqe, &[]);
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID);
    beside(&mut sqe, 4096);
    assert_eq!(host.io[0].status(&mut rig, &sqe, &[]), GOOD);
    // A namespace that is not there has no blocks: the controller says so.
    sqe.nsid = 3;
    let status = host.io[0].status(&mut rig, &sqe, &[]);
    assert!(!status.is_success() && status != Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn admin_data_have_the_length_of_their_command() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let short = Status::DATA_SGL_LENGTH_INVALID;
    let log = |numd_z: u32| 5 | numd_z << 16;
    for (opcode, cdw10, len, expected) in [
        (AdminOpcode::IDENTIFY, 1, 4096, GOOD),
        (AdminOpcode::IDENTIFY, 1, 4092, short),
        (AdminOpcode::IDENTIFY, 1, 8192, short),
        (AdminOpcode::IDENTIFY, 1, 0, short),
        (AdminOpcode::GET_LOG_PAGE, log(1023), 4096, GOOD),
        (AdminOpcode::GET_LOG_PAGE, log(0x1fff), 4096, short),
        (AdminOpcode::GET_LOG_PAGE, log(0), 4096, short),
        (AdminOpcode::GET_LBA_STATUS, 0, 4096, short),
        // A feature whose data are not there, and one with more than a page.
        (
            AdminOpcode::SET_FEATURES,
            0x0e,
            0,
            Status::DATA_TRANSFER_ERROR,
        ),
        (AdminOpcode::SET_FEATURES, 0x0e, 8192, short),
    ] {
        let mut sqe = host.command(opcode, len);
        sqe.cdw10 = cdw10;
        let status = host.admin.status(&mut rig, &sqe, &[]);
        assert_eq!(status, expected, "{opcode:?} {len}");
    }
}

#[test]
fn an_identifier_in_flight_is_not_used_twice() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let write = host.blocks(NvmOpcode::WRITE, 0, 100);
    let mut again = host.blocks(NvmOpcode::READ, 0, 1);
    again.cid = write.cid;
    host.io[0].send_capsule(&write, &[]);
    let status = host.io[0].status(&mut rig, &again, &[]);
    assert_eq!(status, Status::COMMAND_ID_CONFLICT);
    let mut with_data = host.blocks(NvmOpcode::WRITE, 0, 1);
    with_data.cid = write.cid;
    in_capsule(&mut with_data, 512);
    let status = host.io[0].status(&mut rig, &with_data, &[1; 512]);
    assert_eq!(status, Status::COMMAND_ID_CONFLICT);
    // The first one goes on.
    let r2t = host.io[0].r2ts.pop_front().unwrap();
    host.io[0].answer(&r2t, &pattern(51_200, 1));
    assert_eq!(host.io[0].response(&mut rig).status.status(), GOOD);
    assert!(host.read(&mut rig, 0, 0, 100) == pattern(51_200, 1));
    // The association's own identifier.
    let mut sqe = host.command(AdminOpcode::KEEP_ALIVE, 0);
    sqe.cid = 0xffff;
    let status = host.admin.status(&mut rig, &sqe, &[]);
    assert_eq!(status, Status::COMMAND_ID_CONFLICT);
}

#[test]
fn more_commands_than_entries_end_the_queue() {
    for flow_control in [true, false] {
        let mut rig = Rig::new();
        let manner = Manner {
            entries: 4,
            flow_control,
            ..Manner::default()
        };
        let mut host = Host::new(&mut rig, 2, manner);
        for slba in 0..4 {
            let sqe = host.blocks(NvmOpcode::WRITE, slba, 1);
            host.io[0].send_capsule(&sqe, &[]);
        }
        host.io[0].pump(&mut rig);
        assert_eq!(host.io[0].r2ts.len(), 4);
        assert!(!host.io[0].closed);
        let sqe = host.blocks(NvmOpcode::READ, 0, 1);
        host.io[0].send_capsule(&sqe, &[]);
        host.io[0].pump(&mut rig);
        assert!(host.io[0].closed);
        assert_eq!(ended(&rig), ["queue-full"]);
        assert_eq!(host.read(&mut rig, 1, 0, 1).len(), 512);
    }
}

/// A host with a write of 100 blocks whose R2T has come: its piece.
fn with_r2t(rig: &mut Rig, manner: Manner) -> (Host, Piece) {
    let mut host = Host::new(rig, 2, manner);
    let sqe = host.blocks(NvmOpcode::WRITE, 0, 100);
    host.io[0].send_capsule(&sqe, &[]);
    host.io[0].pump(rig);
    let r2t = host.io[0].r2ts.pop_front().unwrap();
    let piece = Piece {
        cccid: r2t.cccid,
        ttag: r2t.ttag,
        offset: 0,
        len: r2t.r2tl,
        last: true,
    };
    (host, piece)
}

#[test]
fn data_that_no_r2t_asked_for_end_the_queue() {
    let field = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    let range = FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE;
    type Change<'a> = &'a dyn Fn(&mut Piece);
    let changes: [(Change<'_>, _, _, _); 9] = [
        (&|piece| piece.ttag ^= 0x1000, field, 10, "transfer-tag"),
        (&|piece| piece.ttag ^= 1, field, 10, "transfer-tag"),
        (&|piece| piece.ttag = 0xffff, field, 10, "transfer-tag"),
        (&|piece| piece.cccid ^= 1, field, 8, "command-id"),
        (&|piece| piece.offset = 4, range, 0, "range"),
        (&|piece| piece.offset = u32::MAX - 3, range, 0, "range"),
        (&|piece| piece.len += 4, range, 0, "range"),
        (&|piece| piece.len -= 4, field, 1, "last"),
        (&|piece| piece.last = false, field, 1, "last"),
    ];
    for (change, fes, fei, name) in changes {
        let mut rig = Rig::new();
        let (mut host, mut piece) = with_r2t(&mut rig, Manner::default());
        change(&mut piece);
        let bytes = host.io[0].h2c(&piece, &pattern(piece.len as usize, 1));
        // It may be closed before all of them have gone.
        let _ = host.io[0].stream.write(&bytes);
        host.io[0].pump(&mut rig);
        assert_eq!(host.io[0].terminated, Some((fes, fei)), "{name}");
        assert!(host.io[0].closed);
        assert_eq!(ended(&rig), [name]);
        assert_eq!(
            host.read(&mut rig, 1, 0, 1),
            [0; 512],
            "nothing was written"
        );
    }
}

#[test]
fn a_transfer_that_is_over_takes_no_more_data() {
    let mut rig = Rig::new();
    let (mut host, piece) = with_r2t(&mut rig, Manner::default());
    let bytes = host.io[0].h2c(&piece, &pattern(piece.len as usize, 1));
    host.io[0].send(&bytes);
    assert_eq!(host.io[0].response(&mut rig).status.status(), GOOD);
    host.io[0].send(&bytes);
    host.io[0].pump(&mut rig);
    assert_eq!(ended(&rig), ["transfer-tag"]);
}

#[test]
fn a_tag_of_an_earlier_transfer_is_none_of_a_later_one() {
    let mut rig = Rig::new();
    let (mut host, earlier) = with_r2t(&mut rig, Manner::default());
    let bytes = host.io[0].h2c(&earlier, &pattern(earlier.len as usize, 1));
    host.io[0].send(&bytes);
    assert_eq!(host.io[0].response(&mut rig).status.status(), GOOD);
    // The same command again, with the same identifier and, as it is alone, the same entry.
    let mut sqe = host.blocks(NvmOpcode::WRITE, 0, 100);
    sqe.cid = earlier.cccid;
    host.io[0].send_capsule(&sqe, &[]);
    host.io[0].pump(&mut rig);
    let r2t = host.io[0].r2ts.pop_front().unwrap();
    assert_ne!(r2t.ttag, earlier.ttag);
    assert_eq!(r2t.ttag & 0xfff, earlier.ttag & 0xfff);
    host.io[0].send(&bytes);
    host.io[0].pump(&mut rig);
    assert_eq!(ended(&rig), ["transfer-tag"]);
}

#[test]
fn capsules_with_too_many_data_end_the_queue() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let mut sqe = host.blocks(NvmOpcode::WRITE, 0, 17);
    in_capsule(&mut sqe, 17 * 512);
    let bytes = host.io[0].capsule(&sqe, &pattern(17 * 512, 1));
    host.io[0].send(&bytes);
    host.io[0].pump(&mut rig);
    let limit = FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED;
    assert_eq!(host.io[0].terminated, Some((limit, 0)));
    assert_eq!(ended(&rig), ["data-too-long"]);
}

#[test]
fn a_header_that_is_not_intact_ends_the_queue() {
    let mut rig = Rig::new();
    let manner = Manner {
        digests: (true, true),
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    let sqe = host.blocks(NvmOpcode::READ, 0, 1);
    let mut bytes = host.io[0].capsule(&sqe, &[]);
    bytes[50] ^= 1;
    host.io[0].send(&bytes);
    host.io[0].pump(&mut rig);
    let (fes, _) = host.io[0].terminated.unwrap();
    assert_eq!(fes, FatalErrorStatus::HEADER_DIGEST_ERROR);
    assert_eq!(ended(&rig), ["header-digest"]);
}

#[test]
fn data_that_do_not_come_end_the_queue() {
    let mut rig = Rig::new();
    let (mut host, piece) = with_r2t(&mut rig, Manner::default());
    // A byte now and then does not help.
    let bytes = host.io[0].h2c(&piece, &pattern(piece.len as usize, 1));
    for at in 0..29 {
        host.io[0].send(&bytes[at..=at]);
        rig.advance(Duration::from_secs(1));
        host.io[0].pump(&mut rig);
        assert!(!host.io[0].closed, "{at}");
    }
    let deadline = rig.association.as_ref().unwrap().next_deadline();
    assert!(deadline.is_some());
    rig.advance(Duration::from_secs(2));
    host.io[0].pump(&mut rig);
    assert!(host.io[0].closed);
    assert_eq!(ended(&rig), ["slow-data"]);
    assert_eq!(host.read(&mut rig, 1, 0, 1).len(), 512);
    let deadline = rig.association.as_ref().unwrap().next_deadline();
    assert_eq!(deadline, None);
}

#[test]
fn a_host_that_does_not_read_waits_for_itself_alone() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    // More than the socket takes: 4 MiB.
    let sqes: Vec<Sqe> = (0..32)
        .map(|n| host.blocks(NvmOpcode::READ, n, 256))
        .collect();
    for sqe in &sqes {
        host.io[0].send_capsule(sqe, &[]);
    }
    rig.settle();
    let wants = |rig: &Rig| {
        let association = rig.association.as_ref().unwrap();
        let wants = association.connections().filter(|(_, _, wants)| *wants);
        wants.map(|(qid, _, _)| qid).collect::<Vec<_>>()
    };
    assert_eq!(wants(&rig), [1]);
    let changes = rig.association.as_ref().unwrap().changes();
    // Another queue's small commands go on.
    assert_eq!(host.read(&mut rig, 1, 0, 8).len(), 4096);
    // When it reads, everything comes.
    host.io[0].pump(&mut rig);
    while host.io[0].responses.len() < 32 {
        let before = host.io[0].responses.len();
        host.io[0].pump(&mut rig);
        assert!(host.io[0].responses.len() > before);
    }
    for sqe in &sqes {
        assert_eq!(host.io[0].data.remove(&sqe.cid).unwrap().len(), 256 * 512);
    }
    assert!(wants(&rig).is_empty());
    assert!(rig.association.as_ref().unwrap().changes() > changes);

    // And when it never does, its queue ends.
    host.io[0].responses.clear();
    for sqe in &sqes {
        host.io[0].send_capsule(sqe, &[]);
    }
    rig.settle();
    rig.advance(Duration::from_secs(29));
    rig.settle();
    assert!(ended(&rig).is_empty());
    rig.advance(Duration::from_secs(2));
    assert!(rig.poll_association(), "its queue is to be deleted");
    assert_eq!(ended(&rig), ["does-not-read"]);
    assert_eq!(
        host.read(&mut rig, 1, 0, 256).len(),
        256 * 512,
        "all slots are back"
    );
}

#[test]
fn a_host_may_end_a_connection_with_its_reason() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let fault = nvme_tcp::Fault::Last;
    let head = fault.termination(nvme_tcp::Side::Host, &[]);
    host.io[0].send(&head);
    host.io[0].pump(&mut rig);
    assert!(host.io[0].closed);
    assert_eq!(ended(&rig), ["terminated"]);
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    let manner = Manner {
        digests: (true, true),
        ..Manner::default()
    };
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, manner);
    for cut in 1..160 {
        // A write in its capsule, a read, and a write by R2T, in pieces of this length.
        let data = pattern(4096, cut as u8);
        let large = pattern(20 * 512, cut as u8);
        let mut small = host.blocks(NvmOpcode::WRITE, 0, 8);
        in_capsule(&mut small, 4096);
        let read = host.blocks(NvmOpcode::READ, 0, 8);
        let write = host.blocks(NvmOpcode::WRITE, 100, 20);
        let io = &mut host.io[0];
        let mut bytes = io.capsule(&small, &data);
        bytes.extend(io.capsule(&write, &[]));
        for piece in bytes.chunks(cut * 3) {
            io.send(piece);
            rig.turn();
        }
        io.pump(&mut rig);
        let r2t = io.r2ts.pop_front().unwrap();
        let piece = Piece {
            cccid: r2t.cccid,
            ttag: r2t.ttag,
            offset: 0,
            len: r2t.r2tl,
            last: true,
        };
        let mut bytes = io.h2c(&piece, &large);
        bytes.extend(io.capsule(&read, &[]));
        for piece in bytes.chunks(cut * 7) {
            io.send(piece);
            rig.turn();
        }
        io.pump(&mut rig);
        let statuses: Vec<_> = io
            .responses
            .drain(..)
            .map(|cqe| cqe.status.status())
            .collect();
        assert_eq!(statuses, [GOOD, GOOD, GOOD], "{cut}");
        assert!(io.data.remove(&read.cid).unwrap() == data, "{cut}");
        assert!(host.read(&mut rig, 0, 100, 20) == large, "{cut}");
    }
}
