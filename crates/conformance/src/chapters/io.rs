//! Reading and writing (NVM 1.1, 3.3; Base 2.1, 7.2): bounds, sizes, what
//! arrives where.

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Feature, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Sqe, status, u8_at, u16_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "io",
    title: "Read, Write, Flush: bounds, sizes, data",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    first_and_last, "NVM 1.1, 3.3.6", "the first and the last block keep what is written";
    each_block_its_own, "NVM 1.1, 3.3.6", "blocks that are written one by one are read together, and the other way round";
    neighbours_untouched, "NVM 1.1, 3.3.6", "a Write changes its blocks and no others";
    read_leaves_the_rest, "NVM 1.1, 3.3.4", "a Read writes its bytes to memory and no others";
    sizes, "NVM 1.1, 3.3.4", "transfers of every size from one block up to MDTS arrive whole";
    largest_transfer, "Base 2.1, 5.1.13.2.1", "a transfer of MDTS bytes is done, one block more is refused (002h)";
    past_the_end, "NVM 1.1, 3.3.4", "blocks beyond the end are refused (080h): the first one, the last, all of them";
    overflow, "NVM 1.1, 3.3.4", "an SLBA near 2^64 that wraps around with its length is refused (080h)";
    refused_write_changes_nothing, "NVM 1.1, 3.3.6", "a Write that is refused at the end of the namespace changes no block before it";
    last_address, "NVM 1.1, 3.3.4", "a transfer that ends at the last block is done";
    upper_half_of_slba, "NVM 1.1, 3.3.4", "bits 63:32 of SLBA count";
    fua, "NVM 1.1, 3.3.6", "Force Unit Access writes and reads the same data";
    limited_retry, "NVM 1.1, 3.3.4", "Limited Retry is accepted";
    dataset_hints, "NVM 1.1, 3.3.6", "Dataset Management hints in dword 13 change nothing";
    flush, "Base 2.1, 7.2", "Flush succeeds, and what was written stays";
    flush_all, "Base 2.1, 7.2", "Flush of FFFFFFFFh does as VWC says";
    flush_ignores_other_fields, "Base 2.1, 7.2", "Flush takes no data: its pointers are not looked at";
    many_in_flight, "Base 2.1, 3.4.1", "64 writes and reads in flight at once, of different sizes, all arrive";
    several_queues, "Base 2.1, 3.3.1", "what is written through one queue is read through another";
    same_block_in_order, "Base 2.1, 3.4.1", "a Read that is submitted after a Write completed sees it, many times over";
    atomic_block, "NVM 1.1, 2.1.4.1", "a block that is written and read at once is the old one or the new one, never a mixture";
    atomic_power_fail_fields, "NVM 1.1, 2.1.4", "AWUPF is not above AWUN; a namespace's are not below the controller's";
    metadata_pointer_ignored, "NVM 1.1, 3.3.4", "without metadata its pointer is not looked at";
    namespaces_apart, "Base 2.1, 3.2.1", "what is written to one namespace changes no other";
    namespace_of_all, "Base 2.1, 3.2.1.5", "Read and Write of FFFFFFFFh are refused (00Bh)";
    unwritten_data, "NVM 1.1, 3.3.3.2.1", "deallocated blocks read as DLFEAT says";
    reset_keeps_data, "Base 2.1, 3.7.2", "data is there after a Controller Reset, an NVM Subsystem Reset apart";
    capacity_is_real, "NVM 1.1, 2.1.1", "blocks spread over the whole namespace each keep their own data";
];

/// Blocks to try things on: the first of a region that tests may write.
fn blocks_per_page(ns: &Ns) -> u32 {
    u32::try_from((4096 / ns.block_len).max(1)).unwrap_or(1)
}

