//! Samsung's key-value commands on a medium of pairs.
//!
//! Choices that the publications leave open:
//! - A command has a key of 4 to 255 bytes. Up to 16 bytes are in the command itself; for a longer
//!   key, the two PRP entries point to it, are walked like those of data, and the key is copied
//!   once, before any access.
//! - Store has no offset in the value: a nonzero one is Invalid Value Offset. Append has none
//!   either, and stores if the key does not exist.
//! - Retrieve returns the bytes from the offset on, as far as they fit, and in Dword 0 the size of
//!   the whole value.
//! - Delete of a key that does not exist is Key Does Not Exist, whatever its option is.
//! - Hints about compression are accepted and ignored. Unpublished options are Invalid Option.
//! - Dword 0 of Iterator read is the number of returned bytes. [`status::ITERATOR_END`] comes with
//!   the last of them.
//!
//! The batch command is [`compound`].

mod compound;

use memory::{DmaView, Hint, Need, Segment};
use model::KvKind;
use nvme_spec::samsung::{
    INLINE_KEY_MAX, IteratorOption, KEY_MAX, KEY_MIN, RetrieveOption, SamsungCommand,
    SamsungOpcode, StoreOption, status,
};
use nvme_spec::{Sqe, Status};
use port::prp;

use super::answer::{Answer, HEAD, Ops};
use super::data::{Host, Sink};
use super::iterators::{Filter, Iterators, NotOpened, ReadOut, Reads, Stop};
use super::logged::LoggedPairs;
use super::pairs::{Refusal, Rule};
use super::slices::{Later, Listing};

/// Performs a command. The `segments` are those of its value, or of the host's buffer.
pub(super) fn execute(
    pairs: &mut LoggedPairs,
    iterators: &mut Iterators,
    sqe: &Sqe,
    segments: &[Segment<'_>],
    view: &DmaView,
    (later, ops): (&mut Later, &mut Ops),
) -> Answer {
    let command = SamsungCommand::of(sqe);
    let done = match command.opcode {
        SamsungOpcode::ITERATOR_REQUEST => request(iterators, &command, ops),
        SamsungOpcode::ITERATOR_READ => read(pairs, iterators, &command, segments, (later, ops)),
        SamsungOpcode::BATCH => compound::execute(pairs, &command, segments, (later, ops)),
        _ => {
            let mut buffer = [0; KEY_MAX];
            let key = key(&command, view, &mut buffer);
            key.and_then(|key| one(pairs, &command, key, segments, (later, ops)))
        }
    };
    done.unwrap_or_else(Answer::of)
}

/// The key of a command, copied from the host's memory if it is there.
fn key<'b>(
    command: &SamsungCommand,
    view: &DmaView,
    buffer: &'b mut [u8; KEY_MAX],
) -> Result<&'b [u8], Status> {
    let len = command.key_len();
    if !(KEY_MIN..=KEY_MAX).contains(&len) {
        return Err(status::INVALID_KEY_SIZE);
    }
    let key = &mut buffer[..len];
    if len <= INLINE_KEY_MAX {
        key.copy_from_slice(&command.key[..len]);
        return Ok(key);
    }
    let (prp1, prp2) = command.key_prps();
    let mut segments = prp::Segments::new();
    // 255 bytes at most.
    let (bytes, need) = (len as u32, Need::DeviceReads);
    let mut hint = Hint::default();
    prp::walk(view, &mut hint, prp1, prp2, bytes, need, &mut segments)?;
    Host::new(&segments).take(key);
    Ok(key)
}

