//! Arbitration between submission queues: weighted round robin with urgent priority class (Base
//! 2.1, 3.4.4.2).
//!
//! The queues of a controller belong to several lanes, so before each turn the controller grants
//! each of them a number of commands to fetch. While a queue of the urgent class has commands, no
//! other gets any. The others share by credits: a round gives each priority level as many as its
//! weight; the highest level with credits and commands is served before the others; within a level
//! the queues take turns, an Arbitration Burst each. A round that does not fit into a turn
//! continues in the next one, so that shares are exact to the command for any weights.
//!
//! The controller handles the Admin class itself: it serves the admin queue before it grants
//! shares.
//!
//! It does NOT know lanes or doorbells: its input is the demand of each queue. Round robin does not
//! use it at all: each queue may fetch a burst in each turn.

use nvme_spec::command::QueuePriority;
use nvme_spec::features::Arbitration;

use crate::lane::BATCH;

/// AB: there is no limit.
const NO_LIMIT: u8 = 0b111;
/// Priority levels with weights: high, medium, low.
const LEVELS: usize = 3;

/// Recommended Arbitration Burst, and the default of Arbitration Burst: a batch, as a power of two.
pub(crate) const RECOMMENDED_BURST: u8 = BATCH.ilog2() as u8;
const _: () = assert!(BATCH == 1 << RECOMMENDED_BURST);

/// Number of commands of one queue that are fetched before another one's turn.
pub(crate) fn burst(arbitration: Arbitration) -> u32 {
    match arbitration.ab() {
        NO_LIMIT => BATCH,
        ab => BATCH.min(1 << ab),
    }
}

/// A submission queue, as the arbiter sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) priority: QueuePriority,
    /// Commands that it has, and room for.
    pub(crate) wanted: u32,
    /// A command of it was fetched, and waits for its medium.
    pub(crate) waits: bool,
    /// Number of commands that it may fetch: the result.
    pub(crate) granted: u32,
}

/// The rest of a round, and the next queue of each level.
#[derive(Clone, Debug)]
pub(crate) struct Arbiter {
    burst: u32,
    weights: [u32; LEVELS],
    credits: [u32; LEVELS],
    /// Index in the list of claims at which each level's next turn begins.
    next: [usize; LEVELS],
}

impl Arbiter {
    pub(crate) fn new(arbitration: Arbitration) -> Self {
        let weights = [
            arbitration.hpw_z(),
            arbitration.mpw_z(),
            arbitration.lpw_z(),
        ];
        let weights = weights.map(|weight_z| u32::from(weight_z) + 1);
        Arbiter {
            burst: burst(arbitration),
            weights,
            credits: weights,
            next: [0; LEVELS],
        }
    }

    /// Shares one turn out among `claims`, which are always in the same order.
    pub(crate) fn grant(&mut self, claims: &mut [Claim]) {
        claims.iter_mut().for_each(|claim| claim.granted = 0);
        let urgent = |claim: &&mut Claim| claim.priority == QueuePriority::URGENT;
        let mut is_urgent = false;
        for claim in claims.iter_mut().filter(urgent) {
            is_urgent |= claim.wanted > 0 || claim.waits;
            claim.granted = claim.wanted.min(BATCH);
        }
        if is_urgent {
            return;
        }
        let mut left = BATCH;
        while left > 0 {
            let mut levels = 0..LEVELS;
            let ready = |level: &usize| find(claims, *level, 0).is_some();
            let Some(level) = levels.find(|level| self.credits[*level] > 0 && ready(level)) else {
                if !(0..LEVELS).any(|level| ready(&level)) {
                    return;
                }
                self.credits = self.weights;
                continue;
            };
            let Some(at) = find(claims, level, self.next[level]) else {
                return;
            };
            let claim = &mut claims[at];
            let open = claim.wanted - claim.granted;
            let given = open.min(self.burst).min(self.credits[level]).min(left);
            claim.granted += given;
            self.credits[level] -= given;
            left -= given;
            self.next[level] = at + 1;
        }
    }
}

