//! An NVMe/TCP connection whose peer sends anything, in any pieces, against a reader that has the
//! whole stream and knows the offsets of the specification only.

use arbitrary::Arbitrary;
use nvme_spec::tcp::Digests;
use nvme_tcp::{Decoder, Event, Offer, Side};
use zerocopy::IntoBytes;

const MAX_DATA: u32 = 300;
const MAX_H2C_DATA: u32 = 4096;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    controller: bool,
    header_digest: bool,
    data_digest: bool,
    alignment_z: u8,
    /// Lengths of the pieces in which the stream arrives.
    cuts: Vec<u8>,
    /// Whether the first PDU is a right one, so that others get a hearing.
    agrees: bool,
    pdus: Vec<Pdu>,
    /// More bytes, such as a recorded session.
    rest: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum Pdu {
    Raw(Vec<u8>),
    /// A PDU that is right except for a byte of its header, changed before or after the digest is
    /// made.
    Made {
        pdu_type: u8,
        flags: u8,
        data: Vec<u8>,
        change: Option<(u8, u8)>,
        late: bool,
        digest: Option<u8>,
    },
}

/// What both readers say of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Type of the PDU and the bytes of its header behind the common ones.
    Head(u8, Vec<u8>),
    Data(Vec<u8>),
    End(bool),
    Terminated(u16, u32),
}

type Outcome = (Vec<Said>, Option<(u16, u32)>);

impl Input {
    fn ours(&self) -> Offer {
        Offer {
            digests: Digests::new()
                .with_header(self.header_digest)
                .with_data(self.data_digest),
            alignment_z: self.alignment_z % 32,
            max_h2c_data: MAX_H2C_DATA,
            max_r2t_z: 0,
        }
    }

    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        if self.agrees {
            let mut first = [0; 128];
            (first[0], first[2], first[4]) = (u8::from(!self.controller), 128, 128);
            first[11] = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
            first[13] = if self.controller { 0 } else { 0x10 };
            stream.extend_from_slice(&first);
        }
        for pdu in &self.pdus {
            match pdu {
                Pdu::Raw(bytes) => stream.extend_from_slice(bytes),
                made => self.make(made, &mut stream),
            }
        }
        stream.extend_from_slice(&self.rest);
        stream
    }

    fn make(&self, pdu: &Pdu, stream: &mut Vec<u8>) {
        let Pdu::Made {
            pdu_type,
            flags,
            data,
            change,
            late,
            digest,
        } = pdu
        else {
            return;
        };
        let pdu_type = pdu_type % 10;
        let hlen: usize = match pdu_type {
            0 | 1 => 128,
            4 => 72,
            _ => 24,
        };
        let hdgst = if self.header_digest && pdu_type > 3 {
            4
        } else {
            0
        };
        let after = hlen + hdgst;
        let pdo = match pdu_type {
            2 | 3 => hlen,
            _ => after.next_multiple_of((usize::from(self.alignment_z % 32) + 1) * 4),
        };
        let has_data = !data.is_empty() && matches!(pdu_type, 2 | 3 | 4 | 6 | 7);
        let ddgst = has_data && self.data_digest && pdu_type > 3;
        let plen = if has_data {
            pdo + data.len() + if ddgst { 4 } else { 0 }
        } else {
            after
        };
        let mut header = vec![0; hlen];
        header[0] = pdu_type;
        header[1] = flags & !3 | u8::from(hdgst > 0) | u8::from(ddgst) << 1;
        header[2] = hlen as u8;
        header[3] = if has_data { pdo as u8 } else { 0 };
        header[4..8].copy_from_slice(&(plen as u32).to_le_bytes());
        if matches!(pdu_type, 6 | 7 | 9) {
            header[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
        }
        let alter = |header: &mut [u8]| {
            if let Some((at, to)) = change {
                header[usize::from(*at) % hlen] = *to;
            }
        };
        if !late {
            alter(&mut header);
        }
        let crc = crc32c::crc32c(&header);
        if *late {
            alter(&mut header);
        }
        stream.extend_from_slice(&header);
        if hdgst > 0 {
            stream.extend_from_slice(&crc.to_le_bytes());
        }
        if has_data {
            stream.resize(stream.len() + pdo - after, 0);
            stream.extend_from_slice(data);
            if ddgst {
                let crc = crc32c::crc32c(data) ^ u32::from(digest.unwrap_or(0));
                stream.extend_from_slice(&crc.to_le_bytes());
            }
        }
    }
}

