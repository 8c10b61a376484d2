//! Reservations by one host (Base 2.1, 7.5 to 7.8 and 8.1.22). The chapter `sharing` has the
//! effects of two hosts on each other.

use driver::bus::Fabrics;

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Cqe, Sqe, status, u8_at, u16_at, u32_at, u64_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "reservations",
    title: "Reservations by one host",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    capabilities, "NVM 1.1, 4.1.5.1", "namespaces support some type of reservation, where ONCS has reservations";
    register, "Base 2.1, 7.6", "a registration is reported, with its key, host and controller";
    register_again, "Base 2.1, 7.6", "registering again succeeds with the same key and conflicts (083h) with another";
    host_zero, "Base 2.1, 5.1.25.1.28", "a registration by Host Identifier 0 does not outlive a reset, or is refused where CTRATT says so", pcie why::IDENTIFIER;
    register_replace, "Base 2.1, 7.6", "a key is replaced by its owner, and by a host that ignores the existing key";
    unregister, "Base 2.1, 7.6", "unregistering needs the key (083h), and ends the registration";
    register_bad_action, "Base 2.1, 7.6", "reserved values of RREGA and CPTPL are refused (002h)";
    acquire_each, "Base 2.1, 7.5", "each type that RESCAP has is acquired, reported, and released";
    acquire_unregistered, "Base 2.1, 7.5", "acquiring without a registration conflicts (083h)";
    acquire_wrong_key, "Base 2.1, 7.5", "acquiring with another key conflicts (083h)";
    acquire_again, "Base 2.1, 7.5", "the holder may acquire the same type again, another conflicts (083h)";
    acquire_bad_fields, "Base 2.1, 7.5", "reserved types and actions of Reservation Acquire are refused (002h)";
    release_wrong, "Base 2.1, 7.7", "releasing another type is refused (002h), with another key it conflicts (083h)";
    release_not_held, "Base 2.1, 7.7", "releasing what is not held succeeds and does nothing";
    release_bad_action, "Base 2.1, 7.7", "a reserved RRELA is refused (002h)";
    clear, "Base 2.1, 7.7", "Clear ends the reservation and every registration";
    unregister_holder, "Base 2.1, 8.1.22", "unregistering the holder releases its reservation";
    holder_may_do_all, "Base 2.1, 8.1.22", "the holder reads and writes under every type";
    generation, "Base 2.1, 7.8", "the generation counts registrations, not reservations";
    report_extended, "Base 2.1, 7.8", "the extended report has the 128-bit Host Identifier";
    report_short, "Base 2.1, 7.8", "a report is cut where the host asked for less";
    ignore_existing_key, "Base 2.1, 7.5", "IEKEY is refused (002h) where RESCAP says so";
    persistence, "Base 2.1, 7.6", "persistence through power loss is set and reported where RESCAP has it, and refused where not";
    survives_reset, "Base 2.1, 8.1.22", "registrations and reservations are there after a controller reset";
    bad_namespace, "Base 2.1, 7", "reservation commands to NSID 0 or one beyond NN are refused (00Bh)";
];

/// A host: its key and what it has on the bench.
pub(super) struct Host {
    pub(super) ns: Ns,
    pub(super) pair: Pair,
    pub(super) key: u64,
    /// Host Identifier, 16 bytes.
    id: Vec<u8>,
    extended: bool,
}

pub(super) const KEY: u64 = 0x1122_3344_5566_7788;

/// Not supported without reservations; a host with an identifier of its own.
pub(super) fn host(bench: &mut Bench, key: u64) -> Verdict<Host> {
    bench.needs_oncs(5, "Reservations")?;
    let c = bench.controller()?;
    let extended = u32_at(&c, 96) & 1 == 1;
    let named = bench.bus().fabrics().map(Fabrics::connect_data);
    let id = match named {
        // Connect has set it.
        Some(data) => data[..16].to_vec(),
        None => {
            let id = pattern(16, key);
            let len = if extended { 16 } else { 8 };
            bench
                .set_feature_data(0x81, u32::from(extended), &id[..len])?
                .ok()?;
            id
        }
    };
    let (ns, pair) = bench.io()?;
    if kinds(&ns).is_empty() {
        return not_supported(format!("RESCAP of namespace {} has no type", ns.nsid));
    }
    Ok(Host {
        ns,
        pair,
        key,
        id,
        extended,
    })
}

/// Contents of Reservation Report, from its 24-byte entries.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) generation: u32,
    pub(super) kind: u8,
    persistent: u8,
    /// Key, host identifier, controller, whether it holds the reservation.
    pub(super) registered: Vec<(u64, Vec<u8>, u16, bool)>,
}

