//! Identify (Base 2.1, 5.1.13): the data of the controller and its namespaces.
//!
//! Structures are built from the configuration and the namespace table each time; nothing is
//! cached. Fields that are not set are zero: not supported, or not reported.

mod allocated;
mod namespace;

use std::sync::Arc;

use nvme_spec::command::{IdentifyCdw10, IdentifyCdw11};
use nvme_spec::copy::CopyDescriptorFormats;
use nvme_spec::cqe::{CQE_SIZE, CQE_SIZE_LOG2};
use nvme_spec::identify::controller::{
    Cmic, ControllerType, Ctratt, FlushBehavior, Frmw, Fuses, IdentifyController, Lpa, Oacs, Oaes,
    Oncs, QueueEntrySize, Sgls, Vwc,
};
use nvme_spec::identify::lists::{IoCommandSetVector, IoCommandSets, NamespaceIdList};
use nvme_spec::identify::{Cns, IDENTIFY_SIZE, IdentifyNvmController, ascii_field};
use nvme_spec::key_value::IdentifyKvNamespace;
use nvme_spec::opcode::Csi;
use nvme_spec::registers::Version;
use nvme_spec::sqe::{SQE_SIZE, SQE_SIZE_LOG2};
use nvme_spec::{NSID_ALL, Sqe, Status};
use port::namespace::NamespaceTable;
use port::set::CommandSet;
use subsystem::{Allocated, Subsystem, identity::LOCAL_OUI};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::attached::{has_zones, volatile_cache};
use super::error_log::ERROR_ENTRIES;
use super::events::AERL_Z;
use super::keep_alive::KAS;
use super::sanitize::SANICAP;
use super::{access, firmware};
use crate::arbitration::RECOMMENDED_BURST;
use crate::config::{CAPSULE_UNIT, ControllerConfig, Fabrics, Interface};
use crate::controller::Controller;
use crate::state::ABORT_LIMIT;

/// RTD3E: a shutdown is bounded by the drain, 4 s, and the flush, 30 s, and some time between them;
/// in microseconds.
const SHUTDOWN_LATENCY_US: u32 = 36_000_000;
/// RTD3R: nothing has to warm up; in microseconds.
const RESUME_LATENCY_US: u32 = 1_000_000;
/// Power of power state 0: 25 W in units of 10 mW.
const MAX_POWER: u16 = 2500;
/// Revision of the NVM command set specification: 1.1.
const NVM_1_1: Version = Version::new().with_mjr(1).with_mnr(1);

