//! Log pages (Base 2.1, 5.1.12): what happened, and what the controller can do.
//!
//! A page is made whole from what it reports and then cut by the host's offset and length: nothing is read from a
//! host, and what lies past a page's end is zeros. Everything here survives a reset of the controller, but not a
//! restart of the process.

use std::collections::VecDeque;

use nvme_spec::command::{
    GetLogPageCdw10, GetLogPageCdw14, get_log_page_numd_z, get_log_page_offset,
};
use nvme_spec::cqe::StatusField;
use nvme_spec::identify::ascii_field;
use nvme_spec::log::{
    ActiveFirmwareInfo, ChangedNamespaceList, CommandEffects, CommandsSupportedAndEffectsLog,
    CriticalWarning, ErrorLogEntry, FirmwareSlotLog, LidSupportedAndEffects, LogPageId,
    ParameterErrorLocation, SmartLog, SupportedLogPages,
};
use nvme_spec::opcode::{AdminOpcode, Csi, NvmOpcode};
use nvme_spec::{NSID_ALL, Sqe, Status};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::admin::temperature;
use crate::counters::ReactorCounters;

/// Entries of the Error Information log.
pub(crate) const ERROR_ENTRIES: usize = 64;
/// Namespace ids that the Changed Attached Namespace List holds; one more and it says "many".
const CHANGED_MAX: usize = 1024;
/// Thousands of 512 bytes: the unit of Data Units Read and Written.
const DATA_UNIT: u64 = 512_000;
const NS_PER_MINUTE: u64 = 60_000_000_000;
const NS_PER_HOUR: u64 = 60 * NS_PER_MINUTE;

/// The vendor specific page with the reactor's counters.
pub const REACTOR_LOG: LogPageId = LogPageId(0xc1);

/// Reactor counters (LID C1h, vendor specific), 64 bytes: how much of its reactor this controller's neighbours and it
/// have used since the process started. Little-endian.
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
    /// Revision of this layout: 1. A reader skips what it does not know.
    pub version: u64,
    /// Nanoseconds of the turns that found work.
    pub busy_ns: u64,
    /// I/O commands completed.
    pub completions: u64,
    /// Turns.
    pub turns: u64,
    /// Turns that found work.
    pub turns_with_work: u64,
    /// Zero.
    pub reserved_40: [u8; 24],
}

const _: () = assert!(size_of::<ReactorLog>() == 64);

/// The errors of commands and of no command, newest first (Base 2.1, 5.1.12.1.2).
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorLog {
    entries: VecDeque<ErrorLogEntry>,
    count: u64,
}

/// What an entry of the error log tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoggedError {
    /// Submission queue and command identifier; `None` where the error belongs to no command.
    pub(crate) command: Option<(u16, u16)>,
    pub(crate) status: Status,
    pub(crate) nsid: u32,
    pub(crate) lba: u64,
}

impl ErrorLog {
    /// Adds an entry; the oldest goes where there are too many.
    pub(crate) fn add(&mut self, error: LoggedError) {
        self.count += 1;
        self.entries.truncate(ERROR_ENTRIES - 1);
        let mut entry = ErrorLogEntry::new_zeroed();
        entry.error_count = self.count;
        (entry.sqid, entry.cid) = error.command.unwrap_or((0xffff, 0xffff));
        entry.status = StatusField::new().with_status(error.status);
        entry.pel = ParameterErrorLocation::NONE;
        (entry.lba, entry.nsid) = (error.lba, error.nsid);
        self.entries.push_front(entry);
    }

    /// Entries ever added.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Namespaces that changed since the host last read of it (Base 2.1, 5.1.12.1.5).
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedNamespaces {
    /// Rising.
    ids: Vec<u32>,
}

impl ChangedNamespaces {
    pub(crate) fn add(&mut self, nsid: u32) {
        if let Err(place) = self.ids.binary_search(&nsid) {
            self.ids.insert(place, nsid);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    fn page(&self) -> ChangedNamespaceList {
        let mut list = ChangedNamespaceList::new_zeroed();
        if self.ids.len() > CHANGED_MAX {
            list.nsids[0] = NSID_ALL;
        } else {
            list.nsids[..self.ids.len()].copy_from_slice(&self.ids);
        }
        list
    }
}

/// What SMART / Health Information reports, counted since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) read_commands: u64,
    pub(crate) write_commands: u64,
    pub(crate) media_errors: u64,
    /// While commands were in flight.
    pub(crate) busy_ns: u64,
    pub(crate) powered_ns: u64,
    pub(crate) power_cycles: u64,
    pub(crate) unsafe_shutdowns: u64,
    pub(crate) error_log_entries: u64,
    /// Over and under temperature thresholds, in kelvins.
    pub(crate) thresholds: (u16, u16),
}

impl Health {
    /// The first byte of the page; also what Asynchronous Event Configuration masks.
    pub(crate) fn critical_warning(&self) -> CriticalWarning {
        let (over, under) = self.thresholds;
        CriticalWarning::new().with_ttc(temperature::beyond(over, under))
    }

    fn page(&self) -> SmartLog {
        let mut log = SmartLog::new_zeroed();
        log.critical_warning = self.critical_warning();
        log.composite_temperature.set(temperature::COMPOSITE);
        // Nothing here wears: all of the spare is left.
        (log.available_spare, log.available_spare_threshold) = (100, 10);
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT));
        log.data_units_read.set(units(self.bytes_read));
        log.data_units_written.set(units(self.bytes_written));
        log.host_read_commands.set(self.read_commands.into());
        log.host_write_commands.set(self.write_commands.into());
        log.controller_busy_time
            .set((self.busy_ns / NS_PER_MINUTE).into());
        log.power_cycles.set(self.power_cycles.into());
        log.power_on_hours
            .set((self.powered_ns / NS_PER_HOUR).into());
        log.unsafe_shutdowns.set(self.unsafe_shutdowns.into());
        log.media_errors.set(self.media_errors.into());
        log.error_log_entries.set(self.error_log_entries.into());
        log
    }
}

