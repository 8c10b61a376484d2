//! A request as its pieces describe it (VIRTIO 1.3, 5.2.6).
//!
//! A driver may divide a request into pieces as it likes: the header is the first bytes that the
//! device reads, the outcome the last one that it writes, and the data are what lies between.

use memory::{DmaView, Hint, Iova, Need};
use vhost_user::block::{HEADER_LEN, RequestHeader, RequestType};

use super::queue::Piece;
use crate::host::BASE;

/// Bytes in pieces: `len` of them, from byte `skip` of the first piece on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data<'p> {
    pieces: &'p [Piece],
    skip: u64,
    pub(super) len: u64,
}

impl<'p> Data<'p> {
    pub(super) const NONE: Data<'static> = Data {
        pieces: &[],
        skip: 0,
        len: 0,
    };

    /// Of these pieces, `len` bytes from byte `skip` on. They have as many.
    pub(super) fn new(mut pieces: &'p [Piece], mut skip: u64, len: u64) -> Self {
        while let Some((first, rest)) = pieces.split_first()
            && u64::from(first.len) <= skip
        {
            skip -= u64::from(first.len);
            pieces = rest;
        }
        Self { pieces, skip, len }
    }

    /// The `len` bytes from byte `at` on, which it has.
    pub(super) fn part(&self, at: u64, len: u64) -> Self {
        Self::new(self.pieces, self.skip + at, len)
    }

    /// Address and length of each piece, none of them empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + use<'p> {
        let (mut skip, mut left) = (self.skip, self.len);
        self.pieces.iter().filter_map(move |piece| {
            let at = piece.at + skip;
            let len = (u64::from(piece.len) - skip).min(left);
            skip = 0;
            left -= len;
            (len > 0).then_some((at, len as u32))
        })
    }

    /// Copies its first bytes out. False where some are not mapped.
    pub(super) fn read(&self, view: &DmaView, hint: &mut Hint, mut to: &mut [u8]) -> bool {
        for (mut at, mut len) in self.iter() {
            while len > 0 && !to.is_empty() {
                let Ok(segment) = view.translate(hint, Iova(at), len, Need::DeviceReads) else {
                    return false;
                };
                let count = (segment.len() as usize).min(to.len());
                let (now, rest) = to.split_at_mut(count);
                segment.read_into(0, now);
                to = rest;
                at += u64::from(segment.len());
                len -= segment.len();
            }
        }
        to.is_empty()
    }

    /// Copies bytes to its first ones. False where some are not mapped, or there are too few.
    pub(super) fn write(&self, view: &DmaView, hint: &mut Hint, mut from: &[u8]) -> bool {
        for (mut at, mut len) in self.iter() {
            while len > 0 && !from.is_empty() {
                let Ok(segment) = view.translate(hint, Iova(at), len, Need::DeviceWrites) else {
                    return false;
                };
                let count = (segment.len() as usize).min(from.len());
                let (now, rest) = from.split_at(count);
                segment.write_from(0, now);
                from = rest;
                at += u64::from(segment.len());
                len -= segment.len();
            }
        }
        from.is_empty()
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'p> {
    pub(super) header: RequestHeader,
    /// Data that the device reads: those of a write, or ranges.
    pub(super) out: Data<'p>,
    /// Where the device writes data: those of a read.
    pub(super) into: Data<'p>,
    /// Address of the outcome.
    pub(super) outcome_at: u64,
    /// Bytes that the device writes, with the outcome.
    pub(super) written: u32,
}

/// A read or write as nearly every driver describes it: header, data and outcome in a piece each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) is_write: bool,
    pub(super) sector: u64,
    /// Address and length of the data, which are not empty.
    pub(super) at: u64,
    pub(super) len: u32,
    /// Address of the outcome.
    pub(super) outcome_at: u64,
}

