//! A command that has completed, and its key.
//!
//! Not included: the command's name and its request; the modules `name` and `asked` have them.

use std::fmt;

use nvme_spec::key_value::{KEY_MAX, KvCdw11, KvOpcode};
use nvme_spec::opcode::Csi;

/// Stages of a command, in the order of [`Record::stages`]: in the host's ring, behind other
/// tenants, in the checks, with the medium, deferred by a model, and posted before its interrupt.
pub const STAGES: [&str; 6] = [
    "ring",
    "fairness",
    "translation",
    "medium",
    "model",
    "interrupt",
];

/// A command that has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When its doorbell was seen, in nanoseconds on the recording's clock;
    /// [`crate::Header::start_ns`] is when the recording began.
    pub at_ns: u64,
    /// Nanoseconds of each stage, by [`STAGES`]; 4.29 s stands for more.
    pub stages: [u32; STAGES.len()],
    /// Its completion queue.
    pub cqid: u16,
    /// Its submission queue.
    pub sqid: u16,
    /// Its command identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Whether it had Force Unit Access.
    pub fua: bool,
    /// The command set of its namespace (CSI).
    pub csi: u8,
    /// Bytes of a logical block of its namespace as a power of two; 0 where that was not there.
    pub lba_shift: u8,
    /// How it ended: Status Code Type and Status Code, as in bits 10:0 of the status field.
    pub status: u16,
    /// Its namespace.
    pub nsid: u32,
    /// Its first logical block; of Dataset Management that of its first range.
    pub slba: u64,
    /// Logical blocks that it names; of Dataset Management those of its first range; of a command
    /// with a key the bytes of the value or of the host's buffer (CDW10).
    pub blocks: u32,
    /// Of Dataset Management the number of its ranges, of the Zone Management commands CDW13, of
    /// other commands that name blocks the upper half of CDW12, of commands with a key the lower
    /// half of CDW11: the key's length, and options.
    pub detail: u32,
    /// The key's field, of commands of the Key Value command set.
    pub key: [u8; KEY_MAX],
    /// Bytes that it moved to or from the host.
    pub bytes: u32,
    /// Commands of its queue that were fetched and not completed when it was, with it.
    pub depth: u16,
}

impl Record {
    /// Nanoseconds from its doorbell until its completion was posted.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        let [stages @ .., _interrupt] = &self.stages;
        stages.iter().map(|stage| u64::from(*stage)).sum()
    }

    /// When its completion was posted, on the clock of [`Record::at_ns`].
    #[must_use]
    pub fn done_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.latency_ns())
    }

    /// The bytes of its namespace that it names: the first, and how many. `None` where it names
    /// none, or they have no end.
    #[must_use]
    pub fn extent(&self) -> Option<(u64, u64)> {
        if self.blocks == 0 {
            return None;
        }
        let start = self.first_byte()?;
        let len = u64::from(self.blocks) << self.lba_shift;
        start.checked_add(len)?;
        Some((start, len))
    }

    /// The first byte of its first logical block.
    pub(crate) fn first_byte(&self) -> Option<u64> {
        let known = (9..=16).contains(&self.lba_shift) && Csi(self.csi) != Csi::KEY_VALUE;
        known.then(|| self.slba.checked_mul(1 << self.lba_shift))?
    }

    /// Its key, of a command of the Key Value command set that has one.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        let len = KvCdw11::from(self.detail).kl();
        let is_one = Csi(self.csi) == Csi::KEY_VALUE && KvOpcode(self.opcode).has_key();
        (is_one && (1..=KEY_MAX).contains(&len.into())).then_some(Key {
            field: self.key,
            len,
        })
    }

    /// Whether it ended well.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == 0
    }
}

/// A key of 1 to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    field: [u8; KEY_MAX],
    len: u8,
}

impl Key {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let len = usize::from(self.len).min(KEY_MAX);
        &self.field[..len]
    }
}

impl fmt::Display for Key {
    /// `0x` and hexadecimal digits, as `nvmirage kv` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
