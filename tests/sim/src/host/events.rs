//! Actions of a host on a controller that serves it.

use super::admin::Op;
use super::queue::{Command, excuse};
use super::ram::{self, Ram, State};
use super::{CC, CC_SHUTDOWN, Host, NEVER, Phase, write};
use crate::around::{Around, Failure};
use crate::wire::Message;

/// A possible action of a host.
#[derive(Clone, Copy, Debug)]
enum Event {
    Reset,
    Shutdown,
    FunctionReset,
    Death,
    DeleteQueues,
    Unmap,
    MoveRings,
    Abort,
    Identify,
    NewLines,
    Pause,
    Depth,
}

/// How often, among each other.
const EVENTS: [(Event, u64); 12] = [
    (Event::Reset, 3),
    (Event::Shutdown, 2),
    (Event::FunctionReset, 2),
    (Event::Death, 2),
    (Event::DeleteQueues, 8),
    (Event::Unmap, 14),
    (Event::MoveRings, 3),
    (Event::Abort, 10),
    (Event::Identify, 4),
    (Event::NewLines, 4),
    (Event::Pause, 14),
    (Event::Depth, 10),
];

impl Host {
    pub(super) fn make_event(&mut self, around: &mut Around<'_>) {
        let sum = EVENTS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(sum);
        let chosen = EVENTS.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        let event = chosen.expect("below the sum").0;
        around.trace(self.id, || format!("{event:?}"));
        self.plan_event(around.now);
        self.do_event(event, around);
    }

    fn do_event(&mut self, event: Event, around: &mut Around<'_>) {
        let now = around.now;
        match event {
            Event::Reset => {
                around.tally.resets += 1;
                around.wire.send(write(CC, self.cc() & !1));
                self.enter(around, Phase::Disabling);
            }
            Event::Shutdown => {
                around.tally.resets += 1;
                around.wire.send(write(CC, self.cc() | CC_SHUTDOWN));
                self.excuse(excuse::SHUTDOWN, |_, _| true);
                self.enter(around, Phase::ShuttingDown);
            }
            Event::FunctionReset => {
                around.tally.resets += 1;
                around.wire.send(Message::Reset);
                self.enter(around, Phase::Resetting);
            }
            Event::Death => self.die(around),
            Event::DeleteQueues if self.admin.is_idle() => self.delete_queues(around),
            Event::DeleteQueues => {}
            Event::Unmap => self.unmap(around),
            Event::MoveRings => {
                self.next_issue = NEVER;
                self.enter(around, Phase::Quiescing);
            }
            Event::Abort => self.abort(),
            Event::Identify => self.admin.push(Op::Identify),
            Event::NewLines => around.wire.send(Message::NewLines),
            Event::Pause => {
                // Only for a reactor to sleep, or long enough for lanes to grow cold, or for what
                // was lost to show.
                let most = self.random.pick(&[200_000, 3_000_000, 300_000_000]);
                self.next_issue = now + self.random.spread(20_000, most);
                self.next_event = self.next_event.max(self.next_issue);
            }
            Event::Depth => {
                for sq in &mut self.sqs {
                    sq.depth = self.random.spread(1, 64) as usize;
                }
            }
        }
        self.send_admin(around);
    }

    fn abort(&mut self) {
        if self.admin.aborts() {
            return;
        }
        let at = self.random.index(self.sqs.len());
        let sq = &mut self.sqs[at];
        if sq.open
            && let Some(command) = sq.slots.iter_mut().flatten().next_back()
        {
            command.excuses |= excuse::ABORT;
            let op = Op::Abort(at, command.cid);
            self.admin.push(op);
        }
    }

    fn unmap(&mut self, around: &mut Around<'_>) {
        let mapped = |region: &ram::Region| region.state == State::Mapped;
        if self.ram.regions.iter().filter(|r| mapped(r)).count() < 2 {
            return;
        }
        let region = self.random.index(ram::REGIONS);
        if !mapped(&self.ram.regions[region]) {
            return;
        }
        around.tally.unmaps += 1;
        around.trace(self.id, || format!("unmaps region {region}"));
        self.ram.regions[region].state = State::Unmapping { since: around.now };
        self.excuse(excuse::UNMAP, uses(region));
        around.wire.send(Message::Unmap {
            iova: Ram::region_iova(region),
            len: ram::REGION_LEN as u64,
        });
    }

    pub(super) fn unmapped(&mut self, iova: u64, around: &mut Around<'_>) -> Result<(), Failure> {
        if iova == ram::RINGS_IOVA {
            return self.move_rings(around);
        }
        let region = Ram::region_of(iova).expect("what it unmapped");
        let until = around.now + self.random.spread(1_000, 1_000_000);
        self.ram.regions[region].state = State::Unmapped { until };
        // From now on the device may not write there, nor read: data written from there is wrong.
        self.ram.poison(Some(region));
        around.trace(self.id, || format!("region {region} is unmapped"));
        for sq in &mut self.sqs {
            let out = sq.slots.iter_mut().flatten();
            out.filter(|c| uses(region)(0, c))
                .for_each(|c| c.lost = true);
        }
        Ok(())
    }

    fn move_rings(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        if !self.ram.move_rings() {
            return self.fail(around, "rings that had moved were written to");
        }
        around.wire.send(Message::Map {
            iova: ram::RINGS_IOVA,
            len: ram::REGION_LEN as u64,
            offset: self.ram.rings_offset(),
            mapping: self.ram.mapping(),
        });
        Ok(())
    }

    pub(super) fn mapped(&mut self, iova: u64, around: &Around<'_>) {
        if let Some(region) = Ram::region_of(iova) {
            self.ram.regions[region].state = State::Mapped;
        } else if self.phase == Phase::MovingRings {
            self.enter(around, Phase::Running);
            self.next_issue = around.now;
        }
    }

    /// Maps regions whose time has come, and which no command uses any more.
    pub(super) fn map_again(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        for region in 0..ram::REGIONS {
            let State::Unmapped { until } = self.ram.regions[region].state else {
                continue;
            };
            if !around.ending && (around.now < until || self.ram.is_used(region)) {
                continue;
            }
            if self.ram.is_used(region) {
                continue;
            }
            if !self.ram.is_intact(Some(region)) {
                let text = format!("region {region} was written to after its unmap was answered");
                return self.fail(around, text);
            }
            self.ram.regions[region].state = State::Mapping;
            around.trace(self.id, || format!("maps region {region}"));
            around.wire.send(Message::Map {
                iova: Ram::region_iova(region),
                len: ram::REGION_LEN as u64,
                offset: Ram::region_offset(region),
                mapping: self.ram.mapping(),
            });
        }
        Ok(())
    }
}

fn uses(region: usize) -> impl Fn(usize, &Command) -> bool {
    move |_, command| matches!(command.pages, Some(pages) if usize::from(pages.region) == region)
}
