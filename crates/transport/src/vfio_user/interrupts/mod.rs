//! The eventfds that interrupt a host ("VFIO_USER_DEVICE_SET_IRQS").
//!
//! A controller reports what to deliver: a vector of MSI-X, a message of MSI, or the level of the
//! pin. A host has assigned eventfds to them. A vector or message that cannot be delivered (no
//! eventfd yet, masked by a message or by Function Mask) is kept, once, and delivered when
//! possible. The level of the pin is not stored: it is queried again.
//!
//! The pin masks itself when it is triggered. An UNMASK ends that. It comes as a message or by the
//! eventfd that a host has assigned to it (which the host signals and we read: KVM does so when the
//! guest has acknowledged the interrupt). The controller then checks its queues again
//! ([`controller::Controller::recheck_interrupts`]). If the level falls before the host has
//! consumed the trigger, the trigger is withdrawn: otherwise QEMU would assert its line, and no
//! action of its guest's driver would deassert it.
//!
//! Not included: an MSI-X table, which a client emulates itself. There is no error or release
//! interrupt: their types have no interrupts.

#[cfg(test)]
mod pin_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use controller::{Controller, Interrupt};
use memory::EventFd;
use rustix::event::epoll;
use rustix::io::Errno;
use vfio_user::MAX_FDS;
use vfio_user::message::{IrqAction, IrqData, IrqFlags, IrqInfo, SetIrqs, irq_index};

use super::{Answer, SessionConfig};
use crate::eventfd::eventfd;

/// One interrupt of a type.
#[derive(Debug, Default)]
struct Line {
    /// Raised and not delivered.
    pending: bool,
    masked: bool,
    /// Signalled when the controller raises it.
    trigger: Option<EventFd>,
    /// Signalled when a message masks it.
    mask: Option<EventFd>,
    /// Signalled when a message unmasks it; that of the pin is the host's to signal.
    unmask: Option<EventFd>,
}

/// The pin.
#[derive(Debug)]
struct Pin {
    line: Line,
    /// It is masked because it was triggered.
    triggered: bool,
    /// Readable while the eventfd that unmasks is signalled, whichever the host has assigned.
    unmasked: OwnedFd,
}

/// The interrupts of one session.
#[derive(Debug)]
pub(super) struct Interrupts {
    msix: Vec<Line>,
    msi: Vec<Line>,
    pin: Option<Pin>,
    /// Function Mask of MSI-X, or no bus mastering: those interrupts are memory writes (PCIe 6.0,
    /// 7.5.1.1.3).
    msix_masked: bool,
    /// No bus mastering.
    msi_masked: bool,
    /// Count of changes to the set of deliverable interrupts.
    changes: u64,
}

/// A type that has interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pin,
    Msi,
    Msix,
}