impl Report {
    /// The only registrant: its key, and whether it holds the reservation.
    fn only(&self) -> Verdict<(u64, bool)> {
        same("registrants", self.registered.len(), 1)?;
        Ok((self.registered[0].0, self.registered[0].3))
    }
}

impl Host {
    fn command(&self, bench: &mut Bench, opcode: u8, dw10: u32, keys: [u64; 2]) -> Verdict<Sqe> {
        let mem = bench.mem(4096)?;
        mem.write64(0, keys[0]);
        mem.write64(8, keys[1]);
        // Release has one key, Register and Acquire have two.
        let len = if opcode == opcode::RESERVATION_RELEASE {
            8
        } else {
            16
        };
        Ok(Sqe::new(opcode)
            .nsid(self.ns.nsid)
            .data(bench.pointer(&mem, 0, len)?)
            .dw(10, dw10))
    }

    fn run(&mut self, bench: &mut Bench, opcode: u8, dw10: u32, keys: [u64; 2]) -> Verdict<Cqe> {
        let sqe = self.command(bench, opcode, dw10, keys)?;
        bench.run(&mut self.pair, sqe)
    }

    /// RREGA 0: registers a key.
    pub(super) fn register(&mut self, bench: &mut Bench) -> Verdict<Cqe> {
        let key = self.key;
        self.run(bench, opcode::RESERVATION_REGISTER, 0, [0, key])
    }

    /// RREGA 1.
    pub(super) fn unregister(&mut self, bench: &mut Bench, key: u64) -> Verdict<Cqe> {
        self.run(bench, opcode::RESERVATION_REGISTER, 1, [key, 0])
    }

    /// RACQA 0, or 1 to preempt, or 2 to preempt and abort.
    pub(super) fn acquire(
        &mut self,
        bench: &mut Bench,
        action: u32,
        kind: u32,
        preempted: u64,
    ) -> Verdict<Cqe> {
        let keys = [self.key, preempted];
        self.run(bench, opcode::RESERVATION_ACQUIRE, kind << 8 | action, keys)
    }

    /// RRELA 0, or 1 to clear.
    pub(super) fn release(&mut self, bench: &mut Bench, action: u32, kind: u32) -> Verdict<Cqe> {
        let keys = [self.key, 0];
        self.run(bench, opcode::RESERVATION_RELEASE, kind << 8 | action, keys)
    }

    fn report_bytes(&mut self, bench: &mut Bench, extended: bool, len: usize) -> Verdict<Vec<u8>> {
        let mem = bench.mem(4096)?;
        mem.fill(0xa5);
        let dwords_z = u32::try_from(len / 4 - 1).unwrap_or(0);
        let sqe = Sqe::new(opcode::RESERVATION_REPORT)
            .nsid(self.ns.nsid)
            .data(bench.pointer(&mem, 0, len)?)
            .dw(10, dwords_z)
            .dw(11, u32::from(extended));
        bench.run(&mut self.pair, sqe)?.ok()?;
        Ok(mem.bytes(0, 4096))
    }

    pub(super) fn report(&mut self, bench: &mut Bench) -> Verdict<Report> {
        let extended = self.extended;
        let data = self.report_bytes(bench, extended, 4096)?;
        let (header, entry) = if extended { (64, 64) } else { (24, 24) };
        let count = usize::from(u16_at(&data, 5));
        check(header + count * entry <= 4096, || {
            format!("Reservation Report lists {count} registrants")
        })?;
        let registered = (0..count).map(|n| {
            let at = header + n * entry;
            let held = u8_at(&data, at + 2) & 1 == 1;
            let (key, id) = if extended {
                (u64_at(&data, at + 8), data[at + 16..at + 32].to_vec())
            } else {
                (u64_at(&data, at + 16), data[at + 8..at + 16].to_vec())
            };
            (key, id, u16_at(&data, at), held)
        });
        Ok(Report {
            generation: u32_at(&data, 0),
            kind: u8_at(&data, 4),
            persistent: u8_at(&data, 9),
            registered: registered.collect(),
        })
    }

    /// Ends every reservation and registration of every host.
    pub(super) fn clean(&mut self, bench: &mut Bench) -> Verdict {
        // IEKEY: whatever key this host has from before is replaced.
        let key = self.key;
        let cqe = self.run(bench, opcode::RESERVATION_REGISTER, 1 << 3, [0, key])?;
        if !cqe.is_success() {
            let replace = self.run(bench, opcode::RESERVATION_REGISTER, 1 << 3 | 2, [0, key])?;
            replace.ok()?;
        }
        self.release(bench, 1, 0)?.ok()?;
        let report = self.report(bench)?;
        same("registrants after Clear", report.registered.len(), 0)?;
        same("reservation type after Clear", report.kind, 0)
    }
}

