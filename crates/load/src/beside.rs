//! The load beside a job, of the types for which a host's loop is compiled.

use driver::DriverError;
use driver::bus::place::AnyBus;
use driver::workload::beside::{self, Cold, Storm, Submitted};
use driver::workload::{self, Neighbour};
use machine::clock::Clock;

use crate::record::Recorder;

/// The clock of jobs.
#[derive(Clone, Debug)]
pub struct Ticks(pub Clock);

impl workload::Clock for Ticks {
    /// Most turns do not read it, and are faster without its code.
    #[inline(never)]
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
pub struct Beside<'a, 'b> {
    load: &'b mut Load<'a>,
    /// Whether there is any: a turn without costs one look.
    is_loaded: bool,
    recorder: Option<&'b mut Recorder>,
}

impl<'a, 'b> Beside<'a, 'b> {
    /// A load, and the recorder of the job's commands.
    #[must_use]
    pub fn new(load: &'b mut Load<'a>, recorder: Option<&'b mut Recorder>) -> Self {
        let ((cold, storm), also) = &*load;
        Beside {
            is_loaded: cold.is_some() || storm.is_some() || !also.is_empty(),
            load,
            recorder,
        }
    }
}

impl beside::Beside for Beside<'_, '_> {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        if self.is_loaded {
            beside::Beside::turn(self.load, now)
        } else {
            Ok(())
        }
    }

    #[inline]
    fn submitted(&mut self, command: Submitted) {
        beside::Beside::submitted(&mut self.recorder, command);
    }
}
