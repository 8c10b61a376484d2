//! Random write areas (TP 4076).

use super::rig::{
    ALLOCATE, CLOSE, COMMIT, EMPTY, EXPLICIT, FINISH, FULL, INVALID_ZONE_OPERATION, NO_RANDOM_AREA,
    OPEN, RESET, Rig, ZONE_BOUNDARY, ZONE_INVALID_WRITE,
};
use crate::bench::Bench;
use crate::verdict::{Verdict, not_supported, same, zero};
use crate::wire::{status, u8_at};

/// Statuses that may reject a flush that is not one: the specification names the first for that,
/// and the others fit as well.
const NOT_FLUSHED: [u16; 3] = [INVALID_ZONE_OPERATION, status::INVALID_FIELD, ZONE_BOUNDARY];
/// Zone Random Write Area Valid, of Zone Attributes.
const VALID: u8 = 1 << 3;

/// A rig whose first zone is open and has an area: with the area's blocks, and those of a step.
fn opened(bench: &mut Bench) -> Verdict<(Rig<'_>, u32, u32)> {
    let mut rig = Rig::new(bench)?;
    let (size, step, _) = rig.random()?;
    let start = rig.first();
    rig.send(start, OPEN | ALLOCATE)?.ok()?;
    let zone = rig.zone(start)?;
    same("Zone State", zone.state, EXPLICIT)?;
    same("ZRWAV", zone.attributes & VALID, VALID)?;
    Ok((rig, size, step))
}

/// Not supported unless a zone holds this many areas.
fn needs_areas(rig: &Rig<'_>, size: u32, areas: u64) -> Verdict {
    if rig.capacity < areas * u64::from(size) {
        return not_supported(format!("a zone does not hold {areas} random write areas"));
    }
    Ok(())
}

/// Not supported without Flush Explicit ZRWA Range (ZRWACAP, bit 0).
fn needs_flush(rig: &Rig<'_>) -> Verdict {
    if u8_at(&rig.identity, 52) & 1 == 0 {
        return not_supported("ZRWACAP bit 0: no explicit flush");
    }
    Ok(())
}

pub(super) fn random_order(bench: &mut Bench) -> Verdict {
    let (mut rig, size, _) = opened(bench)?;
    let start = rig.first();
    let last = u64::from(size) - 1;
    for (at, seed) in [(last, 1), (0, 2), (last / 2, 3), (last, 4), (0, 5)] {
        rig.write(start + at, 1, seed)?.ok()?;
        rig.is(start, EXPLICIT, 0)?;
        let expected = rig.pattern(1, seed);
        rig.holds(start + at, &expected)?;
    }
    // A reset erases what lies behind the write pointer, too.
    rig.send(start, RESET)?.ok()?;
    rig.needs_zeros()?;
    let found = rig
        .bench
        .read_blocks(&mut rig.pair, &rig.ns, start + last, 1)?;
    zero("what was written before the reset", &found)
}

pub(super) fn random_implicit(bench: &mut Bench) -> Verdict {
    let (mut rig, size, step) = opened(bench)?;
    needs_areas(&rig, size, 3)?;
    let start = rig.first();
    let (size, step) = (u64::from(size), u64::from(step));
    rig.write(start, 1, 1)?.ok()?;
    // The first block behind the area: one step.
    rig.write(start + size, 1, 2)?.ok()?;
    rig.is(start, EXPLICIT, step)?;
    rig.write(start, 1, 1)?.expect(ZONE_INVALID_WRITE)?;
    let kept = rig.pattern(1, 1);
    rig.holds(start, &kept)?;
    // The last block that may be written: a whole area.
    rig.write(start + step + 2 * size - 1, 1, 3)?.ok()?;
    rig.is(start, EXPLICIT, step + size)
}

pub(super) fn random_explicit(bench: &mut Bench) -> Verdict {
    let (mut rig, size, step) = opened(bench)?;
    needs_flush(&rig)?;
    let (start, capacity) = (rig.first(), rig.capacity);
    let (size, step) = (u64::from(size), u64::from(step));
    rig.write(start, 1, 1)?.ok()?;
    rig.send(start + step - 1, COMMIT)?.ok()?;
    rig.is(start, EXPLICIT, step)?;
    rig.write(start, 1, 2)?.expect(ZONE_INVALID_WRITE)?;
    let kept = rig.pattern(1, 1);
    rig.holds(start, &kept)?;
    if !capacity.is_multiple_of(step) || capacity / size > 1 << 12 {
        return Ok(());
    }
    // Area after area to the end: that makes the zone full.
    let mut at = step;
    while at < capacity {
        at = (at + size).min(capacity);
        rig.send(start + at - 1, COMMIT)?.ok()?;
    }
    let zone = rig.zone(start)?;
    same("Zone State", zone.state, FULL)?;
    same("ZRWAV of a full zone", zone.attributes & VALID, 0)
}

