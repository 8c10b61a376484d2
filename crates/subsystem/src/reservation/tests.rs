//! The rules of Base 2.1, 8.1.22, typed from there: who may do what, and what each action leaves.

use nvme_spec::Status;
use nvme_spec::reservation::ReservationNotificationType as Notice;
use proptest::prelude::*;

use super::report::report;
use super::*;

const A: Host = Host::Short([0xa; 8]);
const B: Host = Host::Short([0xb; 8]);
const C: Host = Host::Short([0xc; 8]);
const CONFLICT: Result<Notices, Status> = Err(Status::RESERVATION_CONFLICT);
const INVALID: Result<Notices, Status> = Err(Status::INVALID_FIELD_IN_COMMAND);

fn nothing() -> Result<Notices, Status> {
    Ok(Notices::new())
}

/// Action in bits 2:0, IEKEY in bit 3, CPTPL in bits 31:30.
fn register(
    r: &mut Reservation,
    host: Host,
    cdw10: u32,
    crkey: u64,
    nrkey: u64,
) -> Result<Notices, Status> {
    let cdw10 = cdw10.into();
    r.execute(
        host,
        &ReservationCommand::Register {
            cdw10,
            crkey,
            nrkey,
        },
    )
}

/// Action in bits 2:0, IEKEY in bit 3, type in bits 15:8.
fn acquire(
    r: &mut Reservation,
    host: Host,
    action: u32,
    rtype: u32,
    crkey: u64,
    prkey: u64,
) -> Result<Notices, Status> {
    let cdw10 = (action | rtype << 8).into();
    r.execute(
        host,
        &ReservationCommand::Acquire {
            cdw10,
            crkey,
            prkey,
        },
    )
}

fn release(
    r: &mut Reservation,
    host: Host,
    action: u32,
    rtype: u32,
    crkey: u64,
) -> Result<Notices, Status> {
    let cdw10 = (action | rtype << 8).into();
    r.execute(host, &ReservationCommand::Release { cdw10, crkey })
}

/// A with key 1 and B with key 2 are registered, and A holds a reservation of this type.
fn held(rtype: u32) -> Reservation {
    let mut r = Reservation::default();
    register(&mut r, A, 0, 0, 1).unwrap();
    register(&mut r, B, 0, 0, 2).unwrap();
    acquire(&mut r, A, 0, rtype, 1, 0).unwrap();
    r
}

#[test]
fn access_by_type_and_role() {
    // Read and write, of the holder, another registrant, and somebody else.
    let table = [
        (1, [(true, true), (true, false), (true, false)]),
        (2, [(true, true), (false, false), (false, false)]),
        (3, [(true, true), (true, true), (true, false)]),
        (4, [(true, true), (true, true), (false, false)]),
        (5, [(true, true), (true, true), (true, false)]),
        (6, [(true, true), (true, true), (false, false)]),
    ];
    for (rtype, expected) in table {
        let r = held(rtype);
        assert_eq!([A, B, C].map(|host| r.access(host)), expected, "{rtype}");
    }
    assert_eq!(Reservation::default().access(A), (true, true));
}

