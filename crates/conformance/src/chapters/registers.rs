//! Properties of the controller (Base 2.1, 3.1.4), and enabling, resetting and
//! shutting down by them (3.5 to 3.7).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::register::{ACQ, AQA, ASQ, CAP, CC, CMBLOC, CRTO, CSTS, INTMC, INTMS, NSSR, VS};
use crate::bench::{Bench, CC_ENABLE};
use crate::verdict::{Verdict, check, fail, not_supported, same};
use crate::wire::{Sqe, status, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "registers",
    title: "Properties, enabling, resets and shutdown",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    cap_fields, "Base 2.1, 3.1.4.1", "CAP: queues of two entries at least, a command set, MPSMAX not below MPSMIN, reserved bits 0";
    cap_in_halves, "Base 2.1, 3.1.4.1", "CAP reads the same as 64 bits and as two times 32", pcie why::REGISTERS;
    cap_ready_modes, "Base 2.1, 3.1.4.1", "CAP.CRMS has Controller Ready With Media since 2.0, and CRTO agrees with CAP.TO";
    version, "Base 2.1, 3.1.4.2", "VS is a version, and Identify Controller has the same";
    reserved_read_zero, "Base 2.1, 3.1.4", "reserved properties, and those of features that CAP does not have, read as 0", pcie why::REGISTERS;
    read_only, "Base 2.1, 3.1.4", "writing CAP, VS, CRTO and CSTS.RDY changes nothing", pcie why::REGISTERS;
    queue_registers_while_enabled, "Base 2.1, 3.1.4.8", "AQA, ASQ and ACQ read back what was written, also while CC.EN is 1", pcie why::REGISTERS;
    queue_registers_in_halves, "Base 2.1, 3.1.4.9", "ASQ and ACQ are written and read in halves of 32 bits", pcie why::REGISTERS;
    cc_reads_back, "Base 2.1, 3.1.4.5", "CC reads back what was written";
    ready_edges, "Base 2.1, 3.5.1", "CSTS.RDY follows CC.EN, both ways, within the time in CAP, each time";
    ready_stays_low, "Base 2.1, 3.1.4.6", "CSTS.RDY stays 0 while CC.EN is 0";
    status_when_ready, "Base 2.1, 3.1.4.6", "an enabled controller reports no fatal status, no shutdown and no pause";
    smallest_admin_queues, "Base 2.1, 3.1.4.8", "admin queues of two entries work, over several laps", pcie why::RINGS;
    largest_admin_queues, "Base 2.1, 3.1.4.8", "admin queues of 4096 entries work", pcie why::RINGS;
    uneven_admin_queues, "Base 2.1, 3.1.4.8", "admin queues of different sizes work, over several laps", pcie why::RINGS;
    entry_sizes_unset, "Base 2.1, 5.2.1", "with CC.IOSQES and CC.IOCQES unset the admin queue works and no I/O queue can be made", pcie why::RINGS;
    entry_sizes_later, "Base 2.1, 3.1.4.5", "CC.IOSQES and CC.IOCQES may be set after CC.EN, before the first I/O queue", pcie why::RINGS;
    bad_page_size, "Base 2.1, 3.1.4.5", "a reset brings back a controller that was enabled with a page size beyond CAP.MPSMAX", pcie why::CONTROLLER;
    bad_command_set, "Base 2.1, 3.1.4.5", "a reset brings back a controller that was enabled with a reserved CC.CSS", pcie why::CONTROLLER;
    bad_entry_sizes, "Base 2.1, 3.1.4.5", "a reset brings back a controller that was enabled with impossible entry sizes", pcie why::CONTROLLER;
    bad_admin_queues, "Base 2.1, 3.1.4.9", "a reset brings back a controller that was enabled with admin queues where no memory is", pcie why::RINGS;
    admin_only, "Base 2.1, 3.1.4.1", "with CC.CSS 111b only the Admin command set is there, where CAP.CSS offers that";
    interrupt_mask, "Base 2.1, 3.1.4.3", "INTMS sets and INTMC clears the mask, both read it, a reset clears it; without MSI-X", pcie why::REGISTERS;
    controller_reset_keeps_admin_queues, "Base 2.1, 3.7.2", "a Controller Reset keeps AQA, ASQ and ACQ", pcie why::REGISTERS;
    controller_reset_forgets_queues, "Base 2.1, 3.7.2", "a Controller Reset deletes every I/O queue and forgets commands", pcie why::RINGS;
    function_reset, "Base 2.1, 3.7.2", "a function reset disables the controller and clears AQA, ASQ and ACQ", pcie why::FUNCTION;
    subsystem_reset_other_values, "Base 2.1, 3.1.4.7", "writing anything but \"NVMe\" to NSSR does nothing, and it reads 0";
    subsystem_reset, "Base 2.1, 3.1.4.7", "writing \"NVMe\" to NSSR resets; CSTS.NSSRO says so until it is written with 1";
    shutdown_normal, "Base 2.1, 3.6.1", "a normal shutdown ends with SHST 10b, and a reset brings the controller back";
    shutdown_abrupt, "Base 2.1, 3.6.1", "an abrupt shutdown ends with SHST 10b, and a reset brings the controller back";
    shutdown_keeps_data, "Base 2.1, 3.6.1", "what was written before a normal shutdown is there after it";
];

