//! Writes in zones: their data, their place, and the data that is read.

use super::rig::{
    EMPTY, EXPLICIT, FINISH, FULL, IMPLICIT, OPEN, RESET, Rig, ZONE_BOUNDARY, ZONE_INVALID_WRITE,
    ZONE_IS_FULL,
};
use crate::bench::Bench;
use crate::verdict::{Verdict, check, not_supported, same, zero};
use crate::wire::{Cqe, status, u8_at, u16_at};

pub(super) fn in_order(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    let most = rig.blocks_most()?;
    let mut at = 0;
    for blocks in [1, 3, most.min(64), 2] {
        if at + u64::from(blocks) > rig.capacity {
            break;
        }
        rig.write(start + at, blocks, at + 1)?.ok()?;
        let expected = rig.pattern(blocks, at + 1);
        rig.holds(start + at, &expected)?;
        at += u64::from(blocks);
        let state = if at == rig.capacity { FULL } else { IMPLICIT };
        rig.is(start, state, at)?;
    }
    let first = rig.pattern(1, 1);
    rig.holds(start, &first)
}

pub(super) fn out_of_order(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    if rig.capacity < 8 {
        return not_supported("a zone has fewer than eight blocks");
    }
    let start = rig.first();
    rig.write(start + 1, 1, 1)?.expect(ZONE_INVALID_WRITE)?;
    rig.is(start, EMPTY, 0)?;
    rig.write(start, 4, 2)?.ok()?;
    for at in [0, 3, 5] {
        rig.write(start + at, 1, 3)?.expect(ZONE_INVALID_WRITE)?;
    }
    rig.is(start, IMPLICIT, 4)?;
    let expected = rig.pattern(4, 2);
    rig.holds(start, &expected)
}

pub(super) fn fills(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    let capacity = rig.capacity;
    rig.send(start, OPEN)?.ok()?;
    rig.fill(start, 0, capacity - 1)?;
    if capacity > 1 {
        rig.is(start, EXPLICIT, capacity - 1)?;
    }
    rig.write(start + capacity - 1, 1, 5)?.ok()?;
    rig.is(start, FULL, capacity)?;
    let last = rig.pattern(1, 5);
    rig.holds(start + capacity - 1, &last)?;
    rig.write(start + capacity - 1, 1, 5)?
        .expect(ZONE_IS_FULL)?;
    rig.append(start, 1, 5)?.expect(ZONE_IS_FULL)?;
    Ok(())
}

pub(super) fn over_capacity(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    let capacity = rig.capacity;
    rig.fill(start, 0, capacity - 1)?;
    rig.write(start + capacity - 1, 2, 1)?
        .expect_any(&[ZONE_BOUNDARY, status::LBA_OUT_OF_RANGE])?;
    if capacity < rig.zone_blocks {
        // Blocks behind the capacity cannot be written at all.
        rig.write(start + capacity, 1, 1)?
            .expect_any(&[ZONE_BOUNDARY, ZONE_INVALID_WRITE])?;
    }
    let state = if capacity > 1 { IMPLICIT } else { EMPTY };
    rig.is(start, state, capacity - 1)
}

pub(super) fn write_zeroes(bench: &mut Bench) -> Verdict {
    bench.needs_oncs(3, "Write Zeroes")?;
    let mut rig = Rig::new(bench)?;
    if rig.capacity < 8 {
        return not_supported("a zone has fewer than eight blocks");
    }
    let start = rig.first();
    let zeroes = |rig: &mut Rig<'_>, slba: u64, blocks: u32| -> Verdict<Cqe> {
        let sqe = rig.ns.sqe(0x08, slba, blocks);
        rig.run(sqe)
    };
    zeroes(&mut rig, start, 4)?.ok()?;
    rig.is(start, IMPLICIT, 4)?;
    let expected = vec![0; rig.ns.bytes(4)];
    rig.holds(start, &expected)?;
    zeroes(&mut rig, start, 1)?.expect(ZONE_INVALID_WRITE)?;
    rig.write(start + 4, 1, 1)?.ok()?;
    rig.is(start, IMPLICIT, 5)
}

pub(super) fn unwritten(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    rig.needs_zeros()?;
    let start = rig.first();
    rig.write(start, 1, 1)?.ok()?;
    let blocks = if rig.capacity > 1 { 1 } else { 0 };
    let found = rig
        .bench
        .read_blocks(&mut rig.pair, &rig.ns, start + blocks, 1)?;
    if blocks > 0 {
        zero("the block behind the write pointer", &found)?;
    }
    if rig.capacity < rig.zone_blocks {
        let last = start + rig.zone_blocks - 1;
        let found = rig.bench.read_blocks(&mut rig.pair, &rig.ns, last, 1)?;
        zero("a block behind the capacity", &found)?;
    }
    Ok(())
}

