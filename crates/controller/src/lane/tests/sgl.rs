//! Commands whose data is described by SGLs, from the queue to the medium (Base 2.1, 4.3.2; NVM
//! 1.1, 3.3).

use memory::Iova;
use nvme_spec::{Sqe, Status};
use port::ByteRange;
use port::testing::{Manner, Seen};

use super::rig::{DATA, Rig, command};

const OK: Status = Status::SUCCESSFUL_COMPLETION;

fn rig() -> Rig {
    Rig::new(16, &[16], Manner::Synchronous)
}

/// A descriptor's two words.
fn descriptor(identifier: u8, address: u64, length: u32) -> [u64; 2] {
    [address, u64::from(identifier) << 56 | u64::from(length)]
}

/// A command of `blocks` blocks from block 8 on, with PSDT 01b and this SGL entry.
fn transfer(opcode: u8, blocks: u32, sgl1: [u64; 2]) -> Sqe {
    Sqe {
        flags: 0x40.into(),
        prp1: sgl1[0],
        prp2: sgl1[1],
        cdw10: 8,
        cdw12: blocks - 1,
        ..command(opcode, 1)
    }
}

/// Writes a last segment to the page before the data; its descriptor comes back.
fn list(rig: &Rig, descriptors: &[[u64; 2]]) -> [u64; 2] {
    let at = rig.host.page(DATA - 1).0;
    for (n, word) in (0..).zip(descriptors.as_flattened()) {
        rig.host.write_u64(Iova(at + 8 * n), *word);
    }
    descriptor(0x30, at, 16 * descriptors.len() as u32)
}

#[test]
fn data_goes_from_any_byte_to_its_blocks_and_back() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = Rig::new(16, &[16], manner);
        let at = rig.host.page(DATA).0;
        let data: Vec<u8> = (0..1024u32).map(|n| (n * 7 / 8) as u8).collect();
        rig.host.write(Iova(at + 1), &data[..700]);
        rig.host.write(Iova(at + 5001), &data[700..]);
        let pieces = [descriptor(0, at + 1, 700), descriptor(0, at + 5001, 324)];
        let sgl1 = list(&rig, &pieces);
        assert_eq!(rig.run(transfer(0x01, 2, sgl1)), OK);
        assert_eq!(rig.medium().bytes[4096..5120], data);
        assert_eq!(rig.run(transfer(0x05, 2, sgl1)), OK);
        let back = at + 9999;
        assert_eq!(rig.run(transfer(0x02, 2, descriptor(0, back, 1024))), OK);
        assert_eq!(rig.host.read(Iova(back - 1), 1026)[1..1025], data);
        assert_eq!(rig.host.read(Iova(back - 1), 1)[0], 0);
        assert_eq!(rig.host.read(Iova(back + 1024), 1)[0], 0);
        rig.host.write(Iova(at + 5001 + 323), &[!data[1023]]);
        let compare = rig.run(transfer(0x05, 2, sgl1));
        assert_eq!(compare, Status::COMPARE_FAILURE);
        assert_eq!(rig.lane.counters().read_bytes.get(), 1024);
    }
}

#[test]
fn reads_into_a_bit_bucket_are_discarded_and_counted() {
    let mut rig = rig();
    let at = rig.host.page(DATA).0;
    rig.medium().bytes[4096..5120].fill(3);
    let pieces = [
        descriptor(0x10, 0, 1000),
        descriptor(0, at + 1, 3),
        descriptor(0x10, 0, 21),
    ];
    let sgl1 = list(&rig, &pieces);
    assert_eq!(rig.run(transfer(0x02, 2, sgl1)), OK);
    assert_eq!(rig.host.read(Iova(at), 5), [0, 3, 3, 3, 0]);
    assert_eq!(rig.lane.counters().read_bytes.get(), 1024);
    // A write has no bytes for it.
    let status = rig.run(transfer(0x01, 2, sgl1));
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID);
    let wholly = transfer(0x02, 2, descriptor(0x10, 0, 1024));
    assert_eq!(rig.run(wholly), OK);
}

