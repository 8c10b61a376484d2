//! Two hosts, each with a controller of one subsystem, and a namespace that both have (Base 2.1,
//! 8.1.22).

use nvme_spec::{Cqe, Sqe};
use port::testing::Manner;
use port::ticket::OwnerKey;
use subsystem::{Allocated, Record, Subsystem, SubsystemConfig};

use super::rig::*;
use crate::controller::DEADLINE_NS;

// Opcodes (Base 2.1, figure 556; NVM 1.1, figure 17).
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const REGISTER: u8 = 0x0d;
const REPORT: u8 = 0x0e;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const CONFLICT: u16 = 0x083;
const INCONSISTENT: u16 = 0x018;
const OPCODES: u8 = 8;

/// Both hosts. The subsystem stays with the one whose turn it is.
struct Pair {
    rigs: [Rig; 2],
    /// The controller that has the subsystem.
    at: usize,
    sent: [u32; 2],
}

impl Pair {
    fn new(keeping: bool) -> Self {
        let namespaces = namespaces().into_iter().map(|namespace| Allocated {
            shared: true,
            ..Allocated::everywhere(namespace)
        });
        let subsystem = SubsystemConfig {
            namespaces: namespaces.collect(),
            keeping,
            ..SubsystemConfig::with_namespaces(32, [])
        };
        let first = Rig::of(config(), subsystem);
        let mut second = config();
        second.name = "second".to_owned();
        let nobody = Subsystem::new(SubsystemConfig::with_namespaces(1, [])).unwrap();
        let mut first = first;
        let shared = std::mem::replace(&mut first.subsystem, nobody);
        let mut second = Rig::in_subsystem(second, shared);
        // Lanes and media of the two are apart; so are the keys of their tickets.
        second.controller.set_key(OwnerKey::controller(8));
        let mut pair = Pair {
            rigs: [first, second],
            at: 1,
            sent: [0; 2],
        };
        for who in [0, 1] {
            let rig = pair.rig(who);
            rig.enable();
            rig.create_pair(1, 64);
        }
        pair
    }

    /// A host, with the subsystem.
    fn rig(&mut self, who: usize) -> &mut Rig {
        if self.at != who {
            let [first, second] = &mut self.rigs;
            std::mem::swap(&mut first.subsystem, &mut second.subsystem);
            self.at = who;
        }
        &mut self.rigs[who]
    }

    fn turns(&mut self, count: u32) {
        for _ in 0..count {
            for who in [0, 1] {
                self.rig(who).turn();
            }
        }
    }

    /// Time passes for both.
    fn pass(&mut self, ns: u64) {
        self.turns(4);
        for rig in &mut self.rigs {
            rig.now = rig.now + ns;
        }
        self.turns(4);
    }

    /// Sends an I/O command with these bytes in the data page; its number.
    fn send(&mut self, who: usize, sqe: Sqe, data: &[u8]) -> u32 {
        let number = self.sent[who];
        self.sent[who] += 1;
        let rig = self.rig(who);
        rig.host.write(rig.data_page(), data);
        let prp1 = rig.data_page().0;
        let cid = number as u16;
        rig.submit_io(1, number, Sqe { cid, prp1, ..sqe });
        number
    }

    fn done(&self, who: usize, number: u32) -> Option<u16> {
        self.rigs[who].io_cqe(1, number).map(|cqe: Cqe| code(&cqe))
    }

    fn io(&mut self, who: usize, sqe: Sqe, data: &[u8]) -> u16 {
        let number = self.send(who, sqe, data);
        self.turns(8);
        self.done(who, number).expect("it completes")
    }

    fn reservation(&mut self, who: usize, opcode: u8, cdw10: u32, keys: [u64; 2]) -> u16 {
        let sqe = Sqe {
            opcode,
            nsid: 1,
            cdw10,
            ..Sqe::default()
        };
        self.io(who, sqe, &keys.map(u64::to_le_bytes).concat())
    }

    fn register(&mut self, who: usize, key: u64) {
        assert_eq!(self.reservation(who, REGISTER, 0, [0, key]), OK);
    }

    fn block(&mut self, who: usize, opcode: u8) -> u16 {
        let sqe = Sqe {
            opcode,
            nsid: 1,
            ..Sqe::default()
        };
        self.io(who, sqe, &[0; 512])
    }

