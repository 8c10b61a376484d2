//! Which stages run at the same time.
//!
//! A stage that uses the whole machine runs alone. The others need one processor each, so two of
//! them run beside each other: one that computes, and one that mostly waits.
//!
//! Invariants:
//! - of stages whose result may depend on time, one runs at a time;
//! - arithmetic yields its processor to them (a lower priority).

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

/// Stages of one kind, which run one after the other.
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

/// Runs the tracks of a part. Results are those of `run`, one for each stage.
///
/// # Errors
/// The first one of `run`, after the other tracks have ended.
pub(super) fn run<T: Send>(
    tracks: &[Track<'_>],
    run: impl Fn(&Stage) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let run_track = |track: &Track<'_>| -> Result<Vec<T>> {
        if tracks.len() > 1 && track.iter().all(|stage| stage.uses == Uses::Arithmetic) {
            // Of this thread, and inherited by the commands that it starts.
            nice(YIELDING)?;
        }
        track.iter().map(|stage| run(stage)).collect()
    };
    let results: Result<Vec<_>> = thread::scope(|scope| {
        let threads: Vec<_> = tracks
            .iter()
            .map(|track| scope.spawn(|| run_track(track)))
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
        let order = run(&tracks, meet).unwrap();
        assert_eq!(order, ["web", "soak", "sums", "roots"]);
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
