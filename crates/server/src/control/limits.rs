//! Limits on what the control API takes from the machine.

use std::time::Duration;

/// Simultaneous connections over the control socket, and as many over TCP. Further ones wait until
/// one closes.
pub(super) const CONNECTIONS: usize = 128;
/// Longest time for the head of a request, also between two requests; then the connection is
/// closed.
pub(super) const HEAD: Duration = Duration::from_secs(15);
/// Longest time for a body.
pub(super) const BODY: Duration = Duration::from_secs(15);
/// Longest time in which a client reads no byte of a reply; then the connection is closed.
pub(super) const STALL: Duration = Duration::from_secs(15);
/// Most headers of a request.
pub(super) const HEADERS: usize = 64;
/// Most bytes of a request's head, and of read-ahead.
pub(super) const HEAD_LEN: usize = 32 << 10;
/// KiB of bodies held at once. A request without room waits for it, at most as long as for a body.
pub(super) const BODIES_KIB: usize = 16 << 10;
/// Nice value of the control thread, below the threads that serve hosts (setpriority(2)).
pub(super) const NICE: i32 = 10;
/// Threads for look-ups.
pub(super) const LOOKS: usize = 4;
/// Changes that wait or are in progress; erasing a partition is one of them.
pub(super) const CHANGES: usize = 32;
/// Simultaneous readers of the event stream.
pub(super) const READERS: usize = 32;
/// Time that requests have to finish when the server stops.
pub(super) const STOP: Duration = Duration::from_secs(2);
/// Longest time until a server begins its response to a request that the dashboard's proxy
/// forwards; the same as for any client.
pub(super) const PASSED_ON: Duration = Duration::from_secs(30);
/// Pause after a failed accept, such as with too many open files.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
