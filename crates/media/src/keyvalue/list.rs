//! The List command of the Key Value command set: keys in their byte order, in slices.
//!
//! A list is a position in the keys. It is valid only while no other command changes the pairs.
//!
//! Not included: the head of the list in the host's memory, which the caller writes at the end.

use model::KvKind;
use nvme_spec::key_value::{ListHeader, ListKeyHeader, list_entry_size};
use zerocopy::IntoBytes;

use super::answer::{Answer, HEAD, Ops};
use super::budget::Slice;
use super::data::Sink;
use super::index::{KEY_MAX, Slot};
use super::pairs::Pairs;

/// Bytes of the head of a list.
pub(super) const LIST_HEAD: u32 = size_of::<ListHeader>() as u32;
const _: () = assert!(size_of::<ListHeader>() == HEAD);

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
    pub(super) fn new(pairs: &Pairs, from: &[u8], room: u32) -> Self {
        List {
            next: pairs.at_or_after(from),
            keys: 0,
            len: LIST_HEAD,
            room,
        }
    }

    /// Lists as many keys as fit in a slice. Returns whether the list is complete.
    pub(super) fn go_on(&mut self, pairs: &Pairs, slice: &mut Slice, out: &mut impl Sink) -> bool {
        let mut buffer = [0; KEY_MAX];
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
            let mut entry = [0; list_entry_size(KEY_MAX)];
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
