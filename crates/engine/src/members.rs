//! The controllers and subsystems of a reactor, and which of them need a turn.
//!
//! A turn of a controller costs as much as several commands, so only controllers with a reason get
//! one: their transport has touched them, a lane of theirs has news, their subsystem has changed,
//! or an operation of theirs on a medium is done. Those are *hot*, and stay so until some turns
//! found nothing. The others are *cold*, and get an occasional turn for their timers. A subsystem
//! is hot while one of its controllers is, or while it has work of its own.

use controller::Controller;
use port::time::Time;
use port::{Channel, Channels};
use subsystem::Subsystem;

use crate::slot::{ControllerSlot, EngineId, SubsystemSlot};

/// Turns of a controller or subsystem without work after which it is cold.
const HOT_TURNS: u8 = 4;
/// Interval between turns of every cold controller: its timers are late by no more than that.
const COLD_ROUND_NS: u64 = 1_000_000;
/// Between the turns of two cold controllers: where there are very many, a round takes longer.
const COLD_INTERVAL_NS: u64 = 5_000;

/// A controller, and the subsystem it belongs to.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) controller: Controller,
    pub(crate) subsystem: SubsystemSlot,
    pub(crate) places: Places,
    heat: Heat,
}

/// Placement of a controller's lanes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// On which engines they are to live, in turn; empty: on this one.
    pub(crate) spread: Vec<EngineId>,
    /// How its interrupts went when all of them were as they are to be: whether plainly, and
    /// whether lanes may live elsewhere.
    pub(crate) settled: Option<(bool, bool)>,
}

/// A subsystem, where its controllers find it.
#[derive(Debug)]
struct Home {
    subsystem: Subsystem,
    heat: Heat,
}

/// Whether a member gets turns.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    hot: bool,
    idle_turns: u8,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Members {
    controllers: Vec<Option<Member>>,
    subsystems: Vec<Option<Home>>,
    /// The hot ones.
    hot: Vec<usize>,
    hot_subsystems: Vec<usize>,
    /// A subsystem has something for its operator or keeper.
    news: bool,
    /// The cold controller that gets the next turn, and its time.
    cursor: usize,
    next_cold: Time,
}

/// Marks `index` hot in `list`.
fn heat(state: &mut Heat, list: &mut Vec<usize>, index: usize) {
    state.idle_turns = 0;
    if !state.hot {
        state.hot = true;
        list.push(index);
    }
}

/// The same for one turn, where that finds nothing.
fn touch(state: &mut Heat, list: &mut Vec<usize>, index: usize) {
    if !state.hot {
        heat(state, list, index);
        state.idle_turns = HOT_TURNS - 1;
    }
}

/// Whether there is something to take.
fn has_news(subsystem: &Subsystem) -> bool {
    subsystem.has_record() || subsystem.has_operator_answer()
}

/// Takes those out of `list` that are cold by now.
fn keep_hot(list: &mut Vec<usize>, mut is_hot: impl FnMut(usize) -> bool) {
    list.retain(|index| is_hot(*index));
}

impl Heat {
    /// A turn was taken. Cold after some that found nothing.
    fn turned(&mut self, worked: bool) {
        self.idle_turns = if worked { 0 } else { self.idle_turns + 1 };
        self.hot = self.idle_turns < HOT_TURNS;
    }
}

impl Members {
    pub(crate) fn add_controller(
        &mut self,
        controller: Controller,
        subsystem: SubsystemSlot,
        index: usize,
    ) {
        self.controllers[index] = Some(Member {
            controller,
            subsystem,
            places: Places::default(),
            heat: Heat::default(),
        });
        self.heat(index);
    }

    pub(crate) fn add_subsystem(&mut self, subsystem: Subsystem, index: usize) {
        self.subsystems[index] = Some(Home {
            subsystem,
            heat: Heat::default(),
        });
        self.heat_subsystem(index);
    }

    /// Sets the placement of a controller's lanes.
    pub(crate) fn set_spread(&mut self, slot: ControllerSlot, over: Vec<EngineId>) {
        if let Some(Some(member)) = self.controllers.get_mut(slot.0) {
            member.places = Places {
                spread: over,
                settled: None,
            };
        }
    }

