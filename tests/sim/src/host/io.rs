//! I/O commands: how they are made, and what must come of them.

use super::queue::{Command, Completion, EVENT_IDX_PAGE, Kind, SHADOW_PAGE, SQ_ENTRIES, excuse};
use super::ram::{self, PAGE, State};
use super::{DOORBELLS, Doorbells, Host};
use crate::around::{Around, Failure};
use crate::ledger::{Effect, Span};
use crate::reservations::{self, CONFLICT};
use crate::stamp::{self, Place};
use crate::wire::Message;
use crate::zones::Ended;

/// Minimum time that a command hangs before it is aborted: 4 s, less the delay with which lanes
/// learn the time.
const GIVEN_UP_NS: u64 = 3_900_000_000;
/// A host that polls in vain for so many nanoseconds waits for one more.
const VAIN_SHARE: u64 = 64;
/// Bytes of one command at most.
pub(super) const TRANSFER_MAX: u64 = 32 << 10;

// Status Code Type and Status Code (Base 2.1, 4.2.3).
pub(super) const SUCCESS: u16 = 0;
const INVALID_OPCODE: u16 = 0x001;
pub(super) const INVALID_FIELD: u16 = 0x002;
const INVALID_NAMESPACE: u16 = 0x00b;
const DATA_TRANSFER_ERROR: u16 = 0x004;
const ABORTED: u16 = 0x007;
const ABORTED_SQ_DELETION: u16 = 0x008;
const INTERRUPTED: u16 = 0x021;
const WRITE_FAULT: u16 = 0x280;
const UNRECOVERED_READ_ERROR: u16 = 0x281;
const COMPARE_FAILURE: u16 = 0x285;

impl Host {
    /// Submits a batch to some queue.
    pub(super) fn issue(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        self.next_issue = now + 50 + self.random.below(self.manners.think_ns);
        let at = self.random.index(self.sqs.len());
        if !self.sqs[at].open {
            return;
        }
        let most = self.random.spread(1, 32);
        let mut put = 0;
        while put < most && self.sqs[at].has_room() && self.put(at, around) {
            put += 1;
        }
        if put > 0 {
            self.ring_tail(Some(at), around);
            let cq = &mut self.cqs[self.sqs[at].cq];
            if !cq.interrupts && cq.look_at.is_none() {
                cq.found_at = now;
                cq.look_at = Some(now + self.random.between(500, 20_000));
            }
        }
    }

    fn choose_kind(&mut self) -> Kind {
        match self.random.below(256) {
            0..115 => Kind::Read,
            115..235 => Kind::Write,
            235..243 => Kind::Compare,
            243..247 => Kind::Zeroes,
            247..250 => Kind::Deallocate,
            _ => Kind::Flush,
        }
    }

    pub(super) fn choose_span(&mut self, space: usize, kind: Kind) -> Span {
        let space = self.spaces[space];
        let most = TRANSFER_MAX >> space.shift;
        let count = match self.random.once_in(self.manners.large) {
            true if kind == Kind::Zeroes => self.random.between(1, 64),
            true => self.random.between(1, most),
            false => 1,
        };
        let count = count.min(space.blocks);
        Span {
            space: space.space,
            lba: self.random.below(space.blocks - count + 1),
            count: count as u32,
        }
    }

