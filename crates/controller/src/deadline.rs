//! Deadline for commands in flight when a controller, a lane or a medium stops.

/// How long a stage of a reset, shutdown or deletion waits for commands in flight before it gives
/// them up.
pub const DEADLINE_NS: u64 = 4_000_000_000;
