//! Reservations of one namespace (Base 2.1, 8.1.22): registrants, the holder, and the access rights
//! of each.
//!
//! A registrant is a host, not a controller: controllers with the same Host Identifier act for the
//! same host. A controller whose host never set an identifier counts as a separate host, which is
//! gone at the next reset.
//!
//! Invariants: a holder is a registrant; without registrants there is no reservation. This module
//! decides; it does NOT wait for commands in flight, keep records, or notify hosts: it returns whom
//! to notify.

mod report;

use nvme_spec::Status;
use nvme_spec::reservation::{
    AcquireAction, ChangePtpl, RegisterAction, ReleaseAction, ReservationAcquireCdw10,
    ReservationNotificationType, ReservationRegisterCdw10, ReservationReleaseCdw10,
    ReservationType,
};
use serde::{Deserialize, Serialize};

pub(super) use self::report::{Registered, report};
use super::set::{ControllerId, MAX_CONTROLLERS, MAX_DYNAMIC_CONTROLLERS};

/// The most registrants of a namespace: one host for each controller that can be, and as many that
/// have gone.
const MAX_REGISTRANTS: usize = 2 * (MAX_CONTROLLERS as usize + MAX_DYNAMIC_CONTROLLERS);

/// A host as reservations know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Host {
    /// It set a Host Identifier of 64 bits other than 0 (feature 81h).
    Short([u8; 8]),
    /// It set one of 128 bits other than 0.
    Extended([u8; 16]),
    /// It set none: two such controllers have different hosts (Base 2.1, 5.1.25.1.28).
    Anonymous(ControllerId),
}

/// A registered host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registrant {
    /// Who.
    pub host: Host,
    /// Its reservation key.
    pub key: u64,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// Reservation Type, 1 to 6.
    rtype: u8,
    /// Its holder; with the all registrants types, that is every registrant.
    holder: Option<Host>,
}

/// The reservation of a namespace, and who is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    registrants: Vec<Registrant>,
    held: Option<Held>,
    /// Persist Through Power Loss.
    ptpl: bool,
    /// Counts changes of the registrants (Base 2.1, 7.8, GEN).
    generation: u32,
}

/// Hosts to notify, and their notifications.
pub(super) type Notices = Vec<(Host, ReservationNotificationType)>;

/// A reservation command with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reservation Register: current and new key.
    Register {
        /// Dword 10.
        cdw10: ReservationRegisterCdw10,
        /// CRKEY.
        crkey: u64,
        /// NRKEY.
        nrkey: u64,
    },
    /// Reservation Acquire: current key and the one to preempt.
    Acquire {
        /// Dword 10.
        cdw10: ReservationAcquireCdw10,
        /// CRKEY.
        crkey: u64,
        /// PRKEY.
        prkey: u64,
    },
    /// Reservation Release: current key.
    Release {
        /// Dword 10.
        cdw10: ReservationReleaseCdw10,
        /// CRKEY.
        crkey: u64,
    },
}

/// Whether every registrant holds a reservation of this type.
fn is_all_registrants(rtype: u8) -> bool {
    let rtype = ReservationType(rtype);
    rtype == ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS
        || rtype == ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS
}

/// Whether registrants share the holder's access: the registrants only and the all registrants
/// types.
fn admits_registrants(rtype: u8) -> bool {
    let rtype_ = ReservationType(rtype);
    is_all_registrants(rtype)
        || rtype_ == ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY
        || rtype_ == ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY
}

/// Whether those without access may still read.
fn admits_readers(rtype: u8) -> bool {
    let rtype = ReservationType(rtype);
    rtype == ReservationType::WRITE_EXCLUSIVE
        || rtype == ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY
        || rtype == ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS
}

impl Reservation {
    /// Does a command of `host`'s.
    ///
    /// # Errors
    /// The command's status; nothing changed.
    pub(super) fn execute(
        &mut self,
        host: Host,
        command: &ReservationCommand,
    ) -> Result<Notices, Status> {
        match *command {
            ReservationCommand::Register {
                cdw10,
                crkey,
                nrkey,
            } => self.register(host, cdw10, crkey, nrkey),
            ReservationCommand::Acquire {
                cdw10,
                crkey,
                prkey,
            } => self.acquire(host, cdw10, crkey, prkey),
            ReservationCommand::Release { cdw10, crkey } => self.release(host, cdw10, crkey),
        }
    }

    /// Whether the host may read, and whether it may write (Base 2.1, 8.1.22, Command Behavior in
    /// the Presence of a Reservation).
    #[must_use]
    pub fn access(&self, host: Host) -> (bool, bool) {
        let Some(held) = self.held else {
            return (true, true);
        };
        let full = self.is_holder(host)
            || admits_registrants(held.rtype) && self.registrant(host).is_some();
        (full || admits_readers(held.rtype), full)
    }