impl Plain {
    /// Reads a request. `None` where it is another one, or none: see [`Request::parse`].
    #[inline]
    pub(super) fn parse(pieces: &[Piece], view: &DmaView, hint: &mut Hint) -> Option<Self> {
        let [first, data, last] = pieces else {
            return None;
        };
        let has_shape = first.len == HEADER_LEN as u32 && last.len == 1 && data.len > 0;
        let has_directions = !first.is_writable && last.is_writable;
        if !(has_shape && has_directions && pieces.iter().all(is_guests)) {
            return None;
        }
        let header = RequestHeader::parse(&header(pieces, view, hint)?);
        let is_write = !data.is_writable;
        let kind = if is_write {
            RequestType::OUT
        } else {
            RequestType::IN
        };
        if header.kind != kind {
            return None;
        }
        prefetch_outcome(last.at, view, hint);
        Some(Self {
            is_write,
            sector: header.sector,
            at: data.at,
            len: data.len,
            outcome_at: last.at,
        })
    }
}

impl<'p> Request<'p> {
    /// Reads a request. `None` where it has no whole header or no place for its outcome, or where a
    /// piece lies outside of what a guest has.
    pub(super) fn parse(pieces: &'p [Piece], view: &DmaView, hint: &mut Hint) -> Option<Self> {
        if !pieces.iter().all(is_guests) {
            return None;
        }
        let writable = pieces.iter().position(|piece| piece.is_writable);
        let (out, into) = pieces.split_at(writable.unwrap_or(pieces.len()));
        let sum = |pieces: &[Piece]| pieces.iter().map(|piece| u64::from(piece.len)).sum::<u64>();
        let (readable, writable) = (sum(out), sum(into));
        let data_len = readable.checked_sub(HEADER_LEN as u64)?;
        let header = header(out, view, hint)?;
        let last = into.iter().rfind(|piece| piece.len > 0)?;
        let outcome_at = last.at + u64::from(last.len) - 1;
        prefetch_outcome(outcome_at, view, hint);
        Some(Self {
            header: RequestHeader::parse(&header),
            out: Data::new(out, HEADER_LEN as u64, data_len),
            into: Data::new(into, 0, writable - 1),
            outcome_at,
            written: u32::try_from(writable).ok()?,
        })
    }
}

/// Whether a piece lies in what a guest has.
#[inline]
fn is_guests(piece: &Piece) -> bool {
    let end = piece.at.checked_add(piece.len.into());
    end.is_some_and(|end| end <= BASE)
}

/// Asks for the cache line of an outcome: the store to it comes before those that end the request.
#[inline]
fn prefetch_outcome(at: u64, view: &DmaView, hint: &mut Hint) {
    if let Ok(outcome) = view.translate(hint, Iova(at), 1, Need::DeviceWrites) {
        outcome.prefetch_to_write();
    }
}

