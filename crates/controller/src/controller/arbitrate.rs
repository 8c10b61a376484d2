//! Arbitration among the submission queues of a controller, whichever lanes they belong to
//! (Base 2.1, 3.4.4).

use arrayvec::ArrayVec;
use nvme_spec::registers::ArbitrationMechanism;

use super::Controller;
use crate::arbitration::{Arbiter, Claim, burst};
use crate::lane::{LaneTable, Quota};
use crate::state::MAX_SQS;

impl Controller {
    /// Whether weighted round robin is selected: then the controller needs a turn before each turn
    /// of its lanes.
    #[must_use]
    pub fn is_arbitrating(&self) -> bool {
        self.arbiter.is_some()
    }

    /// An arbiter with the weights of now, where the host has selected that.
    pub(super) fn new_arbiter(&self) -> Option<Arbiter> {
        let selected = self.registers.cc().ams();
        (selected == ArbitrationMechanism::WEIGHTED_ROUND_ROBIN)
            .then(|| Arbiter::new(self.features.arbitration()))
    }

    /// How many commands of a submission queue its lane may fetch.
    pub(crate) fn quota(&self) -> Quota {
        match self.arbiter {
            Some(_) => Quota::Allotted,
            None => Quota::Each(burst(self.features.arbitration())),
        }
    }

    /// Says how many commands of each submission queue the next turn of the lanes may fetch.
    pub(super) fn arbitrate(&mut self, lanes: &mut impl LaneTable) {
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        let mut claims = ArrayVec::<Claim, MAX_SQS>::new();
        for (sqid, priority, key) in self.queues.priorities() {
            let demand = lanes.local(key).map(|lane| lane.demand(sqid));
            let demand = demand.unwrap_or_default();
            claims.push(Claim {
                priority,
                wanted: demand.commands,
                waits: demand.waits,
                granted: 0,
            });
        }
        arbiter.grant(&mut claims);
        for ((sqid, _, key), claim) in self.queues.priorities().zip(&claims) {
            if let Some(lane) = lanes.local(key) {
                lane.allot(sqid, claim.granted);
            }
            if claim.granted > 0
                && let Some(cqid) = self.queues.cqid_of_sq(sqid)
            {
                // The grant is for this turn: its lane takes it.
                self.doorbells.kick(cqid);
            }
        }
    }
}
