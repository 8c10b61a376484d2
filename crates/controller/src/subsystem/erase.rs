//! Making a part of a medium read as zero, in slices, so that no turn of the reactor is long.

use memory::DmaView;

use crate::port::{Added, ByteRange, Cause, Channel, ChannelId, Channels, Outcome, Request};
use crate::ticket::{OwnerKey, Ticket};

/// Bytes of one request: what a medium in memory clears in well under a millisecond.
const SLICE: u64 = 1 << 20;
/// Requests in flight.
const DEPTH: u32 = 4;

/// A part of a medium to erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erase {
    /// The medium.
    pub channel: ChannelId,
    /// What of it.
    pub range: ByteRange,
}

/// An [`Erase`] that goes on. When its last slice is done it flushes the medium.
#[derive(Debug)]
pub(super) struct Erasing {
    channel: ChannelId,
    next: u64,
    end: u64,
    out: u32,
    flush: Flush,
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    ToCome,
    Out,
    Done,
}

impl Erasing {
    pub(super) fn new(erase: Erase) -> Self {
        let Erase { channel, range } = erase;
        Erasing {
            channel,
            next: range.offset,
            end: range.offset + range.len,
            out: 0,
            flush: Flush::ToCome,
            failed: false,
        }
    }

    /// Adds what there is room for; whether it added any. Its tickets carry `slot` and `generation`.
    pub(super) fn advance<C: Channel>(
        &mut self,
        (key, slot, generation): (OwnerKey, u16, u16),
        channels: &mut Channels<C>,
    ) -> bool {
        let Some(channel) = channels.get_mut(self.channel) else {
            (self.failed, self.next, self.flush) = (true, self.end, Flush::Done);
            return true;
        };
        let view = DmaView::empty();
        let mut worked = false;
        while let Some(request) = self.next_request() {
            let ticket = Ticket::new(key, slot, generation);
            match channel.add(ticket, &request, &[], &view) {
                Added::Full(ticket) => {
                    let _ = ticket.fulfil();
                    break;
                }
                Added::Pending => {
                    self.out += 1;
                    self.issued(&request);
                }
                Added::Done(ticket, outcome) => {
                    let _ = ticket.fulfil();
                    self.issued(&request);
                    self.ended(outcome);
                    // A medium that works in `add` has its reactor's other lanes wait: one slice a turn.
                    worked = true;
                    break;
                }
            }
            worked = true;
        }
        channel.submit();
        worked
    }

    fn next_request(&self) -> Option<Request<'static>> {
        if self.failed {
            return None;
        }
        if self.next < self.end {
            return (self.out < DEPTH).then(|| Request::WriteZeroes {
                offset: self.next,
                len: (self.end - self.next).min(SLICE),
                deallocate: true,
                fua: false,
            });
        }
        (self.out == 0 && self.flush == Flush::ToCome).then_some(Request::Flush)
    }

    fn issued(&mut self, request: &Request<'_>) {
        match request {
            Request::WriteZeroes { len, .. } => self.next += len,
            _ => self.flush = Flush::Out,
        }
    }

    fn ended(&mut self, outcome: Outcome) {
        self.failed |= outcome.cause != Cause::None;
        if self.flush == Flush::Out {
            self.flush = Flush::Done;
        }
    }

    /// Whether a turn would add something, if its medium has room.
    pub(super) fn can_add(&self) -> bool {
        self.next_request().is_some()
    }

    /// One of its tickets came back.
    pub(super) fn complete(&mut self, outcome: Outcome) {
        self.out = self.out.saturating_sub(1);
        self.ended(outcome);
    }

    /// How it ended: whether everything is erased. `None` while it goes on.
    pub(super) fn ended_well(&self) -> Option<bool> {
        if self.out > 0 {
            return None;
        }
        if self.failed {
            return Some(false);
        }
        (self.flush == Flush::Done).then_some(true)
    }
}
