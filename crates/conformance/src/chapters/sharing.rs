//! Two hosts, each with a controller of the same subsystem (Base 2.1, 8.1.22 and
//! 8.1.15): what reservations let them do, and what one sees of the other's
//! namespaces.

use super::namespaces::{BLOCKS, attach, create_sqe, delete, needs_management, own_id};
use super::reservations::{Host, KEY, host, kinds};
use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Ns, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Sqe, status, u8_at, u16_at, u32_at, u64_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "sharing",
    title: "Two hosts with controllers of one subsystem",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    one_subsystem, "Base 2.1, 5.1.13.2.1", "both controllers have one SUBNQN and serial number, identifiers of their own, and say that there are several";
    shared_data, "Base 2.1, 2.4.1", "what one host writes to a shared namespace the other reads";
    shared_is_said, "NVM 1.1, 4.1.5.1", "NMIC says that a namespace both have attached may be shared";
    both_registered, "Base 2.1, 7.6", "both registrations are reported to both hosts";
    conflicts, "Base 2.1, 8.1.22", "each type lets the other host, registered or not, do what the specification says";
    holder_once, "Base 2.1, 7.5", "a second host cannot acquire what the first holds (083h)";
    all_registrants, "Base 2.1, 8.1.22", "under All Registrants every registrant holds the reservation, until the last one goes";
    preempt, "Base 2.1, 7.5", "preempting takes the reservation and ends the registration of the holder";
    preempt_registrant, "Base 2.1, 7.5", "preempting a registrant that holds nothing ends its registration alone";
    preempt_nobody, "Base 2.1, 7.5", "preempting a key that no host has registered conflicts (083h)";
    released_for_all, "Base 2.1, 7.7", "a reservation that was released binds no host";
    clear_by_other, "Base 2.1, 7.7", "any registrant may clear";
    notified, "Base 2.1, 8.1.22", "a host whose registration was preempted is notified, by an event and its log page";
    compare_and_verify, "Base 2.1, 8.1.22", "Compare and Verify conflict as Read does, Write Zeroes and Dataset Management as Write does";
    flush_conflicts, "Base 2.1, 8.1.22", "Flush conflicts as Write does";
    attachment_is_told, "Base 2.1, 5.1.2", "attaching a namespace to the other controller, and detaching it, is an event there";
    deletion_is_told, "Base 2.1, 8.1.15", "deleting a namespace takes it from the other controller, which is notified";
    format_is_told, "Base 2.1, 5.1.2", "a Format NVM by one host changes the namespace of the other, which is notified";
    private_namespace, "Base 2.1, 5.1.20", "a namespace that is not shared is attached to one controller only (119h)";
    shared_namespace, "Base 2.1, 8.1.15", "a namespace created as shared is attached to both, in one command";
    reset_of_one, "Base 2.1, 3.7.2", "a reset of one controller leaves the other at work";
];

const OTHER_KEY: u64 = KEY ^ 0xffff;

/// Two clean hosts on one namespace.
fn with_two(
    bench: &mut Bench,
    work: impl FnOnce(&mut Bench, &mut Host, &mut Bench, &mut Host) -> Verdict,
) -> Verdict {
    bench.with_second(|bench, second| {
        let mut one = host(bench, KEY)?;
        let mut two = host(second, OTHER_KEY)?;
        if !same_namespace(&one.ns, &two.ns) {
            return not_supported("the two controllers do not share the namespace");
        }
        one.clean(bench)?;
        let judged = work(bench, &mut one, second, &mut two);
        let cleaned = one.clean(bench);
        judged.and(cleaned)
    })
}

/// By NGUID and EUI-64.
fn same_namespace(one: &Ns, two: &Ns) -> bool {
    one.nsid == two.nsid && one.identity[104..128] == two.identity[104..128]
}

fn one_subsystem(bench: &mut Bench) -> Verdict {
    bench.with_second(|bench, second| {
        let (one, two) = (bench.controller()?, second.controller()?);
        same_bytes("SUBNQN of both", &one[768..1024], &two[768..1024])?;
        same_bytes("serial number of both", &one[4..24], &two[4..24])?;
        let (a, b) = (u16_at(&one, 78), u16_at(&two, 78));
        check(a != b, || format!("both controllers have CNTLID {a:#x}"))?;
        for c in [&one, &two] {
            same("CMIC bit 1 (several controllers)", u8_at(c, 76) >> 1 & 1, 1)?;
        }
        Ok(())
    })
}

