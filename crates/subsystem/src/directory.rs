//! The namespaces of a subsystem, their attachments, and the free space.
//!
//! Invariants: identifiers are unique and within the limit; in a pool no two namespaces overlap.
//! Changes arrive checked ([`Directory::allocate`] and similar functions report what is possible);
//! applying one fails only where documented.
//!
//! Restrictions of commands on a namespace have several sources, each kept separately here;
//! [`Directory::table`] composes them for one controller.

use nvme_spec::ana::AnaState;
use nvme_spec::{NSID_ALL, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::{BlockRanges, ByteRange, ChannelId};

use super::access::{Access, AnaStates, ana_refusal};
use super::allocated::{Allocated, Busy, GRANULE, Pool};
use super::answers::Answers;
use super::notices::KeptNotice;
use super::record::{ControllerRecord, CurrentReservation, Record};
use super::reservation::{Host, Reservation};
use super::sanitize::{Sanitize, SanitizeChange};
use super::set::{ControllerId, ControllerSet};
use crate::config::{ConfigError, check_namespaces};

/// An edit of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a namespace, attached to no controller.
    Create(Box<Allocated>),
    /// A namespace is gone.
    Delete {
        /// Which.
        nsid: u32,
    },
    /// These controllers get the namespace.
    Attach {
        /// Which.
        nsid: u32,
        /// Who.
        controllers: ControllerSet,
    },
    /// These controllers lose it.
    Detach {
        /// Which.
        nsid: u32,
        /// Who.
        controllers: ControllerSet,
    },
    /// It has another block size, and so another number of blocks.
    Reformat {
        /// Which.
        nsid: u32,
        /// Size of a logical block as a power of two.
        lba_shift: u8,
    },
    /// Reduces its number of blocks; its reserved space stays.
    Truncate {
        /// Which.
        nsid: u32,
        /// New size in logical blocks, at most the previous one.
        blocks: u64,
    },
    /// It has other bytes reserved; its blocks stay.
    Occupy {
        /// Which.
        nsid: u32,
        /// Bytes reserved from now on, at least the size of its blocks.
        len: u64,
    },
    /// It has another size; its start stays.
    Resize {
        /// Which.
        nsid: u32,
        /// Bytes reserved from now on.
        len: u64,
    },
    /// Its medium takes no writes from now on, or takes them again.
    SetReadOnly {
        /// Which.
        nsid: u32,
        /// Whether.
        read_only: bool,
    },
    /// An operation begins or ends that keeps hosts from it.
    SetBusy {
        /// Which.
        nsid: u32,
        /// `None`: nothing keeps them.
        busy: Option<Busy>,
    },
    /// Its registrants and its reservation are these.
    Reserve {
        /// Which.
        nsid: u32,
        /// The new reservation.
        reservation: Box<Reservation>,
    },
    /// Whether its reservation persists through a power loss.
    SetPersists {
        /// Which.
        nsid: u32,
        /// Whether.
        persists: bool,
    },
    /// Blocks read as errors from now on. Fails where there would be more than
    /// [`port::RANGES_MAX`] ranges of them.
    MarkUncorrectable {
        /// Which.
        nsid: u32,
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Makes blocks readable again, with their contents. Fails as [`Change::MarkUncorrectable`], if
    /// it would split a range.
    ClearUncorrectable {
        /// Which.
        nsid: u32,
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Progress of a sanitize operation.
    Sanitize(SanitizeChange),
    /// A sanitize operation has not begun: restores its previous state.
    RestoreSanitize(Box<Sanitize>),
}

impl Change {
    /// The namespace it is about; `NSID_ALL`: all of them.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        match self {
            Change::Create(new) => new.nsid(),
            Change::Delete { nsid }
            | Change::Attach { nsid, .. }
            | Change::Detach { nsid, .. }
            | Change::Reformat { nsid, .. }
            | Change::Truncate { nsid, .. }
            | Change::Occupy { nsid, .. }
            | Change::Resize { nsid, .. }
            | Change::SetReadOnly { nsid, .. }
            | Change::SetBusy { nsid, .. }
            | Change::Reserve { nsid, .. }
            | Change::SetPersists { nsid, .. }
            | Change::MarkUncorrectable { nsid, .. }
            | Change::ClearUncorrectable { nsid, .. } => *nsid,
            Change::Sanitize(_) | Change::RestoreSanitize(_) => NSID_ALL,
        }
    }

    /// Whether hosts are notified of it (Base 2.1, 5.1.2, Attached Namespace Attribute Changed).
    #[must_use]
    pub fn is_announced(&self) -> bool {
        match self {
            Change::Create(_)
            | Change::Delete { .. }
            | Change::Attach { .. }
            | Change::Detach { .. }
            | Change::Reformat { .. }
            | Change::Truncate { .. }
            | Change::Resize { .. }
            | Change::SetReadOnly { .. } => true,
            Change::Occupy { .. }
            | Change::SetBusy { .. }
            | Change::Reserve { .. }
            | Change::SetPersists { .. }
            | Change::MarkUncorrectable { .. }
            | Change::ClearUncorrectable { .. }
            | Change::Sanitize(_)
            | Change::RestoreSanitize(_) => false,
        }
    }
}

