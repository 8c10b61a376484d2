//! A drive that a former process of the server had.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use driver::bus::place::Place;
use port::{Outcome, Request};

use super::rig::{Host, Rig, Shape};
use crate::drive::op::{HANG_TICKS, INTERRUPTED};
use crate::drive::{Drive, Known, Pace};

const WRITE: Request<'static> = Request::Write {
    offset: 0,
    len: 4096,
    fua: false,
};
const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 4096,
};

fn known() -> Vec<u8> {
    Rig::new(Shape::default()).drive.to_bytes()
}

#[test]
fn it_is_there_at_once() {
    let mut rig = Rig::again(&known(), Shape::default(), 0);
    let host = Host::new();
    let counts = rig.drive.counts();
    assert!(counts.is_there);
    assert_eq!((counts.losses, counts.resets), (0, 0));
    host.put(&[(0, 4096)], &[7; 4096]);
    assert_eq!(rig.run(&host, &WRITE, &[(0, 4096)]), Outcome::OK);
    assert_eq!(rig.run(&host, &READ, &[(8192, 4096)]), Outcome::OK);
    assert_eq!(host.get(&[(8192, 4096)]), [7; 4096]);
}

/// A server that is not there in time costs its commands nothing but the wait.
#[test]
fn commands_wait_for_it() {
    let mut rig = Rig::again(&known(), Shape::default(), HANG_TICKS - 2);
    let host = Host::new();
    let id = rig.add(&host, &WRITE, &[(0, 4096)]);
    // The first attempt was made with the rig.
    rig.tick(HANG_TICKS - 3);
    assert!(!rig.ended.contains_key(&id));
    assert!(!rig.drive.counts().is_there);
    rig.tick(1);
    rig.drain();
    assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
    let counts = rig.drive.counts();
    assert!(counts.is_there);
    assert_eq!((counts.losses, counts.interrupted), (1, 0));
}

/// As at a drive that is lost while a process has it.
#[test]
fn commands_wait_for_4_s_and_the_drive_is_tried_every_second() {
    // One with the rig, one in each tick for 4 s, and two later.
    let mut rig = Rig::again(&known(), Shape::default(), 1 + HANG_TICKS + 2);
    let host = Host::new();
    let id = rig.add(&host, &WRITE, &[(0, 4096)]);
    rig.tick(HANG_TICKS - 2);
    assert!(!rig.ended.contains_key(&id));
    rig.tick(3);
    assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
    // 1 s after the attempts of each tick, and 1 s later, it is not there yet.
    rig.tick(10);
    assert!(!rig.drive.counts().is_there);
    rig.tick(1);
    assert!(rig.drive.counts().is_there);
    assert_eq!(rig.run(&host, &WRITE, &[(0, 4096)]), Outcome::OK);
}

#[test]
fn another_drive_is_not_used() {
    let shape = Shape::default();
    let blocks = Shape {
        lba_shift: 12,
        ..shape
    };
    let smaller = Shape {
        max_transfer: 8 << 10,
        ..shape
    };
    // Serial number, model and everything else are the same.
    let volume = Shape { name: 2, ..shape };
    for shape in [blocks, smaller, volume] {
        let mut rig = Rig::again(&known(), shape, 0);
        let host = Host::new();
        let id = rig.add(&host, &WRITE, &[(0, 4096)]);
        rig.tick(2 * HANG_TICKS);
        assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED), "{shape:?}");
        let counts = rig.drive.counts();
        assert!(!counts.is_there, "{shape:?}");
        assert_eq!((counts.losses, counts.commands), (1, 0), "{shape:?}");
    }
}

#[test]
fn a_drive_with_a_higher_limit_is_the_same() {
    let larger = Shape {
        max_transfer: 64 << 10,
        ..Shape::default()
    };
    let mut rig = Rig::again(&known(), larger, 0);
    assert!(rig.drive.counts().is_there);
    assert_eq!(rig.run(&Host::new(), &WRITE, &[(0, 4096)]), Outcome::OK);
}

/// How a server treats those that connect to it.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    /// It answers nothing.
    Silent,
    /// It closes each connection, as one may that still serves its last client.
    Closing,
}

/// Ticks of 5 ms, and the fence of the program.
fn short_ticks() -> Pace {
    Pace {
        tick: Duration::from_millis(5),
        ..Pace::default()
    }
}

/// Continues with a drive whose server ends after this number of 10 ms. Returns whether the server
/// had ended by then.
fn returns_after(server_is: Server, steps: u32, pace: Pace) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.sock");
    let server = UnixListener::bind(&path).unwrap();
    server.set_nonblocking(true).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let (stop, stopped) = channel::<()>();
    let its = ended.clone();
    let thread = thread::spawn(move || {
        for _ in 0..steps {
            if server_is == Server::Closing {
                while server.accept().is_ok() {}
            }
            let step = stopped.recv_timeout(Duration::from_millis(10));
            if step == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        its.store(true, Ordering::SeqCst);
        drop(server);
    });
    let known = Known::from_bytes(&known()).unwrap();
    let drive = Drive::again(&(Place::VfioUser(path), None), known, &[], None, pace).unwrap();
    let has_ended = ended.load(Ordering::SeqCst);
    drop((drive, stop));
    thread.join().unwrap();
    has_ended
}

/// As long as the server may execute commands of the former process, no host is served.
#[test]
fn the_process_waits_for_the_commands_of_the_last_one() {
    assert!(returns_after(Server::Silent, 20, short_ticks()));
}

/// It may still execute commands of the former process: only its end shows that it does not.
#[test]
fn a_server_that_closes_connections_is_waited_for_too() {
    assert!(returns_after(Server::Closing, 20, short_ticks()));
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_for_a_bounded_time() {
    let pace = Pace {
        fence: Duration::from_millis(300),
        ..short_ticks()
    };
    assert!(!returns_after(Server::Silent, 3000, pace));
}