/// Copies the header of a request out. `None` where it is not mapped.
#[inline(always)]
fn header(out: &[Piece], view: &DmaView, hint: &mut Hint) -> Option<[u8; HEADER_LEN]> {
    let mut header = [0; HEADER_LEN];
    // Nearly every driver has a piece for it.
    if let Some(first) = out.first()
        && first.len == HEADER_LEN as u32
        && let Ok(segment) = view.translate(hint, Iova(first.at), first.len, Need::DeviceReads)
        && segment.len() == first.len
    {
        segment.read_into(0, &mut header);
        return Some(header);
    }
    let all = Data::new(out, 0, HEADER_LEN as u64);
    all.read(view, hint, &mut header).then_some(header)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memory::{Access, ClientMappings, DmaMap, HostMemory};

    use super::*;

    fn piece(at: u64, len: u32, is_writable: bool) -> Piece {
        Piece {
            at,
            len,
            is_writable,
        }
    }

    /// Memory of a guest at address 1000h.
    fn guest() -> (HostMemory, Arc<DmaView>, ClientMappings) {
        let memory = HostMemory::new(1 << 16).unwrap();
        let (mut files, mut map) = (ClientMappings::new(), DmaMap::new(1));
        let file = files.map(memory.fd().try_clone_to_owned().unwrap());
        let whole = Some((file.unwrap(), 0));
        map.map(Iova(0x1000), 1 << 16, Access::READ_WRITE, whole)
            .unwrap();
        (memory, map.view(), files)
    }

    fn all(data: &Data<'_>) -> Vec<(u64, u32)> {
        data.iter().collect()
    }

    #[test]
    fn header_data_and_outcome_lie_in_any_pieces() {
        let (memory, view, _files) = guest();
        // Type 1, sector 5.
        let header = [1, 0, 0, 0, 9, 9, 9, 9, 5, 0, 0, 0, 0, 0, 0, 0];
        memory.write(0, &header[..7]);
        memory.write(0x100, &header[7..]);
        let pieces = [
            piece(0x1000, 7, false),
            piece(0x5000, 0, false),
            piece(0x1100, 9 + 3, false),
            piece(0x2000, 509, false),
            piece(0x3000, 10, true),
            piece(0x4000, 1, true),
            piece(0x6000, 0, true),
        ];
        let request = Request::parse(&pieces, &view, &mut Hint::default()).unwrap();
        assert_eq!((request.header.kind.0, request.header.sector), (1, 5));
        assert_eq!(request.out.len, 512);
        assert_eq!(all(&request.out), [(0x1109, 3), (0x2000, 509)]);
        assert_eq!(all(&request.into), [(0x3000, 10)]);
        assert_eq!((request.outcome_at, request.written), (0x4000, 11));
        let part = request.out.part(2, 8);
        assert_eq!(all(&part), [(0x110b, 1), (0x2000, 7)]);
        assert_eq!(all(&request.out.part(3, 509)), [(0x2000, 509)]);
    }

    #[test]
    fn the_outcome_may_be_the_end_of_the_data() {
        let (_memory, view, _files) = guest();
        let pieces = [piece(0x1000, 16, false), piece(0x2000, 513, true)];
        let request = Request::parse(&pieces, &view, &mut Hint::default()).unwrap();
        assert_eq!(all(&request.into), [(0x2000, 512)]);
        assert_eq!((request.outcome_at, request.written), (0x2200, 513));
    }

    #[test]
    fn what_has_no_header_or_outcome_or_leaves_the_guest_is_none() {
        let (_memory, view, _files) = guest();
        let status = piece(0x2000, 1, true);
        for pieces in [
            &[][..],
            &[status],
            &[piece(0x1000, 15, false), status],
            &[piece(0x1000, 16, false)],
            &[piece(0x1000, 16, false), piece(0x2000, 0, true)],
            // Not mapped.
            &[piece(0, 16, false), status],
            &[piece(0x10ff8, 16, false), status],
            // Private memory.
            &[piece(0x1000, 16, false), piece(BASE, 8, true), status],
            &[piece(0x1000, 16, false), piece(BASE - 1, 2, true), status],
            &[piece(0x1000, 16, false), piece(u64::MAX, 2, true), status],
            // More than a length can say.
            &[
                piece(0x1000, 16, false),
                piece(0x2000, u32::MAX, true),
                piece(0x2000, 1, true),
            ],
        ] {
            let request = Request::parse(pieces, &view, &mut Hint::default());
            assert!(request.is_none(), "{pieces:?}: {request:?}");
        }
    }

    #[test]
    fn bytes_are_copied_over_pieces() {
        let (memory, view, _files) = guest();
        let pieces = [piece(0x1ffe, 2, true), piece(0x3000, 3, true)];
        let data = Data::new(&pieces, 1, 4);
        let mut hint = Hint::default();
        assert!(data.write(&view, &mut hint, &[1, 2, 3, 4]));
        assert!(!data.write(&view, &mut hint, &[0; 5]));
        let mut bytes = [9; 4];
        assert!(data.read(&view, &mut hint, &mut bytes[..3]));
        assert_eq!(bytes, [0, 0, 0, 9]);
        memory.read(0x2000, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0]);
        let outside = [piece(0x10_0000, 8, true)];
        assert!(!Data::new(&outside, 0, 8).write(&view, &mut hint, &[1]));
        assert!(!Data::new(&outside, 0, 8).read(&view, &mut hint, &mut [1]));
    }
}