fn cap_fields(bench: &mut Bench) -> Verdict {
    let mqes = bench.cap_bits(15, 0);
    check(mqes >= 1, || format!("CAP.MQES: at least 1, found {mqes}"))?;
    same("CAP bits 23:19 (reserved)", bench.cap_bits(23, 19), 0)?;
    same("CAP bits 63:62 (reserved)", bench.cap_bits(63, 62), 0)?;
    // Of CSS bits 5:1 are reserved.
    same("CAP bits 42:38 (reserved)", bench.cap_bits(42, 38), 0)?;
    let sets = bench.cap_bits(44, 37);
    check(sets != 0, || "CAP.CSS: no command set at all".into())?;
    let (min, max) = (bench.cap_bits(51, 48), bench.cap_bits(55, 52));
    check(min <= max, || {
        format!("CAP.MPSMIN {min} is above CAP.MPSMAX {max}")
    })
}

fn cap_in_halves(bench: &mut Bench) -> Verdict {
    let low = u64::from(bench.read32(CAP)?);
    let high = u64::from(bench.read32(CAP + 4)?);
    same("CAP in halves", high << 32 | low, bench.read64(CAP)?)
}

fn cap_ready_modes(bench: &mut Bench) -> Verdict {
    let version = bench.read32(VS)?;
    if version < 0x0002_0000 {
        return not_supported(format!("VS {version:#x}: CRTO came with 2.0"));
    }
    same("CAP.CRMS bit 0 (CRWMS)", bench.cap_bits(59, 59), 1)?;
    let crto = bench.read32(CRTO)?;
    check(crto & 0xffff != 0, || "CRTO.CRWMT is 0".into())?;
    if bench.cap_bits(60, 60) == 0 {
        same("CRTO.CRIMT without CRIMS", crto >> 16, 0)?;
        let to = u64::from((crto & 0xffff).min(0xff));
        same("CAP.TO against CRTO.CRWMT", bench.cap_bits(31, 24), to)?;
    }
    Ok(())
}

fn version(bench: &mut Bench) -> Verdict {
    let vs = bench.read32(VS)?;
    check(vs >> 16 >= 1, || {
        format!("VS: the major version is at least 1, found {vs:#010x}")
    })?;
    let identity = bench.controller()?;
    // VER is 0 before 1.2 only.
    same("Identify Controller VER (83:80)", u32_at(&identity, 80), vs)
}

