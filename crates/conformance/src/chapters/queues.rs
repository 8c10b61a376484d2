//! Making and deleting I/O queues (Base 2.1, 5.2.1 to 5.2.4), and what every
//! command demands of them (3.3.1).

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, CC_ENABLE, Cq, Ns, Pair, Sq, head_of, opcode, tail_of};
use crate::verdict::{Verdict, check, not_supported, same};
use crate::wire::{Sqe, status};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "queues",
    title: "I/O queues: making, using and deleting them",
    scope: Scope::Pcie(why::RINGS),
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    create_cq_identifiers, "Base 2.1, 5.2.1", "a completion queue with identifier 0, one not granted, or one in use is refused (101h)";
    create_cq_sizes, "Base 2.1, 5.2.1", "a completion queue of one entry, or of more than CAP.MQES, is refused (102h)";
    create_cq_contiguous, "Base 2.1, 5.2.1", "a completion queue that is not contiguous is refused (002h), where CAP.CQR is 1";
    create_cq_vector, "Base 2.1, 5.2.1", "a completion queue with a vector that is not there is refused (108h)";
    create_cq_offset, "Base 2.1, 5.2.1", "a completion queue that does not start a page is refused (013h)";
    create_sq_identifiers, "Base 2.1, 5.2.2", "a submission queue with identifier 0, one not granted, or one in use is refused (101h)";
    create_sq_sizes, "Base 2.1, 5.2.2", "a submission queue of one entry, or of more than CAP.MQES, is refused (102h)";
    create_sq_contiguous, "Base 2.1, 5.2.2", "a submission queue that is not contiguous is refused (002h), where CAP.CQR is 1";
    create_sq_offset, "Base 2.1, 5.2.2", "a submission queue that does not start a page is refused (013h)";
    create_sq_without_cq, "Base 2.1, 5.2.2", "a submission queue for a completion queue that does not exist is refused: 100h, and 101h where the identifier is 0 or out of range";
    create_sq_priorities, "Base 2.1, 5.2.2", "every queue priority is taken, with round robin it means nothing";
    weighted_round_robin, "Base 2.1, 3.4.4.2", "with weighted round robin queues of every priority are served, where CAP.AMS has it";
    refused_leaves_nothing, "Base 2.1, 5.2.1", "a queue that was refused does not exist, and can be made";
    delete_sq_identifiers, "Base 2.1, 5.2.4", "deleting submission queue 0, or one that does not exist, is refused (101h)";
    delete_cq_identifiers, "Base 2.1, 5.2.3", "deleting completion queue 0, or one that does not exist, is refused (101h)";
    delete_cq_in_use, "Base 2.1, 5.2.3", "deleting a completion queue before its submission queues is refused (10Ch), and leaves it at work";
    delete_busy_sq, "Base 2.1, 5.2.4", "deleting a submission queue ends its commands before it completes; none follows";
    recreate, "Base 2.1, 5.2.1", "a queue that was deleted can be made again, of another size, and starts at entry 0 with phase 1";
    all_queues, "Base 2.1, 5.1.25.2.1", "every queue pair that was granted can be made, and works";
    largest_queue, "Base 2.1, 3.1.4.1", "a queue of as many entries as CAP.MQES allows works";
    laps, "Base 2.1, 3.3.1.2", "small queues work over many laps, whatever their sizes";
    laps_full, "Base 2.1, 3.3.1.2", "a submission queue that is filled to its last entry works, over many laps";
    shared_cq, "Base 2.1, 3.3.1.2", "several submission queues complete to one completion queue, each completion with its queue";
    sq_head, "Base 2.1, 4.2.1", "completions report how far the submission queue was read, and end at its tail";
    full_cq, "Base 2.1, 3.3.1.2", "a full completion queue is not overrun; commands go on as entries are freed, and none is lost";
    full_cq_shared, "Base 2.1, 3.3.1.2", "a full completion queue that two submission queues share loses no completion of either";
    identifiers_echo, "Base 2.1, 4.1", "any command identifier comes back, not only small ones";
    reserved_completion_bits, "Base 2.1, 4.2.1", "completions of NVM commands have dwords 0 and 1 cleared";
    other_queue_slots, "Base 2.1, 3.3.1.2", "a completion is written to its entry and to no other";
    bad_tail, "Base 2.1, 5.1.2", "a tail beyond its queue is an Invalid Doorbell Write Value event, and other queues go on";
    bad_head, "Base 2.1, 5.1.2", "a head beyond its queue is an Invalid Doorbell Write Value event, and other queues go on";
    head_past_posted, "Base 2.1, 5.1.2", "a head that takes a completion from an empty queue is an Invalid Doorbell Write Value event";
    doorbell_of_no_queue, "Base 2.1, 5.1.2", "the doorbell of a queue that does not exist is a Write to Invalid Doorbell Register event";
    doorbell_of_deleted_queue, "Base 2.1, 5.1.2", "a doorbell written after its queue was deleted has no effect, and the queue can be made again";
];

