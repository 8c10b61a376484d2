//! Partitions of media.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Range;

/// Partition of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Name of the partition.
    pub name: String,
    /// Byte range.
    pub range: Range,
    /// Whether the partition is being deleted; its bytes may be partly erased.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
}
