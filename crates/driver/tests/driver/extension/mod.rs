//! The example of the book's chapter *Extend it*, driven as a host does.

mod fetch_add;

use std::sync::Arc;

use controller::Controller;
use controller::config::{ControllerConfig, DoorbellMode};
use controller::subsystem::{Subsystem, SubsystemConfig};
use driver::{DriverError, Options};
use fetch_add::{Counting, FETCH_AND_ADD, FetchAdd};
use memory::{DmaView, DoorbellPages, Segment};
use nvme_spec::log::LogPageId;
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::{Added, Channel, ChannelId, Channels, Done, MediumTraits, Outcome, Request};

/// A medium that says yes.
struct Null;

impl Channel for Null {
    fn add(
        &mut self,
        ticket: Ticket,
        _: &Request<'_>,
        _: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        Added::Done(ticket, Outcome::OK)
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut Vec<Done>) {}

    fn in_flight(&self) -> u32 {
        0
    }
}

/// Namespace 1 with the command, 2 without.
fn namespaces() -> [Namespace; 2] {
    [1, 2].map(|nsid: u8| Namespace {
        nsid: nsid.into(),
        channel: ChannelId(0),
        start: u64::from(nsid) << 20,
        blocks: 64,
        lba_shift: 12,
        nguid: [nsid; 16],
        eui64: [nsid; 8],
        traits: MediumTraits::default(),
        restrictions: None,
        set: (nsid == 1).then(|| Arc::new(FetchAdd) as _),
    })
}

#[test]
fn a_vendor_command_of_one_file_is_reached_by_a_host() {
    let config = ControllerConfig {
        name: "test".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S0001".into(),
        model_number: "a model".into(),
        firmware_revision: "1.0".into(),
        subnqn: "nqn.2024-01.org.example:test".into(),
        queues: 1,
        queue_depth: 16,
        max_transfer: 8192,
        doorbells: DoorbellMode::Mapped,
        msix: true,
        intx: false,
    };
    let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
    let mut channels = Channels::new();
    assert!(channels.insert(Counting(Null, 40)).is_ok());
    let subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
    let options = Options::default();
    let mut device =
        loopback::device(controller, subsystem, pages, true, channels, &options).unwrap();
    device.enable().unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();

    let mut add = |nsid, cdw10| {
        let sqe = Sqe {
            opcode: FETCH_AND_ADD,
            nsid,
            cdw10,
            ..Sqe::default()
        };
        queue.run("Fetch and Add", sqe)
    };
    assert_eq!(add(1, 2).unwrap().dw0, 40);
    assert_eq!(add(1, u32::MAX).unwrap().dw0, 42);
    let cqe = add(1, 0).unwrap();
    assert_eq!((cqe.dw0, cqe.dw1), (41, 1));
    // Another namespace has no such command, and the first one still has those of its set.
    let Err(DriverError::Status { status, .. }) = add(2, 1) else {
        panic!("namespace 2 has the command");
    };
    assert_eq!(status, Status::INVALID_COMMAND_OPCODE);
    queue.flush(1).unwrap();

    // Commands Supported and Effects: I/O commands begin at byte 1024, 4 bytes each.
    let mut effects = [0; 4096];
    let lid = LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS;
    device.get_log_page(lid, 0, 0, &mut effects).unwrap();
    assert_eq!(effects[1024 + 4 * 0xc0], 1);
}
