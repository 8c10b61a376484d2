//! The zones' state machine, its limits, and who zones belong to.

use super::rig::{
    ALL, CLOSE, CLOSED, EMPTY, EXPLICIT, FINISH, FULL, IMPLICIT, INVALID_TRANSITION, OFFLINE, OPEN,
    RESET, Rig, TOO_MANY_ACTIVE, TOO_MANY_OPEN, ZONE_IS_FULL, set_identity,
};
use crate::bench::{Bench, CC_ENABLE};
use crate::verdict::{Verdict, check, not_supported, same};
use crate::wire::{Sqe, status, u8_at, u16_at};

pub(super) fn identify_namespace(bench: &mut Bench) -> Verdict {
    let rig = Rig::new(bench)?;
    same("NSZE, less whole zones", rig.ns.blocks % rig.zone_blocks, 0)?;
    if let (Some(open), Some(active)) = (rig.open_most(), rig.active_most()) {
        check(open <= active, || {
            format!("{open} zones may be open, and {active} active")
        })?;
    }
    check(
        rig.open_most().is_some() || rig.active_most().is_none(),
        || "MOR is no limit, and MAR is one".into(),
    )?;
    same("reserved bits of ZOC", u16_at(&rig.identity, 0) & !0b11, 0)?;
    same("reserved bits of OZCS", u16_at(&rig.identity, 2) & !0b11, 0)
}

pub(super) fn identify_controller(bench: &mut Bench) -> Verdict {
    let rig = Rig::new(bench)?;
    let (sqe, page) = rig.bench.identify_sqe(0x06, 0)?;
    rig.bench.admin(sqe.dw(11, 2 << 24))?.ok()?;
    let zasl = u8_at(&page.bytes(0, 4096), 0);
    let mdts = u8_at(&rig.bench.controller()?, 77);
    check(mdts == 0 || zasl <= mdts, || {
        format!("ZASL is {zasl}, MDTS {mdts}")
    })
}

pub(super) fn descriptor(bench: &mut Bench) -> Verdict {
    let rig = Rig::new(bench)?;
    let list = rig.bench.identify(0x03, rig.ns.nsid)?;
    let mut at = 0;
    while u8_at(&list, at) != 0 && at < 4096 {
        // NIDT 4h: Command Set Identifier.
        if u8_at(&list, at) == 4 {
            return same("CSI", u8_at(&list, at + 4), 2);
        }
        at += 4 + usize::from(u8_at(&list, at + 1));
    }
    check(false, || {
        "no descriptor has a Command Set Identifier".into()
    })
}

pub(super) fn hidden_from_others(bench: &mut Bench) -> Verdict {
    let nsid = Rig::new(bench)?.ns.nsid;
    bench.start()?;
    let active = bench.active()?;
    check(!active.contains(&nsid), || {
        format!("namespace {nsid} is active with CC.CSS 000b")
    })
}

/// Every state that a host can bring a zone into.
const STATES: [u8; 5] = [EMPTY, IMPLICIT, EXPLICIT, CLOSED, FULL];

/// An action on the first zone in each of [`STATES`] leads to these; none: Invalid Zone State
/// Transition.
fn leads(bench: &mut Bench, action: u32, to: [Option<u8>; 5]) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    for (from, to) in STATES.into_iter().zip(to) {
        rig.bring(start, from)?;
        let before = rig.zone(start)?;
        let cqe = rig.send(start, action)?;
        let Some(to) = to else {
            cqe.expect(INVALID_TRANSITION)?;
            check(rig.zone(start)? == before, || {
                format!("action {action:#x} was refused in state {from:#x}, and changed the zone")
            })?;
            continue;
        };
        cqe.ok()?;
        let after = rig.zone(start)?;
        check(after.state == to, || {
            let state = after.state;
            format!("action {action:#x} led from state {from:#x} to {state:#x}, not to {to:#x}")
        })?;
        match to {
            FULL => {}
            EMPTY => same("Write Pointer", after.pointer, start)?,
            _ => same("Write Pointer", after.pointer, before.pointer)?,
        }
    }
    rig.send(start, RESET)?.ok().map(drop)
}

