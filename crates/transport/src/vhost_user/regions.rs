//! The memory of a front end: regions, each with an address for the guest and one for the front
//! end, in which it names rings.
//!
//! Private memory lies in the same map, above all addresses of a guest: no region reaches there.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use controller::Controller;
use memory::guest::dma::{DmaError, Reach};
use memory::guest::mapping::MapError;
use memory::{Access, ClientMappings, DmaMap, DmaView, HostMemory, Iova};
use vhost_user::Region;

use crate::host::{BASE, PAGE};

/// Most regions at the same time (`GET_MAX_MEM_SLOTS`).
pub(super) const MAX_REGIONS: usize = 509;

/// Why memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegionError {
    #[error("{0}; start QEMU with -object memory-backend-memfd,share=on")]
    File(#[from] MapError),
    #[error(transparent)]
    Map(#[from] DmaError),
    #[error("a region of memory ends above {BASE:#x}")]
    TooHigh,
    #[error("a region of memory overlaps another one of the front end")]
    Overlaps,
    #[error("there is no such region of memory")]
    None,
}

/// Bytes of the pages of a region, which ends below [`BASE`]: libblkio shares files that do not end
/// with a page.
fn pages(region: &Region) -> u64 {
    region.len.next_multiple_of(PAGE as u64)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Regions {
    map: DmaMap,
    files: ClientMappings,
    list: Vec<Region>,
}

impl Regions {
    /// Of private memory only.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors.
    pub(super) fn new(private: &HostMemory) -> std::io::Result<Self> {
        let (mut files, mut map) = (ClientMappings::new(), DmaMap::new(MAX_REGIONS + 1));
        let file = files.map(private.fd().try_clone_to_owned()?);
        let whole = Some((file.map_err(std::io::Error::other)?, 0));
        let len = private.len() as u64;
        map.map(Iova(BASE), len, Access::READ_WRITE, whole)
            .map_err(std::io::Error::other)?;
        Ok(Self {
            map,
            files,
            list: Vec::new(),
        })
    }

    /// Adds a region, whose memory is in this file. [`Self::publish`] has the controller see it.
    ///
    /// # Errors
    /// See [`RegionError`]; nothing is added then.
    pub(super) fn add(&mut self, region: Region, fd: OwnedFd) -> Result<(), RegionError> {
        let end = |start: u64| start.checked_add(region.len);
        if end(region.guest).is_none_or(|end| end > BASE) {
            return Err(RegionError::TooHigh);
        }
        let Some(user_end) = end(region.user) else {
            return Err(RegionError::TooHigh);
        };
        let meets = |it: &Region| it.user < user_end && region.user < it.user + it.len;
        if self.list.iter().any(meets) {
            return Err(RegionError::Overlaps);
        }
        let file = self.files.map(fd)?;
        let backing = Some((file, region.offset));
        let access = Access::READ_WRITE;
        self.map
            .map(Iova(region.guest), pages(&region), access, backing)?;
        self.list.push(region);
        Ok(())
    }

    /// Removes the region with these addresses and this length.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn remove(&mut self, region: &Region) -> Result<(), RegionError> {
        let is_it =
            |it: &Region| (it.guest, it.user, it.len) == (region.guest, region.user, region.len);
        let at = self.list.iter().position(is_it);
        let removed = self.list.swap_remove(at.ok_or(RegionError::None)?);
        self.map.unmap(Iova(removed.guest), pages(&removed))?;
        Ok(())
    }

    /// Removes all regions.
    pub(super) fn clear(&mut self) {
        for region in std::mem::take(&mut self.list) {
            // It is there.
            let _ = self.map.unmap(Iova(region.guest), pages(&region));
        }
    }

    /// The address for the guest of what has this one for the front end.
    pub(super) fn guest(&self, user: u64) -> Option<Iova> {
        let is_in = |it: &&Region| it.user <= user && user - it.user < it.len;
        let region = self.list.iter().find(is_in)?;
        Some(Iova(region.guest + (user - region.user)))
    }

    /// The map as it is.
    pub(super) fn view(&self) -> Arc<DmaView> {
        self.map.view()
    }

    /// Has the controller use the map as it is. Parts of removed regions that its devices could
    /// still reach come back.
    pub(super) fn publish(&mut self, controller: &mut Controller) -> Vec<Arc<Reach>> {
        controller.set_view(self.map.view(), self.files.lost());
        self.map.take_reached()
    }
}
