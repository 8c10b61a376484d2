//! A controller that a process has left at work, for another one that continues with it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use controller::config::DoorbellMode;
use driver::bus::{Bus, MappedDoorbells};
use driver::{Device, DriverError};
use loopback::InProcess;
use memory::{EventFd, HostMemory, Iova};
use nvme_spec::Sqe;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::registers::{CSTS, Csts};
use port::ChannelId;

use crate::rig::{Manner, Ram, open, options, with_ram};

/// How the controller behaves towards the process that continues with it.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Good,
    /// It stays ready.
    Stuck,
    /// Its memory cannot be unmapped.
    Kept,
}

/// Actions of the process that continues, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Unmap { ready: bool },
    Ended,
    Share { ready: bool },
}

/// The bus of the process that continues.
struct Left {
    bus: Arc<InProcess<Ram>>,
    mood: Mood,
    steps: Arc<Steps>,
}

#[derive(Default)]
struct Steps(RefCell<Vec<Step>>);

impl Left {
    fn note(&self, step: Step) {
        self.steps.0.borrow_mut().push(step);
    }

    fn is_ready(&self) -> bool {
        Csts::from(self.bus.read32(CSTS).unwrap()).rdy()
    }
}

impl Bus for Left {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        let read = self.bus.read32(offset)?;
        let is_stuck = self.mood == Mood::Stuck && offset == CSTS;
        Ok(if is_stuck {
            Csts::from(read).with_rdy(true).into()
        } else {
            read
        })
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        self.bus.read64(offset)
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.bus.write32(offset, value)
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.bus.write64(offset, value)
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.bus.ring(offset, value)
    }

    fn config_read(&self, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.bus.config_read(offset, out)
    }

    fn config_write(&self, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.bus.config_write(offset, data)
    }

    fn bar_len(&self, bar: u8) -> Result<u64, DriverError> {
        self.bus.bar_len(bar)
    }

    fn bar_read(&self, bar: u8, offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        self.bus.bar_read(bar, offset, out)
    }

    fn bar_write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), DriverError> {
        self.bus.bar_write(bar, offset, data)
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        self.bus.reset_function()
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        self.bus.doorbells()
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        self.note(Step::Share {
            ready: self.is_ready(),
        });
        self.bus.share(memory, base)
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        self.bus.unshare(base, len)
    }

    fn clear_former(&self) -> Result<(), DriverError> {
        self.note(Step::Unmap {
            ready: self.is_ready(),
        });
        if self.mood == Mood::Kept {
            return Err(DriverError::Unsupported("the memory is kept".into()));
        }
        self.bus.clear_former()
    }

    fn vectors(&self) -> u16 {
        self.bus.vectors()
    }

    fn set_interrupt(&self, vector: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.bus.set_interrupt(vector, eventfd)
    }

    fn set_message_interrupt(&self, message: u16, eventfd: &EventFd) -> Result<(), DriverError> {
        self.bus.set_message_interrupt(message, eventfd)
    }

    fn turn(&self) {
        self.bus.turn();
    }

    fn wait(&self, eventfd: &EventFd, timeout: Duration) -> Result<bool, DriverError> {
        self.bus.wait(eventfd, timeout)
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        self.bus.check_alive()
    }

    fn now_ns(&self) -> u64 {
        self.bus.now_ns()
    }
}

/// A controller with a command in flight, whose process has died.
fn left() -> Arc<InProcess<Ram>> {
    let mut device = open(DoorbellMode::Mapped, &options()).unwrap();
    device.enable().unwrap();
    with_ram(&device, |ram| ram.manner = Manner::Never);
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let flush = Sqe {
        opcode: NvmOpcode::FLUSH.0,
        nsid: 1,
        ..Sqe::default()
    };
    queue.submit(flush).unwrap();
    queue.ring().unwrap();
    let bus = device.shared_bus().clone();
    // Waits of seconds are over in some ten thousand turns.
    bus.set_turn_ns(100_000);
    (0..100).for_each(|_| bus.turn());
    bus
}

/// Continues with it: the outcome, the steps, and how long it took.
fn adopt(mood: Mood, bound: Duration) -> (Result<Device<Left>, DriverError>, Vec<Step>, Duration) {
    let bus = left();
    let steps = Arc::<Steps>::default();
    let before = bus.now_ns();
    let its = Left {
        bus: bus.clone(),
        mood,
        steps: steps.clone(),
    };
    let noted = Cell::new(0);
    let adopted = Device::adopt(its, &options(), bound, || {
        noted.set(noted.get() + 1);
        steps.0.borrow_mut().push(Step::Ended);
    });
    assert!(noted.get() <= 1);
    let took = Duration::from_nanos(bus.now_ns() - before);
    let steps = steps.0.borrow().clone();
    (adopted, steps, took)
}

#[test]
fn its_commands_are_over_before_memory_is_shared_again() {
    let (adopted, steps, _) = adopt(Mood::Good, Duration::from_secs(60));
    let mut device = adopted.unwrap();
    assert_eq!(
        steps,
        [
            Step::Unmap { ready: false },
            Step::Ended,
            Step::Share { ready: false }
        ]
    );
    device.enable().unwrap();
    let ram = |manner| {
        let bus = &device.bus().bus;
        bus.with_channels(|all| all.get_mut(ChannelId(0)).unwrap().manner = manner);
    };
    // Requests of the former process end nowhere.
    ram(Manner::LaterInReverse);
    let mut queue = device.create_queue_pair(4, false).unwrap();
    assert!((0..1000).all(|_| queue.poll().unwrap() == 0));
    queue.flush(1).unwrap();
}

#[test]
fn a_controller_that_stays_ready_reaches_no_memory_and_is_not_used() {
    let bound = Duration::from_millis(20);
    let (adopted, steps, took) = adopt(Mood::Stuck, bound);
    let error = adopted.err().expect("it is not used");
    assert!(
        matches!(error, DriverError::Timeout { after, .. } if after == bound),
        "{error}"
    );
    assert!(took < 3 * bound, "{took:?}");
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(matches!(steps[0], Step::Unmap { .. }));
}

#[test]
fn a_controller_whose_memory_stays_mapped_is_not_used() {
    let (adopted, steps, _) = adopt(Mood::Kept, Duration::from_secs(60));
    assert!(matches!(adopted, Err(DriverError::Unsupported(_))));
    assert_eq!(steps, [Step::Unmap { ready: false }]);
}
