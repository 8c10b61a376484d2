//! The server's end of a device, `/dev/ublkcN`, and its descriptors of requests.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::abi::{
    DATA_AT, Descriptor, DeviceInfo, MAX_BUFFER, MAX_QUEUE_DEPTH, MAX_TAGS, QUEUE_SHIFT,
    RequestFlags, TAG_SHIFT,
};

/// Bytes of a page, of which a buffer has a whole number.
const PAGE: u32 = memory::PAGE as u32;

/// The server's end of a device: one process at a time has it.
#[must_use]
pub fn path_of_device(id: u32) -> String {
    format!("/dev/ublkc{id}")
}

/// The disk of a device.
#[must_use]
pub fn path_of_disk(id: u32) -> String {
    format!("/dev/ublkb{id}")
}

/// Why a device cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    #[error(
        "it has {queues} queues of {depth} requests, and 1 to {MAX_TAGS} requests of all queues can be served; delete the device and add it again"
    )]
    Tags { queues: u16, depth: u16 },
    #[error(
        "its requests have up to {0} bytes, and {PAGE} to {MAX_BUFFER} in whole pages can be served; delete the device and add it again"
    )]
    Buffer(u32),
    #[error(
        "its requests come in a way that is not supported here ({0:#x}); delete the device and add it again"
    )]
    Features(u64),
}

fn fit(info: &DeviceInfo) -> io::Result<()> {
    check(info).map_err(|unfit| io::Error::new(io::ErrorKind::InvalidInput, unfit))
}

/// Whether a device of this kind can be served.
fn check(info: &DeviceInfo) -> Result<(), Unfit> {
    let (queues, depth) = (info.nr_hw_queues, info.queue_depth);
    let tags = queues.checked_mul(depth);
    if !tags.is_some_and(|tags| (1..=MAX_TAGS).contains(&tags)) {
        return Err(Unfit::Tags { queues, depth });
    }
    let len = info.max_io_buf_bytes;
    if !(PAGE..=MAX_BUFFER).contains(&len) || !len.is_multiple_of(PAGE) {
        return Err(Unfit::Buffer(len));
    }
    let flags = info.flags;
    let is_other = flags.supports_zero_copy()
        || flags.need_get_data()
        || flags.auto_buf_reg()
        || flags.batch_io()
        || flags.integrity();
    if is_other {
        return Err(Unfit::Features(flags.into()));
    }
    Ok(())
}

/// See the module.
#[derive(Debug)]
pub struct Device {
    file: File,
    info: DeviceInfo,
    /// The descriptors of each queue, once they are mapped.
    queues: Vec<Descriptors>,
}

/// Descriptors of the requests of a queue, which the driver writes.
#[derive(Debug)]
struct Descriptors {
    base: NonNull<u8>,
    /// Bytes that are mapped.
    len: usize,
}

// SAFETY: the value is an address and a length of memory that is mapped for as long as it lives;
// bytes are only read, by volatile loads.
unsafe impl Send for Descriptors {}

impl Device {
    /// Opens the server's end of a device, as the driver describes it.
    ///
    /// # Errors
    /// `EBUSY`: another process has it. `ENOENT`: its file is not there (yet). `EACCES`. Invalid
    /// input: it has more tags than [`MAX_TAGS`], longer requests than [`MAX_BUFFER`], or features
    /// that a [`Ring`](crate::Ring) does not have.
    pub fn open(info: &DeviceInfo) -> io::Result<Self> {
        fit(info)?;
        let path = path_of_device(info.dev_id);
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Self::with_file(file, info)
    }

    /// As [`Self::open`], of a file that is open already. Commands to one of another driver fail.
    ///
    /// # Errors
    /// Invalid input as in [`Self::open`].
    pub fn with_file(file: File, info: &DeviceInfo) -> io::Result<Self> {
        fit(info)?;
        Ok(Self {
            file,
            info: *info,
            queues: Vec::new(),
        })
    }

    /// Maps the descriptors of all queues, once.
    ///
    /// # Errors
    /// `EINVAL`: another process has mapped them since the last recovery began.
    pub(crate) fn map(&mut self) -> io::Result<()> {
        let len = usize::from(self.info.queue_depth) * Descriptor::LEN;
        let stride = (MAX_QUEUE_DEPTH * Descriptor::LEN).next_multiple_of(4096);
        let queues = (0..usize::from(self.info.nr_hw_queues))
            .map(|queue| Descriptors::map(&self.file, queue * stride, len.next_multiple_of(4096)));
        self.queues = queues.collect::<io::Result<_>>()?;
        Ok(())
    }

    /// What the driver has reported of it when it was opened.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Tags of all queues: the request with tag t of queue q has index q × `queue_depth` + t.
    #[must_use]
    pub fn tags(&self) -> u16 {
        self.info.nr_hw_queues * self.info.queue_depth
    }

    /// Queue and tag of an index.
    pub(crate) fn place(&self, index: u16) -> (u16, u16) {
        let depth = self.info.queue_depth;
        (index / depth, index % depth)
    }

    /// Reads the descriptor of a request; `None`: there is no such index.
    pub(crate) fn descriptor(&self, index: u16) -> Option<Descriptor> {
        let (queue, tag) = self.place(index);
        let queue = self.queues.get(usize::from(queue))?;
        Some(queue.read(tag))
    }

