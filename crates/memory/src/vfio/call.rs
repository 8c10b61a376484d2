//! The VFIO system calls (linux/vfio.h), one function each.

use std::ffi::{CString, c_int, c_ulong, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{io, ptr};

use vfio_bindings::bindings::vfio as abi;

use super::region::RegionInfo;

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`; no direction and no size are in the number.
const fn request(number: u32) -> c_ulong {
    ((abi::VFIO_TYPE as u32) << 8 | (abi::VFIO_BASE + number)) as c_ulong
}

const GET_API_VERSION: c_ulong = request(0);
const CHECK_EXTENSION: c_ulong = request(1);
const SET_IOMMU: c_ulong = request(2);
const GROUP_GET_STATUS: c_ulong = request(3);
const GROUP_SET_CONTAINER: c_ulong = request(4);
const GROUP_GET_DEVICE_FD: c_ulong = request(6);
const DEVICE_GET_REGION_INFO: c_ulong = request(8);
const DEVICE_GET_IRQ_INFO: c_ulong = request(9);
const DEVICE_SET_IRQS: c_ulong = request(10);
const DEVICE_RESET: c_ulong = request(11);
const IOMMU_MAP_DMA: c_ulong = request(13);
const IOMMU_UNMAP_DMA: c_ulong = request(14);

/// Room for the kernel's answer about a region: its chain of capabilities has a few dozen bytes.
const ANSWER_LEN: usize = 4096;

/// A call with a structure that the kernel reads, and that it may write as far as `argsz` says.
///
/// # Safety
/// `argument` is what `request` takes: valid for reading and writing as many bytes as it says it
/// has, or a number, or null.
unsafe fn call(fd: impl AsFd, request: c_ulong, argument: *mut c_void) -> io::Result<c_int> {
    // SAFETY: by the contract; the descriptor is open.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, argument) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// A call with a structure of a fixed size.
fn exchange<T>(fd: impl AsFd, request: c_ulong, argument: &mut T) -> io::Result<c_int> {
    // SAFETY: each caller passes the structure that the request is defined with, with its size in
    // `argsz` where it has one.
    unsafe { call(fd, request, ptr::from_mut(argument).cast()) }
}

/// A call with a number, or with nothing.
fn tell(fd: impl AsFd, request: c_ulong, number: u32) -> io::Result<c_int> {
    // SAFETY: the requests that this is used for take the argument as a number.
    unsafe { call(fd, request, ptr::without_provenance_mut(number as usize)) }
}

fn argsz<T>() -> u32 {
    u32::try_from(size_of::<T>()).expect("a structure of some bytes")
}

pub(super) fn api_version(container: &OwnedFd) -> Option<u32> {
    let version = tell(container, GET_API_VERSION, 0).ok()?;
    u32::try_from(version).ok()
}

pub(super) fn has_extension(container: &OwnedFd, extension: u32) -> bool {
    tell(container, CHECK_EXTENSION, extension).is_ok_and(|has| has > 0)
}

pub(super) fn set_iommu(container: &OwnedFd, kind: u32) -> io::Result<()> {
    tell(container, SET_IOMMU, kind).map(drop)
}

/// The state of a group: `VFIO_GROUP_FLAGS_*`.
pub(super) fn group_flags(group: &OwnedFd) -> io::Result<u32> {
    let mut status = abi::vfio_group_status {
        argsz: argsz::<abi::vfio_group_status>(),
        ..Default::default()
    };
    exchange(group, GROUP_GET_STATUS, &mut status)?;
    Ok(status.flags)
}

pub(super) fn set_container(group: &OwnedFd, container: &OwnedFd) -> io::Result<()> {
    let mut fd: c_int = container.as_raw_fd();
    exchange(group, GROUP_SET_CONTAINER, &mut fd).map(drop)
}

/// The descriptor of the function `name`.
pub(super) fn device(group: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the request takes a string that ends with a NUL, and only reads it.
    let fd = unsafe { call(group, GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut().cast()) }?;
    // SAFETY: the result is a new descriptor with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn region_info(device: &OwnedFd, index: u32) -> io::Result<RegionInfo> {
    // in words of 64 bits for their alignment
    let mut answer = [0u64; ANSWER_LEN / 8];
    let argsz = u32::try_from(ANSWER_LEN).expect("a page");
    answer[0] = word([argsz, 0]);
    answer[1] = word([index, 0]);
    exchange(device, DEVICE_GET_REGION_INFO, &mut answer)?;
    let bytes: Vec<u8> = answer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let malformed = || io::Error::other("the kernel's reply is malformed");
    RegionInfo::parse(&bytes).ok_or_else(malformed)
}

/// Two words of 32 bits in the order of their addresses.
fn word([first, second]: [u32; 2]) -> u64 {
    let [[a, b, c, d], [e, f, g, h]] = [first.to_ne_bytes(), second.to_ne_bytes()];
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

pub(super) fn irq_count(device: &OwnedFd, index: u32) -> io::Result<u32> {
    let mut info = abi::vfio_irq_info {
        argsz: argsz::<abi::vfio_irq_info>(),
        index,
        ..Default::default()
    };
    exchange(device, DEVICE_GET_IRQ_INFO, &mut info)?;
    Ok(info.count)
}

/// Sets the eventfds of interrupts, from `first` on; none at all disables the kind. The answer is
/// 0, or how many vectors the kernel has to give where that is fewer.
pub(super) fn set_irqs(
    device: &OwnedFd,
    index: u32,
    first: u32,
    eventfds: &[Option<BorrowedFd<'_>>],
) -> io::Result<c_int> {
    let data = if eventfds.is_empty() {
        abi::VFIO_IRQ_SET_DATA_NONE
    } else {
        abi::VFIO_IRQ_SET_DATA_EVENTFD
    };
    let count = u32::try_from(eventfds.len()).map_err(io::Error::other)?;
    let header = argsz::<abi::vfio_irq_set>();
    let flags = data | abi::VFIO_IRQ_SET_ACTION_TRIGGER;
    // struct vfio_irq_set, then a descriptor for each, -1 for none: 32 bits each
    let mut words = vec![header + 4 * count, flags, index, first, count];
    for eventfd in eventfds {
        let fd = eventfd.map_or(-1, |fd| fd.as_raw_fd());
        words.push(fd.cast_unsigned());
    }
    // SAFETY: the vector has as many bytes as its first word says, which the kernel only reads.
    unsafe { call(device, DEVICE_SET_IRQS, words.as_mut_ptr().cast()) }
}

pub(super) fn reset(device: &OwnedFd) -> io::Result<()> {
    tell(device, DEVICE_RESET, 0).map(drop)
}

/// Lets the functions of a container read `len` bytes of this process at `start`, and write them
/// where they may.
///
/// # Safety
/// The bytes are mapped, and may change at any moment from here on until they are unmapped.
pub(super) unsafe fn map_dma(
    container: &OwnedFd,
    iova: u64,
    (start, len): (u64, u64),
    may_write: bool,
) -> io::Result<()> {
    let flags = if may_write {
        abi::VFIO_DMA_MAP_FLAG_READ | abi::VFIO_DMA_MAP_FLAG_WRITE
    } else {
        abi::VFIO_DMA_MAP_FLAG_READ
    };
    let mut map = abi::vfio_iommu_type1_dma_map {
        argsz: argsz::<abi::vfio_iommu_type1_dma_map>(),
        flags,
        vaddr: start,
        iova,
        size: len,
    };
    exchange(container, IOMMU_MAP_DMA, &mut map).map(drop)
}

/// Unmaps a range, and says how many bytes of it were mapped.
pub(super) fn unmap_dma(container: &OwnedFd, iova: u64, len: u64) -> io::Result<u64> {
    let mut unmap = abi::vfio_iommu_type1_dma_unmap {
        argsz: argsz::<abi::vfio_iommu_type1_dma_unmap>(),
        iova,
        size: len,
        ..Default::default()
    };
    exchange(container, IOMMU_UNMAP_DMA, &mut unmap)?;
    Ok(unmap.size)
}

/// Unmaps every range, and says how many bytes were mapped.
pub(super) fn unmap_all_dma(container: &OwnedFd) -> io::Result<u64> {
    let mut unmap = abi::vfio_iommu_type1_dma_unmap {
        argsz: argsz::<abi::vfio_iommu_type1_dma_unmap>(),
        flags: abi::VFIO_DMA_UNMAP_FLAG_ALL,
        ..Default::default()
    };
    exchange(container, IOMMU_UNMAP_DMA, &mut unmap)?;
    Ok(unmap.size)
}
