//! A key-value medium, and the one channel that may use it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use controller::port::{Added, Cause, Channel, Done, MediumTraits, Outcome, Request};
use controller::set::CommandSet;
use controller::ticket::Ticket;
use memory::{DmaView, Segment};
use model::Op;

use super::answer::Answer;
use super::set::{NvmeSet, SamsungSet, Told};
use super::slices::{Later, Slices};
use super::space::{Space, UNIT};
use super::{Dialect, KeyValue};
use crate::error::MediumError;
use crate::size::Bytes;

pub(crate) const TRAITS: MediumTraits = MediumTraits {
    deallocate: false,
    deallocated_reads_zero: false,
    // It has nothing but volatile memory, and a flush changes nothing about that.
    volatile_cache: false,
    optimal_bytes: 0,
};

/// Where the pairs are while no channel has them. Looked at when a channel is made and when it ends, and by no command.
#[expect(
    clippy::disallowed_types,
    reason = "no command takes it: a channel has the pairs to itself"
)]
type Rest = std::sync::Mutex<Option<Box<KeyValue>>>;

/// A key-value medium.
pub(crate) struct KeyValueMedium {
    rest: Rest,
    told: Arc<Told>,
    dialect: Dialect,
    set: Arc<dyn CommandSet>,
}

impl KeyValueMedium {
    /// `size` bytes, a multiple of 512, for at most `keys` keys.
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
        let told = Arc::new(Told {
            size,
            keys,
            used: AtomicU64::new(0),
        });
        Ok(KeyValueMedium {
            rest: Rest::new(Some(Box::new(pairs))),
            dialect,
            set: match dialect {
                Dialect::Nvme => Arc::new(NvmeSet(Arc::clone(&told))),
                Dialect::Samsung => Arc::new(SamsungSet),
            },
            told,
        })
    }

    /// Keys that fit where nobody says how many: as many as there are units.
    pub(crate) fn keys_of(size: u64) -> u32 {
        u32::try_from(size / UNIT).unwrap_or(u32::MAX - 1)
    }

    /// The commands of its namespaces.
    pub(crate) fn set(&self) -> Arc<dyn CommandSet> {
        Arc::clone(&self.set)
    }

    /// One line for the log.
    pub(crate) fn describe(&self) -> String {
        let dialect = match self.dialect {
            Dialect::Nvme => "the Key Value command set",
            Dialect::Samsung => "Samsung's commands",
        };
        format!(
            "key-value, {} for up to {} keys, {dialect}: gone when the program ends",
            Bytes(self.told.size),
            self.told.keys
        )
    }

    /// The channel, which copies larger values than `slice` bytes in slices of as many. There is one at a time, as commands change
    /// what they all look at.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn channel(self: &Arc<Self>, slice: u32) -> io::Result<KeyValueChannel> {
        let mut pairs = self.take().ok_or_else(|| {
            io::Error::other("a key-value medium is served by one reactor: let no other one use it")
        })?;
        pairs.later = Later::new(slice);
        Ok(KeyValueChannel {
            pairs: Some(pairs),
            slices: Slices::new(),
            medium: Arc::clone(self),
        })
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

/// A reactor's handle on the pairs, which it has to itself.
#[derive(Debug)]
pub(crate) struct KeyValueChannel {
    /// There until it is dropped.
    pairs: Option<Box<KeyValue>>,
    slices: Slices,
    medium: Arc<KeyValueMedium>,
}

impl KeyValueChannel {
    /// See [`crate::Channel::last_op`].
    pub(crate) fn last_op(&self) -> Option<Op<'_>> {
        self.pairs.as_ref()?.last_op()
    }

    fn run(&mut self, request: &Request<'_>, segments: &[Segment<'_>], view: &DmaView) -> Outcome {
        let Some(pairs) = &mut self.pairs else {
            return Outcome::of(Cause::Aborted);
        };
        match request {
            Request::Command { sqe, .. } => {
                let outcome = outcome(pairs.command(sqe, segments, view));
                self.medium.told.used.store(pairs.used(), Relaxed);
                outcome
            }
            Request::Renew { .. } => self.renew(),
            Request::Read { .. } => {
                segments.iter().for_each(Segment::zero);
                Outcome::OK
            }
            Request::Flush => Outcome::OK,
            _ => Outcome::of(Cause::Unsupported),
        }
    }
}

