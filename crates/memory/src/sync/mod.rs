//! State that threads of this process, and the other side of a queue, share without locks.

pub(crate) mod atomics;
pub mod claims;
pub mod counters;
pub mod mail_count;
pub mod mailbox;
pub(crate) mod order;
pub mod pool;
pub mod records;
pub mod sleep;
pub mod wake;
