//! Runs programs on a controller and on its model, and compares.

mod admin;
mod io;
mod learn;

use crate::TRANSFER_MAX;
use crate::host::{Failure, Host, Layout};
use crate::model::{Model, Verdict};
use crate::program::{Admin, Blocks, Fault, Io, Step};
use crate::wire::{Command, Completion};

/// Data from the start of a page, by PRPs.
const PLAIN: Layout = Layout::Prp {
    offset: 0,
    list_at: 0,
};
/// A controller and its model.
pub struct Machine {
    host: Host,
    model: Model,
}

/// Runs a program, and reads everything back in the end.
///
/// # Errors
/// The step, and what is not as the model says.
pub fn run(program: &[Step]) -> Result<(), Failure> {
    let mut machine = Machine::new()?;
    for (number, step) in program.iter().enumerate() {
        machine
            .step(step)
            .map_err(|failure| format!("step {number}, {step:?}: {failure}"))?;
    }
    machine
        .finish()
        .map_err(|failure| format!("after the last step: {failure}"))
}

impl Machine {
    /// A drive as it comes, enabled, with queues.
    ///
    /// # Errors
    /// It does not do what any drive does.
    pub fn new() -> Result<Self, Failure> {
        let mut host = Host::new()?;
        let facts = learn::learn(&mut host)?;
        let mut machine = Machine {
            host,
            model: Model::new(facts),
        };
        machine.set_up(None)?;
        Ok(machine)
    }

    /// Queues as a program finds them: two that share a completion queue, one of them of two
    /// entries, and one with its own. Where fewer were allocated, some are refused.
    fn set_up(&mut self, queues: Option<(u16, u16)>) -> Result<(), Failure> {
        if let Some((sqs_z, cqs_z)) = queues {
            self.admin(&Admin::SetFeature {
                fid: 0x07,
                save: false,
                nsid: 0,
                value: u32::from(cqs_z) << 16 | u32::from(sqs_z),
            })?;
        }
        for (qid, size_z) in [(1, 15), (2, 3)] {
            self.admin(&Admin::CreateCq {
                qid,
                size_z,
                contiguous: true,
                vector: qid,
                misaligned: false,
            })?;
        }
        for (qid, size_z, cqid) in [(1, 7, 1), (2, 1, 1), (3, 31, 2)] {
            self.admin(&Admin::CreateSq {
                qid,
                size_z,
                contiguous: true,
                cqid,
                misaligned: false,
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Admin(admin) => self.admin(admin),
            Step::Io { queue, io } => match self.queue(*queue) {
                Some(sqid) => self.io(sqid, io),
                None => Ok(()),
            },
            Step::Burst {
                queue,
                nsid,
                writes,
            } => match self.queue(*queue) {
                Some(sqid) => self.burst(sqid, *nsid, writes),
                None => Ok(()),
            },
            Step::Reset { function, queues } => {
                self.host.reset(*function)?;
                self.model.reset();
                self.set_up(*queues)
            }
        }
    }

    fn queue(&self, queue: usize) -> Option<u16> {
        let there = self.model.sqs.len();
        self.model
            .sqs
            .keys()
            .nth(queue.checked_rem(there)?)
            .copied()
    }

    /// Everything that the namespaces hold, over a reset.
    fn finish(&mut self) -> Result<(), Failure> {
        self.step(&Step::Reset {
            function: false,
            queues: None,
        })?;
        for (nsid, namespace) in self.model.namespaces.clone() {
            let most = TRANSFER_MAX >> namespace.shift;
            let mut slba = 0;
            while slba < namespace.blocks() {
                let left = (namespace.blocks() - slba).min(most.into()) as u32;
                let is_marked = namespace.is_marked(slba, left);
                let blocks = Blocks {
                    nsid,
                    slba,
                    count: if is_marked { 1 } else { left },
                };
                let read = Io::Read(blocks, false, PLAIN, Fault::None);
                let failed = |failure| format!("{blocks:?}: {failure}");
                self.io(3, &read).map_err(failed)?;
                slba += u64::from(blocks.count);
            }
        }
        Ok(())
    }

    /// Compares the data that a success transferred.
    fn compare_data(&self, verdict: &Verdict, layout: &Layout, len: usize) -> Result<(), Failure> {
        let found = self.host.take_data(layout, len);
        for (at, wanted) in &verdict.data {
            let end = (at + wanted.len()).min(len);
            let wanted = &wanted[..end - at];
            if let Some(n) = (0..wanted.len()).find(|n| found[at + n] != wanted[*n]) {
                let byte = at + n;
                return Err(format!(
                    "byte {byte} of its data is {:#04x}, and must be {:#04x}",
                    found[byte], wanted[n]
                ));
            }
        }
        if self.host.is_rest_spoiled(layout, len) {
            Ok(())
        } else {
            Err("memory beside its data was written".into())
        }
    }
}

fn bare(opcode: u8, nsid: u32) -> Command {
    Command {
        opcode,
        nsid,
        ..Command::default()
    }
}

fn nothing(others: &[Completion]) -> Result<(), Failure> {
    match others {
        [] => Ok(()),
        others => Err(format!("{others:?} came beside it")),
    }
}
