//! How commands fail (Base 2.1, 4.2.3): statuses, and the fields beside them.

use super::{Chapter, Scope, Test, tests};
use crate::bench::{Bench, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, check, not_supported, same, same_bytes};
use crate::wire::{Sqe, status, u16_at, u32_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "errors",
    title: "How commands fail",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    namespace_zero, "Base 2.1, 3.2.1.3", "NVM commands to NSID 0 are refused (00Bh), each";
    namespace_beyond, "Base 2.1, 3.2.1.3", "NVM commands to an NSID beyond NN are refused (00Bh), each";
    namespace_inactive, "Base 2.1, 3.2.1.4", "NVM commands to an inactive NSID are refused (002h), each";
    unknown_opcodes, "NVM 1.1, 3", "reserved I/O opcodes are refused (001h), each";
    unknown_opcode_any_namespace, "Base 2.1, 4.2.3", "a reserved I/O opcode is refused whatever its namespace";
    success_fields, "Base 2.1, 4.2.3", "success has no More, no Do Not Retry and no retry delay";
    do_not_retry, "Base 2.1, 4.2.3", "what cannot succeed when it is sent again says Do Not Retry";
    no_retry_delay, "Base 2.1, 4.2.3", "without Advanced Command Retry no error has a retry delay";
    each_its_own, "Base 2.1, 4.2.1", "good and bad commands in one batch each end with their own status";
    bad_do_not_disturb, "Base 2.1, 3.4", "a thousand bad commands leave the queue and its data as they were";
    more_means_entry, "Base 2.1, 4.2.3", "More is set only where the error log has an entry for the command";
    errors_on_several_queues, "Base 2.1, 4.2.1", "errors name the queue of their command";
    pointers_of_refused, "Base 2.1, 4.2.3", "a command that is refused writes nothing to its buffer";
    admin_errors_leave_io, "Base 2.1, 3.4", "admin commands that fail do not disturb I/O queues";
    reserved_fuse, "Base 2.1, 4.1", "FUSE 11b is refused (002h) in every NVM command";
];

/// NVM commands that need a namespace and that the controller has.
fn commands(bench: &mut Bench) -> Verdict<Vec<u8>> {
    let oncs = u16_at(&bench.controller()?, 520);
    let optional = [
        (0, opcode::COMPARE),
        (1, opcode::WRITE_UNCORRECTABLE),
        (2, opcode::DATASET_MANAGEMENT),
        (3, opcode::WRITE_ZEROES),
        (7, opcode::VERIFY),
        (8, opcode::COPY),
    ];
    let mut all = vec![opcode::FLUSH, opcode::WRITE, opcode::READ];
    for (bit, opcode) in optional {
        if oncs >> bit & 1 == 1 {
            all.push(opcode);
        }
    }
    Ok(all)
}

/// Every command with a page for its data, to this namespace.
fn each_to(bench: &mut Bench, nsid: u32, expected: u16) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let page = bench.mem(ns.block_len)?;
    for opcode in commands(bench)? {
        let sqe = bench.transfer(&ns, opcode, 0, 1, &page)?.nsid(nsid);
        // In dword 12 these have ranges and formats, not blocks.
        let sqe = match opcode {
            opcode::DATASET_MANAGEMENT => sqe.dw(10, 0).dw(11, 0b100).dw(12, 0),
            _ => sqe,
        };
        bench.run(&mut pair, sqe)?.expect(expected)?;
    }
    Ok(())
}

fn namespace_zero(bench: &mut Bench) -> Verdict {
    each_to(bench, 0, status::INVALID_NAMESPACE)
}

fn namespace_beyond(bench: &mut Bench) -> Verdict {
    let nn = u32_at(&bench.controller()?, 516);
    if nn >= 0xffff_fffe {
        return not_supported("every namespace identifier is valid");
    }
    each_to(bench, nn + 1, status::INVALID_NAMESPACE)?;
    each_to(bench, 0xffff_fffe, status::INVALID_NAMESPACE)
}

fn namespace_inactive(bench: &mut Bench) -> Verdict {
    let nn = u32_at(&bench.controller()?, 516);
    let active = bench.active()?;
    let Some(nsid) = (1..=nn).find(|nsid| !active.contains(nsid)) else {
        return not_supported("every valid namespace is active");
    };
    each_to(bench, nsid, status::INVALID_FIELD)
}

