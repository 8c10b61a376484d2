//! Log pages (Base 2.1, 5.1.12): past events, and capabilities of the controller.
//!
//! A page is built whole and then cut by the host's offset and length: nothing is read from a host,
//! and bytes past a page's end are zeros. All log data survives a reset of the controller. Only the
//! counters of SMART / Health Information and the count of errors survive a restart of the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nvme_spec::ana::AnaLogParameter;
use nvme_spec::command::{
    GetLogPageCdw10, GetLogPageCdw14, get_log_page_numd_z, get_log_page_offset,
};
use nvme_spec::identify::ascii_field;
use nvme_spec::lba_status::LbaStatusInformationHeader;
use nvme_spec::log::{
    ActiveFirmwareInfo, ChangedNamespaceList, CommandsSupportedAndEffectsLog, ErrorLogEntry,
    FeatureIdsSupportedAndEffectsLog, FirmwareSlotLog, LidSupportedAndEffects, LogPageId, SmartLog,
    SupportedLogPages,
};
use nvme_spec::opcode::{AdminOpcode, Csi};
use nvme_spec::reservation::ReservationNotificationLog;
use nvme_spec::sanitize::{SanitizeOperationStatus, SanitizeStatusLog};
use nvme_spec::zoned::{CHANGED_ZONES_MAX, CHANGED_ZONES_MORE, ChangedZoneList};
use nvme_spec::{NSID_ALL, Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::set::CommandSet;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::access::AnaLog;
use super::attached::has_zones;
use super::drives::Drives;
use super::effects;
use super::error_log::{ERROR_ENTRIES, ErrorLog};
use super::health::Health;
use super::reservations::Notifications;
use crate::counters::ReactorCounters;

/// Bytes of NVMe-MI Commands Supported and Effects (Base 2.1, 5.1.12.1.19).
const MI_EFFECTS_LEN: usize = 4096;
/// Capacity of the Changed Attached Namespace List; with one more id it reports "many".
const CHANGED_MAX: usize = 1024;

/// The vendor specific page with the reactor's counters.
pub const REACTOR_LOG: LogPageId = LogPageId(0xc1);

/// Reactor counters (LID C1h, vendor specific), 80 bytes: how much of its reactor this controller's
/// neighbours and it have used since the process started. Little-endian.
#[repr(C)]
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    zerocopy::FromBytes,
    IntoBytes,
    Immutable,
    zerocopy::KnownLayout,
)]
pub struct ReactorLog {
    /// Revision of this layout: 3. A reader skips fields that it does not know.
    pub version: u64,
    /// Nanoseconds of the turns that found work.
    pub busy_ns: u64,
    /// I/O commands completed.
    pub completions: u64,
    /// Turns.
    pub turns: u64,
    /// Turns that found work.
    pub turns_with_work: u64,
    /// Nanoseconds of the turns that found none.
    pub spun_ns: u64,
    /// Nanoseconds asleep.
    pub slept_ns: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    /// Turns that took longer than any work does, as the system let something else run.
    pub stalls: u64,
    /// Nanoseconds of those, which are in none of the others.
    pub stalled_ns: u64,
}

const _: () = assert!(size_of::<ReactorLog>() == 80);

/// Past events, for the pages that report them.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) errors: ErrorLog,
    pub(crate) changed_namespaces: ChangedNamespaces,
    pub(crate) changed_zones: ChangedZones,
    pub(crate) ana: AnaLog,
    /// The reactor's counters, for the vendor log page.
    pub(crate) reactor: Option<Arc<ReactorCounters>>,
}

impl Logs {
    /// Those of a controller that has counted so many errors in earlier processes.
    pub(crate) fn after(errors: u64) -> Self {
        Logs {
            errors: ErrorLog::after(errors),
            changed_namespaces: ChangedNamespaces::default(),
            changed_zones: ChangedZones::default(),
            ana: AnaLog::default(),
            reactor: None,
        }
    }
}

/// Namespaces that changed since the host last read of it (Base 2.1, 5.1.12.1.5).
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedNamespaces {
    /// Rising.
    ids: Vec<u32>,
    /// There were some in an earlier process, and which is not known.
    others: bool,
}

