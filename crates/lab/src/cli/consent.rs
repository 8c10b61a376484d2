//! Consent to data loss: one option, `--destroy-data`, for every command that overwrites data of a
//! drive that it did not create itself.

use super::UsageError;

/// Error for a command that would overwrite data; `option` is the option that allows it.
pub(super) fn needed(option: &str, what: &str) -> UsageError {
    UsageError(format!(
        "{option} overwrites data: {what}; add --destroy-data if the data is not needed"
    ))
}
