//! Keys and values: a medium that is asked for by key.
//!
//! `pairs` is the store: an `index` of keys in the order of their bytes with a `directory` by their
//! hashes, and a `space` of units in chains. `nvme` and `samsung` are what hosts speak, `compound`
//! and `iterators` parts of the latter, and `answer` what a command ends with and what it costs.
//! `set` is what the controller is told of them, `channel` how it reaches them.
//!
//! Invariants:
//! - A command is done whole when it is added, on the one reactor that has the medium; what takes
//!   longer `slices` does, while all others wait: commands do not mix.
//! - Nothing is allocated per command. What is reserved when the medium is opened, and taken from
//!   the system as it is first used: the bytes, 4 more for each 512 of them, and 68 to 72 for each
//!   key there may be.
//! - Whatever stands in a command or in its data, what it reaches is bounded and checked.
//!
//! The pairs are in memory. With a file, `log` has every change in it, and makes the pairs again
//! when it is opened (`open`); `durable` is what a flush waits for.

mod answer;
mod channel;
mod compound;
mod data;
mod directory;
mod durable;
mod index;
mod iterators;
mod log;
mod nvme;
mod open;
mod pairs;
mod samsung;
mod set;
mod slices;
mod space;

use std::io;

use memory::{DmaView, Segment};
use model::Op;
use nvme_spec::Sqe;
use nvme_spec::key_value::KvOpcode;
use nvme_spec::samsung::SamsungOpcode;

use self::answer::{Answer, Ops};
pub(crate) use self::channel::{KeyValueChannel, KeyValueMedium};
use self::iterators::Iterators;
use self::pairs::Pairs;
use self::slices::{HEAD, Later, Listing, Memory};

/// What hosts of a key-value medium speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The Key Value command set (KV 1.1): keys of 1 to 16 bytes.
    #[default]
    Nvme,
    /// The commands of Samsung's drives: keys of 4 to 255 bytes, iterators, the compound command.
    Samsung,
}

/// A medium's pairs, and what commands of its dialect do with them.
#[derive(Debug)]
struct KeyValue {
    pairs: Pairs,
    iterators: Iterators,
    dialect: Dialect,
    /// What is left to be done of the last command.
    later: Later,
    /// What the last command was for the timing model.
    ops: Ops,
}

impl KeyValue {
    /// `bytes` bytes for at most `keys` keys.
    ///
    /// # Errors
    /// The system's: there is no memory for so much.
    fn new(bytes: u64, keys: u32, dialect: Dialect) -> io::Result<Self> {
        Ok(Self::of(Pairs::new(bytes, keys)?, dialect))
    }

    fn of(pairs: Pairs, dialect: Dialect) -> Self {
        KeyValue {
            pairs,
            iterators: Iterators::default(),
            dialect,
            later: Later::new(u32::MAX),
            ops: Ops::NONE,
        }
    }

    /// Does a command, whose data are the `segments`; what else of its host's memory it names is
    /// found in the `view`.
    fn command(&mut self, sqe: &Sqe, segments: &[Segment<'_>], view: &DmaView) -> Answer {
        let (pairs, iterators) = (&mut self.pairs, &mut self.iterators);
        self.ops = Ops::NONE;
        self.later.clear();
        let aside = (&mut self.later, &mut self.ops);
        match self.dialect {
            Dialect::Nvme => nvme::execute(pairs, sqe, segments, aside),
            Dialect::Samsung => samsung::execute(pairs, iterators, sqe, segments, view, aside),
        }
    }

    /// Goes on with the keys that the last command returns. What they begin with, and how it ends,
    /// once it does.
    fn go_on(&mut self, memory: &mut Memory) -> Option<([u8; HEAD], Answer)> {
        let mut listing = self.later.take_listing()?;
        let mut slice = self.later.slice();
        let (pairs, iterators) = (&mut self.pairs, &mut self.iterators);
        let ended = match &mut listing {
            Listing::List(list) => list
                .go_on(pairs, &mut slice, memory)
                .then(|| (list.head(), list.ended(&mut self.ops))),
            Listing::Read(reading) => iterators
                .go_on(reading, pairs, &mut slice, memory)
                .then(|| (reading.head(), samsung::ended(&reading.done, &mut self.ops))),
        };
        if ended.is_none() {
            self.later.put_listing(listing);
        }
        ended
    }

    /// Whether a command may change something.
    fn changes(&self, sqe: &Sqe) -> bool {
        match self.dialect {
            Dialect::Nvme => matches!(KvOpcode(sqe.opcode), KvOpcode::STORE | KvOpcode::DELETE),
            Dialect::Samsung => matches!(
                SamsungOpcode(sqe.opcode),
                SamsungOpcode::STORE
                    | SamsungOpcode::APPEND
                    | SamsungOpcode::BATCH
                    | SamsungOpcode::DELETE
                    | SamsungOpcode::ITERATOR_READ
            ),
        }
    }

    /// What the last command was for the timing model; `None` where it was refused before anything
    /// was looked at.
    fn last_op(&self) -> Option<Op<'_>> {
        self.ops.op()
    }

    /// Bytes that are taken.
    fn used(&self) -> u64 {
        self.pairs.used()
    }

    /// Forgets every pair, and closes every iterator.
    fn clear(&mut self) {
        self.pairs.clear();
        self.iterators.clear();
    }
}

#[cfg(test)]
mod tests;
