//! The interface to a service manager: readiness, inherited sockets, watchdog (sd_notify(3),
//! sd_listen_fds(3), sd_watchdog_enabled(3)).
//!
//! Without a manager, which means that none of its environment variables is set, these functions do
//! nothing.

mod watchdog;

use std::io;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, ensure};
use holder::Holder;
use listenfd::ListenFd;
use sd_notify::NotifyState;
pub(crate) use watchdog::Watchdog;

/// Reports that hosts can attach; `systemctl status` shows `status`.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that a reload is in progress, until the next [`ready`].
pub(crate) fn reloading() {
    let mut what = vec![NotifyState::Reloading];
    // with a time stamp, which managers of `Type=notify-reload` require
    what.extend(NotifyState::monotonic_usec_now().ok());
    what.push(NotifyState::Status("reading the configuration again"));
    tell(&what);
}

/// Reports that the server is stopping.
pub(crate) fn stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("stopping: commands complete, media are made durable"),
    ]);
}

/// The holder of this process, which is the manager's service in its place.
static HOLDER: OnceLock<Arc<Holder>> = OnceLock::new();

/// From now on, `holder` passes on what the manager is notified of. The first one counts.
pub(crate) fn tell_through(holder: &Arc<Holder>) {
    let _ = HOLDER.set(holder.clone());
}

/// Sends a notification. A failure is only logged, and the server continues.
fn tell(what: &[NotifyState<'_>]) {
    let told = match HOLDER.get() {
        Some(holder) => {
            let lines: Vec<String> = what.iter().map(ToString::to_string).collect();
            holder.notify(&lines.join("\n")).map_err(io::Error::other)
        }
        None => sd_notify::notify(what),
    };
    if let Err(error) = told {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

/// The control socket that the service manager passed, with its path, if any.
///
/// # Errors
/// It passed another kind of socket, or several: the message says what a socket unit must have.
pub(crate) fn inherited_socket() -> anyhow::Result<Option<(UnixListener, PathBuf)>> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => return Ok(None),
        1 => {}
        more => anyhow::bail!(
            "the service manager passed {more} sockets: a socket unit of this program has one `ListenStream=`, the control socket"
        ),
    }
    let listener = passed
        .take_unix_listener(0)
        .context("the service manager did not pass a listening UNIX socket: write `ListenStream=/PATH` into the socket unit")?
        .context("the service manager's socket is gone")?;
    let path = path_of(&listener.local_addr()?)?;
    Ok(Some((listener, path)))
}

fn path_of(address: &SocketAddr) -> anyhow::Result<PathBuf> {
    let path = address.as_pathname();
    ensure!(
        path.is_some(),
        "the service manager's control socket has no path: write `ListenStream=/PATH` into the socket unit"
    );
    Ok(path.map(PathBuf::from).unwrap_or_default())
}

/// Whether standard error is the journal's stream; lines then have a priority instead of a time
/// (sd-daemon(3)).
pub(crate) fn logs_to_journal() -> bool {
    // systemd.exec(5): device and inode of the stream, in decimal, which tells a redirected
    // standard error apart
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let ours = || -> io::Result<String> {
        let stat = rustix::fs::fstat(io::stderr())?;
        Ok(format!("{}:{}", stat.st_dev, stat.st_ino))
    };
    ours().is_ok_and(|ours| ours == stream)
}
