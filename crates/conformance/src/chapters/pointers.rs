//! Where data lies: PRP entries and lists (Base 2.1, 4.3.1), and SGLs (4.3.2).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, Mem, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same_bytes};
use crate::wire::{Sqe, status, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "pointers",
    title: "PRP entries, PRP lists and SGLs",
    scope: Scope::Pcie(why::POINTERS),
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    prp_offsets, "Base 2.1, 4.3.1", "PRP Entry 1 may have any dword offset; data goes on in PRP Entry 2";
    prp_scattered, "Base 2.1, 4.3.1", "pages of a list may lie in any order";
    prp_list_in_page, "Base 2.1, 4.3.1", "a list may start inside a page, at any qword";
    prp_list_chained, "Base 2.1, 4.3.1", "a list goes on in another page where its own is full";
    prp_list_exactly_full, "Base 2.1, 4.3.1", "the last entry of a full page is data where no more is needed";
    prp_list_chain_early, "Base 2.1, 4.3.1", "a list that starts near the end of a page chains after few entries";
    prp_unused, "Base 2.1, 4.3.1", "PRP Entry 2 is not looked at where PRP Entry 1 reaches";
    prp_same_page_twice, "Base 2.1, 4.3.1", "one page may stand several times in a list of a Write";
    prp1_misaligned, "Base 2.1, 4.3.1", "an offset in PRP Entry 1 that is no multiple of four is refused (013h)";
    prp2_offset, "Base 2.1, 4.3.1", "an offset in PRP Entry 2, where it is a page, is refused (013h)";
    prp_list_misaligned, "Base 2.1, 4.3.1", "a list that does not start at a qword is refused (013h)";
    prp_entry_offset, "Base 2.1, 4.3.1", "an offset in an entry of a list is refused (013h)";
    prp_chain_offset, "Base 2.1, 4.3.1", "an offset in the pointer to the next page of a list is refused (013h)";
    prp_nowhere, "Base 2.1, 4.2.3", "data where no memory is ends with an error, and commands after it work";
    prp_list_nowhere, "Base 2.1, 4.2.3", "a list where no memory is ends with an error, and commands after it work";
    prp_end_of_memory, "Base 2.1, 4.2.3", "data that runs past the end of memory, or of 64 bits, ends with an error";
    sgl_not_supported, "Base 2.1, 4.3.2", "SGLs are refused (002h) where SGLS does not have them";
    sgl_reserved_psdt, "Base 2.1, 4.1", "PSDT 11b is refused (002h)";
    sgl_data_block, "Base 2.1, 4.3.2", "one data block descriptor describes a transfer";
    sgl_scattered, "Base 2.1, 4.3.2", "a segment of data blocks describes a transfer, in any order";
    sgl_segments, "Base 2.1, 4.3.2", "segments are chained, and the last one ends the list";
    sgl_byte_aligned, "Base 2.1, 4.3.2", "data blocks have any address and length where SGLS says so";
    sgl_bit_bucket, "Base 2.1, 4.3.2", "a bit bucket drops its part of a Read, where SGLS has it";
    sgl_too_short, "Base 2.1, 4.3.2", "an SGL that describes fewer bytes than the command moves is refused (00Fh)";
    sgl_too_long, "Base 2.1, 4.3.2", "an SGL that describes more bytes does as SGLS says";
    sgl_bad_type, "Base 2.1, 4.3.2", "a reserved descriptor type is refused (011h)";
    sgl_bad_segment, "Base 2.1, 4.3.2", "a segment whose length is no multiple of 16, or 0, is refused (00Dh)";
    sgl_nowhere, "Base 2.1, 4.3.2", "an SGL to where no memory is ends with an error, and commands after it work";
];

/// A queue pair, a namespace, and so many whole pages of blocks.
struct Rig {
    ns: Ns,
    pair: Pair,
}

fn rig(bench: &mut Bench) -> Verdict<Rig> {
    let (ns, pair) = bench.io()?;
    if ns.block_len > 4096 {
        return not_supported("blocks are larger than a page");
    }
    Ok(Rig { ns, pair })
}

impl Rig {
    fn blocks(&self, len: usize) -> u32 {
        u32::try_from(len / self.ns.block_len).unwrap_or(1)
    }

