//! The registers that a driver expects: properties of the controller, by Property Get and Property
//! Set (Base 2.1, 6.5 and 6.6), and those of the Admin Queue's rings, which only this end has.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use nvme_spec::fabrics::{FabricsType, PropertyCdw10, PropertySize};
use nvme_spec::registers::{
    ACQ, AQA, ASQ, Aqa, CAP, CC, CRTO, CSTS, Cap, Cc, INTMC, INTMS, NSSR, VS,
};
use nvme_spec::{Cqe, Sqe};

use super::connect::{self, ADMIN, Way};
use super::connection::End;
use super::queues::OWN_CID;
use super::rings::{Cq, Sq};
use super::stream::Channel;
use super::{NvmeTcp, QUEUES, lock};
use crate::DriverError;

/// Registers that only this end has, and what is known of the controller.
#[derive(Default)]
pub(super) struct Registers {
    aqa: u32,
    asq: u64,
    acq: u64,
    /// CC.EN as written last.
    is_enabled: bool,
    /// The controller was disabled: a controller of a target is enabled once, and the next one has
    /// connections of its own.
    is_spent: bool,
}

impl NvmeTcp {
    /// Ends all connections and connects the Admin Queue.
    pub(super) fn associate(&self, registers: &mut Registers) -> Result<(), DriverError> {
        (0..QUEUES).for_each(|qid| self.drop_queue(qid));
        let (channel, peer) = if self.host.concatenates {
            let made = connect::concatenate(&self.target, None, &self.host, self.timeout);
            let (generated, peer) = made?;
            (Channel::Generated(Arc::new(generated)), peer)
        } else {
            (self.host.channel(), None)
        };
        let way = Way {
            target: &self.target,
            peer,
            channel: &channel,
        };
        let (connection, cntlid) = connect::open(way, &self.host, ADMIN, self.timeout)?;
        *lock(&self.channel) = channel;
        self.cntlid.store(cntlid, Ordering::Relaxed);
        *lock(&self.peer) = connection.peer();
        *lock(&self.queues[0]) = Some(self.queue(0, connection, None)?);
        *lock(&self.end) = None;
        self.has_ended.store(false, Ordering::Release);
        (registers.is_enabled, registers.is_spent) = (false, false);
        Ok(())
    }

    fn drop_queue(&self, qid: u16) {
        self.close(qid);
        *lock(&self.completions[usize::from(qid)]) = None;
    }

    pub(super) fn read_register(&self, offset: u64) -> Result<u32, DriverError> {
        match offset {
            VS | CC | CSTS | NSSR | CRTO => {
                let value = self.get(offset, PropertySize::BYTES_4)?;
                Ok(u32::try_from(value & u64::from(u32::MAX)).expect("its lower half"))
            }
            AQA => Ok(lock(&self.registers).aqa),
            INTMS | INTMC => Ok(0),
            _ => Err(unknown(offset)),
        }
    }

    pub(super) fn read_long_register(&self, offset: u64) -> Result<u64, DriverError> {
        match offset {
            CAP => {
                // Doorbells are this end's: they have the stride 0.
                let cap = Cap::from(self.get(CAP, PropertySize::BYTES_8)?);
                Ok(cap.with_dstrd(0).into())
            }
            ASQ => Ok(lock(&self.registers).asq),
            ACQ => Ok(lock(&self.registers).acq),
            _ => Err(unknown(offset)),
        }
    }

    pub(super) fn write_register(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        match offset {
            CC => self.write_cc(value),
            NSSR => self.set(offset, value),
            AQA => {
                lock(&self.registers).aqa = value;
                Ok(())
            }
            // Interrupts of a pin, which there is none of.
            INTMS | INTMC => Ok(()),
            _ => Err(unknown(offset)),
        }
    }

    pub(super) fn write_long_register(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        let mut registers = lock(&self.registers);
        match offset {
            ASQ => registers.asq = value,
            ACQ => registers.acq = value,
            _ => return Err(unknown(offset)),
        }
        Ok(())
    }

    fn write_cc(&self, value: u32) -> Result<(), DriverError> {
        let mut registers = lock(&self.registers);
        let enables = Cc::from(value).en();
        let was_enabled = registers.is_enabled;
        if enables && !was_enabled {
            if registers.is_spent {
                self.associate(&mut registers)?;
            }
            self.make_admin_rings(&registers)?;
        }
        self.set(CC, value)?;
        registers.is_enabled = enables;
        if was_enabled && !enables {
            (1..QUEUES).for_each(|qid| self.drop_queue(qid));
            registers.is_spent = true;
        }
        Ok(())
    }

    fn make_admin_rings(&self, registers: &Registers) -> Result<(), DriverError> {
        let aqa = Aqa::from(registers.aqa);
        let shared = self.read_shared();
        let sq = Sq::new(&shared, registers.asq, u32::from(aqa.asqs_z()) + 1, 0);
        let cq = Cq::new(&shared, registers.acq, u32::from(aqa.acqs_z()) + 1, Some(0));
        let (Some(sq), Some(cq)) = (sq, cq) else {
            return Err(DriverError::Unsupported(
                "the Admin Queue (AQA, ASQ, ACQ) is not in memory that is shared".to_owned(),
            ));
        };
        let mut admin = lock(&self.queues[0]);
        admin.as_mut().ok_or(DriverError::Gone)?.sq = Some(sq);
        *lock(&self.completions[0]) = Some(cq);
        Ok(())
    }

    fn get(&self, offset: u64, size: PropertySize) -> Result<u64, DriverError> {
        let mut sqe = Sqe::fabrics(FabricsType::PROPERTY_GET);
        sqe.cdw10 = PropertyCdw10::new().with_size(size).into();
        self.property(sqe, offset, "Property Get")
    }

    fn set(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        let sqe = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(value.into());
        self.property(sqe, offset, "Property Set").map(drop)
    }

    fn property(&self, mut sqe: Sqe, offset: u64, what: &'static str) -> Result<u64, DriverError> {
        sqe.cdw11 = u32::try_from(offset).expect("properties lie below 4 KiB");
        let cqe = self.run_own(sqe, what)?;
        DriverError::check(what, cqe.status.status())?;
        Ok(cqe.property())
    }

    /// Sends the bus's own command and waits for it.
    pub(super) fn run_own(&self, mut sqe: Sqe, what: &'static str) -> Result<Cqe, DriverError> {
        self.check()?;
        sqe.cid = OWN_CID;
        let shared = self.read_shared();
        let mut admin = lock(&self.queues[0]);
        let queue = admin.as_mut().ok_or(DriverError::Gone)?;
        let deadline = Instant::now() + self.timeout;
        queue.answer = None;
        queue
            .connection
            .add(sqe, None)
            .expect("the bus has one command at a time, and room for it");
        loop {
            // Commands of the driver that cannot be sent are completed here, and the end of a
            // connection is noted.
            let _ = self.serve(queue, &shared);
            if let Some(cqe) = queue.answer.take() {
                return Ok(cqe);
            }
            self.check()?;
            if !queue.connection.wait(deadline).map_err(|end| {
                self.end(end);
                DriverError::from(end)
            })? {
                // The answer may still come: the connection is of no more use.
                let end = End::Silent {
                    what,
                    after: self.timeout,
                };
                self.end(end);
                return Err(end.into());
            }
        }
    }
}

fn unknown(offset: u64) -> DriverError {
    DriverError::Unsupported(format!(
        "there is no property at {offset:#x} that hosts reach over fabrics"
    ))
}
