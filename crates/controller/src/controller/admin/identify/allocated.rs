//! Identify data of the subsystem: the namespaces that exist, attached to the controller or not,
//! and the controllers (Base 2.1, 5.1.13.2.9 to 5.1.13.2.15).
//!
//! A namespace that is still being created is not reported to any host.

use nvme_spec::identify::granularity::{GranularityDescriptor, NamespaceGranularityList};
use nvme_spec::identify::lists::{ControllerList, NamespaceIdList};
use nvme_spec::{NSID_ALL, Status};
use subsystem::{Allocated, ControllerId, GRANULE, Subsystem};
use zerocopy::FromZeros;

/// The namespace that NSID names; `None` where the id is valid and nothing is allocated there.
pub(super) fn named(
    nsid: u32,
    asked: ControllerId,
    subsystem: &Subsystem,
) -> Result<Option<&Allocated>, Status> {
    if nsid == 0 || nsid > subsystem.namespace_limit() {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    let found = subsystem.directory().get(nsid);
    Ok(found.filter(|n| subsystem.is_visible(n, asked)))
}

/// The allocated namespaces with an id above `nsid`.
pub(super) fn ids(
    nsid: u32,
    asked: ControllerId,
    subsystem: &Subsystem,
) -> Result<NamespaceIdList, Status> {
    let all = subsystem.directory().iter();
    let visible = all.filter(|n| subsystem.is_visible(n, asked));
    super::id_list(nsid, visible.map(Allocated::nsid))
}

/// The controllers with an id of at least `from` that have a namespace attached.
pub(super) fn attached(
    nsid: u32,
    from: u16,
    asked: ControllerId,
    subsystem: &Subsystem,
) -> Result<ControllerList, Status> {
    if nsid == NSID_ALL {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    let namespace = named(nsid, asked, subsystem)?.ok_or(Status::INVALID_FIELD_IN_COMMAND)?;
    let has_it = |id: &ControllerId| subsystem.is_attached(namespace, *id);
    Ok(list(from, subsystem.controllers().filter(has_it)))
}

/// The controllers of the subsystem with an id of at least `from`.
pub(super) fn controllers(from: u16, subsystem: &Subsystem) -> ControllerList {
    list(from, subsystem.controllers())
}

fn list(from: u16, ids: impl Iterator<Item = ControllerId>) -> ControllerList {
    let mut list = ControllerList::new_zeroed();
    for (place, id) in list.cntlids.iter_mut().zip(ids.filter(|id| id.0 >= from)) {
        *place = id.0;
        list.numids += 1;
    }
    list
}

/// Sizes and capacities that waste nothing, whatever the format.
pub(super) fn granularity() -> NamespaceGranularityList {
    let mut list = NamespaceGranularityList::new_zeroed();
    list.descriptors[0] = GranularityDescriptor {
        nsg: GRANULE,
        ncg: GRANULE,
    };
    list
}
