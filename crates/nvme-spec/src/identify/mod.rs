//! Identify: which structure is asked for (CNS), and the 4096-byte structures that answer
//! (Base 2.1, 5.1.13; NVM 1.1, 4.1.5).
//!
//! Structures are made with `new_zeroed()` of `zerocopy::FromZeros`: what is not set is "not
//! supported" or "not reported". Fields bear the specification's abbreviations.

pub mod controller;
pub mod granularity;
pub mod lists;
pub mod namespace;
pub mod nvm_controller;
pub mod power_state;

pub use controller::IdentifyController;
pub use namespace::{IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNvmNamespace};
pub use nvm_controller::IdentifyNvmController;

open_enum! {
    /// Controller or Namespace Structure: what Identify returns.
    pub struct Cns(u8) {
        NAMESPACE = 0x00, "Identify Namespace";
        CONTROLLER = 0x01, "Identify Controller";
        ACTIVE_NAMESPACE_ID_LIST = 0x02, "Active Namespace ID list";
        NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST = 0x03, "Namespace Identification Descriptor list";
        NVM_SET_LIST = 0x04, "NVM Set List";
        IO_COMMAND_SET_NAMESPACE = 0x05, "I/O Command Set specific Identify Namespace";
        IO_COMMAND_SET_CONTROLLER = 0x06, "I/O Command Set specific Identify Controller";
        IO_COMMAND_SET_ACTIVE_NAMESPACE_ID_LIST = 0x07, "I/O Command Set specific Active Namespace ID list";
        NAMESPACE_INDEPENDENT = 0x08, "I/O Command Set Independent Identify Namespace";
        NAMESPACE_USER_DATA_FORMAT = 0x09, "Identify Namespace for a User Data Format";
        IO_COMMAND_SET_NAMESPACE_USER_DATA_FORMAT = 0x0a, "I/O Command Set specific Identify Namespace for a User Data Format";
        ALLOCATED_NAMESPACE_ID_LIST = 0x10, "Allocated Namespace ID list";
        ALLOCATED_NAMESPACE = 0x11, "Identify Namespace of an allocated namespace";
        NAMESPACE_CONTROLLER_LIST = 0x12, "Controller list of a namespace";
        CONTROLLER_LIST = 0x13, "Controller list";
        PRIMARY_CONTROLLER_CAPABILITIES = 0x14, "Primary Controller Capabilities";
        SECONDARY_CONTROLLER_LIST = 0x15, "Secondary Controller list";
        NAMESPACE_GRANULARITY_LIST = 0x16, "Namespace Granularity List";
        UUID_LIST = 0x17, "UUID List";
        DOMAIN_LIST = 0x18, "Domain List";
        ENDURANCE_GROUP_LIST = 0x19, "Endurance Group List";
        IO_COMMAND_SET_ALLOCATED_NAMESPACE_ID_LIST = 0x1a, "I/O Command Set specific Allocated Namespace ID list";
        IO_COMMAND_SET_ALLOCATED_NAMESPACE = 0x1b, "I/O Command Set specific Identify Namespace of an allocated namespace";
        IO_COMMAND_SET = 0x1c, "Identify I/O Command Set";
        UNDERLYING_NAMESPACE_LIST = 0x1d, "Underlying Namespace List";
        PORTS_LIST = 0x1e, "Ports List";
        ALLOCATED_NAMESPACE_INDEPENDENT = 0x1f, "I/O Command Set Independent Identify Namespace of an allocated namespace";
        SUPPORTED_CONTROLLER_STATE_FORMATS = 0x20, "Supported Controller State Formats";
    }
}

/// Bytes of every Identify data structure.
pub const IDENTIFY_SIZE: usize = 4096;

/// An ASCII field of `N` bytes: the text left justified and padded with spaces, cut where it is too
/// long. Bytes that are not printable ASCII become `?`.
pub const fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let text = text.as_bytes();
    let mut field = [b' '; N];
    let mut i = 0;
    while i < N && i < text.len() {
        field[i] = match text[i] {
            byte @ b' '..=b'~' => byte,
            _ => b'?',
        };
        i += 1;
    }
    field
}

/// The text of an ASCII field without the spaces (or zeros) that pad it. Empty where the field is
/// not ASCII.
pub fn ascii_text(field: &[u8]) -> &str {
    match core::str::from_utf8(field) {
        Ok(text) if text.is_ascii() => text.trim_matches([' ', '\0']),
        _ => "",
    }
}

#[cfg(test)]
mod tests;
