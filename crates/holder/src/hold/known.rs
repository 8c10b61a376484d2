//! Set-up of a host at its server, as the holder saw it: the state that another process of the
//! server needs to go on with the host.
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
/// Their length in bytes, above which no more are taken: one for all interrupts of a device with
/// 2,048 of them has 2 KiB.
const MAX_IRQS_LEN: usize = 16 << 20;

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
    /// Whether requests of this kind set up the host.
    pub(super) fn learns(command: Command) -> bool {
        matches!(
            command,
            Command::DMA_MAP | Command::DMA_UNMAP | Command::DEVICE_SET_IRQS
        )
    }

    /// Whether there is room for what a request sets up.
    pub(super) fn has_room(&self, command: Command, body: &[u8]) -> bool {
        match command {
            Command::DMA_MAP => self.maps.len() < MAX_MAPS,
            // One that ends what others have set is never refused.
            Command::DEVICE_SET_IRQS if sets_irqs(body) => {
                let len: usize = self.irqs.iter().map(|irq| irq.body.len()).sum();
                self.irqs.len() < MAX_IRQS && len < MAX_IRQS_LEN
            }
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

    fn map(&mut self, mut body: Vec<u8>, fds: Fds) {
        let Ok(request) = DmaMap::parse(&body) else {
            return;
        };
        // A server reads no more of it.
        shorten(&mut body, DmaMap::LEN);
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

    fn set_irqs(&mut self, mut body: Vec<u8>, mut fds: Fds) {
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
        let booleans = match data {
            IrqData::Bool(booleans) => Some(booleans.len()),
            _ => None,
        };
        // A server takes an eventfd for each interrupt. Others would be open as long as the host.
        let eventfds = match data {
            IrqData::EventFd => usize::try_from(count).unwrap_or(usize::MAX),
            _ => 0,
        };
        fds.truncate(eventfds);
        shorten(&mut body, SetIrqs::HEAD_LEN + booleans.unwrap_or_default());
        if booleans.is_none() {
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

/// Whether a request sets interrupts that another process must know of.
fn sets_irqs(body: &[u8]) -> bool {
    let request = SetIrqs::parse(body);
    let operation = request.and_then(|request| request.operation());
    let triggers = |(action, data)| {
        action == IrqAction::Trigger && matches!(data, IrqData::None | IrqData::Bool(_))
    };
    operation.is_ok_and(|operation| !triggers(operation))
}

/// Keeps the first bytes, and no memory for others.
fn shorten(body: &mut Vec<u8>, len: usize) {
    body.truncate(len);
    body.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use vfio_user::message::SetIrqsFlags;

    use super::*;

    fn map(iova: u64, size: u64) -> Vec<u8> {
        let mut body = [32_u32, 3].map(u32::to_le_bytes).concat();
        body.extend([0, iova, size].map(u64::to_le_bytes).concat());
        body
    }

    fn unmap(flags: u32, iova: u64, size: u64) -> Vec<u8> {
        let mut body = [24, flags].map(u32::to_le_bytes).concat();
        body.extend([iova, size].map(u64::to_le_bytes).concat());
        body
    }

    fn addresses(known: &Known) -> Vec<u64> {
        known.maps.keys().copied().collect()
    }

    #[test]
    fn ranges_go_with_an_unmap() {
        let mut known = Known::default();
        for iova in [0, 0x1000, 0x2000, u64::MAX - 0xfff] {
            known.learn(Command::DMA_MAP, map(iova, 0x1000), Fds::new());
        }
        known.learn(Command::DMA_UNMAP, unmap(0, 0x1000, 0x2000), Fds::new());
        assert_eq!(addresses(&known), [0, u64::MAX - 0xfff]);
        known.learn(
            Command::DMA_UNMAP,
            unmap(0, u64::MAX - 0xfff, 0x1000),
            Fds::new(),
        );
        assert_eq!(addresses(&known), [0]);
        known.learn(Command::DMA_UNMAP, unmap(2, 0, 0), Fds::new());
        assert!(addresses(&known).is_empty());
    }

    #[test]
    fn a_file_in_many_ranges_has_one_descriptor() {
        let mut known = Known::default();
        let file = File::open("/dev/zero").unwrap();
        for iova in 0..100 {
            let fd = file.try_clone().unwrap().into();
            known.learn(
                Command::DMA_MAP,
                map(iova << 12, 0x1000),
                Fds::from_iter([fd]),
            );
        }
        let files = known.maps.values().filter_map(|it| it.file.as_ref());
        let mut files: Vec<_> = files.map(Rc::as_ptr).collect();
        files.dedup();
        assert_eq!(files.len(), 1);
    }

    fn request(flags: SetIrqsFlags, start: u32, count: u32, data: &[u8]) -> Vec<u8> {
        let set = SetIrqs {
            argsz: 20,
            flags,
            index: 2,
            start,
            count,
            data,
        };
        let mut body = Vec::new();
        set.encode(&mut body);
        body
    }

    fn irqs(known: &mut Known, flags: SetIrqsFlags, start: u32, count: u32, data: &[u8]) {
        let body = request(flags, start, count, data);
        known.learn(Command::DEVICE_SET_IRQS, body, Fds::new());
    }

    fn kept(known: &Known) -> Vec<(u32, u32, IrqWhat)> {
        let irqs = known.irqs.iter();
        irqs.map(|irq| (irq.key.start, irq.key.count, irq.key.what))
            .collect()
    }

    #[test]
    fn the_last_request_for_an_interrupt_counts() {
        let mut known = Known::default();
        let eventfd = SetIrqsFlags::DATA_EVENTFD | SetIrqsFlags::ACTION_TRIGGER;
        let mask = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_MASK;
        let unmask = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_UNMASK;
        let trigger = IrqWhat::EventFds(IrqAction::Trigger);
        for at in [0, 1, 2, 1] {
            irqs(&mut known, eventfd, at, 1, &[]);
        }
        assert_eq!(
            kept(&known),
            [(0, 1, trigger), (2, 1, trigger), (1, 1, trigger)]
        );
        irqs(&mut known, eventfd, 0, 3, &[]);
        assert_eq!(kept(&known), [(0, 3, trigger)]);
        irqs(&mut known, mask, 1, 1, &[]);
        irqs(&mut known, unmask, 1, 1, &[]);
        assert_eq!(kept(&known), [(0, 3, trigger), (1, 1, IrqWhat::Mask)]);
        // An interrupt that the host triggers is no state.
        let fire = SetIrqsFlags::DATA_BOOL | SetIrqsFlags::ACTION_TRIGGER;
        irqs(&mut known, fire, 0, 1, &[1]);
        assert_eq!(kept(&known).len(), 2);
        // Some of a range: what is set for the others stays.
        let some = SetIrqsFlags::DATA_BOOL | SetIrqsFlags::ACTION_MASK;
        irqs(&mut known, some, 0, 2, &[1, 0]);
        irqs(&mut known, some, 0, 2, &[0, 1]);
        irqs(&mut known, some, 0, 2, &[1, 0]);
        assert_eq!(kept(&known).len(), 4);
        let none = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_TRIGGER;
        irqs(&mut known, none, 0, 0, &[]);
        assert_eq!(kept(&known), []);
    }

    #[test]
    fn bytes_that_say_nothing_are_not_kept() {
        let mut known = Known::default();
        let mut long = map(0, 0x1000);
        long.resize(1 << 20, 0);
        known.learn(Command::DMA_MAP, long, Fds::new());
        let mask = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_MASK;
        irqs(&mut known, mask, 0, 1, &[0; 1 << 20]);
        let some = SetIrqsFlags::DATA_BOOL | SetIrqsFlags::ACTION_MASK;
        irqs(&mut known, some, 7, 3, &[1; 1 << 20]);
        let kept = known.irqs.iter().map(|irq| irq.body.capacity());
        let kept: Vec<_> = kept
            .chain(known.maps.values().map(|it| it.body.capacity()))
            .collect();
        assert_eq!(kept, [20, 23, 32]);
    }

    #[test]
    fn descriptors_that_set_nothing_are_closed() {
        let mut known = Known::default();
        let mut set = |flags, count| {
            let fds = std::array::from_fn::<_, 3, _>(|_| File::open("/dev/null").unwrap().into());
            let body = request(flags, 0, count, &[]);
            known.learn(Command::DEVICE_SET_IRQS, body, Fds::from_iter(fds));
        };
        set(SetIrqsFlags::DATA_EVENTFD | SetIrqsFlags::ACTION_TRIGGER, 2);
        set(SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_MASK, 1);
        let kept: Vec<_> = known.irqs.iter().map(|irq| irq.fds.len()).collect();
        assert_eq!(kept, [2, 0]);
    }

    #[test]
    fn the_data_of_interrupts_have_a_limit() {
        let mut known = Known::default();
        let some = SetIrqsFlags::DATA_BOOL | SetIrqsFlags::ACTION_MASK;
        let one = request(some, 0, 1, &[1]);
        for at in 0..16 {
            assert!(known.has_room(Command::DEVICE_SET_IRQS, &one));
            irqs(&mut known, some, at, 1 << 20, &[1; 1 << 20]);
        }
        assert!(!known.has_room(Command::DEVICE_SET_IRQS, &one));
    }

    #[test]
    fn tables_have_limits() {
        let mut known = Known::default();
        let mask = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_MASK;
        let one = request(mask, 0, 1, &[]);
        assert!(known.has_room(Command::DEVICE_SET_IRQS, &one));
        for at in 0..MAX_IRQS as u32 {
            irqs(&mut known, mask, 2 * at, 2 * at + 1, &[]);
        }
        assert_eq!(known.irqs.len(), MAX_IRQS);
        assert!(!known.has_room(Command::DEVICE_SET_IRQS, &one));
        // Messages that make room, and those that trigger, are taken.
        let trigger = SetIrqsFlags::DATA_NONE | SetIrqsFlags::ACTION_TRIGGER;
        for count in [0, 1] {
            let request = request(trigger, 0, count, &[]);
            assert!(known.has_room(Command::DEVICE_SET_IRQS, &request));
        }
        assert!(known.has_room(Command::DMA_MAP, &[]));
    }
}
