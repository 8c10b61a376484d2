//! Commands and completions as dwords (Base 2.1, 4.1 and 4.2).

/// A command, without its identifier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    /// Opcode.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Namespace identifier.
    pub nsid: u32,
    /// Data Pointer: two PRP entries, or an SGL descriptor.
    pub dptr: [u64; 2],
    /// Dwords 10 to 15.
    pub cdw: [u32; 6],
}

impl Command {
    /// The entry of a submission queue.
    #[must_use]
    pub fn to_words(self, cid: u16) -> [u64; 8] {
        let dwords = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let first = u32::from(self.opcode) | u32::from(self.flags) << 8 | u32::from(cid) << 16;
        let [d10, d11, d12, d13, d14, d15] = self.cdw;
        [
            dwords(first, self.nsid),
            0,
            0,
            self.dptr[0],
            self.dptr[1],
            dwords(d10, d11),
            dwords(d12, d13),
            dwords(d14, d15),
        ]
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Dword 0.
    pub dw0: u32,
    /// Where the controller is in the submission queue.
    pub sq_head: u16,
    /// Which submission queue.
    pub sqid: u16,
    /// Which command.
    pub cid: u16,
    /// Phase tag.
    pub phase: bool,
    /// Status Code Type in the upper byte, Status Code in the lower.
    pub status: u16,
    /// Do Not Retry.
    pub do_not_retry: bool,
}

impl Completion {
    /// From an entry of a completion queue.
    #[must_use]
    pub fn from_words([low, high]: [u64; 2]) -> Self {
        Completion {
            dw0: low as u32,
            sq_head: high as u16,
            sqid: (high >> 16) as u16,
            cid: (high >> 32) as u16,
            phase: high >> 48 & 1 == 1,
            status: (high >> 49) as u16 & 0x7ff,
            do_not_retry: high >> 63 == 1,
        }
    }
}

/// A little-endian number in a structure.
#[must_use]
pub fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = &bytes[at..at + len];
    field
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}