pub(super) fn open_zone(bench: &mut Bench) -> Verdict {
    let open = Some(EXPLICIT);
    leads(bench, OPEN, [open, open, open, open, None])
}

pub(super) fn close_zone(bench: &mut Bench) -> Verdict {
    let closed = Some(CLOSED);
    leads(bench, CLOSE, [None, closed, closed, closed, None])
}

pub(super) fn finish_zone(bench: &mut Bench) -> Verdict {
    leads(bench, FINISH, [Some(FULL); 5])
}

pub(super) fn reset_zone(bench: &mut Bench) -> Verdict {
    leads(bench, RESET, [Some(EMPTY); 5])
}

pub(super) fn offline_zone(bench: &mut Bench) -> Verdict {
    leads(bench, OFFLINE, [None; 5])
}

pub(super) fn write_by_state(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    let to = [IMPLICIT, IMPLICIT, EXPLICIT, IMPLICIT];
    for (from, to) in STATES.into_iter().zip(to) {
        rig.bring(start, from)?;
        let pointer = rig.zone(start)?.pointer;
        rig.write(pointer, 1, 2)?.ok()?;
        rig.is(start, to, pointer + 1 - start)?;
    }
    rig.bring(start, FULL)?;
    rig.write(start, 1, 2)?.expect(ZONE_IS_FULL)?;
    rig.append(start, 1, 2)?.expect(ZONE_IS_FULL)?;
    Ok(())
}

/// One zone in each of [`STATES`], then an action with Select All: they are in these states.
fn leads_all(bench: &mut Bench, action: u32, to: [u8; 5]) -> Verdict {
    let mut rig = Rig::new(bench)?;
    rig.needs_open(3)?;
    rig.needs(5)?;
    let starts: Vec<u64> = rig.empty[..5].to_vec();
    for (start, state) in starts.iter().zip(STATES) {
        rig.bring(*start, state)?;
    }
    // SLBA says nothing: it is past the namespace.
    rig.send(u64::MAX, action | ALL)?.ok()?;
    for (start, state) in starts.iter().zip(to) {
        same("Zone State", rig.zone(*start)?.state, state)?;
    }
    Ok(())
}

pub(super) fn open_all(bench: &mut Bench) -> Verdict {
    leads_all(bench, OPEN, [EMPTY, IMPLICIT, EXPLICIT, EXPLICIT, FULL])
}

pub(super) fn close_all(bench: &mut Bench) -> Verdict {
    leads_all(bench, CLOSE, [EMPTY, CLOSED, CLOSED, CLOSED, FULL])
}

pub(super) fn finish_all(bench: &mut Bench) -> Verdict {
    leads_all(bench, FINISH, [EMPTY, FULL, FULL, FULL, FULL])
}

pub(super) fn reset_all(bench: &mut Bench) -> Verdict {
    leads_all(bench, RESET, [EMPTY; 5])
}

pub(super) fn open_limit(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let Some(most) = rig.open_most() else {
        return not_supported("MOR: any number of zones may be open");
    };
    rig.needs(most + 1)?;
    let starts = rig.empty[..=most].to_vec();
    for start in &starts[..most] {
        rig.send(*start, OPEN)?.ok()?;
    }
    // One too many, which may be active where MAR is larger: it is refused for one of the two.
    let refused = match rig.active_most() {
        Some(active) if active == most => [TOO_MANY_ACTIVE, TOO_MANY_OPEN],
        _ => [TOO_MANY_OPEN; 2],
    };
    rig.send(starts[most], OPEN)?.expect_any(&refused)?;
    rig.write(starts[most], 1, 1)?.expect_any(&refused)?;
    rig.is(starts[most], EMPTY, 0)?;
    rig.send(starts[0], FINISH)?.ok()?;
    rig.send(starts[most], OPEN)?.ok()?;
    Ok(())
}

