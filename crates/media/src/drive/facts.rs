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
    /// `None` where another version of the server has learnt the rest.
    pub(super) names: Option<Names>,
}

/// Names of a namespace that are unique in the world where they are there. Serial numbers of
/// targets over a network often are not: many have one by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// 0 where the namespace has none.
    pub(super) nguid: [u8; 16],
    pub(super) eui64: [u8; 8],
    pub(super) uuid: [u8; 16],
    /// NVMe Qualified Name of the subsystem; empty for a drive that is not over a network.
    pub(super) subnqn: String,
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
        let names = Names {
            nguid: about.nguid,
            eui64: about.eui64,
            uuid: device.uuid(nsid)?,
            subnqn: if device.bus().is_over_fabrics() {
                text(before_nul(&identity.subnqn))
            } else {
                String::new()
            },
        };
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
            names: Some(names),
        })
    }

    /// Whether a drive with the properties `now` is the one that had these: the same namespace in
    /// each respect that its users rely on, with limits that are not lower.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn holds(&self, now: &Facts) -> Result<(), &'static str> {
        let names = self.names.as_ref().zip(now.names.as_ref());
        let differs = |of: fn(&Names) -> &[u8]| names.is_some_and(|(a, b)| of(a) != of(b));
        let is_other = [
            (self.serial != now.serial, "serial number"),
            (self.model != now.model, "model number"),
            (self.nsid != now.nsid, "namespace identifier"),
            (differs(|names| names.subnqn.as_bytes()), "subsystem NQN"),
            (differs(|names| &names.nguid), "NGUID"),
            (differs(|names| &names.eui64), "EUI-64"),
            (differs(|names| &names.uuid), "UUID"),
            (self.block_shift != now.block_shift, "block size"),
            (self.blocks != now.blocks, "size"),
            (self.traits() != now.traits(), "set of properties"),
            (self.transfer_len > now.transfer_len, "transfer limit"),
            (self.zeroes_len > now.zeroes_len, "limit of Write Zeroes"),
            (self.whole_bytes > now.whole_bytes, "unit written whole"),
            (self.queues > now.queues, "number of queues"),
        ];
        let other = is_other.iter().find(|(is_other, _)| *is_other);
        other.map_or(Ok(()), |(_, what)| Err(*what))
    }

    /// Reads what [`Facts::to_bytes`] wrote; `None` for bytes of another version, or damaged ones.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Facts> {
        let (fixed, texts) = Fixed::read_from_prefix(bytes).ok()?;
        let (names, texts) = match fixed.version {
            // Which had no names.
            1 => (None, texts),
            _ => FixedNames::read_from_prefix(texts)
                .ok()
                .map(|(names, texts)| (Some(names), texts))?,
        };
        let texts = std::str::from_utf8(texts).ok()?;
        let (serial, rest) = texts.split_at_checked(fixed.serial_len.into())?;
        let (subnqn, model) = match &names {
            None => ("", rest),
            Some(names) => rest.split_at_checked(names.subnqn_len.into())?,
        };
        let shift = fixed.block_shift;
        let block = 1u32.checked_shl(shift.into())?;
        let size = fixed.blocks.get().checked_mul(block.into());
        let is_sound = (1..=Fixed::VERSION).contains(&fixed.version)
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
            names: names.map(|names| Names {
                nguid: names.nguid,
                eui64: names.eui64,
                uuid: names.uuid,
                subnqn: subnqn.to_owned(),
            }),
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
        let names = self.names.clone();
        let version = if names.is_some() { Fixed::VERSION } else { 1 };
        let fixed = Fixed {
            version,
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
        let (serial, model) = (self.serial.as_bytes(), self.model.as_bytes());
        let Some(names) = names else {
            return [fixed.as_bytes(), serial, model].concat();
        };
        let subnqn = names.subnqn.as_bytes();
        let fixed_names = FixedNames {
            nguid: names.nguid,
            eui64: names.eui64,
            uuid: names.uuid,
            subnqn_len: u16::try_from(subnqn.len())
                .expect("223 bytes, 669 where none is text")
                .into(),
        };
        let head = [fixed.as_bytes(), fixed_names.as_bytes()].concat();
        [&head, serial, subnqn, model].concat()
    }

    /// The names of a namespace over a network in one text.
    pub(super) fn volume(&self) -> Option<String> {
        let names = self.names.as_ref()?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let ids: [String; 3] = [hex(&names.nguid), hex(&names.eui64), hex(&names.uuid)];
        let [nguid, eui64, uuid] = ids;
        (!names.subnqn.is_empty())
            .then(|| format!("{} nguid {nguid} eui64 {eui64} uuid {uuid}", names.subnqn))
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
            allocation: false,
            erases: false,
        }
    }
}

/// The layout of [`Facts::to_bytes`]. [`FixedNames`] follow from version 2 on, then serial number,
/// subsystem NQN and model number.
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
    const VERSION: u8 = 2;
    const VOLATILE_CACHE: u8 = 1 << 0;
    const DEALLOCATES: u8 = 1 << 1;
    const READS_ZERO: u8 = 1 << 2;
    const READ_ONLY: u8 = 1 << 3;
}

/// The layout of [`Names`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct FixedNames {
    nguid: [u8; 16],
    eui64: [u8; 8],
    uuid: [u8; 16],
    subnqn_len: U16,
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

/// Bytes of an NQN at most (Base 2.1, 4.7).
const NQN_LEN_MAX: usize = 223;

/// The bytes of an NQN, which ends with a NUL.
fn before_nul(bytes: &[u8]) -> &[u8] {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    &name[..name.len().min(NQN_LEN_MAX)]
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
                names: Some(Names {
                    nguid: [1; 16],
                    eui64: [2; 8],
                    uuid: [3; 16],
                    subnqn: "nqn.2026-11.t:s0".into(),
                }),
            };
            let bytes = facts.to_bytes();
            assert_eq!(Facts::from_bytes(&bytes), Some(facts.clone()));
            // Those of the version before have no names, and of no drive others.
            let former = Facts {
                names: None,
                ..facts.clone()
            };
            let old = former.to_bytes();
            assert_eq!(old[0], 1);
            assert_eq!(Facts::from_bytes(&old), Some(former.clone()));
            assert_eq!(former.holds(&facts), Ok(()));
            // Cut inside the model number, they are those of another drive.
            let fixed = bytes.len() - facts.serial.len() - facts.model.len();
            for len in 0..fixed + facts.serial.len() {
                assert_eq!(Facts::from_bytes(&bytes[..len]), None, "{len} bytes");
            }
            // Another version, blocks of 8 KiB, and more than can be shifted; no queue pair.
            for (at, wrong) in [(0, 3), (1, 13), (1, 40), (4, 0)] {
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
