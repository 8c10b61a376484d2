//! Reactors: the threads that serve. Each owns its lanes, controllers, channels and sockets, and
//! shares none of them.
//!
//! [`handle`] starts a thread and sends it a [`message`], whose [`answer`] it waits for. `run` is
//! the thread's loop; `hosted` is its state of each controller, `subsystems` of each subsystem, and
//! `leaving` has the connections that close. `poller` waits for events,
//! [`snapshots`] captures the state of timing models, [`maps`] that of media, and `reports` passes
//! reports of drives on. [`custody`] has the locks of media that move. [`inspect`] inspects queues
//! on any reactor. [`presence`] shows whether a host is attached, and [`network`] what hosts over
//! NVMe/TCP, NBD and vhost-user-blk and block devices have done. [`devices`] is what the threads of
//! block devices ask. [`memory_care`] and [`nodes`] look after the memory
//! that reactors copy. `branches` has the queues of hosts over NVMe/TCP whose controllers are on
//! another reactor.
//!
//! Files, HTTP and the plan of a configuration are the server's: this crate gets what is open, with
//! the live keys of its controllers, and reports by answers and the functions that it is given.
#![forbid(unsafe_code)]

pub mod answer;
mod branches;
pub mod custody;
pub mod devices;
mod door;
pub mod handle;
mod hosted;
pub mod inspect;
mod leaving;
mod lines;
mod looks;
pub mod maps;
pub mod memory_care;
pub mod message;
pub mod network;
pub mod nodes;
mod poller;
pub mod presence;
mod raiser;
mod relays;
mod reports;
mod run;
pub mod snapshots;
mod subsystems;
mod taken;
mod tenants;

pub use message::Pulse;
pub use tenants::TenantNews;
