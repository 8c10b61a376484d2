//! NVM commands that a controller may have or not (NVM 1.1, 3.3): Compare, Write
//! Zeroes, Dataset Management, Verify, Write Uncorrectable.

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same_bytes, zero};
use crate::wire::{Cqe, Sqe, status, u8_at, u16_at, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "optional",
    title: "Compare, Write Zeroes, Dataset Management, Verify, Write Uncorrectable",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    missing_opcodes, "NVM 1.1, 3", "optional commands that ONCS does not have are refused (001h)";
    compare, "NVM 1.1, 3.3.1", "Compare succeeds on the same data, ends with 285h on other data, and changes nothing";
    compare_last_byte, "NVM 1.1, 3.3.1", "Compare sees a difference in the first and in the last byte of a long transfer";
    compare_bounds, "NVM 1.1, 3.3.1", "Compare beyond the end is refused (080h), beyond MDTS too (002h)";
    write_zeroes, "NVM 1.1, 3.3.8", "Write Zeroes makes its blocks zeros and touches no others, with and without Deallocate";
    write_zeroes_bounds, "NVM 1.1, 3.3.8", "Write Zeroes beyond the end is refused (080h) and changes nothing";
    write_zeroes_large, "NVM 1.1, 3.3.8", "Write Zeroes is not bound by MDTS, only by WZSL";
    write_zeroes_no_data, "NVM 1.1, 3.3.8", "Write Zeroes takes no data: its pointers are not looked at", pcie why::PRPS;
    deallocate, "NVM 1.1, 3.3.3", "Deallocate succeeds, and touches no blocks beside its ranges";
    deallocate_many, "NVM 1.1, 3.3.3", "256 ranges, across pages of memory, are taken";
    deallocate_bounds, "NVM 1.1, 3.3.3", "a range beyond the end is refused (080h)";
    deallocate_empty, "NVM 1.1, 3.3.3", "a range of no blocks changes nothing";
    dataset_attributes_only, "NVM 1.1, 3.3.3", "Dataset Management without Deallocate changes nothing";
    verify, "NVM 1.1, 3.3.5", "Verify of good blocks succeeds, takes no data, and changes nothing";
    verify_bounds, "NVM 1.1, 3.3.5", "Verify beyond the end is refused (080h), beyond VSL too (002h)";
    uncorrectable, "NVM 1.1, 3.3.7", "a block written uncorrectable cannot be read (281h), compared or verified, its neighbours can";
    uncorrectable_heals, "NVM 1.1, 3.3.7", "writing an uncorrectable block, by Write or Write Zeroes, makes it good";
    uncorrectable_bounds, "NVM 1.1, 3.3.7", "Write Uncorrectable beyond the end is refused (080h)";
    uncorrectable_stays, "NVM 1.1, 3.3.7", "an uncorrectable block is one after a reset";
    uncorrectable_middle, "NVM 1.1, 3.3.7", "a Read over a good and an uncorrectable block fails (281h), and a Write over both heals";
    get_lba_status, "NVM 1.1, 4.2.1", "Get LBA Status reports untested or uncorrectable blocks within the requested range";
];

fn missing_opcodes(bench: &mut Bench) -> Verdict {
    let oncs = u16_at(&bench.controller()?, 520);
    let (ns, mut pair) = bench.io()?;
    for (bit, opcode) in [
        (0, opcode::COMPARE),
        (1, opcode::WRITE_UNCORRECTABLE),
        (2, opcode::DATASET_MANAGEMENT),
        (3, opcode::WRITE_ZEROES),
        (5, opcode::RESERVATION_REGISTER),
        (5, opcode::RESERVATION_REPORT),
        (5, opcode::RESERVATION_ACQUIRE),
        (5, opcode::RESERVATION_RELEASE),
        (7, opcode::VERIFY),
        (8, opcode::COPY),
    ] {
        if oncs >> bit & 1 == 0 {
            let cqe = bench.run(&mut pair, ns.sqe(opcode, 0, 1))?;
            cqe.expect(status::INVALID_OPCODE)?;
        }
    }
    Ok(())
}

fn compare(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(0, "Compare")?;
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.bytes(2))?;
    let data = mem.pattern(0, ns.bytes(2), 0xc0);
    bench.write_blocks(&mut pair, &ns, 3, &data)?;
    let sqe = bench.transfer(&ns, opcode::COMPARE, 3, 2, &mem)?;
    bench.run(&mut pair, sqe)?.ok()?;
    bench
        .run(&mut pair, sqe.dw(12, sqe.0[12] | 1 << 30))?
        .ok()?;
    same_bytes(
        "the host's data after Compare",
        &mem.bytes(0, data.len()),
        &data,
    )?;
    mem.write(5, &[!data[5]]);
    bench.run(&mut pair, sqe)?.expect(status::COMPARE_FAILURE)?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 2)?;
    same_bytes("blocks after Compare", &found, &data)
}

