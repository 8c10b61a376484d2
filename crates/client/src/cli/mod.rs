//! The commands that ask a server: their arguments, and what they print.

pub mod attach;
pub mod create;
pub mod delete;
pub mod disconnect;
pub mod events;
pub mod export;
pub mod hosts;
pub mod latency;
pub mod live;
pub mod ls;
pub mod move_queues;
mod options;
pub mod parse;
pub mod qemu_args;
pub mod queues;
pub mod reload;
pub mod resize;
pub mod set;
pub mod show;
pub mod stop;
pub mod top;
pub mod trace;
pub mod upgrade;

use terminal::error::UsageError;
