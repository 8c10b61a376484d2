//! A process at its limit of open files. Alone in its file: the limit is the whole process's.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, getrlimit, setrlimit};
use vfio_user::{Command, Connection, Header};

#[test]
fn descriptors_that_the_process_cannot_hold_are_noted() {
    let (peer, ours) = UnixStream::pair().unwrap();
    let mut sender = Connection::new(peer).unwrap();
    let mut receiver = Connection::new(ours).unwrap();
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    let header = Header::request(1, Command::DEVICE_SET_IRQS);
    sender
        .send(&header, &[b"body"], &[file.as_fd(); 4])
        .unwrap();

    // Two more descriptors may be opened.
    let next = file.try_clone().unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = Some(std::os::fd::AsRawFd::as_raw_fd(&next) as u64 + 2);
    drop(next);
    setrlimit(Resource::Nofile, limit).unwrap();
    let message = receiver.receive().unwrap().unwrap();
    limit.current = before;
    setrlimit(Resource::Nofile, limit).unwrap();

    assert_eq!(message.body, b"body");
    assert_eq!(message.fds.len(), 2);
    assert!(message.fds_truncated);
}