/// The namespace and a queue pair of each, without reservations.
fn shared(bench: &mut Bench, work: impl FnOnce(&mut Bench, &mut Bench, &Ns) -> Verdict) -> Verdict {
    bench.with_second(|bench, second| {
        let (one, two) = (bench.ns()?, second.ns()?);
        if !same_namespace(&one, &two) {
            return not_supported("the two controllers do not share the namespace");
        }
        work(bench, second, &one)
    })
}

fn shared_data(bench: &mut Bench) -> Verdict {
    shared(bench, |bench, second, ns| {
        let mut one = bench.pair(16)?;
        let mut two = second.pair(16)?;
        for turn in 0..20 {
            let data = pattern(ns.block_len, turn);
            if turn % 2 == 0 {
                bench.write_blocks(&mut one, ns, turn, &data)?;
                let found = second.read_blocks(&mut two, ns, turn, 1)?;
                same_bytes("a block of the other host's", &found, &data)?;
            } else {
                second.write_blocks(&mut two, ns, turn, &data)?;
                let found = bench.read_blocks(&mut one, ns, turn, 1)?;
                same_bytes("a block of the other host's", &found, &data)?;
            }
        }
        Ok(())
    })
}

fn shared_is_said(bench: &mut Bench) -> Verdict {
    shared(bench, |_, _, ns| {
        same("NMIC bit 0", u8_at(&ns.identity, 30) & 1, 1)
    })
}

fn both_registered(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        two.register(second)?.ok()?;
        for report in [one.report(bench)?, two.report(second)?] {
            same("registrants", report.registered.len(), 2)?;
            for key in [KEY, OTHER_KEY] {
                let found = report.registered.iter().any(|r| r.0 == key);
                check(found, || format!("key {key:#x} is not reported"))?;
            }
            let controllers = (report.registered[0].2, report.registered[1].2);
            check(controllers.0 != controllers.1, || {
                format!("both are registered by controller {:#x}", controllers.0)
            })?;
        }
        Ok(())
    })
}

/// Whether a reservation of this type lets another host read, and write:
/// (a registrant, anybody else). Write Exclusive (1, 3, 5), Exclusive Access
/// (2, 4, 6); 3 to 6 admit registrants.
fn allows(kind: u32, registered: bool) -> (bool, bool) {
    let registrants = kind >= 3;
    if registrants && registered {
        return (true, true);
    }
    (kind % 2 == 1, false)
}

/// Fails unless a command of the other host's is done, or conflicts.
fn judge(second: &mut Bench, two: &mut Host, sqe: Sqe, allowed: bool, what: &str) -> Verdict {
    let cqe = second.run(&mut two.pair, sqe)?;
    let expected = if allowed {
        status::SUCCESS
    } else {
        status::RESERVATION_CONFLICT
    };
    check(cqe.status() == expected, || {
        format!(
            "{what}: expected {}, found {}",
            status::shown(expected),
            status::shown(cqe.status())
        )
    })
}

fn conflicts(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        for registered in [false, true] {
            if registered {
                two.register(second)?.ok()?;
            }
            for kind in kinds(&one.ns) {
                one.acquire(bench, 0, kind, 0)?.ok()?;
                let (read, write) = allows(kind, registered);
                let mem = second.mem(two.ns.block_len)?;
                let who = if registered {
                    "a registrant"
                } else {
                    "somebody else"
                };
                let sqe = second.transfer(&two.ns, opcode::READ, 0, 1, &mem)?;
                judge(
                    second,
                    two,
                    sqe,
                    read,
                    &format!("type {kind}, Read by {who}"),
                )?;
                let sqe = second.transfer(&two.ns, opcode::WRITE, 0, 1, &mem)?;
                judge(
                    second,
                    two,
                    sqe,
                    write,
                    &format!("type {kind}, Write by {who}"),
                )?;
                one.release(bench, 0, kind)?.ok()?;
            }
        }
        Ok(())
    })
}

