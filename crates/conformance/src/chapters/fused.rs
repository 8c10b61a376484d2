//! Fused commands: Compare and Write (Base 2.1, 3.4.2; NVM 1.1, 2.1.5).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, Mem, Ns, Pair, opcode, pattern};
use crate::verdict::{Verdict, not_supported, same, same_bytes};
use crate::wire::{Cqe, Sqe, status, u16_at};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "fused",
    title: "Fused Compare and Write",
    scope: Scope::Any,
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    fused_refused, "Base 2.1, 3.4.2", "fused commands are refused (002h) where FUSES does not have them";
    fused_success, "NVM 1.1, 2.1.5", "Compare and Write writes where the comparison succeeds";
    fused_mismatch, "NVM 1.1, 2.1.5", "Compare and Write writes nothing where the comparison fails: 285h, and 009h for the Write";
    fused_alone, "Base 2.1, 3.4.2", "half of a fused pair is refused (00Ah), and commands beside it are done";
    fused_different_ranges, "NVM 1.1, 2.1.5", "Compare and Write of different ranges writes nothing";
    fused_bad_second, "Base 2.1, 3.4.2", "a fused Write that fails makes no completion of the Compare go missing", pcie why::PRPS;
    fused_reserved, "Base 2.1, 4.1", "FUSE 11b is refused (002h)";
    fused_often, "NVM 1.1, 2.1.5", "Compare and Write works at every place of the queue, also around its end";
];

/// Whether Compare and Write can be fused: FUSES bit 0.
fn has_fused(bench: &mut Bench) -> Verdict<bool> {
    Ok(u16_at(&bench.controller()?, 522) & 1 == 1)
}

fn needs_fused(bench: &mut Bench) -> Verdict {
    if has_fused(bench)? {
        Ok(())
    } else {
        not_supported("FUSES bit 0: no fused Compare and Write")
    }
}

/// Compare and Write of one block, and the memory of both.
struct Fused {
    compare: Sqe,
    write: Sqe,
    compared: Mem,
    written: Mem,
}

fn fused(bench: &mut Bench, ns: &Ns, slba: u64) -> Verdict<Fused> {
    let compared = bench.mem(ns.block_len)?;
    let written = bench.mem(ns.block_len)?;
    let compare = bench.transfer(ns, opcode::COMPARE, slba, 1, &compared)?;
    let write = bench.transfer(ns, opcode::WRITE, slba, 1, &written)?;
    Ok(Fused {
        compare: compare.fuse(0b01),
        write: write.fuse(0b10),
        compared,
        written,
    })
}

/// Submits both halves by one doorbell, and gives their completions in order.
fn run_fused(bench: &mut Bench, pair: &mut Pair, fused: &Fused) -> Verdict<[Cqe; 2]> {
    let first = bench.put(&mut pair.sq, fused.compare);
    let second = bench.put(&mut pair.sq, fused.write);
    bench.ring_sq(&pair.sq)?;
    let one = bench.wait(&mut pair.cq)?;
    let two = bench.wait(&mut pair.cq)?;
    if one.cid() == first {
        same("command identifier of the Write", two.cid(), second)?;
        Ok([one, two])
    } else {
        same("command identifier of the Write", one.cid(), second)?;
        Ok([two, one])
    }
}

fn fused_refused(bench: &mut Bench) -> Verdict {
    if has_fused(bench)? {
        return not_supported("FUSES: it has fused commands");
    }
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.block_len)?;
    for fuse in [0b01, 0b10] {
        let sqe = bench.transfer(&ns, opcode::READ, 0, 1, &mem)?;
        bench
            .run(&mut pair, sqe.fuse(fuse))?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn fused_success(bench: &mut Bench) -> Verdict {
    needs_fused(bench)?;
    let (ns, mut pair) = bench.io()?;
    let old = pattern(ns.block_len, 0xf0);
    bench.write_blocks(&mut pair, &ns, 3, &old)?;
    let fused = fused(bench, &ns, 3)?;
    fused.compared.write(0, &old);
    let new = fused.written.pattern(0, ns.block_len, 0xf1);
    let [compare, write] = run_fused(bench, &mut pair, &fused)?;
    compare.ok()?;
    write.ok()?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 1)?;
    same_bytes("the block after Compare and Write", &found, &new)
}

