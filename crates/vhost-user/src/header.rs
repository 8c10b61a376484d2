//! The header of a message ("Message Specification").

use crate::bytes::u32_at;
use crate::{BackendRequest, Fault, MAX_BODY, Request};

/// Bytes of a header.
pub const HEADER_LEN: usize = 12;

/// Flags, bits 0 and 1: the version, which is 1.
const VERSION_MASK: u32 = 3;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// The header of a message of a front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it asks for.
    pub request: Request,
    /// A front end that has `REPLY_ACK` wants a reply to a message that has none by itself.
    pub needs_reply: bool,
    /// Bytes of the body: at most [`MAX_BODY`].
    pub len: usize,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// Another version, a reply, or a body that is too long.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, Fault> {
        let (request, flags, len) = (
            Request(u32_at(bytes, 0)),
            u32_at(bytes, 4),
            u32_at(bytes, 8),
        );
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(Fault::Flags(flags));
        }
        if len as usize > MAX_BODY {
            return Err(Fault::TooLong(request, len));
        }
        Ok(Self {
            request,
            needs_reply: flags & NEED_REPLY != 0,
            len: len as usize,
        })
    }

    /// The header of the reply to it, with a body of `len` bytes.
    #[must_use]
    pub fn reply(&self, len: usize) -> [u8; HEADER_LEN] {
        encode(self.request.0, VERSION | REPLY, len)
    }
}

impl BackendRequest {
    /// The header of this message to the front end, with a body of `len` bytes, which needs no
    /// reply.
    #[must_use]
    pub fn header(self, len: usize) -> [u8; HEADER_LEN] {
        encode(self.0, VERSION, len)
    }
}

fn encode(request: u32, flags: u32, len: usize) -> [u8; HEADER_LEN] {
    debug_assert!(len <= MAX_BODY);
    let mut bytes = [0; HEADER_LEN];
    bytes[..4].copy_from_slice(&request.to_le_bytes());
    bytes[4..8].copy_from_slice(&flags.to_le_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_BODY")]
    bytes[8..].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_three_numbers() {
        // GET_QUEUE_NUM that needs a reply.
        let bytes = [17, 0, 0, 0, 0x9, 0, 0, 0, 8, 0, 0, 0];
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.request, Request::GET_QUEUE_NUM);
        assert!(header.needs_reply);
        assert_eq!(header.len, 8);
        assert_eq!(header.reply(8), [17, 0, 0, 0, 0x5, 0, 0, 0, 8, 0, 0, 0]);
        let news = BackendRequest::CONFIG_CHANGE_MSG.header(0);
        assert_eq!(news, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn another_version_a_reply_and_a_long_body_are_faults() {
        let parse = |flags: u8, len: u32| {
            let mut bytes = [1, 0, 0, 0, flags, 0, 0, 0, 0, 0, 0, 0];
            bytes[8..].copy_from_slice(&len.to_le_bytes());
            Header::parse(&bytes).map(|header| header.len)
        };
        assert_eq!(parse(1, MAX_BODY as u32), Ok(MAX_BODY));
        for flags in [0, 2, 3, 5, 0xd] {
            assert_eq!(parse(flags, 0), Err(Fault::Flags(flags.into())));
        }
        for len in [MAX_BODY as u32 + 1, u32::MAX] {
            let fault = Fault::TooLong(Request::GET_FEATURES, len);
            assert_eq!(parse(1, len), Err(fault));
        }
    }
}