impl ChangedNamespaces {
    pub(crate) fn add(&mut self, nsid: u32) {
        if let Err(place) = self.ids.binary_search(&nsid) {
            self.ids.insert(place, nsid);
        }
    }

    /// Others have changed, too: the page tells its host to look at all of them.
    pub(crate) fn add_others(&mut self) {
        self.others = true;
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.others
    }

    fn page(&self) -> ChangedNamespaceList {
        let mut list = ChangedNamespaceList::new_zeroed();
        if self.others || self.ids.len() > CHANGED_MAX {
            list.nsids[0] = NSID_ALL;
        } else {
            list.nsids[..self.ids.len()].copy_from_slice(&self.ids);
        }
        list
    }
}

/// Zones of namespaces that changed by themselves since the host last read of them (ZNS 1.1,
/// 4.1.2.1).
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedZones {
    zones: BTreeMap<u32, ZonesOf>,
}

/// Those of a namespace.
#[derive(Clone, Debug, Default)]
struct ZonesOf {
    /// The first block of each.
    first: BTreeSet<u64>,
    /// There are others: more than a page has room for, or those of an earlier process.
    others: bool,
}

impl ChangedZones {
    pub(crate) fn add(&mut self, nsid: u32, zslba: u64) {
        let zones = self.zones.entry(nsid).or_default();
        if zones.first.len() < CHANGED_ZONES_MAX || zones.first.contains(&zslba) {
            zones.first.insert(zslba);
        } else {
            zones.others = true;
        }
    }

    /// Others of the namespace have changed, too: the page tells its host to look at all of them.
    pub(crate) fn add_others(&mut self, nsid: u32) {
        self.zones.entry(nsid).or_default().others = true;
    }

    /// The host has read the page of a namespace.
    pub(crate) fn clear(&mut self, nsid: u32) {
        self.zones.remove(&nsid);
    }

    /// A namespace that has some.
    pub(crate) fn first(&self) -> Option<u32> {
        self.zones.keys().next().copied()
    }

    fn page(&self, nsid: u32) -> ChangedZoneList {
        let mut list = ChangedZoneList::new_zeroed();
        let Some(zones) = self.zones.get(&nsid) else {
            return list;
        };
        if zones.others {
            list.nrzid = CHANGED_ZONES_MORE;
            return list;
        }
        list.nrzid = zones.first.len() as u16;
        for (place, zone) in list.zids.iter_mut().zip(&zones.first) {
            *place = *zone;
        }
        list
    }
}

/// The page and part that a Get Log Page command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRequest {
    pub(crate) lid: LogPageId,
    pub(crate) retain_event: bool,
    pub(crate) nsid: u32,
    /// The command set of Commands Supported and Effects.
    csi: Csi,
    /// Of Asymmetric Namespace Access: no namespace identifiers.
    groups_only: bool,
    offset: usize,
    /// Bytes to transfer, a multiple of 4, at most `max_transfer`.
    pub(crate) len: usize,
}

