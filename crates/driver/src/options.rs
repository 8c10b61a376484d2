//! Options for opening a drive.

use std::time::Duration;

/// How the driver notifies the controller of new commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// The fastest that the drive offers: mapped, else shadow, else trapped.
    #[default]
    Auto,
    /// Stores into the server's doorbell page; an error where it maps none.
    Mapped,
    /// Doorbell Buffer Config (Base 2.1, 5.2.5); an error where the controller
    /// does not offer it.
    Shadow,
    /// A register write for every doorbell.
    Trapped,
}

/// Options for a drive.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory shared with the drive, for queues and buffers. Untouched pages use no
    /// memory, except for a PCI function: its memory is locked in full.
    pub memory_len: usize,
    /// Admin commands in flight, at most; at least 2.
    pub admin_depth: u16,
    /// Doorbell mode.
    pub doorbells: Doorbells,
    /// Set up interrupts: required for queues that wait.
    pub interrupts: bool,
    /// Bound on every wait: for a reply of the server, for an admin command,
    /// and for a helper's I/O command. Enabling and shutting down have the
    /// controller's own bounds.
    pub timeout: Duration,
    /// Largest transfer of one command, in bytes: the space reserved for lists. The controller's
    /// MDTS lowers it.
    pub transfer_len_max: u32,
    /// Command sets to enable.
    pub command_sets: CommandSets,
}

/// Command sets to enable (CC.CSS). A controller hides the namespaces of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandSets {
    /// The NVM command set.
    #[default]
    Nvm,
    /// All that the controller supports.
    Supported,
    /// The same, where a controller that supports only the NVM command set is an error.
    All,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_len: 256 << 20,
            admin_depth: 31,
            doorbells: Doorbells::Auto,
            interrupts: false,
            timeout: Duration::from_secs(10),
            transfer_len_max: 1 << 20,
            command_sets: CommandSets::Nvm,
        }
    }
}
