//! Zones (VIRTIO 1.3, 5.2.4 and 5.2.6): what the configuration space has of them, what requests
//! about them are for NVMe, and how they end.

use memory::{DmaView, Hint, HostMemory};
use nvme_spec::Status;
use nvme_spec::zoned::ZoneSendAction;
use vhost_user::block::{Outcome, RequestType, SECTOR};
use vhost_user::zones::{self, Zone, Zoned, report_header};

use super::request::Data;
use crate::host::{PAGE, REPORT_UNIT, Zones, reported};

const _: () = assert!(REPORT_UNIT == zones::REPORT_UNIT);
/// Zones of one command of a report: one page has room for as many.
pub(super) const REPORTED: u32 = (PAGE / REPORT_UNIT - 1) as u32;

/// Zones as the configuration space has them. `None` where it cannot.
pub(super) fn characteristics(zones: &Zones, lba_shift: u8) -> Option<Zoned> {
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).ok();
    Some(Zoned {
        zone_sectors: sectors(zones.blocks.checked_mul(1 << lba_shift)?)?,
        max_open_zones: zones.max_open,
        max_active_zones: zones.max_active,
        max_append_sectors: sectors(zones.append_len)?,
        write_granularity: 1 << lba_shift,
    })
}

/// The action of a request that manages zones, and whether on all of them. `None`: it is another
/// one.
pub(super) fn action(kind: RequestType) -> Option<(ZoneSendAction, bool)> {
    Some(match kind {
        RequestType::ZONE_OPEN => (ZoneSendAction::OPEN, false),
        RequestType::ZONE_CLOSE => (ZoneSendAction::CLOSE, false),
        RequestType::ZONE_FINISH => (ZoneSendAction::FINISH, false),
        RequestType::ZONE_RESET => (ZoneSendAction::RESET, false),
        RequestType::ZONE_RESET_ALL => (ZoneSendAction::RESET, true),
        _ => return None,
    })
}

/// How a request ends whose command has this status. `of_zones`: only zoned devices have it.
pub(super) fn outcome(status: Status, of_zones: bool) -> Outcome {
    match status {
        _ if status.is_success() => Outcome::OK,
        Status::ZONE_INVALID_WRITE => Outcome::ZONE_UNALIGNED_WP,
        Status::TOO_MANY_OPEN_ZONES => Outcome::ZONE_OPEN_RESOURCE,
        Status::TOO_MANY_ACTIVE_ZONES => Outcome::ZONE_ACTIVE_RESOURCE,
        Status::ZONE_BOUNDARY_ERROR
        | Status::ZONE_IS_FULL
        | Status::ZONE_IS_READ_ONLY
        | Status::ZONE_IS_OFFLINE
        | Status::INVALID_ZONE_STATE_TRANSITION => Outcome::ZONE_INVALID_CMD,
        Status::LBA_OUT_OF_RANGE | Status::INVALID_FIELD_IN_COMMAND if of_zones => {
            Outcome::ZONE_INVALID_CMD
        }
        _ => Outcome::IOERR,
    }
}

/// Copies the zones of NVMe's report in a page of private memory to where the driver has room for
/// the rest of its report, from byte `to` on. The byte behind them; `None` where some of the memory
/// is not mapped.
pub(super) fn pass_on(
    (memory, at): (&HostMemory, usize),
    sizes: (u8, u64),
    (into, mut to): (&Data<'_>, u64),
    view: &DmaView,
    hint: &mut Hint,
) -> Option<u64> {
    for zone in reported(memory, at, REPORTED, sizes) {
        let zone = Zone {
            capacity: zone.capacity,
            start: zone.start,
            write_pointer: zone.write_pointer,
            // Virtio's states have NVMe's numbers.
            state: zone.state.0,
        };
        let place = into.part(to, REPORT_UNIT as u64);
        if !place.write(view, hint, &zone.encode()) {
            return None;
        }
        to += REPORT_UNIT as u64;
    }
    Some(to)
}

/// Writes the header of a report whose zones end before byte `end`. False where its memory is not
/// mapped.
pub(super) fn write_header(into: &Data<'_>, end: u64, view: &DmaView, hint: &mut Hint) -> bool {
    let zones = end / REPORT_UNIT as u64 - 1;
    let place = into.part(0, REPORT_UNIT as u64);
    place.write(view, hint, &report_header(zones))
}
