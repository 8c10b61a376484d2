//! The load beside a job, of the types for which a host's loop is compiled.

use driver::bus::place::AnyBus;
use driver::workload::beside::{Cold, Storm};
use driver::workload::{self, Neighbour};
use machine::clock::Clock;

use crate::record::Recorder;

/// The clock of jobs.
#[derive(Clone, Debug)]
pub struct Ticks(pub Clock);

impl workload::Clock for Ticks {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.0.now().0
    }
}

/// A cold queue, a storm of doorbells, and further drives.
pub type Load<'a> = (
    (Option<Cold<'a, AnyBus, Ticks>>, Option<Storm<'a, AnyBus>>),
    Vec<Neighbour<'a, AnyBus, Ticks>>,
);

/// All that happens beside a job.
pub type Beside<'a, 'b> = (&'b mut Load<'a>, Option<&'b mut Recorder>);
