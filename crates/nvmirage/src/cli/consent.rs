//! Consent to lose what a drive has: one option, `--destroy-data`, for every command that
//! overwrites data of a drive that it has not made itself.

use super::UsageError;

/// The refusal of what would overwrite data. `option` is the word that asks for it.
pub(super) fn needed(option: &str, what: &str) -> UsageError {
    UsageError(format!(
        "{option} overwrites data: {what}; add --destroy-data if the data is not needed"
    ))
}