/// Reads the stream with the decoder under test, in pieces.
fn decoded(input: &Input, stream: &[u8]) -> Outcome {
    let side = if input.controller {
        Side::Controller
    } else {
        Side::Host
    };
    let ours = input.ours();
    let mut decoder = Decoder::new(side, MAX_DATA);
    let mut said = Vec::new();
    let mut rest = stream;
    let cuts = input.cuts.iter().map(|cut| usize::from(*cut) + 1);
    let mut cuts = cuts.chain(std::iter::repeat(usize::MAX));
    while !rest.is_empty() {
        let cut = cuts.next().unwrap().min(rest.len());
        let (mut bytes, later) = rest.split_at(cut);
        rest = later;
        loop {
            let left = decoder.data_left();
            let event = match decoder.step(&mut bytes) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(fault) => {
                    let (fes, fei) = fault.status();
                    let termination = fault.termination(side, decoder.at_fault());
                    assert!((24..=152).contains(&termination.len()));
                    return (said, Some((fes.0, fei)));
                }
            };
            let agreement = match &event {
                Event::IcReq(request) => ours.answer(request).map(|(_, agreed)| Some(agreed)),
                Event::IcResp(response) => ours.agreed(response).map(Some),
                _ => Ok(None),
            };
            match agreement {
                Ok(Some(agreement)) => decoder.agree(agreement),
                Ok(None) => {}
                Err(fault) => {
                    let (fes, fei) = fault.status();
                    return (said, Some((fes.0, fei)));
                }
            }
            match event {
                Event::Data(piece) => {
                    assert!(!piece.is_empty() && piece.len() <= left as usize);
                    match said.last_mut() {
                        Some(Said::Data(data)) => data.extend_from_slice(piece),
                        _ => said.push(Said::Data(piece.to_vec())),
                    }
                }
                Event::DataEnd { intact } => said.push(Said::End(intact)),
                Event::Terminated { fes, fei } => said.push(Said::Terminated(fes.0, fei)),
                Event::IcReq(pdu) => said.push(Said::Head(0, pdu.as_bytes()[8..].to_vec())),
                Event::IcResp(pdu) => said.push(Said::Head(1, pdu.as_bytes()[8..].to_vec())),
                Event::Capsule { sqe, .. } => said.push(Said::Head(4, sqe.as_bytes().to_vec())),
                Event::Response(cqe) => said.push(Said::Head(5, cqe.as_bytes().to_vec())),
                Event::H2cData(pdu) => said.push(Said::Head(6, pdu.as_bytes()[8..].to_vec())),
                Event::C2hData(pdu) => said.push(Said::Head(7, pdu.as_bytes()[8..].to_vec())),
                Event::R2t(pdu) => said.push(Said::Head(9, pdu.as_bytes()[8..].to_vec())),
            }
        }
        assert!(bytes.is_empty());
    }
    (said, None)
}

/// Reads the stream from its first byte to its last, by offsets.
fn expected(input: &Input, stream: &[u8]) -> Outcome {
    let mut said = Vec::new();
    let end = read(input, stream, &mut said).err();
    (said, end)
}

