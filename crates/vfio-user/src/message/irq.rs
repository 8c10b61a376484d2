//! `DEVICE_GET_IRQ_INFO` and `DEVICE_SET_IRQS`: interrupts.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::flags::flags;
use super::{Malformed, plain_body, split_prefix};

/// Interrupt types of a PCI device, as VFIO numbers them.
pub mod irq_index {
    /// The pin interrupt.
    pub const INTX: u32 = 0;
    /// Message signalled interrupts.
    pub const MSI: u32 = 1;
    /// Message signalled interrupts with a table.
    pub const MSIX: u32 = 2;
    /// An uncorrectable error of the device.
    pub const ERR: u32 = 3;
    /// The device asks to be released.
    pub const REQ: u32 = 4;
    /// Number of types.
    pub const COUNT: u32 = 5;
}

flags! {
    /// Capabilities of an interrupt type.
    IrqFlags {
        /// Signalled through eventfds.
        EVENTFD = 1 << 0;
        /// Can be masked and unmasked by `SET_IRQS`.
        MASKABLE = 1 << 1;
        /// Masks itself when triggered.
        AUTOMASKED = 1 << 2;
        /// Must be set up as a whole.
        NORESIZE = 1 << 3;
    }
}

/// `DEVICE_GET_IRQ_INFO`, request and reply. In a request only `argsz` and `index` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqInfo {
    /// Request: longest reply body the client takes. Reply: length needed. In bytes.
    pub argsz: u32,
    /// Capabilities of the type.
    pub flags: IrqFlags,
    /// The type asked about; see [`irq_index`].
    pub index: u32,
    /// Number of interrupts of the type.
    pub count: u32,
}
plain_body!(IrqInfo, 16);

flags! {
    /// Data and action of `SET_IRQS`: exactly one of the data and one of the action bits.
    SetIrqsFlags {
        /// No data: the action is unconditional.
        DATA_NONE = 1 << 0;
        /// One byte per interrupt: the action is done where it is not 0.
        DATA_BOOL = 1 << 1;
        /// One eventfd per interrupt in the ancillary data, or none at all to de-assign.
        DATA_EVENTFD = 1 << 2;
        /// Mask.
        ACTION_MASK = 1 << 3;
        /// Unmask.
        ACTION_UNMASK = 1 << 4;
        /// Trigger.
        ACTION_TRIGGER = 1 << 5;
    }
}

const DATA_BITS: u32 = 0x7;
const ACTION_BITS: u32 = 0x38;

/// The action on the interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Mask them.
    Mask,
    /// Unmask them.
    Unmask,
    /// Trigger them, or with eventfds: signal these when the device triggers.
    Trigger,
}

/// The data of the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// Nothing: the action is for the whole range; a count of 0 disables the type.
    None,
    /// One byte per interrupt, `count` of them: the action is done where it is not 0.
    Bool(&'a [u8]),
    /// The message's descriptors, one per interrupt; no descriptor de-assigns the range.
    EventFd,
}

/// `DEVICE_SET_IRQS`. The reply has no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// Length of the body with its data, in bytes.
    pub argsz: u32,
    /// Data and action.
    pub flags: SetIrqsFlags,
    /// The interrupt type; see [`irq_index`].
    pub index: u32,
    /// The first interrupt.
    pub start: u32,
    /// Number of interrupts.
    pub count: u32,
    /// The bytes after the fixed part.
    pub data: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SetIrqsHead {
    argsz: u32,
    flags: SetIrqsFlags,
    index: u32,
    start: u32,
    count: u32,
}

const _: () = assert!(size_of::<SetIrqsHead>() == SetIrqs::HEAD_LEN);

impl<'a> SetIrqs<'a> {
    /// Length of the fixed part, in bytes.
    pub const HEAD_LEN: usize = 20;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed::Short`] when the body is shorter than [`Self::HEAD_LEN`].
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let (head, data) = split_prefix::<SetIrqsHead>(body)?;
        Ok(Self {
            argsz: head.argsz,
            flags: head.flags,
            index: head.index,
            start: head.start,
            count: head.count,
            data,
        })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = SetIrqsHead {
            argsz: self.argsz,
            flags: self.flags,
            index: self.index,
            start: self.start,
            count: self.count,
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.data);
    }

    /// The action and its data, from the flags.
    ///
    /// # Errors
    /// [`Malformed::IrqFlags`] unless exactly one data and one action bit is set and no other;
    /// [`Malformed::DataLength`] when there are fewer boolean bytes than `count`.
    pub fn operation(&self) -> Result<(IrqAction, IrqData<'a>), Malformed> {
        let bad = Malformed::IrqFlags(self.flags.0);
        if self.flags.0 & !(DATA_BITS | ACTION_BITS) != 0 {
            return Err(bad);
        }
        let action = match SetIrqsFlags(self.flags.0 & ACTION_BITS) {
            SetIrqsFlags::ACTION_MASK => IrqAction::Mask,
            SetIrqsFlags::ACTION_UNMASK => IrqAction::Unmask,
            SetIrqsFlags::ACTION_TRIGGER => IrqAction::Trigger,
            _ => return Err(bad),
        };
        let data = match SetIrqsFlags(self.flags.0 & DATA_BITS) {
            SetIrqsFlags::DATA_NONE => IrqData::None,
            SetIrqsFlags::DATA_EVENTFD => IrqData::EventFd,
            SetIrqsFlags::DATA_BOOL => IrqData::Bool(self.booleans()?),
            _ => return Err(bad),
        };
        Ok((action, data))
    }

    fn booleans(&self) -> Result<&'a [u8], Malformed> {
        usize::try_from(self.count)
            .ok()
            .and_then(|count| self.data.get(..count))
            .ok_or(Malformed::DataLength {
                count: u64::from(self.count),
                actual: self.data.len(),
            })
    }
}