fn write_read(bench: &mut Bench, pair: &mut Pair, ns: &Ns, slba: u64, blocks: u32) -> Verdict {
    let data = pattern(ns.bytes(blocks), slba ^ u64::from(blocks) << 40);
    bench.write_blocks(pair, ns, slba, &data)?;
    let found = bench.read_blocks(pair, ns, slba, blocks)?;
    same_bytes(&format!("{blocks} blocks from {slba}"), &found, &data)
}

fn first_and_last(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for slba in [0, ns.blocks - 1] {
        write_read(bench, &mut pair, &ns, slba, 1)?;
    }
    Ok(())
}

fn each_block_its_own(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.bytes(8), 0xb10c);
    for (slba, block) in (8..).zip(data.chunks(ns.block_len)) {
        bench.write_blocks(&mut pair, &ns, slba, block)?;
    }
    let found = bench.read_blocks(&mut pair, &ns, 8, 8)?;
    same_bytes("eight blocks at once", &found, &data)?;
    let data = pattern(ns.bytes(8), 0xb10d);
    bench.write_blocks(&mut pair, &ns, 8, &data)?;
    for (slba, block) in (8..).zip(data.chunks(ns.block_len)) {
        let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
        same_bytes(&format!("block {slba} alone"), &found, block)?;
    }
    Ok(())
}

fn neighbours_untouched(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mut data = pattern(ns.bytes(16), 0x0e16);
    bench.write_blocks(&mut pair, &ns, 0, &data)?;
    for (slba, blocks) in [(5_u32, 1), (8, 3), (2, 2)] {
        let part = pattern(ns.bytes(blocks), u64::from(slba));
        bench.write_blocks(&mut pair, &ns, slba.into(), &part)?;
        let at = ns.bytes(slba);
        data[at..at + part.len()].copy_from_slice(&part);
        let found = bench.read_blocks(&mut pair, &ns, 0, 16)?;
        same_bytes("blocks around a Write", &found, &data)?;
    }
    Ok(())
}

fn read_leaves_the_rest(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0x1ead);
    bench.write_blocks(&mut pair, &ns, 1, &data)?;
    let mem = bench.mem(ns.block_len + 8192)?;
    mem.fill(0xa5);
    let pointer = bench.pointer(&mem, 4096, ns.block_len)?;
    let sqe = ns.sqe(opcode::READ, 1, 1).data(pointer);
    bench.run(&mut pair, sqe)?.ok()?;
    same_bytes("the block", &mem.bytes(4096, ns.block_len), &data)?;
    let end = 4096 + ns.block_len;
    let around = [mem.bytes(0, 4096), mem.bytes(end, mem.len() - end)].concat();
    check(around.iter().all(|b| *b == 0xa5), || {
        "a Read of one block wrote beside it".into()
    })
}

/// The most blocks of a command: MDTS, NLB's 16 bits, the namespace, and what
/// these tests have memory for.
fn blocks_max(bench: &mut Bench, ns: &Ns) -> Verdict<u32> {
    let by_mdts = match bench.mdts()? {
        None => 16 << 20,
        Some(most) => most.min(16 << 20),
    } / ns.block_len;
    let most = u64::try_from(by_mdts).unwrap_or(u64::MAX);
    let most = most.min(65536).min(ns.blocks);
    Ok(u32::try_from(most).unwrap_or(1).max(1))
}

fn sizes(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let most = blocks_max(bench, &ns)?;
    let mut blocks = 1;
    while blocks <= most {
        for near in [blocks - 1, blocks, blocks + 1] {
            if (1..=most).contains(&near) {
                write_read(bench, &mut pair, &ns, 0, near)?;
            }
        }
        blocks *= 2;
    }
    Ok(())
}

