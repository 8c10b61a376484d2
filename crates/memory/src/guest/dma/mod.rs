//! The DMA map: the bytes behind each of the host's addresses.
//!
//! One writer per session ([`DmaMap`]) and any number of readers, each with a snapshot
//! ([`DmaView`]) that never changes. A change copies one chunk of regions and the vector of chunks,
//! and only if a reader still holds them. It raises the epoch by one, so that "issued before this
//! change" is a comparison of numbers.
//!
//! Invariants:
//! - Regions are whole 4 KiB pages, do not overlap, and lie inside the address space; the last may
//!   end at 2^64 exactly.
//! - A region with memory behind it lies inside its [`Mapping`], at a page of the file, and holds
//!   that mapping.
//! - A device writes only where both the region's access and its mapping allow it.
//!
//! Not included: an unmap does not wait for I/O. Readers with an older view keep reaching the old
//! bytes, safely; the session waits by epoch until they are done before it replies to its client.
//! It does not keep the bus addresses of drives: the code that maps a region's memory for a drive
//! ([`Lent`]) keeps them.

mod lent;
mod pins;
mod scratch;
mod segment;
mod sink;
mod tree;

use std::ptr;
use std::sync::Arc;

pub use lent::{Lent, Reach};
pub use pins::{PinId, ViewPins};
pub use scratch::Scratch;
pub use segment::Segment;

use self::tree::{Place, Tree};
use crate::guest::address::Iova;
use crate::guest::mapping::Mapping;
use crate::guest::written::{LogError, WrittenLog};
use crate::own::PAGE;

/// Maximum number of regions of one session: the value that QEMU's client proposes as
/// `max_dma_maps`.
pub const MAX_DMA_REGIONS: usize = 65_535;

/// A device's access rights to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// It may read the host's bytes.
    pub read: bool,
    /// It may change them.
    pub write: bool,
}

impl Access {
    /// Reading and writing.
    pub const READ_WRITE: Access = Access {
        read: true,
        write: true,
    };
    /// Reading alone.
    pub const READ: Access = Access {
        read: true,
        write: false,
    };
}

/// The access that the device needs: the direction of a transfer as the controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The device reads the host's memory: a write command's data, submission queues, PRP lists.
    DeviceReads = 0,
    /// The device writes the host's memory: a read command's data, completion queues.
    DeviceWrites = 1,
}

/// A range of the host's addresses that the client mapped at one time.
#[derive(Clone, Debug)]
pub struct Region {
    iova: Iova,
    len: u64,
    access: Access,
    /// The first byte in our address space; null when the region came without a descriptor.
    base: *mut u8,
    /// A bit for each [`Need`] that its bytes can be reached for.
    open: u8,
    /// Keeps `base` valid, except that of the sink, which always is.
    lent: Option<Arc<Lent>>,
    /// The number of `lent`, or 0.
    id: u64,
    /// Where writes are marked, while pages are logged.
    log: Option<Arc<WrittenLog>>,
}

// SAFETY: `base` points into the mapping of `lent`, which is Send and Sync and outlives it, or to
// the sink, which is Sync and static; the rest is plain data.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The first address.
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Bytes; never 0.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a region is never empty: mapping nothing is an error"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The device's access rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether a descriptor came with the region, so that we can reach its bytes.
    pub fn is_reachable(&self) -> bool {
        self.lent.is_some()
    }

    /// With `open` as its access and its memory have it.
    const fn opened(mut self) -> Self {
        if !self.base.is_null() {
            self.open = (self.allows(Need::DeviceReads) as u8) << Need::DeviceReads as u8
                | (self.allows(Need::DeviceWrites) as u8) << Need::DeviceWrites as u8;
        }
        self
    }

    /// The segment of `len` bytes at `at`, where all of them lie inside and can be reached for
    /// that.
    #[inline]
    fn whole(&self, at: Iova, len: u32, need: Need) -> Option<Segment<'_>> {
        // Below the region's start the difference wraps to more than any length.
        let offset = at.0.wrapping_sub(self.iova.0);
        let fits = offset < self.len && u64::from(len) <= self.len - offset;
        (fits && self.open >> need as u8 & 1 != 0).then(|| Segment::new(self, offset, len, need))
    }

    /// The last address.
    fn last(&self) -> Iova {
        Iova(self.iova.0 + (self.len - 1))
    }

    fn contains(&self, at: Iova) -> bool {
        // Below the region's start the difference wraps to more than any length.
        at.0.wrapping_sub(self.iova.0) < self.len
    }

    const fn allows(&self, need: Need) -> bool {
        match need {
            Need::DeviceReads => self.access.read,
            Need::DeviceWrites => self.access.write,
        }
    }
}