fn beyond(granted: u32) -> Option<u16> {
    u16::try_from(granted + 1).ok()
}

fn create_cq_identifiers(bench: &mut Bench) -> Verdict {
    let (_, cqs) = bench.grant()?;
    let mut cq = bench.create_cq(1, 8)?;
    for id in [Some(0), beyond(cqs), Some(0xffff), Some(1)]
        .into_iter()
        .flatten()
    {
        cq.id = id;
        bench
            .admin(Bench::create_cq_sqe(&cq))?
            .expect(status::INVALID_QUEUE_ID)?;
    }
    Ok(())
}

fn create_cq_sizes(bench: &mut Bench) -> Verdict {
    bench.grant()?;
    let cq = bench.lay_out_cq(1, 8)?;
    for entries_z in sizes(bench) {
        let sqe = Bench::create_cq_sqe(&cq).dw(10, entries_z << 16 | 1);
        bench.admin(sqe)?.expect(status::INVALID_QUEUE_SIZE)?;
    }
    Ok(())
}

/// Sizes that no queue may have, 0's based.
fn sizes(bench: &Bench) -> Vec<u32> {
    let most = bench.entries_max();
    let mut sizes = vec![0];
    if most < 0x1_0000 {
        // One entry more than there may be, and the largest number there is.
        sizes.extend([most, 0xffff]);
    }
    sizes
}

fn create_cq_contiguous(bench: &mut Bench) -> Verdict {
    needs_contiguous(bench)?;
    let cq = bench.lay_out_cq(1, 8)?;
    let sqe = Bench::create_cq_sqe(&cq).dw(11, 0);
    bench.admin(sqe)?.expect(status::INVALID_FIELD).map(drop)
}

fn needs_contiguous(bench: &mut Bench) -> Verdict {
    bench.grant()?;
    if bench.cap_bits(16, 16) == 0 {
        return not_supported("CAP.CQR: queues may lie in pieces");
    }
    Ok(())
}

fn create_cq_vector(bench: &mut Bench) -> Verdict {
    bench.grant()?;
    let vectors = u32::from(bench.bus().vectors());
    if vectors == 0 {
        return not_supported("the target has no interrupts");
    }
    let cq = bench.lay_out_cq(1, 8)?;
    for vector in [vectors, 0xffff] {
        let sqe = Bench::create_cq_sqe(&cq).dw(11, vector << 16 | 0b11);
        bench.admin(sqe)?.expect(status::INVALID_VECTOR)?;
    }
    let sqe = Bench::create_cq_sqe(&cq).dw(11, (vectors - 1) << 16 | 0b11);
    bench.admin(sqe)?.ok().map(drop)
}

fn create_cq_offset(bench: &mut Bench) -> Verdict {
    bench.grant()?;
    let cq = bench.lay_out_cq(1, 8)?;
    for offset in [4, 0x800] {
        let sqe = Bench::create_cq_sqe(&cq).prps((cq.mem.at(offset), 0));
        bench.admin(sqe)?.expect(status::PRP_OFFSET_INVALID)?;
    }
    Ok(())
}

fn create_sq_identifiers(bench: &mut Bench) -> Verdict {
    let (sqs, _) = bench.grant()?;
    let mut pair = bench.pair(8)?;
    for id in [Some(0), beyond(sqs), Some(0xffff), Some(1)]
        .into_iter()
        .flatten()
    {
        pair.sq.id = id;
        bench
            .admin(Bench::create_sq_sqe(&pair.sq, 1))?
            .expect(status::INVALID_QUEUE_ID)?;
    }
    Ok(())
}

fn create_sq_sizes(bench: &mut Bench) -> Verdict {
    bench.create_cq(1, 8)?;
    let sq = bench.lay_out_sq(1, 8)?;
    for entries_z in sizes(bench) {
        let sqe = Bench::create_sq_sqe(&sq, 1).dw(10, entries_z << 16 | 1);
        bench.admin(sqe)?.expect(status::INVALID_QUEUE_SIZE)?;
    }
    Ok(())
}