/// The data structure that an Identify command asks for.
pub(crate) fn identify(
    sqe: &Sqe,
    asked: &Controller,
    subsystem: &Subsystem,
) -> Result<[u8; IDENTIFY_SIZE], Status> {
    let namespaces = &*asked.attached.table;
    let cdw10 = IdentifyCdw10::from(sqe.cdw10);
    let csi = IdentifyCdw11::from(sqe.cdw11).csi();
    let mut page = [0; IDENTIFY_SIZE];
    let mut fill = |bytes: &[u8]| page.copy_from_slice(bytes);
    match cdw10.cns() {
        Cns::CONTROLLER => fill(controller(asked, subsystem).as_bytes()),
        // FFFFFFFFh asks for what all namespaces share, which only Namespace Management offers.
        Cns::NAMESPACE if sqe.nsid == NSID_ALL && subsystem.has_namespace_management() => {
            fill(namespace::common(subsystem.directory().pools()).as_bytes());
        }
        Cns::NAMESPACE => {
            if let Some(n) = active(sqe.nsid, asked, subsystem)? {
                fill(namespace::namespace(n, asked, subsystem).as_bytes());
            }
        }
        Cns::ACTIVE_NAMESPACE_ID_LIST => fill(active_list(sqe.nsid, namespaces)?.as_bytes()),
        Cns::IO_COMMAND_SET_ACTIVE_NAMESPACE_ID_LIST => {
            supported(csi, subsystem)?;
            let of_set = namespaces.iter().filter(|n| n.csi() == csi);
            fill(id_list(sqe.nsid, of_set.map(|n| n.nsid))?.as_bytes());
        }
        Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST => {
            let n = active(sqe.nsid, asked, subsystem)?;
            let n = n.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
            fill(&namespace::descriptors(&n.namespace));
        }
        Cns::IO_COMMAND_SET_NAMESPACE => {
            supported(csi, subsystem)?;
            if sqe.nsid != NSID_ALL || !subsystem.has_namespace_management() {
                let found = active(sqe.nsid, asked, subsystem)?;
                fill(&*of_set(found, csi, asked)?);
            }
        }
        Cns::IO_COMMAND_SET_CONTROLLER => {
            let set = supported(csi, subsystem)?;
            let mut nvm = IdentifyNvmController::new_zeroed();
            nvm.ver = NVM_1_1;
            match set {
                Some(set) => fill(&*set.identify_controller()),
                None => fill(nvm.as_bytes()),
            }
        }
        Cns::NAMESPACE_INDEPENDENT => {
            if let Some(n) = active(sqe.nsid, asked, subsystem)? {
                fill(namespace::independent(n, asked, subsystem).as_bytes());
            }
        }
        Cns::IO_COMMAND_SET => {
            // FFFFh stands for the controller that processes the command.
            if ![asked.id().0, 0xffff].contains(&cdw10.cntid()) {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            let mut sets = IoCommandSets::new_zeroed();
            sets.combinations[0] = combination(subsystem);
            fill(sets.as_bytes());
        }
        Cns::ALLOCATED_NAMESPACE_ID_LIST => {
            fill(allocated::ids(sqe.nsid, asked.id(), subsystem)?.as_bytes());
        }
        Cns::IO_COMMAND_SET_ALLOCATED_NAMESPACE_ID_LIST => {
            supported(csi, subsystem)?;
            let of_set = subsystem.directory().iter();
            let of_set =
                of_set.filter(|n| n.namespace.csi() == csi && subsystem.is_visible(n, asked.id()));
            fill(id_list(sqe.nsid, of_set.map(Allocated::nsid))?.as_bytes());
        }
        Cns::ALLOCATED_NAMESPACE => {
            if let Some(n) = allocated::named(sqe.nsid, asked.id(), subsystem)? {
                fill(namespace::namespace(n, asked, subsystem).as_bytes());
            }
        }
        Cns::IO_COMMAND_SET_ALLOCATED_NAMESPACE => {
            supported(csi, subsystem)?;
            let found = allocated::named(sqe.nsid, asked.id(), subsystem)?;
            fill(&*of_set(found, csi, asked)?);
        }
        Cns::ALLOCATED_NAMESPACE_INDEPENDENT => {
            if let Some(n) = allocated::named(sqe.nsid, asked.id(), subsystem)? {
                fill(namespace::independent(n, asked, subsystem).as_bytes());
            }
        }
        Cns::NAMESPACE_CONTROLLER_LIST => {
            fill(allocated::attached(sqe.nsid, cdw10.cntid(), asked.id(), subsystem)?.as_bytes());
        }
        Cns::CONTROLLER_LIST => fill(allocated::controllers(cdw10.cntid(), subsystem).as_bytes()),
        Cns::NAMESPACE_GRANULARITY_LIST if subsystem.has_namespace_management() => {
            fill(allocated::granularity().as_bytes());
        }
        _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
    }
    Ok(page)
}

/// The namespace that NSID names; `None` where the id is valid and nothing is attached there, for
/// which most structures are all zeros (Base 2.1, 5.1.13.1).
fn active<'a>(
    nsid: u32,
    asked: &Controller,
    subsystem: &'a Subsystem,
) -> Result<Option<&'a Allocated>, Status> {
    let found = allocated::named(nsid, asked.id(), subsystem)?;
    let shown = |n: &&Allocated| {
        subsystem.is_attached(n, asked.id()) && n.is_shown(asked.attached.has_all_sets())
    };
    Ok(found.filter(shown))
}