    /// Whether it survives a power cycle.
    #[must_use]
    pub fn persists(&self) -> bool {
        self.ptpl
    }

    /// Persist Through Power Loss is set by feature 83h (Base 2.1, 5.1.25.1.30).
    pub fn set_persists(&mut self, persists: bool) {
        self.ptpl = persists;
    }

    /// The state after a power cycle: all of it if that was requested, else nothing. Hosts without
    /// an identifier are different ones then.
    #[must_use]
    pub fn after_power_cycle(mut self) -> Self {
        if !self.ptpl {
            return Reservation::default();
        }
        let anonymous: Vec<Host> = self.hosts().filter(|host| !host.is_identified()).collect();
        anonymous.into_iter().for_each(|host| {
            self.forget(host);
        });
        self
    }

    /// The host is another one from now on: a controller without a Host Identifier was reset
    /// (Base 2.1, 5.1.25.1.28). Whether anything changed.
    pub(super) fn forget(&mut self, host: Host) -> bool {
        let there = self.registrant(host).is_some();
        if there {
            self.unregister(host, &mut Notices::new());
        }
        there
    }

    /// The part that another process with the same hosts goes on with: all except the hosts of
    /// dynamic controllers that have no identifier, as these controllers end with the process.
    pub(super) fn for_another_process(&self) -> Self {
        let mut kept = self.clone();
        let ends = |host: &Host| matches!(host, Host::Anonymous(id) if id.is_dynamic());
        for host in self.hosts().filter(ends) {
            kept.forget(host);
        }
        kept
    }

    fn hosts(&self) -> impl Iterator<Item = Host> {
        self.registrants.iter().map(|r| r.host)
    }

    fn registrant(&self, host: Host) -> Option<&Registrant> {
        self.registrants.iter().find(|r| r.host == host)
    }

    fn is_holder(&self, host: Host) -> bool {
        self.held.is_some_and(|held| match held.holder {
            Some(holder) => holder == host,
            None => self.registrant(host).is_some(),
        })
    }

    fn hold(&mut self, host: Host, rtype: ReservationType) {
        let holder = (!is_all_registrants(rtype.0)).then_some(host);
        self.held = Some(Held {
            rtype: rtype.0,
            holder,
        });
    }

    /// Only a registrant with this key may go on.
    fn check_key(&self, host: Host, key: u64) -> Result<(), Status> {
        match self.registrant(host) {
            Some(registrant) if registrant.key == key => Ok(()),
            _ => Err(Status::RESERVATION_CONFLICT),
        }
    }

    /// Notifies every registrant except `host`.
    fn tell_others(&self, host: Host, notice: ReservationNotificationType, notices: &mut Notices) {
        let others = self.hosts().filter(|other| *other != host);
        notices.extend(others.map(|other| (other, notice)));
    }

