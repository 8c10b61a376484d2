//! Types of requests and replies. Objects have the keys, units and defaults of the configuration
//! file, whose types they embed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{self, Text};
use crate::observe::{ModelStatus, PairsStatus, ZonesStatus};
use crate::partition::Partition;
use crate::reload::{Deed, Held, Kind, Step};
use crate::trace::TraceStatus;

/// Inventory of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Inventory {
    /// Reactors, in configuration order.
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
    /// Traces, in order of their start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) traces: Vec<TraceStatus>,
}

/// Reactor, with counters since its start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReactorStatus {
    /// Number of the reactor in the configuration, from 0; controllers name it as `reactor`.
    #[serde(default)]
    pub(crate) reactor: usize,
    /// Configuration.
    #[serde(flatten)]
    pub(crate) config: config::Reactor,
    /// Commands completed.
    pub(crate) commands: u64,
    /// Turns of the polling loop.
    pub(crate) turns: u64,
    /// Turns that found work.
    pub(crate) turns_with_work: u64,
    /// Time of turns that found work, in nanoseconds.
    pub(crate) busy_ns: u64,
    /// Time of turns that found none, in nanoseconds.
    pub(crate) spun_ns: u64,
    /// Time asleep, in nanoseconds.
    pub(crate) slept_ns: u64,
    /// Number of times the reactor went to sleep.
    pub(crate) sleeps: u64,
    /// Turns longer than any work takes, because the system ran something else.
    pub(crate) stalls: u64,
    /// Time of stalled turns, in nanoseconds; counted in no other time.
    pub(crate) stalled_ns: u64,
}

/// Commands that transferred data, by how the kernel accessed their memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct IoStatus {
    /// With memory registered in advance.
    pub(crate) registered: u64,
    /// With memory pinned for the command.
    pub(crate) plain: u64,
}

/// Medium and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MediumStatus {
    /// Configuration.
    #[serde(flatten)]
    pub(crate) config: config::Medium,
    /// Actual size in bytes.
    pub(crate) bytes: u64,
    /// Description of how the medium is opened.
    pub(crate) description: String,
    /// Partitions, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) partitions: Vec<Partition>,
    /// Commands by memory registration; for a file with `register_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) io: Option<IoStatus>,
    /// Counters of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<FileStatus>,
    /// Failed requests to the underlying storage, by cause; causes that never occurred are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<MediumErrors>,
    /// Status of the drive; for `kind = "drive"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drive: Option<DriveStatus>,
    /// Status of the timing model; only in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<ModelStatus>,
    /// Status of the zones; only in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zones: Option<ZonesStatus>,
    /// Status of keys and values; only in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pairs: Option<PairsStatus>,
}

/// Requests to a medium's underlying storage that failed for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct MediumErrors {
    /// Cause: `no-space` (081h to hosts), `file-size` (a limit on the file's size), `read-only`,
    /// `gone`, `read` or `write`.
    pub(crate) cause: String,
    /// Number of failures since the medium was opened.
    pub(crate) count: u64,
    /// Whether no request of the failed kind has succeeded since.
    pub(crate) current: bool,
    /// The system's error text of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) os_error: Option<String>,
}

/// Counters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FileStatus {
    /// Submission calls: one for each group of operations handed to the kernel; for a file in
    /// memory, one for each operation.
    pub(crate) submissions: u64,
    /// Successful flushes.
    pub(crate) flushes: u64,
}

/// Status of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DriveStatus {
    /// Whether the drive is present.
    pub(crate) present: bool,
    /// Commands completed by the drive; one host command may be several.
    pub(crate) commands: u64,
    /// Host requests that ended as interrupted because the drive timed out, was reset, or was lost.
    pub(crate) interrupted: u64,
    /// Queue pairs that were abandoned.
    pub(crate) queues_given_up: u64,
    /// Number of resets.
    pub(crate) resets: u64,
    /// Number of times the drive was lost.
    pub(crate) losses: u64,
    /// Last reported Composite Temperature, in kelvins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) temperature_kelvin: Option<u64>,
    /// Last reported Available Spare, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) available_spare_percent: Option<u64>,
    /// Last reported Percentage Used, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) percentage_used: Option<u64>,
}

