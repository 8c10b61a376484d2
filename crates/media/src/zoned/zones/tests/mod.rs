//! Expectations from ZNS 1.1, 2.1.1.3 (figure "Zone State Machine") and 3.4.3; and random programs
//! against a model that recounts everything each time.

mod random;

use nvme_spec::Status;
use nvme_spec::zoned::{ZoneSendAction as Action, ZoneState as State};
use proptest::prelude::*;

use super::{Acted, Geometry, Zones};

const ZONE: u64 = 64 << 10;
const CAPACITY: u64 = 48 << 10;

fn geometry(zones: u32, max_open: u32, max_active: u32) -> Geometry {
    Geometry {
        zone_bytes: ZONE,
        capacity: CAPACITY,
        zones,
        max_open,
        max_active,
        random: None,
    }
}

fn write(zones: &mut Zones, offset: u64, len: u64) -> Result<(), Status> {
    let write = zones.check_write(offset, len)?;
    zones.written(write);
    Ok(())
}

/// Eight zones without limits: one in each state, in the order of [`STATES`], the last one empty.
fn one_of_each() -> Zones {
    let mut zones = Zones::new(geometry(8, 0, 0));
    for zone in [1, 3, 5, 6] {
        write(&mut zones, zone * ZONE, 4096).unwrap();
    }
    zones.act(Action::OPEN, 2).unwrap();
    zones.act(Action::CLOSE, 3).unwrap();
    zones.act(Action::FINISH, 4).unwrap();
    assert!(zones.failed(5) && zones.failed(6));
    zones.act(Action::OFFLINE, 6).unwrap();
    for (zone, state) in (0..).zip(STATES) {
        assert_eq!(zones.get(zone).state, state);
    }
    zones
}

const STATES: [State; 7] = [
    State::EMPTY,
    State::IMPLICITLY_OPENED,
    State::EXPLICITLY_OPENED,
    State::CLOSED,
    State::FULL,
    State::READ_ONLY,
    State::OFFLINE,
];

#[test]
fn every_action_goes_where_the_specification_says() {
    // By action, where it leads from each of STATES; none: Invalid Zone State Transition.
    let open = State::EXPLICITLY_OPENED;
    let (empty, closed, full) = (State::EMPTY, State::CLOSED, State::FULL);
    let table: [(Action, [Option<State>; 7]); 5] = [
        (
            Action::OPEN,
            [
                Some(open),
                Some(open),
                Some(open),
                Some(open),
                None,
                None,
                None,
            ],
        ),
        (
            Action::CLOSE,
            [
                None,
                Some(closed),
                Some(closed),
                Some(closed),
                None,
                None,
                None,
            ],
        ),
        (
            Action::FINISH,
            [
                Some(full),
                Some(full),
                Some(full),
                Some(full),
                Some(full),
                None,
                None,
            ],
        ),
        (
            Action::RESET,
            [
                Some(empty),
                Some(empty),
                Some(empty),
                Some(empty),
                Some(empty),
                None,
                None,
            ],
        ),
        (
            Action::OFFLINE,
            [
                None,
                None,
                None,
                None,
                None,
                Some(State::OFFLINE),
                Some(State::OFFLINE),
            ],
        ),
    ];
    for (action, targets) in table {
        for (zone, target) in (0..).zip(targets) {
            let mut zones = one_of_each();
            let before = zones.get(zone);
            let acted = zones.act(action, zone);
            match target {
                Some(target) => {
                    let changes = target != before.state;
                    assert_eq!(
                        acted.map(|a| a != Acted::Nothing),
                        Ok(changes),
                        "{action:?} {zone}"
                    );
                    assert_eq!(zones.get(zone).state, target, "{action:?} {zone}");
                }
                None => {
                    assert_eq!(acted, Err(Status::INVALID_ZONE_STATE_TRANSITION));
                    assert_eq!(zones.get(zone), before, "{action:?} {zone}");
                }
            }
            if action == Action::RESET && target.is_some() {
                assert_eq!(zones.get(zone).written, 0);
            }
        }
    }
}

#[test]
fn select_all_takes_the_states_that_the_specification_lists() {
    let table = [
        (Action::OPEN, vec![State::CLOSED]),
        (
            Action::CLOSE,
            vec![State::IMPLICITLY_OPENED, State::EXPLICITLY_OPENED],
        ),
        (
            Action::FINISH,
            vec![
                State::IMPLICITLY_OPENED,
                State::EXPLICITLY_OPENED,
                State::CLOSED,
            ],
        ),
        (
            Action::RESET,
            vec![
                State::IMPLICITLY_OPENED,
                State::EXPLICITLY_OPENED,
                State::CLOSED,
                State::FULL,
            ],
        ),
        (Action::OFFLINE, vec![State::READ_ONLY]),
    ];
    for (action, states) in table {
        for state in STATES {
            let selected = Zones::is_selected(action, state);
            assert_eq!(selected, states.contains(&state), "{action:?} {state:?}");
        }
    }
}