    /// The placement of a controller's lanes.
    pub(crate) fn spread_of(&self, slot: ControllerSlot) -> Vec<EngineId> {
        let member = self.controllers.get(slot.0).and_then(Option::as_ref);
        member.map_or_else(Vec::new, |member| member.places.spread.clone())
    }

    /// A place for a controller.
    pub(crate) fn free_controller(&mut self) -> usize {
        free_place(&mut self.controllers)
    }

    /// A place for a subsystem.
    pub(crate) fn free_subsystem(&mut self) -> usize {
        free_place(&mut self.subsystems)
    }

    /// The subsystem of a controller.
    pub(crate) fn subsystem_of(&self, slot: ControllerSlot) -> Option<&Subsystem> {
        let member = self.controllers.get(slot.0)?.as_ref()?;
        let home = self.subsystems.get(member.subsystem.0)?.as_ref()?;
        Some(&home.subsystem)
    }

    pub(crate) fn take_controller(&mut self, slot: ControllerSlot) -> Option<Member> {
        self.hot.retain(|index| *index != slot.0);
        self.controllers.get_mut(slot.0)?.take()
    }

    pub(crate) fn take_subsystem(&mut self, slot: SubsystemSlot) -> Option<Subsystem> {
        self.hot_subsystems.retain(|index| *index != slot.0);
        let home = self.subsystems.get_mut(slot.0)?.take();
        home.map(|home| home.subsystem)
    }

    /// Places of controllers, free ones included.
    pub(crate) fn len(&self) -> usize {
        self.controllers.len()
    }

    /// A controller.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Controller> {
        let member = self.controllers.get_mut(index)?.as_mut();
        member.map(|member| &mut member.controller)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Controller> {
        let member = self.controllers.get(index)?.as_ref();
        member.map(|member| &member.controller)
    }

    /// Whether a subsystem may have news for its operator or for the code that keeps its records
    /// since the last call.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// A subsystem, for changes.
    pub(crate) fn subsystem_mut(&mut self, slot: SubsystemSlot) -> Option<&mut Subsystem> {
        let home = self.subsystems.get_mut(slot.0)?.as_mut();
        self.news = true;
        home.map(|home| &mut home.subsystem)
    }

