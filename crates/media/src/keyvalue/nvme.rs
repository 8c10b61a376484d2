//! The Key Value command set (KV 1.1) on a medium of pairs.
//!
//! Choices that the specification leaves open:
//! - List is in the byte order of the keys, and begins with the given key, or with the next one if
//!   it does not exist.
//! - Delete of a key that does not exist is KV Key Does Not Exist.
//! - Nothing is compressed, so values are returned as they are, raw or not.
//! - An empty value is a value.
//!
//! Not included: namespaces and reservations, which were checked before.

use memory::Segment;
use model::KvKind;
use nvme_spec::key_value::{KEY_MAX, KvCdw11, KvOpcode, StoreOptions, key_field};
use nvme_spec::{Sqe, Status};

use super::answer::{Answer, Ops};
use super::data::{Host, Sink};
use super::list::{LIST_HEAD, List};
use super::logged::LoggedPairs;
use super::pairs::{Refusal, Rule};
use super::slices::{Later, Listing};

/// Performs a command whose data are the `segments`, of the length in CDW10.
pub(super) fn execute(
    pairs: &mut LoggedPairs,
    sqe: &Sqe,
    segments: &[Segment<'_>],
    (later, ops): (&mut Later, &mut Ops),
) -> Answer {
    let field = key_field(sqe);
    let opcode = KvOpcode(sqe.opcode);
    let key = match key(&field, sqe, opcode) {
        Ok(key) => key,
        Err(status) => return Answer::of(status),
    };
    if opcode.has_size() && Host::len(segments) != u64::from(sqe.cdw10) {
        return Answer::of(Status::DATA_TRANSFER_ERROR);
    }
    let mut host = Host::new(segments);
    let done = match opcode {
        KvOpcode::STORE => {
            let rule = match rule(sqe) {
                Ok(rule) => rule,
                Err(status) => return Answer::of(status),
            };
            let done = if later.is_for(sqe.cdw10) {
                later.store(pairs, (key, rule), (0, sqe.cdw10))
            } else {
                pairs.store(key, rule, sqe.cdw10, &mut host)
            };
            ops.push(KvKind::Store, key, done.map_or(0, |()| sqe.cdw10));
            done.map(|()| 0)
        }
        KvOpcode::RETRIEVE => {
            let done = if later.is_for(sqe.cdw10) {
                pairs.read().retrieve(key, 0, sqe.cdw10, later)
            } else {
                pairs.read().retrieve(key, 0, sqe.cdw10, &mut host)
            };
            ops.push(KvKind::Retrieve, key, done.unwrap_or(0).min(sqe.cdw10));
            done
        }
        KvOpcode::LIST if sqe.cdw10 < LIST_HEAD => {
            return Answer::of(Status::INVALID_FIELD_IN_COMMAND);
        }
        KvOpcode::LIST => {
            let mut head = host.clone();
            host.skip(LIST_HEAD);
            let mut list = List::new(pairs.read(), key, sqe.cdw10);
            if !list.go_on(pairs.read(), &mut later.slice(), &mut host) {
                later.go_on_with(Listing::List(list), sqe.cdw10.into(), &host);
                return Answer::ok(0);
            }
            head.put(&list.head());
            return list.ended(ops);
        }
        KvOpcode::DELETE => {
            ops.push(KvKind::Delete, key, 0);
            pairs.delete(key).map(|()| 0)
        }
        KvOpcode::EXIST => {
            ops.push(KvKind::Exist, key, 0);
            pairs
                .read()
                .size_of(key)
                .map(|_| 0)
                .ok_or(Refusal::NotFound)
        }
        _ => return Answer::of(Status::INVALID_COMMAND_OPCODE),
    };
    done.map_or_else(|refusal| Answer::of(status(refusal)), Answer::ok)
}

/// The key of a command. Only List may have none.
fn key<'f>(field: &'f [u8; KEY_MAX], sqe: &Sqe, opcode: KvOpcode) -> Result<&'f [u8], Status> {
    let len = usize::from(KvCdw11::from(sqe.cdw11).kl());
    if len == 0 && opcode != KvOpcode::LIST {
        return Err(Status::INVALID_KEY_SIZE);
    }
    field.get(..len).ok_or(Status::INVALID_FIELD_IN_COMMAND)
}

/// Keys to which a Store applies. Both options at once match no key.
fn rule(sqe: &Sqe) -> Result<Rule, Status> {
    let options = StoreOptions::from(KvCdw11::from(sqe.cdw11).options());
    match (options.must_exist(), options.must_not_exist()) {
        (false, false) => Ok(Rule::Any),
        (true, false) => Ok(Rule::MustExist),
        (false, true) => Ok(Rule::MustNotExist),
        (true, true) => Err(Status::INVALID_FIELD_IN_COMMAND),
    }
}

fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotFound => Status::KV_KEY_DOES_NOT_EXIST,
        Refusal::Exists => Status::KEY_EXISTS,
        Refusal::Full => Status::CAPACITY_EXCEEDED,
        Refusal::TooLarge => Status::INVALID_VALUE_SIZE,
        Refusal::BeyondEnd => Status::INVALID_FIELD_IN_COMMAND,
    }
}
