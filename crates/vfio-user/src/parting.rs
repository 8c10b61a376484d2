//! The end of a connection by the server: the host sees an end of file and never a reset.
//!
//! A UNIX socket that is closed with unread bytes resets its peer (ECONNRESET), and QEMU 11.1
//! aborts when it reads that. So the server first shuts down its sending side, which the host reads
//! as end of file, and drains what the host still sends. Then it shuts down both sides, drains the
//! rest, and closes the empty socket.
//!
//! It sends no replies, and it keeps no clock: times are arguments, in nanoseconds since any moment
//! that stays the same.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::relayed::PART;
use crate::{Connection, Header};

/// How long a host may take to close its side.
const CLOSE_NS: u64 = 300_000_000;
/// Reads of one poll: a host that sends without end does not keep its reactor.
const MAX_READS: usize = 16;
/// Reads of the last poll: more than a socket's buffer holds once nothing more may be sent.
const LAST_READS: usize = 1024;

/// See the module. Dropping it closes the connection.
#[derive(Debug)]
pub struct Parting {
    socket: UnixStream,
    until: Option<u64>,
}

impl Parting {
    /// Begins to end a connection.
    #[must_use]
    pub fn new(mut connection: Connection) -> Self {
        if connection.is_relayed() {
            // A holder that is gone needs no word.
            let _ = connection.send(&Header::posted(0, PART), &[], &[]);
        }
        // what it does not take now it never gets
        let _ = connection.flush();
        Self {
            socket: connection.into_socket(),
            until: None,
        }
    }

    /// Shuts down sending, and drains what the host sends; true when that is over. Due at once,
    /// when the socket is readable, and at [`Self::deadline`].
    pub fn poll(&mut self, now: u64) -> bool {
        let until = match self.until {
            Some(until) => until,
            None => {
                // it may have gone
                let _ = self.socket.shutdown(Shutdown::Write);
                *self.until.insert(now.saturating_add(CLOSE_NS))
            }
        };
        self.is_over(MAX_READS) || now >= until
    }

    /// End of the host's time to close; none before the first poll.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.until
    }

    /// Whether the host has closed its side. Descriptors among the bytes are closed by the kernel.
    fn is_over(&self, reads: usize) -> bool {
        let mut bytes = [0; 4096];
        for _ in 0..reads {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
        false
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        // From here on the host can send nothing more, so that the socket is empty when it is
        // closed.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.is_over(LAST_READS);
    }
}

impl AsFd for Parting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pair() -> (UnixStream, Parting) {
        let (host, server) = UnixStream::pair().expect("there are descriptors");
        let connection = Connection::new(server).expect("it can be made non-blocking");
        (host, Parting::new(connection))
    }

    #[test]
    fn a_host_with_unread_messages_sees_the_end_of_file() {
        let (mut host, mut parting) = pair();
        host.write_all(&[7; 100_000]).expect("a socket holds that");
        assert!(!parting.poll(5), "the host has its side open");
        assert_eq!(parting.deadline(), Some(5 + CLOSE_NS));
        assert_eq!(host.read(&mut [0; 8]).expect("no error"), 0);
        // what it sends meanwhile is taken
        host.write_all(&[7; 100_000]).expect("nothing is shut");
        assert!(parting.poll(5 + CLOSE_NS), "its time is over");
        host.write_all(&[7; 100_000]).expect("nothing is shut");
        drop(parting);
        assert_eq!(host.read(&mut [0; 8]).expect("no reset"), 0);
        let error = host.write(&[7]).expect_err("the server is gone");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_host_that_closes_is_waited_for_no_longer() {
        let (host, mut parting) = pair();
        assert!(!parting.poll(0));
        drop(host);
        assert!(parting.poll(1));
    }

    #[test]
    fn a_host_that_sends_without_end_gets_a_bounded_look() {
        let (mut host, mut parting) = pair();
        host.set_nonblocking(true).expect("it can be");
        while host.write(&[7; 4096]).is_ok() {}
        assert!(!parting.poll(0));
        assert!(host.write(&[7; 4096]).is_ok(), "something was taken");
    }
}