    /// Sets the Host Identifier of 64 bits.
    fn identify_as(&mut self, who: usize, id: [u8; 8]) -> u16 {
        let rig = self.rig(who);
        rig.host.write(rig.data_page(), &id);
        let sqe = rig.with_data(SET_FEATURES);
        rig.status(Sqe { cdw10: 0x81, ..sqe })
    }

    /// The report of 64-bit identifiers, of `len` bytes.
    fn report(&mut self, who: usize, len: u32) -> Vec<u8> {
        let sqe = Sqe {
            opcode: REPORT,
            nsid: 1,
            cdw10: len / 4 - 1,
            ..Sqe::default()
        };
        assert_eq!(self.io(who, sqe, &[0xee; 4096]), OK);
        let rig = self.rig(who);
        rig.host.read(rig.data_page(), 4096)
    }
}

/// With the reset the host has no identifier, and the command would be of another host.
#[test]
fn a_command_that_a_lane_has_at_a_reset_registers_no_host() {
    let mut pair = Pair::new(false);
    assert_eq!(pair.identify_as(0, *b"identity"), OK);
    let register = Sqe {
        opcode: REGISTER,
        nsid: 1,
        ..Sqe::default()
    };
    let keys = [0, 7_u64].map(u64::to_le_bytes).concat();
    pair.send(0, register, &keys);
    // The lane fetches, after its controller's turn.
    let rig = pair.rig(0);
    rig.turn();
    rig.controller.function_reset();
    rig.turns(20);
    assert_eq!(rig.csts(), 0);
    assert!(rig.controller.is_quiet());
    let registrants = u16_at(&pair.report(1, 4096), 5);
    assert_eq!(registrants, 0);
}

#[test]
fn a_write_exclusive_reservation_lets_the_other_host_read() {
    let mut pair = Pair::new(false);
    assert_eq!([pair.block(0, WRITE), pair.block(1, WRITE)], [OK; 2]);
    pair.register(0, 1);
    assert_eq!(pair.reservation(0, ACQUIRE, 1 << 8, [1, 0]), OK);
    assert_eq!([pair.block(0, WRITE), pair.block(0, READ)], [OK; 2]);
    assert_eq!([pair.block(1, WRITE), pair.block(1, READ)], [CONFLICT, OK]);
    // Write Zeroes, Dataset Management (deallocate), Write Uncorrectable and Flush change data.
    for opcode in [OPCODES, 0x09, 0x04, 0x00] {
        assert_eq!(pair.block(1, opcode), CONFLICT, "{opcode:#x}");
    }
    assert_eq!(pair.block(1, 0x05), OK, "Compare reads");
    assert_eq!(pair.reservation(1, ACQUIRE, 1 << 8, [0, 0]), CONFLICT);
    assert_eq!(pair.reservation(0, RELEASE, 1 << 8, [1, 0]), OK);
    assert_eq!(pair.block(1, WRITE), OK);
}

#[test]
fn exclusive_access_keeps_others_from_reading_and_other_namespaces_are_free() {
    let mut pair = Pair::new(false);
    pair.register(1, 7);
    assert_eq!(pair.reservation(1, ACQUIRE, 2 << 8, [7, 0]), OK);
    assert_eq!([pair.block(0, WRITE), pair.block(0, READ)], [CONFLICT; 2]);
    let other = Sqe {
        opcode: WRITE,
        nsid: 3,
        ..Sqe::default()
    };
    assert_eq!(pair.io(0, other, &[0; 512]), OK);
}

#[test]
fn one_host_on_two_controllers_is_one_registrant() {
    let mut pair = Pair::new(false);
    for who in [0, 1] {
        assert_eq!(pair.identify_as(who, *b"one host"), OK);
    }
    pair.register(0, 1);
    assert_eq!(pair.reservation(0, ACQUIRE, 2 << 8, [1, 0]), OK);
    assert_eq!(pair.block(1, WRITE), OK, "it is the holder, too");
    let report = pair.report(1, 4096);
    assert_eq!(report[4], 2, "RTYPE");
    assert_eq!(report[5..7], [2, 0], "two controllers are registered");
    for (entry, id) in [(24, 1), (48, 2)] {
        assert_eq!(u16_at(&report, entry), id, "CNTLID");
        assert_eq!(report[entry + 2] & 1, 1, "its host holds it");
        assert_eq!(&report[entry + 8..entry + 16], b"one host");
        assert_eq!(u64_at(&report, entry + 16), 1, "RKEY");
    }
    assert!(
        report[72..].iter().all(|byte| *byte == 0xee),
        "no more was given"
    );
    let head = pair.report(1, 8);
    assert_eq!(head[5..7], [2, 0]);
    assert!(
        head[8..].iter().all(|byte| *byte == 0xee),
        "as much as was asked for"
    );
}

