//! A key-value medium, and its single channel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, io};

use memory::{Claimant, DmaView, Segment};
use model::Op;
use port::set::CommandSet;
use port::ticket::Ticket;
use port::{Added, Cause, Channel as Port, Done, MediumTraits, Outcome, Request};

use super::answer::Ops;
use super::durable::{Admits, Durable, Until};
#[cfg(test)]
use super::logged::LoggedPairs;
use super::numbers::Numbers;
use super::open::{self, OnFile};
use super::set::{NvmeSet, SamsungSet, StoreIdentity};
use super::slices::{Later, Slices};
use super::space::Space;
use super::{Dialect, KeyValue, records};
use crate::error::MediumError;
use crate::file::{FileChannel, FileMedium};
use crate::journal::{RecordSink, StateError};
use crate::look::PairsLook;
use crate::size::Bytes;

/// Without a file all memory is volatile, so a flush has no effect.
const TRAITS: MediumTraits = MediumTraits {
    deallocate: false,
    deallocated_reads_zero: false,
    volatile_cache: false,
    optimal_bytes: 0,
    read_only: false,
    notes: false,
    allocation: false,
    erases: false,
};

/// Maximum number of a channel's requests to its file: flushes of hosts, and the log's I/O.
const FILE_DEPTH: u16 = 64;

/// Holds the pairs while no channel has them. Locked when a channel is created or dropped, never by
/// a command.
#[expect(
    clippy::disallowed_types,
    reason = "no command takes it: a channel has the pairs to itself"
)]
type Rest = std::sync::Mutex<Option<Box<KeyValue>>>;

/// A key-value medium.
pub(crate) struct KeyValueMedium {
    rest: Rest,
    identity: Arc<StoreIdentity>,
    dialect: Dialect,
    set: Arc<dyn CommandSet>,
    /// The file that keeps the changes.
    file: Option<OnFile>,
}

impl KeyValueMedium {
    /// Opens `size` bytes, a multiple of 512, for at most `keys` keys.
    ///
    /// # Errors
    /// [`MediumError::Memory`].
    pub(crate) fn open(size: u64, keys: u32, dialect: Dialect) -> Result<Self, MediumError> {
        let pairs = if size <= Space::MAX_BYTES {
            KeyValue::new(size, keys, dialect)
        } else {
            Err(io::ErrorKind::OutOfMemory.into())
        };
        let pairs = pairs.map_err(|source| MediumError::Memory { size, source })?;
        Ok(Self::of(pairs, (size, keys), None))
    }

    /// The same in a file, which is created if it does not exist. Without `keys`, the number that
    /// the file was created for. `outlives`: another process continues if this one dies.
    ///
    /// # Errors
    /// [`MediumError::Memory`], those of files, and [`MediumError::State`].
    pub(crate) fn on_file(
        path: &Path,
        (size, keys): (u64, Option<u32>),
        dialect: Dialect,
        outlives: bool,
    ) -> Result<Self, MediumError> {
        let (pairs, keys, file) = open::open(path, (size, keys), dialect, outlives)?;
        Ok(Self::of(pairs, (size, keys), Some(file)))
    }

    /// The same with its log in memory that outlives the process: in that of `left`, if another
    /// process has left it.
    ///
    /// # Errors
    /// [`MediumError::Memory`], those of files, and [`MediumError::State`].
    pub(crate) fn outliving(
        left: Option<OwnedFd>,
        (size, keys): (u64, Option<u32>),
        dialect: Dialect,
    ) -> Result<Self, MediumError> {
        let (pairs, keys, file) = open::open_memory(left, (size, keys), dialect)?;
        Ok(Self::of(pairs, (size, keys), Some(file)))
    }

    pub(super) fn of(pairs: KeyValue, (size, keys): (u64, u32), file: Option<OnFile>) -> Self {
        let identity = Arc::new(StoreIdentity {
            size,
            keys,
            used: AtomicU64::new(pairs.used()),
        });
        let dialect = pairs.dialect;
        KeyValueMedium {
            rest: Rest::new(Some(Box::new(pairs))),
            dialect,
            set: match dialect {
                Dialect::Nvme => Arc::new(NvmeSet(Arc::clone(&identity))),
                Dialect::Samsung => Arc::new(SamsungSet),
            },
            identity,
            file,
        }
    }

