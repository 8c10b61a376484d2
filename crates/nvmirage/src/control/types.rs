//! What requests and replies hold. Objects have the keys, units and defaults of the configuration file, whose types are within.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    config::{self, Text},
    observe::{ModelStatus, PairsStatus, ZonesStatus},
    partition::Partition,
    reload::{Deed, Held, Kind, Step},
    trace::TraceStatus,
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
    /// Traces, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) traces: Vec<TraceStatus>,
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
    /// Of a file: what it was asked to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FileStatus>,
    /// Requests to what the medium lies on that failed, by cause; those that never did are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<MediumErrors>,
    /// Of a drive: what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drive: Option<DriveStatus>,
    /// The drive whose time it has, in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<ModelStatus>,
    /// Its zones, in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zones: Option<ZonesStatus>,
    /// Its keys and values, in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pairs: Option<PairsStatus>,
}

/// Requests to what a medium lies on that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct MediumErrors {
    /// Why: `no-space` (081h to hosts), `file-size` (a limit of the file's size), `read-only`, `gone`, `read` or `write`.
    pub(crate) cause: String,
    /// How many, since the medium was opened.
    pub(crate) count: u64,
    /// Whether no request of the kind that failed has succeeded since.
    pub(crate) current: bool,
    /// The system's words for the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) os_error: Option<String>,
}

/// What a file was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FileStatus {
    /// Calls that handed the kernel operations: one for each handful of a batch, and of a file in memory one for each operation.
    pub(crate) submissions: u64,
    /// Flushes that succeeded.
    pub(crate) flushes: u64,
}

/// What became of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriveStatus {
    /// Whether it is there.
    pub(crate) present: bool,
    /// Commands that it has answered: one of a host may be several.
    pub(crate) commands: u64,
    /// Requests of hosts that ended as interrupted, as it did not answer, was reset, or was lost.
    pub(crate) interrupted: u64,
    /// Queue pairs that were given up.
    pub(crate) queues_given_up: u64,
    /// Times that it was reset.
    pub(crate) resets: u64,
    /// Times that it was lost.
    pub(crate) losses: u64,
    /// Its Composite Temperature in kelvins, as it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) temperature_kelvin: Option<u64>,
    /// Its Available Spare in percent, as it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) available_spare_percent: Option<u64>,
    /// Its Percentage Used, as it said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) percentage_used: Option<u64>,
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
    /// Its process, where the system tells which that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
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

/// What is changed of a controller.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControllerChange {
    /// Of so many I/O commands the times of one are taken from now on, at random distances: 1 to 65536, or 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sample: Option<u32>,
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

/// How the configuration file is read again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadRequest {
    /// Only the plan: nothing changes.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Hosts may lose controllers and namespaces that are deleted or made anew. Without it those are held back.
    #[serde(default)]
    pub(crate) detach_hosts: bool,
}

/// What comes, or would come, of the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Reload {
    /// The file.
    pub(crate) file: String,
    /// Nothing was done.
    pub(crate) dry_run: bool,
    /// What is done, in this order.
    pub(crate) steps: Vec<PlannedStep>,
    /// What stays as it is though the file says otherwise, until the next reload.
    pub(crate) held: Vec<Held>,
    /// Keys of the file that count at the next start only.
    pub(crate) restart: Vec<String>,
    /// What was changed at run time and counts no longer, as the file has another one.
    pub(crate) lost: Vec<String>,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StepAction {
    /// It is made.
    Create,
    /// It changes.
    Change,
    /// It is deleted.
    Delete,
    /// A namespace is given to a controller.
    Attach,
    /// A namespace is taken from a controller.
    Detach,
}

/// A step on the way to what the configuration file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PlannedStep {
    /// What becomes of the object.
    pub(crate) action: StepAction,
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its name.
    pub(crate) name: String,
    /// The controller that a namespace is given to or taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    /// More about it, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

impl From<&Step> for PlannedStep {
    fn from(step: &Step) -> Self {
        let (action, controller) = match &step.deed {
            Deed::Create => (StepAction::Create, None),
            Deed::Delete => (StepAction::Delete, None),
            Deed::Attach(controller) => (StepAction::Attach, Some(controller.clone())),
            Deed::Detach(controller) => (StepAction::Detach, Some(controller.clone())),
            Deed::Retune | Deed::Resize(_) | Deed::Assign | Deed::Move | Deed::Log => {
                (StepAction::Change, None)
            }
        };
        PlannedStep {
            action,
            kind: step.id.0,
            name: step.id.1.clone(),
            controller,
            detail: step.detail.clone(),
        }
    }
}

impl PlannedStep {
    /// It in a line, with `+`, `~` or `-` in front.
    pub(crate) fn line(&self) -> String {
        let (mark, word) = match self.action {
            StepAction::Create => ("+", ""),
            StepAction::Change => ("~", ""),
            StepAction::Delete => ("-", ""),
            StepAction::Attach => ("+", " attached"),
            StepAction::Detach => ("-", " detached"),
        };
        let object = match self.kind {
            Kind::Log => "log".to_owned(),
            kind => format!("{} {}", kind.name(), self.name),
        };
        let detail = match (self.controller.is_some(), self.detail.as_str()) {
            (_, "") => String::new(),
            (true, detail) => format!(" {detail}"),
            (false, detail) => format!(": {detail}"),
        };
        format!("{mark} {object}{word}{detail}")
    }
}

impl Reload {
    /// A line for each step, and for each thing that stays as it is.
    pub(crate) fn lines(&self) -> Vec<String> {
        let steps = self.steps.iter().map(PlannedStep::line);
        let held = self.held.iter().map(|held| {
            format!(
                "! {} {} stays as it is: {}",
                held.kind.name(),
                held.name,
                held.why
            )
        });
        let restart = self.restart.iter();
        let restart = restart.map(|key| format!("! {key}: counts at the next start of the server"));
        steps.chain(held).chain(restart).collect()
    }

    /// The file is served as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.held.is_empty() && self.restart.is_empty()
    }
}
