//! Structures and numbers of the driver's interface.

use std::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a sector, in which the driver counts, whatever the size of a logical block.
pub const SECTOR: u64 = 512;
/// Most requests of all queues of a device at the same time.
pub const MAX_TAGS: u16 = 512;
/// Bytes of the longest request of a device at most.
pub const MAX_BUFFER: u32 = 256 << 10;
/// Most requests of one queue at the same time (`UBLK_MAX_QUEUE_DEPTH`).
pub(crate) const MAX_QUEUE_DEPTH: usize = 4096;
/// Where requests' data lie in a device that copies by reads and writes
/// (`UBLKSRV_IO_BUF_OFFSET`), and the places of the tag and the queue in such an offset.
pub(crate) const DATA_AT: u64 = 0x8000_0000;
pub(crate) const TAG_SHIFT: u32 = 25;
pub(crate) const QUEUE_SHIFT: u32 = 41;

/// Number of a command: `_IOR('u', nr, …)` or `_IOWR('u', nr, …)` of `size` bytes.
const fn command(is_written: bool, nr: u8, size: usize) -> u32 {
    let direction: u32 = if is_written { 3 } else { 2 };
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | nr as u32
}

/// A command to `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlOp(pub(crate) u32);

impl ControlOp {
    const fn get(nr: u8) -> Self {
        Self(command(false, nr, size_of::<ControlCommand>()))
    }

    const fn set(nr: u8) -> Self {
        Self(command(true, nr, size_of::<ControlCommand>()))
    }

    pub(crate) const ADD_DEV: Self = Self::set(0x04);
    pub(crate) const DEL_DEV: Self = Self::set(0x05);
    pub(crate) const START_DEV: Self = Self::set(0x06);
    pub(crate) const STOP_DEV: Self = Self::set(0x07);
    pub(crate) const SET_PARAMS: Self = Self::set(0x08);
    pub(crate) const GET_PARAMS: Self = Self::get(0x09);
    pub(crate) const START_USER_RECOVERY: Self = Self::set(0x10);
    pub(crate) const END_USER_RECOVERY: Self = Self::set(0x11);
    pub(crate) const GET_DEV_INFO2: Self = Self::get(0x12);
    pub(crate) const GET_FEATURES: Self = Self::get(0x13);
    pub(crate) const UPDATE_SIZE: Self = Self::set(0x15);
    pub(crate) const QUIESCE_DEV: Self = Self::set(0x16);
    pub(crate) const TRY_STOP_DEV: Self = Self::set(0x17);
}

/// A command to `/dev/ublkcN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoOp(pub(crate) u32);

impl IoOp {
    pub(crate) const FETCH_REQ: Self = Self(command(true, 0x20, size_of::<IoCommand>()));
    pub(crate) const COMMIT_AND_FETCH_REQ: Self = Self(command(true, 0x21, size_of::<IoCommand>()));
}

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub(crate) dev_id: u32,
    pub(crate) queue_id: u16,
    pub(crate) len: u16,
    pub(crate) addr: u64,
    pub(crate) data: u64,
    pub(crate) dev_path_len: u16,
    pub(crate) pad: u16,
    pub(crate) reserved: u32,
}

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct IoCommand {
    pub(crate) q_id: u16,
    pub(crate) tag: u16,
    pub(crate) result: i32,
    /// Address of the buffer, or the first sector of what a Zone Append has written.
    pub(crate) addr: u64,
}

/// Features of a device and of the driver (`UBLK_F_…`).
#[bitfield(u64)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Features {
    /// Pages of requests are lent to io_uring.
    pub supports_zero_copy: bool,
    /// Requests come by task work of io_uring's own interface, not the scheduler's.
    pub uring_cmd_comp_in_task: bool,
    /// A write comes without its data, which a command of its own fetches.
    pub need_get_data: bool,
    /// The device stays when its server ends, and its requests wait for the next one.
    pub user_recovery: bool,
    /// Requests that the server had are given to the next one again.
    pub user_recovery_reissue: bool,
    /// For a user without privileges.
    pub unprivileged_dev: bool,
    /// Commands have numbers as those of `ioctl` have.
    pub cmd_ioctl_encode: bool,
    /// Data are copied by reads and writes of `/dev/ublkcN`.
    pub user_copy: bool,
    /// A zoned block device.
    pub zoned: bool,
    /// While the device has no server its requests fail, where they would wait.
    pub user_recovery_fail_io: bool,
    /// The size can change (Linux 6.16).
    pub update_size: bool,
    /// Pages of a request are registered with io_uring when it comes (Linux 6.16).
    pub auto_buf_reg: bool,
    /// [`Control::quiesce`](crate::Control::quiesce) (Linux 6.16).
    pub quiesce: bool,
    /// Each tag may have a thread of its own (Linux 6.16).
    pub per_io_daemon: bool,
    /// Any thread may register pages (Linux 6.16).
    pub buf_reg_off_daemon: bool,
    /// Commands are about many tags at once (Linux 7.0).
    pub batch_io: bool,
    /// Requests have metadata of integrity (Linux 7.0).
    pub integrity: bool,
    /// [`Control::try_stop`](crate::Control::try_stop) (Linux 7.0).
    pub safe_stop_dev: bool,
    #[bits(46)]
    __: u64,
}