/// Why the map refuses a change. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// A length of 0.
    #[error("the range is empty: give a length of at least one page")]
    Empty,
    /// An address, a length or a file offset that is not a multiple of 4 KiB.
    #[error("address, length and file offset must be multiples of {PAGE} bytes")]
    Misaligned,
    /// The range ends behind the last address.
    #[error("the range ends past the 64-bit address space")]
    Wraps,
    /// The range meets a region that is mapped.
    #[error("the range overlaps the region of {len:#x} bytes at {iova}: unmap that region first")]
    Overlaps {
        /// Start of the other region.
        iova: Iova,
        /// Its bytes.
        len: u64,
    },
    /// As many regions as the session allows.
    #[error("all {limit} regions are in use: unmap some")]
    TooMany {
        /// The session's limit.
        limit: usize,
    },
    /// The range ends behind the end of its file.
    #[error("the range ends past the file's {file_len:#x} bytes")]
    OutOfFile {
        /// The file's bytes.
        file_len: u64,
    },
    /// Write access to a file whose descriptor does not allow writing.
    #[error(
        "the region is writable but its descriptor is not: open it for reading and writing, or map it read-only"
    )]
    NotWritable,
    /// No region lies in the range.
    #[error("no region is mapped in the range")]
    NotFound,
    /// The range covers a part of a region.
    #[error(
        "the range covers only a part of the region of {len:#x} bytes at {iova}: unmap whole regions"
    )]
    Splits {
        /// Start of that region.
        iova: Iova,
        /// Its bytes.
        len: u64,
    },
}

/// Why an address cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// No region holds the address.
    #[error("the address is not mapped")]
    Unmapped,
    /// The region came without a descriptor.
    #[error("the host does not share this memory: start QEMU with memory-backend-memfd,share=on")]
    NoDescriptor,
    /// The region does not allow this direction.
    #[error("the region is not mapped for this access")]
    Denied,
    /// The range ends behind the last address.
    #[error("the range ends past the 64-bit address space")]
    Wraps,
}

/// The writer's side of one session's map.
#[derive(Debug)]
pub struct DmaMap {
    max_regions: usize,
    /// Changed in place while no reader holds it, copied otherwise.
    current: Arc<DmaView>,
    /// Of the removed regions, those that devices could reach at that time.
    reached: Vec<Arc<Reach>>,
}

impl DmaMap {
    /// An empty map that will hold at most `max_regions` regions.
    pub fn new(max_regions: usize) -> Self {
        DmaMap {
            max_regions,
            current: DmaView::empty(),
            reached: Vec::new(),
        }
    }

    /// Adds the region of `len` bytes at `iova`. `backing` is the client's file and the offset of
    /// the region's first byte in it; `None` when the client sent no descriptor.
    ///
    /// # Errors
    /// `Empty`, `Misaligned`, `Wraps`, `Overlaps`, `TooMany`, `OutOfFile`, `NotWritable`, checked
    /// in this order.
    pub fn map(
        &mut self,
        iova: Iova,
        len: u64,
        access: Access,
        backing: Option<(Arc<Mapping>, u64)>,
    ) -> Result<(), DmaError> {
        let last = check_range(iova, len)?;
        let offset = backing.as_ref().map_or(0, |(_, offset)| *offset);
        if !offset.is_multiple_of(PAGE) {
            return Err(DmaError::Misaligned);
        }
        // The last region that starts at or before our end: if that one ends before us, all earlier
        // ones do.
        if let Some((_, other)) = self.current.tree.at_or_before(last)
            && other.last() >= iova
        {
            return Err(DmaError::Overlaps {
                iova: other.iova,
                len: other.len,
            });
        }
        if self.current.tree.len() >= self.max_regions {
            let limit = self.max_regions;
            return Err(DmaError::TooMany { limit });
        }
        let mut region = Region::new(iova, len, access, backing)?;
        region.log = self.current.log.clone();
        self.change(|tree| tree.insert(region));
        Ok(())
    }

