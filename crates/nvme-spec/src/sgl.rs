//! Scatter Gather Lists: the descriptors that segments consist of (Base 2.1, 4.3.2). No walking:
//! that needs memory.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::sqe::Sqe;

open_enum! {
    /// SGL Descriptor Type (Base 2.1, figure 115).
    pub struct SglDescriptorType(u8) {
        DATA_BLOCK = 0x0, "SGL Data Block";
        BIT_BUCKET = 0x1, "SGL Bit Bucket";
        SEGMENT = 0x2, "SGL Segment";
        LAST_SEGMENT = 0x3, "SGL Last Segment";
        KEYED_DATA_BLOCK = 0x4, "Keyed SGL Data Block";
        TRANSPORT_DATA_BLOCK = 0x5, "Transport SGL Data Block";
        VENDOR_SPECIFIC = 0xf, "Vendor specific";
    }
}

open_enum! {
    /// SGL Descriptor Sub Type (Base 2.1, figure 116). Ah to Fh belong to the transport.
    pub struct SglDescriptorSubType(u8) {
        ADDRESS = 0x0, "Address";
        OFFSET = 0x1, "Offset";
    }
}

/// SGL Identifier, the last byte of a descriptor.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SglIdentifier {
    /// SGL Descriptor Sub Type.
    #[bits(4)]
    pub sub_type: SglDescriptorSubType,
    /// SGL Descriptor Type.
    #[bits(4)]
    pub descriptor_type: SglDescriptorType,
}

/// SGL descriptor, 16 bytes: a Data Block, Bit Bucket, Segment or Last Segment, which share this
/// format. The Length of a keyed one is shorter, to make room for its key.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct SglDescriptor {
    /// Address of the data, or of the next segment; reserved in a Bit Bucket.
    pub address: u64,
    /// Length in bytes of what is at the address, or of what is discarded.
    pub length: u32,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Type of the descriptor.
    pub identifier: SglIdentifier,
}

/// Bytes of an SGL descriptor; the length of a segment is a multiple of it.
pub const SGL_DESCRIPTOR_SIZE: u32 = 16;
/// Bits that are 0 in the address of a segment: it is qword aligned.
pub const SGL_SEGMENT_ALIGNMENT_MASK: u64 = 0b111;

const _: () = assert!(size_of::<SglDescriptor>() == SGL_DESCRIPTOR_SIZE as usize);
const _: () = assert!(offset_of!(SglDescriptor, identifier) == 15);

impl SglDescriptor {
    /// A descriptor of this type with the sub type Address.
    pub const fn new(descriptor_type: SglDescriptorType, address: u64, length: u32) -> Self {
        Self {
            address,
            length,
            reserved: [0; 3],
            identifier: SglIdentifier::new().with_descriptor_type(descriptor_type),
        }
    }

    /// The descriptor whose bytes, read as two little-endian 64-bit words, are these.
    pub fn from_words(words: [u64; 2]) -> Self {
        transmute!(words)
    }

    /// The bytes of the descriptor as two little-endian 64-bit words.
    pub fn to_words(self) -> [u64; 2] {
        transmute!(self)
    }
}

impl Sqe {
    /// SGL Entry 1: the descriptor where PSDT says that the command has one.
    pub fn sgl1(&self) -> SglDescriptor {
        SglDescriptor::from_words([self.prp1, self.prp2])
    }

    /// Sets SGL Entry 1; PSDT stays as it is.
    pub fn set_sgl1(&mut self, descriptor: SglDescriptor) {
        [self.prp1, self.prp2] = descriptor.to_words();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_lies_as_the_figures_say() {
        // Base 2.1, figures 114, 117 and 120.
        let bytes = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc, 0xbb, 0xaa, 1, 2, 3, 0x31,
        ];
        let descriptor = SglDescriptor::read_from_bytes(&bytes).unwrap();
        assert_eq!(descriptor.address, 0x1122_3344_5566_7788);
        assert_eq!(descriptor.length, 0xaabb_ccdd);
        assert_eq!(descriptor.reserved, [1, 2, 3]);
        let identifier = descriptor.identifier;
        assert_eq!(
            identifier.descriptor_type(),
            SglDescriptorType::LAST_SEGMENT
        );
        assert_eq!(identifier.sub_type(), SglDescriptorSubType::OFFSET);
        assert_eq!(
            descriptor.to_words(),
            [0x1122_3344_5566_7788, 0x3103_0201_aabb_ccdd]
        );
        assert_eq!(SglDescriptor::from_words(descriptor.to_words()), descriptor);
    }

    #[test]
    fn types_and_sub_types_have_the_numbers_of_the_figures() {
        // Base 2.1, figures 115 and 116.
        for (descriptor_type, number) in [
            (SglDescriptorType::DATA_BLOCK, 0x00),
            (SglDescriptorType::BIT_BUCKET, 0x10),
            (SglDescriptorType::SEGMENT, 0x20),
            (SglDescriptorType::LAST_SEGMENT, 0x30),
            (SglDescriptorType::KEYED_DATA_BLOCK, 0x40),
            (SglDescriptorType::TRANSPORT_DATA_BLOCK, 0x50),
            (SglDescriptorType::VENDOR_SPECIFIC, 0xf0),
        ] {
            let descriptor = SglDescriptor::new(descriptor_type, 0, 0);
            assert_eq!(
                descriptor.as_bytes()[15],
                number,
                "{}",
                descriptor_type.name()
            );
        }
        let offset = SglIdentifier::new().with_sub_type(SglDescriptorSubType::OFFSET);
        assert_eq!(u8::from(offset), 0x01);
        // "An SGL descriptor set to all zeroes is an SGL Data Block descriptor".
        let null = SglDescriptor::default();
        assert_eq!(
            null,
            SglDescriptor::new(SglDescriptorType::DATA_BLOCK, 0, 0)
        );
    }

    #[test]
    fn an_entry_of_a_queue_holds_one_descriptor_at_byte_24() {
        let mut sqe = Sqe::default();
        let descriptor = SglDescriptor::new(SglDescriptorType::BIT_BUCKET, 7, 0x200);
        sqe.set_sgl1(descriptor);
        assert_eq!(sqe.as_bytes()[24..40], *descriptor.as_bytes());
        assert_eq!(sqe.as_bytes()[39], 0x10);
        assert_eq!(sqe.sgl1(), descriptor);
    }
}