    /// Where the data of a request lie in the file, of a device with
    /// [`Features::user_copy`](crate::Features::user_copy).
    pub(crate) fn data_at(&self, index: u16) -> u64 {
        let (queue, tag) = self.place(index);
        DATA_AT + (u64::from(queue) << QUEUE_SHIFT) + (u64::from(tag) << TAG_SHIFT)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Descriptors {
    fn map(file: &File, at: usize, len: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                flags,
                file,
                at as u64,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    fn read(&self, tag: u16) -> Descriptor {
        let at = usize::from(tag) * Descriptor::LEN;
        assert!(at + Descriptor::LEN <= self.len, "a tag of the queue");
        let word = self.base.as_ptr().wrapping_add(at);
        // SAFETY: the range lies inside the mapping and is aligned to eight bytes. The driver
        // writes it before it gives the request to us, and not again before we commit.
        let (flags, sectors, start) = unsafe {
            (
                word.cast::<u32>().read_volatile(),
                word.cast::<u32>().add(1).read_volatile(),
                word.cast::<u64>().add(1).read_volatile(),
            )
        };
        Descriptor {
            flags: RequestFlags::from(flags),
            sectors,
            start,
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and nothing refers to it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::abi::Features;

    fn info(nr_hw_queues: u16, queue_depth: u16) -> DeviceInfo {
        DeviceInfo {
            nr_hw_queues,
            queue_depth,
            max_io_buf_bytes: 64 << 10,
            dev_id: u32::MAX,
            ..DeviceInfo::default()
        }
    }

    fn refusal(info: &DeviceInfo) -> String {
        let error = Device::open(info).expect_err("it is unfit");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        error.to_string()
    }

    #[test]
    fn a_device_without_tags_or_with_too_many_is_not_opened() {
        for (queues, depth) in [
            (0, 128),
            (1, 0),
            (0, 0),
            (64, 4096),
            (256, 256),
            (u16::MAX, u16::MAX),
            (1, 513),
        ] {
            let why = refusal(&info(queues, depth));
            let said = format!("it has {queues} queues of {depth} requests, and 1 to 512");
            assert!(why.starts_with(&said), "{why}");
        }
        // The most that there may be: what is missing is its file.
        for (queues, depth) in [(1, 512), (64, 8), (1, 1)] {
            let error = Device::open(&info(queues, depth)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{queues} {depth}");
        }
    }

    #[test]
    fn a_device_with_long_requests_or_parts_of_pages_is_not_opened() {
        for len in [
            0,
            512,
            4095,
            4097,
            (256 << 10) + 4096,
            1 << 31,
            !4095,
            u32::MAX,
        ] {
            let unfit = DeviceInfo {
                max_io_buf_bytes: len,
                ..info(1, 128)
            };
            let why = refusal(&unfit);
            assert!(why.contains(&format!("up to {len} bytes")), "{why}");
        }
        for len in [4096, 256 << 10] {
            let fit = DeviceInfo {
                max_io_buf_bytes: len,
                ..info(1, 128)
            };
            let error = Device::open(&fit).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{len}");
        }
    }

    #[test]
    fn a_device_whose_requests_come_otherwise_is_not_opened() {
        let none = Features::new();
        for flags in [
            none.with_supports_zero_copy(true),
            none.with_need_get_data(true),
            none.with_auto_buf_reg(true),
            none.with_batch_io(true),
            none.with_integrity(true),
        ] {
            let other = DeviceInfo {
                flags,
                ..info(1, 128)
            };
            assert!(refusal(&other).contains("delete the device"), "{flags:?}");
        }
        let usual = none.with_user_recovery(true).with_user_copy(true);
        let usual = DeviceInfo {
            flags: usual.with_zoned(true).with_quiesce(true),
            ..info(1, 128)
        };
        let error = Device::open(&usual).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// Offsets of include/uapi/linux/ublk_cmd.h: `UBLKSRV_CMD_BUF_OFFSET` 0 and a stride of
    /// `UBLK_MAX_QUEUE_DEPTH` descriptors; `UBLKSRV_IO_BUF_OFFSET` 8000_0000h with 25 bits of an
    /// offset, then 16 bits of a tag, then the queue.
    #[test]
    fn descriptors_and_data_are_where_the_header_has_them() {
        let file = File::from(memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(1 << 20).unwrap();
        for (at, bytes) in [
            (0, [1_u8; 24]),
            (199 * 24, [2; 24]),
            (4096 * 24, [3; 24]),
            (4096 * 24 + 24, [4; 24]),
        ] {
            file.write_all_at(&bytes, at).unwrap();
        }
        let mut device = Device::with_file(file, &info(2, 200)).unwrap();
        device.map().unwrap();
        assert_eq!((device.tags(), device.info().queue_depth), (400, 200));
        for (index, place, byte, data_at) in [
            (0, (0, 0), 1, 0x8000_0000),
            (199, (0, 199), 2, 0x8000_0000 + 199 * 0x200_0000),
            (200, (1, 0), 3, 0x200_8000_0000),
            (201, (1, 1), 4, 0x200_8200_0000),
        ] {
            assert_eq!(device.place(index), place);
            assert_eq!(device.data_at(index), data_at, "{index}");
            let word = u32::from_le_bytes([byte; 4]);
            let expected = Descriptor {
                flags: word.into(),
                sectors: word,
                start: u64::from_le_bytes([byte; 8]),
            };
            assert_eq!(device.descriptor(index), Some(expected), "{index}");
        }
        assert_eq!(device.descriptor(400), None);
        assert_eq!(device.descriptor(u16::MAX), None);
    }

    #[test]
    fn devices_have_the_paths_of_the_driver() {
        assert_eq!(path_of_device(7), "/dev/ublkc7");
        assert_eq!(path_of_disk(0), "/dev/ublkb0");
    }
}
