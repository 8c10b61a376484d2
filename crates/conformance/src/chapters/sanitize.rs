//! Sanitize (Base 2.1, 5.1.22 and 8.1.24).

use std::time::Duration;

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Ns, pattern};
use crate::verdict::{Verdict, check, not_supported, same};
use crate::wire::{Sqe, bits, status, u8_at, u16_at, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "sanitize",
    title: "Sanitize and its log page",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    not_there, "Base 2.1, 5.1.22", "Sanitize is refused where SANICAP has no kind of it";
    bad_action, "Base 2.1, 5.1.22", "a reserved action, or one that SANICAP does not have, is refused (002h)";
    exit_without_failure, "Base 2.1, 5.1.22", "Exit Failure Mode without a failure succeeds and changes nothing";
    log_when_idle, "Base 2.1, 8.1.24", "the Sanitize Status log reports no progress while nothing runs";
    block_erase, "Base 2.1, 8.1.24", "a block erase leaves none of the old data, and the log reports its end";
    overwrite, "Base 2.1, 8.1.24", "an overwrite leaves its pattern where nothing is deallocated";
    overwrite_inverted, "Base 2.1, 5.1.22", "an overwrite that inverts its pattern between passes ends with the pattern, of two passes and of three";
    every_namespace, "Base 2.1, 8.1.24", "a sanitize operation is of every namespace";
    lockout, "Base 2.1, 8.1.24", "while it runs, commands of the host end with 01Dh or after it, and never see old data";
    event, "Base 2.1, 5.1.2", "the end of a sanitize operation is an event";
    works_after, "Base 2.1, 8.1.24", "namespaces keep their size and format, and work, after a sanitize operation";
    status_stays, "Base 2.1, 8.1.24", "the status of the last operation is there after a reset";
];

const BLOCK_ERASE: u32 = 2;
const OVERWRITE: u32 = 3;

/// SANICAP: bit 0 crypto erase, bit 1 block erase, bit 2 overwrite.
fn sanicap(bench: &mut Bench) -> Verdict<u32> {
    Ok(u32_at(&bench.controller()?, 328))
}

fn needs(bench: &mut Bench, bit: u32, name: &str) -> Verdict {
    if sanicap(bench)? >> bit & 1 == 0 {
        return not_supported(format!("SANICAP bit {bit}: no {name}"));
    }
    // A test before may have failed with an operation in progress.
    idle_log(bench).map(drop)
}

fn needs_any(bench: &mut Bench) -> Verdict<u32> {
    let action = match sanicap(bench)? {
        found if found >> 1 & 1 == 1 => BLOCK_ERASE,
        found if found >> 2 & 1 == 1 => OVERWRITE | 1 << 4,
        _ => return not_supported("SANICAP bits 2:1: no block erase and no overwrite"),
    };
    // A test before may have failed with an operation in progress.
    idle_log(bench)?;
    Ok(action)
}

fn sqe(action: u32, overwrite: u32) -> Sqe {
    Sqe::new(0x84).dw(10, action).dw(11, overwrite)
}

/// Starts an operation and waits for its end: SSTAT of the log.
fn sanitize(bench: &mut Bench, action: u32, overwrite: u32) -> Verdict<u16> {
    bench.admin(sqe(action, overwrite))?.ok()?;
    finished(bench, action)
}

/// Waits for the end of whatever runs; the log page then. As long as a drive may
/// take that is not small.
fn idle_log(bench: &mut Bench) -> Verdict<Vec<u8>> {
    let bound = bench.options().bound.saturating_mul(30);
    // One page for every look: there may be many.
    let page = bench.mem(4096)?;
    let read = bench.log_sqe(0x81, 0, 512, &page)?;
    let over = bench.until(bound, |bench| {
        bench.admin(read)?.ok()?;
        let over = u16_at(&page.bytes(2, 2), 0) & 0b111 != 2;
        if !over {
            bench.pass(Duration::from_millis(1))?;
        }
        Ok(over)
    })?;
    let log = page.bytes(0, 512);
    check(over, || {
        format!(
            "sanitize is not over after {bound:?}; progress {:#x}",
            u16_at(&log, 0)
        )
    })?;
    Ok(log)
}