impl Interrupts {
    /// Those of a function as `config` has it.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(super) fn new(config: &SessionConfig) -> io::Result<Self> {
        let lines = |count| (0..count).map(|_| Line::default()).collect();
        Ok(Self {
            msix: lines(config.vectors),
            msi: lines(config.messages),
            pin: config.intx.then(Pin::new).transpose()?,
            msix_masked: false,
            msi_masked: false,
            changes: 1,
        })
    }

    /// Delivers `interrupt`, now or as soon as it can be.
    #[inline]
    pub(super) fn raise(&mut self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Vector(vector) => {
                if let Some(line) = self.msix.get_mut(usize::from(vector)) {
                    line.pending = true;
                    line.deliver(self.msix_masked);
                }
            }
            Interrupt::Message(message) => {
                if let Some(line) = self.msi.get_mut(usize::from(message)) {
                    line.pending = true;
                    line.deliver(self.msi_masked);
                }
            }
            Interrupt::Pin(asserted) => {
                if let Some(pin) = &mut self.pin {
                    pin.set(asserted);
                }
            }
        }
    }

    /// Count of changes to the set of deliverable interrupts; never 0.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// By vector of MSI-X: the eventfd to signal, if it is not masked.
    pub(super) fn lines_of_msix(&self) -> Vec<Option<EventFd>> {
        let open = |line: &&Line| !line.masked && !self.msix_masked;
        let lines = self.msix.iter();
        lines
            .map(|line| Some(line).filter(open)?.trigger.clone())
            .collect()
    }

    /// Whether an interrupt of an MSI-X vector is pending.
    pub(super) fn is_pending(&self, vector: u16) -> bool {
        let line = self.msix.get(usize::from(vector));
        line.is_some_and(|line| line.pending)
    }

    /// The controller was reset: interrupts that it raised before are void.
    pub(super) fn forget_pending(&mut self) {
        for line in self.msix.iter_mut().chain(&mut self.msi) {
            line.pending = false;
        }
    }

    /// Takes over Function Mask of MSI-X and Bus Master Enable, which hold messages back, and no
    /// pin.
    pub(super) fn follow(&mut self, controller: &Controller) {
        let may_master = controller.may_master();
        self.set_masked(controller.msix_masked() || !may_master, !may_master);
    }

    fn set_masked(&mut self, msix: bool, msi: bool) {
        if (self.msix_masked, self.msi_masked) != (msix, msi) {
            (self.msix_masked, self.msi_masked) = (msix, msi);
            self.changes += 1;
            self.deliver_all();
        }
    }

    /// Whether there is a pin: then an UNMASK or a new eventfd requires another check of the
    /// queues.
    pub(super) fn has_pin(&self) -> bool {
        self.pin.is_some()
    }

    /// The descriptor that becomes readable when the host has unmasked the pin by an eventfd.
    pub(super) fn unmasked(&self) -> Option<BorrowedFd<'_>> {
        self.pin.as_ref().map(|pin| pin.unmasked.as_fd())
    }

    /// Whether the host has unmasked the pin by an eventfd since the last call.
    pub(super) fn take_unmasked(&mut self) -> bool {
        let Some(pin) = &mut self.pin else {
            return false;
        };
        let unmasked = pin.line.unmask.as_ref().is_some_and(EventFd::drain);
        if unmasked {
            pin.unmask();
        }
        unmasked
    }

    fn deliver_all(&mut self) {
        for line in &mut self.msix {
            line.deliver(self.msix_masked);
        }
        for line in &mut self.msi {
            line.deliver(self.msi_masked);
        }
    }

    /// DEVICE_GET_IRQ_INFO.
    pub(super) fn info(&self, body: &[u8], out: &mut Vec<u8>) -> Result<Answer, Errno> {
        let request = IrqInfo::parse(body).map_err(|_| Errno::INVAL)?;
        let index = request.index;
        if (request.argsz as usize) < IrqInfo::LEN || index >= irq_index::COUNT {
            return Err(Errno::INVAL);
        }
        let kind = kind(index);
        let count = kind.map_or(0, |kind| self.count(kind));
        let flags = match kind {
            _ if count == 0 => IrqFlags::default(),
            Some(Kind::Pin) => IrqFlags::EVENTFD | IrqFlags::MASKABLE | IrqFlags::AUTOMASKED,
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
            Kind::Pin => usize::from(self.pin.is_some()),
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
        self.changes += 1;
        self.deliver_all();
        Ok(Answer::Reply)
    }

    fn lines(&mut self, kind: Kind) -> &mut [Line] {
        match kind {
            Kind::Pin => self.pin.as_mut().map_or(&mut [], Pin::lines),
            Kind::Msi => &mut self.msi,
            Kind::Msix => &mut self.msix,
        }
    }

    /// Removes every eventfd of the type. Pending interrupts stay pending.
    fn disable(&mut self, kind: Kind) {
        if kind == Kind::Pin
            && let Some(pin) = &mut self.pin
        {
            return pin.disable();
        }
        for line in self.lines(kind) {
            *line = Line {
                pending: line.pending,
                ..Line::default()
            };
        }
    }

    fn act(&mut self, kind: Kind, action: IrqAction, range: Range<usize>) {
        if kind == Kind::Pin {
            // The range may be empty.
            if let Some(pin) = self.pin.as_mut().filter(|_| !range.is_empty()) {
                pin.act(action);
            }
            return;
        }
        for line in &mut self.lines(kind)[range] {
            match action {
                // The host triggers its own interrupts: a test of their way.
                IrqAction::Trigger => line.pending = true,
                IrqAction::Mask => {
                    line.masked = true;
                    signal(&line.mask);
                }
                IrqAction::Unmask => {
                    line.masked = false;
                    signal(&line.unmask);
                }
            }
        }
    }

    /// Assigns eventfds to the target of an action, or none.
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
        if kind == Kind::Pin
            && let Some(pin) = self.pin.as_mut().filter(|_| !range.is_empty())
        {
            return pin.assign(action, fds.next());
        }
        for line in &mut self.lines(kind)[range] {
            let place = match action {
                IrqAction::Trigger => &mut line.trigger,
                IrqAction::Mask => &mut line.mask,
                IrqAction::Unmask => &mut line.unmask,
            };
            *place = fds.next();
        }
        Ok(())
    }
}

