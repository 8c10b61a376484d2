//! The Error Information log (Base 2.1, 5.1.12.1.2).
//!
//! Its entries survive a reset of the controller; only their count survives a restart of the
//! process.

use std::collections::VecDeque;

use nvme_spec::Status;
use nvme_spec::cqe::StatusField;
use nvme_spec::log::{ErrorLogEntry, ParameterErrorLocation};
use nvme_spec::opcode::Csi;
use zerocopy::{FromZeros, IntoBytes};

/// Entries of the Error Information log.
pub(crate) const ERROR_ENTRIES: usize = 64;
/// Log Page Version of an error log entry that includes opcode and command set.
const ERROR_LPVER: u8 = 1;

/// The errors of commands and of no command, newest first (Base 2.1, 5.1.12.1.2).
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorLog {
    entries: VecDeque<ErrorLogEntry>,
    count: u64,
}

/// Contents of an error log entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoggedError {
    /// `None` where the error belongs to no command.
    pub(crate) command: Option<LoggedCommand>,
    pub(crate) status: Status,
    pub(crate) nsid: u32,
    pub(crate) lba: u64,
}

/// The command that an entry of the error log is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedCommand {
    pub(crate) sqid: u16,
    pub(crate) cid: u16,
    pub(crate) opcode: u8,
}

impl ErrorLog {
    /// Without entries, after so many that are forgotten.
    pub(crate) fn after(count: u64) -> Self {
        ErrorLog {
            entries: VecDeque::new(),
            count,
        }
    }

    /// Adds an entry; the oldest goes where there are too many.
    pub(crate) fn add(&mut self, error: LoggedError) {
        self.count += 1;
        self.entries.truncate(ERROR_ENTRIES - 1);
        let mut entry = ErrorLogEntry::new_zeroed();
        entry.error_count = self.count;
        (entry.sqid, entry.cid) = (0xffff, 0xffff);
        entry.lpver = ERROR_LPVER;
        if let Some(LoggedCommand { sqid, cid, opcode }) = error.command {
            (entry.sqid, entry.cid, entry.csi) = (sqid, cid, Csi::NVM.0);
            entry.opc = opcode;
        }
        entry.status = StatusField::new().with_status(error.status);
        entry.pel = ParameterErrorLocation::NONE;
        (entry.lba, entry.nsid) = (error.lba, error.nsid);
        self.entries.push_front(entry);
    }

    /// Adds Command Specific Information to the last entry.
    pub(crate) fn describe_last(&mut self, information: u64) {
        if let Some(entry) = self.entries.front_mut() {
            entry.command_specific = information;
        }
    }

    /// The page. A sanitize operation in progress hides the addresses of data (NVM 1.1, 5.8).
    pub(super) fn page(&self, hide_lba: bool) -> Vec<u8> {
        let shown = |entry: &ErrorLogEntry| ErrorLogEntry {
            lba: if hide_lba { 0 } else { entry.lba },
            ..*entry
        };
        let entries = self.entries.iter().map(shown);
        entries.flat_map(|e| e.as_bytes().to_vec()).collect()
    }

    /// Entries ever added.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
