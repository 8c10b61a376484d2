//! Requests to a subsystem: of commands, and of the operator.
//!
//! It does NOT decide on any: [`super::plan`] and [`super::operator`] do.

use nvme_spec::sanitize::SanitizeCdw10;

use super::allocated::Allocated;
use super::set::{ControllerId, ControllerSet};

/// A request of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Create a namespace, attached to no controller.
    Create {
        /// Its size in logical blocks, at least 1.
        blocks: u64,
        /// Size of a logical block as a power of two.
        lba_shift: u8,
        /// It may be attached to several controllers.
        shared: bool,
    },
    /// Delete a namespace, or (`NSID_ALL`) all of them.
    Delete {
        /// Which.
        nsid: u32,
    },
    /// Controllers get a namespace: all of them, or none.
    Attach {
        /// Which.
        nsid: u32,
        /// Who; at least one.
        controllers: ControllerSet,
    },
    /// Controllers lose a namespace: all of them, or none.
    Detach {
        /// Which.
        nsid: u32,
        /// Who; at least one.
        controllers: ControllerSet,
    },
    /// A namespace gets another block size and loses its data; or (`NSID_ALL`) all that the
    /// controller has attached.
    Format {
        /// Which.
        nsid: u32,
        /// Size of a logical block as a power of two.
        lba_shift: u8,
        /// The requester.
        controller: ControllerId,
    },
    /// Blocks read as errors from now on.
    MarkUncorrectable {
        /// The namespace.
        nsid: u32,
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u64,
        /// The requester.
        controller: ControllerId,
    },
    /// Everything that ever held user data is erased.
    Sanitize {
        /// As in the command.
        cdw10: SanitizeCdw10,
        /// Pattern of an overwrite.
        pattern: u32,
        /// The requester.
        controller: ControllerId,
    },
    /// A sanitize operation that failed is left at that.
    ExitFailureMode,
    /// A request of the operator.
    Operator(OperatorRequest),
}

/// A request of the operator's. Hosts that are concerned learn of it by an asynchronous event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorRequest {
    /// Create a namespace, with the identifier and attachments in it.
    Create(Box<Allocated>),
    /// A namespace is gone; its bytes stay.
    Delete {
        /// Which.
        nsid: u32,
    },
    /// Controllers get a namespace.
    Attach {
        /// Which.
        nsid: u32,
        /// Who.
        controllers: ControllerSet,
    },
    /// Controllers lose a namespace.
    Detach {
        /// Which.
        nsid: u32,
        /// Who.
        controllers: ControllerSet,
    },
    /// A namespace gets another size; its start stays. The operator has seen to it that the medium
    /// has room.
    Resize {
        /// Which.
        nsid: u32,
        /// Bytes of it in its medium from now on.
        len: u64,
    },
    /// The medium of a namespace takes no writes from now on, or takes them again.
    SetReadOnly {
        /// Which.
        nsid: u32,
        /// Whether.
        read_only: bool,
    },
}
