//! What is wrong with a message.

use crate::Request;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The header has another version than 1, or is a reply.
    #[error("a header with flags {0:#x}: they must have version 1, and no reply")]
    Flags(u32),
    /// The body is longer than any message's.
    #[error("{0} with {1} bytes: no message is as long")]
    TooLong(Request, u32),
    /// The body has another length than its message.
    #[error("{0} with {1} bytes")]
    Length(Request, u32),
    /// The message has another number of descriptors than it must have.
    #[error("{request} with {found} descriptors instead of {expected}")]
    Descriptors {
        /// The message.
        request: Request,
        /// As many came.
        found: usize,
        /// As many must come.
        expected: usize,
    },
    /// More regions of memory than one message has.
    #[error("{0} regions of memory in one table: at most 8")]
    Regions(u32),
    /// The connection ended within a message.
    #[error("the connection ended within a message")]
    Cut,
}

impl Fault {
    /// A short name, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Flags(_) => "flags",
            Self::TooLong(..) => "too-long",
            Self::Length(..) => "length",
            Self::Descriptors { .. } => "descriptors",
            Self::Regions(_) => "regions",
            Self::Cut => "cut",
        }
    }
}