fn largest_transfer(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let Some(mdts) = bench.mdts()? else {
        return not_supported("MDTS is 0: transfers have no limit");
    };
    let most = u32::try_from(mdts / ns.block_len).unwrap_or(u32::MAX);
    if most >= 65536 || most == 0 || u64::from(most) >= ns.blocks || mdts > 16 << 20 {
        return not_supported(format!(
            "MDTS is {mdts} bytes, which no command here reaches"
        ));
    }
    write_read(bench, &mut pair, &ns, 0, most)?;
    let mem = bench.mem(ns.bytes(most + 1))?;
    for opcode in [opcode::READ, opcode::WRITE] {
        let sqe = bench.transfer(&ns, opcode, 0, most + 1, &mem)?;
        bench.run(&mut pair, sqe)?.expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn past_the_end(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.bytes(2))?;
    for (slba, blocks) in [
        (ns.blocks, 1),
        (ns.blocks - 1, 2),
        (ns.blocks + 1, 1),
        (ns.blocks * 2, 2),
        (1 << 63, 1),
    ] {
        for opcode in [opcode::READ, opcode::WRITE] {
            let sqe = bench.transfer(&ns, opcode, slba, blocks, &mem)?;
            bench
                .run(&mut pair, sqe)?
                .expect(status::LBA_OUT_OF_RANGE)?;
        }
    }
    Ok(())
}

fn overflow(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.bytes(4))?;
    for slba in [u64::MAX, u64::MAX - 1, u64::MAX - 3] {
        for opcode in [opcode::READ, opcode::WRITE] {
            let sqe = bench.transfer(&ns, opcode, slba, 4, &mem)?;
            bench
                .run(&mut pair, sqe)?
                .expect(status::LBA_OUT_OF_RANGE)?;
        }
    }
    // So that bytes wrap around and blocks do not.
    let shift = ns.block_len.trailing_zeros();
    let slba = 1_u64 << (64 - shift);
    let sqe = bench.transfer(&ns, opcode::READ, slba, 1, &mem)?;
    bench
        .run(&mut pair, sqe)?
        .expect(status::LBA_OUT_OF_RANGE)
        .map(drop)
}

fn refused_write_changes_nothing(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    if ns.blocks < 4 {
        return not_supported("the namespace has fewer than four blocks");
    }
    let data = pattern(ns.bytes(4), 0xe0d);
    bench.write_blocks(&mut pair, &ns, ns.blocks - 4, &data)?;
    let mem = bench.mem(ns.bytes(8))?;
    mem.fill(0x5a);
    let sqe = bench.transfer(&ns, opcode::WRITE, ns.blocks - 4, 8, &mem)?;
    bench
        .run(&mut pair, sqe)?
        .expect(status::LBA_OUT_OF_RANGE)?;
    let found = bench.read_blocks(&mut pair, &ns, ns.blocks - 4, 4)?;
    same_bytes("blocks before the end", &found, &data)
}

fn last_address(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let most = blocks_max(bench, &ns)?;
    for blocks in [2, most] {
        if u64::from(blocks) <= ns.blocks {
            let slba = ns.blocks - u64::from(blocks);
            write_read(bench, &mut pair, &ns, slba, blocks)?;
        }
    }
    Ok(())
}

fn upper_half_of_slba(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0x51ba);
    bench.write_blocks(&mut pair, &ns, 2, &data)?;
    let other = vec![0x77; ns.block_len];
    let slba = 2 | 1 << 32;
    if slba < ns.blocks {
        bench.write_blocks(&mut pair, &ns, slba, &other)?;
    } else {
        let mem = bench.mem(ns.block_len)?;
        let sqe = bench.transfer(&ns, opcode::WRITE, slba, 1, &mem)?;
        bench
            .run(&mut pair, sqe)?
            .expect(status::LBA_OUT_OF_RANGE)?;
    }
    let found = bench.read_blocks(&mut pair, &ns, 2, 1)?;
    same_bytes("block 2, after block 2 + 2^32 was written", &found, &data)
}

