//! The eventfds by which a host is interrupted ("VFIO_USER_DEVICE_SET_IRQS").
//!
//! A controller raises vectors; a host has assigned eventfds to the vectors of MSI-X, or one to MSI, where all vectors
//! meet. An interrupt that cannot be delivered (no eventfd yet, masked by a message or by INTMS) is kept, once, and
//! delivered when it can be.
//!
//! What it does NOT do: it emulates no MSI-X table, which a client does itself; there is no INTx, error or release
//! interrupt: their types have no interrupts.
//!
//! An eventfd is the host's. It is made non-blocking when it comes, so that a full counter is no wait. The host can
//! undo that, and fill the counter: it then holds up the reactor that it shares.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use arrayvec::ArrayVec;
use memory::EventFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use vfio_user::MAX_FDS;
use vfio_user::message::{IrqAction, IrqData, IrqFlags, IrqInfo, SetIrqs, irq_index};

use super::Answer;

/// One interrupt of a type.
#[derive(Debug, Default)]
struct Line {
    masked: bool,
    /// Signalled when the controller raises it.
    trigger: Option<EventFd>,
    /// Signalled when a message masks it.
    mask: Option<EventFd>,
    /// Signalled when a message unmasks it.
    unmask: Option<EventFd>,
}

/// A vector as the controller raises it.
#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    /// Raised and not delivered.
    pending: bool,
    /// Masked by INTMS.
    masked: bool,
}

/// The interrupts of one session.
#[derive(Debug)]
pub(super) struct Interrupts {
    msix: Vec<Line>,
    msi: [Line; 1],
    /// Vectors of MSI-X that have an eventfd. With one, MSI-X is what the host uses.
    msix_assigned: usize,
    vectors: Vec<Vector>,
}

/// A type that has interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Msi,
    Msix,
}

impl Interrupts {
    pub(super) fn new(vectors: u16) -> Self {
        Self {
            msix: (0..vectors).map(|_| Line::default()).collect(),
            msi: [Line::default()],
            msix_assigned: 0,
            vectors: vec![Vector::default(); usize::from(vectors)],
        }
    }

    /// Interrupts `vector`, now or as soon as it can be.
    #[inline]
    pub(super) fn raise(&mut self, vector: u16) {
        let vector = usize::from(vector);
        if let Some(state) = self.vectors.get_mut(vector) {
            state.pending = true;
            self.deliver(vector);
        }
    }

    /// Whether an interrupt of `vector` waits.
    pub(super) fn is_pending(&self, vector: u16) -> bool {
        let state = self.vectors.get(usize::from(vector));
        state.is_some_and(|state| state.pending)
    }

    /// The controller was reset: what it raised before is void.
    pub(super) fn forget_pending(&mut self) {
        for vector in &mut self.vectors {
            vector.pending = false;
        }
    }

    /// Takes over what the host has masked by INTMS.
    pub(super) fn set_masks(&mut self, is_masked: impl Fn(u16) -> bool) {
        for (number, vector) in (0..).zip(&mut self.vectors) {
            vector.masked = is_masked(number);
        }
        self.deliver_all();
    }

    fn deliver_all(&mut self) {
        for vector in 0..self.vectors.len() {
            self.deliver(vector);
        }
    }

    #[inline]
    fn deliver(&mut self, vector: usize) {
        let state = &mut self.vectors[vector];
        let line = match self.msix_assigned {
            0 => &self.msi[0],
            _ => &self.msix[vector],
        };
        if state.pending && !state.masked && !line.masked && line.signal(&line.trigger) {
            state.pending = false;
        }
    }