fn reserved_read_zero(bench: &mut Bench) -> Verdict {
    same("property 18h (reserved)", bench.read32(0x18)?, 0)?;
    if bench.cap_bits(57, 57) == 0 {
        same("CMBLOC without CAP.CMBS", bench.read32(CMBLOC)?, 0)?;
        same("CMBSZ without CAP.CMBS", bench.read32(0x3c)?, 0)?;
    }
    if bench.cap_bits(45, 45) == 0 {
        same("BPINFO without CAP.BPS", bench.read32(0x40)?, 0)?;
    }
    if bench.cap_bits(56, 56) == 0 {
        for offset in (0xe00..0xe1c).step_by(4) {
            let what = format!("property {offset:x}h without CAP.PMRS");
            same(&what, bench.read32(offset)?, 0)?;
        }
    }
    if bench.cap_bits(58, 58) == 0 {
        same("NSSD without CAP.NSSS", bench.read32(0x64)?, 0)?;
    }
    // 6Ch up to the persistent memory region, and what was E1Ch to FFFh.
    for offset in (0x6c..0xe00).chain(0xe1c..0x1000).step_by(4) {
        if offset % 4 == 0 {
            let what = format!("property {offset:x}h (reserved)");
            same(&what, bench.read32(offset)?, 0)?;
        }
    }
    Ok(())
}

fn read_only(bench: &mut Bench) -> Verdict {
    let before = (bench.read64(CAP)?, bench.read32(VS)?, bench.read32(CRTO)?);
    bench.write64(CAP, 0)?;
    bench.write64(CAP, u64::MAX)?;
    bench.write32(VS, 0xffff_ffff)?;
    bench.write32(CRTO, 0)?;
    // Only NSSRO (bit 4) reacts, to a 1.
    bench.write32(CSTS, 0)?;
    bench.idle()?;
    same("CAP after it was written", bench.read64(CAP)?, before.0)?;
    same("VS after it was written", bench.read32(VS)?, before.1)?;
    same("CRTO after it was written", bench.read32(CRTO)?, before.2)?;
    same("CSTS.RDY after it was written", bench.csts()? & 1, 1)?;
    bench.controller().map(drop)
}

fn queue_registers_while_enabled(bench: &mut Bench) -> Verdict {
    bench.disable()?;
    bench.set_admin_queues(17, 33)?;
    let written = (bench.read64(ASQ)?, bench.read64(ACQ)?);
    check(written.0 != 0 && written.1 != 0, || {
        "ASQ or ACQ reads 0 after it was written".into()
    })?;
    let found = bench.with_admin(|_, pair| Ok((pair.sq.mem.iova(), pair.cq.mem.iova())))?;
    for enabled in [false, true] {
        if enabled {
            bench.write32(CC, CC_ENABLE)?;
            bench.await_ready(true)?;
        }
        let when = if enabled { "enabled" } else { "disabled" };
        same(
            &format!("AQA while {when}"),
            bench.read32(AQA)?,
            0x0020_0010,
        )?;
        same(&format!("ASQ while {when}"), bench.read64(ASQ)?, found.0)?;
        same(&format!("ACQ while {when}"), bench.read64(ACQ)?, found.1)?;
    }
    Ok(())
}

fn queue_registers_in_halves(bench: &mut Bench) -> Verdict {
    bench.disable()?;
    for (offset, name) in [(ASQ, "ASQ"), (ACQ, "ACQ")] {
        bench.write32(offset, 0x8765_4000)?;
        bench.write32(offset + 4, 0x0000_0123)?;
        let whole = format!("{name} as 64 bits after it was written in halves");
        same(&whole, bench.read64(offset)?, 0x0123_8765_4000)?;
        bench.write64(offset, 0x0abc_dcba_9000)?;
        let what = format!("{name} in halves after it was written as 64 bits");
        same(&what, bench.read32(offset)?, 0xdcba_9000)?;
        same(&what, bench.read32(offset + 4)?, 0x0000_0abc)?;
    }
    Ok(())
}