    /// Puts a command into a queue; false where there is no memory for it.
    fn put(&mut self, at: usize, around: &mut Around<'_>) -> bool {
        if self.manners.zoned {
            return self.put_to_zone(at, around);
        }
        if self.manners.reserves && self.random.once_in(128) {
            return self.put_reservation(at, around);
        }
        if self.manners.copies && self.random.once_in(16) {
            return self.put_copy(at, around);
        }
        let kind = self.choose_kind();
        let space = self.random.index(self.spaces.len());
        let mut span = self.choose_span(space, kind);
        let mut more = Vec::new();
        let shift = self.spaces[space].shift;
        let mut len = (span.count as usize) << shift;
        match kind {
            Kind::Deallocate => {
                let ranges = self.random.between(1, 3);
                more.extend((1..ranges).map(|_| self.choose_span(space, kind)));
                len = 16 * ranges as usize;
            }
            Kind::Zeroes => len = 0,
            Kind::Flush => {
                span.count = 0;
                len = 0;
            }
            _ => {}
        }
        let expected = match kind {
            Kind::Compare => around.ledger.certain(span).unwrap_or_default(),
            _ => Vec::new(),
        };
        let kind = match kind {
            Kind::Compare if expected.is_empty() => Kind::Read,
            kind => kind,
        };
        let spans = (span, more, Vec::new());
        self.submit_with((at, len), (kind, space), spans, expected, around)
    }

    /// Puts a command on these blocks of a namespace, with so much data, into a queue; false where
    /// there is no memory for it.
    pub(super) fn submit(
        &mut self,
        at: usize,
        kind: (Kind, usize),
        span: Span,
        len: usize,
        around: &mut Around<'_>,
    ) -> bool {
        let spans = (span, Vec::new(), Vec::new());
        self.submit_with((at, len), kind, spans, Vec::new(), around)
    }

    pub(super) fn submit_with(
        &mut self,
        (at, len): (usize, usize),
        (kind, space): (Kind, usize),
        (span, more, sources): (Span, Vec<Span>, Vec<Span>),
        expected: Vec<u64>,
        around: &mut Around<'_>,
    ) -> bool {
        let sgl = len > 0 && self.random.once_in(8);
        let pages = match len {
            0 => None,
            _ => match self.take_pages(len, sgl) {
                None => return false,
                pages => pages,
            },
        };
        let cid = self.sqs[at].take_cid();
        let slot = usize::from(cid & 0xff) + SQ_ENTRIES as usize * at;
        let mut command = Command {
            cid,
            kind,
            space,
            span,
            more,
            sources,
            mark: 0,
            reads_since: 0,
            since: around.now,
            pages,
            lost: false,
            excuses: 0,
            expected,
        };
        let dptr = match &command.pages {
            Some(pages) => self.ram.describe(pages, len, slot, sgl),
            None => [0; 2],
        };
        self.begin(&mut command, around);
        let words = self.words(&command, sgl, dptr);
        around.trace(self.id, || format!("queue {}: {command:?}", at + 1));
        let sq = &mut self.sqs[at];
        sq.put(&self.ram, words);
        sq.out += 1;
        sq.slots[usize::from(cid & 0xff)] = Some(command);
        true
    }

    fn take_pages(&mut self, len: usize, sgl: bool) -> Option<ram::Pages> {
        let region = self.random.index(ram::REGIONS);
        if self.ram.regions[region].state != State::Mapped {
            return None;
        }
        let offset = match self.random.once_in(4) {
            // An SGL may begin at any byte, a PRP entry at any dword.
            true if sgl => self.random.index(PAGE),
            true => 4 * self.random.index(PAGE / 4),
            false => 0,
        };
        self.ram.take(region, len, offset, &mut self.random)
    }

