//! Scatter Gather Lists: from the descriptor in a command to segments of the host's memory (Base
//! 2.1, 4.3.2).
//!
//! Supported features are those that Identify reports in SGLS: Data Blocks of any alignment and
//! length, Bit Buckets, and lists longer than the data, whose rest is checked as a list but not
//! translated. Over PCIe addresses are addresses: the sub type Offset and keyed descriptors are
//! rejected.
//!
//! Invariants:
//! - Each descriptor is read once, and only the copy is checked and used: a host that changes a
//!   list meanwhile gains nothing.
//! - The walk is bounded by [`MAX_DESCRIPTORS`]: every segment has at least one, so a chain of
//!   segments that leads back to itself ends there, too.
//! - Contiguous data becomes one segment.
//!
//! Data that a read discards goes into `Segment::sink`, whose memory is the program's and outlives
//! all I/O: a medium that pins the view for I/O in flight needs no special case.
//!
//! It does NOT check the length against MDTS (the caller does), and it moves no data. There is no
//! metadata, so the part of PSDT about MPTR has no effect.

use memory::{DmaView, Hint, Iova, Need, Segment};
use nvme_spec::Status;
use nvme_spec::sgl::{
    SGL_DESCRIPTOR_SIZE, SGL_SEGMENT_ALIGNMENT_MASK, SglDescriptor, SglDescriptorSubType,
    SglDescriptorType,
};
use port::prp::Segments;

/// Most descriptors of one command behind the one in it, those of segments and of nothing included.
pub const MAX_DESCRIPTORS: u32 = 2048;

/// Descriptors copied from the host at a time.
const DESCRIPTORS_AT_A_TIME: u32 = 64;

const SIZE: usize = SGL_DESCRIPTOR_SIZE as usize;

/// Finds the `len` bytes that the list at `sgl1` describes, and stores them in `out` (emptied
/// first).
///
/// Where the device writes (`need`), what Bit Buckets discard counts among the `len` bytes and is
/// in `out`. Where it reads, they are nothing.
///
/// # Errors
/// - SGL Descriptor Type Invalid: keyed, of a transport, of a vendor, or not an address.
/// - Invalid SGL Segment Descriptor: a segment that is not qword aligned, has no descriptor, or
///   ends inside one; a segment descriptor in what was to be the last segment.
/// - Invalid Number of SGL Descriptors: a segment descriptor before the end of its segment; more
///   than [`MAX_DESCRIPTORS`]; data in more pieces than `out` holds.
/// - Data SGL Length Invalid: less data than `len`; anything that ends behind the last address.
/// - Data Transfer Error: memory that is not mapped, that the device may not access as it `need`s
///   to, or that came without a descriptor.
pub fn walk<'v>(
    view: &'v DmaView,
    hint: &mut Hint,
    sgl1: SglDescriptor,
    len: u32,
    need: Need,
    out: &mut Segments<'v>,
) -> Result<(), Status> {
    out.clear();
    let mut walk = Walk {
        view,
        hint,
        need,
        out,
        left: len,
        run: Run { start: 0, len: 0 },
    };
    // The command itself holds a segment of one descriptor.
    let mut next = walk.descriptor(sgl1)?;
    let mut descriptors = 0;
    while let Some(segment) = next {
        descriptors += u64::from(segment.descriptors);
        if descriptors > u64::from(MAX_DESCRIPTORS) {
            return Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
        }
        next = walk.segment(segment)?;
    }
    if walk.left > 0 {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    walk.end_run()
}

/// A segment of a list, as its descriptor describes it.
#[derive(Clone, Copy)]
struct ListSegment {
    start: u64,
    /// At least one.
    descriptors: u32,
    last: bool,
}

/// Consecutive bytes of the host's address space that are not translated yet.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    len: u32,
}

struct Walk<'a, 'v> {
    view: &'v DmaView,
    hint: &'a mut Hint,
    need: Need,
    out: &'a mut Segments<'v>,
    /// Bytes of the command that have no place yet.
    left: u32,
    run: Run,
}