#[test]
fn writes_are_refused_for_what_is_wrong_with_them() {
    let mut zones = one_of_each();
    let at = |zone: u64, offset: u64| zone * ZONE + offset;
    for (offset, len, expected) in [
        // Not at the write pointer.
        (at(0, 512), 512, Err(Status::ZONE_INVALID_WRITE)),
        (at(1, 0), 512, Err(Status::ZONE_INVALID_WRITE)),
        (at(1, 8192), 512, Err(Status::ZONE_INVALID_WRITE)),
        (at(4, 0), 512, Err(Status::ZONE_IS_FULL)),
        (at(5, 4096), 512, Err(Status::ZONE_IS_READ_ONLY)),
        (at(6, 4096), 512, Err(Status::ZONE_IS_OFFLINE)),
        // Over the capacity, and over the zone's end.
        (at(0, 0), CAPACITY + 512, Err(Status::ZONE_BOUNDARY_ERROR)),
        (at(1, 4096), CAPACITY, Err(Status::ZONE_BOUNDARY_ERROR)),
        (at(0, 0), 2 * ZONE, Err(Status::ZONE_BOUNDARY_ERROR)),
        (at(0, CAPACITY), 512, Err(Status::ZONE_BOUNDARY_ERROR)),
        (at(8, 0), 512, Err(Status::LBA_OUT_OF_RANGE)),
        (at(1, 4096), 512, Ok(())),
        (at(2, 0), CAPACITY, Ok(())),
        (at(3, 4096), 512, Ok(())),
    ] {
        assert_eq!(write(&mut zones, offset, len), expected, "{offset} {len}");
    }
    // A write opens implicitly, an explicitly opened zone stays so, and a zone written up to its
    // capacity is full.
    assert_eq!(zones.get(3).state, State::IMPLICITLY_OPENED);
    assert_eq!(zones.get(2).state, State::FULL);
    zones.act(Action::OPEN, 7).unwrap();
    write(&mut zones, at(7, 0), 512).unwrap();
    assert_eq!(zones.get(7).state, State::EXPLICITLY_OPENED);
}

#[test]
fn appends_are_put_at_the_write_pointer() {
    let mut zones = Zones::new(geometry(2, 0, 0));
    let mut append = |len| {
        let write = zones.check_append(1, len)?;
        zones.written(write);
        Ok(write.offset)
    };
    assert_eq!(append(4096), Ok(ZONE));
    assert_eq!(append(512), Ok(ZONE + 4096));
    assert_eq!(append(CAPACITY), Err(Status::ZONE_BOUNDARY_ERROR));
    assert_eq!(append(CAPACITY - 4608), Ok(ZONE + 4608));
    assert_eq!(append(512), Err(Status::ZONE_IS_FULL));
}

#[test]
fn an_implicitly_opened_zone_makes_room_and_an_explicitly_opened_one_does_not() {
    let mut zones = Zones::new(geometry(5, 2, 3));
    write(&mut zones, 0, 512).unwrap();
    write(&mut zones, ZONE, 512).unwrap();
    // The one opened longest ago is closed.
    let third = zones.check_write(2 * ZONE, 512).unwrap();
    assert_eq!(third.closes, Some(0));
    zones.written(third);
    assert_eq!(zones.get(0).state, State::CLOSED);
    assert_eq!(zones.in_use(), (2, 3));
    // A fourth would be active.
    assert_eq!(
        write(&mut zones, 3 * ZONE, 512),
        Err(Status::TOO_MANY_ACTIVE_ZONES)
    );
    assert_eq!(
        zones.act(Action::OPEN, 3),
        Err(Status::TOO_MANY_ACTIVE_ZONES)
    );
    assert_eq!(zones.extend(3, false), Err(Status::TOO_MANY_ACTIVE_ZONES));
    // Explicitly opened zones stay.
    assert_eq!(
        zones.act(Action::OPEN, 1),
        Ok(Acted::Changed { closed: None })
    );
    let opened = zones.act(Action::OPEN, 0);
    assert_eq!(opened, Ok(Acted::Changed { closed: Some(2) }));
    assert_eq!(
        write(&mut zones, 2 * ZONE + 512, 512),
        Err(Status::TOO_MANY_OPEN_ZONES)
    );
    assert_eq!(zones.act(Action::OPEN, 2), Err(Status::TOO_MANY_OPEN_ZONES));
    assert_eq!(zones.check_open_all(0, 3), Err(Status::TOO_MANY_OPEN_ZONES));
    // Zone 2 is the one that is closed: without it there is room.
    assert_eq!(zones.check_open_all(0, 1), Ok(()));
    // A full or empty zone is neither open nor active.
    zones.act(Action::FINISH, 1).unwrap();
    assert_eq!(zones.check_open_all(0, 3), Ok(()));
    assert_eq!(zones.in_use(), (1, 2));
    write(&mut zones, 3 * ZONE, 512).unwrap();
}

