//! Node.js and npm, which the dashboard is built with: what the program's build script and
//! `cargo xtask` both do with them. It is a module of each.
//!
//! A build that wants the packages that npm installs holds a lock from before it looks whether they
//! are there until it no longer needs them, as `npm ci` begins with removing those that are there.
//! Every wait has a bound.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

/// Which Node.js will do, as Vite asks for these.
pub(crate) const NODE: &str = "Node.js 20.19, 22.12 or newer";
/// How long npm or Vite may take.
pub(crate) const BOUND: Duration = Duration::from_secs(240);
/// How long a lock is waited for: the process that holds it runs both at most.
pub(crate) const LOCK_BOUND: Duration = Duration::from_secs(2 * BOUND.as_secs() + 60);
/// How long npm waits for one answer.
const FETCH_MS: u32 = 20_000;
/// In `web`: the lock of what npm installs. It is outside of that, as npm removes all of it.
pub(crate) const LOCK: &str = ".lock";
/// In `node_modules`: the list of versions that it was made from.
const STAMP: &str = ".nvmirage-lock.json";
/// How often what is waited for is looked at.
const TURN: Duration = Duration::from_millis(20);

/// Whether there is a Node.js that will do.
///
/// # Errors
/// It says what there is, and what to install.
pub(crate) fn check_node() -> io::Result<()> {
    let output = Command::new("node").arg("--version").output();
    let output = output.map_err(|error| {
        io::Error::other(format!(
            "Node.js cannot be run ({error}): install {NODE}, with npm"
        ))
    })?;
    check_version(&String::from_utf8_lossy(&output.stdout))
}

/// The same of the version that Node.js reports: `v20.19.2`.
fn check_version(said: &str) -> io::Result<()> {
    let mut numbers = said.trim().trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let (Some(major), Some(minor)) = (number(), number()) else {
        return Err(io::Error::other(format!(
            "Node.js says that it is {said:?}, which is no version: install {NODE}"
        )));
    };
    let will_do = match major {
        20 => minor >= 19,
        22 => minor >= 12,
        _ => major > 22,
    };
    if will_do {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "Node.js {major}.{minor} does not do for the dashboard: install {NODE}"
        )))
    }
}

/// Takes a lock that other builds at the same take, too; it is held for as long as what is
/// returned.
///
/// # Errors
/// It cannot be had, or not in this time.
pub(crate) fn lock(path: &Path, bound: Duration) -> io::Result<File> {
    let shown = path.display();
    let said = |error: io::Error| io::Error::other(format!("{shown}: {error}"));
    let mut options = File::options();
    let file = options.create(true).append(true).open(path).map_err(said)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < bound => thread::sleep(TURN),
            Err(TryLockError::WouldBlock) => {
                let bound = bound.as_secs();
                return Err(io::Error::other(format!(
                    "another build has had {shown} for more than {bound} s: is it still at work?"
                )));
            }
            Err(TryLockError::Error(error)) => return Err(said(error)),
        }
    }
}

/// Whether what the list of versions names is installed.
///
/// # Errors
/// The list cannot be read.
pub(crate) fn is_installed(web: &Path) -> io::Result<bool> {
    let versions = fs::read(web.join("package-lock.json"))?;
    let stamp = web.join("node_modules").join(STAMP);
    Ok(fs::read(stamp).is_ok_and(|installed| installed == versions))
}

/// Has npm install what the list of versions names; the caller holds the lock. A fetch that fails
/// is tried so often again. The output of npm goes to `log`.
///
/// # Errors
/// It fails, or times out.
pub(crate) fn install(web: &Path, retries: u32, log: &Path) -> io::Result<()> {
    let versions = fs::read(web.join("package-lock.json"))?;
    let mut npm = Command::new("npm");
    let offline = is_offline(env::var("CARGO_NET_OFFLINE").ok().as_deref());
    npm.args(arguments(offline, retries)).current_dir(web);
    let ran = run(&mut npm, "npm", BOUND, log);
    ran.map_err(|error| {
        if offline {
            io::Error::other(format!(
                "{error}; it was to ask no network (CARGO_NET_OFFLINE)"
            ))
        } else {
            error
        }
    })?;
    fs::write(web.join("node_modules").join(STAMP), versions)
}