    /// A command of `len` bytes at block 0.
    fn sqe(&self, opcode: u8, len: usize) -> Sqe {
        self.ns.sqe(opcode, 0, self.blocks(len))
    }

    /// Writes a pattern of `len` bytes by whole pages, reads it by `prps`, and
    /// compares where it should have come to: `at` gives the parts.
    fn reads(
        &mut self,
        bench: &mut Bench,
        len: usize,
        prps: (u64, u64),
        mem: &Mem,
        parts: &[(usize, usize)],
    ) -> Verdict {
        let data = pattern(len, prps.0 ^ prps.1);
        bench.write_blocks(&mut self.pair, &self.ns, 0, &data)?;
        mem.fill(0xa5);
        let sqe = self.sqe(opcode::READ, len).prps(prps);
        bench.run(&mut self.pair, sqe)?.ok()?;
        same_bytes("data of a Read", &gather(mem, parts), &data)?;
        let mut whole = mem.bytes(0, mem.len());
        for &(at, len) in parts {
            whole[at..at + len].fill(0xa5);
        }
        check(whole.iter().all(|b| *b == 0xa5), || {
            "a Read wrote where its pointers do not point".into()
        })?;
        // And the same the other way.
        let data = pattern(len, 1 ^ prps.0);
        let mut rest = &data[..];
        for &(at, len) in parts {
            let (now, later) = rest.split_at(len);
            mem.write(at, now);
            rest = later;
        }
        let sqe = self.sqe(opcode::WRITE, len).prps(prps);
        bench.run(&mut self.pair, sqe)?.ok()?;
        let blocks = self.blocks(len);
        let found = bench.read_blocks(&mut self.pair, &self.ns, 0, blocks)?;
        same_bytes("data of a Write", &found, &data)
    }

    /// A Read by these pointers ends with this status, and the next one works.
    fn refuses(
        &mut self,
        bench: &mut Bench,
        len: usize,
        prps: (u64, u64),
        expected: u16,
    ) -> Verdict {
        for opcode in [opcode::READ, opcode::WRITE] {
            let sqe = self.sqe(opcode, len).prps(prps);
            bench.run(&mut self.pair, sqe)?.expect(expected)?;
        }
        self.still_works(bench)
    }

    fn still_works(&mut self, bench: &mut Bench) -> Verdict {
        let data = pattern(self.ns.block_len, 0x600d);
        bench.write_blocks(&mut self.pair, &self.ns, 1, &data)?;
        let found = bench.read_blocks(&mut self.pair, &self.ns, 1, 1)?;
        same_bytes("a block after the error", &found, &data)
    }
}

fn gather(mem: &Mem, parts: &[(usize, usize)]) -> Vec<u8> {
    parts
        .iter()
        .flat_map(|&(at, len)| mem.bytes(at, len))
        .collect()
}

/// Not supported where MDTS is below.
fn needs_transfer(bench: &mut Bench, len: usize) -> Verdict {
    match bench.mdts()? {
        Some(most) if most < len => not_supported(format!("MDTS is {most}, below {len} bytes")),
        _ => Ok(()),
    }
}

fn prp_offsets(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let mem = bench.mem(3 * 4096)?;
    for offset in [0, 4, 8, 252, 512, 2048, 3584, 4092] {
        let first = 4096 - offset;
        let prps = (mem.at(offset), if offset == 0 { 0 } else { mem.at(8192) });
        let parts = [(offset, first), (8192, offset)];
        rig.reads(bench, 4096, prps, &mem, &parts)?;
    }
    Ok(())
}

fn prp_scattered(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 5 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(16 * 4096)?;
    let pages = [9, 2, 14, 5];
    let entries: Vec<u64> = pages.iter().map(|page| mem.at(page * 4096)).collect();
    let list = bench.prp_list(&entries)?;
    for offset in [0, 1024, 4092] {
        let len = 4 * 4096;
        let mut parts = vec![(11 * 4096 + offset, 4096 - offset)];
        let mut left = len - (4096 - offset);
        for page in pages {
            let now = left.min(4096);
            parts.push((page * 4096, now));
            left -= now;
        }
        let prps = (mem.at(11 * 4096 + offset), list);
        rig.reads(bench, len, prps, &mem, &parts)?;
    }
    Ok(())
}