fn holder_once(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        two.register(second)?.ok()?;
        for kind in kinds(&one.ns) {
            if kind >= 5 {
                continue; // every registrant holds these
            }
            one.acquire(bench, 0, kind, 0)?.ok()?;
            for wanted in kinds(&two.ns) {
                two.acquire(second, 0, wanted, 0)?
                    .expect(status::RESERVATION_CONFLICT)?;
            }
            // Nor does it release what it does not hold.
            two.release(second, 0, kind)?.ok()?;
            same("type", u32::from(one.report(bench)?.kind), kind)?;
            one.release(bench, 0, kind)?.ok()?;
        }
        Ok(())
    })
}

fn all_registrants(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        for kind in kinds(&one.ns).into_iter().filter(|kind| *kind >= 5) {
            one.register(bench)?.ok()?;
            two.register(second)?.ok()?;
            one.acquire(bench, 0, kind, 0)?.ok()?;
            let report = two.report(second)?;
            check(report.registered.iter().all(|r| r.3), || {
                format!("type {kind}: not every registrant is reported as a holder")
            })?;
            one.unregister(bench, KEY)?.ok()?;
            let what = format!("type {kind} after one registrant is gone");
            same(&what, u32::from(two.report(second)?.kind), kind)?;
            two.unregister(second, OTHER_KEY)?.ok()?;
            let what = format!("type {kind} after the last registrant is gone");
            same(&what, two.report(second)?.kind, 0)?;
        }
        Ok(())
    })
}

fn preempt(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        for action in [1, 2] {
            one.register(bench)?.ok()?;
            two.register(second)?.ok()?;
            let kind = kinds(&one.ns)[0];
            one.acquire(bench, 0, kind, 0)?.ok()?;
            two.acquire(second, action, kind, KEY)?.ok()?;
            let report = two.report(second)?;
            same("type after a preemption", u32::from(report.kind), kind)?;
            same("registrants after a preemption", report.registered.len(), 1)?;
            same("who is left", report.registered[0].0, OTHER_KEY)?;
            check(report.registered[0].3, || {
                "the preempter holds nothing".into()
            })?;
            let mem = bench.mem(one.ns.block_len)?;
            let write = bench.transfer(&one.ns, opcode::WRITE, 0, 1, &mem)?;
            bench
                .run(&mut one.pair, write)?
                .expect(status::RESERVATION_CONFLICT)?;
            two.release(second, 1, 0)?.ok()?;
        }
        Ok(())
    })
}

fn preempt_registrant(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        two.register(second)?.ok()?;
        let kind = kinds(&one.ns)[0];
        two.acquire(second, 0, kind, 0)?.ok()?;
        two.acquire(second, 1, kind, KEY)?.ok()?;
        let report = two.report(second)?;
        same("type", u32::from(report.kind), kind)?;
        same("registrants", report.registered.len(), 1)?;
        same("who is left", report.registered[0].0, OTHER_KEY)?;
        two.release(second, 1, 0)?.ok().map(drop)
    })
}

fn preempt_nobody(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        two.register(second)?.ok()?;
        let kind = kinds(&one.ns)[0];
        one.acquire(bench, 0, kind, 0)?.ok()?;
        two.acquire(second, 1, kind, 0x7777)?
            .expect(status::RESERVATION_CONFLICT)?;
        same("type", u32::from(one.report(bench)?.kind), kind)
    })
}

fn released_for_all(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        for kind in kinds(&one.ns) {
            one.acquire(bench, 0, kind, 0)?.ok()?;
            one.release(bench, 0, kind)?.ok()?;
            let data = pattern(two.ns.block_len, kind.into());
            second.write_blocks(&mut two.pair, &two.ns, 0, &data)?;
            let found = bench.read_blocks(&mut one.pair, &one.ns, 0, 1)?;
            same_bytes("a block after Release", &found, &data)?;
        }
        Ok(())
    })
}

fn clear_by_other(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        two.register(second)?.ok()?;
        let kind = kinds(&one.ns)[0];
        one.acquire(bench, 0, kind, 0)?.ok()?;
        two.release(second, 1, 0)?.ok()?;
        let report = one.report(bench)?;
        same("type after Clear", report.kind, 0)?;
        same("registrants after Clear", report.registered.len(), 0)
    })
}

