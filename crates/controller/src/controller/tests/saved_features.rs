//! Saved values of features (Base 2.1, 4.4 and 5.1.25): SV, and what a reset and a restart leave.

use nvme_spec::Sqe;
use port::Cause;
use proptest::prelude::*;
use subsystem::{ControllerId, ControllerRecord, SavedFeatures, SubsystemConfig};

use super::rig::*;

const SV: u32 = 1 << 31;
const CURRENT: u32 = 0;
const DEFAULT: u32 = 1;
const SAVED: u32 = 2;

/// (feature, Dword 11 to set, Dword 11 to get, the value then, its default), of all that can be
/// saved.
const SAVEABLE: [(u32, u32, u32, u32, u32); 10] = [
    (0x01, 0x0403_0207, 0, 0x0403_0207, 5),
    (0x02, 0x0000_0040, 0, 0x0000_0040, 0),
    (0x04, 0x0000_0150, 0, 0x0000_0150, 343),
    (0x04, 0x0010_0111, 0x0010_0000, 0x0000_0111, 0),
    (0x05, 0x0000_0064, 0, 0x0000_0064, 0),
    (0x06, 0, 0, 0, 1),
    (0x08, 0x0000_0a07, 0, 0x0000_0a07, 0),
    (0x09, 0x0001_0003, 3, 0x0001_0003, 3),
    (0x0a, 1, 0, 1, 0),
    (0x0b, 0x0000_0102, 0, 0x0000_0102, 0),
];

/// Features in the record of the subsystem.
fn kept(rig: &Rig) -> SavedFeatures {
    let record = rig.subsystem.controller_record(rig.controller.id());
    record.unwrap().features.clone()
}

/// Another process, with what the first one kept.
fn restarted(features: SavedFeatures) -> Rig {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    subsystem.controllers = vec![ControllerRecord {
        features,
        ..ControllerRecord::new("test", ControllerId(1))
    }];
    Rig::of(config(), subsystem)
}

fn nsid(fid: u32) -> u32 {
    u32::from(fid == 0x05)
}

fn set(rig: &mut Rig, fid: u32, cdw11: u32) -> u16 {
    rig.status(Sqe {
        opcode: SET_FEATURES,
        cdw10: fid,
        cdw11,
        nsid: nsid(fid & 0xff),
        ..Sqe::default()
    })
}

fn get(rig: &mut Rig, fid: u32, sel: u32, cdw11: u32) -> u32 {
    let cqe = rig.admin(Sqe {
        opcode: GET_FEATURES,
        cdw10: sel << 8 | fid,
        cdw11,
        nsid: nsid(fid),
        ..Sqe::default()
    });
    assert_eq!(code(&cqe), OK, "{fid:#x} {sel}");
    cqe.dw0
}

#[test]
fn a_saved_value_outlives_a_reset_and_one_that_is_not_saved_does_not() {
    let mut rig = Rig::enabled();
    for (fid, cdw11, which, value, default) in SAVEABLE {
        assert_eq!(set(&mut rig, fid, cdw11), OK, "{fid:#x}");
        assert_eq!(get(&mut rig, fid, CURRENT, which), value, "{fid:#x}");
        assert_eq!(
            get(&mut rig, fid, SAVED, which),
            default,
            "{fid:#x}: SV was 0"
        );
    }
    rig.disable();
    rig.enable();
    for (fid, cdw11, which, value, default) in SAVEABLE {
        assert_eq!(get(&mut rig, fid, CURRENT, which), default, "{fid:#x}");
        assert_eq!(set(&mut rig, SV | fid, cdw11), OK, "{fid:#x}");
        for sel in [CURRENT, SAVED] {
            assert_eq!(get(&mut rig, fid, sel, which), value, "{fid:#x} {sel}");
        }
        assert_eq!(get(&mut rig, fid, DEFAULT, which), default, "{fid:#x}");
    }
    rig.disable();
    rig.enable();
    for (fid, _, which, value, _) in SAVEABLE {
        assert_eq!(get(&mut rig, fid, CURRENT, which), value, "{fid:#x}");
    }
    // A value that is set without SV after that is current until the next reset.
    assert_eq!(set(&mut rig, 0x08, 0x0101), OK);
    assert_eq!(get(&mut rig, 0x08, CURRENT, 0), 0x0101);
    assert_eq!(get(&mut rig, 0x08, SAVED, 0), 0x0a07);
    rig.controller.function_reset();
    rig.turns(8);
    rig.enable();
    assert_eq!(get(&mut rig, 0x08, CURRENT, 0), 0x0a07);
}

