//! Data in both directions.

use nvme_spec::Status;
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::sqe::Fuse;
use nvme_tcp::Piece;
use transport::nvme_tcp::Success;

use super::host::{Host, Manner, fuse, in_capsule, pattern};
use super::rig::{Rig, config};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;

const DIGESTS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

#[test]
fn what_is_written_is_read() {
    for digests in DIGESTS {
        for flow_control in [true, false] {
            let mut rig = Rig::new();
            let manner = Manner {
                digests,
                flow_control,
                ..Manner::default()
            };
            let mut host = Host::new(&mut rig, 2, manner);
            // A block, a page, more than a page, a whole capsule, and by R2T up to the limit.
            for (number, blocks) in [1, 8, 9, 16, 17, 100, 256].into_iter().enumerate() {
                let slba = 300 * number as u64;
                let data = pattern(blocks * 512, number as u8);
                assert_eq!(host.write(&mut rig, number % 2, slba, &data), GOOD);
                let read = host.read(&mut rig, (number + 1) % 2, slba, blocks as u32);
                assert!(
                    read == data,
                    "{blocks} blocks with {digests:?} {flow_control}"
                );
            }
            assert!(rig.ends.is_empty(), "{:?}", rig.ends);
        }
    }
}

#[test]
fn success_stands_for_a_response_only_where_it_may() {
    for (flow_control, success, stands) in [
        (true, Success::AsSpecified, false),
        (false, Success::AsSpecified, true),
        (true, Success::Always, true),
    ] {
        let mut target = config();
        target.success = success;
        let mut rig = Rig::with(target);
        let manner = Manner {
            flow_control,
            ..Manner::default()
        };
        let mut host = Host::new(&mut rig, 1, manner);
        let sqe = host.blocks(NvmOpcode::READ, 0, 8);
        host.io[0].send_capsule(&sqe, &[]);
        host.io[0].pump(&mut rig);
        let io = &mut host.io[0];
        assert_eq!(io.data[&sqe.cid].len(), 4096);
        assert_eq!(io.succeeded.pop(), stands.then_some(sqe.cid));
        assert_eq!(io.responses.len(), usize::from(!stands));
        io.responses.clear();
        // One that fails has a response and no data.
        let sqe = host.blocks(NvmOpcode::READ, 1 << 40, 8);
        let cqe = host.io[0].run(&mut rig, &sqe, &[]);
        assert_eq!(cqe.status.status(), Status::LBA_OUT_OF_RANGE);
        assert_eq!(host.io[0].data.get(&sqe.cid), None);
    }
}

