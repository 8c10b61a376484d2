//! The service manager that watches this holder, and the holder's watch over its worker.
//!
//! The manager (sd_notify(3)) knows the holder as the service: what a worker tells it goes through
//! the holder, which itself tells that it lives while no worker serves. A worker tells so for as
//! long as its reactors answer; one that is silent for too long is killed, and another one goes on,
//! before the manager loses its patience.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::{Duration, Instant};

use super::Hold;

/// Where the manager listens, and how long it waits for a sign of life.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// The processes that its socket and its watch are for. Where they name the holder, its worker is
/// meant.
const PIDS: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];
/// How long a worker may be silent where no manager says: a driver's commands time out after 30 s.
const SILENCE: Duration = Duration::from_secs(20);
/// With a manager, this part of its patience: the next worker lives by the end of that.
const PART: u32 = 2;
/// While no worker serves, the manager is notified this often within its patience that the holder
/// lives.
const SIGNS: u32 = 3;

/// A service manager.
#[derive(Debug)]
pub(super) struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    patience: Option<Duration>,
    told: Instant,
}

impl Manager {
    /// That of this process, if there is one.
    pub(super) fn of_environment() -> io::Result<Option<Self>> {
        let Some(name) = std::env::var_os(NOTIFY_SOCKET) else {
            return Ok(None);
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that reads nothing is not waited for.
        socket.set_nonblocking(true)?;
        Ok(Some(Manager {
            socket,
            address: address(&name)?,
            patience: patience(),
            told: Instant::now(),
        }))
    }

    fn tell(&mut self, state: &[u8]) {
        self.told = Instant::now();
        if let Err(error) = self.socket.send_to_addr(state, &self.address) {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }
}

/// An address as sd_notify(3) has it: a path, or `@` and a name that is no file.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// The manager's patience, where it watches this process.
fn patience() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = number(PIDS[1]).is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = number(WATCHDOG_USEC).filter(|micros| ours && *micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// How long a worker may be silent.
fn silence() -> Duration {
    patience().map_or(SILENCE, |patience| patience / PART)
}

/// Gives a worker the environment of one that is watched by this process, and has the sockets that
/// a manager has passed to it.
pub(super) fn prepare(command: &mut Command) {
    let own = std::process::id().to_string();
    for name in PIDS {
        if std::env::var_os(name).is_some_and(|pid| pid == *own) {
            command.env_remove(name);
        }
    }
    command.env_remove(NOTIFY_SOCKET);
    command.env(WATCHDOG_USEC, silence().as_micros().to_string());
}

impl Hold {
    /// A worker tells the manager something.
    pub(super) fn take_notice(&mut self, state: &[u8]) {
        if let Some(child) = &mut self.child {
            child.alive = Some(Instant::now());
            // It may take long, and the manager has a limit of its own for that.
            let mut lines = state.split(|byte| *byte == b'\n');
            child.is_stopping |= lines.any(|line| line == b"STOPPING=1");
        }
        if let Some(manager) = &mut self.manager {
            manager.tell(state);
        }
    }

    /// Ends a worker that is silent, and tells the manager that the holder lives while there is
    /// none.
    pub(super) fn watch(&mut self) {
        let now = Instant::now();
        // Another program is tried on its behalf.
        let tries = self.succession.is_asked();
        if let Some(child) = self.child.as_mut().filter(|child| child.is_watched()) {
            let alive = child.alive.filter(|_| !tries).unwrap_or(now);
            child.alive = Some(alive);
            if now.duration_since(alive) >= silence() {
                tracing::error!(
                    "the server's process has shown no life for {} s: it is killed",
                    silence().as_secs()
                );
                child.is_hung = true;
                child.kill();
            }
        } else if let Some(manager) = &mut self.manager
            && let Some(patience) = manager.patience
            && now.duration_since(manager.told) >= patience / SIGNS
        {
            manager.tell(b"WATCHDOG=1");
        }
    }

    /// When [`Self::watch`] has something to do.
    pub(super) fn watches_at(&self) -> Option<Instant> {
        if let Some(child) = self.child.as_ref().filter(|child| child.is_watched()) {
            return Some(child.alive.unwrap_or_else(Instant::now) + silence());
        }
        let manager = self.manager.as_ref()?;
        Some(manager.told + manager.patience? / SIGNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_has_a_path_or_a_name() {
        let path = address(OsStr::new("/run/systemd/notify")).unwrap();
        assert_eq!(
            path.as_pathname().unwrap().to_str(),
            Some("/run/systemd/notify")
        );
        let name = address(OsStr::new("@manager")).unwrap();
        assert_eq!(name.as_abstract_name(), Some(&b"manager"[..]));
    }
}
