//! Validity of requests to block media: a second check in the channels, after that of the
//! controllers.

use memory::Segment;
use port::prp::MAX_SEGMENTS;
use port::{ByteRange, Cause, FUSED_BYTES, Outcome, Request};

use crate::order::MAX_RANGES;

/// The outcome of a request that is invalid for a medium of `size` bytes in units of `unit`, or
/// that has no effect.
#[inline]
pub(crate) fn refuse(
    request: &Request<'_>,
    segments: &[Segment<'_>],
    (size, unit): (u64, u64),
) -> Option<Outcome> {
    let holds = |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= size);
    let (offset, len, in_memory) = match *request {
        Request::Read { offset, len }
        | Request::Write { offset, len, .. }
        | Request::Compare { offset, len } => (offset, u64::from(len), bytes_of(segments)),
        Request::CompareAndWrite { offset, len, .. } if len <= FUSED_BYTES => {
            (offset, u64::from(len), bytes_of(segments) / 2)
        }
        Request::WriteZeroes { offset, len, .. } => (offset, len, len),
        Request::Deallocate { ranges } => {
            let fits = |&ByteRange { offset, len }: &ByteRange| holds(offset, len);
            let is_possible =
                !ranges.is_empty() && ranges.len() <= MAX_RANGES && ranges.iter().all(fits);
            return (!is_possible).then_some(Outcome::of(Cause::Unsupported));
        }
        Request::Flush => return None,
        Request::CompareAndWrite { .. } | Request::Command { .. } | Request::Renew { .. } => {
            return Some(Outcome::of(Cause::Unsupported));
        }
    };
    let is_possible = holds(offset, len)
        && in_memory == len
        && offset.is_multiple_of(unit)
        && len.is_multiple_of(unit)
        && segments.len() <= MAX_SEGMENTS;
    if !is_possible {
        return Some(Outcome::of(Cause::Unsupported));
    }
    (len == 0).then_some(Outcome::OK)
}

/// Total length of the segments.
#[inline]
fn bytes_of(segments: &[Segment<'_>]) -> u64 {
    let lengths = segments.iter().map(|segment| u64::from(segment.len()));
    lengths.sum()
}