    /// The ledger learns of it, and its data is made.
    fn begin(&mut self, command: &mut Command, around: &mut Around<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if matches!(command.kind, Kind::Copy { .. }) {
            self.begin_copy(command, &mut scratch, around);
            if let Some(pages) = &command.pages {
                self.ram.scatter(pages, &scratch);
            }
            self.scratch = scratch;
            return;
        }
        let shift = self.spaces[command.space].shift;
        let size = 1 << shift;
        let Command {
            kind,
            span,
            pages,
            expected,
            more,
            ..
        } = command;
        let space = span.space;
        if let Kind::Zone(task) = *kind {
            self.fill_zone(task, *span, &mut scratch);
        } else if let Kind::Reserve(act) = *kind {
            Self::fill_keys(act, &mut scratch);
        } else if kind.writes() {
            let write = around.ledger.next_write();
            command.mark = write;
            for span in [*span].iter().chain(more.iter()) {
                around
                    .ledger
                    .begin_write(*span, write, *kind != Kind::Write);
            }
            if *kind == Kind::Write {
                scratch.resize(span.count as usize * size, 0);
                for (lba, block) in (span.lba..).zip(scratch.chunks_exact_mut(size)) {
                    stamp::fill(block, Place { space, lba }, write);
                }
            } else {
                scratch.clear();
                for span in [*span].iter().chain(more.iter()) {
                    let (count, lba) = (u64::from(span.count), span.lba);
                    scratch.extend_from_slice(&(count << 32).to_le_bytes());
                    scratch.extend_from_slice(&lba.to_le_bytes());
                }
            }
        } else {
            command.mark = around.ledger.begin_read(*span);
            scratch.clear();
            if *kind == Kind::Compare {
                scratch.resize(expected.len() * size, 0);
                let blocks = (span.lba..).zip(expected.iter());
                for ((lba, write), block) in blocks.zip(scratch.chunks_exact_mut(size)) {
                    match write {
                        0 => block.fill(0),
                        write => stamp::fill(block, Place { space, lba }, *write),
                    }
                }
            }
        }
        if let Some(pages) = pages
            && !scratch.is_empty()
        {
            self.ram.scatter(pages, &scratch);
        }
        self.scratch = scratch;
    }

    /// The entry (NVM Command Set 1.1, 3.3).
    fn words(&mut self, command: &Command, sgl: bool, dptr: [u64; 2]) -> [u64; 8] {
        let Span { lba, count, .. } = command.span;
        let flags = u64::from(sgl) << 6;
        let nsid = u64::from(self.spaces[command.space].nsid);
        let first = command.kind.opcode() | flags << 8 | u64::from(command.cid) << 16 | nsid << 32;
        let (lba, cdw12) = match command.kind {
            Kind::Flush => (0, 0),
            Kind::Zone(task) => Self::zone_words(task, command.span),
            Kind::Reserve(act) => (Self::reservation_words(act).1, 0),
            // Number of Ranges, 0's based; Descriptor Format.
            Kind::Copy { across } => {
                let format = if across { 2 << 8 } else { 0 };
                (lba, (command.sources.len() as u64 - 1) | format)
            }
            // Number of ranges, 0's based; Attribute - Deallocate.
            Kind::Deallocate => (command.more.len() as u64 | 1 << 34, 0),
            // Force Unit Access, now and then.
            Kind::Write | Kind::Read => {
                let fua = u64::from(self.random.once_in(16)) << 30;
                (lba, u64::from(count - 1) | fua)
            }
            _ => (lba, u64::from(count - 1)),
        };
        [first, 0, 0, dptr[0], dptr[1], lba, cdw12, 0]
    }

    /// Looks at what its time has come for.
    pub(super) fn look_at_queues(&mut self, around: &mut Around<'_>) -> Result<(), Failure> {
        if !self.phase.is_served() {
            return Ok(());
        }
        let now = around.now;
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if is_due(self.admin_cq.look_at) {
            self.admin_cq.look_at = None;
            while let Some(completion) = self.admin_cq.take(&self.ram) {
                self.admin_done(completion, around)?;
            }
            self.ring_head(None, around);
        }
        for cq in 0..self.cqs.len() {
            if is_due(self.cqs[cq].look_at) {
                self.cqs[cq].look_at = None;
                let most = if self.random.once_in(4) {
                    self.random.between(1, 16) as usize
                } else {
                    usize::MAX
                };
                self.look_at_queue(cq, most, around)?;
                self.look_again(cq, now);
            }
        }
        Ok(())
    }

    /// A host that polls looks again while something is out.
    fn look_again(&mut self, cq: usize, now: u64) {
        let out = self.sqs.iter().any(|sq| sq.cq == cq && sq.out > 0);
        let queue = &mut self.cqs[cq];
        if !queue.interrupts && out && queue.look_at.is_none() {
            // The longer in vain, the more rarely.
            let vain_ns = now.saturating_sub(queue.found_at);
            let interval = self.random.between(500, 20_000) + vain_ns / VAIN_SHARE;
            queue.look_at = Some(now + interval);
        }
    }

