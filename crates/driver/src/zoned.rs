//! Zoned namespaces (ZNS 1.1): their limits, a report of their zones, and actions on a zone.

use memory::Buffer;
use nvme_spec::command::slba_cdw10_11;
use nvme_spec::opcode::Csi;
use nvme_spec::zoned::{
    IdentifyZonedNamespace, NO_ZONE_LIMIT, ZoneDescriptor, ZoneReceiveAction, ZoneReceiveCdw13,
    ZoneReportHeader, ZoneSendAction, ZoneSendCdw13, ZoneState, ZonedOpcode,
};
use nvme_spec::{Cqe, Sqe};
use zerocopy::FromBytes;

use crate::bus::Bus;
use crate::io::Namespace;
use crate::{Device, DriverError, QueuePair};

/// Most zones of a namespace that are read: a report of more takes minutes and gigabytes.
const ZONES_MAX: u64 = 1 << 22;

/// A namespace's zones, as far as they are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Logical blocks from the start of a zone to the start of the next one (ZSZE).
    pub blocks: u64,
    /// Most zones that are open at a time (MOR); `None` is no limit.
    pub max_open: Option<u64>,
    /// Most zones that are open or closed at a time (MAR); `None` is no limit.
    pub max_active: Option<u64>,
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its first block (ZSLBA).
    pub start: u64,
    /// Blocks that can be written, from its start on (ZCAP).
    pub capacity: u64,
    /// The block that is written next (WP); has no meaning in a zone that is full, read only or
    /// offline.
    pub write_pointer: u64,
    /// Its state.
    pub state: ZoneState,
}

impl From<&ZoneDescriptor> for Zone {
    fn from(descriptor: &ZoneDescriptor) -> Self {
        Zone {
            start: descriptor.zslba,
            capacity: descriptor.zcap,
            write_pointer: descriptor.wp,
            state: descriptor.state.zs(),
        }
    }
}

/// Checks that a zone of a report follows the ones before it, and lies in the namespace.
fn check(zone: &Zone, from: u64, namespace: &Namespace, zones: &Zones) -> Result<(), DriverError> {
    let end = zone.start.checked_add(zones.blocks);
    let fits = end.is_some_and(|end| end <= namespace.blocks) && zone.capacity <= zones.blocks;
    if zone.start == from && fits {
        return Ok(());
    }
    Err(DriverError::Broken(format!(
        "its report of zones has one at block {} with {} blocks, where a zone of up to {} at block {from} of {} follows",
        zone.start, zone.capacity, zones.blocks, namespace.blocks
    )))
}

impl<B: Bus> Device<B> {
    /// Common properties of the zones of a zoned namespace. All command sets must be enabled
    /// ([`crate::CommandSets`]).
    ///
    /// # Errors
    /// As [`Self::admin`]; [`DriverError::Unsupported`] where the namespace has no zones.
    pub fn zones(&mut self, nsid: u32) -> Result<Zones, DriverError> {
        let identity = self.identify_namespace(nsid)?;
        let zoned: Box<IdentifyZonedNamespace> =
            self.identify_command_set(Csi::ZONED_NAMESPACE, nsid)?;
        let format = usize::from(identity.flbas.format_index());
        let blocks = zoned.lbafe.get(format).map_or(0, |format| format.zsze);
        if blocks == 0 {
            return Err(DriverError::Unsupported(format!(
                "namespace {nsid} has no zones"
            )));
        }
        // 0's based (ZNS 1.1, 4.1.5.1)
        let limit =
            |zero_based: u32| (zero_based != NO_ZONE_LIMIT).then(|| u64::from(zero_based) + 1);
        Ok(Zones {
            blocks,
            max_open: limit(zoned.mor_z),
            max_active: limit(zoned.mar_z),
        })
    }
}

