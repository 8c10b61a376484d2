//! Threads that serve: each runs the lanes, controllers, channels and sockets that it owns, and
//! shares nothing.
//!
//! [`handle`] is the rest of the program's side: it starts a thread and sends it messages. [`run`]
//! is the thread itself, [`hosted`] what it keeps for each controller, [`subsystems`] for each
//! subsystem, [`poller`] what it waits for when it sleeps, [`snapshots`] what it takes of the state
//! of drives while it serves them, [`reports`] what drives say of themselves. [`inspect`] looks at
//! queues, wherever they live. [`presence`] says who is attached.

mod door;
pub(crate) mod handle;
mod hosted;
pub(crate) mod inspect;
mod lines;
mod looks;
mod poller;
pub(crate) mod presence;
mod relays;
mod reports;
mod run;
mod snapshots;
pub(crate) mod subsystems;

pub(crate) use handle::Pulse;
