//! The listening socket of front ends.

use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;
use crate::answer::answer;
use crate::hosted::target::tests::template;

const BOUND: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(20);

/// One that is watched, and where it listens.
fn back_end() -> (BackEnd, Poller, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listening = VhostListening { listener, rings: 4 };
    let presence = Arc::new(Presence::new(|_, _| ()));
    let (slot, subsystem) = (ControllerSlot(0), SubsystemSlot(0));
    let mut back_end = BackEnd::new(template(), slot, subsystem, listening, presence).unwrap();
    let poller = Poller::new().unwrap();
    back_end.watch(&poller).unwrap();
    (back_end, poller, folder)
}

fn connect(folder: &tempfile::TempDir) -> UnixStream {
    let stream = UnixStream::connect(folder.path().join("s")).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

fn is_open(mut stream: &UnixStream) -> bool {
    let read = stream.read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn wakes(poller: &mut Poller, wait: Duration) -> bool {
    !poller.wait(wait).unwrap().is_empty()
}

#[test]
fn a_front_end_waits_while_the_place_is_being_vacated() {
    let (mut back_end, mut poller, folder) = back_end();
    back_end.hold(&poller);
    let next = connect(&folder);
    assert!(!wakes(&mut poller, SHORT), "the reactor would spin");
    assert!(back_end.accept(Time(0)).is_none());
    // Nor does the end of an upgrade open it.
    back_end.close(&poller);
    back_end.open(&poller);
    assert!(!wakes(&mut poller, SHORT) && back_end.accept(Time(0)).is_none());
    assert!(is_open(&next));
    back_end.release(&poller);
    assert!(wakes(&mut poller, BOUND));
    let accepted = back_end.accept(Time(0));
    assert!(accepted.is_some() && is_open(&next));
    assert!(back_end.accept(Time(0)).is_none(), "there was one");
    assert!(back_end.roster().counts().refused.is_empty());
}

#[test]
fn front_ends_wait_in_the_socket_of_a_closed_back_end_until_it_opens() {
    let (mut back_end, mut poller, folder) = back_end();
    back_end.close(&poller);
    let next = connect(&folder);
    assert!(!wakes(&mut poller, SHORT) && back_end.accept(Time(0)).is_none());
    // Nor does the end of a former front end's controller open it.
    back_end.hold(&poller);
    back_end.release(&poller);
    assert!(!wakes(&mut poller, SHORT) && back_end.accept(Time(0)).is_none());
    back_end.open(&poller);
    assert!(wakes(&mut poller, BOUND));
    let accepted = back_end.accept(Time(0));
    assert!(accepted.is_some() && is_open(&next));
}

#[test]
fn a_back_end_that_is_removed_accepts_none_whatever_else_happens() {
    let (mut back_end, mut poller, folder) = back_end();
    let (answer, answered) = answer();
    back_end.remove(&poller, answer);
    let next = connect(&folder);
    back_end.open(&poller);
    back_end.hold(&poller);
    back_end.release(&poller);
    assert!(!wakes(&mut poller, SHORT) && back_end.accept(Time(0)).is_none());
    assert!(back_end.roster().is_removed());
    back_end.finish();
    assert_eq!(answered.within(BOUND), Some(()));
    assert!(!is_open(&next));
}
