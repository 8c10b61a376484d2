//! Migration: the states that a client has a device take, and the bytes of its state.
//!
//! ```text
//! RUNNING <-> STOP <-> STOP_COPY        any -- a failure --> ERROR -- DEVICE_RESET --> RUNNING
//!               ^--> RESUMING
//! ```
//!
//! Every other transition takes the shortest path over these. Only what is offered is accepted: no
//! PRE_COPY and no P2P states, and no transition to ERROR.
//!
//! Invariants:
//! - A transition is complete before its reply. A slow one is bounded (`waiting`), and where it
//!   does not end the device keeps its last state.
//! - A state that cannot be taken leads to ERROR: the device serves nothing until a reset.
//! - This server has the locks of the media ([`Custody`]) in RUNNING and in STOP, unless it began
//!   without; and in no other state. They are released when the media are durable.
//! - It is off without [`super::SessionConfig::custody`]: then no message of it is known.
//!
//! It does NOT replace a controller by one with another's state: [`Migration::take_arrived`] gives
//! the state to who can. Nor does it know what a subsystem has for its controller: who does answers
//! [`Migration::asks_to_leave`].

use std::sync::Arc;

use controller::controller::{MAX_STREAM_LEN, Moved};
use controller::{Controller, controller::MigrateError};
use rustix::io::Errno;
use vfio_user::MAX_DATA_XFER_LEN;
use vfio_user::message::{
    DeviceFeature, DeviceState, FeatureFlags, MigrationData, MigrationFlags, MigrationState,
};

use super::{Answer, Custody};

/// Where a device is in its migration.
#[derive(Debug)]
pub(super) struct Migration {
    state: MigrationState,
    /// The state that the request in progress asks for.
    wanted: MigrationState,
    /// The media; `None` where no migration is offered.
    custody: Option<Arc<dyn Custody>>,
    /// In STOP, on the way to STOP_COPY or RESUMING: how far the release of the media is.
    release: Release,
    /// In STOP_COPY: the device's state, and how much of it was read.
    leaving: (Vec<u8>, usize),
    /// In RESUMING: what was written.
    arriving: Vec<u8>,
    /// A state to be taken by another controller in the place of this one.
    arrived: Option<Box<Moved>>,
}

/// Progress of the release of the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    /// None is in progress.
    No,
    /// To be allowed by who knows what the subsystem has.
    Asked,
    /// The media are being made durable.
    Syncing,
    /// Not possible.
    Failed(Errno),
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next state is reached.
    Done,
    /// It takes turns of the controller.
    Waits,
}

impl Migration {
    pub(super) fn new(custody: Option<Arc<dyn Custody>>) -> Self {
        Self {
            state: MigrationState::RUNNING,
            wanted: MigrationState::RUNNING,
            custody,
            release: Release::No,
            leaving: (Vec::new(), 0),
            arriving: Vec::new(),
            arrived: None,
        }
    }

