//! Objects of the server with their status. Objects have the keys, units and defaults of the
//! configuration file, whose types they embed.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config;
use crate::model_status::{ModelStatus, PairsStatus, ZonesStatus};
use crate::partition::Partition;
use crate::trace::TraceStatus;

/// Inventory of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Inventory {
    /// The server's process.
    #[serde(default)]
    pub process: ProcessStatus,
    /// Reactors, in configuration order.
    #[serde(default)]
    pub reactors: Vec<ReactorStatus>,
    /// Media, in order of creation.
    pub media: Vec<MediumStatus>,
    /// Namespaces, in order of creation.
    pub namespaces: Vec<NamespaceStatus>,
    /// Tenants, in order of creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantStatus>,
    /// Controllers, in order of creation.
    pub controllers: Vec<ControllerStatus>,
    /// Traces, in order of their start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<TraceStatus>,
}

/// Reactor, with counters since its start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReactorStatus {
    /// Number of the reactor in the configuration, from 0; controllers name it as `reactor`.
    #[serde(default)]
    pub reactor: usize,
    /// Configuration.
    #[serde(flatten)]
    pub config: config::Reactor,
    /// Commands completed.
    pub commands: u64,
    /// Turns of the polling loop.
    pub turns: u64,
    /// Turns that found work.
    pub turns_with_work: u64,
    /// Time of turns that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Time of turns that found none, in nanoseconds.
    pub spinning_ns: u64,
    /// Time asleep, in nanoseconds.
    pub asleep_ns: u64,
    /// Number of times the reactor went to sleep.
    pub sleeps: u64,
    /// Turns during which the system ran something else for more than 200 us.
    pub stalls: u64,
    /// Time that the system ran something else in turns longer than 200 us, in nanoseconds; counted
    /// in no other time.
    pub stalled_ns: u64,
}

/// Commands that transferred data, by how the kernel accessed their memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct IoStatus {
    /// With memory registered in advance.
    pub registered: u64,
    /// With memory pinned for the command.
    pub plain: u64,
}

/// Medium and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MediumStatus {
    /// Configuration.
    #[serde(flatten)]
    pub config: config::Medium,
    /// Actual size in bytes.
    pub bytes: u64,
    /// Description of how the medium is opened.
    pub description: String,
    /// Partitions, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
    /// Bytes of memory allocated in advance; with `preallocate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocated_bytes: Option<u64>,
    /// Commands by memory registration; for a file with `register_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStatus>,
    /// Counters of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileStatus>,
    /// Failed requests to the underlying storage, by cause; causes that never occurred are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<MediumErrors>,
    /// Status of the drive; for `kind = "drive"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveStatus>,
    /// Status of the timing model; only in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelStatus>,
    /// Status of the zones; only in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZonesStatus>,
    /// Status of keys and values; only in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairsStatus>,
}

/// Requests to a medium's underlying storage that failed for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MediumErrors {
    /// Cause: `no-space` (081h to hosts), `file-size` (a limit on the file's size), `read-only`,
    /// `gone`, `read` or `write`.
    pub cause: String,
    /// Number of failures since the medium was opened.
    pub count: u64,
    /// Whether no request of the failed kind has succeeded since.
    pub current: bool,
    /// The system's error text of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_error: Option<String>,
}

/// Counters of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileStatus {
    /// Submission calls: one for each group of operations handed to the kernel; for a file in
    /// memory, one for each operation.
    pub submissions: u64,
    /// Successful flushes.
    pub flushes: u64,
}

/// Status of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveStatus {
    /// Whether the drive is present.
    pub present: bool,
    /// Commands completed by the drive; one host command may be several.
    pub commands: u64,
    /// Host requests that ended as interrupted because the drive timed out, was reset, or was lost.
    pub interrupted: u64,
    /// Queue pairs that were abandoned.
    pub queues_given_up: u64,
    /// Number of resets.
    pub resets: u64,
    /// Number of times the drive was lost.
    pub losses: u64,
    /// Last reported Composite Temperature, in kelvins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_kelvin: Option<u64>,
    /// Last reported Available Spare, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_spare_percent: Option<u64>,
    /// Last reported Percentage Used, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage_used: Option<u64>,
}

