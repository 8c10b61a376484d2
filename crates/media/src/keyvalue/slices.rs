//! Long commands in slices: one slice in each turn of the reactor.
//!
//! A command that moves values is performed at once except for their bytes: [`Later`] records their
//! positions, and [`Slices`] copies them. A command that returns keys ends its turn after a number
//! of them, and continues with the next one ([`Listing`]). The recorded positions are valid only
//! while no other command runs, so the channel is full until the last slice: commands do not mix.
//!
//! With a log, values are copied from the store into the log as they are copied into the store: the
//! host's bytes are read once.

use std::sync::Arc;

use arrayvec::ArrayVec;
use memory::{DmaView, Hint, Iova, Need, Segment, Store};
use nvme_spec::samsung::SUB_COMMANDS_MAX;
use port::prp::{MAX_SEGMENTS, MAX_TRANSFER};
use port::ticket::Ticket;
use port::{Cause, Done, Outcome};

use super::KeyValue;
use super::answer::HEAD;
use super::budget::Slice;
use super::data::{Host, Sink, Source, Target};
use super::index::KEY_MAX;
use super::iterators::Reading;
use super::list::List;
use super::log::{self, Log};
use super::logged::LoggedPairs;
use super::pairs::{Refusal, Rule};
use super::space::units_of;

/// A command that returns keys, in progress.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listing {
    List(List),
    Read(Reading),
}

/// A stored or appended value: its pieces, and its position in the command's data.
#[derive(Clone, Debug)]
struct Part {
    /// Kind of its log record.
    kind: u8,
    key: ArrayVec<u8, KEY_MAX>,
    first: usize,
    pieces: usize,
    at: u32,
    len: u32,
}

/// Unfinished part of the last command.
#[derive(Debug)]
pub(super) struct Later {
    /// Size of a slice in bytes.
    slice: u32,
    /// Positions in the store and lengths, in order until copying begins.
    pieces: Vec<(u64, u32)>,
    /// Whether they go to the host rather than come from it.
    to_host: bool,
    /// Owners of values that come from the host, and the number of those that the log has begun to
    /// receive.
    parts: ArrayVec<Part, SUB_COMMANDS_MAX>,
    logged: usize,
    listing: Option<Listing>,
    /// Bytes of the host that the listing has filled.
    filled: u32,
}

impl Later {
    /// Transfers of more than `slice` bytes are left for later.
    pub(super) fn new(slice: u32) -> Self {
        // Every unit separate, and one more for each value that begins inside one.
        let most = units_of(MAX_TRANSFER.into()) as usize + SUB_COMMANDS_MAX;
        Later {
            slice,
            pieces: Vec::with_capacity(most),
            to_host: false,
            parts: ArrayVec::new(),
            logged: 0,
            listing: None,
            filled: 0,
        }
    }

    /// Budget of this turn.
    pub(super) fn slice(&self) -> Slice {
        Slice { left: self.slice }
    }

    /// Whether a transfer of this size is left for later.
    pub(super) fn is_for(&self, len: u32) -> bool {
        len > self.slice
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.parts.is_empty() && self.listing.is_none()
    }

