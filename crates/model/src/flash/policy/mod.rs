//! Choice of the line to collect. Another policy requires one file here, a variant of
//! [`CollectionPolicy`] and a line in [`policy`].

mod cost_benefit;
mod fifo;
mod greedy;

use super::lines::Lines;
use crate::parameters::CollectionPolicy;

/// Chooses the line to collect.
pub trait Policy: std::fmt::Debug + Send {
    /// A full line with an invalid page; `None` if there is none.
    fn victim(&mut self, lines: &Lines) -> Option<u32>;
}

/// The policy of that name.
pub(super) fn policy(named: CollectionPolicy) -> Box<dyn Policy> {
    match named {
        CollectionPolicy::Greedy => Box::new(greedy::Greedy),
        CollectionPolicy::CostBenefit => Box::new(cost_benefit::CostBenefit),
        CollectionPolicy::Fifo => Box::new(fifo::Fifo),
    }
}
