//! The compound command: up to eight stores and deletes that arrive as one (Samsung's name is
//! batch).
//!
//! Its data begin with a head of 512 bytes, which gives the kind of each sub-command and the sizes
//! of its key and value. For each sub-command follow 64 unused bytes, the key and the value, each
//! padded to a multiple of 64 bytes.
//!
//! Sub-commands run in order, each as if it had come alone, and a failure does not stop the others.
//! On a persistent medium, after a crash all of them have happened or none. Dword 0 of the
//! completion has a [`SubResult`] of four bits for each, the first in bits 3:0; the codes are
//! published, but not their positions. The status is that of the first failure, so that a host that
//! does not read Dword 0 notices it.
//!
//! If the values exceed a slice they are copied later, as those of other stores are; a value that a
//! later sub-command has replaced or deleted is not copied at all. The log then has first the
//! deleted keys, including those to be stored, and then the values.
//!
//! A head without sub-commands or with more than eight, or with parts outside the data, is rejected
//! without effect. Everything is copied from the host once, and only the copy is used.

use memory::Segment;
use model::KvKind;
use nvme_spec::Status;
use nvme_spec::samsung::{
    BATCH_ALIGNMENT, BATCH_HEAD_SIZE, BatchHead, KEY_MAX, KEY_MIN, SUB_COMMANDS_MAX,
    SamsungCommand, SamsungOpcode, SubCommand, SubResult, status,
};
use zerocopy::{FromZeros, IntoBytes};

use super::rule;
use crate::keyvalue::answer::{Answer, Ops};
use crate::keyvalue::data::Host;
use crate::keyvalue::logged::LoggedPairs;
use crate::keyvalue::pairs::Refusal;
use crate::keyvalue::slices::Later;

/// Bits of a [`SubResult`] in Dword 0.
const RESULT_BITS: usize = 4;

