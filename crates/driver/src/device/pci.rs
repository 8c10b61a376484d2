//! PCI setup of a function: memory space access, bus mastering, and MSI-X.

use nvme_spec::pci::{
    CAPABILITY_NEXT, CapabilityId, Command, MsixMessageControl, STATUS_CAPABILITIES_LIST, config,
    msix,
};

use super::{Device, make_eventfd};
use crate::DriverError;
use crate::bus::Bus;

/// A list of capabilities longer than this goes in circles: each takes at
/// least four bytes of the 192 after the header.
const CAPABILITIES_MAX: usize = 48;

impl<B: Bus> Device<B> {
    /// Memory space and bus mastering on; MSI-X too where interrupts are asked
    /// for.
    pub(super) fn enable_pci_function(&self) -> Result<(), DriverError> {
        if self.bus.is_over_fabrics() {
            return Ok(());
        }
        let command = Command::from(self.config_u16(config::COMMAND)?)
            .with_memory_space(true)
            .with_bus_master(true);
        self.set_config_u16(config::COMMAND, command.into())?;
        if self.options.interrupts {
            self.enable_msix()?;
            if self.bus.hides_msix() {
                // The system enables MSI-X with the first eventfd, and until then a
                // drive has only its pin to raise. The admin queue's is polled.
                self.bus.set_interrupt(0, &make_eventfd()?)?;
            }
        }
        Ok(())
    }

    /// Memory space on, where its former user had not come to that, so that registers answer. Bus
    /// mastering is as it was.
    pub(super) fn enable_memory_space(&self) -> Result<(), DriverError> {
        let command = Command::from(self.config_u16(config::COMMAND)?);
        let command = command.with_memory_space(true);
        self.set_config_u16(config::COMMAND, command.into())
    }

    fn enable_msix(&self) -> Result<(), DriverError> {
        let Some(at) = self.find_capability(CapabilityId::MSI_X)? else {
            return Err(DriverError::Unsupported(
                "the drive has no MSI-X capability: poll it instead".to_owned(),
            ));
        };
        let control = MsixMessageControl::from(self.config_u16(at + msix::MESSAGE_CONTROL)?)
            .with_function_mask(false)
            .with_enable(true);
        self.set_config_u16(at + msix::MESSAGE_CONTROL, control.into())
    }

    fn find_capability(&self, wanted: CapabilityId) -> Result<Option<usize>, DriverError> {
        if self.config_u16(config::STATUS)? & STATUS_CAPABILITIES_LIST == 0 {
            return Ok(None);
        }
        let mut at = self.config_u8(config::CAPABILITIES_POINTER)?;
        for _ in 0..CAPABILITIES_MAX {
            // The low two bits are reserved.
            let here = usize::from(at & !0b11);
            if here < config::HEADER_END {
                return Ok(None);
            }
            if CapabilityId(self.config_u8(here)?) == wanted {
                return Ok(Some(here));
            }
            at = self.config_u8(here + CAPABILITY_NEXT)?;
        }
        Err(DriverError::Broken(
            "its list of PCI capabilities does not end".to_owned(),
        ))
    }

    fn config_u8(&self, at: usize) -> Result<u8, DriverError> {
        let mut bytes = [0];
        self.bus.config_read(offset(at), &mut bytes)?;
        Ok(bytes[0])
    }

    fn config_u16(&self, at: usize) -> Result<u16, DriverError> {
        let mut bytes = [0; 2];
        self.bus.config_read(offset(at), &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn set_config_u16(&self, at: usize, value: u16) -> Result<(), DriverError> {
        self.bus.config_write(offset(at), &value.to_le_bytes())
    }
}

fn offset(at: usize) -> u64 {
    u64::try_from(at).expect("an offset in configuration space")
}
