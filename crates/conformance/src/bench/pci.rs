//! The PCI function: configuration space, capabilities, base address registers.

use super::Bench;
use crate::Verdict;
use crate::verdict::fail;
use crate::wire::{u8_at, u16_at, u32_at};

/// Bytes of the header and the capabilities of a PCI function.
const CONFIG_LEN: usize = 256;

impl Bench {
    /// The first 256 bytes of configuration space.
    ///
    /// # Errors
    /// The bus does not read them.
    pub fn config(&self) -> Verdict<Vec<u8>> {
        let mut bytes = vec![0; CONFIG_LEN];
        // In dwords, as every host does.
        for (at, dword) in (0..).step_by(4).zip(bytes.chunks_exact_mut(4)) {
            self.bus.config_read(at, dword)?;
        }
        Ok(bytes)
    }

    /// Reads two bytes of configuration space.
    ///
    /// # Errors
    /// The bus does not.
    pub fn config16(&self, at: u64) -> Verdict<u16> {
        let mut bytes = [0; 2];
        self.bus.config_read(at, &mut bytes)?;
        Ok(u16_at(&bytes, 0))
    }

    /// Reads four bytes of configuration space.
    ///
    /// # Errors
    /// The bus does not.
    pub fn config32(&self, at: u64) -> Verdict<u32> {
        let mut bytes = [0; 4];
        self.bus.config_read(at, &mut bytes)?;
        Ok(u32_at(&bytes, 0))
    }

    /// Writes two bytes of configuration space.
    ///
    /// # Errors
    /// The bus does not.
    pub fn set_config16(&self, at: u64, value: u16) -> Verdict {
        Ok(self.bus.config_write(at, &value.to_le_bytes())?)
    }

    /// Writes four bytes of configuration space.
    ///
    /// # Errors
    /// The bus does not.
    pub fn set_config32(&self, at: u64, value: u32) -> Verdict {
        Ok(self.bus.config_write(at, &value.to_le_bytes())?)
    }

    /// Memory space and bus mastering on; interrupts by MSI-X, where it has
    /// that. Over fabrics there is no function.
    ///
    /// # Errors
    /// The bus fails, or the list of capabilities is broken.
    pub fn enable_function(&mut self) -> Verdict {
        if self.is_over_fabrics() {
            return Ok(());
        }
        let command = self.config16(0x04)?;
        self.set_config16(0x04, command | 0b110)?;
        if let Some(at) = self.capability(0x11)? {
            let control = self.config16(at + 2)?;
            self.set_config16(at + 2, control & !(1 << 14) | 1 << 15)?;
        }
        Ok(())
    }

    /// The capabilities: identifier and offset, in their order (PCI 3.0, 6.7).
    ///
    /// # Errors
    /// A pointer points into the header, or the list has no end.
    pub fn capabilities(&self) -> Verdict<Vec<(u8, u64)>> {
        let config = self.config()?;
        if u16_at(&config, 0x06) >> 4 & 1 == 0 {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let mut at = u8_at(&config, 0x34) & !0b11;
        while at != 0 {
            if at < 0x40 {
                return fail(format!("a capability lies at {at:#x}, inside the header"));
            }
            // Each takes a dword at least of the 192 bytes after the header.
            if found.len() >= 48 {
                return fail("the list of capabilities goes in circles");
            }
            found.push((u8_at(&config, at.into()), u64::from(at)));
            at = u8_at(&config, usize::from(at) + 1) & !0b11;
        }
        Ok(found)
    }

    /// Where a capability lies.
    ///
    /// # Errors
    /// Those of [`Self::capabilities`].
    pub fn capability(&self, id: u8) -> Verdict<Option<u64>> {
        let found = self.capabilities()?;
        Ok(found
            .iter()
            .find(|(other, _)| *other == id)
            .map(|(_, at)| *at))
    }
}
