//! Requests that change objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::config::{self, Text};

/// Change of a medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MediumChange {
    /// Timing parameters by name, as in a configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub timing: BTreeMap<String, Text>,
    /// New states of zones, by zone number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<u32, ZoneLoss>,
}

/// State of a zone that the drive loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneLoss {
    /// Readable, no longer writable.
    ReadOnly,
    /// Offline; its data is lost.
    Offline,
}

/// Change of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    /// Keys with their values, as in a configuration; `none` removes a key.
    pub changes: BTreeMap<String, String>,
}

/// Change of a controller: keys with their values, as in a configuration; null removes a key. A
/// table changes the parts of a key that it has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ControllerChange(pub serde_json::Map<String, serde_json::Value>);

/// Its keys are those of the table ([`describe`](crate::config::schema::describe)).
impl PartialSchema for ControllerChange {
    fn schema() -> RefOr<Schema> {
        let about = "Change of a controller. Null restores a key's default. Of `ana` only those groups change that the table has; null restores a group's default.";
        ObjectBuilder::new().description(Some(about)).into()
    }
}

impl ToSchema for ControllerChange {}

/// New placement of a controller's queues.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlacement {
    /// Numbers of the reactors: completion queue 1 on the first, and so on in turn.
    pub reactors: Vec<usize>,
    /// Only this completion queue, moved to the single reactor named, until its host deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
}

/// Hosts over NVMe/TCP, NBD clients or a vhost-user-blk front end to disconnect: exactly one of the
/// keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Disconnection {
    /// Those with this NVMe Qualified Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// NBD clients of this export, or the vhost-user-blk front end of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// The one with this controller identifier (CNTLID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid: Option<u16>,
    /// All of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// Namespace to attach to a controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Name of the namespace.
    pub namespace: String,
}

/// New size of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSize {
    /// New size.
    pub size: config::Size,
    /// Allow the namespace to shrink; data behind its new end is lost.
    #[serde(default)]
    pub shrink: bool,
}

/// New partition of a medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPartition {
    /// Name of the partition.
    pub name: String,
    /// Size of the partition.
    pub size: config::Size,
    /// Start of the partition. Default: the first gap that is large enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<config::Size>,
}

/// New size of a partition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionSize {
    /// New size.
    pub size: config::Size,
}

/// Options of a partition's deletion.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionEnd {
    /// Zero the partition's bytes before its space is free. Default: false.
    #[serde(default)]
    pub erase: bool,
}

/// Location of a partition.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionPlace {
    /// Byte range on the medium.
    pub range: config::Range,
}
