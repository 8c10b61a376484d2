//! A session as a reactor sees it. `tests/protocol` has the host's side.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Interface};
use memory::DoorbellPages;
use port::time::Time;
use subsystem::{Subsystem, SubsystemConfig};
use transport::vfio_user::{Caller, Session, SessionConfig, SessionEnd};
use vfio_user::relayed::Arrival;

/// A session whose turns only the test runs.
struct Rig {
    host: UnixStream,
    session: Session,
    controller: Controller,
}

const VERSION: u16 = 1;
const GET_INFO: u16 = 4;
const GET_REGION_INFO: u16 = 5;
const REGION_READ: u16 = 9;
const DEVICE_RESET: u16 = 13;

impl Rig {
    fn new(doorbells: DoorbellMode) -> Self {
        let config = ControllerConfig {
            name: "c".into(),
            vendor_id: 0x4e56,
            device_id: 1,
            serial: "S".into(),
            model_number: "M".into(),
            firmware_revision: "1".into(),
            subnqn: "nqn.2024-01.org.example:c".into(),
            queues: 1,
            queue_depth: 16,
            max_transfer: 1 << 20,
            doorbells,
            msix: true,
            intx: false,
            interface: Interface::Pcie,
        };
        let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let (host, server) = UnixStream::pair().unwrap();
        let session_config = SessionConfig::of(&config);
        let subsystem = SubsystemConfig::with_namespaces(1, []);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let mut controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
        (&host).write_all(&message(VERSION, &[0; 4])).unwrap();
        let mut caller = Caller::new(Arrival::ours(server), Time(0)).unwrap();
        caller.poll(Time(0), false).unwrap();
        let session = caller
            .attach(pages, session_config, &mut controller)
            .unwrap();
        let mut rig = Self {
            host,
            session,
            controller,
        };
        rig.receive();
        rig
    }

    fn send(&mut self, command: u16, body: &[u8]) {
        self.host.write_all(&message(command, body)).unwrap();
    }

    fn poll(&mut self, now: u64) -> u32 {
        let polled = self.session.poll(&mut self.controller, Time(now));
        assert!(polled.ended.is_none(), "{:?}", polled.ended);
        polled.messages
    }

    /// The errno and body of the next message, which has been sent.
    fn receive(&mut self) -> (u32, Vec<u8>) {
        let mut header = [0; 16];
        self.host.read_exact(&mut header).unwrap();
        let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; field(4) as usize - 16];
        self.host.read_exact(&mut body).unwrap();
        (field(12), body)
    }

    fn csts(&self) -> u32 {
        let mut csts = [0; 4];
        self.controller.bar_read(0, 0x1c, &mut csts);
        u32::from_le_bytes(csts)
    }
}

fn message(command: u16, body: &[u8]) -> Vec<u8> {
    let size = 16 + u32::try_from(body.len()).unwrap();
    let mut message = vec![7, 0];
    message.extend(command.to_le_bytes());
    message.extend(size.to_le_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn region_info(argsz: u32) -> Vec<u8> {
    let mut body = argsz.to_le_bytes().to_vec();
    body.resize(32, 0);
    body
}

#[test]
fn a_poll_without_messages_does_nothing() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    assert_eq!(rig.poll(0), 0);
    assert!(!rig.session.has_pending());
    assert!(!rig.session.wants_write());
    assert_eq!(rig.session.next_deadline(), None);
}

#[test]
fn a_poll_handles_a_bounded_number_of_messages() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    for _ in 0..100 {
        rig.send(GET_INFO, &[16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    let mut handled = Vec::new();
    while handled.iter().sum::<u32>() < 100 {
        handled.push(rig.poll(0));
    }
    assert!(handled.len() > 3, "{handled:?}");
    assert!(handled.iter().all(|&messages| messages > 0), "{handled:?}");
}

#[test]
fn doorbells_count_as_mapped_once_their_descriptor_was_sent() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    assert!(!rig.session.doorbells_mapped());
    rig.send(GET_REGION_INFO, &region_info(32));
    rig.poll(0);
    assert!(!rig.session.doorbells_mapped(), "too small a buffer for it");
    rig.send(GET_REGION_INFO, &region_info(64));
    rig.poll(0);
    assert!(rig.session.doorbells_mapped());

    let mut rig = Rig::new(DoorbellMode::Unmapped);
    rig.send(GET_REGION_INFO, &region_info(64));
    rig.poll(0);
    assert!(!rig.session.doorbells_mapped());
}

#[test]
fn a_reply_that_waits_wants_polls_and_has_a_deadline() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    rig.send(DEVICE_RESET, &[]);
    rig.poll(1_000);
    assert!(rig.session.has_pending());
    let deadline = rig.session.next_deadline().unwrap().0;
    assert!(deadline < 5_000_000_000, "the host waits 5 s: {deadline}");
    rig.poll(deadline - 1);
    assert!(rig.session.has_pending());
    rig.poll(deadline);
    assert!(!rig.session.has_pending());
    assert_eq!(rig.session.next_deadline(), None);
    assert_eq!(rig.receive(), (110, vec![]));
}

#[test]
fn what_a_host_does_not_read_waits_for_room() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    // Each asks for 4 KiB of configuration space.
    let read = [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 16, 0, 0];
    let mut asked = 0;
    while !rig.session.wants_write() {
        rig.send(REGION_READ, &read);
        asked += rig.poll(0);
        assert!(asked < 10_000, "a socket holds less");
    }
    for left in (0..asked).rev() {
        assert_eq!(rig.receive().1.len(), 16 + 4096);
        rig.poll(0);
        assert!(left > 0 || !rig.session.wants_write());
    }
}

#[test]
fn a_host_that_goes_ends_the_session() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    rig.host.shutdown(std::net::Shutdown::Both).unwrap();
    let polled = rig.session.poll(&mut rig.controller, Time(0));
    assert!(matches!(polled.ended, Some(SessionEnd::Closed)));
    assert_eq!(rig.csts(), 0, "that is no failure");
}

#[test]
fn lost_framing_ends_the_session_and_fails_the_controller() {
    let mut rig = Rig::new(DoorbellMode::Mapped);
    rig.host.write_all(&[0; 16]).unwrap();
    let polled = rig.session.poll(&mut rig.controller, Time(0));
    let ended = polled.ended.unwrap();
    assert!(matches!(ended, SessionEnd::FramingLost { size: 0 }));
    // CSTS.CFS (Base 2.1, 3.1.4.6).
    assert_eq!(rig.csts() & 0b10, 0b10);
}
