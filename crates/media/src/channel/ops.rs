//! The operations that a timing model gets for a request.

use model::Op;
use port::Request;

/// Deallocated bytes passed to a model in one turn: it takes 8 to 25 ns per page, and a host may
/// deallocate a whole drive with one command.
pub(super) const DEALLOCATED_PER_TURN: u64 = 1 << 20;

/// The model's operations for a request.
pub(super) fn ops<'r>(request: &Request<'r>) -> impl Iterator<Item = Op<'static>> + use<'r> {
    let mut one = None;
    let mut other = None;
    let mut ranges: &[_] = &[];
    match *request {
        Request::Read { offset, len } | Request::Compare { offset, len } => {
            one = Some(Op::Read { offset, len });
        }
        Request::Write { offset, len, fua } => one = Some(Op::Write { offset, len, fua }),
        Request::CompareAndWrite {
            offset, len, fua, ..
        } => {
            one = Some(Op::Write { offset, len, fua });
            other = Some(Op::Read { offset, len });
        }
        Request::WriteZeroes { offset, len, .. } => one = Some(Op::Deallocate { offset, len }),
        Request::Deallocate { ranges: all } => ranges = all,
        Request::Flush => one = Some(Op::Flush),
        // Submitted after the command has been performed.
        Request::Command { .. } | Request::Renew { .. } => {}
    }
    let ranges = ranges.iter().map(|range| Op::Deallocate {
        offset: range.offset,
        len: range.len,
    });
    one.into_iter().chain(other).chain(ranges)
}

/// Whether a request is passed to the model in parts.
pub(super) fn is_large(request: &Request<'_>) -> bool {
    let bytes = match *request {
        Request::WriteZeroes { len, .. } => len,
        Request::Deallocate { ranges } => ranges
            .iter()
            .fold(0, |sum: u64, range| sum.saturating_add(range.len)),
        _ => 0,
    };
    bytes > DEALLOCATED_PER_TURN
}
