//! Numbers of VIRTIO 1.3 and of the vhost-user protocol.

/// Feature bits (VIRTIO 1.3, 5.2.3 and 6; bit 30 is vhost-user's own).
pub mod feature {
    /// The device limits the segments of a request.
    pub const SEG_MAX: u64 = 1 << 2;
    /// The device is read-only.
    pub const RO: u64 = 1 << 5;
    /// The device has an optimal block size.
    pub const BLK_SIZE: u64 = 1 << 6;
    /// Flush requests.
    pub const FLUSH: u64 = 1 << 9;
    /// The device reports its topology.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The driver selects write-back or write-through.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// Several queues.
    pub const MQ: u64 = 1 << 12;
    /// Discard requests.
    pub const DISCARD: u64 = 1 << 13;
    /// Write zeroes requests.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Secure erase requests.
    pub const SECURE_ERASE: u64 = 1 << 16;
    /// The device has zones.
    pub const ZONED: u64 = 1 << 17;
    /// Indirect descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Event indexes (split), event descriptors (packed).
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The back end negotiates protocol features.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// VIRTIO 1.0 or later.
    pub const VERSION_1: u64 = 1 << 32;
    /// Packed virtqueues.
    pub const RING_PACKED: u64 = 1 << 34;
    /// The driver resets single queues.
    pub const RING_RESET: u64 = 1 << 40;

    /// Those of the device that the driver takes wherever they are offered.
    pub const TAKEN: u64 = SEG_MAX
        | RO
        | BLK_SIZE
        | FLUSH
        | TOPOLOGY
        | CONFIG_WCE
        | MQ
        | DISCARD
        | WRITE_ZEROES
        | SECURE_ERASE
        | ZONED
        | PROTOCOL_FEATURES
        | VERSION_1
        | RING_RESET;
}

/// Protocol feature bits of vhost-user.
pub mod protocol_feature {
    /// Several queues.
    pub const MQ: u64 = 1 << 0;
    /// Replies to messages that need one.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// Requests of the back end.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// Configuration space.
    pub const CONFIG: u64 = 1 << 9;
    /// Shared record of the requests in flight.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    /// Device reset by message.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory regions added and removed one by one.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// Device status by message.
    pub const STATUS: u64 = 1 << 16;

    /// Those that the front end takes wherever they are offered.
    pub const TAKEN: u64 = MQ
        | REPLY_ACK
        | BACKEND_REQ
        | CONFIG
        | INFLIGHT_SHMFD
        | RESET_DEVICE
        | CONFIGURE_MEM_SLOTS
        | STATUS;
}

/// Status bytes of a request (VIRTIO 1.3, 5.2.6).
pub mod status {
    /// Done.
    pub const OK: u8 = 0;
    /// Failed.
    pub const IOERR: u8 = 1;
    /// Unsupported request.
    pub const UNSUPP: u8 = 2;
    /// A zone cannot do that.
    pub const ZONE_INVALID_CMD: u8 = 3;
    /// A write that is not at a zone's write pointer.
    pub const ZONE_UNALIGNED_WP: u8 = 4;
    /// More open zones than there may be.
    pub const ZONE_OPEN_RESOURCE: u8 = 5;
    /// More active zones than there may be.
    pub const ZONE_ACTIVE_RESOURCE: u8 = 6;
    /// Stored by the driver before the device writes: no status of the specification.
    pub const UNWRITTEN: u8 = 0xee;
}

/// Offsets of fields in the configuration space (VIRTIO 1.3, 5.2.4).
pub mod config {
    /// Capacity in sectors of 512 bytes, 64 bits.
    pub const CAPACITY: usize = 0;
    /// Optimal block size in bytes, 32 bits.
    pub const BLK_SIZE: usize = 20;
    /// Cache mode: 0 is write-through, 1 is write-back; 8 bits.
    pub const WRITEBACK: usize = 32;
    /// Number of queues, 16 bits.
    pub const NUM_QUEUES: usize = 34;
    /// Bytes that are read: up to and including `write_zeroes_may_unmap`.
    pub const LEN: usize = 57;
    /// Bytes that are read of a device with zones or secure erase: all.
    pub const WHOLE_LEN: usize = 96;
    /// Limits of secure erase, three numbers of 32 bits.
    pub const SECURE_ERASE: usize = 60;
    /// Zone characteristics.
    pub const ZONED: usize = 72;
}