pub(super) fn random_flush_refused(bench: &mut Bench) -> Verdict {
    let (mut rig, size, step) = opened(bench)?;
    needs_flush(&rig)?;
    needs_areas(&rig, size, 2)?;
    rig.needs(2)?;
    let start = rig.first();
    if step > 1 {
        rig.send(start, COMMIT)?.expect_any(&NOT_FLUSHED)?;
    }
    let behind = start + u64::from(size) + u64::from(step) - 1;
    rig.send(behind, COMMIT)?.expect_any(&NOT_FLUSHED)?;
    let other = rig.empty[1] + u64::from(step) - 1;
    rig.send(other, COMMIT)?.expect_any(&NOT_FLUSHED)?;
    rig.is(start, EXPLICIT, 0)?;
    let other = rig.empty[1];
    rig.is(other, EMPTY, 0)
}

pub(super) fn random_outside(bench: &mut Bench) -> Verdict {
    let (mut rig, size, step) = opened(bench)?;
    needs_areas(&rig, size, 4)?;
    let start = rig.first();
    let (size, step) = (u64::from(size), u64::from(step));
    rig.write(start + 2 * size, 1, 1)?
        .expect(ZONE_INVALID_WRITE)?;
    rig.write(start + 2 * size - 1, 2, 1)?
        .expect(ZONE_INVALID_WRITE)?;
    rig.is(start, EXPLICIT, 0)?;
    rig.write(start + size, 1, 1)?.ok()?;
    rig.write(start + step - 1, 1, 1)?
        .expect(ZONE_INVALID_WRITE)?;
    rig.is(start, EXPLICIT, step)
}

pub(super) fn random_empty_only(bench: &mut Bench) -> Verdict {
    let (mut rig, ..) = opened(bench)?;
    rig.needs_open(2)?;
    let (first, second) = (rig.empty[0], rig.empty[1]);
    let refused = INVALID_ZONE_OPERATION;
    rig.send(first, OPEN | ALLOCATE)?.expect(refused)?;
    rig.write(second, 1, 1)?.ok()?;
    rig.send(second, OPEN | ALLOCATE)?.expect(refused)?;
    same("ZRWAV", rig.zone(second)?.attributes & VALID, 0)?;
    // It stays with a zone that is closed.
    rig.send(first, CLOSE)?.ok()?;
    same(
        "ZRWAV of a closed zone",
        rig.zone(first)?.attributes & VALID,
        VALID,
    )
}

pub(super) fn random_limit(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let (.., zones) = rig.random()?;
    if rig.active_most().is_some_and(|most| most <= zones) || zones >= rig.empty.len() {
        return not_supported("as many zones may have a random write area as may be active");
    }
    let starts = rig.empty[..=zones].to_vec();
    for start in &starts[..zones] {
        rig.send(*start, OPEN | ALLOCATE)?.ok()?;
        // Closed, so that the limit of open zones does not come first.
        rig.send(*start, CLOSE)?.ok()?;
    }
    let another = starts[zones];
    rig.send(another, OPEN | ALLOCATE)?.expect(NO_RANDOM_AREA)?;
    rig.is(another, EMPTY, 0)?;
    for end in [RESET, FINISH] {
        rig.send(starts[0], end)?.ok()?;
        same("ZRWAV", rig.zone(starts[0])?.attributes & VALID, 0)?;
        rig.send(another, OPEN | ALLOCATE)?.ok()?;
        rig.send(another, RESET)?.ok()?;
        rig.send(starts[0], RESET)?.ok()?;
        rig.send(starts[0], OPEN | ALLOCATE)?.ok()?;
    }
    Ok(())
}

pub(super) fn random_append(bench: &mut Bench) -> Verdict {
    let (mut rig, ..) = opened(bench)?;
    let start = rig.first();
    rig.append(start, 1, 1)?.expect(INVALID_ZONE_OPERATION)?;
    rig.is(start, EXPLICIT, 0)
}
