//! The interface that a medium implements, and the table of channels that a reactor keeps.
//!
//! A medium is accessed through a [`Channel`]: a handle owned by one reactor. Work goes in with
//! [`Channel::add`], is pushed out once per batch with [`Channel::submit`], and comes back from
//! [`Channel::reap`].
//!
//! The contract:
//! - The caller has checked every request: it lies inside the medium, lengths are multiples of 512,
//!   and for Read, Write and Compare the length is the sum of the segments' lengths. A channel need
//!   not check again.
//! - Requests of one medium that share bytes, if at least one of them changes them, do not mix,
//!   whichever channels they were added to: a read sees all of a write or none of it, and of two
//!   writes one is wholly there. The medium chooses their order.
//! - Segments begin and end at any byte. Those of a Read may be `Segment::sink`, also several of
//!   one command.
//! - A channel returns each ticket exactly once: in [`Added::Done`], in [`Added::Full`], or later
//!   from `reap`.
//! - Segments and ranges are borrowed for the call of `add` only. A channel whose I/O outlives the
//!   call pins the view (`memory::ViewPins`), and copies ranges.
//! - A medium that hangs delays only its own commands: `add`, `submit` and `reap` never block.

use std::num::NonZeroI32;
use std::sync::Arc;

use memory::{DmaView, Segment};
use nvme_spec::log::{LogPageId, SmartLog};
use nvme_spec::{Sqe, Status};

use crate::ticket::Ticket;
use crate::time::Time;

/// A piece of a medium, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A request to a medium. Offsets and lengths are bytes, from the start of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Fill the segments from the medium.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Store the segments' bytes.
    Write {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
        /// Done only when the bytes are on non-volatile media (Force Unit Access).
        fua: bool,
    },
    /// Compare the segments' bytes with the medium's; [`Cause::CompareMismatch`] where they differ.
    Compare {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Compare the medium's bytes with the first `len` bytes of the segments and, where they are
    /// the same, store the `len` bytes behind those; [`Cause::CompareMismatch`] where they differ.
    /// Nothing else that touches the bytes happens in between. At most [`FUSED_BYTES`].
    CompareAndWrite {
        /// First byte.
        offset: u64,
        /// Number of bytes; the segments have twice as many.
        len: u32,
        /// The bytes that are compared are on non-volatile media by then.
        commit: bool,
        /// Done only when the new bytes are on non-volatile media.
        fua: bool,
    },
    /// Make the bytes read as zero.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The host would like the space to be freed; the bytes read as zero in any case.
        deallocate: bool,
        /// Done only when that is on non-volatile media.
        fua: bool,
    },
    /// The host does not need these bytes any more. Never empty, at most 256 ranges, none of them
    /// empty.
    Deallocate {
        /// The pieces, lent for the call.
        ranges: &'a [ByteRange],
    },
    /// Everything completed before this was added, on any channel, is on non-volatile media when it
    /// is done.
    Flush,
    /// A command of the namespace's own command set ([`crate::set`]), which the medium executes.
    /// Its fields were checked only as far as the set defines; the segments are its data.
    /// [`Cause::Unsupported`] if the medium has no such command.
    Command {
        /// The submission queue entry, copied from the host once. Its data pointers are of no
        /// meaning.
        sqe: &'a Sqe,
        /// Range of the namespace in the medium.
        extent: ByteRange,
        /// Size of its logical block as a power of two.
        lba_shift: u8,
        /// Done only when its changes are on non-volatile media, whatever the command says.
        fua: bool,
    },
    /// For media with a state: resets this part to new. Its bytes read as zero, its zones are
    /// empty, its keys are gone. A set that keeps bytes ([`crate::set::CommandSet::keeps_bytes`])
    /// resets only its own state. [`Cause::Unsupported`] if the medium has only bytes.
    Renew {
        /// The part: a whole namespace.
        extent: ByteRange,
    },
}

/// Most bytes of [`Request::CompareAndWrite`]: the largest logical block.
pub const FUSED_BYTES: u32 = 4096;

