//! Identify data of a drive that matters to its tenants.

use driver::bus::Bus;
use driver::io::Namespace;
use driver::{Device, DriverError};
use nvme_spec::identify::namespace::{DeallocatedReads, IdentifyNamespace};
use nvme_spec::identify::{Cns, IDENTIFY_SIZE, IdentifyController, IdentifyNvmController};
use port::MediumTraits;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum supported logical block size.
const MAX_LBA_BYTES: u64 = 4096;

/// Properties of one namespace of a drive. They are fixed while the medium is open: a drive that
/// comes back with other properties is another drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Serial and model number, without surrounding spaces.
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) nsid: u32,
    pub(super) blocks: u64,
    /// Logical block size as a power of two.
    pub(super) block_shift: u8,
    /// Maximum data transfer of one command.
    pub(super) transfer_len: u32,
    pub(super) volatile_cache: bool,
    pub(super) deallocates: bool,
    /// Maximum bytes of one Write Zeroes; 0 if the drive lacks it.
    pub(super) zeroes_len: u64,
    pub(super) deallocated_reads_zero: bool,
    pub(super) optimal_bytes: u32,
    /// Whether the namespace is write protected (NSATTR).
    pub(super) read_only: bool,
    /// Unit that is written completely or not at all across a power failure, at multiples of
    /// itself: a power of two from a block up to 4096 bytes.
    pub(super) whole_bytes: u32,
    /// Number of queue pairs that the drive grants.
    pub(super) queues: u16,
}

impl Facts {
    /// Reads the properties from an enabled drive. Without a number, takes the first namespace.
    ///
    /// # Errors
    /// The namespace does not exist or has an unsupported format; errors of the commands.
    pub(super) fn learn<B: Bus>(
        device: &mut Device<B>,
        nsid: Option<u32>,
    ) -> Result<Facts, DriverError> {
        let unsupported = |why: &str| DriverError::Unsupported(why.to_owned());
        let identity = device.identify_controller()?;
        let namespaces = device.active_namespaces()?;
        let nsid = match nsid {
            Some(nsid) => nsid,
            None => *namespaces
                .first()
                .ok_or_else(|| unsupported("the drive has no active namespace"))?,
        };
        let Namespace {
            blocks, block_len, ..
        } = device.namespace(nsid)?;
        let about = device.identify_namespace(nsid)?;
        if block_len > 4096 {
            return Err(unsupported(
                "the drive's blocks are larger than 4096 bytes, the maximum for namespaces",
            ));
        }
        if blocks.checked_mul(u64::from(block_len)).is_none() {
            return Err(DriverError::Broken(format!(
                "namespace {nsid} has {blocks} blocks of {block_len} bytes, more than can be counted"
            )));
        }
        let oncs = identity.oncs;
        Ok(Facts {
            serial: text(&identity.sn),
            model: text(&identity.mn),
            nsid,
            blocks,
            block_shift: u8::try_from(block_len.trailing_zeros()).expect("at most 32"),
            transfer_len: device.transfer_len_max(),
            volatile_cache: identity.vwc.vwcp(),
            deallocates: oncs.nvmdsmsv(),
            zeroes_len: if oncs.nvmwzsv() {
                zeroes_len(device, &identity, block_len)?
            } else {
                0
            },
            deallocated_reads_zero: about.dlfeat.drb() == DeallocatedReads::ZEROES,
            optimal_bytes: block_len.max(4096),
            read_only: about.nsattr.cwp(),
            whole_bytes: whole_bytes(&identity, &about, block_len),
            queues: device.queues_max(),
        })
    }

