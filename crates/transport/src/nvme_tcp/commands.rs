//! The commands of a queue that are not over: one entry for each that its host may send.

use nvme_spec::{Sqe, Status};
use nvme_tcp::Transfer;
use port::time::Time;

use super::cids::Cids;
use super::judge::Data;

/// How far a command has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// The entry is free.
    #[default]
    Free,
    /// Data of its capsule are to come.
    Capsule,
    /// It waits for a large slot.
    Slot,
    /// Data that an R2T has asked for are to come.
    Data(Transfer),
    /// Its data are there; the other half of its pair, or the data of that, are not.
    Half,
    /// It is to be stored in the ring.
    Ready,
    /// It is in the ring: the controller has it when the doorbell has been rung.
    Stored,
    /// It is a Fabrics command, to be executed here.
    Fabrics,
    /// Its answer is on its way.
    Answered,
    /// It was answered while a medium may still have its data: its entry and its place stay out of
    /// use.
    Lost,
}

/// Where the data of a command lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// It has none.
    #[default]
    None,
    /// In the small slot of its entry.
    Small,
    /// In this large slot.
    Large(u16),
}

/// One command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Command {
    /// As it came.
    pub(super) sqe: Sqe,
    pub(super) state: State,
    pub(super) data: Data,
    pub(super) place: Place,
    /// Counts the commands of this entry.
    generation: u16,
    /// The other half of its pair.
    pub(super) partner: Option<u16>,
    /// The controller was reset: data that an R2T has asked for may still come, and go nowhere.
    pub(super) forgotten: bool,
    /// The controller has abandoned its other half.
    hangs: bool,
    /// Status that it ends with, where that is known before the controller has it.
    pub(super) status: Status,
    /// Its identifier is in the table.
    known: bool,
    /// When its R2T was sent.
    pub(super) since: Time,
}

/// Bits of a transfer tag that number an entry: a queue has 4,096 at most.
const INDEX_BITS: u32 = 12;

/// See the module.
#[derive(Debug)]
pub(super) struct Commands {
    entries: Box<[Command]>,
    free: Vec<u16>,
    cids: Cids,
}

impl Commands {
    /// `count` free entries.
    pub(super) fn new(count: u16) -> Self {
        debug_assert!(u32::from(count) <= 1 << INDEX_BITS);
        Self {
            entries: vec![Command::default(); usize::from(count)].into_boxed_slice(),
            free: (0..count).rev().collect(),
            cids: Cids::new(usize::from(count)),
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// How many there can be.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Takes an entry for a command. `None`: there is none.
    pub(super) fn take(&mut self, sqe: &Sqe) -> Option<u16> {
        let index = self.free.pop()?;
        let known = self.cids.insert(sqe.cid, index);
        let entry = &mut self.entries[usize::from(index)];
        // In place: a command is large.
        entry.sqe = *sqe;
        entry.state = State::Fabrics;
        entry.data = Data::default();
        entry.place = Place::None;
        entry.generation = entry.generation.wrapping_add(1);
        entry.partner = None;
        entry.forgotten = false;
        entry.hangs = false;
        entry.status = Status::SUCCESSFUL_COMPLETION;
        entry.known = known;
        Some(index)
    }

    /// Whether its identifier was not in use.
    pub(super) fn is_known(&self, index: u16) -> bool {
        self.entries[usize::from(index)].known
    }

    pub(super) fn get(&self, index: u16) -> &Command {
        &self.entries[usize::from(index)]
    }

    pub(super) fn get_mut(&mut self, index: u16) -> &mut Command {
        &mut self.entries[usize::from(index)]
    }

    /// The tag of the transfer of its data: the entry, and how often it was used.
    pub(super) fn ttag(&self, index: u16) -> u16 {
        index | self.get(index).generation << INDEX_BITS
    }

    /// The entry that a tag may be of.
    pub(super) fn of_ttag(&mut self, ttag: u16) -> Option<(u16, &mut Command)> {
        let index = ttag & ((1 << INDEX_BITS) - 1);
        Some((index, self.entries.get_mut(usize::from(index))?))
    }

    /// A command is in the ring whose data lie in the small slot of its entry.
    #[inline]
    pub(super) fn store_small(&mut self, index: u16, data: Data) {
        let entry = &mut self.entries[usize::from(index)];
        entry.data = data;
        entry.place = Place::Small;
        entry.state = State::Stored;
    }

    /// The controller has ended the command with this identifier, if it had it: it is to be
    /// answered, and the host may use its identifier again when the answer has come.
    #[inline]
    pub(super) fn completed(&mut self, cid: u16) -> Option<u16> {
        let Self { entries, cids, .. } = self;
        let index = cids.take_if(cid, |index| {
            entries[usize::from(index)].state == State::Stored
        })?;
        let entry = &mut entries[usize::from(index)];
        entry.state = State::Answered;
        entry.known = false;
        Some(index)
    }

    /// Its answer is on its way: the host may use its identifier again when it has come.
    pub(super) fn answer(&mut self, index: u16) {
        let entry = &mut self.entries[usize::from(index)];
        entry.state = State::Answered;
        if std::mem::take(&mut entry.known) {
            self.cids.remove(entry.sqe.cid);
        }
    }

    /// It is over; where its data lay.
    pub(super) fn release(&mut self, index: u16) -> Place {
        self.answer(index);
        let entry = &mut self.entries[usize::from(index)];
        entry.state = State::Free;
        self.free.push(index);
        std::mem::take(&mut entry.place)
    }

    /// The controller was reset while an R2T of it was not answered. Its identifier may be used
    /// again; its entry waits for the data, once: another reset frees it.
    pub(super) fn forget(&mut self, index: u16) -> bool {
        let entry = &mut self.entries[usize::from(index)];
        let waits = matches!(entry.state, State::Data(_)) && !entry.forgotten;
        if waits {
            entry.forgotten = true;
            if std::mem::take(&mut entry.known) {
                self.cids.remove(entry.sqe.cid);
            }
        }
        waits
    }

    /// A stored command ends with `status`: whether a medium may still have its data, as the
    /// controller gives up a command that hangs. Then it may have those of its other half, too: one
    /// request has both.
    pub(super) fn note_end(&mut self, index: u16, status: Status) -> bool {
        let entry = &mut self.entries[usize::from(index)];
        let has_data = entry.place != Place::None;
        let hangs = std::mem::take(&mut entry.hangs) || status == Status::COMMAND_ABORT_REQUESTED;
        if let Some(other) = entry.partner
            && hangs
        {
            let other = &mut self.entries[usize::from(other)];
            other.hangs = other.state == State::Stored && other.partner == Some(index);
        }
        hangs && has_data
    }

    /// The place of a command that has ended while a medium may still have its data.
    pub(super) fn lose(&mut self, index: u16) -> Place {
        self.answer(index);
        let entry = &mut self.entries[usize::from(index)];
        entry.state = State::Lost;
        entry.place
    }

    /// Those that are not over.
    pub(super) fn taken(&self) -> impl Iterator<Item = (u16, &Command)> {
        let all = (0u16..).zip(&self.entries);
        all.filter(|(_, command)| command.state != State::Free)
    }
}