#[test]
fn saved_values_are_handed_to_the_next_process() {
    let mut rig = Rig::enabled();
    assert_eq!(kept(&rig), SavedFeatures::default());
    for (fid, cdw11, ..) in SAVEABLE {
        assert_eq!(set(&mut rig, SV | fid, cdw11), OK, "{fid:#x}");
    }
    let saved = kept(&rig);
    let mut rig = restarted(saved.clone());
    assert_eq!(kept(&rig), saved);
    rig.enable();
    for (fid, _, which, value, default) in SAVEABLE {
        assert_eq!(get(&mut rig, fid, CURRENT, which), value, "{fid:#x}");
        assert_eq!(get(&mut rig, fid, SAVED, which), value, "{fid:#x}");
        assert_eq!(get(&mut rig, fid, DEFAULT, which), default, "{fid:#x}");
    }
    // The cache that was saved as turned off is off: writes ask for what FUA asks for.
    rig.create_pair(1, 8);
    let write = Sqe {
        opcode: 0x01,
        ..rig.read_sqe(1, 1)
    };
    rig.submit_io(1, 0, write);
    rig.turns(4);
    assert_eq!(
        rig.medium(0).seen,
        [port::testing::Seen::Write(0, 512, true)]
    );
}

#[test]
fn what_a_record_holds_that_cannot_be_is_left_out() {
    let mut rig = restarted(SavedFeatures {
        arbitration: Some(!0),
        power_management: Some(0x41),
        error_recovery: vec![(0, 1), (1, !0), (33, 1)],
        interrupt_coalescing: Some(!0),
        coalescing_disabled: vec![4, 5, 0xffff],
        write_atomicity: Some(!0),
        event_configuration: Some(!0),
        ..SavedFeatures::default()
    });
    rig.enable();
    for (fid, which, value) in [
        (0x01, 0, 0xffff_ff07),
        (0x02, 0, 0),
        (0x05, 0, 0xffff),
        (0x08, 0, 0xffff),
        (0x09, 4, 0x0001_0004),
        (0x0a, 0, 1),
        (0x0b, 0, 0x1ff),
    ] {
        assert_eq!(get(&mut rig, fid, CURRENT, which), value, "{fid:#x}");
    }
}

#[test]
fn what_belongs_to_a_host_or_its_queues_cannot_be_saved() {
    let mut rig = Rig::enabled();
    // Number of Queues, Timestamp, Keep Alive Timer, Host Behavior Support, Host Identifier.
    for fid in [0x07, 0x0e, 0x0f, 0x16, 0x81] {
        let sqe = rig.with_data(SET_FEATURES);
        let save = Sqe {
            cdw10: SV | fid,
            ..sqe
        };
        assert_eq!(rig.status(save), NOT_SAVEABLE, "{fid:#x}");
        assert_eq!(rig.get_feature(fid, 3, 0).dw0, 1 << 2, "changeable only");
    }
    assert_eq!(kept(&rig), SavedFeatures::default());
}

#[test]
fn a_value_that_is_refused_is_not_saved() {
    let mut rig = Rig::enabled();
    for (fid, cdw11) in [(0x02, 1), (0x04, 2 << 20), (0x05, 1 << 16), (0x09, 5)] {
        assert_eq!(
            set(&mut rig, SV | fid, cdw11),
            INVALID_FIELD,
            "{fid:#x} {cdw11:#x}"
        );
    }
    assert_eq!(kept(&rig), SavedFeatures::default());
}

