//! Names of namespaces, and their ranges on media.

use api::config::{Range, Size};
use subsystem::Allocated;

/// A namespace that a host created in a subsystem that is not served now. It keeps its range.
#[derive(Debug)]
pub(super) struct Resting {
    /// The subsystem.
    pub(super) subsystem: String,
    /// The medium.
    pub(super) medium: String,
    /// Its range.
    pub(super) taken: Taken,
}

/// A range of a medium that a namespace uses.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// Name of the namespace.
    pub(super) name: String,
    /// Range on the medium.
    pub(super) range: Range,
}

/// The range of a namespace on its medium.
pub(super) fn range_of(namespace: &Allocated) -> Range {
    let extent = namespace.extent();
    Range {
        start: Size(extent.offset),
        end: Size(extent.offset.saturating_add(extent.len)),
    }
}

/// The name of a namespace; for one that a host created, the name of its subsystem with its
/// identifier.
pub(super) fn label(subsystem: &str, namespace: &Allocated) -> String {
    match &namespace.name {
        Some(name) => name.clone(),
        None => format!("{subsystem}:{}", namespace.nsid()),
    }
}