    /// Every controller.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Controller> {
        let members = self.controllers.iter().flatten();
        members.map(|member| &member.controller)
    }

    /// Every controller, with its place.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Controller)> {
        let members = self.controllers.iter_mut().enumerate();
        members.filter_map(|(index, member)| Some((index, &mut member.as_mut()?.controller)))
    }

    /// Every subsystem.
    pub(crate) fn subsystems(&self) -> impl Iterator<Item = &Subsystem> {
        let homes = self.subsystems.iter().flatten();
        homes.map(|home| &home.subsystem)
    }

    /// Every subsystem, with its place.
    pub(crate) fn subsystems_mut(
        &mut self,
    ) -> impl Iterator<Item = (SubsystemSlot, &mut Subsystem)> {
        let homes = self.subsystems.iter_mut().enumerate();
        homes
            .filter_map(|(index, home)| Some((SubsystemSlot(index), &mut home.as_mut()?.subsystem)))
    }

    /// Places for controllers, taken or not.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        self.controllers.len()
    }

    /// Heats all members with work; returns whether there are any.
    pub(crate) fn heat_busy(&mut self) -> bool {
        let mut any = false;
        for (index, member) in self.controllers.iter_mut().enumerate() {
            if let Some(member) = member.as_mut().filter(|m| m.controller.has_work()) {
                heat(&mut member.heat, &mut self.hot, index);
                any = true;
            }
        }
        for (index, home) in self.subsystems.iter_mut().enumerate() {
            if let Some(home) = home.as_mut().filter(|h| h.subsystem.has_work()) {
                heat(&mut home.heat, &mut self.hot_subsystems, index);
                any = true;
            }
        }
        any
    }

    /// A controller has a reason for a turn.
    #[inline]
    pub(crate) fn heat(&mut self, index: usize) {
        if let Some(Some(member)) = self.controllers.get_mut(index) {
            heat(&mut member.heat, &mut self.hot, index);
        }
    }

    /// A subsystem has a reason for a turn.
    pub(crate) fn heat_subsystem(&mut self, index: usize) {
        if let Some(Some(home)) = self.subsystems.get_mut(index) {
            heat(&mut home.heat, &mut self.hot_subsystems, index);
        }
    }

    /// Whether none has a reason for a turn.
    #[inline]
    pub(crate) fn all_cold(&self) -> bool {
        self.hot.is_empty() && self.hot_subsystems.is_empty()
    }

    /// Gives a cold controller its turn now and then.
    #[inline]
    pub(crate) fn remember_cold(&mut self, now: Time) {
        if now >= self.next_cold && !self.controllers.is_empty() {
            self.heat_next(now);
        }
    }

    #[cold]
    fn heat_next(&mut self, now: Time) {
        let count = self.controllers.len();
        self.cursor = (self.cursor + 1) % count;
        if let Some(Some(member)) = self.controllers.get_mut(self.cursor) {
            touch(&mut member.heat, &mut self.hot, self.cursor);
        }
        self.next_cold = now + (COLD_ROUND_NS / count as u64).max(COLD_INTERVAL_NS);
    }

    /// Gives every hot subsystem a turn; a change of one concerns all of its controllers.
    pub(crate) fn turn_subsystems<C: Channel>(
        &mut self,
        now: Time,
        channels: &mut Channels<C>,
    ) -> bool {
        for index in &self.hot {
            if let Some(Some(Member { subsystem, .. })) = self.controllers.get(*index)
                && let Some(Some(home)) = self.subsystems.get_mut(subsystem.0)
            {
                touch(&mut home.heat, &mut self.hot_subsystems, subsystem.0);
            }
        }
        let mut any = false;
        for at in 0..self.hot_subsystems.len() {
            let index = self.hot_subsystems[at];
            let Some(Some(home)) = self.subsystems.get_mut(index) else {
                continue;
            };
            let before = home.subsystem.generation();
            let mut worked = home.subsystem.turn(now, channels);
            worked |= home.subsystem.generation() != before;
            home.heat.turned(worked || home.subsystem.has_work());
            self.news |= has_news(&home.subsystem);
            any |= worked;
            if worked {
                for (at, member) in self.controllers.iter_mut().enumerate() {
                    if let Some(member) = member.as_mut().filter(|m| m.subsystem.0 == index) {
                        heat(&mut member.heat, &mut self.hot, at);
                    }
                }
            }
        }
        let subsystems = &self.subsystems;
        keep_hot(
            &mut self.hot_subsystems,
            |index| matches!(&subsystems[index], Some(home) if home.heat.hot),
        );
        any
    }

    /// Gives every hot controller a turn; each returns whether it did work, and whether it stays
    /// hot regardless.
    pub(crate) fn turn_controllers(
        &mut self,
        mut turn: impl FnMut(usize, &mut Controller, &mut Subsystem, &mut Places) -> (bool, bool),
    ) -> bool {
        let mut any = false;
        for &index in &self.hot {
            let Some(Some(member)) = self.controllers.get_mut(index) else {
                continue;
            };
            let Some(Some(home)) = self.subsystems.get_mut(member.subsystem.0) else {
                continue;
            };
            let (worked, stays) = turn(
                index,
                &mut member.controller,
                &mut home.subsystem,
                &mut member.places,
            );
            any |= worked;
            member.heat.turned(worked || stays);
            self.news |= has_news(&home.subsystem);
            if home.subsystem.has_work() {
                heat(&mut home.heat, &mut self.hot_subsystems, member.subsystem.0);
            }
        }
        let controllers = &self.controllers;
        keep_hot(
            &mut self.hot,
            |index| matches!(&controllers[index], Some(member) if member.heat.hot),
        );
        any
    }
}

/// The index of an empty place, which is added where there is none.
fn free_place<T>(places: &mut Vec<Option<T>>) -> usize {
    places.iter().position(Option::is_none).unwrap_or_else(|| {
        places.push(None);
        places.len() - 1
    })
}