#[test]
fn registering() {
    let mut r = Reservation::default();
    assert_eq!(
        register(&mut r, A, 0, 99, 1),
        nothing(),
        "CRKEY is not looked at"
    );
    assert_eq!(
        register(&mut r, A, 0, 0, 1),
        nothing(),
        "the same key again"
    );
    assert_eq!(register(&mut r, A, 0, 0, 2), CONFLICT);
    // Replace: with the right key, with a wrong one, and with IEKEY.
    assert_eq!(register(&mut r, A, 2, 9, 2), CONFLICT);
    assert_eq!(register(&mut r, A, 2, 1, 2), nothing());
    assert_eq!(register(&mut r, A, 0b1010, 9, 3), nothing());
    assert_eq!(r.registrants, [Registrant { host: A, key: 3 }]);
    assert_eq!(
        register(&mut r, B, 2, 0, 2),
        CONFLICT,
        "it is not registered"
    );
    assert_eq!(
        register(&mut r, B, 0b1010, 0, 7),
        nothing(),
        "IEKEY registers it"
    );
    // Unregister.
    assert_eq!(register(&mut r, A, 1, 1, 0), CONFLICT);
    assert_eq!(register(&mut r, A, 1, 3, 0), nothing());
    assert_eq!(register(&mut r, A, 1, 3, 0), CONFLICT);
    assert_eq!(register(&mut r, B, 0b1001, 0, 0), nothing());
    assert!(r.registrants.is_empty());
    // Reserved: actions 3 to 7, CPTPL 01b.
    for action in 3..8 {
        assert_eq!(register(&mut r, A, action, 0, 0), INVALID);
    }
    assert_eq!(register(&mut r, A, 0b01 << 30, 0, 1), INVALID);
    assert!(!r.persists());
    assert_eq!(register(&mut r, A, 0b11 << 30, 0, 1), nothing());
    assert!(r.persists());
    assert_eq!(register(&mut r, A, 0, 0, 1), nothing());
    assert!(r.persists(), "no change");
    assert_eq!(register(&mut r, A, 0b10 << 30, 0, 1), nothing());
    assert!(!r.persists());
}

#[test]
fn a_holder_that_unregisters_releases_and_shared_types_tell_the_others() {
    for rtype in 1..=6 {
        let mut r = held(rtype);
        let told = match rtype {
            3 | 4 => vec![(B, Notice::RESERVATION_RELEASED)],
            // B holds it as well.
            _ => Vec::new(),
        };
        assert_eq!(register(&mut r, A, 1, 1, 0), Ok(told), "{rtype}");
        assert_eq!(r.held.is_some(), rtype >= 5, "{rtype}");
        register(&mut r, B, 1, 2, 0).unwrap();
        assert_eq!(r.held, None, "without registrants there is none");
    }
    let mut r = held(2);
    assert_eq!(register(&mut r, B, 1, 2, 0), nothing());
    assert!(r.held.is_some(), "B held nothing");
}

#[test]
fn acquiring() {
    let mut r = Reservation::default();
    assert_eq!(acquire(&mut r, A, 0, 1, 0, 0), CONFLICT, "only registrants");
    register(&mut r, A, 0, 0, 1).unwrap();
    register(&mut r, B, 0, 0, 2).unwrap();
    assert_eq!(acquire(&mut r, A, 0, 1, 9, 0), CONFLICT, "another key");
    for rtype in [0, 7, 255] {
        assert_eq!(acquire(&mut r, A, 0, rtype, 1, 0), INVALID, "type {rtype}");
    }
    assert_eq!(acquire(&mut r, A, 0b1000, 1, 1, 0), INVALID, "IEKEY");
    for action in 3..8 {
        assert_eq!(acquire(&mut r, A, action, 1, 1, 0), INVALID);
    }
    assert_eq!(acquire(&mut r, A, 0, 1, 1, 0), nothing());
    assert_eq!(
        acquire(&mut r, A, 0, 1, 1, 0),
        nothing(),
        "it holds that already"
    );
    assert_eq!(acquire(&mut r, A, 0, 2, 1, 0), CONFLICT, "another type");
    assert_eq!(acquire(&mut r, B, 0, 1, 2, 0), CONFLICT);
    // Every registrant holds an all registrants reservation.
    let mut r = held(5);
    assert_eq!(acquire(&mut r, B, 0, 5, 2, 0), nothing());
    assert_eq!(acquire(&mut r, B, 0, 6, 2, 0), CONFLICT);
}