/// What a device is doing (`UBLK_S_DEV_…`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct State(pub u16);

impl State {
    /// It has no disk.
    pub const DEAD: Self = Self(0);
    /// A server serves its disk.
    pub const LIVE: Self = Self(1);
    /// Its server has ended, and its requests wait.
    pub const QUIESCED: Self = Self(2);
    /// Its server has ended, and its requests fail.
    pub const FAIL_IO: Self = Self(3);
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// Queues.
    pub nr_hw_queues: u16,
    /// Requests of one queue at the same time.
    pub queue_depth: u16,
    /// What it is doing.
    pub state: State,
    /// 0.
    pub pad0: u16,
    /// Bytes of the longest request.
    pub max_io_buf_bytes: u32,
    /// N of `/dev/ublkbN`; `u32::MAX` has the driver choose.
    pub dev_id: u32,
    /// Process of the server, or -1.
    pub ublksrv_pid: i32,
    /// 0.
    pub pad1: u32,
    /// Its features.
    pub flags: Features,
    /// The server's own: the driver keeps it and does not look at it.
    pub ublksrv_flags: u64,
    /// User that has added it.
    pub owner_uid: u32,
    /// Group of that user.
    pub owner_gid: u32,
    /// 0.
    pub reserved1: u64,
    /// 0.
    pub reserved2: u64,
}

/// Attributes of a disk (`UBLK_ATTR_…`).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Attributes {
    /// Writes are refused.
    pub read_only: bool,
    /// It has moving parts.
    pub rotational: bool,
    /// Writes may be in a cache until a flush.
    pub volatile_cache: bool,
    /// Writes with FUA are taken.
    pub fua: bool,
    #[bits(28)]
    __: u32,
}

/// `struct ublk_param_basic`. Lengths are in sectors, and sizes powers of two.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Basic {
    /// Attributes.
    pub attrs: Attributes,
    /// Bytes of a logical block: 9 to 12.
    pub logical_bs_shift: u8,
    /// Bytes of a physical block, not smaller.
    pub physical_bs_shift: u8,
    /// Bytes of the best request.
    pub io_opt_shift: u8,
    /// Bytes of the smallest request that does not cost more.
    pub io_min_shift: u8,
    /// Length of the longest request.
    pub max_sectors: u32,
    /// Sectors of a zone; 0 without zones.
    pub chunk_sectors: u32,
    /// Size of the disk.
    pub dev_sectors: u64,
    /// Bits of an address where no segment of a request begins or ends, except its first and last.
    pub virt_boundary_mask: u64,
}

/// `struct ublk_param_discard`. Lengths are in sectors, alignment and granularity in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Discard {
    /// Where the first unit begins.
    pub discard_alignment: u32,
    /// Length of a unit: at least 1.
    pub discard_granularity: u32,
    /// Length of the longest discard; 0: none are taken.
    pub max_discard_sectors: u32,
    /// Length of the longest Write Zeroes; 0: none are taken.
    pub max_write_zeroes_sectors: u32,
    /// 1 where discards are taken: the driver has no other number.
    pub max_discard_segments: u16,
    /// 0.
    pub reserved0: u16,
}

/// `struct ublk_param_zoned`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Zoned {
    /// Open zones at the same time; 0: any number.
    pub max_open_zones: u32,
    /// Active zones at the same time; 0: any number.
    pub max_active_zones: u32,
    /// Length of the longest Zone Append: at least 1 sector.
    pub max_zone_append_sectors: u32,
    /// 0.
    pub reserved: [u8; 20],
}