/// Performs a compound command.
pub(super) fn execute(
    pairs: &mut LoggedPairs,
    command: &SamsungCommand,
    segments: &[Segment<'_>],
    (later, ops): (&mut Later, &mut Ops),
) -> Result<Answer, Status> {
    let len = command.value_len().ok_or(status::INVALID_VALUE_SIZE)?;
    let has = Host::len(segments).min(len.into());
    let count = usize::from(command.sub_commands);
    if !(1..=SUB_COMMANDS_MAX).contains(&count) {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    if has < BATCH_HEAD_SIZE as u64 {
        return Err(status::INVALID_VALUE_SIZE);
    }
    let mut host = Host::new(segments);
    let mut head = BatchHead::new_zeroed();
    host.take(head.as_mut_bytes());
    let subs = &head.sub[..count];
    let starts = starts(subs, has).ok_or(status::INVALID_VALUE_SIZE)?;
    ops.compound();
    // All of them are inside the data, so their sum is, too.
    let bytes: u32 = subs.iter().map(|sub| sub.value_len).sum();
    let mut later = Some(later).filter(|later| later.is_for(bytes));
    pairs.record(|log, _| log.reserve(has, count));
    let mut answer = Answer::ok(0);
    for (index, (sub, start)) in subs.iter().zip(starts).enumerate() {
        let mut host = Host::new(segments);
        host.skip(start);
        let result = one(pairs, sub, (start, host), (later.as_deref_mut(), ops));
        answer.result |= u32::from(result.0) << (RESULT_BITS * index);
        if answer.status.is_success() {
            answer.status = status_of(result);
        }
    }
    if let Some(later) = later {
        // In the log the values follow the deletes of all their keys, so that a replay never needs
        // more room than all of them together.
        let keys = later.keys();
        pairs.record(|log, _| keys.for_each(|key| log.deleted(key)));
    }
    Ok(answer)
}

/// Start of each sub-command's key; `None` if one is not within the `has` bytes.
fn starts(subs: &[SubCommand], has: u64) -> Option<[u32; SUB_COMMANDS_MAX]> {
    let mut starts = [0; SUB_COMMANDS_MAX];
    let mut at = BATCH_HEAD_SIZE as u64;
    for (start, sub) in starts.iter_mut().zip(subs) {
        at += BATCH_ALIGNMENT as u64;
        *start = u32::try_from(at).ok()?;
        at += padded(sub.key_len.into());
        // Padding after the last value may be missing.
        if at + u64::from(sub.value_len) > has {
            return None;
        }
        at += padded(sub.value_len.into());
    }
    Some(starts)
}

fn padded(len: u64) -> u64 {
    len.next_multiple_of(BATCH_ALIGNMENT as u64)
}

/// Performs a sub-command, whose key comes next from its host, at `start` of the data; with
/// `later`, its value is copied later.
fn one(
    pairs: &mut LoggedPairs,
    sub: &SubCommand,
    (start, mut host): (u32, Host<'_, '_>),
    (later, ops): (Option<&mut Later>, &mut Ops),
) -> SubResult {
    let key_len = usize::from(sub.key_len);
    if !(KEY_MIN..=KEY_MAX).contains(&key_len) {
        return SubResult::INVALID_KEY_SIZE;
    }
    let mut buffer = [0; KEY_MAX];
    let key = &mut buffer[..key_len];
    host.take(key);
    match sub.opcode {
        SamsungOpcode::STORE => {
            let Ok(rule) = rule(sub.option) else {
                return SubResult::INVALID_OPTION;
            };
            // 256 bytes at most.
            let padded_len = padded(key_len as u64) as u32;
            let done = match later {
                Some(later) => {
                    let place = (start + padded_len, sub.value_len);
                    later.store(pairs, (key, rule), place)
                }
                None => {
                    host.skip(padded_len - key_len as u32);
                    pairs.store(key, rule, sub.value_len, &mut host)
                }
            };
            ops.push(KvKind::Store, key, done.map_or(0, |()| sub.value_len));
            done.map_or_else(refused, |()| SubResult::SUCCESS)
        }
        SamsungOpcode::DELETE | SamsungOpcode::DELETE_SUB => {
            ops.push(KvKind::Delete, key, 0);
            let done = pairs.delete(key);
            if let Some(later) = later.filter(|_| done.is_ok()) {
                later.forget(key);
            }
            done.map_or(SubResult::KEY_DOES_NOT_EXIST, |()| SubResult::SUCCESS)
        }
        _ => SubResult::UNSUPPORTED_OPCODE,
    }
}

fn refused(refusal: Refusal) -> SubResult {
    match refusal {
        // Only an update requires an existing key.
        Refusal::NotFound => SubResult::UPDATE_STORE_FAILED,
        Refusal::Exists => SubResult::IDEMPOTENT_STORE_FAILED,
        Refusal::Full => SubResult::CAPACITY_EXCEEDED,
        Refusal::TooLarge | Refusal::BeyondEnd => SubResult::INVALID_VALUE_SIZE,
    }
}

/// The status of a command that ends with this sub-command's result.
fn status_of(result: SubResult) -> Status {
    match result {
        SubResult::SUCCESS => Status::SUCCESSFUL_COMPLETION,
        SubResult::INVALID_VALUE_SIZE => status::INVALID_VALUE_SIZE,
        SubResult::INVALID_KEY_SIZE => status::INVALID_KEY_SIZE,
        SubResult::INVALID_OPTION => status::INVALID_OPTION,
        SubResult::KEY_DOES_NOT_EXIST | SubResult::UPDATE_STORE_FAILED => {
            status::KEY_DOES_NOT_EXIST
        }
        SubResult::CAPACITY_EXCEEDED => status::CAPACITY_EXCEEDED,
        SubResult::IDEMPOTENT_STORE_FAILED => status::IDEMPOTENT_STORE_FAILED,
        _ => Status::INVALID_COMMAND_OPCODE,
    }
}
