//! Statuses of commands, as errors of requests.

use nbd::Errno;
use nvme_spec::Status;

use super::requests::Kind;

/// The error that a client gets for the status of a command of such a request.
pub(super) fn error(status: Status, kind: Kind) -> Errno {
    let grows = matches!(kind, Kind::Write | Kind::Zero { .. });
    match status {
        Status::SUCCESSFUL_COMPLETION => Errno::NONE,
        // The namespace has become smaller.
        Status::LBA_OUT_OF_RANGE if !grows => Errno::INVALID,
        Status::CAPACITY_EXCEEDED | Status::LBA_OUT_OF_RANGE => Errno::NO_SPACE,
        Status::NAMESPACE_IS_WRITE_PROTECTED
        | Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE
        | Status::RESERVATION_CONFLICT
        | Status::ACCESS_DENIED => Errno::PERM,
        // The namespace is detached, deleted or formatted otherwise.
        Status::INVALID_NAMESPACE_OR_FORMAT => Errno::SHUTDOWN,
        _ => Errno::IO,
    }
}
