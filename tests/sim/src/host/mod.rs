//! A host as a state machine: it connects, enables its controller, creates queues, submits and
//! verifies, and does at random what hosts do to controllers.
//!
//! It looks at a completion queue with interrupts only when one was raised. It believes nothing:
//! each completion must be of a command that is out, in the right queue; each read must be what the
//! ledger allows; the device may not write to memory that the host has unmapped; and everything
//! must end in time.

mod admin;
mod copies;
mod events;
mod io;
mod queue;
mod ram;
mod reserve;
mod zoned;

use std::sync::Arc;

use memory::DoorbellPages;

use self::admin::{Admin, Op};
use self::queue::{CQS, Cq, SQS, Sq, excuse};
use self::ram::Ram;
use crate::around::{Around, Failure};
use crate::random::Random;
use crate::wire::{Answer, Message};

/// Interval of the checks for commands that time out.
const CHECK_NS: u64 = 1_000_000;
/// Not at all.
const NEVER: u64 = u64::MAX;

// Registers (Base 2.1, figure 35).
const CC: u64 = 0x14;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;
/// 64- and 16-byte entries, 4 KiB pages, the NVM command set, enabled.
const CC_ENABLED: u64 = 0x0046_0001;
/// In addition, Shutdown Notification: normal.
const CC_SHUTDOWN: u64 = 1 << 14;
/// In addition, all command sets.
const CC_ALL_SETS: u64 = 6 << 4;

/// How a host rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbells {
    /// Into pages that the controller looks at.
    Mapped,
    /// Into a buffer, and by a message past EventIdx.
    Shadow,
    /// By messages.
    Trapped,
}

/// A namespace of the host's controller.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Its number in the ledger.
    pub space: u16,
    /// Its identifier.
    pub nsid: u32,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block, as a power of two.
    pub shift: u8,
    /// Number of its medium.
    pub medium: usize,
    /// Its first byte there.
    pub start: u64,
}

/// How a host behaves.
#[derive(Clone, Debug)]
pub struct Manners {
    /// How it rings.
    pub doorbells: Doorbells,
    /// Where it rings into a buffer, it does so for queue 0, too.
    pub buffered_admin: bool,
    /// Completion queues that it creates.
    pub cqs: usize,
    /// Submission queues that it creates.
    pub sqs: usize,
    /// Nanoseconds between batches of commands: up to this.
    pub think_ns: u64,
    /// Nanoseconds between the events that it makes: up to twice this. 0: it makes none.
    pub event_ns: u64,
    /// Interrupt Coalescing: aggregation threshold and time (Base 2.1, 5.1.25.2.2), 0 for none.
    pub coalescing: u16,
    /// One command in so many is large.
    pub large: u64,
    /// It copies.
    pub copies: bool,
    /// It reserves namespaces.
    pub reserves: bool,
    /// Its namespace has zones.
    pub zoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits to be connected.
    Connecting,
    /// CC.EN is set; it waits for CSTS.RDY.
    Enabling,
    /// Queues are created.
    Setup,
    Running,
    /// CC.EN is clear; it waits for CSTS.RDY to fall.
    Disabling,
    /// It waits for CSTS.SHST.
    ShuttingDown,
    /// The function is being reset.
    Resetting,
    /// Nothing is submitted until nothing is out; then the rings move.
    Quiescing,
    /// The rings' memory is being taken away.
    MovingRings,
    /// It is dead; the next one comes.
    Dead {
        until: u64,
    },
}

impl Phase {
    /// Whether commands complete.
    fn is_served(self) -> bool {
        use Phase::{Quiescing, Running, Setup, ShuttingDown};
        matches!(self, Setup | Running | Quiescing | ShuttingDown)
    }
}

/// A host.
#[derive(Debug)]
pub struct Host {
    id: usize,
    random: Random,
    manners: Manners,
    spaces: Vec<Space>,
    ram: Ram,
    /// The memory of the previous host, which the device may not write to.
    ghost: Option<Ram>,
    pages: Option<Arc<DoorbellPages>>,
    phase: Phase,
    since: u64,
    /// When the Status register is read next.
    ask_at: u64,
    admin_sq: Sq,
    admin_cq: Cq,
    admin: Admin,
    sqs: Vec<Sq>,
    cqs: Vec<Cq>,
    /// The controller looks at the doorbell buffers.
    shadowed: bool,
    /// It may copy between namespaces.
    copies_across: bool,
    next_issue: u64,
    next_event: u64,
    next_check: u64,
    scratch: Vec<u8>,
    /// When its next step is.
    pub due: u64,
}