    /// The file, for pairs that persist.
    pub(crate) fn file(&self) -> Option<&FileMedium> {
        let file = self.file.as_ref().filter(|file| file.memory.is_none());
        file.map(|file| &*file.medium)
    }

    /// The memory that has the log of pairs in memory, if they outlive the process.
    pub(crate) fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref()?.memory.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn traits(&self) -> MediumTraits {
        MediumTraits {
            volatile_cache: self.file().is_some(),
            notes: self.file.as_ref().is_some_and(|file| file.outlives),
            ..TRAITS
        }
    }

    /// Makes all pairs durable, for a clean stop, while no channel has them.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut rest = self.rest.lock().unwrap_or_else(|error| error.into_inner());
        let log = rest.as_mut().and_then(|pairs| pairs.pairs.log_mut());
        match (log, &self.file) {
            (Some(log), Some(file)) => log.finish(&file.storage),
            _ => Ok(()),
        }
    }

    /// The dialect, and the maximum number of keys.
    pub(crate) fn record_shape(&self) -> [u64; 2] {
        let dialect = match self.dialect {
            Dialect::Nvme => 0,
            Dialect::Samsung => 1,
        };
        [dialect, self.identity.keys.into()]
    }

    /// Passes all pairs to `tell`; none while a channel has them.
    pub(crate) fn records(&self, tell: &mut RecordSink<'_>) -> io::Result<()> {
        let rest = self.rest.lock().unwrap_or_else(|error| error.into_inner());
        let pairs = rest.as_ref().map(|pairs| pairs.pairs.read());
        pairs.map_or(Ok(()), |pairs| records::records(pairs, tell))
    }

    /// Adds a pair, while no channel has them.
    pub(crate) fn take_record(&self, kind: u8, record: &[u8]) -> Result<(), StateError> {
        let mut rest = self.rest.lock().unwrap_or_else(|error| error.into_inner());
        let Some(pairs) = rest.as_mut() else {
            return Ok(());
        };
        if let (Some(log), Some(file)) = (pairs.pairs.log_mut(), &self.file)
            && !log.has_room()
        {
            log.finish(&file.storage)?;
        }
        let taken = records::replay(&mut pairs.pairs, kind, record);
        self.identity.used.store(pairs.used(), Relaxed);
        taken
    }

    /// The command set of its namespaces.
    pub(crate) fn set(&self) -> Arc<dyn CommandSet> {
        Arc::clone(&self.set)
    }

    /// Description in one line, for the log.
    pub(crate) fn describe(&self) -> String {
        let dialect = match self.dialect {
            Dialect::Nvme => "the Key Value command set",
            Dialect::Samsung => "Samsung's commands",
        };
        let kept = match &self.file {
            None => "not persistent".to_owned(),
            Some(OnFile {
                memory: Some(_), ..
            }) => "in memory that outlives the process".to_owned(),
            Some(file) => format!("stored in '{}'", file.medium.path().display()),
        };
        format!(
            "key-value, {} for up to {} keys, {dialect}, {kept}",
            Bytes(self.identity.size),
            self.identity.keys
        )
    }

    /// Creates the channel, with at most `depth` commands in flight, which copies values larger
    /// than `slice` bytes in slices. There is one at a time, because commands change shared state.
    ///
    /// # Errors
    /// A channel exists; the system's.
    pub(crate) fn channel(
        self: &Arc<Self>,
        (depth, slice): (u16, u32),
        claimant: impl FnOnce() -> io::Result<Claimant>,
    ) -> io::Result<KeyValueChannel> {
        let below = match &self.file {
            // Its log limits slices itself.
            Some(file) => Some(
                file.medium
                    .channel(depth.min(FILE_DEPTH), claimant()?, None)?,
            ),
            None => None,
        };
        let durable = below.map(|below| Durable::new(below, depth));
        KeyValueChannel::new(self, durable, slice)
    }

    /// The pairs, while no channel has them.
    pub(crate) fn look(&self) -> Option<PairsLook> {
        let rest = self.rest.lock().unwrap_or_else(|error| error.into_inner());
        rest.as_ref().map(|pairs| pairs.pairs.read().look())
    }

    fn take(&self) -> Option<Box<KeyValue>> {
        let mut rest = self.rest.lock().unwrap_or_else(|error| error.into_inner());
        rest.take()
    }

    fn put(&self, pairs: Option<Box<KeyValue>>) {
        let mut rest = self.rest.lock().unwrap_or_else(|error| error.into_inner());
        *rest = pairs;
    }
}

