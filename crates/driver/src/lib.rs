//! An NVMe host driver: over vfio-user, over VFIO, or in process.
//!
//! Reading order: [`Device`] (bring up a controller, identify it, create queues), [`QueuePair`]
//! (submit, ring, poll or wait), [`io`] (the NVM command set), [`zoned`], [`key_value`], [`sgl`]
//! (scattered data), [`bus`] (the connection). [`workload`] is the load generator, [`program`] runs
//! fixed lists of commands, and [`floor`] measures the limits of the machine itself.
//!
//! Invariants: nothing that a drive or its server sends panics or hangs; no command allocates, and
//! with mapped or shadow doorbells and polling none makes a system call.
//!
//! Not included: command sets other than NVM, zoned and key-value; metadata; memory page sizes
//! other than 4 KiB; retries. It does not recover by itself: an error says what happened,
//! [`Device::reset`] starts over, and [`Device::recover`] restores what can be restored.
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
pub mod wait;
pub mod workload;
pub mod zoned;

pub use device::{Device, Shutdown};
pub use error::DriverError;
pub use options::{CommandSets, Doorbells, Options};
pub use queue::{Carrier, DataPointer, Full, HeadCarrier, QueueInterrupt, QueuePair, Rung};