impl LogRequest {
    /// Checks the fields that do not depend on the page's contents (Base 2.1, 5.1.12).
    pub(crate) fn parse(
        sqe: &Sqe,
        max_transfer: u32,
        namespaces: &NamespaceTable,
        drives: &Drives,
        ana: Option<&AnaLog>,
    ) -> Result<Self, Status> {
        let cdw10 = GetLogPageCdw10::from(sqe.cdw10);
        let cdw14 = GetLogPageCdw14::from(sqe.cdw14);
        let lid = cdw10.lid();
        let size =
            page_size(lid).filter(|_| lid != LogPageId::CHANGED_ZONE_LIST || has_zones(namespaces));
        let groups_only = AnaLogParameter::from(cdw10.lsp()).rgo();
        let access = ana.filter(|_| lid == LogPageId::ASYMMETRIC_NAMESPACE_ACCESS);
        let size = size.or_else(|| access.map(|ana| ana.page(groups_only).len()));
        let of_drive = || drives.page(namespaces, lid).map(<[u8]>::len);
        let size = size.or_else(of_drive).ok_or(Status::INVALID_LOG_PAGE)?;
        let len = (u64::from(get_log_page_numd_z(sqe)) + 1) * 4;
        let offset = get_log_page_offset(sqe);
        // Every other page is the controller's: SMART / Health Information per namespace is not
        // offered (LPA.SMARTS is 0).
        let whole_controller = sqe.nsid == 0 || sqe.nsid == NSID_ALL;
        let zoned = |n: &Namespace| n.csi() == Csi::ZONED_NAMESPACE;
        let named = match lid {
            LogPageId::CHANGED_ZONE_LIST => namespaces.get(sqe.nsid).is_some_and(zoned),
            _ => whole_controller,
        };
        let refused = !named
            || len > u64::from(max_transfer)
            || !offset.is_multiple_of(4)
            || offset > size as u64
            || cdw14.ot();
        if refused {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        Ok(LogRequest {
            lid,
            retain_event: cdw10.rae(),
            nsid: sqe.nsid,
            csi: cdw14.csi(),
            groups_only,
            offset: offset as usize,
            len: len as usize,
        })
    }

    /// The bytes to transfer, out of the whole page; zeros past its end.
    pub(crate) fn cut(&self, page: &[u8]) -> Vec<u8> {
        let mut part = page.get(self.offset..).unwrap_or(&[]).to_vec();
        part.resize(self.len, 0);
        part
    }
}

/// Bytes of a page; `None` where it is not supported.
fn page_size(lid: LogPageId) -> Option<usize> {
    Some(match lid {
        LogPageId::SUPPORTED_LOG_PAGES => size_of::<SupportedLogPages>(),
        LogPageId::ERROR_INFORMATION => ERROR_ENTRIES * size_of::<ErrorLogEntry>(),
        LogPageId::SANITIZE_STATUS => size_of::<SanitizeStatusLog>(),
        LogPageId::SMART_HEALTH_INFORMATION => size_of::<SmartLog>(),
        LogPageId::FIRMWARE_SLOT_INFORMATION => size_of::<FirmwareSlotLog>(),
        LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST => size_of::<ChangedNamespaceList>(),
        LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS => size_of::<CommandsSupportedAndEffectsLog>(),
        LogPageId::LBA_STATUS_INFORMATION => size_of::<LbaStatusInformationHeader>(),
        LogPageId::FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS => {
            size_of::<FeatureIdsSupportedAndEffectsLog>()
        }
        LogPageId::NVME_MI_COMMANDS_SUPPORTED_AND_EFFECTS => MI_EFFECTS_LEN,
        LogPageId::RESERVATION_NOTIFICATION => size_of::<ReservationNotificationLog>(),
        LogPageId::CHANGED_ZONE_LIST => size_of::<ChangedZoneList>(),
        REACTOR_LOG => size_of::<ReactorLog>(),
        _ => return None,
    })
}

/// Sources of the pages.
pub(crate) struct LogSources<'a> {
    pub(crate) errors: &'a ErrorLog,
    pub(crate) changed: &'a ChangedNamespaces,
    pub(crate) changed_zones: &'a ChangedZones,
    pub(crate) health: Health,
    pub(crate) namespaces: &'a NamespaceTable,
    pub(crate) drives: &'a Drives,
    pub(crate) firmware_revision: &'a str,
    pub(crate) reservations: &'a Notifications,
    /// None where ANA groups are not reported.
    pub(crate) ana: Option<&'a AnaLog>,
    pub(crate) over_fabrics: bool,
    /// The admin commands that are served.
    pub(crate) served: Vec<AdminOpcode>,
    /// The command sets that namespaces have beside NVM.
    pub(crate) sets: Vec<Arc<dyn CommandSet>>,
    pub(crate) sanitize: SanitizeStatusLog,
    pub(crate) reactor: Option<&'a ReactorCounters>,
}