    /// Removes every region in the range and returns their bytes.
    ///
    /// # Errors
    /// `Empty`, `Misaligned`, `Wraps`; `NotFound` when no region meets the range, `Splits` when one
    /// lies only partly in it.
    pub fn unmap(&mut self, iova: Iova, len: u64) -> Result<u64, DmaError> {
        let last = check_range(iova, len)?;
        let splits = |region: &Region| DmaError::Splits {
            iova: region.iova,
            len: region.len,
        };
        let tree = &self.current.tree;
        match tree.at_or_before(last) {
            Some((_, region)) if region.last() > last => return Err(splits(region)),
            Some((_, region)) if region.last() >= iova => {}
            _ => return Err(DmaError::NotFound),
        }
        if let Some((_, region)) = tree.at_or_before(iova)
            && region.iova < iova
            && region.last() >= iova
        {
            return Err(splits(region));
        }
        Ok(self.remove(iova, last))
    }

    /// Removes every region and returns their bytes, or `u64::MAX` where they are the whole address
    /// space.
    pub fn unmap_all(&mut self) -> u64 {
        if self.current.tree.len() == 0 {
            return 0;
        }
        self.remove(Iova(0), Iova(u64::MAX))
    }

    fn remove(&mut self, first: Iova, last: Iova) -> u64 {
        // Ranges that were never asked for and are over.
        self.reached.retain(|reach| reach.is_held());
        let mut reached = std::mem::take(&mut self.reached);
        let bytes = self.change(|tree| {
            tree.remove(first, last, |region| {
                let reach = region.lent.as_ref().map(|lent| lent.reach());
                reached.extend(reach.filter(|reach| reach.take_back()).cloned());
            })
        });
        self.reached = reached;
        bytes
    }

    /// The regions removed since this was asked last that devices could still reach by themselves
    /// at that moment.
    pub fn take_reached(&mut self) -> Vec<Arc<Reach>> {
        std::mem::take(&mut self.reached)
    }

    /// The map as it is now.
    pub fn view(&self) -> Arc<DmaView> {
        self.current.clone()
    }

    /// Logs the pages of these ranges that are written from now on; of all writable regions where
    /// there are none. Commands that have a previous view write without a mark.
    ///
    /// # Errors
    /// [`LogError::Started`], and as [`WrittenLog::new`].
    pub fn start_log(&mut self, ranges: &[(Iova, u64)]) -> Result<(), LogError> {
        if self.current.log.is_some() {
            return Err(LogError::Started);
        }
        let log = if ranges.is_empty() {
            let writable = self.regions().filter(|region| region.access.write);
            WrittenLog::of(writable.map(|region| (region.iova, region.len)).collect())?
        } else {
            WrittenLog::new(ranges)?
        };
        self.set_log(Some(Arc::new(log)));
        Ok(())
    }

    /// Ends the log, where there is one. Commands that have a view of it still mark there.
    pub fn stop_log(&mut self) {
        if self.current.log.is_some() {
            self.set_log(None);
        }
    }

    /// The log of written pages.
    ///
    /// # Errors
    /// [`LogError::Off`].
    pub fn log(&self) -> Result<&WrittenLog, LogError> {
        self.current.log().ok_or(LogError::Off)
    }

    fn set_log(&mut self, log: Option<Arc<WrittenLog>>) {
        let view = Arc::make_mut(&mut self.current);
        view.epoch += 1;
        view.tree.each(|region| region.log.clone_from(&log));
        view.log = log;
    }

    /// All regions, ascending.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.current.tree.iter()
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut Tree) -> R) -> R {
        let view = Arc::make_mut(&mut self.current);
        view.epoch += 1;
        change(&mut view.tree)
    }
}

impl Drop for DmaMap {
    /// A host that is gone has taken everything back.
    fn drop(&mut self) {
        for lent in self.current.lent() {
            lent.reach().take_back();
        }
    }
}

impl Region {
    fn new(
        iova: Iova,
        len: u64,
        access: Access,
        backing: Option<(Arc<Mapping>, u64)>,
    ) -> Result<Region, DmaError> {
        let Some((mapping, offset)) = backing else {
            return Ok(Region {
                iova,
                len,
                access,
                base: ptr::null_mut(),
                open: 0,
                lent: None,
                id: 0,
                log: None,
            });
        };
        let Some(base) = mapping.pages_at(offset, len) else {
            let file_len = mapping.len();
            return Err(DmaError::OutOfFile { file_len });
        };
        if access.write && !mapping.is_writable() {
            return Err(DmaError::NotWritable);
        }
        let lent = Lent::new(mapping, base.as_ptr(), len, access.write);
        Ok(Region {
            iova,
            len,
            access,
            base: base.as_ptr(),
            open: 0,
            id: lent.id(),
            lent: Some(Arc::new(lent)),
            log: None,
        }
        .opened())
    }
}

