//! `[[namespace]]`: a part of a medium, as hosts see it.

use subsystem::{DEFAULT_ANA_GROUP, MAX_ANA_GROUP};

use super::controller::DERIVED;
use super::object::{Bounds, Names, object};
use super::tenant::MAX_WEIGHT;
use super::{DEFAULT_LBA_SIZE, Range};

object! {
    /// Namespace: a part of a medium, as hosts see it.
    pub struct Namespace(NamespaceKeys, "namespace") {
        /// Name of the namespace.
        name: String => Fixed { bounds: Bounds::Name };
        /// Name of the medium that stores the namespace.
        media: String => Fixed { names: Names::Media };
        /// Byte range of the medium, as in `0GiB..16GiB`: starts at a multiple of 4KiB, holds at
        /// least one block, and overlaps no other namespace.
        range: Option<Range> | unset => Step { unset: "all of the medium" };
        /// Partition of the drive or file, instead of `range`. Only for `drive`, and for `file`
        /// without zones.
        partition: Option<String> | unset => Fixed { bounds: Bounds::Name, value: "NAME" };
        /// Logical block size in bytes.
        lba_size: u32 = DEFAULT_LBA_SIZE => Fixed {
            bounds: Bounds::OneOf(&[512, 4096]),
            value: "BYTES",
        };
        /// Namespace globally unique identifier.
        nguid: Option<String> | unset => Fixed { bounds: Bounds::Digits(32), unset: DERIVED };
        /// IEEE extended unique identifier.
        eui64: Option<String> | unset => Fixed { bounds: Bounds::Digits(16), unset: DERIVED };
        /// ANA group of the namespace, whose state each controller with
        /// `listen = "nvme-tcp:ADDRESS:PORT"` has.
        ana_group: Option<u32> | unset => Fixed {
            bounds: Bounds::Whole(1, MAX_ANA_GROUP as u64),
            unset: "1",
            value: "N",
        };
        /// Hosts that the namespace is visible to over NVMe/TCP: their NQNs, or names of
        /// `[[host]]`.
        hosts: Option<Vec<String>> | unset => Fixed { unset: "every host", value: "HOST" };
        /// Tenant that commands of this namespace count for, on every controller.
        tenant: Option<String> | unset => Live {
            unset: "the controller's tenant",
            names: Names::Tenants,
        };
        /// Weight among the namespaces of one tenant on the medium.
        weight: Option<u32> | unset => Live {
            bounds: Bounds::Whole(1, MAX_WEIGHT),
            unset: "100",
            value: "N",
        };
    }
}

impl Namespace {
    /// All of a medium, everything else at its default.
    pub fn new(name: String, media: String) -> Self {
        let written = NamespaceKeys {
            name: Some(name),
            media: Some(media),
            ..NamespaceKeys::default()
        };
        written.complete().expect("no other key is required")
    }

    /// The ANA group that it is in.
    pub fn ana_group(&self) -> u32 {
        self.ana_group.unwrap_or(DEFAULT_ANA_GROUP)
    }
}
