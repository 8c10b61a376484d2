//! Identify data of a namespace (NVM 1.1, 4.1.5; Base 2.1, 5.1.13.2).

use nvme_spec::identify::IDENTIFY_SIZE;
use nvme_spec::identify::lists::{NamespaceIdentificationHeader, NamespaceIdentifierType};
use nvme_spec::identify::namespace::{
    DeallocatedReads, Dlfeat, Flbas, Fpi, IdentifyNamespace, IdentifyNamespaceIndependent,
    LbaFormat, Nmic, Nsattr, Nsfeat, NsfeatIndependent, Nstat, Rescap,
};
use port::MediumTraits;
use port::namespace::{LBA_SHIFTS, Namespace, format_index};
use subsystem::{Allocated, Pool, Subsystem, identity};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::{COPY_BYTES, COPY_RANGE_BYTES, COPY_RANGES};
use crate::controller::Controller;

/// Every type of reservation, which persists where that is asked for; IEKEY as revision 1.3 and
/// later define it.
fn rescap() -> Rescap {
    Rescap::new()
        .with_ptpls(true)
        .with_wes(true)
        .with_eas(true)
        .with_weros(true)
        .with_earos(true)
        .with_wears(true)
        .with_eaars(true)
        .with_iekr13(true)
}

fn dlfeat(traits: &MediumTraits) -> Dlfeat {
    let reads = if traits.deallocated_reads_zero {
        DeallocatedReads::ZEROES
    } else {
        DeallocatedReads::NOT_REPORTED
    };
    Dlfeat::new().with_drb(reads).with_wzds(traits.deallocate)
}

/// The table of formats. Blocks that are not available have the size 0.
fn formats(id: &mut IdentifyNamespace, takes: impl Fn(u32) -> bool) {
    for (format, shift) in id.lbaf.iter_mut().zip(LBA_SHIFTS) {
        if takes(1 << shift) {
            *format = LbaFormat::new().with_lbads(shift);
        }
    }
    id.nlbaf_z = LBA_SHIFTS.len() as u8 - 1;
}

/// The part of a format that remains.
fn fpi(nsid: u32, subsystem: &Subsystem) -> Fpi {
    let remaining = subsystem.format_remaining(nsid).unwrap_or(0);
    Fpi::new().with_fpis(true).with_rfnvm(remaining)
}

/// Over fabrics every namespace is shared: each association has a controller with what its entrance
/// has.
fn nmic(allocated: &Allocated, asked: &Controller) -> Nmic {
    let over_fabrics = asked.config().is_over_fabrics();
    Nmic::new().with_shrns(allocated.shared || over_fabrics)
}

/// Identify Namespace.
///
/// For a namespace without logical blocks the specification has Invalid I/O Command Set (NVM 1.1,
/// 4.1.5.1). Hosts that know of command sets ask all the same, and SPDK's driver gives up the whole
/// controller on an error, with the NVM namespaces beside it, and takes NCAP 0 for an inactive
/// namespace. So what does not depend on blocks is answered, with the size in bytes as its own
/// command set has it; LBADS is 0, which is the format of no block.
pub(super) fn namespace(
    allocated: &Allocated,
    asked: &Controller,
    subsystem: &Subsystem,
) -> IdentifyNamespace {
    let n = &allocated.namespace;
    let mut id = IdentifyNamespace::new_zeroed();
    id.nmic = nmic(allocated, asked);
    id.fpi = fpi(n.nsid, subsystem);
    id.rescap = rescap();
    id.nvmcap.set(allocated.len.into());
    (id.nguid, id.eui64) = (n.nguid, n.eui64);
    id.anagrpid = asked.ana_group(allocated);
    id.nsattr = Nsattr::new().with_cwp(n.traits.read_only);
    if !n.has_blocks() {
        (id.nsze, id.ncap, id.nuse) = (allocated.len, allocated.len, allocated.len);
        return id;
    }
    (id.nsze, id.ncap) = (n.blocks, n.blocks);
    if !asked.hides_use(allocated, subsystem) {
        id.nuse = n.blocks;
    }
    formats(&mut id, |lba_bytes| allocated.takes(lba_bytes));
    id.flbas = Flbas::new().with_fidxl(format_index(n.lba_shift));
    id.dlfeat = dlfeat(&n.traits);
    let optimal = n.traits.optimal_bytes >> n.lba_shift;
    if let Some(optimal_z) = optimal.checked_sub(1).and_then(|z| u16::try_from(z).ok()) {
        id.nsfeat = Nsfeat::new().with_optperf(1);
        (id.npwg_z, id.npwa_z, id.nows_z) = (optimal_z, optimal_z, optimal_z);
        (id.npdg_z, id.npda_z) = (optimal_z, optimal_z);
    }
    // No overflow: both are at most 4 MiB in blocks of 512 bytes.
    id.mssrl = (COPY_RANGE_BYTES >> n.lba_shift) as u16;
    id.mcl = (COPY_BYTES >> n.lba_shift) as u32;
    id.msrc_z = COPY_RANGES as u8 - 1;
    id
}

