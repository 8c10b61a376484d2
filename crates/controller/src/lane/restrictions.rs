//! The restrictions of a namespace, applied to a command before it is issued: reservations, write
//! protection, sanitize operations, and blocks that are marked as uncorrectable.
//!
//! It does NOT set restrictions: the subsystem does.

use nvme_spec::Status;
use port::namespace::Restrictions;
use port::set::Access;

use crate::command::Command;

/// Whether the restrictions, which are rare, allow the command; and if so, whether it may write to
/// blocks that are marked as uncorrectable.
///
/// # Errors
/// What it ends with.
#[cold]
pub(super) fn check(restrictions: &Restrictions, command: &Command) -> Result<bool, Status> {
    let Restrictions {
        all,
        reads,
        writes,
        read_only: _,
        uncorrectable,
    } = restrictions;
    let refuse = |status: Option<Status>| status.map_or(Ok(()), Err);
    refuse(*all)?;
    match command {
        Command::Read { blocks, .. }
        | Command::Compare { blocks, .. }
        | Command::Verify { blocks, .. } => {
            refuse(*reads)?;
            if uncorrectable.overlaps(blocks.slba, blocks.count.into()) {
                return Err(Status::UNRECOVERED_READ_ERROR);
            }
            Ok(false)
        }
        Command::Write { blocks, .. } | Command::WriteZeroes { blocks, .. } => {
            refuse(restrictions.write_refusal())?;
            Ok(uncorrectable.overlaps(blocks.slba, blocks.count.into()))
        }
        Command::Copy { .. } => {
            refuse(restrictions.write_refusal())?;
            // Its length is not known yet, and clearing too often does no harm.
            Ok(!uncorrectable.is_empty())
        }
        Command::WriteUncorrectable { .. } | Command::Deallocate { .. } => {
            refuse(restrictions.write_refusal()).map(|()| false)
        }
        // They change nothing, and may be sent to a namespace that is write protected (Base 2.1,
        // figure 623).
        Command::Flush | Command::Hint => refuse(*writes).map(|()| false),
        Command::ReservationRegister
        | Command::ReservationAcquire
        | Command::ReservationRelease
        | Command::ReservationReport => Ok(false),
    }
}

/// Whether the restrictions allow a command of the namespace's own set.
///
/// # Errors
/// What it ends with.
#[cold]
pub(super) fn check_access(restrictions: &Restrictions, access: Access) -> Result<(), Status> {
    let refusal = match access {
        Access::Reads => restrictions.reads,
        Access::Changes => restrictions.write_refusal(),
    };
    restrictions.all.or(refusal).map_or(Ok(()), Err)
}