/// Namespace and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NamespaceStatus {
    /// Configuration, with later changes. A namespace that a host created is named
    /// `SUBSYSTEM:NSID`.
    #[serde(flatten)]
    pub config: config::Namespace,
    /// Number of logical blocks; 0 on a medium of keys and values.
    pub blocks: u64,
    /// Subsystem of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// Namespace identifier in the subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Controllers that the namespace is attached to.
    pub controllers: Vec<String>,
    /// Whether a host created the namespace; it is then in no configuration.
    pub made_by_host: bool,
    /// Identity that hosts see, while the namespace is in a subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<NamespaceIdentity>,
}

/// Identity of a namespace: as configured, else derived from its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceIdentity {
    /// NGUID, as 32 hexadecimal digits.
    pub nguid: String,
    /// EUI-64, as 16 hexadecimal digits.
    pub eui64: String,
    /// UUID, as `nvme ns-descs` and `/sys/block/*/uuid` show it in a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// Identity of a controller's subsystem: as configured, else derived from its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerIdentity {
    /// Serial number, which `nvme list` shows in a guest.
    pub serial: String,
    /// NVMe Qualified Name of the subsystem.
    pub subnqn: String,
}

/// Process of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostProcess {
    /// Process ID, as the host's socket reports it.
    pub process: u32,
    /// Name of the process, where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Tenant, with counters since its creation, summed over all reactors.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantStatus {
    /// Configuration, with later changes.
    #[serde(flatten)]
    pub config: config::tenant::Tenant,
    /// Commands submitted to media.
    pub commands: u64,
    /// Bytes transferred by these commands.
    pub bytes: u64,
    /// Commands delayed by the tenant's `iops` or `bandwidth`.
    pub capped: u64,
    /// Commands delayed by scheduling, or by the tenant's `in_flight` limit.
    pub held: u64,
    /// Commands in flight at media.
    pub at_media: u64,
}

/// Controller and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ControllerStatus {
    /// Configuration, except that `namespaces` lists the attached namespaces, and `subsystem` is
    /// always present.
    #[serde(flatten)]
    pub config: config::Controller,
    /// Identity that hosts see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ControllerIdentity>,
    /// Whether a host is attached.
    pub attached: bool,
    /// Process of the host, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostProcess>,
    /// Hosts over NVMe/TCP and NBD clients, in order of arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<AssociationStatus>,
    /// Path of the block device, as `/dev/ublkb0`; for ublk, once Linux has made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// State of the block device, in words; for ublk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Controller identifier in the subsystem (CNTLID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cntlid: Option<u16>,
    /// Doorbell writes that arrived as messages, since the controller was created.
    #[serde(default)]
    pub doorbell_messages: u64,
    /// Placement of the queues that the host created.
    #[serde(default)]
    pub placement: Vec<QueuePlacement>,
}

/// Authentication of a host over NVMe/TCP. NBD clients have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Authentication {
    /// None: the host has no secret in the configuration.
    #[default]
    None,
    /// In progress: nothing else is served before it has ended.
    Pending,
    /// The host has authenticated itself by DH-HMAC-CHAP.
    Host,
    /// The host and the controller have authenticated themselves by DH-HMAC-CHAP.
    Both,
}

/// Protocol of a controller whose hosts have controllers of their own inside the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// NVMe/TCP: a host is an association, with a connection for each of its queues.
    #[default]
    NvmeTcp,
    /// NBD: a host is a client with one connection, to one export.
    Nbd,
    /// vhost-user-blk: the host is the front end of one guest, with one namespace.
    VhostUserBlk,
    /// ublk: the host is a block device of this machine, with one namespace.
    Ublk,
}

