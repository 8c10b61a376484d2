//! Execution of reservation commands in a subsystem, and their effects.
//!
//! A command that changes a reservation is an operation: it is decided when its turn comes, and
//! answered when no command that was fetched before is in flight anywhere, so that a host that has
//! acquired a reservation never sees a late write of another host. So preemption needs no abort of
//! each command (Preempt and Abort is Preempt).

use nvme_spec::opcode::NvmOpcode;
use nvme_spec::reservation::{ReservationReportCdw10, ReservationReportCdw11};
use nvme_spec::{Sqe, Status};
use port::ticket::Ticket;

use super::Subsystem;
use crate::directory::Change;
use crate::operation::{Operation, Requester, Step};
use crate::reservation::{Host, Registered, Reservation, ReservationCommand, report};
use crate::set::ControllerId;

/// Most bytes of data that a forwarded command comes with: two keys (Base 2.1, 7.5 and 7.6).
pub const DATA_LEN: usize = 16;

/// An I/O command that only the subsystem can execute.
#[derive(Debug)]
pub struct Forward {
    /// The duty to complete it.
    pub ticket: Ticket,
    /// The command; its namespace is attached, its blocks are inside of it.
    pub sqe: Sqe,
    /// Its data, padded with zeros.
    pub data: [u8; DATA_LEN],
    /// Its name, if a second execution would have another result; or [`crate::UNNAMED`].
    pub name: u64,
}

/// The host behind a controller with this identifier, of 64 or 128 bits; `None` for another size.
fn host_with(id: ControllerId, identifier: &[u8]) -> Option<Host> {
    if identifier.iter().all(|byte| *byte == 0) {
        return Some(Host::Anonymous(id));
    }
    let short = identifier.try_into().map(Host::Short);
    let extended = || identifier.try_into().map(Host::Extended);
    short.or_else(|_| extended()).ok()
}

impl Subsystem {
    /// Takes a reservation command of a controller's.
    pub(super) fn reservation_command(&mut self, controller: ControllerId, forward: Forward) {
        let Forward {
            ticket,
            sqe,
            data,
            name,
        } = forward;
        let host = self.host_of(controller);
        let by = Requester::Io { controller, ticket };
        let mut operation = Operation::new(by, sqe.nsid, []);
        operation.name = name;
        match parse(&sqe, &data) {
            Some(command) => {
                let step = Step::Reserve { host, command };
                operation.steps.extend([step, Step::Drain, Step::Keep]);
                self.begin(operation);
            }
            None => match self.reservation_report(host, &sqe) {
                Ok(data) => {
                    operation.data = data;
                    self.answer(operation, Ok(0));
                }
                Err(status) => self.answer(operation, Err(status)),
            },
        }
    }

