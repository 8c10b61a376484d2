//! How a host drives an NVMe drive: over vfio-user, over VFIO, or in process.
//!
//! Reading order: [`Device`] (bring a controller up, ask it what it is, give it queues),
//! [`QueuePair`] (submit, ring, poll or wait), [`io`] (the NVM command set), [`key_value`], [`sgl`]
//! (data in any pieces), [`bus`] (what lies between). [`workload`] is the load generator,
//! [`program`] runs commands that are fixed, and [`floor`] what the machine itself allows.
//!
//! Invariants: nothing that a drive or its server answers panics or hangs; no
//! command allocates, and with mapped or shadow doorbells and polling none makes
//! a call of the system.
//!
//! What it does NOT do: no other command sets than NVM and key-value, no metadata, no memory
//! pages but 4 KiB, no retries. It does not recover by itself: an error
//! says what happened, [`Device::reset`] starts over, and [`Device::recover`]
//! brings back what can be brought back.
#![forbid(unsafe_code)]

pub mod bus;
mod device;
mod doorbell;
mod error;
pub mod floor;
pub mod io;
pub mod key_value;
mod options;
mod pci_address;
pub mod program;
pub mod prp;
mod queue;
pub mod sgl;
pub mod workload;

pub use device::{Device, Shutdown};
pub use error::DriverError;
pub use options::{Doorbells, Options};
pub use queue::{Carrier, Full, HeadCarrier, QueueInterrupt, QueuePair, Rung};
