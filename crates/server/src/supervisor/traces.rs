//! Traces of controllers: how they start and stop.

use std::path::PathBuf;
use std::sync::Arc;

use api::config::trace::Trace;
use api::{Condition, Refusal, TraceStatus, What};
use controller::flight::{TraceRings, TraceSpec};
use machine::clock::Clock;

use super::{Served, State, Supervisor, exists};
use crate::events;
use crate::trace::{self, GOING_ON, Reason, Recorder, Start, TRACES};

/// A running trace, or an ended one that was not deleted.
#[derive(Debug)]
pub(super) struct Known {
    /// As requested.
    config: Trace,
    /// Absolute path of its file.
    path: PathBuf,
    started_ns: u64,
    recorder: Recorder,
}

impl Known {
    fn status(&self) -> TraceStatus {
        let progress = self.recorder.progress();
        let (reason, ended_ns) = progress.ended.unzip();
        TraceStatus {
            config: Trace {
                file: self.path.clone(),
                ..self.config.clone()
            },
            state: match reason {
                None => Condition::Recording,
                Some(_) => Condition::Ended,
            },
            reason: reason.map(|reason| reason.to_string()),
            started_ns: self.started_ns,
            ended_ns,
            commands: progress.commands,
            bytes: progress.bytes,
            lost: progress.lost,
        }
    }

    fn goes_on(&self) -> bool {
        self.recorder.progress().ended.is_none()
    }
}

impl Supervisor {
    /// Traces, in the order in which they started.
    pub(crate) fn traces(&self) -> Vec<TraceStatus> {
        self.lock().trace_statuses()
    }

    /// The configuration of a trace, as requested.
    pub(crate) fn trace_config(&self, name: &str) -> Option<Trace> {
        let state = self.lock();
        let found = state.traces.iter().find(|one| one.config.name == name);
        found.map(|one| one.config.clone())
    }

    /// Starts a trace.
    pub(crate) fn create_trace(&self, trace: Trace) -> Result<(), Refusal> {
        self.change(What::Created, ("trace", &trace.name.clone()), |state| {
            state.create_trace(trace)
        })
    }

    /// Stops a trace, if it is running, and deletes it; its file stays.
    pub(crate) fn delete_trace(&self, name: &str) -> Result<(), Refusal> {
        self.change(What::Deleted, ("trace", name), |state| {
            state.delete_trace(name)
        })
    }
}

impl State {
    pub(super) fn trace_statuses(&self) -> Vec<TraceStatus> {
        self.traces.iter().map(Known::status).collect()
    }

    fn create_trace(&mut self, config: Trace) -> Result<(), Refusal> {
        let problems = config.validate();
        if !problems.is_empty() {
            return Err(Refusal::of_problems(&problems));
        }
        if self.traces.iter().any(|one| one.config.name == config.name) {
            return Err(exists("trace", &config.name));
        }
        let served = self.controllers.iter();
        let mut served = served.filter(|served| served.name == config.controller);
        let served = served.next();
        let served = served.ok_or_else(|| Refusal::not_found("controller", &config.controller))?;
        let going_on: Vec<&Known> = self.traces.iter().filter(|one| one.goes_on()).collect();
        let mut of_it = going_on.iter();
        if let Some(other) = of_it.find(|one| one.config.controller == config.controller) {
            return Err(Refusal::conflict(format!(
                "controller `{}` already has a trace: run `nvmirage trace stop {}` first",
                config.controller, other.config.name
            )));
        }
        if going_on.len() >= GOING_ON || self.traces.len() >= TRACES {
            return Err(Refusal::conflict(format!(
                "{} traces exist, and {} are running; the maximum is {TRACES}, of which {GOING_ON} running: end and forget one with `nvmirage trace stop`",
                self.traces.len(),
                going_on.len()
            )));
        }
        let known = self
            .begin_trace(config, served)
            .map_err(|error| Refusal::conflict(api::in_a_line(&error)))?;
        tracing::info!(
            trace = known.config.name,
            controller = known.config.controller,
            "records into {}",
            known.path.display()
        );
        self.traces.push(known);
        Ok(())
    }