    /// DEVICE_FEATURE. The head of a reply that is not due yet; otherwise the reply is in `out`.
    pub(super) fn feature(
        &mut self,
        body: &[u8],
        controller: &mut Controller,
        out: &mut Vec<u8>,
    ) -> Result<Option<DeviceFeature>, Errno> {
        let (request, data) = DeviceFeature::parse_with_data(body).map_err(|_| Errno::INVAL)?;
        let DeviceFeature { argsz, flags } = request;
        let (gets, sets, probes) = (
            flags.contains(FeatureFlags::GET),
            flags.contains(FeatureFlags::SET),
            flags.contains(FeatureFlags::PROBE),
        );
        let index = FeatureFlags(flags.index());
        let may_set = match index {
            FeatureFlags::MIGRATION => false,
            FeatureFlags::MIG_DEVICE_STATE => true,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let known = FeatureFlags::GET | FeatureFlags::SET | FeatureFlags::PROBE | index;
        let one = gets != sets || probes && gets;
        if flags.difference(known).0 != 0 || !one || sets && !may_set {
            return Err(Errno::INVAL);
        }
        let len = DeviceFeature::LEN + if probes { 0 } else { DeviceState::LEN };
        if (argsz as usize) < len {
            return Err(Errno::INVAL);
        }
        let reply = DeviceFeature {
            argsz: len as u32,
            flags,
        };
        if sets && !probes {
            let asked = DeviceState::parse(data).map_err(|_| Errno::INVAL)?;
            let set = self.set(asked.state, controller)?;
            reply.encode(out);
            asked.encode(out);
            return Ok(match set {
                Step::Done => None,
                Step::Waits => Some(reply),
            });
        }
        reply.encode(out);
        if gets && !probes {
            match index {
                FeatureFlags::MIGRATION => out.extend(MigrationFlags::STOP_COPY.to_le_bytes()),
                _ => self.value().encode(out),
            }
        }
        Ok(None)
    }

    /// The value of MIG_DEVICE_STATE.
    pub(super) fn value(&self) -> DeviceState {
        DeviceState {
            state: self.state,
            data_fd: 0,
        }
    }

    /// MIG_DATA_READ.
    pub(super) fn read(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<Answer, Errno> {
        let request = MigrationData::parse(body).map_err(|_| Errno::INVAL)?;
        let size = request.size as usize;
        let fits = (request.argsz as usize).checked_sub(MigrationData::LEN) >= Some(size);
        if self.state != MigrationState::STOP_COPY || size > MAX_DATA_XFER_LEN || !fits {
            return Err(Errno::INVAL);
        }
        let (stream, read) = &mut self.leaving;
        let rest = &stream[*read..];
        let data = &rest[..size.min(rest.len())];
        *read += data.len();
        MigrationData {
            argsz: (MigrationData::LEN + data.len()) as u32,
            size: data.len() as u32,
        }
        .encode(out);
        out.extend_from_slice(data);
        Ok(Answer::Reply)
    }

    /// MIG_DATA_WRITE. Data that cannot be a state is rejected as early as that is known.
    pub(super) fn write(
        &mut self,
        body: &[u8],
        controller: &mut Controller,
        out: &mut Vec<u8>,
    ) -> Result<Answer, Errno> {
        let (request, data) = MigrationData::parse_with_data(body).map_err(|_| Errno::INVAL)?;
        if self.state != MigrationState::RESUMING || data.len() > MAX_DATA_XFER_LEN {
            return Err(Errno::INVAL);
        }
        if self.arriving.len() + data.len() > MAX_STREAM_LEN {
            self.fail(controller, &MigrateError::TooLong);
            return Err(Errno::FBIG);
        }
        self.arriving.extend_from_slice(data);
        MigrationData {
            argsz: MigrationData::LEN as u32,
            size: request.size,
        }
        .encode(out);
        Ok(Answer::Reply)
    }

    /// A state that has arrived, for [`Controller::take`] in the place of the present controller.
    pub(super) fn take_arrived(&mut self) -> Option<Moved> {
        self.arrived.take().map(|moved| *moved)
    }

    /// Whether a state has arrived, and no controller has taken it.
    pub(super) fn has_arrived(&self) -> bool {
        self.arrived.is_some()
    }

    /// Whether the controller is to leave, and [`Self::may_leave`] is to say whether it may.
    pub(super) fn asks_to_leave(&self) -> bool {
        self.release == Release::Asked
    }

    /// Whether the subsystem has nothing that would be lost; otherwise the device stays as it is.
    pub(super) fn may_leave(
        &mut self,
        controller: &Controller,
        obstacle: Result<(), MigrateError>,
    ) {
        if self.release != Release::Asked {
            return;
        }
        self.release = match obstacle {
            Ok(()) => {
                if let Some(custody) = &self.custody {
                    custody.begin_sync();
                }
                Release::Syncing
            }
            Err(error) => Release::Failed(refuse(controller, &error)),
        };
    }

    /// The device is being reset: it is as if it had never migrated, and goes on when it is quiet.
    /// Where another server has the media, it cannot be enabled.
    pub(super) fn reset(&mut self, controller: &mut Controller) {
        *self = Self::new(self.custody.take());
        claim(self.custody.as_deref(), controller);
        controller.halt(false);
    }

    fn set(&mut self, wanted: MigrationState, controller: &mut Controller) -> Result<Step, Errno> {
        let known = [
            MigrationState::STOP,
            MigrationState::RUNNING,
            MigrationState::STOP_COPY,
            MigrationState::RESUMING,
        ];
        if !known.contains(&wanted) || self.state == MigrationState::ERROR {
            return Err(Errno::INVAL);
        }
        self.wanted = wanted;
        self.advance(controller)
    }

    /// Goes on to the state that was asked for. The reply is due where that is reached.
    fn advance(&mut self, controller: &mut Controller) -> Result<Step, Errno> {
        while let Some(next) = next(self.state, self.wanted) {
            if self.step(next, controller)? == Step::Waits {
                return Ok(Step::Waits);
            }
            self.state = next;
        }
        Ok(Step::Done)
    }

    /// One transition.
    fn step(&mut self, next: MigrationState, controller: &mut Controller) -> Result<Step, Errno> {
        match (self.state, next) {
            (MigrationState::RUNNING, _) => {
                controller.halt(true);
                if !controller.has_halted() {
                    return Ok(Step::Waits);
                }
            }
            (_, MigrationState::RUNNING) => controller.halt(false),
            (_, MigrationState::STOP_COPY) => {
                if !self.is_here() {
                    return Err(refuse(controller, &MigrateError::Elsewhere));
                }
                self.release = Release::Asked;
                return Ok(Step::Waits);
            }
            (_, MigrationState::RESUMING) => {
                if self.is_here() {
                    self.release = Release::Asked;
                    self.may_leave(controller, Ok(()));
                    return Ok(Step::Waits);
                }
                self.begin_to_resume(controller);
            }
            (MigrationState::STOP_COPY, _) => {
                self.leaving = (Vec::new(), 0);
                self.claim(controller)?;
            }
            (MigrationState::RESUMING, _) => {
                let stream = std::mem::take(&mut self.arriving);
                match self.read_state(&stream, controller) {
                    Ok(moved) => {
                        self.claim(controller)?;
                        self.arrived = Some(Box::new(moved));
                        return Ok(Step::Waits);
                    }
                    Err(error) => {
                        self.fail(controller, &error);
                        return Err(Errno::INVAL);
                    }
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(Step::Done)
    }

    /// A stream, for this controller with its media.
    fn read_state(&self, stream: &[u8], controller: &Controller) -> Result<Moved, MigrateError> {
        let moved = Moved::read(stream, &controller.appearance())?;
        let custody = self.custody.as_ref();
        let same = custody.map_or(Ok(()), |it| it.compare(moved.place()));
        same.map_err(MigrateError::OtherMedia)?;
        Ok(moved)
    }

    fn is_here(&self) -> bool {
        let custody = self.custody.as_ref();
        custody.is_none_or(|custody| custody.is_here())
    }

    /// Another controller is to take the place of this one.
    fn begin_to_resume(&mut self, controller: &mut Controller) {
        self.arriving = Vec::new();
        controller.function_reset();
    }

    /// Takes the locks of the media. Where another server has them, the device is in ERROR.
    fn claim(&mut self, controller: &mut Controller) -> Result<(), Errno> {
        let claimed = self.custody.as_ref().map_or(Ok(()), |it| it.claim());
        if let Err(reason) = claimed {
            self.fail(controller, &MigrateError::Media(reason));
            return Err(Errno::BUSY);
        }
        controller.set_elsewhere(false);
        Ok(())
    }

    /// Gives the locks of the media away, which are durable, and takes the state that was asked
    /// for.
    fn release(&mut self, controller: &mut Controller) -> Result<(), Errno> {
        let resumes = self.wanted == MigrationState::RESUMING;
        if !resumes {
            let place = self.custody.as_ref().map(|it| it.place());
            let stream = controller.give(&place.unwrap_or_default());
            self.leaving = (stream.map_err(|error| refuse(controller, &error))?, 0);
        }
        if let Some(custody) = &self.custody {
            custody.release();
        }
        controller.set_elsewhere(true);
        if resumes {
            self.begin_to_resume(controller);
        }
        self.state = self.wanted;
        Ok(())
    }

    /// Whether the release of the media has ended; `None`: not yet.
    fn poll_release(&mut self, controller: &mut Controller) -> Option<Result<(), Errno>> {
        let synced = match self.release {
            Release::Failed(errno) => Err(errno),
            Release::Syncing => {
                let synced = self
                    .custody
                    .as_ref()
                    .map_or(Some(Ok(())), |it| it.synced())?;
                synced.map_err(|reason| {
                    refuse(controller, &MigrateError::Media(reason));
                    Errno::IO
                })
            }
            Release::No | Release::Asked => return None,
        };
        self.release = Release::No;
        Some(synced.and_then(|()| self.release(controller)))
    }

    /// Whether a request that waits has its reply: none while what it waits for has not come, and
    /// its time is not over.
    pub(super) fn poll(
        &mut self,
        controller: &mut Controller,
        is_late: bool,
    ) -> Option<Result<(), Errno>> {
        let has_come = !self.has_arrived() && controller.has_halted();
        let advanced = match self.state {
            // A state was not taken.
            MigrationState::ERROR => Err(Errno::INVAL),
            MigrationState::RUNNING if has_come => {
                self.state = MigrationState::STOP;
                self.advance(controller)
            }
            MigrationState::RESUMING if has_come => {
                self.state = MigrationState::STOP;
                self.advance(controller)
            }
            MigrationState::RUNNING if is_late => {
                controller.halt(false);
                Err(Errno::TIMEDOUT)
            }
            MigrationState::STOP => match self.poll_release(controller) {
                Some(Ok(())) => self.advance(controller),
                Some(Err(errno)) => Err(errno),
                None if is_late => {
                    self.release = Release::No;
                    refuse(controller, &MigrateError::NotDurable);
                    Err(Errno::TIMEDOUT)
                }
                None => return None,
            },
            _ if is_late => {
                self.arrived = None;
                self.fail(controller, &MigrateError::Busy);
                Err(Errno::TIMEDOUT)
            }
            _ => return None,
        };
        match advanced {
            Ok(Step::Done) => Some(Ok(())),
            Ok(Step::Waits) => None,
            Err(errno) => Some(Err(errno)),
        }
    }

    /// A state was not taken: nothing is served until a reset.
    pub(super) fn fail(&mut self, controller: &mut Controller, error: &MigrateError) {
        refuse(controller, error);
        self.state = MigrationState::ERROR;
        self.arriving = Vec::new();
        self.leaving = (Vec::new(), 0);
        if let Some(custody) = &self.custody {
            custody.release();
        }
        controller.set_elsewhere(true);
        controller.function_reset();
    }
}

/// Takes the locks of the media for a host that begins with the controller, which cannot be enabled
/// where another server has them.
pub(super) fn claim(custody: Option<&dyn Custody>, controller: &mut Controller) {
    let claimed = custody.map_or(Ok(()), Custody::claim);
    controller.set_elsewhere(claimed.is_err());
    if let Err(reason) = claimed {
        let name = &controller.config().name;
        tracing::info!(controller = name, "it waits for its state: {reason}");
    }
}

/// Says why, as the client gets no more than a number.
fn refuse(controller: &Controller, error: &MigrateError) -> Errno {
    let name = &controller.config().name;
    tracing::warn!(controller = name, "cannot migrate: {error}");
    Errno::INVAL
}

/// The next state on the shortest path; `None` at its end.
fn next(from: MigrationState, to: MigrationState) -> Option<MigrationState> {
    if from == to {
        return None;
    }
    // All arcs begin or end in STOP.
    let is_arc = from == MigrationState::STOP || to == MigrationState::STOP;
    Some(if is_arc { to } else { MigrationState::STOP })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_take_the_shortest_path_of_the_specification() {
        const STOP: MigrationState = MigrationState::STOP;
        const RUNNING: MigrationState = MigrationState::RUNNING;
        const STOP_COPY: MigrationState = MigrationState::STOP_COPY;
        const RESUMING: MigrationState = MigrationState::RESUMING;
        let paths: [(MigrationState, MigrationState, &[MigrationState]); 16] = [
            (RUNNING, RUNNING, &[]),
            (RUNNING, STOP, &[STOP]),
            (RUNNING, STOP_COPY, &[STOP, STOP_COPY]),
            (RUNNING, RESUMING, &[STOP, RESUMING]),
            (STOP, STOP, &[]),
            (STOP, RUNNING, &[RUNNING]),
            (STOP, STOP_COPY, &[STOP_COPY]),
            (STOP, RESUMING, &[RESUMING]),
            (STOP_COPY, STOP_COPY, &[]),
            (STOP_COPY, STOP, &[STOP]),
            (STOP_COPY, RUNNING, &[STOP, RUNNING]),
            (STOP_COPY, RESUMING, &[STOP, RESUMING]),
            (RESUMING, RESUMING, &[]),
            (RESUMING, STOP, &[STOP]),
            (RESUMING, RUNNING, &[STOP, RUNNING]),
            (RESUMING, STOP_COPY, &[STOP, STOP_COPY]),
        ];
        for (from, to, path) in paths {
            let mut at = from;
            let mut taken = Vec::new();
            while let Some(state) = next(at, to) {
                taken.push(state);
                at = state;
            }
            assert_eq!(taken, path, "{from:?} to {to:?}");
        }
    }
}
