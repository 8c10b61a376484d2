//! Describes data by Scatter Gather Lists (Base 2.1, 4.3.2), for callers that build their own
//! commands: the helpers of [`crate::io`] use PRPs.
//!
//! Nothing is checked: lists that a controller must reject can be built, too.

use memory::Buffer;
use nvme_spec::Sqe;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::Psdt;
use zerocopy::IntoBytes;

use crate::QueuePair;
use crate::bus::Bus;

/// Sets the data pointer of `sqe` to `first`.
pub fn set(sqe: &mut Sqe, first: SglDescriptor) {
    sqe.flags = sqe.flags.with_psdt(Psdt::SGL_METADATA_BUFFER);
    sqe.set_sgl1(first);
}

/// `len` bytes that a read finds and that go nowhere.
#[must_use]
pub fn bit_bucket(len: u32) -> SglDescriptor {
    SglDescriptor::new(SglDescriptorType::BIT_BUCKET, 0, len)
}

impl<B: Bus> QueuePair<B> {
    /// `len` bytes of `buffer` from `at` on.
    #[must_use]
    pub fn data_block(&self, buffer: &Buffer, at: u32, len: u32) -> SglDescriptor {
        let address = self.iova(buffer).0.wrapping_add(at.into());
        SglDescriptor::new(SglDescriptorType::DATA_BLOCK, address, len)
    }

    /// Stores a segment of these descriptors `at` bytes into `buffer`, and gives the descriptor of
    /// this type (Segment or Last Segment) that leads to it.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn segment(
        &self,
        descriptor_type: SglDescriptorType,
        buffer: &Buffer,
        at: u32,
        descriptors: &[SglDescriptor],
    ) -> SglDescriptor {
        let bytes = descriptors.as_bytes();
        let len = u32::try_from(bytes.len()).expect("a segment is below 4 GiB");
        buffer.write_from(at as usize, bytes);
        let address = self.iova(buffer).0.wrapping_add(at.into());
        SglDescriptor::new(descriptor_type, address, len)
    }
}