/// Cause of a request's outcome. One table maps it to the host's status: [`crate::status::of`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// It succeeded.
    #[default]
    None,
    /// Compare found a difference.
    CompareMismatch,
    /// Bytes could not be read.
    ReadFailed,
    /// Bytes could not be written, deallocated or flushed.
    WriteFailed,
    /// The medium's backing has no space left.
    NoSpace,
    /// It was aborted.
    Aborted,
    /// The medium cannot do it.
    Unsupported,
    /// Why, in the words of the namespace's command set; not Successful Completion.
    Status(Status),
}

/// Outcome of a request: the cause, and the errno behind it for our own logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Determines the host's status.
    pub cause: Cause,
    /// The operating system's error number, where there was one.
    pub os_error: Option<NonZeroI32>,
    /// Dwords 0 and 1 of the completion of a [`Request::Command`]; 0 for anything else. See
    /// [`Outcome::NO_RESULT`].
    pub result: u64,
}

impl Outcome {
    /// Success.
    pub const OK: Outcome = Outcome {
        cause: Cause::None,
        os_error: None,
        result: 0,
    };

    /// `cause`, without an error of the operating system.
    #[must_use]
    pub const fn of(cause: Cause) -> Outcome {
        Outcome {
            cause,
            os_error: None,
            result: 0,
        }
    }

    /// Result of a command whose note ([`Channel::note`]) is not its result: Dwords 0 and 1 of the
    /// completion are 0.
    pub const NO_RESULT: u64 = u64::MAX;

    /// Success, with Dwords 0 and 1 of the completion.
    #[must_use]
    pub const fn with_result(result: u64) -> Outcome {
        Outcome {
            result,
            ..Outcome::OK
        }
    }

    /// Refused or failed, in the words of the namespace's command set.
    #[must_use]
    pub const fn status(status: Status) -> Outcome {
        Outcome::of(Cause::Status(status))
    }
}

/// Result of adding a request.
#[must_use = "it holds the ticket"]
#[derive(Debug)]
pub enum Added {
    /// Taken; the ticket comes back from [`Channel::reap`].
    Pending,
    /// Already done.
    Done(Ticket, Outcome),
    /// No room: nothing was taken. Try again after a reap.
    Full(Ticket),
}

/// A request that ended.
#[derive(Debug)]
pub struct Done {
    /// The ticket it was added with.
    pub ticket: Ticket,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A medium's handle owned by one reactor. See the module for the contract.
pub trait Channel {
    /// Takes a request, or does it at once, or refuses it for now.
    ///
    /// `segments` are valid only during the call; a channel whose I/O outlives it pins `view`.
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added;

    /// The result that a request would have if it were added now and succeeded, which says what it
    /// changes, for media with [`MediumTraits::notes`]; or a number of the change, and then the
    /// outcome's result is [`Outcome::NO_RESULT`]. The caller stores it where it outlives the
    /// process, and adds the request next. `None`: the request would be rejected, or changes
    /// nothing, or can be repeated.
    #[inline]
    fn note(&self, _request: &Request<'_>) -> Option<u64> {
        None
    }

    /// Whether a request that was added after its note has used the note. If not, it has changed
    /// nothing, and another request may get the same note: the caller drops it.
    #[inline]
    fn uses_note(&self, _note: u64) -> bool {
        true
    }

    /// Whether a process that died has begun to execute a request that it had given this note to:
    /// then it is added by [`Channel::add_again`].
    fn has_begun(&self, _request: &Request<'_>, _note: u64) -> bool {
        false
    }