impl fmt::Debug for KeyValueMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// A request that changes persistent state.
#[derive(Clone, Copy, Debug)]
struct Keeps {
    /// Whether the change must be durable at its end.
    fua: bool,
    /// Whether its change has a number.
    numbered: bool,
}

/// A reactor's exclusive handle on the pairs.
#[derive(Debug)]
pub(crate) struct KeyValueChannel<C = FileChannel> {
    /// Present until the drop.
    pairs: Option<Box<KeyValue>>,
    slices: Slices,
    /// Set for the command that runs in slices, see [`KeyValueChannel::keeps`].
    keeps: Option<Keeps>,
    medium: Arc<KeyValueMedium>,
    /// The file's channel, for pairs that persist.
    durable: Option<Durable<C>>,
}

impl<C> KeyValueChannel<C> {
    pub(super) fn new(
        medium: &Arc<KeyValueMedium>,
        mut durable: Option<Durable<C>>,
        slice: u32,
    ) -> io::Result<Self> {
        let mut pairs = medium.take().ok_or_else(|| {
            io::Error::other("a key-value medium is served by one reactor: let no other one use it")
        })?;
        pairs.later = Later::new(slice);
        if let (Some(durable), Some(log)) = (&mut durable, pairs.pairs.log_mut()) {
            durable.set_slice(slice, log);
        }
        Ok(KeyValueChannel {
            pairs: Some(pairs),
            slices: Slices::new(),
            keeps: None,
            medium: Arc::clone(medium),
            durable,
        })
    }

    /// See [`crate::Channel::last_op`].
    pub(crate) fn last_op(&self) -> Option<Op<'_>> {
        self.pairs.as_ref()?.last_op()
    }

    /// The pairs as they are now.
    pub(crate) fn look(&self) -> Option<PairsLook> {
        self.pairs.as_ref().map(|pairs| pairs.pairs.read().look())
    }

    /// The pairs: for tests.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> &LoggedPairs {
        &self.pairs.as_ref().expect("it is not dropped").pairs
    }

    /// Whether a command is in progress: for tests.
    #[cfg(test)]
    pub(super) fn is_slicing(&self) -> bool {
        self.slices.is_going()
    }

    /// The file's channel, for pairs that persist.
    pub(crate) fn below(&self) -> Option<&C> {
        self.durable.as_ref().map(Durable::below)
    }

    /// Performs the next slice of a command.
    fn go_on(&mut self) -> Option<Done> {
        let pairs = self.pairs.as_mut()?;
        let done = self.slices.go_on(pairs);
        self.medium.identity.used.store(pairs.used(), Relaxed);
        done
    }

    fn run(&mut self, request: &Request<'_>, segments: &[Segment<'_>], view: &DmaView) -> Outcome {
        let Some(pairs) = &mut self.pairs else {
            return Outcome::of(Cause::Aborted);
        };
        match request {
            Request::Command { sqe, .. } => {
                let outcome = pairs.command(sqe, segments, view).into();
                self.medium.identity.used.store(pairs.used(), Relaxed);
                outcome
            }
            Request::Renew { .. } => {
                pairs.clear();
                self.medium.identity.used.store(0, Relaxed);
                Outcome::OK
            }
            Request::Read { .. } => {
                segments.iter().for_each(Segment::zero);
                Outcome::OK
            }
            Request::Flush => Outcome::OK,
            _ => Outcome::of(Cause::Unsupported),
        }
    }

    /// Performs a request, or its first slice.
    fn add_sliced(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        let outcome = self.run(request, segments, view);
        match &mut self.pairs {
            Some(pairs) if !pairs.later.is_empty() => {
                let command = (ticket, outcome);
                self.slices.begin(command, pairs, segments, view);
                Added::Pending
            }
            _ => Added::Done(ticket, outcome),
        }
    }

    /// Whether a request changes persistent state; if so, how.
    fn keeps(&self, request: &Request<'_>) -> Option<Keeps> {
        let pairs = self.pairs.as_ref().filter(|_| self.durable.is_some())?;
        match request {
            Request::Command { sqe, fua, .. } => pairs.changes(sqe).then(|| Keeps {
                fua: *fua,
                numbered: pairs.pairs.outlives() && self.medium.set.is_noted(sqe),
            }),
            Request::Renew { .. } => Some(Keeps {
                fua: true,
                numbered: false,
            }),
            _ => None,
        }
    }

    /// Numbers of changes, of pairs that outlive the process.
    fn numbers(&self) -> Option<&Numbers> {
        self.pairs.as_ref()?.pairs.log()?.numbers()
    }
}

