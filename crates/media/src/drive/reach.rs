//! Opens a drive: for the first time, again where it was lost, and where a former process of this
//! server has left it.
//!
//! A drive of this machine (VFIO) is kept by another process, which has its descriptors
//! ([`KeepsFunction`]). When the process that uses it dies, the drive goes on: it executes the
//! commands that it has, and reaches the memory of hosts. The next process ends that before it
//! does anything else ([`Device::adopt`]). Where it cannot, it closes the last descriptors, and the
//! kernel takes the drive off the bus and resets it.
//!
//! Invariants:
//! - The other process keeps the descriptors of a drive that is well, and of no other: one that is
//!   lost, or cannot be continued with, is released first and closed by this process then. Closing
//!   a function may take as long as its reset.
//! - `ended` is called when no command of a former process has an effect any more.
//!
//! Not included: drives behind vfio-user and over NVMe/TCP, whose connections end with their
//! process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::{fmt, io};

use driver::bus::Bus;
use driver::bus::place::{AnyBus, Place};
use driver::{Device, DriverError, Options};
use memory::vfio::Descriptors;

use super::keeper::Reopen;
use super::{ANSWER_TIMEOUT, DriveAddress, options};

/// Maximum wait until a drive that a former process has left is disabled. Resetting its function
/// fits in what remains of the fence of [`super::Pace`].
const STOP_BOUND: Duration = Duration::from_secs(3);

/// Another process that keeps the descriptors of a drive, for the next process of this server.
pub trait KeepsFunction: fmt::Debug + Send + Sync {
    /// The descriptors that a former process has had kept; `None` where there are none, or not all.
    ///
    /// # Errors
    /// The other process does not answer.
    fn fetch(&self) -> io::Result<Option<Descriptors>>;

    /// Has them kept.
    ///
    /// # Errors
    /// The other process refuses, or does not answer.
    fn keep(&self, fds: Descriptors<BorrowedFd<'_>>) -> io::Result<()>;

    /// Has them closed, if they are kept.
    ///
    /// # Errors
    /// The other process does not answer: it may have them.
    fn release(&self) -> io::Result<()>;
}

/// Has the descriptors of a drive closed that this process does not use any more.
pub(super) fn release(keeper: &dyn KeepsFunction) {
    if let Err(error) = keeper.release() {
        tracing::error!("a drive is kept by another process, and cannot be opened: {error}");
    }
}

/// A drive that another process can continue with.
pub(super) trait Kept<B> {
    /// The drive as a former process has left it, if it has.
    fn former(&mut self) -> Result<Option<B>, DriverError>;

    /// The drive after a reset by the kernel.
    fn open(&mut self) -> Result<B, DriverError>;

    fn keep(&mut self, bus: &B) -> Result<(), DriverError>;

    /// Closes it, if it is open nowhere else in this process.
    fn release(&mut self) -> Result<(), DriverError>;
}

/// Reaches a drive, and enables it.
pub(super) fn reach<B: Bus>(
    drive: &mut impl Kept<B>,
    options: impl Fn(&B) -> Options,
    ended: &mut dyn FnMut(),
) -> Result<Device<B>, DriverError> {
    let adopt = |bus: B, ended: &mut dyn FnMut()| {
        let options = options(&bus);
        Device::adopt(bus, &options, STOP_BOUND, ended)
    };
    let former = drive.former().transpose();
    let adopted = former.map(|former| former.and_then(|bus| adopt(bus, ended)));
    let opened = match adopted {
        Some(Ok(device)) => Ok(device),
        other => {
            if let Some(Err(error)) = other {
                tracing::warn!(
                    "the drive of the last process is closed, which resets it, and opened again: {error}"
                );
                drive.release()?;
            }
            // Nothing has it open, so the kernel has reset it.
            ended();
            drive.open().and_then(|bus| {
                let options = options(&bus);
                Device::open(bus, &options)
            })
        }
    };
    let kept = opened.and_then(|mut device| {
        device.enable()?;
        drive.keep(device.bus())?;
        Ok(device)
    });
    if kept.is_err()
        && let Err(error) = drive.release()
    {
        tracing::error!("{error}");
    }
    kept
}

/// A function of this machine, and who keeps it.
struct Function {
    place: Place,
    keeper: Arc<dyn KeepsFunction>,
    /// Its descriptor, so that it is closed here and not by who keeps it, which must not wait.
    last: Option<OwnedFd>,
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |source| DriverError::System { what, source }
}

impl Kept<AnyBus> for Function {
    fn former(&mut self) -> Result<Option<AnyBus>, DriverError> {
        let what = "get the descriptors of the last process's drive";
        let Some(fds) = self.keeper.fetch().map_err(refused(what))? else {
            return Ok(None);
        };
        self.last = Some(fds.device.try_clone().map_err(refused(what))?);
        self.place.adopt(fds).map(Some)
    }

    fn open(&mut self) -> Result<AnyBus, DriverError> {
        self.place.open(ANSWER_TIMEOUT)
    }

    fn keep(&mut self, bus: &AnyBus) -> Result<(), DriverError> {
        if let Some(fds) = bus.descriptors() {
            let kept = self.keeper.keep(fds);
            kept.map_err(refused("have the drive kept for the next process"))?;
        }
        self.last = None;
        Ok(())
    }

    fn release(&mut self) -> Result<(), DriverError> {
        let released = self.keeper.release();
        self.last = None;
        released.map_err(refused(
            "have the drive closed by the process that keeps it",
        ))
    }
}

fn options_of(bus: &AnyBus) -> Options {
    Options {
        // A socket signals nothing: completions are there when it is read.
        interrupts: bus.vectors() > 0 && !bus.is_over_fabrics(),
        ..options()
    }
}

/// Function that reaches the drive at a place, and enables it. A drive of this machine that is
/// kept sends on `ended` when no command of a former process has an effect any more; of others
/// that is so when they are enabled.
pub(super) fn reopening(
    at: &DriveAddress,
    keeper: Option<&Arc<dyn KeepsFunction>>,
    ended: Option<Sender<()>>,
) -> Reopen<AnyBus> {
    let (place, host) = at.clone();
    if let (Place::Pci(_), Some(keeper)) = (&place, keeper) {
        let mut function = Function {
            place,
            keeper: keeper.clone(),
            last: None,
        };
        return Box::new(move || {
            reach(&mut function, options_of, &mut || {
                // The start has passed, and its receiver is gone, where the drive was lost later.
                let _ = ended.as_ref().map(|ended| ended.send(()));
            })
        });
    }
    Box::new(move || {
        let bus = place.open_as(host.as_deref(), ANSWER_TIMEOUT)?;
        let options = options_of(&bus);
        let mut device = Device::open(bus, &options)?;
        device.enable()?;
        Ok(device)
    })
}
