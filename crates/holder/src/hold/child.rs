//! The worker's process, and how often it has died.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use nix::sys::signal::Signal;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::watch::prepare;
use crate::worker::VARIABLE;

/// A worker.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    /// Readable once it has ended.
    pub(super) pidfd: OwnedFd,
    /// Where it asks.
    pub(super) socket: OwnedFd,
    /// Its file.
    pub(super) program: Rc<OwnedFd>,
    /// Its greeting.
    pub(super) greeting: Option<Greeting>,
    /// It asks no more.
    pub(super) is_deaf: bool,
    pub(super) started: Instant,
    /// When it last showed that it lives, once it served.
    pub(super) alive: Option<Instant>,
    /// It was ended because it did not show that.
    pub(super) is_hung: bool,
    /// When it began to serve.
    pub(super) ready: Option<Instant>,
    /// It ends by its own will.
    pub(super) said_bye: bool,
    /// It has told that it stops.
    pub(super) is_stopping: bool,
    /// It was ended for another program.
    pub(super) hands_over: bool,
    /// It was ended, and perhaps is still there.
    pub(super) is_killed: bool,
}

/// The first message of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Number of the request, which has no reply yet.
    pub(super) number: u32,
    /// Version of its program.
    pub(super) version: String,
    /// The formats of a controller's state that it reads; it writes the last.
    pub(super) formats: RangeInclusive<u64>,
}

impl Child {
    /// Starts a program with these arguments, of which the first is its name.
    pub(super) fn start(program: &Rc<OwnedFd>, arguments: &[OsString]) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The file that was opened, also where another one has taken its place.
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        if let Some((name, arguments)) = arguments.split_first() {
            command.arg0(name).args(arguments);
        }
        // A terminal's signals come to the holder, which gives them to the one that serves.
        let command = command.env(VARIABLE, "1").stdin(theirs).process_group(0);
        prepare(command);
        let mut process = command.spawn()?;
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty());
        sacrifice(process.id());
        if pidfd.is_err() {
            // Mostly too many descriptors.
            process.kill().and_then(|()| process.wait())?;
        }
        Ok(Self {
            pidfd: pidfd?,
            process,
            socket,
            program: program.clone(),
            greeting: None,
            is_deaf: false,
            started: Instant::now(),
            alive: None,
            is_hung: false,
            ready: None,
            said_bye: false,
            is_stopping: false,
            hands_over: false,
            is_killed: false,
        })
    }

    /// Whether it is waited for until it serves.
    pub(super) fn is_starting(&self) -> bool {
        self.ready.is_none() && !self.is_killed
    }

    /// Whether it is to show that it lives.
    pub(super) fn is_watched(&self) -> bool {
        self.ready.is_some() && !self.is_killed && !self.said_bye && !self.is_stopping
    }

    pub(super) fn signal(&self, signal: Signal) {
        let signal = rustix::process::Signal::from_named_raw(signal as i32);
        if let Some(signal) = signal {
            // It may have ended.
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    pub(super) fn kill(&mut self) {
        self.is_killed = true;
        // Not by its number, which may be another one's when it has ended without a status.
        self.signal(Signal::SIGKILL);
    }

    /// Whether it closes all that it has: the kernel frees its memory and its other files, which
    /// may take seconds, and has perhaps not come to its socket to the holder yet.
    pub(super) fn is_dying(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        self.is_deaf || stat.is_ok_and(|stat| is_exiting(&stat))
    }

    /// Whether [`Self::wait`] does not block.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Takes the status of a worker that has ended.
    pub(super) fn wait(mut self) -> io::Result<End> {
        let status = match self.process.wait() {
            // The program that started this one ignores SIGCHLD: there is no status.
            Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => None,
            status => Some(status?),
        };
        Ok(End {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
        })
    }
}

/// Whether the first thread of a process has ended or is ending, by proc_pid_stat(5).
fn is_exiting(stat: &str) -> bool {
    /// `PF_EXITING`
    const EXITING: u32 = 4;
    // The name, the second field, may have anything in it.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let mut fields = after.split_whitespace();
    let has_ended = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u32>().ok());
    has_ended || flags.is_some_and(|flags| flags & EXITING != 0)
}

impl Drop for Child {
    /// None is left to itself before it serves. One that does sees that the holder ends, and saves
    /// what it has.
    fn drop(&mut self) {
        if self.ready.is_none() {
            self.kill();
            let _ = self.process.wait();
        }
    }
}

/// Where memory runs out, the kernel ends the worker sooner than the holder, which then starts
/// another one.
fn sacrifice(pid: u32) {
    const MORE: i32 = 100;
    const MAX: i32 = 1000;
    let own = fs::read_to_string("/proc/self/oom_score_adj");
    let own: i32 = own
        .ok()
        .and_then(|own| own.trim().parse().ok())
        .unwrap_or(0);
    let score = (own + MORE).min(MAX).to_string();
    // Some systems forbid it.
    let _ = fs::write(format!("/proc/{pid}/oom_score_adj"), score);
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    code: Option<i32>,
    pub(super) signal: Option<i32>,
}

