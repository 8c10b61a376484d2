//! State that must outlive the serving process: a memfd with a version and areas of plain data.
//!
//! A serving process keeps its queues' heads and tails, its registers and the commands in flight
//! here and not in its own memory, so that another holder of the descriptor can continue where it
//! ended. The crate that uses this module defines the areas and their contents, with its own
//! version in the header.
//!
//! Layout, little-endian: a page with `magic` (8 bytes), layout version (u32), the user's format
//! version (u32), length of the file (u64), number of areas (u64), then for each area its offset
//! and length (u64 each); the areas follow, each on a page boundary. An area holds one head, then
//! slots from the next multiple of 64.

use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::{io, slice};

use rustix::fs::{MemfdFlags, SealFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::own::map::OwnMap;

/// First bytes of every state file.
pub const MAGIC: [u8; 8] = *b"nvmiraSF";
/// Version of the layout that this module writes.
pub const LAYOUT_VERSION: u32 = 1;
/// Bytes of the header's fixed part.
const HEADER_LEN: usize = 32;
/// Where the header has the user's format version.
const FORMAT_VERSION_AT: u64 = 12;
/// Bytes of a page: areas start at one.
const PAGE_LEN: usize = 4096;
/// Alignment of the slots in an area, and the largest alignment of a head or slot.
const SLOT_ALIGN: usize = 64;
/// Most areas: their table fits the header's page.
pub const MAX_AREAS: usize = (PAGE_LEN - HEADER_LEN) / 16;

/// Why an area cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// There is no such area.
    #[error("state area {0} does not exist")]
    Missing(usize),
    /// It is in use.
    #[error("state area {0} is in use")]
    Taken(usize),
    /// The contents are larger than the area.
    #[error("{need} bytes do not fit into the {have} bytes of state area {area}")]
    TooLarge {
        /// The area.
        area: usize,
        /// Bytes asked for.
        need: usize,
        /// Bytes it has.
        have: usize,
    },
}

/// Why a file is no state file that can be continued from.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read or mapped.
    #[error("cannot read the state file: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a state file does.
    #[error("this is no state file")]
    Magic,
    /// Another version of the layout.
    #[error(
        "the state file has layout version {found}, and this program reads version {LAYOUT_VERSION}"
    )]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// Its length is not what its header says.
    #[error("the state file has {have} bytes, but its header says {said}")]
    Length {
        /// Bytes that it has.
        have: u64,
        /// Bytes that its header says.
        said: u64,
    },
    /// Another process could shorten it under the mapping, which would end this one.
    #[error("the state file can be shortened: it has no seals")]
    Unsealed,
    /// An area is not where one can be.
    #[error("area {area} of the state file is outside it, or overlaps another one")]
    Area {
        /// The area.
        area: usize,
    },
}

/// A memfd with areas, each of which one owner may take at a time.
#[derive(Debug)]
pub struct StateFile {
    fd: OwnedFd,
    /// Of the user of the areas.
    format_version: AtomicU32,
    map: OwnMap,
    areas: Vec<AreaPlace>,
}

#[derive(Debug)]
struct AreaPlace {
    offset: usize,
    len: usize,
    taken: AtomicBool,
}

