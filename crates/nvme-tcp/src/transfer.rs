//! Which data of a command may come next, and in which pieces data leave (TCP 1.1, 3.3.2).

use std::ops::Range;

use nvme_spec::tcp::{DataHeader, R2t};

use crate::fault::Fault;

/// Data of a command that travel in one PDU, or that one R2T asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The command's identifier.
    pub cccid: u16,
    /// Transfer tag; 0 in C2HData.
    pub ttag: u16,
    /// Offset in bytes from the start of the command's data.
    pub offset: u32,
    /// Length in bytes, above 0.
    pub len: u32,
    /// Nothing follows for this R2T or, in C2HData, for this command.
    pub last: bool,
}

/// Data that are to arrive in order: those that an R2T has asked for, or those of a command that
/// reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    cccid: u16,
    ttag: u16,
    at: u32,
    end: u32,
}

impl Transfer {
    /// The transfer of what an R2T with this piece asks for. For a host it is all data of a command
    /// that reads.
    ///
    /// # Panics
    /// The piece ends beyond 4 GiB: commands have a limit far below.
    pub const fn new(piece: &Piece) -> Self {
        Self {
            cccid: piece.cccid,
            ttag: piece.ttag,
            at: piece.offset,
            end: match piece.offset.checked_add(piece.len) {
                Some(end) => end,
                None => panic!("data of a command are limited far below 4 GiB"),
            },
        }
    }

    /// Transfer tag.
    pub const fn ttag(&self) -> u16 {
        self.ttag
    }

    /// Where the data that come next belong, in bytes from the start of the command's.
    pub const fn position(&self) -> u32 {
        self.at
    }

    /// Whether everything has come.
    pub const fn is_complete(&self) -> bool {
        self.at == self.end
    }

    /// Takes the header of data to a controller, and says where in the command's data, in bytes,
    /// they lie.
    ///
    /// # Errors
    /// The data are of another command or transfer, or not those that come next; or LAST_PDU does
    /// not stand exactly where the transfer ends.
    pub fn take_h2c(&mut self, header: &DataHeader) -> Result<Range<u32>, Fault> {
        if header.ttag != self.ttag {
            return Err(Fault::TransferTag(header.ttag));
        }
        let range = self.next(header)?;
        if header.common.flags.last() != (range.end == self.end) {
            return Err(Fault::Last);
        }
        self.at = range.end;
        Ok(range)
    }

    /// Takes the header of data to a host, and says where in the command's data, in bytes, they
    /// lie. LAST_PDU may come early: a command may return less than its buffer takes. The transfer
    /// is complete then.
    ///
    /// # Errors
    /// The data are of another command, or not those that come next; or the end comes without
    /// LAST_PDU.
    pub fn take_c2h(&mut self, header: &DataHeader) -> Result<Range<u32>, Fault> {
        let range = self.next(header)?;
        if header.common.flags.last() {
            self.end = range.end;
        } else if range.end == self.end {
            return Err(Fault::Last);
        }
        self.at = range.end;
        Ok(range)
    }

    fn next(&self, header: &DataHeader) -> Result<Range<u32>, Fault> {
        if header.cccid != self.cccid {
            return Err(Fault::CommandId {
                received: header.cccid,
                expected: self.cccid,
            });
        }
        let end = header.datao.checked_add(header.datal);
        match end {
            Some(end) if header.datao == self.at && end <= self.end => Ok(header.datao..end),
            _ => Err(Fault::Range {
                offset: header.datao,
                len: header.datal,
                expected: self.at,
                end: self.end,
            }),
        }
    }
}

/// The pieces in which data leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    cccid: u16,
    ttag: u16,
    at: u32,
    end: u32,
    max: u32,
}

impl Pieces {
    /// Data that a host sends for an R2T of a command with `total` bytes of data, of which `sent`
    /// have been asked for; `max` bytes at a time, above 0.
    ///
    /// # Errors
    /// The R2T does not ask for what comes next, or for more than the command has.
    pub fn of_r2t(r2t: &R2t, sent: u32, total: u32, max: u32) -> Result<Self, Fault> {
        match r2t.r2to.checked_add(r2t.r2tl) {
            Some(end) if r2t.r2to == sent && end <= total => Ok(Self {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                at: r2t.r2to,
                end,
                max: max.max(1),
            }),
            _ => Err(Fault::Range {
                offset: r2t.r2to,
                len: r2t.r2tl,
                expected: sent,
                end: total,
            }),
        }
    }