fn fua(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.bytes(2))?;
    let data = mem.pattern(0, ns.bytes(2), 0xf0a);
    let sqe = bench.transfer(&ns, opcode::WRITE, 4, 2, &mem)?;
    bench
        .run(&mut pair, sqe.dw(12, sqe.0[12] | 1 << 30))?
        .ok()?;
    mem.fill(0);
    let sqe = bench.transfer(&ns, opcode::READ, 4, 2, &mem)?;
    bench
        .run(&mut pair, sqe.dw(12, sqe.0[12] | 1 << 30))?
        .ok()?;
    same_bytes("blocks with FUA", &mem.bytes(0, ns.bytes(2)), &data)
}

fn limited_retry(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.block_len)?;
    for opcode in [opcode::WRITE, opcode::READ] {
        let sqe = bench.transfer(&ns, opcode, 4, 1, &mem)?;
        bench
            .run(&mut pair, sqe.dw(12, sqe.0[12] | 1 << 31))?
            .ok()?;
    }
    Ok(())
}

fn dataset_hints(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for hints in [0x0f, 0x10, 0x20, 0x40, 0x80] {
        let mem = bench.mem(ns.block_len)?;
        let data = mem.pattern(0, ns.block_len, hints.into());
        let sqe = bench.transfer(&ns, opcode::WRITE, 6, 1, &mem)?;
        bench.run(&mut pair, sqe.dw(13, hints))?.ok()?;
        let found = bench.read_blocks(&mut pair, &ns, 6, 1)?;
        same_bytes("a block written with hints", &found, &data)?;
    }
    Ok(())
}

fn flush_sqe(ns: &Ns) -> Sqe {
    Sqe::new(opcode::FLUSH).nsid(ns.nsid)
}

fn flush(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0xf1);
    bench.write_blocks(&mut pair, &ns, 9, &data)?;
    bench.run(&mut pair, flush_sqe(&ns))?.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 9, 1)?;
    same_bytes("a block after Flush", &found, &data)
}

fn flush_all(bench: &mut Bench) -> Verdict {
    // VWC bits 2:1: 10b not supported for FFFFFFFFh, 11b supported.
    let behavior = u8_at(&bench.controller()?, 525) >> 1 & 0b11;
    let (_, mut pair) = bench.io()?;
    let cqe = bench.run(&mut pair, Sqe::new(opcode::FLUSH).nsid(0xffff_ffff))?;
    match behavior {
        0b11 => cqe.ok().map(drop),
        0b10 => cqe.expect(status::INVALID_NAMESPACE).map(drop),
        _ => same(
            "VWC bits 2:1 (00b is older than 1.4, 01b reserved)",
            behavior,
            0,
        ),
    }
}

fn flush_ignores_other_fields(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let sqe = flush_sqe(&ns).prps((u64::MAX, 3)).qword(10, u64::MAX);
    bench.run(&mut pair, sqe)?.ok().map(drop)
}

fn many_in_flight(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let count = 63.min(pair.sq.entries - 1);
    let most = blocks_max(bench, &ns)?.min(16);
    if ns.blocks < u64::from(count * most) {
        return not_supported("the namespace is too small");
    }
    let place = |n: u32| u64::from(n * most);
    let mut expected = Vec::new();
    for n in 0..count {
        let blocks = n % most + 1;
        let mem = bench.mem(ns.bytes(blocks))?;
        expected.push((blocks, mem.pattern(0, ns.bytes(blocks), n.into())));
        let sqe = bench.transfer(&ns, opcode::WRITE, place(n), blocks, &mem)?;
        bench.put(&mut pair.sq, sqe);
    }
    bench.ring_sq(&pair.sq)?;
    for _ in 0..count {
        bench.wait(&mut pair.cq)?.ok()?;
    }
    let mut found = Vec::new();
    for (n, (blocks, _)) in (0..).zip(&expected) {
        let mem = bench.mem(ns.bytes(*blocks))?;
        let sqe = bench.transfer(&ns, opcode::READ, place(n), *blocks, &mem)?;
        bench.put(&mut pair.sq, sqe);
        found.push(mem);
    }
    bench.ring_sq(&pair.sq)?;
    for _ in 0..count {
        bench.wait(&mut pair.cq)?.ok()?;
    }
    for (n, ((_, data), mem)) in expected.iter().zip(&found).enumerate() {
        same_bytes(&format!("transfer {n}"), &mem.bytes(0, data.len()), data)?;
    }
    Ok(())
}

