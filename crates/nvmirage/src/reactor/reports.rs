//! What drives say of themselves, carried to the controllers that have namespaces on them.
//!
//! A drive's keeper tells its channels; controllers hear of it here, on the reactor that both live
//! on. A controller that comes later is told what there is.

use std::sync::Arc;

use ::port::{ChannelId, DriveReport};
use engine::Engine;

use super::hosted::Hosted;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// What controllers have been told.
    told: Vec<(ChannelId, Arc<DriveReport>)>,
    /// There is a controller that knows nothing.
    is_new: bool,
}

impl Reports {
    /// A controller has come, and is to be told what there is.
    pub(super) fn repeat(&mut self) {
        self.is_new = true;
    }

    /// Tells controllers what is new.
    pub(super) fn carry(&mut self, engine: &mut Engine<media::Channel>, hosted: &[Option<Hosted>]) {
        let mut told = self.told.iter();
        let mut is_known = !self.is_new;
        for (id, channel) in engine.channels_mut().iter() {
            if let Some(report) = channel.report() {
                let known = told.next();
                is_known &= known.is_some_and(|(at, of)| *at == id && Arc::ptr_eq(of, report));
            }
        }
        if !is_known || told.next().is_some() {
            self.tell(engine, hosted);
        }
    }

    #[cold]
    fn tell(&mut self, engine: &mut Engine<media::Channel>, hosted: &[Option<Hosted>]) {
        self.is_new = false;
        let channels = engine.channels_mut().iter();
        let now = channels.filter_map(|(id, channel)| Some((id, channel.report()?.clone())));
        let now: Vec<_> = now.collect();
        let is_there = |id: ChannelId| now.iter().any(|(there, _)| *there == id);
        for hosted in hosted.iter().flatten() {
            let Some(controller) = engine.controller_mut(hosted.slot()) else {
                continue;
            };
            for (id, _) in self.told.iter().filter(|(id, _)| !is_there(*id)) {
                controller.drive_reported(*id, None);
            }
            for (id, report) in &now {
                controller.drive_reported(*id, Some(report));
            }
        }
        self.told = now;
    }
}
