//! A host whose bytes a test writes itself (NVMe/TCP Transport Specification 1.1, 3.6).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{NQN, Port};
use crate::world::BOUND;

/// ICReq: no digests, one R2T.
pub(super) fn ic_req() -> [u8; 128] {
    let mut pdu = [0; 128];
    pdu[2] = 128;
    pdu[4] = 128;
    pdu
}

/// Connect of an admin queue, as a whole capsule (Fabrics 1.1, 3.3).
fn connect(kato_ms: u32, id: u8) -> Vec<u8> {
    connect_as(kato_ms, id, NQN, &format!("nqn.2026-11.test:host-{id}"))
}

fn connect_as(kato_ms: u32, id: u8, subnqn: &str, hostnqn: &str) -> Vec<u8> {
    let mut pdu = vec![0; 72 + 1024];
    (pdu[0], pdu[2], pdu[3]) = (4, 72, 72);
    pdu[4..8].copy_from_slice(&(72u32 + 1024).to_le_bytes());
    let sqe = &mut pdu[8..72];
    (sqe[0], sqe[1], sqe[4]) = (0x7f, 0x40, 1);
    sqe[32..36].copy_from_slice(&1024u32.to_le_bytes());
    // a data block at an offset in the capsule
    sqe[39] = 1;
    // SQSIZE, 0's based
    sqe[44] = 31;
    sqe[48..52].copy_from_slice(&kato_ms.to_le_bytes());
    let data = &mut pdu[72..];
    data[..16].fill(id);
    data[16..18].fill(0xff);
    data[256..256 + subnqn.len()].copy_from_slice(subnqn.as_bytes());
    data[512..512 + hostnqn.len()].copy_from_slice(hostnqn.as_bytes());
    pdu
}

/// The discovery log for a host that reads it in clear: its generation, and TREQ and SECTYPE of the
/// first subsystem (Base 2.1, figure 294).
pub(super) fn discovery(port: &Port, hostnqn: &str) -> (u64, u8, u8) {
    let page = Discovering::connect(port, hostnqn).page(3 << 10);
    let entry = &page[2048..];
    let generation = u64::from_le_bytes(page[..8].try_into().unwrap());
    (generation, entry[3], entry[768])
}

/// A host of the discovery subsystem.
pub(super) struct Discovering {
    stream: TcpStream,
}

impl Discovering {
    /// Connects in clear, and enables the controller.
    pub(super) fn connect(port: &Port, hostnqn: &str) -> Self {
        let stream = TcpStream::connect(port.address()).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let mut host = Self { stream };
        host.send(&ic_req(), 128);
        let subnqn = "nqn.2014-08.org.nvmexpress.discovery";
        host.send(&connect_as(0, 9, subnqn, hostnqn), 24);
        // Property Set of CC: enable.
        host.command(0x7f, &[(11, 0x14), (12, 0x46_0001)], 24);
        host
    }

