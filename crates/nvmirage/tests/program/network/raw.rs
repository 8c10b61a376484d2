//! A host whose bytes a test writes itself (NVMe/TCP Transport Specification 1.1, 3.6).

use std::io::{Read, Write};
use std::net::TcpStream;

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
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    let host = format!("nqn.2026-11.test:host-{id}");
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    pdu
}

/// The admin connection of a host.
pub(super) struct Raw {
    pub(super) stream: TcpStream,
    pub(super) cntlid: u16,
}

impl Raw {
    /// Connects; the status of a Connect command that is refused.
    pub(super) fn connect(port: &Port, kato_ms: u32, id: u8) -> Result<Self, u16> {
        let mut stream = TcpStream::connect(port.address()).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.write_all(&ic_req()).unwrap();
        stream.read_exact(&mut [0; 128]).unwrap();
        stream.write_all(&connect(kato_ms, id)).unwrap();
        let mut response = [0; 24];
        stream.read_exact(&mut response).unwrap();
        // without the phase and DNR
        let status = u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff;
        if status != 0 {
            return Err(status);
        }
        let cntlid = u16::from_le_bytes([response[8], response[9]]);
        Ok(Raw { stream, cntlid })
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
