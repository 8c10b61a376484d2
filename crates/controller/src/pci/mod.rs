//! The PCI function: 4096 bytes of configuration space, as bytes with a mask of the bits that a
//! host may change.
//!
//! Layout: the type 0 header, then Power Management, MSI, PCI Express and, if present, MSI-X, each
//! at a fixed place. Base address registers need no code: the bits below a region's size are not
//! writable, so that writing all ones reads back as the size (PCI 3.0, 6.2.5.1). The space selects
//! the interrupt mechanism ([`Mechanism`]). Nothing here decodes addresses or delivers interrupts;
//! a client does both.

mod msix;

pub(crate) use msix::MsixTable;

use crate::config::{ControllerConfig, messages};

/// Bytes of configuration space of a PCI Express function.
pub(crate) const CONFIG_SPACE: usize = 4096;
/// Bytes of it that are saved: those a PCI device without the Express extension has.
pub(crate) const SAVED: usize = 256;
/// Bytes of BAR4: a page for the MSI-X table, a page for the pending bits.
pub(crate) const BAR4_SIZE: u64 = 0x2000;
/// BAR0 is at least this large (PCIe Transport 1.1, 3.1.1).
const BAR0_MIN: u64 = 0x4000;
/// Offsets of the MSI-X table and the pending bits in BAR4.
const MSIX_TABLE: u32 = 0;
pub(crate) const MSIX_PBA: u32 = 0x1000;
/// The MSI-X table and its pending bits are in this BAR.
const MSIX_BAR: u32 = 4;

// Header (PCI 3.0, 6.1).
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const CLASS: usize = 0x08;
const CACHE_LINE: usize = 0x0c;
const BAR0: usize = 0x10;
const BAR4: usize = 0x20;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const INTERRUPT_PIN: usize = 0x3d;

// Where our capabilities lie.
const PM: usize = 0x40;
const MSI: usize = 0x50;
const PCIE: usize = 0x70;
const MSIX: usize = 0xb0;

/// Status: an INTx interrupt is pending (PCI 3.0, 6.2.3).
const STATUS_INTERRUPT: u8 = 1 << 3;
/// Status: a list of capabilities is present.
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Command: I/O space is not decoded; memory, bus master, parity, SERR and interrupt disable are
/// the host's.
const COMMAND_WRITABLE: u16 = 1 << 1 | BUS_MASTER | 1 << 6 | 1 << 8 | 1 << 10;
/// Control and status of Power Management: the power state, of which D3hot is one.
const POWER_STATE: usize = PM + 4;
const D3_HOT: u8 = 0b11;
/// Command: the function may issue memory requests, interrupts by MSI and MSI-X included (PCI 3.0,
/// 6.2.2).
const BUS_MASTER: u16 = 1 << 2;
/// Command: no INTx is signalled.
const INTERRUPT_DISABLE: u16 = 1 << 10;
/// The pin that INTx goes by: INTA#.
const PIN_A: u8 = 1;
/// Message Control of MSI: enabled; the messages offered and allocated are powers of two.
const MSI_ENABLE: u16 = 1;
const MSI_CAPABLE_SHIFT: u32 = 1;
const MSI_ALLOCATED_SHIFT: u32 = 4;
const MSI_COUNT_MASK: u16 = 0b111;
/// Message Control of MSI-X: every vector is masked; enabled.
const MSIX_FUNCTION_MASK: u16 = 1 << 14;
const MSIX_ENABLE: u16 = 1 << 15;
/// Device Control: error reporting, relaxed ordering, payload, no snoop, read request. Bit 15 is
/// not kept.
const DEVICE_CONTROL_WRITABLE: u16 = 0x78ff;
/// Device Control: initiate a function level reset; reads as zero (PCIe 6.0, 7.5.3.4).
const INITIATE_FLR: u16 = 1 << 15;

/// The configuration space of one function.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSpace {
    bytes: Box<[u8; CONFIG_SPACE]>,
    writable: Box<[u8; CONFIG_SPACE]>,
    power_on: Box<[u8; CONFIG_SPACE]>,
    /// The host has set Bus Master Enable since power-on.
    mastered: bool,
}

/// The way that interrupts go, as the configuration space has it (PCIe Transport 1.1, 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// MSI-X. Also where nothing is enabled and there is no pin: a client that has assigned
    /// eventfds to vectors gets its interrupts, as it does from the kernel's VFIO, which sets the
    /// enable bit by itself.
    Vectors,
    /// MSI, with so many messages allocated. Without MSI-X also where nothing is enabled and there
    /// is no pin, for the same reason: with all of them.
    Messages { count: u16 },
    /// INTx.
    Pin,
    /// INTx, and it is disabled.
    Silent,
}

/// Effect of a write to configuration space, beside the bytes it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigEffect {
    /// Nothing.
    None,
    /// A function level reset.
    FunctionReset,
}

/// The size of BAR0 for this many bytes of doorbells behind the page of registers.
pub(crate) fn bar0_size(doorbell_bytes: usize) -> u64 {
    (memory::PAGE + doorbell_bytes as u64)
        .next_power_of_two()
        .max(BAR0_MIN)
}