#[test]
fn reads_cross_zones_but_not_into_one_that_is_offline() {
    let zones = one_of_each();
    assert_eq!(zones.check_read(0, 6 * ZONE), Ok(()));
    assert_eq!(
        zones.check_read(0, 6 * ZONE + 1),
        Err(Status::ZONE_IS_OFFLINE)
    );
    assert_eq!(zones.check_read(7 * ZONE, ZONE), Ok(()));
    assert_eq!(
        zones.check_read(6 * ZONE + 512, 512),
        Err(Status::ZONE_IS_OFFLINE)
    );
}

#[test]
fn an_extension_makes_an_empty_zone_active_until_it_is_reset() {
    let mut zones = Zones::new(geometry(2, 1, 1));
    zones.extend(0, false).unwrap();
    let zone = zones.get(0);
    assert_eq!(
        (zone.state, zone.written, zone.extended),
        (State::CLOSED, 0, true)
    );
    assert_eq!(
        zones.extend(0, false),
        Err(Status::INVALID_ZONE_STATE_TRANSITION)
    );
    assert_eq!(zones.in_use(), (0, 1));
    zones.act(Action::RESET, 0).unwrap();
    assert!(!zones.get(0).extended);
    assert_eq!(zones.in_use(), (0, 0));
}

/// The simplest model of zones: recounts everything each time, with a list of implicitly opened
/// zones.
#[derive(Default)]
struct Model {
    zones: Vec<(State, u64)>,
    implicit: Vec<usize>,
}

const OPEN: [State; 2] = [State::IMPLICITLY_OPENED, State::EXPLICITLY_OPENED];
const ACTIVE: [State; 3] = [OPEN[0], OPEN[1], State::CLOSED];

impl Model {
    fn count(&self, states: &[State]) -> usize {
        self.zones
            .iter()
            .filter(|(s, _)| states.contains(s))
            .count()
    }

    fn set(&mut self, zone: usize, state: State) {
        self.implicit.retain(|other| *other != zone);
        if state == State::IMPLICITLY_OPENED {
            self.implicit.push(zone);
        }
        self.zones[zone].0 = state;
    }

    fn make_room(&mut self, zone: usize, max: (u32, u32)) -> Result<(), Status> {
        let state = self.zones[zone].0;
        let is_active = ACTIVE.contains(&state);
        if max.1 > 0 && !is_active && self.count(&ACTIVE) >= max.1 as usize {
            return Err(Status::TOO_MANY_ACTIVE_ZONES);
        }
        if max.0 > 0 && !OPEN.contains(&state) && self.count(&OPEN) >= max.0 as usize {
            let Some(first) = self.implicit.first().copied() else {
                return Err(Status::TOO_MANY_OPEN_ZONES);
            };
            self.set(first, State::CLOSED);
        }
        Ok(())
    }

    fn write(&mut self, zone: usize, at: u64, len: u64, max: (u32, u32)) -> Result<(), Status> {
        let (state, wp) = self.zones[zone];
        match state {
            State::FULL => return Err(Status::ZONE_IS_FULL),
            State::READ_ONLY => return Err(Status::ZONE_IS_READ_ONLY),
            State::OFFLINE => return Err(Status::ZONE_IS_OFFLINE),
            _ if at + len > CAPACITY => return Err(Status::ZONE_BOUNDARY_ERROR),
            _ if at != wp => return Err(Status::ZONE_INVALID_WRITE),
            _ => self.make_room(zone, max)?,
        }
        self.zones[zone].1 += len;
        if self.zones[zone].1 == CAPACITY {
            self.set(zone, State::FULL);
        } else if !OPEN.contains(&state) {
            self.set(zone, State::IMPLICITLY_OPENED);
        }
        Ok(())
    }