/// Which part of which page a Get Log Page command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRequest {
    pub(crate) lid: LogPageId,
    pub(crate) retain_event: bool,
    offset: usize,
    /// Bytes to transfer, a multiple of 4, at most `max_transfer`.
    pub(crate) len: usize,
}

impl LogRequest {
    /// Checks what does not depend on the page's contents (Base 2.1, 5.1.12).
    pub(crate) fn parse(sqe: &Sqe, max_transfer: u32) -> Result<Self, Status> {
        let cdw10 = GetLogPageCdw10::from(sqe.cdw10);
        let cdw14 = GetLogPageCdw14::from(sqe.cdw14);
        let lid = cdw10.lid();
        let size = page_size(lid).ok_or(Status::INVALID_LOG_PAGE)?;
        let len = (u64::from(get_log_page_numd_z(sqe)) + 1) * 4;
        let offset = get_log_page_offset(sqe);
        // Every page is the controller's: SMART / Health Information per namespace is not offered (LPA.SMARTS is 0).
        let whole_controller = sqe.nsid == 0 || sqe.nsid == NSID_ALL;
        let refused = !whole_controller
            || len > u64::from(max_transfer)
            || !offset.is_multiple_of(4)
            || offset > size as u64
            || cdw14.ot()
            || lid == LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS && cdw14.csi() != Csi::NVM;
        if refused {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        Ok(LogRequest {
            lid,
            retain_event: cdw10.rae(),
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
        LogPageId::SMART_HEALTH_INFORMATION => size_of::<SmartLog>(),
        LogPageId::FIRMWARE_SLOT_INFORMATION => size_of::<FirmwareSlotLog>(),
        LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST => size_of::<ChangedNamespaceList>(),
        LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS => size_of::<CommandsSupportedAndEffectsLog>(),
        REACTOR_LOG => size_of::<ReactorLog>(),
        _ => return None,
    })
}

/// What the pages report.
pub(crate) struct LogSources<'a> {
    pub(crate) errors: &'a ErrorLog,
    pub(crate) changed: &'a ChangedNamespaces,
    pub(crate) health: Health,
    pub(crate) firmware_revision: &'a str,
    pub(crate) doorbell_buffers: bool,
    pub(crate) reactor: Option<&'a ReactorCounters>,
}

impl LogSources<'_> {
    /// A whole page.
    pub(crate) fn page(&self, lid: LogPageId) -> Result<Vec<u8>, Status> {
        let page = match lid {
            LogPageId::SUPPORTED_LOG_PAGES => supported().as_bytes().to_vec(),
            LogPageId::ERROR_INFORMATION => self
                .errors
                .entries
                .iter()
                .flat_map(|e| e.as_bytes())
                .copied()
                .collect(),
            LogPageId::SMART_HEALTH_INFORMATION => self.health.page().as_bytes().to_vec(),
            LogPageId::FIRMWARE_SLOT_INFORMATION => self.firmware().as_bytes().to_vec(),
            LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST => self.changed.page().as_bytes().to_vec(),
            LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS => self.effects().as_bytes().to_vec(),
            REACTOR_LOG => self.reactor().as_bytes().to_vec(),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        Ok(page)
    }

    fn firmware(&self) -> FirmwareSlotLog {
        let mut log = FirmwareSlotLog::new_zeroed();
        log.afi = ActiveFirmwareInfo::new().with_active_slot(1);
        log.frs[0] = ascii_field(self.firmware_revision);
        log
    }

    fn effects(&self) -> CommandsSupportedAndEffectsLog {
        let mut log = CommandsSupportedAndEffectsLog::new_zeroed();
        let supported = CommandEffects::new().with_csupp(true);
        for opcode in super::SUPPORTED {
            log.acs[usize::from(opcode.0)] = supported;
        }
        if self.doorbell_buffers {
            log.acs[usize::from(AdminOpcode::DOORBELL_BUFFER_CONFIG.0)] = supported;
        }
        for opcode in [NvmOpcode::FLUSH, NvmOpcode::READ, NvmOpcode::COMPARE] {
            log.iocs[usize::from(opcode.0)] = supported;
        }
        for opcode in [
            NvmOpcode::WRITE,
            NvmOpcode::WRITE_ZEROES,
            NvmOpcode::DATASET_MANAGEMENT,
        ] {
            log.iocs[usize::from(opcode.0)] = supported.with_lbcc(true);
        }
        log
    }

    fn reactor(&self) -> ReactorLog {
        let mut log = ReactorLog::new_zeroed();
        log.version = 1;
        if let Some(counters) = self.reactor {
            log.busy_ns = counters.busy_ns.get();
            log.completions = counters.completions.get();
            log.turns = counters.turns.get();
            log.turns_with_work = counters.turns_with_work.get();
        }
        log
    }
}

fn supported() -> SupportedLogPages {
    let mut log = SupportedLogPages::new_zeroed();
    for (lid, entry) in (0..=u8::MAX).zip(&mut log.lids) {
        let supported = page_size(LogPageId(lid)).is_some();
        *entry = LidSupportedAndEffects::new().with_lsupp(supported);
    }
    log
}