fn compare_last_byte(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(0, "Compare")?;
    let (ns, mut pair) = bench.io()?;
    let len = bench
        .mdts()?
        .unwrap_or(1 << 20)
        .min(1 << 20)
        .max(ns.block_len);
    let blocks = u32::try_from(len / ns.block_len).unwrap_or(1);
    let mem = bench.mem(len)?;
    let data = mem.pattern(0, len, 0xc1);
    bench.write_blocks(&mut pair, &ns, 0, &data)?;
    let sqe = bench.transfer(&ns, opcode::COMPARE, 0, blocks, &mem)?;
    bench.run(&mut pair, sqe)?.ok()?;
    for at in [0, len / 2, len - 1] {
        mem.write(at, &[!data[at]]);
        bench.run(&mut pair, sqe)?.expect(status::COMPARE_FAILURE)?;
        mem.write(at, &[data[at]]);
    }
    bench.run(&mut pair, sqe)?.ok().map(drop)
}

/// Commands of one opcode beyond the end of a namespace.
fn out_of_range(bench: &mut Bench, pair: &mut Pair, ns: &Ns, opcode: u8) -> Verdict {
    let mem = bench.mem(ns.bytes(2))?;
    for (slba, blocks) in [
        (ns.blocks, 1),
        (ns.blocks - 1, 2),
        (u64::MAX, 2),
        (1 << 63, 1),
    ] {
        let sqe = bench.transfer(ns, opcode, slba, blocks, &mem)?;
        bench.run(pair, sqe)?.expect(status::LBA_OUT_OF_RANGE)?;
    }
    Ok(())
}

fn compare_bounds(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(0, "Compare")?;
    let (ns, mut pair) = bench.io()?;
    out_of_range(bench, &mut pair, &ns, opcode::COMPARE)?;
    let Some(mdts) = bench.mdts()? else {
        return Ok(());
    };
    let over = u32::try_from(mdts / ns.block_len)
        .unwrap_or(u32::MAX)
        .saturating_add(1);
    if over > 65536 || u64::from(over) > ns.blocks || mdts > 16 << 20 {
        return Ok(());
    }
    let mem = bench.mem(ns.bytes(over))?;
    let sqe = bench.transfer(&ns, opcode::COMPARE, 0, over, &mem)?;
    bench
        .run(&mut pair, sqe)?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

/// Blocks 0 to 15 with a pattern in them.
fn sixteen(bench: &mut Bench, pair: &mut Pair, ns: &Ns, seed: u64) -> Verdict<Vec<u8>> {
    if ns.blocks < 16 {
        return not_supported("the namespace has fewer than 16 blocks");
    }
    let data = pattern(ns.bytes(16), seed);
    bench.write_blocks(pair, ns, 0, &data)?;
    Ok(data)
}

fn write_zeroes(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(3, "Write Zeroes")?;
    let (ns, mut pair) = bench.io()?;
    for (seed, flags) in [(1, 0), (2, 1 << 25), (3, 1 << 30), (4, 1 << 31)] {
        let mut data = sixteen(bench, &mut pair, &ns, seed)?;
        for (slba, blocks) in [(3_u32, 1), (5, 4), (10, 6)] {
            let sqe = ns.sqe(opcode::WRITE_ZEROES, slba.into(), blocks);
            bench.run(&mut pair, sqe.dw(12, sqe.0[12] | flags))?.ok()?;
            let at = ns.bytes(slba);
            data[at..at + ns.bytes(blocks)].fill(0);
        }
        let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
        same_bytes(
            &format!("blocks after Write Zeroes with {flags:#x}"),
            &found,
            &data,
        )?;
    }
    Ok(())
}

fn write_zeroes_bounds(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(3, "Write Zeroes")?;
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0x2e0);
    bench.write_blocks(&mut pair, &ns, ns.blocks - 1, &data)?;
    out_of_range(bench, &mut pair, &ns, opcode::WRITE_ZEROES)?;
    let found = bench.read_blocks(&mut pair, &ns, ns.blocks - 1, 1)?;
    same_bytes("the last block after Write Zeroes beyond it", &found, &data)
}