/// A list of entries for pages of `mem` from the second on, whose first entry
/// lies `at` bytes into a page of the list, with chains where a page is full.
fn list_from(bench: &mut Bench, mem: &Mem, pages: usize, at: usize) -> Verdict<u64> {
    let list = bench.mem((pages / 500 + 3) * 4096)?;
    let mut place = at;
    // Pages of the list are used in reverse order, so that following them in
    // memory does not help.
    let mut page = list.len() / 4096 - 1;
    for index in 1..pages {
        if place == 4088 && index + 1 < pages {
            list.write64(page * 4096 + place, list.at((page - 1) * 4096));
            (page, place) = (page - 1, 0);
        }
        list.write64(page * 4096 + place, mem.at(index * 4096));
        place += 8;
    }
    let first = list.len() / 4096 - 1;
    Ok(list.at(first * 4096 + at))
}

fn through_list(bench: &mut Bench, pages: usize, at: usize) -> Verdict {
    needs_transfer(bench, pages * 4096)?;
    let mut rig = rig(bench)?;
    if u64::from(rig.blocks(pages * 4096)) > rig.ns.blocks {
        return not_supported("the namespace is too small");
    }
    let mem = bench.mem(pages * 4096)?;
    let list = list_from(bench, &mem, pages, at)?;
    let prps = (mem.iova(), list);
    rig.reads(bench, pages * 4096, prps, &mem, &[(0, pages * 4096)])
}

fn prp_list_in_page(bench: &mut Bench) -> Verdict {
    for at in [8, 16, 2048, 4064] {
        through_list(bench, 4, at)?;
        bench.start()?;
    }
    Ok(())
}

fn prp_list_chained(bench: &mut Bench) -> Verdict {
    // 512 entries fill a page; the 514th page of data needs another.
    for pages in [514, 520] {
        through_list(bench, pages, 0)?;
        bench.start()?;
    }
    Ok(())
}

fn prp_list_exactly_full(bench: &mut Bench) -> Verdict {
    for (pages, at) in [(513, 0), (5, 4064), (3, 4080)] {
        match through_list(bench, pages, at) {
            // The other two are short.
            Err(crate::Miss::NotSupported(_)) if pages == 513 => {}
            judged => judged?,
        }
        bench.start()?;
    }
    Ok(())
}

fn prp_list_chain_early(bench: &mut Bench) -> Verdict {
    for (pages, at) in [(4, 4080), (4, 4088), (8, 4072), (16, 4088)] {
        through_list(bench, pages, at)?;
        bench.start()?;
    }
    Ok(())
}

fn prp_unused(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    let len = rig.ns.block_len;
    for prp2 in [u64::MAX, 1, 0xdead_0000_0000] {
        rig.reads(bench, len, (mem.iova(), prp2), &mem, &[(0, len)])?;
    }
    Ok(())
}

fn prp_same_page_twice(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 4 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    let page = mem.pattern(0, 4096, 0x2ce);
    let list = bench.prp_list(&[mem.iova(), mem.iova(), mem.iova()])?;
    let sqe = rig.sqe(opcode::WRITE, 4 * 4096).prps((mem.iova(), list));
    bench.run(&mut rig.pair, sqe)?.ok()?;
    let blocks = rig.blocks(4 * 4096);
    let found = bench.read_blocks(&mut rig.pair, &rig.ns, 0, blocks)?;
    same_bytes("one page four times", &found, &page.repeat(4))
}

fn prp1_misaligned(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let mem = bench.mem(8192)?;
    for offset in [1, 2, 3, 4095] {
        let len = rig.ns.block_len;
        let prps = (mem.at(offset), mem.at(4096));
        rig.refuses(bench, len, prps, status::PRP_OFFSET_INVALID)?;
    }
    Ok(())
}

fn prp2_offset(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 8192)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(3 * 4096)?;
    for offset in [1, 4, 8, 2048] {
        let prps = (mem.iova(), mem.at(4096 + offset));
        rig.refuses(bench, 8192, prps, status::PRP_OFFSET_INVALID)?;
    }
    Ok(())
}

fn prp_list_misaligned(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 3 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4 * 4096)?;
    let list = bench.prp_list(&[mem.at(4096), mem.at(8192), mem.at(12288)])?;
    for offset in [1, 2, 4, 7] {
        let prps = (mem.iova(), list + offset);
        rig.refuses(bench, 3 * 4096, prps, status::PRP_OFFSET_INVALID)?;
    }
    Ok(())
}

