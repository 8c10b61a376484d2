//! The one table from a medium's outcome to the host's status.
//!
//! Do Not Retry is set if the same command would fail the same way again (Base 2.1, 4.2.3): the
//! host's mistakes, a comparison that differs, an unsupported command. A medium's errors may pass,
//! so retries are left to the host.

use nvme_spec::Status;
use nvme_spec::cqe::StatusField;

use crate::Cause;

/// The status for a medium's `cause`.
#[must_use]
pub fn of(cause: Cause) -> Status {
    match cause {
        Cause::None => Status::SUCCESSFUL_COMPLETION,
        Cause::CompareMismatch => Status::COMPARE_FAILURE,
        Cause::ReadFailed => Status::UNRECOVERED_READ_ERROR,
        Cause::WriteFailed => Status::WRITE_FAULT,
        Cause::NoSpace => Status::CAPACITY_EXCEEDED,
        Cause::Aborted => Status::COMMAND_ABORT_REQUESTED,
        Cause::Unsupported => Status::INVALID_COMMAND_OPCODE,
        Cause::Status(status) => status,
    }
}

/// True for statuses that count as a media error in the SMART log: bytes could not be read or
/// written. Lack of space does not concern the health of the media.
#[must_use]
pub fn is_media_error(status: Status) -> bool {
    matches!(status, Status::UNRECOVERED_READ_ERROR | Status::WRITE_FAULT)
}

/// True for statuses that belong in the Error Information log: the medium or a data transfer
/// failed, and not the host.
#[must_use]
pub fn is_logged(status: Status) -> bool {
    is_media_error(status)
        || matches!(
            status,
            Status::CAPACITY_EXCEEDED | Status::DATA_TRANSFER_ERROR
        )
}

/// The status field of a completion, without the phase.
#[inline]
#[must_use]
pub fn field(status: Status) -> StatusField {
    const { StatusField::new() }
        .with_status(status)
        .with_dnr(!may_pass(status))
}

/// Whether the same command may succeed when it is sent again, as far as this side knows.
fn may_pass(status: Status) -> bool {
    matches!(
        status,
        Status::SUCCESSFUL_COMPLETION
            | Status::UNRECOVERED_READ_ERROR
            | Status::WRITE_FAULT
            | Status::CAPACITY_EXCEEDED
            | Status::COMMAND_ABORT_REQUESTED
            | Status::ABORTED_SQ_DELETION
            | Status::INTERNAL_ERROR
            | Status::NAMESPACE_NOT_READY
            | Status::FORMAT_IN_PROGRESS
            | Status::SANITIZE_IN_PROGRESS
            | Status::COMMAND_INTERRUPTED
            | Status::TRANSIENT_TRANSPORT_ERROR
            // A host sends the command by another path.
            | Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS
            | Status::ASYMMETRIC_ACCESS_INACCESSIBLE
            | Status::ASYMMETRIC_ACCESS_TRANSITION
            // Another zone may be closed, finished or reset meanwhile.
            | Status::TOO_MANY_ACTIVE_ZONES
            | Status::TOO_MANY_OPEN_ZONES
    )
}

#[cfg(test)]
mod tests {
    use nvme_spec::Status;

    use super::{field, is_logged, is_media_error, of};
    use crate::Cause;

    #[test]
    fn causes_have_the_status_codes_of_the_specification() {
        let table = [
            (Cause::None, 0x000, false),
            (Cause::CompareMismatch, 0x285, false),
            (Cause::ReadFailed, 0x281, true),
            (Cause::WriteFailed, 0x280, true),
            (Cause::NoSpace, 0x081, false),
            (Cause::Aborted, 0x007, false),
            (Cause::Unsupported, 0x001, false),
        ];
        for (cause, code, media) in table {
            assert_eq!(of(cause).0, code, "{cause:?}");
            assert_eq!(is_media_error(of(cause)), media, "{cause:?}");
            let logged = media || cause == Cause::NoSpace;
            assert_eq!(is_logged(of(cause)), logged, "{cause:?}");
        }
    }

    #[test]
    fn do_not_retry_stands_with_the_hosts_mistakes_only() {
        assert!(!field(Status::SUCCESSFUL_COMPLETION).dnr());
        assert!(!field(Status::UNRECOVERED_READ_ERROR).dnr());
        assert!(!field(Status::FORMAT_IN_PROGRESS).dnr());
        assert!(!field(Status::SANITIZE_IN_PROGRESS).dnr());
        assert!(!field(Status::COMMAND_INTERRUPTED).dnr());
        assert!(!field(Status::TRANSIENT_TRANSPORT_ERROR).dnr());
        assert!(!field(Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS).dnr());
        assert!(!field(Status::ASYMMETRIC_ACCESS_INACCESSIBLE).dnr());
        assert!(!field(Status::ASYMMETRIC_ACCESS_TRANSITION).dnr());
        assert!(field(Status::RESERVATION_CONFLICT).dnr());
        assert!(field(Status::INVALID_FIELD_IN_COMMAND).dnr());
        assert!(field(Status::LBA_OUT_OF_RANGE).dnr());
        assert!(field(Status::COMPARE_FAILURE).dnr());
        let field = field(Status::LBA_OUT_OF_RANGE);
        assert_eq!(field.status(), Status::LBA_OUT_OF_RANGE);
        assert!(!field.phase());
    }
}
