//! Error numbers for failed commands.

use driver::DriverError;
use fuser::Errno;
use nvme_spec::Status;

/// The error number for a status: the one that programs most likely handle, else EIO.
pub(super) fn of_status(status: Status) -> Errno {
    match status {
        Status::INVALID_COMMAND_OPCODE => Errno::EOPNOTSUPP,
        // the namespace was removed; its file is removed shortly
        Status::INVALID_NAMESPACE_OR_FORMAT => Errno::ENODEV,
        Status::NAMESPACE_IS_WRITE_PROTECTED | Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE => {
            Errno::EROFS
        }
        Status::LBA_OUT_OF_RANGE | Status::CAPACITY_EXCEEDED => Errno::ENOSPC,
        Status::RESERVATION_CONFLICT | Status::ACCESS_DENIED => Errno::EACCES,
        Status::FORMAT_IN_PROGRESS | Status::SANITIZE_IN_PROGRESS => Errno::EBUSY,
        _ => Errno::EIO,
    }
}

/// The error number for a command that could not be submitted.
pub(super) fn of_error(error: &DriverError) -> Errno {
    match error {
        DriverError::Status { status, .. } => of_status(*status),
        DriverError::NoMemory { .. } => Errno::ENOMEM,
        _ => Errno::EIO,
    }
}
