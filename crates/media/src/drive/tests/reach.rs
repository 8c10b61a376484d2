//! A drive that another process keeps for the next process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use driver::bus::Bus as _;
use driver::{Device, DriverError};
use nvme_spec::registers::{CSTS, Csts};

use super::rig::{Bus, Mood, Rig, Shape, bus, rig_options};
use crate::drive::reach::{Kept, reach};

/// Steps, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Former,
    Ended,
    Open,
    Keep { ready: bool },
    Release,
}

use Step::{Ended, Former, Keep, Open, Release};

/// State of a drive that a former process has left.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    Nothing,
    /// The drive, at work.
    Whole,
    /// Descriptors of no drive.
    Broken,
}

/// The steps that fail.
#[derive(Clone, Copy, Default)]
struct Failing {
    open: bool,
    keep: bool,
    release: bool,
}

struct Drive {
    left: Left,
    failing: Failing,
    steps: Rc<RefCell<Vec<Step>>>,
}

impl Drive {
    fn note(&self, step: Step) {
        self.steps.borrow_mut().push(step);
    }
}

fn new() -> Bus {
    let mood = Arc::<Mood>::default();
    bus(&Rig::medium(), &mood, Shape::default(), &Arc::default())
}

impl Kept<Bus> for Drive {
    fn former(&mut self) -> Result<Option<Bus>, DriverError> {
        self.note(Former);
        match self.left {
            Left::Nothing => Ok(None),
            Left::Whole => Ok(Some(new())),
            Left::Broken => Err(DriverError::Gone),
        }
    }

    fn open(&mut self) -> Result<Bus, DriverError> {
        self.note(Open);
        if self.failing.open {
            return Err(DriverError::Gone);
        }
        Ok(new())
    }

    fn keep(&mut self, bus: &Bus) -> Result<(), DriverError> {
        let ready = Csts::from(bus.read32(CSTS)?).rdy();
        self.note(Keep { ready });
        if self.failing.keep {
            return Err(DriverError::Gone);
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), DriverError> {
        self.note(Release);
        if self.failing.release {
            return Err(DriverError::Gone);
        }
        Ok(())
    }
}

fn reached(left: Left, failing: Failing) -> (Result<Device<Bus>, DriverError>, Vec<Step>) {
    let steps = Rc::<RefCell<Vec<Step>>>::default();
    let mut drive = Drive {
        left,
        failing,
        steps: steps.clone(),
    };
    let mut ended = || steps.borrow_mut().push(Ended);
    let device = reach(&mut drive, |_| rig_options(), &mut ended);
    let steps = steps.borrow_mut().clone();
    (device, steps)
}

const KEEP: Step = Keep { ready: true };

#[test]
fn it_is_kept_when_it_is_well() {
    let (device, steps) = reached(Left::Nothing, Failing::default());
    assert!(device.is_ok());
    assert_eq!(steps, [Former, Ended, Open, KEEP]);
}

#[test]
fn the_next_process_has_it_without_opening_it() {
    let (device, steps) = reached(Left::Whole, Failing::default());
    assert!(device.is_ok());
    assert_eq!(steps, [Former, Ended, KEEP]);
}

/// Its commands may go on until it is closed.
#[test]
fn one_that_cannot_be_continued_with_is_closed_before_its_commands_are_over() {
    let (device, steps) = reached(Left::Broken, Failing::default());
    assert!(device.is_ok());
    assert_eq!(steps, [Former, Release, Ended, Open, KEEP]);
    let release = Failing {
        release: true,
        ..Failing::default()
    };
    let (device, steps) = reached(Left::Broken, release);
    assert!(device.is_err());
    assert_eq!(steps, [Former, Release], "it may be at work");
}

#[test]
fn one_that_is_not_well_is_not_kept() {
    let open = Failing {
        open: true,
        ..Failing::default()
    };
    let (device, steps) = reached(Left::Nothing, open);
    assert!(device.is_err());
    assert_eq!(steps, [Former, Ended, Open, Release]);
    let keep = Failing {
        keep: true,
        ..Failing::default()
    };
    let (device, steps) = reached(Left::Whole, keep);
    assert!(device.is_err());
    assert_eq!(steps, [Former, Ended, KEEP, Release]);
}

/// The kernel resets a drive, or removes it, when all processes have closed it.
#[test]
fn one_that_is_lost_is_released() {
    let released = Arc::<AtomicU32>::default();
    let its = released.clone();
    let releases = || released.load(Ordering::Relaxed);
    let mut rig = Rig::new(Shape::default());
    let release = move || {
        its.fetch_add(1, Ordering::Relaxed);
    };
    rig.keeper = rig.keeper.released_by(Box::new(release));
    assert_eq!(releases(), 0);
    rig.keeper.lose("a test");
    assert_eq!(releases(), 1);
    rig.tick(8);
    assert!(rig.drive.counts().is_there);
    assert_eq!(releases(), 1);
}