impl ConfigSpace {
    /// The function of a controller with this configuration, with a BAR0 of `bar0_size` bytes (a
    /// power of two).
    pub(crate) fn new(config: &ControllerConfig, bar0_size: u64) -> Self {
        let vectors = config.vectors();
        debug_assert!(bar0_size.is_power_of_two() && vectors >= 1);
        let mut space = ConfigSpace {
            bytes: Box::new([0; CONFIG_SPACE]),
            writable: Box::new([0; CONFIG_SPACE]),
            power_on: Box::new([0; CONFIG_SPACE]),
            mastered: false,
        };
        space.header(config.vendor_id, config.device_id, bar0_size);
        space.power_management();
        space.msi(messages(vectors));
        space.pcie();
        if config.msix {
            space.msix(vectors);
        }
        if config.intx {
            space.bytes[INTERRUPT_PIN] = PIN_A;
        }
        space.power_on = space.bytes.clone();
        space
    }

    fn header(&mut self, vendor: u16, device: u16, bar0_size: u64) {
        self.put16(0x00, vendor);
        self.put16(0x02, device);
        self.allow16(COMMAND, COMMAND_WRITABLE);
        self.put16(STATUS, STATUS_CAPABILITIES);
        // Mass storage, non-volatile memory, NVM Express I/O controller (PCIe Transport 1.1, 3.1);
        // revision 1.
        self.put32(CLASS, 0x0108_0201);
        self.allow32(CACHE_LINE, 0xff);
        // 64-bit, not prefetchable memory.
        self.put32(BAR0, 0b100);
        self.allow32(BAR0, low(!(bar0_size - 1)) & !0xf);
        self.allow32(BAR0 + 4, high(!(bar0_size - 1)));
        self.put16(SUBSYSTEM, vendor);
        self.put16(SUBSYSTEM + 2, device);
        self.put16(CAPABILITIES, PM as u16);
        self.allow32(INTERRUPT_LINE, 0xff);
    }

    /// Power Management (PCI PM 1.2, 3.2): version 3, D0 and D3hot, no PME, no soft reset.
    fn power_management(&mut self) {
        self.capability(PM, 0x01, MSI);
        self.put16(PM + 2, 0x0003);
        self.put16(PM + 4, 1 << 3);
        self.allow16(PM + 4, 0b11);
    }

    /// MSI with a 64-bit address (PCI 3.0, 6.8.1). INTMS masks (Base 2.1, 3.1.4.3), so it has no
    /// mask bits of its own.
    fn msi(&mut self, messages: u16) {
        self.capability(MSI, 0x05, PCIE);
        let capable = messages.ilog2() as u16;
        self.put16(MSI + 2, 1 << 7 | capable << MSI_CAPABLE_SHIFT);
        self.allow16(MSI + 2, MSI_ENABLE | MSI_COUNT_MASK << MSI_ALLOCATED_SHIFT);
        self.allow32(MSI + 4, !0b11);
        self.allow32(MSI + 8, !0);
        self.allow16(MSI + 12, !0);
    }

    /// PCI Express endpoint, version 2, with function level reset (PCIe 6.0, 7.5.3). The link is
    /// for show: 16 GT/s, x4.
    fn pcie(&mut self) {
        self.capability(PCIE, 0x10, 0);
        self.put16(PCIE + 2, 0x0002);
        // Role-based error reporting, FLR; payload of 128 bytes; L0s and L1 latencies without
        // limit.
        self.put32(PCIE + 0x04, 1 << 28 | 1 << 15 | 0b111 << 9 | 0b111 << 6);
        // Read requests of 512 bytes, relaxed ordering, no snoop.
        self.put16(PCIE + 0x08, 0x2810);
        self.allow16(PCIE + 0x08, DEVICE_CONTROL_WRITABLE);
        const GEN4_X4: u16 = 4 << 4 | 4;
        self.put32(PCIE + 0x0c, u32::from(GEN4_X4));
        self.allow16(PCIE + 0x10, 0x01c3);
        self.put16(PCIE + 0x12, GEN4_X4);
        // Completion timeout disable is supported and has no effect.
        self.put32(PCIE + 0x24, 1 << 4);
        self.allow16(PCIE + 0x28, 1 << 4);
        // Link Capabilities 2: 2.5, 5, 8 and 16 GT/s; Link Control 2: the target is 16 GT/s.
        self.put32(PCIE + 0x2c, 0b1111 << 1);
        self.put16(PCIE + 0x30, 4);
        self.allow16(PCIE + 0x30, 0xf);
    }

    /// MSI-X (PCI 3.0, 6.8.2): table and pending bits in a BAR of their own, which is never mapped
    /// into a host.
    fn msix(&mut self, vectors: u16) {
        self.bytes[PCIE + 1] = MSIX as u8;
        self.capability(MSIX, 0x11, 0);
        self.allow32(BAR4, low(!(BAR4_SIZE - 1)) & !0xf);
        self.put16(MSIX + 2, vectors - 1);
        self.allow16(MSIX + 2, MSIX_ENABLE | MSIX_FUNCTION_MASK);
        self.put32(MSIX + 4, MSIX_TABLE | MSIX_BAR);
        self.put32(MSIX + 8, MSIX_PBA | MSIX_BAR);
    }

