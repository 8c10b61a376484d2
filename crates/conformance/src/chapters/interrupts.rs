//! Interrupts by MSI-X and MSI (PCIe Transport 1.1, 3.5; Base 2.1, 5.1.25.2.2 and
//! 5.1.25.2.3).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::register::{INTMC, INTMS};
use crate::bench::{Bench, Pair, opcode};
use crate::verdict::{Verdict, check, not_supported};
use crate::wire::Sqe;

pub(super) const CHAPTER: Chapter = Chapter {
    name: "interrupts",
    title: "Interrupts by MSI-X and MSI",
    scope: Scope::Pcie(why::INTERRUPTS),
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    admin_vector, "PCIe Transport 1.1, 3.5", "admin completions signal vector 0";
    own_vector, "Base 2.1, 5.2.1", "completions signal the vector of their queue and no other";
    disabled, "Base 2.1, 5.2.1", "a queue made without interrupts signals nothing";
    shared_vector, "Base 2.1, 5.2.1", "two queues may share a vector, and each signals it";
    every_completion, "PCIe Transport 1.1, 3.5", "no completion is left without a signal after it, one at a time";
    batch, "PCIe Transport 1.1, 3.5", "a batch of completions is signalled at least once, and after its last";
    event_signals, "Base 2.1, 5.1.2", "an asynchronous event signals vector 0";
    coalescing_on, "Base 2.1, 5.1.25.2.2", "with coalescing a single completion is signalled within the time set";
    coalescing_disabled, "Base 2.1, 5.1.25.2.3", "a vector that is not coalesced signals at once";
    coalescing_admin, "Base 2.1, 5.1.25.2.2", "admin completions are not coalesced";
    msi, "PCIe Transport 1.1, 3.5", "with MSI-X disabled and MSI enabled, completions signal the message of MSI";
    msi_masked, "Base 2.1, 3.1.4.3", "INTMS defers the message, INTMC releases it for completions that were not acknowledged";
];

/// Does something with MSI enabled, one message, and MSI-X disabled.
fn with_msi(
    bench: &mut Bench,
    work: impl FnOnce(&mut Bench, &memory::EventFd) -> Verdict,
) -> Verdict {
    let Some(msi) = bench.capability(0x05)? else {
        return not_supported("there is no MSI capability");
    };
    let eventfd = bench.message_interrupt(0)?;
    if let Some(at) = bench.capability(0x11)? {
        let control = bench.config16(at + 2)?;
        bench.set_config16(at + 2, control & !(1 << 15))?;
    }
    // Enable in bit 0, one message in bits 6:4.
    let control = bench.config16(msi + 2)?;
    bench.set_config16(msi + 2, control & !(0b111 << 4) | 1)?;
    eventfd.drain();
    let judged = work(bench, &eventfd);
    bench.write32(INTMC, 1)?;
    bench.set_config16(msi + 2, control & !1)?;
    bench.enable_function()?;
    judged
}

fn msi(bench: &mut Bench) -> Verdict {
    with_msi(bench, |bench, eventfd| {
        for _ in 0..5 {
            let came = admin_signalled(bench, eventfd)?;
            check(came, || "a completion without a signal of MSI".into())?;
        }
        let nsid = bench.ns()?.nsid;
        let mut pair = pair_with(bench, 1, 0)?;
        bench.idle()?;
        for _ in 0..5 {
            let came = flush_signalled(bench, &mut pair, nsid, eventfd)?;
            check(came, || "an I/O completion without a signal of MSI".into())?;
        }
        Ok(())
    })
}

fn msi_masked(bench: &mut Bench) -> Verdict {
    with_msi(bench, |bench, eventfd| {
        let nsid = bench.ns()?.nsid;
        let mut pair = pair_with(bench, 1, 0)?;
        bench.idle()?;
        bench.write32(INTMS, 1)?;
        eventfd.drain();
        bench.submit(&mut pair.sq, flush(nsid))?;
        let bound = bench.options().bound;
        let posted = bench.until(bound, |_| Ok(pair.cq.peek().is_some()))?;
        check(posted, || {
            "no completion while interrupts are masked".into()
        })?;
        let came = bench.signalled_in_vain(eventfd)?;
        check(!came, || "a signal came although INTMS masks it".into())?;
        bench.write32(INTMC, 1)?;
        let came = bench.signalled(eventfd)?;
        check(came, || {
            "no signal after INTMC, with a completion that was not acknowledged".into()
        })?;
        bench.wait(&mut pair.cq)?.ok().map(drop)
    })
}

