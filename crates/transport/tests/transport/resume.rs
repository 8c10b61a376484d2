//! A session that goes on: what a holder may send, and what ends it.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use memory::{DoorbellPages, StateFile};
use transport::vfio_user::{ResumeError, Resumed, SessionConfig};
use vfio_user::relayed::{Arrival, Origin, RESUME, RESUMED};
use vfio_user::{Command, Connection, Header};

const SLOTS: usize = 4;

/// Result of these messages, after each of which the holder goes on.
fn resume(messages: &[(Command, &[u8], &[BorrowedFd<'_>])]) -> Result<Resumed, ResumeError> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut holder = Connection::new(ours).unwrap();
    for (command, body, fds) in messages {
        holder
            .send(&Header::posted(0, *command), &[body], fds)
            .unwrap();
    }
    let arrival = Arrival {
        stream: theirs,
        process: None,
        origin: Origin::Resumed,
    };
    let config = SessionConfig {
        name: "c".into(),
        doorbells_mapped: true,
        vectors: 2,
        messages: 0,
        intx: false,
        custody: None,
    };
    Resumed::read(arrival, SLOTS, config)
}

#[test]
fn a_session_goes_on_with_what_its_holder_says() {
    let state = StateFile::create("test", 1, &[1]).unwrap();
    let doorbells = DoorbellPages::new(SLOTS).unwrap();
    let fds = [state.fd(), doorbells.fd()];
    let resumed = resume(&[(RESUME, &[1, 0, 0, 0], &fds), (RESUMED, &[], &[])]).unwrap();
    assert!(resumed.session.doorbells_mapped());
    assert!(!resumed.left.crashed);
    let resumed = resume(&[(RESUME, &[0, 0, 1, 0], &fds), (RESUMED, &[], &[])]).unwrap();
    assert!(!resumed.session.doorbells_mapped());
    assert!(resumed.left.crashed);
}

#[test]
fn what_is_no_beginning_is_refused() {
    let state = StateFile::create("test", 1, &[1]).unwrap();
    let doorbells = DoorbellPages::new(SLOTS).unwrap();
    let other = DoorbellPages::new(1 << 20).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let fds = [state.fd(), doorbells.fd()];
    let unexpected = |message: (Command, &[u8], &[BorrowedFd<'_>])| {
        matches!(resume(&[message]), Err(ResumeError::Unexpected(_)))
    };
    assert!(unexpected((Command::DMA_MAP, &[0; 32], &fds)));
    assert!(unexpected((RESUME, &[0; 3], &fds)));
    assert!(unexpected((RESUME, &[0; 4], &fds[..1])));
    let no_state = [null.as_fd(), doorbells.fd()];
    resume(&[(RESUME, &[0; 4], &no_state)]).unwrap_err();
    let other_length = [state.fd(), other.fd()];
    resume(&[(RESUME, &[0; 4], &other_length)]).unwrap_err();
}

#[test]
fn what_cannot_be_applied_again_is_refused() {
    let state = StateFile::create("test", 1, &[1]).unwrap();
    let doorbells = DoorbellPages::new(SLOTS).unwrap();
    let fds = [state.fd(), doorbells.fd()];
    let begin = (RESUME, &[0; 4][..], &fds[..]);
    let map = [begin, (Command::DMA_MAP, &[0; 32], &[])];
    assert!(matches!(resume(&map), Err(ResumeError::Refused { .. })));
    let reset = [begin, (Command::DEVICE_RESET, &[], &[])];
    assert!(matches!(resume(&reset), Err(ResumeError::Unexpected(_))));
    // A silent holder is not waited for without end.
    assert!(matches!(resume(&[begin]), Err(ResumeError::Silent)));
}
