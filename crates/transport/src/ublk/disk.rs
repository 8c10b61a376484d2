//! A namespace as a disk of the driver.

use nvme_spec::opcode::Csi;
use port::namespace::Namespace;
use ublk::{Attributes, Basic, Discard, Features, Parameters, SECTOR, Zoned};

use crate::host::{Identity, PAGE, Zones};

/// Bytes of the longest request.
pub const MAX_IO: u32 = ublk::MAX_BUFFER;
/// Most requests of all queues of a device at the same time.
pub const TAGS: u16 = ublk::MAX_TAGS;
/// Most requests of one queue at the same time.
const DEPTH: u16 = 128;
/// Blocks of one Write Zeroes: what its field has room for.
const ZEROED: u64 = 1 << 16;
/// Sectors of the longest request to deallocate: 1 TiB.
const DISCARDED: u32 = 1 << 31;
/// What the mark of a device begins with: "nvmirage".
const MARK: u64 = u64::from_be_bytes(*b"nvmirage");

/// A namespace that a device gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its identifier.
    pub nsid: u32,
    /// Size of its logical block as a power of two.
    pub lba_shift: u8,
    /// Size in blocks.
    pub blocks: u64,
    /// Blocks of a zone; 0 without zones.
    pub zone_blocks: u64,
    /// Which one it is.
    pub(super) is: Identity,
    /// Zeroes may be deallocated blocks.
    pub(super) zeroes_deallocate: bool,
    /// What the disk is like.
    pub parameters: Parameters,
    /// Names the namespace among those of all servers, for [`ublk::DeviceInfo::ublksrv_flags`]: a
    /// device goes on with the same namespace only.
    pub mark: u64,
}

impl Disk {
    /// Size in sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.parameters.basic.dev_sectors
    }

    /// Features that its device needs.
    #[must_use]
    pub fn features(&self) -> Features {
        let is_zoned = self.zone_blocks > 0;
        // Zone Append reports an address where another request has its buffer.
        Features::new()
            .with_zoned(is_zoned)
            .with_user_copy(is_zoned)
    }

    /// Requests that each queue of a device with this number of queues has at the same time: 8 to
    /// 128.
    #[must_use]
    pub fn depth(queues: u16) -> u16 {
        (TAGS / queues.clamp(1, TAGS / 8)).min(DEPTH)
    }
}

/// A namespace. `None` where a disk of Linux cannot express it: it has keys, another command set,
/// or zones whose size is no power of two.
#[must_use]
pub fn disk(namespace: &Namespace) -> Option<Disk> {
    let zones = match namespace.csi() {
        Csi::NVM if namespace.set.is_none() => None,
        Csi::ZONED_NAMESPACE => Some(zones(namespace)?),
        _ => return None,
    };
    let (traits, sectors) = (&namespace.traits, namespace.extent().len / SECTOR);
    let zone_blocks = zones.map_or(0, |zones| zones.blocks);
    let chunk = (zone_blocks << namespace.lba_shift) / SECTOR;
    let parameters = Parameters {
        basic: Basic {
            chunk_sectors: u32::try_from(chunk).ok()?,
            dev_sectors: sectors,
            ..basic(namespace)
        },
        discard: zones.is_none().then(|| discard(namespace)),
        zoned: zones.as_ref().map(zoned),
    };
    Some(Disk {
        nsid: namespace.nsid,
        lba_shift: namespace.lba_shift,
        blocks: namespace.blocks,
        zone_blocks,
        is: Identity::of(namespace),
        zeroes_deallocate: traits.deallocate && traits.deallocated_reads_zero,
        parameters,
        mark: mark(namespace),
    })
}

fn basic(namespace: &Namespace) -> Basic {
    let (traits, block) = (&namespace.traits, 1u32 << namespace.lba_shift);
    let restrictions = namespace.restrictions.as_ref();
    let read_only = traits.read_only || restrictions.is_some_and(|it| it.read_only);
    let optimal = traits.optimal_bytes.max(block);
    let optimal_shift = if optimal.is_power_of_two() {
        optimal.ilog2() as u8
    } else {
        namespace.lba_shift
    };
    let physical_bs_shift = optimal_shift
        .min(PAGE.ilog2() as u8)
        .max(namespace.lba_shift);
    Basic {
        attrs: Attributes::new()
            .with_read_only(read_only)
            .with_volatile_cache(traits.volatile_cache)
            .with_fua(traits.volatile_cache),
        logical_bs_shift: namespace.lba_shift,
        physical_bs_shift,
        io_opt_shift: optimal_shift,
        io_min_shift: physical_bs_shift,
        max_sectors: MAX_IO / SECTOR as u32,
        chunk_sectors: 0,
        dev_sectors: 0,
        virt_boundary_mask: 0,
    }
}