/// `struct ublk_params`, up to `zoned`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct RawParameters {
    len: u32,
    types: u32,
    basic: Basic,
    discard: Discard,
    devt: [u32; 4],
    zoned: Zoned,
    rest: u32,
}

/// Bytes of the parameters that are used.
pub(crate) const PARAMETERS_LEN: usize = offset_of!(RawParameters, rest);
const BASIC: u32 = 1;
const DISCARD: u32 = 1 << 1;
const ZONED: u32 = 1 << 3;

/// What a disk is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Sizes and attributes.
    pub basic: Basic,
    /// How it takes discards and zeroes, if it does.
    pub discard: Option<Discard>,
    /// How it takes zone commands; `None` without zones.
    pub zoned: Option<Zoned>,
}

impl Parameters {
    pub(crate) fn encode(&self) -> [u8; PARAMETERS_LEN] {
        let types = BASIC | self.discard.map_or(0, |_| DISCARD) | self.zoned.map_or(0, |_| ZONED);
        let raw = RawParameters {
            len: PARAMETERS_LEN as u32,
            types,
            basic: self.basic,
            discard: self.discard.unwrap_or_default(),
            zoned: self.zoned.unwrap_or_default(),
            ..RawParameters::default()
        };
        let mut bytes = [0; PARAMETERS_LEN];
        bytes.copy_from_slice(&raw.as_bytes()[..PARAMETERS_LEN]);
        bytes
    }

    /// `None`: there are no basic ones.
    pub(crate) fn parse(bytes: &[u8; PARAMETERS_LEN]) -> Option<Self> {
        let mut raw = RawParameters::default();
        raw.as_mut_bytes()[..PARAMETERS_LEN].copy_from_slice(bytes);
        let has = |kind| raw.types & kind != 0;
        has(BASIC).then_some(Self {
            basic: raw.basic,
            discard: has(DISCARD).then_some(raw.discard),
            zoned: has(ZONED).then_some(raw.zoned),
        })
    }
}

/// What a request is for (`UBLK_IO_OP_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(pub u8);

impl Operation {
    /// Read into the buffer.
    pub const READ: Self = Self(0);
    /// Write from the buffer.
    pub const WRITE: Self = Self(1);
    /// Writes that are done become stable.
    pub const FLUSH: Self = Self(2);
    /// Data are not needed any more.
    pub const DISCARD: Self = Self(3);
    /// Sectors read as zero from now on.
    pub const WRITE_ZEROES: Self = Self(5);
    /// Open the zone that begins with the first sector.
    pub const ZONE_OPEN: Self = Self(10);
    /// Close it.
    pub const ZONE_CLOSE: Self = Self(11);
    /// Make it full.
    pub const ZONE_FINISH: Self = Self(12);
    /// Write at its write pointer.
    pub const ZONE_APPEND: Self = Self(13);
    /// Make all zones empty.
    pub const ZONE_RESET_ALL: Self = Self(14);
    /// Make a zone empty.
    pub const ZONE_RESET: Self = Self(15);
    /// Report zones into the buffer, as [`Zone`]s.
    pub const REPORT_ZONES: Self = Self(18);
}

/// Flags of a request (`UBLK_IO_F_…`), with its operation.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct RequestFlags {
    /// [`Operation`].
    pub op: u8,
    /// No retry where the drive fails.
    pub failfast_dev: bool,
    /// No retry where the way to it fails.
    pub failfast_transport: bool,
    /// No retry where its driver fails.
    pub failfast_driver: bool,
    /// A file system's metadata.
    pub meta: bool,
    __: bool,
    /// It is on stable media when it is done.
    pub fua: bool,
    __: bool,
    /// Zeroes are not to be deallocated blocks.
    pub nounmap: bool,
    /// Memory that is swapped out.
    pub swap: bool,
    #[bits(15)]
    __: u16,
}

/// A request (`struct ublksrv_io_desc`), as it was read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What it is for, and its flags.
    pub flags: RequestFlags,
    /// Sectors, or zones of a report.
    pub sectors: u32,
    /// First sector.
    pub start: u64,
}

impl Descriptor {
    /// Bytes of one in the driver's memory.
    pub(crate) const LEN: usize = 24;

    /// What it is for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        Operation(self.flags.op())
    }
}