fn cc_reads_back(bench: &mut Bench) -> Verdict {
    same("CC while enabled", bench.read32(CC)?, CC_ENABLE)?;
    bench.disable()?;
    same("CC after 0 was written", bench.read32(CC)?, 0)?;
    bench.write32(CC, CC_ENABLE & !1)?;
    same(
        "CC with entry sizes and without EN",
        bench.read32(CC)?,
        CC_ENABLE & !1,
    )
}

fn ready_edges(bench: &mut Bench) -> Verdict {
    for _ in 0..10 {
        bench.disable()?;
        bench.start()?;
        bench.controller()?;
    }
    Ok(())
}

fn ready_stays_low(bench: &mut Bench) -> Verdict {
    bench.disable()?;
    bench.set_admin_queues(8, 8)?;
    bench.idle()?;
    same("CSTS.RDY while CC.EN is 0", bench.csts()? & 1, 0)
}

fn status_when_ready(bench: &mut Bench) -> Verdict {
    let csts = bench.csts()?;
    // RDY alone; NSSRO (bit 4) may tell of a reset long ago.
    same("CSTS but bit 4", csts & !0x10, 1)
}

/// Does so many Identify commands, which checks identifiers, heads and phases on
/// the way.
fn identify_often(bench: &mut Bench, times: u32) -> Verdict {
    let (sqe, page) = bench.identify_sqe(0x01, 0)?;
    let first = bench.controller()?;
    for time in 0..times {
        page.fill(0);
        bench.admin(sqe)?.ok()?;
        check(page.bytes(0, 256) == first[..256], || {
            format!("Identify number {time} differs from the first")
        })?;
    }
    Ok(())
}

fn smallest_admin_queues(bench: &mut Bench) -> Verdict {
    bench.start_with(2, 2, CC_ENABLE)?;
    identify_often(bench, 9)
}

fn largest_admin_queues(bench: &mut Bench) -> Verdict {
    bench.start_with(4096, 4096, CC_ENABLE)?;
    same("AQA", bench.read32(AQA)?, 0x0fff_0fff)?;
    identify_often(bench, 3)
}

fn uneven_admin_queues(bench: &mut Bench) -> Verdict {
    for (sq, cq) in [(3, 7), (16, 2), (2, 16)] {
        bench.start_with(sq, cq, CC_ENABLE)?;
        identify_often(bench, 40)?;
    }
    Ok(())
}

fn entry_sizes_unset(bench: &mut Bench) -> Verdict {
    bench.start_with(16, 16, 0x0000_0001)?;
    bench.controller()?;
    bench.grant()?;
    let cq = bench.lay_out_cq(1, 8)?;
    bench
        .admin(Bench::create_cq_sqe(&cq))?
        .expect(status::INVALID_QUEUE_SIZE)
        .map(drop)
}

fn entry_sizes_later(bench: &mut Bench) -> Verdict {
    bench.start_with(16, 16, 0x0000_0001)?;
    bench.write32(CC, CC_ENABLE)?;
    bench.pair(8).map(drop)
}

/// Enables with a CC that no host may write: what the controller does then is
/// its own affair, but a reset must help.
fn survives(bench: &mut Bench, cc: u32) -> Verdict {
    bench.disable()?;
    bench.set_admin_queues(8, 8)?;
    bench.write32(CC, cc)?;
    let bound = bench.options().quiet;
    bench.until(bound, |bench| Ok(bench.csts()? & 0b11 != 0))?;
    bench.start()?;
    bench.controller().map(drop)
}

fn bad_page_size(bench: &mut Bench) -> Verdict {
    let most = bench.cap_bits(55, 52);
    if most == 15 {
        return not_supported("CAP.MPSMAX: every page size is supported");
    }
    survives(bench, CC_ENABLE | 0b1111 << 7)
}

fn bad_command_set(bench: &mut Bench) -> Verdict {
    for css in 1..=5 {
        survives(bench, CC_ENABLE | css << 4)?;
    }
    Ok(())
}