#[test]
fn turning_the_write_cache_off_is_saved_when_the_flush_has_succeeded() {
    let mut rig = Rig::enabled();
    rig.medium(0).fault = Some(Cause::WriteFailed);
    assert_eq!(set(&mut rig, SV | 0x06, 0), INTERNAL);
    rig.medium(0).fault = None;
    for sel in [CURRENT, SAVED] {
        assert_eq!(get(&mut rig, 0x06, sel, 0), 1);
    }
    assert_eq!(set(&mut rig, SV | 0x06, 0), OK);
    for sel in [CURRENT, SAVED] {
        assert_eq!(get(&mut rig, 0x06, sel, 0), 0);
    }
    assert_eq!(set(&mut rig, SV | 0x06, 1), OK);
    assert_eq!(get(&mut rig, 0x06, SAVED, 0), 1);
    // A flush of a value that was not to be saved saves nothing.
    assert_eq!(set(&mut rig, 0x06, 0), OK);
    assert_eq!(get(&mut rig, 0x06, SAVED, 0), 1);
}

#[test]
fn error_recovery_is_saved_for_one_namespace_or_for_all_that_are_attached() {
    let mut rig = Rig::enabled();
    let save = |nsid: u32, cdw11: u32| Sqe {
        opcode: SET_FEATURES,
        cdw10: SV | 0x05,
        nsid,
        cdw11,
        ..Sqe::default()
    };
    assert_eq!(rig.status(save(3, 7)), OK);
    assert_eq!(kept(&rig).error_recovery, [(3, 7)]);
    assert_eq!(rig.status(save(0xffff_ffff, 9)), OK);
    assert_eq!(kept(&rig).error_recovery, [(1, 9), (3, 9)]);
}

#[test]
fn a_namespace_that_is_deleted_takes_its_values_with_it() {
    let mut rig = Rig::enabled();
    assert_eq!(set(&mut rig, SV | 0x05, 7), OK);
    rig.set_namespaces(namespaces()[1..].to_vec());
    assert_eq!(kept(&rig).error_recovery, []);
    // Another one gets the identifier.
    rig.set_namespaces(namespaces());
    for sel in [CURRENT, SAVED] {
        assert_eq!(get(&mut rig, 0x05, sel, 0), 0);
    }
    // One that was not deleted keeps its own.
    assert_eq!(set(&mut rig, SV | 0x05, 8), OK);
    rig.set_namespaces(namespaces()[..1].to_vec());
    assert_eq!(get(&mut rig, 0x05, SAVED, 0), 8);
}

#[test]
fn a_saved_threshold_that_is_crossed_is_an_event_after_a_reset() {
    let mut rig = Rig::enabled();
    assert_eq!(set(&mut rig, SV | 0x04, 290), OK);
    assert_eq!(set(&mut rig, SV | 0x0b, 1 << 1), OK);
    rig.disable();
    rig.enable();
    let cid = rig.async_event();
    rig.turns(2);
    assert_eq!(
        rig.reap().map(|cqe| (cqe.cid, cqe.dw0)),
        Some((cid, 0x0002_0101))
    );
}

#[test]
fn a_save_is_told_when_it_is_on_stable_storage() {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    subsystem.keeping = true;
    let mut rig = Rig::of(config(), subsystem);
    rig.enable();
    // The identifier that the controller got is to be kept, too.
    let (version, _) = rig.subsystem.take_record().unwrap();
    rig.subsystem.kept(version);
    for (fid, cdw11) in [(0x08, 0x0a07), (0x06, 0)] {
        let cid = rig.submit(Sqe {
            opcode: SET_FEATURES,
            cdw10: SV | fid,
            cdw11,
            ..Sqe::default()
        });
        rig.turns(8);
        assert!(rig.peek().is_none(), "{fid:#x}: nothing was kept yet");
        // Other commands go on.
        let (version, record) = rig.subsystem.take_record().expect("something to keep");
        assert_eq!(record.controllers[0].features, kept(&rig));
        rig.subsystem.kept(version);
        rig.turns(4);
        let told = rig.reap().map(|cqe| (cqe.cid, code(&cqe)));
        assert_eq!(told, Some((cid, OK)), "{fid:#x}");
    }
    let features = kept(&rig);
    assert_eq!(features.interrupt_coalescing, Some(0x0a07));
    assert_eq!(features.volatile_write_cache, Some(false));
    // A feature that is not saved is answered at once, and writes no record.
    assert_eq!(set(&mut rig, 0x08, 0x0101), OK);
    assert!(rig.subsystem.take_record().is_none());
}