fn arguments(offline: bool, retries: u32) -> Vec<String> {
    let source = if offline {
        "--offline"
    } else {
        "--prefer-offline"
    };
    let mut all = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", source]
        .map(String::from)
        .to_vec();
    all.push(format!("--fetch-retries={retries}"));
    all.push(format!("--fetch-timeout={FETCH_MS}"));
    all
}

/// Whether cargo is offline.
fn is_offline(variable: Option<&str>) -> bool {
    matches!(variable, Some("true" | "1"))
}

/// Runs a program whose output is of interest where it fails, and which may take so long.
///
/// # Errors
/// It cannot be run, fails, with the last of what it said, or takes longer.
pub(crate) fn run(
    command: &mut Command,
    name: &str,
    bound: Duration,
    log: &Path,
) -> io::Result<()> {
    let output = File::create(log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn();
    let mut child =
        child.map_err(|error| io::Error::other(format!("{name} cannot be run: {error}")))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > bound {
            child.kill()?;
            child.wait()?;
            let bound = bound.as_secs();
            return Err(io::Error::other(format!(
                "{name} did not end within {bound} s"
            )));
        }
        thread::sleep(TURN);
    };
    if status.success() {
        return Ok(());
    }
    let said = fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = said[said.len().saturating_sub(4)..].join("; ");
    Err(io::Error::other(format!(
        "{name} failed ({status}): {last}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_will_do_is_known() {
        for good in ["v20.19.0\n", "v20.20.2", "v22.12.0", "v23.0.0", "v24.1.0"] {
            check_version(good).unwrap();
        }
        for (bad, words) in [
            ("v18.20.4\n", "Node.js 18.20 does not do"),
            ("v20.18.3", "install Node.js 20.19, 22.12 or newer"),
            ("v21.7.3", "Node.js 21.7 does not do"),
            ("v22.11.0", "Node.js 22.11 does not do"),
            ("v20", "no version"),
            ("", "no version"),
        ] {
            let error = check_version(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    #[test]
    fn a_lock_is_for_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCK);
        let held = lock(&path, Duration::ZERO).unwrap();
        let error = lock(&path, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("another build"), "{error}");
        let waits = thread::spawn({
            let path = path.clone();
            move || lock(&path, Duration::from_secs(60))
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        drop(held);
        waits.join().unwrap().unwrap();
        let error = lock(&dir.path().join("none/lock"), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("none/lock"), "{error}");
    }

    #[test]
    fn npm_is_told_what_it_may_ask_and_for_how_long() {
        let online = arguments(is_offline(None), 0);
        assert_eq!(online[0], "ci");
        for wanted in [
            "--prefer-offline",
            "--ignore-scripts",
            "--fetch-retries=0",
            "--fetch-timeout=20000",
        ] {
            assert!(online.iter().any(|one| one == wanted), "{online:?}");
        }
        assert!(is_offline(Some("true")) && is_offline(Some("1")));
        assert!(!is_offline(Some("false")) && !is_offline(Some("")));
        let offline = arguments(true, 2);
        assert!(offline.iter().any(|one| one == "--offline"));
        assert!(offline.iter().all(|one| one != "--prefer-offline"));
    }

    #[test]
    fn what_takes_too_long_or_fails_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let sh = |script: &str, bound| {
            let mut command = Command::new("sh");
            run(command.args(["-c", script]), "it", bound, &log)
        };
        let long = Duration::from_secs(60);
        sh("echo a", long).unwrap();
        let error = sh("exec sleep 60", Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("did not end within"), "{error}");
        let error = sh("echo first; echo; echo why >&2; exit 3", long).unwrap_err();
        assert!(error.to_string().ends_with("first; why"), "{error}");
        let error = run(&mut Command::new("no-such-program"), "it", long, &log).unwrap_err();
        assert!(error.to_string().contains("it cannot be run"), "{error}");
    }

    #[test]
    fn what_is_installed_is_of_the_list_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let web = dir.path();
        is_installed(web).unwrap_err();
        fs::write(web.join("package-lock.json"), "1").unwrap();
        assert!(!is_installed(web).unwrap());
        fs::create_dir(web.join("node_modules")).unwrap();
        fs::write(web.join("node_modules").join(STAMP), "1").unwrap();
        assert!(is_installed(web).unwrap());
        fs::write(web.join("package-lock.json"), "2").unwrap();
        assert!(!is_installed(web).unwrap());
    }
}