    /// Reads what [`Facts::to_bytes`] wrote; `None` for bytes of another version, or damaged ones.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Facts> {
        let (fixed, texts) = Fixed::read_from_prefix(bytes).ok()?;
        let texts = std::str::from_utf8(texts).ok()?;
        let (serial, model) = texts.split_at_checked(fixed.serial_len.into())?;
        let shift = fixed.block_shift;
        let block = 1u32.checked_shl(shift.into())?;
        let size = fixed.blocks.get().checked_mul(block.into());
        let is_sound = fixed.version == Fixed::VERSION
            && block <= 4096
            && size.is_some()
            && fixed.transfer_len.get() >= block
            && fixed.whole_bytes.get().is_power_of_two()
            && fixed.queues.get() > 0;
        let flag = |flag| fixed.flags & flag != 0;
        is_sound.then(|| Facts {
            serial: serial.to_owned(),
            model: model.to_owned(),
            nsid: fixed.nsid.get(),
            blocks: fixed.blocks.get(),
            block_shift: shift,
            transfer_len: fixed.transfer_len.get(),
            volatile_cache: flag(Fixed::VOLATILE_CACHE),
            deallocates: flag(Fixed::DEALLOCATES),
            zeroes_len: fixed.zeroes_len.get(),
            deallocated_reads_zero: flag(Fixed::READS_ZERO),
            optimal_bytes: fixed.optimal_bytes.get(),
            read_only: flag(Fixed::READ_ONLY),
            whole_bytes: fixed.whole_bytes.get(),
            queues: fixed.queues.get(),
        })
    }

    /// The properties for another process of this server.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let flags = [
            (self.volatile_cache, Fixed::VOLATILE_CACHE),
            (self.deallocates, Fixed::DEALLOCATES),
            (self.deallocated_reads_zero, Fixed::READS_ZERO),
            (self.read_only, Fixed::READ_ONLY),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let fixed = Fixed {
            version: Fixed::VERSION,
            block_shift: self.block_shift,
            flags: set.map(|(_, flag)| flag).sum(),
            serial_len: u8::try_from(self.serial.len()).expect("20 bytes, 60 where none is text"),
            queues: self.queues.into(),
            nsid: self.nsid.into(),
            blocks: self.blocks.into(),
            zeroes_len: self.zeroes_len.into(),
            transfer_len: self.transfer_len.into(),
            optimal_bytes: self.optimal_bytes.into(),
            whole_bytes: self.whole_bytes.into(),
        };
        let texts = [self.serial.as_bytes(), self.model.as_bytes()].concat();
        [fixed.as_bytes(), &texts].concat()
    }

    /// Bytes of the namespace.
    pub(super) fn size(&self) -> u64 {
        self.blocks << self.block_shift
    }

    pub(super) fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    pub(super) fn traits(&self) -> MediumTraits {
        MediumTraits {
            deallocate: self.deallocates,
            deallocated_reads_zero: self.deallocated_reads_zero,
            volatile_cache: self.volatile_cache,
            optimal_bytes: self.optimal_bytes,
            read_only: self.read_only,
            notes: false,
        }
    }
}

/// The layout of [`Facts::to_bytes`]. Serial and model number follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Fixed {
    version: u8,
    block_shift: u8,
    flags: u8,
    serial_len: u8,
    queues: U16,
    nsid: U32,
    blocks: U64,
    zeroes_len: U64,
    transfer_len: U32,
    optimal_bytes: U32,
    whole_bytes: U32,
}

impl Fixed {
    const VERSION: u8 = 1;
    const VOLATILE_CACHE: u8 = 1 << 0;
    const DEALLOCATES: u8 = 1 << 1;
    const READS_ZERO: u8 = 1 << 2;
    const READ_ONLY: u8 = 1 << 3;
}

/// Maximum bytes of one Write Zeroes: the command's own limit, or the drive's if it reports one
/// (WZSL; NVM 1.1, 4.1.5.4).
fn zeroes_len<B: Bus>(
    device: &mut Device<B>,
    identity: &IdentifyController,
    block_len: u32,
) -> Result<u64, DriverError> {
    let most = u64::from(block_len) << 16;
    if identity.ver.mjr() < 2 {
        return Ok(most);
    }
    let mut data = [0; IDENTIFY_SIZE];
    // Without this Identify structure there is no limit.
    match device.identify(Cns::IO_COMMAND_SET_CONTROLLER, 0, &mut data) {
        Ok(()) | Err(DriverError::Status { .. }) => {}
        Err(error) => return Err(error),
    }
    let about = IdentifyNvmController::read_from_bytes(&data).expect("the sizes are equal");
    // In units of the smallest memory page, 4 KiB here.
    let limit = match about.wzsl {
        0 => most,
        wzsl => 4096u64.checked_shl(wzsl.into()).unwrap_or(most),
    };
    Ok(limit.min(most))
}

