//! How long whoever stops something waits for commands in flight.

/// How long a stage of a reset, shutdown or deletion waits for commands in flight before it gives
/// them up.
pub const DEADLINE_NS: u64 = 4_000_000_000;