fn bad_entry_sizes(bench: &mut Bench) -> Verdict {
    // 2^3 and 2^15 bytes; then none at all for one of the two.
    for cc in [0x0033_0001, 0x00ff_0001, 0x0040_0001, 0x0006_0001] {
        survives(bench, cc)?;
    }
    Ok(())
}

fn bad_admin_queues(bench: &mut Bench) -> Verdict {
    for (aqa, asq, acq) in [
        (0x0007_0007, 0xdead_beef_0000, 0xdead_bee0_0000),
        (0x0007_0007, 0, 0),
        (0x0007_0007, u64::MAX - 0xfff, u64::MAX - 0xfff),
        // A queue has two entries at least.
        (0, 1 << 32, 2 << 32),
    ] {
        bench.disable()?;
        bench.write32(AQA, aqa)?;
        bench.write64(ASQ, asq)?;
        bench.write64(ACQ, acq)?;
        bench.write32(CC, CC_ENABLE)?;
        let bound = bench.options().quiet;
        bench.until(bound, |bench| Ok(bench.csts()? & 0b11 != 0))?;
        bench.start()?;
        bench.controller()?;
    }
    Ok(())
}

fn admin_only(bench: &mut Bench) -> Verdict {
    if bench.cap_bits(44, 44) == 0 {
        return not_supported("CAP.CSS bit 7: no operation without an I/O command set");
    }
    bench.start_with(16, 16, CC_ENABLE | 0b111 << 4)?;
    bench.controller().map(drop)
}

fn interrupt_mask(bench: &mut Bench) -> Verdict {
    // With MSI-X enabled no host may use these.
    if let Some(at) = bench.capability(0x11)? {
        let control = bench.config16(at + 2)?;
        bench.set_config16(at + 2, control & !(1 << 15))?;
    }
    let judged = mask_judged(bench);
    bench.enable_function()?;
    judged
}

fn mask_judged(bench: &mut Bench) -> Verdict {
    let both = |bench: &Bench, when: &str, expected: u32| {
        same(&format!("INTMS {when}"), bench.read32(INTMS)?, expected)?;
        same(&format!("INTMC {when}"), bench.read32(INTMC)?, expected)
    };
    both(bench, "at first", 0)?;
    bench.write32(INTMS, 1)?;
    both(bench, "after INTMS was written with 1", 1)?;
    bench.write32(INTMS, 0)?;
    both(bench, "after INTMS was written with 0", 1)?;
    bench.write32(INTMC, 0)?;
    both(bench, "after INTMC was written with 0", 1)?;
    bench.write32(INTMC, 1)?;
    both(bench, "after INTMC was written with 1", 0)?;
    bench.write32(INTMS, 1)?;
    bench.disable()?;
    both(bench, "after a Controller Reset", 0)
}

fn controller_reset_keeps_admin_queues(bench: &mut Bench) -> Verdict {
    let before = (bench.read32(AQA)?, bench.read64(ASQ)?, bench.read64(ACQ)?);
    bench.write32(CC, 0)?;
    bench.await_ready(false)?;
    same("AQA after the reset", bench.read32(AQA)?, before.0)?;
    same("ASQ after the reset", bench.read64(ASQ)?, before.1)?;
    same("ACQ after the reset", bench.read64(ACQ)?, before.2)
}

fn controller_reset_forgets_queues(bench: &mut Bench) -> Verdict {
    bench.pair(8)?;
    bench.start()?;
    bench.grant()?;
    bench.delete_sq(1)?.expect(status::INVALID_QUEUE_ID)?;
    bench.delete_cq(1)?.expect(status::INVALID_QUEUE_ID)?;
    // The previous event requests are gone, too: as many as ever are taken.
    let request = bench.request_event()?;
    check(!bench.admin_completes(request)?, || {
        "an event request is completed after a reset without an event".into()
    })?;
    bench.pair(8).map(drop)
}

