//! Messages of a front end ("Front-end message types").

use arrayvec::ArrayVec;

use crate::bytes::{u32_at, u64_at};
use crate::{Fault, Request};

/// Most bytes of a body.
pub const MAX_BODY: usize = 4096;
/// Most descriptors of one message.
pub const MAX_FDS: usize = MAX_TABLE;
/// Most regions of [`Message::SetMemTable`] (`VHOST_MEMORY_BASELINE_NREGIONS`).
pub const MAX_TABLE: usize = 8;
/// Most bytes of the configuration space in one message (`VHOST_USER_MAX_CONFIG_SIZE`).
pub const MAX_CONFIG: usize = 256;

const REGION_LEN: usize = 32;
const CONFIG_HEADER: usize = 12;

/// A region of the front end's memory ("Memory region description").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its address for the guest.
    pub guest: u64,
    /// Bytes.
    pub len: u64,
    /// Its address for the front end, in which addresses of rings are.
    pub user: u64,
    /// Where it begins in the file.
    pub offset: u64,
}

/// A number of a ring ("A vring state description").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringState {
    /// Which ring.
    pub index: u32,
    /// The number.
    pub num: u32,
}

/// Where a ring lies ("A vring address description"), in addresses of the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringAddr {
    /// Which ring.
    pub index: u32,
    /// Bit 0: what is written to the used ring is logged.
    pub flags: u32,
    /// Descriptor table, or descriptor ring.
    pub descriptors: u64,
    /// Used ring, or device event suppression.
    pub used: u64,
    /// Available ring, or driver event suppression.
    pub available: u64,
}

/// A descriptor for a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringFd {
    /// Which ring.
    pub index: u8,
    /// Whether there is a descriptor. Without one the ring is polled.
    pub has_fd: bool,
}

/// A part of the configuration space ("Virtio device config space").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigAccess<'m> {
    /// Its first byte.
    pub offset: u32,
    /// Flags.
    pub flags: u32,
    /// Its bytes: those to write, or room for those to read. At most [`MAX_CONFIG`].
    pub bytes: &'m [u8],
}

/// Memory for what is in flight ("Inflight description").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflight {
    /// Bytes.
    pub len: u64,
    /// Where they begin in the file.
    pub offset: u64,
    /// Rings.
    pub queues: u16,
    /// Entries of each.
    pub queue_size: u16,
}

impl Inflight {
    /// Bytes of the description.
    pub const LEN: usize = 24;

    /// The description as a reply has it.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.queues.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.queue_size.to_le_bytes());
        bytes
    }
}

