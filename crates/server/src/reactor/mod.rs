//! Reactors: the threads that serve. Each owns its lanes, controllers, channels and sockets, and
//! shares none of them.
//!
//! [`handle`] starts a thread and sends it messages. [`run`] is the thread's loop; [`hosted`] is
//! its state of each controller, [`subsystems`] of each subsystem. [`poller`] waits for events,
//! [`snapshots`] captures the state of timing models, and [`reports`] passes reports of drives on.
//! [`inspect`] inspects queues on any reactor. [`presence`] shows whether a host is attached.

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
mod tenants;

pub(crate) use handle::Pulse;
pub(crate) use tenants::TenantNews;
