//! Sanitize (Base 2.1, 5.1.22 and 8.1.24): from the command to a plan of the subsystem, and the
//! commands that a controller still accepts while an operation runs or has failed.

use nvme_spec::command::GetLogPageCdw10;
use nvme_spec::log::LogPageId;
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::sanitize::{MediaModified, Sanicap, SanitizeAction, SanitizeCdw10, SanitizeCdw11};
use nvme_spec::{NSID_ALL, Sqe, Status};
use subsystem::{Plan, SanitizeNews, Subsystem};

use super::Reply;
use super::events::Event;
use crate::controller::Controller;

/// Block erase and overwrite. No-Deallocate After Sanitize is obeyed, and nothing has to be written
/// for it; there is no Media Verification state.
pub(crate) const SANICAP: Sanicap = Sanicap::new()
    .with_bes(true)
    .with_ows(true)
    .with_nodmmas(MediaModified::NOT_MODIFIED);

/// Whether a command is allowed while a sanitize operation is in progress or has failed (Base 2.1,
/// figure 142).
fn is_allowed(sqe: &Sqe, over_fabrics: bool) -> bool {
    match sqe.admin_opcode() {
        AdminOpcode::DELETE_IO_SUBMISSION_QUEUE
        | AdminOpcode::CREATE_IO_SUBMISSION_QUEUE
        | AdminOpcode::DELETE_IO_COMPLETION_QUEUE
        | AdminOpcode::CREATE_IO_COMPLETION_QUEUE
        | AdminOpcode::IDENTIFY
        | AdminOpcode::ABORT
        | AdminOpcode::SET_FEATURES
        | AdminOpcode::GET_FEATURES
        | AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST
        | AdminOpcode::KEEP_ALIVE => true,
        AdminOpcode::GET_LOG_PAGE => match GetLogPageCdw10::from(sqe.cdw10).lid() {
            LogPageId::ERROR_INFORMATION
            | LogPageId::SMART_HEALTH_INFORMATION
            | LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST
            | LogPageId::RESERVATION_NOTIFICATION
            | LogPageId::SANITIZE_STATUS => true,
            // A host finds its paths there, and gives up a controller that refuses it.
            LogPageId::ASYMMETRIC_NAMESPACE_ACCESS => over_fabrics,
            _ => false,
        },
        _ => false,
    }
}

/// Whether a sanitize operation allows a command.
///
/// # Errors
/// What it ends with.
pub(super) fn check(sqe: &Sqe, over_fabrics: bool, subsystem: &Subsystem) -> Result<(), Status> {
    let sanitize = subsystem.directory().sanitize();
    // After a failure it is what helps.
    let helps = sqe.admin_opcode() == AdminOpcode::SANITIZE && !sanitize.is_in_progress();
    match sanitize.lock() {
        Some(status) if !helps && !is_allowed(sqe, over_fabrics) => Err(status),
        _ => Ok(()),
    }
}

impl Controller {
    /// Sanitize. The command completes when the operation has begun.
    pub(super) fn sanitize(
        &mut self,
        sqe: &Sqe,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        let cdw10 = SanitizeCdw10::from(sqe.cdw10);
        let plan = match cdw10.sanact() {
            SanitizeAction::EXIT_FAILURE_MODE => Plan::ExitFailureMode,
            SanitizeAction::START_BLOCK_ERASE | SanitizeAction::START_OVERWRITE
                if !cdw10.emvs() =>
            {
                subsystem.check_idle(NSID_ALL)?;
                Plan::Sanitize {
                    cdw10,
                    pattern: SanitizeCdw11::from(sqe.cdw11).ovrpat(),
                    controller: self.id(),
                }
            }
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        Ok(self.begin_plan(sqe, NSID_ALL, plan, subsystem))
    }

    /// Takes news of sanitize operations, and reports when user data is written after one.
    pub(crate) fn follow_sanitize(&mut self, subsystem: &mut Subsystem) {
        let news = subsystem.take_sanitize_news(self.id());
        if news.is_some() {
            self.admin.events.clear(LogPageId::SANITIZE_STATUS);
        }
        if news == Some(SanitizeNews::Ended) {
            self.raise(Event::SanitizeCompleted);
        }
        if !subsystem.is_data_erased() {
            self.writes_before = None;
            return;
        }
        // A write that failed may have written something.
        let health = self.health();
        let writes = health.counted.write_commands + health.counted.media_errors;
        if *self.writes_before.get_or_insert(writes) != writes {
            subsystem.data_written();
        }
    }
}
