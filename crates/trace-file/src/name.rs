//! Names of commands.

use nvme_spec::key_value::KvOpcode;
use nvme_spec::opcode::{Csi, NvmOpcode};
use nvme_spec::zoned::ZonedOpcode;

use crate::record::Record;

/// Kind of a command, as far as users of traces distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Zone Append.
    Append,
    /// Flush.
    Flush,
    /// Write Zeroes.
    WriteZeroes,
    /// Dataset Management.
    Deallocate,
    /// Zone Management Send.
    ZoneManagement,
    /// Compare.
    Compare,
    /// Verify.
    Verify,
    /// Any other command of the NVM or Zoned Namespace command set.
    Other,
    /// A command of a key-value namespace.
    KeyValue,
}

impl Record {
    /// Kind of the command.
    #[must_use]
    pub fn operation(&self) -> Operation {
        if Csi(self.csi) == Csi::KEY_VALUE {
            return Operation::KeyValue;
        }
        if Csi(self.csi) == Csi::ZONED_NAMESPACE {
            match ZonedOpcode(self.opcode) {
                ZonedOpcode::ZONE_APPEND => return Operation::Append,
                ZonedOpcode::ZONE_MANAGEMENT_SEND => return Operation::ZoneManagement,
                _ => {}
            }
        }
        match NvmOpcode(self.opcode) {
            NvmOpcode::READ => Operation::Read,
            NvmOpcode::WRITE => Operation::Write,
            NvmOpcode::FLUSH => Operation::Flush,
            NvmOpcode::WRITE_ZEROES => Operation::WriteZeroes,
            NvmOpcode::DATASET_MANAGEMENT => Operation::Deallocate,
            NvmOpcode::COMPARE => Operation::Compare,
            NvmOpcode::VERIFY => Operation::Verify,
            _ => Operation::Other,
        }
    }

    /// Name of the command in its command set; with the opcode if it has no name.
    #[must_use]
    pub fn name(&self) -> String {
        if Csi(self.csi) == Csi::KEY_VALUE {
            return named(KvOpcode(self.opcode).name(), self.opcode);
        }
        let is_zoned = Csi(self.csi) == Csi::ZONED_NAMESPACE;
        match ZonedOpcode(self.opcode).name() {
            name if is_zoned && name != UNNAMED => name.into(),
            _ => named(NvmOpcode(self.opcode).name(), self.opcode),
        }
    }
}

/// Name of opcodes without a name.
const UNNAMED: &str = NvmOpcode(0xff).name();

fn named(name: &str, opcode: u8) -> String {
    match name {
        UNNAMED => format!("opcode {opcode:02x}h"),
        name => name.into(),
    }
}