    /// Completes the execution of a request that a process which died had begun
    /// ([`Channel::has_begun`]): changes and result are those of one execution.
    fn add_again(
        &mut self,
        ticket: Ticket,
        (request, _note): (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        self.add(ticket, request, segments, view)
    }

    /// Pushes out added requests; once per batch.
    fn submit(&mut self);

    /// Appends finished requests; never blocks.
    ///
    /// `done` has capacity for [`Channel::in_flight`] more, and a channel never pushes more than
    /// the tickets it holds.
    fn reap(&mut self, done: &mut Vec<Done>);

    /// Tickets held.
    fn in_flight(&self) -> u32;

    /// Whether [`Channel::add`] would have no room for the request now. It is called before the
    /// data of a large command is translated, so that a waiting one costs its lane next to nothing
    /// in each turn. `add` decides.
    #[inline]
    fn is_full(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Whether it has a clock of its own, which its reactor then sets at the start of every turn
    /// ([`Channel::set_time`]).
    #[inline]
    fn keeps_time(&self) -> bool {
        false
    }

    /// Sets the time to `now`: requests added from here on arrive at this time, and everything due
    /// by then has happened. Never decreases. Appends requests finished by then, as
    /// [`Channel::reap`] does.
    #[inline]
    fn set_time(&mut self, _now: Time, _done: &mut Vec<Done>) {}

    /// A host has submitted commands: if the channel keeps time and has a clock, requests added
    /// from here on arrive at its current time.
    #[inline]
    fn arrive(&mut self) {}

    /// When something happens by itself next, without any request: a command ends, or room comes
    /// free.
    #[inline]
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// Whether it copies bytes itself, on the processor that adds a request. Then it wants to know
    /// in advance of the next ones ([`Channel::expect`]), and a large transfer is limited to a part
    /// per turn.
    #[inline]
    fn copies(&self) -> bool {
        false
    }

    /// These bytes may be asked for soon. Only a guess: nothing was checked, and nothing may come.
    #[inline]
    fn expect(&self, _offset: u64, _len: u64) {}
}

/// Index of a channel in its reactor's [`Channels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// A reactor's channels. An id is stable until its channel is removed, and then may be given again.
#[derive(Debug)]
pub struct Channels<C> {
    table: Vec<Option<C>>,
    /// Those that keep a time of their own: few, or none.
    timed: Vec<ChannelId>,
}

impl<C> Channels<C> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Channels {
            table: Vec::new(),
            timed: Vec::new(),
        }
    }

    /// Takes a channel out.
    pub fn remove(&mut self, id: ChannelId) -> Option<C> {
        self.timed.retain(|timed| *timed != id);
        self.table.get_mut(usize::from(id.0))?.take()
    }

    /// The channel with this id.
    #[must_use]
    pub fn get(&self, id: ChannelId) -> Option<&C> {
        self.table.get(usize::from(id.0))?.as_ref()
    }

    /// The channel with this id.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut C> {
        self.table.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Every channel with its id, in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (ChannelId, &C)> {
        (0..=u16::MAX)
            .zip(&self.table)
            .filter_map(|(id, channel)| Some((ChannelId(id), channel.as_ref()?)))
    }

    /// Every channel with its id, in the order of ids.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut C)> {
        (0..=u16::MAX)
            .zip(&mut self.table)
            .filter_map(|(id, channel)| Some((ChannelId(id), channel.as_mut()?)))
    }
}

impl<C: Channel> Channels<C> {
    /// Adds a channel, or gives it back where all 65,536 ids are in use.
    ///
    /// # Errors
    /// The channel itself.
    pub fn insert(&mut self, channel: C) -> Result<ChannelId, C> {
        let free = self.table.iter().position(Option::is_none);
        let index = free.unwrap_or(self.table.len());
        let Ok(id) = u16::try_from(index) else {
            return Err(channel);
        };
        let id = ChannelId(id);
        self.insert_at(id, channel).map(|()| id)
    }

    /// Adds a channel with an id of the caller's choice, or gives it back where there is one with
    /// that id.
    ///
    /// # Errors
    /// The channel itself.
    pub fn insert_at(&mut self, id: ChannelId, channel: C) -> Result<(), C> {
        let index = usize::from(id.0);
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        if self.table[index].is_some() {
            return Err(channel);
        }
        self.timed.extend(channel.keeps_time().then_some(id));
        self.table[index] = Some(channel);
        Ok(())
    }

    /// Whether any of them keeps time.
    #[inline]
    #[must_use]
    pub fn keep_time(&self) -> bool {
        !self.timed.is_empty()
    }

    /// Sets the time of those that keep one. See [`Channel::set_time`].
    pub fn set_time(&mut self, now: Time, done: &mut Vec<Done>) {
        for id in &self.timed {
            if let Some(Some(channel)) = self.table.get_mut(usize::from(id.0)) {
                channel.set_time(now, done);
            }
        }
    }

    /// Reports to them that a host has submitted commands. See [`Channel::arrive`].
    #[inline(never)]
    pub fn arrive(&mut self) {
        for id in &self.timed {
            if let Some(Some(channel)) = self.table.get_mut(usize::from(id.0)) {
                channel.arrive();
            }
        }
    }

