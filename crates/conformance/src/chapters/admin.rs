//! Admin commands but Identify, features and log pages: Abort, Asynchronous
//! Event Request, and what is not there (Base 2.1, 5.1).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::Bench;
use crate::verdict::{Verdict, check, not_supported, same};
use crate::wire::{Sqe, status, u8_at, u16_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "admin",
    title: "Abort, asynchronous events and the other admin commands",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    unknown_opcodes, "Base 2.1, 5.1", "admin opcodes that are reserved are refused (001h), every one";
    effects_of_missing, "Base 2.1, 5.1", "optional admin commands that OACS does not have are refused (001h)";
    sgl_for_admin, "PCIe Transport 1.1, 2.2", "admin commands with SGLs are refused (002h)";
    fused_admin, "Base 2.1, 3.4.2", "admin commands with a reserved FUSE are refused (002h)";
    abort_unknown, "Base 2.1, 5.1.1", "Abort of a command that is not there succeeds and says that nothing was aborted";
    abort_event_request, "Base 2.1, 5.1.1", "Abort of a held Asynchronous Event Request ends it (007h), or says that it did not";
    event_requests_held, "Base 2.1, 5.1.2", "Asynchronous Event Requests wait, as many as AERL says";
    event_request_limit, "Base 2.1, 5.1.2", "one Asynchronous Event Request more than AERL is refused (105h)";
    event_requests_hold_no_entry, "Base 2.1, 5.1.2", "held Asynchronous Event Requests leave room in completion queues of two entries", pcie why::RINGS;
    event_masked_until_read, "Base 2.1, 5.1.2", "an event of a type comes once, and again only after its log page was read", pcie why::RINGS;
    event_retained, "Base 2.1, 5.1.12", "reading a log page with Retain Asynchronous Event leaves its event masked", pcie why::RINGS;
    keep_alive, "Base 2.1, 5.1.14", "Keep Alive succeeds where KAS says so, and is no opcode (001h) where not";
    firmware_refused, "Base 2.1, 5.1.8", "Firmware Commit to a slot that is not there, or that is read-only, is refused";
    device_self_test, "Base 2.1, 5.1.5", "Device Self-test is refused (001h) where OACS does not have it";
];

fn unknown_opcodes(bench: &mut Bench) -> Verdict {
    // Reserved in Base 2.1, figure of admin opcodes; C0h and above belong to
    // vendors.
    let reserved = (0x00..=0xbf_u8).filter(|opcode| {
        !matches!(opcode,
            0x00..=0x02 | 0x04..=0x06 | 0x08..=0x0a | 0x0c..=0x0d | 0x10..=0x11 | 0x14..=0x15
            | 0x18..=0x1a | 0x1c..=0x1e | 0x20..=0x21 | 0x24 | 0x28 | 0x2d | 0x38..=0x3f
            | 0x40..=0x46 | 0x7c | 0x7f | 0x80..=0x8f)
    });
    for opcode in reserved {
        bench
            .admin(Sqe::new(opcode))?
            .expect(status::INVALID_OPCODE)?;
    }
    Ok(())
}

fn effects_of_missing(bench: &mut Bench) -> Verdict {
    let oacs = u16_at(&bench.controller()?, 256);
    for (bit, opcodes) in [
        (0, &[0x81, 0x82][..]),
        (1, &[0x80]),
        (2, &[0x10, 0x11]),
        (3, &[0x0d, 0x15]),
        (5, &[0x19, 0x1a]),
        (6, &[0x1d, 0x1e]),
        (7, &[0x1c]),
        (8, &[0x7c]),
        (9, &[0x86]),
        (10, &[0x24]),
    ] {
        for &opcode in opcodes {
            if oacs >> bit & 1 == 0 {
                bench
                    .admin(Sqe::new(opcode).nsid(1))?
                    .expect(status::INVALID_OPCODE)?;
            }
        }
    }
    Ok(())
}

