//! Another program takes the place of this process, with the hosts that are attached.

use std::path::Path;
use std::time::{Duration, Instant};

use api::{EndedProcess, ProcessStatus, Refusal, UpgradeRequest, Upgrading, What};
use holder::Holder;
use reactor::handle::ReactorHandle;

use super::{State, Supervisor};
use crate::events;

/// How long commands in flight may take; the other program executes again what takes longer.
const DRAIN: Duration = Duration::from_secs(2);
/// Pause between two looks at them, or at connections.
const PAUSE: Duration = Duration::from_micros(500);
/// How long hosts over NVMe/TCP may take to close their connections.
const PARTING: Duration = Duration::from_secs(1);
/// How long the states of timing models may take to be saved; the holder waits for 10 s in all.
const SAVE: Duration = Duration::from_secs(5);
/// How long the reply to the request may take to be sent.
const REPLY: Duration = Duration::from_millis(100);

/// Version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Supervisor {
    /// This process, and the one before it.
    pub(crate) fn process(&self) -> ProcessStatus {
        self.lock().process()
    }

    /// Lets copies go on that a former process had in flight.
    pub(crate) fn release_copies(&self) -> anyhow::Result<()> {
        let state = self.lock();
        let mut reactors = state.reactors.iter();
        reactors.try_for_each(ReactorHandle::release_copies)
    }

    /// Lets hosts of a former process continue.
    pub(crate) fn release(&self) -> anyhow::Result<()> {
        let mut state = self.lock();
        state.reactors.iter().try_for_each(ReactorHandle::release)?;
        let Some(mut ended) = state.holder.as_ref().and_then(|holder| ended(holder)) else {
            return Ok(());
        };
        if let Some(before) = &mut state.before {
            ended.timing = std::mem::take(&mut before.timing);
        }
        for reactor in &state.reactors {
            for (_, counted) in reactor.counts()? {
                for queue in counted.queues {
                    ended.replayed += queue.replayed;
                    ended.interrupted += queue.interrupted;
                }
            }
        }
        tracing::info!(
            "{} commands of the last process are executed again, {} ended as interrupted",
            ended.replayed,
            ended.interrupted
        );
        let process = state.process();
        state.before = Some(ended.clone());
        events::tell_cause(
            What::ProcessReplaced,
            "process",
            &process.generation.to_string(),
            &ended.cause,
        );
        Ok(())
    }

    /// Takes over the block devices of a former process. The holder knows that this one serves: it
    /// does not replace it by the program before.
    pub(crate) fn take_over_block_devices(&self) {
        self.lock().resume_block_devices();
    }

    /// Has another program wait to take the place of this process, and the queues fetch no more.
    /// When this returns, no command is in flight: [`Self::hand_over`] follows.
    pub(crate) fn prepare_upgrade(&self, request: &UpgradeRequest) -> Result<Upgrading, Refusal> {
        let _turn = self.steer();
        let holder = self.lock().holder.clone().ok_or_else(|| {
            Refusal::conflict(
                "the server ends with its process: start it with `nvmirage serve --survive`",
            )
        })?;
        let program = Path::new(&request.program);
        if !program.is_absolute() {
            return Err(Refusal::invalid(format!(
                "program: \"{}\" is not absolute: write the whole path",
                program.display()
            )));
        }
        let prepared = holder.upgrade(program);
        let version = prepared.map_err(|error| Refusal::conflict(error.to_string()))?;
        // Not with the queues paused: guests are not to wait for hosts over a network.
        let parted = self.part();
        // The queues of block devices complete what they have, so that they are not paused, either.
        let not_quiesced = self.quiesce_block_devices();
        let state = self.lock();
        let quiet = parted.and_then(|()| quieten(&state.reactors));
        if let Err(error) = quiet {
            // The first error is the one to report.
            let _ = set_paused(&state.reactors, false);
            state.resume_block_devices();
            return Err(Refusal::failed(&error));
        }
        Ok(Upgrading {
            pid: std::process::id(),
            version,
            not_quiesced,
        })
    }

    /// Ends the connections of hosts over NVMe/TCP, which do not outlive this process, and waits
    /// until the hosts have closed them; the supervisor is not locked meanwhile. One that is reset
    /// is a SIGPIPE for a program of a Linux host. No host is accepted any more.
    fn part(&self) -> anyhow::Result<()> {
        let disconnect = ReactorHandle::disconnect_all;
        self.lock().reactors.iter().try_for_each(disconnect)?;
        let until = Instant::now() + PARTING;
        while !has_parted(&self.lock().reactors)? && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Lets the other program take over, which ends this process. Where it does not, this one goes
    /// on.
    pub(crate) fn hand_over(&self) {
        std::thread::sleep(REPLY);
        let state = self.lock();
        let Some(holder) = state.holder.clone() else {
            return;
        };
        // No command changes them any more.
        state.checkpoints.save_all(SAVE);
        state.log_block_devices();
        drop(state);
        let Err(error) = holder.hand_over() else {
            return;
        };
        tracing::error!("the other program does not take over: {error}");
        let state = self.lock();
        if let Err(error) = set_paused(&state.reactors, false) {
            tracing::error!("{error:#}");
        }
        state.resume_block_devices();
    }
}

/// The process before this one, and the pause up to now.
pub(super) fn ended(holder: &Holder) -> Option<EndedProcess> {
    let before = holder.before()?;
    let pause = holder::monotonic().saturating_sub(before.ended);
    Some(EndedProcess {
        cause: before.cause.clone(),
        pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        ..EndedProcess::default()
    })
}

impl State {
    pub(super) fn process(&self) -> ProcessStatus {
        let holder = self.holder.as_ref();
        ProcessStatus {
            pid: std::process::id(),
            version: VERSION.to_owned(),
            survives: holder.is_some(),
            generation: holder.map_or(1, |holder| holder.generation()),
            before: self.before.clone(),
        }
    }
}

fn has_parted(reactors: &[ReactorHandle]) -> anyhow::Result<bool> {
    for reactor in reactors {
        if !reactor.has_parted()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Has all queues fetch no more, and waits for what is in flight.
fn quieten(reactors: &[ReactorHandle]) -> anyhow::Result<()> {
    set_paused(reactors, true)?;
    let until = Instant::now() + DRAIN;
    while !is_drained(reactors)? && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn set_paused(reactors: &[ReactorHandle], paused: bool) -> anyhow::Result<()> {
    reactors.iter().try_for_each(|it| it.set_paused(paused))
}

fn is_drained(reactors: &[ReactorHandle]) -> anyhow::Result<bool> {
    for reactor in reactors {
        if !reactor.is_drained()? {
            return Ok(false);
        }
    }
    Ok(true)
}
