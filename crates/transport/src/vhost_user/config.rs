//! The device: its features and its configuration space.

use port::namespace::Namespace;
use vhost_user::block::{Config, SECTOR};
use vhost_user::{Features, ProtocolFeatures};

use super::queue::MAX_PIECES;
use super::zones::characteristics;
use crate::host::Zones;

/// Most pieces of data of a request that drivers are to make: a ring of QEMU's usual 128 entries
/// takes them without indirect descriptors. More are taken, up to what a request has room for.
const SEG_MAX: u32 = 126;
const _: () = assert!(SEG_MAX as usize + 2 <= MAX_PIECES);
/// Most ranges of one request to deallocate: those of one Dataset Management command.
pub(super) const MAX_RANGES: usize = 256;
/// Most bytes of a range to deallocate or to write zeroes to.
const MAX_RANGE: u64 = 1 << 40;
/// Largest physical block that is reported, in bytes: of more, the rest is a suggestion.
const MAX_PHYSICAL: u64 = 4096;

/// The features that a device over this namespace, which has these zones, offers. With zones a
/// driver must not use discard (VIRTIO 1.3, 5.2.5.1), and zeroes are written as data.
pub(super) fn features(namespace: &Namespace, zones: Option<&Zones>, rings: u16) -> Features {
    let is_zoned = zones.is_some();
    Features::new()
        .with_seg_max(true)
        .with_ro(is_read_only(namespace))
        .with_blk_size(true)
        .with_flush(true)
        .with_topology(true)
        .with_mq(rings > 1)
        .with_discard(namespace.traits.deallocate && !is_zoned)
        .with_write_zeroes(!is_zoned)
        .with_secure_erase(erases(namespace, zones))
        .with_zoned(is_zoned)
        .with_indirect_desc(true)
        .with_event_idx(true)
        .with_protocol_features(true)
        .with_version_1(true)
        .with_ring_packed(true)
        .with_ring_reset(true)
}

/// The features of the protocol that this side has.
pub(super) fn protocol_features() -> ProtocolFeatures {
    ProtocolFeatures::new()
        .with_mq(true)
        .with_reply_ack(true)
        .with_backend_req(true)
        .with_config(true)
        .with_inflight_shmfd(true)
        .with_reset_device(true)
        .with_configure_mem_slots(true)
        .with_status(true)
}

/// Whether commands that change the namespace fail.
pub(super) fn is_read_only(namespace: &Namespace) -> bool {
    let restrictions = namespace.restrictions.as_ref();
    namespace.traits.read_only || restrictions.is_some_and(|it| it.read_only)
}

/// Whether it erases blocks: a medium with zones resets them only.
pub(super) fn erases(namespace: &Namespace, zones: Option<&Zones>) -> bool {
    namespace.traits.erases && zones.is_none()
}

/// The configuration space of a device over this namespace, which has these zones.
pub(super) fn config(namespace: &Namespace, zones: Option<&Zones>, rings: u16) -> Config {
    let (traits, block) = (&namespace.traits, 1u64 << namespace.lba_shift);
    let optimal = u64::from(traits.optimal_bytes).max(block);
    let physical = if optimal.is_power_of_two() {
        optimal.min(MAX_PHYSICAL).max(block)
    } else {
        block
    };
    let sectors = (MAX_RANGE / SECTOR) as u32;
    let (alignment, erases) = ((block / SECTOR) as u32, erases(namespace, zones));
    Config {
        capacity: namespace.extent().len / SECTOR,
        seg_max: SEG_MAX,
        blk_size: block as u32,
        physical_block_exp: (physical / block).ilog2() as u8,
        min_io_size: u16::try_from(optimal / block).unwrap_or(1),
        opt_io_size: 0,
        writeback: true,
        num_queues: rings,
        max_discard_sectors: sectors,
        max_discard_seg: MAX_RANGES as u32,
        discard_sector_alignment: alignment,
        max_write_zeroes_sectors: sectors,
        max_write_zeroes_seg: 1,
        write_zeroes_may_unmap: traits.deallocate && traits.deallocated_reads_zero,
        max_secure_erase_sectors: if erases { sectors } else { 0 },
        max_secure_erase_seg: erases.into(),
        secure_erase_sector_alignment: if erases { alignment } else { 0 },
        zoned: zones.and_then(|zones| characteristics(zones, namespace.lba_shift)),
    }
}