/// The command sets beside NVM that namespaces of the subsystem have.
pub(crate) fn sets(subsystem: &Subsystem) -> impl Iterator<Item = &Arc<dyn CommandSet>> {
    let namespaces = subsystem.directory().iter();
    namespaces.filter_map(|n| n.namespace.set.as_ref())
}

/// Whether a command set is supported (NVM, and those of the subsystem's namespaces); and, for a
/// set other than NVM, its implementation.
fn supported(csi: Csi, subsystem: &Subsystem) -> Result<Option<&Arc<dyn CommandSet>>, Status> {
    if csi == Csi::NVM {
        return Ok(None);
    }
    let set = sets(subsystem).find(|set| set.csi() == csi);
    set.map(Some).ok_or(Status::INVALID_FIELD_IN_COMMAND)
}

/// The command sets that may be used together: all that are supported, as there is no reason why
/// not.
fn combination(subsystem: &Subsystem) -> IoCommandSetVector {
    let others = sets(subsystem).map(|set| 1_u64.checked_shl(set.csi().0.into()));
    let bits = others.flatten().fold(0, |all, bit| all | bit);
    IoCommandSetVector::from(bits).with_nvm(true)
}

/// A command set's data of a namespace; an error if the namespace uses another command set; all
/// zeros if there is none.
fn of_set(
    found: Option<&Allocated>,
    csi: Csi,
    asked: &Controller,
) -> Result<Box<[u8; IDENTIFY_SIZE]>, Status> {
    let zeros = || Box::new([0; IDENTIFY_SIZE]);
    let Some(allocated) = found else {
        return Ok(zeros());
    };
    let namespace = &allocated.namespace;
    match &namespace.set {
        // Everything that the NVM command set could tell is zero: no protection information.
        _ if csi == Csi::NVM && namespace.has_blocks() => Ok(zeros()),
        Some(set) if set.csi() == csi && csi != Csi::NVM => {
            let mut page = set.identify_namespace(namespace);
            if csi == Csi::KEY_VALUE
                && let Ok(id) = IdentifyKvNamespace::mut_from_bytes(&mut page[..])
            {
                id.anagrpid = asked.ana_group(allocated);
            }
            Ok(page)
        }
        _ => Err(Status::INVALID_IO_COMMAND_SET),
    }
}

