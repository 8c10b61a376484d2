//! Timing of a medium: setting, changing, saving and restoring it.

use std::sync::Arc;

use model::{
    Geometry, Initial, Model, ParameterError, Parameters, Prepared, Recording, Room, Snapshot,
    StateError,
};

use super::{Medium, MediumSpec};
use crate::channel::{Channel, Kind};
use crate::error::MediumError;

impl Medium {
    /// Like [`Medium::open`], with the timing of the drive that `timing` describes.
    ///
    /// # Errors
    /// Those of [`Medium::open`], and an invalid drive.
    pub fn open_timed(spec: &MediumSpec, timing: &Parameters) -> Result<Arc<Medium>, MediumError> {
        let mut medium = Self::open(spec)?;
        Self::set_timing(&mut medium, timing.clone())?;
        Ok(medium)
    }

    /// Sets the timing of a medium without other owners. A new drive has no written data.
    ///
    /// # Errors
    /// An invalid drive.
    ///
    /// # Panics
    /// The medium has another owner.
    pub fn set_timing(this: &mut Arc<Medium>, timing: Parameters) -> Result<(), MediumError> {
        Self::begin_timing(this, timing, Initial::Fresh, 0)
    }

    /// The same, with a new drive in the state `initial`; `seed` as in [`Model::in_state`].
    ///
    /// # Errors
    /// An invalid drive.
    ///
    /// # Panics
    /// The medium has another owner.
    pub fn begin_timing(
        this: &mut Arc<Medium>,
        timing: Parameters,
        initial: Initial,
        seed: u64,
    ) -> Result<(), MediumError> {
        let model = Model::in_state(&timing, initial, seed)?;
        Self::put_timing(this, timing, model);
        Ok(())
    }

    /// The same, with the drive in the state returned by [`Medium::timing_state`].
    ///
    /// # Errors
    /// An invalid drive, or bytes that are not the state of this drive.
    ///
    /// # Panics
    /// The medium has another owner.
    pub fn restore_timing(
        this: &mut Arc<Medium>,
        timing: Parameters,
        state: &[u8],
    ) -> Result<(), StateError> {
        let model = Model::restore(&timing, state)?;
        Self::put_timing(this, timing, model);
        Ok(())
    }

    fn put_timing(this: &mut Arc<Medium>, timing: Parameters, model: Model) {
        let medium = Arc::get_mut(this).expect("a medium gets its timing before anybody uses it");
        medium.timing.put(timing, model);
        medium.tell_zones();
    }

    /// State of the drive model as bytes: its page mapping and wear. `None` while a channel is
    /// open, and for a drive without state other than that of the medium.
    #[must_use]
    pub fn timing_state(&self) -> Option<Vec<u8>> {
        self.timing.state()
    }

    /// How that drive was preconditioned, if it was. `None` while a channel is open.
    #[must_use]
    pub fn timing_prepared(&self) -> Option<Prepared> {
        self.timing.prepared()
    }

    /// Records the operations submitted to the drive model from the next channel on, up to `most`.
    /// No effect while a channel is open.
    pub fn record(&self, most: usize) {
        self.timing.record(most);
    }

    /// Has commands complete this long before the time of the drive model, from the next channel
    /// on, and not before their bytes have moved. See [`Model::release_early`].
    pub fn release_early(&self, ns: u64) {
        self.timing.release_early(ns);
    }

    /// Takes the recording, after the channel was closed.
    #[must_use]
    pub fn take_recording(&self) -> Option<Recording> {
        self.timing.take_recording()
    }

    /// Memory for a snapshot of the state while a channel is open ([`Channel::begin_snapshot`]);
    /// `None` if there is no state.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn snapshot_room(&self) -> Result<Option<Room>, ParameterError> {
        let Some(Parameters::Flash(flash)) = self.timing.parameters() else {
            return Ok(None);
        };
        Room::new(&Geometry::new(&flash)?).map(Some)
    }

    /// Makes channels opened from now on start with these timing parameters, which an open one has
    /// accepted ([`Channel::retune`]).
    ///
    /// # Errors
    /// The parameters are invalid, or of another shape; then nothing has changed.
    pub fn retune(&self, timing: Parameters) -> Result<(), ParameterError> {
        self.timing.retune(timing)
    }

    /// Whether it has timing, and therefore one channel at a time.
    #[must_use]
    pub fn has_timing(&self) -> bool {
        self.timing.is_there()
    }
}

impl Channel {
    /// Changes the parameters of a medium with timing while it works. Commands in flight keep their
    /// times.
    ///
    /// # Errors
    /// The parameters are invalid, or of another shape; then nothing has changed.
    pub fn retune(&mut self, timing: &Parameters) -> Result<(), ParameterError> {
        match &mut self.kind {
            Kind::Timed(timed) => timed.retune(timing),
            _ => Ok(()),
        }
    }

    /// The timing model; `None` for a medium without timing.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        match &self.kind {
            Kind::Timed(timed) => Some(timed.model()),
            Kind::Null(_) | Kind::Scripted(_) | Kind::Drive(_) | Kind::Ram(_) | Kind::File(_) => {
                None
            }
            Kind::KeyValue(_) | Kind::Zoned(_) | Kind::Vendor(_) => None,
        }
    }

    /// Begins a snapshot of the drive model's current state, a part in each turn; meanwhile
    /// [`port::Channel::next_due`] reports work. No effect except for conventional flash.
    ///
    /// # Panics
    /// The room is for a drive of another shape.
    pub fn begin_snapshot(&mut self, room: Room) {
        if let Kind::Timed(timed) = &mut self.kind {
            timed.begin_snapshot(room);
        }
    }

    /// The snapshot started by [`Channel::begin_snapshot`], once it is complete.
    pub fn take_snapshot(&mut self) -> Option<Snapshot> {
        match &mut self.kind {
            Kind::Timed(timed) => timed.take_snapshot(),
            _ => None,
        }
    }
}
