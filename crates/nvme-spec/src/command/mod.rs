//! Contents of the command dwords of each command (Base 2.1, 5; NVM 1.1, 3).
//!
//! A type names a dword: `IdentifyCdw10::from(sqe.cdw10)`, and `into()` for the way back. Reserved
//! bits come and go unchanged.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Sqe;
use crate::features::{FeatureId, Select};
use crate::identify::Cns;
use crate::log::LogPageId;
use crate::opcode::Csi;
pub use crate::protection::Prinfo;

/// Create I/O Completion Queue and Create I/O Submission Queue, Dword 10 (Base 2.1, 5.2.1 and
/// 5.2.2). PRP1 holds the address of the queue.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateIoQueueCdw10 {
    /// Queue Identifier.
    pub qid: u16,
    /// Queue Size.
    pub qsize_z: u16,
}

/// Create I/O Completion Queue, Dword 11 (Base 2.1, 5.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateIoCqCdw11 {
    /// Physically Contiguous.
    pub pc: bool,
    /// Interrupts Enabled.
    pub ien: bool,
    #[bits(14)]
    __: u16,
    /// Interrupt Vector.
    pub iv: u16,
}

open_enum! {
    /// Queue Priority, for weighted round robin with urgent priority class.
    pub struct QueuePriority(u8) {
        URGENT = 0b00, "Urgent";
        HIGH = 0b01, "High";
        MEDIUM = 0b10, "Medium";
        LOW = 0b11, "Low";
    }
}

/// Create I/O Submission Queue, Dword 11 (Base 2.1, 5.2.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CreateIoSqCdw11 {
    /// Physically Contiguous.
    pub pc: bool,
    /// Queue Priority.
    #[bits(2)]
    pub qprio: QueuePriority,
    #[bits(13)]
    __: u16,
    /// Completion Queue Identifier.
    pub cqid: u16,
}

/// Delete I/O Submission Queue and Delete I/O Completion Queue, Dword 10 (Base 2.1, 5.2.3 and
/// 5.2.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DeleteIoQueueCdw10 {
    /// Queue Identifier.
    pub qid: u16,
    __: u16,
}

/// Abort, Dword 10 (Base 2.1, 5.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AbortCdw10 {
    /// Submission Queue Identifier of the command to abort.
    pub sqid: u16,
    /// Command Identifier of the command to abort.
    pub cid: u16,
}

/// Abort, completion Dword 0 (Base 2.1, 5.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AbortDw0 {
    /// Immediate Abort Not Performed: set where the command was not aborted.
    pub ianp: bool,
    #[bits(31)]
    __: u32,
}

/// Get Log Page, Dword 10 (Base 2.1, 5.1.12).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetLogPageCdw10 {
    /// Log Page Identifier.
    #[bits(8)]
    pub lid: LogPageId,
    /// Log Specific Parameter.
    #[bits(7)]
    pub lsp: u8,
    /// Retain Asynchronous Event.
    pub rae: bool,
    /// Number of Dwords Lower.
    pub numdl: u16,
}

/// Get Log Page, Dword 11 (Base 2.1, 5.1.12).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetLogPageCdw11 {
    /// Number of Dwords Upper.
    pub numdu: u16,
    /// Log Specific Identifier.
    pub lsi: u16,
}

/// Get Log Page, Dword 14 (Base 2.1, 5.1.12).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetLogPageCdw14 {
    /// UUID Index.
    #[bits(7)]
    pub uidx: u8,
    #[bits(16)]
    __: u16,
    /// Offset Type: the Log Page Offset counts entries (1) or bytes (0).
    pub ot: bool,
    /// Command Set Identifier.
    #[bits(8)]
    pub csi: Csi,
}

/// Number of Dwords of a Get Log Page command, 0's based: NUMDU and NUMDL together.
pub fn get_log_page_numd_z(sqe: &Sqe) -> u32 {
    let lower = GetLogPageCdw10::from(sqe.cdw10).numdl();
    let upper = GetLogPageCdw11::from(sqe.cdw11).numdu();
    u32::from(upper) << 16 | u32::from(lower)
}

/// Log Page Offset of a Get Log Page command: LPOU and LPOL together, in bytes where OT is 0.
pub fn get_log_page_offset(sqe: &Sqe) -> u64 {
    u64::from(sqe.cdw13) << 32 | u64::from(sqe.cdw12)
}

/// Identify, Dword 10 (Base 2.1, 5.1.13).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IdentifyCdw10 {
    /// Controller or Namespace Structure.
    #[bits(8)]
    pub cns: Cns,
    __: u8,
    /// Controller Identifier.
    pub cntid: u16,
}

/// Identify, Dword 11 (Base 2.1, 5.1.13).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IdentifyCdw11 {
    /// CNS Specific Identifier: for CNS 04h the NVM Set Identifier.
    pub cnssid: u16,
    __: u8,
    /// Command Set Identifier.
    #[bits(8)]
    pub csi: Csi,
}

/// UUID Index, Dword 14 of Identify, Get Features and Set Features.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UuidIndexCdw14 {
    /// UUID Index.
    #[bits(7)]
    pub uidx: u8,
    #[bits(25)]
    __: u32,
}

