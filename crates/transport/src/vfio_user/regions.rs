//! The regions of the PCI function: their descriptions, and accesses to them by message.
//!
//! BAR0 has the registers and doorbells, BAR4 the MSI-X table and its pending bits, and region 7 is
//! configuration space; the other regions exist and are empty. If doorbells may be mapped, BAR0 has
//! one mappable area, and its descriptor is sent with it. Accesses by message work in any case.

use controller::Controller;
use nvme_spec::registers::DOORBELLS;
use rustix::io::Errno;
use vfio_user::MAX_DATA_XFER_LEN;
use vfio_user::message::{Access, RegionFlags, RegionInfo, RegionIoFds, SparseArea, region_index};

use super::Answer;

/// Bytes of configuration space of a PCI Express function.
const CONFIG_SPACE_LEN: u64 = 4096;

/// A region that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Bar(u8),
    Config,
}

/// The space behind a region, and its length in bytes.
fn region(controller: &Controller, index: u32) -> Option<(Space, u64)> {
    if index == region_index::CONFIG {
        return Some((Space::Config, CONFIG_SPACE_LEN));
    }
    let len = *controller.bar_sizes().get(index as usize)?;
    let bar = u8::try_from(index).ok()?;
    (len > 0).then_some((Space::Bar(bar), len))
}

/// DEVICE_GET_REGION_INFO. `mappable`: bytes of doorbells that may be mapped.
pub(super) fn info(
    body: &[u8],
    controller: &Controller,
    mappable: Option<u64>,
    out: &mut Vec<u8>,
) -> Result<Answer, Errno> {
    let request = RegionInfo::parse(body).map_err(|_| Errno::INVAL)?;
    let index = request.index;
    if (request.argsz as usize) < RegionInfo::LEN || index >= region_index::COUNT {
        return Err(Errno::INVAL);
    }
    let region = region(controller, index);
    let doorbells = mappable.filter(|_| index == region_index::BAR0);
    let areas = doorbells.map(|size| SparseArea {
        offset: DOORBELLS,
        size,
    });
    let mut flags = RegionFlags::default();
    if region.is_some() {
        flags = RegionFlags::READ | RegionFlags::WRITE;
    }
    if doorbells.is_some() {
        flags = flags | RegionFlags::MMAP;
    }
    let info = RegionInfo {
        argsz: 0,
        flags,
        index,
        cap_offset: 0,
        size: region.map_or(0, |(_, len)| len),
        // The file of the doorbells is laid out as BAR0 is.
        offset: 0,
    };
    let whole = info.encode_reply(areas.as_slice(), request.argsz, out);
    match doorbells {
        // One descriptor for the one area: QEMU takes one for each reply, SPDK one for each area.
        Some(_) if whole => Ok(Answer::ReplyWithDoorbells),
        _ => Ok(Answer::Reply),
    }
}

/// DEVICE_GET_REGION_IO_FDS: there are none, for no client that is known asks for them.
pub(super) fn io_fds(body: &[u8], out: &mut Vec<u8>) -> Result<Answer, Errno> {
    let request = RegionIoFds::parse(body).map_err(|_| Errno::INVAL)?;
    let enough = request.argsz as usize >= RegionIoFds::LEN;
    if !enough || request.flags != 0 || request.index >= region_index::COUNT {
        return Err(Errno::INVAL);
    }
    let none = RegionIoFds {
        argsz: RegionIoFds::LEN as u32,
        flags: 0,
        index: request.index,
        count: 0,
    };
    none.encode(out);
    Ok(Answer::Reply)
}

/// REGION_READ.
pub(super) fn read(
    request: &Access,
    controller: &Controller,
    out: &mut Vec<u8>,
) -> Result<Answer, Errno> {
    let space = check(request, controller)?;
    request.encode(out);
    out.resize(Access::LEN + request.count as usize, 0);
    let data = &mut out[Access::LEN..];
    match space {
        Space::Config => controller.config_read(request.offset, data),
        Space::Bar(bar) => controller.bar_read(bar, request.offset, data),
    }
    Ok(Answer::Reply)
}

/// REGION_WRITE.
pub(super) fn write(
    request: &Access,
    data: &[u8],
    controller: &mut Controller,
    out: &mut Vec<u8>,
) -> Result<Answer, Errno> {
    match check(request, controller)? {
        Space::Config => controller.config_write(request.offset, data),
        Space::Bar(bar) => controller.bar_write(bar, request.offset, data),
    }
    request.encode(out);
    Ok(Answer::Reply)
}

/// The space of an access, if all of it lies in a region and is no longer than agreed.
fn check(access: &Access, controller: &Controller) -> Result<Space, Errno> {
    let (space, len) = region(controller, access.region).ok_or(Errno::INVAL)?;
    let end = access.offset.checked_add(u64::from(access.count));
    let inside = end.is_some_and(|end| end <= len);
    if !inside || access.count as usize > MAX_DATA_XFER_LEN {
        return Err(Errno::INVAL);
    }
    Ok(space)
}
