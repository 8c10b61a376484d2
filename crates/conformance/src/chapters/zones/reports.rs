//! Zone reports, and zone descriptor extensions.

use super::rig::{
    ALL, ALLOCATE, CLOSED, EMPTY, EXPLICIT, FULL, IMPLICIT, INVALID_TRANSITION, RESET, Rig, Zone,
};
use crate::bench::{Bench, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes, zero};
use crate::wire::{status, u8_at, u16_at, u64_at};

/// Partial Report (Dword 13).
const PARTIAL: u32 = 1 << 16;
/// Extended Report Zones.
const EXTENDED: u32 = 1;

pub(super) fn report_all(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let (count, _) = rig.report(0, 0, 1)?;
    same("Number of Zones", count, rig.count)?;
    let zones = rig.zones()?;
    for (n, zone) in (0..).zip(&zones) {
        same("ZSLBA", zone.start, n * rig.zone_blocks)?;
        same("Zone Type", zone.kind, 2)?;
        check((1..=rig.zone_blocks).contains(&zone.capacity), || {
            format!("ZCAP of zone {n} is {:#x}", zone.capacity)
        })?;
        if zone.state == EMPTY {
            same("Write Pointer of an empty zone", zone.pointer, zone.start)?;
            same(
                "attributes of an empty zone",
                zone.attributes & 0b1000_1001,
                0,
            )?;
        }
    }
    Ok(())
}

pub(super) fn report_from_inside(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    for slba in [start, start + rig.zone_blocks - 1] {
        let (count, zones) = rig.report(slba, 0, 1)?;
        same(
            "Number of Zones",
            count,
            rig.count - start / rig.zone_blocks,
        )?;
        same("ZSLBA", zones.first().map_or(u64::MAX, |z| z.start), start)?;
    }
    Ok(())
}

pub(super) fn report_partial(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    if rig.count < 3 {
        return not_supported("there are fewer than three zones");
    }
    let (count, _) = rig.report(0, 0, 2)?;
    same("Number of Zones", count, rig.count)?;
    let (count, _) = rig.report(0, PARTIAL, 2)?;
    same("Number of Zones of a partial report", count, 2)?;
    let last = (rig.count - 1) * rig.zone_blocks;
    let (count, _) = rig.report(last, PARTIAL, 2)?;
    same("Number of Zones of the last one", count, 1)
}

pub(super) fn report_by_state(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    rig.needs_open(3)?;
    rig.needs(5)?;
    let starts = rig.empty[..5].to_vec();
    let states = [EMPTY, IMPLICIT, EXPLICIT, CLOSED, FULL];
    for (start, state) in starts.iter().zip(states) {
        rig.bring(*start, state)?;
    }
    let mut sum = 0;
    // Zone Receive Action Specific Field: 1h to 5h in the order above, then read only and offline.
    for (option, state) in (1..).zip([EMPTY, IMPLICIT, EXPLICIT, CLOSED, FULL, 0xd, 0xf]) {
        let (count, zones) = rig.report(0, option << 8, 60)?;
        sum += count;
        for zone in &zones {
            same("Zone State", zone.state, state)?;
        }
        let place = states.iter().position(|other| *other == state);
        if let Some(place) = place.filter(|_| count <= 60) {
            check(zones.iter().any(|z| z.start == starts[place]), || {
                format!("a report of state {state:#x} leaves out a zone in it")
            })?;
        }
    }
    same("zones in all states together", sum, rig.count)
}

pub(super) fn report_header_only(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let (cqe, bytes) = rig.receive(0, 0, 64)?;
    cqe.ok()?;
    same("Number of Zones", u64_at(&bytes, 0), rig.count)?;
    let (cqe, bytes) = rig.receive(0, PARTIAL, 64)?;
    cqe.ok()?;
    same("Number of Zones of a partial report", u64_at(&bytes, 0), 0)?;
    // Half a descriptor more: the report leaves out a zone that does not fit.
    let (cqe, bytes) = rig.receive(0, PARTIAL, 96)?;
    cqe.ok()?;
    same("Number of Zones of a partial report", u64_at(&bytes, 0), 0)
}

