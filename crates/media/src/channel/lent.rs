//! The drive model of a medium, and its loan to the one channel that the medium has at a time.

use std::sync::{Arc, PoisonError};

use model::{Model, ParameterError, Parameters, Prepared, Recording};

use crate::zoned::ZonedMedium;

/// The drive model of a medium, if any: for code that opens or changes channels, not for commands.
#[derive(Debug, Default)]
#[expect(clippy::disallowed_types, reason = "no command comes here")]
pub(crate) struct Timing(std::sync::Mutex<Option<Drive>>);

#[derive(Debug)]
struct Drive {
    parameters: Parameters,
    /// `None` while a channel has it.
    model: Option<Model>,
    /// How long before their time commands complete, in nanoseconds.
    early_ns: u64,
}

impl Timing {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Drive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn parameters(&self) -> Option<Parameters> {
        self.lock().as_ref().map(|drive| drive.parameters.clone())
    }

    pub(crate) fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    /// Sets the drive model.
    pub(crate) fn put(&self, parameters: Parameters, model: Model) {
        *self.lock() = Some(Drive {
            parameters,
            model: Some(model),
            early_ns: 0,
        });
    }

    /// Has commands of later channels complete before their time.
    pub(crate) fn release_early(&self, ns: u64) {
        if let Some(drive) = &mut *self.lock() {
            drive.early_ns = ns;
        }
    }

    /// Informs the model, if no channel has it, of the written parts of zones.
    pub(crate) fn tell_zones(&self, zones: &ZonedMedium) {
        let mut drive = self.lock();
        let model = drive.as_mut().and_then(|drive| drive.model.as_mut());
        if let Some(model) = model.and_then(Model::zones_mut) {
            zones.written(|zone, bytes, is_full| model.restore_fill(zone, bytes, is_full));
        }
    }

    /// Sets other parameters of the drive, which the channel that has the model has applied
    /// already.
    pub(crate) fn retune(&self, parameters: Parameters) -> Result<(), ParameterError> {
        if let Some(drive) = &mut *self.lock() {
            if let Some(model) = &mut drive.model {
                model.retune(&parameters)?;
            }
            drive.parameters = parameters;
        }
        Ok(())
    }

    /// Passes the model to `looks`, if no channel has it.
    pub(crate) fn at_rest<T>(&self, looks: impl FnOnce(&Model) -> T) -> Option<T> {
        let drive = self.lock();
        Some(looks(drive.as_ref()?.model.as_ref()?))
    }

    /// The model, if there is one that no channel has.
    pub(crate) fn lend(self: &Arc<Self>) -> Option<Lent> {
        let mut drive = self.lock();
        let drive = drive.as_mut()?;
        let mut model = drive.model.take()?;
        model.release_early(drive.early_ns);
        Some(Lent {
            model: Some(model),
            home: Arc::clone(self),
        })
    }

    /// State of the model, if no channel has it and it has state other than the medium's.
    pub(crate) fn state(&self) -> Option<Vec<u8>> {
        let drive = self.lock();
        let flash = drive.as_ref()?.model.as_ref()?.flash()?;
        let mut bytes = Vec::new();
        flash.save(&mut bytes);
        Some(bytes)
    }

    /// How the drive was preconditioned, if no channel has it and it was.
    pub(crate) fn prepared(&self) -> Option<Prepared> {
        self.lock().as_ref()?.model.as_ref()?.flash()?.prepared()
    }

    pub(crate) fn record(&self, most: usize) {
        if let Some(drive) = &mut *self.lock() {
            drive.model = drive.model.take().map(|model| model.recorded(most));
        }
    }

    pub(crate) fn take_recording(&self) -> Option<Recording> {
        self.lock().as_mut()?.model.as_mut()?.take_recording()
    }

    /// Takes the model back, at rest.
    fn give_back(&self, mut model: Model) {
        if let Some(drive) = &mut *self.lock() {
            // Cannot fail: these parameters created the model.
            let rests = model.rest(&drive.parameters).is_ok();
            drive.model = rests.then_some(model);
        }
    }
}

/// The model of a medium, with the right to its only channel during its lifetime.
#[derive(Debug)]
pub(crate) struct Lent {
    /// Present until the drop.
    model: Option<Model>,
    home: Arc<Timing>,
}

impl std::ops::Deref for Lent {
    type Target = Model;

    fn deref(&self) -> &Model {
        self.model.as_ref().expect("there until the drop")
    }
}

impl std::ops::DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Model {
        self.model.as_mut().expect("there until the drop")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(model) = self.model.take() {
            self.home.give_back(model);
        }
    }
}
