//! Identify Controller: CNS 01h (Base 2.1, figure 312).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::power_state::PowerState;
use crate::copy::CopyDescriptorFormats;
use crate::fabrics::IdentifyFabrics;
use crate::format::Fna;
use crate::registers::Version;
use crate::sanitize::Sanicap;

open_enum! {
    /// Controller Type.
    pub struct ControllerType(u8) {
        NOT_REPORTED = 0, "Controller type not reported";
        IO = 1, "I/O controller";
        DISCOVERY = 2, "Discovery controller";
        ADMINISTRATIVE = 3, "Administrative controller";
    }
}

/// Controller Multi-Path I/O and Namespace Sharing Capabilities.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Cmic {
    /// Multiple Ports.
    pub mports: bool,
    /// Multiple Controllers.
    pub mctrs: bool,
    /// Function Type: the controller is an SR-IOV virtual function.
    pub ft: bool,
    /// Asymmetric Namespace Access Reporting Support.
    pub anars: bool,
    #[bits(4)]
    __: u8,
}

/// Optional Asynchronous Events Supported.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Oaes {
    __: u8,
    /// Attached Namespace Attribute Notices Support.
    pub nsan: bool,
    /// Firmware Activation Notices Support.
    pub fan: bool,
    #[bits(1)]
    __: u8,
    /// Asymmetric Namespace Access Change Notices Support.
    pub anacn: bool,
    /// Predictable Latency Event Aggregate Log Change Notices Support.
    pub plealcn: bool,
    /// LBA Status Information Alert Notices Support.
    pub lsian: bool,
    /// Endurance Group Event Aggregate Log Page Change Notices Support.
    pub egean: bool,
    /// Normal NVM Subsystem Shutdown Support.
    pub nnss: bool,
    /// Temperature Threshold Hysteresis Recovery Support.
    pub tthr: bool,
    /// Reachability Groups Change Notices Support.
    pub rgcns: bool,
    #[bits(1)]
    __: u8,
    /// Allocated Namespace Attribute Notices Support.
    pub ansan: bool,
    #[bits(7)]
    __: u8,
    /// Zone Descriptor Changed Notices Support.
    pub zdcn: bool,
    #[bits(3)]
    __: u8,
    /// Discovery Log Page Change Notification Support.
    pub dlpcn: bool,
}

/// Controller Attributes.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ctratt {
    /// Host Identifier Support: 128 bits.
    pub hids: bool,
    /// Non-Operational Power State Permissive Mode.
    pub nopspm: bool,
    /// NVM Sets.
    pub nsets: bool,
    /// Read Recovery Levels.
    pub rrlvls: bool,
    /// Endurance Groups.
    pub egs: bool,
    /// Predictable Latency Mode.
    pub plm: bool,
    /// Traffic Based Keep Alive Support.
    pub tbkas: bool,
    /// Namespace Granularity.
    pub ng: bool,
    /// Submission Queue Associations.
    pub sqa: bool,
    /// UUID List.
    pub ulist: bool,
    /// Multi-Domain Subsystem.
    pub mds: bool,
    /// Fixed Capacity Management.
    pub fcm: bool,
    /// Variable Capacity Management.
    pub vcm: bool,
    /// Delete Endurance Group.
    pub deg: bool,
    /// Delete NVM Set.
    pub dnvms: bool,
    /// Extended LBA Formats Supported.
    pub elbas: bool,
    /// MDTS and Size Limits Exclude Metadata.
    pub mem: bool,
    /// HMB Restrict Non-Operational Power State Access.
    pub hmbr: bool,
    /// Reservations and Host Identifier Interaction.
    pub rhii: bool,
    /// Flexible Data Placement Support.
    pub fdps: bool,
    #[bits(12)]
    __: u16,
}

/// Optional Admin Command Support.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Oacs {
    /// Security Send and Receive Supported.
    pub ssrs: bool,
    /// Format NVM Supported.
    pub fnvms: bool,
    /// Firmware Commit and Image Download Supported.
    pub fwds: bool,
    /// Namespace Management and Attachment Supported.
    pub nms: bool,
    /// Device Self-test Supported.
    pub dsts: bool,
    /// Directives Supported.
    pub dirs: bool,
    /// NVMe-MI Send and Receive Supported.
    pub nsrs: bool,
    /// Virtualization Management Supported.
    pub vms: bool,
    /// Doorbell Buffer Config Supported.
    pub dbcs: bool,
    /// Get LBA Status Supported.
    pub glss: bool,
    /// Command and Feature Lockdown Supported.
    pub cfls: bool,
    /// Host Managed Live Migration Support.
    pub hmlms: bool,
    #[bits(4)]
    __: u8,
}

