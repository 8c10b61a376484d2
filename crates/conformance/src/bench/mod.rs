//! The bench of a test: one controller, its registers, memory that it reaches, and queues made by
//! hand.
//!
//! Every wait is bounded, and what the bound is up for is a failure. Memory is
//! kept until the controller is disabled, since it may write there as long.
//!
//! A bench knows as little of NVMe as it can: it lays out queue entries and
//! doorbells (each by its number in the specification), and leaves the judging
//! to the tests.

mod commands;
mod doorbells;
mod memory;
mod nvm;
mod pci;
mod queues;

use std::time::Duration;

use ::memory::{EventFd, HostMemory, Iova};
use driver::bus::{Bus, Fabrics};
use driver::{Doorbells, DriverError};

pub use self::commands::Feature;
pub use self::doorbells::{Shadow, head_of, tail_of};
pub use self::memory::{Mem, pattern};
pub use self::nvm::{Ns, opcode};
pub use self::queues::{Cq, Pair, Sq};
use crate::Verdict;
use crate::verdict::{check, fail, not_supported};
use crate::wire::{Cqe, bits};

/// Where the shared memory begins in the controller's address space. Not 0, so
/// that an offset taken for an address reaches nothing.
const MEMORY_AT: u64 = 1 << 32;
/// Entries of the admin queues, unless a test chooses others.
const ADMIN_ENTRIES: u32 = 64;
/// Unit of CAP.TO (Base 2.1, 3.1.4.1).
const TIMEOUT_UNIT: Duration = Duration::from_millis(500);

/// Offsets of properties (Base 2.1, 3.1.4).
pub mod register {
    #![allow(missing_docs, reason = "their names are the specification's")]

    pub const CAP: u64 = 0x00;
    pub const VS: u64 = 0x08;
    pub const INTMS: u64 = 0x0c;
    pub const INTMC: u64 = 0x10;
    pub const CC: u64 = 0x14;
    pub const CSTS: u64 = 0x1c;
    pub const NSSR: u64 = 0x20;
    pub const AQA: u64 = 0x24;
    pub const ASQ: u64 = 0x28;
    pub const ACQ: u64 = 0x30;
    pub const CMBLOC: u64 = 0x38;
    pub const CRTO: u64 = 0x68;
    pub const DOORBELLS: u64 = 0x1000;
}

use register::{ACQ, AQA, ASQ, CAP, CC, CRTO, CSTS};

/// CC with 64-byte submission entries, 16-byte completion entries, 4 KiB pages,
/// the NVM command set, round robin, and Enable (Base 2.1, 3.1.4.5).
pub const CC_ENABLE: u32 = 0x0046_0001;

/// How a bench works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How doorbells are rung.
    pub doorbells: Doorbells,
    /// Bound on whatever has to happen.
    pub bound: Duration,
    /// How long is looked for what must not happen.
    pub quiet: Duration,
    /// Bytes of memory shared with the controller; pages that neither side touches cost nothing.
    pub memory_len: usize,
    /// The namespace to use; otherwise the first active one.
    pub nsid: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            doorbells: Doorbells::Auto,
            bound: Duration::from_secs(10),
            quiet: Duration::from_millis(20),
            memory_len: 128 << 20,
            nsid: None,
        }
    }
}

/// A controller on the bench.
pub struct Bench {
    bus: Box<dyn Bus>,
    memory: HostMemory,
    options: Options,
    cap: u64,
    /// Memory that the controller may still write to.
    kept: Vec<Mem>,
    ringing: doorbells::Ringing,
    admin: Option<Pair>,
    /// I/O submission and completion queues granted since it was enabled.
    granted: Option<(u32, u32)>,
    /// Commands that have not completed: queue, identifier, what they are.
    in_flight: Vec<(u16, u16, String)>,
    /// Admin completions that no test has waited for yet.
    stash: Vec<Cqe>,
    next_qid: u16,
    /// Another controller of the same subsystem, where there is one.
    second: Option<Box<Bench>>,
}

impl Bench {
    /// Puts the controller behind `bus` on the bench and shares memory with it.
    ///
    /// # Errors
    /// The controller cannot be reached, its registers say that it is none, or
    /// it cannot be driven with pages of 4 KiB and the NVM command set.
    pub fn new(bus: Box<dyn Bus>, options: &Options) -> Verdict<Self> {
        let memory = match HostMemory::new(options.memory_len) {
            Ok(memory) => memory,
            Err(error) => return fail(format!("no memory to share: {error}")),
        };
        bus.share(&memory, Iova(MEMORY_AT))?;
        let mut bench = Self {
            bus,
            memory,
            options: options.clone(),
            cap: 0,
            kept: Vec::new(),
            ringing: doorbells::Ringing::Trapped,
            admin: None,
            granted: None,
            in_flight: Vec::new(),
            stash: Vec::new(),
            next_qid: 1,
            second: None,
        };
        bench.cap = bench.read64(CAP)?;
        check(bench.cap != u64::MAX && bench.cap != 0, || {
            format!("CAP reads {:#x}: there is no controller", bench.cap)
        })?;
        check(bits(bench.cap, 51, 48) == 0, || {
            "CAP.MPSMIN: it has no memory pages of 4 KiB, which these tests use".to_owned()
        })?;
        bench.enable_function()?;
        Ok(bench)
    }