fn function_reset(bench: &mut Bench) -> Verdict {
    bench.pair(8)?;
    bench.bus().reset_function()?;
    bench.forget();
    same("CC after a function reset", bench.read32(CC)?, 0)?;
    bench.await_ready(false)?;
    same("AQA after a function reset", bench.read32(AQA)?, 0)?;
    same("ASQ after a function reset", bench.read64(ASQ)?, 0)?;
    same("ACQ after a function reset", bench.read64(ACQ)?, 0)?;
    bench.enable_function()?;
    bench.start()?;
    bench.controller().map(drop)
}

fn needs_subsystem_reset(bench: &Bench) -> Verdict {
    if bench.cap_bits(36, 36) == 0 {
        return not_supported("CAP.NSSRS: no NVM Subsystem Reset");
    }
    Ok(())
}

fn subsystem_reset_other_values(bench: &mut Bench) -> Verdict {
    needs_subsystem_reset(bench)?;
    for value in [0, 1, 0x654d_564e, 0x4e56_4d64, u32::MAX] {
        bench.write32(NSSR, value)?;
    }
    bench.idle()?;
    same("CSTS.RDY after other values in NSSR", bench.csts()? & 1, 1)?;
    same("NSSR when it is read", bench.read32(NSSR)?, 0)?;
    bench.controller().map(drop)
}

fn subsystem_reset(bench: &mut Bench) -> Verdict {
    needs_subsystem_reset(bench)?;
    bench.write32(NSSR, 0x4e56_4d65)?;
    let bound = bench.options().bound;
    let reset = bench.until(bound, |bench| {
        let csts = bench.csts()?;
        Ok(csts != u32::MAX && csts & 0x11 == 0x10)
    })?;
    let csts = bench.csts()?;
    check(reset, || {
        format!("after NSSR: expected CSTS.RDY 0 and CSTS.NSSRO 1, found {csts:#x}")
    })?;
    same(
        "CC.EN after an NVM Subsystem Reset",
        bench.read32(CC)? & 1,
        0,
    )?;
    bench.forget();
    bench.enable_function()?;
    bench.write32(CSTS, 0x10)?;
    same(
        "CSTS.NSSRO after it was written with 1",
        bench.csts()? & 0x10,
        0,
    )?;
    bench.start()?;
    bench.controller().map(drop)
}

/// Shuts down by CC.SHN, and waits for SHST as long as RTD3E says.
fn shut_down(bench: &mut Bench, shn: u32) -> Verdict {
    let identity = bench.controller()?;
    let rtd3e = std::time::Duration::from_micros(u32_at(&identity, 88).into());
    let bound = rtd3e.max(bench.options().bound);
    bench.write32(CC, CC_ENABLE | shn << 14)?;
    let done = bench.until(bound, |bench| Ok(bench.csts()? & 0b1100 == 0b1000))?;
    let csts = bench.csts()?;
    check(done, || {
        format!("CSTS.SHST: expected 10b within {bound:?}, found {csts:#x}")
    })?;
    same("CSTS.CFS after the shutdown", csts & 0b10, 0)?;
    bench.start()?;
    same("CSTS.SHST after the reset", bench.csts()? & 0b1100, 0)?;
    bench.controller().map(drop)
}

fn shutdown_normal(bench: &mut Bench) -> Verdict {
    bench.pair(8)?;
    shut_down(bench, 0b01)
}

fn shutdown_abrupt(bench: &mut Bench) -> Verdict {
    bench.pair(8)?;
    shut_down(bench, 0b10)
}

fn shutdown_keeps_data(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = crate::bench::pattern(ns.block_len, 0x5d0);
    bench.write_blocks(&mut pair, &ns, 3, &data)?;
    shut_down(bench, 0b01)?;
    let (ns, mut pair) = bench.io()?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 1)?;
    if found != data {
        return fail("block 3 is not as it was written before the shutdown");
    }
    // Ask once more with a command of its own kind.
    bench
        .run(&mut pair, Sqe::new(0x00).nsid(ns.nsid))?
        .ok()
        .map(drop)
}
