//! Linux, drivers/nvme/host/pci.c: how data and doorbells go once the queues are there.
//!
//! From the driver's public source: a large request with few pieces goes by an SGL where SGLS
//! offers it, PSDT 01b, one Data Block in the command or a Last Segment of them; everything else by
//! PRPs. With doorbell buffers the register is written only where the new value passes EventIdx.
//! Polled queues have no interrupts. Deallocate has up to 256 ranges.

use super::super::rig::*;
use super::linux::enable;
use super::*;
use crate::lane::LaneTable;

/// PSDT: an SGL for the data, a contiguous buffer of metadata, which there is none of.
const SGL: u8 = 0b01;

fn pair(rig: &mut Rig) -> Pair {
    enable(rig);
    assert_eq!(code(&rig.set_feature(0x07, 0x0003_0003)), OK);
    Pair::with_vector(rig, 1, 64)
}

/// A descriptor (Base 2.1, 4.3.2): address, length, type in the upper half of the last byte.
fn descriptor(at: Iova, len: u32, kind: u8) -> [u64; 2] {
    [at.0, u64::from(len) | u64::from(kind) << 60]
}

fn with_sgl(sqe: Sqe, [address, rest]: [u64; 2]) -> Sqe {
    let mut sqe = Sqe {
        prp1: address,
        prp2: rest,
        ..sqe
    };
    sqe.flags = (SGL << 6).into();
    sqe
}

#[test]
fn large_requests_go_by_sgls() {
    let mut rig = Rig::new();
    let mut pair = pair(&mut rig);
    let id = rig.identify(0x01, 0, 0).unwrap();
    let sgls = u32_at(&id, 536);
    assert!([1, 2].contains(&(sgls & 3)), "SGLs are supported");
    // 32 KiB in one piece: a Data Block in the command.
    let data: Vec<u8> = (0..64 * 512u32)
        .map(|n| (n / 512) as u8 ^ n as u8)
        .collect();
    rig.host.write(rig.data_page(), &data);
    let block = descriptor(rig.data_page(), 64 * 512, 0);
    let write = with_sgl(io(&rig, WRITE, 1, 100, 64), block);
    assert_eq!(pair.status(&mut rig, write), OK);
    assert_eq!(rig.medium(0).bytes[100 * 512..164 * 512], data);
    // In three pieces that are not whole pages: a Last Segment, which is a list of Data Blocks.
    rig.host.write(rig.data_page(), &vec![0; 64 * 512]);
    let pieces = [(0u64, 512u32), (0x800, 0x3000), (0x4a00, 0x8000 - 0x3200)];
    let list = rig.host.page(150);
    for (n, (at, len)) in (0..).zip(pieces) {
        let piece = Iova(rig.data_page().0 + at);
        let words = descriptor(piece, len, 0);
        rig.host.write_u64(Iova(list.0 + 16 * n), words[0]);
        rig.host.write_u64(Iova(list.0 + 16 * n + 8), words[1]);
    }
    let read = with_sgl(io(&rig, READ, 1, 100, 64), descriptor(list, 48, 3));
    assert_eq!(pair.status(&mut rig, read), OK);
    let mut at = 0;
    for (offset, len) in pieces {
        let piece = rig
            .host
            .read(Iova(rig.data_page().0 + offset), len as usize);
        assert_eq!(piece, data[at..at + len as usize], "piece at {offset:#x}");
        at += len as usize;
    }
}

/// Two pages, three pages by a list, and a list that ends in a page behind the first:
/// nvme_pci_setup_prps.
#[test]
fn small_requests_go_by_prps() {
    let mut rig = Rig::new();
    let mut pair = pair(&mut rig);
    let data: Vec<u8> = (0..4 * 4096u32).map(|n| (n / 64) as u8 ^ n as u8).collect();
    // From inside a page on.
    let start = Iova(rig.data_page().0 + 0x600);
    rig.host.write(start, &data);
    for blocks in [1, 4, 5, 12, 13, 27] {
        let bytes = u64::from(blocks) * 512;
        let pages = (0x600 + bytes).div_ceil(4096);
        let list = rig.host.page(150).0;
        for page in 1..pages {
            let at = rig.data_page().0 + page * 4096;
            rig.host.write_u64(Iova(list + 8 * (page - 1)), at);
        }
        let prp2 = match pages {
            1 => 0,
            2 => rig.data_page().0 + 4096,
            _ => list,
        };
        let write = Sqe {
            prp1: start.0,
            prp2,
            ..io(&rig, WRITE, 3, 7, blocks)
        };
        rig.medium(1).bytes.fill(0);
        assert_eq!(pair.status(&mut rig, write), OK, "{blocks} blocks");
        let written = &rig.medium(1).bytes[7 * 512..][..bytes as usize];
        assert_eq!(written, &data[..bytes as usize], "{blocks} blocks");
    }
}