#[test]
fn preempting_the_holder_takes_its_place() {
    for action in [1, 2] {
        let mut r = held(1);
        register(&mut r, C, 0, 0, 3).unwrap();
        let told = vec![(A, Notice::REGISTRATION_PREEMPTED)];
        assert_eq!(acquire(&mut r, B, action, 2, 2, 1), Ok(told));
        assert_eq!(
            [A, B, C].map(|host| r.is_holder(host)),
            [false, true, false]
        );
        assert_eq!(r.held.map(|held| held.rtype), Some(2));
        assert_eq!(r.hosts().collect::<Vec<_>>(), [B, C]);
    }
    // Registrants that stay and lose the access of the old type get a notification.
    let mut r = held(3);
    register(&mut r, C, 0, 0, 3).unwrap();
    let told = vec![
        (A, Notice::REGISTRATION_PREEMPTED),
        (C, Notice::RESERVATION_RELEASED),
    ];
    assert_eq!(acquire(&mut r, B, 1, 1, 2, 1), Ok(told));
    // The holder itself changes the type by its own key, and stays.
    let mut r = held(1);
    assert_eq!(acquire(&mut r, A, 1, 2, 1, 1), nothing());
    assert_eq!((r.is_holder(A), r.held.map(|h| h.rtype)), (true, Some(2)));
}

#[test]
fn preempting_others_leaves_the_reservation() {
    let mut r = held(1);
    register(&mut r, C, 0, 0, 3).unwrap();
    let told = vec![(C, Notice::REGISTRATION_PREEMPTED)];
    assert_eq!(acquire(&mut r, B, 1, 2, 2, 3), Ok(told));
    assert!(r.is_holder(A));
    assert_eq!(
        acquire(&mut r, B, 1, 2, 2, 3),
        CONFLICT,
        "nobody has that key"
    );
    assert_eq!(
        acquire(&mut r, B, 1, 2, 2, 0),
        INVALID,
        "key 0 is for all registrants types"
    );
    // All registrants: key 0 removes everybody else and takes it.
    let mut r = held(6);
    let told = vec![(A, Notice::REGISTRATION_PREEMPTED)];
    assert_eq!(acquire(&mut r, B, 1, 1, 2, 0), Ok(told));
    assert_eq!(
        r.held,
        Some(Held {
            rtype: 1,
            holder: Some(B)
        })
    );
    assert_eq!(r.hosts().collect::<Vec<_>>(), [B]);
    // Another key removes its registrants and leaves the reservation.
    let mut r = held(5);
    acquire(&mut r, B, 1, 1, 2, 1).unwrap();
    assert_eq!(
        r.held,
        Some(Held {
            rtype: 5,
            holder: None
        })
    );
    // Without a reservation registrations go, and none is made.
    let mut r = Reservation::default();
    register(&mut r, A, 0, 0, 1).unwrap();
    register(&mut r, B, 0, 0, 2).unwrap();
    acquire(&mut r, B, 1, 1, 2, 1).unwrap();
    assert_eq!((r.held, r.registrants.len()), (None, 1));
}

#[test]
fn releasing_and_clearing() {
    let mut r = held(4);
    assert_eq!(release(&mut r, C, 0, 4, 0), CONFLICT, "not registered");
    assert_eq!(release(&mut r, A, 0, 4, 9), CONFLICT, "another key");
    assert_eq!(release(&mut r, A, 0b1000, 4, 1), INVALID, "IEKEY");
    assert_eq!(release(&mut r, A, 2, 4, 1), INVALID, "a reserved action");
    assert_eq!(release(&mut r, A, 0, 3, 1), INVALID, "another type");
    assert_eq!(release(&mut r, B, 0, 4, 2), nothing(), "B holds nothing");
    assert!(r.is_holder(A));
    assert_eq!(
        release(&mut r, A, 0, 4, 1),
        Ok(vec![(B, Notice::RESERVATION_RELEASED)])
    );
    assert_eq!(r.held, None);
    assert_eq!(release(&mut r, A, 0, 4, 1), nothing(), "there is none");
    for (rtype, told) in [(1, false), (2, false), (3, true), (5, true), (6, true)] {
        let mut r = held(rtype);
        let notices = release(&mut r, A, 0, rtype, 1).unwrap();
        assert_eq!(!notices.is_empty(), told, "{rtype}");
    }
    let mut r = held(1);
    let told = vec![(A, Notice::RESERVATION_PREEMPTED)];
    assert_eq!(
        release(&mut r, B, 1, 0, 2),
        Ok(told),
        "any registrant may clear"
    );
    assert_eq!((r.held, r.registrants.len()), (None, 0));
}

