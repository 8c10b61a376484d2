//! A keeper of a subsystem's record in memory, which outlives the process of a [`Rig`], and may die
//! with it before a record is kept and after.

use subsystem::{Allocated, NamespaceRecord, Pool, Record, Subsystem, SubsystemConfig};

use super::rig::{Rig, config};
use crate::crash;

/// The kept record, and the one that is about to be kept.
pub(super) struct Keeper {
    kept: Record,
    taken: Option<(u64, Record)>,
    pools: Vec<Pool>,
    processes: u64,
}

impl Keeper {
    /// One turn: a record is kept in the turn after it is taken.
    pub(super) fn turn(&mut self, subsystem: &mut Subsystem) {
        if let Some((version, record)) = self.taken.take() {
            crash::point();
            self.kept = record;
            crash::point();
            subsystem.kept(version);
        }
        self.taken = subsystem.take_record();
    }

    /// The kept record.
    pub(super) fn kept(&self) -> &Record {
        &self.kept
    }

    /// The subsystem of the next process.
    pub(super) fn continues(&mut self) -> SubsystemConfig {
        self.taken = None;
        self.processes += 1;
        let record = self.kept.clone();
        let mut answers = record.answers;
        let restored = |n: NamespaceRecord| {
            let its = record.reservations.iter().find(|it| it.nsid == n.nsid);
            let reservation = its.map(|it| it.reservation.clone());
            let pool = self.pools.iter().find(|pool| pool.medium == n.medium);
            Allocated {
                reservation: reservation.unwrap_or_default(),
                ..n.restore(pool.unwrap()).unwrap()
            }
        };
        let namespaces = record.namespaces.into_iter().map(restored).collect();
        let mut notices = Vec::new();
        for it in record.reservations {
            answers.extend(it.answers);
            notices.extend(it.notices);
        }
        SubsystemConfig {
            namespaces,
            pools: self.pools.clone(),
            controllers: record.controllers,
            deleted: record.deleted,
            created: record.created,
            sanitize: record.sanitize,
            keeping: true,
            answers,
            notices,
            process: self.processes << 40,
            ..SubsystemConfig::with_namespaces(32, [])
        }
    }
}

impl Rig {
    /// With a keeper of this subsystem's record, whose namespaces are all in these pools.
    pub(super) fn kept(namespaces: Vec<Allocated>, pools: Vec<Pool>) -> Self {
        let plain = SubsystemConfig {
            namespaces,
            pools: pools.clone(),
            ..SubsystemConfig::with_namespaces(32, [])
        };
        let mut keeper = Keeper {
            kept: Subsystem::new(plain).unwrap().record(),
            taken: None,
            pools,
            processes: 0,
        };
        let mut rig = Rig::of(config(), keeper.continues());
        rig.keeper = Some(keeper);
        rig
    }
}