fn needs_vectors(bench: &mut Bench, count: u16) -> Verdict {
    if bench.capability(0x11)?.is_none() {
        return not_supported("there is no MSI-X capability");
    }
    if bench.bus().vectors() < count {
        return not_supported(format!("the target has {} vectors", bench.bus().vectors()));
    }
    Ok(())
}

fn flush(nsid: u32) -> Sqe {
    Sqe::new(opcode::FLUSH).nsid(nsid)
}

/// Flushes; whether the completion is signalled. It is looked for after that: what a
/// host has acknowledged already needs no signal.
fn flush_signalled(
    bench: &mut Bench,
    pair: &mut Pair,
    nsid: u32,
    eventfd: &memory::EventFd,
) -> Verdict<bool> {
    eventfd.drain();
    bench.submit(&mut pair.sq, flush(nsid))?;
    let came = bench.signalled(eventfd)?;
    bench.wait(&mut pair.cq)?.ok()?;
    Ok(came)
}

/// Asks for a feature, arbitration; whether the completion is signalled.
fn admin_signalled(bench: &mut Bench, eventfd: &memory::EventFd) -> Verdict<bool> {
    eventfd.drain();
    let cid = bench.admin_submit(Sqe::new(0x0a).dw(10, 0x01))?;
    let came = bench.signalled(eventfd)?;
    bench.admin_wait(cid)?.ok()?;
    Ok(came)
}

/// A queue pair whose completion queue has this vector.
fn pair_with(bench: &mut Bench, id: u16, vector: u16) -> Verdict<Pair> {
    let cq = bench.create_cq_with(id, 16, u32::from(vector) << 16 | 0b11)?;
    let sq = bench.create_sq(id, 16, id)?;
    Ok(Pair { sq, cq })
}

fn admin_vector(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 1)?;
    let eventfd = bench.interrupt(0)?;
    for _ in 0..5 {
        let came = admin_signalled(bench, &eventfd)?;
        check(came, || {
            "an admin completion without a signal on vector 0".into()
        })?;
    }
    Ok(())
}

fn own_vector(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 3)?;
    let nsid = bench.ns()?.nsid;
    let own = bench.interrupt(2)?;
    let other = bench.interrupt(1)?;
    let mut pair = pair_with(bench, 1, 2)?;
    for _ in 0..5 {
        other.drain();
        let came = flush_signalled(bench, &mut pair, nsid, &own)?;
        check(came, || {
            "a completion without a signal on its vector 2".into()
        })?;
        let strayed = bench.signalled_in_vain(&other)?;
        check(!strayed, || {
            "vector 1 is signalled, which no queue has".into()
        })?;
    }
    Ok(())
}

fn disabled(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 2)?;
    let nsid = bench.ns()?.nsid;
    let eventfd = bench.interrupt(1)?;
    // Vector 1 is named, and interrupts are not enabled.
    let cq = bench.create_cq_with(1, 16, 1 << 16 | 0b01)?;
    let sq = bench.create_sq(1, 16, 1)?;
    let mut pair = Pair { sq, cq };
    eventfd.drain();
    for _ in 0..5 {
        bench.run(&mut pair, flush(nsid))?.ok()?;
    }
    let came = bench.signalled_in_vain(&eventfd)?;
    check(!came, || {
        "a queue made without interrupts signals its vector".into()
    })
}

fn shared_vector(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 2)?;
    let nsid = bench.ns()?.nsid;
    let eventfd = bench.interrupt(1)?;
    let mut one = pair_with(bench, 1, 1)?;
    let mut two = pair_with(bench, 2, 1)?;
    for _ in 0..5 {
        for pair in [&mut one, &mut two] {
            let came = flush_signalled(bench, pair, nsid, &eventfd)?;
            check(came, || {
                format!(
                    "queue {} completes without a signal on the vector that it shares",
                    pair.cq.id
                )
            })?;
        }
    }
    Ok(())
}

