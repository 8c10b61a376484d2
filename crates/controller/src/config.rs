//! An operator's settings of a controller, checked once before it exists.
//!
//! Invariant: a [`ControllerConfig`] that passed [`ControllerConfig::check`] can be served; later
//! code relies on these values without checks. It does not read files and knows no names of media:
//! that is the program's part.

use memory::PAGE;
use subsystem::{ControllerId, number};

/// The most I/O queue pairs one controller offers.
pub const MAX_IO_QUEUES: u16 = 64;
/// The most entries of one queue.
pub const MAX_QUEUE_DEPTH: u16 = 4096;
pub use port::prp::MAX_TRANSFER;
/// PCI vendor id by default.
///
/// Drivers keep tables of defects by vendor and device id; this pair is in none of them. The ids of
/// QEMU's own controller (1b36:0010) would make Linux distrust the NGUID and EUI-64 that are
/// reported.
pub const DEFAULT_VENDOR_ID: u16 = 0x4e56;
/// PCI device id by default.
pub const DEFAULT_DEVICE_ID: u16 = 0x0001;

/// Most messages of MSI (PCI 3.0, 6.8.1.3).
const MSI_MESSAGES_MAX: u16 = 32;

/// How a host's doorbell writes are noticed; fixed before a host exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellMode {
    /// The doorbell page is mapped into the host. Doorbell Buffer Config is not offered.
    Mapped,
    /// Every write is a message; Doorbell Buffer Config spares the host most of them.
    Unmapped,
    /// Every write is a message, and Doorbell Buffer Config is not offered.
    Trapped,
}

/// How hosts reach a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// As a PCI function.
    #[default]
    Pcie,
    /// In messages of a network.
    Fabrics(Fabrics),
}

/// A controller over fabrics: a dynamic one, made for one association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabrics {
    /// The configured controller whose namespaces it has.
    pub entrance: ControllerId,
    /// Bytes of data in a command capsule of an I/O queue: a multiple of 16, up to
    /// [`MAX_IN_CAPSULE`].
    pub in_capsule: u32,
}

/// The most bytes of data in a command capsule.
pub const MAX_IN_CAPSULE: u32 = 64 << 10;

/// IOCCSZ and IORCSZ count these bytes.
pub(crate) const CAPSULE_UNIT: u32 = 16;

/// One controller, as the operator wants it.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Name in the log.
    pub name: String,
    /// PCI vendor id, of the function and of the subsystem.
    pub vendor_id: u16,
    /// PCI device id, of the function and of the subsystem.
    pub device_id: u16,
    /// Serial number: 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number: 1 to 40 printable ASCII characters.
    pub model_number: String,
    /// Firmware revision: 1 to 8 printable ASCII characters.
    pub firmware_revision: String,
    /// NVM Subsystem NQN: `nqn.` and at most 223 bytes in all (Base 2.1, 4.7).
    pub subnqn: String,
    /// I/O queue pairs offered: 1 to [`MAX_IO_QUEUES`].
    pub queues: u16,
    /// Entries of an I/O queue at most: 2 to [`MAX_QUEUE_DEPTH`].
    pub queue_depth: u16,
    /// Bytes that one command may move (MDTS): a power of two, 8 KiB to [`MAX_TRANSFER`]: a
    /// single page has no number there, as 0 means that there is no limit.
    pub max_transfer: u32,
    /// How doorbell writes are detected.
    pub doorbells: DoorbellMode,
    /// Whether the function has MSI-X, with its table in BAR4; MSI it has in any case.
    pub msix: bool,
    /// Whether the function has an interrupt pin (INTx).
    pub intx: bool,
    /// How hosts reach it.
    pub interface: Interface,
}

