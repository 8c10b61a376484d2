//! Timing models of media, and the files of their state.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use api::config;
use machine::files::may_be_regular;
use media::Medium;
use model::{Flash, Method};

use super::{OpenMedium, State};
use crate::keep::timing::checkpoints::Watched;
use crate::keep::timing::file::StateFile;

/// File of a timing model's state, and the interval at which it is saved.
#[derive(Debug)]
pub(super) struct TimingState {
    file: Arc<Mutex<StateFile>>,
    interval: Option<Duration>,
}

impl TimingState {
    /// Saves the state of a medium whose channels are closed.
    pub(super) fn keep(&self, medium: &Medium) -> anyhow::Result<()> {
        let state = medium.timing_state();
        let state = state.context("a reactor still has it")?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write(&state)
    }
}

/// Gives a medium its configured timing model, restored from its saved state.
pub(super) fn give(
    config: &config::Medium,
    medium: &mut Arc<Medium>,
) -> anyhow::Result<Option<TimingState>> {
    let Some(timing) = &config.timing else {
        return Ok(None);
    };
    let parameters = timing.parameters(medium.size());
    let parameters =
        parameters.map_err(|problems| anyhow::anyhow!("timing: {}", problems.join("; ")))?;
    let initial = timing.initial();
    let new = |medium: &mut Arc<Medium>, parameters| {
        let initial = initial.map_or(model::Initial::Fresh, Into::into);
        Medium::begin_timing(medium, parameters, initial, model::STEADY_SEED)
    };
    let Some(path) = config.timing_state_file(may_be_regular) else {
        new(medium, parameters)?;
        let initial = initial.map(|initial| format!(", {}", initial.name()));
        let initial = initial.unwrap_or_default();
        tracing::info!(
            media = config.name,
            "with the time of {}{initial}",
            timing.preset
        );
        return Ok(None);
    };
    let (file, found) = StateFile::take(&path, Flash::max_state_len(medium.size()))?;
    let shown = file.path().display().to_string();
    match &found {
        Some(bytes) => Medium::restore_timing(medium, parameters, bytes).with_context(|| {
            format!("timing: cannot load {shown}: remove that file to start with a new drive, or create one in steady state with `nvmirage precondition`")
        })?,
        None => new(medium, parameters)?,
    }
    let state = TimingState {
        file: Arc::new(Mutex::new(file)),
        interval: timing.state_interval(),
    };
    // Fails now, and not at the stop, if the file cannot be written.
    if found.is_none() {
        state.keep(medium)?;
    }
    let how = match medium.timing_prepared().map(|prepared| prepared.method) {
        None => "",
        Some(Method::Played) => ", prepared",
        Some(Method::Seeded) => ", prepared by seeding",
    };
    let found = match initial {
        Some(initial) if found.is_none() => format!("{}, kept in", initial.name()),
        _ => "as it was left in".to_owned(),
    };
    tracing::info!(
        media = config.name,
        "with the time of {}, {found} {shown}{how}",
        timing.preset,
    );
    Ok(Some(state))
}

impl State {
    /// Saves the state of a medium's timing model periodically while a reactor serves it.
    pub(super) fn watch_state(&self, open: &OpenMedium, reactor: usize) {
        let Some((state, interval)) = open.state.as_ref().and_then(|s| Some((s, s.interval?)))
        else {
            return;
        };
        self.checkpoints.watch(Watched {
            name: open.name.clone(),
            medium: open.medium.clone(),
            file: state.file.clone(),
            interval,
            ask: self.reactors[reactor].asks_for_state(open.channel),
        });
    }
}