/// Waits for a signal after each time that the queue was found empty, as a
/// driver does that sleeps; never looks before it was signalled.
fn sleep_until_done(
    bench: &mut Bench,
    eventfd: &memory::EventFd,
    pair: &mut Pair,
    count: u32,
) -> Verdict {
    let mut done = 0;
    while done < count {
        check(bench.signalled(eventfd)?, || {
            format!("{done} of {count} commands completed, and no signal announces the others")
        })?;
        while let Some(cqe) = bench.poll(&mut pair.cq)? {
            cqe.ok()?;
            done += 1;
        }
    }
    Ok(())
}

fn every_completion(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 2)?;
    let nsid = bench.ns()?.nsid;
    let eventfd = bench.interrupt(1)?;
    let mut pair = pair_with(bench, 1, 1)?;
    for _ in 0..50 {
        bench.submit(&mut pair.sq, flush(nsid))?;
        sleep_until_done(bench, &eventfd, &mut pair, 1)?;
    }
    Ok(())
}

fn batch(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 2)?;
    let nsid = bench.ns()?.nsid;
    let eventfd = bench.interrupt(1)?;
    let mut pair = pair_with(bench, 1, 1)?;
    for turn in 0..30 {
        let count = turn % 15 + 1;
        for _ in 0..count {
            bench.put(&mut pair.sq, flush(nsid));
        }
        bench.ring_sq(&pair.sq)?;
        sleep_until_done(bench, &eventfd, &mut pair, count)?;
    }
    Ok(())
}

fn event_signals(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 1)?;
    let eventfd = bench.interrupt(0)?;
    bench.create_cq(1, 8)?;
    bench.create_sq(1, 8, 1)?;
    let request = bench.request_event()?;
    bench.idle()?;
    eventfd.drain();
    bench.ring_loudly(crate::bench::tail_of(1), 0xfff0)?;
    let came = bench.signalled(&eventfd)?;
    check(came, || "an event without a signal on vector 0".into())?;
    bench.event(request).map(drop)
}

/// THR 0's based, TIME in units of 100 microseconds.
fn coalesce(bench: &mut Bench, threshold: u32, time: u32) -> Verdict {
    let value = time << 8 | (threshold - 1);
    bench.set_feature(0x08, 0, value)?.ok().map(drop)
}

fn coalescing_on(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 2)?;
    let nsid = bench.ns()?.nsid;
    // Sixteen completions, or two milliseconds.
    coalesce(bench, 16, 20)?;
    let eventfd = bench.interrupt(1)?;
    let mut pair = pair_with(bench, 1, 1)?;
    for count in [1, 3, 15, 1] {
        for _ in 0..count {
            bench.put(&mut pair.sq, flush(nsid));
        }
        bench.ring_sq(&pair.sq)?;
        sleep_until_done(bench, &eventfd, &mut pair, count)?;
    }
    Ok(())
}

/// A vector that is not coalesced signals long before the time set: in one of
/// five tries, so that a busy machine is no fault of the controller.
fn prompt(
    bench: &mut Bench,
    what: &str,
    mut signalled: impl FnMut(&mut Bench) -> Verdict<bool>,
) -> Verdict {
    // 25.5 ms are set; what is coalesced cannot come in less.
    const PROMPT_NS: u64 = 15_000_000;
    for _ in 0..5 {
        let start = bench.bus().now_ns();
        check(signalled(bench)?, || format!("{what} without a signal"))?;
        if bench.bus().now_ns().saturating_sub(start) < PROMPT_NS {
            return Ok(());
        }
    }
    crate::verdict::fail(format!("{what} is signalled late, five times in a row"))
}

fn coalescing_disabled(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 2)?;
    let nsid = bench.ns()?.nsid;
    coalesce(bench, 256, 255)?;
    bench.set_feature(0x09, 0, 1 << 16 | 1)?.ok()?;
    let eventfd = bench.interrupt(1)?;
    let mut pair = pair_with(bench, 1, 1)?;
    prompt(bench, "a completion that is not coalesced", |bench| {
        flush_signalled(bench, &mut pair, nsid, &eventfd)
    })
}

fn coalescing_admin(bench: &mut Bench) -> Verdict {
    needs_vectors(bench, 1)?;
    coalesce(bench, 256, 255)?;
    let eventfd = bench.interrupt(0)?;
    prompt(bench, "an admin completion", |bench| {
        admin_signalled(bench, &eventfd)
    })
}