/// An invalid field of a [`ControllerConfig`], or the reason why the controller cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A text does not fit its field.
    #[error("{field} is \"{value}\": write 1 to {max} printable ASCII characters")]
    Text {
        /// The field's name.
        field: &'static str,
        /// Its value.
        value: String,
        /// Its longest length, in bytes.
        max: usize,
    },
    /// An NQN that is none.
    #[error("subnqn is \"{0}\": write nqn.YYYY-MM.reverse.domain:name, at most 223 bytes")]
    Subnqn(String),
    /// The largest transfer is no power of two.
    #[error("max_transfer is {0}: write a power of two")]
    MaxTransfer(u32),
    /// The data of a capsule is not a whole number of its units.
    #[error("in_capsule is {0}: write a multiple of 16")]
    InCapsule(u32),
    /// A field that a subsystem may have too, or the subsystem has no place for the controller.
    #[error(transparent)]
    Subsystem(#[from] subsystem::ConfigError),
    /// The doorbell pages are too small.
    #[error("the doorbell pages have {have} bytes: this controller needs {need}")]
    Doorbells {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The memory for persistent state could not be allocated.
    #[error("cannot create the state file: {0}; check memory limits and the number of open files")]
    State(#[source] std::io::Error),
    /// An area of that memory could not be used.
    #[error("cannot use the state file: {0}")]
    Area(#[from] memory::StateError),
}

/// NQNs have at most 223 bytes, without the terminating NUL (Base 2.1, 4.7).
const MAX_NQN: usize = 223;

impl ControllerConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is wrong, with what to write instead.
    pub fn check(&self) -> Result<(), ConfigError> {
        text("serial", &self.serial, 20)?;
        text("model_number", &self.model_number, 40)?;
        text("firmware_revision", &self.firmware_revision, 8)?;
        let nqn = &self.subnqn;
        if !nqn.starts_with("nqn.")
            || nqn.len() > MAX_NQN
            || !nqn.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(ConfigError::Subnqn(nqn.clone()));
        }
        number("queues", self.queues, 1, MAX_IO_QUEUES)?;
        number("queue_depth", self.queue_depth, 2, MAX_QUEUE_DEPTH)?;
        number(
            "max_transfer",
            self.max_transfer,
            2 * PAGE as u32,
            MAX_TRANSFER,
        )?;
        if !self.max_transfer.is_power_of_two() {
            return Err(ConfigError::MaxTransfer(self.max_transfer));
        }
        if let Interface::Fabrics(fabrics) = self.interface {
            number("in_capsule", fabrics.in_capsule, 0, MAX_IN_CAPSULE)?;
            if !fabrics.in_capsule.is_multiple_of(CAPSULE_UNIT) {
                return Err(ConfigError::InCapsule(fabrics.in_capsule));
            }
        }
        Ok(())
    }

    /// Whether hosts reach it over a network.
    #[must_use]
    pub fn is_over_fabrics(&self) -> bool {
        self.interface != Interface::Pcie
    }

    /// Whether Doorbell Buffer Config is offered.
    pub(crate) fn has_doorbell_buffers(&self) -> bool {
        self.doorbells == DoorbellMode::Unmapped && !self.is_over_fabrics()
    }

    /// Doorbell slots (u32 each) this controller reads: a tail and a head for the admin and each
    /// I/O queue pair.
    pub fn doorbell_slots(&self) -> usize {
        2 * (usize::from(self.queues) + 1)
    }

    /// Interrupt vectors: the admin queue's and one for each I/O queue pair.
    #[must_use]
    pub fn vectors(&self) -> u16 {
        self.queues + 1
    }

    /// Vectors of MSI-X.
    #[must_use]
    pub fn msix_vectors(&self) -> u16 {
        if self.msix { self.vectors() } else { 0 }
    }

    /// Messages of MSI offered: a power of two, 32 at most.
    #[must_use]
    pub fn messages(&self) -> u16 {
        messages(self.vectors())
    }

    /// MDTS: the largest transfer as a power of two of the smallest page (Base 2.1, figure 312).
    pub(crate) fn mdts(&self) -> u8 {
        (u64::from(self.max_transfer) / PAGE).ilog2() as u8
    }
}

/// Messages of MSI offered for so many vectors: the next power of two, 32 at most.
pub(crate) fn messages(vectors: u16) -> u16 {
    vectors.next_power_of_two().min(MSI_MESSAGES_MAX)
}

fn text(field: &'static str, value: &str, max: usize) -> Result<(), ConfigError> {
    let printable = value.bytes().all(|b| (0x20..=0x7e).contains(&b));
    if value.is_empty() || value.len() > max || !printable {
        return Err(ConfigError::Text {
            field,
            value: value.to_owned(),
            max,
        });
    }
    Ok(())
}