fn create_sq_contiguous(bench: &mut Bench) -> Verdict {
    needs_contiguous(bench)?;
    bench.create_cq(1, 8)?;
    let sq = bench.lay_out_sq(1, 8)?;
    let sqe = Bench::create_sq_sqe(&sq, 1).dw(11, 1 << 16);
    bench.admin(sqe)?.expect(status::INVALID_FIELD).map(drop)
}

fn create_sq_offset(bench: &mut Bench) -> Verdict {
    bench.create_cq(1, 8)?;
    let sq = bench.lay_out_sq(1, 8)?;
    for offset in [64, 0x800] {
        let sqe = Bench::create_sq_sqe(&sq, 1).prps((sq.mem.at(offset), 0));
        bench.admin(sqe)?.expect(status::PRP_OFFSET_INVALID)?;
    }
    Ok(())
}

fn create_sq_without_cq(bench: &mut Bench) -> Verdict {
    let (_, cqs) = bench.grant()?;
    let sq = bench.lay_out_sq(1, 8)?;
    let mut refused = |cqid: u16, expected: u16| {
        bench
            .admin(Bench::create_sq_sqe(&sq, cqid))?
            .expect(expected)
            .map(drop)
    };
    refused(1, status::CQ_INVALID)?;
    refused(0, status::INVALID_QUEUE_ID)?;
    if let Some(cqid) = beyond(cqs) {
        refused(cqid, status::INVALID_QUEUE_ID)?;
    }
    Ok(())
}

fn create_sq_priorities(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut cq = bench.create_cq(1, 8)?;
    for priority in 0..4 {
        let sq = bench.create_sq_with(1, 8, 1 << 16 | priority << 1 | 1)?;
        let mut pair = Pair { sq, cq };
        bench.run(&mut pair, flush(&ns))?.ok()?;
        bench.delete_sq(1)?.ok()?;
        cq = pair.cq;
    }
    Ok(())
}

fn weighted_round_robin(bench: &mut Bench) -> Verdict {
    if bench.cap_bits(17, 17) == 0 {
        return not_supported("CAP.AMS bit 0: no weighted round robin");
    }
    bench.start_with(16, 16, CC_ENABLE | 0b001 << 11)?;
    let ns = bench.ns()?;
    // High, medium and low weight, and a burst of four.
    bench.set_feature(0x01, 0, 0x0703_0102)?.ok()?;
    let (sqs, _) = bench.grant()?;
    let mut cq = bench.create_cq(1, 8)?;
    let mut queues = Vec::new();
    for (id, priority) in (1..=u16::try_from(sqs.min(4)).unwrap_or(4)).zip(0..) {
        queues.push(bench.create_sq_with(id, 32, 1 << 16 | priority << 1 | 1)?);
    }
    for sq in &mut queues {
        for _ in 0..25 {
            bench.put(sq, flush(&ns));
        }
        bench.ring_sq(sq)?;
    }
    let mut done = vec![0; queues.len()];
    for _ in 0..25 * queues.len() {
        let cqe = bench.wait(&mut cq)?.ok()?;
        let index = usize::try_from(cqe.sq_id() - 1).unwrap_or(0);
        done[index] += 1;
    }
    check(done.iter().all(|count| *count == 25), || {
        format!("of 25 commands of each priority were done: {done:?}")
    })
}

fn refused_leaves_nothing(bench: &mut Bench) -> Verdict {
    let cq = bench.lay_out_cq(1, 8)?;
    bench.grant()?;
    let sqe = Bench::create_cq_sqe(&cq);
    bench
        .admin(sqe.dw(10, 1))?
        .expect(status::INVALID_QUEUE_SIZE)?;
    bench.delete_cq(1)?.expect(status::INVALID_QUEUE_ID)?;
    bench.admin(sqe)?.ok()?;
    let sq = bench.lay_out_sq(1, 8)?;
    let sqe = Bench::create_sq_sqe(&sq, 1);
    bench
        .admin(sqe.dw(10, 1))?
        .expect(status::INVALID_QUEUE_SIZE)?;
    bench.delete_sq(1)?.expect(status::INVALID_QUEUE_ID)?;
    bench.admin(sqe)?.ok().map(drop)
}