impl Host {
    /// A host that is about to connect.
    #[must_use]
    pub fn new(id: usize, manners: Manners, spaces: Vec<Space>, random: Random) -> Self {
        let cqs = manners.cqs.clamp(1, CQS);
        let sqs = manners.sqs.clamp(cqs, SQS);
        Host {
            id,
            random,
            spaces,
            ram: Ram::new(),
            ghost: None,
            pages: None,
            phase: Phase::Dead { until: 0 },
            since: 0,
            ask_at: NEVER,
            admin_sq: Sq::admin(),
            admin_cq: Cq::admin(),
            admin: Admin::default(),
            sqs: (0..sqs).map(|at| Sq::new(at, at % cqs)).collect(),
            cqs: (0..cqs).map(Cq::new).collect(),
            shadowed: false,
            copies_across: false,
            next_issue: NEVER,
            next_event: NEVER,
            next_check: 0,
            scratch: Vec::new(),
            due: 0,
            manners,
        }
    }

    /// Whether it has nothing out and is in the midst of nothing.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let regions = &self.ram.regions;
        self.phase == Phase::Running
            && self.admin.is_idle()
            && self.sqs.iter().all(|sq| sq.out == 0)
            && regions.iter().all(|r| r.state == ram::State::Mapped)
    }

    fn fail<T>(&self, around: &Around<'_>, what: impl std::fmt::Display) -> Result<T, Failure> {
        Err(Failure(format!(
            "at {} ns, host {}: {what}",
            around.now, self.id
        )))
    }

    fn enter(&mut self, around: &Around<'_>, phase: Phase) {
        around.trace(self.id, || format!("{phase:?}"));
        self.phase = phase;
        self.since = around.now;
        self.ask_at = match phase {
            Phase::Enabling | Phase::Disabling | Phase::ShuttingDown => around.now,
            _ => NEVER,
        };
    }

    /// One step.
    ///
    /// # Errors
    /// What must not be.
    pub fn step(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let now = around.now;
        while let Some(answer) = around.wire.answers.pop_front() {
            self.hear(answer, around)?;
        }
        self.take_interrupts(around);
        self.look_at_queues(around)?;
        match self.phase {
            Phase::Dead { until } if now >= until => {
                around.wire.send(Message::Connect);
                around.trace(self.id, || format!("{:?}", self.manners));
                self.enter(around, Phase::Connecting);
            }
            Phase::Setup if self.admin.is_idle() => {
                self.enter(around, Phase::Running);
                self.next_issue = now;
                self.plan_event(now);
            }
            Phase::Quiescing if self.is_drained() => self.take_rings_away(around),
            Phase::Setup | Phase::Running | Phase::Quiescing => self.send_admin(around),
            _ => {}
        }
        if now >= self.ask_at {
            around.wire.send(Message::ReadStatus);
            self.ask_at = NEVER;
        }
        if self.phase == Phase::Running {
            self.map_again(around)?;
            if now >= self.next_issue && !around.ending {
                self.issue(around);
            }
            if now >= self.next_event && !around.ending {
                self.make_event(around);
            }
        }
        if now >= self.next_check {
            self.next_check = now + CHECK_NS;
            self.check_time(around)?;
        }
        self.plan(around);
        Ok(())
    }

    /// When the next step is.
    fn plan(&mut self, around: &Around<'_>) {
        let mut due = self.next_check.min(self.ask_at);
        match self.phase {
            Phase::Running if !around.ending => {
                due = due.min(self.next_issue).min(self.next_event);
            }
            Phase::Dead { until } => due = due.min(until),
            _ => {}
        }
        if self.phase.is_served() {
            for cq in self.cqs.iter().chain([&self.admin_cq]) {
                due = due.min(cq.look_at.unwrap_or(NEVER));
            }
        }
        if around.wire.has_news() {
            due = around.now;
        }
        self.due = due.max(around.now + 50);
    }

    /// There is something for the host: it looks soon.
    pub fn notice(&mut self, now: u64) {
        let soon = now + self.random.between(100, 3_000);
        self.due = self.due.min(soon);
    }

    fn hear(&mut self, answer: Answer, around: &mut Around<'_>) -> Result<(), Failure> {
        match answer {
            Answer::Connected(pages) => {
                if let Some(ghost) = self.ghost.take()
                    && !ghost.is_intact(None)
                {
                    return self.fail(around, "memory of the host before was written to");
                }
                if self.pages.replace(pages).is_some() {
                    self.leave_memory(around);
                }
                self.share_everything(around);
                self.enable(around)
            }
            Answer::Status(status) => self.hear_status(status, around),
            Answer::Mapped { iova } => {
                self.mapped(iova, around);
                Ok(())
            }
            Answer::Unmapped { iova } => self.unmapped(iova, around),
            Answer::WasReset => {
                self.drop_everything(around);
                self.enable(around)
            }
        }
    }

    fn hear_status(&mut self, status: u32, around: &mut Around<'_>) -> Result<(), Failure> {
        let failed = status & 0b10 != 0;
        // A medium that cannot be flushed at a shutdown; a reset helps.
        let may_fail = matches!(self.phase, Phase::ShuttingDown | Phase::Disabling);
        if failed && !(may_fail && around.faults) {
            return self.fail(around, "CSTS.CFS is set: the controller has failed");
        }
        let ready = status & 1 == 1;
        let over = match self.phase {
            Phase::Enabling => ready,
            Phase::Disabling => !ready && !failed,
            Phase::ShuttingDown => failed || status >> 2 & 0b11 == 0b10,
            // An answer to an earlier phase.
            _ => return Ok(()),
        };
        if !over {
            let vain_ns = around.now - self.since;
            self.ask_at = around.now + self.random.between(2_000, 100_000) + vain_ns / 64;
            return Ok(());
        }
        match self.phase {
            Phase::Enabling => return self.set_up(around),
            Phase::ShuttingDown => {
                around.wire.send(write(CC, 0));
                self.enter(around, Phase::Disabling);
            }
            _ => {
                self.drop_everything(around);
                return self.enable(around);
            }
        }
        Ok(())
    }

    fn share_everything(&mut self, around: &mut Around<'_>) {
        let mapping = self.ram.mapping();
        let rings = (ram::RINGS_IOVA, self.ram.rings_offset());
        let data = (0..ram::REGIONS).map(|r| (Ram::region_iova(r), Ram::region_offset(r)));
        for (iova, offset) in [rings].into_iter().chain(data) {
            around.wire.send(Message::Map {
                iova,
                len: ram::REGION_LEN as u64,
                offset,
                mapping: mapping.clone(),
            });
        }
    }

    /// Everything before it is over.
    fn enable(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        let entries = 32;
        let intact =
            self.admin_sq.renew(&self.ram, entries) & self.admin_cq.renew(&self.ram, entries);
        if !intact {
            return self.fail(around, "an admin queue of before was written to");
        }
        self.shadowed = false;
        self.copies_across = false;
        self.admin = Admin::default();
        let aqa = u64::from(entries - 1) << 16 | u64::from(entries - 1);
        around.wire.send(write(AQA, aqa));
        for (register, place) in [(ASQ, self.admin_sq.place), (ACQ, self.admin_cq.place)] {
            around.wire.send(Message::Write {
                offset: register,
                value: place.iova(),
                len: 8,
            });
        }
        around.wire.send(write(CC, self.cc()));
        self.enter(around, Phase::Enabling);
        Ok(())
    }

    fn set_up(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        if self.manners.doorbells == Doorbells::Shadow && !self.random.once_in(8) {
            self.admin.push(Op::Doorbells);
        }
        if self.manners.reserves {
            self.admin.push(Op::Identifier);
        }
        if self.manners.copies && !self.random.once_in(8) {
            self.admin.push(Op::Behavior);
        }
        if self.manners.coalescing != 0 {
            self.admin.push(Op::Coalescing(self.manners.coalescing));
        }
        for cq in 0..self.cqs.len() {
            self.renew_cq(cq, around)?;
            self.admin.push(Op::CreateCq(cq));
        }
        for sq in 0..self.sqs.len() {
            self.renew_sq(sq, around)?;
            self.admin.push(Op::CreateSq(sq));
        }
        self.enter(around, Phase::Setup);
        self.send_admin(around);
        Ok(())
    }

    /// Drops all queues of the controller's previous life: their commands have ended with an
    /// unknown outcome.
    fn drop_everything(&mut self, around: &mut Around<'_>) {
        for sq in 0..self.sqs.len() {
            self.drop_queue(sq, around);
            self.sqs[sq].open = false;
        }
        for cq in &mut self.cqs {
            cq.look_at = None;
        }
        self.admin_cq.look_at = None;
    }

    /// Fails if a command or a phase has timed out.
    fn check_time(&mut self, around: &Around<'_>) -> Result<(), Failure> {
        let (now, bounds) = (around.now, around.bounds);
        for (at, sq) in self.sqs.iter().enumerate() {
            let late = |since: u64| now.saturating_sub(since) > bounds.io_ns;
            let served = self.phase.is_served() && self.phase != Phase::ShuttingDown;
            let mut out = sq.slots.iter().flatten();
            if served && let Some(command) = out.find(|command| late(command.since)) {
                let text = format!(
                    "a stall: {command:?} of submission queue {} (tail {}, fetched {}), completion queue {:?}",
                    at + 1,
                    sq.tail,
                    sq.head,
                    self.cqs[sq.cq]
                );
                return self.fail(around, text);
            }
        }
        if let Some(op) = self.admin.late(now, bounds.admin_ns) {
            return self.fail(around, format!("a stall: the admin command {op:?}"));
        }
        for region in &self.ram.regions {
            if let ram::State::Unmapping { since } = region.state
                && now.saturating_sub(since) > bounds.unmap_ns
            {
                return self.fail(around, "a stall: an unmap is not answered");
            }
        }
        let bound = match self.phase {
            Phase::Running | Phase::Dead { .. } => return Ok(()),
            Phase::Quiescing => bounds.io_ns + bounds.admin_ns,
            Phase::Setup => 64 * bounds.admin_ns,
            Phase::MovingRings => bounds.unmap_ns,
            _ => bounds.reset_ns,
        };
        if now.saturating_sub(self.since) > bound {
            return self.fail(around, format!("a stall: {:?}", self.phase));
        }
        Ok(())
    }

    /// Marks what is out and may fail for that reason.
    fn excuse(&mut self, why: u8, of: impl Fn(usize, &queue::Command) -> bool) {
        for (at, sq) in self.sqs.iter_mut().enumerate() {
            for command in sq.slots.iter_mut().flatten() {
                if of(at, command) {
                    command.excuses |= why;
                }
            }
        }
    }

    /// Whether nothing is out at all.
    fn is_drained(&self) -> bool {
        self.admin.is_idle() && self.sqs.iter().all(|sq| sq.out == 0)
    }

    fn take_rings_away(&mut self, around: &mut Around<'_>) {
        // Nothing is posted meanwhile, so the host has seen everything and told so.
        around.wire.send(Message::Unmap {
            iova: ram::RINGS_IOVA,
            len: ram::REGION_LEN as u64,
        });
        around.tally.unmaps += 1;
        self.enter(around, Phase::MovingRings);
    }

    fn die(&mut self, around: &mut Around<'_>) {
        around.tally.deaths += 1;
        around.wire.messages.clear();
        around.wire.send(Message::Gone);
        around.wire.answers.clear();
        let until = around.now + self.random.spread(1_000, 10_000_000);
        // Its commands may go on until the next host is connected: no host gets their outcome.
        self.excuse(excuse::SHUTDOWN, |_, _| true);
        self.enter(around, Phase::Dead { until });
    }

    /// The memory of the host that died is left behind; the next one begins with its own.
    fn leave_memory(&mut self, around: &mut Around<'_>) {
        self.drop_everything(around);
        let old = std::mem::take(&mut self.ram);
        old.poison(None);
        self.ghost = Some(old);
        let cqs = self.cqs.len();
        let interrupts: Vec<bool> = self.cqs.iter().map(|cq| cq.interrupts).collect();
        self.admin_sq = Sq::admin();
        self.admin_cq = Cq::admin();
        self.sqs = (0..self.sqs.len())
            .map(|at| Sq::new(at, at % cqs))
            .collect();
        self.cqs = (0..cqs).map(Cq::new).collect();
        for (cq, interrupts) in self.cqs.iter_mut().zip(interrupts) {
            cq.interrupts = interrupts;
        }
    }

    /// The configuration of its controller.
    fn cc(&self) -> u64 {
        let sets = if self.manners.zoned { CC_ALL_SETS } else { 0 };
        CC_ENABLED | sets
    }

    fn plan_event(&mut self, now: u64) {
        self.next_event = match self.manners.event_ns {
            0 => NEVER,
            mean => now + self.random.below(2 * mean),
        };
    }
}

fn write(offset: u64, value: u64) -> Message {
    Message::Write {
        offset,
        value,
        len: 4,
    }
}