/// A command with one key.
fn one(
    pairs: &mut LoggedPairs,
    command: &SamsungCommand,
    key: &[u8],
    segments: &[Segment<'_>],
    (later, ops): (&mut Later, &mut Ops),
) -> Result<Answer, Status> {
    let has = Host::len(segments);
    let mut host = Host::new(segments);
    match command.opcode {
        SamsungOpcode::STORE | SamsungOpcode::APPEND => {
            let len = value_len(command, has)?;
            if command.offset != 0 {
                return Err(status::INVALID_VALUE_OFFSET);
            }
            let rule = rule(command.option)?;
            let appends = command.opcode == SamsungOpcode::APPEND;
            let done = match (appends, later.is_for(len)) {
                (true, true) => later.append(pairs, (key, rule), (0, len)),
                (true, false) => pairs.append(key, rule, len, &mut host).map(drop),
                (false, true) => later.store(pairs, (key, rule), (0, len)),
                (false, false) => pairs.store(key, rule, len, &mut host),
            };
            let kind = if appends {
                KvKind::Append
            } else {
                KvKind::Store
            };
            ops.push(kind, key, done.map_or(0, |()| len));
            done.map(|()| Answer::ok(0))
                .map_err(|refusal| match refusal {
                    Refusal::TooLarge if appends => status::VALUE_SIZE_LIMIT_EXCEEDED,
                    refusal => status_of(refusal),
                })
        }
        SamsungOpcode::RETRIEVE => {
            let option = RetrieveOption::from(command.option);
            if option.unknown() != 0 {
                return Err(status::INVALID_OPTION);
            }
            let room = if option.only_size() {
                0
            } else {
                value_len(command, has)?
            };
            let done = if later.is_for(room) {
                pairs.read().retrieve(key, command.offset, room, later)
            } else {
                pairs.read().retrieve(key, command.offset, room, &mut host)
            };
            let returned = done.map_or(0, |len| (len - command.offset).min(room));
            ops.push(KvKind::Retrieve, key, returned);
            done.map(Answer::ok).map_err(status_of)
        }
        SamsungOpcode::DELETE => {
            ops.push(KvKind::Delete, key, 0);
            pairs.delete(key).map(|()| Answer::ok(0)).map_err(status_of)
        }
        SamsungOpcode::EXIST => {
            ops.push(KvKind::Exist, key, 0);
            let size = pairs.read().size_of(key).ok_or(status::KEY_DOES_NOT_EXIST);
            size.map(|_| Answer::ok(0))
        }
        _ => Err(Status::INVALID_COMMAND_OPCODE),
    }
}

/// Length of the value or buffer, which the host must have provided.
fn value_len(command: &SamsungCommand, has: u64) -> Result<u32, Status> {
    let len = command.value_len().ok_or(status::INVALID_VALUE_SIZE)?;
    if u64::from(len) > has {
        return Err(Status::DATA_TRANSFER_ERROR);
    }
    Ok(len)
}

/// Keys to which a store applies.
fn rule(option: u8) -> Result<Rule, Status> {
    let option = StoreOption::from(option);
    match (option.unknown(), option.idempotent(), option.update_only()) {
        (0, false, false) => Ok(Rule::Any),
        (0, true, false) => Ok(Rule::MustNotExist),
        (0, false, true) => Ok(Rule::MustExist),
        _ => Err(status::INVALID_OPTION),
    }
}

fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotFound => status::KEY_DOES_NOT_EXIST,
        Refusal::Exists => status::IDEMPOTENT_STORE_FAILED,
        Refusal::Full => status::CAPACITY_EXCEEDED,
        Refusal::TooLarge => status::INVALID_VALUE_SIZE,
        Refusal::BeyondEnd => status::INVALID_VALUE_OFFSET,
    }
}

/// Iterator request: opens or closes an iterator.
fn request(
    iterators: &mut Iterators,
    command: &SamsungCommand,
    ops: &mut Ops,
) -> Result<Answer, Status> {
    let option = IteratorOption::from(command.option);
    let kinds = (option.key_only(), option.key_value(), option.delete());
    ops.push(KvKind::List, &[], 0);
    match (option.unknown(), option.open(), option.close()) {
        (0, true, false) => {
            let reads = match kinds {
                (_, false, false) => Reads::Keys,
                (false, true, false) => Reads::Pairs,
                (false, false, true) => Reads::Deletes,
                _ => return Err(status::INVALID_OPTION),
            };
            let (prefix, mask) = command.prefix();
            let opened = iterators.open(Filter { prefix, mask }, reads);
            opened
                .map(|handle| Answer::ok(handle.into()))
                .map_err(|refused| match refused {
                    NotOpened::AlreadyOpen => status::ITERATOR_ALREADY_OPEN,
                    NotOpened::NoHandle => status::ITERATOR_NO_HANDLE,
                })
        }
        (0, false, true) if iterators.close(command.key_len_z) => Ok(Answer::ok(0)),
        (0, false, true) => Err(status::ITERATOR_UNKNOWN),
        _ => Err(status::INVALID_OPTION),
    }
}

/// Iterator read.
fn read(
    pairs: &mut LoggedPairs,
    iterators: &mut Iterators,
    command: &SamsungCommand,
    segments: &[Segment<'_>],
    (later, ops): (&mut Later, &mut Ops),
) -> Result<Answer, Status> {
    let has = Host::len(segments);
    let room = value_len(command, has)?;
    if room < HEAD as u32 {
        return Err(status::INVALID_VALUE_SIZE);
    }
    let Some(mut reading) = iterators.begin(command.key_len_z, pairs.read(), room) else {
        ops.push(KvKind::List, &[], 0);
        return Err(status::ITERATOR_UNKNOWN);
    };
    let mut host = Host::new(segments);
    let mut head = host.clone();
    host.skip(HEAD as u32);
    if !iterators.go_on(&mut reading, pairs, &mut later.slice(), &mut host) {
        later.go_on_with(Listing::Read(reading), has, &host);
        return Ok(Answer::ok(0));
    }
    head.put(&reading.head());
    Ok(ended(&reading.done, ops))
}

/// Result of an Iterator read.
pub(super) fn ended(done: &ReadOut, ops: &mut Ops) -> Answer {
    ops.push(KvKind::List, &[], done.len);
    match done.stop {
        Stop::Ended => Answer {
            status: status::ITERATOR_END,
            result: done.len,
        },
        Stop::Full if done.keys == 0 => Answer::of(status::INVALID_VALUE_SIZE),
        Stop::Full | Stop::Looked => Answer::ok(done.len),
    }
}