fn delete_sq_identifiers(bench: &mut Bench) -> Verdict {
    bench.pair(8)?;
    for id in [0, 2, 0xffff] {
        bench.delete_sq(id)?.expect(status::INVALID_QUEUE_ID)?;
    }
    bench.delete_sq(1)?.ok()?;
    bench
        .delete_sq(1)?
        .expect(status::INVALID_QUEUE_ID)
        .map(drop)
}

fn delete_cq_identifiers(bench: &mut Bench) -> Verdict {
    bench.create_cq(1, 8)?;
    for id in [0, 2, 0xffff] {
        bench.delete_cq(id)?.expect(status::INVALID_QUEUE_ID)?;
    }
    bench.delete_cq(1)?.ok()?;
    bench
        .delete_cq(1)?
        .expect(status::INVALID_QUEUE_ID)
        .map(drop)
}

fn delete_cq_in_use(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    bench.delete_cq(1)?.expect(status::INVALID_QUEUE_DELETION)?;
    bench.run(&mut pair, flush(&ns))?.ok()?;
    bench.delete_sq(1)?.ok()?;
    bench.delete_cq(1)?.ok().map(drop)
}

fn delete_busy_sq(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let page = bench.mem(4096)?;
    let blocks = 4096 / u32::try_from(ns.block_len).unwrap_or(4096).min(4096);
    if ns.block_len > 4096 {
        return not_supported("blocks are larger than a page");
    }
    let read = bench.transfer(&ns, opcode::READ, 0, blocks, &page)?;
    for _ in 0..60 {
        bench.put(&mut pair.sq, read);
    }
    bench.ring_sq(&pair.sq)?;
    bench.delete_sq(1)?.ok()?;
    while let Some(cqe) = bench.poll(&mut pair.cq)? {
        cqe.expect_any(&[
            status::SUCCESS,
            status::ABORTED_SQ_DELETION,
            status::ABORT_REQUESTED,
        ])?;
    }
    bench.expect_nothing(&pair.cq, "after Delete I/O Submission Queue")?;
    bench.delete_cq(1)?.ok().map(drop)
}

fn recreate(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    for (sq_entries, cq_entries) in [(8, 8), (5, 16), (16, 3), (8, 8)] {
        let cq = bench.create_cq(1, cq_entries)?;
        let sq = bench.create_sq(1, sq_entries, 1)?;
        let mut pair = Pair { sq, cq };
        for _ in 0..7 {
            bench.run(&mut pair, flush(&ns))?.ok()?;
        }
        bench.delete_sq(1)?.ok()?;
        bench.delete_cq(1)?.ok()?;
    }
    Ok(())
}

fn all_queues(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let (sqs, cqs) = bench.grant()?;
    let mut pairs = Vec::new();
    for _ in 0..sqs.min(cqs) {
        pairs.push(bench.pair(4)?);
    }
    for _ in 0..5 {
        for pair in &mut pairs {
            bench.submit(&mut pair.sq, flush(&ns))?;
        }
        for pair in &mut pairs {
            let cqe = bench.wait(&mut pair.cq)?.ok()?;
            same("SQ identifier", cqe.sq_id(), pair.sq.id.into())?;
        }
    }
    Ok(())
}

fn largest_queue(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let entries = bench.entries_max();
    let mut pair = bench.pair(entries)?;
    // Past the end of both rings, in batches.
    let mut left = entries + entries / 2;
    while left > 0 {
        let batch = left.min(64).min(entries - 1);
        for _ in 0..batch {
            bench.put(&mut pair.sq, flush(&ns));
        }
        bench.ring_sq(&pair.sq)?;
        for _ in 0..batch {
            bench.wait(&mut pair.cq)?.ok()?;
        }
        left -= batch;
    }
    Ok(())
}

fn flush(ns: &Ns) -> Sqe {
    Sqe::new(opcode::FLUSH).nsid(ns.nsid)
}

fn laps(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    for (sq_entries, cq_entries) in [(2, 2), (3, 5), (5, 3), (4, 4), (7, 2), (2, 7)] {
        let cq = bench.create_cq(1, cq_entries)?;
        let sq = bench.create_sq(1, sq_entries, 1)?;
        let mut pair = Pair { sq, cq };
        for _ in 0..100 {
            bench.run(&mut pair, flush(&ns))?.ok()?;
        }
        bench.delete_sq(1)?.ok()?;
        bench.delete_cq(1)?.ok()?;
    }
    Ok(())
}

