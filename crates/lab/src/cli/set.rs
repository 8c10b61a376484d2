//! `--set NAME=VALUE`, and the keys of `[media.timing]` that are not parameters of a model.
//!
//! A timing accepts the keys of a configuration. A command that serves no medium has no use for
//! some of them, and rejects these instead of ignoring them.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use api::config::Timing;
use model::Flash;

use super::{UsageError, clone};

/// Whether a command begins with the state of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// `state` names a file that is read.
    Read,
    /// It has no effect.
    Unused,
}

/// Sets each `NAME=VALUE` of `changes`.
///
/// # Errors
/// One is no `NAME=VALUE`, or has no effect in `command`.
pub(super) fn set_all(
    timing: &mut Timing,
    changes: &[String],
    (command, state): (&str, State),
) -> Result<(), UsageError> {
    for change in changes {
        let (name, value) = change.split_once('=').ok_or_else(|| {
            UsageError(format!(
                "--set {change}: write NAME=VALUE, as in read_latency=8us"
            ))
        })?;
        timing.write(name, value).map_err(UsageError)?;
    }
    check(timing, (command, state)).map_err(UsageError)
}

/// Rejects keys that have no effect in `command`.
pub(super) fn check(timing: &Timing, (command, state): (&str, State)) -> Result<(), String> {
    if timing.record.is_some() {
        return Err(format!(
            "record: nvmirage {command} writes no recording: set record under [media.timing] of a configuration, which nvmirage serve writes and nvmirage fidelity --replay reads"
        ));
    }
    if timing.state_interval.is_some() {
        return Err(format!(
            "state_interval: nvmirage {command} saves no state: set it under [media.timing] of a configuration"
        ));
    }
    if timing.initial.is_some() && state == State::Unused {
        return Err(format!(
            "initial: nvmirage {command} does not use the state of a drive: remove it"
        ));
    }
    if timing.state.is_some() && state == State::Unused {
        return Err(format!(
            "state: nvmirage {command} does not use the state of a drive: remove it, or begin a simulation with it: nvmirage simulate --set state=FILE"
        ));
    }
    Ok(())
}

/// Reads the file of a model's state, for a drive of `size` bytes.
///
/// # Errors
/// It cannot be read, a server uses it, or it is longer than any state of such a drive.
pub(super) fn read_state(path: &Path, size: u64) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let mut file = clone::open(path)?;
    let len = file.metadata()?.len();
    let most = Flash::max_state_len(size);
    let beside = clone::beside(path);
    if len > most && beside.exists() {
        bail!("{shown} is a medium: its state is in {}", beside.display());
    }
    ensure!(
        len <= most,
        "{shown} has {len} bytes, and the state of a drive of {size} bytes at most {most}: name the file that nvmirage precondition or a server has written"
    );
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {shown}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_effect_is_refused() {
        let set = |change: &str, state| {
            let mut timing = Timing::of("samsung-970-pro".into());
            let set = set_all(&mut timing, &[change.to_owned()], ("simulate", state));
            set.map_err(|error| error.0)
        };
        for (change, word) in [
            ("record=x.trace", "fidelity --replay"),
            ("state_interval=1s", "saves no state"),
            ("read_latency", "NAME=VALUE"),
        ] {
            let error = set(change, State::Read).unwrap_err();
            assert!(error.contains(word), "{change}: {error}");
        }
        assert_eq!(set("state=a.timing", State::Read), Ok(()));
        let error = set("state=a.timing", State::Unused).unwrap_err();
        assert!(error.contains("--set state=FILE"), "{error}");
        assert_eq!(set("program=1us", State::Unused), Ok(()));
        assert_eq!(set("initial=fresh", State::Read), Ok(()));
        let error = set("initial=fresh", State::Unused).unwrap_err();
        assert!(error.contains("initial"), "{error}");
    }

    #[test]
    fn a_medium_is_not_its_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1.img");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        let read = || format!("{:#}", read_state(&path, 1 << 30).unwrap_err());
        assert!(read().contains("nvmirage precondition"), "{}", read());
        std::fs::write(dir.path().join("vm1.img.timing"), b"x").unwrap();
        assert!(read().contains("vm1.img.timing"), "{}", read());
        let state = dir.path().join("vm1.img.timing");
        assert_eq!(read_state(&state, 1 << 30).unwrap(), b"x");
        let missing = read_state(&dir.path().join("none"), 1 << 30).unwrap_err();
        assert!(missing.to_string().contains("cannot open"), "{missing}");
    }
}
