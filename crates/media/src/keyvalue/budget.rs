//! Budget of one turn for a command that runs in slices.
//!
//! A command spends the bytes that it copies and the keys that it examines, and continues in the
//! next turn when nothing is left.

/// Cost of a key in bytes: finding one takes some tens of nanoseconds.
const BYTES_OF_A_KEY: u32 = 128;

/// Budget of one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// Bytes.
    pub(super) left: u32,
}

impl Slice {
    /// Accounts for an examined key.
    pub(super) fn spend_key(&mut self) {
        self.spend(BYTES_OF_A_KEY);
    }

    pub(super) fn spend(&mut self, bytes: u32) {
        self.left = self.left.saturating_sub(bytes);
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}