/// Firmware Updates.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Frmw {
    /// First Firmware Slot Read Only.
    pub ffsro: bool,
    /// Number Of Firmware Slots, 1 to 7.
    #[bits(3)]
    pub nofs: u8,
    /// Firmware Activation Without Reset.
    pub fawr: bool,
    /// Support Multiple Update Detection.
    pub smud: bool,
    #[bits(2)]
    __: u8,
}

/// Log Page Attributes.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Lpa {
    /// SMART Support: SMART / Health Information per namespace.
    pub smarts: bool,
    /// Commands Supported and Effects Support.
    pub cses: bool,
    /// Log Page Extended Data Support: NUMDU, LPOL and LPOU.
    pub lpeds: bool,
    /// Telemetry Support.
    pub ts: bool,
    /// Persistent Event Support.
    pub pes: bool,
    /// Miscellaneous Log Page Support: LIDs 00h, 12h, 13h, 14h.
    pub mlps: bool,
    /// Data Area 4 Support.
    pub da4s: bool,
    #[bits(1)]
    __: u8,
}

/// Submission or Completion Queue Entry Size, as base-2 logarithms of bytes.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct QueueEntrySize {
    /// Required, and smallest, size.
    #[bits(4)]
    pub min: u8,
    /// Largest size.
    #[bits(4)]
    pub max: u8,
}

/// Optional NVM Command Support.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Oncs {
    /// Compare Support.
    pub nvmcmps: bool,
    /// Write Uncorrectable Support.
    pub nvmwusv: bool,
    /// Dataset Management Support.
    pub nvmdsmsv: bool,
    /// Write Zeroes Support.
    pub nvmwzsv: bool,
    /// Save and Select Feature Support.
    pub ssfs: bool,
    /// Reservations Support.
    pub reservs: bool,
    /// Timestamp Support.
    pub tss: bool,
    /// Verify Support.
    pub nvmvfys: bool,
    /// Copy Support.
    pub nvmcpys: bool,
    /// Copy Single Atomicity.
    pub nvmcsa: bool,
    /// All Fast Copy.
    pub nvmafc: bool,
    /// Maximum Write Zeroes With Deallocate.
    pub maxwzd: bool,
    /// Namespace Zeroes Support.
    pub nszs: bool,
    #[bits(3)]
    __: u8,
}

/// Fused Operation Support.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Fuses {
    /// Fused Compare and Write Supported.
    pub fcws: bool,
    #[bits(15)]
    __: u16,
}

/// Namespace Write Protection Capabilities.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Nwpc {
    /// No Write Protect and Write Protect states are supported.
    pub nwpwps: bool,
    /// Write Protect Until Power Cycle state is supported.
    pub wpupcs: bool,
    /// Permanent Write Protect state is supported.
    pub pwps: bool,
    #[bits(5)]
    __: u8,
}

open_enum! {
    /// Flush Behavior: what Flush to namespace FFFFFFFFh does (VWC.FB).
    pub struct FlushBehavior(u8) {
        NOT_REPORTED = 0b00, "Support for NSID FFFFFFFFh is not reported";
        ONE_NAMESPACE = 0b10, "NSID FFFFFFFFh is not supported";
        ALL_NAMESPACES = 0b11, "NSID FFFFFFFFh is supported";
    }
}

/// Volatile Write Cache.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Vwc {
    /// Volatile Write Cache Present.
    pub vwcp: bool,
    /// Flush Behavior.
    #[bits(2)]
    pub fb: FlushBehavior,
    #[bits(5)]
    __: u8,
}

/// SGL Support.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Sgls {
    /// SGL Support: 0 none, 1 with any alignment, 2 dword aligned.
    #[bits(2)]
    pub sglsupp: u8,
    /// Keyed SGL Data Block descriptor.
    pub ksdbds: bool,
    #[bits(5)]
    __: u8,
    /// SGL Descriptor Threshold.
    pub sdt: u8,
    /// SGL Bit Bucket descriptor.
    pub sbbds: bool,
    /// Metadata as a contiguous buffer of any byte alignment.
    pub mcba: bool,
    /// SGL Length Larger than the data is allowed.
    pub slldts: bool,
    /// MPTR holds the address of an SGL descriptor.
    pub mptrsgl: bool,
    /// The Address field may be an offset.
    pub saos: bool,
    /// Transport SGL Data Block descriptor.
    pub tsdbd: bool,
    #[bits(10)]
    __: u16,
}