pub(super) fn reset_deallocates(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    rig.needs_zeros()?;
    let start = rig.first();
    let blocks = rig.blocks_most()?;
    for finish in [false, true] {
        rig.write(start, blocks, 3)?.ok()?;
        if finish {
            rig.send(start, FINISH)?.ok()?;
        }
        rig.send(start, RESET)?.ok()?;
        let found = rig
            .bench
            .read_blocks(&mut rig.pair, &rig.ns, start, blocks)?;
        zero("what was written before the reset", &found)?;
    }
    Ok(())
}

pub(super) fn read_across(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let end = rig.first() + rig.zone_blocks;
    if end >= rig.ns.blocks {
        return not_supported("no zone lies behind the first one that can be written");
    }
    let (cqe, _) = rig
        .bench
        .try_read_blocks(&mut rig.pair, &rig.ns, end - 1, 2)?;
    // OZCS, bit 0: Read Across Zone Boundaries.
    match u16_at(&rig.identity, 2) & 1 {
        1 => cqe.ok()?,
        _ => cqe.expect(ZONE_BOUNDARY)?,
    };
    Ok(())
}

/// Where an append went.
fn place(cqe: Cqe) -> Verdict<u64> {
    let cqe = cqe.ok()?;
    Ok(u64::from(cqe.dw1()) << 32 | u64::from(cqe.dw0()))
}

pub(super) fn append_tells(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    // The last of them: its number is large.
    let start = rig.empty[rig.empty.len() - 1];
    let mut at = 0;
    for blocks in [1, 2, 1] {
        if at + u64::from(blocks) > rig.capacity {
            break;
        }
        let found = place(rig.append(start, blocks, at + 11)?)?;
        same("Dwords 0 and 1", found, start + at)?;
        let expected = rig.pattern(blocks, at + 11);
        rig.holds(start + at, &expected)?;
        at += u64::from(blocks);
    }
    // A write goes on where they ended.
    if at < rig.capacity {
        rig.write(start + at, 1, 4)?.ok()?;
    }
    Ok(())
}

pub(super) fn appends_together(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    let count = rig.capacity.min(32);
    let mut of = Vec::new();
    for n in 0..count {
        let sqe = rig.append_sqe(start, 1, 100 + n)?;
        of.push((rig.bench.put(&mut rig.pair.sq, sqe), 100 + n));
    }
    rig.bench.ring_sq(&rig.pair.sq)?;
    let mut places = Vec::new();
    for _ in 0..count {
        let cqe = rig.bench.wait(&mut rig.pair.cq)?;
        let seed = of.iter().find(|(cid, _)| *cid == cqe.cid());
        let seed = seed.map_or(0, |(_, seed)| *seed);
        places.push((place(cqe)?, seed));
    }
    places.sort_unstable();
    for (n, (place, seed)) in (0..).zip(places) {
        same("where an append went", place, start + n)?;
        let expected = rig.pattern(1, seed);
        rig.holds(place, &expected)?;
    }
    Ok(())
}

pub(super) fn append_not_start(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    if rig.zone_blocks == 1 {
        return not_supported("ZSZE is one block: every block begins a zone");
    }
    let start = rig.first();
    rig.append(start + 1, 1, 1)?.expect(status::INVALID_FIELD)?;
    let behind = rig.ns.blocks;
    rig.append(behind, 1, 1)?.expect(status::LBA_OUT_OF_RANGE)?;
    rig.is(start, EMPTY, 0)
}

pub(super) fn append_limit(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let (sqe, page) = rig.bench.identify_sqe(0x06, 0)?;
    rig.bench.admin(sqe.dw(11, 2 << 24))?.ok()?;
    let zasl = u8_at(&page.bytes(0, 4096), 0);
    if !(1..=16).contains(&zasl) {
        return not_supported("ZASL is that of MDTS, or large");
    }
    let blocks = rig.blocks_of(4096 << zasl);
    if u64::from(blocks) >= rig.capacity || blocks >= 1 << 16 {
        return not_supported("a zone has no room for a larger append");
    }
    let start = rig.first();
    rig.append(start, blocks + 1, 1)?
        .expect(status::INVALID_FIELD)?;
    rig.is(start, EMPTY, 0)?;
    same(
        "where it went",
        place(rig.append(start, blocks, 2)?)?,
        start,
    )?;
    let expected = rig.pattern(blocks, 2);
    rig.holds(start, &expected)
}

pub(super) fn append_over_capacity(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let (start, capacity) = (rig.first(), rig.capacity);
    rig.fill(start, 0, capacity - 1)?;
    rig.append(start, 2, 1)?.expect(ZONE_BOUNDARY)?;
    let found = place(rig.append(start, 1, 2)?)?;
    same("where it went", found, start + capacity - 1)?;
    rig.is(start, FULL, capacity)?;
    rig.append(start, 1, 2)?.expect(ZONE_IS_FULL)?;
    check(rig.zone(start)?.state == FULL, || {
        "it is full no longer".into()
    })
}