    /// Takes completions, at most so many; where there may be more, the host comes back soon.
    pub(super) fn look_at_queue(
        &mut self,
        cq: usize,
        most: usize,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        let mut taken = 0;
        loop {
            if taken == most {
                let soon = around.now + self.random.between(100, 5_000);
                self.cqs[cq].look_at = Some(soon);
                break;
            }
            let Some(completion) = self.cqs[cq].take(&self.ram) else {
                break;
            };
            taken += 1;
            self.done(cq, completion, around)?;
        }
        if taken > 0 {
            self.cqs[cq].found_at = around.now;
            self.ring_head(Some(cq), around);
        }
        Ok(())
    }

    fn done(
        &mut self,
        cq: usize,
        completion: Completion,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        let Completion { sqid, cid, .. } = completion;
        let sq = self.sqs.get_mut(usize::from(sqid).wrapping_sub(1));
        let Some(sq) = sq.filter(|sq| sq.cq == cq) else {
            return self.fail(
                around,
                format!("in completion queue {}: {completion:?}", cq + 1),
            );
        };
        if !sq.fetched(completion.sq_head) {
            let text = format!("{completion:?}: its head is beyond the tail {}", sq.tail);
            return self.fail(around, text);
        }
        around.trace(self.id, || format!("{completion:?}"));
        let Some(command) = sq.take(cid) else {
            let text = format!("nothing is out that this completes: {completion:?}");
            return self.fail(around, text);
        };
        around.tally.commands += 1;
        let took_ns = around.now - command.since;
        around.tally.longest_ns = around.tally.longest_ns.max(took_ns);
        let judged = self.judge(&command, completion, around);
        if let Some(pages) = &command.pages {
            self.ram.put_back(pages);
        }
        judged
    }

    /// Judges the status of a command, and the data that it read.
    fn judge(
        &mut self,
        command: &Command,
        completion: Completion,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        let failed = completion.status != SUCCESS;
        if let Kind::Reserve(act) = command.kind {
            return self.judge_reservation(act, command, completion, around);
        }
        self.check_access(command, completion.status, around)?;
        match command.kind {
            _ if completion.status == CONFLICT => {
                around.tally.conflicts += 1;
                self.refused(command, around);
                Ok(())
            }
            _ if failed && completion.status != COMPARE_FAILURE => {
                if !may_fail(command, completion.status, around) {
                    let text = format!("{command:?} ended with {completion:?}");
                    return self.fail(around, text);
                }
                around.tally.errors += 1;
                self.drop(command, around);
                Ok(())
            }
            Kind::Zone(task) if !failed => self.judge_zone(task, command, completion, around),
            Kind::Copy { .. } if !failed => {
                let Command {
                    span,
                    sources,
                    mark,
                    ..
                } = command;
                around.ledger.end_copy(*span, sources, *mark);
                Ok(())
            }
            Kind::Write | Kind::Zeroes | Kind::Deallocate if !failed => {
                let spans = [command.span];
                for span in spans.iter().chain(&command.more) {
                    around.ledger.end_write(*span, command.mark);
                }
                Ok(())
            }
            Kind::Read if !failed => self.check_read(command, around),
            Kind::Compare => self.check_compare(command, failed, around),
            Kind::Flush if !failed => {
                self.drop(command, around);
                Ok(())
            }
            _ => self.fail(around, format!("{command:?} ended with {completion:?}")),
        }
    }