impl End {
    /// Whether it was the worker's own fault, and not a signal with which others end a process.
    pub(super) fn is_crash(self) -> bool {
        const OTHERS: [Signal; 6] = [
            Signal::SIGKILL,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGPIPE,
        ];
        match self.signal {
            Some(signal) => !OTHERS.iter().any(|other| *other as i32 == signal),
            None => self.code.is_some_and(|code| code != 0),
        }
    }

    /// The exit status for a process that ends as this one did.
    pub(super) fn status(self) -> u8 {
        let code = self.code.or(self.signal.map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.signal, self.code) {
            (Some(signal), _) => match Signal::try_from(signal) {
                Ok(name) => write!(f, "{name}"),
                Err(_) => write!(f, "signal {signal}"),
            },
            (None, Some(code)) => write!(f, "exit status {code}"),
            (None, None) => write!(f, "no status"),
        }
    }
}

/// Deaths of workers that followed each other.
#[derive(Debug, Default)]
pub(super) struct Deaths(Vec<Instant>);

impl Deaths {
    /// So many deaths end the attempts.
    pub(super) const MAX: usize = 3;
    /// Within this time.
    pub(super) const WITHIN: Duration = Duration::from_secs(10);
    /// A worker that has served for this long was no failure.
    const SERVICE: Duration = Duration::from_secs(1);
    /// Time before the last attempt, if the worker before could not start: what it lacked may be
    /// there again (memory, descriptors, a file system). Hosts wait meanwhile, and QEMU at most 5 s
    /// for a reply.
    pub(super) const PAUSE: Duration = Duration::from_secs(1);

    /// Notes the death at `now` of a worker that served since `ready`. Returns how long after it
    /// another one may be tried; `None`: none may.
    pub(super) fn note(&mut self, now: Instant, ready: Option<Instant>) -> Option<Duration> {
        if ready.is_some_and(|ready| now.duration_since(ready) >= Self::SERVICE) {
            self.0.clear();
        }
        self.0
            .retain(|death| now.duration_since(*death) < Self::WITHIN);
        self.0.push(now);
        match self.0.len() {
            Self::MAX.. => None,
            deaths if deaths + 1 == Self::MAX && ready.is_none() => Some(Self::PAUSE),
            _ => Some(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_deaths_without_service_are_the_end() {
        let start = Instant::now();
        let mut deaths = Deaths::default();
        let mut note = |at, ready| deaths.note(start + SECOND * at, ready);
        assert_eq!(note(0, Some(start - SECOND * 60)), Some(Duration::ZERO));
        assert_eq!(note(1, None), Some(Deaths::PAUSE));
        assert_eq!(note(2, Some(start + SECOND * 3 / 2)), None);
    }

    #[test]
    fn one_that_has_started_is_followed_at_once() {
        let start = Instant::now();
        let mut deaths = Deaths::default();
        let mut note = |at, ready| deaths.note(start + SECOND * at, ready);
        assert_eq!(note(0, None), Some(Duration::ZERO));
        assert_eq!(note(1, Some(start + SECOND / 2)), Some(Duration::ZERO));
        assert_eq!(note(2, None), None);
    }

    #[test]
    fn a_second_of_service_and_ten_seconds_begin_anew() {
        let start = Instant::now();
        let mut deaths = Deaths::default();
        for at in 0..9 {
            let now = start + SECOND * at;
            assert_eq!(deaths.note(now, Some(now - SECOND)), Some(Duration::ZERO));
        }
        let mut deaths = Deaths::default();
        for at in 0..9 {
            assert!(deaths.note(start + SECOND * 5 * at, None).is_some());
        }
    }

    #[test]
    fn a_process_that_is_ending_is_seen() {
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!is_exiting(&own), "{own}");
        let stat = |state, flags| format!("7 (a) Z 4) {state} 1 7 7 0 -1 {flags} 99 0");
        assert!(!is_exiting(&stat("R", 4_194_304)));
        assert!(is_exiting(&stat("D", 4_194_308)));
        assert!(is_exiting(&stat("Z", 4_194_304)));
        assert!(!is_exiting(""));
        let mut ended = Command::new("true").spawn().unwrap();
        let stat = format!("/proc/{}/stat", ended.id());
        // It is not waited for yet.
        let until = Instant::now() + SECOND * 10;
        while !is_exiting(&fs::read_to_string(&stat).unwrap()) {
            assert!(Instant::now() < until);
        }
        ended.wait().unwrap();
    }

    #[test]
    fn an_end_is_said_and_repeated() {
        let killed = End {
            code: None,
            signal: Some(9),
        };
        assert_eq!(
            (killed.to_string().as_str(), killed.status()),
            ("SIGKILL", 137)
        );
        assert!(!killed.is_crash());
        let aborted = End {
            code: None,
            signal: Some(6),
        };
        assert!(aborted.is_crash());
        let failed = End {
            code: Some(2),
            signal: None,
        };
        assert_eq!(
            (failed.to_string().as_str(), failed.status()),
            ("exit status 2", 2)
        );
        assert!(failed.is_crash());
    }
}
