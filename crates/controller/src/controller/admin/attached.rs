//! Properties that the attached namespaces of a controller have together.

use nvme_spec::opcode::Csi;
use port::namespace::NamespaceTable;

/// Whether any namespace may lose unflushed data: then there is a volatile write cache.
pub(crate) fn volatile_cache(namespaces: &NamespaceTable) -> bool {
    namespaces.iter().any(|n| n.traits.volatile_cache)
}

/// Whether a namespace has zones: only then there is a log of changed ones.
pub(crate) fn has_zones(namespaces: &NamespaceTable) -> bool {
    namespaces.iter().any(|n| n.csi() == Csi::ZONED_NAMESPACE)
}
