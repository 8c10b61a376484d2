//! Configurations, and the requests and replies of the control API: the interface between the
//! program's parts, and to its users.
//!
//! A key has one name, one unit and one default here, for the configuration file, the control API
//! and the command line. There is no HTTP, thread, clock or file.
#![forbid(unsafe_code)]

mod body;
mod change;
pub mod config;
mod event;
mod latency;
mod map;
mod model_status;
mod partition;
mod plan;
mod queues;
pub mod refusal;
mod request;
mod stats;
mod status;
mod timing;
mod trace;

pub use body::from_json;
pub use change::changed;
pub use event::{Event, What};
pub use latency::{Latency, LatencyReport, StageTime, StatusErrors, WatchedCommand};
pub use map::{
    FlashGeometry, FlashMap, FlashOpenLine, FlashPartition, LineCells, MOST_CELLS, MapNamespace,
    MediumMap, ZoneCells, ZoneEntry, ZoneMap,
};
pub use model_status::{
    AskedStatus, BufferStatus, BusyStatus, CollectionStatus, FlashStatus, LineStatus, ModelStatus,
    PairsStatus, RandomAreaStatus, ServerStatus, SlcStatus, StallStatus, WearStatus, ZonesStatus,
};
pub use partition::Partition;
pub use plan::{Held, Kind, PlannedStep, Reload, ReloadRequest, StepAction};
pub use queues::{
    CommandUnderWay, CompletionQueue, CompletionRing, DoorbellWords, HostQueues, QueuesReport,
    SubmissionQueue,
};
pub use refusal::{FieldProblem, Refusal, in_a_line, noun};
pub use request::{
    Attachment, ControllerChange, Disconnection, MediumChange, NewPartition, NewPlacement, NewSize,
    PartitionEnd, PartitionPlace, PartitionSize, TenantChange, ZoneLoss,
};
pub use stats::{ByDirection, ControllerStats, QueueStats, Stats};
pub use status::{
    AssociationStatus, Authentication, ContinuedTiming, ControllerIdentity, ControllerStatus,
    DriveStatus, EndedProcess, FileStatus, HostProcess, HostStatus, Inventory, IoStatus,
    MediumErrors, MediumStatus, NamespaceIdentity, NamespaceStatus, PartitionStatus, ProcessStatus,
    Protocol, QueuePlacement, ReactorStatus, Stopping, TenantStatus, UpgradeRequest, Upgrading,
};
pub use timing::{ParameterStatus, TimingStatus};
pub use trace::{Condition, TraceStatus};