/// `struct blk_zone` of `include/uapi/linux/blkzoned.h`. Lengths are in sectors.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Zone {
    /// First sector.
    pub start: u64,
    /// Length.
    pub len: u64,
    /// Sector that is written next; the end of a full zone.
    pub wp: u64,
    /// 2: writes are sequential (`BLK_ZONE_TYPE_SEQWRITE_REQ`).
    pub kind: u8,
    /// 1 empty, 2 and 3 open, 4 closed, 13 read-only, 14 full, 15 offline.
    pub cond: u8,
    /// 1: it was written elsewhere than at its write pointer.
    pub non_seq: u8,
    /// 1: a reset of its write pointer is recommended.
    pub reset: u8,
    /// 0.
    pub resv: [u8; 4],
    /// Length of the part that can be written.
    pub capacity: u64,
    /// 0.
    pub reserved: [u8; 24],
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as a C program prints them that includes the kernel's header.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        for (op, number) in [
            (ControlOp::ADD_DEV, 0xc020_7504),
            (ControlOp::DEL_DEV, 0xc020_7505),
            (ControlOp::START_DEV, 0xc020_7506),
            (ControlOp::STOP_DEV, 0xc020_7507),
            (ControlOp::SET_PARAMS, 0xc020_7508),
            (ControlOp::GET_PARAMS, 0x8020_7509),
            (ControlOp::START_USER_RECOVERY, 0xc020_7510),
            (ControlOp::END_USER_RECOVERY, 0xc020_7511),
            (ControlOp::GET_DEV_INFO2, 0x8020_7512),
            (ControlOp::GET_FEATURES, 0x8020_7513),
            (ControlOp::UPDATE_SIZE, 0xc020_7515),
            (ControlOp::QUIESCE_DEV, 0xc020_7516),
            (ControlOp::TRY_STOP_DEV, 0xc020_7517),
        ] {
            assert_eq!(op.0, number, "{op:?}");
        }
        assert_eq!(IoOp::FETCH_REQ.0, 0xc010_7520);
        assert_eq!(IoOp::COMMIT_AND_FETCH_REQ.0, 0xc010_7521);
    }

    #[test]
    fn structures_have_the_lengths_of_the_header() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(size_of::<IoCommand>(), 16);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(size_of::<Basic>(), 32);
        assert_eq!(size_of::<Discard>(), 20);
        assert_eq!(size_of::<Zoned>(), 32);
        assert_eq!(size_of::<Zone>(), 64);
        assert_eq!(PARAMETERS_LEN, 108);
        assert_eq!(offset_of!(RawParameters, zoned), 76);
        assert_eq!(offset_of!(Zone, capacity), 32);
    }

    #[test]
    fn features_have_the_bits_of_the_header() {
        let bit = |features: Features| u64::from(features).trailing_zeros();
        assert_eq!(bit(Features::new().with_user_recovery(true)), 3);
        assert_eq!(bit(Features::new().with_user_recovery_reissue(true)), 4);
        assert_eq!(bit(Features::new().with_unprivileged_dev(true)), 5);
        assert_eq!(bit(Features::new().with_user_copy(true)), 7);
        assert_eq!(bit(Features::new().with_zoned(true)), 8);
        assert_eq!(bit(Features::new().with_update_size(true)), 10);
        assert_eq!(bit(Features::new().with_quiesce(true)), 12);
        assert_eq!(bit(Features::new().with_safe_stop_dev(true)), 17);
        let flags = RequestFlags::new().with_op(1).with_fua(true);
        assert_eq!(u32::from(flags), 0x2001);
        assert_eq!(u32::from(RequestFlags::new().with_nounmap(true)), 1 << 15);
    }

    #[test]
    fn parameters_are_read_as_they_were_written() {
        let basic = Basic {
            attrs: Attributes::new().with_volatile_cache(true).with_fua(true),
            logical_bs_shift: 12,
            physical_bs_shift: 12,
            dev_sectors: 0x0102_0304_0506,
            ..Basic::default()
        };
        let all = Parameters {
            basic,
            discard: Some(Discard {
                discard_granularity: 4096,
                ..Discard::default()
            }),
            zoned: None,
        };
        let bytes = all.encode();
        assert_eq!(bytes[..12], [108, 0, 0, 0, 3, 0, 0, 0, 12, 0, 0, 0]);
        assert_eq!(bytes[24..32], [6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(Parameters::parse(&bytes), Some(all));
        assert_eq!(Parameters::parse(&[0; PARAMETERS_LEN]), None);
    }
}