impl<C: Port> KeyValueChannel<C> {
    /// See [`crate::Channel::tend`].
    pub(crate) fn tend(&mut self) -> Option<&mut C> {
        let (durable, pairs) = (self.durable.as_mut()?, self.pairs.as_mut()?);
        // A checkpoint in between could use the room in the log that the command needs.
        if !self.slices.is_going() {
            durable.tend(&mut pairs.pairs);
        }
        Some(durable.below_mut())
    }

    /// See [`crate::Channel::is_due`]; also returns the channel below, which must be checked too.
    pub(crate) fn is_due(&mut self) -> (bool, Option<&mut C>) {
        match (&mut self.durable, &mut self.pairs) {
            (Some(durable), Some(pairs)) => {
                let due = self.slices.is_going() || durable.is_due(&mut pairs.pairs);
                (due, Some(durable.below_mut()))
            }
            _ => (self.slices.is_going(), None),
        }
    }

    /// Like [`Port::add`], for pairs that persist.
    fn add_kept(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        let keeps = self.keeps(request);
        let (Some(durable), Some(pairs)) = (&mut self.durable, &mut self.pairs) else {
            return Added::Done(ticket, Outcome::of(Cause::Aborted));
        };
        if matches!(request, Request::Flush) {
            return durable.flush(ticket, &mut pairs.pairs);
        }
        let outlives = pairs.pairs.outlives();
        if let Some(keeps) = keeps {
            let frees = segments.is_empty() || matches!(request, Request::Renew { .. });
            match durable.admits(&mut pairs.pairs, keeps.fua || outlives, frees) {
                Admits::Yes => {}
                Admits::Later => return Added::Full(ticket),
                Admits::Never(outcome) => {
                    pairs.ops = Ops::NONE;
                    return Added::Done(ticket, outcome);
                }
            }
        }
        if outlives && !durable.has_place() {
            return Added::Full(ticket);
        }
        let is_numbered = keeps.is_some_and(|keeps| keeps.numbered);
        if is_numbered {
            self.want_number(true);
        }
        self.keeps = keeps;
        let added = self.add_sliced(ticket, request, segments, view);
        if is_numbered {
            // A command that was rejected has used none.
            self.want_number(false);
        }
        match added {
            Added::Done(ticket, outcome) => self.kept(ticket, outcome, false),
            added => added,
        }
    }

    fn want_number(&mut self, is_wanted: bool) {
        if let Some(log) = self.pairs.as_mut().and_then(|pairs| pairs.pairs.log_mut()) {
            log.want_number(is_wanted);
        }
    }