/// Types that a namespace supports: RESCAP bits 6:1, from Write Exclusive (1) to
/// Exclusive Access - All Registrants (6).
pub(super) fn kinds(ns: &Ns) -> Vec<u32> {
    let rescap = u8_at(&ns.identity, 31);
    (1..=6).filter(|kind| rescap >> kind & 1 == 1).collect()
}

/// A clean host for a test, and nothing left after it.
fn with_host(bench: &mut Bench, work: impl FnOnce(&mut Bench, &mut Host) -> Verdict) -> Verdict {
    let mut host = host(bench, KEY)?;
    host.clean(bench)?;
    let judged = work(bench, &mut host);
    let cleaned = host.clean(bench);
    judged.and(cleaned)
}

fn capabilities(bench: &mut Bench) -> Verdict {
    let host = host(bench, KEY)?;
    let rescap = u8_at(&host.ns.identity, 31);
    check(rescap >> 1 & 0x3f != 0, || {
        format!("RESCAP {rescap:#x} has no type of reservation")
    })
}

fn register(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        let own = u16_at(&bench.controller()?, 78);
        host.register(bench)?.ok()?;
        let report = host.report(bench)?;
        same("reservation type", report.kind, 0)?;
        same("registrants", report.registered.len(), 1)?;
        let (key, id, controller, held) = &report.registered[0];
        same("reservation key", *key, KEY)?;
        same("controller", *controller, own)?;
        same_bytes("host identifier", id, &host.id[..id.len()])?;
        check(!held, || {
            "a registrant holds a reservation that no host acquired".into()
        })
    })
}

fn register_again(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        host.register(bench)?.ok()?;
        host.key = KEY + 1;
        let refused = host.register(bench)?.expect(status::RESERVATION_CONFLICT);
        host.key = KEY;
        refused?;
        let report = host.report(bench)?;
        same("reservation key", report.only()?.0, KEY)
    })
}

fn host_zero(bench: &mut Bench) -> Verdict {
    host(bench, KEY)?.clean(bench)?;
    bench.start()?;
    let id = bench.get_feature_data(0x81, crate::bench::Feature::Current, 8)?;
    same("Host Identifier after a reset", u64_at(&id, 0), 0)?;
    let refuses = u32_at(&bench.controller()?, 96) >> 18 & 1 == 1;
    let mut nobody = without_id(bench)?;
    let cqe = nobody.register(bench)?;
    if refuses {
        return cqe.expect_error().map(drop);
    }
    cqe.ok()?;
    same("registrants", nobody.report(bench)?.registered.len(), 1)?;
    bench.start()?;
    let mut nobody = without_id(bench)?;
    let left = nobody.report(bench)?.registered.len();
    same("registrants after a reset", left, 0)
}

/// A host that has not said who it is.
fn without_id(bench: &mut Bench) -> Verdict<Host> {
    let extended = u32_at(&bench.controller()?, 96) & 1 == 1;
    let (ns, pair) = bench.io()?;
    Ok(Host {
        ns,
        pair,
        key: KEY,
        id: vec![0; 16],
        extended,
    })
}

fn register_replace(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let replace = opcode::RESERVATION_REGISTER;
        host.run(bench, replace, 2, [KEY + 9, KEY + 1])?
            .expect(status::RESERVATION_CONFLICT)?;
        host.run(bench, replace, 2, [KEY, KEY + 1])?.ok()?;
        same(
            "key after Replace",
            host.report(bench)?.registered[0].0,
            KEY + 1,
        )?;
        host.run(bench, replace, 1 << 3 | 2, [0, KEY])?.ok()?;
        let report = host.report(bench)?;
        same("key after Replace with IEKEY", report.only()?.0, KEY)
    })
}

fn unregister(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        host.unregister(bench, KEY + 1)?
            .expect(status::RESERVATION_CONFLICT)?;
        same("registrants", host.report(bench)?.registered.len(), 1)?;
        host.unregister(bench, KEY)?.ok()?;
        same("registrants", host.report(bench)?.registered.len(), 0)?;
        host.unregister(bench, KEY)?
            .expect(status::RESERVATION_CONFLICT)
            .map(drop)
    })
}

