//! Namespaces as the command path sees them: where their bytes are, and what a range of blocks
//! means; and the contract of command sets beside NVM, which namespaces carry ([`crate::set`]).
//!
//! The table is an immutable snapshot: attach and detach publish a new one to every lane. It does
//! NOT define how a namespace is described to a host (that is `identity`).

use std::fmt;
use std::sync::Arc;

use nvme_spec::identify::IDENTIFY_SIZE;
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::Csi;
use nvme_spec::{Sqe, Status};

use crate::{BlockRanges, ByteRange, ChannelId, MediumTraits};

/// Temporary restrictions of commands on a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Status of every command: during a format or a sanitize operation, for example.
    pub all: Option<Status>,
    /// Status of commands that read: another host's reservation.
    pub reads: Option<Status>,
    /// Status of commands that change data.
    pub writes: Option<Status>,
    /// Its medium takes no writes.
    pub read_only: bool,
    /// Blocks marked by Write Uncorrectable.
    pub uncorrectable: BlockRanges,
}

impl Restrictions {
    /// `None` where nothing is restricted: the command path then has one branch for all of it.
    #[must_use]
    pub fn some(self) -> Option<Arc<Self>> {
        (self != Self::default()).then(|| Arc::new(self))
    }

    /// Status of a command that writes. Attempted Write to Read Only Range is for a condition of
    /// the medium; Namespace is Write Protected is for a state that a host has set (NVM 1.1, 3.2;
    /// Base 2.1, figure 102), and there is no such feature here (NWPC is 0).
    #[must_use]
    pub fn write_refusal(&self) -> Option<Status> {
        let read_only = self
            .read_only
            .then_some(Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE);
        self.writes.or(read_only)
    }

    /// Whether any of `blocks` blocks from `slba` is marked.
    #[must_use]
    pub fn is_uncorrectable(&self, slba: u64, blocks: u64) -> bool {
        self.uncorrectable.overlaps(slba, blocks)
    }
}

/// Sizes of logical blocks that a namespace can be formatted with, as powers of two, in the order
/// of the formats.
pub const LBA_SHIFTS: [u8; 2] = [9, 12];

/// The format with this size of a logical block; 0 for a size that is none of [`LBA_SHIFTS`].
#[must_use]
pub fn format_index(lba_shift: u8) -> u8 {
    let index = LBA_SHIFTS.iter().position(|shift| *shift == lba_shift);
    index.unwrap_or(0) as u8
}

/// One attached namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its identifier, never 0 and never FFFFFFFFh.
    pub nsid: u32,
    /// Index of its medium's channel in the reactor's table.
    pub channel: ChannelId,
    /// First byte of the namespace in its medium.
    pub start: u64,
    /// Size in logical blocks; 0 where its command set has none. `start + (blocks << lba_shift)`
    /// does not pass 2^64.
    pub blocks: u64,
    /// Size of a logical block as a power of two: 9 or 12.
    pub lba_shift: u8,
    /// Globally unique identifier, 0 where it has none.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier, 0 where it has none.
    pub eui64: [u8; 8],
    /// Properties of its medium.
    pub traits: MediumTraits,
    /// Temporary restrictions of commands; `None` nearly always.
    pub restrictions: Option<Arc<Restrictions>>,
    /// Its command set beside, or instead of, the NVM command set; `None`: the NVM command set
    /// only.
    pub set: Option<Arc<dyn CommandSet>>,
}

impl Namespace {
    /// The command set that it reports.
    #[inline]
    #[must_use]
    pub fn csi(&self) -> Csi {
        self.set.as_ref().map_or(Csi::NVM, |set| set.csi())
    }

    /// Status of every command where its host must use another path.
    #[must_use]
    pub fn path_refusal(&self) -> Option<Status> {
        let all = self.restrictions.as_ref()?.all;
        all.filter(|status| status.is_path_related())
    }