/// Unit that a drive writes completely or not at all across a power failure, at multiples of itself
/// (NVM 1.1, 2.1.4): a power of two from a block up to 4096 bytes.
///
/// AWUPF and NAWUPF apply to one command, and only if it does not cross an atomic boundary. A block
/// of our namespace is one command of the drive, or part of a longer one, for which neither the
/// drive nor we promise atomicity.
fn whole_bytes(identity: &IdentifyController, about: &IdentifyNamespace, block_len: u32) -> u32 {
    let has_own = about.nsfeat.nsabp();
    let units_z = if has_own && about.nawupf_z != 0 {
        about.nawupf_z
    } else {
        identity.awupf_z
    };
    let promised = u64::from(block_len) * (u64::from(units_z) + 1);
    let mut whole = (1 << promised.ilog2()).min(MAX_LBA_BYTES);
    // Halve it while a naturally aligned unit would cross a boundary.
    if has_own && about.nabspf_z != 0 {
        let boundary = u64::from(block_len) * (u64::from(about.nabspf_z) + 1);
        let first = u64::from(block_len) * u64::from(about.nabo);
        while !boundary.is_multiple_of(whole) || !first.is_multiple_of(whole) {
            whole /= 2;
        }
    }
    u32::try_from(whole).expect("at most 4096")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use nvme_spec::identify::namespace::Nsfeat;
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn another_process_reads_what_was_learnt() {
        let flags = [[true, false, true, false], [false, true, false, true]];
        for [
            volatile_cache,
            deallocates,
            deallocated_reads_zero,
            read_only,
        ] in flags
        {
            let facts = Facts {
                serial: "S4EWNX0R".into(),
                model: "a\u{fffd} drive".into(),
                nsid: 3,
                blocks: 1 << 40,
                block_shift: 9,
                transfer_len: 128 << 10,
                volatile_cache,
                deallocates,
                zeroes_len: 32 << 20,
                deallocated_reads_zero,
                optimal_bytes: 4096,
                read_only,
                whole_bytes: 512,
                queues: 7,
            };
            let bytes = facts.to_bytes();
            assert_eq!(Facts::from_bytes(&bytes), Some(facts.clone()));
            // Cut inside the model number, they are those of another drive.
            let fixed = bytes.len() - facts.serial.len() - facts.model.len();
            for len in 0..fixed + facts.serial.len() {
                assert_eq!(Facts::from_bytes(&bytes[..len]), None, "{len} bytes");
            }
            // Another version, blocks of 8 KiB, and more than can be shifted; no queue pair.
            for (at, wrong) in [(0, 2), (1, 13), (1, 40), (4, 0)] {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                assert_eq!(Facts::from_bytes(&bytes), None, "{wrong} at {at}");
            }
        }
    }

    /// The unit of a drive with blocks of `block_len` bytes, from AWUPF, and from NAWUPF, NABSPF
    /// and NABO if the namespace has its own; all 0's based except the last.
    fn whole(block_len: u32, awupf_z: u16, own: Option<[u16; 3]>) -> u32 {
        let mut identity = IdentifyController::new_zeroed();
        let mut about = IdentifyNamespace::new_zeroed();
        identity.awupf_z = awupf_z;
        // Without NSABP these values are not reported.
        let [nawupf_z, nabspf_z, nabo] = own.unwrap_or([255, 2, 1]);
        about.nsfeat = Nsfeat::new().with_nsabp(own.is_some());
        (about.nawupf_z, about.nabspf_z, about.nabo) = (nawupf_z, nabspf_z, nabo);
        whole_bytes(&identity, &about, block_len)
    }

    #[test]
    fn what_is_written_whole_is_what_the_drive_promises() {
        for (block_len, awupf_z, own, bytes) in [
            // One block, and eight.
            (512, 0, None, 512),
            (512, 7, None, 4096),
            (4096, 0, None, 4096),
            // Not a power of two, and more than one of our blocks can have.
            (512, 2, None, 1024),
            (512, 6, None, 2048),
            (512, u16::MAX, None, 4096),
            // The namespace's own values; a NAWUPF of 0 means AWUPF, with boundaries every 8 blocks
            // from the first on.
            (512, 0, Some([7, 0, 0]), 4096),
            (512, 7, Some([0, 0, 0]), 4096),
            (512, 0, Some([7, 7, 0]), 4096),
            // Boundaries inside aligned units: every 12 blocks, and every 8 from block 4 on, or
            // from block 1 on.
            (512, 7, Some([7, 11, 0]), 2048),
            (512, 7, Some([7, 7, 4]), 2048),
            (512, 7, Some([7, 7, 1]), 512),
        ] {
            let whole = whole(block_len, awupf_z, own);
            assert_eq!(whole, bytes, "{block_len} {awupf_z} {own:?}");
        }
    }
}
