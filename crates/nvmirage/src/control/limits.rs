//! What control may take of the machine.

use std::time::Duration;

/// Connections at once over the control socket, and over TCP as many. More wait until one of them
/// ends.
pub(super) const CONNECTIONS: usize = 128;
/// A connection that sends no whole head of a request for so long is closed; between two requests,
/// too.
pub(super) const HEAD: Duration = Duration::from_secs(15);
/// A body comes within this time.
pub(super) const BODY: Duration = Duration::from_secs(15);
/// A client that takes nothing of a reply for so long is cut.
pub(super) const STALL: Duration = Duration::from_secs(15);
/// Headers of a request.
pub(super) const HEADERS: usize = 64;
/// Bytes of a request's head, and of what is read ahead.
pub(super) const HEAD_LEN: usize = 32 << 10;
/// KiB of bodies that are held at once; a request that finds no room waits for it, as long as for a
/// body.
pub(super) const BODIES_KIB: usize = 16 << 10;
/// How much lower than hosts' work control stands (setpriority(2)).
pub(super) const NICE: i32 = 10;
/// Threads that look something up.
pub(super) const LOOKS: usize = 4;
/// Changes that wait for their turn or are under way; a partition that is erased is one of them.
pub(super) const CHANGES: usize = 32;
/// Those who read events at once.
pub(super) const READERS: usize = 32;
/// How long requests have to end when the server stops.
pub(super) const STOP: Duration = Duration::from_secs(2);
/// How long a server may take to begin its answer to what the dashboard's address passes on: as
/// long as to any client.
pub(super) const PASSED_ON: Duration = Duration::from_secs(30);
/// A pause after a connection that could not be had, as when too many files are open.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