fn controller(asked: &Controller, subsystem: &Subsystem) -> IdentifyController {
    let (config, namespaces) = (asked.config(), &*asked.attached.table);
    let limit = subsystem.namespace_limit();
    let mut c = IdentifyController::new_zeroed();
    (c.vid, c.ssvid) = (config.vendor_id, config.vendor_id);
    c.sn = ascii_field(&config.serial);
    c.mn = ascii_field(&config.model_number);
    c.fr = ascii_field(&config.firmware_revision);
    c.rab = RECOMMENDED_BURST;
    c.ieee = [LOCAL_OUI[2], LOCAL_OUI[1], LOCAL_OUI[0]];
    c.cmic = Cmic::new().with_mctrs(subsystem.controllers().count() > 1);
    if config.is_over_fabrics() {
        // Each configured controller is at a port of its own.
        let configured = subsystem.controllers().filter(|id| !id.is_dynamic());
        c.cmic = c.cmic.with_mports(configured.count() > 1);
    }
    c.mdts = config.mdts();
    c.cntlid = asked.id().0;
    c.ver = Version::V2_1;
    (c.rtd3r, c.rtd3e) = (RESUME_LATENCY_US, SHUTDOWN_LATENCY_US);
    c.oaes = Oaes::new().with_nsan(true).with_zdcn(has_zones(namespaces));
    // Host Identifiers of 128 bits.
    c.ctratt = Ctratt::new()
        .with_hids(true)
        .with_tbkas(config.is_over_fabrics())
        .with_ng(subsystem.has_namespace_management());
    c.cntrltype = ControllerType::IO;
    // An NVMe storage device (Base 2.1, figure 312, NVMSR).
    c.nvmsr = 1;
    // The shadow would hide doorbells from a page that we poll anyway.
    c.oacs = Oacs::new()
        .with_fnvms(true)
        .with_fwds(true)
        .with_nms(subsystem.has_namespace_management())
        .with_glss(true)
        .with_dbcs(config.has_doorbell_buffers());
    c.acl_z = ABORT_LIMIT as u8 - 1;
    c.aerl_z = AERL_Z;
    c.frmw = Frmw::new().with_ffsro(true).with_nofs(firmware::SLOTS);
    c.lpa = Lpa::new().with_cses(true).with_lpeds(true).with_mlps(true);
    c.elpe_z = ERROR_ENTRIES as u8 - 1;
    (c.wctemp, c.cctemp) = asked.health.drives.limits(namespaces);
    if subsystem.has_namespace_management() {
        let (total, unallocated) = subsystem.directory().capacity();
        c.tnvmcap.set(total);
        c.unvmcap.set(unallocated);
    }
    c.kas = KAS;
    c.sanicap = SANICAP;
    c.sqes = QueueEntrySize::new()
        .with_min(SQE_SIZE_LOG2)
        .with_max(SQE_SIZE_LOG2);
    c.cqes = QueueEntrySize::new()
        .with_min(CQE_SIZE_LOG2)
        .with_max(CQE_SIZE_LOG2);
    c.nn = limit;
    c.oncs = Oncs::new()
        .with_nvmcmps(true)
        .with_nvmdsmsv(true)
        .with_nvmwzsv(true)
        .with_ssfs(true)
        .with_nvmwusv(true)
        .with_reservs(true)
        .with_tss(true)
        .with_nvmvfys(true)
        .with_nvmcpys(true)
        .with_nvmcsa(true);
    c.fuses = Fuses::new().with_fcws(true);
    // The effect of a power failure is known of one block and no more: there are no formats with
    // blocks that a medium may tear (`Pool::max_lba_bytes`). So AWUPF is 0, one block; and of AWUN
    // and ACWU no more is promised either.
    c.cdfs = CopyDescriptorFormats::new().with_cdf0(true).with_cdf2(true);
    c.vwc = Vwc::new()
        .with_vwcp(volatile_cache(namespaces))
        .with_fb(FlushBehavior::ALL_NAMESPACES);
    match config.interface {
        // Byte aligned Data Blocks, Bit Buckets, and lists that are longer than the data.
        Interface::Pcie => {
            c.sgls = Sgls::new()
                .with_sglsupp(1)
                .with_sbbds(true)
                .with_slldts(true);
        }
        Interface::Fabrics(fabrics) => over_fabrics(&mut c, config, fabrics),
    }
    c.mnan = limit;
    let nqn = config.subnqn.as_bytes();
    c.subnqn[..nqn.len()].copy_from_slice(nqn);
    c.psd[0].mp = MAX_POWER;
    c
}

/// The part that only hosts over fabrics read. One descriptor describes the data: a place in the
/// capsule, or a length that the transport moves. FCATT is 0: controllers are dynamic.
fn over_fabrics(c: &mut IdentifyController, config: &ControllerConfig, fabrics: Fabrics) {
    c.sgls = Sgls::new().with_sglsupp(1).with_saos(true).with_tsdbd(true);
    c.maxcmd = config.queue_depth;
    let capsule = SQE_SIZE as u32 + fabrics.in_capsule;
    c.fabrics.ioccsz = capsule / CAPSULE_UNIT;
    c.fabrics.iorcsz = CQE_SIZE as u32 / CAPSULE_UNIT;
    c.fabrics.msdbd = 1;
    access::identify(c);
}

/// The active namespaces with an id above `nsid` (Base 2.1, 5.1.13.2.2).
fn active_list(nsid: u32, namespaces: &NamespaceTable) -> Result<NamespaceIdList, Status> {
    id_list(nsid, namespaces.iter().map(|n| n.nsid))
}

/// Those of the rising `ids` that are above `nsid`.
fn id_list(nsid: u32, ids: impl Iterator<Item = u32>) -> Result<NamespaceIdList, Status> {
    if nsid >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    let mut list = NamespaceIdList::new_zeroed();
    for (place, id) in list.nsids.iter_mut().zip(ids.filter(|id| *id > nsid)) {
        *place = id;
    }
    Ok(list)
}