    /// When something happens by itself next on one of them.
    #[inline]
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        let timed = self.timed.iter().filter_map(|id| self.get(*id));
        timed.filter_map(Channel::next_due).min()
    }
}

impl<C> Default for Channels<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Properties of a medium, for Identify and for the choice of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediumTraits {
    /// It can give space back.
    pub deallocate: bool,
    /// Deallocated bytes read as zero.
    pub deallocated_reads_zero: bool,
    /// Written data may be lost until a flush.
    pub volatile_cache: bool,
    /// The size and alignment it likes best, in bytes; 0 where it has none.
    pub optimal_bytes: u32,
    /// It takes no writes.
    pub read_only: bool,
    /// Its commands that change something and cannot be repeated have notes
    /// ([`Channel::note`]), by which another process can execute them again.
    pub notes: bool,
    /// It answers queries for allocated blocks ([`crate::allocation`]).
    pub allocation: bool,
    /// After a Write Zeroes without deallocation no program can read what was there: neither the
    /// medium nor the machine has a copy.
    pub erases: bool,
}

/// Report of the drive behind a medium: read periodically by the reactor that has the drive, and
/// never for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveReport {
    /// SMART / Health Information (Base 2.1, 5.1.12.1.3); `None` if it has reported none.
    pub health: Option<SmartLog>,
    /// WCTEMP and CCTEMP of Identify Controller, in kelvins; 0 where it does not say.
    pub warning_temperature: u16,
    /// See there.
    pub critical_temperature: u16,
    /// Log pages of its own that hosts may read.
    pub pages: Vec<ReportedPage>,
}

/// A log page of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedPage {
    /// Which: none that controllers here have themselves.
    pub lid: LogPageId,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Channels that differ; odd ones keep a time.
    #[derive(Debug, PartialEq, Eq)]
    struct Numbered(u32, Time);

    impl Channel for Numbered {
        fn add(
            &mut self,
            ticket: Ticket,
            _: &Request<'_>,
            _: &[Segment<'_>],
            _: &Arc<DmaView>,
        ) -> Added {
            Added::Full(ticket)
        }

        fn submit(&mut self) {}

        fn reap(&mut self, _: &mut Vec<Done>) {}

        fn in_flight(&self) -> u32 {
            0
        }

        fn keeps_time(&self) -> bool {
            self.0 % 2 == 1
        }

        fn set_time(&mut self, now: Time, _: &mut Vec<Done>) {
            self.1 = now;
        }

        fn next_due(&self) -> Option<Time> {
            Some(Time(u64::from(self.0)))
        }
    }

    const START: Time = Time(0);

    #[test]
    fn ids_are_stable_and_holes_are_filled() {
        let mut channels = Channels::new();
        let channel = |n| Numbered(n, START);
        let ids: Vec<_> = (0..3)
            .map(|n| channels.insert(channel(n)).unwrap())
            .collect();
        assert_eq!(channels.remove(ids[1]), Some(channel(1)));
        assert_eq!(channels.remove(ids[1]), None);
        assert_eq!(channels.get_mut(ids[1]), None);
        assert_eq!(channels.get_mut(ids[2]), Some(&mut channel(2)));
        assert_eq!(channels.insert(channel(9)), Ok(ids[1]));
        let seen: Vec<_> = channels.iter_mut().map(|(id, n)| (id.0, n.0)).collect();
        assert_eq!(seen, [(0, 0), (1, 9), (2, 2)]);
        assert_eq!(channels.get_mut(ChannelId(7)), None);
    }

    #[test]
    fn time_is_told_to_those_that_keep_one() {
        let mut channels = Channels::new();
        for n in [2, 7, 4, 5] {
            channels.insert(Numbered(n, START)).unwrap();
        }
        assert_eq!(channels.next_due(), Some(Time(5)));
        channels.set_time(Time(30), &mut Vec::new());
        let told: Vec<_> = channels.iter().map(|(_, n)| n.1.0).collect();
        assert_eq!(told, [0, 30, 0, 30]);
        channels.remove(ChannelId(3));
        assert_eq!(channels.next_due(), Some(Time(7)));
        channels.remove(ChannelId(1));
        assert_eq!(channels.next_due(), None);
    }
}