/// The first queue of a level that wants more, from `start` on and around.
fn find(claims: &[Claim], level: usize, start: usize) -> Option<usize> {
    let priority = [
        QueuePriority::HIGH,
        QueuePriority::MEDIUM,
        QueuePriority::LOW,
    ][level];
    let wants = |at: &usize| {
        let claim = claims[*at];
        claim.priority == priority && claim.granted < claim.wanted
    };
    let start = start.min(claims.len());
    (start..claims.len()).chain(0..start).find(wants)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const URGENT: QueuePriority = QueuePriority::URGENT;
    const HIGH: QueuePriority = QueuePriority::HIGH;
    const MEDIUM: QueuePriority = QueuePriority::MEDIUM;
    const LOW: QueuePriority = QueuePriority::LOW;

    fn arbiter(ab: u8, high: u32, medium: u32, low: u32) -> Arbiter {
        let dword = u32::from(ab) | (low - 1) << 8 | (medium - 1) << 16 | (high - 1) << 24;
        Arbiter::new(dword.into())
    }

    fn claims(wanted: &[(QueuePriority, u32)]) -> Vec<Claim> {
        let claim = |&(priority, wanted): &(QueuePriority, u32)| Claim {
            priority,
            wanted,
            waits: false,
            granted: 77,
        };
        wanted.iter().map(claim).collect()
    }

    /// Commands that each queue gets in `turns` turns in which it always has some.
    fn saturated(arbiter: &mut Arbiter, queues: &[QueuePriority], turns: u32) -> Vec<u32> {
        let wanted: Vec<_> = queues.iter().map(|priority| (*priority, 1000)).collect();
        let mut sums = vec![0; queues.len()];
        for _ in 0..turns {
            let mut claims = claims(&wanted);
            arbiter.grant(&mut claims);
            let turn: u32 = claims.iter().map(|claim| claim.granted).sum();
            assert!((1..=BATCH).contains(&turn));
            for (sum, claim) in sums.iter_mut().zip(&claims) {
                *sum += claim.granted;
            }
        }
        sums
    }

    #[test]
    fn the_burst_is_a_power_of_two_or_no_limit_but_the_batch() {
        let of = |ab| burst(Arbitration::new().with_ab(ab));
        assert_eq!([0, 1, 4, 5, 6, 7].map(of), [1, 2, 16, 32, 32, 32]);
    }

    #[test]
    fn levels_share_by_their_weights() {
        for ab in [0, 2, 7] {
            // 13 commands a round; 13 turns of 32 are 32 rounds.
            let shares = saturated(&mut arbiter(ab, 8, 4, 1), &[LOW, HIGH, MEDIUM], 13);
            assert_eq!(shares, [32, 256, 128]);
            // Weights beyond a turn, over several of them.
            let shares = saturated(&mut arbiter(ab, 256, 128, 128), &[HIGH, MEDIUM, LOW], 16);
            assert_eq!(shares, [256, 128, 128]);
        }
    }

    #[test]
    fn queues_of_a_level_share_what_the_level_gets() {
        let queues = [HIGH, LOW, HIGH, LOW, HIGH];
        // 8 + 2 a round; 15 turns are 48 rounds.
        let shares = saturated(&mut arbiter(0, 8, 1, 2), &queues, 15);
        assert_eq!(shares, [128, 48, 128, 48, 128]);
        // Bursts longer than what is left of the credits.
        let shares = saturated(&mut arbiter(2, 6, 1, 2), &queues, 60);
        assert_eq!(shares.iter().sum::<u32>(), 60 * 32);
        assert_eq!(shares[1] + shares[3], 480);
        assert!(
            shares
                .iter()
                .step_by(2)
                .all(|share| share.abs_diff(480) <= 8)
        );
    }

    #[test]
    fn what_one_level_does_not_want_is_the_others() {
        let mut arbiter = arbiter(7, 200, 10, 1);
        let shares = saturated(&mut arbiter, &[MEDIUM, LOW], 11);
        assert_eq!(shares, [320, 32]);
        let mut few = claims(&[(HIGH, 3), (LOW, 5)]);
        arbiter.grant(&mut few);
        assert_eq!(
            [few[0].granted, few[1].granted],
            [3, 5],
            "no more than it has"
        );
    }

    #[test]
    fn urgent_commands_go_before_all_others() {
        let mut arbiter = arbiter(7, 8, 4, 1);
        let mut some = claims(&[(HIGH, 9), (URGENT, 40), (URGENT, 0), (LOW, 9)]);
        arbiter.grant(&mut some);
        assert_eq!(
            some.iter().map(|c| c.granted).collect::<Vec<_>>(),
            [0, 32, 0, 0]
        );
        let mut waits = claims(&[(HIGH, 9), (URGENT, 0)]);
        waits[1].waits = true;
        arbiter.grant(&mut waits);
        assert_eq!((waits[0].granted, waits[1].granted), (0, 0));
        let mut quiet = claims(&[(HIGH, 9), (URGENT, 0)]);
        // A command of another class that waits for its medium delays no queue.
        quiet[0].waits = true;
        arbiter.grant(&mut quiet);
        assert_eq!((quiet[0].granted, quiet[1].granted), (9, 0));
    }

    proptest! {
        #[test]
        fn a_turn_is_used_as_far_as_there_are_commands(
            ab in 0u8..8,
            weights in (1u32..257, 1u32..257, 1u32..257),
            turns in prop::collection::vec(prop::collection::vec((1u8..4, 0u32..50), 0..9), 1..20),
        ) {
            let mut arbiter = arbiter(ab, weights.0, weights.1, weights.2);
            for turn in turns {
                let wanted: Vec<_> = turn.iter().map(|(p, n)| (QueuePriority(*p), *n)).collect();
                let mut claims = claims(&wanted);
                arbiter.grant(&mut claims);
                let all: u32 = claims.iter().map(|claim| claim.wanted).sum();
                let granted: u32 = claims.iter().map(|claim| claim.granted).sum();
                prop_assert_eq!(granted, all.min(BATCH));
                prop_assert!(claims.iter().all(|claim| claim.granted <= claim.wanted));
            }
        }
    }
}
