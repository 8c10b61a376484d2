//! Zones that the drive has lost: read only, or offline. No host can bring them about, and nothing
//! here changes one.

use super::rig::{
    ALL, ALLOCATE, CLOSE, FINISH, GONE, INVALID_TRANSITION, OPEN, READ_ONLY, RESET, Rig,
    ZONE_IS_OFFLINE, ZONE_IS_READ_ONLY,
};
use crate::bench::Bench;
use crate::verdict::{Verdict, check, not_supported, same};
use crate::wire::status;

/// A drive, and the first blocks of its zones in this state; not supported where there are none.
fn rig(bench: &mut Bench, state: u8) -> Verdict<(Rig<'_>, Vec<u64>)> {
    let mut rig = Rig::new(bench)?;
    let zones = rig.zones()?;
    let its = zones.iter().filter(|zone| zone.state == state);
    let its: Vec<u64> = its.map(|zone| zone.start).collect();
    if its.is_empty() {
        return not_supported(format!("no zone is in state {state:#x}"));
    }
    Ok((rig, its))
}

/// Writes, appends and zeros at the begin of a zone are refused.
fn refuses_writes(rig: &mut Rig<'_>, start: u64, with: u16) -> Verdict {
    rig.write(start, 1, 1)?.expect(with)?;
    rig.append(start, 1, 1)?.expect(with)?;
    let zeroes = crate::wire::Sqe::new(0x08).nsid(rig.ns.nsid);
    rig.run(zeroes.qword(10, start))?.expect(with).map(drop)
}

/// Reads one block.
fn read(rig: &mut Rig<'_>, start: u64) -> Verdict<u16> {
    let mem = rig.bench.mem(rig.ns.bytes(1))?;
    let sqe = rig.bench.transfer(&rig.ns, 0x02, start, 1, &mem)?;
    Ok(rig.run(sqe)?.status())
}

pub(super) fn read_only_data(bench: &mut Bench) -> Verdict {
    let (mut rig, zones) = rig(bench, READ_ONLY)?;
    for start in zones {
        same("status of a read", read(&mut rig, start)?, status::SUCCESS)?;
        refuses_writes(&mut rig, start, ZONE_IS_READ_ONLY)?;
        same("Zone State", rig.zone(start)?.state, READ_ONLY)?;
    }
    Ok(())
}

pub(super) fn offline_data(bench: &mut Bench) -> Verdict {
    let (mut rig, zones) = rig(bench, GONE)?;
    for start in zones {
        same("status of a read", read(&mut rig, start)?, ZONE_IS_OFFLINE)?;
        refuses_writes(&mut rig, start, ZONE_IS_OFFLINE)?;
        same("Zone State", rig.zone(start)?.state, GONE)?;
    }
    Ok(())
}

pub(super) fn lost_actions(bench: &mut Bench) -> Verdict {
    let mut any = false;
    for state in [READ_ONLY, GONE] {
        let Ok((mut rig, zones)) = rig(bench, state) else {
            continue;
        };
        any = true;
        for action in [OPEN, CLOSE, FINISH, RESET] {
            rig.send(zones[0], action)?.expect(INVALID_TRANSITION)?;
        }
        same("Zone State", rig.zone(zones[0])?.state, state)?;
    }
    if any {
        Ok(())
    } else {
        not_supported("every zone is in order")
    }
}

pub(super) fn lost_select_all(bench: &mut Bench) -> Verdict {
    let (mut rig, zones) = rig(bench, READ_ONLY)?;
    let start = rig.first();
    for action in [OPEN, CLOSE, FINISH, RESET] {
        // One that it concerns is among them.
        rig.send(start, RESET)?.ok()?;
        rig.write(start, 1, 1)?.ok()?;
        rig.send(0, action | ALL)?.ok()?;
        for zone in &zones {
            same("Zone State", rig.zone(*zone)?.state, READ_ONLY)?;
        }
    }
    rig.send(start, RESET)?.ok().map(drop)
}

pub(super) fn lost_random(bench: &mut Bench) -> Verdict {
    let (mut rig, zones) = rig(bench, READ_ONLY)?;
    if rig.extension == 0 {
        return not_supported("ZDES: zones have no descriptor extension");
    }
    rig.random()?;
    let data = vec![0x5a; rig.extension];
    rig.send(zones[0], OPEN | ALLOCATE)?.expect_error()?;
    rig.send_extension(zones[0], 0, &data)?
        .expect(INVALID_TRANSITION)?;
    rig.send_extension(zones[0], ALLOCATE, &data)?
        .expect_error()?;
    same("Zone State", rig.zone(zones[0])?.state, READ_ONLY)
}

pub(super) fn lost_reports(bench: &mut Bench) -> Verdict {
    let (mut rig, zones) = rig(bench, READ_ONLY)?;
    // Reporting options 6h and 7h.
    for (option, state) in [(6 << 8, READ_ONLY), (7 << 8, GONE)] {
        let all = rig.zones()?;
        let expected = all.iter().filter(|zone| zone.state == state).count() as u64;
        let (count, told) = rig.report(0, option, zones.len().max(1))?;
        same("Number of Zones", count, expected)?;
        check(told.iter().all(|zone| zone.state == state), || {
            format!("the report of zones in state {state:#x} lists others")
        })?;
    }
    Ok(())
}