impl StateFile {
    /// A new file, named `name` in `/proc`, with areas of the given lengths in bytes. It is sparse:
    /// an area costs memory as it is used.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` for more than [`MAX_AREAS`] areas.
    pub fn create(name: &str, format_version: u32, areas: &[usize]) -> io::Result<Arc<Self>> {
        if areas.len() > MAX_AREAS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut end = PAGE_LEN;
        let mut places = Vec::with_capacity(areas.len());
        for &len in areas {
            let len = len.max(1).next_multiple_of(PAGE_LEN);
            places.push(AreaPlace {
                offset: end,
                len,
                taken: AtomicBool::new(false),
            });
            end += len;
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&fd, end as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = OwnMap::shared(&fd, end)?;
        let file = StateFile {
            fd,
            format_version: AtomicU32::new(format_version),
            map,
            areas: places,
        };
        file.write_header()?;
        Ok(Arc::new(file))
    }

    /// A file that another process has made, which has ended. Every area can be continued with
    /// ([`StateFile::adopt`]). The contents of the areas are not checked.
    ///
    /// # Errors
    /// See [`OpenError`]: nothing in the file is trusted.
    pub fn open(fd: OwnedFd) -> Result<Arc<Self>, OpenError> {
        let mut header = [0; PAGE_LEN];
        let read = rustix::io::pread(&fd, &mut header, 0).map_err(io::Error::from)?;
        let word = |at: usize| {
            let bytes = header[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        let [layout, format_version] = [word(8) as u32, (word(8) >> 32) as u32];
        if read < PAGE_LEN || header[..8] != MAGIC {
            return Err(OpenError::Magic);
        }
        if layout != LAYOUT_VERSION {
            return Err(OpenError::Version { found: layout });
        }
        let have = rustix::fs::fstat(&fd).map_err(io::Error::from)?.st_size as u64;
        let (said, count) = (word(16), word(24));
        if have != said {
            return Err(OpenError::Length { have, said });
        }
        let seals = rustix::fs::fcntl_get_seals(&fd);
        if !seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::GROW)) {
            return Err(OpenError::Unsealed);
        }
        if count > MAX_AREAS as u64 {
            return Err(OpenError::Area { area: MAX_AREAS });
        }
        let mut areas = Vec::with_capacity(count as usize);
        let mut end = PAGE_LEN as u64;
        for area in 0..count as usize {
            let at = HEADER_LEN + 16 * area;
            let (offset, len) = (word(at), word(at + 8));
            let behind = offset.checked_add(len).filter(|behind| *behind <= said);
            let whole = (offset | len) % PAGE_LEN as u64 == 0;
            let (Some(behind), true) = (behind, whole && offset >= end) else {
                return Err(OpenError::Area { area });
            };
            end = behind;
            areas.push(AreaPlace {
                offset: offset as usize,
                len: len as usize,
                taken: AtomicBool::new(false),
            });
        }
        let map = OwnMap::shared(&fd, said as usize)?;
        Ok(Arc::new(StateFile {
            fd,
            format_version: AtomicU32::new(format_version),
            map,
            areas,
        }))
    }

    /// The version of what the areas hold.
    #[must_use]
    pub fn format_version(&self) -> u32 {
        self.format_version.load(Ordering::Relaxed)
    }

    /// Replaces the version of what the areas hold, which a reader of the former version has
    /// brought into another form.
    ///
    /// # Errors
    /// The system's.
    pub fn set_format_version(&self, version: u32) -> io::Result<()> {
        rustix::io::pwrite(&self.fd, &version.to_le_bytes(), FORMAT_VERSION_AT)?;
        self.format_version.store(version, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> usize {
        self.map.len()
    }

    /// Contents of the file, for another machine: its pages that are not all zero, with their
    /// offsets. No area may change meanwhile.
    ///
    /// # Errors
    /// The system's.
    pub fn pages(&self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut pages = Vec::new();
        for offset in (0..self.map.len() as u64).step_by(PAGE_LEN) {
            let mut page = vec![0; PAGE_LEN];
            let read = rustix::io::pread(&self.fd, &mut page, offset)?;
            if read != PAGE_LEN {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if page.iter().any(|byte| *byte != 0) {
                pages.push((offset, page));
            }
        }
        Ok(pages)
    }

    /// A file of `len` bytes with these pages, which [`StateFile::pages`] gave on another machine.
    /// Their contents are checked as by [`StateFile::open`].
    ///
    /// # Errors
    /// See [`OpenError`]; `InvalidInput` for a page that is none of the file.
    pub fn from_pages<'a>(
        name: &str,
        len: u64,
        pages: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<Arc<Self>, OpenError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(io::Error::from)?;
        rustix::fs::ftruncate(&fd, len).map_err(io::Error::from)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(io::Error::from)?;
        for (offset, page) in pages {
            let behind = offset.checked_add(PAGE_LEN as u64);
            let inside = behind.is_some_and(|behind| behind <= len);
            if page.len() != PAGE_LEN || offset % PAGE_LEN as u64 != 0 || !inside {
                return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
            }
            let wrote = rustix::io::pwrite(&fd, page, offset).map_err(io::Error::from)?;
            if wrote != PAGE_LEN {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
        }
        Self::open(fd)
    }

    /// The lengths of the areas, in bytes.
    pub fn area_lens(&self) -> impl Iterator<Item = usize> {
        self.areas.iter().map(|area| area.len)
    }

    fn write_header(&self) -> io::Result<()> {
        let mut header = Vec::with_capacity(PAGE_LEN);
        header.extend(MAGIC);
        header.extend(LAYOUT_VERSION.to_le_bytes());
        header.extend(self.format_version().to_le_bytes());
        header.extend((self.map.len() as u64).to_le_bytes());
        header.extend((self.areas.len() as u64).to_le_bytes());
        for area in &self.areas {
            header.extend((area.offset as u64).to_le_bytes());
            header.extend((area.len as u64).to_le_bytes());
        }
        rustix::io::pwrite(&self.fd, &header, 0)?;
        Ok(())
    }

    /// The descriptor, for the process that keeps the state.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes an area, all zero, as one head and `slots` slots. Dropping the [`Area`] releases it.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn take<H: Plain, S: Plain>(
        self: &Arc<Self>,
        area: usize,
        slots: usize,
    ) -> Result<Area<H, S>, StateError> {
        let taken = self.adopt(area, slots)?;
        let AreaPlace { offset, len, .. } = self.areas[area];
        // what a former owner left goes back to the system; where that fails it is overwritten
        if self.map.remove(offset, len).is_err() {
            let first = self.map.at(offset, len);
            // SAFETY: the area belongs to `taken` alone, which nothing refers to yet.
            unsafe { first.write_bytes(0, len) };
        }
        Ok(taken)
    }

    /// Takes an area as it is, to continue with what its last owner left. Dropping the [`Area`]
    /// releases it.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn adopt<H: Plain, S: Plain>(
        self: &Arc<Self>,
        area: usize,
        slots: usize,
    ) -> Result<Area<H, S>, StateError> {
        const { assert!(align_of::<H>() <= SLOT_ALIGN && align_of::<S>() <= SLOT_ALIGN) };
        let place = self.areas.get(area).ok_or(StateError::Missing(area))?;
        let slots_at = size_of::<H>().next_multiple_of(SLOT_ALIGN);
        let need = slots
            .saturating_mul(size_of::<S>())
            .saturating_add(slots_at);
        if need > place.len {
            return Err(StateError::TooLarge {
                area,
                need,
                have: place.len,
            });
        }
        // Acquire: pairs with the Release of the last owner's drop; its writes are over.
        if place.taken.swap(true, Ordering::Acquire) {
            return Err(StateError::Taken(area));
        }
        let heads = self.map.at(place.offset, size_of::<H>()).cast();
        let slots_len = slots * size_of::<S>();
        let first = self.map.at(place.offset + slots_at, slots_len).cast();
        Ok(Area {
            head: NonNull::new(heads).expect("a mapping is not at address 0"),
            first: NonNull::new(first).expect("a mapping is not at address 0"),
            slots,
            file: self.clone(),
            area,
        })
    }
}

/// Stores before this are before stores after it, as a process that is killed leaves them. No
/// instruction: the processor keeps its own program order for memory that outlives the process.
#[inline(always)]
pub fn ordered() {
    compiler_fence(Ordering::SeqCst);
    #[cfg(feature = "crash")]
    super::crash::point();
}

/// Data that may lie in a state file: any bytes are a value, and a value has no padding.
pub trait Plain: FromBytes + IntoBytes + KnownLayout + Immutable {}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable> Plain for T {}

/// A taken area: a head and slots, which only its owner touches.
#[derive(Debug)]
pub struct Area<H: Plain, S: Plain> {
    /// Found once: lanes look here several times a command.
    head: NonNull<H>,
    first: NonNull<S>,
    slots: usize,
    /// Keeps the mapping that both point into.
    file: Arc<StateFile>,
    area: usize,
}

// SAFETY: the bytes pointed to belong to this value alone, as those of a box would, and `file` is
// `Send`.
unsafe impl<H: Plain + Send, S: Plain + Send> Send for Area<H, S> {}
// SAFETY: shared references only read the bytes, as those to a box would, and `file` is `Sync`.
unsafe impl<H: Plain + Sync, S: Plain + Sync> Sync for Area<H, S> {}

impl<H: Plain, S: Plain> Area<H, S> {
    /// The head and the slots, to be changed.
    #[inline]
    pub fn parts(&mut self) -> (&mut H, &mut [S]) {
        // SAFETY: `take` has checked that both fit and that no other value has the area; head
        // and slots do not overlap, both are aligned, and any bytes are a value. Nothing but this
        // value touches the area while it lives: the memfd is mapped once, and another holder of
        // the descriptor reads it only after this process has ended.
        unsafe {
            (
                self.head.as_mut(),
                slice::from_raw_parts_mut(self.first.as_ptr(), self.slots),
            )
        }
    }

    /// The head.
    #[inline]
    #[must_use]
    pub fn head(&self) -> &H {
        // SAFETY: as in `parts`.
        unsafe { self.head.as_ref() }
    }

    /// The slots.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> &[S] {
        // SAFETY: as in `parts`.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.slots) }
    }
}

impl<H: Plain, S: Plain> Drop for Area<H, S> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next owner's swap.
        self.file.areas[self.area]
            .taken
            .store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Arc<StateFile> {
        StateFile::create("test", 7, &[100, 8192]).unwrap()
    }