/// The last address of a range of whole pages.
fn check_range(iova: Iova, len: u64) -> Result<Iova, DmaError> {
    if len == 0 {
        return Err(DmaError::Empty);
    }
    if iova.page_offset() != 0 || !len.is_multiple_of(PAGE) {
        return Err(DmaError::Misaligned);
    }
    iova.checked_add(len - 1).ok_or(DmaError::Wraps)
}

/// A map that never changes: the view of one epoch's readers.
#[derive(Clone, Debug, Default)]
pub struct DmaView {
    epoch: u64,
    tree: Tree,
    /// That of its regions.
    log: Option<Arc<WrittenLog>>,
}

impl DmaView {
    /// A view of nothing, epoch 0.
    pub fn empty() -> Arc<DmaView> {
        Arc::default()
    }

    /// The memory of every region that has some.
    pub fn lent(&self) -> impl Iterator<Item = &Arc<Lent>> {
        self.tree.iter().filter_map(|region| region.lent.as_ref())
    }

    /// The log of the pages that are written, where one is kept.
    #[inline]
    #[must_use]
    pub fn log(&self) -> Option<&WrittenLog> {
        self.log.as_deref()
    }

    /// The number of changes before this view.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The bytes from `at` on: at most `len` of them, fewer where the region ends. The caller asks
    /// again for the rest.
    ///
    /// `hint` remembers the region for the next call. It may come from any view and is only a
    /// guess.
    ///
    /// # Errors
    /// `Wraps` when the `len` bytes end behind the last address, `Unmapped`, `Denied`,
    /// `NoDescriptor`, in this order.
    #[inline]
    pub fn translate<'v>(
        &'v self,
        hint: &mut Hint,
        at: Iova,
        len: u32,
        need: Need,
    ) -> Result<Segment<'v>, TranslateError> {
        if let Some(region) = self.tree.get(hint.0)
            && let Some(segment) = region.whole(at, len, need)
        {
            return Ok(segment);
        }
        self.translate_other(hint, at, len, need)
    }

    /// The slow path: ranges that are not wholly in the last region, or cannot be reached.
    #[inline(never)]
    fn translate_other<'v>(
        &'v self,
        hint: &mut Hint,
        at: Iova,
        len: u32,
        need: Need,
    ) -> Result<Segment<'v>, TranslateError> {
        if at.0.checked_add(u64::from(len.saturating_sub(1))).is_none() {
            return Err(TranslateError::Wraps);
        }
        let region = self.look_up(hint, at)?;
        if !region.allows(need) {
            return Err(TranslateError::Denied);
        }
        if region.base.is_null() {
            return Err(TranslateError::NoDescriptor);
        }
        Ok(Segment::new(region, at.0 - region.iova.0, len, need))
    }

    fn look_up(&self, hint: &mut Hint, at: Iova) -> Result<&Region, TranslateError> {
        match self.tree.at_or_before(at) {
            Some((place, region)) if region.contains(at) => {
                hint.0 = place;
                Ok(region)
            }
            _ => Err(TranslateError::Unmapped),
        }
    }
}

/// The region where the last address was found, for those that come next: mostly they lie in it,
/// too.
#[derive(Clone, Copy, Debug)]
pub struct Near<'v>(&'v Region);

/// A region without addresses.
static NOWHERE: Region = Region {
    iova: Iova(0),
    len: 0,
    access: Access {
        read: false,
        write: false,
    },
    base: ptr::null_mut(),
    open: 0,
    lent: None,
    id: 0,
    log: None,
};

impl DmaView {
    /// The region that `hint` names.
    #[inline]
    #[must_use]
    pub fn near(&self, hint: &Hint) -> Near<'_> {
        Near(self.tree.get(hint.0).unwrap_or(&NOWHERE))
    }
}

impl<'v> Near<'v> {
    /// The `len` bytes from `at` on, if all of them lie in this region and allow that access.
    /// `None` does not mean that they are invalid: [`DmaView::translate`] decides that.
    #[inline]
    #[must_use]
    pub fn translate(&self, at: Iova, len: u32, need: Need) -> Option<Segment<'v>> {
        self.0.whole(at, len, need)
    }
}

/// The region of the last address. Only a position: checked before use, so that one from another
/// view does no harm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint(Place);