    /// Reservation Report (Base 2.1, 7.8): as much of the structure as the host has room for.
    fn reservation_report(&self, host: Host, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let extended = ReservationReportCdw11::from(sqe.cdw11).eds();
        // The host must ask for identifiers of the size that it has.
        if matches!(host, Host::Short(_)) && extended
            || matches!(host, Host::Extended(_)) && !extended
        {
            return Err(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
        }
        let namespace = self.directory.get(sqe.nsid);
        let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
        let attached = self
            .members
            .iter()
            .filter(|m| m.present && self.is_attached(namespace, m.id));
        let controllers: Vec<Registered> = attached.map(|m| (m.id, m.host)).collect();
        let mut data = report(&namespace.reservation, &controllers, extended);
        let dwords = u64::from(ReservationReportCdw10::from(sqe.cdw10).numd_z()) + 1;
        data.truncate(usize::try_from(4 * dwords).unwrap_or(usize::MAX));
        Ok(data)
    }

    /// Does a command whose turn has come.
    ///
    /// # Errors
    /// Its status; nothing changed.
    pub(super) fn reserve(
        &mut self,
        nsid: u32,
        host: Host,
        command: &ReservationCommand,
    ) -> Result<(), Status> {
        let namespace = self.directory.get(nsid);
        let mut namespace = namespace
            .ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?
            .clone();
        let notices = namespace.reservation.execute(host, command)?;
        let reservation = Box::new(namespace.reservation);
        self.apply(Change::Reserve { nsid, reservation }, None)?;
        for (host, what) in notices {
            self.notify(nsid, what, |m| {
                m.present
                    && m.host == host
                    && namespace.attached.contains(m.entrance())
                    && m.sees(namespace.hosts.as_deref())
            });
        }
        Ok(())
    }

    /// The host behind a controller.
    #[must_use]
    pub fn host_of(&self, id: ControllerId) -> Host {
        self.member(id).map_or(Host::Anonymous(id), |m| m.host)
    }

    /// The host behind a controller has set its identifier (feature 81h), of 64 or 128 bits; 0 is
    /// none.
    ///
    /// # Errors
    /// Host Identifier Inconsistent Format: another controller's host has one of the other size.
    pub fn set_host(&mut self, id: ControllerId, identifier: &[u8]) -> Result<(), Status> {
        let host = host_with(id, identifier).ok_or(Status::INVALID_FIELD_IN_COMMAND)?;
        let mixed = |other: Host| {
            matches!(
                (host, other),
                (Host::Short(_), Host::Extended(_)) | (Host::Extended(_), Host::Short(_))
            )
        };
        let mut others = self.members.iter().filter(|m| m.present && m.id != id);
        if others.any(|m| mixed(m.host)) {
            return Err(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
        }
        self.change_host(id, host);
        Ok(())
    }

    /// The host behind a controller has this identifier: a controller that goes on in this process,
    /// or one that a host connected to over a network.
    pub fn continue_host(&mut self, id: ControllerId, identifier: &[u8]) {
        // The sizes are not compared: others may not have theirs back yet, and Connect has an
        // identifier of 128 bits whatever other hosts have.
        if let Some(host) = host_with(id, identifier) {
            self.change_host(id, host);
        }
    }

    /// A Controller Level Reset: its host has no identifier any more, and a host without one is
    /// another one from now on (Base 2.1, 5.1.25.1.28). The number of the last notification that
    /// waited for it.
    pub fn controller_was_reset(&mut self, id: ControllerId) -> Option<u64> {
        self.answers.forget(id);
        let anonymous = Host::Anonymous(id);
        self.forget_host(anonymous);
        self.change_host(id, anonymous);
        self.forget_notices(id)
    }

    /// A host is registered nowhere any more.
    pub(super) fn forget_host(&mut self, host: Host) {
        let namespaces: Vec<(u32, Reservation)> = self
            .directory
            .iter()
            .map(|n| (n.nsid(), n.reservation.clone()))
            .collect();
        for (nsid, mut reservation) in namespaces {
            if reservation.forget(host) {
                let reservation = Box::new(reservation);
                let changed = self.apply(Change::Reserve { nsid, reservation }, None);
                debug_assert_eq!(changed, Ok(()));
            }
        }
    }

    fn change_host(&mut self, id: ControllerId, host: Host) {
        let Some(member) = self.member_mut(id).filter(|m| m.host != host) else {
            return;
        };
        member.host = host;
        // What it may do is another host's right from now on.
        self.generation += 1;
    }

    /// Why the host behind a controller may not change a namespace with an admin command; `None`
    /// where it may.
    #[must_use]
    pub fn write_refusal(&self, id: ControllerId, nsid: u32) -> Option<Status> {
        let (_, writes) = self
            .directory
            .get(nsid)?
            .reservation
            .access(self.host_of(id));
        (!writes).then_some(Status::RESERVATION_CONFLICT)
    }
}

/// A command that changes something; `None` for Reservation Report.
fn parse(sqe: &Sqe, data: &[u8; 16]) -> Option<ReservationCommand> {
    let [crkey, second] = keys(data);
    match sqe.nvm_opcode() {
        NvmOpcode::RESERVATION_REGISTER => Some(ReservationCommand::Register {
            cdw10: sqe.cdw10.into(),
            crkey,
            nrkey: second,
        }),
        NvmOpcode::RESERVATION_ACQUIRE => Some(ReservationCommand::Acquire {
            cdw10: sqe.cdw10.into(),
            crkey,
            prkey: second,
        }),
        NvmOpcode::RESERVATION_RELEASE => Some(ReservationCommand::Release {
            cdw10: sqe.cdw10.into(),
            crkey,
        }),
        _ => None,
    }
}

/// The two 64-bit values that the data of a forwarded command are.
pub(super) fn keys(data: &[u8; 16]) -> [u64; 2] {
    let value = |at: usize| {
        let bytes = data[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes are eight bytes"))
    };
    [value(0), value(8)]
}
