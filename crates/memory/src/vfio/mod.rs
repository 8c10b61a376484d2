//! PCI functions that the kernel assigns to this process: VFIO, with an IOMMU of type 1.
//!
//! A [`Function`] is one function, the group that it belongs to, and a container: the addresses
//! that it may reach, which are only those passed to [`Function::share`]. Its regions are read and
//! written through the kernel, which reports when a function does not respond; only doorbells are
//! mapped ([`Function::map_doorbells`]).
//!
//! Invariants:
//! - The IOMMU lets the function reach memory of this process only while it is shared. Shared
//!   memory is never referenced ([`HostMemory`]), so that writes of a function at any moment can
//!   only produce a mixture of bytes.
//! - When the last of its descriptors is closed, the kernel resets it. It then reaches no memory
//!   and can be assigned again. A [`Function`] that is dropped closes its own; another process may
//!   keep others ([`Function::descriptors`]), for a third one to continue with
//!   ([`Function::adopt`]).
//!
//! Not included: functions without an IOMMU (they could reach all memory), groups that another
//! process uses in part, and PCI beyond registers, memory and interrupts. The caller decides which
//! function to use, and whether it may be taken.

mod call;
mod region;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

pub use region::RegionInfo;
use rustix::io::Errno;
use vfio_bindings::bindings::vfio as abi;

use crate::guest::address::Iova;
use crate::guest::dma::Lent;
use crate::guest::doorbell::DoorbellPages;
use crate::guest::host::HostMemory;
use crate::guest::mapping::MapError;

/// The most interrupt vectors that are asked for: MSI-X has no more (PCIe 5.0, 7.7.2.2).
const MAX_VECTORS: u32 = 2048;

/// The space of a function that is read or written (`VFIO_PCI_*_REGION_INDEX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The region behind base address register 0 to 5.
    Bar(u8),
    /// The configuration space.
    Config,
}

impl Space {
    fn index(self) -> u32 {
        match self {
            Space::Bar(bar) => {
                assert!(bar < 6, "a function has base address registers 0 to 5");
                abi::VFIO_PCI_BAR0_REGION_INDEX + u32::from(bar)
            }
            Space::Config => abi::VFIO_PCI_CONFIG_REGION_INDEX,
        }
    }
}

/// The interrupt types of a function (`VFIO_PCI_*_IRQ_INDEX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Messages of MSI.
    Msi,
    /// Vectors of MSI-X.
    MsiX,
    /// The kernel's word of an error on the function's bus that the function does not get over
    /// (AER).
    Error,
    /// The kernel's wish to have the function back: it is being taken out, or unbound.
    GiveBack,
}

impl Interrupt {
    fn index(self) -> u32 {
        match self {
            Interrupt::Msi => abi::VFIO_PCI_MSI_IRQ_INDEX,
            Interrupt::MsiX => abi::VFIO_PCI_MSIX_IRQ_INDEX,
            Interrupt::Error => abi::VFIO_PCI_ERR_IRQ_INDEX,
            Interrupt::GiveBack => abi::VFIO_PCI_REQ_IRQ_INDEX,
        }
    }
}

