//! A channel of zones that another process left: what it makes of notes, and what it refuses.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use controller::crash::{self, Death};
use media::{Channel, KeptFiles, Medium, MediumKind, MediumSpec, ZoneSpec};
use nvme_spec::{Sqe, Status};
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as _, Request};

use crate::common::{Host, pattern};
use crate::outlived::{Act, BLOCK, DATA, RESET, SPEC, ZONE, ZONES};

/// A channel of zones in memory, and what its process leaves.
pub(crate) struct Zones {
    host: Host,
    medium: Option<Arc<Medium>>,
    channel: Option<Channel>,
    kept: KeptFiles,
}

impl Zones {
    pub(crate) fn new() -> Zones {
        let mut zones = Zones {
            host: Host::new(1 << 20),
            medium: None,
            channel: None,
            kept: KeptFiles::default(),
        };
        zones.begin();
        zones
    }

    /// Another process continues.
    fn begin(&mut self) {
        self.channel = None;
        let spec = MediumSpec {
            kind: MediumKind::Zoned {
                of: Box::new(MediumKind::Ram { size: ZONES * ZONE }),
                zones: SPEC,
            },
        };
        let files = std::mem::take(&mut self.kept);
        let medium = Medium::open_kept(&spec, files).expect("opened");
        let copied = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("copied");
        self.kept = KeptFiles {
            memory: medium.memory_file().map(copied),
            zones: medium.zones_file().map(copied),
        };
        self.channel = Some(medium.channel(16).expect("a channel"));
        self.medium = Some(medium);
    }

    /// The medium, without its channel.
    pub(crate) fn end(self) -> Arc<Medium> {
        drop(self.channel);
        self.medium.expect("it lives")
    }

    /// Executes a command at once, with a note where a former process had one; returns its result.
    pub(crate) fn run(&mut self, act: Act, note: Option<u64>) -> Result<u64, Status> {
        let sqe = act.sqe(0);
        let request = as_request(&act, &sqe);
        let len = match act {
            Act::Write(_, _, blocks, _) | Act::Append(_, blocks) => blocks as usize * 4096,
            Act::Describe(_) => 64,
            _ => 0,
        };
        self.host.put(DATA, &pattern(7, len));
        let pieces = if len > 0 { vec![(DATA, len)] } else { vec![] };
        let segments = self.host.segments(&pieces);
        let channel = self.channel.as_mut().expect("it lives");
        let ticket = Ticket::numbered(1);
        let added = match note {
            Some(note) => channel.add_again(ticket, (&request, note), &segments, &self.host.view),
            None => channel.add(ticket, &request, &segments, &self.host.view),
        };
        let Added::Done(ticket, outcome) = added else {
            panic!("memory answers at once")
        };
        ticket.retire();
        match port::status::of(outcome.cause) {
            Status::SUCCESSFUL_COMPLETION => Ok(outcome.result),
            status => Err(status),
        }
    }

    fn note(&self, act: Act) -> Option<u64> {
        let channel = self.channel.as_ref().expect("it lives");
        channel.note(&as_request(&act, &act.sqe(0)))
    }

    fn has_begun(&self, act: Act, note: u64) -> bool {
        let channel = self.channel.as_ref().expect("it lives");
        channel.has_begun(&as_request(&act, &act.sqe(0)), note)
    }

    /// State, and write pointer in blocks, of a zone.
    fn zone(&mut self, number: u64) -> (u8, u64) {
        let sqe = Sqe {
            opcode: 0x7a,
            cdw10: (number * (ZONE / BLOCK)) as u32,
            cdw12: 1023,
            ..Sqe::default()
        };
        let segments = self.host.segments(&[(DATA, 4096)]);
        let channel = self.channel.as_mut().expect("it lives");
        let request = command(&sqe);
        let added = channel.add(Ticket::numbered(1), &request, &segments, &self.host.view);
        let Added::Done(ticket, _) = added else {
            panic!("memory answers at once")
        };
        ticket.retire();
        let report = self.host.get(DATA + 64, 64);
        let pointer = u64::from_le_bytes(report[24..32].try_into().expect("8 bytes"));
        (report[1] >> 4, pointer - number * (ZONE / BLOCK))
    }

    /// A block of a zone.
    fn block(&mut self, zone: u64, at: u64) -> Vec<u8> {
        let segments = self.host.segments(&[(DATA, 4096)]);
        let channel = self.channel.as_mut().expect("it lives");
        let request = Request::Read {
            offset: zone * ZONE + at * BLOCK,
            len: 4096,
        };
        let added = channel.add(Ticket::numbered(1), &request, &segments, &self.host.view);
        let Added::Done(ticket, _) = added else {
            panic!("memory answers at once")
        };
        ticket.retire();
        self.host.get(DATA, 4096)
    }
}