#[test]
fn identifiers_of_two_sizes_do_not_mix() {
    let mut pair = Pair::new(false);
    assert_eq!(pair.identify_as(0, *b"one host"), OK);
    let rig = pair.rig(1);
    rig.host.write(rig.data_page(), b"a host of 16 byt");
    let sqe = rig.with_data(SET_FEATURES);
    let extended = Sqe {
        cdw10: 0x81,
        cdw11: 1,
        ..sqe
    };
    assert_eq!(rig.status(extended), INCONSISTENT);
    // And a report must be of the size that the host has (Base 2.1, 7.8).
    let report = Sqe {
        opcode: REPORT,
        nsid: 1,
        cdw10: 15,
        cdw11: 1,
        ..Sqe::default()
    };
    assert_eq!(pair.io(0, report, &[]), INCONSISTENT);
}

#[test]
fn a_reservation_is_told_when_no_older_write_is_in_flight() {
    let mut pair = Pair::new(false);
    pair.register(0, 1);
    pair.rig(1).medium(0).manner = Manner::Hanging;
    let write = Sqe {
        opcode: WRITE,
        nsid: 1,
        ..Sqe::default()
    };
    let late = pair.send(1, write, &[0; 512]);
    pair.turns(4);
    let keys = [1_u64, 0].map(u64::to_le_bytes).concat();
    let acquire = Sqe {
        opcode: ACQUIRE,
        nsid: 1,
        cdw10: 1 << 8,
        ..Sqe::default()
    };
    let acquired = pair.send(0, acquire, &keys);
    pair.turns(8);
    assert_eq!((pair.done(0, acquired), pair.done(1, late)), (None, None));
    // A command that comes now conflicts at once, and is the first to complete.
    pair.send(1, write, &[0; 512]);
    pair.turns(8);
    assert_eq!(pair.done(1, 0), Some(CONFLICT));
    pair.rig(1).medium(0).release(1);
    pair.turns(8);
    assert_eq!(pair.done(0, acquired), Some(OK));
    assert_eq!(pair.done(1, 1), Some(OK), "the late write");
}

#[test]
fn a_write_that_hangs_is_given_up_for_a_reservation() {
    let mut pair = Pair::new(false);
    pair.register(0, 1);
    pair.rig(1).medium(0).manner = Manner::Hanging;
    let write = Sqe {
        opcode: WRITE,
        nsid: 1,
        ..Sqe::default()
    };
    let late = pair.send(1, write, &[0; 512]);
    pair.turns(4);
    let keys = [1_u64, 0].map(u64::to_le_bytes).concat();
    let acquire = Sqe {
        opcode: ACQUIRE,
        nsid: 1,
        cdw10: 1 << 8,
        ..Sqe::default()
    };
    let acquired = pair.send(0, acquire, &keys);
    pair.pass(DEADLINE_NS);
    assert_eq!(pair.done(0, acquired), Some(OK));
    assert_eq!(pair.done(1, late), Some(ABORT_REQUESTED));
}

#[test]
fn who_is_preempted_is_told_by_an_event_and_a_log_page() {
    let mut pair = Pair::new(false);
    pair.register(0, 1);
    pair.register(1, 2);
    assert_eq!(pair.reservation(0, ACQUIRE, 1 << 8, [1, 0]), OK);
    pair.rig(0).async_event();
    assert_eq!(pair.reservation(1, ACQUIRE, 1 << 8 | 1, [2, 1]), OK);
    pair.turns(4);
    let event = pair.rig(0).reap().expect("it is told");
    // I/O Command specific status (110b), information 00h, log page 80h.
    assert_eq!(event.dw0, 0x0080_0006);
    let page = pair.rig(0).log(0x80, 0, 64).unwrap();
    assert_eq!(u64_at(&page, 0), 1, "LPC");
    assert_eq!(
        (page[8], page[9]),
        (1, 0),
        "Registration Preempted, no more pages"
    );
    assert_eq!(u32_at(&page, 12), 1, "NSID");
    assert_eq!(pair.rig(0).log(0x80, 0, 64), Ok(vec![0; 64]), "it was read");
    assert_eq!(
        pair.rig(1).log(0x80, 0, 64),
        Ok(vec![0; 64]),
        "who did it knows"
    );
    assert_eq!([pair.block(0, WRITE), pair.block(1, WRITE)], [CONFLICT, OK]);
}