/// Identify Namespace for FFFFFFFFh: the properties of namespaces that a host can create.
pub(super) fn common(pools: &[Pool]) -> IdentifyNamespace {
    let mut id = IdentifyNamespace::new_zeroed();
    id.nmic = Nmic::new().with_shrns(true);
    id.fpi = Fpi::new().with_fpis(true);
    id.rescap = rescap();
    formats(&mut id, |lba_bytes| {
        pools.is_empty() || pools.iter().any(|pool| pool.takes(lba_bytes))
    });
    let all = |holds: fn(&MediumTraits) -> bool| pools.iter().all(|pool| holds(&pool.traits));
    id.dlfeat = dlfeat(&MediumTraits {
        deallocate: all(|traits| traits.deallocate),
        deallocated_reads_zero: all(|traits| traits.deallocated_reads_zero),
        ..MediumTraits::default()
    });
    id
}

/// I/O Command Set Independent Identify Namespace.
pub(super) fn independent(
    allocated: &Allocated,
    asked: &Controller,
    subsystem: &Subsystem,
) -> IdentifyNamespaceIndependent {
    let n = &allocated.namespace;
    let mut id = IdentifyNamespaceIndependent::new_zeroed();
    id.nmic = nmic(allocated, asked);
    id.fpi = fpi(n.nsid, subsystem);
    id.rescap = rescap();
    id.nsfeat = NsfeatIndependent::new().with_vwcnp(!n.traits.volatile_cache);
    id.anagrpid = asked.ana_group(allocated);
    id.nsattr = Nsattr::new().with_cwp(n.traits.read_only);
    id.nstat = Nstat::new().with_nrdy(true);
    id
}

/// EUI-64, NGUID and UUID where the namespace has names, and its command set (Base 2.1,
/// 5.1.13.2.3).
pub(super) fn descriptors(n: &Namespace) -> [u8; IDENTIFY_SIZE] {
    let mut page = [0; IDENTIFY_SIZE];
    let mut at = 0;
    let mut add = |nidt: NamespaceIdentifierType, id: &[u8]| {
        let head = NamespaceIdentificationHeader {
            nidt,
            nidl: id.len() as u8,
            reserved_2: [0; 2],
        };
        for part in [head.as_bytes(), id] {
            page[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    };
    if n.eui64 != [0; 8] {
        add(NamespaceIdentifierType::EUI64, &n.eui64);
    }
    if n.nguid != [0; 16] {
        add(NamespaceIdentifierType::NGUID, &n.nguid);
    }
    if let Some(uuid) = identity::uuid(n.nguid, n.eui64) {
        add(NamespaceIdentifierType::UUID, &uuid);
    }
    add(NamespaceIdentifierType::CSI, &[n.csi().0]);
    page
}
