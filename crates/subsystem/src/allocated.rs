//! Namespaces as they are allocated, and the media that hosts may allocate from.
//!
//! It does NOT keep a set of them: [`super::directory`] does.

use std::sync::Arc;

use nvme_spec::Status;
use nvme_spec::opcode::Csi;
use port::namespace::{Namespace, Restrictions};
use port::set::CommandSet;
use port::{BlockRanges, ByteRange, ChannelId, MediumTraits};

use super::access::DEFAULT_ANA_GROUP;
use super::reservation::{Host, Reservation};
use super::set::ControllerSet;

/// Sizes of allocations are multiples of this, in bytes.
pub const GRANULE: u64 = 4096;

/// A namespace that exists, attached or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The part that commands need. Its `restrictions` are none here: [`Directory::table`] composes
    /// them.
    pub namespace: Namespace,
    /// Its name in the configuration; none for one that a host created.
    pub name: Option<String>,
    /// The name of its medium.
    pub medium: String,
    /// Bytes reserved in the medium, at least the size of its blocks.
    pub len: u64,
    /// Its ANA group (ANAGRPID): 1 to [`MAX_ANA_GROUP`](crate::MAX_ANA_GROUP).
    pub ana_group: u32,
    /// It may be attached to several controllers (NMIC).
    pub shared: bool,
    /// The controllers that have it attached.
    pub attached: ControllerSet,
    /// The smallest logical block that its medium takes, in bytes.
    pub min_lba_bytes: u32,
    /// The largest one that its medium writes wholly or not at all when the power fails, in bytes.
    pub max_lba_bytes: u32,
    /// Its operation in progress.
    pub busy: Option<Busy>,
    /// Blocks marked by Write Uncorrectable.
    pub uncorrectable: BlockRanges,
    /// Its registrants, and the holder of a reservation.
    pub reservation: Reservation,
    /// NQNs of the hosts over a network that it is visible to; none: all. It is the
    /// configuration's, and in no record.
    pub hosts: Option<Arc<[String]>>,
}

/// An operation that keeps hosts from a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// It is being created: its bytes may still hold another namespace's data, so it is in no
    /// record and cannot be attached.
    Creating,
    /// It is being formatted.
    Formatting,
}

impl Busy {
    /// Status of commands to it.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Busy::Creating => Status::NAMESPACE_NOT_READY,
            Busy::Formatting => Status::FORMAT_IN_PROGRESS,
        }
    }
}

impl Allocated {
    /// A namespace that every controller has attached.
    #[must_use]
    pub fn everywhere(namespace: Namespace) -> Self {
        Allocated {
            len: namespace.blocks << namespace.lba_shift,
            name: None,
            medium: String::new(),
            ana_group: DEFAULT_ANA_GROUP,
            shared: false,
            attached: ControllerSet::ALL,
            min_lba_bytes: 512,
            max_lba_bytes: 4096,
            busy: None,
            uncorrectable: BlockRanges::default(),
            reservation: Reservation::default(),
            hosts: None,
            namespace,
        }
    }

    /// Whether it may be formatted to logical blocks of this size.
    #[must_use]
    pub fn takes(&self, lba_bytes: u32) -> bool {
        (self.min_lba_bytes..=self.max_lba_bytes).contains(&lba_bytes)
    }

    /// Number of its logical blocks in `len` bytes; 0 if its command set has no blocks.
    pub(super) fn blocks_of(&self, len: u64) -> u64 {
        if self.namespace.has_blocks() {
            len >> self.namespace.lba_shift
        } else {
            0
        }
    }

    /// Restrictions of a host's commands to it, from all sources.
    pub(super) fn restrictions(&self, host: Host) -> Restrictions {
        let (reads, writes) = self.reservation.access(host);
        let refusal = |may: bool| (!may).then_some(Status::RESERVATION_CONFLICT);
        Restrictions {
            all: self.busy.map(Busy::status),
            reads: refusal(reads),
            writes: refusal(writes),
            read_only: self.namespace.traits.read_only,
            uncorrectable: self.uncorrectable.clone(),
        }
    }

    /// Its identifier.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.namespace.nsid
    }

    /// Rejects an admin command that would change its medium's contents, if the medium is read-only
    /// (Base 2.1, 8.1.16.2).
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        let takes_writes = (!self.namespace.traits.read_only).then_some(());
        takes_writes.ok_or(Status::NAMESPACE_IS_WRITE_PROTECTED)
    }

    /// The bytes reserved for it in its medium.
    #[must_use]
    pub fn extent(&self) -> ByteRange {
        ByteRange {
            offset: self.namespace.start,
            len: self.len,
        }
    }

    /// Whether it is visible to a host that has, or has not, enabled all command sets: without that
    /// only the NVM command set is visible.
    #[must_use]
    pub fn is_shown(&self, all_sets: bool) -> bool {
        all_sets || self.namespace.csi() == Csi::NVM
    }

    /// The part that can hold data: all except a rest that is smaller than a block of its medium.
    #[must_use]
    pub fn erasable(&self) -> ByteRange {
        ByteRange {
            len: self.len - self.len % u64::from(self.min_lba_bytes),
            ..self.extent()
        }
    }
}

/// A medium whose unallocated space hosts may make namespaces of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub medium: String,
    /// Its channel.
    pub channel: ChannelId,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its properties.
    pub traits: MediumTraits,
    /// The commands that namespaces on it have beside, or instead of, the NVM command set's.
    pub set: Option<Arc<dyn CommandSet>>,
    /// The smallest logical block it takes, in bytes.
    pub min_lba_bytes: u32,
    /// The largest logical block it writes wholly or not at all when the power fails, in bytes: as
    /// AWUPF promises of each.
    pub max_lba_bytes: u32,
}

impl Pool {
    /// Whether its namespaces may have logical blocks of this size.
    #[must_use]
    pub fn takes(&self, lba_bytes: u32) -> bool {
        (self.min_lba_bytes..=self.max_lba_bytes).contains(&lba_bytes)
    }
}
