//! Whether a file takes direct I/O (`O_DIRECT`), and with which alignment.
//!
//! The kernel says it where it can (`statx`, `STATX_DIOALIGN`, Linux 6.1 and file systems that
//! know); elsewhere a read is tried.
//!
//! **Units coarser than 512 bytes.** A write below the unit would have to read the unit, change
//! a part and write it back, and no other write to that unit may come between. Any reactor may
//! write any block, so this would need a lock around *every* write of the medium. Buffered I/O
//! has that lock already: the page cache. So with `auto` a file whose unit is above 512 bytes is
//! opened buffered, which is right for every LBA size; `on` insists on direct I/O and then the
//! medium serves only LBAs of at least the unit ([`crate::Medium::min_lba_bytes`]). Mixing both
//! kinds of access on one file is no way out: a direct write and a cached write to the same page
//! can each lose the other.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::{Errno, pread};

use super::SECTOR;
use crate::error::MediumError;

/// The largest alignment of a buffer that bounce buffers satisfy.
pub(super) const MAX_MEMORY_ALIGN: usize = 4096;

/// Whether a file is accessed past the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where that works for every LBA size.
    #[default]
    Auto,
    /// Or else fail. LBAs may then have to be larger than 512 bytes:
    /// [`crate::Medium::min_lba_bytes`].
    On,
    /// Never.
    Off,
}

/// How the file is read and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Bypassing the page cache.
    Direct(Alignment),
    /// Through the page cache, with the reason.
    Buffered(String),
}

/// Alignment that direct I/O requires; powers of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Alignment of each buffer's address.
    pub(super) memory: usize,
    /// Alignment of each buffer's length, and of the offset in the file.
    pub(super) offset: usize,
}

/// Chooses the access mode, and sets `fd` to direct mode if that was chosen.
pub(super) fn choose(fd: &OwnedFd, path: &Path, wanted: Direct) -> Result<Access, MediumError> {
    if wanted == Direct::Off {
        return Ok(Access::Buffered("direct I/O is disabled".to_owned()));
    }
    let found = find(fd).and_then(|alignment| judge(alignment, wanted));
    match found {
        Ok(alignment) => Ok(Access::Direct(alignment)),
        Err(reason) => {
            set_direct(fd, false).map_err(|errno| MediumError::Io {
                path: path.into(),
                what: "set the mode of",
                source: errno.into(),
            })?;
            match wanted {
                Direct::On => Err(MediumError::DirectRefused {
                    path: path.into(),
                    reason,
                }),
                Direct::Auto | Direct::Off => Ok(Access::Buffered(reason)),
            }
        }
    }
}

/// Whether direct I/O with this alignment can serve the medium.
fn judge(alignment: Alignment, wanted: Direct) -> Result<Alignment, String> {
    let Alignment { memory, offset } = alignment;
    if !memory.is_power_of_two() || !offset.is_power_of_two() {
        return Err(format!(
            "its alignment is odd: memory {memory}, offset {offset}"
        ));
    }
    if memory > MAX_MEMORY_ALIGN || offset > MAX_MEMORY_ALIGN {
        return Err(format!(
            "its alignment is above a page: memory {memory}, offset {offset}"
        ));
    }
    if offset as u64 > SECTOR && wanted == Direct::Auto {
        return Err(format!(
            "its unit of direct I/O is {offset} bytes, above an LBA of 512; \
             direct = \"on\" serves LBAs of {offset} bytes alone"
        ));
    }
    // No request is smaller than a sector.
    Ok(Alignment {
        memory,
        offset: offset.max(SECTOR as usize),
    })
}

/// Sets direct mode and finds its alignment; the error says why it is not possible.
fn find(fd: &OwnedFd) -> Result<Alignment, String> {
    set_direct(fd, true).map_err(|errno| match errno {
        Errno::INVAL => "the file system does not support O_DIRECT".to_owned(),
        other => format!("O_DIRECT is refused: {other}"),
    })?;
    let said = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    match said {
        Some(said) if said.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            if said.stx_dio_mem_align == 0 || said.stx_dio_offset_align == 0 {
                return Err("the file system does not support direct I/O on this file".to_owned());
            }
            Ok(Alignment {
                memory: said.stx_dio_mem_align as usize,
                offset: said.stx_dio_offset_align as usize,
            })
        }
        _ => probe(fd),
    }
}

fn set_direct(fd: &OwnedFd, on: bool) -> Result<(), Errno> {
    let mut flags = fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, on);
    fcntl_setfl(fd, flags)
}

/// Tries reads from the start of the file: the smallest working size is the unit, also for memory
/// (a probe cannot distinguish a controller with finer memory alignment from one that copies).
fn probe(fd: &OwnedFd) -> Result<Alignment, String> {
    // Room for a page that starts at an odd multiple of the unit inside a page.
    let mut room = vec![0_u8; 4 * MAX_MEMORY_ALIGN];
    let first_page = room.as_ptr().align_offset(MAX_MEMORY_ALIGN);
    let mut last = Errno::INVAL;
    for unit in [SECTOR as usize, MAX_MEMORY_ALIGN] {
        let start = if unit == MAX_MEMORY_ALIGN {
            first_page
        } else {
            first_page + unit
        };
        match retry(|| pread(fd, &mut room[start..start + unit], 0)) {
            Ok(_) => {
                return Ok(Alignment {
                    memory: unit,
                    offset: unit,
                });
            }
            Err(errno) => last = errno,
        }
    }
    Err(format!("a direct read was refused: {last}"))
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(memory: usize, offset: usize, wanted: Direct) -> Result<(usize, usize), String> {
        judge(Alignment { memory, offset }, wanted).map(|a| (a.memory, a.offset))
    }

    #[test]
    fn units_up_to_a_sector_are_direct() {
        assert_eq!(judged(4, 512, Direct::Auto), Ok((4, 512)));
        assert_eq!(judged(512, 512, Direct::Auto), Ok((512, 512)));
        assert_eq!(
            judged(1, 1, Direct::Auto),
            Ok((1, 512)),
            "nothing below a sector is asked for"
        );
    }

    #[test]
    fn a_coarse_unit_is_buffered_unless_insisted_on() {
        assert!(
            judged(512, 4096, Direct::Auto)
                .expect_err("buffered")
                .contains("4096")
        );
        assert_eq!(judged(512, 4096, Direct::On), Ok((512, 4096)));
    }

    #[test]
    fn an_alignment_that_bounce_buffers_cannot_give_is_refused() {
        for wanted in [Direct::Auto, Direct::On] {
            assert!(judged(8192, 512, wanted).is_err());
            assert!(judged(512, 8192, wanted).is_err());
            assert!(judged(0, 512, wanted).is_err());
            assert!(judged(513, 512, wanted).is_err());
        }
    }

    #[test]
    fn a_probe_finds_the_unit_of_a_real_file() {
        let file =
            tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file beside the sources");
        file.set_len(8192).expect("sized");
        let fd = OwnedFd::from(file);
        set_direct(&fd, true).expect("the file system of the sources takes O_DIRECT");
        let probed = probe(&fd).expect("a direct read works");
        let said = statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).expect("statx");
        if said.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
            assert_eq!(probed.offset, (said.stx_dio_offset_align as usize).max(512));
        } else {
            assert!(probed.offset == 512 || probed.offset == 4096);
        }
    }
}
