//! Claims: keep commands that several threads execute on one medium at the same time from mixing
//! their bytes.
//!
//! A medium is divided into pieces. A fixed number of words represents them: a piece maps to the
//! word with its number modulo the number of words. A word holds the count and the owner of the
//! commands in its pieces: either commands of one [`Claimant`], which keeps its own apart by
//! itself, or readers only. A command claims the words of its pieces before it begins and releases
//! them when it has ended. Two pieces that share a word delay each other needlessly; that is rare,
//! and costs a short wait.
//!
//! No call blocks: a claim that meets another is retried later, and continues from the word that it
//! has reached. Words are claimed in ascending order and kept meanwhile, so commands cannot wait
//! for each other in a circle, and a command of many pieces gets them one by one however busy they
//! are. A command that has to wait marks the word. No new claim joins those at a marked word, so
//! the word becomes free, and new commands leave it to those that have waited.
//!
//! A medium with one claimant needs no claims: its commands only check a flag. When a second one
//! opens, the first claims everything that it has in flight at its next check
//! ([`Claimant::must_claim`]), and no other begins until it has. There is no way back: a claimant
//! that has shared a medium once keeps claiming.
//!
//! Not included: wake-ups. A waiting claimant retries by itself.

use crate::sync::atomics::{Arc, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::order::full_fence;

/// Claimants of one medium at a time.
pub const MAX_CLAIMANTS: u32 = u64::BITS;
/// Bytes of a piece, as a power of two.
const PIECE_SHIFT: u32 = 12;
/// Words there are: a power of two.
#[cfg(not(feature = "loom"))]
const WORDS: usize = 8192;
#[cfg(feature = "loom")]
const WORDS: usize = 2;

/// Commands at a word. There is room for all that [`MAX_CLAIMANTS`] channels can hold.
const COUNT: u32 = (1 << HOLDER_SHIFT) - 1;
/// Whose they are: a claimant's number, or [`READERS`]. Of no meaning where there are none.
const HOLDER: u32 = 0x7F << HOLDER_SHIFT;
const HOLDER_SHIFT: u32 = 20;
const READERS: u32 = 0;
/// A claimant waits for the word.
const WAITED: u32 = 1 << 31;

/// A medium's words. A clone is the same ones.
#[derive(Clone, Debug)]
pub struct Claims(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    words: Box<[AtomicU32]>,
    /// A bit for each claimant there is.
    open: AtomicU64,
    /// There have been two claimants at one time. Never reset.
    by_many: AtomicBool,
    /// The only one that there was may have something in flight that it has not claimed.
    unclaimed: AtomicBool,
}

/// One thread's right to claim.
#[derive(Debug)]
pub struct Claimant {
    shared: Arc<Shared>,
    /// Its number in a word, from 1 on.
    number: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Alone as far as it knows, with nothing in flight. It looks before it begins.
    Resting,
    /// Alone, and what it has in flight is not claimed.
    Alone,
    Claims,
}

/// Progress of a command's claim. It belongs to the ranges that it was created with.
#[derive(Debug, Default)]
pub struct Claim {
    /// Words that it holds: the first ones of its own.
    held: usize,
    whole: bool,
    /// It has met another claim at the next word, and has left a mark.
    waited: bool,
}

impl Default for Claims {
    fn default() -> Self {
        Claims::new()
    }
}

impl Claims {
    /// Words without claims.
    #[must_use]
    pub fn new() -> Claims {
        Claims(Arc::new(Shared {
            words: (0..WORDS).map(|_| AtomicU32::new(0)).collect(),
            open: AtomicU64::new(0),
            by_many: AtomicBool::new(false),
            unclaimed: AtomicBool::new(false),
        }))
    }

    /// One more that uses the medium; `None` where there are [`MAX_CLAIMANTS`].
    #[must_use]
    pub fn claimant(&self) -> Option<Claimant> {
        let shared = &self.0;
        let mut open = shared.open.load(Ordering::Relaxed);
        let number = loop {
            let number = open.trailing_ones();
            if number == MAX_CLAIMANTS {
                return None;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let with = open | 1 << number;
            match shared.open.compare_exchange(open, with, success, failure) {
                Ok(_) => break number,
                Err(now) => open = now,
            }
        };
        let state = if open != 0 {
            shared.by_many.store(true, Ordering::Relaxed);
            // Between our store of `by_many` and every later load of `unclaimed`: see
            // `Claimant::look`.
            full_fence();
            State::Claims
        } else if shared.by_many.load(Ordering::Relaxed) {
            State::Claims
        } else {
            State::Resting
        };
        Some(Claimant {
            shared: Arc::clone(shared),
            number: number + 1,
            state,
        })
    }
}

impl Shared {
    fn word(&self, index: usize) -> &AtomicU32 {
        &self.words[index % WORDS]
    }
}

impl Claim {
    /// The claim of a command that is alone on its medium, or touches no bytes.
    pub const NEEDLESS: Claim = Claim {
        held: 0,
        whole: true,
        waited: false,
    };

    /// Whether the command may begin.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }
}

impl Claimant {
    /// Whether new commands must claim. If another claimant has come and unclaimed commands may be
    /// in flight, `claim_all` is called first and must claim all of them
    /// ([`Claimant::claim_at_once`]).
    ///
    /// To be called before each command begins, and now and then also where none does: others wait
    /// for it.
    #[inline]
    pub fn must_claim(&mut self, claim_all: impl FnOnce(&Self)) -> bool {
        !self.is_alone() && self.look(claim_all)
    }

    /// Whether [`Claimant::must_claim`] would return false without any work.
    #[inline]
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.state == State::Alone && !self.shared.by_many.load(Ordering::Relaxed)
    }

    #[inline(never)]
    fn look(&mut self, claim_all: impl FnOnce(&Self)) -> bool {
        match self.state {
            State::Claims => {}
            State::Alone => {
                claim_all(self);
                self.claim_from_now_on();
            }
            // The race: we store `unclaimed` and then load `by_many`; who opens stores `by_many`
            // and later loads `unclaimed`. With a full fence between on both sides one of the two
            // sees the other's store.
            State::Resting => {
                self.shared.unclaimed.store(true, Ordering::Relaxed);
                full_fence();
                if !self.shared.by_many.load(Ordering::Relaxed) {
                    self.state = State::Alone;
                    return false;
                }
                self.claim_from_now_on();
            }
        }
        true
    }

    /// Its unclaimed commands have ended or are claimed, and others see it: the Release pairs with
    /// their load.
    fn claim_from_now_on(&mut self) {
        self.shared.unclaimed.store(false, Ordering::Release);
        self.state = State::Claims;
    }

    /// It has nothing in flight and may make no call for a long time: others need not wait for it.
    pub fn rest(&mut self) {
        if self.state == State::Alone {
            self.shared.unclaimed.store(false, Ordering::Release);
            self.state = State::Resting;
        }
    }

    /// Claims ranges (offset and length in bytes) to read or, with `changes`, also to change them.
    /// Goes on where the last try of this claim ended; true when it is whole, and the command may
    /// begin.
    pub fn claim(
        &self,
        claim: &mut Claim,
        ranges: impl IntoIterator<Item = (u64, u64)>,
        changes: bool,
    ) -> bool {
        if claim.whole {
            return true;
        }
        // The Acquire pairs with the Release of who was alone: its bytes, and its claims, are seen.
        if self.shared.unclaimed.load(Ordering::Acquire) {
            return false;
        }
        let wanted = if changes { self.holder() } else { READERS };
        claim.whole = each_word(ranges, claim.held, |index| {
            let taken = take(self.shared.word(index), wanted, self.holder(), claim.waited);
            claim.held += usize::from(taken);
            claim.waited = !taken;
            taken
        });
        claim.whole
    }

    /// Claims ranges of a command that is in flight already, which no other claimant can have
    /// claimed: only for [`Claimant::must_claim`].
    pub fn claim_at_once(&self, claim: &mut Claim, ranges: impl IntoIterator<Item = (u64, u64)>) {
        each_word(ranges, 0, |index| {
            let word = self.shared.word(index);
            let now = word.load(Ordering::Relaxed);
            debug_assert!(now & COUNT == 0 || now & HOLDER == self.holder());
            // No other claimant stores here before `unclaimed` is cleared.
            word.store(self.holder() | ((now & COUNT) + 1), Ordering::Relaxed);
            claim.held += 1;
            true
        });
        claim.whole = true;
    }

    /// Releases a claim of these ranges: the command has ended, or will not begin.
    pub fn release(&self, claim: &mut Claim, ranges: impl IntoIterator<Item = (u64, u64)>) {
        if claim.held > 0 {
            each_word(ranges, 0, |index| {
                // Our reads and writes are before those of the next one: its Acquire pairs with
                // this.
                self.shared.word(index).fetch_sub(1, Ordering::Release);
                claim.held -= 1;
                claim.held > 0
            });
        }
        *claim = Claim::NEEDLESS;
    }

    fn holder(&self) -> u32 {
        self.number << HOLDER_SHIFT
    }
}

impl Drop for Claimant {
    fn drop(&mut self) {
        self.rest();
        let bit = 1 << (self.number - 1);
        self.shared.open.fetch_and(!bit, Ordering::Release);
    }
}

/// Takes a place at a word for `wanted` ([`READERS`] or `own`), or leaves the mark of one who
/// waits. `again`: it has waited already.
fn take(word: &AtomicU32, wanted: u32, own: u32, again: bool) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    loop {
        let (is_free, is_waited) = (now & COUNT == 0, now & WAITED != 0);
        let holder = now & HOLDER;
        let may = if is_free {
            again || !is_waited
        } else {
            !is_waited && (holder == own || holder == wanted)
        };
        let next = match (may, is_free) {
            (false, _) => now | WAITED,
            (true, true) => wanted | 1,
            (true, false) => now + 1,
        };
        if next == now {
            return false;
        }
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        match word.compare_exchange_weak(now, next, success, failure) {
            Ok(_) => return may,
            Err(other) => now = other,
        }
    }
}

