//! Sanitize operations (Base 2.1, 5.1.22 and 8.1.24): all space that ever held user data of this
//! subsystem is erased, in the background and whatever happens.
//!
//! ```text
//! idle ----Sanitize----> in progress --everything erased--> idle (succeeded)
//!  ^                      |     ^
//!  |                 a medium failed
//!  |                      v     |
//!  \--Exit Failure Mode-- failed --Sanitize
//! ```
//!
//! From the first change to the last, controllers execute only commands that a sanitize operation
//! allows. The state is kept before the command completes, and success is kept before hosts may
//! write again: a program that is restarted in between begins from the start, and one that is
//! restarted later never erases data written since.
//!
//! Other subsystems may have namespaces on the same media: only this one's namespaces, and the
//! space between them in its pools, are touched.

use nvme_spec::Status;
use nvme_spec::sanitize::SanitizeCdw10;
use serde::{Deserialize, Serialize};

use super::set::ControllerId;

/// State of the most recent sanitize operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SanitizeOutcome {
    /// There was none.
    #[default]
    Never,
    /// It is in progress.
    InProgress,
    /// Everything was erased.
    Succeeded,
    /// Something could not be erased.
    Failed,
}

/// Kept state of sanitize operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SanitizeRecord {
    /// State of the most recent one.
    pub outcome: SanitizeOutcome,
    /// Dword 10 of its command.
    pub cdw10: u32,
    /// Dword 11 of its command.
    pub pattern: u32,
    /// Passes of an overwrite that were completed.
    pub passes: u8,
    /// It failed, and a host has left it at that.
    pub failure_left: bool,
    /// It succeeded, and no user data was written since.
    pub data_erased: bool,
    /// The controller that was asked for it.
    pub controller: Option<ControllerId>,
}

impl SanitizeRecord {
    /// Without a dynamic controller, which ends with its process.
    pub(super) fn for_another_process(&self) -> Self {
        SanitizeRecord {
            controller: self.controller.filter(|id| !id.is_dynamic()),
            ..self.clone()
        }
    }
}

/// The sanitize state of a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sanitize {
    record: SanitizeRecord,
    /// It succeeded, and that is not yet on stable storage.
    finishing: bool,
}

/// A change of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanitizeChange {
    /// An operation begins.
    Begin {
        /// Dword 10 of the command.
        cdw10: SanitizeCdw10,
        /// Pattern of an overwrite.
        pattern: u32,
        /// The controller that received the command.
        controller: ControllerId,
    },
    /// Everything is erased; hosts do not learn of it yet.
    Succeed,
    /// Hosts may go on.
    Release,
    /// It failed.
    Fail,
    /// A failure is left at that.
    ExitFailureMode,
}

/// News of sanitize operations for a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanitizeNews {
    /// One began: events of earlier ones are void.
    Began,
    /// The one that it was asked for has ended.
    Ended,
}

impl From<SanitizeRecord> for Sanitize {
    fn from(record: SanitizeRecord) -> Self {
        let finishing = false;
        Sanitize { record, finishing }
    }
}

impl Sanitize {
    /// Its kept state.
    #[must_use]
    pub fn record(&self) -> &SanitizeRecord {
        &self.record
    }

    /// Whether an operation is in progress.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        self.finishing || self.record.outcome == SanitizeOutcome::InProgress
    }

    /// Whether everything is erased, and that is not yet kept.
    pub(super) fn is_finishing(&self) -> bool {
        self.finishing
    }

    /// Whether the most recent operation failed and the failure was not cleared.
    pub(super) fn is_in_failure(&self) -> bool {
        self.record.outcome == SanitizeOutcome::Failed && !self.record.failure_left
    }

    /// Status of commands that are not allowed now (Base 2.1, 8.1.24.4).
    #[must_use]
    pub fn lock(&self) -> Option<Status> {
        if self.is_in_progress() {
            return Some(Status::SANITIZE_IN_PROGRESS);
        }
        self.is_in_failure().then_some(Status::SANITIZE_FAILED)
    }

    pub(super) fn apply(&mut self, change: SanitizeChange) {
        let record = &mut self.record;
        match change {
            SanitizeChange::Begin {
                cdw10,
                pattern,
                controller,
            } => {
                self.record = SanitizeRecord {
                    outcome: SanitizeOutcome::InProgress,
                    cdw10: cdw10.into(),
                    pattern,
                    controller: Some(controller),
                    ..SanitizeRecord::default()
                }
            }
            SanitizeChange::Succeed => {
                record.outcome = SanitizeOutcome::Succeeded;
                record.data_erased = true;
                self.finishing = true;
            }
            SanitizeChange::Release => self.finishing = false,
            SanitizeChange::Fail => {
                record.outcome = SanitizeOutcome::Failed;
                record.data_erased = false;
                self.finishing = false;
            }
            SanitizeChange::ExitFailureMode => record.failure_left = true,
        }
    }

    /// This many passes of the overwrite in progress are completed.
    pub(super) fn note_passes(&mut self, passes: u8) {
        if self.record.outcome == SanitizeOutcome::InProgress {
            self.record.passes = passes;
        }
    }

    /// User data was written; whether that is news.
    pub(super) fn note_data(&mut self) -> bool {
        std::mem::take(&mut self.record.data_erased)
    }
}
