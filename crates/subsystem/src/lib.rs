//! An NVM subsystem: the state that its controllers share (Base 2.1, 2.4 and 3.2).
//!
//! It keeps the directory of namespaces and their attachments, the unallocated space, and the state
//! that outlives a restart. All its controllers live on its reactor, and each receives the
//! subsystem with every turn; slow work (a format, say) is an [operation](Operation), whose answer
//! a controller takes in a later turn.
//!
//! Every change of the directory that a command can notice creates a new *generation*. A controller
//! takes its new table in its next turn and acknowledges the generation when no command that was
//! fetched under an older one is in flight: changes that must not race with commands wait for that
//! (`Step::Drain`).
//!
//! Reading order: `directory` (the namespaces), `access` (their ANA groups), `operation` and
//! `subsystem` with its `schedule` (the progress of commands), `plan` and `sanitizing` (their
//! steps), `dynamic` (controllers of hosts that come over networks), `record` (persistent state).
//!
//! Invariants: two namespaces never share bytes; every operation is answered once, unless its
//! requester is gone; a record is taken whole, and an answer that promises persistence goes out
//! only when the record was kept. It does NOT write files: the program takes records and reports
//! when they are kept.

#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod access;
mod allocated;
mod answers;
mod config;
mod directory;
mod erase;
mod health;
pub mod identity;
mod notices;
mod operation;
mod record;
mod request;
mod reservation;
mod sanitize;
mod set;
mod subsystem;

pub use self::access::{AnaStates, DEFAULT_ANA_GROUP, MAX_ANA_GROUP, ana_refusal};
pub use self::allocated::{Allocated, Busy, GRANULE, Pool};
pub use self::answers::{KeptAnswer, UNNAMED};
pub use self::config::{ConfigError, DEFAULT_NAMESPACE_LIMIT, MAX_NAMESPACES, number};
pub use self::directory::{Change, Directory};
pub use self::erase::{Erase, Round};
pub use self::health::HealthRecord;
pub use self::notices::{KeptNotice, Notice};
pub use self::operation::{Answer, NSID_NONE, Operation, Requester, Step};
pub use self::record::{
    ControllerRecord, CurrentReservation, NamespaceRecord, Record, RestoreError, SavedFeatures,
};
pub use self::request::{OperatorRequest, Plan};
pub use self::reservation::{Host, Registrant, Reservation, ReservationCommand};
pub use self::sanitize::{Sanitize, SanitizeChange, SanitizeNews, SanitizeOutcome, SanitizeRecord};
pub use self::set::{
    ControllerId, ControllerSet, DYNAMIC_IDS, MAX_CONTROLLERS, MAX_DYNAMIC_CONTROLLERS,
};
pub use self::subsystem::{DATA_LEN, Forward, Subsystem, SubsystemConfig};

/// How long a stage of a reset, shutdown or deletion waits for commands in flight before it gives
/// them up, in nanoseconds.
pub const DEADLINE_NS: u64 = 4_000_000_000;