/// Calls `go` for each word of the ranges but the first `skip`, each once and in ascending order,
/// until it says no. True where it never did.
fn each_word(
    ranges: impl IntoIterator<Item = (u64, u64)>,
    skip: usize,
    mut go: impl FnMut(usize) -> bool,
) -> bool {
    let mut ranges = ranges.into_iter().filter(|(_, len)| *len > 0);
    let Some(first) = ranges.next() else {
        return true;
    };
    match ranges.next() {
        None => {
            let (start, count) = pieces(first);
            // Those past the last word begin with the first one again, and come before the others.
            let around = (start + count).saturating_sub(WORDS);
            (skip..count).all(|at| go(if at < around { at } else { start + at - around }))
        }
        Some(second) => {
            let mut words = [0u64; WORDS.div_ceil(64)];
            for range in [first, second].into_iter().chain(ranges) {
                let (start, count) = pieces(range);
                for index in start..start + count {
                    words[index % WORDS / 64] |= 1 << (index % WORDS % 64);
                }
            }
            (0..WORDS)
                .filter(|index| words[index / 64] >> (index % 64) & 1 == 1)
                .skip(skip)
                .all(&mut go)
        }
    }
}

/// The first word of a range and how many it has, each once.
fn pieces((offset, len): (u64, u64)) -> (usize, usize) {
    let first = offset >> PIECE_SHIFT;
    let last = offset.saturating_add(len - 1) >> PIECE_SHIFT;
    let count = (last - first + 1).min(WORDS as u64) as usize;
    ((first % WORDS as u64) as usize, count)
}