    /// Whether it has logical blocks, which the structures of the NVM command set describe.
    #[inline]
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.set.as_ref().is_none_or(|set| set.has_blocks())
    }

    /// Range of its blocks in its medium.
    #[must_use]
    pub fn extent(&self) -> ByteRange {
        ByteRange {
            offset: self.start,
            len: self.blocks << self.lba_shift,
        }
    }

    /// The bytes of `blocks` blocks from `slba` in the medium, or `None` where they do not lie
    /// inside the namespace.
    #[inline]
    #[must_use]
    pub fn bytes(&self, slba: u64, blocks: u64) -> Option<ByteRange> {
        let end = slba.checked_add(blocks)?;
        if end > self.blocks {
            return None;
        }
        // No overflow: both lie inside the namespace, whose end in bytes fits.
        Some(ByteRange {
            offset: self.start + (slba << self.lba_shift),
            len: blocks << self.lba_shift,
        })
    }
}

/// The attached namespaces, in the order of their identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceTable {
    sorted: Vec<Namespace>,
}

impl NamespaceTable {
    /// The namespace `nsid`, if it is attached.
    #[inline]
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&Namespace> {
        // Identifiers usually are 1, 2, 3...: look there first.
        let guess = self.sorted.get(nsid.wrapping_sub(1) as usize);
        match guess {
            Some(namespace) if namespace.nsid == nsid => guess,
            _ => self.search(nsid),
        }
    }

    #[cold]
    fn search(&self, nsid: u32) -> Option<&Namespace> {
        let index = self.sorted.binary_search_by_key(&nsid, |n| n.nsid).ok()?;
        self.sorted.get(index)
    }

    /// Those of the NVM command set.
    #[must_use]
    pub fn nvm_only(all: &Arc<Self>) -> Arc<Self> {
        let is_nvm = |n: &&Namespace| n.csi() == Csi::NVM;
        if all.iter().all(|n| is_nvm(&n)) {
            return Arc::clone(all);
        }
        let sorted = all.iter().filter(is_nvm).cloned().collect();
        Arc::new(NamespaceTable { sorted })
    }

    /// All of them, by ascending identifier.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.sorted.iter()
    }

    /// Number of namespaces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// True where there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// Sorts by identifier; of several with the same identifier the first stays.
impl From<Vec<Namespace>> for NamespaceTable {
    fn from(mut namespaces: Vec<Namespace>) -> Self {
        namespaces.sort_by_key(|n| n.nsid);
        namespaces.dedup_by_key(|n| n.nsid);
        NamespaceTable { sorted: namespaces }
    }
}

/// A command set, or a vendor's extension of one, for the controller. See [`crate::set`].
pub trait CommandSet: fmt::Debug + Send + Sync {
    /// The command set that its namespaces report. Of an extension that of what it extends.
    fn csi(&self) -> Csi;

    /// Meaning of a command of this set. `None`: it is the NVM command set's, and goes the way of
    /// those.
    ///
    /// Fused commands do not come here; those with reserved flags are refused if the command is one
    /// of this set.
    ///
    /// # Errors
    /// What it ends with: a field that cannot be whatever the namespace's state is, or an opcode of
    /// the NVM command set that this set does not have.
    fn command(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Option<Asked>, Status>;

    /// Whether a command of this set has the same result when it is executed a second time, after a
    /// restart say: nothing that it reports depends on what it has changed.
    fn repeats(&self, _sqe: &Sqe) -> bool {
        false
    }

    /// Whether a medium with notes ([`MediumTraits::notes`]) executes a command of this set once,
    /// by its note. Others that cannot be repeated end as interrupted after a restart.
    fn is_noted(&self, _sqe: &Sqe) -> bool {
        true
    }

    /// Whether a command of this set names memory of the host beside its data pointer. Over a
    /// fabric there is no such memory.
    fn names_memory(&self, _sqe: &Sqe) -> bool {
        false
    }

    /// Name of a command of this set; `None` for one of the NVM command set's.
    fn opcode_name(&self, _opcode: u8) -> Option<&'static str> {
        None
    }