fn register_bad_action(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        for dw10 in [3, 7, 0b01 << 30] {
            host.run(bench, opcode::RESERVATION_REGISTER, dw10, [0, KEY])?
                .expect(status::INVALID_FIELD)?;
        }
        same("registrants", host.report(bench)?.registered.len(), 0)
    })
}

fn acquire_each(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        for kind in kinds(&host.ns) {
            host.acquire(bench, 0, kind, 0)?.ok()?;
            let report = host.report(bench)?;
            same("reservation type", u32::from(report.kind), kind)?;
            check(report.only()?.1, || {
                format!("type {kind}: the report does not say who holds it")
            })?;
            host.release(bench, 0, kind)?.ok()?;
            let report = host.report(bench)?;
            same("reservation type after Release", report.kind, 0)?;
            check(!report.only()?.1, || {
                format!("type {kind}: the report names a holder after Release")
            })?;
        }
        Ok(())
    })
}

fn acquire_unregistered(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        let kind = kinds(&host.ns)[0];
        host.acquire(bench, 0, kind, 0)?
            .expect(status::RESERVATION_CONFLICT)
            .map(drop)
    })
}

fn acquire_wrong_key(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let kind = kinds(&host.ns)[0];
        host.key = KEY + 1;
        let refused = host
            .acquire(bench, 0, kind, 0)?
            .expect(status::RESERVATION_CONFLICT);
        host.key = KEY;
        refused?;
        same("reservation type", host.report(bench)?.kind, 0)
    })
}

fn acquire_again(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let kinds = kinds(&host.ns);
        host.acquire(bench, 0, kinds[0], 0)?.ok()?;
        host.acquire(bench, 0, kinds[0], 0)?.ok()?;
        for &other in &kinds[1..] {
            host.acquire(bench, 0, other, 0)?
                .expect(status::RESERVATION_CONFLICT)?;
        }
        same(
            "reservation type",
            u32::from(host.report(bench)?.kind),
            kinds[0],
        )
    })
}

fn acquire_bad_fields(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        for kind in [0, 7, 0xff] {
            host.acquire(bench, 0, kind, 0)?
                .expect(status::INVALID_FIELD)?;
        }
        let kind = kinds(&host.ns)[0];
        for action in [3, 7] {
            host.acquire(bench, action, kind, 0)?
                .expect(status::INVALID_FIELD)?;
        }
        same("reservation type", host.report(bench)?.kind, 0)
    })
}

fn release_wrong(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let kind = kinds(&host.ns)[0];
        host.acquire(bench, 0, kind, 0)?.ok()?;
        let other = kind % 6 + 1;
        host.release(bench, 0, other)?
            .expect(status::INVALID_FIELD)?;
        host.key = KEY + 1;
        let refused = host
            .release(bench, 0, kind)?
            .expect(status::RESERVATION_CONFLICT);
        host.key = KEY;
        refused?;
        same(
            "reservation type",
            u32::from(host.report(bench)?.kind),
            kind,
        )
    })
}

fn release_not_held(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let kind = kinds(&host.ns)[0];
        host.release(bench, 0, kind)?.ok()?;
        same("registrants", host.report(bench)?.registered.len(), 1)
    })
}

fn release_bad_action(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        for action in [2, 7] {
            host.release(bench, action, 1)?
                .expect(status::INVALID_FIELD)?;
        }
        Ok(())
    })
}

fn clear(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let kind = kinds(&host.ns)[0];
        host.acquire(bench, 0, kind, 0)?.ok()?;
        host.release(bench, 1, 0)?.ok()?;
        let report = host.report(bench)?;
        same("registrants after Clear", report.registered.len(), 0)?;
        same("reservation type after Clear", report.kind, 0)
    })
}

fn unregister_holder(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        for kind in kinds(&host.ns) {
            host.register(bench)?.ok()?;
            host.acquire(bench, 0, kind, 0)?.ok()?;
            host.unregister(bench, KEY)?.ok()?;
            let report = host.report(bench)?;
            let what = format!("type {kind} after its holder unregistered");
            same(&what, report.kind, 0)?;
        }
        Ok(())
    })
}

fn holder_may_do_all(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        for kind in kinds(&host.ns) {
            host.acquire(bench, 0, kind, 0)?.ok()?;
            let data = pattern(host.ns.block_len, kind.into());
            bench.write_blocks(&mut host.pair, &host.ns, 3, &data)?;
            let found = bench.read_blocks(&mut host.pair, &host.ns, 3, 1)?;
            same_bytes("a block of the holder's", &found, &data)?;
            host.release(bench, 0, kind)?.ok()?;
        }
        Ok(())
    })
}

