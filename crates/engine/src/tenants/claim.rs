//! Fair queueing by weight, among flows that want the same medium.
//!
//! Each flow has a *tag*: the cost that it has received, divided by its weight. The flow with the
//! lowest tag may go; another may go ahead of it by no more than a quantum. Unused share is not
//! saved up: a flow that comes back begins where the others are by now (start-time fair queueing,
//! Goyal, Vin and Cheng 1996; here without a queue, as commands wait where their lanes hold them
//! and ask again in each turn).
//!
//! The same scheme applies on two levels: tenants that share a medium, and the namespaces of one
//! tenant on it.

use port::time::Time;

/// Bits of a tag's fraction: enough that rounding of the division by a weight is negligible.
const FRACTION_BITS: u32 = 16;
/// How long a flow whose command completed at once is expected back: media that copy have completed
/// a command before its host can send the next, and without this a host would never be found
/// waiting.
pub(super) const GRACE_NS: u64 = 30_000;

/// Demand, received cost and commands in flight of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    weight: u32,
    tag: u128,
    /// The last turn in which it had to wait for others.
    waited: u64,
    /// When it got or ended something last.
    pub(super) served: Option<Time>,
    /// Commands that a medium has.
    pub(super) in_flight: u32,
}

/// The current time and turn, for claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) turn: u64,
    pub(super) now: Time,
}

/// Position of a flow relative to the others with demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Cost by which it is ahead of the flow with the lowest tag.
    pub(super) ahead: u64,
    /// The flow with the lowest tag is only expected.
    pub(super) expected: bool,
}

impl Claim {
    pub(super) fn new(weight: u32) -> Self {
        Claim {
            weight: weight.max(1),
            tag: 0,
            waited: 0,
            served: None,
            in_flight: 0,
        }
    }

    pub(super) fn set_weight(&mut self, weight: u32) {
        self.weight = weight.max(1);
    }

    /// It waits for others in this turn.
    pub(super) fn wait(&mut self, instant: Instant) {
        self.waited = instant.turn;
    }

    /// Whether it waits: a command that waits asks in each turn.
    fn waits(&self, instant: Instant) -> bool {
        self.waited > 0 && self.waited + 1 >= instant.turn
    }

    /// Whether it is expected to come back at once.
    fn is_expected(&self, instant: Instant) -> bool {
        let lately = |served| instant.now.since(served) <= GRACE_NS;
        self.in_flight == 0 && self.served.is_some_and(lately)
    }

    /// Charges that cost.
    pub(super) fn pay(&mut self, cost: u64) {
        self.tag += (u128::from(cost) << FRACTION_BITS) / u128::from(self.weight);
    }
}

/// Position of `claim` relative to `others`, those of them that can go at all. `reached`: the tag
/// that they all have passed, which advances.
pub(super) fn stand<'c>(
    claim: &mut Claim,
    others: impl Iterator<Item = &'c Claim>,
    reached: &mut u128,
    instant: Instant,
) -> Standing {
    if !claim.waits(instant) && !claim.is_expected(instant) {
        claim.tag = claim.tag.max(*reached);
    }
    let (mut least, mut expected) = (u128::MAX, false);
    for other in others {
        let waits = other.waits(instant);
        if (waits || other.is_expected(instant)) && other.tag < least {
            (least, expected) = (other.tag, !waits);
        }
    }
    *reached = (*reached).max(least.min(claim.tag));
    let ahead = claim.tag.saturating_sub(least);
    let cost = (ahead * u128::from(claim.weight)) >> FRACTION_BITS;
    Standing {
        ahead: u64::try_from(cost).unwrap_or(u64::MAX),
        expected,
    }
}