    /// Handles the end of a command on a persistent medium. `copied`: the turn copied a slice.
    fn kept(&mut self, ticket: Ticket, mut outcome: Outcome, copied: bool) -> Added {
        let (Some(durable), Some(pairs)) = (&mut self.durable, &mut self.pairs) else {
            return Added::Done(ticket, outcome);
        };
        let keeps = self.keeps.take();
        if keeps.is_some() {
            durable.changed(&mut pairs.pairs, copied);
        }
        if keeps.is_some_and(|keeps| keeps.numbered) {
            outcome.result = Outcome::NO_RESULT;
        }
        let waits = match keeps {
            Some(Keeps { fua: true, .. }) => Until::Flushed,
            Some(_) if pairs.pairs.outlives() => Until::Written,
            None if durable.sees_unwritten(&pairs.pairs) => Until::SeenIsWritten,
            _ => return Added::Done(ticket, outcome),
        };
        durable.hold(ticket, outcome, &mut pairs.pairs, waits);
        Added::Pending
    }
}

impl<C> Drop for KeyValueChannel<C> {
    fn drop(&mut self) {
        // Completes the command, because its value must be complete.
        while self.slices.is_going() {
            if let Some(done) = self.go_on() {
                done.ticket.retire();
            }
        }
        if let Some(durable) = &mut self.durable {
            durable.give_up();
        }
        if let Some(pairs) = &mut self.pairs {
            pairs.pairs.record(|log, pairs| log.detach(pairs));
        }
        self.medium.put(self.pairs.take());
    }
}

impl<C: Port> Port for KeyValueChannel<C> {
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if self.slices.is_going() {
            return Added::Full(ticket);
        }
        match self.durable {
            Some(_) => self.add_kept(ticket, request, segments, view),
            None => self.add_sliced(ticket, request, segments, view),
        }
    }

    fn note(&self, request: &Request<'_>) -> Option<u64> {
        let Request::Command { sqe, .. } = request else {
            return None;
        };
        let numbers = self.numbers().filter(|_| self.medium.set.is_noted(sqe));
        numbers.map(Numbers::next)
    }

    fn uses_note(&self, note: u64) -> bool {
        self.numbers().is_some_and(|numbers| numbers.is_used(note))
    }

    fn has_begun(&self, _: &Request<'_>, note: u64) -> bool {
        let numbers = self.numbers();
        numbers.is_some_and(|numbers| numbers.has_happened(note))
    }

    fn add_again(
        &mut self,
        ticket: Ticket,
        (request, note): (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if !self.has_begun(request, note) {
            return self.add(ticket, request, segments, view);
        }
        let (Some(durable), Some(pairs)) = (&mut self.durable, &mut self.pairs) else {
            return Added::Done(ticket, Outcome::of(Cause::Aborted));
        };
        if self.slices.is_going() || !durable.has_place() {
            return Added::Full(ticket);
        }
        pairs.ops = Ops::NONE;
        let outcome = Outcome::with_result(Outcome::NO_RESULT);
        if matches!(request, Request::Command { fua: true, .. }) {
            durable.hold(ticket, outcome, &mut pairs.pairs, Until::Flushed);
            return Added::Pending;
        }
        Added::Done(ticket, outcome)
    }

    fn submit(&mut self) {
        if let (Some(durable), Some(pairs)) = (&mut self.durable, &mut self.pairs) {
            durable.submit(&mut pairs.pairs);
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let copies = self.slices.is_going();
        if copies
            && let Some(Done { ticket, outcome }) = self.go_on()
            && let Added::Done(ticket, outcome) = self.kept(ticket, outcome, true)
        {
            done.push(Done { ticket, outcome });
        }
        if let (Some(durable), Some(pairs)) = (&mut self.durable, &mut self.pairs) {
            durable.reap(&mut pairs.pairs, done, copies);
        }
    }

    fn in_flight(&self) -> u32 {
        let held = self.durable.as_ref().map_or(0, Durable::in_flight);
        let log = self.pairs.as_ref().and_then(|pairs| pairs.pairs.log());
        let has_turns = self.slices.is_going()
            || log.is_some_and(|log| log.has_to_do() || log.journal.has_verdict());
        held + u32::from(has_turns)
    }

    fn is_full(&self, _: &Request<'_>) -> bool {
        self.slices.is_going()
    }

    fn copies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