/// An opcode that no command set has; 7Fh is that of fabrics.
const UNUSED: u8 = 0x7e;
/// Opcodes that neither Base 2.1 nor the NVM command set has: 80h and above
/// belong to vendors, and these to other command sets.
const RESERVED: [u8; 9] = [0x03, 0x06, 0x07, 0x0a, 0x0b, 0x0f, 0x13, 0x1b, UNUSED];

fn unknown_opcodes(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for opcode in RESERVED {
        bench
            .run(&mut pair, ns.sqe(opcode, 0, 1))?
            .expect(status::INVALID_OPCODE)?;
    }
    Ok(())
}

fn unknown_opcode_any_namespace(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for nsid in [0, 0xffff_ffff, 0xffff_fff0] {
        bench
            .run(&mut pair, ns.sqe(UNUSED, 0, 1).nsid(nsid))?
            .expect_any(&[status::INVALID_OPCODE, status::INVALID_NAMESPACE])?;
    }
    Ok(())
}

fn success_fields(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let io = bench
        .run(&mut pair, Sqe::new(opcode::FLUSH).nsid(ns.nsid))?
        .ok()?;
    let (sqe, _) = bench.identify_sqe(1, 0)?;
    let admin = bench.admin(sqe)?.ok()?;
    for cqe in [io, admin] {
        check(
            !cqe.more() && !cqe.do_not_retry() && cqe.retry_delay() == 0,
            || {
                format!(
                    "{}: success with other bits: dword 3 {:08x}h",
                    cqe.of, cqe.dwords[3]
                )
            },
        )?;
    }
    Ok(())
}

/// Identify with a reserved CNS, and Get Log Page of a reserved page, each with a place for data.
fn refused_with_data(bench: &mut Bench) -> Verdict<[Sqe; 2]> {
    let page = bench.mem(4096)?;
    page.fill(0xa5);
    let identify = bench.pointer(&page, 0, 4096)?;
    let log = bench.pointer(&page, 0, 64)?;
    Ok([
        Sqe::new(0x06).dw(10, 0xff).data(identify),
        Sqe::new(0x02).dw(10, 0x5f | 15 << 16).data(log),
    ])
}

/// Commands that fail, each for a reason of its own.
fn failing(bench: &mut Bench, ns: &Ns, pair: &mut Pair) -> Verdict<Vec<crate::wire::Cqe>> {
    let page = bench.mem(ns.block_len)?;
    let beyond = bench.transfer(ns, opcode::READ, ns.blocks, 1, &page)?;
    let mut io = vec![ns.sqe(UNUSED, 0, 1), beyond, beyond.nsid(0)];
    let mut admin = refused_with_data(bench)?.to_vec();
    admin.extend([Sqe::new(0x7b), Sqe::new(0x0a)]);
    // Over fabrics there is neither a PRP nor a command that deletes a queue.
    if !bench.is_over_fabrics() {
        let read = ns.sqe(opcode::READ, 0, 1);
        io.push(read.prps((page.at(3), 0)));
        io.push(read.prps((page.iova(), 0)).psdt(0b11));
        admin.push(Sqe::new(0x00).dw(10, 0x1234));
    }
    let mut all = Vec::new();
    for sqe in io {
        all.push(bench.run(pair, sqe)?.expect_error()?);
    }
    for sqe in admin {
        all.push(bench.admin(sqe)?.expect_error()?);
    }
    Ok(all)
}

fn do_not_retry(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for cqe in failing(bench, &ns, &mut pair)? {
        check(cqe.do_not_retry(), || {
            format!(
                "{}: {} without Do Not Retry",
                cqe.of,
                status::shown(cqe.status())
            )
        })?;
    }
    Ok(())
}

fn no_retry_delay(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for cqe in failing(bench, &ns, &mut pair)? {
        same(&format!("{}, CRD", cqe.of), cqe.retry_delay(), 0)?;
    }
    Ok(())
}

fn each_its_own(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let page = bench.mem(ns.block_len)?;
    let good = bench.transfer(&ns, opcode::READ, 0, 1, &page)?;
    let mut kinds = vec![
        (good, status::SUCCESS),
        (ns.sqe(UNUSED, 0, 1), status::INVALID_OPCODE),
        (good.qword(10, ns.blocks), status::LBA_OUT_OF_RANGE),
        (good.nsid(0), status::INVALID_NAMESPACE),
    ];
    if !bench.is_over_fabrics() {
        kinds.push((good.prps((page.at(1), 0)), status::PRP_OFFSET_INVALID));
    }
    let mut expected = Vec::new();
    for turn in 0..40 {
        let (sqe, status) = kinds[turn * 7 % kinds.len()];
        let cid = bench.put(&mut pair.sq, sqe);
        expected.push((cid, status));
    }
    bench.ring_sq(&pair.sq)?;
    for _ in 0..40 {
        let cqe = bench.wait(&mut pair.cq)?;
        let wanted = expected.iter().find(|(cid, _)| *cid == cqe.cid());
        let wanted = wanted.map_or(status::SUCCESS, |(_, status)| *status);
        cqe.expect(wanted)?;
    }
    Ok(())
}

