//! What the operator asks of a subsystem while hosts use it.

use nvme_spec::Status;

use super::Subsystem;
use super::directory::{Allocated, Change};
use super::operation::{Operation, Requester, Step};
use super::set::ControllerSet;

/// A request of the operator's. Hosts that are concerned learn of it by an asynchronous event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorRequest {
    /// A namespace comes to be, with the identifier and attachments that it says.
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
    /// A namespace gets another size; its start stays. The operator has seen to it that the medium has room.
    Resize {
        /// Which.
        nsid: u32,
        /// Bytes of it in its medium from now on.
        len: u64,
    },
}

impl Subsystem {
    /// Begins what the operator asks. [`Subsystem::take_operator_answer`] tells how it ended, when no command that came
    /// before is in flight and the change is kept.
    pub fn request(&mut self, token: u64, request: OperatorRequest) {
        match self.change_of(request) {
            Ok(change) => {
                let steps = [Step::Change(change.clone()), Step::Drain, Step::Keep];
                let by = Requester::Operator(token);
                self.begin(Operation::new(by, change.nsid(), steps));
            }
            Err(status) => self.operator_answers.push_back((token, Err(status))),
        }
    }

    fn change_of(&self, request: OperatorRequest) -> Result<Change, Status> {
        let exists = |nsid| {
            let found = self.directory.get(nsid);
            found.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)
        };
        match request {
            OperatorRequest::Create(new) => {
                let nsid = new.nsid();
                let valid = (1..=self.namespace_limit).contains(&nsid);
                if !valid || self.directory.get(nsid).is_some() {
                    return Err(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE);
                }
                Ok(Change::Create(new))
            }
            OperatorRequest::Delete { nsid } => {
                exists(nsid)?;
                Ok(Change::Delete { nsid })
            }
            OperatorRequest::Attach { nsid, controllers } => {
                let namespace = exists(nsid)?;
                if !namespace.shared && namespace.attached.union(controllers).len() > 1 {
                    return Err(Status::NAMESPACE_IS_PRIVATE);
                }
                Ok(Change::Attach { nsid, controllers })
            }
            OperatorRequest::Detach { nsid, controllers } => {
                exists(nsid)?;
                Ok(Change::Detach { nsid, controllers })
            }
            OperatorRequest::Resize { nsid, len } => {
                let shift = exists(nsid)?.namespace.lba_shift;
                if len >> shift == 0 {
                    return Err(Status::INVALID_FIELD_IN_COMMAND);
                }
                Ok(Change::Resize { nsid, len })
            }
        }
    }
}
