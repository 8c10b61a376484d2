//! Features of the device and of the protocol.

use bitfield_struct::bitfield;

/// Features of a virtio block device (VIRTIO 1.3, 5.2.3 and 6) and of vhost-user. Bits without a
/// name here are none that this side offers.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Features {
    #[bits(2)]
    __: u8,
    /// `VIRTIO_BLK_F_SEG_MAX`.
    pub seg_max: bool,
    #[bits(2)]
    __: u8,
    /// `VIRTIO_BLK_F_RO`: the device is read-only.
    pub ro: bool,
    /// `VIRTIO_BLK_F_BLK_SIZE`.
    pub blk_size: bool,
    #[bits(2)]
    __: u8,
    /// `VIRTIO_BLK_F_FLUSH`.
    pub flush: bool,
    /// `VIRTIO_BLK_F_TOPOLOGY`.
    pub topology: bool,
    /// `VIRTIO_BLK_F_CONFIG_WCE`: the cache can be switched between writeback and writethrough.
    pub config_wce: bool,
    /// `VIRTIO_BLK_F_MQ`: several queues.
    pub mq: bool,
    /// `VIRTIO_BLK_F_DISCARD`.
    pub discard: bool,
    /// `VIRTIO_BLK_F_WRITE_ZEROES`.
    pub write_zeroes: bool,
    #[bits(1)]
    __: u8,
    /// `VIRTIO_BLK_F_SECURE_ERASE`.
    pub secure_erase: bool,
    /// `VIRTIO_BLK_F_ZONED`: the device has zones.
    pub zoned: bool,
    #[bits(10)]
    __: u16,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect_desc: bool,
    /// `VIRTIO_F_EVENT_IDX`.
    pub event_idx: bool,
    /// `VHOST_USER_F_PROTOCOL_FEATURES`.
    pub protocol_features: bool,
    #[bits(1)]
    __: u8,
    /// `VIRTIO_F_VERSION_1`.
    pub version_1: bool,
    #[bits(1)]
    __: u8,
    /// `VIRTIO_F_RING_PACKED`.
    pub ring_packed: bool,
    #[bits(5)]
    __: u8,
    /// `VIRTIO_F_RING_RESET`.
    pub ring_reset: bool,
    #[bits(23)]
    __: u32,
}

/// Features of the protocol (`VHOST_USER_PROTOCOL_F_*`).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct ProtocolFeatures {
    /// `MQ`.
    pub mq: bool,
    #[bits(2)]
    __: u8,
    /// `REPLY_ACK`.
    pub reply_ack: bool,
    #[bits(1)]
    __: u8,
    /// `BACKEND_REQ`: a second connection, on which the back end asks.
    pub backend_req: bool,
    #[bits(3)]
    __: u8,
    /// `CONFIG`.
    pub config: bool,
    #[bits(2)]
    __: u8,
    /// `INFLIGHT_SHMFD`.
    pub inflight_shmfd: bool,
    /// `RESET_DEVICE`.
    pub reset_device: bool,
    #[bits(1)]
    __: u8,
    /// `CONFIGURE_MEM_SLOTS`.
    pub configure_mem_slots: bool,
    /// `STATUS`.
    pub status: bool,
    #[bits(47)]
    __: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_numbers_of_the_specifications() {
        // VIRTIO 1.3, 5.2.3 and 6; the bit of vhost-user is that of its document.
        let of = |features: Features| u64::from(features);
        for (bit, features) in [
            (2, Features::new().with_seg_max(true)),
            (5, Features::new().with_ro(true)),
            (6, Features::new().with_blk_size(true)),
            (9, Features::new().with_flush(true)),
            (10, Features::new().with_topology(true)),
            (11, Features::new().with_config_wce(true)),
            (12, Features::new().with_mq(true)),
            (13, Features::new().with_discard(true)),
            (14, Features::new().with_write_zeroes(true)),
            (16, Features::new().with_secure_erase(true)),
            (17, Features::new().with_zoned(true)),
            (28, Features::new().with_indirect_desc(true)),
            (29, Features::new().with_event_idx(true)),
            (30, Features::new().with_protocol_features(true)),
            (32, Features::new().with_version_1(true)),
            (34, Features::new().with_ring_packed(true)),
            (40, Features::new().with_ring_reset(true)),
        ] {
            assert_eq!(of(features), 1 << bit);
        }
        for (bit, features) in [
            (0, ProtocolFeatures::new().with_mq(true)),
            (3, ProtocolFeatures::new().with_reply_ack(true)),
            (5, ProtocolFeatures::new().with_backend_req(true)),
            (9, ProtocolFeatures::new().with_config(true)),
            (12, ProtocolFeatures::new().with_inflight_shmfd(true)),
            (13, ProtocolFeatures::new().with_reset_device(true)),
            (15, ProtocolFeatures::new().with_configure_mem_slots(true)),
            (16, ProtocolFeatures::new().with_status(true)),
        ] {
            assert_eq!(u64::from(features), 1 << bit);
        }
    }
}