fn prp_entry_offset(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 4 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(6 * 4096)?;
    for wrong in 0..3 {
        for offset in [4, 512] {
            let entries: Vec<u64> = (0..3)
                .map(|n| mem.at((n + 1) * 4096 + if n == wrong { offset } else { 0 }))
                .collect();
            let list = bench.prp_list(&entries)?;
            let prps = (mem.iova(), list);
            rig.refuses(bench, 4 * 4096, prps, status::PRP_OFFSET_INVALID)?;
        }
    }
    Ok(())
}

fn prp_chain_offset(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 4 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4 * 4096)?;
    let list = bench.mem(2 * 4096)?;
    // One entry, then a pointer into the middle of the next page.
    list.write64(4080, mem.at(4096));
    list.write64(4088, list.at(4096 + 16));
    list.write64(4096 + 16, mem.at(8192));
    list.write64(4096 + 24, mem.at(12288));
    let prps = (mem.iova(), list.at(4080));
    rig.refuses(bench, 4 * 4096, prps, status::PRP_OFFSET_INVALID)
}

/// Far from any memory that these tests share.
const NOWHERE: u64 = 0x0076_5432_1000_0000;

fn fails(bench: &mut Bench, rig: &mut Rig, len: usize, prps: (u64, u64)) -> Verdict {
    for opcode in [opcode::READ, opcode::WRITE] {
        let sqe = rig.sqe(opcode, len).prps(prps);
        bench.run(&mut rig.pair, sqe)?.expect_error()?;
    }
    rig.still_works(bench)
}

fn prp_nowhere(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    fails(bench, &mut rig, 4096, (NOWHERE, 0))?;
    fails(bench, &mut rig, 4096, (0, 0))?;
    needs_transfer(bench, 8192)?;
    fails(bench, &mut rig, 8192, (mem.iova(), NOWHERE))
}

fn prp_list_nowhere(bench: &mut Bench) -> Verdict {
    needs_transfer(bench, 4 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4 * 4096)?;
    fails(bench, &mut rig, 4 * 4096, (mem.iova(), NOWHERE))?;
    // The list is there, what it chains to is not; then the same with data.
    let list = bench.mem(4096)?;
    list.write64(4080, mem.at(4096));
    list.write64(4088, NOWHERE);
    fails(bench, &mut rig, 4 * 4096, (mem.iova(), list.at(4080)))?;
    let list = bench.prp_list(&[mem.at(4096), NOWHERE, mem.at(8192)])?;
    fails(bench, &mut rig, 4 * 4096, (mem.iova(), list))
}

fn prp_end_of_memory(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let last = u64::MAX - 4095;
    fails(bench, &mut rig, 4096, (last, 0))?;
    fails(bench, &mut rig, 4096, (last + 2048, 0))?;
    needs_transfer(bench, 8192)?;
    let mem = bench.mem(4096)?;
    fails(bench, &mut rig, 8192, (mem.iova(), last))
}

/// Scatter Gather Lists: the bits of SGLS; 1:0 say whether and how.
fn sgls(bench: &mut Bench) -> Verdict<u32> {
    Ok(u32_at(&bench.controller()?, 536))
}

fn needs_sgls(bench: &mut Bench) -> Verdict<u32> {
    match sgls(bench)? {
        sgls if sgls & 0b11 == 0 => not_supported("SGLS bits 1:0: no SGLs"),
        sgls => Ok(sgls),
    }
}

/// An SGL descriptor: address, length, type in the upper half of its last byte.
fn descriptor(address: u64, len: usize, kind: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    bytes[15] = kind << 4;
    bytes
}

const DATA_BLOCK: u8 = 0x0;
const BIT_BUCKET: u8 = 0x1;
const SEGMENT: u8 = 0x2;
const LAST_SEGMENT: u8 = 0x3;

fn with_sgl(sqe: Sqe, descriptor: [u8; 16]) -> Sqe {
    let mut sqe = sqe.psdt(0b01);
    for (place, dword) in sqe.0[6..10].iter_mut().zip(descriptor.chunks_exact(4)) {
        *place = u32_at(dword, 0);
    }
    sqe
}

