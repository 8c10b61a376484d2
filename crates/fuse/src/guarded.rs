//! A wrapper of the mount for its reader threads: a panic during a request ends the mount, not the
//! thread.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, INodeNo, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::filesystem::Mounted;
use super::loss;

/// A mount whose threads survive panics.
pub(super) struct Guarded(pub(super) Mounted);

/// The requests, by name and arguments.
macro_rules! guarded {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        fn $name(&self, asked: &Request, $($arg: $kind),*) {
            // A dropped reply answers with EIO.
            let answer = || {
                #[cfg(feature = "testing")]
                crate::testing::strike();
                self.0.$name(asked, $($arg),*);
            };
            if let Err(panicked) = loss::caught(answer) {
                self.0.0.give_up(&panicked);
            }
        }
    )*};
}

/// Requests that would change which files there are, by name and kinds of arguments. The files are
/// the namespaces of the drive; without an answer they would not be implemented (ENOSYS).
macro_rules! refused {
    ($($name:ident($($kind:ty),*) -> $reply:ty;)*) => {$(
        fn $name(&self, _: &Request, $(_: $kind,)* reply: $reply) {
            reply.error(Errno::EPERM);
        }
    )*};
}

impl Filesystem for Guarded {
    fn init(&mut self, asked: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.0.init(asked, config)
    }

    fn destroy(&mut self) {
        self.0.0.is_unread.store(true, Ordering::Relaxed);
    }

    guarded! {
        lookup(parent: INodeNo, name: &OsStr, reply: ReplyEntry);
        getattr(ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr);
        setattr(ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>, fh: Option<FileHandle>,
            crtime: Option<SystemTime>, chgtime: Option<SystemTime>, bkuptime: Option<SystemTime>,
            flags: Option<BsdFileFlags>, reply: ReplyAttr);
        open(ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        release(ino: INodeNo, fh: FileHandle, flags: OpenFlags, owner: Option<LockOwner>, flush: bool, reply: ReplyEmpty);
        read(ino: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags, owner: Option<LockOwner>,
            reply: ReplyData);
        write(ino: INodeNo, fh: FileHandle, offset: u64, data: &[u8], write_flags: WriteFlags, flags: OpenFlags,
            owner: Option<LockOwner>, reply: ReplyWrite);
        fsync(ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);
        fallocate(ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty);
        readdir(ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory);
        statfs(ino: INodeNo, reply: ReplyStatfs);
    }

    refused! {
        mknod(INodeNo, &OsStr, u32, u32, u32) -> ReplyEntry;
        mkdir(INodeNo, &OsStr, u32, u32) -> ReplyEntry;
        unlink(INodeNo, &OsStr) -> ReplyEmpty;
        rmdir(INodeNo, &OsStr) -> ReplyEmpty;
        symlink(INodeNo, &OsStr, &Path) -> ReplyEntry;
        rename(INodeNo, &OsStr, INodeNo, &OsStr, RenameFlags) -> ReplyEmpty;
        link(INodeNo, INodeNo, &OsStr) -> ReplyEntry;
        create(INodeNo, &OsStr, u32, u32, i32) -> ReplyCreate;
    }
}