#[test]
fn generation_counts_registrations_preemptions_and_clears() {
    let mut r = Reservation::default();
    register(&mut r, A, 0, 0, 1).unwrap();
    register(&mut r, B, 0, 0, 2).unwrap();
    assert_eq!(r.generation, 2);
    acquire(&mut r, A, 0, 1, 1, 0).unwrap();
    release(&mut r, A, 0, 1, 1).unwrap();
    assert_eq!(r.generation, 2, "acquire and release are not counted");
    acquire(&mut r, A, 1, 1, 1, 2).unwrap();
    assert_eq!(r.generation, 3);
    release(&mut r, A, 1, 0, 1).unwrap();
    assert_eq!(r.generation, 4);
    let _ = register(&mut r, A, 1, 0, 0);
    assert_eq!(r.generation, 4, "what fails changes nothing");
}

#[test]
fn what_a_power_cycle_leaves() {
    let anonymous = Host::Anonymous(ControllerId(1));
    let mut r = held(1);
    register(&mut r, anonymous, 0, 0, 9).unwrap();
    assert_eq!(r.clone().after_power_cycle(), Reservation::default());
    r.set_persists(true);
    let after = r.after_power_cycle();
    assert_eq!(after.hosts().collect::<Vec<_>>(), [A, B]);
    assert!(after.is_holder(A));
}

#[test]
fn report_by_offset() {
    let mut r = held(3);
    register(&mut r, C, 0b11 << 30, 0, 0x1122_3344_5566_7788).unwrap();
    let controllers = [
        (ControllerId(1), A),
        (ControllerId(2), B),
        (ControllerId(3), B),
    ];
    let bytes = report(&r, &controllers, false);
    assert_eq!(bytes.len(), 24 + 4 * 24);
    assert_eq!(bytes[..4], 3_u32.to_le_bytes(), "GEN");
    assert_eq!(bytes[4], 3, "RTYPE");
    assert_eq!(
        bytes[5..7],
        4_u16.to_le_bytes(),
        "REGSTRNT: controllers of registered hosts"
    );
    assert_eq!(bytes[9], 1, "PTPLS");
    assert_eq!(bytes[24..26], 1_u16.to_le_bytes(), "CNTLID");
    assert_eq!(bytes[26] & 1, 1, "RCSTS: its host holds the reservation");
    assert_eq!(bytes[32..40], [0xa; 8], "HOSTID");
    assert_eq!(bytes[40..48], 1_u64.to_le_bytes(), "RKEY");
    assert_eq!((bytes[48], bytes[50] & 1), (2, 0));
    assert_eq!(bytes[72], 3);
    assert_eq!(bytes[96..98], [0xff; 2], "a host without a controller");
    assert_eq!(bytes[112..120], 0x1122_3344_5566_7788_u64.to_le_bytes());
    let bytes = report(&r, &controllers, true);
    assert_eq!(bytes.len(), 64 + 4 * 64);
    assert_eq!(bytes[64..66], 1_u16.to_le_bytes(), "CNTLID");
    assert_eq!(bytes[72..80], 1_u64.to_le_bytes(), "RKEY");
    assert_eq!(bytes[80..88], [0xa; 8], "HOSTID");
}

