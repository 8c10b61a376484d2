//! Erasure of parts of media to zeros, or to a pattern, in slices, so that no turn of the reactor
//! is long.
//!
//! Rounds follow one another, each over every target: an overwrite of three passes is three rounds.
//! After the last slice of a target its medium is flushed, so that a completed round is on
//! non-volatile media. A medium that works inside `add` blocks its reactor's other lanes:
//! [`Budget`] bounds that, over everything that is erased in one turn.

use memory::{DmaView, Need, Scratch, Segment};
use port::namespace::Namespace;
use port::ticket::{OwnerKey, Ticket};
use port::{Added, ByteRange, Cause, Channel, ChannelId, Channels, Outcome, Request};

use super::allocated::Allocated;

/// Bytes of one request: a medium in memory clears them in well under a millisecond.
const SLICE: u64 = 1 << 20;
/// Bytes of one request that writes a pattern, from memory of that size.
const PATTERN_SLICE: u32 = 1 << 18;
/// Requests in flight.
const DEPTH: u32 = 4;

/// Parts of media to erase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erase {
    /// What, and of which medium. None of them empty.
    pub targets: Vec<(ChannelId, ByteRange)>,
    /// The rounds over all of it, one after the other.
    pub rounds: Vec<Round>,
    /// Namespaces whose media have more than bytes: each becomes as new before all that, in one
    /// request ([`Request::Renew`]), whatever the rounds are.
    pub renewed: Vec<(ChannelId, ByteRange)>,
}

impl Erase {
    /// Has it read as zero, and gives the space back where the medium can.
    #[must_use]
    pub fn zero(targets: Vec<(ChannelId, ByteRange)>) -> Self {
        Self::of(targets, vec![Round::Zero { deallocate: true }])
    }

    /// Does all that to bytes.
    #[must_use]
    pub fn of(targets: Vec<(ChannelId, ByteRange)>, rounds: Vec<Round>) -> Self {
        let renewed = Vec::new();
        Erase {
            targets,
            rounds,
            renewed,
        }
    }

    /// Adds what the medium has of a namespace beside its bytes, where that is not its content.
    pub(super) fn add_state(&mut self, namespace: &Allocated) {
        let Namespace { channel, set, .. } = &namespace.namespace;
        if set.as_ref().is_some_and(|set| set.keeps_bytes()) {
            self.renewed.push((*channel, namespace.namespace.extent()));
        }
    }

    /// Adds a namespace, whatever its medium has.
    pub(super) fn add(&mut self, namespace: &Allocated) {
        let target = (namespace.namespace.channel, namespace.erasable());
        let set = namespace.namespace.set.as_ref();
        if set.is_some() {
            self.renewed.push((target.0, namespace.namespace.extent()));
        }
        if target.1.len > 0 && set.is_none_or(|set| set.keeps_bytes()) {
            self.targets.push(target);
        }
    }
}

/// A pass over every byte of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// They read as zero.
    Zero {
        /// Their space may be freed.
        deallocate: bool,
    },
    /// They are this pattern, again and again; its lowest byte comes first.
    Pattern(u32),
}

/// Work left for `add` in this turn: one request of a medium that works there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget(pub(super) u32);

impl Budget {
    /// The budget of one turn.
    pub(super) const TURN: Budget = Budget(1);
}

/// An [`Erase`] in progress.
#[derive(Debug)]
pub(super) struct Erasing {
    targets: Vec<(ChannelId, ByteRange)>,
    rounds: Vec<Round>,
    /// Still to be renewed, the next one last.
    renewed: Vec<(ChannelId, ByteRange)>,
    /// Total bytes of all targets.
    bytes: u64,
    round: usize,
    target: usize,
    /// Bytes of the target that were asked for.
    at: u64,
    /// Bytes of the round that were asked for.
    asked: u64,
    out: u32,
    flush: Flush,
    failed: bool,
    /// The medium had no room at the last try: the code that frees some wakes the reactor.
    full: bool,
    /// Source of patterns.
    pattern: Option<Scratch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    ToCome,
    Out,
}

/// The next request, except its segments.
#[derive(Clone, Copy)]
enum Next {
    Zero {
        offset: u64,
        len: u64,
        deallocate: bool,
    },
    Write {
        offset: u64,
        len: u32,
    },
    Flush,
    Renew(ByteRange),
}

impl Erasing {
    pub(super) fn new(erase: Erase) -> Self {
        let Erase {
            targets,
            rounds,
            mut renewed,
        } = erase;
        renewed.reverse();
        let mut erasing = Erasing {
            bytes: targets.iter().map(|(_, range)| range.len).sum(),
            round: if targets.is_empty() { rounds.len() } else { 0 },
            targets,
            rounds,
            renewed,
            target: 0,
            at: 0,
            asked: 0,
            out: 0,
            flush: Flush::ToCome,
            failed: false,
            full: false,
            pattern: None,
        };
        erasing.prepare();
        erasing
    }

    /// Makes the pattern of a round that begins.
    fn prepare(&mut self) {
        let Some(Round::Pattern(word)) = self.rounds.get(self.round) else {
            return;
        };
        if self.pattern.is_none() {
            self.pattern = Scratch::new(PATTERN_SLICE).ok();
        }
        let Some(scratch) = &self.pattern else {
            self.failed = true;
            return;
        };
        let page = word.to_le_bytes().repeat(1024);
        let whole = scratch.segment(PATTERN_SLICE, Need::DeviceWrites);
        for at in (0..PATTERN_SLICE).step_by(page.len()) {
            whole.write_from(at, &page);
        }
    }