/// Waits for the end of this operation, which succeeds: SSTAT.
fn finished(bench: &mut Bench, action: u32) -> Verdict<u16> {
    let log = idle_log(bench)?;
    same("SPROG when it is over", u16_at(&log, 0), 0xffff)?;
    same("SCDW10", u32_at(&log, 4), action)?;
    let found = u16_at(&log, 2) & 0b111;
    check(matches!(found, 1 | 4), || {
        format!("SSTAT: success (1 or 4) was expected, found {found}")
    })?;
    Ok(found)
}

fn not_there(bench: &mut Bench) -> Verdict {
    if sanicap(bench)? & 0b111 != 0 {
        return not_supported("SANICAP: it has Sanitize");
    }
    bench
        .admin(sqe(BLOCK_ERASE, 0))?
        .expect_any(&[status::INVALID_OPCODE, status::INVALID_FIELD])
        .map(drop)
}

fn bad_action(bench: &mut Bench) -> Verdict {
    needs_any(bench)?;
    let found = sanicap(bench)?;
    for action in [0, 6, 7] {
        bench.admin(sqe(action, 0))?.expect(status::INVALID_FIELD)?;
    }
    for (bit, action) in [(0, 4), (1, BLOCK_ERASE), (2, OVERWRITE)] {
        if found >> bit & 1 == 0 {
            bench.admin(sqe(action, 0))?.expect(status::INVALID_FIELD)?;
        }
    }
    Ok(())
}

fn exit_without_failure(bench: &mut Bench) -> Verdict {
    let action = needs_any(bench)?;
    sanitize(bench, action, 0)?;
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.block_len, 0xe817);
    bench.write_blocks(&mut pair, &ns, 0, &data)?;
    bench.admin(sqe(1, 0))?.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 0, 1)?;
    check(found == data, || "Exit Failure Mode changed a block".into())
}

fn log_when_idle(bench: &mut Bench) -> Verdict {
    needs_any(bench)?;
    let log = bench.log(0x81, 512)?;
    same("SPROG while nothing runs", u16_at(&log, 0), 0xffff)?;
    let found = u16_at(&log, 2) & 0b111;
    check(found != 2 && found <= 5, || format!("SSTAT is {found}"))
}

/// Writes to the first, a middle and the last block of a namespace.
fn marked(bench: &mut Bench, ns: &Ns) -> Verdict<Vec<(u64, Vec<u8>)>> {
    let mut pair = bench.pair(16)?;
    let places = [0, ns.blocks / 3, ns.blocks - 1];
    let mut all = Vec::new();
    for slba in places {
        let data = pattern(ns.block_len, slba ^ 0x5a17);
        bench.write_blocks(&mut pair, ns, slba, &data)?;
        all.push((slba, data));
    }
    Ok(all)
}

fn is_gone(bench: &mut Bench, ns: &Ns, marks: &[(u64, Vec<u8>)]) -> Verdict {
    let mut pair = bench.pair(16)?;
    for (slba, data) in marks {
        let found = bench.read_blocks(&mut pair, ns, *slba, 1)?;
        check(found != *data, || {
            format!("block {slba} of namespace {} has its old data", ns.nsid)
        })?;
    }
    Ok(())
}

fn block_erase(bench: &mut Bench) -> Verdict {
    needs(bench, 1, "block erase")?;
    let ns = bench.ns()?;
    let marks = marked(bench, &ns)?;
    sanitize(bench, BLOCK_ERASE, 0)?;
    is_gone(bench, &ns, &marks)
}

/// Overwrites with a pattern and reads it back, where nothing is deallocated.
fn overwritten(bench: &mut Bench, passes: u32, invert: u32) -> Verdict {
    needs(bench, 2, "overwrite")?;
    let ns = bench.ns()?;
    let marks = marked(bench, &ns)?;
    let word = 0x1357_9bdf_u32;
    // NDAS: no deallocation after it, unless SANICAP bit 29 inhibits that.
    let action = OVERWRITE | passes << 4 | invert << 8 | 1 << 9;
    if sanicap(bench)? >> 29 & 1 == 1 {
        return not_supported("SANICAP bit 29: deallocation cannot be left out");
    }
    let found = sanitize(bench, action, word)?;
    if found == 4 {
        return is_gone(bench, &ns, &marks);
    }
    let mut pair = bench.pair(16)?;
    let expected: Vec<u8> = word.to_le_bytes().repeat(ns.block_len / 4);
    for (slba, _) in &marks {
        let found = bench.read_blocks(&mut pair, &ns, *slba, 1)?;
        crate::verdict::same_bytes(
            &format!("block {slba} after an overwrite"),
            &found,
            &expected,
        )?;
    }
    Ok(())
}

