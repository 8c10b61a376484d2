//! Which stages run at the same time.
//!
//! A stage that uses the whole machine runs alone. The others need one processor each, so two of
//! them run beside each other: one that computes, and one that mostly waits. When no stage that
//! waits is left, two that compute do.
//!
//! Invariants:
//! - of stages whose result may depend on time, one runs at a time;
//! - arithmetic yields its processor to them (a lower priority).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use rustix::process::nice;

use super::Stage;

/// What a stage uses of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uses {
    /// All processors.
    Machine,
    /// One processor, for a result that does not depend on time.
    Arithmetic,
    /// At most one processor, for a result that may depend on time.
    Clock,
}

/// Stages of one kind, which begin one after the other.
type Track<'s> = Vec<&'s Stage>;

/// Lowers the priority of arithmetic beside a stage that may depend on time.
const YIELDING: i32 = 10;

/// Divides stages, in their order, into parts that run one after the other. The tracks of a part
/// run at the same time.
pub(super) fn parts<'s>(stages: &[&'s Stage]) -> Vec<Vec<Track<'s>>> {
    let mut parts = Vec::new();
    for group in stages.chunk_by(|a, b| a.uses != Uses::Machine && b.uses != Uses::Machine) {
        let of = |uses| {
            let mut track = group.to_vec();
            track.retain(|stage| stage.uses == uses);
            track
        };
        let mut tracks = [Uses::Machine, Uses::Clock, Uses::Arithmetic]
            .map(of)
            .to_vec();
        tracks.retain(|track| !track.is_empty());
        parts.push(tracks);
    }
    parts
}

/// The stages of a part that have not begun.
struct Left<'s>(Mutex<Vec<VecDeque<&'s Stage>>>);

impl<'s> Left<'s> {
    fn of(tracks: &[Track<'s>]) -> Self {
        let tracks = tracks.iter().map(|track| track.iter().copied().collect());
        Left(Mutex::new(tracks.collect()))
    }

    /// The next stage of a track; when it has none left, arithmetic of another one.
    fn next(&self, track: usize) -> Option<&'s Stage> {
        let mut tracks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = tracks[track].pop_front() {
            return Some(stage);
        }
        let is_arithmetic = |stage: &&Stage| stage.uses == Uses::Arithmetic;
        let mut others = tracks.iter_mut();
        let other = others.find(|other| other.front().is_some_and(is_arithmetic))?;
        other.pop_front()
    }
}

/// Runs the tracks of a part. Results are those of `run`, one for each stage.
///
/// # Errors
/// The first one of `run`, after the other tracks have ended.
pub(super) fn run<T: Send>(
    tracks: &[Track<'_>],
    run: impl Fn(&Stage) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let left = Left::of(tracks);
    let run_track = |track: usize| -> Result<Vec<T>> {
        let is_arithmetic = |stage: &&Stage| stage.uses == Uses::Arithmetic;
        if tracks.len() > 1 && tracks[track].iter().all(is_arithmetic) {
            // Of this thread, and inherited by the commands that it starts.
            nice(YIELDING)?;
        }
        std::iter::from_fn(|| left.next(track)).map(&run).collect()
    };
    let results: Result<Vec<_>> = thread::scope(|scope| {
        let run_track = &run_track;
        let threads: Vec<_> = (0..tracks.len())
            .map(|track| scope.spawn(move || run_track(track)))
            .collect();
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a stage does not panic"))
            .collect();
        results.into_iter().collect()
    });
    Ok(results?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::counts::Counts;

    const fn stage(name: &'static str, uses: Uses) -> Stage {
        Stage {
            name,
            about: "",
            minutes: 1,
            slow: false,
            uses,
            run: |_| Ok(Counts::ONE),
        }
    }

    const BUILD: Stage = stage("build", Uses::Machine);
    const LINT: Stage = stage("lint", Uses::Machine);
    const SUMS: Stage = stage("sums", Uses::Arithmetic);
    const ROOTS: Stage = stage("roots", Uses::Arithmetic);
    const WEB: Stage = stage("web", Uses::Clock);
    const SOAK: Stage = stage("soak", Uses::Clock);

    fn names(parts: &[Vec<Track<'_>>]) -> Vec<Vec<Vec<&'static str>>> {
        let of_track = |track: &Track<'_>| track.iter().map(|stage| stage.name).collect();
        let of_part = |part: &Vec<Track<'_>>| part.iter().map(of_track).collect();
        parts.iter().map(of_part).collect()
    }

    #[test]
    fn nothing_runs_beside_the_machine_and_one_waits_beside_one_that_computes() {
        let stages = [&LINT, &BUILD, &SUMS, &WEB, &ROOTS, &SOAK, &BUILD, &WEB];
        assert_eq!(
            names(&parts(&stages)),
            [
                vec![vec!["lint"]],
                vec![vec!["build"]],
                vec![vec!["web", "soak"], vec!["sums", "roots"]],
                vec![vec!["build"]],
                vec![vec!["web"]],
            ]
        );
        assert!(parts(&[]).is_empty());
    }

    #[test]
    fn tracks_run_at_the_same_time_and_their_stages_in_order() {
        let (to_web, from_sums) = mpsc::channel();
        let (to_sums, from_web) = mpsc::channel();
        // A receiver is for one thread.
        let receivers = std::sync::Mutex::new([Some(from_sums), Some(from_web)]);
        let take = |at: usize| receivers.lock().unwrap()[at].take().unwrap();
        let bound = Duration::from_secs(30);
        let meet = |stage: &Stage| -> Result<&'static str> {
            match stage.name {
                "web" => {
                    to_sums.send(())?;
                    take(0).recv_timeout(bound)?;
                }
                "sums" => {
                    to_web.send(())?;
                    take(1).recv_timeout(bound)?;
                }
                _ => {}
            }
            Ok(stage.name)
        };
        let tracks = vec![vec![&WEB, &SOAK], vec![&SUMS, &ROOTS]];
        let mut order = run(&tracks, meet).unwrap();
        order.sort_unstable();
        assert_eq!(order, ["roots", "soak", "sums", "web"]);
    }

    #[test]
    fn arithmetic_that_is_left_runs_where_nothing_waits_and_nothing_else_does() {
        let tracks = [vec![&WEB, &SOAK], vec![&SUMS, &ROOTS]];
        let left = Left::of(&tracks);
        let next = |track| left.next(track).map(|stage| stage.name);
        assert_eq!([next(0), next(1)], [Some("web"), Some("sums")]);
        assert_eq!([next(0), next(0)], [Some("soak"), Some("roots")]);
        assert_eq!([next(0), next(1)], [None, None]);
        let left = Left::of(&tracks);
        let arithmetic = [left.next(1), left.next(1), left.next(1)];
        let names = arithmetic.map(|stage| stage.map(|stage| stage.name));
        assert_eq!(names, [Some("sums"), Some("roots"), None]);
    }

    #[test]
    fn an_error_ends_its_track_alone() {
        let ran = std::sync::Mutex::new(Vec::new());
        let fail = |stage: &Stage| -> Result<()> {
            ran.lock().unwrap().push(stage.name);
            anyhow::ensure!(stage.name != "web", "no browser");
            Ok(())
        };
        let tracks = vec![vec![&WEB, &SOAK], vec![&SUMS, &ROOTS]];
        assert!(run(&tracks, fail).is_err());
        let mut ran = ran.into_inner().unwrap();
        ran.sort_unstable();
        assert_eq!(ran, ["roots", "sums", "web"]);
    }
}
