//! What a drive says of itself, as far as it matters to its tenants.

use controller::port::MediumTraits;
use driver::bus::Bus;
use driver::io::Namespace;
use driver::{Device, DriverError};
use nvme_spec::identify::namespace::DeallocatedReads;
use nvme_spec::identify::{Cns, IDENTIFY_SIZE, IdentifyController, IdentifyNvmController};
use zerocopy::FromBytes;

/// One namespace of a drive. It stays as it is as long as the medium is open: a drive that comes back with others is another
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Serial and model number, without the spaces around them.
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) nsid: u32,
    pub(super) blocks: u64,
    /// Size of a logical block as a power of two.
    pub(super) block_shift: u8,
    /// Bytes that one command may move.
    pub(super) transfer_len: u32,
    pub(super) volatile_cache: bool,
    pub(super) deallocates: bool,
    /// Bytes that one Write Zeroes may clear; 0 where the drive has none.
    pub(super) zeroes_len: u64,
    pub(super) deallocated_reads_zero: bool,
    pub(super) optimal_bytes: u32,
    /// Queue pairs that it grants.
    pub(super) queues: u16,
}

impl Facts {
    /// Asks a drive that is enabled. Without a number its first namespace is taken.
    ///
    /// # Errors
    /// There is no such namespace, or it has a format that is not for this; those of the commands.
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
                "the drive's blocks are larger than 4096 bytes, which namespaces here cannot have",
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
            zeroes_len: match oncs.nvmwzsv() {
                true => zeroes_len(device, &identity, block_len)?,
                false => 0,
            },
            deallocated_reads_zero: about.dlfeat.drb() == DeallocatedReads::ZEROES,
            optimal_bytes: block_len.max(4096),
            queues: device.queues_max(),
        })
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
        }
    }
}

/// Bytes of one Write Zeroes: as many blocks as the command can say, or what the drive says since it can (WZSL; NVM 1.1,
/// 4.1.5.4).
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
    // What is not there sets no limit.
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
