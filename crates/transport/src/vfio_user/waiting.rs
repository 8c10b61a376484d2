//! Replies that wait. A DMA_UNMAP waits for commands in flight, and so does a write that clears Bus
//! Master Enable. A DEVICE_RESET waits for a quiet controller. An access that may change the pin's
//! level waits for that level.
//!
//! A medium may hang, but a host waits at most 5 s for a reply. So after [`ABANDON_NS`] commands
//! that still hang are aborted, and after [`ANSWER_NS`] the reply is sent in any case. A drive may
//! still execute an aborted command, so it is cut off from the memory ([`Reach`]): the reply waits
//! for that, too.

use std::collections::VecDeque;
use std::sync::Arc;

use controller::Controller;
use memory::guest::dma::Reach;
use port::time::Time;
use rustix::io::Errno;
use vfio_user::Header;
use vfio_user::message::{Access, DeviceFeature, DmaUnmap};

use super::migration::Migration;

/// How long commands in flight may take before they are aborted.
const ABANDON_NS: u64 = 4_000_000_000;
/// How long a reply may take: aborts, too, need a turn of each lane.
const ANSWER_NS: u64 = 4_500_000_000;

/// Replies that wait at the same time. A host that asks for more is not read until one has gone
/// out.
const MAX_WAITING: usize = 64;

/// The condition of a waiting reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// No command issued before the view with this epoch is in flight, or aborted commands are cut
    /// off from the memory that devices reached; the reply is the request.
    Drained {
        epoch: u64,
        request: DmaUnmap,
        reached: Vec<Arc<Reach>>,
    },
    /// The controller has been reset.
    Reset,
    /// Nothing is in flight to the host's memory, of which the host has taken the bus away; the
    /// reply is the request.
    OffBus(Access),
    /// The device has taken the state that was asked for.
    Migrated(DeviceFeature),
    /// No command is in flight that was issued before the view with this epoch, the first one whose
    /// written pages are logged; the reply.
    Logging { epoch: u64, reply: Vec<u8> },
    /// The pin's level has followed; the reply is the request, where there is one.
    Settled(Option<Access>),
}

/// A reply that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: Header,
    pub(super) until: Until,
    since: Time,
    abandoned: bool,
}

/// All replies of a session that wait.
#[derive(Debug, Default)]
pub(super) struct WaitingList(VecDeque<Waiting>);

impl WaitingList {
    pub(super) fn push(&mut self, request: Header, until: Until, now: Time) {
        debug_assert!(self.has_room());
        self.0.push_back(Waiting {
            request,
            until,
            since: now,
            abandoned: false,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next message may be handled: there is room for its reply, and no reset or
    /// migration is in progress, which must be finished before any later message.
    pub(super) fn has_room(&self) -> bool {
        let last = self.0.back().map(|last| &last.until);
        let resets = matches!(last, Some(Until::Reset | Until::Migrated(_)));
        self.0.len() < MAX_WAITING && !resets
    }

    /// The next reply to send, with its errno where the time was over.
    pub(super) fn take_due(
        &mut self,
        controller: &mut Controller,
        migration: &mut Migration,
        now: Time,
    ) -> Option<(Waiting, Result<(), Errno>)> {
        for index in 0..self.0.len() {
            let waiting = &mut self.0[index];
            let waited = now.since(waiting.since);
            let result = match &waiting.until {
                Until::Drained { epoch, reached, .. } => {
                    let epoch = *epoch;
                    if waited >= ABANDON_NS && !waiting.abandoned {
                        waiting.abandoned = true;
                        controller.abandon(epoch);
                    }
                    let is_kept =
                        !waiting.abandoned || !reached.iter().any(|reach| reach.is_held());
                    let due = controller.drained(epoch) && is_kept || waited >= ANSWER_NS;
                    due.then_some(Ok(()))
                }
                // The controller itself aborts hanging commands in a reset.
                Until::Reset if controller.is_quiet() => Some(Ok(())),
                Until::Reset => (waited >= ANSWER_NS).then_some(Err(Errno::TIMEDOUT)),
                // The controller itself aborts hanging commands.
                Until::OffBus(_) => {
                    let due = controller.has_left_bus() || waited >= ANSWER_NS;
                    due.then_some(Ok(()))
                }
                // Nothing is aborted for it: the log fails.
                Until::Logging { epoch, .. } => {
                    let late = waited >= ANSWER_NS;
                    let over = controller.drained(*epoch);
                    (over || late).then_some(if over { Ok(()) } else { Err(Errno::TIMEDOUT) })
                }
                Until::Migrated(_) => migration.poll(controller, waited >= ANSWER_NS),
                Until::Settled(_) => {
                    let due = !controller.rechecks_interrupts() || waited >= ANSWER_NS;
                    due.then_some(Ok(()))
                }
            };
            if let Some(result) = result {
                return self.0.remove(index).map(|waiting| (waiting, result));
            }
        }
        None
    }

    /// When a bound is reached next.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let bound = |waiting: &Waiting| match &waiting.until {
            Until::Drained { .. } if !waiting.abandoned => waiting.since + ABANDON_NS,
            _ => waiting.since + ANSWER_NS,
        };
        self.0.iter().map(bound).min()
    }
}

#[cfg(test)]
mod tests {
    use vfio_user::Command;
    use vfio_user::message::DmaUnmapFlags;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn header(command: Command) -> Header {
        Header::request(0, command)
    }

    fn unmap(list: &mut WaitingList, now: Time) {
        let request = DmaUnmap {
            argsz: 24,
            flags: DmaUnmapFlags::default(),
            iova: 0,
            size: 4096,
        };
        let until = Until::Drained {
            epoch: 1,
            request,
            reached: Vec::new(),
        };
        list.push(header(Command::DMA_UNMAP), until, now);
    }

    #[test]
    fn the_deadline_is_that_of_the_first() {
        let mut list = WaitingList::default();
        assert_eq!(list.next_deadline(), None);
        unmap(&mut list, Time(7));
        unmap(&mut list, Time(5 * SECOND));
        // Hanging commands are aborted after 4 s.
        assert_eq!(list.next_deadline(), Some(Time(4 * SECOND + 7)));
    }

    #[test]
    fn only_so_many_wait_at_a_time() {
        let mut list = WaitingList::default();
        for _ in 0..MAX_WAITING {
            assert!(list.has_room());
            unmap(&mut list, Time(0));
        }
        assert!(!list.has_room());
    }

    #[test]
    fn nothing_is_handled_after_a_reset_that_waits() {
        let mut list = WaitingList::default();
        unmap(&mut list, Time(0));
        list.push(header(Command::DEVICE_RESET), Until::Reset, Time(0));
        assert!(!list.has_room());
        assert!(!list.is_empty());
    }
}
