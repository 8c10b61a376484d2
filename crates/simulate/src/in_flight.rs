//! A constant number of commands in flight on a model, without a controller and its queues: the
//! predictions of a calibration.

use std::collections::VecDeque;

use model::{Admission, Due, Model, Op, Timing};

/// Commands in flight, and how many of them are done.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    /// Flows, each of which stalls by itself.
    pub flows: usize,
    /// Commands in flight, of all flows.
    pub depth: u32,
    /// Time from a completion to the next command.
    pub host_ns: u64,
    /// Commands before those that are counted.
    pub warm: u64,
    /// Commands that are counted.
    pub count: u64,
}

/// The counted commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Time in which they completed.
    pub ns: u64,
    /// Their number: a few more where several complete at the end.
    pub commands: u64,
    /// Time of the end.
    pub end: u64,
}

/// Commands that are submitted in order.
#[derive(Default)]
struct Flow {
    /// Submission times of waiting commands; a command that found no room comes first.
    waiting: VecDeque<u64>,
    held: Option<Op<'static>>,
}

impl InFlight {
    /// Runs the commands of `op`, which makes the next one of a flow, from `start`.
    ///
    /// # Errors
    /// There is no next command, or the drive does nothing any more.
    ///
    /// # Panics
    /// If the model completes a command of another flow.
    pub fn run(
        self,
        model: &mut Model,
        start: u64,
        op: &mut dyn FnMut(usize) -> Result<Op<'static>, String>,
    ) -> Result<Counted, String> {
        let mut flows: Vec<Flow> = (0..self.flows).map(|_| Flow::default()).collect();
        for number in 0..self.depth as usize {
            flows[number % self.flows].waiting.push_back(start);
        }
        let mut done: Vec<Due> = Vec::new();
        let (mut now, mut finished, mut since) = (start, 0, start);
        while finished < self.warm + self.count {
            for (number, flow) in flows.iter_mut().enumerate() {
                while flow.waiting.front().is_some_and(|at| *at <= now) {
                    let op = match flow.held.take() {
                        Some(op) => op,
                        None => op(number)?,
                    };
                    if model.submit(now, number as u64, &op) == Admission::Stall {
                        flow.held = Some(op);
                        break;
                    }
                    flow.waiting.pop_front();
                }
            }
            let arrivals = flows.iter().filter(|flow| flow.held.is_none());
            let arrivals = arrivals.filter_map(|flow| flow.waiting.front().copied());
            let next = arrivals.chain(model.next_event()).min();
            now = next.ok_or("nothing happens any more")?.max(now);
            done.clear();
            model.advance(now, &mut done);
            for due in &done {
                let flow = usize::try_from(due.id).ok();
                let flow = flow.and_then(|flow| flows.get_mut(flow));
                let flow = flow.expect("it was given as an id");
                flow.waiting.push_back(due.at + self.host_ns);
                finished += 1;
                if finished == self.warm {
                    since = due.at;
                }
            }
        }
        Ok(Counted {
            ns: now - since,
            commands: finished - self.warm,
            end: now,
        })
    }
}