/// Why a function cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VfioError {
    /// The container's device node.
    #[error(
        "cannot open {}: {source}; load the modules vfio-pci and vfio_iommu_type1, and check the permissions of this file",
        path.display()
    )]
    Open {
        /// The node.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The group's device node is open in another process.
    #[error("{} is in use: another process uses this function, or another function of its IOMMU group", path.display())]
    Busy {
        /// The node.
        path: PathBuf,
    },
    /// The kernel lends functions in another way.
    #[error(
        "the kernel's VFIO does not support the Type 1 version 2 IOMMU; load the module vfio_iommu_type1"
    )]
    NoType1,
    /// A function of the group belongs to a driver of the kernel's.
    #[error(
        "IOMMU group {group} cannot be used: every function in it must be bound to vfio-pci or to no driver"
    )]
    NotViable {
        /// The group's number.
        group: u32,
    },
    /// Descriptors of another process do not belong to a function of a container.
    #[error("the kept descriptors are not those of a function: {0}")]
    NotOfFunction(&'static str),
    /// The system refused a step.
    #[error("cannot {what}: {source}{}", hint(.source))]
    System {
        /// The step.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// The likely cause of an error, and its remedy.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "; without interrupt remapping the module vfio_iommu_type1 needs allow_unsafe_interrupts=1"
        }
        Some(libc::ENOMEM) => {
            "; memory that a drive accesses is locked: raise RLIMIT_MEMLOCK (`ulimit -l`)"
        }
        _ => "",
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> VfioError {
    move |source| VfioError::System { what, source }
}

/// The descriptors of a function, which another process may keep.
///
/// Closed in the order of its fields: the function, so that it is reset and reaches nothing; then
/// the group, then the addresses.
#[derive(Debug)]
pub struct Descriptors<F = OwnedFd> {
    /// The function.
    pub device: F,
    /// Its IOMMU group.
    pub group: F,
    /// The container: the addresses that it reaches.
    pub container: F,
}

/// A PCI function in this process's hands.
#[derive(Debug)]
pub struct Function {
    fds: Descriptors,
    /// Regions of the base address registers, then the configuration space.
    regions: [RegionInfo; 7],
}

impl Function {
    /// Takes the function `address` (`0000:01:00.0`) of IOMMU group `group`, which is bound to
    /// vfio-pci.
    ///
    /// # Errors
    /// See [`VfioError`].
    pub fn open(address: &str, group: u32) -> Result<Self, VfioError> {
        let container = open("/dev/vfio/vfio".into())?;
        if call::api_version(&container) != Some(abi::VFIO_API_VERSION)
            || !call::has_extension(&container, abi::VFIO_TYPE1v2_IOMMU)
        {
            return Err(VfioError::NoType1);
        }
        let group_fd = open(format!("/dev/vfio/{group}").into())?;
        let flags = call::group_flags(&group_fd).map_err(failed("query the IOMMU group"))?;
        if flags & abi::VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(VfioError::NotViable { group });
        }
        call::set_container(&group_fd, &container)
            .map_err(failed("add the IOMMU group to a container"))?;
        call::set_iommu(&container, abi::VFIO_TYPE1v2_IOMMU).map_err(failed("set up the IOMMU"))?;
        let device = call::device(&group_fd, address).map_err(failed("open the function"))?;
        Self::of(Descriptors {
            device,
            group: group_fd,
            container,
        })
    }

    /// Continues with the function of a former process, of which another one has kept the
    /// descriptors. It may still reach the memory of that process, and signal its eventfds:
    /// [`Self::unshare_all`], [`Self::disable_interrupts`].
    ///
    /// # Errors
    /// [`VfioError::NotOfFunction`], [`VfioError::System`].
    pub fn adopt(fds: Descriptors) -> Result<Self, VfioError> {
        let wrong = VfioError::NotOfFunction;
        if call::api_version(&fds.container) != Some(abi::VFIO_API_VERSION) {
            return Err(wrong("one is no container"));
        }
        let flags = call::group_flags(&fds.group);
        let flags = flags.map_err(|_| wrong("one is no IOMMU group"))?;
        if flags & abi::VFIO_GROUP_FLAGS_CONTAINER_SET == 0 {
            return Err(wrong("the IOMMU group is in no container"));
        }
        Self::of(fds)
    }

    fn of(fds: Descriptors) -> Result<Self, VfioError> {
        let mut regions: [RegionInfo; 7] = Default::default();
        for (at, region) in regions.iter_mut().enumerate() {
            let space = match u8::try_from(at) {
                Ok(bar) if bar < 6 => Space::Bar(bar),
                _ => Space::Config,
            };
            let info = call::region_info(&fds.device, space.index());
            *region = info.map_err(failed("query a region of the function"))?;
        }
        Ok(Function { fds, regions })
    }

    /// Its descriptors. A process that has copies of them keeps the function as it is: it is not
    /// reset, reaches the memory that was shared, and cannot be opened.
    #[must_use]
    pub fn descriptors(&self) -> Descriptors<BorrowedFd<'_>> {
        Descriptors {
            device: self.fds.device.as_fd(),
            group: self.fds.group.as_fd(),
            container: self.fds.container.as_fd(),
        }
    }

    /// Description of a region; it is empty if a base address register has none.
    ///
    /// # Panics
    /// For a register beyond 5.
    #[must_use]
    pub fn region(&self, space: Space) -> &RegionInfo {
        match space {
            Space::Bar(bar) => &self.regions[..6][usize::from(bar)],
            Space::Config => &self.regions[6],
        }
    }

    /// Reads from `offset` of a region on. Pieces of four bytes at addresses that are multiples of
    /// four are read at once.
    ///
    /// # Errors
    /// Outside the region: `InvalidInput`. The system's: `EIO` for a function that does not answer,
    /// or whose memory is switched off.
    ///
    /// # Panics
    /// For a register beyond 5.
    pub fn read(&self, space: Space, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut at = self.place(space, offset, out.len())?;
        let mut left = out;
        while !left.is_empty() {
            match rustix::io::pread(&self.fds.device, &mut *left, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    left = &mut left[read..];
                    at += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Writes to `offset` of a region on. The function sees earlier writes to memory before.
    ///
    /// # Errors
    /// As [`Function::read`].
    ///
    /// # Panics
    /// For a register beyond 5.
    pub fn write(&self, space: Space, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = self.place(space, offset, data.len())?;
        let mut left = data;
        while !left.is_empty() {
            match rustix::io::pwrite(&self.fds.device, left, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left = &left[written..];
                    at += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Position of a region's bytes in the function's descriptor.
    fn place(&self, space: Space, offset: u64, len: usize) -> io::Result<u64> {
        let region = self.region(space);
        let end = offset.checked_add(len as u64);
        if end.is_some_and(|end| end <= region.len) {
            Ok(region.offset + offset)
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    /// Maps doorbells: whole pages of the region behind a base address register, from `start` on,
    /// at most `len` bytes. `None` where the kernel lets none be mapped there, and on processors
    /// for which this crate does not know how a store to a device is ordered behind stores to
    /// memory.
    ///
    /// A function that is removed, or whose memory space is disabled, ends in
    /// [`DoorbellPages::is_lost`]; later stores have no effect.
    ///
    /// # Errors
    /// See [`MapError`].
    ///
    /// # Panics
    /// For a register beyond 5.
    pub fn map_doorbells(
        &self,
        bar: u8,
        start: u64,
        len: u64,
    ) -> Result<Option<DoorbellPages>, MapError> {
        // On x86 a store to a device is seen after all stores before it, which DoorbellPages::store
        // relies on; elsewhere that takes a barrier of its own, which the kernel has in its way of
        // writing registers.
        if !cfg!(target_arch = "x86_64") {
            return Ok(None);
        }
        let region = self.region(Space::Bar(bar));
        let unit = rustix::param::page_size() as u64;
        let reach = region.mappable_from(start, len) / unit * unit;
        if !start.is_multiple_of(unit) || reach == 0 {
            return Ok(None);
        }
        let fd = self.fds.device.try_clone().map_err(MapError::System)?;
        DoorbellPages::map_device(fd, region.offset + start, reach).map(Some)
    }

    /// Lets the function read and write all of `memory`, at `base`. Its pages are taken from the
    /// system and locked now.
    ///
    /// # Errors
    /// The system's: `EINVAL` or `EPERM` for addresses that the IOMMU does not have, `EEXIST` for
    /// some that are in use, `ENOMEM` where this process may not lock so much memory.
    pub fn share(&self, memory: &HostMemory, base: Iova) -> io::Result<()> {
        let (start, len) = memory.span();
        // SAFETY: the range is mapped while `memory` lives, and no reference to it exists.
        // Pages that the IOMMU knows are held by the kernel: a function that writes to them after
        // `memory` is gone reaches nothing else.
        unsafe {
            call::map_dma(
                &self.fds.container,
                base.0,
                (start.addr() as u64, len),
                true,
            )
        }
    }

    /// Lets the function read, and write where the host allows that, memory that a host of ours
    /// lent, at `base`. Its pages are taken from the system and locked now.
    ///
    /// # Errors
    /// As [`Function::share`].
    pub fn lend(&self, memory: &Lent, base: Iova) -> io::Result<()> {
        let (start, len) = memory.as_raw();
        let bytes = (start.addr() as u64, len);
        // SAFETY: the range is mapped while `memory` lives, and only ever copied from and to. As
        // above for afterwards.
        unsafe { call::map_dma(&self.fds.container, base.0, bytes, memory.is_writable()) }
    }

    /// Takes memory back: a range that was shared, whole. On return the function reaches it no
    /// more.
    ///
    /// # Errors
    /// The system's; `NotFound` where nothing was shared there.
    pub fn unshare(&self, base: Iova, len: u64) -> io::Result<()> {
        match call::unmap_dma(&self.fds.container, base.0, len)? {
            0 => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(()),
        }
    }

    /// Takes all memory back, also that of a process that had the function before. Returns how many
    /// bytes were shared. Kernels before 6.0 leave the memory of another process shared, and return
    /// 0.
    ///
    /// # Errors
    /// The system's: `EINVAL` for a kernel before 5.12.
    pub fn unshare_all(&self) -> io::Result<u64> {
        call::unmap_all_dma(&self.fds.container)
    }

    /// Interrupts of a kind that the function has.
    #[must_use]
    pub fn interrupts(&self, kind: Interrupt) -> u32 {
        let count = call::irq_count(&self.fds.device, kind.index()).unwrap_or(0);
        count.min(MAX_VECTORS)
    }

    /// Has interrupts of a kind signal eventfds, from `first` on; `None` takes an interrupt's
    /// eventfd away. The first of a kind enables it, with as many vectors as are named; a kernel
    /// may refuse more of them later.
    ///
    /// # Errors
    /// The system's; `OutOfMemory` where it has fewer vectors to give.
    pub fn set_interrupts(
        &self,
        kind: Interrupt,
        first: u32,
        eventfds: &[Option<BorrowedFd<'_>>],
    ) -> io::Result<()> {
        match call::set_irqs(&self.fds.device, kind.index(), first, eventfds)? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// Takes all eventfds of a kind away and disables it.
    ///
    /// # Errors
    /// The system's.
    pub fn disable_interrupts(&self, kind: Interrupt) -> io::Result<()> {
        call::set_irqs(&self.fds.device, kind.index(), 0, &[]).map(drop)
    }

    /// Resets the function: Function Level Reset, or what its bus has instead. Its configuration
    /// space is as before.
    ///
    /// # Errors
    /// The system's: `EINVAL` or `ENOTTY` for a function that cannot be reset alone.
    pub fn reset(&self) -> io::Result<()> {
        call::reset(&self.fds.device)
    }
}

impl AsFd for Function {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fds.device.as_fd()
    }
}

fn open(path: PathBuf) -> Result<OwnedFd, VfioError> {
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => Ok(file.into()),
        Err(source) if source.raw_os_error() == Some(libc::EBUSY) => Err(VfioError::Busy { path }),
        Err(source) => Err(VfioError::Open { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_something_else_are_not_adopted() {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let fds = Descriptors {
            device: file(),
            group: file(),
            container: file(),
        };
        let error = Function::adopt(fds).unwrap_err();
        assert!(matches!(error, VfioError::NotOfFunction(_)), "{error}");
    }
}