/// Identify Controller, 4096 bytes (CNS 01h; Base 2.1, figure 312).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: u16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: u16,
    /// Serial Number, ASCII.
    pub sn: [u8; 20],
    /// Model Number, ASCII.
    pub mn: [u8; 40],
    /// Firmware Revision, ASCII.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst: 2^RAB commands.
    pub rab: u8,
    /// IEEE OUI Identifier, least significant byte first.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: Cmic,
    /// Maximum Data Transfer Size: 2^MDTS pages of CAP.MPSMIN; 0 is no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: u16,
    /// Version.
    pub ver: Version,
    /// RTD3 Resume Latency, in microseconds.
    pub rtd3r: u32,
    /// RTD3 Entry Latency, in microseconds.
    pub rtd3e: u32,
    /// Optional Asynchronous Events Supported.
    pub oaes: Oaes,
    /// Controller Attributes.
    pub ctratt: Ctratt,
    /// Read Recovery Levels Supported.
    pub rrls: u16,
    /// Boot Partition Capabilities.
    pub bpcap: u8,
    /// Reserved.
    pub reserved_103: u8,
    /// NVM Subsystem Shutdown Latency, in microseconds.
    pub nssl: u32,
    /// Reserved.
    pub reserved_108: [u8; 2],
    /// Power Loss Signaling Information.
    pub plsi: u8,
    /// Controller Type.
    pub cntrltype: ControllerType,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Time 1 to 3, in units of 100 ms.
    pub crdt: [u16; 3],
    /// Controller Reachability Capabilities.
    pub crcap: u8,
    /// Reserved.
    pub reserved_135: [u8; 105],
    /// Reserved for NVMe-MI.
    pub reserved_240: [u8; 13],
    /// NVM Subsystem Report.
    pub nvmsr: u8,
    /// VPD Write Cycle Information.
    pub vwci: u8,
    /// Management Endpoint Capabilities.
    pub mec: u8,
    /// Optional Admin Command Support.
    pub oacs: Oacs,
    /// Abort Command Limit.
    pub acl_z: u8,
    /// Asynchronous Event Request Limit.
    pub aerl_z: u8,
    /// Firmware Updates.
    pub frmw: Frmw,
    /// Log Page Attributes.
    pub lpa: Lpa,
    /// Error Log Page Entries.
    pub elpe_z: u8,
    /// Number of Power States Support.
    pub npss_z: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold, in kelvins.
    pub wctemp: u16,
    /// Critical Composite Temperature Threshold, in kelvins.
    pub cctemp: u16,
    /// Maximum Time for Firmware Activation, in units of 100 ms.
    pub mtfa: u16,
    /// Host Memory Buffer Preferred Size, in units of 4 KiB.
    pub hmpre: u32,
    /// Host Memory Buffer Minimum Size, in units of 4 KiB.
    pub hmmin: u32,
    /// Total NVM Capacity, in bytes.
    pub tnvmcap: U128,
    /// Unallocated NVM Capacity, in bytes.
    pub unvmcap: U128,
    /// Replay Protected Memory Block Support.
    pub rpmbs: u32,
    /// Extended Device Self-test Time, in minutes.
    pub edstt: u16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity, in units of 4 KiB; FFh is no restriction.
    pub fwug: u8,
    /// Keep Alive Support: granularity in units of 100 ms; 0 is not supported.
    pub kas: u16,
    /// Host Controlled Thermal Management Attributes.
    pub hctma: u16,
    /// Minimum Thermal Management Temperature, in kelvins.
    pub mntmt: u16,
    /// Maximum Thermal Management Temperature, in kelvins.
    pub mxtmt: u16,
    /// Sanitize Capabilities.
    pub sanicap: Sanicap,
    /// Host Memory Buffer Minimum Descriptor Entry Size, in units of 4 KiB.
    pub hmminds: u32,
    /// Host Memory Maximum Descriptors Entries.
    pub hmmaxd: u16,
    /// NVM Set Identifier Maximum.
    pub nsetidmax: u16,
    /// Endurance Group Identifier Maximum.
    pub endgidmax: u16,
    /// ANA Transition Time, in seconds.
    pub anatt: u8,
    /// Asymmetric Namespace Access Capabilities.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: u32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: u32,
    /// Persistent Event Log Size, in units of 64 KiB.
    pub pels: u32,
    /// Domain Identifier.
    pub did: u16,
    /// Key Per I/O Capabilities.
    pub kpioc: u8,
    /// Reserved.
    pub reserved_359: u8,
    /// Maximum Processing Time for Firmware Activation Without Reset, in units of 100 ms.
    pub mptfawr: u16,
    /// Reserved.
    pub reserved_362: [u8; 6],
    /// Max Endurance Group Capacity, in bytes.
    pub megcap: U128,
    /// Temperature Threshold Hysteresis Attributes.
    pub tmpthha: u8,
    /// Reserved.
    pub reserved_385: u8,
    /// Command Quiesce Time, in milliseconds.
    pub cqt: u16,
    /// Reserved.
    pub reserved_388: [u8; 124],
    /// Submission Queue Entry Size.
    pub sqes: QueueEntrySize,
    /// Completion Queue Entry Size.
    pub cqes: QueueEntrySize,
    /// Maximum Outstanding Commands of one I/O queue; 0 is not reported.
    pub maxcmd: u16,
    /// Number of Namespaces: the largest NSID.
    pub nn: u32,
    /// Optional NVM Command Support.
    pub oncs: Oncs,
    /// Fused Operation Support.
    pub fuses: Fuses,
    /// Format NVM Attributes.
    pub fna: Fna,
    /// Volatile Write Cache.
    pub vwc: Vwc,
    /// Atomic Write Unit Normal, in logical blocks.
    pub awun_z: u16,
    /// Atomic Write Unit Power Fail, in logical blocks.
    pub awupf_z: u16,
    /// I/O Command Set Vendor Specific Command Configuration.
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: Nwpc,
    /// Atomic Compare & Write Unit, in logical blocks.
    pub acwu_z: u16,
    /// Copy Descriptor Formats Supported.
    pub cdfs: CopyDescriptorFormats,
    /// SGL Support.
    pub sgls: Sgls,
    /// Maximum Number of Allowed Namespaces; 0 is NN.
    pub mnan: u32,
    /// Maximum Domain Namespace Attachments.
    pub maxdna: U128,
    /// Maximum I/O Controller Namespace Attachments.
    pub maxcna: u32,
    /// Optimal Aggregated Queue Depth.
    pub oaqd: u32,
    /// Recommended Host-Initiated Refresh Interval, in days.
    pub rhiri: u8,
    /// Host-Initiated Refresh Time, in minutes.
    pub hirt: u8,
    /// Controller Maximum Memory Range Tracking Descriptors.
    pub cmmrtd: u16,
    /// NVM Subsystem Maximum Memory Range Tracking Descriptors.
    pub nmmrtd: u16,
    /// Minimum Memory Range Tracking Granularity.
    pub minmrtg: u8,
    /// Maximum Memory Range Tracking Granularity.
    pub maxmrtg: u8,
    /// Tracking Attributes.
    pub trattr: u8,
    /// Reserved.
    pub reserved_577: u8,
    /// Maximum Controller User Data Migration Queues.
    pub mcudmq: u16,
    /// Maximum NVM Subsystem User Data Migration Queues.
    pub mnsudmq: u16,
    /// Maximum CDQ Memory Ranges.
    pub mcmr: u16,
    /// NVM Subsystem Maximum CDQ Memory Ranges.
    pub nmcmr: u16,
    /// Maximum Controller Data Queue PRP Count.
    pub mcdqpc: u16,
    /// Reserved.
    pub reserved_588: [u8; 180],
    /// NVM Subsystem NVMe Qualified Name: UTF-8, null terminated.
    pub subnqn: [u8; 256],
    /// Reserved.
    pub reserved_1024: [u8; 768],
    /// For NVMe over Fabrics.
    pub fabrics: IdentifyFabrics,
    /// Power State 0 to 31 Descriptors.
    pub psd: [PowerState; 32],
    /// Vendor Specific.
    pub vendor_specific: [u8; 1024],
}

const _: () = assert!(size_of::<IdentifyController>() == super::IDENTIFY_SIZE);
const _: () = assert!(offset_of!(IdentifyController, oacs) == 256);
const _: () = assert!(offset_of!(IdentifyController, sqes) == 512);
const _: () = assert!(offset_of!(IdentifyController, subnqn) == 768);
const _: () = assert!(offset_of!(IdentifyController, psd) == 2048);
