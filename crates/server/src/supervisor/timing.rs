//! Timing models of media, and where their state is saved.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use api::{ContinuedTiming, config};
use holder::Holder;
use machine::files::may_be_regular;
use media::Medium;
use model::{Flash, Initial, Method, Parameters, STEADY_SEED};

use super::{OpenMedium, State};
use crate::keep::timing::Place;
use crate::keep::timing::checkpoints::Watched;
use crate::keep::timing::file::StateFile;
use crate::keep::timing::kept::{Checkpoint, Content, Kept};

/// Where a timing model's state is saved, and the interval.
#[derive(Debug)]
pub(super) struct TimingState {
    place: Arc<Mutex<Place>>,
    interval: Option<Duration>,
}

impl TimingState {
    /// Saves the state of a medium whose channels are closed in its file, if it has one.
    pub(super) fn keep(&self, medium: &Medium) -> anyhow::Result<()> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.file.is_none() {
            return Ok(());
        }
        let at = holder::monotonic();
        let state = medium.timing_state();
        let state = state.context("a reactor still has it")?;
        place.write(&state, at)
    }
}

/// The process of the server that may replace this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Succession<'a> {
    /// It has the checkpoints.
    pub(super) holder: &'a Arc<Holder>,
    /// This process continues with the media of the last one.
    pub(super) continues: bool,
}

/// A timing model that is configured.
struct Configured<'a> {
    config: &'a config::Medium,
    timing: &'a config::Timing,
    parameters: Parameters,
}

/// A timing model that has begun.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// Where its state is saved, if it is.
    pub(super) state: Option<TimingState>,
    /// How it continues that of the last process.
    pub(super) continued: Option<ContinuedTiming>,
}