impl<B: Bus> QueuePair<B> {
    /// Every zone, in order. `scratch` holds a part of the report at a time, until this returns.
    ///
    /// # Errors
    /// As [`QueuePair::run`]; [`DriverError::Unsupported`] where `scratch` cannot hold one zone,
    /// and for more than 2^22 zones; [`DriverError::Broken`] for a report that has a gap, or a zone
    /// that does not fit.
    pub fn report_zones(
        &mut self,
        namespace: &Namespace,
        zones: &Zones,
        scratch: &Buffer,
    ) -> Result<Vec<Zone>, DriverError> {
        let header = size_of::<ZoneReportHeader>();
        let room = (scratch.len() & !3).min(self.transfer_len() as usize);
        let least = header + size_of::<ZoneDescriptor>();
        if room < least {
            return Err(DriverError::Unsupported(format!(
                "a report of zones takes at least {least} bytes, not {room}"
            )));
        }
        let count = namespace.blocks / zones.blocks;
        if count > ZONES_MAX {
            return Err(DriverError::Unsupported(format!(
                "the namespace has {count} zones, and at most {ZONES_MAX} are read"
            )));
        }
        let mut bytes = vec![0; room];
        let mut all: Vec<Zone> = Vec::new();
        let mut from = 0;
        while from < namespace.blocks {
            self.receive_report(namespace.nsid, from, scratch, room)?;
            scratch.read_into(0, &mut bytes);
            let (report, list) = ZoneReportHeader::read_from_prefix(&bytes)
                .expect("room for the header was checked");
            let count = usize::try_from(report.number_of_zones).unwrap_or(usize::MAX);
            let before = all.len();
            for descriptor in list.chunks_exact(size_of::<ZoneDescriptor>()).take(count) {
                let descriptor =
                    ZoneDescriptor::read_from_bytes(descriptor).expect("the chunks have its size");
                let zone = Zone::from(&descriptor);
                check(&zone, from, namespace, zones)?;
                from = zone.start + zones.blocks;
                all.push(zone);
            }
            if all.len() == before {
                return Err(DriverError::Broken(format!(
                    "its report of zones ends before block {from} of {}",
                    namespace.blocks
                )));
            }
        }
        Ok(all)
    }

    fn receive_report(
        &mut self,
        nsid: u32,
        from: u64,
        scratch: &Buffer,
        len: usize,
    ) -> Result<Cqe, DriverError> {
        let (cdw10, cdw11) = slba_cdw10_11(from);
        let dwords_z = u32::try_from(len / 4 - 1).unwrap_or(u32::MAX);
        let mut sqe = Sqe {
            opcode: ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0,
            nsid,
            cdw10,
            cdw11,
            cdw12: dwords_z,
            cdw13: ZoneReceiveCdw13::new()
                .with_zra(ZoneReceiveAction::REPORT)
                .with_partial(true)
                .into(),
            ..Sqe::default()
        };
        self.set_data(&mut sqe, scratch, len)?;
        self.run("Zone Management Receive", sqe)
    }

    /// Changes the state of the zone that starts at block `start`.
    ///
    /// # Errors
    /// As [`QueuePair::run`].
    pub fn manage_zone(
        &mut self,
        nsid: u32,
        start: u64,
        action: ZoneSendAction,
    ) -> Result<Cqe, DriverError> {
        let (cdw10, cdw11) = slba_cdw10_11(start);
        let sqe = Sqe {
            opcode: ZonedOpcode::ZONE_MANAGEMENT_SEND.0,
            nsid,
            cdw10,
            cdw11,
            cdw13: ZoneSendCdw13::new().with_zsa(action).into(),
            ..Sqe::default()
        };
        self.run("Zone Management Send", sqe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_zones_one_after_the_other_inside_of_the_namespace() {
        let namespace = Namespace {
            nsid: 1,
            blocks: 512,
            block_len: 4096,
        };
        let zones = Zones {
            blocks: 256,
            max_open: None,
            max_active: None,
        };
        let zone = |start, capacity| Zone {
            start,
            capacity,
            write_pointer: start,
            state: ZoneState::EMPTY,
        };
        check(&zone(0, 256), 0, &namespace, &zones).unwrap();
        check(&zone(256, 192), 256, &namespace, &zones).unwrap();
        for (zone, from) in [
            (zone(0, 257), 0),
            (zone(256, 1), 0),
            (zone(0, 1), 256),
            (zone(512, 1), 512),
            (zone(u64::MAX - 8, 1), u64::MAX - 8),
        ] {
            check(&zone, from, &namespace, &zones).unwrap_err();
        }
    }
}