    /// Puts another controller of the same subsystem beside it, for what two
    /// hosts do to each other.
    pub fn set_second(&mut self, second: Bench) {
        self.second = Some(Box::new(second));
    }

    /// Does something with the other controller, which is started again first.
    ///
    /// # Errors
    /// Not supported where there is none; those of starting and of the work.
    pub fn with_second<T>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut Bench) -> Verdict<T>,
    ) -> Verdict<T> {
        let Some(mut second) = self.second.take() else {
            return not_supported("no second controller of the subsystem was given");
        };
        let done = second
            .recover()
            .and_then(|()| second.start())
            .and_then(|()| work(self, &mut second));
        // Whatever it is left in, it asks for nothing more.
        let _ = second.recover();
        self.second = Some(second);
        done
    }

    /// The bus.
    #[must_use]
    pub fn bus(&self) -> &dyn Bus {
        &*self.bus
    }

    /// Whether the controller is behind NVMe over Fabrics.
    #[must_use]
    pub fn is_over_fabrics(&self) -> bool {
        self.bus.is_over_fabrics()
    }

    /// Commands that only hosts over fabrics send.
    ///
    /// # Errors
    /// The controller is not behind NVMe over Fabrics.
    pub fn fabrics(&self) -> Verdict<&dyn Fabrics> {
        match self.bus.fabrics() {
            Some(fabrics) => Ok(fabrics),
            None => not_supported("the controller is not behind NVMe over Fabrics"),
        }
    }

    /// How it works.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Controller Capabilities.
    #[must_use]
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Bits `high:low` of CAP.
    #[must_use]
    pub fn cap_bits(&self, high: u32, low: u32) -> u64 {
        bits(self.cap, high, low)
    }

    /// Entries of an I/O queue at most: CAP.MQES is 0's based.
    #[must_use]
    pub fn entries_max(&self) -> u32 {
        u32::try_from(self.cap_bits(15, 0) + 1).expect("16 bits and one")
    }

    /// Reads a property of four bytes.
    ///
    /// # Errors
    /// The bus does not.
    pub fn read32(&self, offset: u64) -> Verdict<u32> {
        Ok(self.bus.read32(offset)?)
    }

    /// Reads a property of eight bytes.
    ///
    /// # Errors
    /// The bus does not.
    pub fn read64(&self, offset: u64) -> Verdict<u64> {
        Ok(self.bus.read64(offset)?)
    }

    /// Writes a property of four bytes.
    ///
    /// # Errors
    /// The bus does not.
    pub fn write32(&self, offset: u64, value: u32) -> Verdict {
        Ok(self.bus.write32(offset, value)?)
    }

    /// Writes a property of eight bytes.
    ///
    /// # Errors
    /// The bus does not.
    pub fn write64(&self, offset: u64, value: u64) -> Verdict {
        Ok(self.bus.write64(offset, value)?)
    }

    /// Controller Status.
    ///
    /// # Errors
    /// The bus does not read it.
    pub fn csts(&self) -> Verdict<u32> {
        self.read32(CSTS)
    }

    /// Looks until something is so, or the time is up; whether it is.
    ///
    /// # Errors
    /// Those of the look, and a server that is gone.
    pub fn until(
        &mut self,
        bound: Duration,
        mut look: impl FnMut(&mut Self) -> Verdict<bool>,
    ) -> Verdict<bool> {
        let end = self.deadline(bound);
        let mut empty = 0u32;
        loop {
            self.bus.turn();
            if look(self)? {
                return Ok(true);
            }
            if self.bus.now_ns() > end {
                self.bus.check_alive()?;
                return Ok(false);
            }
            self.bus.relax(empty);
            empty = empty.saturating_add(1);
        }
    }

    fn deadline(&self, bound: Duration) -> u64 {
        let bound = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        self.bus.now_ns().saturating_add(bound)
    }

    /// Lets time pass in which nothing should happen.
    ///
    /// # Errors
    /// The server is gone.
    pub fn idle(&mut self) -> Verdict {
        self.until(self.options.quiet, |_| Ok(false)).map(drop)
    }

    /// Lets so much time pass.
    ///
    /// # Errors
    /// The server is gone.
    pub fn pass(&mut self, time: Duration) -> Verdict {
        self.until(time, |_| Ok(false)).map(drop)
    }

    /// The time that CSTS.RDY may take to follow CC.EN (Base 2.1, 3.1.4.1 and
    /// 3.1.4.21).
    ///
    /// # Errors
    /// The bus does not read CRTO.
    pub fn ready_bound(&self) -> Verdict<Duration> {
        let mut units = self.cap_bits(31, 24).max(1);
        if self.cap_bits(59, 59) == 1 {
            units = units.max(u64::from(self.read32(CRTO)?) & 0xffff);
        }
        let units = u32::try_from(units).expect("16 bits");
        Ok(TIMEOUT_UNIT * units)
    }

    /// Waits for CSTS.RDY.
    ///
    /// # Errors
    /// It does not come in its time, or CSTS.CFS is set where it should.
    pub fn await_ready(&mut self, ready: bool) -> Verdict {
        let bound = self.ready_bound()?;
        let wanted = u32::from(ready);
        let mut csts = 0;
        let reached = self.until(bound, |bench| {
            csts = bench.csts()?;
            Ok(csts & 1 == wanted || ready && csts & 2 != 0)
        })?;
        check(reached && csts & 1 == wanted, || {
            format!("CSTS.RDY does not become {wanted} within {bound:?}: CSTS {csts:#010x}")
        })
    }

    /// Disables the controller, waits until it is, and forgets its queues and
    /// their memory.
    ///
    /// # Errors
    /// CSTS.RDY does not fall in its time.
    pub fn disable(&mut self) -> Verdict {
        self.write32(CC, 0)?;
        self.await_ready(false)?;
        self.forget();
        Ok(())
    }

    /// The controller has forgotten every queue.
    pub fn forget(&mut self) {
        self.admin = None;
        self.kept.clear();
        self.granted = None;
        self.in_flight.clear();
        self.stash.clear();
        self.next_qid = 1;
        self.ringing = doorbells::Ringing::Trapped;
    }

    /// Gives the disabled controller admin queues of these sizes, without
    /// enabling it.
    ///
    /// # Errors
    /// No memory, or the bus fails.
    pub fn set_admin_queues(&mut self, sq_entries: u32, cq_entries: u32) -> Verdict {
        let pair = self.lay_out(0, 0, sq_entries, cq_entries)?;
        self.write32(AQA, (cq_entries - 1) << 16 | (sq_entries - 1))?;
        self.write64(ASQ, pair.sq.mem.iova())?;
        self.write64(ACQ, pair.cq.mem.iova())?;
        self.admin = Some(pair);
        Ok(())
    }

    /// Starts the controller again: disables, gives admin queues and enables.
    ///
    /// # Errors
    /// Those of each step.
    pub fn start(&mut self) -> Verdict {
        self.start_with(ADMIN_ENTRIES, ADMIN_ENTRIES, CC_ENABLE)
    }

    /// As [`Self::start`], with admin queues of these sizes and this CC.
    ///
    /// # Errors
    /// Those of each step.
    pub fn start_with(&mut self, sq_entries: u32, cq_entries: u32, cc: u32) -> Verdict {
        self.disable()?;
        self.set_admin_queues(sq_entries, cq_entries)?;
        self.write32(CC, cc)?;
        self.await_ready(true)?;
        self.choose_ringing();
        Ok(())
    }

    /// Makes sure that a test finds a controller that can be enabled: whatever
    /// the test before left behind.
    ///
    /// # Errors
    /// Neither a controller reset nor a function reset brings it back; or the
    /// drive is gone, or asked back while it still works.
    pub fn recover(&mut self) -> Verdict {
        match self.bus.check_alive() {
            // Connections of a target are opened again below.
            Err(error) if !self.is_over_fabrics() => return Err(error.into()),
            Ok(())
                if self.disable().is_ok() && self.csts().is_ok_and(|csts| csts & 0b1110 == 0) =>
            {
                return Ok(());
            }
            _ => {}
        }
        self.bus.reset_function()?;
        self.forget();
        self.enable_function()?;
        self.disable()
    }

    /// An eventfd that a vector signals.
    ///
    /// # Errors
    /// Not supported where the target has no such vector.
    pub fn interrupt(&mut self, vector: u16) -> Verdict<EventFd> {
        if vector >= self.bus.vectors() {
            return not_supported(format!("the target has {} vectors", self.bus.vectors()));
        }
        let eventfd = match EventFd::new() {
            Ok(eventfd) => eventfd,
            Err(error) => return fail(format!("no eventfd: {error}")),
        };
        self.bus.set_interrupt(vector, &eventfd)?;
        Ok(eventfd)
    }

    /// An eventfd that a message of MSI signals.
    ///
    /// # Errors
    /// Not supported where the target offers none.
    pub fn message_interrupt(&mut self, message: u16) -> Verdict<EventFd> {
        let eventfd = match EventFd::new() {
            Ok(eventfd) => eventfd,
            Err(error) => return fail(format!("no eventfd: {error}")),
        };
        match self.bus.set_message_interrupt(message, &eventfd) {
            Ok(()) => Ok(eventfd),
            Err(DriverError::Unsupported(why)) => not_supported(why),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an eventfd is signalled within the bound; clears it.
    ///
    /// # Errors
    /// The server is gone.
    pub fn signalled(&mut self, eventfd: &EventFd) -> Verdict<bool> {
        Ok(self.bus.wait(eventfd, self.options.bound)?)
    }

    /// Whether an eventfd is signalled although it should not be; clears it.
    ///
    /// # Errors
    /// The server is gone.
    pub fn signalled_in_vain(&mut self, eventfd: &EventFd) -> Verdict<bool> {
        Ok(self.bus.wait(eventfd, self.options.quiet)?)
    }
}
