//! Firmware Commit and Firmware Image Download (Base 2.1, 3.11, 5.1.8 and 5.1.9): the one slot is
//! read-only, and the firmware is this program.

use nvme_spec::firmware::{CommitAction, FirmwareCommitCdw10};
use nvme_spec::{Sqe, Status};

use super::Reply;

/// Firmware slots (FRMW.NOFS), the first of which is read-only (FRMW.FFSRO).
pub(crate) const SLOTS: u8 = 1;

/// Firmware Commit. An image can be neither replaced nor activated without a reset (FRMW.FAWR is
/// 0), and there is no boot partition; to activate at the next reset what is active succeeds.
pub(super) fn commit(sqe: &Sqe) -> Result<Reply, Status> {
    let cdw10 = FirmwareCommitCdw10::from(sqe.cdw10);
    match cdw10.ca() {
        CommitAction::REPLACE | CommitAction::REPLACE_ACTIVATE_AT_RESET => {
            Err(Status::INVALID_FIRMWARE_SLOT)
        }
        // 0 leaves the choice to the controller.
        CommitAction::ACTIVATE_AT_RESET if cdw10.fs() <= SLOTS => Ok(Reply::Done(0)),
        CommitAction::ACTIVATE_AT_RESET => Err(Status::INVALID_FIRMWARE_SLOT),
        _ => Err(Status::INVALID_FIELD_IN_COMMAND),
    }
}

/// Firmware Image Download: nothing could be done with an image, so none is taken.
pub(super) fn download() -> Result<Reply, Status> {
    Err(Status::OPERATION_DENIED)
}