#[test]
fn each_answer_frees_an_entry_of_the_submission_queue() {
    let mut rig = Rig::new();
    let manner = Manner {
        entries: 4,
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    // Connect was the first command.
    let heads: Vec<u16> = (0..6)
        .map(|_| {
            let sqe = host.blocks(NvmOpcode::FLUSH, 0, 1);
            let mut sqe = sqe;
            super::host::beside(&mut sqe, 0);
            let cqe = host.io[0].run(&mut rig, &sqe, &[]);
            assert_eq!((cqe.status.status(), cqe.sq_id), (GOOD, 1));
            cqe.sq_head
        })
        .collect();
    assert_eq!(heads, [2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_queue_full_of_commands_completes() {
    for flow_control in [true, false] {
        let mut rig = Rig::new();
        let manner = Manner {
            flow_control,
            ..Manner::default()
        };
        let mut host = Host::new(&mut rig, 1, manner);
        let sqes: Vec<_> = (0..32)
            .map(|n| host.blocks(NvmOpcode::READ, n, 1 + n as u32))
            .collect();
        for _ in 0..3 {
            for sqe in &sqes {
                host.io[0].send_capsule(sqe, &[]);
            }
            host.io[0].pump(&mut rig);
            let io = &mut host.io[0];
            assert_eq!(io.responses.len() + io.succeeded.len(), 32);
            for (n, sqe) in sqes.iter().enumerate() {
                assert_eq!(io.data.remove(&sqe.cid).unwrap().len(), 512 * (n + 1));
            }
            io.responses.clear();
            io.succeeded.clear();
        }
    }
}

#[test]
fn large_commands_wait_for_a_slot_in_order() {
    let mut target = config();
    target.slots = 2 * u64::from(target.max_transfer);
    let mut rig = Rig::with(target);
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let data = pattern(100 * 512, 1);
    let sqes: Vec<_> = (0..5)
        .map(|n| host.blocks(NvmOpcode::WRITE, 100 * n, 100))
        .collect();
    for sqe in &sqes {
        host.io[0].send_capsule(sqe, &[]);
    }
    let small = host.blocks(NvmOpcode::READ, 0, 8);
    host.io[0].send_capsule(&small, &[]);
    let io = &mut host.io[0];
    io.pump(&mut rig);
    assert_eq!(io.responses.pop_front().map(|cqe| cqe.cid), Some(small.cid));
    let mut order = Vec::new();
    while let Some(r2t) = io.r2ts.pop_front() {
        assert_eq!(io.r2ts.len(), usize::from(order.len() < 4), "two slots");
        order.push(r2t.cccid);
        io.answer(&r2t, &data);
        io.pump(&mut rig);
    }
    assert_eq!(order, sqes.iter().map(|sqe| sqe.cid).collect::<Vec<_>>());
    assert!(
        io.responses
            .drain(..)
            .all(|cqe| cqe.status.status() == GOOD)
    );
    assert!(host.read(&mut rig, 0, 400, 100) == data);
}

#[test]
fn data_that_are_not_intact_fail_their_command_alone() {
    let mut rig = Rig::new();
    let manner = Manner {
        digests: (false, true),
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    let before = host.read(&mut rig, 0, 0, 8);
    let mut sqe = host.blocks(NvmOpcode::WRITE, 0, 8);
    in_capsule(&mut sqe, 4096);
    let mut bytes = host.io[0].capsule(&sqe, &pattern(4096, 3));
    bytes[100] ^= 1;
    host.io[0].send(&bytes);
    let cqe = host.io[0].response(&mut rig);
    assert_eq!(cqe.status.status(), Status::TRANSIENT_TRANSPORT_ERROR);

    let sqe = host.blocks(NvmOpcode::WRITE, 0, 100);
    host.io[0].send_capsule(&sqe, &[]);
    host.io[0].pump(&mut rig);
    let r2t = host.io[0].r2ts.pop_front().unwrap();
    // The first of two pieces is wrong: the second one is still to come.
    let piece = |offset, len, last| Piece {
        cccid: r2t.cccid,
        ttag: r2t.ttag,
        offset,
        len,
        last,
    };
    let mut bytes = host.io[0].h2c(&piece(0, 4096, false), &pattern(4096, 5));
    let end = bytes.len();
    bytes[end - 1] ^= 1;
    host.io[0].send(&bytes);
    host.io[0].pump(&mut rig);
    assert!(host.io[0].responses.is_empty());
    let rest = 100 * 512 - 4096;
    let bytes = host.io[0].h2c(&piece(4096, rest, true), &pattern(rest as usize, 5));
    host.io[0].send(&bytes);
    let cqe = host.io[0].response(&mut rig);
    assert_eq!(cqe.status.status(), Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(
        host.read(&mut rig, 0, 0, 8) == before,
        "nothing was written"
    );
    assert_eq!(
        rig.association.as_ref().unwrap().counters().digest_errors,
        2
    );
}

#[test]
fn halves_of_a_pair_meet_in_the_order_of_their_capsules() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let (old, new) = (vec![0; 512], pattern(512, 9));
    let compare = |host: &mut Host| fuse(host.blocks(NvmOpcode::COMPARE, 5, 1), Fuse::FIRST);
    let write = |host: &mut Host| fuse(host.blocks(NvmOpcode::WRITE, 5, 1), Fuse::SECOND);

    // Both by R2T, and the data of the second one first.
    let (first, second) = (compare(&mut host), write(&mut host));
    let io = &mut host.io[0];
    io.send_capsule(&first, &[]);
    io.send_capsule(&second, &[]);
    io.pump(&mut rig);
    let r2ts: Vec<_> = io.r2ts.drain(..).collect();
    assert_eq!(r2ts.len(), 2);
    io.answer(&r2ts[1], &new);
    io.pump(&mut rig);
    assert!(io.responses.is_empty());
    io.answer(&r2ts[0], &old);
    io.pump(&mut rig);
    let ends: Vec<_> = io
        .responses
        .drain(..)
        .map(|cqe| (cqe.cid, cqe.status.status()))
        .collect();
    assert_eq!(ends, [(first.cid, GOOD), (second.cid, GOOD)]);
    assert!(host.read(&mut rig, 0, 5, 1) == new);

    // In capsules, with another pair that fails behind it.
    let (mut first, mut second) = (compare(&mut host), write(&mut host));
    in_capsule(&mut first, 512);
    in_capsule(&mut second, 512);
    host.io[0].send_capsule(&first, &old);
    host.io[0].send_capsule(&second, &old);
    host.io[0].pump(&mut rig);
    let statuses: Vec<_> = host.io[0]
        .responses
        .drain(..)
        .map(|cqe| cqe.status.status())
        .collect();
    assert_eq!(
        statuses,
        [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED]
    );
    assert!(host.read(&mut rig, 0, 5, 1) == new);
}

#[test]
fn a_half_without_the_other_one_is_aborted() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let mut first = fuse(host.blocks(NvmOpcode::COMPARE, 5, 1), Fuse::FIRST);
    in_capsule(&mut first, 512);
    host.io[0].send_capsule(&first, &[0; 512]);
    host.io[0].pump(&mut rig);
    assert!(host.io[0].responses.is_empty(), "its second half may come");
    let other = host.blocks(NvmOpcode::READ, 0, 1);
    host.io[0].send_capsule(&other, &[]);
    host.io[0].pump(&mut rig);
    let ends: Vec<_> = host.io[0]
        .responses
        .drain(..)
        .map(|cqe| (cqe.cid, cqe.status.status()))
        .collect();
    assert_eq!(
        ends,
        [
            (first.cid, Status::ABORTED_MISSING_FUSED),
            (other.cid, GOOD)
        ]
    );

    let mut second = fuse(host.blocks(NvmOpcode::WRITE, 5, 1), Fuse::SECOND);
    in_capsule(&mut second, 512);
    let status = host.io[0].status(&mut rig, &second, &[1; 512]);
    assert_eq!(status, Status::ABORTED_MISSING_FUSED);

    // The second half is refused: the first one fails with it.
    let mut first = fuse(host.blocks(NvmOpcode::COMPARE, 5, 1), Fuse::FIRST);
    in_capsule(&mut first, 512);
    let mut second = fuse(host.blocks(NvmOpcode::WRITE, 5, 2), Fuse::SECOND);
    in_capsule(&mut second, 512);
    host.io[0].send_capsule(&first, &[0; 512]);
    host.io[0].send_capsule(&second, &[1; 512]);
    host.io[0].pump(&mut rig);
    let mut ends: Vec<_> = host.io[0]
        .responses
        .drain(..)
        .map(|cqe| (cqe.cid, cqe.status.status()))
        .collect();
    ends.sort();
    let mut expected = [
        (first.cid, Status::ABORTED_FAILED_FUSED),
        (second.cid, Status::DATA_SGL_LENGTH_INVALID),
    ];
    expected.sort();
    assert_eq!(ends, expected);
}

#[test]
fn a_feature_without_data_may_name_an_empty_capsule() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let mut sqe = host.command(AdminOpcode::SET_FEATURES, 0);
    (sqe.cdw10, sqe.cdw11) = (7, 0x0003_0003);
    in_capsule(&mut sqe, 0);
    assert_eq!(host.admin.status(&mut rig, &sqe, &[]), GOOD);
}

#[test]
fn admin_data_of_any_number_of_pages_arrive() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let page = host.identify(&mut rig, 1, 0);
    assert_eq!(u16::from_le_bytes([page[78], page[79]]), host.cntlid);
    // Commands Supported and Effects, of one page, two and three: the rest is zeros.
    let mut whole = Vec::new();
    for bytes in [4096u32, 8192, 12288, 65536] {
        let mut sqe = host.command(AdminOpcode::GET_LOG_PAGE, bytes);
        sqe.nsid = 0;
        let numd_z = bytes / 4 - 1;
        sqe.cdw10 = 5 | (numd_z & 0xffff) << 16;
        sqe.cdw11 = numd_z >> 16;
        assert_eq!(host.admin.status(&mut rig, &sqe, &[]), GOOD, "{bytes}");
        let data = host.admin.data.remove(&sqe.cid).unwrap();
        assert_eq!(data.len(), bytes as usize);
        if whole.is_empty() {
            whole.clone_from(&data);
            assert!(whole.iter().any(|byte| *byte != 0));
        }
        assert!(data[..4096] == whole[..]);
        assert!(data[4096..].iter().all(|byte| *byte == 0));
    }
}

/// The ring of the largest queue has room for one command less than its host may send.
#[test]
fn all_entries_of_the_largest_queue_may_be_used_at_once() {
    let mut rig = Rig::new();
    let manner = Manner {
        entries: 32,
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    for slba in 0..32 {
        let sqe = host.blocks(NvmOpcode::READ, slba, 1);
        host.io[0].send_capsule(&sqe, &[]);
    }
    for _ in 0..32 {
        assert_eq!(host.io[0].response(&mut rig).status.status(), GOOD);
    }
}
