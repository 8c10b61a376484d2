//! The memory of a medium in memory: where it comes from, and when.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use memory::{Pieces, Store};

use super::{Backing, Medium, MediumKind, MediumSpec};
use crate::drive::{Drive, KeepsFunction, Known, Pace};
use crate::error::MediumError;
use crate::kept::{Kept, KeptFiles};
use crate::ram::Preallocation;
use crate::vendor::{Vendor, VendorMedium};

impl Medium {
    /// As [`Self::open`], so that another process can continue with what a medium has in memory:
    /// with that of `files`, if a former process had it.
    ///
    /// # Errors
    /// As [`Self::open`]; a file is not of this medium.
    pub fn open_kept(spec: &MediumSpec, files: KeptFiles) -> Result<Arc<Medium>, MediumError> {
        let kept = [files.memory, files.zones].map(Kept::file);
        Ok(Arc::new(Self::backed(spec, kept)?))
    }

    /// As [`Self::open`], so that another process can continue with a drive: with what a former
    /// process knew of it, if there was one. A drive of this machine is kept by `kept`.
    ///
    /// # Errors
    /// As [`Medium::open`].
    pub fn open_drive(
        spec: &MediumSpec,
        known: Option<Known>,
        kept: Option<&Arc<dyn KeepsFunction>>,
    ) -> Result<Arc<Medium>, MediumError> {
        let MediumKind::Drive { place, nsid, shown } = &spec.kind else {
            return Self::open(spec);
        };
        let drive = match known {
            Some(known) => Drive::again(place, known, shown, kept, Pace::default()),
            None => Drive::at(place, *nsid, shown, kept),
        };
        let drive = drive.map_err(|source| MediumError::Drive {
            target: place.0.to_string(),
            source,
        })?;
        let medium = Self::of(drive.size(), Backing::Drive(drive));
        Ok(Arc::new(medium))
    }

    /// The file with the state of its zones, if another process can continue with them.
    #[must_use]
    pub fn zones_file(&self) -> Option<BorrowedFd<'_>> {
        self.zoned.as_ref()?.kept()
    }

    /// The file that the bytes of a medium in memory are in, or the log of its pairs, where another
    /// process can go on with them.
    #[must_use]
    pub fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::Ram(store) => store.file(),
            Backing::KeyValue(medium) => medium.memory_file(),
            _ => None,
        }
    }

    /// The file that has the state of its vendor commands, with which another process can continue
    /// ([`Self::continue_vendor`]); `None` if it has no such commands.
    #[must_use]
    pub fn vendor_file(&self) -> Option<BorrowedFd<'_>> {
        self.vendor.as_ref().map(|vendor| vendor.file())
    }

    /// Continues with the state of vendor commands that a former process had. The medium has no
    /// channel yet.
    ///
    /// # Errors
    /// The file is not one of such a state; the medium is as new then.
    ///
    /// # Panics
    /// The medium has another owner.
    pub fn continue_vendor(
        this: &mut Arc<Medium>,
        vendor: Vendor,
        file: OwnedFd,
    ) -> Result<(), MediumError> {
        let vendor = VendorMedium::new(vendor, Some(file));
        let vendor = vendor.map_err(|source| MediumError::VendorState { source })?;
        let medium = Arc::get_mut(this).expect("a medium continues before anybody uses it");
        medium.vendor = Some(Arc::new(vendor));
        Ok(())
    }

    /// Allocates further memory of the medium from a NUMA node, as long as the node has some: for a
    /// reactor there that is about to use it. The first call decides. No effect on media that are
    /// not in memory.
    ///
    /// # Errors
    /// The system's: the node does not exist.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        match &self.backing {
            Backing::Ram(store) if !self.is_placed.swap(true, Relaxed) => store.prefer_node(node),
            _ => Ok(()),
        }
    }

    /// The memory that holds its bytes; `None` if they are elsewhere, or if it has keys and values.
    #[must_use]
    pub fn memory(&self) -> Option<&Store> {
        match &self.backing {
            Backing::Ram(store) => Some(store),
            _ => None,
        }
    }

    /// Its memory, for maintenance; `None` if it has none.
    #[must_use]
    pub fn pieces(&self) -> Option<Arc<dyn Pieces>> {
        match &self.backing {
            Backing::Ram(store) => Some(Arc::clone(store) as Arc<dyn Pieces>),
            Backing::Null
            | Backing::Scripted(_)
            | Backing::Drive(_)
            | Backing::File(_)
            | Backing::KeyValue(_) => None,
        }
    }

    /// Says that its memory is to be allocated in advance. No effect on media that are not in
    /// memory.
    pub fn expect_preallocation(&self) {
        if let Backing::Ram(_) = self.backing {
            self.preallocation.get_or_init(Default::default);
        }
    }

    /// Allocates the next 2 MiB of its memory in advance. False where all of it is, and for media
    /// that are not in memory.
    ///
    /// # Errors
    /// The system's: there is no memory, or the kernel is older than 5.14.
    pub fn allocate_more(&self) -> io::Result<bool> {
        match &self.backing {
            Backing::Ram(store) => self
                .preallocation
                .get_or_init(Default::default)
                .advance(store),
            _ => Ok(false),
        }
    }

    /// Bytes that were allocated in advance; `None` if that was not asked for.
    #[must_use]
    pub fn preallocated(&self) -> Option<u64> {
        self.preallocation.get().map(Preallocation::allocated)
    }
}