fn sgl_for_admin(bench: &mut Bench) -> Verdict {
    let (sqe, _) = bench.identify_sqe(1, 0)?;
    for psdt in [0b01, 0b10, 0b11] {
        bench.admin(sqe.psdt(psdt))?.expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn fused_admin(bench: &mut Bench) -> Verdict {
    let (sqe, _) = bench.identify_sqe(1, 0)?;
    bench
        .admin(sqe.fuse(0b11))?
        .expect(status::INVALID_FIELD)
        .map(drop)
}

fn abort(sqid: u16, cid: u16) -> Sqe {
    Sqe::new(0x08).dw(10, u32::from(cid) << 16 | u32::from(sqid))
}

fn abort_unknown(bench: &mut Bench) -> Verdict {
    for (sqid, cid) in [(0, 0x7777), (1, 3), (0xffff, 0)] {
        let cqe = bench.admin(abort(sqid, cid))?;
        // A queue that does not exist may also be an invalid field.
        let cqe = cqe.expect_any(&[status::SUCCESS, status::INVALID_FIELD])?;
        if cqe.is_success() {
            same("dword 0, bit 0: not aborted", cqe.dw0() & 1, 1)?;
        }
    }
    Ok(())
}

fn abort_event_request(bench: &mut Bench) -> Verdict {
    let request = bench.request_event()?;
    let cqe = bench.admin(abort(0, request))?.ok()?;
    if cqe.dw0() & 1 == 1 {
        let came = bench.admin_completes(request)?;
        return check(!came, || "it was not aborted, and completes".into());
    }
    bench
        .admin_wait(request)?
        .expect(status::ABORT_REQUESTED)
        .map(drop)
}

/// Leaves as many event requests as AERL allows.
fn fill_event_requests(bench: &mut Bench) -> Verdict<Vec<u16>> {
    let aerl_z = u8_at(&bench.controller()?, 259);
    let most = u32::from(aerl_z) + 1;
    if most > 60 {
        return not_supported(format!(
            "AERL allows {most} requests, more than the queue holds"
        ));
    }
    (0..most).map(|_| bench.request_event()).collect()
}

fn event_requests_held(bench: &mut Bench) -> Verdict {
    let requests = fill_event_requests(bench)?;
    for request in requests {
        check(!bench.admin_completes(request)?, || {
            "an event request completes although nothing happened".into()
        })?;
    }
    bench.controller().map(drop)
}

fn event_request_limit(bench: &mut Bench) -> Verdict {
    fill_event_requests(bench)?;
    for _ in 0..3 {
        let extra = bench.request_event()?;
        bench.admin_wait(extra)?.expect(status::AER_LIMIT)?;
    }
    bench.controller().map(drop)
}

fn event_requests_hold_no_entry(bench: &mut Bench) -> Verdict {
    bench.start_with(16, 2, crate::bench::CC_ENABLE)?;
    fill_event_requests(bench)?;
    for _ in 0..5 {
        bench.controller()?;
    }
    Ok(())
}

/// Raises an Invalid Doorbell Write Value event, by the tail of a queue that is
/// made for it.
fn raise_error(bench: &mut Bench) -> Verdict {
    bench.create_cq(1, 8)?;
    bench.create_sq(1, 8, 1)?;
    bench.ring_loudly(crate::bench::tail_of(1), 0xfff0)?;
    bench.idle()?;
    bench.delete_sq(1)?.ok()?;
    bench.delete_cq(1)?.ok().map(drop)
}

fn event_masked_until_read(bench: &mut Bench) -> Verdict {
    let first = bench.request_event()?;
    let second = bench.request_event()?;
    raise_error(bench)?;
    bench.event(first)?;
    raise_error(bench)?;
    check(!bench.admin_completes(second)?, || {
        "an event of a type whose log page was not read comes again".into()
    })?;
    bench.log(0x01, 64)?;
    raise_error(bench)?;
    bench.event(second).map(drop)
}

fn event_retained(bench: &mut Bench) -> Verdict {
    let first = bench.request_event()?;
    let second = bench.request_event()?;
    raise_error(bench)?;
    bench.event(first)?;
    let page = bench.mem(4096)?;
    let read = bench.log_sqe(0x01, 0, 64, &page)?;
    let retain = read.dw(10, read.0[10] | 1 << 15);
    bench.admin(retain)?.ok()?;
    raise_error(bench)?;
    check(!bench.admin_completes(second)?, || {
        "the log page was read with RAE, and the event comes again".into()
    })?;
    bench.admin(read)?.ok()?;
    raise_error(bench)?;
    bench.event(second).map(drop)
}

fn keep_alive(bench: &mut Bench) -> Verdict {
    let kas = u16_at(&bench.controller()?, 320);
    let cqe = bench.admin(Sqe::new(0x18))?;
    if kas == 0 {
        return cqe
            .expect_any(&[status::INVALID_OPCODE, status::SUCCESS])
            .map(drop);
    }
    cqe.ok().map(drop)
}

fn firmware_refused(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(2, "firmware commands")?;
    let frmw = u8_at(&bench.controller()?, 260);
    let slots = u32::from(frmw >> 1 & 0b111);
    if slots < 7 {
        // Activate what is in a slot that does not exist.
        let sqe = Sqe::new(0x10).dw(10, 0b010 << 3 | (slots + 1));
        bench.admin(sqe)?.expect(status::INVALID_FIRMWARE_SLOT)?;
    }
    if frmw & 1 == 1 {
        let sqe = Sqe::new(0x10).dw(10, 1);
        bench.admin(sqe)?.expect_any(&[
            status::INVALID_FIRMWARE_SLOT,
            status::INVALID_FIRMWARE_IMAGE,
        ])?;
    }
    Ok(())
}

fn device_self_test(bench: &mut Bench) -> Verdict {
    let oacs = u16_at(&bench.controller()?, 256);
    if oacs >> 4 & 1 == 1 {
        return not_supported("it has Device Self-test");
    }
    let sqe = Sqe::new(0x14).nsid(0xffff_ffff).dw(10, 1);
    bench.admin(sqe)?.expect(status::INVALID_OPCODE).map(drop)
}