fn notified(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        two.register(second)?.ok()?;
        // Every reservation notification is enabled: mask 0.
        bench.set_feature(0x82, one.ns.nsid, 0)?.ok()?;
        let request = bench.request_event()?;
        let kind = kinds(&one.ns)[0];
        one.acquire(bench, 0, kind, 0)?.ok()?;
        two.acquire(second, 1, kind, KEY)?.ok()?;
        let dw0 = bench.event(request)?;
        same("event type (I/O command specific)", dw0 & 0b111, 0b110)?;
        same("event information (reservation log)", dw0 >> 8 & 0xff, 0)?;
        same("log page", dw0 >> 16 & 0xff, 0x80)?;
        let log = bench.log(0x80, 64)?;
        check(u64_at(&log, 0) > 0, || "the log page has no entry".into())?;
        // 1: registration preempted.
        same("type of the notification", u8_at(&log, 8), 1)?;
        same(
            "namespace of the notification",
            u32_at(&log, 12),
            one.ns.nsid,
        )?;
        two.release(second, 1, 0)?.ok().map(drop)
    })
}

fn compare_and_verify(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        let oncs = u16_at(&bench.controller()?, 520);
        one.register(bench)?.ok()?;
        let mem = second.mem(two.ns.block_len)?;
        let zeros = vec![0; one.ns.block_len];
        for kind in kinds(&one.ns) {
            bench.write_blocks(&mut one.pair, &one.ns, 0, &zeros)?;
            one.acquire(bench, 0, kind, 0)?.ok()?;
            let (read, write) = allows(kind, false);
            for (bit, opcode, allowed) in [
                (0, opcode::COMPARE, read),
                (7, opcode::VERIFY, read),
                (3, opcode::WRITE_ZEROES, write),
                (2, opcode::DATASET_MANAGEMENT, write),
                (1, opcode::WRITE_UNCORRECTABLE, write),
            ] {
                if oncs >> bit & 1 == 0 {
                    continue;
                }
                mem.fill(0);
                let mut sqe = second.transfer(&two.ns, opcode, 0, 1, &mem)?;
                if opcode == opcode::DATASET_MANAGEMENT {
                    sqe = sqe.dw(10, 0).dw(11, 0b100).dw(12, 0);
                }
                let what = format!("type {kind}, opcode {opcode:02x}h by somebody else");
                judge(second, two, sqe, allowed, &what)?;
            }
            one.release(bench, 0, kind)?.ok()?;
        }
        Ok(())
    })
}

fn flush_conflicts(bench: &mut Bench) -> Verdict {
    with_two(bench, |bench, one, second, two| {
        one.register(bench)?.ok()?;
        for kind in kinds(&one.ns) {
            one.acquire(bench, 0, kind, 0)?.ok()?;
            let (_, write) = allows(kind, false);
            let flush = Sqe::new(opcode::FLUSH).nsid(two.ns.nsid);
            judge(second, two, flush, write, &format!("type {kind}, Flush"))?;
            one.release(bench, 0, kind)?.ok()?;
        }
        Ok(())
    })
}

/// Leaves an event request with attached namespace attribute notices enabled
/// (bit 8), and nothing from before.
fn expect_notice(second: &mut Bench) -> Verdict<u16> {
    if u32_at(&second.controller()?, 92) >> 8 & 1 == 0 {
        return not_supported("OAES bit 8: no Attached Namespace Attribute Notices");
    }
    second.set_feature(0x0b, 0, 1 << 8)?.ok()?;
    second.log(0x04, 4096)?;
    second.request_event()
}

/// Waits for the notice, which names the namespace in its log page.
fn noticed(second: &mut Bench, request: u16, nsid: u32) -> Verdict {
    let dw0 = second.event(request)?;
    same("event type (notice)", dw0 & 0b111, 0b010)?;
    same("event information (attribute changed)", dw0 >> 8 & 0xff, 0)?;
    same("log page", dw0 >> 16 & 0xff, 0x04)?;
    let log = second.log(0x04, 4096)?;
    same("the first namespace that changed", u32_at(&log, 0), nsid)
}

/// Does something with a new namespace, which may be shared, and deletes it.
fn with_new(
    bench: &mut Bench,
    is_shared: bool,
    work: impl FnOnce(&mut Bench, &mut Bench, u32) -> Verdict,
) -> Verdict {
    let flbas = needs_management(bench)?;
    bench.with_second(|bench, second| {
        let (sqe, mem) = create_sqe(bench, BLOCKS, BLOCKS, flbas)?;
        // NMIC bit 0.
        mem.write(30, &[u8::from(is_shared)]);
        let nsid = bench.admin(sqe)?.ok()?.dw0();
        let judged = work(bench, second, nsid);
        let allocated = u64_at(&bench.identify(0x11, nsid)?, 0) > 0;
        if allocated {
            delete(bench, nsid)?.ok()?;
        }
        judged
    })
}