/// Namespace and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NamespaceStatus {
    /// Configuration, with later changes. A namespace that a host created is named
    /// `SUBSYSTEM:NSID`.
    #[serde(flatten)]
    pub(crate) config: config::Namespace,
    /// Number of logical blocks.
    pub(crate) blocks: u64,
    /// Subsystem of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subsystem: Option<String>,
    /// Namespace identifier in the subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nsid: Option<u32>,
    /// Controllers that the namespace is attached to.
    pub(crate) controllers: Vec<String>,
    /// Whether a host created the namespace; it is then in no configuration.
    pub(crate) made_by_host: bool,
}

/// Tenant, with counters since its creation, summed over all reactors.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TenantStatus {
    /// Configuration, with later changes.
    #[serde(flatten)]
    pub(crate) config: config::tenant::Tenant,
    /// Commands submitted to media.
    pub(crate) commands: u64,
    /// Bytes transferred by these commands.
    pub(crate) bytes: u64,
    /// Commands delayed by the tenant's `iops` or `bandwidth`.
    pub(crate) capped: u64,
    /// Commands delayed by scheduling, or by the tenant's `in_flight` limit.
    pub(crate) held: u64,
    /// Commands in flight at media.
    pub(crate) at_media: u64,
}

/// Controller and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ControllerStatus {
    /// Configuration, except that `namespaces` lists the attached namespaces, and `subsystem` is
    /// always present.
    #[serde(flatten)]
    pub(crate) config: config::Controller,
    /// Whether a host is attached.
    pub(crate) attached: bool,
    /// Controller identifier in the subsystem (CNTLID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cntlid: Option<u16>,
    /// Doorbell writes that arrived as messages, since the controller was created.
    #[serde(default)]
    pub(crate) doorbell_messages: u64,
    /// Placement of the queues that the host created.
    #[serde(default)]
    pub(crate) placement: Vec<QueuePlacement>,
}

/// Host attached to a controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct HostStatus {
    /// Controller that the host is attached to; a controller has one host at a time.
    pub(crate) controller: String,
    /// Address that the host used: `vfio-user:PATH`, or `fuse:FOLDER` for a mount on this machine.
    pub(crate) listen: config::Listen,
    /// Process ID of the host, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    /// I/O completion queues that the host created, with the reactors that serve them.
    pub(crate) placement: Vec<QueuePlacement>,
}

/// Partition and its medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PartitionStatus {
    /// Medium of the partition.
    pub(crate) media: String,
    /// Partition.
    #[serde(flatten)]
    pub(crate) partition: Partition,
    /// Namespace that uses the partition, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

/// Placement of an I/O queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueuePlacement {
    /// Completion queue; the submission queues that complete into it are on the same reactor.
    pub(crate) queue: u16,
    /// Reactor that serves the queue.
    pub(crate) reactor: usize,
}

/// Change of a medium.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MediumChange {
    /// Timing parameters by name, as in a configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) timing: BTreeMap<String, Text>,
    /// New states of zones, by zone number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) zones: BTreeMap<u32, ZoneLoss>,
}

/// State of a zone that the drive loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ZoneLoss {
    /// Readable, no longer writable.
    ReadOnly,
    /// Offline; its data is lost.
    Offline,
}

/// Change of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantChange {
    /// Keys with their values, as in a configuration; `none` removes a key.
    pub(crate) changes: BTreeMap<String, String>,
}

/// Change of a controller.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControllerChange {
    /// Latency sampling rate: on average one in N I/O commands is timed. 1 to 65536; 0 disables
    /// sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sample: Option<u32>,
}

