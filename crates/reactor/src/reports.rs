//! Reports of drives, passed on to the controllers with namespaces on them.
//!
//! A drive's supervisor sends reports to its channels. This module passes them to the controllers
//! on the same reactor. A new controller gets the latest reports.

use std::sync::Arc;

use ::port::{ChannelId, DriveReport};
use engine::Engine;

use super::hosted::Hosted;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// Reports that controllers have.
    told: Vec<(ChannelId, Arc<DriveReport>)>,
    /// There is a controller without reports.
    is_new: bool,
}

impl Reports {
    /// Has the next call of [`Self::carry`] send all reports to a new controller.
    pub(crate) fn repeat(&mut self) {
        self.is_new = true;
    }

    /// Sends new reports to controllers.
    pub(crate) fn carry(&mut self, engine: &mut Engine<media::Channel>, hosted: &[Option<Hosted>]) {
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
