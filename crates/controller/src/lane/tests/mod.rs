//! The lane driven by a small host: rings in its own memory, one or more media.

mod allocation;
mod commands;
mod control;
mod copy;
mod doorbells;
mod fused;
mod held;
mod hostile;
mod inspection;
mod maps;
mod model;
mod polling;
mod rig;
mod saved;
mod sets;
mod sgl;
mod shadow;
mod steps;
mod straight;
mod watch;

/// Lanes and what is said to them move between reactors.
#[test]
fn lanes_and_their_messages_can_be_sent() {
    fn sent<T: Send>() {}
    sent::<super::Lane>();
    sent::<super::LaneCommand>();
    sent::<super::LaneEvent>();
}
