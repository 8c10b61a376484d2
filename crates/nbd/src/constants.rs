//! Numbers of the protocol, in network byte order on the wire.

use bitfield_struct::bitfield;

/// `IHAVEOPT`, before each option.
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_EXTENDED_REQUEST_MAGIC`.
pub(crate) const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// `NBD_SIMPLE_REPLY_MAGIC`.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// `NBD_EXTENDED_REPLY_MAGIC`.
pub(crate) const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Longest string, in bytes.
pub(crate) const MAX_STRING: usize = 4096;

/// `NBD_REPLY_FLAG_DONE`: the last chunk of a reply.
pub(crate) const REPLY_FLAG_DONE: u16 = 1;

/// The only metadata context, and its namespace.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";
/// Wildcard of its namespace.
pub(crate) const BASE: &str = "base:";
/// Identifier of [`BASE_ALLOCATION`] in the transmission phase.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;

/// Status of an extent in the metadata context `base:allocation` (`NBD_STATE_*`).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ExtentState {
    /// The bytes have no space in the storage.
    pub hole: bool,
    /// The bytes read as zero.
    pub zero: bool,
    #[bits(30)]
    __: u32,
}

/// Flags of a client (`NBD_FLAG_C_*`).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub(crate) struct ClientFlags {
    /// It speaks fixed newstyle.
    pub fixed_newstyle: bool,
    /// It wants no zeroes behind the reply to `NBD_OPT_EXPORT_NAME`.
    pub no_zeroes: bool,
    #[bits(30)]
    pub unknown: u32,
}

/// An option (`NBD_OPT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionType(pub u32);

impl OptionType {
    pub(crate) const EXPORT_NAME: Self = Self(1);
    pub(crate) const ABORT: Self = Self(2);
    pub(crate) const LIST: Self = Self(3);
    pub(crate) const STARTTLS: Self = Self(5);
    pub(crate) const INFO: Self = Self(6);
    pub(crate) const GO: Self = Self(7);
    pub(crate) const STRUCTURED_REPLY: Self = Self(8);
    pub(crate) const LIST_META_CONTEXT: Self = Self(9);
    pub(crate) const SET_META_CONTEXT: Self = Self(10);
    pub(crate) const EXTENDED_HEADERS: Self = Self(11);
}

/// Type of a reply to an option (`NBD_REP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionReply(pub u32);

impl OptionReply {
    pub(crate) const ACK: Self = Self(1);
    pub(crate) const SERVER: Self = Self(2);
    pub(crate) const INFO: Self = Self(3);
    pub(crate) const META_CONTEXT: Self = Self(4);
    pub(crate) const ERR_UNSUP: Self = Self(0x8000_0001);
    pub(crate) const ERR_POLICY: Self = Self(0x8000_0002);
    pub(crate) const ERR_INVALID: Self = Self(0x8000_0003);
    pub(crate) const ERR_TLS_REQD: Self = Self(0x8000_0005);
    pub(crate) const ERR_UNKNOWN: Self = Self(0x8000_0006);
    pub(crate) const ERR_TOO_BIG: Self = Self(0x8000_0009);
    pub(crate) const ERR_EXT_HEADER_REQD: Self = Self(0x8000_000a);
}

/// Type of an information about an export (`NBD_INFO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InfoType(pub u16);

impl InfoType {
    pub(crate) const EXPORT: Self = Self(0);
    pub(crate) const NAME: Self = Self(1);
    pub(crate) const DESCRIPTION: Self = Self(2);
    pub(crate) const BLOCK_SIZE: Self = Self(3);
}

/// Type of a chunk (`NBD_REPLY_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkType(pub u16);

impl ChunkType {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const OFFSET_DATA: Self = Self(1);
    pub(crate) const BLOCK_STATUS: Self = Self(5);
    pub(crate) const BLOCK_STATUS_EXT: Self = Self(6);
    pub(crate) const ERROR: Self = Self(0x8001);
    pub(crate) const ERROR_OFFSET: Self = Self(0x8002);
}

/// Flags of an export (`NBD_FLAG_*`).
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct TransmissionFlags {
    /// Always set.
    pub has_flags: bool,
    /// It takes no writes.
    pub read_only: bool,
    /// It takes `NBD_CMD_FLUSH`.
    pub send_flush: bool,
    /// It takes `NBD_CMD_FLAG_FUA`.
    pub send_fua: bool,
    /// It is a spinning disk.
    pub rotational: bool,
    /// It takes `NBD_CMD_TRIM`.
    pub send_trim: bool,
    /// It takes `NBD_CMD_WRITE_ZEROES`.
    pub send_write_zeroes: bool,
    /// It takes `NBD_CMD_FLAG_DF`. The negotiation sets it where structured replies are agreed.
    pub send_df: bool,
    /// A flush on one connection is one for the data of all.
    pub can_multi_conn: bool,
    /// It takes `NBD_CMD_RESIZE`.
    pub send_resize: bool,
    /// It takes `NBD_CMD_CACHE`.
    pub send_cache: bool,
    /// It takes `NBD_CMD_FLAG_FAST_ZERO`.
    pub send_fast_zero: bool,
    /// It takes a filter of contexts with `NBD_CMD_BLOCK_STATUS`.
    pub block_status_payload: bool,
    #[bits(3)]
    __: u8,
}

/// Type of a request (`NBD_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command(pub u16);

impl Command {
    /// Read data.
    pub const READ: Self = Self(0);
    /// Write data, which follow the request.
    pub const WRITE: Self = Self(1);
    /// End the connection. There is no reply.
    pub const DISC: Self = Self(2);
    /// Make what was written stable.
    pub const FLUSH: Self = Self(3);
    /// Data are not needed any more.
    pub const TRIM: Self = Self(4);
    /// Data will be read soon.
    pub const CACHE: Self = Self(5);
    /// Write zeroes.
    pub const WRITE_ZEROES: Self = Self(6);
    /// Describe extents.
    pub const BLOCK_STATUS: Self = Self(7);
}

/// Flags of a request (`NBD_CMD_FLAG_*`).
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct CommandFlags {
    /// The data are stable when the reply comes.
    pub fua: bool,
    /// Write Zeroes: keep the space allocated.
    pub no_hole: bool,
    /// Read: one chunk of data.
    pub df: bool,
    /// Block Status: one extent.
    pub req_one: bool,
    /// Write Zeroes: fail at once where it is not faster than a write.
    pub fast_zero: bool,
    /// Extended headers: as many bytes follow as `len` says.
    pub payload_len: bool,
    #[bits(10)]
    __: u16,
}

/// Error of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

impl Errno {
    /// None.
    pub const NONE: Self = Self(0);
    /// Operation not permitted: the export is read only.
    pub const PERM: Self = Self(1);
    /// Input/output error.
    pub const IO: Self = Self(5);
    /// There is no memory.
    pub const NO_MEMORY: Self = Self(12);
    /// Invalid argument.
    pub const INVALID: Self = Self(22);
    /// There is no space, or the request is beyond the end.
    pub const NO_SPACE: Self = Self(28);
    /// Value too large: longer than one chunk may be.
    pub const OVERFLOW: Self = Self(75);
    /// Not supported, or not fast.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// The server or the export is going away.
    pub const SHUTDOWN: Self = Self(108);
}
