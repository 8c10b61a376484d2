//! What a drive says of its health, and the log pages of it that its operator lets hosts read.
//!
//! It is asked by the keeper, now and then, so that no host's command ever reaches the drive for
//! it; hosts' controllers answer from what was said last.

use driver::bus::Bus;
use driver::{Device, DriverError};
use nvme_spec::NSID_ALL;
use nvme_spec::log::{LogPageId, SmartLog};
use port::{DriveReport, ReportedPage};
use zerocopy::FromBytes;

/// A log page that is read and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPage {
    /// Which.
    pub lid: u8,
    /// Its bytes: a multiple of 4, at most [`ShownPage::MAX_LEN`].
    pub len: u16,
}

impl ShownPage {
    /// Most bytes of a page.
    pub const MAX_LEN: u16 = 4096;
}

/// Asks a drive. What it refuses is not in the report.
///
/// # Errors
/// Those of commands that were not answered.
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

/// `None`: the drive has no such page.
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
