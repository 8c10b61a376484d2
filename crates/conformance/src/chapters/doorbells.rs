//! Doorbell Buffer Config (Base 2.1, 5.2.5 and Annex B.5).

use driver::Doorbells;

use super::{Chapter, Scope, Test, tests, why};
use crate::bench::{Bench, Cq, Mem, Ns, Pair, Sq, head_of, opcode, tail_of};
use crate::verdict::{Verdict, check, same};
use crate::wire::{Sqe, status};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "doorbells",
    title: "Doorbell Buffer Config",
    scope: Scope::Pcie(why::RINGS),
    tests: TESTS,
};

const TESTS: &[Test] = tests![
    misaligned, "Base 2.1, 5.2.5", "pages that do not start a memory page are refused";
    nowhere, "Base 2.1, 5.2.5", "pages where no memory is are refused, and the controller goes on";
    commands, "Base 2.1, 5.2.5", "commands are found by their shadow doorbells, the register written only past EventIdx";
    register_alone, "Base 2.1, B.5", "commands are found where the host writes the register and not the shadow";
    host_page_unwritten, "Base 2.1, 5.2.5", "the controller never writes the shadow doorbells";
    slots_of_others, "Base 2.1, 5.2.5", "EventIdx of queues that do not exist is left alone";
    admin_commands, "Base 2.1, B.5", "admin commands are found by the shadow doorbells of queue 0, the register written only past EventIdx";
    admin_register_alone, "Base 2.1, B.5", "admin commands are found where the host writes the registers of queue 0 and not the shadow";
    full_cq, "Base 2.1, B.5", "a completion queue that was full goes on when its shadow head moves";
    late_wake, "Base 2.1, B.5", "a queue that was idle for a while is found again, over many laps";
    ends_with_reset, "Base 2.1, 5.2.5", "after a reset neither page is used";
    queue_of_before, "Base 2.1, 5.2.5", "a queue made before the pages were given takes the shadow from then on";
];

fn needs(bench: &mut Bench) -> Verdict {
    bench.needs_oacs(8, "Doorbell Buffer Config")
}

fn flush(ns: &Ns) -> Sqe {
    Sqe::new(opcode::FLUSH).nsid(ns.nsid)
}

fn misaligned(bench: &mut Bench) -> Verdict {
    needs(bench)?;
    let mem = bench.mem(3 * 4096)?;
    for prps in [
        (mem.at(4), mem.at(4096)),
        (mem.iova(), mem.at(4096 + 2048)),
        (mem.at(2048), mem.at(8192)),
    ] {
        bench
            .admin(Sqe::new(0x7c).prps(prps))?
            .expect_any(&[status::INVALID_FIELD, status::PRP_OFFSET_INVALID])?;
    }
    bench.pair(8).map(drop)
}

fn nowhere(bench: &mut Bench) -> Verdict {
    needs(bench)?;
    let mem = bench.mem(4096)?;
    for prps in [
        (0x0076_5432_1000_0000, mem.iova()),
        (mem.iova(), u64::MAX - 4095),
    ] {
        bench.admin(Sqe::new(0x7c).prps(prps))?.expect_error()?;
    }
    let (ns, mut pair) = bench.io()?;
    bench.run(&mut pair, flush(&ns))?.ok().map(drop)
}

/// Both pages are set up, before any queue.
fn set_up(bench: &mut Bench) -> Verdict<crate::bench::Shadow> {
    needs(bench)?;
    // Where doorbells are to be rung so, granting queues sets the pages up;
    // these replace them.
    bench.grant()?;
    bench.set_up_shadow()
}