    /// Reservation Register (Base 2.1, 7.6).
    fn register(
        &mut self,
        host: Host,
        cdw10: ReservationRegisterCdw10,
        crkey: u64,
        nrkey: u64,
    ) -> Result<Notices, Status> {
        let ptpl = match cdw10.cptpl() {
            ChangePtpl::NO_CHANGE => self.ptpl,
            ChangePtpl::CLEAR => false,
            ChangePtpl::SET => true,
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        let mut notices = Notices::new();
        let known = self.registrant(host).copied();
        match cdw10.rrega() {
            RegisterAction::REGISTER => match known {
                Some(registrant) if registrant.key != nrkey => {
                    return Err(Status::RESERVATION_CONFLICT);
                }
                Some(_) => {}
                None => self.add(host, nrkey)?,
            },
            RegisterAction::UNREGISTER => {
                let known = known.ok_or(Status::RESERVATION_CONFLICT)?;
                if !cdw10.iekey() && known.key != crkey {
                    return Err(Status::RESERVATION_CONFLICT);
                }
                self.unregister(host, &mut notices);
            }
            RegisterAction::REPLACE => match known {
                // Without regard to whether it is registered, where the existing key is ignored.
                None if cdw10.iekey() => self.add(host, nrkey)?,
                Some(known) if cdw10.iekey() || known.key == crkey => {
                    let mut registrants = self.registrants.iter_mut();
                    if let Some(registrant) = registrants.find(|r| r.host == host) {
                        registrant.key = nrkey;
                    }
                }
                _ => return Err(Status::RESERVATION_CONFLICT),
            },
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        }
        self.ptpl = ptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    fn add(&mut self, host: Host, key: u64) -> Result<(), Status> {
        if self.registrants.len() >= MAX_REGISTRANTS {
            return Err(Status::INTERNAL_ERROR);
        }
        self.registrants.push(Registrant { host, key });
        Ok(())
    }

    /// Removes a registrant. A reservation that it alone holds is released, and hosts that had
    /// access by it are notified.
    fn unregister(&mut self, host: Host, notices: &mut Notices) {
        let was_holder = self.is_holder(host);
        self.registrants.retain(|r| r.host != host);
        let Some(held) = self.held.filter(|_| was_holder) else {
            return;
        };
        if held.holder.is_some() || self.registrants.is_empty() {
            self.held = None;
            if admits_registrants(held.rtype) {
                let notice = ReservationNotificationType::RESERVATION_RELEASED;
                self.tell_others(host, notice, notices);
            }
        }
    }

    /// Reservation Acquire (Base 2.1, 7.5).
    fn acquire(
        &mut self,
        host: Host,
        cdw10: ReservationAcquireCdw10,
        crkey: u64,
        prkey: u64,
    ) -> Result<Notices, Status> {
        let (action, rtype) = (cdw10.racqa(), cdw10.rtype());
        let known = [
            AcquireAction::ACQUIRE,
            AcquireAction::PREEMPT,
            AcquireAction::PREEMPT_AND_ABORT,
        ];
        if cdw10.iekey() || !known.contains(&action) || !(1..=6).contains(&rtype.0) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.check_key(host, crkey)?;
        if action != AcquireAction::ACQUIRE {
            // No command of the preempted hosts is in flight when this completes: there is none to
            // abort.
            return self.preempt(host, rtype, prkey);
        }
        match self.held {
            None => self.hold(host, rtype),
            Some(held) if held.rtype == rtype.0 && self.is_holder(host) => {}
            Some(_) => return Err(Status::RESERVATION_CONFLICT),
        }
        Ok(Notices::new())
    }

    /// Preempt (Base 2.1, 8.1.22.7): registrants with that key go, and where the holder is one of
    /// them, the reservation is replaced.
    fn preempt(
        &mut self,
        host: Host,
        rtype: ReservationType,
        prkey: u64,
    ) -> Result<Notices, Status> {
        let matches = |r: &&Registrant| r.key == prkey;
        let mut gone: Vec<Host> = self
            .registrants
            .iter()
            .filter(matches)
            .map(|r| r.host)
            .collect();
        let replaces = match self.held {
            None => false,
            Some(Held {
                holder: Some(holder),
                ..
            }) => gone.contains(&holder),
            // Key 0 names all of those who hold it together.
            Some(Held { holder: None, .. }) => {
                if prkey == 0 {
                    gone = self.hosts().collect();
                }
                prkey == 0
            }
        };
        if !replaces && prkey == 0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if gone.is_empty() && !replaces {
            return Err(Status::RESERVATION_CONFLICT);
        }
        let before = self.held.map(|held| held.rtype);
        if replaces {
            // The preempting host stays, even with the key that it names.
            gone.retain(|other| *other != host);
            self.held = None;
        }
        let mut notices = Notices::new();
        for other in &gone {
            self.unregister(*other, &mut Notices::new());
        }
        let others = gone.iter().filter(|other| **other != host);
        for other in others {
            let notice = ReservationNotificationType::REGISTRATION_PREEMPTED;
            notices.push((*other, notice));
        }
        if replaces {
            self.hold(host, rtype);
            if before.is_some_and(|before| before != rtype.0 && admits_registrants(before)) {
                let notice = ReservationNotificationType::RESERVATION_RELEASED;
                self.tell_others(host, notice, &mut notices);
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// Reservation Release (Base 2.1, 7.7).
    fn release(
        &mut self,
        host: Host,
        cdw10: ReservationReleaseCdw10,
        crkey: u64,
    ) -> Result<Notices, Status> {
        let action = cdw10.rrela();
        let known = [ReleaseAction::RELEASE, ReleaseAction::CLEAR];
        if cdw10.iekey() || !known.contains(&action) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.check_key(host, crkey)?;
        let mut notices = Notices::new();
        if action == ReleaseAction::CLEAR {
            let notice = ReservationNotificationType::RESERVATION_PREEMPTED;
            self.tell_others(host, notice, &mut notices);
            self.registrants.clear();
            self.held = None;
            self.generation = self.generation.wrapping_add(1);
            return Ok(notices);
        }
        // It has nothing to release: that is no error.
        let Some(held) = self.held.filter(|_| self.is_holder(host)) else {
            return Ok(notices);
        };
        if held.rtype != cdw10.rtype().0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.held = None;
        if admits_registrants(held.rtype) {
            let notice = ReservationNotificationType::RESERVATION_RELEASED;
            self.tell_others(host, notice, &mut notices);
        }
        Ok(notices)
    }
}

impl Host {
    fn is_identified(self) -> bool {
        !matches!(self, Host::Anonymous(_))
    }
}

#[cfg(test)]
mod tests;
