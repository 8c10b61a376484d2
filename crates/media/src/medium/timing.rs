//! The time of a drive that a medium may have: how it is given, changed, saved and taken up again.

use std::sync::Arc;

use model::{
    Geometry, Model, ParameterError, Parameters, Prepared, Recording, Room, Snapshot, StateError,
};

use super::{Medium, MediumSpec};
use crate::channel::{Channel, Kind};
use crate::error::MediumError;

impl Medium {
    /// As [`Medium::open`], with the time of the drive that `timing` describes.
    ///
    /// # Errors
    /// Those of [`Medium::open`], and of a drive that cannot be.
    pub fn open_timed(spec: &MediumSpec, timing: &Parameters) -> Result<Arc<Medium>, MediumError> {
        let mut medium = Self::open(spec)?;
        Self::set_timing(&mut medium, timing.clone())?;
        Ok(medium)
    }

    /// Gives a medium that nobody else has the time of a drive.
    ///
    /// # Errors
    /// A drive that cannot be.
    ///
    /// # Panics
    /// Where somebody else has it.
    pub fn set_timing(this: &mut Arc<Medium>, timing: Parameters) -> Result<(), MediumError> {
        let model = Model::new(&timing)?;
        Self::put_timing(this, timing, model);
        Ok(())
    }

    /// The same, with the drive in the state that [`Medium::timing_state`] gave.
    ///
    /// # Errors
    /// A drive that cannot be, and bytes that are not the state of this one.
    ///
    /// # Panics
    /// Where somebody else has it.
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

    /// What the drive whose time it has is like, as bytes: how its pages lie and how worn it is.
    /// `None` while a channel is open, and where a drive has no state beside that of the medium.
    #[must_use]
    pub fn timing_state(&self) -> Option<Vec<u8>> {
        self.timing.state()
    }

    /// How that drive was prepared, where it was. `None` while a channel is open.
    #[must_use]
    pub fn timing_prepared(&self) -> Option<Prepared> {
        self.timing.prepared()
    }

    /// Records what the drive whose time it has is told, from the next channel on: so many
    /// operations at most. Nothing happens where a channel is open.
    pub fn record(&self, most: usize) {
        self.timing.record(most);
    }

    /// Takes what was recorded, once the channel is closed.
    #[must_use]
    pub fn take_recording(&self) -> Option<Recording> {
        self.timing.take_recording()
    }

    /// Memory for a snapshot of that while a channel is open ([`Channel::begin_snapshot`]); `None`
    /// where there is nothing to take.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn snapshot_room(&self) -> Result<Option<Room>, ParameterError> {
        let Some(Parameters::Flash(flash)) = self.timing.parameters() else {
            return Ok(None);
        };
        Room::new(&Geometry::new(&flash)?).map(Some)
    }

    /// Has channels that are opened from now on begin with these parameters of its timing, which
    /// one that is open has taken ([`Channel::retune`]).
    ///
    /// # Errors
    /// Those that make no drive, or one of another shape; then nothing has changed.
    pub fn retune(&self, timing: Parameters) -> Result<(), ParameterError> {
        self.timing.retune(timing)
    }

    /// Whether it has the time of a drive: then there is one channel of it at a time.
    #[must_use]
    pub fn has_timing(&self) -> bool {
        self.timing.is_there()
    }
}

impl Channel {
    /// Gives a medium with timing other parameters while it works. What is under way keeps its
    /// time.
    ///
    /// # Errors
    /// Those that make no drive, or one of another shape; then nothing has changed.
    pub fn retune(&mut self, timing: &Parameters) -> Result<(), ParameterError> {
        match &mut self.0 {
            Kind::Timed(timed) => timed.retune(timing),
            _ => Ok(()),
        }
    }

    /// The model that says when commands are done, of a medium with timing.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        match &self.0 {
            Kind::Timed(timed) => Some(timed.model()),
            Kind::Null(_) | Kind::Told(_) | Kind::Drive(_) | Kind::Ram(_) | Kind::File(_) => None,
            Kind::KeyValue(_) | Kind::Zoned(_) => None,
        }
    }

    /// Begins to take the state of the drive whose time the medium has, as it is now, a part in
    /// each turn: [`Port::next_due`] says that there is something to do meanwhile. Nothing happens
    /// where that is no conventional flash.
    ///
    /// # Panics
    /// The room is for a drive of another shape.
    pub fn begin_snapshot(&mut self, room: Room) {
        if let Kind::Timed(timed) = &mut self.0 {
            timed.begin_snapshot(room);
        }
    }

    /// The state that [`Channel::begin_snapshot`] began to take, once it is whole.
    pub fn take_snapshot(&mut self) -> Option<Snapshot> {
        match &mut self.0 {
            Kind::Timed(timed) => timed.take_snapshot(),
            _ => None,
        }
    }
}