    /// Entry of an I/O command in the log of effects; `None` where there is no such command. An
    /// extension gives only its additions.
    fn effects(&self, opcode: u8) -> Option<CommandEffects>;

    /// Identify Namespace of the command set (CNS 05h); not asked of extensions.
    fn identify_namespace(&self, _namespace: &Namespace) -> Box<[u8; IDENTIFY_SIZE]> {
        Box::new([0; IDENTIFY_SIZE])
    }

    /// Identify Controller of the command set (CNS 06h); not asked of extensions.
    fn identify_controller(&self) -> Box<[u8; IDENTIFY_SIZE]> {
        Box::new([0; IDENTIFY_SIZE])
    }

    /// The first block of the zone that a block is in, told where the medium could not write there
    /// and the zone is another than before (Changed Zone List); `None` where there are no zones.
    fn zone_of(&self, _namespace: &Namespace, _lba: u64) -> Option<u64> {
        None
    }

    /// Whether its namespaces are bytes as those of the NVM command set are: erased and resized in
    /// the same way. Where not, they have the size that their medium gave them, and
    /// [`Request::Renew`](crate::Request::Renew) alone resets them.
    fn keeps_bytes(&self) -> bool {
        false
    }

    /// Whether its namespaces have logical blocks, which the structures of the NVM command set
    /// describe, too.
    fn has_blocks(&self) -> bool {
        true
    }
}

/// Two are the same where they are one object: each medium has its own.
impl PartialEq for dyn CommandSet {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl Eq for dyn CommandSet {}

/// Request of a command of a set, as far as the controller must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its effect on the contents.
    pub access: Access,
    /// Its data.
    pub data: Data,
}

/// Effect of a command on the contents of a namespace, which reservations and write protection look
/// at (Base 2.1, 8.1.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Reads,
    /// It changes something.
    Changes,
}

/// The data of a command, and which way it goes. Lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// None.
    Nothing,
    /// The medium reads so many from the host's memory; not 0.
    FromHost(u64),
    /// The medium writes at most so many to the host's memory; not 0.
    ToHost(u64),
}

#[cfg(test)]
mod tests {
    use super::{Namespace, NamespaceTable};
    use crate::{ByteRange, ChannelId, MediumTraits};

    fn namespace(nsid: u32, blocks: u64) -> Namespace {
        Namespace {
            nsid,
            channel: ChannelId(0),
            start: 8192,
            blocks,
            lba_shift: 9,
            nguid: [0; 16],
            eui64: [0; 8],
            traits: MediumTraits::default(),
            restrictions: None,
            set: None,
        }
    }

    #[test]
    fn found_by_place_and_by_search() {
        let table = NamespaceTable::from([7, 1, 3].map(|nsid| namespace(nsid, 8)).to_vec());
        for nsid in [1, 3, 7] {
            assert_eq!(table.get(nsid).map(|n| n.nsid), Some(nsid));
        }
        for nsid in [0, 2, 4, 6, 8, u32::MAX] {
            assert!(table.get(nsid).is_none(), "{nsid}");
        }
    }

    #[test]
    fn ranges_that_pass_the_end_or_wrap_are_refused() {
        let n = namespace(1, 8);
        let inside = ByteRange {
            offset: 8192 + 3584,
            len: 512,
        };
        assert_eq!(n.bytes(7, 1), Some(inside));
        assert_eq!(n.bytes(0, 8).map(|r| r.len), Some(4096));
        assert_eq!(n.bytes(7, 2), None);
        assert_eq!(n.bytes(8, 1), None);
        assert_eq!(n.bytes(u64::MAX, 1), None);
        assert_eq!(n.bytes(u64::MAX, 65_536), None);
    }
}