/// New placement of a controller's queues.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPlacement {
    /// Numbers of the reactors: completion queue 1 on the first, and so on in turn.
    pub(crate) reactors: Vec<usize>,
    /// Only this completion queue, moved to the single reactor named, until its host deletes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<u16>,
}

/// Namespace to attach to a controller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attachment {
    /// Name of the namespace.
    pub(crate) namespace: String,
}

/// New size of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSize {
    /// New size.
    pub(crate) size: config::Size,
    /// Allow the namespace to shrink; data behind its new end is lost.
    #[serde(default)]
    pub(crate) shrink: bool,
}

/// New partition of a medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPartition {
    /// Name of the partition.
    pub(crate) name: String,
    /// Size of the partition.
    pub(crate) size: config::Size,
    /// Start of the partition. Default: the first gap that is large enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<config::Size>,
}

/// New size of a partition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionSize {
    /// New size.
    pub(crate) size: config::Size,
}

/// Options of a partition's deletion.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionEnd {
    /// Zero the partition's bytes before its space is free. Default: false.
    #[serde(default)]
    pub(crate) erase: bool,
}

/// Location of a partition.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionPlace {
    /// Byte range on the medium.
    pub(crate) range: config::Range,
}

/// Server that is stopping.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stopping {
    /// Process ID; the process exits when all media are durable.
    pub(crate) pid: u32,
}

/// Options of a configuration reload.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadRequest {
    /// Compute the plan without applying it. Default: false.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Allow hosts to lose controllers and namespaces that are deleted or recreated; otherwise
    /// these are deferred. Default: false.
    #[serde(default)]
    pub(crate) detach_hosts: bool,
}

/// Result, or plan, of a configuration reload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Reload {
    /// Configuration file.
    pub(crate) file: String,
    /// Whether this is only a plan.
    pub(crate) dry_run: bool,
    /// Steps in order.
    pub(crate) steps: Vec<PlannedStep>,
    /// Deferred changes: objects that keep their state until the next reload.
    pub(crate) held: Vec<Held>,
    /// Keys of the file that take effect only at the next start.
    pub(crate) restart: Vec<String>,
    /// Changes made at run time that the file overrides.
    pub(crate) lost: Vec<String>,
}

/// Action on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StepAction {
    /// Create the object.
    Create,
    /// Change the object.
    Change,
    /// Delete the object.
    Delete,
    /// Attach a namespace to a controller.
    Attach,
    /// Detach a namespace from a controller.
    Detach,
}

/// Step of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PlannedStep {
    /// Action on the object.
    pub(crate) action: StepAction,
    /// Kind of the object.
    pub(crate) kind: Kind,
    /// Name of the object.
    pub(crate) name: String,
    /// Controller that a namespace is attached to or detached from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    /// Details, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

impl From<&Step> for PlannedStep {
    fn from(step: &Step) -> Self {
        let (action, controller) = match &step.deed {
            Deed::Create => (StepAction::Create, None),
            Deed::Delete => (StepAction::Delete, None),
            Deed::Attach(controller) => (StepAction::Attach, Some(controller.as_str().to_owned())),
            Deed::Detach(controller) => (StepAction::Detach, Some(controller.as_str().to_owned())),
            Deed::Retune | Deed::Resize(_) | Deed::Assign | Deed::Move | Deed::Log => {
                (StepAction::Change, None)
            }
        };
        PlannedStep {
            action,
            kind: step.id.kind(),
            name: step.id.name().to_owned(),
            controller,
            detail: step.detail.clone(),
        }
    }
}

impl PlannedStep {
    /// The step as one line, with `+`, `~` or `-` in front.
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
    /// A line for each step, and for each deferred change.
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
        let restart =
            restart.map(|key| format!("! {key}: takes effect at the next start of the server"));
        steps.chain(held).chain(restart).collect()
    }

    /// Whether the file is applied completely.
    pub(crate) fn is_whole(&self) -> bool {
        self.held.is_empty() && self.restart.is_empty()
    }
}
