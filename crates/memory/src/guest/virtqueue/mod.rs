//! Virtqueues in the guest's memory, from the device's side (VIRTIO 1.3, 2.7 and 2.8).
//!
//! A part of a virtqueue is one range of guest addresses, and must be one range here too: front
//! ends share memory in few and large pieces. [`SharedArea`] is such a range, of which words are
//! loaded and stored; [`SplitRing`] and [`PackedRing`] know where the fields of each layout are.
//!
//! Invariants:
//! - An area holds the view or the mapping that its address came from.
//! - A load reads its word once. Code that decides uses the value that it got.
//! - A store into the guest's memory is marked in the log of its view.
//!
//! Not included: indexes and wrap counters, and checks of the driver's values.

mod area;
mod packed;
mod split;

pub use area::{AreaError, SharedArea};
pub use packed::{EventSuppression, PackedDescriptor, PackedRing};
pub use split::{SplitDescriptor, SplitRing};