/// nvme_dbbuf_update_and_check_event: a queue that is busy is rung by the shadow; one whose
/// controller sleeps, by the register. Rings go round many times, so the comparison wraps with
/// them.
#[test]
fn the_register_is_written_only_where_it_is_asked_for() {
    let mut rig = Rig::new();
    let mut pair = pair(&mut rig);
    pair.buffers = Some(Buffers::register(&mut rig));
    for round in 0..200u64 {
        let before = pair.rung;
        write_and_read(&mut rig, &mut pair, 1, round);
        assert!(pair.rung - before <= 4, "tails and heads of two commands");
        if round == 0 || round % 5 > 0 {
            continue;
        }
        // The reactor goes to sleep; only a register write wakes it.
        for key in arm(&mut rig) {
            assert!(!rig.lanes.local(key).expect("it is there").has_work());
        }
        let read = io(&rig, READ, 1, 0, 1);
        let rung = pair.rung;
        pair.put(&rig, read);
        pair.ring(&mut rig);
        assert_eq!(pair.rung, rung + 1, "round {round}: it would sleep on");
        rig.turns(4);
        assert!(pair.take(&mut rig).is_some());
    }
    assert!(
        pair.rung < 400,
        "{} of 880 doorbells were registers",
        pair.rung
    );
}

/// Arms every lane: what sleeping does. The keys of all.
fn arm(rig: &mut Rig) -> Vec<port::ticket::OwnerKey> {
    rig.turns(4);
    let keys: Vec<_> = rig.lanes.iter().map(|lane| lane.key()).collect();
    for key in &keys {
        rig.lanes.local(*key).expect("it is there").arm();
    }
    memory::full_fence();
    keys
}

/// nvme.poll_queues: a completion queue without interrupts, and reads that are polled for.
#[test]
fn polled_queues_raise_nothing() {
    let mut rig = Rig::new();
    enable(&mut rig);
    let mut polled = Pair::create(&mut rig, 1, 64, PC, PC);
    let mut other = Pair::with_vector(&mut rig, 2, 64);
    rig.turns(4);
    rig.interrupts.clear();
    for slba in 0..100 {
        write_and_read(&mut rig, &mut polled, 1, slba);
    }
    assert!(rig.interrupts.is_empty());
    write_and_read(&mut rig, &mut other, 1, 0);
    assert!(!rig.interrupts.is_empty());
}

/// blkdiscard: many ranges in one command; then Write Zeroes with Deallocate, and a flush.
#[test]
fn discards_zeroes_and_flushes() {
    let mut rig = Rig::new();
    let mut pair = pair(&mut rig);
    rig.medium(0).bytes.fill(0xff);
    for n in 0..256u64 {
        let at = rig.data_page().0 + 16 * n;
        // One block of every four, its length in the upper half of the first word.
        rig.host.write_u64(Iova(at), 1 << 32);
        rig.host.write_u64(Iova(at + 8), 4 * n);
    }
    let mut discard = io(&rig, DATASET_MANAGEMENT, 1, 0, 1);
    (discard.cdw10, discard.cdw11, discard.cdw12) = (255, 1 << 2, 0);
    assert_eq!(pair.status(&mut rig, discard), OK);
    for n in 0..1024 {
        let expected = if n % 4 == 0 { 0 } else { 0xff };
        let block = &rig.medium(0).bytes[512 * n..][..512];
        assert!(block.iter().all(|byte| *byte == expected), "block {n}");
    }
    let mut zero = io(&rig, WRITE_ZEROES, 1, 1024, 1024);
    (zero.prp1, zero.cdw12) = (0, zero.cdw12 | 1 << 25);
    assert_eq!(pair.status(&mut rig, zero), OK);
    assert!(
        rig.medium(0).bytes[512 * 1024..]
            .iter()
            .all(|byte| *byte == 0)
    );
    rig.medium(0).seen.clear();
    let flush = Sqe {
        opcode: FLUSH,
        nsid: 1,
        ..Sqe::default()
    };
    assert_eq!(pair.status(&mut rig, flush), OK);
    assert_eq!(rig.medium(0).seen, [port::testing::Seen::Flush]);
}
