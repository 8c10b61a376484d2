//! What requests and replies hold. Objects have the keys, units and defaults of the configuration file, whose types are within.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    config::{self, Text},
    partition::Partition,
};

/// What is served now.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Inventory {
    /// Reactors, in the order of the configuration.
    #[serde(default)]
    pub(crate) reactors: Vec<ReactorStatus>,
    /// Media, in order of creation.
    pub(crate) media: Vec<MediumStatus>,
    /// Namespaces, in order of creation.
    pub(crate) namespaces: Vec<NamespaceStatus>,
    /// Tenants, in order of creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenants: Vec<TenantStatus>,
    /// Controllers, in order of creation.
    pub(crate) controllers: Vec<ControllerStatus>,
}

/// A reactor, and what it has done since it started.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReactorStatus {
    /// Its place in the configuration, from 0, which controllers write as `reactor`.
    #[serde(default)]
    pub(crate) reactor: usize,
    /// As configured.
    #[serde(flatten)]
    pub(crate) config: config::Reactor,
    /// Commands completed.
    pub(crate) commands: u64,
    /// Looks for work.
    pub(crate) turns: u64,
    /// Those that found some.
    pub(crate) turns_with_work: u64,
    /// Nanoseconds of looks that found work, and of the work.
    pub(crate) busy_ns: u64,
    /// Nanoseconds of looks that found none.
    pub(crate) spun_ns: u64,
    /// Nanoseconds asleep.
    pub(crate) slept_ns: u64,
    /// Times that it went to sleep.
    pub(crate) sleeps: u64,
    /// Looks that took longer than any work does, as the system let something else run.
    pub(crate) stalls: u64,
    /// Nanoseconds of those, which are among no others.
    pub(crate) stalled_ns: u64,
}

/// Commands that moved data, by what the kernel had to do for their memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct IoStatus {
    /// It was registered beforehand.
    pub(crate) registered: u64,
    /// It was looked up and held for the command.
    pub(crate) plain: u64,
}

/// A medium and what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MediumStatus {
    /// As configured.
    #[serde(flatten)]
    pub(crate) config: config::Medium,
    /// Its true size in bytes.
    pub(crate) bytes: u64,
    /// How it is opened, in words.
    pub(crate) description: String,
    /// Its partitions, where it has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) partitions: Vec<Partition>,
    /// Of a file where hosts' memory is registered as far as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) io: Option<IoStatus>,
}

/// A namespace and what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NamespaceStatus {
    /// As configured, but for what was changed since. One that a host has made is called `SUBSYSTEM:NSID`.
    #[serde(flatten)]
    pub(crate) config: config::Namespace,
    /// Its logical blocks.
    pub(crate) blocks: u64,
    /// The subsystem that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subsystem: Option<String>,
    /// Its identifier there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nsid: Option<u32>,
    /// The controllers that have it attached.
    pub(crate) controllers: Vec<String>,
    /// It is in no configuration: a host has made it.
    pub(crate) made_by_host: bool,
}

/// A tenant, and what it has had since it is there, on all reactors together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TenantStatus {
    /// As configured, but for what was changed since.
    #[serde(flatten)]
    pub(crate) config: config::tenant::Tenant,
    /// Commands that went to media.
    pub(crate) commands: u64,
    /// Bytes that they moved.
    pub(crate) bytes: u64,
    /// Commands that waited for its caps first.
    pub(crate) capped: u64,
    /// Commands that waited for their turn first, or for its limit of commands in flight.
    pub(crate) held: u64,
    /// Commands that media have of it.
    pub(crate) at_media: u64,
}

/// A controller and what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ControllerStatus {
    /// As configured, but that `namespaces` are those that are attached, and `subsystem` is there.
    #[serde(flatten)]
    pub(crate) config: config::Controller,
    /// Whether a host is attached.
    pub(crate) attached: bool,
    /// Its identifier in its subsystem (CNTLID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cntlid: Option<u16>,
    /// Doorbells of its hosts that came as messages, since it is served.
    #[serde(default)]
    pub(crate) doorbell_messages: u64,
    /// Where the queues live that its host has made.
    #[serde(default)]
    pub(crate) placement: Vec<QueuePlacement>,
}

/// A host: whoever has attached to a controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct HostStatus {
    /// The controller that it is attached to; there is one host at a time.
    pub(crate) controller: String,
    /// Where it came in: `vfio-user:PATH`, or `fuse:FOLDER` where it is a mount of this machine.
    pub(crate) listen: config::Listen,
    /// I/O queues that it has made: completion queues, with the reactors that serve them.
    pub(crate) placement: Vec<QueuePlacement>,
}

/// A partition, and the medium that it is of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PartitionStatus {
    /// The medium.
    pub(crate) media: String,
    /// What there is of it.
    #[serde(flatten)]
    pub(crate) partition: Partition,
    /// The namespace that it is, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

/// Where an I/O queue lives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueuePlacement {
    /// The completion queue; submission queues live with the one they complete into.
    pub(crate) queue: u16,
    /// The reactor that serves it.
    pub(crate) reactor: usize,
}

/// What is changed of a medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MediumChange {
    /// Parameters of its timing, by name, as they stand in a configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) timing: BTreeMap<String, Text>,
    /// Zones that it gives up, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) zones: BTreeMap<u32, ZoneLoss>,
}

/// What becomes of a zone that its drive gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ZoneLoss {
    /// It can be read, and no longer written.
    ReadOnly,
    /// It is gone with its data.
    Offline,
}

/// What is changed of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantChange {
    /// Its keys with their values, as they stand in a configuration; `none` takes one away.
    pub(crate) changes: BTreeMap<String, String>,
}

/// Where queues of a controller are to live.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPlacement {
    /// The reactors: completion queue 1 lives on the first of them, and so on in turn.
    pub(crate) reactors: Vec<usize>,
    /// Only this completion queue, on the one reactor that is named, until its host deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<u16>,
}

/// The namespace that a controller is to have.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attachment {
    /// Its name.
    pub(crate) namespace: String,
}

/// What is to become of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSize {
    /// Its size from now on.
    pub(crate) size: config::Size,
    /// It may be less than before: what lies behind is lost.
    #[serde(default)]
    pub(crate) shrink: bool,
}

/// A partition that a medium is to have.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPartition {
    /// Its name.
    pub(crate) name: String,
    /// Its size.
    pub(crate) size: config::Size,
    /// Where it begins. Default: in the first gap that is large enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<config::Size>,
}

/// What is to become of a partition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionSize {
    /// Its size from now on.
    pub(crate) size: config::Size,
}

/// How a partition is deleted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionEnd {
    /// Its bytes are zeros before its place is anybody's.
    #[serde(default)]
    pub(crate) erase: bool,
}

/// Where a partition is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionPlace {
    /// Its part of the medium.
    pub(crate) range: config::Range,
}

/// A server that has begun to end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stopping {
    /// Its process, which is there until media are durable.
    pub(crate) pid: u32,
}