fn command(sqe: &Sqe) -> Request<'_> {
    Request::Command {
        sqe,
        extent: ByteRange {
            offset: 0,
            len: ZONES * ZONE,
        },
        lba_shift: 12,
        fua: false,
    }
}

fn as_request<'s>(act: &Act, sqe: &'s Sqe) -> Request<'s> {
    match *act {
        Act::Write(zone, at, blocks, fua) => Request::Write {
            offset: zone * ZONE + at * BLOCK,
            len: blocks * 4096,
            fua,
        },
        _ => command(sqe),
    }
}

const CLOSE: u8 = 1;
const CLOSED: u8 = 0x4;

#[test]
fn bytes_behind_a_write_pointer_that_has_not_moved_are_zero() {
    let mut zones = Zones::new();
    // Between the bytes and the write pointer.
    let died = crash::run(0, || zones.run(Act::Write(0, 0, 2, false), None));
    assert_eq!(died, Err(Death));
    assert_ne!(zones.block(0, 0), vec![0; 4096], "they were written");
    zones.begin();
    assert_eq!(zones.zone(0), (1, 0));
    assert_eq!(zones.block(0, 0), vec![0; 4096]);
    assert_eq!(zones.block(0, 1), vec![0; 4096]);
}

#[test]
fn an_append_that_had_not_begun_does_not_take_the_place_of_another_one() {
    let mut zones = Zones::new();
    let append = Act::Append(1, 2);
    assert_eq!(zones.run(append, None), Ok(16));
    let note = zones.note(append).expect("it would move the pointer");
    assert_eq!(note, 18);
    zones.begin();
    // Another one that was in flight, too, is executed before.
    assert_eq!(zones.run(append, None), Ok(18));
    assert!(!zones.has_begun(append, note));
    assert_eq!(zones.note(append), Some(20));
}

#[test]
fn a_write_that_had_begun_does_not_open_its_zone_again() {
    let mut zones = Zones::new();
    let write = Act::Write(2, 0, 1, false);
    let note = zones.note(write).expect("it would move the pointer");
    zones.run(write, None).expect("written");
    zones.run(Act::Send(2, CLOSE), None).expect("closed");
    zones.begin();
    assert!(zones.has_begun(write, note));
    zones.run(write, Some(note)).expect("written again");
    assert_eq!(zones.zone(2), (CLOSED, 1));
    // A reset in between is an order that the host must expect, and the write then is a new one.
    zones.run(Act::Send(2, RESET), None).expect("reset");
    assert!(!zones.has_begun(write, note));
}

#[test]
fn what_would_be_refused_has_no_note() {
    let mut zones = Zones::new();
    zones.run(Act::Describe(0), None).expect("described");
    assert_eq!(zones.note(Act::Describe(0)), None);
    assert_eq!(zones.note(Act::Write(1, 3, 1, false)), None);
    assert_eq!(zones.note(Act::OpenRandom(0)), None);
    assert_eq!(
        zones.note(Act::Commit(0, 0)),
        Some(0),
        "it has no area: nothing is done"
    );
    assert_eq!(zones.note(Act::Send(0, RESET)), None, "it can be repeated");
    zones.begin();
    assert!(!zones.has_begun(Act::Commit(0, 0), 0));
    assert_eq!(
        zones.run(Act::Describe(0), None),
        Err(Status::INVALID_ZONE_STATE_TRANSITION)
    );
}

#[test]
fn zones_of_another_shape_and_damaged_ones_are_refused() {
    let mut zones = Zones::new();
    zones
        .run(Act::Write(5, 0, 2, false), None)
        .expect("written");
    let file = std::fs::File::from(zones.kept.zones.take().expect("kept"));
    let open = |spec: ZoneSpec| {
        let spec = MediumSpec {
            kind: MediumKind::Zoned {
                of: Box::new(MediumKind::Ram { size: ZONES * ZONE }),
                zones: spec,
            },
        };
        let files = KeptFiles {
            memory: None,
            zones: Some(file.try_clone().expect("copied").into()),
        };
        Medium::open_kept(&spec, files)
    };
    let other = ZoneSpec {
        zone_capacity: 10 * BLOCK,
        ..SPEC
    };
    let refused = |opened: Result<Arc<Medium>, media::MediumError>| {
        opened.err().map(|error| error.to_string())
    };
    let why = refused(open(other)).expect("refused");
    assert!(why.contains("another size"), "{why}");
    // The state of the zone's current copy: the second one of two of 24 bytes.
    let at = 4096 + 64 + 5 * 48 + 24 + 20;
    file.write_all_at(&[9], at).expect("damaged");
    let why = refused(open(SPEC)).expect("refused");
    assert!(why.contains("zone 5"), "{why}");
    file.write_all_at(&9_u32.to_le_bytes(), 12)
        .expect("another version");
    let why = refused(open(SPEC)).expect("refused");
    assert!(why.contains("format version is 9"), "{why}");
}
