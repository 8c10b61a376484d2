//! Reports of Zone Management Receive (ZNS 1.1, 3.4.2), written directly into the host's memory.

use memory::Segment;
use nvme_spec::zoned::{
    ReportingOption, ZoneAttributes, ZoneDescriptor, ZoneDescriptorState, ZoneDescriptorType,
    ZoneReceiveAction, ZoneReceiveCdw13, ZoneReportHeader, ZoneState, ZoneType, zone_slba,
};
use nvme_spec::{Sqe, Status};
use port::ByteRange;
use zerocopy::{FromZeros, IntoBytes};

use super::zones::{Zone, Zones};

/// An undefined write pointer.
const NO_WRITE_POINTER: u64 = u64::MAX;

/// The zones of a report.
pub(super) struct Reported<'a> {
    pub(super) zones: &'a Zones,
    /// Descriptor extensions, by zone.
    pub(super) extensions: &'a [u8],
    /// Bytes of each.
    pub(super) extension_bytes: usize,
    /// Position of the namespace.
    pub(super) extent: ByteRange,
    pub(super) lba_shift: u8,
}

impl Reported<'_> {
    /// Writes the report that a command requests.
    ///
    /// # Errors
    /// The command's status.
    pub(super) fn write(&self, sqe: &Sqe, segments: &[Segment<'_>]) -> Result<(), Status> {
        let cdw13 = ZoneReceiveCdw13::from(sqe.cdw13);
        let option = cdw13.zrasf();
        if option > ReportingOption::OFFLINE {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let extended = cdw13.zra() == ZoneReceiveAction::EXTENDED_REPORT;
        let extension = if extended { self.extension_bytes } else { 0 };
        let first = super::place::offset_of(self.extent, self.lba_shift, zone_slba(sqe))?;
        let zone_bytes = self.zones.geometry().zone_bytes;
        let end = (self.extent.offset + self.extent.len) / zone_bytes;
        let all = (first / zone_bytes) as u32..end as u32;
        let chosen = |zone: &u32| is_chosen(option, self.zones.get(*zone).state);
        let total: usize = segments.iter().map(|s| s.len() as usize).sum();
        let room = total.saturating_sub(size_of::<ZoneReportHeader>());
        let fit = room / (size_of::<ZoneDescriptor>() + extension);
        let matching = all.clone().filter(chosen);
        let count = if cdw13.partial() {
            matching.take(fit).count()
        } else {
            matching.count()
        };
        let mut out = Cursor::new(segments);
        let mut header = ZoneReportHeader::new_zeroed();
        header.number_of_zones = count as u64;
        out.put(header.as_bytes());
        for zone in all.filter(chosen).take(fit) {
            out.put(self.descriptor(zone).as_bytes());
            if extended {
                let at = zone as usize * extension;
                out.put(&self.extensions[at..at + extension]);
            }
        }
        Ok(())
    }

    fn descriptor(&self, zone: u32) -> ZoneDescriptor {
        let Zone {
            state,
            written,
            extended,
            random,
            ..
        } = self.zones.get(zone);
        let start = self.zones.start(zone) - self.extent.offset;
        let wp = match state {
            ZoneState::FULL | ZoneState::READ_ONLY | ZoneState::OFFLINE => NO_WRITE_POINTER,
            _ => (start + written) >> self.lba_shift,
        };
        ZoneDescriptor {
            kind: ZoneDescriptorType::new().with_zt(ZoneType::SEQUENTIAL_WRITE_REQUIRED),
            state: ZoneDescriptorState::new().with_zs(state),
            za: ZoneAttributes::new().with_zdev(extended).with_zrwav(random),
            zcap: self.zones.geometry().capacity >> self.lba_shift,
            zslba: start >> self.lba_shift,
            wp,
            ..ZoneDescriptor::default()
        }
    }
}

fn is_chosen(option: ReportingOption, state: ZoneState) -> bool {
    let wanted = match option {
        ReportingOption::EMPTY => ZoneState::EMPTY,
        ReportingOption::IMPLICITLY_OPENED => ZoneState::IMPLICITLY_OPENED,
        ReportingOption::EXPLICITLY_OPENED => ZoneState::EXPLICITLY_OPENED,
        ReportingOption::CLOSED => ZoneState::CLOSED,
        ReportingOption::FULL => ZoneState::FULL,
        ReportingOption::READ_ONLY => ZoneState::READ_ONLY,
        ReportingOption::OFFLINE => ZoneState::OFFLINE,
        _ => return true,
    };
    state == wanted
}

/// Writes bytes into segments, one after the other; bytes without room are dropped.
struct Cursor<'s, 'm> {
    rest: &'s [Segment<'m>],
    at: u32,
}

impl<'s, 'm> Cursor<'s, 'm> {
    fn new(rest: &'s [Segment<'m>]) -> Self {
        Cursor { rest, at: 0 }
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some((segment, behind)) = self.rest.split_first()
        {
            let room = (segment.len() - self.at) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            segment.write_from(self.at, now);
            self.at += now.len() as u32;
            if self.at == segment.len() {
                (self.rest, self.at) = (behind, 0);
            }
            bytes = later;
        }
    }
}