fn several_queues(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut one = bench.pair(8)?;
    let mut two = bench.pair(8)?;
    for turn in 0..10 {
        let data = pattern(ns.block_len, turn);
        let (writer, reader) = if turn % 2 == 0 {
            (&mut one, &mut two)
        } else {
            (&mut two, &mut one)
        };
        bench.write_blocks(writer, &ns, 11, &data)?;
        let found = bench.read_blocks(reader, &ns, 11, 1)?;
        same_bytes("a block through another queue", &found, &data)?;
    }
    Ok(())
}

fn same_block_in_order(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for turn in 0..100 {
        let data = pattern(ns.block_len, turn);
        bench.write_blocks(&mut pair, &ns, 7, &data)?;
        let found = bench.read_blocks(&mut pair, &ns, 7, 1)?;
        same_bytes(&format!("block 7 after Write {turn}"), &found, &data)?;
    }
    Ok(())
}

fn atomic_block(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    // AWUN is 0's based: one block is always atomic.
    let mut writer = bench.pair(8)?;
    let mut reader = bench.pair(8)?;
    let writes: Vec<_> = [0x11, 0x22]
        .into_iter()
        .map(|byte| {
            let mem = bench.mem(ns.block_len)?;
            mem.fill(byte);
            bench.transfer(&ns, opcode::WRITE, 0, 1, &mem)
        })
        .collect::<Verdict<_>>()?;
    bench.run(&mut writer, writes[0])?.ok()?;
    let mem = bench.mem(ns.block_len)?;
    let read = bench.transfer(&ns, opcode::READ, 0, 1, &mem)?;
    for turn in 0..200 {
        bench.submit(&mut writer.sq, writes[turn % 2])?;
        bench.submit(&mut reader.sq, read)?;
        bench.wait(&mut reader.cq)?.ok()?;
        let found = mem.bytes(0, ns.block_len);
        check(found.iter().all(|b| *b == found[0]), || {
            "a block was read half before and half after a Write".into()
        })?;
        bench.wait(&mut writer.cq)?.ok()?;
    }
    Ok(())
}

fn atomic_power_fail_fields(bench: &mut Bench) -> Verdict {
    let c = bench.controller()?;
    let (awun, awupf) = (u16_at(&c, 526), u16_at(&c, 528));
    check(awupf <= awun, || {
        format!("AWUPF {awupf} is above AWUN {awun}")
    })?;
    for nsid in bench.active()? {
        let n = bench.identify(0x00, nsid)?;
        // NSFEAT bit 1: NAWUN, NAWUPF and NACWU count.
        if u8_at(&n, 24) >> 1 & 1 == 0 {
            continue;
        }
        let (nawun, nawupf) = (u16_at(&n, 34), u16_at(&n, 36));
        check(nawun >= awun, || {
            format!("namespace {nsid}: NAWUN {nawun} is below AWUN {awun}")
        })?;
        check(nawupf >= awupf, || {
            format!("namespace {nsid}: NAWUPF {nawupf} is below AWUPF {awupf}")
        })?;
    }
    Ok(())
}

fn metadata_pointer_ignored(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.block_len)?;
    for opcode in [opcode::WRITE, opcode::READ] {
        let sqe = bench.transfer(&ns, opcode, 0, 1, &mem)?;
        bench.run(&mut pair, sqe.qword(4, u64::MAX))?.ok()?;
    }
    Ok(())
}

