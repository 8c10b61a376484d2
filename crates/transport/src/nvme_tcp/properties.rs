//! Properties: the registers of the controller that a host over fabrics may reach (Base 2.1, 6.5,
//! 6.6 and 3.1.4).

use controller::Controller;
use nvme_spec::fabrics::{PropertyCdw10, PropertySize};
use nvme_spec::registers::{CAP, CC, CRTO, CSTS, Cap, NSSR, VS};
use nvme_spec::{Sqe, Status};

/// Whether a property may be read with this size.
fn is_readable(offset: u64, size: PropertySize) -> bool {
    match offset {
        CAP => size == PropertySize::BYTES_8,
        VS | CC | CSTS | NSSR | CRTO => size == PropertySize::BYTES_4,
        _ => false,
    }
}

/// A register of 4 bytes.
fn read(controller: &Controller, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    controller.bar_read(0, offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn cap(controller: &Controller) -> Cap {
    let mut bytes = [0; 8];
    controller.bar_read(0, CAP, &mut bytes);
    u64::from_le_bytes(bytes).into()
}

/// Property Get: the value.
///
/// # Errors
/// No such property, or it has another size.
pub(super) fn get(controller: &Controller, sqe: &Sqe) -> Result<u64, Status> {
    let (offset, size) = (u64::from(sqe.cdw11), PropertyCdw10::from(sqe.cdw10).size());
    if !is_readable(offset, size) {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    Ok(if size == PropertySize::BYTES_8 {
        cap(controller).into()
    } else {
        read(controller, offset).into()
    })
}

/// The property that a Property Set writes, and the value: CC, CSTS or NSSR.
///
/// # Errors
/// No such property, it cannot be written, or it has another size.
pub(super) fn to_set(controller: &Controller, sqe: &Sqe) -> Result<(u64, u32), Status> {
    let (offset, size) = (u64::from(sqe.cdw11), PropertyCdw10::from(sqe.cdw10).size());
    let is_writable = match offset {
        CC | CSTS => true,
        NSSR => cap(controller).nssrs(),
        _ => false,
    };
    if !is_writable || size != PropertySize::BYTES_4 {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    // The upper half is not the property's.
    Ok((offset, sqe.cdw12))
}
