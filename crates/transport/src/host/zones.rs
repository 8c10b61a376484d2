//! Zones of a namespace, for hosts that count in sectors: limits, commands and reports.

use memory::HostMemory;
use nvme_spec::Sqe;
use nvme_spec::opcode::Csi;
use nvme_spec::zoned::{
    IdentifyZonedController, IdentifyZonedNamespace, NO_ZONE_LIMIT, ZoneAppendCdw12,
    ZoneDescriptor, ZoneReceiveAction, ZoneReceiveCdw13, ZoneReportHeader, ZoneSendAction,
    ZoneSendCdw13, ZoneState, ZonedOpcode,
};
use port::namespace::{Namespace, format_index};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use super::entries::{Blocks, Entries};
use super::rings::PAGE;

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Bytes of a zone in a report, and of what the report begins with.
pub(crate) const REPORT_UNIT: usize = size_of::<ZoneDescriptor>();
const _: () = assert!(REPORT_UNIT == size_of::<ZoneReportHeader>());

/// Zones of a namespace, and their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zones {
    /// Blocks of a zone.
    pub(crate) blocks: u64,
    /// Zones.
    pub(crate) count: u32,
    /// Most open zones; 0 is no limit.
    pub(crate) max_open: u32,
    /// Most active zones; 0 is no limit.
    pub(crate) max_active: u32,
    /// Bytes of the longest append: whole blocks.
    pub(crate) append_len: u64,
}

impl Zones {
    /// Those of a namespace to whose longest command a host gives `longest` bytes. `None`: it has
    /// another command set, or zones that are not all alike.
    pub(crate) fn of(namespace: &Namespace, longest: u64) -> Option<Self> {
        let set = namespace.set.as_ref()?;
        if namespace.csi() != Csi::ZONED_NAMESPACE {
            return None;
        }
        let bytes = set.identify_namespace(namespace);
        let (identify, _) = IdentifyZonedNamespace::read_from_prefix(&bytes[..]).ok()?;
        let bytes = set.identify_controller();
        let (of_set, _) = IdentifyZonedController::read_from_prefix(&bytes[..]).ok()?;
        let format = usize::from(format_index(namespace.lba_shift));
        let blocks = identify.lbafe[format].zsze;
        if blocks == 0 || !namespace.blocks.is_multiple_of(blocks) {
            return None;
        }
        let count = u32::try_from(namespace.blocks / blocks).ok()?;
        let limit = |most_z: u32| match most_z {
            NO_ZONE_LIMIT => 0,
            most_z => (most_z + 1).min(count),
        };
        // 0 is the limit of any command.
        let append = match of_set.zasl {
            0 => longest,
            zasl => (PAGE as u64) << zasl.min(32),
        };
        let append_len = append.min(longest).min(blocks << namespace.lba_shift);
        Some(Self {
            blocks,
            count,
            max_open: limit(identify.mor_z),
            max_active: limit(identify.mar_z),
            append_len,
        })
    }
}

impl Entries {
    /// Zone Management Send to the zone that begins with a block, or to all of them.
    pub(crate) fn send(&self, action: ZoneSendAction, slba: u64, all: bool) -> Sqe {
        let cdw13 = ZoneSendCdw13::new().with_zsa(action).with_select_all(all);
        Sqe {
            cdw13: cdw13.into(),
            ..self.at_block(ZonedOpcode::ZONE_MANAGEMENT_SEND.0, slba)
        }
    }

    /// Zone Append to the zone that begins with the first block. Without its data.
    pub(crate) fn append(&self, blocks: Blocks, fua: bool) -> Sqe {
        let cdw12 = ZoneAppendCdw12::new()
            .with_nlb_z(blocks.nlb_z())
            .with_fua(fua);
        Sqe {
            cdw12: cdw12.into(),
            ..self.at_block(ZonedOpcode::ZONE_APPEND.0, blocks.slba)
        }
    }

    /// Zone Management Receive of this number of zones from that of a block on: [`report_len`]
    /// bytes.
    pub(crate) fn report(&self, slba: u64, zones: u32) -> Sqe {
        let len = report_len(zones);
        let cdw13 = ZoneReceiveCdw13::new()
            .with_zra(ZoneReceiveAction::REPORT)
            .with_partial(true);
        let sqe = Sqe {
            cdw12: (len / 4 - 1) as u32,
            cdw13: cdw13.into(),
            ..self.at_block(ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0, slba)
        };
        self.with_data(sqe, len)
    }
}

/// Bytes of NVMe's report of this number of zones.
pub(crate) fn report_len(zones: u32) -> u64 {
    (REPORT_UNIT + zones as usize * REPORT_UNIT) as u64
}

/// A zone of a report, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) start: u64,
    /// Of a full zone its end, and of one that cannot be written the highest number: NVMe gives
    /// neither.
    pub(crate) write_pointer: u64,
    /// Sectors that can be written.
    pub(crate) capacity: u64,
    pub(crate) state: ZoneState,
    pub(crate) reset_recommended: bool,
}

/// The zones of NVMe's report at `at`, at most `most`. Each is read when the caller asks for it.
pub(crate) fn reported(
    memory: &HostMemory,
    at: usize,
    most: u32,
    (lba_shift, zone_blocks): (u8, u64),
) -> impl Iterator<Item = Reported> {
    let mut header = ZoneReportHeader::new_zeroed();
    memory.read(at, header.as_mut_bytes());
    let count = header.number_of_zones.min(most.into()) as usize;
    let sectors = move |blocks: u64| (blocks << lba_shift) / SECTOR;
    (0..count).map(move |index| {
        let mut zone = ZoneDescriptor::new_zeroed();
        memory.read(at + (index + 1) * REPORT_UNIT, zone.as_mut_bytes());
        let (state, start) = (zone.state.zs(), sectors(zone.zslba));
        Reported {
            start,
            write_pointer: match state {
                ZoneState::FULL => start + sectors(zone_blocks),
                ZoneState::READ_ONLY | ZoneState::OFFLINE => u64::MAX,
                _ => sectors(zone.wp),
            },
            capacity: sectors(zone.zcap),
            state,
            reset_recommended: zone.za.rzr(),
        }
    })
}
