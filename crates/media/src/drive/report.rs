//! Health report of a drive, and the log pages that its operator lets hosts read.
//!
//! The keeper reads them periodically, and hosts' controllers answer from the latest result: no
//! command of a host causes a command at the drive for this.

use driver::bus::Bus;
use driver::{Device, DriverError};
use nvme_spec::NSID_ALL;
use nvme_spec::log::{LogPageId, SmartLog};
use port::{DriveReport, ReportedPage};
use zerocopy::FromBytes;

/// A log page of the drive that hosts may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPage {
    /// Log page identifier.
    pub lid: u8,
    /// Length: a multiple of 4, at most [`ShownPage::MAX_LEN`].
    pub len: u16,
}

impl ShownPage {
    /// Maximum length of a page.
    pub const MAX_LEN: u16 = 4096;
}

/// Reads the report. Pages that the drive rejects are left out.
///
/// # Errors
/// Commands without an answer.
pub(super) fn ask<B: Bus>(
    device: &mut Device<B>,
    shown: &[ShownPage],
) -> Result<DriveReport, DriverError> {
    let identity = device.identify_controller()?;
    let smart = read(
        device,
        LogPageId::SMART_HEALTH_INFORMATION,
        size_of::<SmartLog>(),
    )?;
    let health = smart.and_then(|bytes| SmartLog::read_from_bytes(&bytes).ok());
    let mut pages = Vec::new();
    for page in shown {
        let lid = LogPageId(page.lid);
        let bytes = read(device, lid, page.len.into())?;
        pages.extend(bytes.map(|bytes| ReportedPage { lid, bytes }));
    }
    Ok(DriveReport {
        health,
        warning_temperature: identity.wctemp,
        critical_temperature: identity.cctemp,
        pages,
    })
}

/// `None`: the drive lacks the page.
fn read<B: Bus>(
    device: &mut Device<B>,
    lid: LogPageId,
    len: usize,
) -> Result<Option<Vec<u8>>, DriverError> {
    let mut bytes = vec![0; len];
    match device.get_log_page(lid, NSID_ALL, 0, &mut bytes) {
        Ok(()) => Ok(Some(bytes)),
        Err(DriverError::Status { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