/// Host over NVMe/TCP, NBD client, vhost-user-blk front end, or block device of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AssociationStatus {
    /// Protocol of the host.
    #[serde(default)]
    pub protocol: Protocol,
    /// NVMe Qualified Name of the host, as the host reports it. Absent over NBD, vhost-user-blk
    /// and ublk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nqn: String,
    /// Export of an NBD client, or namespace of a vhost-user-blk front end or of a block device:
    /// the name of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Address of the host's admin connection, or of an NBD client. Absent on a UNIX
    /// socket, and for a block device.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Identifier of the host's controller in the subsystem (CNTLID).
    pub cntlid: u16,
    /// How the host was authenticated.
    #[serde(default)]
    pub authentication: Authentication,
    /// The host has connected through TLS.
    #[serde(default)]
    pub tls: bool,
    /// Number of I/O queues.
    pub io_queues: u16,
    /// Keep alive timeout in milliseconds; 0: none.
    pub keep_alive_ms: u32,
    /// Time since the host connected, in milliseconds.
    pub connected_ms: u64,
}

/// Host attached to a controller; of a controller over NVMe/TCP, NBD, vhost-user-blk or ublk, all
/// of its hosts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostStatus {
    /// Controller that the host is attached to.
    pub controller: String,
    /// Address that the host used: `vfio-user:PATH`, `nvme-tcp:ADDRESS:PORT`, `nbd:PATH`,
    /// `nbd:ADDRESS:PORT`, `vhost-user-blk:PATH`, `ublk:` or `ublk:ID` for a block device of
    /// this machine, or `fuse:FOLDER` for a mount on it.
    pub listen: config::Listen,
    /// Hosts over NVMe/TCP, NBD clients, the vhost-user-blk front end, or the block device, in
    /// order of arrival; other controllers have one host at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<AssociationStatus>,
    /// Path of the block device, as `/dev/ublkb0`; for ublk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Process ID of the host, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Name of that process, where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// I/O completion queues that the host created, with the reactors that serve them.
    pub placement: Vec<QueuePlacement>,
}

/// Partition and its medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PartitionStatus {
    /// Medium of the partition.
    pub media: String,
    /// Partition.
    #[serde(flatten)]
    pub partition: Partition,
    /// Namespace that uses the partition, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Placement of an I/O queue.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuePlacement {
    /// Completion queue; the submission queues that complete into it are on the same reactor.
    pub queue: u16,
    /// Reactor that serves the queue.
    pub reactor: usize,
}

/// The server's process.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProcessStatus {
    /// Process ID.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// Whether another process goes on with the hosts when it dies (`serve --survive`).
    pub survives: bool,
    /// Number of the process, from 1; more than 1 after a death or an upgrade.
    pub generation: u64,
    /// The process before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<EndedProcess>,
}

/// A process of the server that has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EndedProcess {
    /// Cause of its end: a signal, an exit status, or `upgrade`.
    pub cause: String,
    /// Time in which its hosts were not served, in milliseconds.
    pub pause_ms: u64,
    /// Commands that it had in flight and that were executed again.
    #[serde(default)]
    pub replayed: u64,
    /// Commands that it had in flight and that ended as interrupted, or with an error, instead.
    #[serde(default)]
    pub interrupted: u64,
    /// Timing models that continue with a checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timing: Vec<ContinuedTiming>,
}

/// Timing model that continues in another process of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContinuedTiming {
    /// Its medium.
    pub media: String,
    /// Age of its checkpoint when the last process ended, in milliseconds. Later writes
    /// of hosts are in the data and not in the model. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_age_ms: Option<u64>,
    /// Whether its checkpoint was missing or damaged: the model has begun as a new drive.
    pub lost: bool,
}

/// Request to replace the server's program.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpgradeRequest {
    /// Absolute path of the program.
    pub program: String,
}

/// Server that another program takes over.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Upgrading {
    /// Process ID of the process that ends.
    pub pid: u32,
    /// Version of the program that takes over.
    pub version: String,
    /// Block devices of ublk that are not quiet, each with the reason: the other program gets their
    /// requests in flight again, or they end with this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_quiesced: Vec<String>,
}

/// Server that is stopping.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Stopping {
    /// Process ID; the process exits when all media are durable.
    pub pid: u32,
}
