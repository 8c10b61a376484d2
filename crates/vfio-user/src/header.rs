//! The 16-byte header that precedes every message ("Header").
//!
//! It only reads and writes the fields. Whether a size is acceptable is decided by
//! [`Connection`](crate::Connection), which also fills the size of what it sends.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::HEADER_LEN;

/// Flags, bits 0 to 3: message type.
const TYPE_MASK: u32 = 0xf;
const TYPE_COMMAND: u32 = 0;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Request of a message ("Commands"). Open: any number a peer sends can be held.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Command(pub u16);

macro_rules! commands {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl Command {
            $(#[doc = $doc] pub const $name: Command = Command($value);)*

            /// The specification's name, without its prefix; `None` for an unknown number.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

commands! {
    VERSION = 1, "The first message: proposes a version and capabilities.";
    DMA_MAP = 2, "The client shares a range of its memory.";
    DMA_UNMAP = 3, "The client takes a range of its memory back.";
    DEVICE_GET_INFO = 4, "How many regions and interrupt types the device has.";
    DEVICE_GET_REGION_INFO = 5, "Size, flags and mappable areas of a region.";
    DEVICE_GET_REGION_IO_FDS = 6, "Descriptors that replace accesses to a region.";
    DEVICE_GET_IRQ_INFO = 7, "Count and flags of an interrupt type.";
    DEVICE_SET_IRQS = 8, "Assigns, masks, unmasks or triggers interrupts.";
    REGION_READ = 9, "Reads from a region.";
    REGION_WRITE = 10, "Writes to a region.";
    DMA_READ = 11, "The server reads memory of the client.";
    DMA_WRITE = 12, "The server writes memory of the client.";
    DEVICE_RESET = 13, "Resets the device.";
    REGION_WRITE_MULTI = 15, "Several writes to regions in one message.";
    DEVICE_FEATURE = 16, "Gets, sets or probes a feature of the device.";
    MIG_DATA_READ = 17, "Reads migration data.";
    MIG_DATA_WRITE = 18, "Writes migration data.";
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Command({})", self.0),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The header in wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// Chosen by the sender of a command, echoed in the reply; not necessarily unique.
    pub id: u16,
    /// The command; echoed in the reply.
    pub command: Command,
    /// Length of the whole message with this header, in bytes. Filled in when sending.
    pub size: u32,
    /// Type and attributes; see the accessors.
    pub flags: u32,
    /// In a reply with the error flag: a UNIX errno, or 0 where the sender gave none.
    pub error: u32,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

impl Header {
    /// A command that asks for a reply.
    pub const fn request(id: u16, command: Command) -> Self {
        Self {
            id,
            command,
            size: HEADER_LEN as u32,
            flags: TYPE_COMMAND,
            error: 0,
        }
    }

    /// A command that asks for no reply: a posted write, for example.
    pub const fn posted(id: u16, command: Command) -> Self {
        let mut header = Self::request(id, command);
        header.flags |= NO_REPLY;
        header
    }

    /// This command with another number, and with a wish for a reply.
    pub const fn asking(&self, id: u16) -> Self {
        let mut header = *self;
        header.id = id;
        header.flags &= !NO_REPLY;
        header
    }

    /// The header of the reply to `self`.
    pub const fn reply(&self) -> Self {
        Self {
            id: self.id,
            command: self.command,
            size: HEADER_LEN as u32,
            flags: TYPE_REPLY,
            error: 0,
        }
    }

    /// The header of a reply that refuses `self` with a UNIX errno. Such a reply has no body.
    pub const fn error_reply(&self, errno: u32) -> Self {
        let mut header = self.reply();
        header.flags |= ERROR;
        header.error = errno;
        header
    }

    /// Whether this is a command.
    pub const fn is_command(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_COMMAND
    }

    /// Whether this is a reply.
    pub const fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    /// Whether the sender of this command wants no reply.
    pub const fn no_reply(&self) -> bool {
        self.flags & NO_REPLY != 0
    }

    /// Whether this reply rejects the command; the errno is in `error`.
    pub const fn is_error(&self) -> bool {
        self.flags & ERROR != 0
    }
}
