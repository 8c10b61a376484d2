//! Controller properties as PCIe memory registers (Base 2.1, 3.1.4; doorbells: PCIe 1.1, 3.1.2).
//!
//! Offsets are bytes from the start of BAR0. The layouts say nothing about when a register may be
//! written or what a write does.

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Controller Capabilities, 8 bytes.
pub const CAP: u64 = 0x00;
/// Version, 4 bytes.
pub const VS: u64 = 0x08;
/// Interrupt Mask Set, 4 bytes.
pub const INTMS: u64 = 0x0c;
/// Interrupt Mask Clear, 4 bytes.
pub const INTMC: u64 = 0x10;
/// Controller Configuration, 4 bytes.
pub const CC: u64 = 0x14;
/// Controller Status, 4 bytes.
pub const CSTS: u64 = 0x1c;
/// NVM Subsystem Reset, 4 bytes.
pub const NSSR: u64 = 0x20;
/// Admin Queue Attributes, 4 bytes.
pub const AQA: u64 = 0x24;
/// Admin Submission Queue Base Address, 8 bytes.
pub const ASQ: u64 = 0x28;
/// Admin Completion Queue Base Address, 8 bytes.
pub const ACQ: u64 = 0x30;
/// Controller Memory Buffer Location, 4 bytes.
pub const CMBLOC: u64 = 0x38;
/// Controller Memory Buffer Size, 4 bytes.
pub const CMBSZ: u64 = 0x3c;
/// Boot Partition Information, 4 bytes.
pub const BPINFO: u64 = 0x40;
/// Boot Partition Read Select, 4 bytes.
pub const BPRSEL: u64 = 0x44;
/// Boot Partition Memory Buffer Location, 8 bytes.
pub const BPMBL: u64 = 0x48;
/// Controller Memory Buffer Memory Space Control, 8 bytes.
pub const CMBMSC: u64 = 0x50;
/// Controller Memory Buffer Status, 4 bytes.
pub const CMBSTS: u64 = 0x58;
/// Controller Memory Buffer Elasticity Buffer Size, 4 bytes.
pub const CMBEBS: u64 = 0x5c;
/// Controller Memory Buffer Sustained Write Throughput, 4 bytes.
pub const CMBSWTP: u64 = 0x60;
/// NVM Subsystem Shutdown, 4 bytes.
pub const NSSD: u64 = 0x64;
/// Controller Ready Timeouts, 4 bytes.
pub const CRTO: u64 = 0x68;
/// The first doorbell: Submission Queue 0 Tail.
pub const DOORBELLS: u64 = 0x1000;

/// Value that a host writes to NSSR to reset the NVM subsystem: "NVMe" (Base 2.1, 3.1.4.7).
pub const NSSR_MAGIC: u32 = 0x4e56_4d65;

/// Bytes from one doorbell to the next where CAP.DSTRD is 0, and from one entry to the next in the
/// buffers of Doorbell Buffer Config.
pub const DOORBELL_STRIDE: u64 = 4;

/// Index, in strides, of the Submission Queue Tail doorbell of queue `qid`.
pub const fn sq_tail_slot(qid: u16) -> usize {
    2 * qid as usize
}

/// Index, in strides, of the Completion Queue Head doorbell of queue `qid`.
pub const fn cq_head_slot(qid: u16) -> usize {
    2 * qid as usize + 1
}

/// Offset from the start of BAR0 of the Submission Queue Tail doorbell of queue `qid`, for
/// CAP.DSTRD = 0.
pub const fn sq_tail_offset(qid: u16) -> u64 {
    DOORBELLS + DOORBELL_STRIDE * (2 * qid as u64)
}

/// Offset from the start of BAR0 of the Completion Queue Head doorbell of queue `qid`, for
/// CAP.DSTRD = 0.
pub const fn cq_head_offset(qid: u16) -> u64 {
    DOORBELLS + DOORBELL_STRIDE * (2 * qid as u64 + 1)
}

/// Controller Capabilities (Base 2.1, 3.1.4.1).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// Maximum Queue Entries Supported.
    pub mqes_z: u16,
    /// Contiguous Queues Required.
    pub cqr: bool,
    /// Arbitration Mechanism Supported: bit 0 weighted round robin with urgent, bit 1 vendor's own.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    __: u8,
    /// Timeout: the longest wait for CSTS.RDY, in units of 500 ms.
    pub to: u8,
    /// Doorbell Stride: 2^(2 + DSTRD) bytes.
    #[bits(4)]
    pub dstrd: u8,
    /// NVM Subsystem Reset Supported.
    pub nssrs: bool,
    /// Command Sets Supported: the NVM command set.
    pub css_nvm: bool,
    #[bits(5)]
    __: u8,
    /// Command Sets Supported: one or more, told by Identify I/O Command Set (CNS 1Ch).
    pub css_iocs: bool,
    /// Command Sets Supported: no I/O command set.
    pub css_noiocs: bool,
    /// Boot Partition Support.
    pub bps: bool,
    /// Controller Power Scope.
    #[bits(2)]
    pub cps: u8,
    /// Memory Page Size Minimum: 2^(12 + MPSMIN) bytes.
    #[bits(4)]
    pub mpsmin: u8,
    /// Memory Page Size Maximum: 2^(12 + MPSMAX) bytes.
    #[bits(4)]
    pub mpsmax: u8,
    /// Persistent Memory Region Supported.
    pub pmrs: bool,
    /// Controller Memory Buffer Supported.
    pub cmbs: bool,
    /// NVM Subsystem Shutdown Supported.
    pub nsss: bool,
    /// Controller Ready With Media Support.
    pub crwms: bool,
    /// Controller Ready Independent of Media Support.
    pub crims: bool,
    /// NVM Subsystem Shutdown Enhancements Supported.
    pub nsses: bool,
    #[bits(2)]
    __: u8,
}