fn laps_full(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut pair = bench.pair(5)?;
    for _ in 0..50 {
        for _ in 0..4 {
            bench.put(&mut pair.sq, flush(&ns));
        }
        bench.ring_sq(&pair.sq)?;
        for _ in 0..4 {
            bench.wait(&mut pair.cq)?.ok()?;
        }
    }
    Ok(())
}

/// Two submission queues that complete to one completion queue.
fn two_on_one(bench: &mut Bench, sq_entries: u32, cq_entries: u32) -> Verdict<([Sq; 2], Cq)> {
    let (sqs, _) = bench.grant()?;
    if sqs < 2 {
        return not_supported("the controller grants one submission queue");
    }
    let cq = bench.create_cq(1, cq_entries)?;
    let one = bench.create_sq(1, sq_entries, 1)?;
    let two = bench.create_sq(2, sq_entries + 3, 1)?;
    Ok(([one, two], cq))
}

fn shared_cq(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let (mut sqs, mut cq) = two_on_one(bench, 8, 32)?;
    for _ in 0..30 {
        for sq in &mut sqs {
            for _ in 0..5 {
                bench.put(sq, flush(&ns));
            }
            bench.ring_sq(sq)?;
        }
        // Each is one that is in flight in the queue it names.
        let mut of_first = 0;
        for _ in 0..10 {
            let cqe = bench.wait(&mut cq)?.ok()?;
            of_first += u32::from(cqe.sq_id() == 1);
        }
        same("completions of submission queue 1", of_first, 5)?;
    }
    Ok(())
}

fn sq_head(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    for lap in 0..20 {
        let count = lap % 7 + 1;
        for _ in 0..count {
            bench.put(&mut pair.sq, flush(&ns));
        }
        let before = (pair.sq.tail + 8 - count) % 8;
        bench.ring_sq(&pair.sq)?;
        let mut last = 0;
        for done in 1..=count {
            let cqe = bench.wait(&mut pair.cq)?.ok()?;
            check(cqe.sq_head() < 8, || {
                format!("SQ Head Pointer {} in a queue of 8", cqe.sq_head())
            })?;
            // At least what has completed was read, and nothing past the tail.
            let read = (cqe.sq_head() + 8 - before) % 8;
            check((done..=count).contains(&read), || {
                format!(
                    "{done} of {count} commands completed, and the head says that {read} were read"
                )
            })?;
            last = cqe.sq_head();
        }
        same("SQ Head Pointer of the last completion", last, pair.sq.tail)?;
    }
    Ok(())
}

fn full_cq(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut cq = bench.create_cq(1, 4)?;
    let mut sq = bench.create_sq(1, 16, 1)?;
    for _ in 0..10 {
        bench.put(&mut sq, flush(&ns));
    }
    bench.ring_sq(&sq)?;
    // Three of four entries may be used; the fourth keeps its phase.
    let full = |bench: &mut Bench, cq: &mut Cq, count: u32| {
        let mut taken = 0;
        let mut cqes = Vec::new();
        let bound = bench.options().bound;
        bench.until(bound, |_| {
            while let Some(cqe) = cq.take() {
                taken += 1;
                cqes.push(cqe);
            }
            Ok(taken >= count)
        })?;
        same(
            "completions in a queue of 4 that the host does not empty",
            taken,
            count,
        )?;
        bench.expect_nothing(cq, "the completion queue is full")?;
        for cqe in cqes {
            bench.known(cqe)?.ok()?;
        }
        Ok(())
    };
    full(bench, &mut cq, 3)?;
    bench.ring_cq(&cq)?;
    full(bench, &mut cq, 3)?;
    bench.ring_cq(&cq)?;
    full(bench, &mut cq, 3)?;
    bench.ring_cq(&cq)?;
    full(bench, &mut cq, 1)
}

fn full_cq_shared(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let (mut sqs, mut cq) = two_on_one(bench, 16, 6)?;
    for sq in &mut sqs {
        for _ in 0..12 {
            bench.put(sq, flush(&ns));
        }
        bench.ring_sq(sq)?;
    }
    bench.idle()?;
    let mut of_first = 0;
    for _ in 0..24 {
        let cqe = bench.wait(&mut cq)?.ok()?;
        of_first += u32::from(cqe.sq_id() == 1);
    }
    same("completions of submission queue 1", of_first, 12)?;
    bench.expect_nothing(&cq, "all 24 commands are done")
}