pub(super) fn report_refused(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    for dword13 in [0x02, 0x7f, 0x0800, 0xff00] {
        let (cqe, _) = rig.receive(0, dword13, 128)?;
        cqe.expect(status::INVALID_FIELD)?;
    }
    for slba in [rig.ns.blocks, u64::MAX] {
        let (cqe, _) = rig.receive(slba, 0, 128)?;
        cqe.expect(status::LBA_OUT_OF_RANGE)?;
    }
    Ok(())
}

pub(super) fn extension(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let len = rig.extension;
    if len == 0 {
        return not_supported("ZDES is 0: zones have no descriptor extension");
    }
    let start = rig.first();
    let data = pattern(len, 0x2e1);
    rig.send_extension(start, 0, &data)?.ok()?;
    rig.is(start, CLOSED, 0)?;
    // Once is all: the zone is not empty any more.
    rig.send_extension(start, 0, &data)?
        .expect(INVALID_TRANSITION)?;
    rig.send_extension(start, ALL, &data)?
        .expect(status::INVALID_FIELD)?;
    rig.write(start, 1, 1)?.ok()?;
    let told = |rig: &mut Rig<'_>| -> Verdict<(u8, Vec<u8>)> {
        let (cqe, bytes) = rig.receive(start, EXTENDED | PARTIAL, 64 + 64 + len)?;
        cqe.ok()?;
        same("Number of Zones", u64_at(&bytes, 0), 1)?;
        let zone = Zone::at(&bytes, 64);
        same("ZSLBA", zone.start, start)?;
        Ok((zone.attributes >> 7, bytes[128..].to_vec()))
    };
    let (valid, found) = told(&mut rig)?;
    same("Zone Descriptor Extension Valid", valid, 1)?;
    same_bytes("the extension", &found, &data)?;
    rig.send(start, RESET)?.ok()?;
    let (valid, _) = told(&mut rig)?;
    same("Zone Descriptor Extension Valid after a reset", valid, 0)
}

pub(super) fn extension_refused(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    if rig.extension > 0 {
        return not_supported("ZDES: zones have a descriptor extension");
    }
    let start = rig.first();
    rig.send_extension(start, 0, &[0; 64])?
        .expect(status::INVALID_FIELD)?;
    let (cqe, _) = rig.receive(start, EXTENDED, 128)?;
    cqe.expect(status::INVALID_FIELD)?;
    rig.is(start, EMPTY, 0)
}

pub(super) fn changed_zones(bench: &mut Bench) -> Verdict {
    let rig = Rig::new(bench)?;
    let mem = rig.bench.mem(4096)?;
    mem.fill(0xa5);
    // Log page BFh of the namespace.
    let sqe = rig.bench.log_sqe(0xbf, 0, 4096, &mem)?.nsid(rig.ns.nsid);
    rig.bench.admin(sqe)?.ok()?;
    let list = mem.bytes(0, 4096);
    same("Number of Zone Identifiers", u16_at(&list, 0), 0)?;
    zero("the list", &list[2..])
}

pub(super) fn random_identify(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let (size, _, zones) = rig.random()?;
    check(u64::from(size) <= rig.capacity, || {
        format!("ZRWASZ {size} is more than a zone's capacity")
    })?;
    let active = rig.active_most().unwrap_or(usize::MAX);
    check(zones <= active, || {
        format!("{zones} random write areas, and {active} active zones")
    })?;
    same("reserved bits of ZRWACAP", u8_at(&rig.identity, 52) & !1, 0)
}

pub(super) fn random_refused(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    if u16_at(&rig.identity, 2) & 0b10 != 0 {
        return not_supported("OZCS bit 1: there are random write areas");
    }
    let start = rig.first();
    rig.send(start, super::rig::OPEN | ALLOCATE)?
        .expect_error()?;
    rig.send(start, super::rig::COMMIT)?.expect_error()?;
    rig.is(start, EMPTY, 0)
}
