//! The mount's answers to requests of the kernel.
//!
//! The mount is a flat folder with a file for each namespace. Programs cannot create, remove or
//! resize files: namespaces change on the drive only. Opening a file with `O_TRUNC` keeps its data,
//! as with a block device.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use driver::DriverError;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request as Asked,
    TimeOrNow, WriteFlags,
};

use super::carrier::Carrier;
use super::claims::Claims;
use super::files::{File, Files, ROOT};
use super::input::Input;
use super::loss::Loss;
use super::memory::{EDGE_LEN, Pool, REQUEST_LEN};
use super::plan::{Plan, Shape};
use super::request::{Answer, Memory, Request};
use super::{errno, mount};

/// How long the kernel may cache attributes. It is notified of changes at once.
const VALID: Duration = Duration::from_secs(1);

thread_local! {
    /// The carrier of this thread. A thread serves only one mount.
    static CARRIER: Cell<Option<usize>> = const { Cell::new(None) };
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// State shared by the threads of a mount.
pub(super) struct Shared {
    pub(super) files: RwLock<Files>,
    /// Number of open files.
    pub(super) open: AtomicUsize,
    pub(super) carriers: Vec<Carrier>,
    pub(super) claims: Arc<Claims>,
    pub(super) pool: Arc<Pool>,
    pub(super) transfer_len: u32,
    pub(super) depth: u16,
    pub(super) page_cache: bool,
    pub(super) timeout: Duration,
    /// Mode bits of the files.
    pub(super) mode: u16,
    pub(super) owner: (u32, u32),
    pub(super) since: SystemTime,
    pub(super) next_carrier: AtomicUsize,
    pub(super) loss: Arc<Loss>,
    pub(super) input: Arc<Input>,
    /// Number of the kernel's FUSE connection, once known.
    pub(super) connection: OnceLock<u32>,
    /// Whether the threads that read requests have ended.
    pub(super) is_unread: AtomicBool,
}

impl Shared {
    /// After a panic in an update, each file is either present or not, so the table remains usable.
    pub(super) fn files(&self) -> std::sync::RwLockReadGuard<'_, Files> {
        self.files
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Fails all current and later requests.
    pub(super) fn give_up(&self, why: &dyn fmt::Display) {
        self.loss.declare(why);
        self.end_requests();
    }

    /// Fails all requests of a lost mount.
    pub(super) fn end_requests(&self) {
        for carrier in &self.carriers {
            carrier.give_up();
        }
    }

    /// Whether the mount exists, but no thread reads its requests.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_unread.load(Ordering::Relaxed) && self.input.is_connected()
    }

    /// Unmounts the lost mount, and aborts requests that the kernel still holds.
    pub(super) fn end(&self) {
        if self.input.is_connected()
            && let Err(error) = mount::end(self.loss.dir(), self.connection.get().copied())
        {
            let dir = self.loss.dir().display();
            tracing::warn!("{dir}: the lost mount cannot be unmounted: {error}");
        }
        self.loss.set_ended();
    }

    fn carrier(&self) -> &Carrier {
        let index = CARRIER.get().unwrap_or_else(|| {
            let index = self.next_carrier.fetch_add(1, Ordering::Relaxed) % self.carriers.len();
            CARRIER.set(Some(index));
            index
        });
        &self.carriers[index]
    }

    fn shape(&self, file: &File) -> Shape {
        Shape {
            block_len: file.found.namespace.block_len,
            transfer_len: self.transfer_len,
        }
    }

    fn attributes(&self, file: &File) -> FileAttr {
        FileAttr {
            ino: INodeNo(file.inode),
            size: file.len(),
            blocks: file.len() / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind: FileType::RegularFile,
            perm: if file.found.read_only {
                self.mode & !0o222
            } else {
                self.mode
            },
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: file.found.namespace.block_len.max(4096),
            flags: 0,
        }
    }

    fn root(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo(ROOT),
            size: 0,
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind: FileType::Directory,
            // a user who may read a file may search the folder
            perm: self.mode | (self.mode & 0o444) >> 2,
            nlink: 2,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Submits a request for a file. `data` is the data of a write. A request that changes blocks
    /// waits for conflicting ones.
    fn carry(&self, file: &File, plan: Plan, answer: Answer, data: Option<&[u8]>) {
        let mut claim = None;
        if plan.changes_blocks() {
            let (blocks, exclusive) = (plan.blocks.clone(), plan.exclusive);
            claim = self
                .claims
                .claim(file.inode, blocks, exclusive, self.timeout);
            if claim.is_none() {
                tracing::debug!("timeout: other requests keep writing to the same blocks");
                return answer.fail(Errno::EIO);
            }
        }
        let memory = match self.memory(file, &plan, data) {
            Ok(memory) => memory,
            Err(error) => {
                tracing::debug!("no memory for a request: {error}");
                return answer.fail(errno::of_error(&error));
            }
        };
        let request = Request {
            namespace: file.found.namespace,
            plan,
            answer,
            memory,
            claim,
            since: Instant::now(),
        };
        SCRATCH.with_borrow_mut(|scratch| self.carrier().carry(request, scratch));
    }

    /// Allocates the memory of a plan, with `data` in it.
    fn memory(&self, file: &File, plan: &Plan, data: Option<&[u8]>) -> Result<Memory, DriverError> {
        let mut memory = Memory::default();
        if plan.moves_data() {
            let blocks = plan.blocks.end - plan.blocks.start;
            let len = blocks.saturating_mul(file.found.namespace.block_len.into());
            let buffer = self.pool.take(usize::try_from(len).unwrap_or(usize::MAX))?;
            if let Some(data) = data {
                buffer.write_from(plan.skip, data);
            }
            memory.data = Some(buffer);
        }
        if plan.exclusive {
            memory.edges = Some(self.pool.take(2 * EDGE_LEN)?);
        }
        Ok(memory)
    }
}

/// The file system interface of the mount.
pub(super) struct Mounted(pub(super) Arc<Shared>);

impl Mounted {
    fn file(&self, inode: INodeNo) -> Result<File, Errno> {
        // the namespace is detached, but its file is still open
        self.0.files().get(inode.0).ok_or(Errno::ENODEV)
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _: &Asked, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without these features does not need them. The first allows parallel requests
        // for one file by io_uring and aio.
        for wish in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(wish);
        }
        let request_len = self.0.transfer_len.clamp(4096, REQUEST_LEN);
        let _ = config.set_max_write(request_len);
        let _ = config.set_max_readahead(request_len.min(128 << 10));
        let carriers = u16::try_from(self.0.carriers.len()).unwrap_or(u16::MAX);
        let _ = config.set_max_background(self.0.depth.saturating_mul(carriers));
        Ok(())
    }

    fn lookup(&self, _: &Asked, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let file = name.to_str().and_then(|name| self.0.files().named(name));
        match file.filter(|_| parent.0 == ROOT) {
            Some(file) => reply.entry(&VALID, &self.0.attributes(&file), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Asked, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == ROOT {
            return reply.attr(&VALID, &self.0.root());
        }
        match self.file(ino) {
            Ok(file) => reply.attr(&VALID, &self.0.attributes(&file)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Asked,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // `O_TRUNC` sends size 0 without a handle, ftruncate(2) with one
        let is_open = size == Some(0) && fh.is_none();
        if size.is_some_and(|size| size != file.len()) && !is_open {
            return reply.error(Errno::EINVAL);
        }
        reply.attr(&VALID, &self.0.attributes(&file));
    }

    fn open(&self, _: &Asked, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        // As on a read-only file system: the permissions alone would not stop the owner and root.
        if file.found.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let flags = if self.0.page_cache {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        };
        self.0.open.fetch_add(1, Ordering::Relaxed);
        reply.opened(FileHandle(0), flags);
    }

    fn release(
        &self,
        _: &Asked,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        reply.ok();
    }

    fn read(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        let left = file.len().saturating_sub(offset);
        let len = u32::try_from(left).map_or(size, |left| left.min(size));
        if len == 0 {
            return reply.data(&[]);
        }
        let plan = self.0.shape(&file).read(offset, len);
        self.0.carry(&file, plan, Answer::Data(reply, len), None);
    }

    fn write(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        let left = file.len().saturating_sub(offset);
        let fits = usize::try_from(left).map_or(data.len(), |left| left.min(data.len()));
        let data = &data[..fits];
        if data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let len = u32::try_from(data.len()).expect("a request of the kernel has 16 MiB at most");
        // O_SYNC includes the bit of O_DSYNC
        let fua = flags.0 & DSYNC != 0;
        let plan = self.0.shape(&file).write(offset, len, fua);
        let answer = Answer::Written(reply, len);
        self.0.carry(&file, plan, answer, Some(data));
    }

    fn fsync(&self, _: &Asked, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(ino) {
            Ok(file) => self
                .0
                .carry(&file, Plan::flush(), Answer::Done(reply), None),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        let keeps_size = mode & KEEP_SIZE != 0;
        let end = offset.saturating_add(length);
        if end > file.len() && !keeps_size {
            return reply.error(Errno::ENOSPC);
        }
        match mode & !KEEP_SIZE {
            // All blocks of the drive are usable, or the write fails.
            0 => reply.ok(),
            PUNCH_HOLE | ZERO_RANGE => {
                let len = end.min(file.len()).saturating_sub(offset);
                if len == 0 {
                    return reply.ok();
                }
                let plan = self.0.shape(&file).zero(offset, len);
                self.0.carry(&file, plan, Answer::Done(reply), None);
            }
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn readdir(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino.0 != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [(ROOT, "."), (ROOT, "..")];
        let dots = dots.map(|(inode, name)| (inode, FileType::Directory, name.to_owned()));
        let files = self.0.files();
        let files = files.iter();
        let files = files.map(|file| (file.inode, FileType::RegularFile, file.name()));
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        // an entry's offset is the index of the next one
        for (next, entry) in (1..).zip(dots.into_iter().chain(files)).skip(skipped) {
            let (inode, kind, name) = entry;
            if reply.add(INodeNo(inode), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Asked, _: INodeNo, reply: ReplyStatfs) {
        let files = self.0.files();
        let blocks = files.iter().map(|file| file.len() / 4096).sum();
        let count = files.iter().count() as u64;
        reply.statfs(blocks, 0, 0, count, 0, 4096, 255, 4096);
    }
}

/// `O_DSYNC` as the kernel passes it (asm-generic/fcntl.h; the same on x86-64 and aarch64).
const DSYNC: i32 = 0o10000;
/// Modes of fallocate(2) (linux/falloc.h).
const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const ZERO_RANGE: i32 = 0x10;
