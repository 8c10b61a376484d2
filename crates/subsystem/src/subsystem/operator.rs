//! Requests of the operator to a subsystem while hosts use it.

use nvme_spec::Status;
use port::ByteRange;

use super::Subsystem;
use crate::allocated::{Allocated, Busy};
use crate::directory::Change;
use crate::erase::Erase;
use crate::operation::{Operation, Requester, Step};
use crate::request::{OperatorRequest, Plan};
use crate::set::ControllerSet;

impl Subsystem {
    /// Begins a request of the operator. [`Subsystem::take_operator_answer`] returns the outcome
    /// when no earlier command is in flight and the change is kept.
    pub fn request(&mut self, token: u64, request: OperatorRequest) {
        // A sanitize operation may take long, and after a failure nothing else helps.
        if let Some(status) = self.directory().sanitize().lock() {
            self.operator_answers.push_back((token, Err(status)));
            return;
        }
        let by = Requester::Operator(token);
        let nsid = match &request {
            OperatorRequest::Create(new) => new.nsid(),
            OperatorRequest::Delete { nsid }
            | OperatorRequest::Attach { nsid, .. }
            | OperatorRequest::Detach { nsid, .. }
            | OperatorRequest::Resize { nsid, .. }
            | OperatorRequest::SetReadOnly { nsid, .. } => *nsid,
        };
        let plan = Step::Plan(Box::new(Plan::Operator(request)));
        self.begin(Operation::new(by, nsid, [plan]));
    }

    pub(super) fn plan_request(
        &self,
        request: OperatorRequest,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        let exists = |nsid| {
            let found = self.directory().get(nsid);
            found.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)
        };
        let change = match request {
            OperatorRequest::Create(new) => return self.plan_request_create(new, operation),
            OperatorRequest::Resize { nsid, len } => {
                return self.plan_resize(exists(nsid)?, len, operation);
            }
            OperatorRequest::SetReadOnly { nsid, read_only } => {
                exists(nsid)?;
                // The record does not hold it.
                let change = Change::SetReadOnly { nsid, read_only };
                return Ok(vec![Step::Change(change), Step::Drain]);
            }
            OperatorRequest::Delete { nsid } => {
                exists(nsid)?;
                return self.plan_delete(nsid, operation);
            }
            OperatorRequest::Attach { nsid, controllers } => {
                let namespace = exists(nsid)?;
                if !namespace.shared && namespace.attached.union(controllers).len() > 1 {
                    return Err(Status::NAMESPACE_IS_PRIVATE);
                }
                Change::Attach { nsid, controllers }
            }
            OperatorRequest::Detach { nsid, controllers } => {
                exists(nsid)?;
                Change::Detach { nsid, controllers }
            }
        };
        Ok(vec![Step::Change(change), Step::Drain, Step::Keep])
    }

    /// In a pool, earlier data must not be readable; elsewhere the operator may want the existing
    /// data.
    fn plan_request_create(
        &self,
        mut new: Box<Allocated>,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        let nsid = new.nsid();
        let valid = (1..=self.namespace_limit()).contains(&nsid);
        if !valid || self.directory().get(nsid).is_some() {
            return Err(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE);
        }
        let channel = new.namespace.channel;
        if !self.directory().is_in_pool(channel) {
            return Ok(vec![
                Step::Change(Change::Create(new)),
                Step::Drain,
                Step::Keep,
            ]);
        }
        self.directory().check_apart(&new)?;
        let controllers = std::mem::replace(&mut new.attached, ControllerSet::NONE);
        let erase = Erase::zero(vec![(channel, new.erasable())]);
        new.busy = Some(Busy::Creating);
        operation.on_failure = vec![Change::Delete { nsid }];
        Ok(vec![
            Step::Change(Change::Create(new)),
            Step::Erase(erase),
            Step::Change(Change::SetBusy { nsid, busy: None }),
            Step::Change(Change::Attach { nsid, controllers }),
            Step::Drain,
            Step::Keep,
        ])
    }

    /// Removed space is not reused while commands to it are in flight, and earlier data in space
    /// added from a pool must not be readable.
    fn plan_resize(
        &self,
        namespace: &Allocated,
        len: u64,
        operation: &mut Operation,
    ) -> Result<Vec<Step>, Status> {
        let blocks = len >> namespace.namespace.lba_shift;
        // What is more than bytes has the size that its medium gave it.
        let set = namespace.namespace.set.as_ref();
        if blocks == 0 || set.is_some_and(|set| !set.keeps_bytes()) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let (nsid, channel) = (namespace.nsid(), namespace.namespace.channel);
        let occupy = |len| Change::Occupy { nsid, len };
        if len < namespace.len {
            let truncate = Change::Truncate { nsid, blocks };
            return Ok(vec![
                Step::Change(truncate),
                Step::Drain,
                Step::Change(occupy(len)),
                Step::Keep,
            ]);
        }
        self.directory().check_room(nsid, len)?;
        let grown = ByteRange {
            offset: namespace.namespace.start.saturating_add(namespace.len),
            len: len - namespace.len,
        };
        let mut steps = vec![Step::Change(occupy(len))];
        if grown.len > 0 && self.directory().is_in_pool(channel) {
            operation.on_failure = vec![occupy(namespace.len)];
            steps.push(Step::Erase(Erase::zero(vec![(channel, grown)])));
        }
        let resize = Step::Change(Change::Resize { nsid, len });
        steps.extend([resize, Step::Drain, Step::Keep]);
        Ok(steps)
    }
}