pub(super) fn implicit_room(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let Some(most) = rig.open_most() else {
        return not_supported("MOR: any number of zones may be open");
    };
    if rig.active_most() == Some(most) {
        return not_supported("MAR is MOR: the limit of active zones comes first");
    }
    rig.needs(most + 1)?;
    let starts = rig.empty[..=most].to_vec();
    for start in &starts[..most] {
        rig.write(*start, 1, 1)?.ok()?;
    }
    let cqe = rig.write(starts[most], 1, 1)?;
    cqe.expect_any(&[status::SUCCESS, TOO_MANY_OPEN])?;
    let zones = rig.zones()?;
    let open = zones
        .iter()
        .filter(|z| [IMPLICIT, EXPLICIT].contains(&z.state));
    let open = open.count();
    check(open <= most, || {
        format!("{open} zones are open, and {most} may be")
    })
}

pub(super) fn active_limit(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let Some(most) = rig.active_most() else {
        return not_supported("MAR: any number of zones may be active");
    };
    rig.needs(most + 1)?;
    let starts = rig.empty[..=most].to_vec();
    for start in &starts[..most] {
        rig.bring(*start, CLOSED)?;
    }
    let another = starts[most];
    rig.write(another, 1, 1)?.expect(TOO_MANY_ACTIVE)?;
    rig.append(another, 1, 1)?.expect(TOO_MANY_ACTIVE)?;
    rig.send(another, OPEN)?.expect(TOO_MANY_ACTIVE)?;
    rig.is(another, EMPTY, 0)?;
    // Those that are active go on.
    rig.write(starts[0] + 1, 1, 1)?.ok()?;
    rig.send(starts[1 % most], FINISH)?.ok()?;
    rig.write(another, 1, 1)?.ok()?;
    Ok(())
}

pub(super) fn not_a_start(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    if rig.zone_blocks == 1 {
        return not_supported("ZSZE is one block: every block begins a zone");
    }
    for action in [CLOSE, FINISH, OPEN, RESET, OFFLINE] {
        rig.send(start + 1, action)?.expect(status::INVALID_FIELD)?;
    }
    rig.is(start, EMPTY, 0)
}

pub(super) fn no_such_zone(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    for slba in [rig.ns.blocks, u64::MAX] {
        for action in [CLOSE, FINISH, OPEN, RESET, OFFLINE] {
            rig.send(slba, action)?.expect(status::LBA_OUT_OF_RANGE)?;
        }
    }
    Ok(())
}

pub(super) fn no_such_action(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    for action in [0x00, 0x06, 0x0f, 0x12, 0x7f] {
        rig.send(start, action)?.expect(status::INVALID_FIELD)?;
        rig.send(start, action | ALL)?
            .expect(status::INVALID_FIELD)?;
    }
    rig.is(start, EMPTY, 0)
}

pub(super) fn survives_reset(bench: &mut Bench) -> Verdict {
    let mut rig = Rig::new(bench)?;
    rig.needs_open(2)?;
    let (first, second) = (rig.empty[0], rig.empty[1]);
    rig.write(first, 3, 7)?.ok()?;
    rig.send(second, FINISH)?.ok()?;
    let expected = rig.pattern(3, 7);
    rig.bench.start_with(64, 64, CC_ENABLE | 0b110 << 4)?;
    rig.pair = rig.bench.pair(64)?;
    let zone = rig.zone(first)?;
    check([IMPLICIT, EXPLICIT, CLOSED].contains(&zone.state), || {
        format!("the zone is in state {:#x}", zone.state)
    })?;
    same("Write Pointer", zone.pointer, first + 3)?;
    rig.is(second, FULL, 0)?;
    rig.holds(first, &expected)?;
    rig.write(first + 3, 1, 8)?.ok()?;
    Ok(())
}

pub(super) fn format_empties(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(1, "Format NVM")?;
    let mut rig = Rig::new(bench)?;
    let start = rig.first();
    rig.write(start, 1, 9)?.ok()?;
    let flbas = u32::from(u8_at(&rig.ns.identity, 26));
    let lbaf = flbas & 0xf | (flbas >> 5 & 0b11) << 12;
    let format = Sqe::new(0x80).nsid(rig.ns.nsid).dw(10, lbaf);
    rig.bench.admin(format)?.ok()?;
    rig.is(start, EMPTY, 0)?;
    let identity = set_identity(rig.bench, rig.ns.nsid)?;
    check(identity == rig.identity, || {
        "Format NVM to the same format has changed Identify Namespace".into()
    })
}