    fn begin_trace(&self, config: Trace, served: &Served) -> anyhow::Result<Known> {
        let mut configs = self.config.controller.iter();
        let controller = configs.find(|one| one.name == config.controller);
        let queues = controller.map_or(1, |controller| controller.queues);
        let header = self.trace_header(&config)?;
        let (file, path) = trace::create(&config.file)?;
        let rings = Arc::new(TraceRings::new(queues, trace::ring_entries(queues)));
        let reactor = &self.reactors[served.reactor];
        let name = config.name.clone();
        let (started_ns, slot) = (header.started_unix_ns, served.slot);
        let start = Start {
            file,
            header,
            max_size: config.max_size.0,
            max_time: config.max_time.map(|time| time.0),
            rings: rings.clone(),
            unwatch: reactor.ends_trace(slot),
            ended: Box::new(move || events::tell(What::Changed, "trace", &name)),
        };
        let begun = Recorder::start(start).and_then(|mut recorder| {
            let every = config.sample;
            let told = reactor.trace(slot, Some(TraceSpec { every, rings }));
            match told {
                Ok(()) => Ok(recorder),
                Err(error) => {
                    // A reactor that timed out still reads the start; the end is queued behind it.
                    reactor.ends_trace(slot)();
                    if let Err(error) = recorder.stop(Reason::Stopped) {
                        tracing::error!(trace = config.name, "{error:#}");
                    }
                    Err(error)
                }
            }
        });
        match begun {
            Ok(recorder) => Ok(Known {
                config,
                path,
                started_ns,
                recorder,
            }),
            Err(error) => {
                // this call created the file, and it is empty
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn trace_header(&self, config: &Trace) -> anyhow::Result<trace_file::Header> {
        let namespaces = self.namespaces_now()?.into_iter();
        let its = namespaces.filter(|one| one.controllers.contains(&config.controller));
        let namespaces = its.filter_map(|one| {
            Some(trace_file::Namespace {
                nsid: one.nsid?,
                lba_size: one.config.lba_size,
                blocks: one.blocks,
                name: one.config.name,
            })
        });
        Ok(trace_file::Header {
            controller: config.controller.clone(),
            start_ns: Clock::now_of_process().0,
            started_unix_ns: trace::unix_ns(),
            sample: config.sample,
            writer: concat!("nvmirage ", env!("CARGO_PKG_VERSION")).into(),
            namespaces: namespaces.collect(),
        })
    }

    fn delete_trace(&mut self, name: &str) -> Result<(), Refusal> {
        let at = self.traces.iter().position(|one| one.config.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("trace", name))?;
        self.stop_trace(at)
            .map_err(|error| Refusal::failed(&error))?;
        self.traces.remove(at);
        Ok(())
    }

    /// Stops a trace. Its file then has every command that completed before.
    fn stop_trace(&mut self, at: usize) -> anyhow::Result<()> {
        let known = &self.traces[at];
        if known.goes_on() {
            let mut served = self.controllers.iter();
            let served = served.find(|one| one.name == known.config.controller);
            if let Some(served) = served {
                self.reactors[served.reactor].trace(served.slot, None)?;
            }
            // Lanes on other reactors got the stop by mail: a reactor that answers has read it.
            for reactor in &self.reactors {
                reactor.answer()?;
            }
        }
        self.traces[at].recorder.stop(Reason::Stopped)
    }

    /// Ends the traces of a deleted controller. They stay listed, so that an operator sees the
    /// reason.
    pub(super) fn end_traces_of(&mut self, controller: &str) {
        for known in &mut self.traces {
            if known.config.controller != controller {
                continue;
            }
            let goes_on = known.goes_on();
            if let Err(error) = known.recorder.stop(self.traces_end.clone()) {
                tracing::error!(trace = known.config.name, "{error:#}");
            }
            if goes_on {
                events::tell(What::Changed, "trace", &known.config.name);
            }
        }
    }
}
