//! A mount in a process of its own, which outlives the server's: a host as any other one.
//!
//! The server's side is [`Child`], the mount's [`run`]. Between them is a SEQPACKET socket, which
//! is the mount's standard input. Its other end is the server's, and its holder's, so that the next
//! process of the server finds the mount. The mount ends when the last owner of that end has ended.
//!
//! A message is one packet of text: a request `NUMBER VERB`, and its reply `NUMBER ok TEXT` or
//! `NUMBER error TEXT`. The mount's first message has number 0, and says that the folder is
//! mounted. Every wait for a reply has a bound. A reply to a process that has ended has another
//! number, and is skipped.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, process, thread};

use anyhow::{Context, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use terminal::interrupt::Interrupt;

use super::{End, Mount};

/// Longest message, in bytes.
const MAX_LEN: usize = 4096;
/// How long a mount may take to begin: a command of its drive times out after 30 s.
const START: Duration = Duration::from_secs(35);
/// How long it may take to end: it drains, and makes written data durable.
const STOP: Duration = Duration::from_secs(40);
/// How long it may take to unmount its folder.
const UNMOUNT: Duration = Duration::from_secs(10);
/// How long it may take for any other reply.
const REPLY: Duration = Duration::from_secs(1);
/// How long its process may take to end after its last reply.
const EXIT: Duration = Duration::from_secs(5);
/// Interval of checks for its end.
const PAUSE: Duration = Duration::from_millis(50);

const OPEN_FILES: &str = "open-files";
const UNMOUNT_VERB: &str = "unmount";
const STOP_VERB: &str = "stop";

/// A socket, and the end of it for the process of a mount.
///
/// # Errors
/// The system's.
pub fn socket() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

/// Waits until a socket has something, or its peer has ended; false after `patience`.
fn wait(socket: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The next message, after [`wait`]; `None` if the peer has ended.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let mut packet = [0; MAX_LEN];
    match recv(socket, &mut packet[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(None),
        Ok((len, _)) => Ok(Some(String::from_utf8_lossy(&packet[..len]).into_owned())),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends a message; what is too long is cut off.
fn tell(socket: BorrowedFd<'_>, message: &str) -> io::Result<()> {
    let end = message.floor_char_boundary(MAX_LEN);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    send(socket, &message.as_bytes()[..end], flags)?;
    Ok(())
}

/// The process of a mount, as the server sees it.
#[derive(Debug)]
pub struct Child {
    socket: OwnedFd,
    /// Where its drive is.
    target: PathBuf,
    /// Absent if a former process of the server has started it.
    process: Option<process::Child>,
    /// Number of the last request; no other process of the server has these.
    asked: AtomicU64,
}

impl Child {
    /// Starts a program that mounts the drive at `target`, with these arguments; waits until the
    /// folder is mounted. `ends` is of [`socket`].
    ///
    /// # Errors
    /// The system's, or why it cannot mount.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        target: &Path,
        ends: (OwnedFd, OwnedFd),
    ) -> anyhow::Result<Self> {
        let (socket, theirs) = ends;
        let mut command = Command::new(program);
        command.arg0("nvmirage").args(arguments);
        // Signals of a terminal are for the server.
        command.stdin(theirs).stdout(Stdio::null()).process_group(0);
        let started = command.spawn();
        let process = started.context("cannot start the process of a mount")?;
        // Its end is not to stay open here.
        drop(command);
        let mut child = Self::of(socket, target);
        child.process = Some(process);
        if let Err(error) = child.reply(0, START) {
            child.kill();
            return Err(error);
        }
        Ok(child)
    }

    /// One that a former process of the server has started.
    #[must_use]
    pub fn of(socket: OwnedFd, target: &Path) -> Self {
        Self {
            socket,
            target: target.to_owned(),
            process: None,
            asked: AtomicU64::new(u64::from(process::id()) << 32),
        }
    }

    /// Where its drive is.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Whether its process is there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let now = Timespec::default();
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let _ = poll(&mut polled, Some(&now));
        !polled[0].revents().contains(PollFlags::HUP)
    }

    /// Number of open files; 0 if it has ended or does not answer.
    pub fn open_files(&self) -> usize {
        let files = self.ask(OPEN_FILES, REPLY).ok();
        files.and_then(|files| files.parse().ok()).unwrap_or(0)
    }

    /// Unmounts the folder, unless files are in use.
    ///
    /// # Errors
    /// The files are in use, or it does not answer.
    pub fn unmount(&mut self) -> anyhow::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.ask(UNMOUNT_VERB, UNMOUNT).map(drop)
    }

    /// Ends the mount, as [`Mount::stop`], and its process.
    ///
    /// # Errors
    /// As [`Mount::stop`], or it does not answer; its process is ended then.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let stopped = if self.is_running() {
            self.ask(STOP_VERB, STOP).map(drop)
        } else {
            Ok(())
        };
        let until = Instant::now() + EXIT;
        while self.is_running() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        self.kill();
        stopped
    }

    /// Ends its process, which has ended or does not answer, where it is of this one.
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let until = Instant::now() + EXIT;
            while matches!(process.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            // It may have ended.
            let _ = process.kill().and_then(|()| process.wait());
        }
    }

    fn ask(&self, verb: &str, patience: Duration) -> anyhow::Result<String> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        tell(self.socket.as_fd(), &format!("{number} {verb}"))
            .context("the mount cannot be asked")?;
        self.reply(number, patience)
    }

    /// The reply to a request.
    fn reply(&self, number: u64, patience: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + patience;
        let prefix = format!("{number} ");
        loop {
            let left = until.saturating_duration_since(Instant::now());
            ensure!(
                wait(self.socket.as_fd(), left)?,
                "the mount gave no reply within {} s",
                patience.as_secs()
            );
            let message = receive(self.socket.as_fd())?;
            let message =
                message.context("the process of the mount has ended; see its messages")?;
            if let Some(reply) = message.strip_prefix(&prefix) {
                return match reply.split_once(' ').unwrap_or((reply, "")) {
                    ("ok", text) => Ok(text.to_owned()),
                    (_, text) => bail!("{text}"),
                };
            }
        }
    }
}

