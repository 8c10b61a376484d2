//! Rules that protocols other than NVMe share: keys of an NVMe device, and namespaces that a
//! protocol of blocks cannot express.
//!
//! Keys of the whole subsystem (`serial`, `subnqn`, `model_number`, `firmware_revision`, `pool`)
//! stay allowed: its controllers agree on them, and one takes them over when another is removed.

use super::index::Index;
use super::problem::Place;
use super::{Controller, Doorbells, MediumKind};

/// A protocol of blocks, in the words of its problems.
pub(super) struct Protocol {
    /// Its name.
    pub(super) name: &'static str,
    /// Its hosts.
    pub(super) hosts: &'static str,
    /// Why keys of a PCI device have no effect.
    pub(super) device: &'static str,
    /// Why keys of queues have no effect.
    pub(super) queues: &'static str,
    /// Whether it expresses zones.
    pub(super) zones: bool,
}

impl Controller {
    /// Appends keys without effect. `fixed` are names of keys of queues, with whether each is
    /// written.
    pub(super) fn refuse_keys_of_nvme(
        &self,
        protocol: &Protocol,
        fixed: &[(&str, bool)],
        place: &mut Place<'_>,
    ) {
        let Protocol { name, hosts, .. } = protocol;
        let of_device = [
            ("doorbells", self.doorbells != Doorbells::default()),
            ("msix", !self.msix),
            ("intx", self.intx),
            ("vendor_id", self.vendor_id.is_some()),
            ("device_id", self.device_id.is_some()),
        ];
        for (key, is_written) in of_device {
            place.require(!is_written, || {
                format!(
                    "{key}: no effect with {name}, {}: remove it",
                    protocol.device
                )
            });
        }
        for (key, is_written) in fixed {
            place.require(!is_written, || {
                format!(
                    "{key}: no effect with {name}, {}: remove it",
                    protocol.queues
                )
            });
        }
        place.require(self.reactors.is_empty(), || {
            format!("reactors: no effect with {name}, whose {hosts} are served by the controller's reactor: remove it, or write reactor = N")
        });
    }

    /// Appends namespaces that the protocol cannot express.
    pub(super) fn refuse_more_than_blocks(
        &self,
        protocol: &Protocol,
        objects: &Index<'_>,
        place: &mut Place<'_>,
    ) {
        let (zones, hosts) = (protocol.zones, protocol.hosts);
        let protocol = protocol.name;
        for name in &self.namespaces {
            let Some(namespace) = objects.namespace(name) else {
                continue;
            };
            place.require(namespace.hosts.is_none(), || {
                format!("namespaces: \"{name}\" is only for the NVMe/TCP hosts in its `hosts`, and {hosts} have no NQN: remove it here, or remove its hosts")
            });
            let Some(medium) = objects.medium(&namespace.media) else {
                continue;
            };
            let why = match medium.kind() {
                MediumKind::KeyValue => Some("keys and values instead of blocks"),
                _ => medium.zoned().filter(|_| !zones).map(|_| "zones"),
            };
            if let Some(why) = why {
                place.problem(format!(
                    "namespaces: \"{name}\" has {why}, which {protocol} cannot express: remove it here, and serve it over NVMe"
                ));
            }
        }
    }
}
