//! Keys and values: a medium that is accessed by key.
//!
//! `pairs` is the store: an `index` of keys in byte order with a `directory` by hash, and a `space`
//! of units in chains. `nvme` and `samsung` are the dialects of hosts, `list` and `iterators` their
//! commands that return keys, and `answer` is the result and cost of a command. `set` describes the
//! dialects to the controller, and `channel` executes commands.
//!
//! Invariants:
//! - The one reactor that has the medium completes a command when it is added; a longer one runs in
//!   `slices`, while all others wait: commands do not mix.
//! - Nothing is allocated per command. Memory is reserved when the medium is opened, and taken from
//!   the system as it is first used: the bytes, 4 more for each 512 of them, and 68 to 72 for each
//!   possible key.
//! - Whatever a command or its data contain, its accesses are bounded and checked.
//!
//! The pairs are in memory. With a file, `log` records every change (`logged`), and `records`
//! restores the pairs when the file is opened (`open`); a flush waits for `durable`.

mod answer;
mod budget;
mod channel;
mod data;
mod directory;
mod durable;
mod index;
mod iterators;
mod list;
mod log;
mod logged;
mod numbers;
mod nvme;
mod open;
mod pairs;
mod records;
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

use self::answer::{Answer, HEAD, Ops};
pub(crate) use self::channel::{KeyValueChannel, KeyValueMedium};
use self::iterators::Iterators;
use self::logged::LoggedPairs;
use self::slices::{Later, Listing, Memory};
use self::space::UNIT;

/// Command set of a key-value medium's hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The Key Value command set (KV 1.1): keys of 1 to 16 bytes.
    #[default]
    Nvme,
    /// The commands of Samsung's drives: keys of 4 to 255 bytes, iterators, the compound command.
    Samsung,
}

/// Default number of keys of a medium of `size` bytes: the number of units.
pub(crate) fn default_keys(size: u64) -> u32 {
    u32::try_from(size / UNIT).unwrap_or(u32::MAX - 1)
}

/// A medium's pairs, with the commands of its dialect.
#[derive(Debug)]
struct KeyValue {
    pairs: LoggedPairs,
    iterators: Iterators,
    dialect: Dialect,
    /// Unfinished part of the last command.
    later: Later,
    /// The last command as the timing model sees it.
    ops: Ops,
}

impl KeyValue {
    /// Creates a medium of `bytes` bytes for at most `keys` keys.
    ///
    /// # Errors
    /// The system's: there is not enough memory.
    fn new(bytes: u64, keys: u32, dialect: Dialect) -> io::Result<Self> {
        Ok(Self::of(LoggedPairs::new(bytes, keys)?, dialect))
    }

    fn of(pairs: LoggedPairs, dialect: Dialect) -> Self {
        KeyValue {
            pairs,
            iterators: Iterators::default(),
            dialect,
            later: Later::new(u32::MAX),
            ops: Ops::NONE,
        }
    }

    /// Performs a command whose data are the `segments`; other host memory that it names is found
    /// in the `view`.
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

    /// Continues with the keys that the last command returns. At its end, returns the head of the
    /// data, and the result.
    fn go_on(&mut self, memory: &mut Memory) -> Option<([u8; HEAD], Answer)> {
        let mut listing = self.later.take_listing()?;
        let mut slice = self.later.slice();
        let (pairs, iterators) = (&mut self.pairs, &mut self.iterators);
        let ended = match &mut listing {
            Listing::List(list) => list
                .go_on(pairs.read(), &mut slice, memory)
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

    /// The last command as the timing model sees it; `None` if it was rejected before any access.
    fn last_op(&self) -> Option<Op<'_>> {
        self.ops.op()
    }

    /// Bytes in use.
    fn used(&self) -> u64 {
        self.pairs.read().used()
    }

    /// Deletes every pair, and closes every iterator.
    fn clear(&mut self) {
        self.pairs.clear();
        self.iterators.clear();
    }
}

#[cfg(test)]
mod tests;