/// A message of a front end.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'m> {
    /// Which features has the device? The reply is a number.
    GetFeatures,
    /// The driver uses these.
    SetFeatures(u64),
    /// The front end is the owner.
    SetOwner,
    /// It is the owner no more: all rings are disabled (deprecated).
    ResetOwner,
    /// All regions of the memory, one descriptor for each.
    SetMemTable(ArrayVec<Region, MAX_TABLE>),
    /// One more region, with a descriptor.
    AddMemReg(Region),
    /// One region less.
    RemMemReg(Region),
    /// How many regions can there be? The reply is a number.
    GetMaxMemSlots,
    /// Entries of a ring.
    SetVringNum(VringState),
    /// Where a ring lies.
    SetVringAddr(VringAddr),
    /// The next entry of a ring to take.
    SetVringBase(VringState),
    /// Stop a ring. The reply is the next entry to take.
    GetVringBase(VringState),
    /// The driver has made entries available.
    SetVringKick(VringFd),
    /// Entries were used.
    SetVringCall(VringFd),
    /// A ring has failed.
    SetVringErr(VringFd),
    /// A ring is enabled, or not.
    SetVringEnable(VringState),
    /// Which features has the protocol? The reply is a number.
    GetProtocolFeatures,
    /// The front end uses these.
    SetProtocolFeatures(u64),
    /// How many rings can there be? The reply is a number.
    GetQueueNum,
    /// The connection for the back end's own messages.
    SetBackendReqFd,
    /// Read the configuration space. The reply is the same with its bytes.
    GetConfig(ConfigAccess<'m>),
    /// Write it.
    SetConfig(ConfigAccess<'m>),
    /// Make memory for what is in flight. The reply is its description, with a descriptor.
    GetInflightFd(Inflight),
    /// Use this memory for it.
    SetInflightFd(Inflight),
    /// Reset the device.
    ResetDevice,
    /// Device status that the driver has set.
    SetStatus(u64),
    /// Which status has the device? The reply is a number.
    GetStatus,
    /// One that this side does not know.
    Unknown,
}

impl<'m> Message<'m> {
    /// Reads the body of a message that came with `fds` descriptors.
    ///
    /// # Errors
    /// A body of another length, or another number of descriptors.
    pub fn parse(request: Request, body: &'m [u8], fds: usize) -> Result<Self, Fault> {
        let parse = Parse { request, body, fds };
        match request {
            Request::GET_FEATURES => parse.empty(Self::GetFeatures),
            Request::SET_FEATURES => parse.number().map(Self::SetFeatures),
            Request::SET_OWNER => parse.empty(Self::SetOwner),
            Request::RESET_OWNER => parse.empty(Self::ResetOwner),
            Request::SET_MEM_TABLE => parse.table(),
            Request::ADD_MEM_REG => parse.region(1..=1).map(Self::AddMemReg),
            // Some send the descriptor again.
            Request::REM_MEM_REG => parse.region(0..=1).map(Self::RemMemReg),
            Request::GET_MAX_MEM_SLOTS => parse.empty(Self::GetMaxMemSlots),
            Request::SET_VRING_NUM => parse.state().map(Self::SetVringNum),
            Request::SET_VRING_ADDR => parse.address(),
            Request::SET_VRING_BASE => parse.state().map(Self::SetVringBase),
            Request::GET_VRING_BASE => parse.state().map(Self::GetVringBase),
            Request::SET_VRING_KICK => parse.ring_fd().map(Self::SetVringKick),
            Request::SET_VRING_CALL => parse.ring_fd().map(Self::SetVringCall),
            Request::SET_VRING_ERR => parse.ring_fd().map(Self::SetVringErr),
            Request::SET_VRING_ENABLE => parse.state().map(Self::SetVringEnable),
            Request::GET_PROTOCOL_FEATURES => parse.empty(Self::GetProtocolFeatures),
            Request::SET_PROTOCOL_FEATURES => parse.number().map(Self::SetProtocolFeatures),
            Request::GET_QUEUE_NUM => parse.empty(Self::GetQueueNum),
            Request::SET_BACKEND_REQ_FD => parse.len(0, 1).map(|()| Self::SetBackendReqFd),
            Request::GET_CONFIG => parse.config().map(Self::GetConfig),
            Request::SET_CONFIG => parse.config().map(Self::SetConfig),
            Request::GET_INFLIGHT_FD => parse.inflight(0).map(Self::GetInflightFd),
            Request::SET_INFLIGHT_FD => parse.inflight(1).map(Self::SetInflightFd),
            Request::RESET_DEVICE => parse.empty(Self::ResetDevice),
            Request::SET_STATUS => parse.number().map(Self::SetStatus),
            Request::GET_STATUS => parse.empty(Self::GetStatus),
            _ => Ok(Self::Unknown),
        }
    }
}

/// A message that is read.
struct Parse<'m> {
    request: Request,
    body: &'m [u8],
    fds: usize,
}

impl<'m> Parse<'m> {
    fn fault(&self) -> Fault {
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_BODY")]
        Fault::Length(self.request, self.body.len() as u32)
    }

    fn fds(&self, expected: usize) -> Result<(), Fault> {
        if self.fds == expected {
            return Ok(());
        }
        Err(Fault::Descriptors {
            request: self.request,
            found: self.fds,
            expected,
        })
    }