impl KeyValueChannel {
    /// Whether a reap has something to do.
    pub(crate) fn is_due(&self) -> bool {
        self.slices.is_going()
    }

    /// Copies the next slice of a large value.
    fn go_on(&mut self) -> Option<Done> {
        let pairs = self.pairs.as_mut()?;
        self.slices.go_on(&mut pairs.later, pairs.pairs.bytes())
    }

    /// Forgets everything.
    fn renew(&mut self) -> Outcome {
        if let Some(pairs) = &mut self.pairs {
            pairs.clear();
        }
        self.medium.told.used.store(0, Relaxed);
        Outcome::OK
    }
}

fn outcome(answer: Answer) -> Outcome {
    let cause = if answer.status.is_success() {
        Cause::None
    } else {
        Cause::Status(answer.status)
    };
    Outcome {
        cause,
        result: answer.result.into(),
        ..Outcome::OK
    }
}

impl Drop for KeyValueChannel {
    fn drop(&mut self) {
        // A value is whole, whoever waits for it.
        while self.slices.is_going() {
            if let Some(done) = self.go_on() {
                done.ticket.retire();
            }
        }
        self.medium.put(self.pairs.take());
    }
}

impl Channel for KeyValueChannel {
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
        let outcome = self.run(request, segments, view);
        match &mut self.pairs {
            Some(pairs) if !pairs.later.is_empty() => {
                let command = (ticket, outcome);
                self.slices.begin(command, &mut pairs.later, segments, view);
                Added::Pending
            }
            _ => Added::Done(ticket, outcome),
        }
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.slices.is_going() {
            done.extend(self.go_on());
        }
    }

    fn in_flight(&self) -> u32 {
        self.slices.is_going().into()
    }

    fn is_full(&self, _: &Request<'_>) -> bool {
        self.slices.is_going()
    }

    fn copies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller::port::ByteRange;
    use memory::DmaMap;
    use nvme_spec::Status;
    use nvme_spec::key_value::{KvOpcode, set_key};
    use nvme_spec::samsung::{SamsungOpcode, status};
    use nvme_spec::{Sqe, identify::IDENTIFY_SIZE};

    fn medium(dialect: Dialect) -> Arc<KeyValueMedium> {
        Arc::new(KeyValueMedium::open(1 << 20, 10, dialect).unwrap())
    }

    fn add(channel: &mut KeyValueChannel, request: &Request<'_>) -> Outcome {
        let view = DmaMap::new(1).view();
        match channel.add(Ticket::from_bits(7), request, &[], &view) {
            Added::Done(ticket, outcome) => {
                assert_eq!(ticket.into_bits(), 7);
                outcome
            }
            added => panic!("{added:?}"),
        }
    }

    /// A command without data: `key`, of the Key Value command set.
    fn command(channel: &mut KeyValueChannel, opcode: KvOpcode, key: &[u8]) -> Outcome {
        let mut sqe = Sqe {
            opcode: opcode.0,
            ..Sqe::default()
        };
        set_key(&mut sqe, key);
        run(channel, &sqe)
    }

    fn run(channel: &mut KeyValueChannel, sqe: &Sqe) -> Outcome {
        let request = Request::Command {
            sqe,
            extent: ByteRange { offset: 0, len: 0 },
            lba_shift: 9,
            fua: false,
        };
        add(channel, &request)
    }

    #[test]
    fn one_channel_has_the_pairs_and_leaves_them_to_the_next() {
        let medium = medium(Dialect::Nvme);
        let mut first = medium.channel(1 << 20).unwrap();
        let error = medium.channel(1 << 20).unwrap_err().to_string();
        assert!(error.contains("one reactor"), "{error}");
        assert_eq!(command(&mut first, KvOpcode::STORE, b"key"), Outcome::OK);
        drop(first);
        let mut second = medium.channel(1 << 20).unwrap();
        assert_eq!(command(&mut second, KvOpcode::EXIST, b"key"), Outcome::OK);
        let renew = Request::Renew {
            extent: ByteRange { offset: 0, len: 0 },
        };
        assert_eq!(add(&mut second, &renew), Outcome::OK);
        let gone = command(&mut second, KvOpcode::EXIST, b"key");
        assert_eq!(gone, Outcome::status(Status::KV_KEY_DOES_NOT_EXIST));
    }

    #[test]
    fn a_status_comes_with_its_result() {
        let medium = medium(Dialect::Samsung);
        let mut channel = medium.channel(1 << 20).unwrap();
        let sqe = |opcode: SamsungOpcode| {
            let mut bytes = [0; 64];
            (bytes[0], bytes[45], bytes[52]) = (opcode.0, 1, 0xff);
            let word =
                |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| bytes[at + n]));
            Sqe::from_words([0, 1, 2, 3, 4, 5, 6, 7].map(|n| word(8 * n)))
        };
        let opened = run(&mut channel, &sqe(SamsungOpcode::ITERATOR_REQUEST));
        assert_eq!(opened, Outcome::with_result(1));
        let again = run(&mut channel, &sqe(SamsungOpcode::ITERATOR_REQUEST));
        assert_eq!(again, Outcome::status(status::ITERATOR_ALREADY_OPEN));
    }

    #[test]
    fn blocks_read_as_zero_and_are_not_written() {
        let mut channel = medium(Dialect::Samsung).channel(1 << 20).unwrap();
        let read = Request::Read { offset: 0, len: 0 };
        assert_eq!(add(&mut channel, &read), Outcome::OK);
        assert_eq!(add(&mut channel, &Request::Flush), Outcome::OK);
        let write = Request::Write {
            offset: 0,
            len: 0,
            fua: false,
        };
        let refused = Outcome::of(Cause::Unsupported);
        assert_eq!(add(&mut channel, &write), refused);
        let zeroes = Request::WriteZeroes {
            offset: 0,
            len: 512,
            deallocate: true,
            fua: false,
        };
        assert_eq!(add(&mut channel, &zeroes), refused);
    }

    #[test]
    fn utilization_is_told_as_it_changes() {
        let medium = medium(Dialect::Nvme);
        let mut channel = medium.channel(1 << 20).unwrap();
        // A key of 16 bytes and no value takes no unit; what takes some is tested with data.
        assert_eq!(command(&mut channel, KvOpcode::STORE, b"key"), Outcome::OK);
        assert_eq!(medium.told.used.load(Relaxed), 0);
        medium.told.used.store(1536, Relaxed);
        let namespace = crate::keyvalue::set::tests::namespace();
        let id = medium.set().identify_namespace(&namespace);
        assert_eq!(id.len(), IDENTIFY_SIZE);
        // NSZE, NUSE, NKVF, NOVG; KVKML, KVVML, KVMNK of format 0 (KV 1.1, Identify Namespace).
        assert_eq!(id[..8], (1u64 << 20).to_le_bytes());
        assert_eq!(id[16..24], 1536u64.to_le_bytes());
        assert_eq!((id[25], &id[32..36]), (0, &512u32.to_le_bytes()[..]));
        assert_eq!(id[72..76], [16, 0, 0, 0]);
        assert_eq!(id[76..80], (2u32 << 20).to_le_bytes());
        assert_eq!(id[80..84], 10u32.to_le_bytes());
        assert_eq!((id[48], id[64]), (7, 8));
    }
}