    fn send(&mut self, bytes: &[u8], answer: usize) -> Vec<u8> {
        self.stream.write_all(bytes).unwrap();
        let mut bytes = vec![0; answer];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Sends a command with these dwords, and reads `answer` bytes of what comes back.
    fn command(&mut self, opcode: u8, fields: &[(usize, u32)], answer: usize) -> Vec<u8> {
        let mut pdu = vec![0; 72];
        (pdu[0], pdu[2], pdu[4]) = (4, 72, 72);
        let sqe = &mut pdu[8..];
        (sqe[0], sqe[1], sqe[2]) = (opcode, 0x40, 1);
        // A transport data block.
        for (dword, value) in [(9, 0x5a00_0000)].iter().chain(fields) {
            sqe[4 * dword..4 * dword + 4].copy_from_slice(&value.to_le_bytes());
        }
        self.send(&pdu, answer)
    }

    /// The first `len` bytes of the discovery log page.
    pub(super) fn page(&mut self, len: u32) -> Vec<u8> {
        let log = (len / 4 - 1) << 16 | 0x70;
        let answer = self.command(2, &[(8, len), (10, log)], 24 + len as usize + 24);
        answer[24..24 + len as usize].to_vec()
    }

    /// Subtype, address and port of each entry but that of the discovery subsystem itself.
    pub(super) fn entries(&mut self) -> Vec<(u8, String)> {
        let page = self.page(16 << 10);
        let count = u64::from_le_bytes(page[8..16].try_into().unwrap());
        let entries = page.chunks(1024).skip(2).take(count as usize - 1);
        let of = |entry: &[u8]| {
            let text = |field: &[u8]| {
                let text = String::from_utf8(field.to_vec()).unwrap();
                text.trim_end_matches('\0').to_owned()
            };
            let (address, port) = (text(&entry[512..768]), text(&entry[32..64]));
            (entry[2], format!("{address} {port}"))
        };
        entries.map(of).collect()
    }

    /// Asks for an event of a changed log, and returns when it is there: its Dword 0.
    pub(super) fn event_of(&mut self, change: impl FnOnce()) -> u32 {
        self.command(9, &[(10, 0xb), (11, 0x8000_0000)], 24);
        let mut pdu = vec![0; 72];
        (pdu[0], pdu[2], pdu[4]) = (4, 72, 72);
        (pdu[8], pdu[9], pdu[10], pdu[8 + 39]) = (0xc, 0x40, 2, 0x5a);
        self.stream.write_all(&pdu).unwrap();
        change();
        let response = self.send(&[], 24);
        u32::from_le_bytes(response[8..12].try_into().unwrap())
    }
}

/// A connection whose Connect command is accepted, and the controller identifier in the answer; the
/// status of one that is refused.
fn open(port: &Port, connect: &[u8]) -> Result<(TcpStream, u16), u16> {
    let mut stream = TcpStream::connect(port.address()).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(&ic_req()).unwrap();
    stream.read_exact(&mut [0; 128]).unwrap();
    stream.write_all(connect).unwrap();
    let mut response = [0; 24];
    stream.read_exact(&mut response).unwrap();
    // without the phase and DNR
    let status = u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff;
    if status != 0 {
        return Err(status);
    }
    Ok((stream, u16::from_le_bytes([response[8], response[9]])))
}

/// The admin connection of a host, and that of an I/O queue, if it has one.
pub(super) struct Raw {
    pub(super) stream: TcpStream,
    io: Option<TcpStream>,
    pub(super) cntlid: u16,
}

impl Raw {
    /// Connects; the status of a Connect command that is refused.
    pub(super) fn connect(port: &Port, kato_ms: u32, id: u8) -> Result<Self, u16> {
        let (stream, cntlid) = open(port, &connect(kato_ms, id))?;
        let io = None;
        Ok(Raw { stream, io, cntlid })
    }

    /// Connects, enables its controller, and connects an I/O queue.
    pub(super) fn with_queue(port: &Port, id: u8) -> Self {
        let mut raw = Self::connect(port, 0, id).unwrap();
        // CC, and CSTS.RDY
        raw.property(0, 0x14, 0x46_0001);
        while raw.property(4, 0x1c, 0) & 1 == 0 {}
        let mut connect = connect(0, id);
        // QID, and CNTLID in the data
        connect[8 + 42] = 1;
        connect[72 + 16..72 + 18].copy_from_slice(&raw.cntlid.to_le_bytes());
        raw.io = Some(open(port, &connect).unwrap().0);
        raw
    }

    /// Property Set or Property Get of four bytes.
    fn property(&mut self, fctype: u8, offset: u32, value: u32) -> u32 {
        let mut pdu = [0; 72];
        (pdu[0], pdu[2], pdu[4]) = (4, 72, 72);
        let sqe = &mut pdu[8..];
        (sqe[0], sqe[1], sqe[2], sqe[4], sqe[39]) = (0x7f, 0x40, 1, fctype, 0x5a);
        sqe[44..48].copy_from_slice(&offset.to_le_bytes());
        sqe[48..52].copy_from_slice(&value.to_le_bytes());
        self.stream.write_all(&pdu).unwrap();
        let mut response = [0; 24];
        self.stream.read_exact(&mut response).unwrap();
        u32::from_le_bytes(response[8..12].try_into().unwrap())
    }

    /// Sends an admin command without data.
    pub(super) fn send(&mut self, opcode: u8, cid: u16, cdw10: u32) -> std::io::Result<()> {
        let mut pdu = [0; 72];
        (pdu[0], pdu[2], pdu[4]) = (4, 72, 72);
        (pdu[8], pdu[9]) = (opcode, 0x40);
        pdu[10..12].copy_from_slice(&cid.to_le_bytes());
        // a transport data block of no bytes
        pdu[8 + 39] = 0x5a;
        pdu[8 + 40..8 + 44].copy_from_slice(&cdw10.to_le_bytes());
        self.stream.write_all(&pdu)
    }

    /// Whether the server ends the connections in order: an end of file, and no reset for what the
    /// host still sends in this time.
    pub(super) fn ends_in_order(&mut self, time: Duration) -> std::io::Result<()> {
        for stream in self.streams() {
            while stream.read(&mut [0; 4096])? > 0 {}
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            for stream in self.streams() {
                stream.write_all(&[4; 1000])?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn streams(&mut self) -> impl Iterator<Item = &mut TcpStream> {
        std::iter::once(&mut self.stream).chain(&mut self.io)
    }

    /// Whether the server has closed the connection, after what it has sent.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}
