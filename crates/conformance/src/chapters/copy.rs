//! Copy (NVM 1.1, 3.3.2).

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Mem, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Sqe, status, u8_at, u16_at, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "copy",
    title: "Copy",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    limits, "NVM 1.1, 4.1.5.1", "MSSRL, MCL and MSRC allow some copy, MCL at least as much as MSSRL";
    one_range, "NVM 1.1, 3.3.2", "one range is copied, and blocks beside the destination are untouched";
    several_ranges, "NVM 1.1, 3.3.2", "several ranges are copied one behind the other";
    many_ranges, "NVM 1.1, 3.3.2", "as many ranges as MSRC allows are copied";
    largest_range, "NVM 1.1, 3.3.2", "a range of MSSRL blocks is copied";
    too_many_ranges, "NVM 1.1, 3.3.2", "more ranges than MSRC are refused (183h)";
    too_long_range, "NVM 1.1, 3.3.2", "a range of more blocks than MSSRL is refused (183h)";
    too_much, "NVM 1.1, 3.3.2", "more blocks than MCL in all are refused (183h)";
    source_out_of_range, "NVM 1.1, 3.3.2", "a source beyond the end is refused (080h)";
    destination_out_of_range, "NVM 1.1, 3.3.2", "a destination beyond the end is refused (080h), and nothing is written";
    unknown_format, "NVM 1.1, 3.3.2", "a descriptor format that OCFS does not have is refused (002h)";
    ranges_across_pages, "Base 2.1, 4.3.1", "the list of ranges may start inside a page and go on in another";
    other_namespace, "NVM 1.1, 3.3.2", "format 2 copies from a named namespace, once the host has enabled it";
    format_two_disabled, "Base 2.1, 5.1.25.1.14", "format 2 is refused (002h) as long as the host has not enabled it";
    uncorrectable_source, "NVM 1.1, 3.3.2", "a source that cannot be read makes Copy fail, and returns its range in dword 0";
];

/// A source range: first block, blocks.
type Range = (u64, u32);

struct Rig {
    ns: Ns,
    pair: Pair,
    /// Blocks of one range.
    mssrl: u32,
    /// Blocks in all.
    mcl: u32,
    /// Ranges.
    ranges: u32,
}

fn rig(bench: &mut Bench) -> Verdict<Rig> {
    bench.needs_oncs(8, "Copy")?;
    let (ns, pair) = bench.io()?;
    let mssrl = u32::from(u16_at(&ns.identity, 74));
    check(mssrl >= 1, || "MSSRL is 0: nothing can be copied".into())?;
    let mcl = u32_at(&ns.identity, 76);
    let ranges = u32::from(u8_at(&ns.identity, 80)) + 1;
    Ok(Rig {
        ns,
        pair,
        mssrl,
        mcl,
        ranges,
    })
}

/// Source ranges of format 0 or 2: 32 bytes each, the block in bytes 15:8, the
/// count, 0's based, in bytes 17:16; of format 2 the namespace in bytes 3:0.
fn list(bench: &mut Bench, ranges: &[Range], nsid: u32, at: usize) -> Verdict<Mem> {
    let mem = bench.mem(at + ranges.len() * 32)?;
    for (index, (slba, blocks)) in ranges.iter().enumerate() {
        let place = at + index * 32;
        mem.write(place, &nsid.to_le_bytes());
        mem.write64(place + 8, *slba);
        let count_z = blocks.wrapping_sub(1).to_le_bytes();
        mem.write(place + 16, &count_z[..2]);
    }
    Ok(mem)
}

fn copy_sqe(
    bench: &mut Bench,
    ns: &Ns,
    mem: &Mem,
    at: usize,
    count: usize,
    to: u64,
    format: u32,
) -> Verdict<Sqe> {
    let data = bench.pointer(mem, at, count * 32)?;
    let count_z = u32::try_from(count - 1).unwrap_or(255) & 0xff;
    Ok(Sqe::new(opcode::COPY)
        .nsid(ns.nsid)
        .data(data)
        .qword(10, to)
        .dw(12, format << 8 | count_z))
}

/// Copy by format 0: its completion.
fn copy(bench: &mut Bench, rig: &mut Rig, ranges: &[Range], to: u64) -> Verdict<crate::wire::Cqe> {
    let mem = list(bench, ranges, 0, 0)?;
    let sqe = copy_sqe(bench, &rig.ns, &mem, 0, ranges.len(), to, 0)?;
    bench.run(&mut rig.pair, sqe)
}

fn limits(bench: &mut Bench) -> Verdict {
    let rig = rig(bench)?;
    check(rig.mcl >= rig.mssrl, || {
        format!("MCL {} is below MSSRL {}", rig.mcl, rig.mssrl)
    })?;
    let formats = u16_at(&bench.controller()?, 534);
    same("OCFS, format 0", formats & 1, 1)
}

/// Where sources lie, and where destinations do: apart.
const TO: u64 = 4096;

fn needs_room(rig: &Rig, blocks: u64) -> Verdict {
    if rig.ns.blocks < TO + blocks {
        return not_supported("the namespace is too small");
    }
    Ok(())
}