/// Version (Base 2.1, 3.1.4.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Version {
    /// Tertiary Version.
    pub ter: u8,
    /// Minor Version.
    pub mnr: u8,
    /// Major Version.
    pub mjr: u16,
}

impl Version {
    /// NVM Express Base specification, revision 2.1.
    pub const V2_1: Self = Self::new().with_mjr(2).with_mnr(1);
}

open_enum! {
    /// I/O Command Set Selected (CC.CSS).
    pub struct CommandSetSelected(u8) {
        NVM = 0b000, "NVM Command Set";
        ALL_SUPPORTED = 0b110, "All Supported I/O Command Sets";
        ADMIN_ONLY = 0b111, "Admin Command Set only";
    }
}

open_enum! {
    /// Arbitration Mechanism Selected (CC.AMS).
    pub struct ArbitrationMechanism(u8) {
        ROUND_ROBIN = 0b000, "Round Robin";
        WEIGHTED_ROUND_ROBIN = 0b001, "Weighted Round Robin with Urgent Priority Class";
        VENDOR_SPECIFIC = 0b111, "Vendor Specific";
    }
}

open_enum! {
    /// Shutdown Notification (CC.SHN).
    pub struct ShutdownNotification(u8) {
        NONE = 0b00, "No notification";
        NORMAL = 0b01, "Normal shutdown notification";
        ABRUPT = 0b10, "Abrupt shutdown notification";
    }
}

open_enum! {
    /// Shutdown Status (CSTS.SHST).
    pub struct ShutdownStatus(u8) {
        NORMAL_OPERATION = 0b00, "Normal operation";
        OCCURRING = 0b01, "Shutdown processing occurring";
        COMPLETE = 0b10, "Shutdown processing complete";
    }
}

/// Controller Configuration (Base 2.1, 3.1.4.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// Enable.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// I/O Command Set Selected.
    #[bits(3)]
    pub css: CommandSetSelected,
    /// Memory Page Size: 2^(12 + MPS) bytes.
    #[bits(4)]
    pub mps: u8,
    /// Arbitration Mechanism Selected.
    #[bits(3)]
    pub ams: ArbitrationMechanism,
    /// Shutdown Notification.
    #[bits(2)]
    pub shn: ShutdownNotification,
    /// I/O Submission Queue Entry Size: 2^IOSQES bytes.
    #[bits(4)]
    pub iosqes: u8,
    /// I/O Completion Queue Entry Size: 2^IOCQES bytes.
    #[bits(4)]
    pub iocqes: u8,
    /// Controller Ready Independent of Media Enable.
    pub crime: bool,
    #[bits(7)]
    __: u8,
}

/// Controller Status (Base 2.1, 3.1.4.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// Ready.
    pub rdy: bool,
    /// Controller Fatal Status.
    pub cfs: bool,
    /// Shutdown Status.
    #[bits(2)]
    pub shst: ShutdownStatus,
    /// NVM Subsystem Reset Occurred; a host clears it by writing 1.
    pub nssro: bool,
    /// Processing Paused.
    pub pp: bool,
    /// Shutdown Type: the shutdown in SHST is one of the whole subsystem.
    pub st: bool,
    #[bits(25)]
    __: u32,
}

/// Admin Queue Attributes (Base 2.1, 3.1.4.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// Admin Submission Queue Size.
    #[bits(12)]
    pub asqs_z: u16,
    #[bits(4)]
    __: u8,
    /// Admin Completion Queue Size.
    #[bits(12)]
    pub acqs_z: u16,
    #[bits(4)]
    __: u8,
}