    #[test]
    fn the_header_says_what_lies_where() {
        let file = file();
        let mut header = [0; 64];
        rustix::io::pread(file.fd(), &mut header, 0).unwrap();
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        assert_eq!(&header[..8], b"nvmiraSF");
        assert_eq!(&header[8..16], &[1, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!([word(16), word(24)], [4096 * 4, 2]);
        assert_eq!(
            [word(32), word(40), word(48), word(56)],
            [4096, 4096, 8192, 8192]
        );
    }

    #[test]
    fn its_pages_make_the_same_file_again() {
        let file = file();
        let mut area = file.take::<u32, u64>(1, 4).unwrap();
        area.parts().1[3] = 9;
        let pages = file.pages().unwrap();
        assert_eq!(pages.len(), 2, "the header, and the page that is not zero");
        let len = file.file_len() as u64;
        let given = || pages.iter().map(|(at, page)| (*at, page.as_slice()));
        let copy = StateFile::from_pages("copy", len, given()).unwrap();
        assert_eq!(copy.format_version(), 7);
        assert_eq!(copy.adopt::<u32, u64>(1, 4).unwrap().slots()[3], 9);
        for wrong in [len, 1, u64::MAX - 1, 0_u64.wrapping_sub(4096)] {
            let page: &[u8] = &[1; 4096];
            let made = StateFile::from_pages("copy", len, given().chain([(wrong, page)]));
            assert!(made.is_err(), "{wrong:#x}");
        }
        assert!(StateFile::from_pages("copy", len + 4096, given()).is_err());
        assert!(StateFile::from_pages("copy", len, []).is_err());
    }

    #[test]
    fn an_area_has_one_owner_and_is_zero_for_the_next() {
        let file = file();
        let mut area = file.take::<u32, u64>(1, 4).unwrap();
        let (head, slots) = area.parts();
        *head = 5;
        slots.fill(6);
        let mut seen = [0; 72];
        rustix::io::pread(file.fd(), &mut seen, 8192).unwrap();
        assert_eq!((seen[0], seen[64]), (5, 6));
        let second = file.take::<u32, u64>(1, 4).map(drop);
        assert_eq!(second, Err(StateError::Taken(1)));
        drop(area);
        let area = file.take::<u32, u64>(1, 4).unwrap();
        assert_eq!((area.head(), area.slots()), (&0, &[0; 4][..]));
    }

    /// The file as another process has it.
    fn reopened(file: &StateFile) -> Result<Arc<StateFile>, OpenError> {
        StateFile::open(file.fd().try_clone_to_owned().unwrap())
    }

    #[test]
    fn an_opened_file_has_what_the_last_owner_left() {
        let file = file();
        let mut area = file.take::<u32, u64>(1, 4).unwrap();
        let (head, slots) = area.parts();
        *head = 5;
        slots.fill(6);
        drop(area);
        let file = reopened(&file).unwrap();
        assert_eq!(file.format_version(), 7);
        let area = file.adopt::<u32, u64>(1, 4).unwrap();
        assert_eq!((area.head(), area.slots()), (&5, &[6; 4][..]));
        let second = file.adopt::<u32, u64>(1, 4).map(drop);
        assert_eq!(second, Err(StateError::Taken(1)));
        let missing = file.adopt::<u32, u64>(2, 4).map(drop);
        assert_eq!(missing, Err(StateError::Missing(2)));
    }

    #[test]
    fn what_is_no_state_file_is_refused() {
        /// The error of a file with these bytes at that place of its header.
        fn said(at: u64, bytes: &[u8]) -> String {
            let file = file();
            rustix::io::pwrite(file.fd(), bytes, at).unwrap();
            reopened(&file).map(drop).unwrap_err().to_string()
        }
        assert_eq!(said(0, b"x"), "this is no state file");
        assert_eq!(
            said(8, &[2]),
            "the state file has layout version 2, and this program reads version 1"
        );
        let length = "the state file has 16384 bytes, but its header says 16385";
        assert_eq!(said(16, &[1]), length);
        let area =
            |area| format!("area {area} of the state file is outside it, or overlaps another one");
        assert_eq!(said(24, &[0xff; 8]), area(MAX_AREAS));
        // in the header, in the middle of a page, over another one, behind the end
        assert_eq!(said(32, &[0, 0]), area(0));
        assert_eq!(said(32, &[1, 16]), area(0));
        assert_eq!(said(48, &[0, 16]), area(1));
        assert_eq!(said(56, &[0, 48]), area(1));
        assert_eq!(said(56, &[0xff; 8]), area(1));

        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(StateFile::open(fd), Err(OpenError::Magic)));
        // a copy without seals
        let file = file();
        let mut bytes = vec![0; 16384];
        rustix::io::pread(file.fd(), &mut bytes, 0).unwrap();
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&fd, &bytes, 0).unwrap();
        assert!(matches!(StateFile::open(fd), Err(OpenError::Unsealed)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let file = file();
        let too_large = file.take::<u32, u64>(0, 505).map(drop);
        assert!(matches!(
            too_large,
            Err(StateError::TooLarge { need: 4104, .. })
        ));
        assert!(file.take::<u32, u64>(0, 504).is_ok());
        let missing = file.take::<u32, u64>(2, 0).map(drop);
        assert_eq!(missing, Err(StateError::Missing(2)));
        assert!(file.take::<u32, u64>(0, usize::MAX).is_err());
    }
}