    /// Data that a controller sends for a command with `total` bytes of data; `max` bytes at a
    /// time, above 0.
    pub const fn of_read(cccid: u16, total: u32, max: u32) -> Self {
        Self {
            cccid,
            ttag: 0,
            at: 0,
            end: total,
            max: if max == 0 { 1 } else { max },
        }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let left = self.end.checked_sub(self.at).filter(|left| *left > 0)?;
        let piece = Piece {
            cccid: self.cccid,
            ttag: self.ttag,
            offset: self.at,
            len: left.min(self.max),
            last: left <= self.max,
        };
        self.at += piece.len;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use nvme_spec::tcp::PduFlags;

    use super::*;

    fn data(ttag: u16, datao: u32, datal: u32, last: bool) -> DataHeader {
        let mut header = DataHeader {
            cccid: 7,
            ttag,
            datao,
            datal,
            ..DataHeader::default()
        };
        header.common.flags = PduFlags::new().with_last(last);
        header
    }

    fn transfer() -> Transfer {
        Transfer::new(&Piece {
            cccid: 7,
            ttag: 3,
            offset: 8192,
            len: 4096,
            last: true,
        })
    }

    #[test]
    fn data_to_a_controller_come_in_order_and_end_with_the_last() {
        let mut whole = transfer();
        assert_eq!(whole.take_h2c(&data(3, 8192, 4096, true)), Ok(8192..12288));
        assert!(whole.is_complete());

        let mut parts = transfer();
        assert_eq!(parts.take_h2c(&data(3, 8192, 512, false)), Ok(8192..8704));
        assert!(!parts.is_complete());
        assert_eq!(parts.take_h2c(&data(3, 8704, 3584, true)), Ok(8704..12288));
        assert!(parts.is_complete());
    }

    #[test]
    fn data_that_were_not_to_come_are_refused_and_change_nothing() {
        let range = |offset, len| Fault::Range {
            offset,
            len,
            expected: 8192,
            end: 12288,
        };
        for (header, fault) in [
            (data(4, 8192, 4096, true), Fault::TransferTag(4)),
            (data(3, 0, 4096, true), range(0, 4096)),
            (data(3, 8193, 4095, true), range(8193, 4095)),
            (data(3, 8192, 4097, true), range(8192, 4097)),
            (data(3, 8192, u32::MAX, true), range(8192, u32::MAX)),
            (data(3, 8192, 4095, true), Fault::Last),
            (data(3, 8192, 4096, false), Fault::Last),
        ] {
            let mut transfer = transfer();
            assert_eq!(transfer.take_h2c(&header), Err(fault), "{header:?}");
            assert_eq!(transfer, self::transfer());
        }
        let mut transfer = transfer();
        let mut of_another = data(3, 8192, 4096, true);
        of_another.cccid = 8;
        let fault = Fault::CommandId {
            received: 8,
            expected: 7,
        };
        assert_eq!(transfer.take_h2c(&of_another), Err(fault));
    }

    #[test]
    fn nothing_comes_twice() {
        let mut transfer = transfer();
        transfer.take_h2c(&data(3, 8192, 4096, true)).unwrap();
        for again in [data(3, 8192, 4096, true), data(3, 12288, 1, true)] {
            assert!(matches!(
                transfer.take_h2c(&again),
                Err(Fault::Range { .. })
            ));
        }
    }

    #[test]
    fn data_to_a_host_may_end_early_but_not_without_the_last() {
        let read = || {
            Transfer::new(&Piece {
                cccid: 7,
                ttag: 0,
                offset: 0,
                len: 4096,
                last: true,
            })
        };
        let mut short = read();
        assert_eq!(short.take_c2h(&data(0, 0, 100, true)), Ok(0..100));
        assert!(short.is_complete());
        assert!(short.take_c2h(&data(0, 100, 1, true)).is_err());
        let mut unmarked = read();
        assert_eq!(
            unmarked.take_c2h(&data(0, 0, 4096, false)),
            Err(Fault::Last)
        );
        assert!(unmarked.take_c2h(&data(0, 0, 4097, true)).is_err());
        assert_eq!(unmarked.take_c2h(&data(0, 0, 4000, false)), Ok(0..4000));
        assert!(unmarked.take_c2h(&data(0, 0, 96, true)).is_err());
    }

    #[test]
    fn an_r2t_is_answered_in_pieces_that_end_with_the_last() {
        let r2t = R2t {
            cccid: 7,
            ttag: 3,
            r2to: 100,
            r2tl: 250,
            ..R2t::default()
        };
        let pieces: Vec<_> = Pieces::of_r2t(&r2t, 100, 400, 100)
            .unwrap()
            .map(|piece| (piece.ttag, piece.offset, piece.len, piece.last))
            .collect();
        let expected = [
            (3, 100, 100, false),
            (3, 200, 100, false),
            (3, 300, 50, true),
        ];
        assert_eq!(pieces, expected);
        assert!(Pieces::of_r2t(&r2t, 0, 400, 100).is_err());
        assert!(Pieces::of_r2t(&r2t, 101, 400, 100).is_err());
        assert!(Pieces::of_r2t(&r2t, 100, 349, 100).is_err());
        assert!(Pieces::of_r2t(&r2t, 100, 350, 100).is_ok());
        let beyond = R2t {
            r2tl: u32::MAX,
            ..r2t
        };
        assert!(Pieces::of_r2t(&beyond, 100, 400, 100).is_err());
    }

    #[test]
    fn a_read_of_nothing_has_no_pieces() {
        assert_eq!(Pieces::of_read(1, 0, 100).next(), None);
        let last: Vec<_> = Pieces::of_read(1, 200, 100)
            .map(|piece| piece.last)
            .collect();
        assert_eq!(last, [false, true]);
    }
}