#[test]
fn mptr_is_not_looked_at_and_the_other_way_to_give_it_is_the_same() {
    let mut rig = rig();
    rig.medium().bytes[4096..4608].fill(5);
    let at = rig.host.page(DATA).0;
    for (flags, expected) in [
        (0x40, OK),
        (0x80, OK),
        (0xC0, Status::INVALID_FIELD_IN_COMMAND),
    ] {
        rig.host.write(Iova(at), &[0; 512]);
        let sqe = Sqe {
            flags: flags.into(),
            mptr: u64::MAX,
            ..transfer(0x02, 1, descriptor(0, at, 512))
        };
        assert_eq!(rig.run(sqe), expected, "{flags:#x}");
        let found = if expected == OK { 5 } else { 0 };
        assert_eq!(rig.host.read(Iova(at), 512), [found; 512]);
    }
}

#[test]
fn commands_without_data_have_no_list() {
    let mut rig = rig();
    for opcode in [0x00, 0x08] {
        let sqe = transfer(opcode, 1, descriptor(0xF1, u64::MAX, u32::MAX));
        assert_eq!(rig.run(sqe), OK, "{opcode:#x}");
    }
}

#[test]
fn deallocate_takes_its_ranges_by_a_list() {
    let mut rig = rig();
    let at = rig.host.page(DATA).0 + 3;
    let mut ranges = [0; 48];
    for (range, (blocks, slba)) in ranges.chunks_mut(16).zip([(8u32, 16u64), (0, 0), (1, 5)]) {
        range[4..8].copy_from_slice(&blocks.to_le_bytes());
        range[8..].copy_from_slice(&slba.to_le_bytes());
    }
    rig.host.write(Iova(at), &ranges[..21]);
    rig.host.write(Iova(at + 5000), &ranges[21..]);
    // Hosts give room for 256 ranges, whatever the number of them is.
    let pieces = [
        descriptor(0, at, 21),
        descriptor(0x10, 0, 99),
        descriptor(0, at + 5000, 4075),
    ];
    let sqe = Sqe {
        cdw10: 2,
        cdw11: 4,
        ..transfer(0x09, 1, list(&rig, &pieces))
    };
    assert_eq!(rig.run(sqe), OK);
    let range = |offset, len| ByteRange { offset, len };
    let expected = [range(8192, 4096), range(2560, 512)];
    assert_eq!(rig.medium().seen, [Seen::Deallocate(expected.to_vec())]);
    let sqe = Sqe { cdw10: 255, ..sqe };
    let short = list(&rig, &pieces[..1]);
    let [prp1, prp2] = short;
    let status = rig.run(Sqe { prp1, prp2, ..sqe });
    assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn mistakes_in_lists_complete_with_do_not_retry_and_change_nothing() {
    let mut rig = rig();
    let at = rig.host.page(DATA).0;
    for (sgl1, status) in [
        (
            descriptor(0x40, at, 512),
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            descriptor(0x01, at, 512),
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
        ),
        (
            descriptor(0x30, at + 4, 16),
            Status::INVALID_SGL_SEGMENT_DESCRIPTOR,
        ),
        (
            descriptor(0x20, at, 1 << 20),
            Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS,
        ),
        (descriptor(0x00, at, 511), Status::DATA_SGL_LENGTH_INVALID),
        (descriptor(0x00, 0x1000, 512), Status::DATA_TRANSFER_ERROR),
    ] {
        for opcode in [0x01, 0x02, 0x05] {
            rig.submit(1, transfer(opcode, 1, sgl1));
            rig.turn();
            let cqe = rig.completions()[0];
            assert_eq!(cqe.status.status(), status, "{opcode:#x} {sgl1:x?}");
            assert!(cqe.status.dnr());
        }
    }
    assert_eq!(rig.medium().seen, [], "none of them reached the medium");
}

#[test]
fn bounds_and_mdts_come_before_the_list() {
    let mut rig = rig();
    // 512 KiB here.
    let lost = descriptor(0x00, 0x1000, 512);
    let status = rig.run(transfer(0x02, 1025, lost));
    assert_eq!(status, Status::INVALID_FIELD_IN_COMMAND);
    let sqe = Sqe {
        cdw10: 8192,
        ..transfer(0x02, 1, lost)
    };
    assert_eq!(rig.run(sqe), Status::LBA_OUT_OF_RANGE);
}