fn attachment_is_told(bench: &mut Bench) -> Verdict {
    with_new(bench, false, |bench, second, nsid| {
        let other = own_id(second)?;
        for (select, active) in [(0, true), (1, false)] {
            let request = expect_notice(second)?;
            attach(bench, nsid, select, &[other])?.ok()?;
            noticed(second, request, nsid)?;
            let listed = second.active()?.contains(&nsid);
            check(listed == active, || {
                format!("namespace {nsid} is active there: {listed}; {active} was expected")
            })?;
            check(!bench.active()?.contains(&nsid), || {
                format!("namespace {nsid} became active where it was not attached")
            })?;
        }
        Ok(())
    })
}

fn deletion_is_told(bench: &mut Bench) -> Verdict {
    with_new(bench, false, |bench, second, nsid| {
        let other = own_id(second)?;
        attach(bench, nsid, 0, &[other])?.ok()?;
        let mut pair = second.pair(16)?;
        let identity = second.identify(0x00, nsid)?;
        let Some(ns) = Ns::new(nsid, identity) else {
            return not_supported("the new namespace has metadata");
        };
        second.read_blocks(&mut pair, &ns, 0, 1)?;
        let request = expect_notice(second)?;
        delete(bench, nsid)?.ok()?;
        noticed(second, request, nsid)?;
        let (cqe, _) = second.try_read_blocks(&mut pair, &ns, 0, 1)?;
        cqe.expect(status::INVALID_FIELD).map(drop)
    })
}

fn format_is_told(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(1, "Format NVM")?;
    shared(bench, |bench, second, ns| {
        let others = super::namespaces::formats(&ns.identity);
        let now = u32::from(u8_at(&ns.identity, 26)) & 0xf;
        let Some((index, block_len)) = others.into_iter().find(|(index, _)| *index != now) else {
            return not_supported("there is one LBA format");
        };
        let request = expect_notice(second)?;
        bench
            .admin(Sqe::new(0x80).nsid(ns.nsid).dw(10, index))?
            .ok()?;
        let told = noticed(second, request, ns.nsid);
        let found = second.ns().map(|ns| ns.block_len);
        bench
            .admin(Sqe::new(0x80).nsid(ns.nsid).dw(10, now))?
            .ok()?;
        told?;
        let found = u64::try_from(found?).unwrap_or(0);
        same("bytes of a block, for the other host", found, block_len)
    })
}

fn private_namespace(bench: &mut Bench) -> Verdict {
    with_new(bench, false, |bench, second, nsid| {
        let (own, other) = (own_id(bench)?, own_id(second)?);
        attach(bench, nsid, 0, &[own])?.ok()?;
        attach(bench, nsid, 0, &[other])?
            .expect(status::NAMESPACE_IS_PRIVATE)
            .map(drop)
    })
}

fn shared_namespace(bench: &mut Bench) -> Verdict {
    with_new(bench, true, |bench, second, nsid| {
        let mut both = [own_id(bench)?, own_id(second)?];
        both.sort_unstable();
        attach(bench, nsid, 0, &both)?.ok()?;
        for bench in [bench, second] {
            check(bench.active()?.contains(&nsid), || {
                format!("namespace {nsid} is not active for both")
            })?;
            let n = bench.identify(0x00, nsid)?;
            same("NMIC bit 0", u8_at(&n, 30) & 1, 1)?;
        }
        Ok(())
    })
}

fn reset_of_one(bench: &mut Bench) -> Verdict {
    shared(bench, |bench, second, ns| {
        let mut two = second.pair(16)?;
        let data = pattern(ns.block_len, 0x4e5);
        for _ in 0..5 {
            bench.start()?;
            second.write_blocks(&mut two, ns, 1, &data)?;
            let mut one = bench.pair(16)?;
            let found = bench.read_blocks(&mut one, ns, 1, 1)?;
            same_bytes("a block that the other host wrote", &found, &data)?;
        }
        Ok(())
    })
}
