//! `VERSION`: the first message of a connection, and its reply.
//!
//! Two numbers, then a JSON object as NUL-terminated text. The object may be absent: SPDK's host
//! sends none. Unknown members are ignored, because other versions add some.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Malformed, split_prefix};
use crate::{MAX_DATA_XFER_LEN, MAX_FDS};

/// The sender's capabilities. An absent member has the default that its method names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Maximum number of descriptors that the sender receives in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_msg_fds: Option<u64>,
    /// Maximum data length of an access to the sender, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_data_xfer_size: Option<u64>,
    /// Page sizes of DMA mappings, or'ed together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgsizes: Option<u64>,
    /// Maximum number of DMA mappings at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_dma_maps: Option<u64>,
    /// Whether `REGION_WRITE_MULTI` is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_multiple: Option<bool>,
    /// Parameters of migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<Migration>,
}

/// Parameters of migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Migration {
    /// Page size of the dirty bitmap, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgsize: Option<u64>,
    /// Longest dirty bitmap, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bitmap_size: Option<u64>,
}

impl Capabilities {
    /// The capabilities that either side of this crate announces.
    ///
    /// A client's buffer for the reply may be as long as its own request only (214 bytes for
    /// QEMU), so this names no more than what differs from the defaults or limits the peer.
    pub const fn ours() -> Self {
        Self {
            max_msg_fds: Some(MAX_FDS as u64),
            max_data_xfer_size: Some(MAX_DATA_XFER_LEN as u64),
            pgsizes: None,
            max_dma_maps: None,
            write_multiple: None,
            migration: None,
        }
    }

    /// Maximum number of descriptors in a message to this peer: 1 if it is absent, and never more
    /// than [`MAX_FDS`].
    pub fn msg_fds(&self) -> usize {
        clamp(self.max_msg_fds.unwrap_or(1), MAX_FDS)
    }

    /// Maximum data length of an access to this peer, in bytes: 1 MiB if it is absent, and never
    /// more than [`MAX_DATA_XFER_LEN`].
    pub fn data_xfer_len(&self) -> usize {
        let announced = self.max_data_xfer_size.unwrap_or(MAX_DATA_XFER_LEN as u64);
        clamp(announced, MAX_DATA_XFER_LEN)
    }
}

fn clamp(announced: u64, max: usize) -> usize {
    usize::try_from(announced).map_or(max, |value| value.min(max))
}

/// `VERSION`, request and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Changes when messages become incompatible.
    pub major: u16,
    /// Changes when messages or capabilities are added.
    pub minor: u16,
    /// The sender's capabilities.
    pub capabilities: Capabilities,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct VersionHead {
    major: u16,
    minor: u16,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct VersionData {
    capabilities: Capabilities,
}

impl Version {
    /// Version data that are accepted at most, in bytes. QEMU sends less than 200.
    pub const MAX_TEXT_LEN: usize = 4096;

    /// The major version spoken here.
    pub const MAJOR: u16 = 0;
    /// The newest minor version spoken here.
    pub const MINOR: u16 = 1;

    /// The proposal of a client of this crate.
    pub const fn proposal() -> Self {
        Self {
            major: Self::MAJOR,
            minor: Self::MINOR,
            capabilities: Capabilities::ours(),
        }
    }

    /// The reply to a proposal: its major version, and the lower of both minor versions (QEMU
    /// proposes 0.0 and refuses more). `None` when the major version is not spoken here.
    pub fn answer(&self) -> Option<Self> {
        (self.major == Self::MAJOR).then(|| Self {
            major: self.major,
            minor: self.minor.min(Self::MINOR),
            capabilities: Capabilities::ours(),
        })
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed`] when the body is shorter than the two numbers, or the text too long or not
    /// the object of the specification.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (head, text) = split_prefix::<VersionHead>(body)?;
        if text.len() > Self::MAX_TEXT_LEN {
            return Err(Malformed::VersionTextTooLong { actual: text.len() });
        }
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let data = if text.is_empty() {
            VersionData::default()
        } else {
            serde_json::from_slice(text).map_err(|_| Malformed::VersionText)?
        };
        Ok(Self {
            major: head.major,
            minor: head.minor,
            capabilities: data.capabilities,
        })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = VersionHead {
            major: self.major,
            minor: self.minor,
        };
        out.extend_from_slice(head.as_bytes());
        let data = VersionData {
            capabilities: self.capabilities,
        };
        serde_json::to_writer(&mut *out, &data).expect("writing to memory cannot fail");
        out.push(0);
    }
}

/// The body of a reply that refuses a `VERSION` with `EBUSY`: the device has another host.
///
/// The specification gives such a reply no body, and a client need not look at it. It has the form
/// of a `VERSION` with a member of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The process of the other host, where it is known.
    pub host: Option<u32>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct RefusalData {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<u32>,
}

impl Refusal {
    /// Reads a body; an unreadable one names no host.
    pub fn parse(body: &[u8]) -> Self {
        let text = body.get(size_of::<VersionHead>()..).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let data: RefusalData = serde_json::from_slice(text).unwrap_or_default();
        Self { host: data.host }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = VersionHead {
            major: Version::MAJOR,
            minor: Version::MINOR,
        };
        out.extend_from_slice(head.as_bytes());
        let data = RefusalData { host: self.host };
        serde_json::to_writer(&mut *out, &data).expect("writing to memory cannot fail");
        out.push(0);
    }
}