    fn len(&self, len: usize, fds: usize) -> Result<(), Fault> {
        if self.body.len() != len {
            return Err(self.fault());
        }
        self.fds(fds)
    }

    fn empty(&self, message: Message<'m>) -> Result<Message<'m>, Fault> {
        self.len(0, 0)?;
        Ok(message)
    }

    fn number(&self) -> Result<u64, Fault> {
        self.len(8, 0)?;
        Ok(u64_at(self.body, 0))
    }

    fn state(&self) -> Result<VringState, Fault> {
        self.len(8, 0)?;
        Ok(VringState {
            index: u32_at(self.body, 0),
            num: u32_at(self.body, 4),
        })
    }

    fn ring_fd(&self) -> Result<VringFd, Fault> {
        if self.body.len() != 8 {
            return Err(self.fault());
        }
        let [index, flags] = [self.body[0], self.body[1]];
        let has_fd = flags & 1 == 0;
        self.fds(has_fd.into())?;
        Ok(VringFd { index, has_fd })
    }

    fn address(&self) -> Result<Message<'m>, Fault> {
        self.len(40, 0)?;
        Ok(Message::SetVringAddr(VringAddr {
            index: u32_at(self.body, 0),
            flags: u32_at(self.body, 4),
            descriptors: u64_at(self.body, 8),
            used: u64_at(self.body, 16),
            available: u64_at(self.body, 24),
        }))
    }

    fn region_at(&self, at: usize) -> Region {
        Region {
            guest: u64_at(self.body, at),
            len: u64_at(self.body, at + 8),
            user: u64_at(self.body, at + 16),
            offset: u64_at(self.body, at + 24),
        }
    }

    fn region(&self, fds: std::ops::RangeInclusive<usize>) -> Result<Region, Fault> {
        if self.body.len() != 8 + REGION_LEN {
            return Err(self.fault());
        }
        if !fds.contains(&self.fds) {
            self.fds(*fds.end())?;
        }
        Ok(self.region_at(8))
    }

    fn table(&self) -> Result<Message<'m>, Fault> {
        if self.body.len() < 8 {
            return Err(self.fault());
        }
        let count = u32_at(self.body, 0);
        if count as usize > MAX_TABLE {
            return Err(Fault::Regions(count));
        }
        let len = 8 + count as usize * REGION_LEN;
        // Some front ends send the table with room for all regions.
        if self.body.len() < len || self.body.len() > 8 + MAX_TABLE * REGION_LEN {
            return Err(self.fault());
        }
        self.fds(count as usize)?;
        let regions = (8..len).step_by(REGION_LEN).map(|at| self.region_at(at));
        Ok(Message::SetMemTable(regions.collect()))
    }

    fn config(&self) -> Result<ConfigAccess<'m>, Fault> {
        let Some((header, bytes)) = self.body.split_at_checked(CONFIG_HEADER) else {
            return Err(self.fault());
        };
        let len = u32_at(header, 4);
        if bytes.len() != len as usize || bytes.len() > MAX_CONFIG {
            return Err(self.fault());
        }
        self.fds(0)?;
        Ok(ConfigAccess {
            offset: u32_at(header, 0),
            flags: u32_at(header, 8),
            bytes,
        })
    }

    fn inflight(&self, fds: usize) -> Result<Inflight, Fault> {
        // Without or with the padding of the structure.
        if self.body.len() != 20 && self.body.len() != Inflight::LEN {
            return Err(self.fault());
        }
        self.fds(fds)?;
        let pair = u32_at(self.body, 16).to_le_bytes();
        Ok(Inflight {
            len: u64_at(self.body, 0),
            offset: u64_at(self.body, 8),
            queues: u16::from_le_bytes([pair[0], pair[1]]),
            queue_size: u16::from_le_bytes([pair[2], pair[3]]),
        })
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "numbers of the tests are small"
)]
mod tests;