    /// Adds requests as far as there is room; returns whether it added any. Its tickets carry
    /// `slot` and `generation`.
    pub(super) fn advance<C: Channel>(
        &mut self,
        (key, slot, generation): (OwnerKey, u16, u16),
        channels: &mut Channels<C>,
        budget: &mut Budget,
    ) -> bool {
        let mut worked = false;
        self.full = false;
        while budget.0 > 0
            && let Some((id, next)) = self.next()
        {
            let Some(channel) = channels.get_mut(id) else {
                self.failed = true;
                return true;
            };
            let ticket = Ticket::issue(key, slot, generation);
            match self.add(ticket, next, channel) {
                Added::Full(ticket) => {
                    let _ = ticket.fulfil();
                    self.full = true;
                    break;
                }
                Added::Pending => {
                    self.out += 1;
                    self.issued(next);
                    channel.submit();
                }
                Added::Done(ticket, outcome) => {
                    let _ = ticket.fulfil();
                    budget.0 -= 1;
                    self.issued(next);
                    self.ended(outcome);
                }
            }
            worked = true;
        }
        worked
    }

    fn add<C: Channel>(&self, ticket: Ticket, next: Next, channel: &mut C) -> Added {
        let none: &[Segment<'_>] = &[];
        match next {
            Next::Zero {
                offset,
                len,
                deallocate,
            } => {
                let request = Request::WriteZeroes {
                    offset,
                    len,
                    deallocate,
                    fua: false,
                };
                channel.add(ticket, &request, none, &DmaView::empty())
            }
            Next::Write { offset, len } => {
                let Some(scratch) = &self.pattern else {
                    return Added::Done(ticket, Outcome::of(Cause::WriteFailed));
                };
                let request = Request::Write {
                    offset,
                    len,
                    fua: false,
                };
                let segments = [scratch.segment(len, Need::DeviceReads)];
                channel.add(ticket, &request, &segments, scratch.view())
            }
            Next::Flush => channel.add(ticket, &Request::Flush, none, &DmaView::empty()),
            Next::Renew(extent) => {
                channel.add(ticket, &Request::Renew { extent }, none, &DmaView::empty())
            }
        }
    }

    fn next(&self) -> Option<(ChannelId, Next)> {
        if self.failed {
            return None;
        }
        if let Some((id, extent)) = self.renewed.last() {
            // One at a time, and before anything else.
            return (self.out == 0).then_some((*id, Next::Renew(*extent)));
        }
        let round = *self.rounds.get(self.round)?;
        let (id, range) = *self.targets.get(self.target)?;
        let rest = range.len - self.at;
        if rest == 0 {
            let due = self.out == 0 && self.flush == Flush::ToCome;
            return due.then_some((id, Next::Flush));
        }
        let offset = range.offset + self.at;
        let next = match round {
            Round::Zero { deallocate } => Next::Zero {
                offset,
                len: rest.min(SLICE),
                deallocate,
            },
            Round::Pattern(_) => Next::Write {
                offset,
                // The smaller one fits 32 bits.
                len: rest.min(PATTERN_SLICE.into()) as u32,
            },
        };
        (self.out < DEPTH).then_some((id, next))
    }

    fn issued(&mut self, next: Next) {
        let len = match next {
            Next::Zero { len, .. } => len,
            Next::Write { len, .. } => len.into(),
            Next::Flush => {
                self.flush = Flush::Out;
                return;
            }
            Next::Renew(_) => return,
        };
        self.at += len;
        self.asked += len;
    }

    fn ended(&mut self, outcome: Outcome) {
        self.failed |= outcome.cause != Cause::None;
        if self.renewed.pop().is_some() {
            return;
        }
        if self.flush == Flush::ToCome {
            return;
        }
        (self.flush, self.at) = (Flush::ToCome, 0);
        self.target += 1;
        if self.target == self.targets.len() {
            (self.target, self.asked) = (0, 0);
            self.round += 1;
            self.prepare();
        }
    }

    /// Whether a turn would add something, as far as this side knows.
    pub(super) fn can_add(&self) -> bool {
        !self.full && self.next().is_some()
    }

    /// One of its tickets came back.
    pub(super) fn complete(&mut self, outcome: Outcome) {
        self.out = self.out.saturating_sub(1);
        self.ended(outcome);
    }

    /// Its result: whether everything is erased. `None` while it runs.
    pub(super) fn ended_well(&self) -> Option<bool> {
        if self.out > 0 {
            return None;
        }
        if self.failed {
            return Some(false);
        }
        (self.renewed.is_empty() && self.round == self.rounds.len()).then_some(true)
    }

    /// Progress on a scale from 0 to `whole`.
    pub(super) fn progress(&self, whole: u32) -> u32 {
        let rounds = self.rounds.len() as u128;
        let (bytes, round) = (u128::from(self.bytes), self.round as u128);
        let done = round * bytes + u128::from(self.asked);
        let part = (done * u128::from(whole)).checked_div(rounds * bytes);
        part.map_or(whole, |part| part.min(whole.into()) as u32)
    }

    /// Rounds of patterns that are done.
    pub(super) fn passes_done(&self) -> u8 {
        let done = &self.rounds[..self.round];
        let passes = done.iter().filter(|r| matches!(r, Round::Pattern(_)));
        // 16 at most (Base 2.1, 5.1.22).
        passes.count() as u8
    }
}