fn discard(namespace: &Namespace) -> Discard {
    let block = 1u32 << namespace.lba_shift;
    let zeroed = (ZEROED << namespace.lba_shift) / SECTOR;
    let deallocates = namespace.traits.deallocate;
    Discard {
        discard_alignment: 0,
        discard_granularity: block,
        max_discard_sectors: if deallocates { DISCARDED } else { 0 },
        max_write_zeroes_sectors: zeroed as u32,
        max_discard_segments: deallocates.into(),
        reserved0: 0,
    }
}

/// Zones, where the driver can express them.
fn zones(namespace: &Namespace) -> Option<Zones> {
    Zones::of(namespace, MAX_IO.into()).filter(|zones| zones.blocks.is_power_of_two())
}

fn zoned(zones: &Zones) -> Zoned {
    Zoned {
        max_open_zones: zones.max_open,
        max_active_zones: zones.max_active,
        max_zone_append_sectors: (zones.append_len / SECTOR) as u32,
        reserved: [0; 20],
    }
}

fn mark(namespace: &Namespace) -> u64 {
    let (high, low) = namespace.nguid.split_at(8);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    MARK ^ word(high) ^ u64::rotate_left(word(low), 1)
}

#[cfg(test)]
mod tests {
    use port::{ChannelId, MediumTraits};

    use super::*;

    fn namespace() -> Namespace {
        Namespace {
            nsid: 1,
            channel: ChannelId(0),
            start: 0,
            blocks: 1000,
            lba_shift: 12,
            nguid: [7; 16],
            eui64: [0; 8],
            traits: MediumTraits {
                deallocate: true,
                volatile_cache: true,
                optimal_bytes: 64 << 10,
                ..MediumTraits::default()
            },
            restrictions: None,
            set: None,
        }
    }

    #[test]
    fn a_disk_has_the_sizes_of_its_namespace_in_sectors() {
        let disk = disk(&namespace()).unwrap();
        let basic = disk.parameters.basic;
        assert_eq!((disk.sectors(), basic.dev_sectors), (8000, 8000));
        assert_eq!((basic.logical_bs_shift, basic.physical_bs_shift), (12, 12));
        assert_eq!((basic.io_min_shift, basic.io_opt_shift), (12, 16));
        assert_eq!(basic.max_sectors, 512);
        assert!(basic.attrs.volatile_cache() && basic.attrs.fua());
        assert!(!basic.attrs.read_only());
        let discard = disk.parameters.discard.unwrap();
        assert_eq!(discard.discard_granularity, 4096);
        assert_eq!(discard.max_write_zeroes_sectors, 65536 * 8);
        assert_eq!(
            (discard.max_discard_sectors, discard.max_discard_segments),
            (1 << 31, 1)
        );
        assert_eq!(disk.features(), Features::new());
        assert_eq!(disk.parameters.zoned, None);
    }

    #[test]
    fn a_medium_that_cannot_deallocate_takes_no_discards() {
        let mut namespace = namespace();
        namespace.traits = MediumTraits {
            read_only: true,
            ..MediumTraits::default()
        };
        namespace.lba_shift = 9;
        let disk = disk(&namespace).unwrap();
        let discard = disk.parameters.discard.unwrap();
        assert_eq!(
            (discard.max_discard_sectors, discard.max_discard_segments),
            (0, 0)
        );
        let basic = disk.parameters.basic;
        assert!(basic.attrs.read_only() && !basic.attrs.volatile_cache() && !basic.attrs.fua());
        assert_eq!((basic.logical_bs_shift, basic.physical_bs_shift), (9, 9));
    }

    #[test]
    fn marks_differ_with_the_namespace() {
        let one = disk(&namespace()).unwrap().mark;
        let mut other = namespace();
        other.nguid[15] = 8;
        assert_ne!(one, disk(&other).unwrap().mark);
        other.nguid = [7; 16];
        other.blocks = 5;
        assert_eq!(one, disk(&other).unwrap().mark, "it may have grown");
    }

    #[test]
    fn all_queues_have_as_many_tags_as_there_may_be() {
        for (queues, depth) in [
            (0, 128),
            (1, 128),
            (4, 128),
            (5, 102),
            (8, 64),
            (64, 8),
            (99, 8),
        ] {
            assert_eq!(Disk::depth(queues), depth, "{queues}");
            assert!(queues > 64 || depth * queues <= TAGS);
        }
    }
}