    /// Nothing is left any more.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.parts.clear();
        self.logged = 0;
        self.listing = None;
    }

    /// Continues this command in the next turn. `host` is the rest of the host's bytes, of `len` in
    /// all.
    pub(super) fn go_on_with(&mut self, listing: Listing, len: u64, host: &Host<'_, '_>) {
        self.listing = Some(listing);
        // A command's length field has 32 bits.
        self.filled = (len - host.left()) as u32;
    }

    pub(super) fn take_listing(&mut self) -> Option<Listing> {
        self.listing.take()
    }

    pub(super) fn put_listing(&mut self, listing: Listing) {
        self.listing = Some(listing);
    }

    /// Stores a value whose `len` bytes are at `at` in the command's data.
    ///
    /// # Errors
    /// Those of [`LoggedPairs::store`].
    pub(super) fn store(
        &mut self,
        pairs: &mut LoggedPairs,
        (key, rule): (&[u8], Rule),
        (at, len): (u32, u32),
    ) -> Result<(), Refusal> {
        let noted = self.pieces.len();
        pairs.store(key, rule, len, self)?;
        self.part(log::PUT, key, noted, (at, len));
        Ok(())
    }

    /// The same for bytes appended to a key's value.
    ///
    /// # Errors
    /// Those of [`LoggedPairs::append`].
    pub(super) fn append(
        &mut self,
        pairs: &mut LoggedPairs,
        (key, rule): (&[u8], Rule),
        (at, len): (u32, u32),
    ) -> Result<(), Refusal> {
        let noted = self.pieces.len();
        let kind = match pairs.append(key, rule, len, self)? {
            all if all == len => log::PUT,
            _ => log::APPEND,
        };
        self.part(kind, key, noted, (at, len));
        Ok(())
    }

    /// Assigns the recorded pieces from number `first` on to this key's value, whose bytes are at
    /// `at` in the command's data. They replace an earlier value of the key.
    fn part(&mut self, kind: u8, key: &[u8], first: usize, (at, len): (u32, u32)) {
        let pieces = self.pieces.len() - first;
        let before = self.pieces.len();
        self.forget(key);
        let part = Part {
            kind,
            key: key.iter().copied().collect(),
            first: first - (before - self.pieces.len()),
            pieces,
            at,
            len,
        };
        self.parts.push(part);
    }

    /// The keys whose values are to be copied.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &part.key[..])
    }

    /// Drops the value of this key: it was deleted, and others may have its place.
    pub(super) fn forget(&mut self, key: &[u8]) {
        let mut parts = self.parts.iter();
        let Some(gone) = parts.position(|part| part.key[..] == *key) else {
            return;
        };
        let Part { first, pieces, .. } = self.parts.remove(gone);
        self.pieces.drain(first..first + pieces);
        for part in &mut self.parts[gone..] {
            part.first -= pieces;
        }
    }

    /// Copies the next slice, of values also to the log. Returns whether it was the last one.
    fn copy(&mut self, store: &Store, mut log: Option<&mut Log>, memory: &mut Memory) -> bool {
        let mut slice = self.slice();
        // Bytes for a log are copied twice.
        let copies = if self.parts.is_empty() || log.is_none() {
            1
        } else {
            2
        };
        self.begin_records(&mut log);
        while !slice.is_spent()
            && let Some((at, len)) = self.pieces.pop()
        {
            let now = len.min((slice.left / copies).max(1));
            if self.to_host {
                memory.put_from(store, at, now)
            } else {
                memory.take_into(store, at, now)
            }
            if now < len {
                self.pieces.push((at + u64::from(now), len - now));
            }
            if !self.to_host
                && let Some(log) = &mut log
            {
                log.put(store, at, now);
            }
            self.begin_records(&mut log);
            slice.spend(copies * now);
        }
        self.pieces.is_empty()
    }

    /// Begins the record of the next value to copy, once the previous one is complete.
    fn begin_records(&mut self, log: &mut Option<&mut Log>) {
        let Some(log) = log else {
            return;
        };
        while let Some(part) = self.parts.get(self.logged)
            && log.journal.is_whole()
        {
            log.begin(part.kind, &part.key, part.len);
            self.logged += 1;
        }
    }
}

impl Source for Later {
    fn take_into(&mut self, _: &Store, at: u64, len: u32) {
        self.to_host = false;
        self.pieces.push((at, len));
    }

    fn comes_later(&self) -> bool {
        true
    }
}

impl Target for Later {
    fn put_from(&mut self, _: &Store, at: u64, len: u32) {
        self.to_host = true;
        self.pieces.push((at, len));
    }
}

/// Bytes of the host; those without an address are discarded.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: Option<Iova>,
    len: u32,
}

/// A command's memory in its host, from turn to turn: segments are valid for only one.
#[derive(Debug)]
pub(super) struct Memory {
    /// The rest of it, the next bytes last.
    pieces: Vec<Piece>,
    /// Its first bytes, of a command that returns keys.
    head: ArrayVec<Piece, HEAD>,
    /// Set while a command is in progress.
    view: Option<Arc<DmaView>>,
    hint: Hint,
    /// Whether some of it could not be reached any more.
    is_lost: bool,
}

impl Memory {
    fn new() -> Self {
        Memory {
            pieces: Vec::with_capacity(MAX_SEGMENTS + SUB_COMMANDS_MAX),
            head: ArrayVec::new(),
            view: None,
            hint: Hint::default(),
            is_lost: false,
        }
    }