#[test]
fn masked_notifications_are_not_made() {
    let mut pair = Pair::new(false);
    pair.register(0, 1);
    pair.register(1, 2);
    // Reservation Notification Mask: Registration Preempted (bit 1), of namespace 1.
    let mask = Sqe {
        opcode: SET_FEATURES,
        nsid: 1,
        cdw10: 0x82,
        cdw11: 0b10,
        ..Sqe::default()
    };
    assert_eq!(pair.rig(0).status(mask), OK);
    assert_eq!(pair.reservation(1, ACQUIRE, 1 << 8 | 1, [2, 1]), OK);
    pair.turns(4);
    assert_eq!(pair.rig(0).log(0x80, 0, 64), Ok(vec![0; 64]));
    let get = Sqe {
        opcode: GET_FEATURES,
        nsid: 1,
        cdw10: 0x82,
        ..Sqe::default()
    };
    assert_eq!(pair.rig(0).admin(get).dw0, 0b10);
    assert_eq!(pair.rig(1).admin(get).dw0, 0, "each controller has its own");
}

#[test]
fn a_reset_makes_a_host_without_identifier_another_one() {
    let mut pair = Pair::new(false);
    assert_eq!(pair.identify_as(1, *b"identity"), OK);
    pair.register(0, 1);
    pair.register(1, 2);
    assert_eq!(pair.reservation(0, ACQUIRE, 2 << 8, [1, 0]), OK);
    assert_eq!(pair.block(1, READ), CONFLICT);
    pair.rig(0).disable();
    pair.turns(4);
    assert_eq!(pair.block(1, READ), OK, "its holder is gone");
    // One with an identifier stays registered, but its controller has another host until that says
    // who it is.
    pair.rig(1).disable();
    pair.rig(1).enable();
    pair.rig(1).create_pair(1, 64);
    pair.sent[1] = 0;
    let report = pair.report(1, 4096);
    assert_eq!(report[5..7], [1, 0]);
    assert_eq!(u16_at(&report, 24), 0xffff, "no controller of that host");
    assert_eq!(pair.identify_as(1, *b"identity"), OK);
    assert_eq!(u16_at(&pair.report(1, 4096), 24), 2);
}

#[test]
fn what_persists_is_kept_before_it_is_told() {
    let mut pair = Pair::new(true);
    assert_eq!(pair.identify_as(0, *b"identity"), OK);
    let keep = |pair: &mut Pair| -> Option<Record> {
        pair.turns(4);
        let (version, record) = pair.rig(0).subsystem.take_record()?;
        pair.rig(0).subsystem.kept(version);
        pair.turns(4);
        Some(record)
    };
    keep(&mut pair);
    // Register with Persist Through Power Loss.
    let sqe = Sqe {
        opcode: REGISTER,
        nsid: 1,
        cdw10: 0b11 << 30,
        ..Sqe::default()
    };
    let number = pair.send(0, sqe, &[0_u64, 5].map(u64::to_le_bytes).concat());
    pair.turns(8);
    assert_eq!(pair.done(0, number), None, "it is not kept yet");
    let record = keep(&mut pair).expect("it changed");
    assert_eq!(pair.done(0, number), Some(OK));
    assert!(record.namespaces[0].reservation.is_some());
    let get = Sqe {
        opcode: GET_FEATURES,
        nsid: 1,
        cdw10: 0x83,
        ..Sqe::default()
    };
    assert_eq!(pair.rig(1).admin(get).dw0, 1, "PTPL is the namespace's");
    // Cleared by the feature, no part of it is kept.
    let clear = pair.rig(0).submit(Sqe {
        opcode: SET_FEATURES,
        nsid: 1,
        cdw10: 0x83,
        ..Sqe::default()
    });
    let record = keep(&mut pair).expect("it changed");
    let cqe = pair.rig(0).reap().expect("it is kept");
    assert_eq!((cqe.cid, code(&cqe)), (clear, OK));
    assert!(record.namespaces[0].reservation.is_none());
}