/// A rig whose records are to be kept, with the first one kept.
fn keeping() -> Rig {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    subsystem.keeping = true;
    let mut rig = Rig::of(config(), subsystem);
    rig.enable();
    let (version, _) = rig.subsystem.take_record().unwrap();
    rig.subsystem.kept(version);
    rig
}

/// Sends Set Features with SV, and takes the record that waits to be kept.
fn save(rig: &mut Rig, fid: u32, cdw11: u32) -> u16 {
    let cid = rig.submit(Sqe {
        opcode: SET_FEATURES,
        cdw10: SV | fid,
        cdw11,
        nsid: nsid(fid),
        ..Sqe::default()
    });
    rig.turns(8);
    cid
}

/// The record cannot be kept; the commands that waited for it.
fn fail(rig: &mut Rig) -> Vec<(u16, u16)> {
    assert!(rig.subsystem.take_record().is_some());
    rig.subsystem.keep_failed();
    rig.turns(8);
    std::iter::from_fn(|| rig.reap().map(|cqe| (cqe.cid, code(&cqe)))).collect()
}

#[test]
fn a_save_that_fails_changes_nothing() {
    let mut rig = keeping();
    for (fid, cdw11, which, _, default) in SAVEABLE {
        let cid = save(&mut rig, fid, cdw11);
        assert_eq!(fail(&mut rig), [(cid, INTERNAL)], "{fid:#x}");
        for sel in [CURRENT, SAVED] {
            assert_eq!(get(&mut rig, fid, sel, which), default, "{fid:#x} {sel}");
        }
        assert_eq!(kept(&rig), SavedFeatures::default(), "{fid:#x}");
    }
    // The next process finds that, too: the record is written again.
    let (version, record) = rig.subsystem.take_record().expect("something to keep");
    assert_eq!(record.controllers[0].features, SavedFeatures::default());
    rig.subsystem.kept(version);
    // A current value that was not to be saved is what comes back, not the saved one.
    assert_eq!(set(&mut rig, 0x08, 0x0101), OK);
    let cid = save(&mut rig, 0x08, 0x0a07);
    assert_eq!(fail(&mut rig), [(cid, INTERNAL)]);
    assert_eq!(get(&mut rig, 0x08, CURRENT, 0), 0x0101);
    assert_eq!(get(&mut rig, 0x08, SAVED, 0), 0);
    // The cache is on, as before: a write asks for no more than it says.
    rig.create_pair(1, 8);
    let write = Sqe {
        opcode: 0x01,
        ..rig.read_sqe(1, 1)
    };
    rig.submit_io(1, 0, write);
    rig.turns(4);
    assert_eq!(
        rig.medium(0).seen.last(),
        Some(&port::testing::Seen::Write(0, 512, false))
    );
}