    /// DEVICE_GET_IRQ_INFO.
    pub(super) fn info(&self, body: &[u8], out: &mut Vec<u8>) -> Result<Answer, Errno> {
        let request = IrqInfo::parse(body).map_err(|_| Errno::INVAL)?;
        let index = request.index;
        if (request.argsz as usize) < IrqInfo::LEN || index >= irq_index::COUNT {
            return Err(Errno::INVAL);
        }
        let count = kind(index).map_or(0, |kind| self.count(kind));
        let flags = match count {
            0 => IrqFlags::default(),
            _ => IrqFlags::EVENTFD | IrqFlags::MASKABLE,
        };
        let info = IrqInfo {
            argsz: IrqInfo::LEN as u32,
            flags,
            index,
            count: u32::try_from(count).unwrap_or(u32::MAX),
        };
        info.encode(out);
        Ok(Answer::Reply)
    }

    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Msi => self.msi.len(),
            Kind::Msix => self.msix.len(),
        }
    }

    /// DEVICE_SET_IRQS. Descriptors that are not used are closed.
    pub(super) fn set(
        &mut self,
        body: &[u8],
        fds: ArrayVec<OwnedFd, MAX_FDS>,
    ) -> Result<Answer, Errno> {
        let request = SetIrqs::parse(body).map_err(|_| Errno::INVAL)?;
        let (action, data) = request.operation().map_err(|_| Errno::INVAL)?;
        let too_short = (request.argsz as usize) < SetIrqs::HEAD_LEN;
        if too_short || request.index >= irq_index::COUNT {
            return Err(Errno::INVAL);
        }
        let kind = kind(request.index);
        let range = range(&request, kind.map_or(0, |kind| self.count(kind)))?;
        let Some(kind) = kind else {
            // The range is empty.
            return Ok(Answer::Reply);
        };
        match data {
            IrqData::None if action == IrqAction::Trigger && range.is_empty() => self.disable(kind),
            IrqData::None => self.act(kind, action, range),
            IrqData::Bool(wanted) => {
                for (line, _) in range.zip(wanted).filter(|(_, wanted)| **wanted != 0) {
                    self.act(kind, action, line..line + 1);
                }
            }
            IrqData::EventFd => self.assign(kind, action, range, fds)?,
        }
        self.deliver_all();
        Ok(Answer::Reply)
    }

    fn lines(&mut self, kind: Kind) -> &mut [Line] {
        match kind {
            Kind::Msi => &mut self.msi,
            Kind::Msix => &mut self.msix,
        }
    }

    /// Every eventfd of the type goes; it is as at the start.
    fn disable(&mut self, kind: Kind) {
        self.lines(kind).fill_with(Line::default);
        self.count_assigned();
    }

    fn act(&mut self, kind: Kind, action: IrqAction, range: Range<usize>) {
        if action == IrqAction::Trigger {
            return self.trigger(kind, range);
        }
        for line in &mut self.lines(kind)[range] {
            line.masked = action == IrqAction::Mask;
            line.signal(match action {
                IrqAction::Mask => &line.mask,
                _ => &line.unmask,
            });
        }
    }

    /// The host triggers its own interrupts: a test of their way.
    fn trigger(&mut self, kind: Kind, range: Range<usize>) {
        for index in range {
            let line = &self.lines(kind)[index];
            let delivered = !line.masked && line.signal(&line.trigger);
            self.vectors[index].pending |= !delivered;
        }
    }

    /// Assigns eventfds to what an action does, or none.
    fn assign(
        &mut self,
        kind: Kind,
        action: IrqAction,
        range: Range<usize>,
        fds: ArrayVec<OwnedFd, MAX_FDS>,
    ) -> Result<(), Errno> {
        // None at all de-assigns; too few would leave open which.
        if !fds.is_empty() && fds.len() < range.len() {
            return Err(Errno::INVAL);
        }
        let fds = fds.into_iter().take(range.len()).map(eventfd);
        let mut fds = fds
            .collect::<Result<ArrayVec<_, MAX_FDS>, _>>()?
            .into_iter();
        for line in &mut self.lines(kind)[range] {
            let place = match action {
                IrqAction::Trigger => &mut line.trigger,
                IrqAction::Mask => &mut line.mask,
                IrqAction::Unmask => &mut line.unmask,
            };
            *place = fds.next();
        }
        self.count_assigned();
        Ok(())
    }

    fn count_assigned(&mut self) {
        let assigned = self.msix.iter().filter(|line| line.trigger.is_some());
        self.msix_assigned = assigned.count();
    }
}

impl Line {
    /// Signals an eventfd, if there is one; whether it was.
    #[inline]
    fn signal(&self, eventfd: &Option<EventFd>) -> bool {
        let Some(eventfd) = eventfd else {
            return false;
        };
        // It was seen to be an eventfd, and those do not fail.
        eventfd.signal().is_ok()
    }
}

fn kind(index: u32) -> Option<Kind> {
    match index {
        irq_index::MSI => Some(Kind::Msi),
        irq_index::MSIX => Some(Kind::Msix),
        _ => None,
    }
}

/// The interrupts that a message names, of `count` that there are.
fn range(request: &SetIrqs<'_>, count: usize) -> Result<Range<usize>, Errno> {
    let end = request.start.checked_add(request.count);
    let end = end.ok_or(Errno::INVAL)? as usize;
    if end > count {
        return Err(Errno::INVAL);
    }
    Ok(request.start as usize..end)
}

/// Takes a host's descriptor, if it is an eventfd: writing to anything else might block, or do worse.
fn eventfd(fd: OwnedFd) -> Result<EventFd, Errno> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let target = rustix::fs::readlink(name, Vec::new())?;
    if target.as_bytes() != b"anon_inode:[eventfd]" {
        tracing::debug!("a host's descriptor for an interrupt is {target:?}, not an eventfd");
        return Err(Errno::INVAL);
    }
    let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
    rustix::fs::fcntl_setfl(fd.as_fd(), flags | OFlags::NONBLOCK)?;
    Ok(EventFd::from_fd(fd))
}