fn sgl_not_supported(bench: &mut Bench) -> Verdict {
    if sgls(bench)? & 0b11 != 0 {
        return not_supported("SGLS: it has SGLs");
    }
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    let len = rig.ns.block_len;
    for psdt in [0b01, 0b10] {
        let sqe = with_sgl(
            rig.sqe(opcode::READ, len),
            descriptor(mem.iova(), len, DATA_BLOCK),
        );
        bench
            .run(&mut rig.pair, sqe.psdt(psdt))?
            .expect(status::INVALID_FIELD)?;
    }
    rig.still_works(bench)
}

fn sgl_reserved_psdt(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    let sqe = rig
        .sqe(opcode::READ, rig.ns.block_len)
        .prps((mem.iova(), 0));
    bench
        .run(&mut rig.pair, sqe.psdt(0b11))?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

/// Reads `len` bytes by an SGL and compares where they should have come to.
fn sgl_reads(
    bench: &mut Bench,
    rig: &mut Rig,
    len: usize,
    sgl: [u8; 16],
    mem: &Mem,
    parts: &[(usize, usize)],
) -> Verdict {
    let data = pattern(len, 0x561);
    bench.write_blocks(&mut rig.pair, &rig.ns, 0, &data)?;
    mem.fill(0xa5);
    let sqe = with_sgl(rig.sqe(opcode::READ, len), sgl);
    bench.run(&mut rig.pair, sqe)?.ok()?;
    same_bytes("data of a Read by SGL", &gather(mem, parts), &data)?;
    let mut whole = mem.bytes(0, mem.len());
    for &(at, len) in parts {
        whole[at..at + len].fill(0xa5);
    }
    check(whole.iter().all(|b| *b == 0xa5), || {
        "a Read wrote where its SGL does not point".into()
    })?;
    let data = pattern(len, 0x562);
    let mut rest = &data[..];
    for &(at, len) in parts {
        let (now, later) = rest.split_at(len);
        mem.write(at, now);
        rest = later;
    }
    let sqe = with_sgl(rig.sqe(opcode::WRITE, len), sgl);
    bench.run(&mut rig.pair, sqe)?.ok()?;
    let blocks = rig.blocks(len);
    let found = bench.read_blocks(&mut rig.pair, &rig.ns, 0, blocks)?;
    same_bytes("data of a Write by SGL", &found, &data)
}

fn sgl_data_block(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    needs_transfer(bench, 3 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(5 * 4096)?;
    for (at, len) in [(0, 4096), (1024, 4096), (4, 3 * 4096)] {
        let sgl = descriptor(mem.at(at), len, DATA_BLOCK);
        sgl_reads(bench, &mut rig, len, sgl, &mem, &[(at, len)])?;
    }
    Ok(())
}

/// A segment of these descriptors, in memory of its own.
fn segment(bench: &mut Bench, descriptors: &[[u8; 16]]) -> Verdict<Mem> {
    let mem = bench.mem(descriptors.len() * 16)?;
    mem.write(0, &descriptors.concat());
    Ok(mem)
}

const PARTS: [(usize, usize); 4] = [(8192, 2048), (0, 1024), (20480, 5120), (4096, 4096)];

fn sgl_scattered(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    needs_transfer(bench, 3 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(8 * 4096)?;
    let blocks = PARTS.map(|(at, len)| descriptor(mem.at(at), len, DATA_BLOCK));
    let list = segment(bench, &blocks)?;
    let sgl = descriptor(list.iova(), 64, LAST_SEGMENT);
    sgl_reads(bench, &mut rig, 3 * 4096, sgl, &mem, &PARTS)
}

fn sgl_segments(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    needs_transfer(bench, 3 * 4096)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(8 * 4096)?;
    let blocks = PARTS.map(|(at, len)| descriptor(mem.at(at), len, DATA_BLOCK));
    let last = segment(bench, &blocks[3..])?;
    let to_last = descriptor(last.iova(), 16, LAST_SEGMENT);
    let middle = segment(bench, &[blocks[1], blocks[2], to_last])?;
    let to_middle = descriptor(middle.iova(), 48, SEGMENT);
    let first = segment(bench, &[blocks[0], to_middle])?;
    let sgl = descriptor(first.iova(), 32, SEGMENT);
    sgl_reads(bench, &mut rig, 3 * 4096, sgl, &mem, &PARTS)
}

fn sgl_byte_aligned(bench: &mut Bench) -> Verdict {
    // 01b: no alignment is needed. 10b: dwords.
    if needs_sgls(bench)? & 0b11 != 0b01 {
        return not_supported("SGLS bits 1:0: data blocks are aligned to dwords");
    }
    let mut rig = rig(bench)?;
    let mem = bench.mem(4 * 4096)?;
    let parts = [(1, 3), (4095, 2), (9001, 4091)];
    let blocks = parts.map(|(at, len)| descriptor(mem.at(at), len, DATA_BLOCK));
    let list = segment(bench, &blocks)?;
    let sgl = descriptor(list.iova(), 48, LAST_SEGMENT);
    sgl_reads(bench, &mut rig, 4096, sgl, &mem, &parts)
}

fn sgl_bit_bucket(bench: &mut Bench) -> Verdict {
    if needs_sgls(bench)? >> 16 & 1 == 0 {
        return not_supported("SGLS bit 16: no bit buckets");
    }
    needs_transfer(bench, 8192)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(2 * 4096)?;
    let data = pattern(8192, 0xb1b);
    bench.write_blocks(&mut rig.pair, &rig.ns, 0, &data)?;
    mem.fill(0xa5);
    let list = segment(
        bench,
        &[
            descriptor(mem.iova(), 1024, DATA_BLOCK),
            descriptor(0, 4096, BIT_BUCKET),
            descriptor(mem.at(4096), 3072, DATA_BLOCK),
        ],
    )?;
    let sgl = descriptor(list.iova(), 48, LAST_SEGMENT);
    let sqe = with_sgl(rig.sqe(opcode::READ, 8192), sgl);
    bench.run(&mut rig.pair, sqe)?.ok()?;
    let expected = [&data[..1024], &data[5120..]].concat();
    let found = [mem.bytes(0, 1024), mem.bytes(4096, 3072)].concat();
    same_bytes("what is beside the bit bucket", &found, &expected)
}

fn sgl_too_short(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    let sgl = descriptor(mem.iova(), 4096 - 512, DATA_BLOCK);
    let sqe = with_sgl(rig.sqe(opcode::READ, 4096), sgl);
    bench
        .run(&mut rig.pair, sqe)?
        .expect(status::DATA_SGL_LENGTH_INVALID)?;
    rig.still_works(bench)
}

fn sgl_too_long(bench: &mut Bench) -> Verdict {
    let longer = needs_sgls(bench)? >> 18 & 1 == 1;
    let mut rig = rig(bench)?;
    let mem = bench.mem(8192)?;
    let sgl = descriptor(mem.iova(), 8192, DATA_BLOCK);
    let sqe = with_sgl(rig.sqe(opcode::READ, 4096), sgl);
    let expected = if longer {
        status::SUCCESS
    } else {
        status::DATA_SGL_LENGTH_INVALID
    };
    bench.run(&mut rig.pair, sqe)?.expect(expected).map(drop)
}

fn sgl_bad_type(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    for kind in [0x7, 0xe] {
        let sgl = descriptor(mem.iova(), 4096, kind);
        let sqe = with_sgl(rig.sqe(opcode::READ, 4096), sgl);
        bench
            .run(&mut rig.pair, sqe)?
            .expect(status::SGL_TYPE_INVALID)?;
    }
    rig.still_works(bench)
}

fn sgl_bad_segment(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    let mut rig = rig(bench)?;
    let mem = bench.mem(4096)?;
    let list = segment(bench, &[descriptor(mem.iova(), 4096, DATA_BLOCK)])?;
    for len in [0, 8, 17] {
        let sgl = descriptor(list.iova(), len, LAST_SEGMENT);
        let sqe = with_sgl(rig.sqe(opcode::READ, 4096), sgl);
        bench
            .run(&mut rig.pair, sqe)?
            .expect(status::INVALID_SGL_SEGMENT)?;
    }
    rig.still_works(bench)
}

fn sgl_nowhere(bench: &mut Bench) -> Verdict {
    needs_sgls(bench)?;
    let mut rig = rig(bench)?;
    for kind in [DATA_BLOCK, SEGMENT, LAST_SEGMENT] {
        let sgl = descriptor(NOWHERE, 4096, kind);
        let sqe = with_sgl(rig.sqe(opcode::READ, 4096), sgl);
        bench.run(&mut rig.pair, sqe)?.expect_error()?;
    }
    rig.still_works(bench)
}
