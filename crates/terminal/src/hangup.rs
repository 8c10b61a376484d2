//! Ends a command whose terminal or pipe is closed at the other end, if the command serves nothing
//! else.
//!
//! A separate thread watches for that, because the thread that uses the descriptor may not notice.
//! A library that reads keys loops forever on a closed terminal, where each read returns 0 bytes;
//! and a stream with nothing to write does not see that its reader has gone.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Exit status of a command whose terminal was closed: 128 plus SIGHUP's number, as in shells.
const HUNG_UP: i32 = 129;

/// Ends the process when the terminal that keys come from is closed.
pub fn end_with_terminal() -> io::Result<()> {
    let stdin = io::stdin();
    let terminal = if stdin.is_terminal() {
        stdin.as_fd().try_clone_to_owned()?
    } else {
        std::fs::File::open("/dev/tty")?.into()
    };
    watch(terminal, HUNG_UP)
}

/// Ends the process when the reader of standard output closes it. That is not an error, as for
/// [`crate::print`].
pub fn end_with_reader() -> io::Result<()> {
    watch(io::stdout().as_fd().try_clone_to_owned()?, 0)
}

fn watch(fd: OwnedFd, status: i32) -> io::Result<()> {
    let wait = move || {
        if is_gone(&fd) {
            std::process::exit(status);
        }
    };
    let thread = std::thread::Builder::new().name("hangup".into());
    thread.spawn(wait).map(drop)
}

/// Waits until the other side has closed; false if that cannot be waited for.
fn is_gone(fd: &OwnedFd) -> bool {
    loop {
        // without requested events, poll(2) reports only errors and hang-ups
        let mut fds = [PollFd::new(fd, PollFlags::empty())];
        match poll(&mut fds, None) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                let gone = PollFlags::HUP | PollFlags::ERR;
                return fds[0].revents().intersects(gone);
            }
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_reader_is_seen() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert!(is_gone(&writer.into()));
    }
}
