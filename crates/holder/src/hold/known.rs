//! What a host has set up at its server, as the holder saw it: what another process of the server
//! must know to go on with the host.
//!
//! No part of it is NVMe's. It follows from requests that the server has granted:
//! - the host's memory, by address, with one descriptor for each file;
//! - its eventfds and masks, as the requests that set them, of which the last for each interrupt
//!   counts;
//! - what the server itself has given to be kept.
//!
//! Every table has a limit, beyond which the host's request is refused before the server sees it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

use arrayvec::ArrayVec;
use rustix::fs::{fcntl_getfl, fstat};
use vfio_user::message::{DmaMap, DmaUnmap, DmaUnmapFlags, IrqAction, IrqData, SetIrqs};
use vfio_user::{Command, MAX_FDS};

/// Ranges of a host's memory at most; a server takes as many.
const MAX_MAPS: usize = 65_535;
/// Requests that set interrupts and are remembered.
const MAX_IRQS: usize = 4096;

/// Descriptors of a request.
pub(super) type Fds = ArrayVec<OwnedFd, MAX_FDS>;

#[derive(Debug)]
struct Mapped {
    body: Vec<u8>,
    file: Option<Rc<OwnedFd>>,
}

/// Which interrupts a request sets, and what of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IrqKey {
    index: u32,
    start: u32,
    count: u32,
    what: IrqWhat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IrqWhat {
    /// The eventfds of an action.
    EventFds(IrqAction),
    /// Whether they are masked.
    Mask,
}

impl IrqKey {
    /// Whether what this sets replaces all that `other` has set.
    fn replaces(&self, other: &IrqKey) -> bool {
        let end = |key: &IrqKey| u64::from(key.start) + u64::from(key.count);
        (self.index, self.what) == (other.index, other.what)
            && self.start <= other.start
            && end(self) >= end(other)
    }
}

#[derive(Debug)]
struct Irq {
    key: IrqKey,
    body: Vec<u8>,
    fds: Fds,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Known {
    maps: BTreeMap<u64, Mapped>,
    /// By device, inode and mode of access: hosts share one file in many ranges.
    files: BTreeMap<(u64, u64, u32), Weak<OwnedFd>>,
    irqs: Vec<Irq>,
    /// The descriptors with which another process can go on, once there is a host.
    pub(super) kept: Option<[OwnedFd; 2]>,
    /// The host was sent the descriptor of the doorbells.
    pub(super) doorbells_sent: bool,
}

/// One message with which another process learns of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lesson {
    /// The range of memory at this address.
    Map(u64),
    /// The request that sets interrupts with this number.
    Irq(usize),
}

impl Known {
    /// Whether there is room for what a request sets up.
    pub(super) fn has_room(&self, command: Command) -> bool {
        match command {
            Command::DMA_MAP => self.maps.len() < MAX_MAPS,
            Command::DEVICE_SET_IRQS => self.irqs.len() < MAX_IRQS,
            _ => true,
        }
    }

    /// Remembers a request that the server has granted.
    pub(super) fn learn(&mut self, command: Command, body: Vec<u8>, fds: Fds) {
        match command {
            Command::DMA_MAP => self.map(body, fds),
            Command::DMA_UNMAP => self.unmap(&body),
            Command::DEVICE_SET_IRQS => self.set_irqs(body, fds),
            _ => {}
        }
    }

    fn map(&mut self, body: Vec<u8>, fds: Fds) {
        let Ok(request) = DmaMap::parse(&body) else {
            return;
        };
        let file = fds.into_iter().next().map(|fd| self.file(fd));
        self.maps.insert(request.iova, Mapped { body, file });
    }

    /// The one descriptor of a file.
    fn file(&mut self, fd: OwnedFd) -> Rc<OwnedFd> {
        let (Ok(stat), Ok(flags)) = (fstat(&fd), fcntl_getfl(&fd)) else {
            return Rc::new(fd);
        };
        let key = (stat.st_dev, stat.st_ino, flags.bits());
        if let Some(file) = self.files.get(&key).and_then(Weak::upgrade) {
            return file;
        }
        let file = Rc::new(fd);
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(key, Rc::downgrade(&file));
        file
    }

    fn unmap(&mut self, body: &[u8]) {
        let Ok(request) = DmaUnmap::parse(body) else {
            return;
        };
        if request.flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            return self.maps.clear();
        }
        // A server splits no range, so each is within it or outside.
        let end = request.iova.saturating_add(request.size.saturating_sub(1));
        let within = self.maps.range(request.iova..=end).map(|(iova, _)| *iova);
        for iova in within.collect::<Vec<_>>() {
            self.maps.remove(&iova);
        }
    }

    fn set_irqs(&mut self, body: Vec<u8>, fds: Fds) {
        let Ok(request) = SetIrqs::parse(&body) else {
            return;
        };
        let Ok((action, data)) = request.operation() else {
            return;
        };
        let (index, start, count) = (request.index, request.start, request.count);
        let what = match (action, data) {
            (IrqAction::Trigger, IrqData::None) if count == 0 => {
                return self.irqs.retain(|irq| irq.key.index != index);
            }
            // They set nothing.
            (IrqAction::Trigger, IrqData::None | IrqData::Bool(_)) => return,
            (_, IrqData::EventFd) => IrqWhat::EventFds(action),
            (IrqAction::Mask | IrqAction::Unmask, _) => IrqWhat::Mask,
        };
        let key = IrqKey {
            index,
            start,
            count,
            what,
        };
        // One with booleans may leave some of its range as it was.
        if !matches!(data, IrqData::Bool(_)) {
            self.irqs.retain(|irq| !key.replaces(&irq.key));
        } else {
            let same = |irq: &Irq| irq.key == key && irq.body == body;
            self.irqs.retain(|irq| !same(irq));
        }
        self.irqs.push(Irq { key, body, fds });
    }

    /// The messages with which another process learns of the host, the last one first.
    pub(super) fn lessons(&self) -> Vec<Lesson> {
        let maps = self.maps.keys().map(|iova| Lesson::Map(*iova));
        let irqs = (0..self.irqs.len()).map(Lesson::Irq);
        let mut lessons: Vec<_> = maps.chain(irqs).collect();
        lessons.reverse();
        lessons
    }

    /// The command, body and descriptors of such a message.
    pub(super) fn lesson(
        &self,
        lesson: Lesson,
    ) -> Option<(Command, &[u8], ArrayVec<BorrowedFd<'_>, MAX_FDS>)> {
        match lesson {
            Lesson::Map(iova) => {
                let mapped = self.maps.get(&iova)?;
                let fds = mapped.file.iter().map(|file| file.as_fd()).collect();
                Some((Command::DMA_MAP, &mapped.body, fds))
            }
            Lesson::Irq(at) => {
                let irq = self.irqs.get(at)?;
                let fds = irq.fds.iter().map(AsFd::as_fd).collect();
                Some((Command::DEVICE_SET_IRQS, &irq.body, fds))
            }
        }
    }
}