fn overwrite(bench: &mut Bench) -> Verdict {
    overwritten(bench, 1, 0)
}

fn overwrite_inverted(bench: &mut Bench) -> Verdict {
    // The first of an even number of passes writes the inverse.
    overwritten(bench, 2, 1)?;
    bench.start()?;
    overwritten(bench, 3, 1)
}

fn every_namespace(bench: &mut Bench) -> Verdict {
    let action = needs_any(bench)?;
    let mut all = Vec::new();
    for nsid in bench.active()? {
        all.extend(Ns::new(nsid, bench.identify(0x00, nsid)?));
    }
    if all.len() < 2 {
        return not_supported("there is one namespace");
    }
    let mut marks = Vec::new();
    for ns in &all {
        marks.push(marked(bench, ns)?);
        // Each takes a queue pair of its own.
        bench.start()?;
    }
    sanitize(bench, action, 0)?;
    for (ns, marks) in all.iter().zip(&marks) {
        is_gone(bench, ns, marks)?;
        bench.start()?;
    }
    Ok(())
}

fn lockout(bench: &mut Bench) -> Verdict {
    let action = needs_any(bench)?;
    let ns = bench.ns()?;
    let marks = marked(bench, &ns)?;
    let mut pair = bench.pair(16)?;
    bench.admin(sqe(action, 0))?.ok()?;
    for _ in 0..10 {
        for (slba, old) in &marks {
            let (cqe, found) = bench.try_read_blocks(&mut pair, &ns, *slba, 1)?;
            let cqe = cqe.expect_any(&[status::SUCCESS, status::SANITIZE_IN_PROGRESS])?;
            check(!cqe.is_success() || found != *old, || {
                format!("block {slba} was read with its old data after Sanitize had begun")
            })?;
        }
    }
    // Another is refused as long as it runs, and taken when it is over.
    let again = bench.admin(sqe(action, 0))?;
    again.expect_any(&[status::SUCCESS, status::SANITIZE_IN_PROGRESS])?;
    finished(bench, action).map(drop)
}

fn event(bench: &mut Bench) -> Verdict {
    let action = needs_any(bench)?;
    let request = bench.request_event()?;
    bench.admin(sqe(action, 0))?.ok()?;
    finished_without_log(bench, request)?;
    finished(bench, action).map(drop)
}

fn finished_without_log(bench: &mut Bench, request: u16) -> Verdict {
    let dw0 = bench.event(request)?;
    // I/O Command Specific Status; Sanitize Operation Completed, or with
    // unexpected deallocation.
    same("event type", dw0 & 0b111, 0b110)?;
    let information = bits(u64::from(dw0), 15, 8);
    check(matches!(information, 1 | 2), || {
        format!("event information: 01h or 02h was expected, found {information:#x}")
    })?;
    same("log page", dw0 >> 16 & 0xff, 0x81)
}

fn works_after(bench: &mut Bench) -> Verdict {
    let action = needs_any(bench)?;
    let ns = bench.ns()?;
    sanitize(bench, action, 0)?;
    let again = bench.identify(0x00, ns.nsid)?;
    same(
        "FLBAS after Sanitize",
        u8_at(&again, 26),
        u8_at(&ns.identity, 26),
    )?;
    let (again, mut pair) = bench.io()?;
    same("NSZE after Sanitize", again.blocks, ns.blocks)?;
    for slba in [0, ns.blocks - 1] {
        let data = pattern(ns.block_len, slba);
        bench.write_blocks(&mut pair, &ns, slba, &data)?;
        let found = bench.read_blocks(&mut pair, &ns, slba, 1)?;
        check(found == data, || {
            format!("block {slba} does not keep its data")
        })?;
    }
    Ok(())
}

fn status_stays(bench: &mut Bench) -> Verdict {
    let action = needs_any(bench)?;
    let before = sanitize(bench, action, 0)?;
    bench.start()?;
    let log = bench.log(0x81, 512)?;
    same("SSTAT after a reset", u16_at(&log, 2) & 0b111, before)?;
    same("SCDW10 after a reset", u32_at(&log, 4), action)
}