fn fused_mismatch(bench: &mut Bench) -> Verdict {
    needs_fused(bench)?;
    let (ns, mut pair) = bench.io()?;
    let old = pattern(ns.block_len, 0xf2);
    bench.write_blocks(&mut pair, &ns, 3, &old)?;
    let fused = fused(bench, &ns, 3)?;
    fused.written.pattern(0, ns.block_len, 0xf3);
    let [compare, write] = run_fused(bench, &mut pair, &fused)?;
    compare.expect(status::COMPARE_FAILURE)?;
    write.expect(status::ABORTED_FAILED_FUSED)?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 1)?;
    same_bytes("the block after a comparison that failed", &found, &old)
}

fn fused_alone(bench: &mut Bench) -> Verdict {
    needs_fused(bench)?;
    let (ns, mut pair) = bench.io()?;
    let old = pattern(ns.block_len, 0xf4);
    bench.write_blocks(&mut pair, &ns, 3, &old)?;
    let fused = fused(bench, &ns, 3)?;
    fused.compared.write(0, &old);
    let flush = Sqe::new(opcode::FLUSH).nsid(ns.nsid);
    // A first half with something else behind it; then a second half alone.
    for lonely in [fused.compare, fused.write] {
        let half = bench.put(&mut pair.sq, lonely);
        let other = bench.put(&mut pair.sq, flush);
        bench.ring_sq(&pair.sq)?;
        for _ in 0..2 {
            let cqe = bench.wait(&mut pair.cq)?;
            if cqe.cid() == half {
                cqe.expect(status::ABORTED_MISSING_FUSED)?;
            } else {
                same("command identifier", cqe.cid(), other)?;
                cqe.ok()?;
            }
        }
    }
    let found = bench.read_blocks(&mut pair, &ns, 3, 1)?;
    same_bytes("the block after halves of fused pairs", &found, &old)
}

fn fused_different_ranges(bench: &mut Bench) -> Verdict {
    needs_fused(bench)?;
    let (ns, mut pair) = bench.io()?;
    let old = pattern(ns.bytes(2), 0xf5);
    bench.write_blocks(&mut pair, &ns, 3, &old)?;
    let mut fused = fused(bench, &ns, 3)?;
    fused.compared.write(0, &old[..ns.block_len]);
    fused.write = fused.write.qword(10, 4);
    let [compare, write] = run_fused(bench, &mut pair, &fused)?;
    compare.expect_any(&[status::INVALID_FIELD, status::ABORTED_FAILED_FUSED])?;
    write.expect_any(&[
        status::INVALID_FIELD,
        status::ABORTED_FAILED_FUSED,
        status::ABORTED_MISSING_FUSED,
    ])?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 2)?;
    same_bytes(
        "blocks after fused commands of different ranges",
        &found,
        &old,
    )
}

fn fused_bad_second(bench: &mut Bench) -> Verdict {
    needs_fused(bench)?;
    let (ns, mut pair) = bench.io()?;
    let old = pattern(ns.block_len, 0xf6);
    bench.write_blocks(&mut pair, &ns, 3, &old)?;
    let mut fused = fused(bench, &ns, 3)?;
    fused.compared.write(0, &old);
    fused.write = fused.write.prps((3, 0));
    let [_, write] = run_fused(bench, &mut pair, &fused)?;
    write.expect_error()?;
    let found = bench.read_blocks(&mut pair, &ns, 3, 1)?;
    same_bytes("the block after a fused Write that failed", &found, &old)?;
    fused_success_again(bench, &ns, &mut pair)
}

fn fused_success_again(bench: &mut Bench, ns: &Ns, pair: &mut Pair) -> Verdict {
    let old = bench.read_blocks(pair, ns, 3, 1)?;
    let fused = fused(bench, ns, 3)?;
    fused.compared.write(0, &old);
    let new = fused.written.pattern(0, ns.block_len, 0xf7);
    for cqe in run_fused(bench, pair, &fused)? {
        cqe.ok()?;
    }
    let found = bench.read_blocks(pair, ns, 3, 1)?;
    same_bytes("the block after Compare and Write", &found, &new)
}

fn fused_reserved(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let mem = bench.mem(ns.block_len)?;
    for opcode in [opcode::READ, opcode::WRITE, opcode::FLUSH] {
        let sqe = bench.transfer(&ns, opcode, 0, 1, &mem)?;
        bench
            .run(&mut pair, sqe.fuse(0b11))?
            .expect(status::INVALID_FIELD)?;
    }
    Ok(())
}

fn fused_often(bench: &mut Bench) -> Verdict {
    needs_fused(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(7)?;
    for turn in 0..30 {
        fused_success_again(bench, &ns, &mut pair)?;
        if turn % 3 == 0 {
            let flush = Sqe::new(opcode::FLUSH).nsid(ns.nsid);
            bench.run(&mut pair, flush)?.ok()?;
        }
    }
    Ok(())
}