fn one_range(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    needs_room(&rig, 16)?;
    let blocks = 4.min(rig.mssrl);
    let data = pattern(rig.ns.bytes(blocks), 0xc09);
    let around = pattern(rig.ns.bytes(16), 0xa40);
    bench.write_blocks(&mut rig.pair, &rig.ns, 7, &data)?;
    bench.write_blocks(&mut rig.pair, &rig.ns, TO, &around)?;
    copy(bench, &mut rig, &[(7, blocks)], TO + 5)?.ok()?;
    let mut expected = around;
    let at = rig.ns.bytes(5);
    expected[at..at + data.len()].copy_from_slice(&data);
    let found = bench.read_blocks(&mut rig.pair, &rig.ns, TO, 16)?;
    same_bytes("destination and what is around it", &found, &expected)?;
    let found = bench.read_blocks(&mut rig.pair, &rig.ns, 7, blocks)?;
    same_bytes("the source after Copy", &found, &data)
}

fn gathers(bench: &mut Bench, rig: &mut Rig, ranges: &[Range], mem: &Mem, at: usize) -> Verdict {
    let total: u32 = ranges.iter().map(|(_, blocks)| blocks).sum();
    needs_room(rig, total.into())?;
    let mut expected = Vec::new();
    for &(slba, blocks) in ranges {
        let data = pattern(rig.ns.bytes(blocks), slba);
        bench.write_blocks(&mut rig.pair, &rig.ns, slba, &data)?;
        expected.extend(data);
    }
    let sqe = copy_sqe(bench, &rig.ns, mem, at, ranges.len(), TO, 0)?;
    bench.run(&mut rig.pair, sqe)?.ok()?;
    let found = bench.read_blocks(&mut rig.pair, &rig.ns, TO, total)?;
    same_bytes("what several ranges were copied to", &found, &expected)
}

fn several_ranges(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let ranges = [(40, 1), (8, 3), (100, 2), (20, 5)];
    let total = 11;
    if rig.ranges < 4 || rig.mssrl < 5 || rig.mcl < total {
        return not_supported("MSRC, MSSRL or MCL is too small for four ranges of 11 blocks");
    }
    let mem = list(bench, &ranges, 0, 0)?;
    gathers(bench, &mut rig, &ranges, &mem, 0)
}

fn many_ranges(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let count = rig.ranges.min(rig.mcl);
    let ranges: Vec<Range> = (0..count).map(|n| (u64::from(n) * 3, 1)).collect();
    let mem = list(bench, &ranges, 0, 0)?;
    gathers(bench, &mut rig, &ranges, &mem, 0)
}

fn largest_range(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let most = bench.mdts()?.unwrap_or(4 << 20).min(4 << 20) / rig.ns.block_len;
    let blocks = rig.mssrl.min(u32::try_from(most).unwrap_or(1));
    if u64::from(blocks) > TO {
        return not_supported("MSSRL is larger than these tests copy");
    }
    let ranges = [(0, blocks)];
    let mem = list(bench, &ranges, 0, 0)?;
    gathers(bench, &mut rig, &ranges, &mem, 0)
}

fn too_many_ranges(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    if rig.ranges >= 256 {
        return not_supported("MSRC allows every number of ranges");
    }
    let ranges: Vec<Range> = (0..=rig.ranges).map(|n| (u64::from(n), 1)).collect();
    copy(bench, &mut rig, &ranges, TO)?
        .expect(status::COMMAND_SIZE_LIMIT)
        .map(drop)
}

fn too_long_range(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let blocks = rig.mssrl + 1;
    if blocks > 65536 || u64::from(blocks) > rig.ns.blocks / 2 {
        return not_supported("MSSRL allows every length that fits the namespace");
    }
    let to = rig.ns.blocks - u64::from(blocks);
    copy(bench, &mut rig, &[(0, blocks)], to)?
        .expect(status::COMMAND_SIZE_LIMIT)
        .map(drop)
}

fn too_much(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let full = rig.mcl / rig.mssrl;
    let count = full + 1;
    let total = u64::from(rig.mcl) + 1;
    if count > rig.ranges || rig.ns.blocks < total + u64::from(rig.mssrl) {
        return not_supported("MSRC, or the namespace, is too small to exceed MCL");
    }
    let mut ranges: Vec<Range> = (0..full).map(|_| (0, rig.mssrl)).collect();
    ranges.push((0, rig.mcl - full * rig.mssrl + 1));
    let to = rig.ns.blocks - total;
    copy(bench, &mut rig, &ranges, to)?
        .expect(status::COMMAND_SIZE_LIMIT)
        .map(drop)
}

fn source_out_of_range(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    for range in [(rig.ns.blocks, 1), (rig.ns.blocks - 1, 2), (u64::MAX, 2)] {
        if range.1 <= rig.mssrl {
            copy(bench, &mut rig, &[range], 0)?.expect(status::LBA_OUT_OF_RANGE)?;
        }
    }
    Ok(())
}

