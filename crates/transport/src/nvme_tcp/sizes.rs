//! Sizes of a queue's private memory, by its identifier.

use super::TargetConfig;
use super::connect::ADMIN_DEPTH;
use super::connection::ADMIN_IN_CAPSULE;
use super::judge::AUTHENTICATION_DATA;
use crate::host::{PAGE, rings_len};

/// Entries of an admin queue's rings beyond those of its host: one for a command of the
/// association's own, and one that is always empty.
const OWN_ENTRIES: u32 = 2;

/// Entries of a queue's rings.
pub(super) fn ring_entries(qid: u16, entries: u16, config: &TargetConfig) -> u32 {
    let entries = u32::from(entries);
    if qid == 0 {
        entries + OWN_ENTRIES
    } else {
        (entries + 1).min(config.queue_depth.into())
    }
}

/// Bytes of data in a command capsule at most, where the target asks for authentication or not.
pub(super) fn in_capsule(qid: u16, asks: bool, config: &TargetConfig) -> u32 {
    match qid {
        0 => ADMIN_IN_CAPSULE,
        // Linux has messages in the capsule on all queues.
        _ if asks => config.in_capsule.max(AUTHENTICATION_DATA),
        _ => config.in_capsule,
    }
}

/// Bytes of a small slot: whole pages.
pub(super) fn small_len(qid: u16, config: &TargetConfig) -> u32 {
    const { assert!(AUTHENTICATION_DATA as usize <= PAGE) };
    let in_capsule = in_capsule(qid, false, config);
    in_capsule.max(1).next_multiple_of(PAGE as u32)
}

/// Bytes from a small slot to the next one.
pub(super) fn stride(qid: u16, config: &TargetConfig) -> usize {
    let list = if qid == 0 { PAGE } else { 0 };
    small_len(qid, config) as usize + list
}

/// Entries of a queue at most.
pub(super) fn most(qid: u16, config: &TargetConfig) -> u16 {
    if qid == 0 {
        ADMIN_DEPTH
    } else {
        config.queue_depth
    }
}

/// Bytes of private memory of a queue, which do not depend on its entries.
pub(super) fn memory_len(qid: u16, config: &TargetConfig) -> usize {
    let most = most(qid, config);
    let rings = rings_len(ring_entries(qid, most, config));
    rings + usize::from(most) * stride(qid, config)
}