/// Gives a medium its configured timing model, restored from its saved state.
pub(super) fn give(
    config: &config::Medium,
    medium: &mut Arc<Medium>,
    succession: Option<Succession<'_>>,
) -> anyhow::Result<Begun> {
    let Some(timing) = &config.timing else {
        return Ok(Begun::default());
    };
    let parameters = timing.parameters(medium.size());
    let parameters =
        parameters.map_err(|problems| anyhow::anyhow!("timing: {}", problems.join("; ")))?;
    let configured = Configured {
        config,
        timing,
        parameters,
    };
    let succession = succession.filter(|_| timing.has_state());
    let mut kept = succession.map(|it| Kept::new(it.holder, &config.name));
    let longest = Flash::max_state_len(medium.size());
    let is_missing = succession.is_some_and(|it| it.continues);
    let former = match &kept {
        Some(kept) if is_missing => kept.fetch(longest),
        _ => Ok(None),
    };
    let former = match former {
        Ok(None) if !is_missing => {
            let file = configured.begin(medium)?;
            if let Some(kept) = &mut kept {
                let content = match file {
                    Some(_) => Content::InFile,
                    None => Content::Initial,
                };
                kept.keep(&content, holder::monotonic())?;
            }
            return Ok(Begun {
                state: configured.state(file, kept),
                continued: None,
            });
        }
        Ok(None) => Err(anyhow::anyhow!("there is none")),
        Ok(Some(checkpoint)) => Ok(checkpoint),
        Err(error) => Err(error),
    };
    let before = succession.and_then(|it| it.holder.before());
    let ended = before.map_or_else(holder::monotonic, |before| before.ended);
    let (file, is_restored) = configured.restore(medium, former.as_ref().ok())?;
    let age = former.as_ref().ok().map(|it| ended.saturating_sub(it.at));
    let continued = ContinuedTiming {
        media: config.name.clone(),
        checkpoint_age_ms: age.filter(|_| is_restored.is_ok()).map(millis),
        lost: is_restored.is_err(),
    };
    match (&is_restored, age) {
        (Ok(()), Some(age)) => tracing::info!(
            media = config.name,
            "with the time of {}, of a checkpoint {} ms before the last process ended",
            timing.preset,
            age.as_millis()
        ),
        (Ok(()), None) => tracing::warn!(
            media = config.name,
            "with the time of {}, of a checkpoint of unknown age",
            timing.preset
        ),
        (Err(error), _) => {
            let error = former.as_ref().err().unwrap_or(error);
            tracing::warn!(
                media = config.name,
                "the checkpoint of its timing model cannot be used: {error:#}; its data is whole, and the model begins as a new drive"
            );
        }
    }
    let state = configured.state(file, kept);
    if is_restored.is_err()
        && let Some(state) = &state
        && let Err(error) = state.begin_again(medium)
    {
        tracing::error!(
            media = config.name,
            "the state of its timing model cannot be saved: {error:#}"
        );
    }
    Ok(Begun {
        state,
        continued: Some(continued),
    })
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

impl TimingState {
    /// Replaces what could not be used by the state of the new drive.
    fn begin_again(&self, medium: &Medium) -> anyhow::Result<()> {
        self.keep(medium)?;
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *place {
            Place {
                file: None,
                kept: Some(kept),
            } => kept.keep(&Content::Initial, holder::monotonic()),
            _ => Ok(()),
        }
    }
}

impl Configured<'_> {
    fn state(&self, file: Option<StateFile>, kept: Option<Kept>) -> Option<TimingState> {
        let is_saved = file.is_some() || kept.is_some();
        is_saved.then(|| TimingState {
            place: Arc::new(Mutex::new(Place { file, kept })),
            interval: self.timing.state_interval(),
        })
    }

    /// A new drive.
    fn new_drive(&self, medium: &mut Arc<Medium>) -> anyhow::Result<()> {
        let initial = self.timing.initial();
        let initial = initial.map_or(Initial::Fresh, Into::into);
        let parameters = self.parameters.clone();
        Ok(Medium::begin_timing(
            medium,
            parameters,
            initial,
            STEADY_SEED,
        )?)
    }

    /// Continues the model of the last process, or begins with a new drive: why it does so. Only a
    /// drive that is invalid is an error.
    fn restore(
        &self,
        medium: &mut Arc<Medium>,
        former: Option<&Checkpoint>,
    ) -> anyhow::Result<(Option<StateFile>, anyhow::Result<()>)> {
        let path = self.config.timing_state_file(may_be_regular);
        let longest = Flash::max_state_len(medium.size());
        let taken = path.as_ref().map(|path| StateFile::take(path, longest));
        let (file, in_file) = match (taken, path) {
            (None, _) | (_, None) => (None, Ok(None)),
            (Some(Ok((file, found))), _) => (Some(file), Ok(found)),
            (Some(Err(error)), Some(path)) => (Some(StateFile::new(&path)?), Err(error)),
        };
        let content = former.map(Checkpoint::content);
        let restore = |medium: &mut Arc<Medium>, bytes: &[u8]| {
            let parameters = self.parameters.clone();
            Ok(Medium::restore_timing(medium, parameters, bytes)?)
        };
        let restored = match (content, in_file) {
            (Some(Content::State(bytes)), _) => restore(medium, bytes),
            (Some(Content::Initial), _) => {
                self.new_drive(medium)?;
                return Ok((file, Ok(())));
            }
            (Some(Content::InFile) | None, Ok(Some(bytes))) => restore(medium, &bytes),
            (Some(Content::InFile), Ok(None)) => Err(anyhow::anyhow!("its file is gone")),
            (None, Ok(None)) => Err(anyhow::anyhow!("there is none")),
            (Some(Content::InFile) | None, Err(error)) => Err(error),
        };
        if restored.is_err() {
            self.new_drive(medium)?;
        }
        Ok((file, restored))
    }

    /// Begins a model that no process of this server had; its state file, if it has one.
    fn begin(&self, medium: &mut Arc<Medium>) -> anyhow::Result<Option<StateFile>> {
        let (config, timing) = (self.config, self.timing);
        let initial = timing.initial();
        let Some(path) = config.timing_state_file(may_be_regular) else {
            self.new_drive(medium)?;
            let initial = initial.map(|initial| format!(", {}", initial.name()));
            let initial = initial.unwrap_or_default();
            tracing::info!(
                media = config.name,
                "with the time of {}{initial}",
                timing.preset
            );
            return Ok(None);
        };
        let (mut file, found) = StateFile::take(&path, Flash::max_state_len(medium.size()))?;
        let shown = file.path().display().to_string();
        match &found {
            Some(bytes) => Medium::restore_timing(medium, self.parameters.clone(), bytes).with_context(|| {
                format!("timing: cannot load {shown}: remove that file to start with a new drive, or create one in steady state with `nvmirage precondition`")
            })?,
            None => self.new_drive(medium)?,
        }
        // Fails now, and not at the stop, if the file cannot be written.
        if found.is_none() {
            let state = medium.timing_state();
            file.write(&state.context("it has no state")?)?;
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
        Ok(Some(file))
    }
}

impl State {
    /// Saves the state of a medium's timing model periodically while a reactor serves it.
    pub(super) fn watch_state(&self, open: &OpenMedium, reactor: usize) {
        let Some(state) = &open.state else {
            return;
        };
        self.checkpoints.watch(Watched {
            name: open.name.clone(),
            medium: open.medium.clone(),
            place: state.place.clone(),
            interval: state.interval,
            ask: self.reactors[reactor].asks_for_state(open.channel),
        });
    }
}