    /// Reads `out.len()` bytes; bytes past the end read as zero.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        let Ok(at) = usize::try_from(offset) else {
            return;
        };
        let there = self.bytes.get(at..).unwrap_or(&[]);
        for (byte, kept) in out.iter_mut().zip(there) {
            *byte = *kept;
        }
    }

    /// Writes the writable bits of `data`.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> ConfigEffect {
        let mut effect = ConfigEffect::None;
        let start = usize::try_from(offset).unwrap_or(CONFIG_SPACE);
        for (at, &byte) in (start..CONFIG_SPACE).zip(data) {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            if at == PCIE + 0x09 && byte & (INITIATE_FLR >> 8) as u8 != 0 {
                effect = ConfigEffect::FunctionReset;
            }
        }
        self.mastered |= self.get16(COMMAND) & BUS_MASTER != 0;
        effect
    }

    /// Back to power-on: command, BARs, and every capability's controls.
    pub(crate) fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.power_on[..]);
        self.mastered = false;
    }

    /// The bytes that a host may have changed: they include the header and every capability.
    pub(crate) fn saved(&self) -> [u8; SAVED] {
        std::array::from_fn(|at| self.bytes[at])
    }

    /// Restores the saved state of a process that died: the bits that a host can write. `mastered`:
    /// the host had set Bus Master Enable since power-on.
    pub(crate) fn restore(&mut self, saved: &[u8; SAVED], mastered: bool) {
        for (at, saved) in saved.iter().enumerate() {
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | saved & writable;
        }
        self.mastered = mastered;
    }

    /// Whether the host has set Bus Master Enable since power-on.
    pub(crate) fn was_mastered(&self) -> bool {
        self.mastered
    }

    /// Whether it has MSI-X, and BAR4 for it.
    pub(crate) fn has_msix(&self) -> bool {
        self.bytes[MSIX] != 0
    }

    /// Whether interrupts use MSI-X: then INTMS and INTMC have no effect (PCIe Transport 1.1, 3.5).
    pub(crate) fn msix_enabled(&self) -> bool {
        self.get16(MSIX + 2) & MSIX_ENABLE != 0
    }

    /// Whether MSI-X is enabled and its Function Mask bit masks every vector.
    pub(crate) fn msix_masked(&self) -> bool {
        self.msix_enabled() && self.get16(MSIX + 2) & MSIX_FUNCTION_MASK != 0
    }

    /// Whether the function may issue memory requests: not while Bus Master Enable is 0 (PCI 3.0,
    /// 6.2.2; PCIe 6.0, 7.5.1.1.3), and not in D3hot (PCI PM 1.2, 5.4.1). A host that has never set
    /// the bit, as a client in user space may forget, is served all the same.
    pub(crate) fn may_master(&self) -> bool {
        let enabled = self.get16(COMMAND) & BUS_MASTER != 0 || !self.mastered;
        enabled && self.bytes[POWER_STATE] & D3_HOT != D3_HOT
    }

    /// Whether it has an interrupt pin.
    pub(crate) fn has_pin(&self) -> bool {
        self.bytes[INTERRUPT_PIN] != 0
    }

    /// The way that interrupts go now.
    pub(crate) fn mechanism(&self) -> Mechanism {
        let msi = self.get16(MSI + 2);
        let capable = msi >> MSI_CAPABLE_SHIFT & MSI_COUNT_MASK;
        if self.msix_enabled() {
            Mechanism::Vectors
        } else if msi & MSI_ENABLE != 0 {
            // More than what is offered cannot be allocated.
            let allocated = msi >> MSI_ALLOCATED_SHIFT & MSI_COUNT_MASK;
            Mechanism::Messages {
                count: 1 << allocated.min(capable),
            }
        } else if !self.has_pin() && self.has_msix() {
            Mechanism::Vectors
        } else if !self.has_pin() {
            let count = 1 << capable;
            Mechanism::Messages { count }
        } else if self.get16(COMMAND) & INTERRUPT_DISABLE == 0 {
            Mechanism::Pin
        } else {
            Mechanism::Silent
        }
    }

    /// Shows in the Status register whether an INTx interrupt is pending.
    pub(crate) fn set_interrupt_status(&mut self, pending: bool) {
        self.bytes[STATUS] &= !STATUS_INTERRUPT;
        if pending {
            self.bytes[STATUS] |= STATUS_INTERRUPT;
        }
    }

    fn capability(&mut self, at: usize, id: u8, next: usize) {
        self.bytes[at] = id;
        self.bytes[at + 1] = next as u8;
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn allow16(&mut self, at: usize, mask: u16) {
        self.writable[at..at + 2].copy_from_slice(&mask.to_le_bytes());
    }

    fn allow32(&mut self, at: usize, mask: u32) {
        self.writable[at..at + 4].copy_from_slice(&mask.to_le_bytes());
    }
}

fn low(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

#[cfg(test)]
mod tests;
