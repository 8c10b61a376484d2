//! The reactor's lanes: where they are kept, and which of them are hot.
//!
//! A hot lane has a turn in every turn of the reactor; a cold one costs nothing. A lane that has found nothing to do for a
//! while grows cold, after [`Lane::rest`] has made sure that it will be missed by nobody: a host with doorbell buffers is
//! asked to ring, which is a message and heats the lane; so is every doorbell of a host without. Only doorbells that are
//! mapped into a host are stored without telling: the engine watches their pages.

use controller::{
    lane::{Lane, LaneCommand, LaneTable},
    ticket::OwnerKey,
    time::Time,
};

/// How long a lane stays hot without work. Longer than the gaps of a host that goes on: a command to a cold queue costs a
/// host with doorbell buffers an exit.
const HOT_NS: u64 = 1_000_000;
/// Bits of a key's number that name the slot; the bits above count how often the slot was used.
const SLOT_BITS: u32 = 16;
/// Mask of the generation: a key's number has 31 bits.
pub(crate) const GENERATION_MASK: u32 = OwnerKey::LIMIT / (1 << SLOT_BITS) - 1;

/// The number of a key: its slot, and how often that slot was used. A ticket from before finds nobody.
pub(crate) fn number_of(slot: usize, generation: u32) -> u32 {
    let slot = u32::try_from(slot).unwrap_or(u32::MAX) & ((1 << SLOT_BITS) - 1);
    (generation & GENERATION_MASK) << SLOT_BITS | slot
}

/// A place for one lane.
#[derive(Debug)]
struct Slot {
    lane: Option<Lane>,
    generation: u32,
    /// The controller it belongs to.
    controller: usize,
    hot: bool,
    /// When it last found something to do.
    worked: Time,
    /// Completions of the lane that were counted.
    completions: u64,
}

/// All lanes of one reactor.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    slots: Vec<Slot>,
    free: Vec<usize>,
    hot: Vec<usize>,
    now: Time,
}

impl Lanes {
    /// The lane of a key, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        let slot = self.slots.get_mut(slot_of(key))?;
        (slot.generation == generation_of(key)).then_some(slot.lane.as_mut())?
    }

    fn insert(&mut self, controller: usize, mut lane: Lane) -> OwnerKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                lane: None,
                generation: 0,
                controller,
                hot: false,
                worked: Time(0),
                completions: 0,
            });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.controller = controller;
        let key = OwnerKey::lane(number_of(index, slot.generation));
        lane.set_key(key);
        slot.completions = lane.counters().completions.get();
        slot.lane = Some(lane);
        self.heat(index);
        key
    }

    fn remove(&mut self, key: OwnerKey) -> Option<Lane> {
        self.get_mut(key)?;
        let index = slot_of(key);
        let slot = &mut self.slots[index];
        slot.hot = false;
        self.hot.retain(|&hot| hot != index);
        self.free.push(index);
        self.slots[index].lane.take()
    }

    /// Makes a lane hot: something points to work on it.
    pub(crate) fn kick(&mut self, key: OwnerKey) {
        if let Some(lane) = self.get_mut(key) {
            lane.kick();
            self.heat(slot_of(key));
        }
    }

    /// The lane of a key, made hot: it has posted, so it has an interrupt to raise, and may have room to fetch more.
    #[inline]
    pub(crate) fn warm(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.get_mut(key)?;
        self.heat(slot_of(key));
        self.get_mut(key)
    }

    #[inline]
    fn heat(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.worked = self.now;
        if !slot.hot {
            slot.hot = true;
            self.hot.push(index);
        }
    }

    /// Gives every hot lane a turn at `now`; one that found nothing for long becomes cold.
    #[inline]
    pub(crate) fn each_hot(&mut self, now: Time, mut turn: impl FnMut(&mut Lane) -> bool) {
        self.now = now;
        let mut at = 0;
        while let Some(&index) = self.hot.get(at) {
            let slot = &mut self.slots[index];
            // Whoever takes a lane out takes it off the list.
            if slot.lane.as_mut().is_some_and(&mut turn) {
                slot.worked = now;
            } else if now.since(slot.worked) > HOT_NS && slot.lane.as_mut().is_none_or(Lane::rest) {
                slot.hot = false;
                self.hot.swap_remove(at);
                continue;
            }
            at += 1;
        }
    }

    /// Shows the hot lanes with the controller each belongs to. How many commands they completed since the last time.
    #[inline]
    pub(crate) fn hot_mut(&mut self, mut each: impl FnMut(usize, &mut Lane)) -> u64 {
        let mut completed = 0;
        for &index in &self.hot {
            let slot = &mut self.slots[index];
            if let Some(lane) = &mut slot.lane {
                each(slot.controller, lane);
                let completions = lane.counters().completions.get();
                completed += completions.wrapping_sub(slot.completions);
                slot.completions = completions;
            }
        }
        completed
    }

    /// Whether no lane is hot.
    pub(crate) fn all_cold(&self) -> bool {
        self.hot.is_empty()
    }

    /// Arms every hot lane; the cold ones are armed.
    pub(crate) fn arm_hot(&mut self) {
        for &index in &self.hot {
            if let Some(lane) = &mut self.slots[index].lane {
                lane.arm();
            }
        }
    }

    /// The second look before sleeping: whether there is a hot lane with work.
    pub(crate) fn second_look(&self) -> bool {
        let mut hot = self.hot.iter();
        hot.any(|index| self.slots[*index].lane.as_ref().is_some_and(Lane::has_work))
    }
}

pub(crate) fn slot_of(key: OwnerKey) -> usize {
    (key.number() & ((1 << SLOT_BITS) - 1)) as usize
}

fn generation_of(key: OwnerKey) -> u32 {
    key.number() >> SLOT_BITS
}

/// The lanes as one controller sees them: those that it makes are its own.
pub(crate) struct LanesOf<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) controller: usize,
}

impl LaneTable for LanesOf<'_> {
    fn insert(&mut self, lane: Lane) -> OwnerKey {
        self.lanes.insert(self.controller, lane)
    }

    fn get_mut(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.lanes.get_mut(key)
    }

    fn command(&mut self, key: OwnerKey, command: LaneCommand) -> bool {
        let lane = self.lanes.warm(key);
        lane.map(|lane| lane.command(command)).is_some()
    }

    fn remove(&mut self, key: OwnerKey) -> Option<Lane> {
        self.lanes.remove(key)
    }
}