/// Controller Ready Timeouts (Base 2.1, 3.1.4.21), in units of 500 ms.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Crto {
    /// Controller Ready With Media Timeout.
    pub crwmt: u16,
    /// Controller Ready Independent of Media Timeout.
    pub crimt: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_base_2_1_3_1_4() {
        let offsets = [
            CAP, VS, INTMS, INTMC, CC, CSTS, NSSR, AQA, ASQ, ACQ, CMBLOC, CMBSZ, BPINFO, BPRSEL,
            BPMBL, CMBMSC, CMBSTS, CMBEBS, CMBSWTP, NSSD, CRTO, DOORBELLS,
        ];
        let expected = [
            0x00, 0x08, 0x0c, 0x10, 0x14, 0x1c, 0x20, 0x24, 0x28, 0x30, 0x38, 0x3c, 0x40, 0x44,
            0x48, 0x50, 0x58, 0x5c, 0x60, 0x64, 0x68, 0x1000,
        ];
        assert_eq!(offsets, expected);
        assert_eq!(NSSR_MAGIC.to_be_bytes(), *b"NVMe");
    }

    #[test]
    fn cap_fields_lie_where_base_2_1_3_1_4_1_says() {
        let bit = |cap: Cap| u64::from(cap);
        assert_eq!(bit(Cap::new().with_mqes_z(0xffff)), 0xffff);
        assert_eq!(bit(Cap::new().with_cqr(true)), 1 << 16);
        assert_eq!(bit(Cap::new().with_ams(3)), 3 << 17);
        assert_eq!(bit(Cap::new().with_to(0xff)), 0xff << 24);
        assert_eq!(bit(Cap::new().with_dstrd(0xf)), 0xf << 32);
        assert_eq!(bit(Cap::new().with_nssrs(true)), 1 << 36);
        assert_eq!(bit(Cap::new().with_css_nvm(true)), 1 << 37);
        assert_eq!(bit(Cap::new().with_css_iocs(true)), 1 << 43);
        assert_eq!(bit(Cap::new().with_css_noiocs(true)), 1 << 44);
        assert_eq!(bit(Cap::new().with_bps(true)), 1 << 45);
        assert_eq!(bit(Cap::new().with_cps(3)), 3 << 46);
        assert_eq!(bit(Cap::new().with_mpsmin(0xf)), 0xf << 48);
        assert_eq!(bit(Cap::new().with_mpsmax(0xf)), 0xf << 52);
        assert_eq!(bit(Cap::new().with_pmrs(true)), 1 << 56);
        assert_eq!(bit(Cap::new().with_cmbs(true)), 1 << 57);
        assert_eq!(bit(Cap::new().with_nsss(true)), 1 << 58);
        assert_eq!(bit(Cap::new().with_crwms(true)), 1 << 59);
        assert_eq!(bit(Cap::new().with_crims(true)), 1 << 60);
        assert_eq!(bit(Cap::new().with_nsses(true)), 1 << 61);
    }

    #[test]
    fn cc_as_linux_writes_it() {
        // Enabled, NVM command set, 4 KiB pages, round robin, 64-byte SQEs, 16-byte CQEs.
        let cc = Cc::from(0x0046_0001);
        assert!(cc.en());
        assert_eq!(cc.css(), CommandSetSelected::NVM);
        assert_eq!(cc.mps(), 0);
        assert_eq!(cc.ams(), ArbitrationMechanism::ROUND_ROBIN);
        assert_eq!(cc.shn(), ShutdownNotification::NONE);
        assert_eq!((cc.iosqes(), cc.iocqes()), (6, 4));
        // The same with every command set selected, and a normal shutdown asked for.
        let cc = Cc::from(0x0046_4061);
        assert_eq!(cc.css(), CommandSetSelected::ALL_SUPPORTED);
        assert_eq!(cc.shn(), ShutdownNotification::NORMAL);
        assert_eq!(u32::from(Cc::new().with_mps(0xf)), 0xf << 7);
        assert_eq!(
            u32::from(Cc::new().with_ams(ArbitrationMechanism(7))),
            7 << 11
        );
        assert_eq!(u32::from(Cc::new().with_crime(true)), 1 << 24);
    }

    #[test]
    fn status_and_queue_attribute_fields() {
        assert_eq!(u32::from(Csts::new().with_rdy(true)), 1);
        assert_eq!(u32::from(Csts::new().with_cfs(true)), 2);
        assert_eq!(
            u32::from(Csts::new().with_shst(ShutdownStatus::COMPLETE)),
            0b1000
        );
        assert_eq!(u32::from(Csts::new().with_nssro(true)), 1 << 4);
        assert_eq!(u32::from(Csts::new().with_pp(true)), 1 << 5);
        assert_eq!(u32::from(Csts::new().with_st(true)), 1 << 6);
        let aqa = Aqa::from(0x001f_000f);
        assert_eq!((aqa.asqs_z(), aqa.acqs_z()), (15, 31));
        let crto = Crto::from(0x0002_0001);
        assert_eq!((crto.crwmt(), crto.crimt()), (1, 2));
        assert_eq!(u32::from(Version::V2_1), 0x0002_0100);
        assert!(Version::V2_1 > Version::from(0x0001_0400));
    }

    #[test]
    fn doorbells_alternate_tail_and_head() {
        assert_eq!((sq_tail_slot(0), cq_head_slot(0)), (0, 1));
        assert_eq!(
            (sq_tail_slot(65535), cq_head_slot(65535)),
            (131_070, 131_071)
        );
        assert_eq!((sq_tail_offset(0), cq_head_offset(0)), (0x1000, 0x1004));
        assert_eq!((sq_tail_offset(3), cq_head_offset(3)), (0x1018, 0x101c));
    }
}
