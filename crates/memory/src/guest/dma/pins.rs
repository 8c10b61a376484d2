//! Views that I/O in flight still needs.

use std::sync::Arc;

use super::DmaView;

/// Keeps views alive for a medium whose I/O outlives the call that starts it, without touching a
/// shared reference count for every command: commands of one view are counted here.
///
/// A view is released with its last command, so that the memory of a disconnected guest does not
/// stay mapped.
#[derive(Debug, Default)]
pub struct ViewPins {
    /// As many as there ever were different views in flight at one time; never more than commands
    /// in flight.
    slots: Vec<Slot>,
    last: usize,
}

#[derive(Debug, Default)]
struct Slot {
    view: Option<Arc<DmaView>>,
    pins: u32,
}

/// One pin, to be released by [`ViewPins::unpin`] exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct PinId(u32);

impl ViewPins {
    /// Nothing pinned.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps `view` alive until the pin is released.
    #[inline]
    pub fn pin(&mut self, view: &Arc<DmaView>) -> PinId {
        if let Some(slot) = self.slots.get_mut(self.last)
            && slot.holds(view)
        {
            slot.pins += 1;
            return PinId(self.last as u32);
        }
        self.pin_other(view)
    }

    /// A view that is not the last one: another session's on this medium, or a newer one.
    fn pin_other(&mut self, view: &Arc<DmaView>) -> PinId {
        let held = self.slots.iter().position(|slot| slot.holds(view));
        let index = held.unwrap_or_else(|| self.vacant());
        let slot = &mut self.slots[index];
        slot.view.get_or_insert_with(|| view.clone());
        slot.pins += 1;
        self.last = index;
        PinId(index as u32)
    }

    fn vacant(&mut self) -> usize {
        let vacant = self.slots.iter().position(|slot| slot.view.is_none());
        vacant.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        })
    }

    /// Releases a pin.
    ///
    /// # Panics
    /// If the pin was given back before.
    #[inline]
    pub fn unpin(&mut self, pin: PinId) {
        let slot = &mut self.slots[pin.0 as usize];
        assert!(slot.pins > 0, "a pin is given back once");
        slot.pins -= 1;
        if slot.pins == 0 {
            slot.view = None;
        }
    }

    /// The view that a pin keeps.
    ///
    /// # Panics
    /// If the pin was given back.
    #[inline]
    #[must_use]
    pub fn view(&self, pin: PinId) -> &Arc<DmaView> {
        let view = self.slots[pin.0 as usize].view.as_ref();
        view.expect("a pin keeps its view")
    }

    /// Whether nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.view.is_none())
    }
}

impl Slot {
    #[inline]
    fn holds(&self, view: &Arc<DmaView>) -> bool {
        self.view
            .as_ref()
            .is_some_and(|held| Arc::ptr_eq(held, view))
    }
}