    fn check_read(&mut self, command: &Command, around: &mut Around<'_>) -> Result<(), Failure> {
        let size = 1 << self.spaces[command.space].shift;
        let (Some(pages), false) = (&command.pages, command.lost) else {
            self.drop(command, around);
            return Ok(());
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(command.span.count as usize * size, 0);
        self.ram.gather(pages, &mut scratch);
        let block = |at: u32| &scratch[at as usize * size..][..size];
        let ledger = &mut around.ledger;
        let looked = ledger.end_read(command.span, command.mark, |at, place| {
            stamp::look(block(at), place)
        });
        self.scratch = scratch;
        match looked {
            Ok(()) => Ok(()),
            Err(wrong) => self.fail(around, format!("{command:?}: {wrong}")),
        }
    }

    fn check_compare(
        &mut self,
        command: &Command,
        differs: bool,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        let Command {
            span,
            mark,
            expected,
            lost,
            ..
        } = command;
        if *lost {
            self.drop(command, around);
            return Ok(());
        }
        if !differs {
            let found = |at: u32, _| match expected[at as usize] {
                0 => stamp::Found::Zeroes,
                write => stamp::Found::Write(write),
            };
            let compared = around.ledger.end_read(*span, *mark, found);
            return compared.or_else(|wrong| self.fail(around, format!("a comparison: {wrong}")));
        }
        let may = around.ledger.may_differ(*span, expected, *mark);
        around.ledger.drop_read(*span);
        if may {
            Ok(())
        } else {
            self.fail(around, format!("a difference that cannot be: {command:?}"))
        }
    }

    /// A command has no effect, unless a process that died had begun it. A copy may have gone some
    /// way.
    fn refused(&self, command: &Command, around: &mut Around<'_>) {
        let is_write = command.kind.writes() && command.sources.is_empty();
        if !is_write || around.killed_at >= command.since {
            return self.drop(command, around);
        }
        for span in [command.span].iter().chain(&command.more) {
            around.ledger.refuse(*span, command.mark);
        }
    }

    /// A command ends with an unknown effect.
    fn drop(&self, command: &Command, around: &mut Around<'_>) {
        if let Kind::Reserve(act) = command.kind {
            let (space, now, unknown) =
                (command.span.space, around.now, reservations::Ended::Unknown);
            let ended = around.reservations.end(space, self.id, act, &unknown, now);
            return ended.expect("an unknown effect contradicts nothing");
        }
        if let Kind::Zone(task) = command.kind {
            let ended = around.zones.end(task, Ended::Unknown);
            return ended.expect("an unknown effect contradicts nothing");
        }
        if !command.kind.writes() {
            return around.ledger.drop_read(command.span);
        }
        let medium = self.spaces[command.space].medium;
        for span in [command.span].iter().chain(&command.more) {
            let ledger = &mut *around.ledger;
            ledger.leave_open(medium, *span, command.mark, command.effect());
        }
    }

    /// Its writes that are out: their blocks, numbers, and effects.
    pub fn writes_out(&self) -> impl Iterator<Item = (Span, u64, Effect)> {
        let commands = self.sqs.iter().flat_map(|sq| sq.slots.iter().flatten());
        let writes = commands.filter(|command| command.kind.writes());
        writes.flat_map(|command| {
            let spans = [command.span].into_iter().chain(command.more.clone());
            spans.map(|span| (span, command.mark, command.effect()))
        })
    }

    /// All commands of a queue end so.
    pub(super) fn drop_queue(&mut self, at: usize, around: &mut Around<'_>) {
        while let Some(command) = self.sqs[at].take_any() {
            around.tally.dropped += 1;
            self.drop(&command, around);
            if let Some(pages) = &command.pages {
                self.ram.put_back(pages);
            }
        }
    }

    /// Interrupts that were raised.
    pub(super) fn take_interrupts(&mut self, around: &mut Around<'_>) {
        let vectors = std::mem::take(&mut around.wire.vectors);
        if vectors == 0 {
            return;
        }
        around.tally.interrupts += u64::from(vectors.count_ones());
        let at = around.now + self.random.below(8_000);
        if vectors & 1 == 1 {
            self.admin_cq.look_at.get_or_insert(at);
        }
        for (index, cq) in self.cqs.iter_mut().enumerate() {
            if vectors >> (index + 1) & 1 == 1 && cq.interrupts {
                cq.look_at.get_or_insert(at);
            }
        }
    }

    /// Rings a submission queue's doorbell: the admin queue's, or that of an index.
    pub(super) fn ring_tail(&mut self, sq: Option<usize>, around: &mut Around<'_>) {
        let queue = match sq {
            Some(at) => &mut self.sqs[at],
            None => &mut self.admin_sq,
        };
        let (old, new) = (queue.told, queue.tail);
        queue.told = new;
        let id = sq.map_or(0, |at| at + 1);
        self.ring(2 * id, old, new, around);
    }

    /// The same for a completion queue.
    pub(super) fn ring_head(&mut self, cq: Option<usize>, around: &mut Around<'_>) {
        let queue = match cq {
            Some(at) => &mut self.cqs[at],
            None => &mut self.admin_cq,
        };
        let (old, new) = (queue.told, queue.head);
        queue.told = new;
        let id = cq.map_or(0, |at| at + 1);
        if old != new {
            self.ring(2 * id + 1, old, new, around);
        }
    }

    /// Stores a doorbell, where the controller looks for it (Base 2.1, Annex B.5). Some hosts use
    /// the buffers for queue 0, some write its registers.
    fn ring(&self, slot: usize, old: u32, new: u32, around: &mut Around<'_>) {
        around.trace(self.id, || format!("doorbell {slot}: {old} -> {new}"));
        if self.manners.doorbells == Doorbells::Mapped
            && let Some(pages) = &self.pages
        {
            pages.store(slot, new);
            around.wire.stored = true;
            return;
        }
        if self.shadowed && (slot >= 2 || self.manners.buffered_admin) {
            self.ram
                .put_ring(SHADOW_PAGE * PAGE + 4 * slot, &new.to_le_bytes());
            let event = u32::from_le_bytes(self.ram.get_ring(EVENT_IDX_PAGE * PAGE + 4 * slot));
            let distance = |from: u32, to: u32| (to as u16).wrapping_sub(from as u16);
            if distance(event.wrapping_add(1), new) >= distance(old, new) {
                around.wire.stored = true;
                return;
            }
        }
        around.tally.rings += 1;
        around.wire.send(Message::Write {
            offset: DOORBELLS + 4 * slot as u64,
            value: new.into(),
            len: 4,
        });
    }
}

/// Whether a command may end with this error.
pub(super) fn may_fail(command: &Command, status: u16, around: &Around<'_>) -> bool {
    let faults = around.faults;
    let excused = |why: u8| command.excuses & why != 0;
    let spans = [&command.span].into_iter().chain(&command.sources);
    let absent_until = spans.map(|span| around.absent_until[usize::from(span.space)]);
    let absent_until = absent_until.max().unwrap_or(0);
    match status {
        // Without its namespace an opcode is one of the NVM command set.
        INVALID_OPCODE => matches!(command.kind, Kind::Zone(_)) && command.since <= absent_until,
        INVALID_FIELD | INVALID_NAMESPACE => command.since <= absent_until,
        DATA_TRANSFER_ERROR => excused(excuse::UNMAP),
        // A command that hangs is aborted for an unmap, whatever memory it uses.
        ABORTED if around.now - command.since >= GIVEN_UP_NS => true,
        ABORTED => excused(excuse::UNMAP | excuse::ABORT | excuse::DELETE | excuse::SHUTDOWN),
        ABORTED_SQ_DELETION => excused(excuse::DELETE | excuse::SHUTDOWN),
        // A read with Force Unit Access makes the medium write first.
        WRITE_FAULT => faults,
        // A medium with zones has notes of what it has begun, and the subsystem's record answers.
        INTERRUPTED if matches!(command.kind, Kind::Zone(_) | Kind::Reserve(_)) => false,
        INTERRUPTED => around.killed_at >= command.since,
        UNRECOVERED_READ_ERROR if faults => {
            !command.kind.writes() || matches!(command.kind, Kind::Copy { .. })
        }
        _ => false,
    }
}
