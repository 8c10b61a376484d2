//! The connection between the driver and a drive.
//!
//! A bus reads and writes the controller's properties, shares memory with it, and carries its
//! interrupts. It does not know queues or commands. Methods take `&self` because a device and its
//! queue pairs use one bus; each bus does its own locking.

pub mod movable;
pub mod nvme_tcp;
pub mod place;
pub mod vfio;
pub mod vfio_user;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use memory::{DoorbellPages, EventFd, HostMemory, Iova, Lent};
use nvme_spec::identify::IdentifyController;

use crate::DriverError;
pub use crate::pci_address::{NoPciAddress, PciAddress};

/// Empty looks that only spin, before the thread gives the processor away.
const SPINS: u32 = 1 << 12;
/// Empty looks after which the thread sleeps between them.
const YIELDS: u32 = SPINS + (1 << 10);
/// How long it then sleeps.
const NAP: Duration = Duration::from_micros(50);

/// Called by a bus to a drive that runs by itself, between empty polls.
fn spin_then_nap(empty: u32) {
    if empty < SPINS {
        std::hint::spin_loop();
    } else if empty < YIELDS {
        thread::yield_now();
    } else {
        thread::sleep(NAP);
    }
}

/// Doorbells that are rung by a store.
#[derive(Clone)]
pub struct MappedDoorbells {
    /// The pages.
    pub pages: Arc<DoorbellPages>,
    /// Offset of the first slot in BAR0, in bytes.
    pub start: u64,
}

impl MappedDoorbells {
    /// The slot of the doorbell at `offset` in BAR0; `None` where the pages do
    /// not reach.
    #[must_use]
    pub fn slot(&self, offset: u64) -> Option<usize> {
        let at = offset.checked_sub(self.start)?;
        let at = usize::try_from(at).ok()?;
        (at.is_multiple_of(4) && at + 4 <= self.pages.len()).then_some(at / 4)
    }
}

/// Commands of a host over fabrics, byte by byte as tests of a target write them. Completions are
/// four dwords.
pub trait Fabrics {
    /// The data of Connect (Base 2.1, 6.3) for an I/O queue of this host's controller.
    fn connect_data(&self) -> Vec<u8>;

    /// Sends Connect over a connection of its own, which ends with the answer.
    ///
    /// # Errors
    /// The target does not answer, or breaks the protocol.
    fn connect(&self, command: &[u8; 64], data: &[u8]) -> Result<[u32; 4], DriverError>;

    /// Executes a command without data on the Admin Queue, under an identifier of the bus.
    ///
    /// # Errors
    /// As [`Bus::read32`].
    fn execute(&self, command: &[u8; 64]) -> Result<[u32; 4], DriverError>;
}

/// The way to one controller.
///
/// Offsets are bytes in BAR0 unless they say otherwise.
pub trait Bus {
    /// Reads a property of four bytes.
    ///
    /// # Errors
    /// [`DriverError::Gone`], [`DriverError::Timeout`], [`DriverError::Refused`].
    fn read32(&self, offset: u64) -> Result<u32, DriverError>;

    /// Reads a property of eight bytes.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn read64(&self, offset: u64) -> Result<u64, DriverError>;

    /// Writes a property of four bytes and waits until that is done.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError>;

    /// Writes a property of eight bytes and waits until that is done.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError>;

    /// Rings a doorbell by a register write, which need not be done on return.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError>;