/// Serves a mount until its server ends it, or has ended, or it ends by itself: the mount's side.
/// `start` mounts.
///
/// # Errors
/// Those of `start` and of the mount's end; the server has them, too.
pub fn run(
    server: &OwnedFd,
    interrupt: &Interrupt,
    start: impl FnOnce() -> anyhow::Result<Mount>,
) -> anyhow::Result<()> {
    let server = server.as_fd();
    let mut mounted = match start() {
        Ok(mounted) => mounted,
        Err(error) => {
            // The server may have ended.
            let _ = tell(server, &format!("0 error {error:#}"));
            return Err(error);
        }
    };
    let _ = tell(server, "0 ok");
    let request = loop {
        if mounted.ended().is_some() || interrupt.is_set() {
            break None;
        }
        if !wait(server, PAUSE)? {
            continue;
        }
        let Some(message) = receive(server)? else {
            tracing::warn!("{}: the server has ended", mounted.dir().display());
            break None;
        };
        let Some((number, verb)) = message.split_once(' ') else {
            continue;
        };
        let Ok(number) = u64::from_str(number) else {
            continue;
        };
        let reply = match verb {
            OPEN_FILES => Ok(mounted.open_files().to_string()),
            UNMOUNT_VERB => mounted.unmount().map(|()| String::new()),
            STOP_VERB => break Some(number),
            other => {
                let _ = tell(server, &format!("{number} error no such request: {other}"));
                continue;
            }
        };
        let reply = match reply {
            Ok(text) => format!("{number} ok {text}"),
            Err(busy) => format!("{number} error {busy}"),
        };
        let _ = tell(server, &reply);
    };
    let is_lost = mounted.ended() == Some(End::Lost);
    let stopped = mounted.stop();
    if let Some(number) = request {
        let _ = match &stopped {
            Ok(()) => tell(server, &format!("{number} ok")),
            Err(error) => tell(server, &format!("{number} error {error:#}")),
        };
    }
    ensure!(!is_lost, "its drive is lost; see its server's log");
    stopped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_another_process_is_skipped_and_an_end_is_seen() {
        let (socket, theirs) = socket().unwrap();
        let mut child = Child::of(socket, Path::new("/target"));
        tell(theirs.as_fd(), "7 ok 99").unwrap();
        let first = child.asked.load(Ordering::Relaxed) + 1;
        tell(theirs.as_fd(), &format!("{first} ok 3")).unwrap();
        assert_eq!(child.open_files(), 3);
        let asked = receive(theirs.as_fd()).unwrap().unwrap();
        assert_eq!(asked, format!("{first} {OPEN_FILES}"));
        tell(theirs.as_fd(), &format!("{} error it is in use", first + 1)).unwrap();
        let error = child.unmount().unwrap_err().to_string();
        assert_eq!(error, "it is in use");
        assert!(child.is_running());
        drop(theirs);
        assert!(!child.is_running());
        assert_eq!(child.open_files(), 0);
        child.unmount().unwrap();
        child.stop().unwrap();
    }

    #[test]
    fn a_message_that_is_too_long_is_cut_off_between_characters() {
        let (socket, theirs) = socket().unwrap();
        tell(theirs.as_fd(), &"\u{e4}".repeat(MAX_LEN)).unwrap();
        let message = receive(socket.as_fd()).unwrap().unwrap();
        assert_eq!(message, "\u{e4}".repeat(MAX_LEN / 2));
    }
}