/// Get Features, Dword 10 (Base 2.1, 5.1.11).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct GetFeaturesCdw10 {
    /// Feature Identifier.
    #[bits(8)]
    pub fid: FeatureId,
    /// Select.
    #[bits(3)]
    pub sel: Select,
    #[bits(21)]
    __: u32,
}

/// Set Features, Dword 10 (Base 2.1, 5.1.25).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SetFeaturesCdw10 {
    /// Feature Identifier.
    #[bits(8)]
    pub fid: FeatureId,
    #[bits(23)]
    __: u32,
    /// Save.
    pub sv: bool,
}

/// Starting LBA, Dwords 10 and 11 of the commands of the NVM command set that have one.
pub fn slba(sqe: &Sqe) -> u64 {
    u64::from(sqe.cdw11) << 32 | u64::from(sqe.cdw10)
}

/// A Starting LBA as Dwords 10 and 11.
pub const fn slba_cdw10_11(slba: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = slba.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

/// Read, Write and Compare, Dword 12 (NVM 1.1, 3.3.4, 3.3.6, 3.3.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReadWriteCdw12 {
    /// Number of Logical Blocks.
    #[inline]
    pub nlb_z: u16,
    /// Command Extension Type.
    #[bits(4)]
    #[inline]
    pub cetype: u8,
    /// Directive Type; of Write only, reserved in the others.
    #[bits(4)]
    #[inline]
    pub dtype: u8,
    /// Storage Tag Check.
    #[inline]
    pub stc: bool,
    #[bits(1)]
    __: u8,
    /// Protection Information.
    #[bits(4)]
    #[inline]
    pub prinfo: Prinfo,
    /// Force Unit Access.
    #[inline]
    pub fua: bool,
    /// Limited Retry.
    #[inline]
    pub lr: bool,
}

/// Write Zeroes, Dword 12 (NVM 1.1, 3.3.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WriteZeroesCdw12 {
    /// Number of Logical Blocks.
    pub nlb_z: u16,
    /// Command Extension Type.
    #[bits(4)]
    pub cetype: u8,
    #[bits(3)]
    __: u8,
    /// Namespace Zeroes: the whole namespace.
    pub nsz: bool,
    /// Storage Tag Check.
    pub stc: bool,
    /// Deallocate.
    pub deac: bool,
    /// Protection Information.
    #[bits(4)]
    pub prinfo: Prinfo,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub lr: bool,
}

/// Verify, Dword 12 (NVM 1.1, 3.3.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct VerifyCdw12 {
    /// Number of Logical Blocks.
    pub nlb_z: u16,
    /// Command Extension Type.
    #[bits(4)]
    pub cetype: u8,
    #[bits(4)]
    __: u8,
    /// Storage Tag Check.
    pub stc: bool,
    #[bits(1)]
    __: u8,
    /// Protection Information.
    #[bits(4)]
    pub prinfo: Prinfo,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub lr: bool,
}

/// Write Uncorrectable, Dword 12 (NVM 1.1, 3.3.7).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WriteUncorrectableCdw12 {
    /// Number of Logical Blocks.
    pub nlb_z: u16,
    #[bits(4)]
    __: u8,
    /// Directive Type.
    #[bits(4)]
    pub dtype: u8,
    __: u8,
}

/// Most ranges of one Dataset Management command: NR is a 0's based byte.
pub const DSM_RANGES_MAX: usize = 256;

/// Dataset Management, Dword 10 (NVM 1.1, 3.3.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DsmCdw10 {
    /// Number of Ranges.
    pub nr_z: u8,
    #[bits(24)]
    __: u32,
}

/// Dataset Management, Dword 11 (NVM 1.1, 3.3.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DsmCdw11 {
    /// Integral Dataset for Read.
    pub idr: bool,
    /// Integral Dataset for Write.
    pub idw: bool,
    /// Attribute - Deallocate.
    pub ad: bool,
    #[bits(29)]
    __: u32,
}

/// One range of Dataset Management, 16 bytes (NVM 1.1, 3.3.3).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct DsmRange {
    /// Context Attributes: hints.
    pub cattr: u32,
    /// Length in Logical Blocks; not 0's based.
    pub nlb: u32,
    /// Starting LBA.
    pub slba: u64,
}

const _: () = assert!(size_of::<DsmRange>() == 16 && offset_of!(DsmRange, slba) == 8);

/// Where the two buffers of Doorbell Buffer Config lie (Base 2.1, 5.2.5): PRP1 and PRP2.
///
/// Both are one memory page, hold one 32-bit value per doorbell at the doorbell's slot
/// ([`crate::registers::sq_tail_slot`]), and start at a page boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellBufferConfig {
    /// Address of the Shadow Doorbell buffer: the host writes it, the controller reads it.
    pub shadow: u64,
    /// Address of the EventIdx buffer: the controller writes it, the host reads it.
    pub event_idx: u64,
}

impl From<&Sqe> for DoorbellBufferConfig {
    fn from(sqe: &Sqe) -> Self {
        Self {
            shadow: sqe.prp1,
            event_idx: sqe.prp2,
        }
    }
}

#[cfg(test)]
mod tests;