/// The namespaces of a subsystem.
#[derive(Debug)]
pub struct Directory {
    /// By ascending identifier.
    namespaces: Vec<Allocated>,
    pools: Vec<Pool>,
    limit: u32,
    /// Names of configured namespaces that hosts deleted.
    deleted: Vec<String>,
    /// Namespaces that hosts created, ever.
    created: u64,
    sanitize: Sanitize,
    access: Access,
}

impl Directory {
    pub(super) fn new(
        mut namespaces: Vec<Allocated>,
        pools: Vec<Pool>,
        limit: u32,
    ) -> Result<Self, ConfigError> {
        check_namespaces(namespaces.iter().map(Allocated::nsid), limit)?;
        namespaces.sort_by_key(Allocated::nsid);
        Ok(Directory {
            namespaces,
            pools,
            limit,
            deleted: Vec::new(),
            created: 0,
            sanitize: Sanitize::default(),
            access: Access::default(),
        })
    }

    /// Every namespace, by ascending identifier, without those that are being created.
    pub fn iter(&self) -> impl Iterator<Item = &Allocated> {
        let exists = |n: &&Allocated| n.busy != Some(Busy::Creating);
        self.namespaces.iter().filter(exists)
    }

    /// The namespace with this identifier; none while it is being created.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&Allocated> {
        let found = self.namespaces.get(self.position(nsid)?);
        found.filter(|n| n.busy != Some(Busy::Creating))
    }

    /// State of sanitize operations.
    #[must_use]
    pub fn sanitize(&self) -> &Sanitize {
        &self.sanitize
    }

    /// So many passes of a sanitize operation are completed.
    pub(super) fn note_passes(&mut self, passes: u8) {
        self.sanitize.note_passes(passes);
    }

    /// User data was written; whether that is news.
    pub(super) fn note_data(&mut self) -> bool {
        self.sanitize.note_data()
    }

    fn position(&self, nsid: u32) -> Option<usize> {
        let found = self.namespaces.binary_search_by_key(&nsid, Allocated::nsid);
        found.ok()
    }

    /// The media that hosts may use.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The controllers that have the namespace attached.
    #[must_use]
    pub fn attachments(&self, nsid: u32) -> ControllerSet {
        self.get(nsid).map_or(ControllerSet::NONE, |n| n.attached)
    }

    /// A controller's attached namespaces, with the restrictions of its host and of its entrance,
    /// which is the controller itself unless it is dynamic.
    #[must_use]
    pub fn table(
        &self,
        entrance: ControllerId,
        has_it: impl Fn(&Allocated) -> bool,
        host: Host,
    ) -> NamespaceTable {
        let attached = self.namespaces.iter().filter(|n| has_it(n));
        let lock = self.sanitize.lock();
        let seen = |n: &Allocated| {
            let mut restrictions = n.restrictions(host);
            // A host has another way there, which no other status has it look for.
            let refusal = ana_refusal(self.ana_state(entrance, n.ana_group));
            restrictions.all = refusal.or(lock).or(restrictions.all);
            Namespace {
                restrictions: restrictions.some(),
                ..n.namespace.clone()
            }
        };
        NamespaceTable::from(attached.map(seen).collect::<Vec<Namespace>>())
    }

    /// The state of an ANA group for the hosts of an entrance.
    #[must_use]
    pub fn ana_state(&self, entrance: ControllerId, group: u32) -> AnaState {
        self.access.state(entrance, group)
    }

    /// Sets the states of all groups for the hosts of an entrance; false where nothing changes.
    pub(super) fn set_ana_states(&mut self, entrance: ControllerId, states: AnaStates) -> bool {
        self.access.set(entrance, states)
    }

    /// The lowest identifier that no namespace has.
    ///
    /// # Errors
    /// Namespace Identifier Unavailable.
    pub fn free_nsid(&self) -> Result<u32, Status> {
        (1..=self.limit)
            .find(|nsid| self.position(*nsid).is_none())
            .ok_or(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE)
    }

    /// Bytes of the pools and of the namespaces elsewhere, and bytes of the pools that hosts may
    /// still make namespaces of (TNVMCAP and UNVMCAP).
    #[must_use]
    pub fn capacity(&self) -> (u128, u128) {
        let pools = self.pools.iter().map(|pool| u128::from(pool.bytes));
        let in_pool = |n: &&Allocated| self.pools.iter().any(|p| p.channel == n.namespace.channel);
        let elsewhere = self.namespaces.iter().filter(|n| !in_pool(n));
        let total = pools.chain(elsewhere.map(|n| n.len.into())).sum();
        let gaps = self.pools.iter().flat_map(|pool| self.gaps(pool));
        let rooms = gaps.filter_map(|gap| aligned(gap, GRANULE));
        (total, rooms.map(|room| u128::from(room.len)).sum())
    }

    /// The parts of a pool that no namespace has, in order.
    fn gaps(&self, pool: &Pool) -> Vec<ByteRange> {
        let in_pool = |n: &&Allocated| n.namespace.channel == pool.channel;
        let mut taken: Vec<ByteRange> = self
            .namespaces
            .iter()
            .filter(in_pool)
            .map(Allocated::extent)
            .collect();
        taken.sort_by_key(|extent| extent.offset);
        let end = ByteRange {
            offset: pool.bytes,
            len: 0,
        };
        let mut gaps = Vec::new();
        let mut at = 0_u64;
        for extent in taken.into_iter().chain([end]) {
            if at < extent.offset {
                let len = extent.offset - at;
                gaps.push(ByteRange { offset: at, len });
            }
            at = at.max(extent.offset.saturating_add(extent.len));
        }
        gaps
    }

    /// Parts of the pools without a namespace, which may hold data of deleted ones.
    pub(super) fn unallocated(&self) -> Vec<(ChannelId, ByteRange)> {
        let of_pool = |pool: &'_ Pool| {
            let (channel, least) = (pool.channel, u64::from(pool.min_lba_bytes));
            let parts = self.gaps(pool).into_iter();
            parts.filter_map(move |gap| Some((channel, aligned(gap, least)?)))
        };
        self.pools.iter().flat_map(of_pool).collect()
    }

    /// Room for `len` bytes, in one piece, where blocks of that size can be: the first that is
    /// large enough.
    #[must_use]
    pub fn allocate(&self, len: u64, lba_bytes: u32) -> Option<(&Pool, ByteRange)> {
        let len = len.checked_next_multiple_of(GRANULE)?;
        let mut pools = self.pools.iter().filter(|pool| pool.takes(lba_bytes));
        pools.find_map(|pool| {
            let gaps = self.gaps(pool).into_iter();
            let mut rooms = gaps.filter_map(|gap| aligned(gap, GRANULE));
            let offset = rooms.find(|room| room.len >= len)?.offset;
            Some((pool, ByteRange { offset, len }))
        })
    }

    /// Whether this part of a medium is in a pool.
    pub(super) fn is_in_pool(&self, channel: ChannelId) -> bool {
        self.pools.iter().any(|pool| pool.channel == channel)
    }

    /// Counts a namespace that a host creates: its number.
    pub fn count_created(&mut self) -> u64 {
        self.created += 1;
        self.created
    }

    /// Restores the state beside the namespaces that an earlier run has kept.
    pub(super) fn restore(&mut self, deleted: Vec<String>, created: u64, sanitize: Sanitize) {
        (self.deleted, self.created, self.sanitize) = (deleted, created, sanitize);
    }

    /// Applies a change; one that fails changes nothing.
    pub(super) fn apply(&mut self, change: Change) -> Result<(), Status> {
        if let Change::Create(new) = change {
            return self.create(*new);
        }
        if let Change::Occupy { nsid, len } | Change::Resize { nsid, len } = change {
            self.check_room(nsid, len)?;
        }
        match change {
            Change::Sanitize(change) => self.sanitize.apply(change),
            Change::RestoreSanitize(before) => self.sanitize = *before,
            change => return self.apply_to_one(change),
        }
        Ok(())
    }

    fn apply_to_one(&mut self, change: Change) -> Result<(), Status> {
        let Some(at) = self.position(change.nsid()) else {
            return Ok(());
        };
        let entry = &mut self.namespaces[at];
        match change {
            Change::Create(_) | Change::Sanitize(_) | Change::RestoreSanitize(_) => (),
            Change::Delete { .. } => {
                let gone = self.namespaces.remove(at);
                self.deleted.extend(gone.name);
            }
            Change::Attach { controllers, .. } => {
                entry.attached = entry.attached.union(controllers);
            }
            Change::Detach { controllers, .. } => {
                let kept = |id: &ControllerId| !controllers.contains(*id);
                entry.attached = entry.attached.iter().filter(kept).collect();
            }
            Change::Reformat { lba_shift, .. } => {
                entry.namespace.lba_shift = lba_shift;
                entry.namespace.blocks = entry.blocks_of(entry.len);
                entry.uncorrectable = BlockRanges::default();
            }
            Change::Truncate { blocks, .. } => {
                entry.namespace.blocks = blocks;
                let behind = entry.uncorrectable.remove(blocks, u64::MAX);
                debug_assert!(behind.is_ok(), "no range is split");
            }
            Change::Occupy { len, .. } => entry.len = len,
            Change::Resize { len, .. } => {
                entry.len = len;
                entry.namespace.blocks = entry.blocks_of(len);
            }
            Change::SetReadOnly { read_only, .. } => entry.namespace.traits.read_only = read_only,
            Change::SetBusy { busy, .. } => entry.busy = busy,
            Change::Reserve { reservation, .. } => entry.reservation = *reservation,
            Change::SetPersists { persists, .. } => entry.reservation.set_persists(persists),
            Change::MarkUncorrectable { slba, blocks, .. } => {
                let marked = entry.uncorrectable.insert(slba, blocks);
                return marked.map_err(|_| Status::INTERNAL_ERROR);
            }
            Change::ClearUncorrectable { slba, blocks, .. } => {
                let cleared = entry.uncorrectable.remove(slba, blocks);
                return cleared.map_err(|_| Status::INTERNAL_ERROR);
            }
        }
        Ok(())
    }

    fn create(&mut self, new: Allocated) -> Result<(), Status> {
        let found = self
            .namespaces
            .binary_search_by_key(&new.nsid(), Allocated::nsid);
        let Err(at) = found else {
            return Err(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE);
        };
        self.check_apart(&new)?;
        self.deleted.retain(|name| Some(name) != new.name.as_ref());
        self.namespaces.insert(at, new);
        Ok(())
    }

    /// Whether this many bytes can be reserved for a namespace.
    pub(super) fn check_room(&self, nsid: u32, len: u64) -> Result<(), Status> {
        match self.get(nsid) {
            Some(namespace) => self.check_apart(&Allocated {
                len,
                ..namespace.clone()
            }),
            None => Ok(()),
        }
    }

    /// In a pool, namespaces must not overlap: between an operator's look and his request a host
    /// may have taken the bytes.
    pub(super) fn check_apart(&self, new: &Allocated) -> Result<(), Status> {
        let channel = new.namespace.channel;
        if self.pools.iter().all(|pool| pool.channel != channel) {
            return Ok(());
        }
        let this = new.extent();
        let overlaps = |n: &Allocated| {
            let other = n.extent();
            let there = n.namespace.channel == channel && n.nsid() != new.nsid();
            there
                && this.offset < other.offset.saturating_add(other.len)
                && other.offset < this.offset.saturating_add(this.len)
        };
        if self.namespaces.iter().any(overlaps) {
            Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY)
        } else {
            Ok(())
        }
    }

    fn reservations(&self, answers: &Answers, notices: &[KeptNotice]) -> Vec<CurrentReservation> {
        let about = |nsid| {
            let its = notices.iter().filter(|it| it.nsid == nsid);
            its.copied().collect::<Vec<_>>()
        };
        let current = |it: &Allocated| CurrentReservation {
            nsid: it.nsid(),
            reservation: it.reservation.for_another_process(),
            answers: answers.of(Some(it.nsid())),
            notices: about(it.nsid()),
        };
        let all = self.namespaces.iter().map(current);
        let is_plain = |it: &CurrentReservation| {
            it.reservation == Reservation::default()
                && it.answers.is_empty()
                && it.notices.is_empty()
        };
        all.filter(|it| !is_plain(it)).collect()
    }

    pub(super) fn record(
        &self,
        controllers: Vec<ControllerRecord>,
        answers: &Answers,
        notices: &[KeptNotice],
    ) -> Record {
        Record {
            namespaces: self
                .namespaces
                .iter()
                .filter_map(Allocated::record)
                .collect(),
            deleted: self.deleted.clone(),
            created: self.created,
            sanitize: self.sanitize.record().for_another_process(),
            controllers,
            answers: answers.of(None),
            reservations: self.reservations(answers, notices),
        }
    }
}

/// The part of a range that begins and ends on multiples of `unit`.
fn aligned(range: ByteRange, unit: u64) -> Option<ByteRange> {
    let from = range.offset.checked_next_multiple_of(unit)?;
    let to = range.offset.checked_add(range.len)? / unit * unit;
    let len = to.checked_sub(from).filter(|len| *len > 0)?;
    Some(ByteRange { offset: from, len })
}