impl LogSources<'_> {
    /// A whole page.
    pub(crate) fn page(&self, request: &LogRequest) -> Result<Vec<u8>, Status> {
        let page = match request.lid {
            LogPageId::SUPPORTED_LOG_PAGES => self.supported().as_bytes().to_vec(),
            LogPageId::ERROR_INFORMATION => self.errors.page(self.is_sanitizing()),
            LogPageId::SANITIZE_STATUS => self.sanitize.as_bytes().to_vec(),
            LogPageId::SMART_HEALTH_INFORMATION => self.health.page().as_bytes().to_vec(),
            LogPageId::FIRMWARE_SLOT_INFORMATION => self.firmware().as_bytes().to_vec(),
            LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST => self.changed.page().as_bytes().to_vec(),
            LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS => {
                self.effects(request.csi)?.as_bytes().to_vec()
            }
            LogPageId::FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS => {
                let log = effects::features(self.namespaces, self.over_fabrics);
                log.as_bytes().to_vec()
            }
            LogPageId::LBA_STATUS_INFORMATION => lba_status().as_bytes().to_vec(),
            // No command of the management interface is served.
            LogPageId::NVME_MI_COMMANDS_SUPPORTED_AND_EFFECTS => Vec::new(),
            LogPageId::RESERVATION_NOTIFICATION => self.reservations.page().as_bytes().to_vec(),
            LogPageId::CHANGED_ZONE_LIST => {
                self.changed_zones.page(request.nsid).as_bytes().to_vec()
            }
            LogPageId::ASYMMETRIC_NAMESPACE_ACCESS => {
                let log = self.ana.ok_or(Status::INVALID_LOG_PAGE)?;
                log.page(request.groups_only)
            }
            REACTOR_LOG => self.reactor().as_bytes().to_vec(),
            lid => {
                let page = self.drives.page(self.namespaces, lid);
                page.ok_or(Status::INVALID_LOG_PAGE)?.to_vec()
            }
        };
        Ok(page)
    }

    fn supported(&self) -> SupportedLogPages {
        let mut log = SupportedLogPages::new_zeroed();
        for (lid, entry) in (0..=u8::MAX).zip(&mut log.lids) {
            let lid = LogPageId(lid);
            let supported = match lid {
                LogPageId::CHANGED_ZONE_LIST => has_zones(self.namespaces),
                LogPageId::ASYMMETRIC_NAMESPACE_ACCESS => self.ana.is_some(),
                lid => page_size(lid).is_some(),
            };
            let of_drive = self.drives.page(self.namespaces, lid).is_some();
            *entry = LidSupportedAndEffects::new().with_lsupp(supported || of_drive);
        }
        log
    }

    fn effects(&self, csi: Csi) -> Result<CommandsSupportedAndEffectsLog, Status> {
        let sets = self.sets.iter().filter(|set| set.csi() == csi).cloned();
        let sets: Vec<_> = sets.collect();
        if csi != Csi::NVM && sets.is_empty() {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let served = self.served.iter().copied();
        Ok(effects::commands(served, csi, &sets))
    }

    fn firmware(&self) -> FirmwareSlotLog {
        let mut log = FirmwareSlotLog::new_zeroed();
        log.afi = ActiveFirmwareInfo::new().with_active_slot(1);
        log.frs[0] = ascii_field(self.firmware_revision);
        log
    }

    fn is_sanitizing(&self) -> bool {
        self.sanitize.sstat.sos() == SanitizeOperationStatus::SANITIZING
    }

    fn reactor(&self) -> ReactorLog {
        let mut log = ReactorLog::new_zeroed();
        log.version = 3;
        if let Some(counters) = self.reactor {
            log.busy_ns = counters.busy_ns.get();
            log.completions = counters.completions.get();
            log.turns = counters.turns.get();
            log.turns_with_work = counters.turns_with_work.get();
            log.spun_ns = counters.spun_ns.get();
            log.slept_ns = counters.slept_ns.get();
            log.sleeps = counters.sleeps.get();
            log.stalls = counters.stalls.get();
            log.stalled_ns = counters.stalled_ns.get();
        }
        log
    }
}

/// No unreadable blocks are found before a host reads them. Blocks that a host has marked are known
/// to it, and Get LBA Status reports them.
fn lba_status() -> LbaStatusInformationHeader {
    LbaStatusInformationHeader {
        lslplen: size_of::<LbaStatusInformationHeader>() as u32,
        ..LbaStatusInformationHeader::default()
    }
}