fn read(input: &Input, mut rest: &[u8], said: &mut Vec<Said>) -> Result<(), (u16, u32)> {
    let types: &[u8] = if input.controller {
        &[0, 2, 4, 6]
    } else {
        &[1, 3, 5, 7, 9]
    };
    let word = |at: usize, of: &[u8]| u32::from_le_bytes(of[at..at + 4].try_into().unwrap());
    let mut agreed = None;
    while rest.len() >= 8 {
        let (kind, flags, hlen, pdo) = (rest[0], rest[1], usize::from(rest[2]), rest[3]);
        let plen = u64::from(word(4, rest));
        if !types.contains(&kind) {
            return Err((1, 0));
        }
        let right = [128, 128, 24, 24, 72, 24, 24, 24, 0, 24][usize::from(kind)];
        if hlen != right {
            return Err((1, 2));
        }
        let first = kind < 2;
        let term = kind == 2 || kind == 3;
        let (hdgst, ddgst, alignment) = match agreed {
            _ if term => (false, false, 1),
            None if first => (false, false, 4),
            None => return Err((2, 0)),
            Some(_) if first => return Err((2, 0)),
            Some(agreed) => agreed,
        };
        if !first && !term {
            if (flags & 1 != 0) != hdgst {
                return Err((1, 1));
            }
            if kind == 7 && flags & 0b1100 == 0b1000 {
                return Err((1, 1));
            }
        }
        let after = hlen + if hdgst { 4 } else { 0 };
        if plen < after as u64 {
            return Err((1, 4));
        }
        let with_data = match kind {
            2..=4 => plen > after as u64,
            6 | 7 => true,
            _ => false,
        };
        if !with_data && plen > after as u64 || term && plen > 152 {
            return Err((1, 4));
        }
        let mut head = after;
        let mut data = 0;
        let ddgst = with_data && ddgst;
        if with_data && term {
            data = plen - 24;
        } else if with_data {
            if (flags & 2 != 0) != ddgst {
                return Err((1, 1));
            }
            head = usize::from(pdo);
            if head < after || head % alignment != 0 {
                return Err((1, 3));
            }
            data = plen
                .checked_sub(head as u64 + if ddgst { 4 } else { 0 })
                .ok_or((1, 4))?;
            if data == 0 {
                return Err((1, 16));
            }
            let limit = if kind == 6 { MAX_H2C_DATA } else { MAX_DATA };
            if data > u64::from(limit) {
                return Err((5, 0));
            }
        }
        if rest.len() < head {
            return Ok(());
        }
        let header = &rest[..hlen];
        if hdgst && word(hlen, rest) != crc32c::crc32c(header) {
            return Err((3, word(hlen, rest)));
        }
        match kind {
            6 | 7 if u64::from(word(16, header)) != data => return Err((1, 4)),
            9 if word(16, header) == 0 => return Err((1, 16)),
            0 | 1 => {
                let digests = u8::from(input.header_digest) | u8::from(input.data_digest) << 1;
                if header[8..10] != [0, 0] {
                    return Err((6, 8));
                }
                let ours = usize::from(input.alignment_z % 32) * 4 + 4;
                let on = header[11] & digests & 3;
                if kind == 1 && header[11] & 3 != digests {
                    return Err((1, 11));
                }
                let max = word(12, header);
                if kind == 1 && (max < 4096 || max % 4 != 0) {
                    return Err((1, 12));
                }
                if header[10] > 31 {
                    return Err((1, 10));
                }
                agreed = Some((on & 1 != 0, on & 2 != 0, ours));
            }
            _ => {}
        }
        if term {
            let fes = u16::from_le_bytes([header[8], header[9]]);
            said.push(Said::Terminated(fes, word(10, header)));
            return Ok(());
        }
        said.push(Said::Head(kind, header[8..].to_vec()));
        rest = &rest[head..];
        if data > 0 {
            let here = (data as usize).min(rest.len());
            if here > 0 {
                said.push(Said::Data(rest[..here].to_vec()));
            }
            let whole = &rest[..here];
            rest = &rest[here..];
            if (here as u64) < data || ddgst && rest.len() < 4 {
                return Ok(());
            }
            said.push(Said::End(!ddgst || word(0, rest) == crc32c::crc32c(whole)));
            rest = &rest[if ddgst { 4 } else { 0 }..];
        }
    }
    // The decoder judges what it has: a type alone may be wrong, but it waits for eight bytes.
    Ok(())
}

pub(crate) fn run(input: Input) {
    let stream = input.stream();
    assert_eq!(decoded(&input, &stream), expected(&input, &stream));
}
