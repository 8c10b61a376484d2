//! A controller that has one I/O queue, for a host that makes it by itself.
//!
//! ```text
//! enabled -> ready -> Create CQ -> Create SQ -> open
//! ```

use controller::Controller;
use memory::HostMemory;
use nvme_spec::registers::{CC, Cc, CommandSetSelected};
use port::time::Time;

use super::registers::{point, state};
use super::rings::{Rings, rings_len};
use super::steps::{Step, command};

/// Entries of the admin queue: for one command at a time.
const ADMIN_ENTRIES: u32 = 4;
/// Bytes of its rings.
pub(crate) const ADMIN_LEN: usize = rings_len(ADMIN_ENTRIES);
/// The I/O queue.
pub(crate) const QID: u16 = 1;
/// How long the controller may take to become ready.
const READY_NS: u64 = 10_000_000_000;

/// The controller has failed, was disabled, or did not become ready in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The controller becomes ready.
    Enabled,
    /// A command of the host's own is in flight.
    Making(Step),
    Open,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Opening {
    admin: Rings,
    phase: Phase,
    /// When the controller must be ready.
    ready_by: Time,
}

impl Opening {
    /// Enables a controller that was just made, and that has a view of this memory, with these
    /// command sets. `None`: there is no memory.
    pub(crate) fn begin(
        controller: &mut Controller,
        memory: &HostMemory,
        sets: CommandSetSelected,
        now: Time,
    ) -> Option<Self> {
        let mut admin = Rings::new(0, ADMIN_ENTRIES, ADMIN_ENTRIES, memory)?;
        // Without an identifier it takes part in no reservation.
        controller.connect([0; 16], 0);
        point(controller, &mut admin);
        let cc = Cc::new().with_en(true).with_iosqes(6).with_iocqes(4);
        let cc = cc.with_css(sets);
        controller.bar_write(0, CC, &u32::from(cc).to_le_bytes());
        Some(Self {
            admin,
            phase: Phase::Enabled,
            ready_by: now + READY_NS,
        })
    }

    /// Whether there is the I/O queue.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether a command of its own has completed.
    pub(crate) fn has_completion(&self) -> bool {
        self.admin.has_completion()
    }

    /// When the controller must be ready.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (!self.is_open()).then_some(self.ready_by)
    }

    /// Sees what the controller has become, and makes the I/O queue in these rings. True where
    /// something changed.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(crate) fn follow(
        &mut self,
        controller: &mut Controller,
        rings: &Rings,
        now: Time,
    ) -> Result<bool, Failed> {
        let (cc, csts) = state(controller);
        if csts.cfs() || !cc.en() || !self.is_open() && now >= self.ready_by {
            return Err(Failed);
        }
        match self.phase {
            Phase::Open => Ok(false),
            Phase::Enabled if csts.rdy() => {
                self.own(Step::CreateCq, controller, rings);
                Ok(true)
            }
            Phase::Enabled => Ok(false),
            Phase::Making(step) => match self.admin.take() {
                None => Ok(false),
                Some(cqe) if !cqe.status.status().is_success() => Err(Failed),
                Some(_) if step == Step::CreateCq => {
                    self.own(Step::CreateSq, controller, rings);
                    Ok(true)
                }
                Some(_) => {
                    self.phase = Phase::Open;
                    Ok(true)
                }
            },
        }
    }

    /// Submits a command of its own.
    fn own(&mut self, step: Step, controller: &mut Controller, rings: &Rings) {
        let entries_z = u16::try_from(rings.entries() - 1).expect("QSIZE has 16 bits");
        self.admin
            .store(&command(step, QID, entries_z, rings.addresses()));
        self.admin.ring(controller);
        self.phase = Phase::Making(step);
    }
}