fn commands(bench: &mut Bench) -> Verdict {
    set_up(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    for turn in 0..200 {
        let count = turn % 7 + 1;
        for _ in 0..count {
            bench.put(&mut pair.sq, flush(&ns));
        }
        bench.ring_sq(&pair.sq)?;
        for _ in 0..count {
            bench.wait(&mut pair.cq)?.ok()?;
        }
    }
    Ok(())
}

fn register_alone(bench: &mut Bench) -> Verdict {
    set_up(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    for _ in 0..20 {
        bench.put(&mut pair.sq, flush(&ns));
        let at = bench.doorbell_at(tail_of(pair.sq.id));
        bench.bus().ring(at, pair.sq.tail)?;
        bench.wait(&mut pair.cq)?.ok()?;
    }
    Ok(())
}

fn host_page_unwritten(bench: &mut Bench) -> Verdict {
    let shadow = set_up(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    // Slots of no queue here; the controller has no reason to touch them.
    for at in (64..4096).step_by(4) {
        shadow.doorbells.store(at, 0x5a5a_0000);
    }
    for _ in 0..30 {
        bench.run(&mut pair, flush(&ns))?.ok()?;
    }
    let stride = usize::try_from(bench.doorbell_stride()).unwrap_or(4);
    for at in (64.max(stride * 4)..4096).step_by(4) {
        let what = format!("shadow doorbells, byte {at}");
        same(&what, shadow.doorbells.load(at), 0x5a5a_0000)?;
    }
    let slot = |number: u32| usize::try_from(number).unwrap_or(0) * stride;
    let tail = shadow.doorbells.load(slot(tail_of(pair.sq.id)));
    same("shadow tail", tail, pair.sq.tail)?;
    let head = shadow.doorbells.load(slot(head_of(pair.cq.id)));
    same("shadow head", head, pair.cq.head)
}

fn slots_of_others(bench: &mut Bench) -> Verdict {
    let shadow = set_up(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    let stride = usize::try_from(bench.doorbell_stride()).unwrap_or(4);
    let own = [tail_of(pair.sq.id), head_of(pair.cq.id)]
        .map(|number| usize::try_from(number).unwrap_or(0) * stride);
    // Those of the admin queue come first; a host may or may not ring it so.
    let others: Vec<usize> = (2 * stride..4096)
        .step_by(4)
        .filter(|at| !own.contains(at))
        .collect();
    for &at in &others {
        shadow.event_idx.store(at, 0x5a5a_0000);
    }
    for _ in 0..30 {
        bench.run(&mut pair, flush(&ns))?.ok()?;
        bench.controller()?;
    }
    bench.idle()?;
    for &at in &others {
        let what = format!("EventIdx page, byte {at}, of no queue");
        same(&what, shadow.event_idx.load(at), 0x5a5a_0000)?;
    }
    Ok(())
}

/// More than one lap of any admin queue that the bench makes.
const LAPS: u32 = 300;

fn admin_commands(bench: &mut Bench) -> Verdict {
    let shadow = set_up(bench)?;
    bench.shadow_the_admin_queue();
    for command in 0..LAPS {
        if command % 100 == 7 {
            // A controller that sleeps has to be rung awake.
            bench.idle()?;
        }
        bench.controller()?;
    }
    let stride = usize::try_from(bench.doorbell_stride()).unwrap_or(4);
    let told = [0, stride].map(|at| shadow.doorbells.load(at));
    bench.with_admin(|_, pair| {
        same("shadow tail of queue 0", told[0], pair.sq.tail)?;
        same("shadow head of queue 0", told[1], pair.cq.head)
    })?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    bench.run(&mut pair, flush(&ns))?.ok().map(drop)
}

fn admin_register_alone(bench: &mut Bench) -> Verdict {
    let shadow = set_up(bench)?;
    for _ in 0..LAPS {
        bench.controller()?;
    }
    let stride = usize::try_from(bench.doorbell_stride()).unwrap_or(4);
    same("shadow tail of queue 0", shadow.doorbells.load(0), 0)?;
    same("shadow head of queue 0", shadow.doorbells.load(stride), 0)
}

fn full_cq(bench: &mut Bench) -> Verdict {
    set_up(bench)?;
    let ns = bench.ns()?;
    let mut cq = bench.create_cq(1, 4)?;
    let mut sq = bench.create_sq(1, 32, 1)?;
    for _ in 0..30 {
        bench.put(&mut sq, flush(&ns));
    }
    bench.ring_sq(&sq)?;
    bench.idle()?;
    let mut taken = 0;
    while taken < 30 {
        // As many as there are, then one doorbell for all.
        let mut now = Vec::new();
        let bound = bench.options().bound;
        bench.until(bound, |_| Ok(cq.peek().is_some()))?;
        while let Some(cqe) = cq.take() {
            now.push(cqe);
        }
        check(!now.is_empty(), || {
            format!("{taken} of 30 commands completed, and then none")
        })?;
        for cqe in now {
            bench.known(cqe)?.ok()?;
            taken += 1;
        }
        bench.ring_cq(&cq)?;
        bench.idle()?;
    }
    bench.expect_nothing(&cq, "all 30 commands are done")
}

fn late_wake(bench: &mut Bench) -> Verdict {
    set_up(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(3)?;
    for _ in 0..20 {
        bench.idle()?;
        bench.run(&mut pair, flush(&ns))?.ok()?;
    }
    Ok(())
}

fn ends_with_reset(bench: &mut Bench) -> Verdict {
    let shadow = set_up(bench)?;
    let ns = bench.ns()?;
    let mut pair = bench.pair(8)?;
    bench.run(&mut pair, flush(&ns))?.ok()?;
    // The controller no longer knows the pages; they are kept here by us.
    bench.start()?;
    let poisoned = |mem: &Mem| {
        for at in (0..4096).step_by(4) {
            mem.store(at, 3);
        }
    };
    poisoned(&shadow.doorbells);
    poisoned(&shadow.event_idx);
    // Queues that ring their registers, whatever was chosen for others.
    let mut trapped = Trapped::new(bench)?;
    for _ in 0..10 {
        trapped.run(bench, flush(&ns))?;
    }
    bench.expect_nothing(&trapped.cq, "a stale shadow tail says 3")?;
    for mem in [&shadow.doorbells, &shadow.event_idx] {
        for at in (0..4096).step_by(4) {
            let what = format!("a page given before the reset, byte {at}");
            same(&what, mem.load(at), 3)?;
        }
    }
    Ok(())
}

/// Queues made by hand, rung by their registers.
struct Trapped {
    sq: Sq,
    cq: Cq,
}

impl Trapped {
    fn new(bench: &mut Bench) -> Verdict<Self> {
        bench.set_feature(0x07, 0, 0)?.ok()?;
        let cq = bench.lay_out_cq(1, 8)?;
        bench.admin(Bench::create_cq_sqe(&cq))?.ok()?;
        let sq = bench.lay_out_sq(1, 8)?;
        bench.admin(Bench::create_sq_sqe(&sq, 1))?.ok()?;
        Ok(Self { sq, cq })
    }

    fn run(&mut self, bench: &mut Bench, sqe: Sqe) -> Verdict {
        bench.put(&mut self.sq, sqe);
        let at = bench.doorbell_at(tail_of(self.sq.id));
        bench.bus().ring(at, self.sq.tail)?;
        let bound = bench.options().bound;
        let cq = &self.cq;
        let came = bench.until(bound, |_| Ok(cq.peek().is_some()))?;
        check(came, || "no completion by the register alone".into())?;
        let cqe = self.cq.take().unwrap_or_default();
        bench.known(cqe)?.ok()?;
        let at = bench.doorbell_at(head_of(self.cq.id));
        Ok(bench.bus().ring(at, self.cq.head)?)
    }
}

fn queue_of_before(bench: &mut Bench) -> Verdict {
    needs(bench)?;
    if bench.options().doorbells == Doorbells::Shadow {
        // Queues are only ever made with pages there; the rest is `commands`.
        bench.grant()?;
    }
    let ns = bench.ns()?;
    let mut trapped = Trapped::new(bench)?;
    // No command yet: both doorbells are 0, in the registers and in the pages.
    bench.set_up_shadow()?;
    let Trapped { sq, cq } = trapped;
    let mut pair = Pair { sq, cq };
    for _ in 0..20 {
        bench.run(&mut pair, flush(&ns))?.ok()?;
    }
    trapped = Trapped {
        sq: pair.sq,
        cq: pair.cq,
    };
    same("submission queue tail", trapped.sq.tail, 20 % 8)
}
