//! Values that are too large to be copied while everybody waits: a slice in each turn of the reactor.
//!
//! A command is done at once but for its bytes: [`Later`] notes where they lie, and [`Slices`] copies them, a slice at a time. What
//! is noted is good as long as no other command is done, so its channel is full until the last slice: commands do not mix.
//!
//! It does NOT slice lists, iterators or the compound command.

use std::sync::Arc;

use controller::port::{Cause, Done, Outcome};
use controller::prp::MAX_SEGMENTS;
use controller::ticket::Ticket;
use memory::{DmaView, Hint, Iova, Need, Segment, Store};

use super::data::{Source, Target};
use super::pairs::VALUE_MAX;
use super::space::units_of;

/// Where the bytes of a value lie that are still to be copied.
#[derive(Debug)]
pub(super) struct Later {
    /// Bytes that are copied at once.
    slice: u32,
    /// Where in the store, and how many; in their order until copying begins.
    pieces: Vec<(u64, u32)>,
    /// They go to the host, and do not come from there.
    to_host: bool,
}

impl Later {
    /// Values of more than `slice` bytes are copied later.
    pub(super) fn new(slice: u32) -> Self {
        // Every unit apart, and one more where the value begins inside one.
        let most = units_of(VALUE_MAX.into()) + 1;
        Later {
            slice,
            pieces: Vec::with_capacity(most as usize),
            to_host: false,
        }
    }

    /// Whether so many bytes are copied later.
    pub(super) fn is_for(&self, len: u32) -> bool {
        len > self.slice
    }

    /// Whether something is to be copied.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Nothing is to be copied any more.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }
}

impl Source for Later {
    fn take_into(&mut self, _: &Store, at: u64, len: u32) {
        self.to_host = false;
        self.pieces.push((at, len));
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

#[derive(Debug)]
struct Going {
    ticket: Ticket,
    outcome: Outcome,
    view: Arc<DmaView>,
    hint: Hint,
}

/// The command whose value is being copied, if any.
#[derive(Debug)]
pub(super) struct Slices {
    going: Option<Going>,
    /// What is left of the host's bytes, the next ones last.
    host: Vec<Piece>,
}

impl Slices {
    pub(super) fn new() -> Self {
        Slices {
            going: None,
            host: Vec::with_capacity(MAX_SEGMENTS),
        }
    }

    /// Whether there is one.
    pub(super) fn is_going(&self) -> bool {
        self.going.is_some()
    }

    /// Begins to copy what is noted. The command ends as said when all is.
    #[cold]
    pub(super) fn begin(
        &mut self,
        (ticket, outcome): (Ticket, Outcome),
        later: &mut Later,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) {
        later.pieces.reverse();
        self.host.clear();
        self.host.extend(segments.iter().rev().map(|segment| Piece {
            at: (!segment.is_sink()).then(|| segment.iova()),
            len: segment.len(),
        }));
        self.going = Some(Going {
            ticket,
            outcome,
            view: Arc::clone(view),
            hint: Hint::default(),
        });
    }

    /// Copies a slice. The command that has ended with it.
    #[cold]
    pub(super) fn go_on(&mut self, later: &mut Later, store: &Store) -> Option<Done> {
        let going = self.going.as_mut()?;
        let mut room = later.slice;
        while room > 0
            && let Some((at, len)) = later.pieces.pop()
        {
            let copied = going.copy(&mut self.host, store, (at, len.min(room)), later.to_host);
            let Some(copied) = copied else {
                going.outcome = Outcome::of(Cause::Aborted);
                later.clear();
                break;
            };
            if copied < len {
                later.pieces.push((at + u64::from(copied), len - copied));
            }
            room -= copied;
        }
        if !later.is_empty() {
            return None;
        }
        let Going {
            ticket, outcome, ..
        } = self.going.take()?;
        Some(Done { ticket, outcome })
    }
}

impl Going {
    /// Copies some of these bytes of the store; says how many. `None` where the host's cannot be reached any more.
    fn copy(
        &mut self,
        host: &mut Vec<Piece>,
        store: &Store,
        (at, len): (u64, u32),
        to_host: bool,
    ) -> Option<u32> {
        let piece = host.pop()?;
        let len = len.min(piece.len);
        let need = match to_host {
            true => Need::DeviceWrites,
            false => Need::DeviceReads,
        };
        let segment = match piece.at {
            None => Segment::sink(len),
            // The view is the one that these addresses were found in, and does not change.
            Some(at) => self.view.translate(&mut self.hint, at, len, need).ok()?,
        };
        let len = segment.len();
        match to_host {
            true => store.copy_to(at, &segment),
            false => store.copy_from(at, &segment),
        }
        if len < piece.len {
            host.push(Piece {
                at: piece.at.map(|at| Iova(at.0 + u64::from(len))),
                len: piece.len - len,
            });
        }
        Some(len)
    }
}