    fn act(&mut self, action: Action, zone: usize, max: (u32, u32)) -> Result<(), Status> {
        let state = self.zones[zone].0;
        let allowed: &[State] = match action {
            Action::OPEN => &[State::EMPTY, OPEN[0], OPEN[1], State::CLOSED],
            Action::CLOSE => &ACTIVE,
            Action::OFFLINE => &[State::READ_ONLY, State::OFFLINE],
            _ => &[State::EMPTY, OPEN[0], OPEN[1], State::CLOSED, State::FULL],
        };
        if !allowed.contains(&state) {
            return Err(Status::INVALID_ZONE_STATE_TRANSITION);
        }
        let target = match action {
            Action::OPEN => State::EXPLICITLY_OPENED,
            Action::CLOSE => State::CLOSED,
            Action::FINISH => State::FULL,
            Action::OFFLINE => State::OFFLINE,
            _ => State::EMPTY,
        };
        if target == State::EXPLICITLY_OPENED && state != target {
            self.make_room(zone, max)?;
        }
        if target == State::EMPTY {
            self.zones[zone].1 = 0;
        }
        if state != target {
            self.set(zone, target);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Zone, bytes from its write pointer, blocks.
    Write(u32, i8, u64),
    Append(u32, u64),
    Act(Action, u32),
    Fail(u32),
    Extend(u32),
}

const ZONES: u32 = 6;

fn step() -> impl Strategy<Value = Step> {
    let zone = 0..ZONES;
    let action = prop::sample::select(vec![
        Action::OPEN,
        Action::CLOSE,
        Action::FINISH,
        Action::RESET,
        Action::RESET,
        Action::OFFLINE,
    ]);
    prop_oneof![
        6 => (zone.clone(), prop_oneof![5 => Just(0i8), 1 => -1..=1i8], 1..40u64)
            .prop_map(|(zone, off, blocks)| Step::Write(zone, off, blocks)),
        4 => (zone.clone(), 1..40u64).prop_map(|(zone, blocks)| Step::Append(zone, blocks)),
        6 => (action, zone.clone()).prop_map(|(action, zone)| Step::Act(action, zone)),
        1 => zone.clone().prop_map(Step::Extend),
        1 => zone.prop_map(Step::Fail),
    ]
}

proptest! {
    #[test]
    fn random_programs_end_as_the_model_says(
        max_open in 0..4u32,
        more_active in 0..3u32,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let max = match max_open {
            0 => (0, 0),
            open => (open, open + more_active),
        };
        let mut zones = Zones::new(geometry(ZONES, max.0, max.1));
        let mut model = Model {
            zones: vec![(State::EMPTY, 0); ZONES as usize],
            implicit: Vec::new(),
        };
        for step in steps {
            match step {
                Step::Write(zone, off, blocks) => {
                    let wp = model.zones[zone as usize].1;
                    let at = wp.saturating_add_signed(i64::from(off) * 512).min(ZONE - 512);
                    let len = blocks * 512;
                    let offset = u64::from(zone) * ZONE + at;
                    let expected = model.write(zone as usize, at, len, max);
                    prop_assert_eq!(write(&mut zones, offset, len), expected);
                }
                Step::Append(zone, blocks) => {
                    let (at, len) = (model.zones[zone as usize].1, blocks * 512);
                    let expected = model.write(zone as usize, at, len, max);
                    let found = zones.check_append(zone, len);
                    prop_assert_eq!(found.map(|w| w.offset), expected.map(|()| u64::from(zone) * ZONE + at));
                    if let Ok(write) = found {
                        zones.written(write);
                    }
                }
                Step::Act(action, zone) => {
                    let expected = model.act(action, zone as usize, max);
                    prop_assert_eq!(zones.act(action, zone).map(drop), expected);
                }
                Step::Fail(zone) => {
                    zones.failed(zone);
                    if model.zones[zone as usize].0 != State::OFFLINE {
                        model.set(zone as usize, State::READ_ONLY);
                    }
                }
                Step::Extend(zone) => {
                    let empty = model.zones[zone as usize].0 == State::EMPTY;
                    let active = max.1 > 0 && model.count(&ACTIVE) >= max.1 as usize;
                    let expected = match (empty, active) {
                        (false, _) => Err(Status::INVALID_ZONE_STATE_TRANSITION),
                        (true, true) => Err(Status::TOO_MANY_ACTIVE_ZONES),
                        (true, false) => {
                            model.set(zone as usize, State::CLOSED);
                            Ok(())
                        }
                    };
                    prop_assert_eq!(zones.extend(zone, false), expected);
                }
            }
            let found: Vec<_> = (0..ZONES).map(|z| (zones.get(z).state, zones.get(z).written)).collect();
            prop_assert_eq!(&found, &model.zones);
            let counts = (model.count(&OPEN) as u32, model.count(&ACTIVE) as u32);
            prop_assert_eq!(zones.in_use(), counts);
            for state in 0..16 {
                let state = State(state);
                let those = (0..zones.geometry().zones).filter(|zone| zones.get(*zone).state == state);
                prop_assert_eq!(zones.count(state) as usize, those.count());
            }
            prop_assert!(max.0 == 0 || counts.0 <= max.0);
            prop_assert!(max.1 == 0 || counts.1 <= max.1);
        }
    }
}