impl Line {
    /// Delivers what is pending, if that can be; `masked`: by something else than a message.
    #[inline]
    fn deliver(&mut self, masked: bool) {
        if self.pending && !self.masked && !masked && signal(&self.trigger) {
            self.pending = false;
        }
    }
}

impl Pin {
    fn new() -> io::Result<Self> {
        Ok(Pin {
            line: Line::default(),
            triggered: false,
            unmasked: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    fn lines(&mut self) -> &mut [Line] {
        std::slice::from_mut(&mut self.line)
    }

    /// The level is this now.
    fn set(&mut self, asserted: bool) {
        if asserted && !self.line.masked {
            self.triggered = signal(&self.line.trigger);
            self.line.masked = self.triggered;
        } else if !asserted
            && self.triggered
            && self.line.trigger.as_ref().is_some_and(EventFd::drain)
        {
            // The host has not seen it yet, and never will.
            self.unmask();
        }
    }

    fn unmask(&mut self) {
        (self.line.masked, self.triggered) = (false, false);
    }

    fn act(&mut self, action: IrqAction) {
        match action {
            // A test of its way, beside what the queues ask for.
            IrqAction::Trigger => self.set(true),
            IrqAction::Mask => {
                (self.line.masked, self.triggered) = (true, false);
                signal(&self.line.mask);
            }
            IrqAction::Unmask => self.unmask(),
        }
    }

    fn assign(&mut self, action: IrqAction, eventfd: Option<EventFd>) -> Result<(), Errno> {
        match action {
            IrqAction::Trigger => {
                if self.triggered {
                    // The old one was signalled, and its reader may be gone.
                    self.unmask();
                }
                self.line.trigger = eventfd;
            }
            IrqAction::Mask => self.line.mask = eventfd,
            IrqAction::Unmask => self.assign_unmask(eventfd)?,
        }
        Ok(())
    }

    fn assign_unmask(&mut self, eventfd: Option<EventFd>) -> Result<(), Errno> {
        // The host has descriptors of its own for the old one, so it would be watched on after it
        // is closed.
        if let Some(old) = self.line.unmask.take() {
            epoll::delete(&self.unmasked, &old)?;
        }
        if let Some(new) = &eventfd {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&self.unmasked, new, data, epoll::EventFlags::IN)?;
        }
        self.line.unmask = eventfd;
        Ok(())
    }

    fn disable(&mut self) {
        // Nothing is added, so nothing fails.
        let _ = self.assign_unmask(None);
        self.line = Line::default();
        self.triggered = false;
    }
}

/// Signals an eventfd, if there is one; whether it was.
#[inline]
fn signal(eventfd: &Option<EventFd>) -> bool {
    // It was seen to be an eventfd, and those do not fail.
    eventfd
        .as_ref()
        .is_some_and(|eventfd| eventfd.signal().is_ok())
}

fn kind(index: u32) -> Option<Kind> {
    match index {
        irq_index::INTX => Some(Kind::Pin),
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
