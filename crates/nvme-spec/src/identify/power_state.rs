//! Power State Descriptor, of Identify Controller (Base 2.1, figure 313).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Power State Descriptor, flags at byte 3.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct PowerStateFlags {
    /// Max Power Scale: 0 for 10 mW, 1 for 0.1 mW.
    pub mxps: bool,
    /// Non-Operational State.
    pub nops: bool,
    #[bits(6)]
    __: u8,
}

/// Power State Descriptor, 32 bytes (Base 2.1, figure 313).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct PowerState {
    /// Maximum Power, in the unit that MXPS tells.
    pub mp: u16,
    /// Reserved.
    pub reserved_2: u8,
    /// Max Power Scale and Non-Operational State.
    pub flags: PowerStateFlags,
    /// Entry Latency, in microseconds.
    pub enlat: u32,
    /// Exit Latency, in microseconds.
    pub exlat: u32,
    /// Relative Read Throughput.
    pub rrt: u8,
    /// Relative Read Latency.
    pub rrl: u8,
    /// Relative Write Throughput.
    pub rwt: u8,
    /// Relative Write Latency.
    pub rwl: u8,
    /// Idle Power.
    pub idlp: u16,
    /// Idle Power Scale, in bits 7:6.
    pub ips: u8,
    /// Reserved.
    pub reserved_19: u8,
    /// Active Power.
    pub actp: u16,
    /// Active Power Workload in bits 2:0 and Active Power Scale in bits 7:6.
    pub apw_aps: u8,
    /// Emergency Power Fail Recovery Time.
    pub epfrt: u8,
    /// Forced Quiescence Vault Time.
    pub fqvt: u8,
    /// Emergency Power Fail Vault Time.
    pub epfvt: u8,
    /// Emergency Power Fail Recovery Time Scale in bits 3:0 and Forced Quiescence Vault Time Scale
    /// in bits 7:4.
    pub epfrts_fqvts: u8,
    /// Emergency Power Fail Vault Time Scale, in bits 3:0.
    pub epfvts: u8,
    /// Reserved.
    pub reserved_28: [u8; 4],
}

const _: () = assert!(size_of::<PowerState>() == 32);
