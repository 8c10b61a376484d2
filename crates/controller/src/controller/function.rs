//! The PCI function of a controller: configuration space, the MSI-X table, and the sizes of the
//! BARs. It does NOT raise interrupts: `interrupts` does.

use crate::config::ControllerConfig;
use crate::pci::{self, BAR4_SIZE, ConfigSpace, MsixTable};

#[derive(Debug)]
pub(super) struct Function {
    pub(super) config_space: ConfigSpace,
    pub(super) msix: MsixTable,
    bar0_size: u64,
}

impl Function {
    /// As after power-on, with so many bytes of doorbells.
    pub(super) fn new(config: &ControllerConfig, doorbells: usize) -> Self {
        let bar0_size = pci::bar0_size(doorbells);
        Function {
            config_space: ConfigSpace::new(config, bar0_size),
            msix: MsixTable::new(config.msix_vectors()),
            bar0_size,
        }
    }

    /// Sizes of the six BARs in bytes, 0 where there is none.
    pub(super) fn bar_sizes(&self) -> [u64; 6] {
        let bar4 = if self.config_space.has_msix() {
            BAR4_SIZE
        } else {
            0
        };
        [self.bar0_size, 0, 0, 0, bar4, 0]
    }
}
