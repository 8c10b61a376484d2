//! Fetch and Add, a vendor specific command: adds Dword 10 to a counter that the namespace has, and
//! returns what it was before.

use std::sync::Arc;

use memory::{DmaView, Segment};
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::Csi;
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::set::{Access, Asked, CommandSet, Data};
use port::ticket::Ticket;
use port::{Added, Channel, Done, Outcome, Request};

/// Its opcode: vendor specific, and without data.
pub(crate) const FETCH_AND_ADD: u8 = 0xc0;

/// What the controller is told.
#[derive(Debug)]
pub(crate) struct FetchAdd;

impl CommandSet for FetchAdd {
    fn csi(&self) -> Csi {
        Csi::NVM // It extends the NVM command set, which goes on as before.
    }
    fn command(&self, sqe: &Sqe, _: &Namespace) -> Result<Option<Asked>, Status> {
        let (access, data) = (Access::Changes, Data::Nothing);
        Ok((sqe.opcode == FETCH_AND_ADD).then_some(Asked { access, data }))
    }
    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        (opcode == FETCH_AND_ADD).then(|| CommandEffects::new().with_csupp(true))
    }
}

/// What does it: a medium with a counter.
pub(crate) struct Counting<C>(pub(crate) C, pub(crate) u64);

impl<C: Channel> Channel for Counting<C> {
    fn add(
        &mut self,
        t: Ticket,
        request: &Request<'_>,
        s: &[Segment<'_>],
        v: &Arc<DmaView>,
    ) -> Added {
        match request {
            Request::Command { sqe, .. } => {
                let before = self.1;
                self.1 = before.wrapping_add(sqe.cdw10.into());
                Added::Done(t, Outcome::with_result(before))
            }
            _ => self.0.add(t, request, s, v),
        }
    }
    fn submit(&mut self) {
        self.0.submit();
    }
    fn reap(&mut self, done: &mut Vec<Done>) {
        self.0.reap(done);
    }
    fn in_flight(&self) -> u32 {
        self.0.in_flight()
    }
}