/// The rules once more, over sets of pairs, written apart from the code.
mod model {
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, Default, PartialEq)]
    pub(super) struct Model {
        pub(super) keys: BTreeMap<u8, u64>,
        /// Type and holder; no single holder with types 5 and 6.
        pub(super) held: Option<(u32, Option<u8>)>,
    }

    impl Model {
        fn holds(&self, host: u8) -> bool {
            match self.held {
                Some((_, Some(holder))) => holder == host,
                Some((_, None)) => self.keys.contains_key(&host),
                None => false,
            }
        }

        fn drop_host(&mut self, host: u8) {
            let sole = matches!(self.held, Some((_, Some(holder))) if holder == host);
            self.keys.remove(&host);
            if sole || self.keys.is_empty() {
                self.held = None;
            }
        }

        pub(super) fn register(
            &mut self,
            host: u8,
            action: u32,
            ignore: bool,
            old: u64,
            new: u64,
        ) -> bool {
            let right =
                self.keys.get(&host) == Some(&old) || ignore && self.keys.contains_key(&host);
            let ok = match action {
                0 => *self.keys.get(&host).unwrap_or(&new) == new,
                1 => right,
                _ => right || ignore,
            };
            match action {
                _ if !ok => {}
                1 => self.drop_host(host),
                _ => {
                    self.keys.insert(host, new);
                }
            }
            ok
        }

        pub(super) fn acquire(&mut self, host: u8, rtype: u32, key: u64) -> bool {
            let free = self.held.is_none();
            let again = self.holds(host) && self.held.is_some_and(|(held, _)| held == rtype);
            let ok = self.keys.get(&host) == Some(&key) && (free || again);
            if ok && free {
                self.held = Some((rtype, (rtype < 5).then_some(host)));
            }
            ok
        }

        pub(super) fn preempt(&mut self, host: u8, rtype: u32, key: u64, victim: u64) -> bool {
            if self.keys.get(&host) != Some(&key) {
                return false;
            }
            let of_victim: Vec<u8> = self
                .keys
                .iter()
                .filter(|(_, k)| **k == victim)
                .map(|(h, _)| *h)
                .collect();
            let takes = match self.held {
                Some((_, Some(holder))) => of_victim.contains(&holder),
                Some((_, None)) => victim == 0,
                None => false,
            };
            if takes {
                let all = victim == 0 && matches!(self.held, Some((_, None)));
                self.keys.retain(|h, k| *h == host || !all && *k != victim);
                self.held = Some((rtype, (rtype < 5).then_some(host)));
                return true;
            }
            if victim == 0 || of_victim.is_empty() {
                return false;
            }
            of_victim.into_iter().for_each(|h| self.drop_host(h));
            true
        }

        pub(super) fn release(&mut self, host: u8, clear: bool, rtype: u32, key: u64) -> bool {
            if self.keys.get(&host) != Some(&key) {
                return false;
            }
            if clear {
                *self = Model::default();
            } else if self.holds(host) {
                if self.held.is_some_and(|(held, _)| held != rtype) {
                    return false;
                }
                self.held = None;
            }
            true
        }
    }
}

proptest! {
    #[test]
    fn as_the_model(steps in proptest::collection::vec(
        (0_u8..3, 0_u32..7, 1_u32..7, any::<bool>(), 0_u64..4, 0_u64..4), 1..60,
    )) {
        let hosts = [A, B, C];
        let (mut real, mut model) = (Reservation::default(), model::Model::default());
        for (host, what, rtype, flag, first, second) in steps {
            let real_host = hosts[usize::from(host)];
            let before = real.clone();
            let (done, expected) = match what {
                0..=2 => (
                    register(&mut real, real_host, what | u32::from(flag) << 3, first, second),
                    model.register(host, what, flag, first, second),
                ),
                3 => (
                    acquire(&mut real, real_host, 0, rtype, first, second),
                    model.acquire(host, rtype, first),
                ),
                4 => (
                    acquire(&mut real, real_host, 1 + u32::from(flag), rtype, first, second),
                    model.preempt(host, rtype, first, second),
                ),
                5 => (release(&mut real, real_host, 0, rtype, first), model.release(host, false, rtype, first)),
                _ => (release(&mut real, real_host, 1, rtype, first), model.release(host, true, rtype, first)),
            };
            prop_assert_eq!(done.is_ok(), expected);
            if done.is_err() {
                prop_assert_eq!(&real, &before);
            }
            let index = |h: Host| hosts.iter().position(|other| *other == h).unwrap() as u8;
            let keys = real.registrants.iter().map(|r| (index(r.host), r.key)).collect();
            let held = real.held.map(|held| (u32::from(held.rtype), held.holder.map(index)));
            prop_assert_eq!(&model, &model::Model { keys, held });
        }
    }
}