    /// Takes the parts of the segments that `later` needs.
    fn begin(&mut self, later: &Later, segments: &[Segment<'_>], view: &Arc<DmaView>) {
        self.view = Some(Arc::clone(view));
        (self.hint, self.is_lost) = (Hint::default(), false);
        self.pieces.clear();
        self.head.clear();
        // As many as a command says in 32 bits.
        let all = Host::len(segments) as u32;
        let mut host = Host::new(segments);
        let piece = |segment: Segment<'_>| Piece {
            at: (!segment.is_sink()).then(|| segment.iova()),
            len: segment.len(),
        };
        let pieces = &mut self.pieces;
        let mut each = |_, segment: Segment<'_>| pieces.push(piece(segment));
        if later.listing.is_some() {
            host.advance(HEAD as u32, |_, segment| self.head.push(piece(segment)));
            host.skip(later.filled - HEAD as u32);
            host.advance(all - later.filled, each);
        } else if later.parts.is_empty() {
            host.advance(all, each);
        } else {
            let mut behind = 0;
            for part in &later.parts {
                host.skip(part.at - behind);
                host.advance(part.len, &mut each);
                behind = part.at + part.len;
            }
        }
        self.pieces.reverse();
    }

    /// The next `len` bytes, in pieces.
    fn advance(&mut self, len: u32, need: Need, mut each: impl FnMut(u32, &Segment<'_>)) {
        let mut done = 0;
        while done < len
            && let Some(piece) = self.pieces.pop()
        {
            let most = piece.len.min(len - done);
            // The view is the one in which these addresses were found, and does not change.
            let segment = match (piece.at, &self.view) {
                (Some(at), Some(view)) => view.translate(&mut self.hint, at, most, need).ok(),
                _ => Some(Segment::sink(most)),
            };
            let Some(segment) = segment else {
                self.is_lost = true;
                return;
            };
            each(done, &segment);
            let part = segment.len();
            done += part;
            if part < piece.len {
                self.pieces.push(Piece {
                    at: piece.at.map(|at| Iova(at.0 + u64::from(part))),
                    len: piece.len - part,
                });
            }
        }
    }

    /// Fills the first bytes.
    fn put_head(&mut self, head: [u8; HEAD]) {
        self.pieces.clear();
        self.pieces.extend(self.head.drain(..).rev());
        self.put(&head);
    }
}

impl Source for Memory {
    fn take_into(&mut self, store: &Store, at: u64, len: u32) {
        self.advance(len, Need::DeviceReads, |done, segment| {
            store.copy_from(at + u64::from(done), segment);
        });
    }
}

impl Target for Memory {
    fn put_from(&mut self, store: &Store, at: u64, len: u32) {
        self.advance(len, Need::DeviceWrites, |done, segment| {
            store.copy_to(at + u64::from(done), segment);
        });
    }
}

impl Sink for Memory {
    fn put(&mut self, bytes: &[u8]) {
        self.advance(bytes.len() as u32, Need::DeviceWrites, |done, segment| {
            let bytes = &bytes[done as usize..];
            segment.write_from(0, &bytes[..segment.len() as usize]);
        });
    }
}

/// The command that runs in slices, if any.
#[derive(Debug)]
pub(super) struct Slices {
    going: Option<(Ticket, Outcome)>,
    memory: Memory,
}

impl Slices {
    pub(super) fn new() -> Self {
        Slices {
            going: None,
            memory: Memory::new(),
        }
    }

    /// Whether there is one.
    pub(super) fn is_going(&self) -> bool {
        self.going.is_some()
    }

    /// Begins a command with unfinished parts. If these are bytes of values, it ends with the given
    /// result when all are copied.
    #[cold]
    pub(super) fn begin(
        &mut self,
        command: (Ticket, Outcome),
        medium: &mut KeyValue,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) {
        let KeyValue { pairs, later, .. } = medium;
        self.memory.begin(later, segments, view);
        later.pieces.reverse();
        // Begun now, so that no frame ends between the records already appended by the command and
        // its values.
        later.begin_records(&mut pairs.log_mut());
        self.going = Some(command);
    }

    /// Performs a slice. Returns the command if it has ended.
    #[cold]
    pub(super) fn go_on(&mut self, medium: &mut KeyValue) -> Option<Done> {
        let (ticket, mut outcome) = self.going.take()?;
        let ended = if medium.later.listing.is_some() {
            match medium.go_on(&mut self.memory) {
                Some((head, answer)) => {
                    self.memory.put_head(head);
                    outcome = answer.into();
                    true
                }
                None => false,
            }
        } else {
            let KeyValue { pairs, later, .. } = medium;
            let (pairs, log) = pairs.with_log();
            later.copy(pairs.bytes(), log, &mut self.memory)
        };
        if !ended {
            self.going = Some((ticket, outcome));
            return None;
        }
        medium.later.clear();
        if self.memory.is_lost {
            outcome = Outcome::of(Cause::Aborted);
        }
        // Releases the view: an unmap must not wait for a command that has ended.
        self.memory.view = None;
        Some(Done { ticket, outcome })
    }
}