fn bad_do_not_disturb(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let data = pattern(ns.bytes(4), 0xbad);
    bench.write_blocks(&mut pair, &ns, 0, &data)?;
    let page = bench.mem(ns.block_len)?;
    let beyond = bench.transfer(&ns, opcode::WRITE, ns.blocks, 1, &page)?;
    let mut bad = vec![ns.sqe(UNUSED, 0, 1), beyond];
    if !bench.is_over_fabrics() {
        bad.push(ns.sqe(opcode::WRITE, 0, 1).prps((page.at(2), 0)));
    }
    for _ in 0..25 {
        for n in 0..40 {
            bench.put(&mut pair.sq, bad[n % bad.len()]);
        }
        bench.ring_sq(&pair.sq)?;
        for _ in 0..40 {
            bench.wait(&mut pair.cq)?.expect_error()?;
        }
    }
    let found = bench.read_blocks(&mut pair, &ns, 0, 4)?;
    same_bytes("blocks after a thousand bad commands", &found, &data)?;
    same("CSTS after bad commands", bench.csts()? & 0b11, 1)
}

fn more_means_entry(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    for cqe in failing(bench, &ns, &mut pair)? {
        if !cqe.more() {
            continue;
        }
        let log = bench.log(0x01, 64 * 16)?;
        let entry = log.chunks(64).find(|entry| {
            u32::from(u16_at(entry, 8)) == cqe.sq_id() && u16_at(entry, 10) == cqe.cid()
        });
        let Some(entry) = entry else {
            return crate::verdict::fail(format!(
                "{}: More is set, and none of the newest 16 error entries is of it",
                cqe.of
            ));
        };
        same(
            "status in the error log",
            u16_at(entry, 12) >> 1 & 0x7ff,
            cqe.status(),
        )?;
    }
    Ok(())
}

fn errors_on_several_queues(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut one = bench.pair(8)?;
    let mut two = bench.pair(8)?;
    for _ in 0..20 {
        for pair in [&mut one, &mut two] {
            bench
                .run(pair, ns.sqe(UNUSED, 0, 1))?
                .expect(status::INVALID_OPCODE)?;
        }
    }
    Ok(())
}

fn pointers_of_refused(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let page = bench.mem(ns.block_len.max(4096))?;
    page.fill(0xa5);
    let beyond = bench.transfer(&ns, opcode::READ, ns.blocks, 1, &page)?;
    bench.run(&mut pair, beyond)?.expect_error()?;
    bench.run(&mut pair, beyond.nsid(0))?.expect_error()?;
    let [bad_identify, bad_log] = refused_with_data(bench)?;
    let pointer = bench.pointer(&page, 0, 4096)?;
    let no_namespace = Sqe::new(0x06).nsid(0).data(pointer);
    for sqe in [bad_identify.data(pointer), no_namespace, bad_log] {
        bench.admin(sqe)?.expect_error()?;
    }
    check(page.bytes(0, page.len()).iter().all(|b| *b == 0xa5), || {
        "a command that was refused wrote to its buffer".into()
    })
}

fn admin_errors_leave_io(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    // Queues over fabrics are made by no admin command.
    let of_queues: &[u8] = if bench.is_over_fabrics() {
        &[]
    } else {
        &[0x00, 0x04, 0x05, 0x01]
    };
    for &opcode in [0x7b].iter().chain(of_queues) {
        bench
            .admin(Sqe::new(opcode).dw(10, 0xffff_0000))?
            .expect_error()?;
        bench
            .run(&mut pair, Sqe::new(opcode::FLUSH).nsid(ns.nsid))?
            .ok()?;
    }
    Ok(())
}

fn reserved_fuse(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let page = bench.mem(ns.block_len)?;
    for opcode in commands(bench)? {
        let sqe = bench.transfer(&ns, opcode, 0, 1, &page)?.fuse(0b11);
        bench.run(&mut pair, sqe)?.expect(status::INVALID_FIELD)?;
    }
    Ok(())
}