fn destination_out_of_range(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    if rig.mssrl < 2 {
        return not_supported("MSSRL is 1");
    }
    let last = rig.ns.blocks - 1;
    let data = pattern(rig.ns.block_len, 0xde57);
    bench.write_blocks(&mut rig.pair, &rig.ns, last, &data)?;
    for to in [last, last + 1, u64::MAX] {
        copy(bench, &mut rig, &[(0, 2)], to)?.expect(status::LBA_OUT_OF_RANGE)?;
    }
    let found = bench.read_blocks(&mut rig.pair, &rig.ns, last, 1)?;
    same_bytes("the last block", &found, &data)
}

fn unknown_format(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    let formats = u16_at(&bench.controller()?, 534);
    let mem = list(bench, &[(0, 1)], rig.ns.nsid, 0)?;
    for format in 0..16 {
        if formats >> format & 1 == 0 {
            let sqe = copy_sqe(bench, &rig.ns, &mem, 0, 1, 8, format)?;
            bench
                .run(&mut rig.pair, sqe)?
                .expect(status::INVALID_FIELD)?;
        }
    }
    Ok(())
}

fn ranges_across_pages(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    if rig.ranges < 4 || rig.mcl < 4 {
        return not_supported("MSRC or MCL is too small for four ranges");
    }
    let ranges = [(9, 1), (3, 1), (77, 1), (50, 1)];
    for at in [4032, 4064, 4080, 8] {
        let mem = list(bench, &ranges, 0, at)?;
        gathers(bench, &mut rig, &ranges, &mem, at)?;
    }
    Ok(())
}

/// Host Behavior Support with Copy Descriptor Formats Enable (bytes 5:4).
fn enable_formats(bench: &mut Bench, formats: u16) -> Verdict {
    let mut data = vec![0; 512];
    data[4..6].copy_from_slice(&formats.to_le_bytes());
    bench.set_feature_data(0x16, 0, &data)?.ok().map(drop)
}

fn needs_format_two(bench: &mut Bench) -> Verdict {
    if u16_at(&bench.controller()?, 534) >> 2 & 1 == 0 {
        return not_supported("OCFS bit 2: no descriptor format 2");
    }
    Ok(())
}

fn other_namespace(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    needs_format_two(bench)?;
    enable_formats(bench, 1 << 2)?;
    needs_room(&rig, 16)?;
    // From itself first, then from another of the same format.
    let mut sources = vec![rig.ns.clone()];
    for nsid in bench.active()? {
        let other = Ns::new(nsid, bench.identify(0x00, nsid)?);
        sources.extend(other.filter(|ns| {
            ns.nsid != rig.ns.nsid && ns.block_len == rig.ns.block_len && ns.blocks > 64
        }));
    }
    for source in sources {
        let data = pattern(source.block_len, 0x0f2 + u64::from(source.nsid));
        bench.write_blocks(&mut rig.pair, &source, 33, &data)?;
        let mem = list(bench, &[(33, 1)], source.nsid, 0)?;
        let sqe = copy_sqe(bench, &rig.ns, &mem, 0, 1, TO, 2)?;
        bench.run(&mut rig.pair, sqe)?.ok()?;
        let found = bench.read_blocks(&mut rig.pair, &rig.ns, TO, 1)?;
        let what = format!("a block copied from namespace {}", source.nsid);
        same_bytes(&what, &found, &data)?;
    }
    let mem = list(bench, &[(33, 1)], 0xffff_fff0, 0)?;
    let sqe = copy_sqe(bench, &rig.ns, &mem, 0, 1, TO, 2)?;
    bench.run(&mut rig.pair, sqe)?.expect_error().map(drop)
}

fn format_two_disabled(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    needs_format_two(bench)?;
    enable_formats(bench, 0)?;
    let mem = list(bench, &[(0, 1)], rig.ns.nsid, 0)?;
    let sqe = copy_sqe(bench, &rig.ns, &mem, 0, 1, 8, 2)?;
    bench
        .run(&mut rig.pair, sqe)?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

fn uncorrectable_source(bench: &mut Bench) -> Verdict {
    let mut rig = rig(bench)?;
    bench.needs_oncs(1, "Write Uncorrectable")?;
    needs_room(&rig, 16)?;
    if rig.ranges < 3 || rig.mcl < 3 {
        return not_supported("MSRC or MCL is too small for three ranges");
    }
    let data = pattern(rig.ns.bytes(8), 0xbad5);
    bench.write_blocks(&mut rig.pair, &rig.ns, 0, &data)?;
    let sqe = rig.ns.sqe(opcode::WRITE_UNCORRECTABLE, 5, 1);
    bench.run(&mut rig.pair, sqe)?.ok()?;
    let cqe = copy(bench, &mut rig, &[(1, 1), (5, 1), (2, 1)], TO)?;
    bench.write_blocks(&mut rig.pair, &rig.ns, 0, &data)?;
    let cqe = cqe.expect(status::UNRECOVERED_READ)?;
    check(cqe.dw0() <= 1, || {
        format!(
            "dword 0: the lowest range that was not copied is 0 or 1, found {}",
            cqe.dw0()
        )
    })
}