    /// As [`Self::ring`], and false where that would have to wait, for another
    /// user of the bus or for the drive: nothing is written then.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn try_ring(&self, offset: u64, value: u32) -> Result<bool, DriverError> {
        self.ring(offset, value).map(|()| true)
    }

    /// Reads the PCI configuration space.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError>;

    /// Writes the PCI configuration space.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError>;

    /// Bytes of the region behind base address register `bar`, 0 where there is
    /// none. A 64-bit register's region goes by its lower half.
    ///
    /// # Errors
    /// As [`Self::read32`].
    ///
    /// # Panics
    /// For a register beyond 5, which no function has; as the two below.
    fn bar_len(&self, bar: u8) -> Result<u64, DriverError>;

    /// Reads from the region of a base address register.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError>;

    /// Writes to the region of a base address register and waits until that is
    /// done.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError>;

    /// Resets the PCI function.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn reset_function(&self) -> Result<(), DriverError>;

    /// Doorbells that need no register write, where the drive offers them.
    fn doorbells(&self) -> Option<MappedDoorbells>;

    /// Lets the drive read and write all of `memory`, at `base`.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError>;

    /// Maps memory that another host shares for the drive, at `base`: for reading, and for writing
    /// where its host allows that. Call it from a thread that may block: large memory can take
    /// long.
    ///
    /// # Errors
    /// As [`Self::read32`]; [`DriverError::Unsupported`] where the memory cannot be had this way.
    /// Then its bytes have to be copied to memory that the drive can reach.
    fn lend(&self, memory: &Lent, base: Iova) -> Result<(), DriverError> {
        let _ = (memory, base);
        Err(DriverError::Unsupported(
            "memory of another host cannot be shared over this bus".to_owned(),
        ))
    }

    /// Takes memory back; on return the drive uses it no more.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError>;

    /// Whether [`Self::unshare`] revokes access to memory even if the drive misbehaves: a component
    /// between the two enforces that.
    fn can_revoke(&self) -> bool {
        false
    }

    /// Removes what a former process had set up on the drive and left to this one: all memory that
    /// the drive reaches, and all eventfds of its interrupts. To be called when the controller is
    /// disabled, and before anything is shared.
    ///
    /// # Errors
    /// As [`Self::read32`]; [`DriverError::Unsupported`] where memory may still be shared.
    fn clear_former(&self) -> Result<(), DriverError> {
        Err(DriverError::Unsupported(
            "a drive cannot be taken over from another process over this bus".to_owned(),
        ))
    }

    /// Whether the drive is behind a network (NVMe over Fabrics). Commands then describe their data
    /// by one SGL data block of exactly their length; there is no PCI function, and no doorbell
    /// that the drive itself sees.
    fn is_over_fabrics(&self) -> bool {
        self.fabrics().is_some()
    }

    /// Whether a queue is deleted at the near end: the drive may still execute its commands
    /// afterwards, until the controller is disabled.
    fn deletes_near(&self) -> bool {
        self.is_over_fabrics()
    }

    /// Commands that only hosts over fabrics send; `None` where there are none.
    fn fabrics(&self) -> Option<&dyn Fabrics> {
        None
    }

    /// Called with the Identify Controller data of a controller that was enabled.
    fn identified(&self, _identity: &IdentifyController) {}

    /// Interrupt vectors of the drive.
    fn vectors(&self) -> u16;

    /// Whether another party, such as the kernel, writes the MSI-X table and enables MSI-X, and
    /// hides both from this host.
    fn hides_msix(&self) -> bool {
        false
    }

    /// Has `vector` signal `eventfd`.
    ///
    /// # Errors
    /// As [`Self::read32`].
    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError>;

    /// Removes the eventfd of `vector`: it signals none until [`Self::set_interrupt`] assigns one.
    ///
    /// # Errors
    /// As [`Self::read32`]; [`DriverError::Unsupported`] where that cannot be had: it goes on as
    /// before.
    fn clear_interrupt(&self, vector: u16) -> Result<(), DriverError> {
        Err(DriverError::Unsupported(format!(
            "the interrupt of vector {vector} cannot be removed over this bus"
        )))
    }

    /// Has a message of MSI signal `eventfd`: for a host that has enabled MSI
    /// and not MSI-X.
    ///
    /// # Errors
    /// As [`Self::read32`]; [`DriverError::Unsupported`] where there is no such
    /// message.
    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError>;

    /// Gives the drive a turn, where it runs on this thread.
    fn turn(&self) {}

    /// Called between empty looks at a queue, the `empty`th in a row: spins,
    /// yields or sleeps as the bus sees fit.
    fn relax(&self, _empty: u32) {}

    /// Called between two looks at a register that has not changed yet.
    fn pause(&self) {}

    /// Waits until `eventfd` is signalled, and clears it: true; or until the
    /// time is over: false.
    ///
    /// # Errors
    /// [`DriverError::Gone`] as soon as the server is.
    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError>;

    /// Whether the drive can still respond. Does not block.
    ///
    /// # Errors
    /// [`DriverError::Gone`] where it cannot.
    fn check_alive(&self) -> Result<(), DriverError>;

    /// The time by which this bus's waits are bounded, in ns from some start.
    fn now_ns(&self) -> u64;
}