/// A size limit of Identify CNS 06h for the NVM command set, in blocks: 2^n
/// pages of CAP.MPSMIN; `None`: no limit.
fn size_limit(bench: &mut Bench, ns: &Ns, at: usize) -> Verdict<Option<u64>> {
    let (cqe, data) = bench.try_identify(0x06, 0)?;
    if !cqe.is_success() {
        return Ok(None);
    }
    let block_len = u64::try_from(ns.block_len).unwrap_or(512);
    Ok(match u8_at(&data, at) {
        0 | 40.. => None,
        limit => Some(((4096_u64 << limit) / block_len).max(1)),
    })
}

fn write_zeroes_large(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(3, "Write Zeroes")?;
    let (ns, mut pair) = bench.io()?;
    let limit = size_limit(bench, &ns, 1)?.unwrap_or(u64::MAX);
    let blocks = limit.min(65536).min(ns.blocks);
    let last = pattern(ns.block_len, 0x1a);
    bench.write_blocks(&mut pair, &ns, blocks - 1, &last)?;
    let count = u32::try_from(blocks).unwrap_or(1);
    bench
        .run(&mut pair, ns.sqe(opcode::WRITE_ZEROES, 0, count))?
        .ok()?;
    for slba in [0, blocks / 2, blocks - 1] {
        let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
        zero(
            &format!("block {slba} after Write Zeroes of {blocks}"),
            &found,
        )?;
    }
    if limit < 65536 && limit < ns.blocks {
        let sqe = ns.sqe(opcode::WRITE_ZEROES, 0, count + 1);
        bench.run(&mut pair, sqe)?.expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn write_zeroes_no_data(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(3, "Write Zeroes")?;
    let (ns, mut pair) = bench.io()?;
    let sqe = ns.sqe(opcode::WRITE_ZEROES, 0, 8).prps((u64::MAX, 3));
    bench.run(&mut pair, sqe)?.ok().map(drop)
}

/// Dataset Management with Deallocate of these ranges (attributes, blocks, first
/// block), 16 bytes each.
fn dataset_sqe(bench: &mut Bench, ns: &Ns, ranges: &[(u32, u64)], at: usize) -> Verdict<Sqe> {
    let mem = bench.mem(at + ranges.len() * 16)?;
    for (index, (blocks, slba)) in ranges.iter().enumerate() {
        let place = at + index * 16;
        mem.write(place + 4, &blocks.to_le_bytes());
        mem.write64(place + 8, *slba);
    }
    let data = bench.pointer(&mem, at, ranges.len() * 16)?;
    let count_z = u32::try_from(ranges.len() - 1).unwrap_or(255);
    Ok(Sqe::new(opcode::DATASET_MANAGEMENT)
        .nsid(ns.nsid)
        .data(data)
        .dw(10, count_z)
        .dw(11, 0b100))
}

/// Blocks that may have been deallocated are as before, or all one byte; others
/// are as before.
fn deallocated(ns: &Ns, found: &[u8], data: &[u8], gone: &[u32]) -> Verdict {
    let blocks = found.chunks(ns.block_len).zip(data.chunks(ns.block_len));
    for (slba, (found, data)) in (0_u32..).zip(blocks) {
        let uniform = found.iter().all(|b| *b == found[0]) && matches!(found[0], 0x00 | 0xff);
        if gone.contains(&slba) && uniform {
            continue;
        }
        let what = format!("block {slba} after Deallocate of {gone:?}");
        same_bytes(&what, found, data)?;
    }
    Ok(())
}

fn deallocate(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(2, "Dataset Management")?;
    let (ns, mut pair) = bench.io()?;
    let data = sixteen(bench, &mut pair, &ns, 0xd5)?;
    let sqe = dataset_sqe(bench, &ns, &[(2, 4), (1, 9)], 0)?;
    bench.run(&mut pair, sqe)?.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
    deallocated(&ns, &found, &data, &[4, 5, 9])
}

fn deallocate_many(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(2, "Dataset Management")?;
    let (ns, mut pair) = bench.io()?;
    let data = sixteen(bench, &mut pair, &ns, 0xd6)?;
    let ranges: Vec<(u32, u64)> = (0..256).map(|n| (1, n % 2 * 15)).collect();
    // 4096 bytes from inside a page go on in another.
    for at in [0, 1024, 4080] {
        let sqe = dataset_sqe(bench, &ns, &ranges, at)?;
        bench.run(&mut pair, sqe)?.ok()?;
    }
    let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
    deallocated(&ns, &found, &data, &[0, 15])
}

fn deallocate_bounds(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(2, "Dataset Management")?;
    let (ns, mut pair) = bench.io()?;
    for range in [
        (1, ns.blocks),
        (2, ns.blocks - 1),
        (u32::MAX, 0),
        (2, u64::MAX),
    ] {
        if range.0 == u32::MAX && ns.blocks > u64::from(u32::MAX) {
            continue;
        }
        let sqe = dataset_sqe(bench, &ns, &[range], 0)?;
        bench
            .run(&mut pair, sqe)?
            .expect(status::LBA_OUT_OF_RANGE)?;
    }
    Ok(())
}

fn deallocate_empty(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(2, "Dataset Management")?;
    let (ns, mut pair) = bench.io()?;
    let data = sixteen(bench, &mut pair, &ns, 0xd7)?;
    let sqe = dataset_sqe(bench, &ns, &[(0, 3), (0, 0)], 0)?;
    bench.run(&mut pair, sqe)?.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
    same_bytes("blocks after empty ranges", &found, &data)
}

fn dataset_attributes_only(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(2, "Dataset Management")?;
    let (ns, mut pair) = bench.io()?;
    let data = sixteen(bench, &mut pair, &ns, 0xd8)?;
    for attributes in [0b00, 0b01, 0b10, 0b11] {
        let sqe = dataset_sqe(bench, &ns, &[(16, 0)], 0)?;
        bench.run(&mut pair, sqe.dw(11, attributes))?.ok()?;
    }
    let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
    same_bytes("blocks after attributes", &found, &data)
}

fn verify(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(7, "Verify")?;
    let (ns, mut pair) = bench.io()?;
    let data = sixteen(bench, &mut pair, &ns, 0x7e)?;
    let sqe = ns.sqe(opcode::VERIFY, 0, 16).prps((u64::MAX, 3));
    bench.run(&mut pair, sqe)?.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
    same_bytes("blocks after Verify", &found, &data)
}

fn verify_bounds(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(7, "Verify")?;
    let (ns, mut pair) = bench.io()?;
    out_of_range(bench, &mut pair, &ns, opcode::VERIFY)?;
    let Some(limit) = size_limit(bench, &ns, 0)? else {
        let most = u32::try_from(ns.blocks.min(65536)).unwrap_or(1);
        return bench
            .run(&mut pair, ns.sqe(opcode::VERIFY, 0, most))?
            .ok()
            .map(drop);
    };
    if limit >= 65536 || limit >= ns.blocks {
        return Ok(());
    }
    let count = u32::try_from(limit).unwrap_or(1);
    bench
        .run(&mut pair, ns.sqe(opcode::VERIFY, 0, count))?
        .ok()?;
    bench
        .run(&mut pair, ns.sqe(opcode::VERIFY, 0, count + 1))?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

/// Makes blocks uncorrectable, with good ones around.
fn spoil(bench: &mut Bench, pair: &mut Pair, ns: &Ns, slba: u64, blocks: u32) -> Verdict {
    let sqe = ns.sqe(opcode::WRITE_UNCORRECTABLE, slba, blocks);
    bench.run(pair, sqe)?.ok().map(drop)
}

fn read_status(
    bench: &mut Bench,
    pair: &mut Pair,
    ns: &Ns,
    slba: u64,
    blocks: u32,
) -> Verdict<Cqe> {
    Ok(bench.try_read_blocks(pair, ns, slba, blocks)?.0)
}

fn uncorrectable(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(1, "Write Uncorrectable")?;
    let (ns, mut pair) = bench.io()?;
    let data = sixteen(bench, &mut pair, &ns, 0xbad)?;
    spoil(bench, &mut pair, &ns, 6, 2)?;
    for slba in [6, 7] {
        read_status(bench, &mut pair, &ns, slba, 1)?.expect(status::UNRECOVERED_READ)?;
    }
    for slba in [5_u32, 8] {
        let found = bench.read_blocks(&mut pair, &ns, slba.into(), 1)?;
        let at = ns.bytes(slba);
        same_bytes(
            &format!("block {slba}, beside uncorrectable ones"),
            &found,
            &data[at..at + ns.block_len],
        )?;
    }
    let oncs = u16_at(&bench.controller()?, 520);
    if oncs & 1 == 1 {
        let mem = bench.mem(ns.block_len)?;
        let sqe = bench.transfer(&ns, opcode::COMPARE, 6, 1, &mem)?;
        bench
            .run(&mut pair, sqe)?
            .expect(status::UNRECOVERED_READ)?;
    }
    if oncs >> 7 & 1 == 1 {
        let sqe = ns.sqe(opcode::VERIFY, 7, 1);
        bench
            .run(&mut pair, sqe)?
            .expect(status::UNRECOVERED_READ)?;
        bench.run(&mut pair, ns.sqe(opcode::VERIFY, 8, 2))?.ok()?;
    }
    sixteen(bench, &mut pair, &ns, 1).map(drop)
}

fn uncorrectable_heals(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(1, "Write Uncorrectable")?;
    let (ns, mut pair) = bench.io()?;
    sixteen(bench, &mut pair, &ns, 0xbad)?;
    spoil(bench, &mut pair, &ns, 2, 4)?;
    let data = pattern(ns.block_len, 0x4ea1);
    bench.write_blocks(&mut pair, &ns, 3, &data)?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 1)?;
    same_bytes("a block that was healed by Write", &found, &data)?;
    for slba in [2, 4, 5] {
        read_status(bench, &mut pair, &ns, slba, 1)?.expect(status::UNRECOVERED_READ)?;
    }
    if u16_at(&bench.controller()?, 520) >> 3 & 1 == 1 {
        bench
            .run(&mut pair, ns.sqe(opcode::WRITE_ZEROES, 4, 1))?
            .ok()?;
        let found = bench.read_blocks(&mut pair, &ns, 4, 1)?;
        zero("a block that was healed by Write Zeroes", &found)?;
        read_status(bench, &mut pair, &ns, 5, 1)?.expect(status::UNRECOVERED_READ)?;
    }
    let data = sixteen(bench, &mut pair, &ns, 2)?;
    let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
    same_bytes("all blocks, healed", &found, &data)
}

fn uncorrectable_bounds(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(1, "Write Uncorrectable")?;
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0xbb);
    bench.write_blocks(&mut pair, &ns, ns.blocks - 1, &data)?;
    out_of_range(bench, &mut pair, &ns, opcode::WRITE_UNCORRECTABLE)?;
    let found = bench.read_blocks(&mut pair, &ns, ns.blocks - 1, 1)?;
    same_bytes("the last block", &found, &data)
}

fn uncorrectable_stays(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(1, "Write Uncorrectable")?;
    let (ns, mut pair) = bench.io()?;
    sixteen(bench, &mut pair, &ns, 0xbad)?;
    spoil(bench, &mut pair, &ns, 11, 1)?;
    bench.start()?;
    let (ns, mut pair) = bench.io()?;
    read_status(bench, &mut pair, &ns, 11, 1)?.expect(status::UNRECOVERED_READ)?;
    sixteen(bench, &mut pair, &ns, 3).map(drop)
}

fn uncorrectable_middle(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(1, "Write Uncorrectable")?;
    let (ns, mut pair) = bench.io()?;
    sixteen(bench, &mut pair, &ns, 0xbad)?;
    spoil(bench, &mut pair, &ns, 5, 1)?;
    read_status(bench, &mut pair, &ns, 0, 16)?.expect(status::UNRECOVERED_READ)?;
    read_status(bench, &mut pair, &ns, 4, 2)?.expect(status::UNRECOVERED_READ)?;
    bench.read_blocks(&mut pair, &ns, 0, 5)?;
    let data = pattern(ns.bytes(3), 0x4ea2);
    bench.write_blocks(&mut pair, &ns, 4, &data)?;
    let found = bench.read_blocks(&mut pair, &ns, 4, 3)?;
    same_bytes("blocks that were healed together", &found, &data)
}

fn get_lba_status(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(9, "Get LBA Status")?;
    let ns = bench.ns()?;
    let mem = bench.mem(4096)?;
    // MNDW is 0's based dwords; all blocks there are, by ATYPE 10h and 11h.
    for action in [0x10_u32, 0x11] {
        mem.fill(0xa5);
        let sqe = Sqe::new(0x86)
            .nsid(ns.nsid)
            .data(bench.pointer(&mem, 0, 4096)?)
            .dw(12, 1023)
            .dw(13, action << 24);
        let cqe = bench.admin(sqe)?;
        let cqe = cqe.expect_any(&[status::SUCCESS, status::INVALID_FIELD])?;
        if !cqe.is_success() {
            continue;
        }
        let data = mem.bytes(0, 4096);
        let count = u32_at(&data, 0);
        check(count <= 255, || {
            format!("Get LBA Status lists {count} ranges in 4096 bytes")
        })?;
        let condition = u8_at(&data, 4) & 0b111;
        check(condition <= 2, || {
            format!("completion condition {condition}")
        })?;
    }
    let past = Sqe::new(0x86)
        .nsid(ns.nsid)
        .data(bench.pointer(&mem, 0, 4096)?)
        .qword(10, ns.blocks)
        .dw(12, 1023)
        .dw(13, 0x10 << 24);
    bench
        .admin(past)?
        .expect_any(&[status::LBA_OUT_OF_RANGE, status::INVALID_FIELD])
        .map(drop)
}
