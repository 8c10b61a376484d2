//! A holder between a test's hosts and its server.
//!
//! The holder is a process, as in use, and starts a worker. That worker serves nothing: it has the
//! holder listen, and gives the test the connections that it gets for that. So the server is a
//! thread of the test with or without a holder, and the test has its clock and its media.
//!
//! Both processes end when the test closes its end of their standard output, which its death does,
//! too. They live for [`LIFE_S`] at most. Which program they are is an argument: cargo gives its
//! path to tests only.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use holder::{Ended, Holder, HolderError, Program};
use nix::unistd::alarm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper,
    waitpid,
};
use vfio_user::relayed::Inbox;

/// Seconds that a process lives at most.
const LIFE_S: u32 = 60;
/// How long to wait for what a process does at once.
const BOUND: Duration = Duration::from_secs(20);
/// Controllers of a server at most.
const MAX_INBOXES: usize = 8;

const PROGRAM: Program = Program {
    version: "test",
    reads_from: 1,
    writes: 1,
};

/// Where the hosts of a controller connect.
#[must_use]
pub fn path(folder: &Path, controller: usize) -> PathBuf {
    folder.join(format!("c{controller}"))
}

/// A holder and its worker. Dropped, it ends them.
#[derive(Debug)]
pub(crate) struct Held {
    holder: Child,
    worker: Option<Pid>,
    /// The other end is the standard output of both.
    line: UnixStream,
}

impl Held {
    /// Has a holder listen in `folder` for so many controllers; where their connections arrive.
    pub(crate) fn start(program: &Path, folder: &Path, controllers: usize) -> (Self, Vec<Inbox>) {
        let (line, theirs) = UnixStream::pair().expect("there are descriptors");
        let mut command = Command::new(program);
        command.arg(folder).arg(controllers.to_string());
        command.stdin(Stdio::null()).stdout(OwnedFd::from(theirs));
        let holder = command.spawn().expect("the program is there");
        // The command has their end of the line.
        drop(command);
        let mut held = Self {
            holder,
            worker: None,
            line,
        };
        assert!(is_readable(&held.line), "the holder starts no worker");
        let (worker, inboxes) = take(&held.line).expect("it is a socket");
        held.worker = Pid::from_raw(worker);
        assert_eq!(inboxes.len(), controllers, "the worker has failed");
        (held, inboxes)
    }

    /// The holder's status, once it has ended by itself.
    fn ended(&mut self) -> Option<ExitStatus> {
        let pidfd = pidfd_open(Pid::from_child(&self.holder), PidfdFlags::empty());
        pidfd.ok().filter(is_readable)?;
        self.holder.wait().ok()
    }

    /// Ends what did not end by itself.
    fn kill(&mut self) {
        // Then the worker is a child of this process when its holder is gone.
        let _ = set_child_subreaper(Some(getpid()));
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        if let Some(worker) = self.worker {
            let _ = kill_process(worker, Signal::KILL);
            let _ = waitpid(Some(worker), WaitOptions::empty());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.line.shutdown(Shutdown::Both);
        let status = self.ended();
        if status.is_none() {
            self.kill();
        }
        let in_order = status.is_some_and(|status| status.success());
        assert!(in_order || thread::panicking(), "the holder: {status:?}");
    }
}

fn is_readable(fd: &impl AsFd) -> bool {
    let bound = Timespec::try_from(BOUND).ok();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], bound.as_ref()) == Ok(1)
}

/// Gives the test the inboxes of a worker, with its process identifier.
fn give(line: impl AsFd, inboxes: &[Inbox]) -> io::Result<()> {
    let process = std::process::id().to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_INBOXES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = inboxes.iter().map(AsFd::as_fd).collect();
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let parts = [IoSlice::new(&process)];
    sendmsg(line, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes what [`give`] has given; nothing where the processes have ended.
fn take(line: &UnixStream) -> io::Result<(i32, Vec<Inbox>)> {
    let mut process = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_INBOXES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut process)];
    recvmsg(line, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut inboxes = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            for fd in fds {
                inboxes.push(Inbox::from_fd(fd)?);
            }
        }
    }
    Ok((i32::from_le_bytes(process), inboxes))
}

/// Work of both processes: a folder and a number of controllers are their arguments.
///
/// # Panics
/// When they cannot: the test sees that they end.
#[must_use]
pub fn run() -> ExitCode {
    alarm::set(LIFE_S);
    match Holder::of_environment(&PROGRAM) {
        Ok(Some(holder)) => work(&holder),
        Ok(None) => hold(),
        Err(HolderError::Ended) => ExitCode::FAILURE,
        Err(error) => panic!("{error}"),
    }
}

fn hold() -> ExitCode {
    let ended = holder::hold(std::env::args_os().collect(), false);
    match ended.expect("it has a worker") {
        Ended::Worker(status) => ExitCode::from(status),
        Ended::Signal => ExitCode::FAILURE,
    }
}

fn work(holder: &Holder) -> ExitCode {
    if holder.generation() != 1 {
        // The first one has failed, and the test is to see it.
        holder.bye().expect("the holder is there");
        return ExitCode::FAILURE;
    }
    let mut arguments = std::env::args_os().skip(1);
    let folder = PathBuf::from(arguments.next().expect("a folder"));
    let controllers = arguments.next().and_then(|it| it.into_string().ok());
    let controllers: usize = controllers.expect("text").parse().expect("a number");
    let listen = |at| holder.listen(&path(&folder, at), 0o600);
    let inboxes: Result<Vec<_>, _> = (0..controllers).map(listen).collect();
    let inboxes = inboxes.expect("nothing is in the folder");
    // A holder ends with its first worker that fails before it is ready.
    give(io::stdout(), &inboxes).expect("the test is there");
    drop(inboxes);
    holder.ready().expect("the holder is there");
    thread::scope(|scope| {
        scope.spawn(|| {
            // A holder that ends first has failed, or this process has said that it ends.
            let _ = holder.wait_for_end();
            std::process::exit(1);
        });
        // Until the test closes its end.
        while matches!(rustix::io::read(io::stdout(), &mut [0; 1]), Ok(1..)) {}
        holder.bye().expect("the holder is there");
        std::process::exit(0);
    })
}