fn generation(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        let first = host.report(bench)?.generation;
        host.register(bench)?.ok()?;
        let registered = host.report(bench)?.generation;
        same(
            "generation after Register",
            registered,
            first.wrapping_add(1),
        )?;
        let kind = kinds(&host.ns)[0];
        host.acquire(bench, 0, kind, 0)?.ok()?;
        host.release(bench, 0, kind)?.ok()?;
        let reserved = host.report(bench)?.generation;
        same("generation after Acquire and Release", reserved, registered)?;
        host.release(bench, 1, 0)?.ok()?;
        let cleared = host.report(bench)?.generation;
        same("generation after Clear", cleared, reserved.wrapping_add(1))
    })
}

fn report_extended(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        if !host.extended {
            return not_supported("CTRATT bit 0: Host Identifiers have 64 bits");
        }
        host.register(bench)?.ok()?;
        let data = host.report_bytes(bench, true, 4096)?;
        same("registrants", u16_at(&data, 5), 1)?;
        same("key at byte 72", u64_at(&data, 72), KEY)?;
        same_bytes("host identifier at byte 80", &data[80..96], &host.id)
    })
}

fn report_short(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        host.register(bench)?.ok()?;
        let extended = host.extended;
        let whole = host.report_bytes(bench, extended, 4096)?;
        for len in [4, 24, 28] {
            let data = host.report_bytes(bench, extended, len)?;
            same_bytes("a part of the report", &data[..len], &whole[..len])?;
            check(data[len..].iter().all(|b| *b == 0xa5), || {
                format!("more than {len} bytes of the report were written")
            })?;
        }
        Ok(())
    })
}

fn ignore_existing_key(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        // RESCAP bit 7: IEKEY as of 1.3 and later, when Acquire and Release refuse it.
        if u8_at(&host.ns.identity, 31) >> 7 == 0 {
            return not_supported("RESCAP bit 7: IEKEY as before 1.3");
        }
        host.register(bench)?.ok()?;
        let kind = kinds(&host.ns)[0];
        host.acquire(bench, 1 << 3, kind, 0)?
            .expect(status::INVALID_FIELD)?;
        host.release(bench, 1 << 3, kind)?
            .expect(status::INVALID_FIELD)
            .map(drop)
    })
}

fn persistence(bench: &mut Bench) -> Verdict {
    with_host(bench, |bench, host| {
        let supported = u8_at(&host.ns.identity, 31) & 1 == 1;
        let register = opcode::RESERVATION_REGISTER;
        if !supported {
            return host
                .run(bench, register, 0b11 << 30, [0, KEY])?
                .expect(status::INVALID_FIELD)
                .map(drop);
        }
        for (cptpl, expected) in [(0b11, 1), (0b00, 1), (0b10, 0)] {
            let dw10 = cptpl << 30 | 1 << 3;
            let cqe = host.run(bench, register, dw10, [0, KEY])?;
            cqe.ok()?;
            let what = format!("PTPLS after CPTPL {cptpl:02b}b");
            same(&what, host.report(bench)?.persistent, expected)?;
        }
        Ok(())
    })
}

fn survives_reset(bench: &mut Bench) -> Verdict {
    let mut before = host(bench, KEY)?;
    before.clean(bench)?;
    before.register(bench)?.ok()?;
    let kind = kinds(&before.ns)[0];
    before.acquire(bench, 0, kind, 0)?.ok()?;
    bench.start()?;
    let mut after = host(bench, KEY)?;
    let report = after.report(bench)?;
    let judged = same("registrants after a reset", report.registered.len(), 1)
        .and_then(|()| same("key after a reset", report.registered[0].0, KEY))
        .and_then(|()| {
            same(
                "reservation type after a reset",
                u32::from(report.kind),
                kind,
            )
        });
    after.clean(bench)?;
    judged
}

fn bad_namespace(bench: &mut Bench) -> Verdict {
    let mut host = host(bench, KEY)?;
    let nn = u32_at(&bench.controller()?, 516);
    for nsid in [0, nn.saturating_add(1)] {
        for opcode in [
            opcode::RESERVATION_REGISTER,
            opcode::RESERVATION_REPORT,
            opcode::RESERVATION_ACQUIRE,
            opcode::RESERVATION_RELEASE,
        ] {
            let sqe = host.command(bench, opcode, 1 << 8, [0, KEY])?.nsid(nsid);
            bench
                .run(&mut host.pair, sqe)?
                .expect(status::INVALID_NAMESPACE)?;
        }
    }
    Ok(())
}