fn namespaces_apart(bench: &mut Bench) -> Verdict {
    let mut all = Vec::new();
    for nsid in bench.active()? {
        all.extend(Ns::new(nsid, bench.identify(0x00, nsid)?));
    }
    if all.len() < 2 {
        return not_supported("there are fewer than two namespaces");
    }
    let mut pair = bench.pair(16)?;
    let data: Vec<_> = all
        .iter()
        .map(|ns| pattern(ns.block_len, ns.nsid.into()))
        .collect();
    for slba in [0, 1] {
        for (ns, data) in all.iter().zip(&data) {
            bench.write_blocks(&mut pair, ns, slba, data)?;
            bench.write_blocks(&mut pair, ns, ns.blocks - 1 - slba, data)?;
        }
    }
    for (ns, data) in all.iter().zip(&data) {
        for slba in [0, 1, ns.blocks - 2, ns.blocks - 1] {
            let found = bench.read_blocks(&mut pair, ns, slba, 1)?;
            let what = format!("block {slba} of namespace {}", ns.nsid);
            same_bytes(&what, &found, data)?;
        }
    }
    Ok(())
}

fn namespace_of_all(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.block_len)?;
    for opcode in [opcode::READ, opcode::WRITE] {
        let sqe = bench.transfer(&ns, opcode, 0, 1, &mem)?;
        bench
            .run(&mut pair, sqe.nsid(0xffff_ffff))?
            .expect_any(&[status::INVALID_NAMESPACE, status::INVALID_FIELD])?;
    }
    Ok(())
}

fn unwritten_data(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(2, "Dataset Management")?;
    let (ns, mut pair) = bench.io()?;
    let blocks = blocks_per_page(&ns) * 2;
    let data = pattern(ns.bytes(blocks), 0xdea1);
    bench.write_blocks(&mut pair, &ns, 0, &data)?;
    let ranges = bench.mem(4096)?;
    ranges.write(4, &blocks.to_le_bytes());
    let sqe = Sqe::new(opcode::DATASET_MANAGEMENT)
        .nsid(ns.nsid)
        .data(bench.pointer(&ranges, 0, 16)?)
        .dw(11, 0b100);
    bench.run(&mut pair, sqe)?.ok()?;
    // DULBE may make such reads fail; it is off after a reset.
    let dulbe = bench
        .get_feature(0x05, Feature::Current, ns.nsid)?
        .ok()?
        .dw0();
    same("DULBE", dulbe >> 16, 0)?;
    let found = bench.read_blocks(&mut pair, &ns, 0, blocks)?;
    // DLFEAT bits 2:0; blocks that were not deallocated are as they were.
    let expected = match u8_at(&ns.identity, 33) & 0b111 {
        0b001 => 0x00,
        0b010 => 0xff,
        _ => return Ok(()),
    };
    for (slba, block) in found.chunks(ns.block_len).enumerate() {
        let kept = block == &data[slba * ns.block_len..][..ns.block_len];
        check(kept || block.iter().all(|b| *b == expected), || {
            format!("deallocated block {slba} is neither as before nor all {expected:02x}h")
        })?;
    }
    Ok(())
}

fn reset_keeps_data(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.bytes(4), 0x4e5e);
    bench.write_blocks(&mut pair, &ns, 20, &data)?;
    bench.run(&mut pair, flush_sqe(&ns))?.ok()?;
    bench.start()?;
    let (ns, mut pair) = bench.io()?;
    let found = bench.read_blocks(&mut pair, &ns, 20, 4)?;
    same_bytes("blocks after a reset", &found, &data)
}

fn capacity_is_real(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    // Primes, so that nothing that wraps around hits the same places.
    let places: Vec<u64> = (0..101).map(|n| (ns.blocks - 1) / 101 * n).collect();
    for &slba in &places {
        let data = pattern(ns.block_len, slba ^ 0xcafe);
        bench.write_blocks(&mut pair, &ns, slba, &data)?;
    }
    for &slba in &places {
        let data = pattern(ns.block_len, slba ^ 0xcafe);
        let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
        same_bytes(&format!("block {slba}"), &found, &data)?;
    }
    Ok(())
}