#[test]
fn of_several_saves_each_that_fails_leaves_what_the_others_set() {
    let mut rig = keeping();
    // Three at once of one feature: all fail, and what was before the first is there.
    let cids = [0x0101, 0x0202, 0x0303].map(|value| save(&mut rig, 0x08, value));
    assert_eq!(fail(&mut rig), cids.map(|cid| (cid, INTERNAL)));
    assert_eq!(get(&mut rig, 0x08, CURRENT, 0), 0);
    assert_eq!(get(&mut rig, 0x08, SAVED, 0), 0);
    // One fails, and a later one of another namespace's or vector's, or without SV, stays.
    let cid = save(&mut rig, 0x09, 0x0001_0001);
    assert_eq!(set(&mut rig, 0x09, 0x0001_0002), OK);
    assert_eq!(fail(&mut rig), [(cid, INTERNAL)]);
    for (vector, value) in [(1, 1), (2, 0x0001_0002)] {
        assert_eq!(get(&mut rig, 0x09, CURRENT, vector), value);
    }
    let cid = save(&mut rig, 0x08, 0x0101);
    assert_eq!(set(&mut rig, 0x08, 0x0202), OK);
    assert_eq!(fail(&mut rig), [(cid, INTERNAL)]);
    assert_eq!(get(&mut rig, 0x08, CURRENT, 0), 0x0202);
    assert_eq!(get(&mut rig, 0x08, SAVED, 0), 0);
}

#[test]
fn a_reset_ends_what_waits_to_be_kept() {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    subsystem.keeping = true;
    let mut rig = Rig::of(config(), subsystem);
    rig.enable();
    rig.submit(Sqe {
        opcode: SET_FEATURES,
        cdw10: SV | 0x08,
        cdw11: 0x0a07,
        ..Sqe::default()
    });
    rig.turns(4);
    rig.disable();
    rig.enable();
    let (version, _) = rig.subsystem.take_record().expect("something to keep");
    rig.subsystem.kept(version);
    rig.turns(8);
    assert!(rig.peek().is_none(), "its command is of another life");
    assert_eq!(get(&mut rig, 0x08, CURRENT, 0), 0x0a07);
}

/// Actions of a host or the operator on features.
#[derive(Clone, Debug)]
enum Deed {
    /// Set the value at this index of [`SAVEABLE`], or its default; to be saved or not.
    Set {
        at: usize,
        default: bool,
        save: bool,
    },
    Reset,
    Restart,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let set = (0..SAVEABLE.len(), any::<bool>(), any::<bool>())
        .prop_map(|(at, default, save)| Deed::Set { at, default, save });
    let deed = prop_oneof![6 => set, 1 => Just(Deed::Reset), 1 => Just(Deed::Restart)];
    prop::collection::vec(deed, 1..24)
}

/// Dword 11 that sets the default of an entry of [`SAVEABLE`]: a selector and the default value.
fn to_default((fid, _, which, _, default): (u32, u32, u32, u32, u32)) -> u32 {
    match fid {
        0x09 => default,
        _ => which | default,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn current_and_saved_values_are_those_of_a_table(deeds in deeds()) {
        let mut rig = Rig::enabled();
        let defaults = SAVEABLE.map(|(.., default)| default);
        let (mut current, mut saved) = (defaults, defaults);
        for deed in deeds {
            match deed {
                Deed::Set { at, default, save } => {
                    let (fid, cdw11, _, value, _) = SAVEABLE[at];
                    let cdw11 = if default { to_default(SAVEABLE[at]) } else { cdw11 };
                    let sv = if save { SV } else { 0 };
                    prop_assert_eq!(set(&mut rig, sv | fid, cdw11), OK);
                    current[at] = if default { defaults[at] } else { value };
                    if save {
                        saved[at] = current[at];
                    }
                }
                Deed::Reset => {
                    rig.disable();
                    rig.enable();
                    current = saved;
                }
                Deed::Restart => {
                    rig = restarted(kept(&rig));
                    rig.enable();
                    current = saved;
                }
            }
            for (at, (fid, _, which, ..)) in SAVEABLE.into_iter().enumerate() {
                prop_assert_eq!(get(&mut rig, fid, CURRENT, which), current[at]);
                prop_assert_eq!(get(&mut rig, fid, SAVED, which), saved[at]);
                prop_assert_eq!(get(&mut rig, fid, DEFAULT, which), defaults[at]);
            }
        }
    }
}
