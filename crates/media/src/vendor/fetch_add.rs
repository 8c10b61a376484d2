//! Fetch and Add (opcode C0h): adds Dword 10 to the counter of the namespace, and returns the
//! previous value in Dwords 0 and 1 of the completion. The counter is 0 when the server starts,
//! when the namespace is created, and after a format. It wraps. A server that replaces its process
//! continues with it.

use memory::Segment;
use nvme_spec::log::CommandEffects;
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::set::{Access, Asked, Data};
use port::{ByteRange, Outcome};

use super::numbers::Numbers;
use super::{Commands, Execute};

/// Vendor specific, and without data (Base 2.1, figure 91).
const FETCH_AND_ADD: u8 = 0xc0;

/// The command, as the controller sees it.
#[derive(Debug)]
pub(super) struct FetchAdd;

impl Commands for FetchAdd {
    fn command(&self, sqe: &Sqe, _: &Namespace) -> Result<Option<Asked>, Status> {
        let (access, data) = (Access::Changes, Data::Nothing);
        Ok((sqe.opcode == FETCH_AND_ADD).then_some(Asked { access, data }))
    }

    fn name(&self, opcode: u8) -> Option<&'static str> {
        (opcode == FETCH_AND_ADD).then_some("Fetch and Add")
    }

    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        (opcode == FETCH_AND_ADD).then(|| CommandEffects::new().with_csupp(true))
    }

    fn start(&self, numbers: Numbers) -> Box<dyn Execute> {
        Box::new(Counters(numbers))
    }
}

/// Its execution: a counter of each namespace, by the namespace's first byte in the medium.
#[derive(Debug)]
struct Counters(Numbers);

impl Execute for Counters {
    fn execute(&mut self, sqe: &Sqe, namespace: ByteRange, _: &[Segment<'_>]) -> Outcome {
        let Some(counter) = self.0.get(namespace.offset) else {
            return Outcome::status(Status::INTERNAL_ERROR);
        };
        let before = *counter;
        *counter = before.wrapping_add(sqe.cdw10.into());
        Outcome::with_result(before)
    }

    fn renew(&mut self, namespace: ByteRange) {
        self.0.remove(namespace.offset);
    }
}