impl<'v> Walk<'_, 'v> {
    /// Takes a segment's descriptors; the next segment comes back, if there is one.
    fn segment(&mut self, segment: ListSegment) -> Result<Option<ListSegment>, Status> {
        let mut copy = [0; DESCRIPTORS_AT_A_TIME as usize * SIZE];
        let (mut at, mut left) = (segment.start, segment.descriptors);
        while left > 0 {
            let count = left.min(DESCRIPTORS_AT_A_TIME);
            let bytes = &mut copy[..count as usize * SIZE];
            self.read(at, bytes)?;
            at = at.wrapping_add(bytes.len() as u64);
            for descriptor in bytes.as_chunks::<SIZE>().0 {
                left -= 1;
                let next = self.descriptor(zerocopy::transmute!(*descriptor))?;
                if next.is_none() {
                    continue;
                }
                if left > 0 {
                    return Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
                }
                if segment.last {
                    return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
                }
                return Ok(next);
            }
        }
        Ok(None)
    }

    /// Takes one descriptor; returns the list segment that it refers to, if any.
    fn descriptor(&mut self, descriptor: SglDescriptor) -> Result<Option<ListSegment>, Status> {
        let identifier = descriptor.identifier;
        if identifier.sub_type() != SglDescriptorSubType::ADDRESS {
            return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
        }
        let descriptor_type = identifier.descriptor_type();
        match descriptor_type {
            SglDescriptorType::DATA_BLOCK => self.data_block(descriptor).map(|()| None),
            SglDescriptorType::BIT_BUCKET => self.bit_bucket(descriptor.length).map(|()| None),
            SglDescriptorType::SEGMENT | SglDescriptorType::LAST_SEGMENT => {
                let SglDescriptor {
                    address, length, ..
                } = descriptor;
                if address & SGL_SEGMENT_ALIGNMENT_MASK != 0
                    || length == 0
                    || !length.is_multiple_of(SGL_DESCRIPTOR_SIZE)
                {
                    return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
                }
                check_end(descriptor)?;
                Ok(Some(ListSegment {
                    start: address,
                    descriptors: length / SGL_DESCRIPTOR_SIZE,
                    last: descriptor_type == SglDescriptorType::LAST_SEGMENT,
                }))
            }
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }

    /// Takes data: as more of the run where it follows it, otherwise as a run of its own.
    fn data_block(&mut self, descriptor: SglDescriptor) -> Result<(), Status> {
        check_end(descriptor)?;
        let len = descriptor.length.min(self.left);
        if len == 0 {
            return Ok(());
        }
        self.left -= len;
        let end = self.run.start.checked_add(u64::from(self.run.len));
        if self.run.len > 0 && end == Some(descriptor.address) {
            // No overflow: runs hold no more than the command's bytes.
            self.run.len += len;
            return Ok(());
        }
        self.end_run()?;
        self.run = Run {
            start: descriptor.address,
            len,
        };
        Ok(())
    }

    /// Discards `len` of the bytes that the device writes.
    fn bit_bucket(&mut self, len: u32) -> Result<(), Status> {
        let mut len = match self.need {
            Need::DeviceWrites => len.min(self.left),
            Need::DeviceReads => 0,
        };
        if len == 0 {
            return Ok(());
        }
        self.end_run()?;
        self.left -= len;
        while len > 0 {
            let sink = Segment::sink(len);
            len -= sink.len();
            self.push(sink)?;
        }
        Ok(())
    }

    /// Translates the run, which may lie in several regions.
    fn end_run(&mut self) -> Result<(), Status> {
        let Run { mut start, mut len } = self.run;
        self.run.len = 0;
        while len > 0 {
            let segment = self.translate(start, len, self.need)?;
            start = start.wrapping_add(u64::from(segment.len()));
            len -= segment.len();
            self.push(segment)?;
        }
        Ok(())
    }

    fn push(&mut self, segment: Segment<'v>) -> Result<(), Status> {
        self.out
            .try_push(segment)
            .map_err(|_| Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS)
    }

    /// Copies part of a list, which may lie in several regions.
    fn read(&mut self, mut at: u64, mut bytes: &mut [u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            let segment = self.translate(at, bytes.len() as u32, Need::DeviceReads)?;
            let (head, tail) = bytes.split_at_mut(segment.len() as usize);
            segment.read_into(0, head);
            at = at.wrapping_add(head.len() as u64);
            bytes = tail;
        }
        Ok(())
    }

    fn translate(&mut self, at: u64, len: u32, need: Need) -> Result<Segment<'v>, Status> {
        self.view
            .translate(self.hint, Iova(at), len, need)
            .map_err(|_| Status::DATA_TRANSFER_ERROR)
    }
}

/// Address plus length is at most 2^64 (Base 2.1, figures 117, 119 and 120).
fn check_end(descriptor: SglDescriptor) -> Result<(), Status> {
    let last = u64::from(descriptor.length.saturating_sub(1));
    match descriptor.address.checked_add(last) {
        Some(_) => Ok(()),
        None => Err(Status::DATA_SGL_LENGTH_INVALID),
    }
}

#[cfg(test)]
mod tests;
