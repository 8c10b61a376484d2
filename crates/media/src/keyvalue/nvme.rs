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
use nvme_spec::key_value::{
    KEY_MAX, KvCdw11, KvOpcode, ListHeader, ListKeyHeader, StoreOptions, key_field, list_entry_size,
};
use nvme_spec::{Sqe, Status};
use zerocopy::IntoBytes;

use super::answer::{Answer, Ops};
use super::data::{Host, Sink};
use super::index::{self, Slot};
use super::pairs::{Pairs, Refusal, Rule};
use super::slices::{HEAD, Later, Listing, Slice};

/// Bytes of the head of a list.
const LIST_HEAD: u32 = size_of::<ListHeader>() as u32;
const _: () = assert!(size_of::<ListHeader>() == HEAD);

/// Performs a command whose data are the `segments`, of the length in CDW10.
pub(super) fn execute(
    pairs: &mut Pairs,
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
                pairs.retrieve(key, 0, sqe.cdw10, later)
            } else {
                pairs.retrieve(key, 0, sqe.cdw10, &mut host)
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
            let mut list = List::new(pairs, key, sqe.cdw10);
            if !list.go_on(pairs, &mut later.slice(), &mut host) {
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
            pairs.size_of(key).map(|_| 0).ok_or(Refusal::NotFound)
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

/// A list of keys from one on, as many as fit. A medium of this command set has no keys that are
/// too long for it to name.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    next: Option<Slot>,
    keys: u32,
    /// Bytes, with those of the head.
    len: u32,
    room: u32,
}

impl List {
    fn new(pairs: &Pairs, from: &[u8], room: u32) -> Self {
        List {
            next: pairs.at_or_after(from),
            keys: 0,
            len: LIST_HEAD,
            room,
        }
    }

    /// Lists as many keys as fit in a slice. Returns whether the list is complete.
    pub(super) fn go_on(&mut self, pairs: &Pairs, slice: &mut Slice, out: &mut impl Sink) -> bool {
        let mut buffer = [0; index::KEY_MAX];
        while let Some(slot) = self.next {
            if slice.is_spent() {
                return false;
            }
            slice.spend_key();
            let key = pairs.key(slot, &mut buffer);
            let size = list_entry_size(key.len());
            let end = self.len + size as u32;
            if end > self.room {
                return true;
            }
            let mut entry = [0; list_entry_size(index::KEY_MAX)];
            let kl = ListKeyHeader {
                kl: key.len() as u16,
            };
            entry[..2].copy_from_slice(kl.as_bytes());
            entry[2..2 + key.len()].copy_from_slice(key);
            out.put(&entry[..size]);
            slice.spend(size as u32);
            (self.keys, self.len) = (self.keys + 1, end);
            self.next = pairs.after(slot);
        }
        true
    }

    /// Head of the list.
    pub(super) fn head(&self) -> [u8; HEAD] {
        self.keys.to_le_bytes()
    }

    /// Result of the command.
    pub(super) fn ended(&self, ops: &mut Ops) -> Answer {
        ops.push(KvKind::List, &[], self.len);
        Answer::ok(0)
    }
}