fn identifiers_echo(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    for cid in [0xfffe, 0x8000, 0x7fff, 0x0100, 0x00ff, 0xa5a5] {
        bench.put_with_cid(&mut pair.sq, flush(&ns), cid);
        bench.ring_sq(&pair.sq)?;
        let cqe = bench.wait(&mut pair.cq)?.ok()?;
        same("command identifier", cqe.cid(), cid)?;
    }
    Ok(())
}

fn reserved_completion_bits(bench: &mut Bench) -> Verdict {
    let (ns, mut pair) = bench.io()?;
    let cqe = bench.run(&mut pair, flush(&ns))?.ok()?;
    same("dword 0 of a Flush's completion", cqe.dw0(), 0)?;
    same("dword 1 of a Flush's completion", cqe.dw1(), 0)
}

fn other_queue_slots(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut pair = bench.pair(16)?;
    for done in 1..16 {
        bench.run(&mut pair, flush(&ns))?.ok()?;
        let untouched = pair.cq.mem.bytes(done * 16, (16 - done) * 16);
        crate::verdict::zero("entries that no completion has reached", &untouched)?;
    }
    let rest = pair.cq.mem.bytes(256, 4096 - 256);
    crate::verdict::zero("memory behind the queue", &rest)
}

/// Waits for an error event with this information (Base 2.1, 5.1.2): its log
/// page is Error Information.
fn expect_error_event(bench: &mut Bench, request: u16, information: u32) -> Verdict {
    let dw0 = bench.event(request)?;
    same("event type (error)", dw0 & 0b111, 0)?;
    same("event information", dw0 >> 8 & 0xff, information)?;
    same("log page", dw0 >> 16 & 0xff, 0x01)
}

fn bad_tail(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut good = bench.pair(8)?;
    let bad = bench.pair(8)?;
    let request = bench.request_event()?;
    bench.ring_loudly(tail_of(bad.sq.id), 8)?;
    expect_error_event(bench, request, 0x01)?;
    for _ in 0..20 {
        bench.run(&mut good, flush(&ns))?.ok()?;
    }
    bench.expect_nothing(&bad.cq, "nothing was submitted")
}

fn bad_head(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut good = bench.pair(8)?;
    let bad = bench.pair(8)?;
    let request = bench.request_event()?;
    bench.ring_loudly(head_of(bad.cq.id), 0xffff)?;
    expect_error_event(bench, request, 0x01)?;
    for _ in 0..20 {
        bench.run(&mut good, flush(&ns))?.ok()?;
    }
    Ok(())
}

fn head_past_posted(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let mut good = bench.pair(8)?;
    let mut bad = bench.pair(8)?;
    for _ in 0..3 {
        bench.run(&mut bad, flush(&ns))?.ok()?;
    }
    let request = bench.request_event()?;
    // Three were posted and taken; a fourth was not posted.
    bench.ring_loudly(head_of(bad.cq.id), 4)?;
    expect_error_event(bench, request, 0x01)?;
    for _ in 0..20 {
        bench.run(&mut good, flush(&ns))?.ok()?;
    }
    Ok(())
}

fn doorbell_of_no_queue(bench: &mut Bench) -> Verdict {
    let (sqs, _) = bench.grant()?;
    let Some(last) = u16::try_from(sqs).ok() else {
        return not_supported("every queue identifier is granted");
    };
    let request = bench.request_event()?;
    // By a register write: the controller does not see a store into a page.
    let at = bench.doorbell_at(tail_of(last));
    bench.bus().ring(at, 1)?;
    expect_error_event(bench, request, 0x00)?;
    bench.controller().map(drop)
}

fn doorbell_of_deleted_queue(bench: &mut Bench) -> Verdict {
    let ns = bench.ns()?;
    let pair = bench.pair(8)?;
    bench.delete_sq(1)?.ok()?;
    bench.delete_cq(1)?.ok()?;
    bench.ring_loudly(tail_of(pair.sq.id), 3)?;
    bench.ring_loudly(head_of(pair.cq.id), 3)?;
    bench.idle()?;
    let cq = bench.create_cq(1, 8)?;
    let sq = bench.create_sq(1, 8, 1)?;
    let mut pair = Pair { sq, cq };
    bench.expect_nothing(&pair.cq, "the queue is new")?;
    for _ in 0..10 {
        bench.run(&mut pair, flush(&ns))?.ok()?;
    }
    Ok(())
}
