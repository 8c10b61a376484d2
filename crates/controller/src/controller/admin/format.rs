//! Format NVM (Base 2.1, 5.1.10; NVM 1.1, 4.1.3): from the command to a plan of the subsystem.
//!
//! A format applies to one namespace, or to all that the controller has attached, with and without
//! secure erase (FNA is 0). There is no encryption, and so no cryptographic erase; no metadata, and
//! so no protection information.

use nvme_spec::format::{FormatNvmCdw10, SecureErase};
use nvme_spec::{Sqe, Status};
use port::namespace::LBA_SHIFTS;
use subsystem::{Plan, Subsystem};

use super::Reply;
use super::features::Features;
use crate::controller::Controller;

/// The size of logical blocks, as a power of two, for an index of the table of formats. Its upper
/// bits count only if the host has set LBAFEE (Base 2.1, 5.1.25.1.14).
pub(super) fn lba_shift(lower: u8, upper: u8, features: &Features) -> Result<u8, Status> {
    let upper = if features.current.extended_formats() {
        upper
    } else {
        0
    };
    let shift = LBA_SHIFTS.get(usize::from(upper << 4 | lower));
    shift.copied().ok_or(Status::INVALID_FORMAT)
}

impl Controller {
    /// Format NVM.
    pub(super) fn format_nvm(
        &mut self,
        sqe: &Sqe,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        let cdw10 = FormatNvmCdw10::from(sqe.cdw10);
        let lba_shift = lba_shift(cdw10.lbafl(), cdw10.lbafu(), &self.features)?;
        if cdw10.mset() || cdw10.pi() != 0 || cdw10.pil() {
            return Err(Status::INVALID_FORMAT);
        }
        match cdw10.ses() {
            // Both erase: without a request, too, what was there must not be read afterwards.
            SecureErase::NONE | SecureErase::USER_DATA_ERASE => (),
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        }
        subsystem.check_idle(sqe.nsid)?;
        let plan = Plan::Format {
            nsid: sqe.nsid,
            lba_shift,
            controller: self.id(),
        };
        Ok(self.begin_plan(sqe, sqe.nsid, plan, subsystem))
    }
}
