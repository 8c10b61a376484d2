//! Requests.

use arrayvec::ArrayVec;

use crate::bytes::Bytes;
use crate::constants::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC};
use crate::{Command, CommandFlags, Fault};

/// Bytes of a request without its data.
pub const REQUEST_LEN: usize = 28;
/// Bytes of a request with an extended header, without its data.
pub const EXTENDED_REQUEST_LEN: usize = 32;
/// Longest data of a request, in bytes. A server may disconnect a client that sends more
/// ("Size constraints").
pub const MAX_PAYLOAD: u64 = 1 << 25;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its type.
    pub command: Command,
    /// Its flags.
    pub flags: CommandFlags,
    /// Name by which its reply refers to it.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Request {
    /// Reads a request from the first bytes: with an extended header or not. `None`: they are too
    /// few. Command, flags, offset and length are not judged, except that the data are bounded.
    ///
    /// # Errors
    /// They do not begin with the magic number of that header, or the request has more data than
    /// [`MAX_PAYLOAD`].
    #[inline]
    pub fn parse(bytes: &[u8], extended: bool) -> Result<Option<Self>, Fault> {
        let mut bytes = Bytes(bytes);
        let right = if extended {
            EXTENDED_REQUEST_MAGIC
        } else {
            REQUEST_MAGIC
        };
        match bytes.u32() {
            Some(magic) if magic != right => return Err(Fault::RequestMagic(magic)),
            _ => {}
        }
        let Some(request) = Self::behind_magic(bytes, extended) else {
            return Ok(None);
        };
        let payload = request.payload(extended);
        if payload > MAX_PAYLOAD {
            return Err(Fault::RequestLength(payload));
        }
        Ok(Some(request))
    }

    #[inline]
    fn behind_magic(mut bytes: Bytes<'_>, extended: bool) -> Option<Self> {
        Some(Self {
            flags: CommandFlags::from_bits(bytes.u16()?),
            command: Command(bytes.u16()?),
            cookie: bytes.u64()?,
            offset: bytes.u64()?,
            len: if extended {
                bytes.u64()?
            } else {
                u64::from(bytes.u32()?)
            },
        })
    }

    /// Bytes of data that follow it in the stream: those of a write, and with extended headers of
    /// any request with `NBD_CMD_FLAG_PAYLOAD_LEN`. QEMU 11 omits that flag from its writes, which
    /// the extension forbids, and sends their data.
    #[inline]
    #[must_use]
    pub fn payload(&self, extended: bool) -> u64 {
        let follows = self.command == Command::WRITE || extended && self.flags.payload_len();
        if follows { self.len } else { 0 }
    }

    /// The bytes that a client sends before the data of this request. `None`: only an extended
    /// header has room for its length.
    #[must_use]
    pub fn encode(&self, extended: bool) -> Option<ArrayVec<u8, EXTENDED_REQUEST_LEN>> {
        let mut bytes = ArrayVec::new();
        let magic = if extended {
            EXTENDED_REQUEST_MAGIC
        } else {
            REQUEST_MAGIC
        };
        bytes.extend(magic.to_be_bytes());
        bytes.extend(self.flags.into_bits().to_be_bytes());
        bytes.extend(self.command.0.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        if extended {
            bytes.extend(self.len.to_be_bytes());
        } else {
            bytes.extend(u32::try_from(self.len).ok()?.to_be_bytes());
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests;
